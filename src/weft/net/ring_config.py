"""The settings of a node of a ring. Law: what all nodes must have alike is their `agreement`."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from weft.errors import OptionError
from weft.net.addresses import Address
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.topics import SuperTopics

SPACE = IdSpace(1 << 32)
REISSUE = 60_000_000  # microseconds after which a subscription is stored again
_LEASE = 60_000_000  # for which a member of a group may be silent


@dataclass(frozen=True, slots=True)
class RingConfig:
    """A node's part of a ring. All but where it listens and whom it joins is the same at all nodes."""

    listen: Address = field(default_factory=lambda: Address("weft", "127.0.0.1", 0))
    join: tuple[str, ...] = ()  # addresses of nodes to try; none to begin a ring
    intervals: tuple[Intervals, ...] = ()
    replicas: int = 2
    key: bytes = b""
    topic: str = ""  # the attribute whose values are topics, each with a group; without it there are no groups
    depth: int = 4  # of a new group's tree
    rotate: float | None = None  # seconds between two looks for a better rotation distance
    merge: SuperTopics | None = None  # which groups are merged
    keep: float = 3600.0  # seconds for which subscriptions and events wait for a broker that is down
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if not self.listen.local and not self.key:
            raise OptionError("a ring that other machines can reach needs a key: --ring-key FILE")
        if self.listen.unix:
            raise OptionError("a ring listens on a host and a port; a Unix socket cannot be reached by other nodes")
        if self.groups is None and self.rotate is not None:
            raise OptionError("only topic groups are rotated; name the topics' attribute, too: --topic NAME")
        if self.groups is None and self.merge is not None:
            raise OptionError("only topic groups are merged; name the topics' attribute, too: --topic NAME")
        if self.groups is not None:
            self.groups.tree(SPACE, self.topic)  # raises RingError
        if not self.keep * 1_000_000 >= 2 * REISSUE:
            raise OptionError(f"events are kept for {2 * REISSUE // 1_000_000} seconds or more, not {self.keep:g}")

    @property
    def groups(self) -> GroupRule | None:
        """How topic groups are stored, if there are any."""
        if not self.topic:
            return None
        period = None if self.rotate is None else max(1, round(self.rotate * 1_000_000))
        return GroupRule(self.depth, lease=_LEASE, period=period, merging=self.merge)

    @property
    def agreement(self) -> str:
        """What all nodes must have alike."""
        cuts = [f"{each.attribute} from {' to '.join(each.bounds)} in {each.count}" for each in self.intervals]
        topics = f", and topic groups by {self.topic} of depth {self.depth}" if self.topic else ""
        if self.merge is not None:
            topics += f" merged with {self.merge.least_equal} equal and {self.merge.most_unequal} unequal members"
        kept = f", and waits {self.keep:g} s for brokers that are down"
        return f"{self.replicas} replicas and intervals of {', '.join(sorted(cuts)) or 'no attribute'}{topics}{kept}"
