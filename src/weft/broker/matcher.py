"""The matcher: every local subscription of a broker in one index, which finds the deliveries of a batch of events.

A subscription has a slot: a small number that the index knows it by, used again when the subscription is gone. A row
by slot says which queue, number and consumer id it has, so that the matches of a batch are grouped by queue without a
loop. The matches of a batch are those of the filters at that time, whatever changes afterwards. Matches are counted by
slot, in the same row, which is read anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.relate import as_form
from weft.index.base import Matches, SubId
from weft.index.current_version import FlushOnMatch
from weft.index.tree import FEW_EVENTS, TreeIndex
from weft.index.weight import check_weight
from weft.kernels.deliveries import group_frames
from weft.language.ast import Filter
from weft.log.base import SeatId
from weft.model.rate import Rate, RateAverage, RateBucket, average_rate, faded
from weft.protocol.messages import SubNumber
from weft.routing.table import RoutingTable, Tell

if TYPE_CHECKING:
    from weft.broker.sessions import ClientQueue

_BUFFERED = 256  # changes while no event comes: an event must not wait until very many are flushed
_TESTS = 64  # of buffered changes against the events of a batch; with more, they are flushed first
_FEW = 64  # matches of a batch that are grouped one by one

_GROWTH = 16  # of the rows by slot, which take no memory until they are used
_KEPT = 1 << 18  # matches of a batch for which memory is kept

_NOBODY: Any = None, SubNumber(0), 0
_WIDTH = 8  # of a row by slot: a row lies in one line of a cache
_FADING = np.array([*map(faded, range(1_024)), 0], np.float32)  # by seconds


@dataclass(slots=True, eq=False, repr=False)
class Frames:
    """The deliveries of a batch, grouped: frame i is event events[i] with the numbers packed[starts[i]:starts[i + 1]].

    `segments` says which frames are a queue's. The numbers of a frame are in any order.
    """

    events: list[int]
    starts: list[int]
    packed: bytes
    segments: Mapping[ClientQueue, tuple[int, int]]
    _columns: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Events and starts as arrays."""
        if self._columns is None:
            self._columns = np.array(self.events, np.int64), np.array(self.starts, np.int64)
        return self._columns


class Matched(NamedTuple):
    """Frames, and consumer ids for the log: those of event i are consumers[starts[i]:starts[i + 1]]."""

    frames: Frames
    starts: NDArray[np.uint32]
    consumers: NDArray[np.uint32]


class LocalMatcher:
    """The local subscriptions of a broker, in an index for delivery and in the routing table for its neighbours."""

    def __init__(self, table: RoutingTable, executor: Executor | None = None) -> None:
        self.table = table
        self._schema = table.schema
        # without a schema, because events conform to it when they come in
        self._index = TreeIndex(executor=executor, tail=_BUFFERED, fan=4, flush=FlushOnMatch(tests=_TESTS))
        self._free: list[int] = []
        self._used = 0
        # by slot: the place of its queue, its number, its consumer or 0; and, as far as batches were grouped by
        # counting, its matches, two halves, the second of the last one, their weight for a moving average, and the
        # second of the first
        self._row = np.zeros((64, _WIDTH), np.uint32)
        self._weights = self._row.view(np.float32)
        self._alone: list[RateAverage | None] = []  # by slot: matches of other batches
        self._met = np.full(64, -1, np.int64)  # by place of a queue, for grouping
        self._room = _room(0)
        self._rows: list[tuple[ClientQueue, SubNumber, int]] = []  # the same by slot: queue, number and consumer
        self._queues: list[ClientQueue | None] = []
        self._places: dict[ClientQueue, list[int]] = {}  # place of a queue in the list, and how many subscriptions
        self._empty_places: list[int] = []
        self._buckets: dict[int, RateBucket] = {}  # by slot: of subscriptions with a rate
        self.suppressed = 0  # matches that rates did not let pass
        self.events, self.matches = RateAverage(), RateAverage()  # of all subscriptions

    def __len__(self) -> int:
        return len(self._index)

    @property
    def flushes(self) -> int:
        """How often buffered subscriptions have been flushed, which takes as long as many changes."""
        return self._index.flushes

    # -- changes ------------------------------------------------------------------------------------

    def add(
        self, filter: Filter, consumer: SeatId | None, queue: ClientQueue, number: SubNumber
    ) -> tuple[SubId, list[Tell]]:
        """Add a subscription. Raises FilterError or LocalProtocolError; then nothing has changed."""
        form = self._form(filter)
        slot = SubId(self._free[-1] if self._free else self._used)
        tells = self.table.change({slot: filter}, ())
        self._take(slot, consumer, queue, number)
        self._index.change((), {slot: form})
        return slot, tells

    def add_many(
        self,
        boxes: BoxColumns,
        consumers: Sequence[SeatId],
        queues: Sequence[ClientQueue],
        numbers: Sequence[SubNumber],
    ) -> list[SubId]:
        """Add many at once, when a broker starts; the table gets them together with the interest of neighbours.

        `boxes` are those of their filters under the table's schema; owner 0 is the first subscription.
        """
        slots = [SubId(self._used + place) for place in range(len(consumers))]
        if slots:
            self._index.add_boxes(slots, boxes)
        for slot, consumer, queue, number in zip(slots, consumers, queues, numbers, strict=True):
            self._take(slot, consumer, queue, number)
        return slots

    def _form(self, filter: Filter) -> NormalForm:
        """A filter as the index takes it, under the schema, as table and access rules have it: it is normalized once.

        Raises FilterTooComplexError.
        """
        form = as_form(filter, self._schema)
        check_weight(form.boxes)
        return form if self._schema is None else NormalForm(form.boxes)

    def _take(self, slot: int, consumer: SeatId | None, queue: ClientQueue, number: SubNumber) -> None:
        row = queue, number, int(consumer or 0)
        if self._free and self._free[-1] == slot:
            self._free.pop()
            self._rows[slot] = row
            self._alone[slot] = None
        else:
            self._used += 1
            self._alone.append(None)
            self._rows.append(row)
        if slot >= len(self._row):
            rows = np.zeros((_GROWTH * len(self._row), _WIDTH), np.uint32)
            rows[: len(self._row)] = self._row
            self._row, self._weights = rows, rows.view(np.float32)
        self._enter(slot, queue, number, consumer)

    def _enter(self, slot: int, queue: ClientQueue, number: SubNumber, consumer: SeatId | None) -> None:
        place = self._places.get(queue)
        if place is None:
            if self._empty_places:
                at = self._empty_places.pop()
                self._queues[at] = queue
            else:
                at = len(self._queues)
                self._queues.append(queue)
            place = self._places[queue] = [at, 0]
        place[1] += 1
        self._row[slot] = place[0], number, consumer or 0, 0, 0, 0, 0, 0

    def replace(self, slot: SubId, filter: Filter) -> list[Tell]:
        """Give a subscription another filter. Raises FilterError or LocalProtocolError; then nothing has changed."""
        form = self._form(filter)
        tells = self.table.change({slot: filter}, (slot,))
        self._index.change((slot,), {slot: form})
        self._row[slot, 3:] = 0  # those were of the other filter
        self._alone[slot] = None
        return tells

    def limit(self, slot: SubId, rate: Rate | None, at: int, *, full: bool = True) -> None:
        """Give a subscription a rate, another one, or none. A bucket that is not full has only what comes from now on.

        `at` is the time in microseconds, by UTC, as in `match`.
        """
        known = self._buckets.get(slot)
        if rate is None:
            self._buckets.pop(slot, None)
        elif known is None:
            self._buckets[slot] = RateBucket(rate, at, full=full)
        elif known.rate != rate:
            known.change(rate, at)

    def suppressed_of(self, slot: SubId) -> int:
        """The matches of a subscription that its rate did not let pass."""
        bucket = self._buckets.get(slot)
        return 0 if bucket is None else bucket.suppressed

    def rebind(self, slot: SubId, consumer: SeatId, queue: ClientQueue, number: SubNumber) -> None:
        """Let the events of a subscription go to another queue from now on, under another consumer id."""
        self._leave(slot)
        self._rows[slot] = queue, number, int(consumer)
        self._enter(slot, queue, number, consumer)

    def _leave(self, slot: SubId) -> None:
        queue = self._queues[self._row[slot, 0]]
        assert queue is not None
        place = self._places[queue]
        place[1] -= 1
        if not place[1]:
            del self._places[queue]
            self._queues[place[0]] = None
            self._empty_places.append(place[0])

    def discard(self, slot: SubId) -> list[Tell]:
        """Remove a subscription."""
        self._index.discard(slot)
        self._buckets.pop(slot, None)
        self._leave(slot)
        self._free.append(slot)
        self._rows[slot] = _NOBODY
        return self.table.change({}, (slot,))

    def queues(self) -> Iterator[ClientQueue]:
        """Every queue that has subscriptions."""
        return iter(self._places)

    def rest(self) -> bool:
        """Use quiet time: flush what both indexes have buffered, if nothing has changed since the last call.

        Returns whether something is still buffered.
        """
        waiting = self._index.rest()
        return self.table.rest() or waiting

    def settle(self) -> None:
        """Wait until no part of the index and of the table's index is being joined in the background."""
        self._index.settle()
        self.table.settle()

    # -- matching -------------------------------------------------------------------------------------

    def match(self, events: Sequence[Mapping[str, Any]], at: int = 0) -> Matched:
        """Who gets each event at a time in microseconds, by UTC, as far as rates allow it.

        Cost: that of the index, and a few nanoseconds a match; some 300 for one of a subscription with a rate.
        """
        second = at // 1_000_000
        self.events.count(len(events), second)
        if len(events) <= FEW_EVENTS:
            few = self._index.match_few(events)
            if self._buckets:
                few = [self._within_rates(slots, at) for slots in few]
            if (matches := sum(map(len, few))) <= _FEW:
                self.matches.count(matches, second)
                return self._few([*map(np.ndarray.tolist, few)], second)
            found = Matches.of(few)
        else:
            found = self._index.match_events(events)
            if self._buckets:
                pairs = zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
                found = Matches.of([self._within_rates(found.ids[start:end], at) for start, end in pairs])
        self.matches.count(len(found.ids), second)
        return self._many(found.offsets, found.ids, second)

    def _within_rates(self, slots: NDArray[np.int64], at: int) -> NDArray[np.int64]:
        """The subscriptions of an event whose rate allows it, or that have none."""
        buckets = self._buckets
        over = [slot for slot in slots.tolist() if slot in buckets and not buckets[slot].take(at)]
        if not over:
            return slots
        self.suppressed += len(over)
        return slots[~np.isin(slots, over)]

    def matched(self, slot: SubId) -> tuple[int, int]:
        """How many events a subscription has matched, and the second of the last one; 0 if none. Cost: O(1)."""
        low, high, last = self._row[slot, 3:6].tolist()
        total, alone = low + (high << 32), self._alone[slot]
        return (total, last) if alone is None else (total + alone.total, max(last, int(alone.last)))

    def rate(self, slot: SubId, at: int) -> float:
        """The moving average of the events per second that a subscription matches, at a time in microseconds.

        Cost: O(1).
        """
        second, average = at // 1_000_000, self._alone[slot]
        alone = 0.0 if average is None else average.per_second(second)
        last, _, first = self._row[slot, 5:8].tolist()
        if not last:
            return alone
        weight = self._weights[slot, 6].item() * faded(max(0, second - last))
        together: float = average_rate(weight, max(last, second) - first + 1)
        return alone + together

    def rates(self, at: int) -> list[float]:
        """The same of all subscriptions, by slot. Cost: some 0.1 us each, and 1 us for those that match alone."""
        second, rows = at // 1_000_000, self._row[: self._used].astype(np.int64)
        last, first = rows[:, 5], rows[:, 7]
        weights = self._weights[: self._used, 6] * faded(np.maximum(0, second - last).astype(float))
        found: list[float] = average_rate(weights, (np.maximum(last, second) - first + 1).astype(float)).tolist()
        for slot, average in enumerate(self._alone):
            if average is not None:
                found[slot] += average.per_second(second)
        return found

    def matching(self, event: Mapping[str, Any]) -> list[tuple[ClientQueue, SubNumber]]:
        """The queues and numbers of the subscriptions that match an event."""
        return [self._rows[slot][:2] for slot in sorted(self._index.match(event).tolist())]

    def _few(self, found: list[list[int]], second: int) -> Matched:
        """The slots of each event, grouped one by one."""
        held: dict[ClientQueue, list[tuple[int, list[SubNumber]]]] = {}  # by queue: events and numbers
        consumers: list[int] = []
        starts = [0]
        rows, alone = self._rows, self._alone
        for event, slots in enumerate(found):
            mine: dict[ClientQueue, list[SubNumber]] = {}
            for slot in sorted(slots):
                queue, number, consumer = rows[slot]
                counted = alone[slot]
                if counted is None:
                    counted = alone[slot] = RateAverage()
                counted.count(1, second)
                if consumer:
                    consumers.append(consumer)
                if queue in mine:
                    mine[queue].append(number)
                else:
                    mine[queue] = [number]
            starts.append(len(consumers))
            for queue, some in mine.items():
                held.setdefault(queue, []).append((event, some))
        events: list[int] = []
        begins: list[int] = [0]
        numbers: list[SubNumber] = []
        segments: dict[ClientQueue, tuple[int, int]] = {}
        for queue, frames in held.items():
            segments[queue] = len(events), len(events) + len(frames)
            for event, some in frames:
                events.append(event)
                numbers += some
                begins.append(4 * len(numbers))
        matched = Frames(events, begins, np.array(numbers, "<u4").tobytes(), segments)
        return Matched(matched, np.array(starts, np.uint32), np.array(consumers, np.uint32))

    def _many(self, offsets: NDArray[np.int64], slots: NDArray[np.int64], second: int) -> Matched:
        """The same by counting, in memory that is used again: fresh memory would cost more than the rest."""
        size, most = len(offsets) - 1, len(slots)
        if len(self._met) < len(self._queues):
            self._met = np.full(2 * len(self._queues), -1, np.int64)
        room, drawn, numbers, consumers = self._room if most <= _KEPT else _room(most)
        if room.shape[1] <= most:
            room, drawn, numbers, consumers = self._room = _room(2 * most)
        firsts = np.empty(size + 1, np.uint32)
        into = room, drawn, numbers, consumers, firsts
        held, frames, many = group_frames(offsets, slots, self._row, self._met, *into, np.uint32(second), _FADING)
        queues, bounds = room[0, :held].tolist(), pairwise([0, *room[1, :held].tolist()])
        segments = {self._queues[queue]: segment for queue, segment in zip(queues, bounds, strict=True)}
        events, starts = room[2, :frames].copy(), room[3, : frames + 1].copy()
        found = Frames(events.tolist(), starts.tolist(), numbers[:most].tobytes(), segments, (events, starts))
        return Matched(found, firsts, consumers[:many].copy())

    def check(self, slots: Iterable[int]) -> None:
        """Raise AssertionError if an invariant is broken. `slots` are those of all subscriptions."""
        known = set(slots)
        assert len(known) == len(self)
        assert all(slot in self._index for slot in known)
        assert known.isdisjoint(self._free)
        assert len(known) + len(self._free) == self._used
        counts = Counter(int(self._row[slot, 0]) for slot in known)
        assert counts == {place: size for place, size in self._places.values()}  # noqa: C416 - lists of two
        assert all(self._queues[place] is queue for queue, (place, _) in self._places.items())
        for slot in known:
            queue, number, consumer = self._rows[slot]
            assert queue is self._queues[self._row[slot, 0]]
            assert (number, consumer) == (*self._row[slot, 1:3].tolist(),)


def _room(most: int) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Memory for grouping so many matches: see `group_frames`."""
    drawn, numbers, consumers = np.empty((2, most), np.uint32), np.empty(most, np.uint32), np.empty(most, np.uint32)
    return np.empty((6, most + 1), np.int64), drawn, numbers, consumers
