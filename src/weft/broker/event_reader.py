"""The events of one queue, from memory or from the log. Law: what is read is what was matched at its offset: by the
seats stored with an event, or by the filter where a subscription asked for events older than itself.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np

from weft.broker.admission import expiry, read_head
from weft.broker.messages import SubNumber, pack
from weft.broker.queue import Queue
from weft.broker.tail import Entry, Tail
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.log.base import Log, Offset, SeatId, StoredGroup
from weft.log.seat_set import SeatSet
from weft.model.event import Event

_MOST_BYTES = 4 << 20  # of events that are read from the log at once, besides one group


class EventReader:
    """Reads for queues. Each call reads a bounded number of events."""

    def __init__(self, log: Log, tail: Tail) -> None:
        self._log = log
        self._tail = tail
        self.replays: dict[Queue, tuple[SeatId, Filter]] = {}  # whose filter finds events below `replay_until`
        self.read_from_log = 0

    def read(self, queue: Queue, end: Offset, most: int, budget: int) -> tuple[list[Entry], Offset]:
        """Up to `most` events from the cursor on, and where to go on. Looks at `budget` stored events at most."""
        cursor = queue.cursor
        if cursor >= queue.replay_until and cursor >= self._tail.first:
            entries, after = self._tail.read(queue, cursor, most)
            return entries, end if after is None else after
        found: list[Entry] = []
        seats = _seats_of(queue)
        limit = min(budget, queue.replay_until - cursor) if cursor < queue.replay_until else budget
        after = cursor
        for group in self._log.read(cursor, limit):
            self.read_from_log += len(group.events)
            after = Offset(group.events.first + len(group.events))
            found += [entry for entry in self._entries(queue, seats, group, None) if entry.offset < end]
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
            if offset >= queue.replay_until and offset >= self._tail.first:
                entry = self._tail.find(queue, Offset(offset))
                if entry is not None:
                    found[offset] = entry
        old = [offset for offset in sorted(wanted) if offset < max(queue.replay_until, self._tail.first)]
        if not old:
            return found
        seats = _seats_of(queue)
        while old:
            after = old[0]
            for group in self._log.read(Offset(old[0]), budget):
                self.read_from_log += len(group.events)
                after = group.events.first + len(group.events)
                found.update((entry.offset, entry) for entry in self._entries(queue, seats, group, wanted))
                if after > old[0]:
                    break
            old = [offset for offset in old if offset >= after and offset != old[0]]
        return found

    def _entries(self, queue: Queue, seats: SeatSet, group: StoredGroup, only: Collection[int] | None) -> list[Entry]:
        """What a group has for a queue, whose members have these seats."""
        events = group.events
        first = events.first
        numbers: dict[int, list[SubNumber]] = {}
        if first < queue.replay_until:
            seat, wanted = self.replays[queue]
            number = queue.members[seat]
            for event in range(min(len(events), queue.replay_until - first)):
                if only is not None and first + event not in only:
                    continue
                if matches(wanted, Event(read_head(events.heads[event]).attributes)):
                    numbers[event] = [number]
        if len(events.seats):
            places = seats.places(events.seats)
            whose = np.searchsorted(events.starts, places, side="right") - 1
            for event, seat_found in zip(whose.tolist(), events.seats[places].tolist(), strict=True):
                if first + event >= queue.replay_until and (only is None or first + event in only):
                    numbers.setdefault(event, []).append(queue.members[seat_found])
        return [
            Entry(
                Offset(first + event),
                group.at,
                pack(numbers[event]),
                msgspec.Raw(events.heads[event]),
                events.payloads[event],
                expiry(events.heads[event]),
                len(events.heads[event]) + len(events.payloads[event]),
            )
            for event in sorted(numbers)
        ]


def _seats_of(queue: Queue) -> SeatSet:
    """The seats of a queue's members; made once for all groups that are read together."""
    return SeatSet(np.fromiter(queue.members, np.uint32, len(queue.members)))
