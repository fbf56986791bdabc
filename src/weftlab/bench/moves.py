"""Moves of clients between brokers over sockets and disks: how many, how long, and how much travels.

Brokers a - m - b, with d beside the path at m, in one process; so a move uses one processor where four brokers would
use several. Times are by the clock. An interruption is the longest time between two deliveries around a move, while a
publisher at m publishes every few milliseconds; its unit is one round trip with a commit, that of `publish` at the same
broker in the same minute. Bytes are those of all messages about a move, once, however many hops they travel.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import weft
from weft.broker.moves.moves import Moves
from weft.client.async_subscription import Subscription
from weft.client.client import Client
from weft.protocol.move_messages import encode_move
from weft.server.config import BrokerConfig, LinkConfig
from weft.server.node import BrokerNode
from weft.server.serve import start
from weftlab.bench.report import Result

_EVERY = 0.002  # seconds between two events, about


class _Place:
    """The brokers, and the bytes of all messages about moves."""

    def __init__(self, nodes: dict[str, BrokerNode]) -> None:
        self.nodes, self.bytes = nodes, 0
        for node in nodes.values():
            self._count(node.core._moves)

    def _count(self, moves: Moves) -> None:
        post = moves._post

        def counting(destination: str, message: Any, now: Any) -> None:
            self.bytes += len(encode_move(message))
            post(destination, message, now)

        moves._post = counting  # type: ignore[method-assign]
        moves.departures._post = moves.arrivals._post = counting

    def address(self, name: str) -> str:
        return str(self.nodes[name].addresses[0])

    async def quiet(self) -> None:
        """Until no session is on its way."""
        while any(node.core._moves.figures for node in self.nodes.values()) or self._finishing():
            await asyncio.sleep(0.001)

    def _finishing(self) -> bool:
        return any(node.core._moves.arrivals.finishing for node in self.nodes.values())


@asynccontextmanager
async def _place(directory: Path) -> AsyncIterator[_Place]:
    async with AsyncExitStack() as stack:
        nodes: dict[str, BrokerNode] = {}
        for name, peers in (("a", {"m": ""}), ("b", {"m": ""}), ("d", {"m": ""}), ("m", dict.fromkeys("abd", ""))):
            links = {
                peer: LinkConfig(str(nodes[peer].addresses[0]) if peer in nodes and name == "m" else "")
                for peer in peers
            }
            config = BrokerConfig(name=name, data=directory / name, listen=("weft://127.0.0.1:0",), links=links)
            nodes[name] = await stack.enter_async_context(start(config))
        while not all(link.warm for node in nodes.values() for link in node.core.links()):
            await asyncio.sleep(0.01)
        yield _Place(nodes)


def run(quick: bool, progress: Callable[[str], None]) -> list[Result]:
    """All figures."""
    return asyncio.run(_measure(quick, progress))


async def _measure(quick: bool, progress: Callable[[str], None]) -> list[Result]:
    results: list[Result] = []
    with TemporaryDirectory() as directory:
        async with _place(Path(directory)) as place, weft.connect(place.address("m"), name="publisher") as publisher:
            async with weft.connect(place.address("a"), name="mover") as client:
                events = await client.subscribe("x >= 0", name="events")
                await events.complete()
                times = 2 if quick else 60
                progress(f"{times} moves, nothing to hand over")
                results += await _alone(place, client, times)
                for kind in ("make_before_break", "break_before_make"):
                    progress(f"interruptions, {kind.replace('_', ' ')}")
                    results += await _interruptions(place, client, events, publisher, kind, times)
            for many in (0, 100) if quick else (0, 1_000, 100_000):
                progress(f"a move with {many:,} events that are not acknowledged")
                results += await _handed_over(place, publisher, many)
            others = sum(n for what, n in place.nodes["d"].core.counts.items() if what.startswith("move messages"))
            results.append(Result("messages_off_the_path", others, "messages at a broker beside the path", 0, "lower"))
    return results


async def _alone(place: _Place, client: Client, times: int) -> list[Result]:
    start_at = perf_counter()
    for at in range(times):
        await client.move(place.address("b" if at % 2 == 0 else "a"))
    await place.quiet()
    spent = (perf_counter() - start_at) / times
    return [Result("moves_per_s", 2 / spent, "sessions/s, one client with two of them, one move after the other")]


async def _interruptions(  # noqa: PLR0913, PLR0917 - what is measured
    place: _Place, client: Client, events: Subscription, publisher: Client, kind: str, times: int
) -> list[Result]:
    arrived: list[float] = []
    over = asyncio.Event()

    async def read() -> None:
        async for event in events:
            arrived.append(perf_counter())
            await event.ack()

    async def publish() -> None:
        while not over.is_set():
            await publisher.publish({"x": 1})
            await asyncio.sleep(_EVERY)

    reading, publishing = asyncio.create_task(read()), asyncio.create_task(publish())
    found: list[float] = []
    units: list[float] = []
    for at in range(times):
        began = perf_counter()
        await publisher.publish({"x": -1})
        units.append(perf_counter() - began)
        await asyncio.sleep(0.05)
        first = len(arrived)
        if kind == "break_before_make":
            _cut(client)
        await client.move(place.address("b" if at % 2 == 0 else "a"))
        await place.quiet()
        await asyncio.sleep(0.05)
        times_of = arrived[max(0, first - 1) :]
        found.append(max((later - one for one, later in itertools.pairwise(times_of)), default=0.0))
    over.set()
    await publishing
    reading.cancel()
    unit = median(units)
    found.sort()
    p99 = found[min(len(found) - 1, int(0.99 * len(found)))]
    return [
        Result(f"{kind}/unit_ms", 1e3 * unit, "ms, a round trip and a commit"),
        Result(f"{kind}/interruption_p50", median(found) / unit, "round trips with a commit"),
        Result(f"{kind}/interruption_p99", p99 / unit, "round trips with a commit"),
    ]


def _cut(client: Client) -> None:
    """Drop the connections of a client, as a network does."""
    for driver in list(client._engine._drivers):
        driver._loop.call_soon_threadsafe(lambda driver=driver: [wire.abort() for wire in [*driver._wires.values()]])  # type: ignore[misc]


async def _handed_over(place: _Place, publisher: Client, many: int) -> list[Result]:
    name = f"holds {many}"
    async with weft.connect(place.address("a")) as client:
        events = await client.subscribe("x >= 0", name=name)
        await events.complete()
        first = place.nodes["a"].core.end
        await publisher.publish_many({"x": 1} for _ in range(many))
        while place.nodes["a"].core.end < first + many:
            await asyncio.sleep(0.01)
        before, start_at = place.bytes, perf_counter()
        await client.move(place.address("b"))
        await place.quiet()
        spent = perf_counter() - start_at
        await events.unsubscribe()
    return [
        Result(f"holds/{many}/bytes", place.bytes - before, "bytes of all messages, once"),
        Result(f"holds/{many}/s", spent, "s until everything is at the new broker"),
    ]
