"""Protocols side by side: the same scripts for all of them, over several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from weftlab.mobility.protocols import PROTOCOLS, RUNNERS, MobilityOutcome, check_fit
from weftlab.mobility.script import Script, ScriptSettings, generate_script
from weftlab.mobility.topology import BrokerTree, Topology, generated

CampaignProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Where the brokers are: a given topology, or a generated one per seed."""

    topology: Topology | None = None
    areas: int = 4
    routers: int = 25  # of each area
    root: int = 0  # where the breadth-first search begins

    def tree(self, rng: np.random.Generator) -> BrokerTree:
        """The tree of a seed."""
        return BrokerTree(self.topology or generated(self.areas, self.routers, rng), self.root)


@lru_cache(maxsize=64)
def prepared(network: NetworkSettings, settings: ScriptSettings, seed: int) -> tuple[BrokerTree, Script]:
    """The tree and the script of a seed. The network depends on the seed alone, whatever the script."""
    tree = network.tree(np.random.default_rng([seed, 1]))
    return tree, generate_script(tree, settings, np.random.default_rng([seed, 2]))


@dataclass(slots=True)
class ProtocolRow:
    """A protocol: an outcome for each seed."""

    name: str
    outcomes: list[MobilityOutcome]

    @property
    def total(self) -> MobilityOutcome:
        """All seeds together."""
        found = MobilityOutcome(self.name)
        for each in self.outcomes:
            found.add(each)
        return found

    def spread(self, figure: str) -> tuple[float, float, float]:
        """The lowest, the mean and the highest mean of a figure over the seeds."""
        values = [each.mean(figure) for each in self.outcomes]
        return min(values), float(np.mean(values)), max(values)

    @property
    def verdict(self) -> str:
        """What the runs say: safe, or what it loses."""
        total = self.total
        if total.unfinished:
            return f"{total.unfinished} unfinished"
        if total.lost:
            return f"loses {total.lost:,}"
        if not total.due:
            return "nothing published"
        return "safe"

    @property
    def failures(self) -> list[str]:
        """What must not happen: losses of a protocol that is said to be safe, and anything beyond the bounds."""
        total, found = self.total, []
        if PROTOCOLS[self.name].safe and (total.lost or total.unfinished):
            found.append(f"{self.name} lost {total.lost} events and left {total.unfinished} hand-overs unfinished")
        if total.unsafe_notices:
            found.append(f"{self.name} violated Property 5.2 {total.unsafe_notices} times")
        if total.above or total.below:
            found.append(f"{self.name}: {total.above} costs above the upper bound, {total.below} below the lower one")
        return found

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        spreads = {
            name: dict(zip(("lowest", "mean", "highest"), (round(each, 3) for each in self.spread(name)), strict=True))
            for name in ("signals", "updated", "latencies", "pauses")
        }
        return {
            "protocol": self.name,
            "text": PROTOCOLS[self.name].text,
            "verdict": self.verdict,
            "seeds": len(self.outcomes),
            "total": self.total.to_dict(),
            "spread": spreads,
            "failures": self.failures,
        }


def compare(
    protocols: Sequence[str],
    scenes: Iterable[tuple[BrokerTree, Script]],
    report: CampaignProgress = lambda *_: None,
    size: int = 0,
) -> list[ProtocolRow]:
    """Play every script with every protocol. `size` is the number of scripts, for the progress."""
    rows = [ProtocolRow(name, []) for name in protocols]
    for number, (tree, script) in enumerate(scenes):
        for place, row in enumerate(rows):
            report(row.name, number * len(rows) + place, size * len(rows))
            row.outcomes.append(RUNNERS[row.name](tree, script, None))
    return rows


def check_scene(protocols: Sequence[str], tree: BrokerTree, script: Script) -> None:
    """Raise WeftError if a protocol cannot play the script on this tree."""
    for name in protocols:
        check_fit(PROTOCOLS[name].kind, name, tree, script)
