"""Reads are handed on in turns: each connection in order, all once; nothing waits unless the thread is busy."""

import asyncio
from random import Random

import pytest

from weft.broker.link_messages import LinkEvents
from weft.broker.messages import Ack, Ping, Publish, QueueNumber
from weft.log.base import Offset
from weft.net import gathered_reads
from weft.net.gathered_reads import EAGER, GatheredReads, Read

STORED, LOOSE, OTHER = Publish.of(1, {"x": 1}), Publish.of(0, {"x": 1}), Ping(1)
ACK = Ack(QueueNumber(0), Offset(5))


@pytest.fixture(params=["busy", "idle"])
def load(request, monkeypatch):
    """Whether the thread counts as busy, whatever it does."""
    monkeypatch.setattr(gathered_reads, "_LOOK", 0.0)
    busy = request.param == "busy"
    monkeypatch.setattr(gathered_reads, "_BUSY", -1.0 if busy else 2.0)
    monkeypatch.setattr(gathered_reads, "_IDLE", -1.0 if busy else 2.0)
    return request.param


def run(play):
    """The turns that a play brought, each the reads that were handed on together."""
    turns = []

    async def main():
        reads = GatheredReads(turns.append)
        await play(reads)
        await asyncio.sleep(0.02)
        reads.close()

    asyncio.run(main())
    return turns


def test_what_brings_events_to_store():
    assert Read("a", [STORED, OTHER]).stores
    assert Read("a", [LinkEvents(())]).stores
    assert not Read("a", [LOOSE]).stores
    assert not Read("a", [OTHER, STORED]).stores


def test_what_asks_for_nothing():
    assert not Read("a", [STORED, LOOSE, LinkEvents(()), ACK]).asks
    assert Read("a", [STORED, OTHER]).asks
    assert Read("a", [ACK, ACK]).acknowledges
    assert not Read("a", [ACK, STORED]).acknowledges


def test_acknowledgements_wait_with_events_and_not_for_them(monkeypatch):
    monkeypatch.setattr(gathered_reads, "_LOOK", 0.0)
    monkeypatch.setattr(gathered_reads, "_BUSY", -1.0)

    async def play(reads):
        for _ in range(8):  # until events have to wait
            reads.add(Read("a", [STORED]), 10)
        reads.add(Read("b", [ACK]), 10)
        reads.add(Read("c", [OTHER]), 10)
        await asyncio.sleep(0.02)
        reads.add(Read("d", [ACK]), 10)

    at_once, later, last = [[read.connection for read in turn] for turn in run(play)]
    assert at_once[-1] == "c", "who asks does not wait"
    assert later[-2:] == ["a", "b"], "acknowledgements wait with events"
    assert last == ["d"], "they do not wait for events"


def test_reads_that_come_together_are_one_turn(load):
    async def play(reads):
        for connection in "abc":
            reads.add(Read(connection, [OTHER]), 10)

    assert run(play) == [[Read("a", [OTHER]), Read("b", [OTHER]), Read("c", [OTHER])]]


def test_events_wait_for_each_other_only_if_the_thread_is_busy(load, monkeypatch):
    monkeypatch.setattr(gathered_reads, "WINDOW", 0.01)

    async def play(reads):
        for _ in range(8):
            reads.add(Read("a", [STORED]), 10)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    turns = run(play)
    assert sum(map(len, turns)) == 8
    assert len(turns) == 8 if load == "idle" else len(turns) < 8


def test_every_read_is_handed_on_once_and_each_connection_in_order(load):
    rng = Random(3)
    sent = {connection: [] for connection in "abc"}

    async def play(reads):
        for number in range(300):
            connection = rng.choice("abc")
            kind = rng.choice([Publish.of(number + 1, {}), Publish.of(0, {"n": number}), Ping(number)])
            sent[connection].append(kind)
            reads.add(Read(connection, [kind]), rng.choice([10, EAGER]) if rng.random() < 0.1 else 10)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.choice([0, 0.0005, 0.003]))
            if rng.random() < 0.05:
                reads.take()

    handed = {connection: [] for connection in "abc"}
    for turn in run(play):
        assert turn
        for connection, messages in turn:
            handed[connection] += messages
    assert handed == sent


def test_much_is_handed_on_at_once(load, monkeypatch):
    monkeypatch.setattr(gathered_reads, "WINDOW", 60.0)

    async def play(reads):
        for _ in range(10):
            reads.add(Read("a", [STORED]), EAGER // 4)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        reads.take()

    assert sum(map(len, run(play))) == 10


def test_nothing_is_handed_on_after_the_end(load):
    async def play(reads):
        reads.add(Read("a", [STORED]), 10)
        reads.add(Read("b", [OTHER]), 10)
        reads.close()

    assert run(play) == []
