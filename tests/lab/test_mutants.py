"""Every planted fault is caught within 200 seeds. `make mutants` runs all; four are part of the routine run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet

from lab.client_mutants import CLIENT_MUTANTS
from lab.driver_mutants import DRIVER_MUTANTS, NETWORK_DRIVER_MUTANTS
from lab.link_mutants import LINK_MUTANTS
from lab.mutants import MUTANTS
from weftlab.faults.campaign import MANY_BROKERS, run_seed

SEEDS = 200
ROUTINE = (
    "acknowledge before sync",
    "the obvious rule for complete",
    "a send is dropped",
    "events are confirmed when they are sent",
)


def marked(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[] if name in ROUTINE else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", marked([*MUTANTS, *DRIVER_MUTANTS]))
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (MUTANTS | DRIVER_MUTANTS)[name](monkeypatch)
    assert any(run_seed(seed).failure for seed in range(SEEDS)), f"nobody noticed: {name}"


@pytest.mark.parametrize("name", marked(CLIENT_MUTANTS))
def test_a_mutant_of_the_client_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CLIENT_MUTANTS[name](monkeypatch)
    first = next((failure for seed in range(SEEDS) if (failure := run_seed(seed).failure)), "")
    assert first, f"nobody noticed: {name}"
    assert "TypeError" not in first, f"{name} does not fit the client: {first}"
    assert "AttributeError" not in first, f"{name} does not fit the client: {first}"


@pytest.mark.parametrize("name", marked([*LINK_MUTANTS, *NETWORK_DRIVER_MUTANTS]))
def test_a_mutant_of_links_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (LINK_MUTANTS | NETWORK_DRIVER_MUTANTS)[name](monkeypatch)
    failures = (run_seed(seed, MANY_BROKERS).failure for seed in range(SEEDS))
    first = next((failure for failure in failures if failure), "")
    assert first, f"nobody noticed: {name}"
    assert "TypeError" not in first, f"{name} does not fit the broker: {first}"
