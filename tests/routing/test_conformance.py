"""Every table keeps the contract, on every kind of network: one body, many tables."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from routing.machine import network
from routing.models import TABLES
from strategies import EXAMPLES, thorough

ABOUT = {"subscriptions": False, "advertisements": True}
SHAPES = {"peers": False, "hierarchy": True}


def networks() -> list[ParameterSet]:
    """Every table on every kind of network. In a routine run each table is on two of the four kinds, by turns."""
    return [
        pytest.param(
            name,
            advertised,
            hierarchical,
            marks=[pytest.mark.slow] * ((number + advertised + hierarchical) % 2),
            id=f"{name}-{told}-{shape}",
        )
        for number, name in enumerate(TABLES)
        for told, advertised in ABOUT.items()
        for shape, hierarchical in SHAPES.items()
    ]


@pytest.mark.parametrize(("name", "advertised", "hierarchical"), networks())
def test_a_table_keeps_the_contract(name: str, advertised: bool, hierarchical: bool) -> None:
    machine = network(TABLES[name], advertised, hierarchical)
    steps = settings(thorough(4, routine=2), stateful_step_count=30 if EXAMPLES == 1 else 50)
    run_state_machine_as_test(machine, settings=steps)  # type: ignore[no-untyped-call]
