"""What a client was delivered from one durable queue, and what became of it. Laws: nothing is acknowledged on the wire
that the application did not acknowledge; what it did acknowledge is not shown to it again, whatever happens to the
connection; an ordered queue is shown in order.

The floor of an acknowledgement covers everything that the broker has sent, also what is still on its way. So it stays
below whatever may yet come back: deliveries that failed, and dead letters that are tried again. In a queue that is not
ordered anything may come back, and only exact ranges are acknowledged.

A negative acknowledgement makes an ordered queue take everything behind it back. What was sent before the broker knew
of it is put aside: a `Ping` follows the `Nack`, and what comes before the `Pong` will come again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from weft.broker.messages import Ack, Deliver, Nack, Ping, QueueNumber, Range
from weft.log.base import Offset

_MOST = 1_000  # ranges in one acknowledgement


class AckBook:
    """The deliveries of one durable queue. `token` returns a new number for a `Ping`.

    >>> book = AckBook(QueueNumber(1), ordered=True, window=10, token=lambda: 7)
    >>> shown = book.delivered([Deliver(1, offset, 1, 0, b"", b"", b"") for offset in (3, 5, 8)])
    >>> book.ack([3, 8])
    >>> book.take()
    [Ack(queue=1, floor=5, ranges=((8, 9),))]
    """

    def __init__(self, queue: QueueNumber, *, ordered: bool, window: int, token: Callable[[], int]) -> None:
        self.queue = queue
        self._ordered = ordered
        self._token = token
        self._open: dict[int, int] = {}  # shown, and waiting for an answer, with the attempt
        self._heap: list[int] = []  # at least those of `_open`
        self._back: set[int] = set()  # given back to the broker, and not delivered again so far
        self._next = 0  # after the highest offset of this connection
        self._acked: list[int] = []  # not yet said
        self._decided: list[Ack | Nack | Ping] = []  # earlier decisions that are not yet said, in order
        self._recent: deque[int] = deque(maxlen=4 * window)  # more than the broker may not have heard of
        self._settled: set[int] = set()  # acknowledged, and perhaps delivered again
        self._fence = 0  # the token of a `Ping` behind a `Nack`
        self._fenced = 0  # and the lowest offset that was refused
        self._aside: list[Deliver] = []
        self._asked: set[int] = set()  # dead letters that are to be tried again
        self._revived: set[int] = set()  # and those that are
        self._exact: list[int] = []  # acknowledged ones of these: a floor does not count for them

    # -- what the broker sends --------------------------------------------------------------------------

    def delivered(self, messages: Sequence[Deliver]) -> list[Deliver]:
        """Deliveries; returns those to be shown to the application."""
        shown: list[Deliver] = []
        opened, heap = self._open, self._heap
        for message in messages:
            offset = message.offset
            if offset in self._asked:
                self._revived.add(offset)
            elif self._fence:
                self._aside.append(message)
                continue
            elif offset in self._back:
                self._came_back(offset)
            elif offset < self._next and self._ordered and offset not in opened:
                self._revived.add(offset)  # somebody else asked for a dead letter
            elif self._back:
                self._came_back(offset)
            if offset >= self._next:
                self._next = offset + 1
            if offset in self._settled:
                self._acked.append(offset)
                self._recent.append(offset)
                continue
            if offset not in opened:
                heappush(heap, offset)
            opened[offset] = message.attempt
            shown.append(message)
        return shown

    def _came_back(self, offset: int) -> None:
        if self._ordered:  # what was below it is dead or expired
            self._back = {each for each in self._back if each > offset}
        else:
            self._back.discard(offset)

    def pong(self, token: int) -> None:
        """What was put aside comes again."""
        if token == self._fence:
            self._back.update(message.offset for message in self._aside)
            self._aside.clear()
            self._fence = self._fenced = 0

    def gap(self, first: int, end: int) -> list[Deliver]:
        """Events from `first` to before `end` are lost. Returns what must be shown after all."""
        self._open = {offset: attempt for offset, attempt in self._open.items() if not first <= offset < end}
        self._back = {offset for offset in self._back if not first <= offset < end}
        if not self._fence or not first <= self._fenced < end:
            return []
        self._fence = self._fenced = 0  # the broker may have lost the event before it heard that it failed
        aside, self._aside = self._aside, []
        return self.delivered([message for message in aside if message.offset >= end])

    def retrying(self, offsets: Iterable[int]) -> None:
        """Dead letters are to be delivered again."""
        self._asked.update(offsets)

    def retried(self, offsets: Iterable[int]) -> None:
        """The broker has answered: those that it could deliver again were delivered."""
        self._asked.difference_update(offsets)

    # -- what the application decides --------------------------------------------------------------------

    def ack(self, offsets: Iterable[int]) -> None:
        """The application is done with some deliveries, of this connection or an earlier one."""
        opened, acked, recent = self._open, self._acked, self._recent
        for offset in offsets:
            if offset in opened:
                del opened[offset]
                acked.append(offset)
                if offset in self._revived:
                    self._revived.discard(offset)
                    self._exact.append(offset)
            elif offset in self._back:
                self._back.discard(offset)
                acked.append(offset)
                self._settled.add(offset)  # it may be on its way again
            else:
                self._settled.add(offset)  # of an earlier connection: acknowledged when it is delivered again
            recent.append(offset)

    def nack(self, offset: int, attempt: int, reason: str) -> set[int]:
        """The application failed to handle a delivery. Returns what must not be shown any more: it comes again.

        Nothing is said of a delivery of an earlier connection, or one that was withdrawn: the event comes again anyway.
        """
        if self._open.get(offset) != attempt:
            return set()
        self._decided += self._acks()
        self._decided.append(Nack(self.queue, ((Offset(offset), attempt),), reason))
        del self._open[offset]
        if offset in self._revived:
            self._revived.discard(offset)  # it stays a dead letter
            return {offset}
        self._back.add(offset)
        if not self._ordered:
            return {offset}
        behind = {each for each in self._open if each > offset and each not in self._revived}
        for each in behind:
            del self._open[each]
        self._back |= behind
        self._fence = self._token()
        self._decided.append(Ping(self._fence))
        self._fenced = min(self._fenced or offset, offset)
        return behind | {offset}

    # -- what is said to the broker ------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is anything to say."""
        return bool(self._acked or self._decided)

    def take(self) -> list[Ack | Nack | Ping]:
        """The messages to send now."""
        said, self._decided = self._decided, []
        return said + self._acks() if self._acked else said

    def _acks(self) -> list[Ack | Nack | Ping]:
        if not self._acked:
            return []
        floor = self._floor() if self._ordered else 0
        ranges = _ranges([*(offset for offset in self._acked if offset >= floor), *self._exact])
        self._acked.clear()
        self._exact.clear()
        parts = range(0, max(1, len(ranges)), _MOST)
        return [Ack(self.queue, Offset(floor), tuple(ranges[at : at + _MOST])) for at in parts]

    def _floor(self) -> int:
        """The lowest offset that is not done with."""
        heap, opened = self._heap, self._open
        while heap and heap[0] not in opened:
            heappop(heap)
        floor = heap[0] if heap else self._next
        if self._back or self._asked:
            floor = min(floor, *self._back, *self._asked)
        return floor

    # -- connections -----------------------------------------------------------------------------------------

    def lost(self) -> None:
        """The connection is gone: everything without an acknowledgement comes again."""
        self._open.clear()
        self._heap.clear()
        self._back.clear()
        self._acked.clear()
        self._decided.clear()
        self._aside.clear()
        self._asked.clear()
        self._revived.clear()
        self._exact.clear()
        self._next = self._fence = self._fenced = 0
        self._settled = set(self._recent)

    def forget(self) -> None:
        """The queue begins anew, or in another log: offsets mean other events."""
        self.lost()
        self._recent.clear()
        self._settled.clear()

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self._open.keys() <= set(self._heap), "an open delivery is not in the heap"
        assert self._back.isdisjoint(self._open), "a delivery is open and given back"
        assert bool(self._fence) == bool(self._fenced)
        assert not self._aside or self._fence


def _ranges(offsets: Iterable[int]) -> list[Range]:
    """Offsets as ranges: consecutive ones together."""
    ranges: list[Range] = []
    first = end = -1
    for offset in sorted(offsets):
        if offset == end:
            end += 1
        elif offset >= end:
            if end >= 0:
                ranges.append((Offset(first), Offset(end)))
            first, end = offset, offset + 1
    if end >= 0:
        ranges.append((Offset(first), Offset(end)))
    return ranges
