"""What one connection was sent from one queue and has not acknowledged. Law: an offset is in flight once.

Offsets are kept in runs, as they were sent: a run that is acknowledged as a whole costs next to nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from weft.broker.effects import ConnectionId
from weft.broker.messages import QueueNumber, Range, SubNumber

_LONG = 64  # a run of so many is not extended one by one


class Revived(NamedTuple):
    """A dead letter that is tried again."""

    attempt: int
    by_floor: bool  # whether a floor acknowledges it; otherwise only a range does


class _Run:
    """Ascending offsets with the bytes of each."""

    __slots__ = ("offsets", "sizes")

    def __init__(self, offsets: list[int], sizes: list[int]) -> None:
        self.offsets = offsets
        self.sizes = sizes


class Flight:
    """The deliveries of a queue on their way to one connection.

    >>> flight = Flight(ConnectionId("c"), QueueNumber(0), 10, 1000)
    >>> flight.add([3, 5, 8], [20, 20, 20])
    >>> flight.ack(4, [(8, 9)])
    [3, 8]
    >>> flight.offsets(), flight.count, flight.size
    ([5], 1, 20)
    """

    __slots__ = (
        "_ascending",
        "_runs",
        "buried",
        "connection",
        "count",
        "given_back",
        "queue_number",
        "revived",
        "size",
        "sub_number",
        "told_gap",
        "window_bytes",
        "window_events",
    )

    def __init__(
        self,
        connection: ConnectionId,
        queue_number: QueueNumber,
        window_events: int,
        window_bytes: int,
        sub_number: SubNumber | None = None,
    ) -> None:
        self.connection = connection
        self.queue_number = queue_number
        self.sub_number = sub_number  # of a consumer of a shared queue
        self.window_events = window_events
        self.window_bytes = window_bytes
        self.count = 0
        self.size = 0
        self.given_back: set[int] = set()  # sent here, then returned to the queue, and not sent again since
        self.revived: dict[int, Revived] = {}  # dead letters that are tried again
        self.buried: dict[int, int] = {}  # dead letters of this connection, which may be acknowledged after all,
        # with the attempt that failed last
        self.told_gap = 0  # the end of the gap that this connection was told
        self._runs: deque[_Run] = deque()
        self._ascending = True

    def add(self, offsets: list[int], sizes: list[int]) -> None:
        """Some are sent, in ascending order."""
        if not offsets:
            return
        runs = self._runs
        if runs:
            last = runs[-1].offsets
            if offsets[0] < last[-1]:
                self._ascending = False
            elif len(last) + len(offsets) <= _LONG:
                last += offsets
                runs[-1].sizes += sizes
                self._counted(len(offsets), sum(sizes))
                return
        else:
            self._ascending = True
        runs.append(_Run(offsets, sizes))
        self._counted(len(offsets), sum(sizes))

    def _counted(self, count: int, size: int) -> None:
        self.count += count
        self.size += size

    @property
    def free(self) -> int:
        """How many more events the window has room for, whatever their size; may be negative."""
        return self.window_events - self.count - len(self.revived)

    @property
    def has_room(self) -> bool:
        """Whether one more may be sent."""
        return self.free > 0 and self.size < self.window_bytes

    def room_for(self, sizes: list[int]) -> int:
        """How many of these, from the first on, may be sent. The last one may exceed the window of bytes."""
        free = self.free
        if len(sizes) <= free and self.size + sum(sizes) <= self.window_bytes:
            return len(sizes)
        size = self.size
        for number, each in enumerate(sizes):
            if number >= free or size >= self.window_bytes:
                return max(0, number)
            size += each
        return len(sizes)

    def ack(self, floor: int, ranges: Iterable[Range]) -> list[int]:
        """Those that are acknowledged; they are no longer in flight. Cost: O(runs that are touched)."""
        done: list[int] = []
        if self._runs and self._ascending:
            while self._runs and self._runs[0].offsets[-1] < floor:
                run = self._runs.popleft()
                done += run.offsets
                self._counted(-len(run.offsets), -sum(run.sizes))
        self._cut(0, floor, done)
        for first, end in ranges:
            self._cut(first, end, done)
        return done

    def _cut(self, first: int, end: int, done: list[int]) -> None:
        """Take what lies in a range out of the runs."""
        emptied = False
        for run in self._runs:
            offsets = run.offsets
            if offsets[0] >= end:
                if self._ascending:
                    break
                continue
            low, high = bisect_left(offsets, first), bisect_left(offsets, end)
            if low < high:
                done += offsets[low:high]
                self._counted(low - high, -sum(run.sizes[low:high]))
                del offsets[low:high], run.sizes[low:high]
                emptied = emptied or not offsets
        if emptied:
            self._runs = deque(run for run in self._runs if run.offsets)

    def __contains__(self, offset: int) -> bool:
        return any(
            run.offsets[0] <= offset <= run.offsets[-1] and run.offsets[bisect_left(run.offsets, offset)] == offset
            for run in self._runs
        )

    def take(self, offset: int) -> bool:
        """Take one out of flight; whether it was there."""
        done: list[int] = []
        self._cut(offset, offset + 1, done)
        return bool(done)

    def take_from(self, offset: int) -> list[int]:
        """Take all from an offset on out of flight, ascending."""
        done: list[int] = []
        self._cut(offset, 1 << 63, done)
        return sorted(done)

    @property
    def first(self) -> int | None:
        """The lowest offset in flight."""
        if not self._runs:
            return None
        if self._ascending:
            return self._runs[0].offsets[0]
        return min(run.offsets[0] for run in self._runs)

    def offsets(self) -> list[int]:
        """All in flight, ascending."""
        return sorted(offset for run in self._runs for offset in run.offsets)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        offsets = self.offsets()
        assert len(set(offsets)) == len(offsets) == self.count, "an offset is in flight twice, or not counted"
        assert self.size == sum(size for run in self._runs for size in run.sizes)
        assert self.count <= self.window_events, "more is in flight than the window allows"
        assert all(run.offsets and run.offsets == sorted(run.offsets) for run in self._runs)
        assert self.given_back.isdisjoint(offsets)
        if self._ascending:
            flat = [offset for run in self._runs for offset in run.offsets]
            assert flat == sorted(flat)
