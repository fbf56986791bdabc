"""Every planted fault is caught within 200 seeds. `make mutants` runs all; two are part of the routine run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet

from sim.link_mutants import LINK_MUTANTS
from sim.mutants import MUTANTS
from weft.sim.faults.campaign import MANY_BROKERS, run_seed

SEEDS = 200
ROUTINE = ("acknowledge before sync", "the obvious rule for complete")


def marked(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[] if name in ROUTINE else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", marked(MUTANTS))
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(run_seed(seed).failure for seed in range(SEEDS)), f"nobody noticed: {name}"


@pytest.mark.parametrize("name", marked(LINK_MUTANTS))
def test_a_mutant_of_links_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    LINK_MUTANTS[name](monkeypatch)
    failures = (run_seed(seed, MANY_BROKERS).failure for seed in range(SEEDS))
    first = next((failure for failure in failures if failure), "")
    assert first, f"nobody noticed: {name}"
    assert "TypeError" not in first, f"{name} does not fit the broker: {first}"
