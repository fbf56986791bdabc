"""The settings of a node of a ring, and their texts on the command line.

What all nodes must have alike is their `agreement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import OptionError, RingError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.predicate_modules import agreed_predicates
from weft.model.value import parse_timestamp
from weft.protocol.addresses import Address
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.load_sharing import Sharing, SharingRule
from weft.ring.topics import SuperTopics, TopicTree

SPACE = IdSpace(1 << 32)
REISSUE = 60_000_000  # microseconds after which a subscription is stored again
PROTOCOL = 3  # of the messages between nodes; nodes of another one are refused
_LEASE = 60_000_000  # for which a member of a group may be silent


@dataclass(frozen=True, slots=True)
class RingConfig:
    """The settings of one node. All but `listen`, `bind` and `join` are the same at all nodes."""

    listen: Address = field(default_factory=lambda: Address("weft", "127.0.0.1", 0))
    bind: Address | None = None  # where it listens, if other nodes reach it at another address
    join: tuple[str, ...] = ()  # addresses of nodes to try
    new_ring: bool = False  # begin a ring, unless this node has been part of one
    data: Path | None = None  # the directory where members are remembered
    intervals: tuple[Intervals, ...] = ()
    replicas: int = 2
    key: bytes = b""
    topic: str = ""  # the attribute whose values are topics, each with a group; without it there are no groups
    topics: TopicTree = field(default_factory=TopicTree)  # general topics, and what is below them
    depth: int = 4  # of a new group's tree
    rotate: float | None = None  # seconds between two looks for a better rotation distance
    merge: SuperTopics | None = None  # which groups are merged
    keep: float = 3600.0  # seconds for which subscriptions and events wait for a broker that is down
    sharing: SharingRule = field(default_factory=SharingRule)  # what an overloaded node does
    predicates: Predicates = NO_PREDICATES  # that filters may call

    def __post_init__(self) -> None:
        places = [self.listen, *([] if self.bind is None else [self.bind])]
        if not all(place.local for place in places) and not self.key:
            raise OptionError("a ring that other machines can reach needs a key: --ring-key FILE")
        if self.bind is not None and not self.listen.port:
            raise OptionError("a node that is reached at another address needs its port: --ring HOST:PORT")
        if any(place.unix for place in places):
            raise OptionError("a ring listens on a host and a port; a Unix socket cannot be reached by other nodes")
        if self.topics.below and not self.topic:
            raise OptionError("general topics need the attribute whose values are topics: --topic NAME")
        for given, what in ((self.rotate, "rotated"), (self.merge, "merged")):
            if self.groups is None and given is not None:
                raise OptionError(f"only topic groups are {what}; name the topics' attribute, too: --topic NAME")
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
        if self.topics.below:
            below = [f"{topic} above {', '.join(sorted(each))}" for topic, each in sorted(self.topics.below.items())]
            topics += f" with {'; '.join(below)}"
        if self.merge is not None:
            topics += f" merged with {self.merge.least_equal} equal and {self.merge.most_unequal} unequal members"
        if len(self.predicates):
            topics += f", and the predicates {', '.join(agreed_predicates(self.predicates))}"
        rule = self.sharing
        if rule.sharing is not Sharing.NONE:
            topics += f", {rule.sharing} among {rule.nodes} nodes above {rule.threshold} subscriptions"
        kept = f", protocol {PROTOCOL}, and waits {self.keep:g} s for brokers that are down"
        return f"{self.replicas} replicas and intervals of {', '.join(sorted(cuts)) or 'no attribute'}{topics}{kept}"


def ring_config(  # noqa: PLR0913, PLR0917 - texts of the command line
    listen: str,
    join: Sequence[str],
    intervals: Sequence[str],
    key: Path | None,
    merge: str | None = None,
    share: str | None = None,
    general: Sequence[str] = (),
    bind: str | None = None,
    **others: Any,
) -> RingConfig:
    """The settings of a node of a ring, some of them from texts. Raises OptionError and RingError."""
    return RingConfig(
        listen=Address.parse(listen),
        bind=None if bind is None else Address.parse(bind),
        join=tuple(join),
        intervals=tuple(map(_interval, intervals)),
        key=read_key(key),
        merge=None if merge is None else _merging(merge),
        sharing=SharingRule() if share is None else _sharing(share),
        topics=topic_tree(general),
        **others,
    )


def topic_tree(texts: Sequence[str]) -> TopicTree:
    """General topics from texts NAME=TOPIC,TOPIC. Raises OptionError, and RingError for topics that form a cycle.

    >>> topic_tree(["sport=tennis,chess"]).leaves("sport")
    ('chess', 'tennis')
    """
    below: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        parts = tuple(part.strip() for part in rest.split(","))
        if not name.strip() or not all(parts):
            raise OptionError(f"{text!r} is not a general topic; write NAME=TOPIC,TOPIC, such as sport=tennis,chess")
        below[name.strip()] = (*below.get(name.strip(), ()), *parts)
    return TopicTree(below)


def _merging(text: str) -> SuperTopics:
    equal, _, unequal = text.partition(":")
    if not (equal.isdecimal() and unequal.isdecimal()):
        raise OptionError(f"groups are merged by two numbers of members, EQUAL:UNEQUAL, not {text!r}")
    return SuperTopics(int(equal), int(unequal))


def _sharing(text: str) -> SharingRule:
    kind, _, rest = text.partition(":")
    nodes, _, threshold = rest.partition(":")
    kinds = [each.value for each in Sharing if each is not Sharing.NONE]
    if kind not in kinds or not all(part.isdecimal() for part in (nodes, threshold) if part) or (rest and not nodes):
        raise OptionError(f"load is shared by {' or '.join(kinds)}, KIND:NODES:THRESHOLD, not {text!r}")
    rule = SharingRule(Sharing(kind))
    return SharingRule(rule.sharing, int(nodes or rule.nodes), int(threshold or rule.threshold))


def _interval(text: str) -> Intervals:
    name, _, rest = text.rpartition("=")
    bounds, _, count = rest.rpartition(":")
    try:
        if ".." in bounds:
            first, last = (parse_timestamp(each) for each in bounds.split(".."))
            return Intervals(name, first, last, int(count), timestamps=True)
        low, high = map(float, bounds.split(":"))
        number = int(count)
    except ValueError as error:
        if isinstance(error, RingError):
            raise
        raise OptionError(
            f"{text!r} is not an interval; write NAME=LOW:HIGH:COUNT, such as price=0:1000:50, "
            "or for timestamps NAME=FIRST..LAST:COUNT, such as time=2026-01-01..2027-01-01:365"
        ) from None
    return Intervals(name, low, high, number)


def read_key(file: Path | None) -> bytes:
    """The key of a ring; empty without a file. Raises OptionError."""
    if file is None:
        return b""
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    if len(key) < 16:
        raise OptionError(f"{file} has {len(key)} bytes; the key of a ring has 16 or more")
    return key
