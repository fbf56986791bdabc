"""Profiles under simulated faults: at every quiet moment the pairs shown are those of one scan (law 13)."""

from __future__ import annotations

import pytest

from lab.profile_mutants import PROFILE_MUTANTS
from weftlab.faults.campaign import Setting, run_seed
from weftlab.faults.plan import PROFILE_FAULTS, PROFILE_OPERATIONS, draw_profile_plan

SETTING = Setting(network=True, profiles=True)
SEEDS = 300


@pytest.mark.parametrize("seed", range(4))
def test_every_promise_is_kept(seed: int) -> None:
    assert run_seed(seed, SETTING).failure == ""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_every_promise_is_kept_in_many_seeds(first: int) -> None:
    failures = {seed: failure for seed in range(first, first + 100) if (failure := run_seed(seed, SETTING).failure)}
    assert failures == {}


def test_a_seed_always_gives_the_same_run() -> None:
    assert run_seed(3, SETTING).trace.digest() == run_seed(3, SETTING).trace.digest()


def test_everything_occurs() -> None:
    plans = [draw_profile_plan(seed) for seed in range(200)]
    assert {step.what for plan in plans for step in plan.steps} == {*PROFILE_OPERATIONS, *PROFILE_FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILE_MUTANTS)
def test_a_planted_fault_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PROFILE_MUTANTS[name](monkeypatch)
    first = next((failure for seed in range(SEEDS) if (failure := run_seed(seed, SETTING).failure)), "")
    assert first, f"nobody noticed: {name}"
    assert "TypeError" not in first, f"{name} does not fit the broker: {first}"
    assert "AttributeError" not in first, f"{name} does not fit the broker: {first}"
