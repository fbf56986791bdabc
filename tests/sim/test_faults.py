"""A broker under simulated faults: forty seeds keep every promise, and everything that can happen does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from strategies import EXAMPLES
from weft.language.text import parse
from weft.sim.faults.campaign import run_seed, run_seeds
from weft.sim.faults.plan import FAULTS, OPERATIONS, Plan, Step, draw_plan
from weft.sim.faults.shrink import shrink
from weft.sim.faults.steps import STEPS
from weft.sim.faults.views import Logged, SubView, Version
from weft.sim.faults.world import World

SEEDS = 40 * EXAMPLES

# what must occur in forty seeds, besides every step: faults as they were noticed, and branches of the core
OCCUR = {
    "fault: commit refused",
    "fault: sync failed",
    "fault: cut",
    "fault: half-open",
    "fault: take-over",
    "fault: slow reader",
    "delivered again",
    "delivered: not durable",
    "gap",
    "dead letters",
    "op: new publisher epoch",
    "op: trimmed",
    "core: duplicates",
    "core: rejected groups",
    "core: dead letters",
    "core: expired",
    "core: taken over",
    "sent: Refused",
    "sent: Failed",
    "sent: DeadDone",
}


def test_every_promise_is_kept_and_everything_occurs() -> None:
    found = run_seeds(range(SEEDS))
    assert found.failures == {}
    assert {f"step: {what}" for what in (*FAULTS, *OPERATIONS)} <= set(found.counts)
    assert set(found.counts) >= OCCUR
    assert found.deliveries > 3000


def test_every_step_can_be_planned() -> None:
    assert set(STEPS) >= {*FAULTS, *OPERATIONS}


@pytest.mark.parametrize("seed", [3, 5])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    code = f"from weft.sim.faults.campaign import run_seed; print(run_seed({seed}).trace.digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert told.stdout.strip() == run_seed(seed).trace.digest()


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
    event = Logged("e", {"x": 1}, 1 << 60, (1, 1, 1))
    sub = SubView(1, 0, True, [Version(parse("x = 1"), 1, 1), Version(parse("x = 2"), 5)])
    assert sub.must_match(4, event)
    assert sub.may_match(7, event)
    assert not sub.must_match(7, event)
    sub.versions[1].high = 6
    assert not sub.may_match(7, event)
