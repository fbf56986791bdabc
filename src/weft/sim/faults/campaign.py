"""Many seeds, one after another. Law: a seed's outcome does not depend on the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.sim.faults.core_parts import MakeWorldCore, plain_core
from weft.sim.faults.plan import Plan, draw_network_plan, draw_plan
from weft.sim.faults.shrink import shrink
from weft.sim.faults.world import RunOutcome, World

Report = Callable[[str, int, int], None]


class Setting(NamedTuple):
    """What runs have in common: one broker, or a network, of which each seed draws what is None."""

    steps: int = 0  # 0: 100 for one broker, 60 for a network
    network: bool = False
    brokers: int | None = None
    model: str | None = None
    advertised: bool | None = None

    def plan(self, seed: int) -> Plan:
        """The plan of a seed."""
        if not self.network:
            return draw_plan(seed, self.steps or 100)
        given = {"brokers": self.brokers, "model": self.model, "advertised": self.advertised}
        return draw_network_plan(seed, self.steps or 60, **given)  # type: ignore[arg-type]


ONE_BROKER = Setting()
MANY_BROKERS = Setting(network=True)


@dataclass(slots=True)
class Campaign:
    """What many seeds showed."""

    seeds: int = 0
    events: int = 0
    deliveries: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)  # by seed


def run_seed(seed: int, setting: Setting = ONE_BROKER, make_core: MakeWorldCore = plain_core) -> RunOutcome:
    """One run.

    >>> run_seed(1).failure
    ''
    """
    return World(setting.plan(seed), make_core).run()


def run_seeds(seeds: Iterable[int], setting: Setting = ONE_BROKER, report: Report | None = None) -> Campaign:
    """Run many seeds and add up what occurred."""
    found, todo = Campaign(), list(seeds)
    for done, seed in enumerate(todo):
        if report is not None:
            report(f"seed {seed}, {len(found.failures)} failed", done, len(todo))
        outcome = run_seed(seed, setting)
        found.seeds += 1
        found.events += outcome.events
        found.deliveries += outcome.deliveries
        found.counts += outcome.trace.counts
        if outcome.failure:
            found.failures[seed] = outcome.failure
    return found


def smallest(plan: Plan, make_core: MakeWorldCore = plain_core) -> RunOutcome:
    """The run of a failing plan, shrunk to fewer steps."""
    return World(shrink(plan, lambda fewer: bool(World(fewer, make_core).run().failure)), make_core).run()
