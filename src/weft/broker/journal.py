"""The broker's side of the log: offsets, ids, the write that is being collected, and the groups on their way.

`end` is the offset after the last stored event, `next` the one after the last offset that was given out. Between the
two lie the events of groups on their way into the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.broker.delivery_window import DeliveryWindow
from weft.broker.effects import ConnectionId, Ticket
from weft.broker.queue import Queue
from weft.broker.recent import EventBatch
from weft.broker.sessions import Session
from weft.log.base import Events, Group, Log, MoveFloor, MoveGot, MovePublisher, Offset, SeatId, State, StateChange
from weft.model.door import PlainEvents
from weft.routing.table import Link

if TYPE_CHECKING:
    from weft.broker.after_commit import AfterCommit, CopiesStored, LinkEventsStored
    from weft.broker.event_places import PlaceRun
    from weft.broker.links.events import EventWindow
    from weft.broker.profiles.notices import NoticesWritten


class Journal:
    """What one broker has given to its log, and is about to give to it."""

    def __init__(self, log: Log, state: State) -> None:
        self.log = log
        self.log_id, self.incarnation = state.log_id, state.incarnation
        self.first = state.first  # the oldest event that the log has
        self.end = self.next = state.next
        self.next_consumer = state.next_seat
        self.at = state.at  # the time of the log (see `LogClock`); expiry goes by it
        self.write = PendingWrite()
        self.groups: deque[PendingWrite] = deque()  # on their way into the log
        self.moved: dict[Queue, None] = {}  # whose `acked_below` is to be stored
        self.moved_windows: dict[EventWindow, None] = {}  # the same for neighbours

    @property
    def upcoming(self) -> Offset:
        """The offset of the next event that comes in, if everything that has come in is stored."""
        return Offset(self.next + len(self.write.attributes))

    def new_consumer(self) -> SeatId:
        """A consumer id that no other subscription, queue or link has ever had."""
        consumer = self.next_consumer
        self.next_consumer = SeatId(consumer + 1)
        return consumer


class TransientEvent(NamedTuple):
    """An event that is not durable, and the neighbour from which it came."""

    attributes: dict[str, Any]
    head: bytes
    payload: bytes
    source: Link | None


class PublisherMark(NamedTuple):
    """Where a publisher was before a group, within an epoch."""

    connection: ConnectionId
    epoch: int
    received_before: int


class PendingWrite:
    """The events and changes of one turn, until they become a group for the log.

    Its events are matched together, just before a subscription changes or the turn ends. If something waits for it
    besides, it becomes two groups: a log that has no room for events may have room for the rest.
    """

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self.waiting: list[AfterCommit] = []  # what happens when the group is stored, or is undone
        self.marks: dict[Session, PublisherMark] = {}
        self.stored: dict[Session, tuple[int, int]] = {}  # epoch and sequence at the end of the write
        self.arrivals: list[LinkEventsStored] = []  # events of neighbours, even if all have expired
        self.copies: list[CopiesStored] = []  # copies of events for sessions that move here
        self.notices: list[NoticesWritten] = []  # of profiles
        self.watermarks: list[tuple[Queue | EventWindow, Offset]] = []  # `acked_below` of each
        self.acks: list[tuple[DeliveryWindow, int]] = []  # how many messages `Ack` of each are stored with it
        self.batches: list[EventBatch] = []
        self.urgent = False
        self.ticket = Ticket(0)  # of its group, once it is one
        # events that are not yet matched, as columns
        self.attributes = PlainEvents()
        self.heads: list[bytes] = []
        self.payloads: list[bytes] = []
        self.expires: list[int] = []
        self.expiring = False
        self.foreign: list[tuple[int, int, Link]] = []  # ranges of them that came from neighbours
        self.placed: list[PlaceRun] = []  # places that some of them came with
        self.transient: list[TransientEvent] = []
        # events that are matched, for the log
        self.first: Offset | None = None
        self.origins: list[tuple[int, int, int, int]] = []  # session, epoch, first sequence, how many
        self.origins_matched = 0  # how many of these are of events that are matched
        self._heads: list[bytes] = []
        self._payloads: list[bytes] = []
        self._starts: list[NDArray[np.uint32]] = []
        self._consumers: list[NDArray[np.uint32]] = []

    def require(self, changes: Iterable[StateChange], then: AfterCommit) -> None:
        """Add changes that somebody waits for, with what happens when they are stored, or cannot be."""
        self.changes += changes
        self.urgent = True
        self.waiting.append(then)

    @property
    def has_events(self) -> bool:
        """Whether it stores events that are matched, or that events of a neighbour have come.

        What was shown of profiles counts as an event, since it follows from what was shown before.
        """
        return self.first is not None or bool(self.arrivals or self.notices)

    def split(self) -> PendingWrite:
        """Take out everything but the events, as a write of its own."""
        rest = PendingWrite()
        rest.changes, rest.waiting, rest.urgent = self.changes, self.waiting, True
        rest.watermarks, rest.acks = self.watermarks, self.acks
        self.changes, self.waiting, self.watermarks, self.acks = [], [], [], []
        return rest

    def move(self, queue: Queue, end: Offset) -> None:
        """Add what a queue has acknowledged."""
        below, above, attempts = queue.position(end).encode()
        self.changes.append(MoveFloor(queue.consumer_id, below, above, attempts))
        self.watermarks.append((queue, below))
        for window in queue.windows:
            if window.reports:
                self.acks.append((window, window.acks))

    def add_batch(self, batch: EventBatch, starts: NDArray[np.uint32], consumers: NDArray[np.uint32]) -> None:
        """The events that waited were matched."""
        if self.first is None:
            self.first = batch.first
        self.batches.append(batch)
        self._heads += self.heads
        self._payloads += self.payloads
        self._starts.append(starts)
        self._consumers.append(consumers)
        self.attributes, self.heads, self.payloads = PlainEvents(), [], []
        self.expires, self.expiring = [], False
        self.foreign, self.placed = [], []
        self.origins_matched = len(self.origins)

    def add_transient(self, attributes: dict[str, Any], head: bytes, payload: bytes, source: Link | None) -> None:
        """Add an event that is not durable; `source` is the neighbour from which it came."""
        self.transient.append(TransientEvent(attributes, head, payload, source))

    def group(self, at: int) -> Group:
        """The group, with the progress of publishers and neighbours."""
        for copies in self.copies:
            self.changes += copies.changes
        for notices in self.notices:
            self.changes += notices.changes
        for arrival in self.arrivals:
            self.changes.append(MoveGot(arrival.neighbour.window.link_id, arrival.got))
        for session, (epoch, sequence) in self.stored.items():
            if session.name:  # else it ends with its connection
                self.changes.append(MovePublisher(session.id, epoch, sequence))
        events = None
        if self.first is not None:
            if len(self._starts) == 1:
                starts, consumers = self._starts[0], self._consumers[0]
            else:
                ends = np.cumsum([0, *(len(each) for each in self._consumers)])
                parts = [each[1:] + end for each, end in zip(self._starts, ends.tolist(), strict=False)]
                starts = np.concatenate([np.zeros(1, np.uint32), *parts]).astype(np.uint32)
                consumers = np.concatenate(self._consumers)
            origins = self.batches[0].origins if len(self.batches) == 1 else None
            if origins is None:
                origins = _origins(self.origins, len(self._heads))
            events = Events(self.first, origins, self._heads, self._payloads, starts, consumers)
        return Group(at, events, tuple(self.changes))

    def runs(self) -> dict[int, list[tuple[int, int]]]:
        """Where the events of each publisher are: sequences and offsets at which runs begin. Cost: O(runs)."""
        found: dict[int, list[tuple[int, int]]] = {}
        if self.first is not None:
            at = int(self.first)
            for session, _, first, many in self.origins:
                found.setdefault(session, []).append((first, at))
                at += many
        return found

    def new_origins(self) -> NDArray[np.int64]:
        """The origins of the events that are not yet matched."""
        return _origins(self.origins[self.origins_matched :], len(self.heads))


def _origins(runs: Sequence[tuple[int, int, int, int]], size: int) -> NDArray[np.int64]:
    if len(runs) == size:
        return np.array(runs, np.int64).reshape(size, 4)[:, :3].copy()
    origins = np.empty((size, 3), np.int64)
    at = 0
    for session, epoch, first, many in runs:
        if many == 1:
            origins[at] = session, epoch, first
        else:
            origins[at : at + many, 0] = session
            origins[at : at + many, 1] = epoch
            origins[at : at + many, 2] = range(first, first + many)
        at += many
    return origins
