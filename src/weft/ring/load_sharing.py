"""Replication and partition of what an overloaded node has to examine (003, 3.1). Law: wherever an event is examined,
every record under its key is examined, by the owner or by one that holds it for the owner.

A node that stores more than a threshold asks neighbours from its finger table to hold subscriptions for it, at most
C - 1 of them; one that is overloaded itself refuses, which takes the place of the paper's exchanged state.
Replication first copies what was stored before (erratum 8); then an event is examined by the owner or by any one
holder, in turn. Partition gives later subscriptions to the owner and the holders in turn; an event goes to all of
them. The owner keeps what it gave away, unexamined: when a holder dies, nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from weft.errors import RingError
from weft.ring.identifiers import Key
from weft.ring.messages import NodeRef
from weft.ring.rendezvous_messages import RingSub


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


@dataclass(slots=True)
class SharedLoad:
    """What a node has given away, and to whom."""

    epoch: int = 0  # how often the keys had changed
    holders: list[NodeRef] = field(default_factory=list)
    refused: set[NodeRef] = field(default_factory=set)
    away: dict[tuple[Key, RingSub], NodeRef] = field(default_factory=dict)  # of a partition
    turn: int = 0

    def next_turn(self) -> NodeRef | None:
        """The next holder, or None for the owner itself."""
        self.turn = (self.turn + 1) % (len(self.holders) + 1)
        return self.holders[self.turn - 1] if self.turn else None

    def lost(self, holder: NodeRef) -> None:
        """A holder does not answer: the owner examines its part again."""
        self.holders = [each for each in self.holders if each != holder]
        self.away = {place: held for place, held in self.away.items() if held != holder}
        self.refused.add(holder)
