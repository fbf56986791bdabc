"""Garbage collection in the process of a broker."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pytest

from server.wire import a_node, connect, run
from weft.protocol.messages import Ping, Pong
from weft.server.process import GarbageRounds, keep_pauses_short


@pytest.fixture
def collections() -> Iterator[Counter[int]]:
    """How many collections there are of each generation, under the policy."""
    thresholds, counts = gc.get_threshold(), Counter[int]()

    def count(phase: str, info: dict[str, Any]) -> None:
        counts[info["generation"]] += phase == "start"

    keep_pauses_short()
    gc.callbacks.append(count)
    yield counts
    gc.callbacks.remove(count)
    gc.set_threshold(*thresholds)


def test_new_objects_cause_no_full_collection(collections):
    grown = [[number] for number in range(200_000)]
    assert collections[0] > len(grown) // 10_000
    assert 0 < collections[1] < collections[0]
    assert collections[2] == 0


def test_connections_that_ended_are_collected_in_a_quiet_moment():
    async def body():
        async with a_node() as node:
            rounds = GarbageRounds(node, many=10, too_many=20, quiet=0)
            watcher = await connect(node.addresses[0])

            async def end(many: int) -> None:
                for _ in range(many):
                    wire = await connect(node.addresses[0])
                    wire.transport.close()
                    await wire.gone()
                while len(node.connections) > 1:
                    watcher.send(Ping())
                    await watcher.get(Pong, len(watcher.all(Pong)) + 1)

            await end(9)
            assert not await rounds.round()
            await end(1)
            assert await rounds.round()
            assert not await rounds.round()
            busy = GarbageRounds(node, many=10, too_many=20, quiet=0.5)
            await end(10)
            assert not await _meanwhile(busy, watcher)
            await end(10)
            assert await _meanwhile(busy, watcher)

    run(body())


async def _meanwhile(rounds: GarbageRounds, watcher: Any) -> bool:
    """A round while something is received."""
    going = asyncio.ensure_future(rounds.round())
    await asyncio.sleep(0)
    watcher.send(Ping())
    await watcher.get(Pong, len(watcher.all(Pong)) + 1)
    return await going


def test_after_the_warm_up_no_kernel_is_loaded_any_more():
    program = """
        from weftlab.bench import links
        from weft.kernels.compiler import KERNELS
        from weft.server.process import warm_up
        from weft.routing.registry import make_table

        def loaded():
            return {kernel.__name__: len(kernel.signatures) for kernel in KERNELS if kernel.signatures}

        assert warm_up(lambda: make_table("covering")) > 0
        before = loaded()
        links._chain(1_000, 3, changes=50)
        links._events(1_000, 2_000)
        assert before
        assert loaded() == before, {*loaded().items()} ^ {*before.items()}
    """
    subprocess.run([sys.executable, "-c", dedent(program)], check=True)
