"""A simulation on a ring, and its results. The cost is the sum of its parts, in seconds of nodes' work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weft.errors import OptionError
from weft.ring.key_mapping import Selection
from weft.ring.load_sharing import Sharing, gini

HOP = 2.0  # seconds


class Environment(NamedTuple):
    """A row of Table 2, in seconds."""

    arrival: float
    examine: float  # also to store
    look_up: float


ENVIRONMENTS = {"busy": Environment(1.0, 0.01, 0.01), "free": Environment(2.0, 0.001, 0.001)}


@dataclass(frozen=True, slots=True)
class RingDesign:
    """What is simulated."""

    environment: str = "free"
    clusters: bool = False
    depth: int = 6
    rotation: int = 250
    remap: bool = True
    selection: Selection = Selection.PROPORTIONAL
    sharing: Sharing = Sharing.NONE
    sharers: int = 5  # the paper's C
    threshold: int = 50
    by_topic: bool = False  # a node examines the subscriptions of the event's topic only, not all that it stores

    def __post_init__(self) -> None:
        if self.environment not in ENVIRONMENTS:
            raise OptionError(f"there is no environment {self.environment!r}; choose {' or '.join(ENVIRONMENTS)}")
        if self.sharers < 2 or self.threshold < 1:
            raise OptionError("load is shared among two nodes or more, from a threshold of one subscription or more")


@dataclass(slots=True)
class RingOutcome:
    """What a run cost, in simulated seconds of nodes' work, and what it found."""

    storing: float = 0.0
    registration: float = 0.0
    delivery: float = 0.0
    matching: float = 0.0
    latency: float = 0.0  # mean
    matches: int = 0
    missed: int = 0
    examined: int = 0
    hops: int = 0  # of events
    other_hops: int = 0  # of subscriptions and registrations
    rendezvous: int = 0  # nodes that store something
    events: int = 0
    loads: list[int] = field(default_factory=list)  # subscriptions of each node

    @property
    def cost(self) -> float:
        """The management cost."""
        return self.storing + self.registration + self.delivery + self.matching

    @property
    def elapsed(self) -> float:
        """The management cost with the time that messages take from node to node."""
        return self.cost + HOP * (self.hops + self.other_hops)

    @property
    def largest(self) -> int:
        """The most subscriptions of a node."""
        return max(self.loads)

    @property
    def gini(self) -> float:
        """How unevenly subscriptions are spread: 0 evenly, towards 1 all at one node."""
        return gini(self.loads)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = asdict(self)
        loads = facts.pop("loads")
        return {
            "cost": self.cost,
            "elapsed": self.elapsed,
            **facts,
            "largest": max(loads),
            "mean_load": float(np.mean(loads)),
            "gini": self.gini,
        }
