"""Many seeds, one after another, and a failing plan made smaller. A seed's outcome does not depend on the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from weftlab.faults.moving_world import MovingWorld
from weftlab.faults.plan import Plan, Step, draw_moving_plan, draw_network_plan, draw_plan, draw_profile_plan
from weftlab.faults.profile_world import ProfileWorld
from weftlab.faults.world import RunOutcome, World


def shrink(plan: Plan, fails: Callable[[Plan], bool], most: int = 400) -> Plan:
    """A plan with as few steps as can be found in `most` runs; each removal alone would make it succeed, or nearly.

    Cost: about n log n runs for n steps.
    """
    steps, size, runs = list(plan.steps), max(1, len(plan.steps) // 2), 0
    while size and runs < most:
        at, shorter = 0, False
        while at < len(steps) and runs < most:
            fewer: list[Step] = steps[:at] + steps[at + size :]
            runs += 1
            if fails(plan._replace(steps=tuple(fewer))):
                steps, shorter = fewer, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return plan._replace(steps=tuple(steps))


class Setting(NamedTuple):
    """What runs have in common: one broker, or a network, of which each seed draws what is None."""

    steps: int = 0  # 0: 100 for one broker, 60 for a network
    network: bool = False
    brokers: int | None = None
    model: str | None = None
    advertised: bool | None = None
    moves: bool = False  # clients move between the brokers
    profiles: bool = False  # clients publish profiles, and are shown them

    @property
    def world(self) -> Callable[[Plan], MovingWorld | ProfileWorld | World]:
        """What runs a plan."""
        return MovingWorld if self.moves else ProfileWorld if self.profiles else World

    def plan(self, seed: int) -> Plan:
        """The plan of a seed."""
        given = {"brokers": self.brokers, "model": self.model, "advertised": self.advertised}
        if self.moves:
            return draw_moving_plan(seed, self.steps or 80, **given)
        if self.profiles:
            return draw_profile_plan(seed, self.steps or 80, **{**given, "advertised": False})
        if not self.network:
            return draw_plan(seed, self.steps or 100)
        return draw_network_plan(seed, self.steps or 60, **given)


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


def run_seed(seed: int, setting: Setting = ONE_BROKER) -> RunOutcome:
    """One run.

    >>> run_seed(1).failure
    ''
    """
    return setting.world(setting.plan(seed)).run()


def run_seeds(
    seeds: Iterable[int], setting: Setting = ONE_BROKER, report: Callable[[str, int, int], None] | None = None
) -> Campaign:
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


def smallest(plan: Plan, setting: Setting = ONE_BROKER) -> RunOutcome:
    """The run of a failing plan, shrunk to fewer steps."""
    world = setting.world
    return world(shrink(plan, lambda fewer: bool(world(fewer).run().failure))).run()
