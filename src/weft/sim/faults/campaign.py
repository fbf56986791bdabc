"""Many seeds, one after another or over processes. Law: a seed's outcome does not depend on the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from weft.sim.faults.plan import Plan, draw_plan
from weft.sim.faults.shrink import shrink
from weft.sim.faults.world import MakeWorldCore, Outcome, World, plain_core

Report = Callable[[str, int, int], None]


@dataclass(slots=True)
class Campaign:
    """What many seeds showed."""

    seeds: int = 0
    events: int = 0
    deliveries: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)  # by seed


def run_seed(seed: int, steps: int = 60, make_core: MakeWorldCore = plain_core) -> Outcome:
    """One run.

    >>> run_seed(1).failure
    ''
    """
    return World(draw_plan(seed, steps), make_core).run()


def run_seeds(seeds: Iterable[int], steps: int = 60, report: Report | None = None) -> Campaign:
    """Run many seeds and add up what occurred."""
    found, todo = Campaign(), list(seeds)
    for done, seed in enumerate(todo):
        if report is not None:
            report(f"seed {seed}, {len(found.failures)} failed", done, len(todo))
        outcome = run_seed(seed, steps)
        found.seeds += 1
        found.events += outcome.events
        found.deliveries += outcome.deliveries
        found.counts += outcome.trace.counts
        if outcome.failure:
            found.failures[seed] = outcome.failure
    return found


def smallest(plan: Plan, make_core: MakeWorldCore = plain_core) -> Outcome:
    """The run of a failing plan, shrunk to fewer steps."""
    return World(shrink(plan, lambda fewer: bool(World(fewer, make_core).run().failure)), make_core).run()
