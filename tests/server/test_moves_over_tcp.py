"""Clients that move between brokers over sockets, with the client library that users run."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import weft
from server.test_links_over_tcp import chain, config, linked
from server.wire import run, until
from weft.cli.app import app
from weft.errors import ConnectError, OptionError, WeftError
from weft.server.config import BalanceConfig
from weft.server.node import BrokerNode
from weft.server.serve import start

LONG = 120.0  # seconds that something may take on a busy machine


async def take(events: weft.client.Subscription, number: int) -> list[int]:
    found = []
    async for event in events:
        found.append(event["x"])
        await event.ack()
        if len(found) == number:
            return found
    raise AssertionError("the subscription has ended")


@pytest.mark.parametrize("tries", [1, 4])
def test_a_client_moves_with_its_subscription_and_its_publisher(tries: int) -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            addresses = [str(node.addresses[0]) for node in (a, b, c)]
            mover = await stack.enter_async_context(weft.connect(addresses[0], name="mover"))
            other = await stack.enter_async_context(weft.connect(addresses[1], name="other"))
            mine = await mover.subscribe("x > 0", name="mine")
            theirs = await other.subscribe("x < 0", name="theirs")
            await mine.complete()
            await theirs.complete()
            wanted, sent = 0, 0
            for turn in range(tries):
                await other.publish_many([{"x": wanted + n} for n in range(1, 11)])
                wanted += 10
                publishing = asyncio.create_task(other.publish_many([{"x": wanted + n} for n in range(1, 101)]))
                telling = asyncio.create_task(mover.publish_many([{"x": -sent - n} for n in range(1, 101)]))
                wanted, sent = wanted + 100, sent + 100
                target = addresses[2 if turn % 2 == 0 else 0]
                await asyncio.wait_for(mover.move(target), LONG)
                assert mover.address == target
                await asyncio.wait_for(asyncio.gather(publishing, telling), LONG)
            assert await asyncio.wait_for(take(mine, wanted), LONG) == list(range(1, wanted + 1))
            assert await asyncio.wait_for(take(theirs, sent), LONG) == list(range(-1, -sent - 1, -1))
            await until(lambda: not a.core._moves.departures.left and not c.core._moves.departures.left)
            counts = a.core.counts, c.core.counts
            assert sum(each.get("moves done", 0) for each in counts) == 2 * tries, "the client and its subscription"

    run(body())


def test_a_client_that_is_refused_stays_where_it_is() -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            alone = await stack.enter_async_context(start(config("alone")))
            mover = await stack.enter_async_context(weft.connect(str(a.addresses[0]), name="mover"))
            mine = await mover.subscribe("x > 0", name="mine")
            await mine.complete()
            with pytest.raises(ConnectError, match="is at a, which is not in the network of alone"):
                await asyncio.wait_for(mover.move(str(alone.addresses[0])), LONG)
            with pytest.raises(ConnectError, match="no broker at"):
                await asyncio.wait_for(mover.move("weft://127.0.0.1:1"), LONG)
            with pytest.raises(OptionError, match="patience"):
                await mover.move("weft://127.0.0.1:1", patience=0)
            await asyncio.wait_for(mover.publish({"x": 7}), LONG)
            assert await asyncio.wait_for(take(mine, 1), LONG) == [7]
            assert mover.address == str(a.addresses[0])

    run(body())


def test_the_command_line_moves_a_subscription() -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            old, new = str(a.addresses[0]), str(c.addresses[0])
            async with weft.connect(old) as client:
                mine = await client.subscribe("x > 0", name="mine")
                await mine.complete()
                await client.publish({"x": 7})
            arguments = ["sub", "x > 0", "--name", "mine", "--broker", old, "--move-to", new, "--count", "1", "--json"]
            told = await asyncio.to_thread(CliRunner().invoke, app, arguments)
            assert told.exit_code == 0, told.output
            assert json.loads(told.stdout)["attributes"] == {"x": 7}
            assert "mine" in c.core._sessions.by_name
            assert "mine" not in a.core._sessions.by_name
            wrong = await asyncio.to_thread(CliRunner().invoke, app, ["sub", "--move-to", new])
            assert wrong.exit_code == 2
            assert "only a subscription with a --name" in wrong.output

    run(body())


def test_a_client_goes_on_without_a_broker_that_is_gone_and_gets_the_rest_when_it_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            b = await stack.enter_async_context(start(config("b", a="")))
            b_at = str(b.addresses[0])
            async with AsyncExitStack() as short:
                a = await short.enter_async_context(start(config("a", tmp_path, b=b_at)))
                await until(lambda: linked(a, b))
                mover = await stack.enter_async_context(weft.connect(str(a.addresses[0]), name="mover"))
                other = await stack.enter_async_context(weft.connect(b_at, name="other"))
                mine = await mover.subscribe("x > 0", name="mine")
                await mine.complete()
                await other.publish({"x": 1})
                await until(lambda: a.core.end > 1)
            await asyncio.wait_for(mover.move(b_at, patience=0.3, abandon=True), LONG)
            assert mover.address == b_at
            assert mine.resets == 1, "nobody knows what is missing"
            await until(lambda: b.core._sessions.by_name["mine"].subs)  # complete when a is back, or detached
            await asyncio.wait_for(mover.publish({"x": 2}), LONG)
            assert await asyncio.wait_for(take(mine, 1), LONG) == [2]
            again = await stack.enter_async_context(start(config("a", tmp_path, b=b_at)))
            assert await asyncio.wait_for(take(mine, 1), LONG) == [1], "it is late"
            await until(lambda: "mine" not in again.core._sessions.by_name)

    run(body())


def test_an_operator_moves_a_session_and_its_client_follows() -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            old, new = str(a.addresses[0]), str(c.addresses[0])
            mover = await stack.enter_async_context(weft.connect(old, name="mover"))
            mine = await mover.subscribe("x > 0", name="mine")
            await mine.complete()
            await mover.publish({"x": 1})
            for name in ("mover", "mine"):
                told = await command("sessions", "move", name, new, "--broker", old)
                assert told.exit_code == 0, told.output
                assert f"1 session asked to move to {new}" in told.output
            await until(lambda: {"mover", "mine"} <= {*c.core._sessions.by_name})
            await asyncio.wait_for(mover.publish({"x": 2}), LONG)
            assert await asyncio.wait_for(take(mine, 2), LONG) == [1, 2]
            await until(lambda: mover.address == new)
            back = await command("sessions", "move", "--all", old, "--broker", new, "--json")
            assert {*json.loads(back.stdout)["moving"]} == {"mover", "mine"}
            await until(lambda: {"mover", "mine"} <= {*a.core._sessions.by_name})
            for arguments, reason in (
                (("unknown", new), "there is no session 'unknown' here"),
                (("mine", old), "is at a already"),
                (("mine", "weft://127.0.0.1:1"), "no broker at"),
                (("mine",), "give the names of sessions"),
            ):
                refused = await command("sessions", "move", *arguments, "--broker", old)
                assert refused.exit_code == 1
                assert reason in " ".join(refused.output.split())
            assert {"mover", "mine"} <= {*a.core._sessions.by_name}

    run(body())


async def command(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments])


@pytest.mark.slow
def test_brokers_balance_their_load_by_moving_sessions_with_their_clients() -> None:
    """Nine of ten sessions are at one broker; within a minute none has more than 1.3 times the mean."""

    async def body() -> None:
        async with AsyncExitStack() as stack:
            balance = BalanceConfig(every=1_000_000)
            a = await stack.enter_async_context(start(replace(config("a", b="", c=""), balance=balance)))
            places = [a]
            for name in "bc":
                node = await stack.enter_async_context(start(replace(config(name, a=a.addresses[0]), balance=balance)))
                places.append(node)
            await until(lambda: linked(*places))
            clients = [await stack.enter_async_context(weft.connect(str(each.addresses[0]))) for each in places]
            events = []
            for n in range(30):
                where = clients[0 if n < 27 else 1 if n < 29 else 2]
                events.append(await where.subscribe(f"x = {n}", name=f"s{n}"))
                await events[-1].complete()
            told = await command("balance", "on", "--broker", str(a.addresses[0]))
            assert told.exit_code == 0, told.output
            assert "balancing is on" in told.output
            got = [0] * 30

            async def read(n: int) -> None:
                async for event in events[n]:
                    got[n] += 1
                    await event.ack()

            readers = [asyncio.create_task(read(n)) for n in range(30)]
            began, sent = asyncio.get_running_loop().time(), 0
            while not is_even(places):
                assert asyncio.get_running_loop().time() - began < 60
                for client in clients:
                    await client.publish_many({"x": n} for n in range(30))
                sent += 3
                await asyncio.sleep(0.02)
            await until(lambda: got == [sent] * 30)
            for reader in readers:
                reader.cancel()
            shown = json.loads((await command("balance", "--json", "--broker", str(a.addresses[0]))).stdout)
            assert [each["broker"] for each in shown["brokers"]] == ["a", "b", "c"]
            assert shown["moved"] >= 14
            off = await command("balance", "off", "--broker", str(a.addresses[0]))
            assert "balancing is off" in off.output

    run(body())


def is_even(places: list[BrokerNode]) -> bool:
    named = [sum(name.startswith("s") for name in node.core._sessions.by_name) for node in places]
    moving = any(node.core._moves.figures for node in places)
    return sum(named) == 30 and max(named) <= 13 and not moving


def test_a_wrong_balance_is_one_sentence() -> None:
    with pytest.raises(OptionError, match=r"balance.above is 1; it must be above 1.05"):
        BalanceConfig(above=1)
    with pytest.raises(OptionError, match=r"balance.every is too short"):
        BalanceConfig(every=1)
    told = CliRunner().invoke(app, ["balance", "maybe"])
    assert told.exit_code == 1
    assert "'maybe' is neither on nor off" in told.output


def test_bad_moves_are_one_sentence_each_and_change_nothing() -> None:
    async def body() -> None:
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            other_model = replace(config("flood", a=a.addresses[0]), model="flooding")
            flood = await stack.enter_async_context(start(other_model))  # a refuses the link
            old, new = str(a.addresses[0]), str(c.addresses[0])
            mover = await stack.enter_async_context(weft.connect(old, name="mover"))
            mine = await mover.subscribe("x > 0", name="mine")
            await mine.complete()
            with pytest.raises(ConnectError, match="is at a, which is not in the network of flood"):
                await asyncio.wait_for(mover.move(str(flood.addresses[0])), LONG)
            with pytest.raises(WeftError, match="address"):
                await mover.move("no address")
            first = asyncio.create_task(mover.move(new))
            await asyncio.sleep(0)
            with pytest.raises(OptionError, match="this client is moving already; wait until it has"):
                await mover.move(old)
            await asyncio.wait_for(first, LONG)
            shared = await command("sub", "x > 0", "--name", "mine", "--shared", "--move-to", new, "--broker", old)
            assert shared.exit_code == 2
            assert "only a subscription with a --name" in " ".join(shared.output.split())
            await asyncio.wait_for(mover.publish({"x": 7}), LONG)
            assert await asyncio.wait_for(take(mine, 1), LONG) == [7]
            assert {"mover", "mine"} <= {*c.core._sessions.by_name}

    run(body())
