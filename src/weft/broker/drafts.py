"""Groups on their way into the log. Law: what waits for a group happens when it is stored, or is undone when it is not.

A draft collects the events and changes of one call. Its events are matched together, just before a subscription changes
or the call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.broker.effects import ConnectionId, Now, Ticket
from weft.broker.link_events import EventLane
from weft.broker.queue import Queue
from weft.broker.sessions import Session
from weft.broker.tail import EventBatch
from weft.log.base import Events, Group, MovePublisher, Offset, StateChange
from weft.model.door import PlainEvents
from weft.routing.table import Link

Committed = Callable[[Now], None]
Rejected = Callable[[str, Now], None]


class PublisherMark:
    """Where a publisher was before a group."""

    __slots__ = ("connection", "received_before", "session")

    def __init__(self, session: Session, connection: ConnectionId) -> None:
        self.session = session
        self.connection = connection
        self.received_before = session.pub_received


class Draft:
    """A group that is being made."""

    __slots__ = (
        "_heads",
        "_payloads",
        "_seats",
        "_starts",
        "attributes",
        "batches",
        "changes",
        "committed",
        "expires",
        "expiring",
        "first",
        "floors",
        "foreign",
        "heads",
        "loose",
        "marks",
        "origins",
        "origins_matched",
        "payloads",
        "rejected",
        "stored",
        "urgent",
    )

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self.committed: list[Committed] = []
        self.rejected: list[Rejected] = []
        self.marks: dict[Session, PublisherMark] = {}
        self.stored: dict[Session, tuple[int, int]] = {}  # epoch and sequence at the end of the draft
        self.floors: list[tuple[Queue | EventLane, Offset]] = []
        self.batches: list[EventBatch] = []
        self.urgent = False
        # events that are not yet matched, as columns
        self.attributes = PlainEvents()
        self.heads: list[bytes] = []
        self.payloads: list[bytes] = []
        self.expires: list[int] = []
        self.expiring = False
        self.foreign: list[tuple[int, int, Link]] = []  # ranges of them that came from neighbours
        self.loose: list[tuple[dict[str, Any], bytes, bytes, Link | None]] = []  # not durable, and where from
        # events that are matched, for the log
        self.first: Offset | None = None
        self.origins: list[tuple[int, int, int, int]] = []  # session, epoch, first sequence, how many
        self.origins_matched = 0  # how many of these are of events that are matched
        self._heads: list[bytes] = []
        self._payloads: list[bytes] = []
        self._starts: list[NDArray[np.uint32]] = []
        self._seats: list[NDArray[np.uint32]] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.changes or self.batches or self.floors)

    def add_batch(self, batch: EventBatch, starts: NDArray[np.uint32], seats: NDArray[np.uint32]) -> None:
        """The events that waited were matched."""
        if self.first is None:
            self.first = batch.first
        self.batches.append(batch)
        self._heads += self.heads
        self._payloads += self.payloads
        self._starts.append(starts)
        self._seats.append(seats)
        self.attributes, self.heads, self.payloads = PlainEvents(), [], []
        self.expires, self.expiring = [], False
        self.foreign = []
        self.origins_matched = len(self.origins)

    def group(self, at: int) -> Group:
        """The group, with the publishers' progress."""
        for session, (epoch, sequence) in self.stored.items():
            if session.durable:
                self.changes.append(MovePublisher(session.id, epoch, sequence))
        events = None
        if self.first is not None:
            if len(self._starts) == 1:
                starts, seats = self._starts[0], self._seats[0]
            else:
                ends = np.cumsum([0, *(len(each) for each in self._seats)])
                parts = [each[1:] + end for each, end in zip(self._starts, ends.tolist(), strict=False)]
                starts = np.concatenate([np.zeros(1, np.uint32), *parts]).astype(np.uint32)
                seats = np.concatenate(self._seats)
            known = [batch.origins for batch in self.batches if batch.origins is not None]
            origins = known[0] if len(known) == 1 == len(self.batches) else _origins(self.origins, len(self._heads))
            events = Events(self.first, origins, self._heads, self._payloads, starts, seats)
        return Group(at, events, tuple(self.changes))

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


class PendingGroup:
    """A group that the driver is to store."""

    __slots__ = ("batches", "committed", "floors", "marks", "rejected", "stored", "ticket")

    def __init__(self, ticket: Ticket, draft: Draft) -> None:
        self.ticket = ticket
        self.batches = draft.batches
        self.committed = draft.committed
        self.rejected = draft.rejected
        self.marks = draft.marks
        self.stored = draft.stored
        self.floors = draft.floors
