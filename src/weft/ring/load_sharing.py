"""Replication and partition of what an overloaded node has to examine (003, 3.1). Wherever an event is examined, every
record under its key is examined, by the owner or by a node that holds it for the owner.

Nodes exchange their loads with their neighbours now and then. A node that stores more than a threshold has at most C -
1 neighbours hold subscriptions for it: those that have answered lately and are not overloaded themselves, the least
loaded first. A neighbour that has become overloaded since refuses. Neighbours are those of the finger table or, in
topic groups, the members that are registered at the same region server.

Replication first copies what was stored before (erratum 8); then an event is examined by the owner or by any one
holder, in turn. Partition gives later subscriptions to the owner and the holders in turn; an event goes to all of them.
The owner keeps what it gave away, unexamined: when a holder dies, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from weft.errors import RingError
from weft.ring.chord import PERIOD
from weft.ring.messages import NodeRef
from weft.ring.rendezvous_messages import RecordSlot

EXCHANGE = 2 * PERIOD  # microseconds between two questions for the neighbours' load
FRESH = 3 * EXCHANGE  # for which an answer counts


class Sharing(StrEnum):
    """What an overloaded node does."""

    NONE = "none"
    REPLICATION = "replication"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class SharingRule:
    """How much is too much, and among how many nodes it is shared."""

    sharing: Sharing = Sharing.NONE
    nodes: int = 5  # the paper's C
    threshold: int = 50

    def __post_init__(self) -> None:
        if self.nodes < 2:
            raise RingError(f"load is shared among two nodes or more, not {self.nodes}")
        if self.threshold < 1:
            raise RingError(f"the threshold of load sharing is 1 or more, not {self.threshold}")


def gini(loads: Iterable[float]) -> float:
    """How unevenly loads are spread, as the Gini coefficient: 0 evenly, towards 1 all at one node.

    >>> gini([5, 5, 5]), gini([0, 0, 9]), gini([])
    (0.0, 0.6666666666666667, 0.0)
    """
    ascending = sorted(loads)
    total, count = sum(ascending), len(ascending)
    if not total:
        return 0.0
    weighted = sum(rank * load for rank, load in enumerate(ascending, 1))
    return max(0.0, 2 * weighted / (count * total) - (count + 1) / count)


class NeighbourLoads:
    """The loads that neighbours have reported. Times are in microseconds.

    >>> loads = NeighbourLoads(threshold=10)
    >>> loads.heard("a", 12, now=0), loads.heard("b", 3, now=0), loads.heard("c", 1, now=0)
    (None, None, None)
    >>> loads.fit(now=0), loads.fit(now=60_000_000)
    (['c', 'b'], [])
    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._loads: dict[NodeRef, tuple[int, int]] = {}  # and when

    def heard(self, node: NodeRef, load: int, now: int) -> None:
        """A neighbour has answered."""
        self._loads[node] = load, now

    def fit(self, now: int) -> list[NodeRef]:
        """Those that are alive and not overloaded, as far as is known; the least loaded first."""
        self._loads = {node: known for node, known in self._loads.items() if now - known[1] <= FRESH}
        known = [(load, node) for node, (load, _) in self._loads.items() if load <= self._threshold]
        return [node for _, node in sorted(known)]


@dataclass(slots=True)
class SharedLoad:
    """What a node has given away, and to whom."""

    epoch: int = 0  # how often the keys had changed
    holders: list[NodeRef] = field(default_factory=list)
    offered: set[NodeRef] = field(default_factory=set)  # and not answered yet
    refused: set[NodeRef] = field(default_factory=set)  # until they say that they are not overloaded any more
    away: dict[RecordSlot, NodeRef] = field(default_factory=dict)  # of a partition
    turn: int = 0
    outdated: list[NodeRef] = field(default_factory=list)  # holders of what was shared before the keys changed

    def next_turn(self, fit: Collection[NodeRef] | None = None) -> NodeRef | None:
        """The next holder, or None for the owner itself. A holder that is not `fit` is passed over."""
        for _ in self.holders:
            self.turn = (self.turn + 1) % (len(self.holders) + 1)
            if not self.turn or fit is None or self.holders[self.turn - 1] in fit:
                break
        else:
            self.turn = 0
        return self.holders[self.turn - 1] if self.turn else None

    def lost(self, holder: NodeRef) -> None:
        """A holder does not answer: the owner examines its part again."""
        self.holders = [each for each in self.holders if each != holder]
        self.away = {slot: held for slot, held in self.away.items() if held != holder}
        self.refused.add(holder)
