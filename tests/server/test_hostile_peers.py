"""Peers that send garbage, nothing, too much, or do not read: one connection ends, and nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from contextlib import suppress

import pytest

from server.wire import a_node, certificates, connect, run
from weft.broker.limits import ClientLimits
from weft.errors import RemoteProtocolError
from weft.protocol.addresses import Address
from weft.protocol.codec import encode
from weft.protocol.messages import Accepted, Ack, Bye, Hello, Ping, Pong, Publish, Subscribe
from weft.server import connection as server_connection
from weft.server.connection import HIGH, ServerConnection
from weft.server.node import BrokerNode, NodeOptions

GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # a TLS handshake
    b"\x00\x00\x00\x00",  # an empty frame
    b"\x00\x00\x00\x01\xc1",  # not MessagePack
    b"\x00\x00\x00\x02\x91\x63",  # an unknown tag
    b"\x00\x00\x00\x05\xdd\xff\xff\xff\xff",  # an array that claims four billion elements
    struct.pack(">I", 1 << 31) + b"x",
    struct.pack(">I", (1 << 20) + 1),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_ends_its_connection_and_no_other(garbage):
    async def body():
        async with a_node() as node:
            good = await connect(node.addresses[0])
            for hello in (None, Hello(session="named")):
                bad = await connect(node.addresses[0], hello)
                bad.transport.write(garbage)
                await bad.gone()
                assert [message.code for message in bad.all(Bye)] == ["protocol"]
            good.send(Ping(1))
            await good.get(Pong)
            assert node.counts["garbled connections"] == 2
            assert len(node.connections) == 1
            node.core.check()

    run(body())


def test_a_peer_that_says_hello_byte_by_byte_is_closed_in_time():
    async def body():
        async with a_node(limits=ClientLimits(hello=150_000)) as node:
            loris = await connect(node.addresses[0], None)
            silent = await connect(node.addresses[0], None)
            for byte in encode([Hello(session="slow" * 50)]):
                if loris.closed:
                    break
                loris.transport.write(bytes([byte]))
                await asyncio.sleep(0.005)
            await loris.gone()
            await silent.gone()
            assert [message.code for message in loris.all(Bye) + silent.all(Bye)] == ["hello", "hello"]

    run(body())


def test_a_half_open_connection_is_closed_and_its_deliveries_return():
    async def body():
        async with a_node(limits=ClientLimits(idle=1_000_000)) as node:
            dead = await connect(node.addresses[0], Hello(session="alerts"))
            dead.send(Subscribe(1, "x > 5"), Publish.of(1, {"x": 6}))
            await dead.delivered(1)
            assert node.connections
            await dead.gone()  # it says nothing any more
            assert dead.messages[-1] == Bye("idle", "the connection was silent for too long")
            back = await connect(node.addresses[0], Hello(session="alerts"))
            (event,) = await back.delivered(1)
            assert event.attempt == 2

    run(body())


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_subscriber_that_does_not_read_takes_bounded_memory_and_gets_everything_later(encrypted):
    server, client = certificates() if encrypted else (None, None)

    async def body():
        async with a_node(limits=ClientLimits(window_events=1 << 20, window_bytes=1 << 30), tls=server) as node:
            hello = Hello(session="slow", window_events=1 << 20, window_bytes=1 << 30)
            slow = await connect(node.addresses[0], hello, client)
            slow.send(Subscribe(1, "TRUE"))
            await slow.get(Accepted)
            slow.transport.pause_reading()
            writer = await connect(node.addresses[0], tls=client)
            end = node.connections[max(node.connections, key=lambda each: int(each[1:]) * -1)]
            most = 0
            for turn in range(100):
                writer.send(*(Publish.of(turn * 20 + n, {"x": n}, bytes(10_000)) for n in range(1, 21)))
                await writer.published(turn * 20 + 20)
                most = max(most, end.unsent)
            assert HIGH < most < HIGH + 2_000_000
            slow.transport.resume_reading()
            events = await slow.delivered(2_000)
            assert [event.offset for event in events] == list(range(1, 2_001))
            slow.send(Ack(0, 2_001), Ping(1))
            await slow.get(Pong)

    run(body())


def test_a_client_that_asks_without_reading_is_not_read(monkeypatch):
    most = HIGH + 1
    monkeypatch.setattr(server_connection, "MOST", most)

    async def body():
        async with a_node() as node:
            flood = await connect(node.addresses[0])
            flood.transport.pause_reading()
            flood.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            (end,) = node.connections.values()
            pings = encode([Ping(n) for n in range(2_000)])
            other = await connect(node.addresses[0])
            before = -1
            while end.received > before:  # until nothing more is read
                before = end.received
                for n in range(50):
                    flood.transport.write(pings)
                    other.send(Ping(n))
                    await other.get(Pong, len(other.all(Pong)) + 1)
            assert most < end.unsent < 4 * most
            flood.transport.abort()

    run(body())


def test_a_peer_that_speaks_no_tls_where_it_must_is_closed():
    async def body():
        server, client = certificates()
        async with a_node(tls=server) as node:
            plain = await connect(Address("weft", "localhost", node.addresses[0].port), None)
            plain.send(Hello())
            with suppress(RemoteProtocolError):
                await plain.gone()
            assert not plain.messages
            wire = await connect(node.addresses[0], tls=client)
            wire.send(Ping(1))
            await wire.get(Pong)

    run(body())


def test_connections_beyond_the_limit_are_told_so():
    async def body():
        async with a_node(options=NodeOptions(connections=2)) as node:
            kept = [await connect(node.addresses[0]) for _ in range(2)]
            third = await connect(node.addresses[0], None)
            await third.gone()
            assert [message.code for message in third.all(Bye)] == ["busy"]
            await kept[0].close()
            await kept[1].until(lambda: True)
            while len(node.connections) > 1:
                await asyncio.sleep(0)
            await connect(node.addresses[0])

    run(body())


def test_connections_that_are_cut_anywhere_leave_nothing_behind():
    run(_leak(300))


@pytest.mark.slow
def test_ten_thousand_connections_leave_nothing_behind():
    run(_leak(10_000))


async def _leak(number: int) -> None:
    async with a_node(limits=ClientLimits(hello=300_000)) as node:
        watcher = await connect(node.addresses[0])
        files, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        hello, subscribe = encode([Hello()]), encode([Subscribe(1, "x > 5"), Publish.of(1, {"x": 6})])
        for start in range(0, number, 50):
            wires = []
            for n in range(start, min(start + 50, number)):
                wire = await connect(node.addresses[0], None)
                wires.append(wire)
                sent = [b"", hello[: n % len(hello)], hello, hello + subscribe, hello + subscribe[:20]][n % 5]
                wire.transport.write(sent)
                if n % 3 == 0:
                    wire.transport.abort()
            for n, wire in enumerate(wires):
                wire.transport.abort() if n % 2 else wire.transport.close()
            for wire in wires:
                await wire.gone()
        while len(node.connections) > 1:
            watcher.send(Ping())
            await watcher.get(Pong, len(watcher.all(Pong)) + 1)
        del wires, wire
        async with asyncio.timeout(60):
            while alive := _alive(node):
                await asyncio.sleep(0.1)  # the core forgets when their hello was due
                assert alive
        assert len(os.listdir("/proc/self/fd")) == files
        assert len(asyncio.all_tasks()) == tasks
        assert node.core.counts.get("hello refused", 0) == 0
        node.core.check()


def _alive(node: BrokerNode) -> list[ServerConnection]:
    """Connections that are kept although nobody needs them."""
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, ServerConnection) and each._node is node]
    return [each for each in kept if each.id not in node.connections]


@pytest.mark.slow
def test_a_thousand_connections_at_once():
    async def body():
        async with a_node(limits=ClientLimits(connections=2_000)) as node:
            wires = [await connect(node.addresses[0]) for _ in range(1_000)]
            for wire in wires:
                wire.send(Subscribe(1, "x > 5"))
            for wire in wires:
                await wire.get(Accepted)
            wires[0].send(*(Publish.of(n, {"x": n}) for n in range(1, 11)))
            for wire in wires:
                assert [event.offset for event in await wire.delivered(5)] == [6, 7, 8, 9, 10]
            node.core.check()

    run(body())
