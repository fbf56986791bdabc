"""Every table keeps the contract, on every kind of network: one body, many tables."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from routing.machine import network
from routing.models import TABLES
from strategies import EXAMPLES, thorough


@pytest.mark.parametrize("hierarchical", [False, True], ids=["peers", "hierarchy"])
@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_keeps_the_contract(name: str, advertised: bool, hierarchical: bool) -> None:
    machine = network(TABLES[name], advertised, hierarchical)
    steps = settings(thorough(4, routine=2), stateful_step_count=30 if EXAMPLES == 1 else 50)
    run_state_machine_as_test(machine, settings=steps)  # type: ignore[no-untyped-call]
