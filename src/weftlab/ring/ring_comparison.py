"""Designs of the ring side by side on the same workload. All of them find every match, or an error is raised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import OptionError, WeftError
from weft.ring.load_sharing import Sharing
from weftlab.ring.recorded import record_ring
from weftlab.ring.ring_claims import Claim, FigureProgress, RingStudy
from weftlab.ring.ring_design import RingDesign, RingOutcome
from weftlab.ring.ring_model import RingModel
from weftlab.ring.ring_peers import SchemeCounts, compare_schemes
from weftlab.ring.ring_workload import RingWorkloadSettings, ring_workload

_DEPTHS = (0, 2, 4, 6, 8)
_THRESHOLDS = (25, 50, 100, 200)
_HASHED = 500  # events of which the brokers are counted


@dataclass(frozen=True, slots=True)
class RingOptions:
    """What the designs have in common."""

    environment: str = "free"
    depth: int = 6
    rotation: int = 250
    sharers: int = 5
    threshold: int = 50
    search: bool = False
    by_topic: bool = False


@dataclass(frozen=True, slots=True)
class DesignRow:
    """A design and its outcomes, one for each seed."""

    name: str
    design: RingDesign
    outcomes: Sequence[RingOutcome]

    def means(self) -> dict[str, float]:
        """The outcomes' means; hops and examined subscriptions are those of one event."""
        facts = [outcome.to_dict() for outcome in self.outcomes]
        means = {name: float(np.mean([each[name] for each in facts])) for name in facts[0]}
        events = max(self.outcomes[0].events, 1)
        return {**means, "hops": means["hops"] / events, "examined": means["examined"] / events}

    def spread(self, name: str) -> tuple[float, float]:
        """The lowest and the highest of the seeds."""
        facts = [outcome.to_dict()[name] for outcome in self.outcomes]
        return min(facts), max(facts)


@dataclass(slots=True)
class RingComparison:
    """All that was found."""

    rows: list[DesignRow] = field(default_factory=list)
    schemes: list[SchemeCounts] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "designs": [
                {
                    "name": row.name,
                    "depth": row.design.depth if row.design.clusters else None,
                    "threshold": None if row.design.sharing is Sharing.NONE else row.design.threshold,
                    "mean": row.means(),
                    "runs": [outcome.to_dict() for outcome in row.outcomes],
                }
                for row in self.rows
            ],
            "schemes": [each.to_dict() for each in self.schemes],
            "claims": [each.to_dict() for each in self.claims],
        }


def figures_of(text: str) -> list[int]:
    """The figures that a user names: numbers from 4 to 9, or "all"."""
    if text.strip() == "all":
        return list(range(4, 10))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(part not in "456789" for part in parts):
        raise OptionError(f"the paper's figures with claims are 4 to 9, not {text!r}")
    return sorted({int(part) for part in parts})


def designs(options: RingOptions) -> dict[str, RingDesign]:
    """The designs that are compared."""
    single = RingDesign(
        options.environment, sharers=options.sharers, threshold=options.threshold, by_topic=options.by_topic
    )
    groups = replace(single, clusters=True, depth=options.depth, rotation=options.rotation)
    return {
        "one cluster": single,
        "with replication": replace(single, sharing=Sharing.REPLICATION),
        "with partition": replace(single, sharing=Sharing.PARTITION),
        "topic groups": groups,
        "groups, no rotation": replace(groups, rotation=0),
        "groups, no remap": replace(groups, remap=False),
    }


def compare(  # noqa: PLR0913 - what is compared, and how much of it
    settings: RingWorkloadSettings,
    options: RingOptions,
    seeds: Iterable[int],
    figures: Sequence[int] = (),
    *,
    peers: bool = False,
    names: Sequence[str] = (),
    record: Path | None = None,
    report: FigureProgress = lambda *_: None,
) -> RingComparison:
    """Simulate all designs, or those that are named; raises WeftError if one misses a match.

    With `record`, the run of the last design and seed is recorded; name one of each.
    """
    seeds = tuple(seeds)
    found = RingComparison()
    known = designs(options)
    if unknown := [name for name in names if name not in known]:
        raise OptionError(f"there is no design {unknown[0]!r}; choose from {', '.join(known)}")
    for name, design in known.items():
        if names and name not in names:
            continue
        best = _searched(settings, design, seeds[0], name, report) if options.search else design
        outcomes = []
        for seed in seeds:
            workload = ring_workload(settings, seed)
            if record is not None:
                outcomes.append(record_ring(workload, name, best, seed, record))
                continue
            model = RingModel(workload, best, seed)
            outcomes.append(model.run(lambda done, of, name=name: report(name, done, of)))  # type: ignore[misc]
        if any(outcome.missed for outcome in outcomes):
            raise WeftError(f"the design {name!r} missed matches; this is a bug")
        found.rows.append(DesignRow(name, best, outcomes))
    if peers:
        report("the paper's peers", 0, 0)
        found.schemes = compare_schemes(ring_workload(settings, seeds[0]), seeds[0], _HASHED)
    if figures:
        found.claims = RingStudy(settings, seeds, report, by_topic=options.by_topic).claims(figures)
    return found


def _searched(
    settings: RingWorkloadSettings, design: RingDesign, seed: int, name: str, report: FigureProgress
) -> RingDesign:
    """The design with the depth or threshold that costs least for one seed."""
    if design.clusters:
        tried = [replace(design, depth=depth) for depth in _DEPTHS if 1 << depth <= settings.ring]
    elif design.sharing is not Sharing.NONE:
        tried = [replace(design, threshold=threshold) for threshold in _THRESHOLDS]
    else:
        return design
    workload = ring_workload(settings, seed)
    costs = []
    for at, each in enumerate(tried):
        report(f"{name}, searching", at, len(tried))
        costs.append(RingModel(workload, each, seed).run().cost)
    return tried[int(np.argmin(costs))]
