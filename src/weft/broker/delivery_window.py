"""The deliveries of one queue that one connection has not acknowledged: an offset is in flight once.

Offsets are kept in runs, as they were sent: a run that is acknowledged as a whole costs next to nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.broker.effects import ConnectionId
from weft.protocol.messages import QueueNumber, Range, SubNumber

_LONG = 64  # a run of so many is not extended one by one


class Revived(NamedTuple):
    """A dead letter that is tried again."""

    attempt: int
    by_floor: bool  # whether the floor of an `Ack` acknowledges it; otherwise only a range does


class _Run(NamedTuple):
    """Ascending offsets with the bytes of each."""

    offsets: list[int]
    sizes: list[int]


@dataclass(slots=True, eq=False, repr=False)
class DeliveryWindow:
    """What one connection was sent from one queue, within a window of events and bytes.

    >>> window = DeliveryWindow(ConnectionId("c"), QueueNumber(0), 10, 1000)
    >>> window.add([3, 5, 8], [20, 20, 20])
    >>> window.ack(4, [(8, 9)])
    [3, 8]
    >>> window.offsets(), window.count, window.size
    ([5], 1, 20)
    """

    connection: ConnectionId
    queue_number: QueueNumber
    window_events: int
    window_bytes: int
    sub_number: SubNumber | None = None  # of a consumer of a shared queue
    reports: bool = False  # the client learns which acknowledgements are stored, and repeats the others
    acks: int = field(init=False, default=0)  # messages `Ack` that have come
    acks_stored: int = field(init=False, default=0)  # those that are stored
    acks_asked: int = field(init=False, default=0)  # those of which the client wants to know; 0: of none
    repeated: bool = field(init=False, default=False)  # an `Ack` has named deliveries of other connections
    count: int = field(init=False, default=0)
    size: int = field(init=False, default=0)
    given_back: set[int] = field(init=False, default_factory=set)  # returned to the queue, and not sent again since
    revived: dict[int, Revived] = field(init=False, default_factory=dict)  # dead letters that are tried again
    buried: dict[int, int] = field(init=False, default_factory=dict)  # dead letters of this connection, which may be
    # acknowledged after all, with the attempt that failed last
    gap_sent: int = field(init=False, default=0)  # the end of the gap that this connection was sent
    _runs: deque[_Run] = field(init=False, default_factory=deque)
    _ascending: bool = field(init=False, default=True)

    def add(self, offsets: list[int], sizes: list[int]) -> None:
        """Add deliveries that are sent, in ascending order."""
        if not offsets:
            return
        runs = self._runs
        if runs:
            last = runs[-1].offsets
            if offsets[0] < last[-1]:
                self._ascending = False
            elif len(last) + len(offsets) <= _LONG:
                last += offsets
                runs[-1].sizes.extend(sizes)
                self.count += len(offsets)
                self.size += sum(sizes)
                return
        else:
            self._ascending = True
        runs.append(_Run(offsets, sizes))
        self.count += len(offsets)
        self.size += sum(sizes)

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
        free = self.window_events - self.count - len(self.revived)
        if len(sizes) <= free and self.size + sum(sizes) <= self.window_bytes:
            return len(sizes)
        size = self.size
        for number, each in enumerate(sizes):
            if number >= free or size >= self.window_bytes:
                return max(0, number)
            size += each
        return len(sizes)

    def ack(self, below: int, ranges: Iterable[Range]) -> list[int]:
        """Those that are acknowledged; they are no longer in flight. Cost: O(runs that are touched)."""
        done: list[int] = []
        if self._runs and self._ascending:
            while self._runs and self._runs[0].offsets[-1] < below:
                run = self._runs.popleft()
                done += run.offsets
                self.count -= len(run.offsets)
                self.size -= sum(run.sizes)
        if self._runs:
            self._cut(0, below, done)
        for first, end in ranges:
            self._cut(first, end, done)
        return done

    def _cut(self, first: int, end: int, done: list[int]) -> None:
        """Remove what lies in a range from the runs."""
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
                self.count -= high - low
                self.size -= sum(run.sizes[low:high])
                del offsets[low:high], run.sizes[low:high]
                emptied = emptied or not offsets
        if emptied:
            self._runs = deque(run for run in self._runs if run.offsets)

    def take_from(self, offset: int) -> list[int]:
        """Take all from an offset on out of the window, ascending."""
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
