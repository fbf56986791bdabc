"""What all nodes of a ring agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft.errors import RingError
from weft.index.base import MatchIndex
from weft.index.tree import TreeIndex
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.ring.group_state import GroupRule
from weft.ring.key_mapping import KeyMapping
from weft.ring.load_sharing import SharingRule
from weft.ring.topics import TopicTree


@dataclass(frozen=True, slots=True)
class RingSettings:
    """The settings of a ring. Those with which a subscription would be lost are refused. Times are in microseconds."""

    mapping: KeyMapping
    replicas: int = 1  # nodes that have a record: the owner and its next successors
    sharing: SharingRule = field(default_factory=SharingRule)
    reissue: int | None = None  # after which a subscription is stored again
    keep: int | None = None  # after which it is dropped if it has not been stored again; None is three times `reissue`
    confirmed: bool = False  # events are `Offered`, and answered when the application has called `confirm`
    index: Callable[[], MatchIndex] = TreeIndex
    predicates: Predicates = NO_PREDICATES
    groups: GroupRule | None = None  # the nodes that subscribe to a topic store it among themselves
    topics: TopicTree = field(default_factory=TopicTree)  # a general topic stands for its leaves
    abandon: int = 60_000_000  # for which keys wait for their owner if nobody has a complete copy

    @property
    def group_rule(self) -> GroupRule:
        """How groups are stored, if there are any."""
        return self.groups or GroupRule(depth=0)

    @property
    def learn(self) -> int:
        """For how long subscriptions are stored again under keys that were taken over without a complete copy."""
        return (self.reissue or 0) * 5 // 4

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise RingError(f"a record needs at least one node, not {self.replicas} replicas")
        if self.keep is not None and self.keep < 2 * (self.reissue or 0):
            raise RingError("a subscription must be kept for two periods of its re-issue or more")
