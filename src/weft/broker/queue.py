"""A durable queue: which of its events are open, and which are done with.

Laws: an acknowledged event never returns; an event that returns has a higher attempt; `acked_below` never goes back.

An event is open from its delivery until it is acknowledged, dead, expired or lost to the queue. Everything below
`acked_below` is done with: it is the lowest open offset, or the cursor if nothing is open. The queue holds no events,
only the offsets of the open ones (one window at most) and its cursor. A live queue has been sent everything up to the
end of the log, so its cursor is that end. For any other, events are counted as they are stored: `unsent` is the number
of its own from the cursor on. `marked` of them lie at or above `mark`, which is one of them: with nothing before that,
the cursor may move there.

A durable queue has a row of its own in the log, with what it has acknowledged. Each of its members has a row with its
filter; what a member has acknowledged is what its queue has.

An ordered queue takes back everything that is in flight behind a failed event, and delivers nothing until that event is
delivered again. In other queues a failed event waits alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.broker.delivery_window import DeliveryWindow
from weft.errors import LogError
from weft.log.base import NEVER, Offset, SeatId, SessionId, SubRow
from weft.model.paged_dict import PagedDict
from weft.protocol.messages import Attempt, QueueNumber, Range, SubNumber

if TYPE_CHECKING:
    from weft.broker.sessions import ClientSubscription

_MOST_SKIPPED = 1 << 17  # ranges; a client of this library repeats far fewer acknowledgements

_encode = msgspec.msgpack.Encoder().encode
_gaps = msgspec.msgpack.Decoder(list[int])
_failures = msgspec.msgpack.Decoder(dict[int, int])


class Position(NamedTuple):
    """What a queue is done with: everything below `acked_below`, and ranges above it; how often the rest has failed."""

    acked_below: Offset
    above: list[Range]
    failures: dict[int, int]
    gap: Range | None = None  # lost to the queue, and the client may not know it

    def encode(self) -> tuple[Offset, bytes, bytes]:
        """`acked_below`, and the rest as bytes; nothing takes no bytes.

        >>> position = Position(Offset(5), [(Offset(7), Offset(9))], {6: 1}, (Offset(2), Offset(4)))
        >>> Position.decode(*position.encode()) == position
        True
        """
        steps: list[int] = []
        last = int(self.acked_below)
        for first, end in self.above:
            steps += (first - last, end - first)
            last = end
        failures = dict(sorted(self.failures.items()))
        if self.gap is not None:
            failures[-self.gap[0]] = self.gap[1]  # no event has a negative offset
        return self.acked_below, _encode(steps) if steps else b"", _encode(failures) if failures else b""

    @staticmethod
    def decode(acked_below: Offset, above: bytes, attempts: bytes) -> Position:
        """The position that was stored."""
        ranges: list[Range] = []
        steps = _gaps.decode(above) if above else []
        last = int(acked_below)
        for skip, length in zip(steps[::2], steps[1::2], strict=True):
            ranges.append((Offset(last + skip), Offset(last + skip + length)))
            last += skip + length
        failures = _failures.decode(attempts) if attempts else {}
        gaps = [offset for offset in failures if offset < 0]
        gap = (Offset(-gaps[0]), Offset(failures.pop(gaps[0]))) if gaps else None
        return Position(acked_below, ranges, failures, gap)


def complement(opened: Iterable[int], start: int, end: int) -> list[Range]:
    """The ranges between the open offsets, from `start` to `end`.

    >>> complement([5, 6, 9], 5, 12)
    [(7, 9), (10, 12)]
    """
    ranges: list[Range] = []
    last = start
    for offset in opened:
        if offset > last:
            ranges.append((Offset(last), Offset(offset)))
        last = offset + 1
    if last < end:
        ranges.append((Offset(last), Offset(end)))
    return ranges


def united(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets as ascending ranges that do not overlap.

    >>> united([(7, 9), (1, 3), (2, 5)])
    [(1, 5), (7, 9)]
    """
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """The state of one durable queue. `end` is always the offset after the last event that is stored.

    >>> queue = Queue(SeatId(1), QueueNumber(0), cursor=Offset(1))
    """

    consumer_id: SeatId
    number: QueueNumber
    _: KW_ONLY
    cursor: Offset
    ordered: bool = True  # never if it is shared
    session: SessionId | None = None  # None if it is shared
    share: str = ""
    owner: str = ""
    lag: int = 1 << 62
    disconnect: bool = False
    replay_until: Offset = field(default=Offset(0))  # events below it are found by the filter, not by consumer ids
    skip: list[Range] = field(default_factory=list)  # acknowledged ranges above the cursor, after a restart
    failures: dict[int, int] = field(default_factory=dict)
    gap: Range | None = None  # lost to the queue, until a client that knows of it acknowledges what follows
    unsent: int = field(init=False, default=0)  # its own events from the cursor on, older than itself not included
    counted: bool = field(init=False, default=True)  # whether `unsent` is exact; if not, `backlog` counts again
    mark: Offset = field(init=False, default=Offset(0))
    marked: int = field(init=False, default=0)  # of `unsent`, those from the mark on
    members: PagedDict[SeatId, SubNumber] = field(init=False, default_factory=PagedDict)
    leaving: set[SeatId] = field(init=False, default_factory=set)  # members that are gone as soon as that is stored
    changed: Offset = field(init=False, default=Offset(0))  # earlier events may name members that are gone
    recheck: Offset = field(init=False, default=Offset(0))  # earlier events may lie outside the access rules of now
    windows: list[DeliveryWindow] = field(init=False, default_factory=list)
    turn: int = field(init=False, default=0)  # which consumer of a shared queue comes next
    live: bool = field(init=False, default=False)
    returned: list[int] = field(init=False, default_factory=list)  # to be delivered again, ascending
    waiting: list[tuple[int, int]] = field(init=False, default_factory=list)  # heap of (due, offset): to return later
    burying: set[int] = field(init=False, default_factory=set)  # failed too often; dead letters once that is stored
    forgotten: set[int] = field(init=False, default_factory=set)  # acknowledged dead letters, until they are removed
    tries: dict[int, int] = field(init=False, default_factory=dict)  # deliveries so far, of those that were returned
    again_below: Offset = field(init=False, default=Offset(0))  # events that may have been delivered before a restart
    held_until: int = field(init=False, default=0)  # monotonic; an ordered queue delivers nothing before
    held_by: set[int] = field(init=False, default_factory=set)  # the failed events for which it waits
    armed: int = field(init=False, default=0)  # the time for which a timer is set
    holes: bool = field(init=False, default=False)  # whether anything above `acked_below` may be acknowledged
    stored: bool = field(init=False, default=False)  # whether the queue itself is in the log
    stored_below: Offset = field(init=False)

    def __post_init__(self) -> None:
        self.ordered = self.ordered and not self.share
        self.stored_below = self.cursor

    # -- position ---------------------------------------------------------------------------------

    def advance(self, cursor: Offset) -> None:
        """Nothing below this offset is delivered for the first time any more."""
        self.cursor = cursor
        while self.skip and self.skip[0][1] <= cursor:
            del self.skip[0]
        if self.failures:  # a restart may have brought back failures of events that nobody wants any more
            opened = {*self.open()}
            self.failures = {o: n for o, n in self.failures.items() if o >= cursor or o in opened}

    def collect(self, first: Offset, number: int) -> None:
        """Some events of its own are stored, and the queue is not live."""
        if not self.unsent:
            self.marked = 0
        if not self.marked:
            self.mark = first
        self.unsent += number
        self.marked += number

    def pass_over(self, end: Offset) -> None:
        """Move the cursor over events that are not its own, as far as that is known."""
        if self.live or not self.counted or self.cursor < self.replay_until or self.unsent not in {0, self.marked}:
            return
        own = self.mark if self.unsent else end
        if own > self.cursor:
            self.advance(own)

    def catch_up(self) -> None:
        """The queue follows the end of the log from now on."""
        self.live = self.counted = True
        self.unsent = self.marked = 0

    def fall_behind(self, cursor: Offset, unsent: int) -> None:
        """Not everything could be sent to a live queue: so many of its own events remain."""
        self.live, self.cursor = False, cursor
        self.collect(cursor, unsent)

    def leave(self, end: Offset) -> None:
        """The queue no longer follows the end of the log."""
        if self.live:
            self.live, self.cursor = False, end

    @property
    def behind(self) -> int:
        """How many of its own events are not done with. Cost: O(consumers)."""
        number = self.unsent + len(self.returned) + len(self.waiting)
        for window in self.windows:
            number += window.count
        return number

    def open(self) -> list[int]:
        """Everything that was delivered and is not done with, ascending."""
        return sorted([*self.unburied(), *self.burying])

    def unburied(self) -> list[int]:
        """The open ones that are not about to become dead letters."""
        parts = [offset for window in self.windows for offset in window.offsets()]
        return [*parts, *self.returned, *(offset for _, offset in self.waiting)]

    def acked_below(self, end: Offset) -> Offset:
        """Everything below is done with, or will be once the groups on their way are stored.

        A dead letter is stored together with the `acked_below` that passes it: otherwise the event might return after a
        crash.

        Cost: O(consumers and failed events).
        """
        lowest = end if self.live else self.cursor
        for window in self.windows:
            first = window.first
            if first is not None and first < lowest:
                lowest = Offset(first)
        if self.returned and self.returned[0] < lowest:
            lowest = Offset(self.returned[0])
        for _, offset in self.waiting:
            lowest = Offset(min(lowest, offset))
        return lowest

    def position(self, end: Offset) -> Position:
        """What is stored of it."""
        below, at = self.acked_below(end), end if self.live else self.cursor
        above: list[Range] = []
        if self.holes:
            above = complement(sorted(self.unburied()), below, at)
        if self.skip:
            above += [(Offset(max(first, at)), last) for first, last in self.skip if last > at]
        failures = self.failures
        if failures:
            failures = {o: n for o, n in failures.items() if o >= below and o not in self.burying}
        return Position(below, above, failures, self.gap)

    def attempt(self, offset: int) -> int:
        """The number of an event's next delivery, or of the one in flight."""
        return self.tries.get(offset, 1 if offset < self.again_below else 0) + 1

    def skips(self, offset: int) -> bool:
        """Whether an event from the cursor on was acknowledged: before a restart, or on an earlier connection."""
        at = bisect_right(self.skip, offset, key=itemgetter(0))
        if not at or self.skip[at - 1][1] <= offset:
            return False
        self.holes = True
        return True

    # -- deliveries ---------------------------------------------------------------------------------

    def sent(self, window: DeliveryWindow, offsets: list[int], sizes: list[int]) -> None:
        """Events were sent on a connection: new ones, or some that were returned."""
        if self.tries:
            for each in self.windows:
                each.given_back.difference_update(offsets)
        window.add(offsets, sizes)

    def is_held(self, monotonic: int) -> bool:
        """Whether a failed event holds the queue."""
        return self.ordered and (self.held_until > monotonic or bool(self.burying))

    def due(self, monotonic: int) -> None:
        """Return the failed events whose time has come."""
        while self.waiting and self.waiting[0][0] <= monotonic:
            insort(self.returned, heappop(self.waiting)[1])
        if self.held_until <= monotonic:
            self.held_by.clear()

    def next_due(self, monotonic: int) -> int | None:
        """When there will be something to return."""
        if self.waiting:
            return self.waiting[0][0]
        return self.held_until if self.held_until > monotonic else None

    # -- answers --------------------------------------------------------------------------------------

    def ack(self, window: DeliveryWindow, below: int, ranges: Iterable[Range], end: Offset) -> list[int]:
        """What this connection was sent below an offset, or in a range, is done with. Returns what is new."""
        ranges = list(ranges)
        done = window.ack(below, ()) if below else []
        if ranges:
            exact = window.ack(0, ranges)
            if window.reports and len(exact) < sum(last - first for first, last in ranges):
                window.repeated = True
                exact += self._ack_elsewhere(ranges, end)
            done += exact
        if self.gap is not None and done and window.gap_sent >= self.gap[1] <= max(done):
            self.gap = None
        if ranges or len(self.windows) > 1 or window.given_back or self.returned or self.waiting or self.burying:
            self.holes = True
        if window.given_back:
            back = [o for o in window.given_back if o < below or any(a <= o < b for a, b in ranges)]
            self._forget(back)
            done += sorted(back)
        if self.tries or self.failures:
            self._clean(done)
        if self.holes and not self.is_open():
            self.holes = False
        return done

    def _ack_elsewhere(self, ranges: list[Range], end: Offset) -> list[int]:
        """What an earlier connection was sent in ranges is done with: it is returned, in flight on another connection,
        or to be delivered from the cursor on.
        """
        ranges = united(ranges)
        firsts = [first for first, _ in ranges]
        done = [offset for each in self.windows for offset in each.ack(0, ranges)]
        given_back = (*self.returned, *(offset for _, offset in self.waiting))
        back = [each for each in given_back if (at := bisect_right(firsts, each)) and each < ranges[at - 1][1]]
        self._forget(back)
        if not self.live and len(self.skip) < _MOST_SKIPPED:
            ahead = (*self.skip, *((max(first, self.cursor), min(last, end)) for first, last in ranges))
            self.skip = united(each for each in ahead if each[1] > max(each[0], self.cursor))
            if self.skip and self.skip[0][0] <= self.cursor:
                self.advance(self.skip.pop(0)[1])
        return done + back

    def done(self, offsets: Iterable[int]) -> None:
        """Some that were returned or buried are done with: expired, dead or lost."""
        offsets = list(offsets)
        if not offsets:
            return
        self._forget(offsets)
        self._clean(offsets)
        self.holes = True

    def is_open(self) -> bool:
        """Whether anything is open."""
        return bool(self.returned or self.waiting or self.burying or any(window.count for window in self.windows))

    def _forget(self, offsets: Iterable[int]) -> None:
        gone = set(offsets)
        self.returned = [offset for offset in self.returned if offset not in gone]
        if any(offset in gone for _, offset in self.waiting):
            self.waiting = [entry for entry in self.waiting if entry[1] not in gone]
            heapify(self.waiting)
        self.burying -= gone
        if self.held_by:
            self.held_by -= gone
            if not self.held_by:  # all were acknowledged after all: nothing is left to wait for
                self.held_until = 0
        for window in self.windows:
            window.given_back -= gone

    def _clean(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.tries.pop(offset, None)
            self.failures.pop(offset, None)

    def nack(self, window: DeliveryWindow, attempts: Iterable[Attempt], most: int) -> tuple[list[int], list[int]]:
        """Deliveries failed: returns those that come again (`delay` must follow), and those that failed too often.

        In an ordered queue everything behind the first of them is given back, too. Earlier attempts than the one in
        flight do not count: the answer to that one is still to come.
        """
        meant = {offset for offset, n in attempts if n == self.attempt(offset)}
        failed = [offset for offset in window.offsets() if offset in meant]
        if not failed:
            return [], []
        window.ack(0, [(Offset(offset), Offset(offset + 1)) for offset in failed])
        for offset in failed:
            self._give_back(window, offset)
            self.failures[offset] = self.failures.get(offset, 0) + 1
        if self.ordered:
            for offset in window.take_from(failed[0]):
                self._give_back(window, offset)
                insort(self.returned, offset)
        dead = [offset for offset in failed if self.failures[offset] >= most]
        self.burying.update(dead)
        return [offset for offset in failed if self.failures[offset] < most], dead

    def delay(self, offset: int, until: int) -> None:
        """A failed event returns at a time; an ordered queue waits for it."""
        if self.ordered:
            insort(self.returned, offset)
            self.held_until = max(self.held_until, until)
            self.held_by.add(offset)
        else:
            heappush(self.waiting, (until, offset))

    def _give_back(self, window: DeliveryWindow, offset: int) -> None:
        self.tries[offset] = self.attempt(offset)
        window.given_back.add(offset)

    def detach(self, window: DeliveryWindow, end: Offset) -> None:
        """A connection is gone: what it has not acknowledged returns."""
        self.windows.remove(window)
        window.reports = False
        offsets = window.take_from(0)
        for offset in offsets:
            self.tries[offset] = self.attempt(offset)
        self.returned = sorted([*self.returned, *offsets])
        if not self.windows:
            self.leave(end)

    def drop_below(self, offset: Offset, end: Offset, unsent: int) -> bool:
        """Give up everything below an offset, but not dead letters on their way; whether anything may be lost.

        `unsent` is what it will be then.
        """
        below = self.acked_below(end)
        if below >= offset:
            return False
        for window in self.windows:
            self._clean(window.ack(offset, ()))
        self.done([each for each in self.unburied() if each < offset])
        if not self.live and self.cursor < offset:
            self.advance(offset)
            self.unsent, self.marked = unsent, self.marked if offset <= self.mark else 0
        self.gap = (Offset(min(self.gap[0], below)) if self.gap else below, offset)
        return True

    def check(self, end: Offset, after: Offset) -> None:
        """Raise AssertionError if an invariant is broken."""
        for window in self.windows:
            window.check()
        opened = self.open()
        assert len(set(opened)) == len(opened), "an event is open twice"
        assert self.returned == sorted(self.returned)
        at = end if self.live else self.cursor  # from here on nothing has been delivered
        assert all(offset < at for offset in opened), "an event is open that was not delivered"
        assert at <= after, "the cursor is past what was given out"
        assert self.stored_below <= self.acked_below(end), "acked_below went back"
        assert not self.live or self.windows, "a queue without consumer follows the log"
        assert set(self.tries) <= set(opened), "tries of an event that is not open"
        assert all(offset in opened or offset >= at for offset in self.failures)
        assert self.unsent >= 0
        if self.live:
            assert not self.returned
            assert not self.unsent
        position = self.position(end)
        assert bisect_left([r[0] for r in position.above], position.acked_below) == 0
        unburied = self.unburied()
        assert not any(first <= offset < last for offset in unburied for first, last in position.above)


# -- rows in the log ------------------------------------------------------------------------------------

SHARED = SessionId(0)  # the session of shared queues and of their members: none


class QueueOptions(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The row is a queue."""

    ordered: bool
    lag: int
    disconnect: bool
    share: str
    owner: str
    replay: int = 0  # the consumer id of the member whose filter finds events below `since`


class MemberOptions(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The row is a subscription of a queue, given by its consumer id."""

    queue: int

    @property
    def profiles(self) -> str:
        """How the subscription meets profiles; empty if it does not."""
        return ""


class ProfileMemberOptions(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The same for a subscription that is shown profiles."""

    queue: int
    profiles: str


AnyMember = MemberOptions | ProfileMemberOptions
_options = msgspec.msgpack.Decoder(QueueOptions | MemberOptions | ProfileMemberOptions)


def queue_row(queue: Queue, end: Offset, replay: SeatId | None = None) -> SubRow:
    """The row of a queue."""
    options = QueueOptions(queue.ordered, queue.lag, queue.disconnect, queue.share, queue.owner, int(replay or 0))
    session, position = SHARED if queue.session is None else queue.session, queue.position(end).encode()
    return SubRow(queue.consumer_id, session, queue.number, "", _encode(options), queue.replay_until, *position)


def member_row(session: SessionId, sub: ClientSubscription) -> SubRow:
    """The row of a subscription."""
    assert isinstance(sub.queue, Queue)
    assert sub.consumer_id is not None
    queue, profiles = sub.queue.consumer_id, sub.profiles
    options = _encode(ProfileMemberOptions(queue, profiles) if profiles else MemberOptions(queue))
    return SubRow(sub.consumer_id, session, sub.number, sub.text, options, sub.start, Offset(NEVER))


def read_options(row: SubRow) -> QueueOptions | AnyMember:
    """What a row is. Raises LogError."""
    try:
        options: QueueOptions | AnyMember = _options.decode(row.options)
        return options
    except msgspec.DecodeError as error:
        raise LogError(f"the options of seat {row.seat} in the log cannot be read: {error}") from None


def queue_id(row: SubRow) -> SeatId:
    """The consumer id of the queue that a row is, or belongs to. Raises LogError."""
    options = read_options(row)
    return row.seat if isinstance(options, QueueOptions) else SeatId(options.queue)


def acked_above(row: SubRow) -> list[Range]:
    """The ranges above its floor that a queue has acknowledged."""
    return Position.decode(row.floor, row.above, b"").above


def queue_of(row: SubRow, options: QueueOptions) -> Queue:
    """The queue of a row."""
    position = Position.decode(row.floor, row.above, row.attempts)
    return Queue(
        row.seat,
        QueueNumber(row.number),
        cursor=row.floor,
        ordered=options.ordered,
        session=None if row.session == SHARED else row.session,
        share=options.share,
        owner=options.owner,
        lag=options.lag,
        disconnect=options.disconnect,
        replay_until=row.since,
        skip=position.above,
        failures=position.failures,
        gap=position.gap,
    )
