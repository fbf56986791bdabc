"""Recent events in memory, shared by all queues. Law: the tail is the end of the log, and no larger than its bound.

A queue that is a little behind reads from here; one that is far behind reads from the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from weft.broker.messages import pack
from weft.broker.seats import Frames, Matched
from weft.log.base import NEVER, Offset

_BATCH, _EVENT, _FRAME = 1_000, 180, 112  # bytes of objects: of a batch, of an event besides its body, of a frame
_SCANNED = 2_000  # batches that are looked at in one read


class Entry(NamedTuple):
    """An event for some queue."""

    offset: Offset
    at: int
    packed: bytes  # the numbers of its subscriptions there
    head: Raw
    payload: bytes
    expires: int
    size: int


class EventBatch:
    """Events that were matched together, and their deliveries."""

    __slots__ = (
        "at",
        "expires",
        "first",
        "frames",
        "heads",
        "matched",
        "origins",
        "payloads",
        "routes",
        "sizes",
        "weight",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - columns
        self,
        first: Offset,
        at: int,
        heads: list[bytes],
        payloads: list[bytes],
        expires: list[int] | None,  # None: no event expires
        matched: Matched,
        origins: NDArray[np.int64] | None = None,  # None: the broker has no links
        routes: Mapping[int, Sequence[int]] | None = None,  # events by the seat of a link
    ) -> None:
        self.first = first
        self.at = at
        self.heads = heads
        self.payloads = payloads
        self.sizes = [*map(add, map(len, heads), map(len, payloads))]
        self.expires = expires
        self.matched = matched
        self.frames = matched.frames
        self.origins = origins
        self.routes = routes
        objects = _BATCH + _EVENT * len(heads) + _FRAME * len(matched.frames.events)
        self.weight: int = objects + sum(self.sizes) + len(matched.frames.packed) + matched.seats.nbytes  # bytes, about

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def end(self) -> Offset:
        """The offset after its last event."""
        return Offset(self.first + len(self.heads))

    def entry(self, frame: int, packed: bytes) -> Entry:
        """One frame as an entry."""
        event = self.frames.events[frame]
        expires = NEVER if self.expires is None else self.expires[event]
        return Entry(
            Offset(self.first + event),
            self.at,
            packed,
            Raw(self.heads[event]),
            self.payloads[event],
            expires,
            self.sizes[event],
        )


class Tail:
    """The last batches, up to a number of bytes."""

    def __init__(self, most: int, first: Offset) -> None:
        self._most = most
        self._batches: list[EventBatch] = []
        self._gone = 0  # batches at the beginning of the list that are no longer in the tail
        self._weight = 0
        self.first = first  # everything from here on is in the tail

    @property
    def weight(self) -> int:
        """Bytes that it takes, roughly."""
        return self._weight

    def append(self, batch: EventBatch) -> None:
        """The next batch of the log."""
        batches = self._batches
        batches.append(batch)
        self._weight += batch.weight
        while self._weight > self._most and len(batches) - self._gone > 1:
            self._weight -= batches[self._gone].weight
            batches[self._gone] = _NOTHING
            self._gone += 1
            self.first = batches[self._gone].first
        if self._gone > len(batches) // 2:
            del batches[: self._gone]
            self._gone = 0

    def read(self, queue: Any, cursor: Offset, most: int) -> tuple[list[Entry], Offset | None]:
        """Some of a queue's events from the cursor on, and where to go on; None at the end. Cost: O(batches, events).

        A queue's members may have changed since an event was matched: numbers of those that are gone are left out.
        """
        entries: list[Entry] = []
        batches = self._batches
        start = max(self._gone, bisect_right(batches, cursor, self._gone, key=_first) - 1)
        for place in range(start, len(batches)):
            batch = batches[place]
            if place - start >= _SCANNED:
                return entries, batch.first
            segment = batch.frames.segments.get(queue)
            if segment is None or batch.end <= cursor:
                continue
            low, high = segment
            frames = batch.frames
            if batch.first < cursor:
                low = bisect_right(frames.events, cursor - batch.first - 1, low, high)
            for frame in range(low, high):
                if len(entries) >= most:
                    return entries, Offset(batch.first + frames.events[frame])
                packed = _packed(queue, batch, frame)
                if packed:
                    entries.append(batch.entry(frame, packed))
        return entries, None

    def since(self, cursor: Offset) -> Iterator[EventBatch]:
        """The batches with events from an offset on."""
        batches = self._batches
        start = max(self._gone, bisect_right(batches, cursor, self._gone, key=_first) - 1)
        places = range(start, len(batches))
        return (batch for place in places if (batch := batches[place]).end > cursor)

    def find(self, queue: Any, offset: Offset) -> Entry | None:
        """One event of a queue; None if none of its members wants it any more."""
        entries, _ = self.read(queue, offset, 1)
        return entries[0] if entries and entries[0].offset == offset else None

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        batches = self._batches[self._gone :]
        assert self._weight == sum(batch.weight for batch in batches)
        assert self._weight <= self._most or len(batches) == 1
        ends = [batch.first for batch in batches]
        assert ends == sorted(ends)
        assert not ends or self.first <= ends[0]


_NO_SEATS = np.zeros(1, np.uint32)
_NOTHING = EventBatch(Offset(0), 0, [], [], None, Matched(Frames([], [0], b"", {}), _NO_SEATS, _NO_SEATS))


def _first(batch: EventBatch) -> Offset:
    return batch.first


def _packed(queue: Any, batch: EventBatch, frame: int) -> bytes:
    frames = batch.frames
    if batch.first >= queue.changed:
        return frames.packed[frames.starts[frame] : frames.starts[frame + 1]]
    matched, event, members = batch.matched, frames.events[frame], queue.members
    seats = matched.seats[matched.starts[event] : matched.starts[event + 1]].tolist()
    return pack(sorted(members[seat] for seat in seats if seat in members))
