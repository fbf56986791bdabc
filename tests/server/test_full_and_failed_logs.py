"""The log is full, slow or broken: publishers know, and nothing that was confirmed is lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

from server.wire import PATIENCE, a_node, connect, make_core, run, until
from weft.errors import LogFailedError
from weft.log.memory import MemoryLog
from weft.log.opening import LogOptions, open_log
from weft.log.retention import Retention
from weft.protocol.messages import (
    Accepted,
    Ack,
    Deliver,
    Hello,
    NewEpoch,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Subscribe,
    Welcome,
)
from weft.server.committer import Trimmer
from weft.server.node import BrokerNode, NodeOptions


class GatedLog:
    """A log that commits when it is told to."""

    def __init__(self, log):
        self._log = log
        self.gate = threading.Event()
        self.commits = []

    def commit(self, groups):
        assert self.gate.wait(60)
        self.commits.append(len(groups))
        self._log.commit(groups)

    def __getattr__(self, name):
        return getattr(self._log, name)


def test_publishers_are_not_read_while_much_waits_for_the_log(tmp_path):
    async def body():
        log = GatedLog(open_log(tmp_path / "data").log)
        async with a_node(log, options=NodeOptions(backlog=200_000)) as node:
            reader, writer = await connect(node.addresses[0]), await connect(node.addresses[0])
            sent = encode_many(2_000)
            writer.transport.write(sent)
            await until(lambda: node.committer.bytes > 200_000)
            for n in range(20):
                reader.send(Ping(n))  # others are served meanwhile
                await reader.get(Pong, n + 1)
            most = node.committer.bytes
            assert 200_000 < most < 2_000_000  # one read beyond the limit
            assert not writer.all(Published)
            log.gate.set()
            await writer.published(2_000)
            assert node.committer.bytes == 0
            assert max(log.commits) < 100

    run(body())


class LogWithHeldCheckpoints(GatedLog):
    """A log that commits at once, and whose checkpoints end when they are told to."""

    def commit(self, groups):
        self._log.commit(groups)

    def checkpoint(self):
        assert self.gate.wait(60)
        self._log.checkpoint()


def test_a_checkpoint_delays_neither_confirmation_nor_delivery_of_what_was_stored_before_it(tmp_path):
    async def body():
        log = LogWithHeldCheckpoints(open_log(tmp_path / "data").log)
        async with a_node(log) as node:
            log.gate.set()
            wire = await connect(node.addresses[0], Hello(session="reader"))
            wire.send(Subscribe(1, "TRUE"))
            await wire.get(Accepted)
            await node.committer.between(lambda: None)  # the checkpoint of the commit before it is over
            log.gate.clear()
            wire.send(Publish.of(1, {"x": 1}))
            await wire.published(1)
            await wire.delivered(1)
            wire.send(Publish.of(2, {"x": 2}), Ping())
            await wire.get(Pong)
            assert [message.upto for message in wire.all(Published)] == [1], "the next commit waits for the checkpoint"
            log.gate.set()
            await wire.published(2)

    run(body())


def test_a_failed_checkpoint_ends_the_node(tmp_path):
    async def body():
        log = GatedLog(open_log(tmp_path / "data").log)
        log.gate.set()
        async with a_node(log) as node:
            writer = await connect(node.addresses[0])

            def fail():
                raise LogFailedError("the disk is gone")

            log.checkpoint = fail
            writer.send(Publish.of(1, {"x": 1}))
            await until(node.ended.done)
            with pytest.raises(LogFailedError, match="the disk is gone"):
                node.ended.result()

    run(body())


def encode_many(number, first=1):
    from weft.protocol.codec import encode

    return encode([Publish.of(n, {"x": n}, bytes(1_000)) for n in range(first, first + number)])


def test_a_full_log_refuses_events_and_takes_them_again_when_there_is_room(tmp_path):
    """Everything that was confirmed arrives once, and nothing else does."""

    async def body():
        log = open_log(tmp_path / "data", LogOptions(quota=1 << 20)).log
        async with a_node(log) as node:
            trimmer = Trimmer(node, Retention(age=0, size=0), every=3600)
            node.when_full = trimmer.hurry
            trimming = asyncio.create_task(trimmer.run())
            reader = await connect(node.addresses[0], Hello(session="reader"))
            reader.send(Subscribe(1, "TRUE"))
            await reader.get(Accepted)
            writer = await connect(node.addresses[0], Hello(session="writer"))
            confirmed, refused, sequence, value = [], 0, 0, 0
            epoch = writer.all(Welcome)[0].pub_epoch
            while len(confirmed) < 60 or not refused:
                sequence, value = sequence + 1, value + 1
                writer.messages.clear()
                writer.send(Publish.of(sequence, {"value": value}, bytes(20_000)))
                await writer.until(lambda: writer.all(Published) or writer.all(Refused))
                if writer.all(Published):
                    confirmed.append(value)
                    continue
                assert writer.all(Refused)[0].code == "full"
                refused += 1
                events = await reader.delivered(len(confirmed))
                reader.send(Ack(0, events[-1].offset + 1), Ping(refused))
                await reader.get(Pong, refused)
                assert await trimmer.round() > 0 or trimmer.removed  # room again
                epoch, sequence = epoch + 1, 0
                writer.send(NewEpoch(epoch))
            events = await reader.delivered(len(confirmed))
            assert [_value(event) for event in events] == confirmed
            assert refused
            trimming.cancel()
            await asyncio.gather(trimming, return_exceptions=True)

    run(body())


def _value(event):
    import msgspec

    return msgspec.msgpack.decode(event.head)[0]["value"]


def test_a_broken_log_ends_the_broker_and_confirms_nothing():
    async def body():
        log = MemoryLog("a1")
        async with BrokerNode(make_core(log), log) as node:
            from weft.protocol.addresses import Address

            address = await node.listen(Address.parse("weft://127.0.0.1:0"))
            writer = await connect(address)
            writer.send(Publish.of(1, {"x": 1}))
            await writer.published(1)
            log.fail_syncs()
            writer.send(Publish.of(2, {"x": 2}))
            await writer.gone()
            assert [message.upto for message in writer.all(Published)] == [1]
            with pytest.raises(LogFailedError):
                node.ended.result()
            assert not node.connections

    run(body())


def test_events_that_everybody_has_read_are_trimmed_and_no_others():
    async def body():
        async with a_node() as node:
            wire = await connect(node.addresses[0], Hello(session="reader"))
            wire.send(Subscribe(1, "TRUE"))
            await wire.get(Accepted)
            for n in range(1, 11):
                wire.send(Publish.of(n, {"x": n}))
                await wire.published(n)
            await wire.delivered(10)
            trimmer = Trimmer(node, Retention(age=0, size=0), every=3600)
            assert await trimmer.round() == 0
            wire.send(Ack(0, 6), Ping())
            await wire.get(Pong)
            assert await trimmer.round() == 5
            assert node.log.find(0) == 6
            assert await Trimmer(node, Retention(age=None, size=None), every=3600).round() == 0

    run(body())


def test_what_comes_before_the_group_that_does_not_fit_is_stored():
    """A subscription and an event in one commit: the one is accepted, the other refused, and the broker goes on."""

    async def body():
        log = MemoryLog("a1", quota=2_000)
        async with a_node(log) as node:
            reader = await connect(node.addresses[0], Hello(session="reader"))
            writer = await connect(node.addresses[0])
            for n in range(3):
                reader.messages.clear()
                writer.messages.clear()
                reader.send(Subscribe(n, "x > 5"))
                writer.send(NewEpoch(n + 5), Publish.of(1, {"x": 6}, bytes(5_000)))
                await reader.get(Accepted)
                assert (await writer.get(Refused)).code == "full"
            assert not reader.all(Deliver)
            node.core.check()
            assert not node.ended.done()

    run(body())


def test_a_stop_that_meets_other_work_on_the_log_waits_for_that_alone(tmp_path):
    """Nothing else happens afterwards that could wake it."""

    async def body():
        log = open_log(tmp_path / "data").log
        async with a_node(log) as node:
            gate = threading.Event()
            work = node.committer.between(gate.wait)
            stopping = asyncio.create_task(node.stop())
            while not node.stopping:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            gate.set()
            async with asyncio.timeout(PATIENCE):
                await stopping
            assert work.done()

    run(body())
