"""A broker on real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from server.wire import a_node, certificates, connect, make_core, run
from weft.errors import BrokerError
from weft.log.base import Group
from weft.log.memory import MemoryLog
from weft.log.opening import open_log
from weft.protocol.addresses import Address
from weft.protocol.messages import Accepted, Ack, Bye, Hello, Ping, Pong, Publish, Subscribe
from weft.server.clock import clock
from weft.server.log_lines import LogLines
from weft.server.node import BrokerNode


def test_an_event_is_stored_confirmed_and_delivered():
    async def body():
        async with a_node() as node:
            reader = await connect(node.addresses[0])
            reader.send(Subscribe(1, "x > 5"))
            await reader.get(Accepted)
            writer = await connect(node.addresses[0])
            writer.send(Publish.of(1, {"x": 4}), Publish.of(2, {"x": 6}, b"six"))
            await writer.published(2)
            (event,) = await reader.delivered(1)
            assert event.payload == b"six"
            assert event.numbers == [1]

    run(body())


def test_what_was_confirmed_is_there_after_a_restart(tmp_path):
    async def write():
        log = open_log(tmp_path / "data").log
        async with BrokerNode(make_core(log), log) as node:
            address = await node.listen(Address.parse("weft://127.0.0.1:0"))
            wire = await connect(address, Hello(session="alerts"))
            wire.send(Subscribe(1, "x > 5"))
            await wire.get(Accepted)
            wire.send(*(Publish.of(n, {"x": n}) for n in range(1, 101)))
            await wire.published(100)
            await wire.delivered(95)
            wire.send(Ack(0, wire.all(type(wire.messages[-1]))[0].offset + 1), Ping(1))
            await wire.get(Pong)

    async def read():
        log = open_log(tmp_path / "data").log
        async with BrokerNode(make_core(log), log) as node:
            address = await node.listen(Address.parse("weft://127.0.0.1:0"))
            wire = await connect(address, Hello(session="alerts"))
            events = await wire.delivered(94)
            assert [event.offset for event in events] == list(range(7, 101))

    run(write())
    run(read())


def test_while_many_requests_of_a_client_are_handled_others_are_served():
    async def body():
        async with a_node() as node:
            eager = await connect(node.addresses[0])
            other = await connect(node.addresses[0])
            eager.send(*(Subscribe(n, f"x = {n}") for n in range(1000)), Ping(7))
            await eager.get(Accepted)
            other.send(Ping(8))
            await other.get(Pong)
            assert node.core.status().subscriptions < 1000, "the requests of the first are not finished"
            assert (await eager.get(Pong)).token == 7
            assert [each.number for each in eager.all(Accepted)] == [*range(1000)]
            eager.send(Ping(9))  # it is read again
            assert (await eager.get(Pong, 2)).token == 9

    run(body())


def test_requests_that_have_arrived_are_granted_before_a_node_stops():
    async def body():
        async with a_node() as node:
            wire = await connect(node.addresses[0], Hello(session="alerts"))
            wire.send(*(Subscribe(n, f"x = {n}") for n in range(300)))
            await wire.get(Accepted)
            await node.stop()
            await wire.gone()
            assert len(wire.all(Accepted)) == 300

    run(body())


def test_a_unix_socket_serves_as_well(tmp_path):
    async def body():
        async with a_node() as node:
            address = await node.listen(Address.parse(f"weft+unix://{tmp_path}/weft.sock"))
            wire = await connect(address)
            wire.send(Ping(7))
            assert (await wire.get(Pong)).token == 7
            assert (tmp_path / "weft.sock").exists()
        assert not (tmp_path / "weft.sock").exists()

    run(body())


def test_clients_are_told_when_the_broker_stops_and_what_had_arrived_is_confirmed():
    async def body():
        async with a_node() as node:
            wire = await connect(node.addresses[0])
            wire.send(*(Publish.of(n, {"x": n}) for n in range(1, 1001)))
            await wire.published(1)
            await node.stop()
            await wire.gone()
            assert wire.messages[-1] == Bye("stopping", "the broker is stopping; connect again, here or elsewhere")
            assert node.ended.done()

    run(body())


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("scheme", ["weft", "weft+tls", "weft+unix"])
def test_a_connection_that_is_accepted_as_the_broker_ends_is_closed(tmp_path, scheme, fails):
    tls, _ = certificates() if scheme == "weft+tls" else (None, None)

    async def body():
        async with a_node(tls=tls) as node:
            address = node.addresses[0]
            if scheme == "weft+unix":
                client = socket.socket(socket.AF_UNIX)
                client.connect((await node.listen(Address.parse(f"weft+unix://{tmp_path}/socket"))).path)
            else:
                client = socket.create_connection((address.host, address.port))
            # the kernel has connected it, and nobody has accepted it yet; no handshake follows
            end = asyncio.Event()

            def accepted():  # timers come after sockets in a turn
                if fails:
                    node.failed(BrokerError("killed"))
                end.set()

            asyncio.get_running_loop().call_later(0, accepted)
            await end.wait()
        return client

    with run(body()) as client:
        client.settimeout(60)
        while client.recv(100):
            pass
    gc.collect()  # a transport that was left open would warn, and warnings are errors


def test_a_log_that_is_ahead_of_the_clock_is_mentioned():
    said: list[str] = []

    async def body():
        log = MemoryLog("a1")
        log.commit([Group(clock().utc + 3_600_000_000)])
        async with BrokerNode(make_core(log), log, lines=LogLines(write=said.append)):
            pass

    run(body())
    (line,) = said
    assert " warning clock jumped seconds=-3600.0 log_ahead=+3600.0" in line
