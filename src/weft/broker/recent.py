"""Recent events in memory, shared by all queues, and the reader that finds a queue's events there or in the log.

A queue that is a little behind reads from memory, within a bound of bytes, and one that is far behind from the log.
What is read is what was matched at its offset: by the consumer ids stored with an event, or by the filter where a
subscription asked for events older than itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from weft.broker.admission import expiry, read_head
from weft.broker.matcher import Frames, Matched
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.log.base import NEVER, Log, Offset, SeatId, StoredGroup
from weft.log.codec import SeatSet
from weft.model.event import Event
from weft.protocol.messages import SubNumber, pack

if TYPE_CHECKING:
    from weft.broker.event_places import BatchPlaces
    from weft.broker.queue import Queue

_BATCH, _EVENT, _FRAME = 1_000, 180, 112  # bytes of objects: of a batch, of an event besides its body, of a frame
_MOST_BYTES = 4 << 20  # of events that are read from the log at once, besides one group
_SCANNED = 2_000  # batches that are looked at in one read

_first = attrgetter("first")


class Entry(NamedTuple):
    """An event for some queue."""

    offset: Offset
    at: int
    packed: bytes  # the numbers of its subscriptions there
    head: Raw
    payload: bytes
    expires: int
    size: int


@dataclass(slots=True, eq=False, repr=False)
class EventBatch:
    """Events that were matched together, and their deliveries."""

    first: Offset
    at: int
    heads: list[bytes]
    payloads: list[bytes]
    expires: list[int] | None  # None: no event expires
    matched: Matched
    origins: NDArray[np.int64] | None = None  # None: the broker has no links
    routes: Mapping[int, Sequence[int]] | None = None  # events by the consumer id of a link
    places: BatchPlaces | None = None  # None: no neighbour wants them
    frames: Frames = field(init=False)
    end: Offset = field(init=False)  # the offset after its last event
    sizes: list[int] = field(init=False)
    weight: int = field(init=False)  # bytes, about

    def __post_init__(self) -> None:
        heads, matched = self.heads, self.matched
        frames = self.frames = matched.frames
        self.end = Offset(self.first + len(heads))
        self.sizes = [*map(add, map(len, heads), map(len, self.payloads))]
        objects = _BATCH + _EVENT * len(heads) + _FRAME * len(frames.events)
        self.weight = objects + sum(self.sizes) + len(frames.packed) + matched.consumers.nbytes
        self.weight += 0 if self.places is None else len(self.places.data)

    def __len__(self) -> int:
        return len(self.heads)

    def entry(self, frame: int, packed: bytes) -> Entry:
        """One frame as an entry."""
        event = self.frames.events[frame]
        offset, expires = Offset(self.first + event), NEVER if self.expires is None else self.expires[event]
        head, payload = Raw(self.heads[event]), self.payloads[event]
        return Entry(offset, self.at, packed, head, payload, expires, self.sizes[event])


class RecentEvents:
    """The last batches, up to a number of bytes."""

    def __init__(self, most: int, first: Offset) -> None:
        self._most = most
        self._batches: list[EventBatch] = []
        self._gone = 0  # batches at the beginning of the list that are dropped
        self._weight = 0
        self.first = first  # everything from here on is in memory

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

    def read(self, queue: Queue, cursor: Offset, most: int) -> tuple[list[Entry], Offset | None]:
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
        if not batches or batches[-1].first <= cursor:
            return iter(batches[-1:] if batches and batches[-1].end > cursor else ())
        start = max(self._gone, bisect_right(batches, cursor, self._gone, key=_first) - 1)
        places = range(start, len(batches))
        return (batch for place in places if (batch := batches[place]).end > cursor)

    def find(self, queue: Queue, offset: Offset) -> Entry | None:
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


_NOBODY = np.zeros(1, np.uint32)
_NOTHING = EventBatch(Offset(0), 0, [], [], None, Matched(Frames([], [0], b"", {}), _NOBODY, _NOBODY))


def _packed(queue: Queue, batch: EventBatch, frame: int) -> bytes:
    frames = batch.frames
    if batch.first >= queue.changed:
        return frames.packed[frames.starts[frame] : frames.starts[frame + 1]]
    matched, event, members = batch.matched, frames.events[frame], queue.members
    consumers = matched.consumers[matched.starts[event] : matched.starts[event + 1]].tolist()
    return pack(sorted(members[each] for each in consumers if each in members))


class EventReader:
    """Reads for queues. Each call reads a bounded number of events."""

    def __init__(self, log: Log, recent: RecentEvents) -> None:
        self._log = log
        self._recent = recent
        self.replays: dict[Queue, tuple[SeatId, Filter]] = {}  # whose filter finds events below `replay_until`
        self.read_from_log = 0

    def read(self, queue: Queue, end: Offset, most: int, budget: int) -> tuple[list[Entry], Offset]:
        """Up to `most` events from the cursor on, and where to go on. Looks at `budget` stored events at most."""
        cursor = queue.cursor
        if cursor >= queue.replay_until and cursor >= self._recent.first:
            entries, after = self._recent.read(queue, cursor, most)
            return entries, end if after is None else after
        found: list[Entry] = []
        members = _members_of(queue)
        limit = min(budget, queue.replay_until - cursor) if cursor < queue.replay_until else budget
        after = cursor
        for group in self._log.read(cursor, limit):
            self.read_from_log += len(group.events)
            after = Offset(group.events.first + len(group.events))
            found += [entry for entry in self._entries(queue, members, group, None) if entry.offset < end]
            if len(found) > most:
                return found[:most], found[most].offset
            if cursor < queue.replay_until <= after or sum(entry.size for entry in found) > _MOST_BYTES:
                break
        if after == cursor:
            after = end  # nothing is stored from here on
        if cursor < queue.replay_until:
            found = [entry for entry in found if entry.offset < queue.replay_until]
            after = Offset(min(after, queue.replay_until))
        return found, Offset(min(after, end))

    def find(self, queue: Queue, offsets: Collection[int], budget: int) -> dict[int, Entry]:
        """Some events that the queue had before. Those not found are gone, or no member of it wants them any more.

        Cost: that of one read from the log, of up to `budget` events, for each group that has any of them.
        """
        found: dict[int, Entry] = {}
        wanted = set(offsets)
        for offset in sorted(wanted):
            if offset >= queue.replay_until and offset >= self._recent.first:
                entry = self._recent.find(queue, Offset(offset))
                if entry is not None:
                    found[offset] = entry
        old = [offset for offset in sorted(wanted) if offset < max(queue.replay_until, self._recent.first)]
        if not old:
            return found
        members = _members_of(queue)
        while old:
            after = old[0]
            for group in self._log.read(Offset(old[0]), budget):
                self.read_from_log += len(group.events)
                after = group.events.first + len(group.events)
                found.update((entry.offset, entry) for entry in self._entries(queue, members, group, wanted))
                if after > old[0]:
                    break
            old = [offset for offset in old if offset >= after and offset != old[0]]
        return found

    def _entries(self, queue: Queue, members: SeatSet, group: StoredGroup, only: Collection[int] | None) -> list[Entry]:
        """What a group has for a queue with these members."""
        events = group.events
        first = events.first
        numbers: dict[int, list[SubNumber]] = {}
        if first < queue.replay_until:
            consumer, wanted = self.replays[queue]
            number = queue.members[consumer]
            for event in range(min(len(events), queue.replay_until - first)):
                if (only is not None and first + event not in only) or events.origins[event, 0] < 0:
                    continue  # not asked for, or a copy for a session that has moved here
                if matches(wanted, Event(read_head(events.heads[event]).attributes)):
                    numbers[event] = [number]
        if len(events.seats):
            places = members.places(events.seats)
            whose = np.searchsorted(events.starts, places, side="right") - 1
            for event, consumer in zip(whose.tolist(), events.seats[places].tolist(), strict=True):
                if first + event >= queue.replay_until and (only is None or first + event in only):
                    numbers.setdefault(event, []).append(queue.members[consumer])
        entries = []
        for event in sorted(numbers):
            offset, packed = Offset(first + event), pack(numbers[event])
            head, payload = events.heads[event], events.payloads[event]
            size = len(head) + len(payload)
            entries.append(Entry(offset, group.at, packed, Raw(head), payload, expiry(head), size))
        return entries


def _members_of(queue: Queue) -> SeatSet:
    """The consumer ids of a queue's members; made once for all groups that are read together."""
    return SeatSet(np.fromiter(queue.members, np.uint32, len(queue.members)))
