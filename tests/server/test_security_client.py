"""The client of a protected broker: what it is told, and when it tries again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import time

import pytest

import weft
from server.jwk import token
from server.test_security import ACCESS, a_broker
from server.wire import run, until
from weft.errors import AccessError, ConnectError


def test_a_client_with_a_token_subscribes_to_what_it_may(tmp_path: Path) -> None:
    async def body() -> None:
        async with a_broker(tmp_path) as node, weft.connect(str(node.addresses[0]), token=token()) as client:
            with pytest.raises(AccessError, match="the nearest rule is x < 5"):
                async for _ in client.subscribe("x < 9"):
                    pass
            got = asyncio.create_task(first(client.subscribe("x < 5", name="low")))
            await until(lambda: node.core._queues.all)
            await client.publish({"x": 3})
            assert await got == 3
            waiting = asyncio.create_task(first(client.subscribe("x < 4", name="lower")))
            await until(lambda: len(node.core._queues.all) == 2)
            (tmp_path / "access.toml").write_text(ACCESS.replace("x < 5", "x < 3"))
            with pytest.raises(AccessError, match="the access rules have changed"):
                await waiting

    run(body())


async def first(events: object) -> int:
    async for event in events:  # type: ignore[attr-defined]
        await event.ack()
        return int(event["x"])
    raise AssertionError("the subscription has ended")


def test_a_client_without_a_valid_token_is_told_so_and_gives_up(tmp_path: Path) -> None:
    async def body() -> None:
        async with a_broker(tmp_path) as node:
            for wrong in (None, "guess", token(exp=1)):
                with pytest.raises(ConnectError, match="credentials"):
                    async with weft.connect(str(node.addresses[0]), token=wrong):
                        pass

    run(body())


def test_a_client_comes_back_with_a_new_token_when_the_old_one_expires(tmp_path: Path) -> None:
    async def body() -> None:
        given = []

        def new() -> bytes:
            given.append(1)
            return token(exp=int(time()) + (2 if len(given) == 1 else 60))

        async with a_broker(tmp_path, auth={"leeway": 0}) as node:
            async with weft.connect(str(node.addresses[0]), token=new) as client:
                await until(lambda: len(given) == 2)
                await client.publish({"x": 1})
            assert node.core.counts["credentials expired"] == 1

    run(body())
