"""A broker under simulated faults: every seed keeps every promise, and everything that can happen does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import pytest

from strategies import EXAMPLES
from weft.language.text import parse
from weft.protocol.messages import (
    AskSpace,
    BrokerMessage,
    ClientMessage,
    Incomplete,
    OfferedSpace,
    ProfilePublished,
    PublishPlaced,
    PublishProfile,
    SubscribeProfiles,
    Whence,
    WithdrawProfile,
)
from weftlab.faults.campaign import MANY_BROKERS, run_seed, run_seeds, shrink
from weftlab.faults.client_connection import TRAPS
from weftlab.faults.plan import FAULTS, ONE_OPERATIONS, TRIALS, Plan, Step, draw_plan
from weftlab.faults.views import FilterVersion, Logged, SubView
from weftlab.faults.world import World

# A few seeds in which everything occurs, or many.
SEEDS = [*range(6), 8, 9, 10, 11, 13, 16, 21, 33, 93, 109, 115, 125] if EXAMPLES == 1 else range(40 * EXAMPLES)

# What must occur in them, besides every step: faults as they were noticed, requests with each kind of answer,
# each effect, each message, and branches of the core.
FAULTS_NOTICED = {
    "commit refused",
    "quota reached",
    "sync failed",
    "cut",
    "half-open",
    "take-over",
    "slow reader",
    "slow reader noticed",
    "garbage",
}
EFFECTS = {"Persist", "Send", "SetTimer", "Close"}
ACCEPTED = {"subscribe", "replace", "unsubscribe", "advertise", "unadvertise"}
REFUSED = {  # an event by its code, a request by what it is about and its code
    "access",
    "advertisement",
    "event",
    "full",
    "rate",
    "sequence",
    "subscribe, access",
    "subscribe, exists",
    "subscribe, filter",
    "subscribe, full",
    "subscribe, limit",
    "subscribe, queue",
    "subscribe, share",
    "subscribe, since",
    "replace, filter",
    "replace, unknown",
    "unsubscribe, unknown",
    "unadvertise, unknown",
    "advertise, limit",
    "advertise, table",
    "list dead, unknown",
    "retry dead, unknown",
    "drop dead, unknown",
}
CLOSED = {"expired", "forgotten", "full", "goodbye", "hello", "protocol", "refused", "slow", "taken over"}
BRANCHES = {
    "turns of several reads",
    "core: duplicates",
    "core: rejected groups",
    "core: dead letters",
    "core: expired",
    "core: taken over",
    "core: gaps",
    "core: loose events dropped",
    "core: negative acknowledgements",
    "core: credentials expired",
    "core: revoked subscriptions",
    "core: hello refused",
    "core call: resumed",
    "delivered again",
    "delivered: not durable",
    "delivered: not durable, into a durable queue",
    "dropped",
    "gap",
    "dead letters",
    "op: new publisher epoch",
    "op: trimmed",
    "op: goodbye, forget",
    "op: session begun anew",
    "op: session has expired",
    "op: retry dead",
    "op: drop dead",
    "revoked",
    "missed",
    "missed: nobody knows what",
    *(f"op: process over, {why}" for why in ("ClientClosedError", "ConnectError", "SessionTakenError")),
    *(f"trap: {what}" for what in TRAPS),
    *(f"since: {kind}" for kind in ("begin", "between", "event", "future", "later", "now")),
}
RARE = {  # in many seeds
    "closed: busy",
    "closed: idle",
    "core: closed as silent",
    "core: connections refused",
    "core: keys distrusted",
    "core: strangers pushed out",
    "core: sessions expired",
    *(f"hello with a wrong {what}" for what in ("credentials", "epoch", "name", "schema", "version")),
    "refused: advertise, full",
    "refused: list dead, access",
    "refused: replace, access",
    "refused: replace, full",
    "refused: replace, replaying",
    "refused: replace, share",
    "refused: status, access",
    "refused: subscribe, durable",
    "refused: unsubscribe, full",
}
# What runs with moves, with profiles and with models that have places send, and what no client of today sends.
PROFILES = (PublishProfile, SubscribeProfiles, WithdrawProfile, ProfilePublished)
ELSEWHERE = (Incomplete, *PROFILES, AskSpace, PublishPlaced, OfferedSpace, Whence)

OCCUR = {
    *(f"fault: {what}" for what in FAULTS_NOTICED),
    *(f"effect: {what}" for what in EFFECTS),
    *(f"accepted: {what}" for what in ACCEPTED),
    *(f"refused: {what}" for what in REFUSED),
    *(f"closed: {what}" for what in CLOSED),
    *(f"received: {message.__name__}" for message in get_args(ClientMessage) if message not in ELSEWHERE),
    *(f"sent: {message.__name__}" for message in get_args(BrokerMessage) if message not in ELSEWHERE),
    *BRANCHES,
}
STEPS_PLANNED = (*FAULTS, *ONE_OPERATIONS, *TRIALS)


def test_every_promise_is_kept_and_everything_occurs() -> None:
    found = run_seeds(SEEDS)
    assert found.failures == {}
    assert {f"step: {what}" for what in STEPS_PLANNED} <= set(found.counts)
    assert sorted(OCCUR - set(found.counts)) == []
    assert found.deliveries > 75 * len(SEEDS)


@pytest.mark.slow
def test_in_many_seeds_the_rare_occurs_too() -> None:
    found = run_seeds(range(1_000, 1_000 + 320 * EXAMPLES))
    assert found.failures == {}
    assert sorted((OCCUR | RARE) - set(found.counts)) == []


def test_a_step_that_does_not_exist_fails() -> None:
    outcome = World(Plan(1, 2, frozenset(), (Step(5, "sleep", 0, 1),))).run()
    assert outcome.failure == "ValueError: there is no step 'sleep'"


def test_the_same_seed_gives_the_same_trace() -> None:
    """Of one broker and of many, in a process with other hashes."""
    code = (
        "from weftlab.faults.campaign import MANY_BROKERS, run_seed\n"
        "print(*(run_seed(seed).trace.digest() for seed in (3, 5)), run_seed(8, MANY_BROKERS).trace.digest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    here = [*map(run_seed, (3, 5)), run_seed(8, MANY_BROKERS)]
    assert told.stdout.split() == [outcome.trace.digest() for outcome in here]


def test_a_plan_shrinks_to_what_makes_it_fail() -> None:
    plan = draw_plan(11)
    culprit = plan.steps[17]

    def fails(fewer: Plan) -> bool:
        return culprit in fewer.steps

    assert shrink(plan, fails).steps == (culprit,)


def test_without_steps_nothing_happens() -> None:
    outcome = World(Plan(1, 2, frozenset(), ())).run()
    assert (outcome.failure, outcome.events) == ("", 0)


def test_a_step_left_out_changes_no_other() -> None:
    plan = draw_plan(4)
    assert set(plan._replace(steps=plan.steps[1:]).steps) == set(plan.steps) - {plan.steps[0]}
    assert isinstance(plan.steps[0], Step)


def test_either_filter_may_be_in_force_while_an_answer_is_missing() -> None:
    event = Logged("e", {"x": 1}, 1 << 60)
    sub = SubView(1, 0, True, [FilterVersion(parse("x = 1"), 1, 1), FilterVersion(parse("x = 2"), 5)])
    assert sub.must_match(4, event)
    assert sub.may_match(7, event)
    assert not sub.must_match(7, event)
    sub.versions[1].high = 6
    assert not sub.may_match(7, event)
