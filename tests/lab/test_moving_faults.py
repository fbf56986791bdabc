"""Clients that move under simulated faults: nothing is lost, twice or out of order, and planted faults are noticed."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest

from broker import test_abandon as abandon
from broker import test_lost_departures as lost_departures
from broker import test_markers as markers
from broker import test_move_table as move_table
from broker import test_moves as moves
from lab.move_mutants import MOVE_MUTANTS
from weft.protocol.move_messages import MoveChunk, MoveFlush
from weftlab.faults.campaign import Setting, run_seed
from weftlab.faults.moving_client import MovingClient
from weftlab.faults.moving_world import MovingWorld
from weftlab.faults.plan import DRASTIC, MOVE_FAULTS, MOVES, Plan, draw_moving_plan

SETTING = Setting(network=True, moves=True)
SEEDS = 500
ROUTINE = {  # with the number of seeds in which each is found
    "the publisher renumbers": 6,
    "what the old broker had is not dropped": 6,
    "the client does not recognize events": 6,
    "the own tombstone is not asked": 3,
}
GOES_ON, LATE = "a_copy_goes_on_with_what_it_has_and_gets_the_rest_late", "begins_anew_and_gets_the_rest_late"
NOT_TAKEN = "an_invited_broker_that_does_not_take_a_session_says_so_and_it_may_be_changed"
ELSEWHERE = "the_old_broker_does_not_welcome_a_client_that_has_gone_on_elsewhere"
DIRECTED: dict[
    str, tuple[ModuleType, str, *tuple[Any, ...]]
] = {  # rare at random, or not judged there: which test finds it
    "a marker waits for learning only": (markers, "a_marker_waits_until_what_was_learnt_before_it_is_stored"),
    "relays are not gated": (markers, "a_marker_does_not_overtake_interest_that_is_learnt_later"),
    "the epoch is not stored": (move_table, "nothing_is_said_before_what_it_says_is_stored"),
    "interest is withdrawn before the cut is stored": (
        move_table,
        "the_old_broker_withdraws_nothing_before_the_cut_is_stored",
    ),
    "the version of a session is not compared": (move_table, "a_change_by_the_broker_itself_makes_the_marker_void"),
    "the rules of the new broker are not checked": (moves, NOT_TAKEN),
    "a refusal of an invited broker is not sent": (moves, NOT_TAKEN),
    "what is abandoned is not claimed": (abandon, f"a_session_whose_broker_is_gone_{LATE}", False),
    "a claim is not restored": (abandon, f"a_session_whose_broker_is_gone_{LATE}", True),
    "what comes late was delivered already": (abandon, GOES_ON, MoveFlush),
    "a gap is not reported": (abandon, GOES_ON, MoveFlush),
    "an abandoned publisher keeps its epoch": (abandon, "a_publisher_begins_another_epoch"),
    "a slow broker is abandoned": (abandon, "a_broker_that_answers_slowly_is_not_abandoned", pytest.MonkeyPatch),
    "a session that has gone on elsewhere is welcome": (abandon, ELSEWHERE),
    "an older state of a session is not forgotten": (
        abandon,
        "a_broker_that_was_restored_from_a_backup_forgets_a_session_that_had_left",
    ),
    "what came since the description is trimmed": (
        moves,
        "what_is_acknowledged_and_trimmed_while_the_session_leaves_does_not_come_again",
        False,
    ),
    "what is lost is not handed on": (lost_departures, "a_client_gets_what_the_old_broker_has", "b", False),
    "nobody says that a session is not asked for": (
        abandon,
        "a_session_may_be_changed_again_when_the_broker_that_asked_for_it_has_forgotten_that",
    ),
    "a broker that knows nothing does not say so": (
        abandon,
        "a_broker_that_was_restored_in_the_middle_of_a_move_goes_on_with_what_it_has",
        MoveChunk,
        False,
    ),
}
UNSAFE = {  # protocols of the thesis that lose events (5.3 to 5.5), each with seeds in which that shows
    "flush beside the links": (2, 4),
    "subscriptions on the device": (13, 21, 54),
    "direct fetch after complete": (1,),
    "delayed unadvertisement": (2, 3),
    "tear down and set up": (3, 8),
}
PUBLISHERS = {"delayed unadvertisement", "tear down and set up"}  # only with advertisements


class LossWorld(MovingWorld):
    """Follows only what is lost: events may come twice and out of order, and sessions may be made anew."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        for client in self.clients:
            client.forgiving = True

    def _publish(self, client: MovingClient, rng: Random) -> None:
        self.brokers[0].oracle.repeats.add(f"{client.name}:{self._uids + 1}")
        super()._publish(client, rng)

    def _judge(self) -> None:
        pass


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


@pytest.mark.parametrize("name", DIRECTED)
def test_a_planted_fault_is_noticed_by_a_directed_test(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MOVE_MUTANTS[name](monkeypatch)
    module, test, *arguments = DIRECTED[name]
    with pytest.raises(AssertionError):
        getattr(module, f"test_{test}")(*(monkeypatch if each is pytest.MonkeyPatch else each for each in arguments))


@pytest.mark.parametrize("name", UNSAFE)
def test_protocols_of_the_thesis_lose_events(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MOVE_MUTANTS[name](monkeypatch)
    setting = SETTING._replace(advertised=True) if name in PUBLISHERS else SETTING
    failures = (LossWorld(setting.plan(seed)).run().failure for seed in UNSAFE[name])
    assert any("lacks" in failure for failure in failures)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*MOVE_MUTANTS} - {*ROUTINE, *DIRECTED, *UNSAFE}))
def test_a_planted_fault_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MOVE_MUTANTS[name](monkeypatch)
    assert any(run_seed(seed, SETTING).failure for seed in range(SEEDS)), f"nobody noticed: {name}"
