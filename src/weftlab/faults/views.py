"""What clients know of their subscriptions and queues. Where a client cannot know which filter was in force, either of
them may have been.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.broker.effects import ConnectionId
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.protocol.messages import QueueNumber, SubNumber

_FAR = 1 << 62


@dataclass(slots=True)
class Logged:
    """An event in the log."""

    uid: str  # of the simulated event, its payload
    attributes: dict[str, object]
    expires: int
    at: int = 0


@dataclass(slots=True)
class FilterVersion:
    """A filter of a subscription; it came into force at an offset from `low` to `high`."""

    filter: Filter | None  # None: the subscription has ended
    low: int
    high: int = _FAR


@dataclass(slots=True)
class SubView:
    """A subscription as its client knows it."""

    number: SubNumber
    queue: QueueNumber
    durable: bool
    versions: list[FilterVersion] = field(default_factory=list)
    answered: int = 0  # the last version that its broker has accepted, as far as was said
    completed: int = -1  # the last one that its broker has called complete
    replays: bool = False  # it began with older events
    doubtful: bool = False  # access rules that do not cover it have held: it may end, and nothing is required of it

    @property
    def accepted(self) -> bool:
        """Whether the client knows that it exists."""
        return self.versions[0].high < _FAR

    @property
    def ended(self) -> bool:
        """Whether its end was asked for."""
        return self.versions[-1].filter is None

    @property
    def gone(self) -> bool:
        """Whether the client knows that it has ended."""
        return self.ended and self.versions[-1].high < _FAR

    @property
    def stays(self) -> bool:
        """Whether it is there for sure, on any connection."""
        return self.durable and self.accepted and not self.ended and not self.doubtful

    def may_match(self, offset: int, event: Logged) -> bool:
        """Whether a filter that may be in force at an offset matches the event."""
        return any(_matches(version, event) for version in self._in_force(offset))

    def must_match(self, offset: int, event: Logged) -> bool:
        """Whether every filter that may be in force at an offset matches the event, and one surely is."""
        if self.doubtful:
            return False
        return self.versions[0].high <= offset and all(_matches(v, event) for v in self._in_force(offset))

    @property
    def latest(self) -> list[FilterVersion]:
        """The versions that may be in force now."""
        return self._in_force(_FAR - 1)

    def ever_matched(self, event: Logged) -> bool:
        """Whether a filter that it has had matches the event."""
        return any(_matches(version, event) for version in self.versions)

    def _in_force(self, offset: int) -> list[FilterVersion]:
        """The versions that have begun by an offset, or may have, and have not surely been replaced."""
        begun = [version for version in self.versions if version.low <= offset]
        sure = max((i for i, version in enumerate(begun) if version.high <= offset), default=0)
        return begun[sure:]


def _matches(version: FilterVersion, event: Logged) -> bool:
    return version.filter is not None and matches(version.filter, event.attributes)  # type: ignore[arg-type]


@dataclass(slots=True)
class QueueView:
    """What a client has seen of a durable queue."""

    seen: set[int] = field(default_factory=set)  # what was delivered
    first: set[int] = field(default_factory=set)  # what came with attempt 1
    acked: set[int] = field(default_factory=set)  # as far as the client said
    received: set[int] = field(default_factory=set)  # acknowledgements that the broker has, and has not lost in a crash
    acks: dict[ConnectionId, list[set[int]]] = field(default_factory=dict)  # by each `Ack` that the broker has received
    stored: set[int] = field(default_factory=set)  # acknowledgements that the broker has called stored
    subs: list[SubView] = field(default_factory=list)
    ordered: bool = False
    held: set[int] = field(default_factory=set)  # failed, as the broker knows, and not delivered again
    unanswered: dict[ConnectionId, dict[int, int]] = field(default_factory=dict)  # sent and not answered, with attempts
    members: dict[ConnectionId, set[int]] = field(default_factory=dict)  # subscriptions, as a connection knows them
    shared: bool = False
    left: set[ConnectionId] = field(default_factory=set)  # connections that have asked to leave it, if it is shared
    refused: set[int] = field(default_factory=set)  # negatively acknowledged
    excused: set[int] = field(default_factory=set)  # gaps, dead letters
    lost: set[int] = field(default_factory=set)  # gaps
    lag: int = 0  # events of its own that it may be behind before it loses some; 0: it loses none
    principal: str = ""  # whose rules decide what it gets
    dropped: set[int] = field(default_factory=set)  # dead letters that the client has removed
    lent: set[int] = field(default_factory=set)  # dead letters that another session has had delivered again
    begins: int = 0  # the oldest event of the log when the queue began with older events
    highest: int = 0

    def drop(self, offsets: set[int]) -> None:
        """Events are no longer in flight."""
        self.held -= offsets
        for unanswered in self.unanswered.values():
            for offset in offsets & unanswered.keys():
                del unanswered[offset]


@dataclass(slots=True)
class LossyView:
    """What a client has seen of a queue that is not durable, on one connection."""

    got: set[int] = field(default_factory=set)
    dropped: int = 0
    highest: int = 0


@dataclass(slots=True)
class AdvertView:
    """An advertisement as its client knows it. It counts for events with offsets above `since`, up to `until`."""

    filter: Filter
    accepted: bool = False
    since: int = _FAR  # the last offset given to an event before it was complete
    until: int = _FAR  # the last one given before it was taken back
    gone: bool = False  # its client knows that it was taken back

    @property
    def in_force(self) -> bool:
        """Whether its client may publish by it."""
        return self.accepted and self.until == _FAR

    @property
    def complete(self) -> bool:
        """Whether every broker knows it, and goes on knowing it."""
        return self.since < _FAR and self.until == _FAR


@dataclass(slots=True)
class ClientViews:
    """What a client knows of its session, over all its connections."""

    principal: str = ""
    subs: dict[SubNumber, SubView] = field(default_factory=dict)
    adverts: dict[int, AdvertView] = field(default_factory=dict)
    promises: list[Filter] = field(default_factory=list)  # what it has ever advertised
    queues: dict[QueueNumber, QueueView] = field(default_factory=dict)  # durable ones
    lossy: dict[QueueNumber, LossyView] = field(default_factory=dict)  # the others
    once: set[tuple[QueueNumber, str]] = field(default_factory=set)  # what queues that are not durable have had

    def subs_of(self, queue: QueueNumber, *, durable: bool) -> list[SubView]:
        """The subscriptions in a queue."""
        return [sub for sub in self.subs.values() if sub.queue == queue and sub.durable == durable]

    def may_publish(self, attributes: dict[str, object]) -> bool:
        """Whether an advertisement that is in force matches an event."""
        return any(each.in_force and matches(each.filter, attributes) for each in self.adverts.values())  # type: ignore[arg-type]

    def drop(self, sub: SubView) -> None:
        """A subscription is not there, or another one has its number."""
        view = self.queues.get(sub.queue)
        if view is not None:
            view.subs[:] = [each for each in view.subs if each is not sub]

    def begin_anew(self, shared: SubNumber) -> None:
        """The session is a new one: nothing is there but what is shared with others."""
        self.subs = {number: sub for number, sub in self.subs.items() if number == shared}
        self.queues = {queue: view for queue, view in self.queues.items() if queue == QueueNumber(shared)}
        self.adverts.clear()
