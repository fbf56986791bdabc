"""Clients that move under simulated faults: nothing is lost, twice or out of order, and planted faults are noticed."""

from __future__ import annotations

import pytest

from lab.move_mutants import MOVE_MUTANTS
from weftlab.faults.campaign import Setting, run_seed
from weftlab.faults.plan import DRASTIC, MOVE_FAULTS, MOVES, draw_moving_plan

SETTING = Setting(network=True, moves=True)
SEEDS = 500
ROUTINE = {  # with the number of seeds in which each is found
    "subscriptions on the device": 3,
    "publish before the end": 3,
    "the publisher renumbers": 6,
    "what the old broker had is not dropped": 6,
    "the client does not recognize events": 6,
    "the own tombstone is not asked": 3,
}
DIRECTED = {  # rare at random: see `broker/test_markers`, and the last tests of `broker/test_move_table`
    "a marker waits for learning only",
    "relays are not gated",
    "the epoch is not stored",
}


@pytest.mark.parametrize("seed", range(5))
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
    plans = [draw_moving_plan(seed) for seed in range(200)]
    assert {step.what for plan in plans for step in plan.steps} == {*MOVES, *MOVE_FAULTS, *DRASTIC}
    assert {plan.shape.advertised for plan in plans} == {False, True}


@pytest.mark.parametrize("name", ROUTINE)
def test_a_planted_fault_is_noticed_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MOVE_MUTANTS[name](monkeypatch)
    first = next((failure for seed in range(ROUTINE[name]) if (failure := run_seed(seed, SETTING).failure)), "")
    assert first, f"nobody noticed: {name}"
    assert "TypeError" not in first, f"{name} does not fit the broker: {first}"
    assert "AttributeError" not in first, f"{name} does not fit the broker: {first}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MOVE_MUTANTS if name not in ROUTINE and name not in DIRECTED])
def test_a_planted_fault_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MOVE_MUTANTS[name](monkeypatch)
    assert any(run_seed(seed, SETTING).failure for seed in range(SEEDS)), f"nobody noticed: {name}"
