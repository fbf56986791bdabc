"""A durable queue. Laws: an event is open from its delivery until it is acknowledged, dead, expired or lost to the
queue; the floor is the lowest open offset, or the cursor, and never goes back; an acknowledged event never returns;
what returns has a higher attempt.

The queue itself holds no events: only the offsets of those that are open, one window at most, and its cursor. A live
queue has been sent everything up to the end of the log; its cursor is that end, whatever it is.

An ordered queue returns everything that is in flight behind a failed event, and delivers nothing until that event is
delivered again. Other queues let a failed event wait alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from weft.broker.flight import Flight
from weft.broker.messages import Attempt, QueueNumber, Range, SubNumber
from weft.broker.position import Position, complement
from weft.log.base import Offset, SeatId, SessionId
from weft.model.paged_dict import PagedDict


class Queue:
    """The state of one durable queue. `end` is always the offset after the last event that is stored.

    >>> queue = Queue(SeatId(1), QueueNumber(0), cursor=Offset(1))
    """

    __slots__ = (
        "again_below",
        "armed",
        "burying",
        "changed",
        "cursor",
        "disconnect",
        "failures",
        "flights",
        "forgotten",
        "gap",
        "held_by",
        "held_until",
        "holes",
        "lag",
        "leaving",
        "live",
        "members",
        "number",
        "ordered",
        "owner",
        "recheck",
        "replay_until",
        "returned",
        "seat",
        "session",
        "share",
        "skip",
        "stored",
        "stored_floor",
        "tries",
        "turn",
        "waiting",
    )

    def __init__(  # noqa: PLR0913 - its options
        self,
        seat: SeatId,
        number: QueueNumber,
        *,
        cursor: Offset,
        ordered: bool = True,
        session: SessionId | None = None,
        share: str = "",
        owner: str = "",
        lag: int = 1 << 62,
        disconnect: bool = False,
    ) -> None:
        self.seat = seat
        self.number = number
        self.session = session  # None if it is shared
        self.share, self.owner = share, owner
        self.ordered = ordered and not share
        self.lag, self.disconnect = lag, disconnect
        self.members: PagedDict[SeatId, SubNumber] = PagedDict()
        self.leaving: set[SeatId] = set()  # members that are gone as soon as that is stored
        self.changed = Offset(0)  # earlier events may name members that are gone
        self.recheck = Offset(0)  # earlier events may lie outside the access rules, which have changed since
        self.flights: list[Flight] = []
        self.turn = 0  # which consumer of a shared queue comes next
        self.cursor = cursor
        self.live = False
        self.skip: list[Range] = []  # acknowledged ranges above the cursor, after a restart
        self.returned: list[int] = []  # to be delivered again, ascending
        self.waiting: list[tuple[int, int]] = []  # heap of (due, offset): failed, to be returned later
        self.burying: set[int] = set()  # failed too often; dead letters once that is stored
        self.forgotten: set[int] = set()  # dead letters that are acknowledged, until their removal is stored
        self.tries: dict[int, int] = {}  # deliveries so far, of those that were returned
        self.failures: dict[int, int] = {}
        self.again_below = Offset(0)  # events below it may have been delivered before the broker restarted
        self.held_until = 0  # monotonic; an ordered queue delivers nothing before
        self.held_by: set[int] = set()  # the failed events for which it waits
        self.armed = 0  # the time for which a timer is set
        self.holes = False  # whether anything above the floor may be acknowledged
        self.stored = False  # whether the queue itself is in the log
        self.stored_floor = cursor
        self.replay_until = Offset(0)  # events below it are found by the filter, not by the seats stored with them
        self.gap: Range | None = None  # lost to the queue, until a client that was told acknowledges what follows

    # -- position ---------------------------------------------------------------------------------

    def at(self, end: Offset) -> Offset:
        """The offset from which on nothing has been delivered."""
        return end if self.live else self.cursor

    def advance(self, cursor: Offset) -> None:
        """Nothing below this offset is delivered for the first time any more."""
        self.cursor = cursor
        if self.failures:  # a restart may have brought back failures of events that nobody wants any more
            opened = {*self.open()}
            self.failures = {o: n for o, n in self.failures.items() if o >= cursor or o in opened}

    def leave(self, end: Offset) -> None:
        """The queue no longer follows the end of the log."""
        if self.live:
            self.live, self.cursor = False, end

    def open(self) -> list[int]:
        """Everything that was delivered and is not done with, ascending."""
        return sorted([*self._unburied(), *self.burying])

    def _unburied(self) -> list[int]:
        parts = [offset for flight in self.flights for offset in flight.offsets()]
        return [*parts, *self.returned, *(offset for _, offset in self.waiting)]

    def floor(self, end: Offset) -> Offset:
        """Everything below is done with, or will be once the groups on their way are stored.

        A dead letter and the floor that passes it are stored together: otherwise the event might return after a crash.

        Cost: O(consumers and failed events).
        """
        lowest = self.at(end)
        for flight in self.flights:
            first = flight.first
            if first is not None and first < lowest:
                lowest = Offset(first)
        if self.returned and self.returned[0] < lowest:
            lowest = Offset(self.returned[0])
        for _, offset in self.waiting:
            lowest = Offset(min(lowest, offset))
        return lowest

    def position(self, end: Offset) -> Position:
        """What is stored of it."""
        floor, at = self.floor(end), self.at(end)
        above: list[Range] = []
        if self.holes:
            above = complement(sorted(self._unburied()), floor, at)
        above += [(Offset(max(first, at)), last) for first, last in self.skip if last > at]
        failures = {o: n for o, n in self.failures.items() if o >= floor and o not in self.burying}
        return Position(floor, above, failures, self.gap)

    def attempt(self, offset: int) -> int:
        """The number of an event's next delivery, or of the one in flight."""
        return self.tries.get(offset, 1 if offset < self.again_below else 0) + 1

    def skips(self, offset: int) -> bool:
        """Whether an event at the cursor was acknowledged before a restart."""
        skip = self.skip
        while skip and skip[0][1] <= offset:
            del skip[0]
        if skip and skip[0][0] <= offset:
            self.holes = True
            return True
        return False

    # -- deliveries ---------------------------------------------------------------------------------

    def sent(self, flight: Flight, offsets: list[int], sizes: list[int]) -> None:
        """Events were sent on a connection: new ones, or some that were returned."""
        if self.tries:
            for each in self.flights:
                each.given_back.difference_update(offsets)
        flight.add(offsets, sizes)

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

    def ack(self, flight: Flight, floor: int, ranges: Iterable[Range]) -> list[int]:
        """Everything that this connection was sent below `floor` or in a range is done with. Returns what is new."""
        ranges = list(ranges)
        done = flight.ack(floor, ranges)
        if self.gap is not None and done and flight.told_gap >= self.gap[1] <= max(done):
            self.gap = None
        if ranges or len(self.flights) > 1 or flight.given_back or self.returned or self.waiting or self.burying:
            self.holes = True
        if flight.given_back:
            back = [o for o in flight.given_back if o < floor or any(a <= o < b for a, b in ranges)]
            self._forget(back)
            done += sorted(back)
        if self.tries or self.failures:
            self._clean(done)
        if self.holes and not self.is_open():
            self.holes = False
        return done

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
        return bool(self.returned or self.waiting or self.burying or any(flight.count for flight in self.flights))

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
        for flight in self.flights:
            flight.given_back -= gone

    def _clean(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.tries.pop(offset, None)
            self.failures.pop(offset, None)

    def nack(self, flight: Flight, attempts: Iterable[Attempt], most: int) -> tuple[list[int], list[int]]:
        """Deliveries failed: returns those that come again (`delay` must follow), and those that failed too often.

        In an ordered queue everything behind the first of them is given back, too. Earlier attempts than the one in
        flight do not count: the answer to that one is still to come.
        """
        meant = {offset for offset, n in attempts if n == self.attempt(offset)}
        failed = [offset for offset in flight.offsets() if offset in meant]
        if not failed:
            return [], []
        for offset in failed:
            flight.take(offset)
        for offset in failed:
            self._give_back(flight, offset)
            self.failures[offset] = self.failures.get(offset, 0) + 1
        if self.ordered:
            for offset in flight.take_from(failed[0]):
                self._give_back(flight, offset)
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

    def _give_back(self, flight: Flight, offset: int) -> None:
        self.tries[offset] = self.attempt(offset)
        flight.given_back.add(offset)

    def attach(self, flight: Flight) -> None:
        """A connection consumes the queue."""
        self.flights.append(flight)

    def detach(self, flight: Flight, end: Offset) -> None:
        """A connection is gone: what it has not acknowledged returns."""
        self.flights.remove(flight)
        offsets = flight.take_from(0)
        for offset in offsets:
            self.tries[offset] = self.attempt(offset)
        self.returned = sorted([*self.returned, *offsets])
        if not self.flights:
            self.leave(end)

    def drop_below(self, offset: Offset, end: Offset) -> tuple[Offset, Offset] | None:
        """Give up everything below an offset: what is lost, if anything may be. Dead letters on their way are not."""
        floor = self.floor(end)
        if floor >= offset:
            return None
        for flight in self.flights:
            lost = flight.ack(offset, ())
            self._clean(lost)
        self.done([each for each in self._unburied() if each < offset])
        if not self.live and self.cursor < offset:
            self.advance(offset)
        self.gap = (self.gap[0] if self.gap else floor, offset)
        return floor, offset

    def check(self, end: Offset, after: Offset) -> None:
        """Raise AssertionError if an invariant is broken."""
        for flight in self.flights:
            flight.check()
        opened = self.open()
        assert len(set(opened)) == len(opened), "an event is open twice"
        assert self.returned == sorted(self.returned)
        at = self.at(end)
        assert all(offset < at for offset in opened), "an event is open that was not delivered"
        assert at <= after, "the cursor is past what was given out"
        assert self.stored_floor <= self.floor(end), "a floor went back"
        assert not self.live or self.flights, "a queue without consumer follows the log"
        assert set(self.tries) <= set(opened), "tries of an event that is not open"
        assert all(offset in opened or offset >= at for offset in self.failures)
        if self.live:
            assert not self.returned
        position = self.position(end)
        assert bisect_left([r[0] for r in position.above], position.floor) == 0
        unburied = self._unburied()
        assert not any(first <= offset < last for offset in unburied for first, last in position.above)
