"""Every planted fault is caught within 200 seeds. `make mutants` runs all; one is part of the routine run."""

from __future__ import annotations

import pytest

from sim.mutants import MUTANTS
from weft.sim.faults.campaign import run_seed

SEEDS = 200


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "acknowledge before sync" else pytest.mark.slow) for name in MUTANTS],
)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(run_seed(seed).failure for seed in range(SEEDS)), f"nobody noticed: {name}"
