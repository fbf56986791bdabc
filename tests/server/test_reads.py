"""Reads are handed on in turns: each connection in order, all once; nothing waits unless the thread is busy."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from weft.broker.driver import Driver, makes_requests
from weft.log.base import Offset
from weft.protocol.link_messages import LinkEvents
from weft.protocol.messages import Ack, Ping, Publish, QueueNumber
from weft.server import reads as reads_module
from weft.server.reads import EAGER, Reads, acknowledges_only

STORED, TRANSIENT, OTHER = Publish.of(1, {"x": 1}), Publish.of(0, {"x": 1}), Ping(1)
ACK = Ack(QueueNumber(0), Offset(5))


@pytest.fixture(params=["busy", "idle"])
def load(request, monkeypatch):
    """Whether the thread counts as busy, whatever it does. What waits does so for minutes, unless it is handed on."""
    monkeypatch.setattr(reads_module, "_LOOK", 0.0)
    monkeypatch.setattr(reads_module, "WINDOW", 600.0)
    busy = request.param == "busy"
    monkeypatch.setattr(reads_module, "_BUSY", -1.0 if busy else 2.0)
    monkeypatch.setattr(reads_module, "_IDLE", -1.0 if busy else 2.0)
    return request.param


class Recording(Driver):
    """A driver that remembers what it was to hand on together."""

    def __init__(self):
        super().__init__(None, None, send=None, commit=None, timer=None, close=None)
        self.handed = []

    def _handle(self, reads):
        self.handed.append(reads)

    def _turn(self, reads):
        self.handed.append(reads)


class Sender(NamedTuple):
    """A connection."""

    id: str

    def hold(self, why):
        raise AssertionError(f"{self.id} is held: {why}")


async def loop_turn():
    """Let the event loop run what is due."""
    for _ in range(2):
        await asyncio.sleep(0)


def run(play):
    """The turns that a play brought, each the reads that were handed on together."""
    driver, closed = Recording(), []

    async def main():
        reads = Reads(driver, 1 << 30)

        def add(connection, messages, size):
            reads.add(Sender(connection), messages, size)

        def close():
            closed.append(True)
            reads.close()

        await play(SimpleNamespace(add=add, hand_on=reads.hand_on, close=close))
        await loop_turn()
        if not closed:
            reads.hand_on()
        reads.close()

    asyncio.run(main())
    return driver.handed


@pytest.mark.parametrize("load", ["busy"], indirect=True)
@pytest.mark.parametrize(
    ("messages", "held"),
    [([STORED, OTHER], True), ([LinkEvents(())], True), ([TRANSIENT], False), ([OTHER, STORED], False)],
)
def test_what_begins_with_an_event_to_store_waits_for_others_under_load(load, messages, held):
    holds = []

    async def main():
        driver = SimpleNamespace(held=[], handle_ready=lambda: None)
        driver.receive = lambda connection, messages, hold: holds.append(hold)
        reads = Reads(driver, 1 << 30)
        reads.add(Sender("first"), [STORED], 10)  # the first one begins a turn
        reads.add(Sender("second"), messages, 10)
        reads.close()

    asyncio.run(main())
    assert holds == [False, held]


def test_what_asks_for_nothing():
    assert not makes_requests([STORED, TRANSIENT, LinkEvents(()), ACK])
    assert makes_requests([STORED, OTHER])
    assert acknowledges_only([ACK, ACK])
    assert not acknowledges_only([ACK, STORED])


@pytest.mark.parametrize("load", ["busy"], indirect=True)
def test_acknowledgements_wait_with_events_and_not_for_them(load):
    async def play(reads):
        for _ in range(8):  # until events have to wait
            reads.add("a", [STORED], 10)
        reads.add("b", [ACK], 10)
        reads.add("c", [OTHER], 10)
        await loop_turn()
        reads.hand_on()
        reads.add("d", [ACK], 10)

    at_once, later, last = [[connection for connection, _ in turn] for turn in run(play)]
    assert at_once[-1] == "c", "who asks does not wait"
    assert later[-2:] == ["a", "b"], "acknowledgements wait with events"
    assert last == ["d"], "they do not wait for events"


def test_reads_that_come_together_are_one_turn(load):
    async def play(reads):
        for connection in "abc":
            reads.add(connection, [OTHER], 10)

    assert run(play) == [[("a", [OTHER]), ("b", [OTHER]), ("c", [OTHER])]]


def test_events_wait_for_each_other_only_if_the_thread_is_busy(load):
    async def play(reads):
        for _ in range(8):
            reads.add("a", [STORED], 10)
            await loop_turn()

    turns = run(play)
    assert sum(map(len, turns)) == 8
    assert len(turns) == 8 if load == "idle" else len(turns) < 8


def test_every_read_is_handed_on_once_and_each_connection_in_order(load, monkeypatch):
    monkeypatch.setattr(reads_module, "WINDOW", 0.003)  # that the timer fires, too
    rng = Random(3)
    sent = {connection: [] for connection in "abc"}

    async def play(reads):
        for number in range(300):
            connection = rng.choice("abc")
            kind = rng.choice([Publish.of(number + 1, {}), Publish.of(0, {"n": number}), Ping(number)])
            sent[connection].append(kind)
            reads.add(connection, [kind], rng.choice([10, EAGER]) if rng.random() < 0.1 else 10)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.choice([0, 0.0005, 0.003]))
            if rng.random() < 0.05:
                reads.hand_on()

    handed = {connection: [] for connection in "abc"}
    for turn in run(play):
        assert turn
        for connection, messages in turn:
            handed[connection] += messages
    assert handed == sent


def test_much_is_handed_on_at_once(load):
    async def play(reads):
        for _ in range(10):
            reads.add("a", [STORED], EAGER // 4)
            await loop_turn()
        reads.close()  # what still waits is not handed on

    assert sum(map(len, run(play))) == (10 if load == "idle" else 9)


def test_nothing_is_handed_on_after_the_end(load):
    async def play(reads):
        reads.add("a", [STORED], 10)
        reads.add("b", [OTHER], 10)
        reads.close()

    assert run(play) == []


class Publisher:
    """A connection that remembers whether it is read."""

    def __init__(self, id):
        self.id = id
        self.held = False

    def hold(self, why):
        assert why == "log"
        self.held = True

    def read_on(self, why):
        assert why == "log"
        self.held = False


def test_publishers_of_stored_events_are_not_read_while_much_waits_for_the_log():
    async def main():
        reads = Reads(Recording(), 100)
        early, late, transient, gone = (Publisher(name) for name in "abcd")
        for connection in (early, gone):
            reads.add(connection, [ACK, STORED], 10)
        reads.add(transient, [TRANSIENT, OTHER], 10)
        reads.forget(gone)
        reads.watch(100)
        assert not early.held
        reads.watch(101)
        assert (early.held, transient.held, gone.held) == (True, False, False)
        reads.add(late, [STORED], 10)
        assert late.held, "also those that begin to publish meanwhile"
        reads.watch(51)
        assert early.held
        reads.watch(50)
        assert not early.held
        assert not late.held
        reads.close()

    asyncio.run(main())
