"""Brokers that are linked over sockets: events go where they are wanted, also after a link was cut."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest
from typer.testing import CliRunner

import weft
from server.wire import connect, run, until
from weft.cli.app import app
from weft.errors import OptionError
from weft.protocol.messages import Accepted, Ack, Complete, Hello, Publish, Subscribe
from weft.server.config import BrokerConfig, LinkConfig
from weft.server.serve import start

ANY = ("weft://127.0.0.1:0",)


def config(name, data=None, **links):
    neighbours = {peer: LinkConfig(str(address)) for peer, address in links.items()}
    stored = {"memory": True} if data is None else {"data": data / name}
    return BrokerConfig(name=name, listen=ANY, links=neighbours, **stored)


async def chain(stack):
    """Three brokers, a - b - c."""
    a = await stack.enter_async_context(start(config("a", b="")))
    c = await stack.enter_async_context(start(config("c", b="")))
    b = await stack.enter_async_context(start(config("b", a=a.addresses[0], c=c.addresses[0])))
    return a, b, c


def linked(*nodes):
    return all(link.connected for node in nodes for link in node.core.links())


def values(events):
    return [msgspec.msgpack.decode(event.head)[0]["x"] for event in events]


def test_an_event_goes_through_three_brokers_to_whoever_wants_it():
    async def body():
        async with AsyncExitStack() as stack:
            a, _, c = await chain(stack)
            reader = await connect(a.addresses[0], Hello(session="reader"))
            reader.send(Subscribe(1, "x > 5"))
            await reader.get(Complete)  # active on every path
            writer = await connect(c.addresses[0], Hello(session="writer"))
            writer.send(*(Publish.of(n, {"x": n}) for n in range(1, 101)))
            await writer.published(100)
            assert values(await reader.delivered(95)) == list(range(6, 101))
            assert a.core.end == 96  # what nobody wants there is not there

    run(body())


def test_a_link_that_is_cut_again_and_again_loses_nothing():
    async def body():
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            reader = await connect(a.addresses[0], Hello(session="reader"))
            reader.send(Subscribe(1, "x > 0"))
            await reader.get(Complete)
            writer = await connect(c.addresses[0], Hello(session="writer"))
            sent = 0
            for _ in range(5):
                for _ in range(10):
                    writer.send(*(Publish.of(n, {"x": n}) for n in range(sent + 1, sent + 11)))
                    sent += 10
                    await writer.published(sent)
                for connection in [*b.connections.values()]:
                    connection.cut()
            events = await reader.delivered(sent)
            assert values(events) == list(range(1, sent + 1))
            reader.send(Ack(0, events[-1].offset + 1))
            await until(lambda: linked(b))  # the last events may have come before the last cut

    run(body())


def test_a_broker_in_the_middle_that_restarts_loses_nothing(tmp_path):
    async def body():
        async with AsyncExitStack() as ends:
            a = await ends.enter_async_context(start(config("a", tmp_path, b="")))
            c = await ends.enter_async_context(start(config("c", tmp_path, b="")))
            middle = config("b", tmp_path, a=a.addresses[0], c=c.addresses[0])
            reader = await connect(a.addresses[0], Hello(session="reader"))
            writer = await connect(c.addresses[0], Hello(session="writer"))
            reader.send(Subscribe(1, "x > 0"))
            await reader.get(Accepted)
            async with start(middle):
                await reader.get(Complete)
                writer.send(*(Publish.of(n, {"x": n}) for n in range(1, 51)))
                await writer.published(50)
            writer.send(*(Publish.of(n, {"x": n}) for n in range(51, 101)))
            await writer.published(100)
            async with start(middle):
                assert values(await reader.delivered(100)) == list(range(1, 101))

    run(body())


def test_a_neighbour_that_is_no_longer_configured_is_detached(tmp_path):
    async def body():
        async with start(config("a", tmp_path, b="", c="")) as node:
            assert [link.peer for link in node.core.links()] == ["b", "c"]
        async with start(config("a", tmp_path, b="")) as node:
            assert [link.peer for link in node.core.links()] == ["b"]
        other = BrokerConfig(name="a", listen=ANY, data=tmp_path / "a", links={"b": LinkConfig(role="parent")})
        with pytest.raises(OptionError, match="was peer"):
            async with start(other):
                pass

    run(body())


def test_brokers_that_dial_each_other_at_the_same_time_end_up_with_one_link():
    async def body():
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(start(config("a", b="")))
            b = await stack.enter_async_context(start(config("b", a=a.addresses[0])))
            await stack.enter_async_context(AnotherDialler(a, "b", b.addresses[0]))
            reader = await connect(a.addresses[0], Hello(session="reader"))
            reader.send(Subscribe(1, "x > 0"))
            await reader.get(Complete)
            for _ in range(3):
                first = min(a.connections, key=lambda each: int(each[1:]))
                cut = [each for each in a.connections.values() if each.id != first] + [*b.connections.values()]
                for connection in cut:
                    connection.cut()
                for connection in cut:
                    await connection.gone.wait()  # or the links would still count as connected
                await until(lambda: linked(a, b))
            writer = await connect(b.addresses[0])
            writer.send(Publish.of(1, {"x": 1}))
            reader = await connect(a.addresses[0], Hello(session="reader"))
            assert values(await reader.delivered(1)) == [1]

    run(body())


class AnotherDialler:
    """Another side that dials, too."""

    def __init__(self, node, peer, address):
        from weft.server.connection import Dialler

        self._dialler = Dialler(node, peer, address)

    async def __aenter__(self):
        self._task = asyncio.create_task(self._dialler.run())

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_a_client_is_told_where_an_event_goes_and_which_link_is_down():
    async def body():
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            reader = await connect(a.addresses[0], Hello(session="reader"))
            reader.send(Subscribe(1, "x > 5"))
            await reader.get(Complete)
            async with weft.connect(str(c.addresses[0])) as client:
                found = await client.explain({"x": 7})
                assert found.brokers == ["c", "b", "a"]
                assert [hop.matched for hop in found.hops] == [0, 0, 1]
                assert found.hops[1].links[0].reason == "it wants x > 5"
                assert (await client.explain({"x": 5})).brokers == ["c"]
                lines = await asyncio.to_thread(_said, str(c.addresses[0]))
                assert lines[-1] == "  *  subscription 1 of reader: x > 5"
                await a.stop()
                await until(lambda: not next(link for link in b.core.links() if link.peer == "a").connected)
                found = await client.explain({"x": 7})
                assert found.brokers == ["c", "b"]
                assert found.hops[1].links[0].state == "down"

    run(body())


def _said(address):
    """What the blocking client and the command say."""
    with weft.connect_sync(address) as client:
        assert client.explain({"x": 7}).brokers == ["c", "b", "a"]
    done = CliRunner().invoke(app, ["explain", '{"x": 7}', "--broker", address])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()
