"""One durable queue against a model that keeps a list: ordered and not, one consumer and several."""

from __future__ import annotations

from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from weft.broker.delivery_window import DeliveryWindow
from weft.broker.effects import ConnectionId
from weft.broker.queue import Position, Queue
from weft.log.base import Offset, SeatId
from weft.protocol.messages import QueueNumber

OFFSETS = st.integers(1, 30)
FAILURES = 3


class QueueMachine(RuleBasedStateMachine):
    """Events get offsets 1, 2, 3 and so on; the model knows of each where it is and how often it was delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 1
        self.clock = 0
        self.windows: list[DeliveryWindow] = []
        self.where: dict[int, DeliveryWindow | str] = {}  # in flight, "returned", "waiting", "burying"
        self.behind: dict[DeliveryWindow, set[int]] = {}  # given back by a connection that is still there
        self.times: dict[int, int] = {}  # deliveries
        self.failed: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.done: set[int] = set()
        self.cursor = 1
        self.floor = 1
        self.count = 0

    @initialize(ordered=st.booleans(), shared=st.booleans())
    def start(self, ordered: bool, shared: bool) -> None:
        self.queue = Queue(
            SeatId(1), QueueNumber(0), cursor=Offset(1), ordered=ordered, share="work" if shared else "", owner="me"
        )
        self.ordered = ordered and not shared
        self.most = 3 if shared else 1

    # -- what happens ---------------------------------------------------------------------------------

    @rule(many=st.integers(1, 4))
    def store(self, many: int) -> None:
        self.end += many

    @precondition(lambda self: len(self.windows) < self.most)
    @rule(reports=st.booleans())
    def attach(self, reports: bool) -> None:
        self.count += 1
        window = DeliveryWindow(ConnectionId(f"c{self.count}"), QueueNumber(0), 6, 1000, reports=reports)
        self.windows.append(window)
        self.behind[window] = set()
        self.queue.windows.append(window)

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(self.windows))
        self.windows.remove(window)
        del self.behind[window]
        self.queue.detach(window, Offset(self.end))
        for offset, place in self.where.items():
            if place is window:
                self.where[offset] = "returned"

    @precondition(lambda self: self.windows)
    @rule(data=st.data(), many=st.integers(1, 4))
    def deliver(self, data: st.DataObject, many: int) -> None:
        """As the broker does it: what was returned first, unless the queue is held, then new events."""
        window = data.draw(st.sampled_from(self.windows))
        queue = self.queue
        queue.due(self.clock)
        for offset in [offset for offset, due in self.due.items() if due <= self.clock]:
            del self.due[offset]
            if not self.ordered:
                self.where[offset] = "returned"
        held = self.ordered and (self.due or "burying" in self.where.values())
        assert queue.is_held(self.clock) == bool(held)
        if held:
            return
        back = sorted(offset for offset, place in self.where.items() if place == "returned")
        assert queue.returned == back
        room = window.room_for([10] * many)
        sent = back[:room]
        if sent:
            queue.returned = queue.returned[len(sent) :]
        else:
            new = (each for each in range(self.cursor, self.end) if not queue.skips(each))
            sent = [*islice(new, room)]
            self.cursor = max(self.cursor, sent[-1] + 1) if sent else self.cursor
            queue.cursor = Offset(self.cursor)
        for offset in sent:
            self.times[offset] = self.times.get(offset, 0) + 1
            assert queue.attempt(offset) == self.times[offset]
            assert offset not in self.done, "an acknowledged event returned"
            self.where[offset] = window
            for each in self.behind.values():
                each.discard(offset)
        queue.sent(window, sent, [10] * len(sent))

    @precondition(lambda self: self.windows)
    @rule(data=st.data(), floor=OFFSETS, ranges=st.lists(st.tuples(OFFSETS, st.integers(1, 4)), max_size=2))
    def ack(self, data: st.DataObject, floor: int, ranges: list[tuple[int, int]]) -> None:
        window = data.draw(st.sampled_from(self.windows))
        spans = [(Offset(first), Offset(first + length)) for first, length in ranges]
        mine = {offset for offset, place in self.where.items() if place is window} | self.behind[window]
        done = {o for o in mine if o < floor or any(a <= o < b for a, b in spans)}
        if window.reports:  # ranges count for everything but dead letters, and for what is still to come
            spanned = {o for a, b in spans for o in range(a, min(b, self.end))}
            done |= {o for o in spanned if self.where.get(o, "burying") != "burying"}
            self.done |= {o for o in spanned if o >= self.cursor}
        assert set(self.queue.ack(window, floor, spans, Offset(self.end))) == done
        self.finish(done)
        assert self.done.issuperset(range(self.cursor, self.queue.cursor)), "the cursor passes an event"
        self.cursor = self.queue.cursor

    def finish(self, done: set[int]) -> None:
        self.done |= done
        for offset in done:
            del self.where[offset]
            self.due.pop(offset, None)
            self.failed.pop(offset, None)
        for each in self.behind.values():
            each.difference_update(done)

    @precondition(lambda self: self.windows)
    @rule(
        data=st.data(),
        offsets=st.lists(OFFSETS, max_size=3, unique=True),
        late=st.sampled_from((0, 0, 1)),
        wait=st.integers(1, 3),
    )
    def nack(self, data: st.DataObject, offsets: list[int], late: int, wait: int) -> None:
        window = data.draw(st.sampled_from(self.windows))
        mine = {offset for offset, place in self.where.items() if place is window}
        failed = [] if late else sorted(mine.intersection(offsets))
        attempts = [(Offset(offset), self.times.get(offset, 1) - late) for offset in offsets]
        again, dead = self.queue.nack(window, attempts, FAILURES)
        for offset in failed:
            self.failed[offset] = self.failed.get(offset, 0) + 1
            self.where[offset] = "burying" if self.failed[offset] >= FAILURES else "waiting"
            self.behind[window].add(offset)
        assert dead == [offset for offset in failed if self.failed[offset] >= FAILURES]
        assert again == [offset for offset in failed if self.failed[offset] < FAILURES]
        if self.ordered and failed:
            for offset in mine:
                if offset > failed[0] and offset not in failed:
                    self.where[offset] = "returned"
                    self.behind[window].add(offset)
        for offset in again:
            self.queue.delay(offset, self.clock + wait)
            self.due[offset] = self.clock + wait
            if self.ordered:
                self.where[offset] = "returned"
        if self.ordered and self.due:
            latest = max(self.due.values())
            self.due = dict.fromkeys(self.due, latest)

    @precondition(lambda self: "burying" in self.where.values())
    @rule()
    def bury(self) -> None:
        buried = {offset for offset, place in self.where.items() if place == "burying"}
        self.queue.done(buried)
        self.finish(buried)

    @rule(micros=st.integers(1, 3))
    def wait(self, micros: int) -> None:
        self.clock += micros
        if self.ordered:
            self.due = {offset: due for offset, due in self.due.items() if due > self.clock}

    @rule()
    def restart(self) -> None:
        """A restart would return what is open, and nothing else."""
        floor, above, failures, _ = Position.decode(*self.queue.position(Offset(self.end)).encode())
        again = [o for o in range(floor, self.cursor) if not any(a <= o < b for a, b in above)]
        assert set(again) == set(self.where), "a restart forgets an event, or returns one that was acknowledged"
        assert failures == self.failed
        assert all(any(a <= o < b for a, b in above) for o in self.done if o >= self.cursor)

    # -- what holds -----------------------------------------------------------------------------------

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "queue"):
            return
        end = Offset(self.end)
        self.queue.check(end, end)
        assert self.queue.open() == sorted(self.where)
        floor = self.queue.acked_below(end)
        assert floor == min([*self.where, self.cursor])
        assert floor >= self.floor, "the floor went back"
        self.floor = floor


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_failed_event_that_is_acknowledged_after_all_holds_nothing() -> None:
    queue = Queue(SeatId(1), QueueNumber(0), cursor=Offset(2))
    window = DeliveryWindow(ConnectionId("c"), QueueNumber(0), 6, 1000)
    queue.windows.append(window)
    queue.sent(window, [1], [10])
    assert queue.nack(window, [(Offset(1), 1)], 5) == ([1], [])
    queue.delay(1, until=100)
    assert queue.is_held(50)
    assert queue.ack(window, 2, [], Offset(9)) == [1]
    assert not queue.is_held(50)


def test_what_was_acknowledged_is_skipped_however_often_it_is_looked_at() -> None:
    """As when more is read than a connection has room for, and read again later."""
    queue = Queue(SeatId(1), QueueNumber(0), cursor=Offset(1), skip=[(Offset(2), Offset(3)), (Offset(5), Offset(7))])
    for _ in range(2):
        assert [offset for offset in range(1, 9) if not queue.skips(offset)] == [1, 3, 4, 7, 8]
    queue.advance(Offset(4))
    assert queue.skip == [(5, 7)]
