"""Brokers on a ring as processes under load: killed, stopped, paused, cut off and started again: `make chaos RING=1`.

All are started at once. Every broker has a durable subscriber and a publisher, and one fault happens at a time, each in
turn with time for its repair. In the end every event that a publisher was told is stored has reached every subscriber
that wants it, once, and there is one ring.

Eight brokers on two cores are slow, and what is acknowledged may wait in their logs for long: publishers pause while
more than `MOST_OUTSTANDING` deliveries are on their way. That is more than what is published during a fault.

Between nodes everything passes a proxy, which cuts links: what is sent from one part of the ring to the other is not
read, and arrives when the cut is over, or the connection ends with it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

import weft
from free_ports import free_ports
from weft.errors import WeftError
from weft.protocol.codec import FrameReader
from weft.routing.options import ModelOptions
from weft.server.config import BrokerConfig
from weft.server.initial_load import routing_table
from weft.server.process import warm_up
from weft.server.ring_status import walk

PATIENCE = 600.0  # seconds within which everything must have arrived after the last fault
MOST_OUTSTANDING = 2_000  # deliveries


class RingLossError(AssertionError):
    """A promise was broken."""


class Link(asyncio.Protocol):
    """One direction of a connection through the proxy."""

    def __init__(self, links: Links, to: str) -> None:
        self.links, self.to = links, to
        self.sender = ""  # known with the first message
        self.other: Link | None = None
        self.transport: asyncio.Transport | None = None
        self._frames = FrameReader(64 << 20)
        self._waiting: list[bytes] = []
        self._count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is None:  # a node has dialled: dial the other one
            self.links.all.add(self)
            self._task = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        back = Link(self.links, self.to)
        back.other = self
        try:
            await asyncio.get_running_loop().create_connection(lambda: back, "127.0.0.1", self.links.bound[self.to])
        except OSError:
            self.close()
            return
        self.other = back
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        if self in self.links.all and not self.sender and data:
            for frame in self._frames.feed(data):
                self._count += 1
                if self._count == 2:  # after the greeting
                    self.sender = msgspec.msgpack.decode(frame)[0][1]
        if data:
            self._waiting.append(data)
        if self.links.cuts(self.sender, self.to):
            if self.transport is not None:
                self.transport.pause_reading()
        elif self.other is not None and self.other.transport is not None:
            for each in self._waiting:
                self.other.transport.write(each)
            self._waiting.clear()

    def resume(self, close: bool) -> None:
        """The cut is over."""
        if close:
            self.close()
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        """End both directions."""
        self.links.all.discard(self)
        for each in (self, self.other):
            if each is not None and each.transport is not None:
                each.transport.close()


class Links:
    """A proxy in front of every node."""

    def __init__(self, bound: dict[str, int]) -> None:
        self.bound = bound  # where the nodes listen, by the address that others know
        self.all: set[Link] = set()
        self.part: set[str] = set()  # those that are cut off from the others
        self._servers: list[asyncio.Server] = []

    async def open(self) -> None:
        """Listen for all of them."""
        for address in self.bound:
            port = int(address.rpartition(":")[2])
            server = await asyncio.get_running_loop().create_server(
                lambda address=address: Link(self, address), "127.0.0.1", port
            )
            self._servers.append(server)

    def cuts(self, sender: str, to: str) -> bool:
        """Whether nothing passes between two nodes."""
        return bool(sender) and (sender in self.part) != (to in self.part)

    def cut(self, part: set[str]) -> None:
        """Cut some nodes off."""
        self.part = part

    def heal(self, close: bool) -> None:
        """Let everything pass again; connections that were cut may end."""
        cut = [link for link in self.all if self.cuts(link.sender, link.to)]
        self.part = set()
        for link in cut:
            link.resume(close)

    def close(self) -> None:
        """End everything."""
        for server in self._servers:
            server.close()
        for link in list(self.all):
            link.close()


class Node:
    """A broker on the ring, one process after another."""

    def __init__(self, place: Path, number: int, ports: Sequence[int], first: int) -> None:
        clients, ring, bound = ports
        self.number, self.ring = number, f"127.0.0.1:{ring}"
        self.clients = f"weft://127.0.0.1:{clients}"
        begins = ["--new-ring"] if ring == first else ["--join", f"127.0.0.1:{first}"]
        self._command = [
            sys.executable, "-m", "weft", "ring", "serve", "--data", str(place / f"n{number}"), "--replicas", "3",
            "--listen", self.clients, "--ring", self.ring, "--ring-bind", f"127.0.0.1:{bound}",
            "--intervals", "x=0:100:10", *begins,
        ]  # fmt: skip
        self.log = place / f"n{number}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log)

    def check(self) -> None:
        """Raises RingLossError if the process has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            last = self.log.read_text().splitlines()[-5:]
            raise RingLossError(f"node {self.number} has ended with code {self.process.poll()}: {last}")

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> None:
        """End the process, and wait for that."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait()


class Load:
    """What was published, and who got it."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.stored: list[int] = []
        self.got: dict[int, Counter[int]] = {node.number: Counter() for node in nodes}
        self.over = False
        self.delivered = 0  # once
        self.paused = 0.0  # seconds for which publishers waited
        self._next = 0

    async def subscribe(self, node: Node, ready: asyncio.Event) -> None:
        """Receive everything at a broker, for ever."""
        async with weft.connect(node.clients, name=f"subscriber-{node.number}", timeout=60) as client:
            wanted = client.subscribe("x >= 0", name="all")
            await wanted.complete()
            ready.set()
            async for event in wanted:
                number = int(event["number"])
                self.delivered += number not in self.got[node.number]
                self.got[node.number][number] += 1
                await event.ack()

    async def publish(self, node: Node, pause: float, connected: asyncio.Event) -> None:
        """Publish at a broker until the end."""
        async with weft.connect(node.clients, name=f"publisher-{node.number}", timeout=60) as client:
            connected.set()
            while not self.over:
                self._next += 1
                number = self._next
                try:
                    await client.publish({"x": number % 100, "number": number})
                    self.stored.append(number)
                except WeftError:
                    pass  # nobody was told that it is stored
                await asyncio.sleep(pause)
                while self.outstanding > MOST_OUTSTANDING and not self.over:
                    await asyncio.sleep(pause)
                    self.paused += pause

    @property
    def outstanding(self) -> int:
        """Deliveries that have not come yet, about: an event may come before its publisher knows that it is stored."""
        return len(self.stored) * len(self.nodes) - self.delivered

    def missing(self) -> dict[int, int]:
        """Deliveries that have not come yet, by subscriber."""
        found = {home: sum(number not in got for number in self.stored) for home, got in self.got.items()}
        return {home: count for home, count in found.items() if count}


async def whole(nodes: list[Node]) -> int:
    """Wait until all nodes are part of one ring; how many are in the end."""
    until = time.monotonic() + PATIENCE
    found = 0
    while found != len(nodes) and time.monotonic() < until:
        await asyncio.sleep(0.5)
        try:
            found = sum(report.joined for report in await walk(nodes[0].ring))
        except WeftError:
            found = 0
        for node in nodes:
            node.check()
    return found


def say(since: float, *what: object) -> None:
    """A line of progress."""
    print(f"{time.monotonic() - since:7.1f} s", *what, file=sys.stderr, flush=True)


async def chaos(nodes: list[Node], bound: dict[str, int], seconds: float, rng: Random, pause: float) -> dict[str, int]:
    """Faults for so long, and then the verdict."""
    links = Links(bound)
    await links.open()
    try:
        return await _chaos(nodes, links, seconds, rng, pause)
    finally:
        links.close()


async def _chaos(nodes: list[Node], links: Links, seconds: float, rng: Random, pause: float) -> dict[str, int]:
    began = time.monotonic()
    for node in nodes:
        node.start()
    load = Load(nodes)
    counts: Counter[str] = Counter()
    say(began, "nodes in one ring:", await whole(nodes))
    ready = [asyncio.Event() for _ in nodes]
    subscribers = [asyncio.create_task(load.subscribe(n, e)) for n, e in zip(nodes, ready, strict=True)]
    connected = [asyncio.Event() for _ in nodes]
    publishers: list[asyncio.Task[None]] = []
    try:
        await _all(ready, subscribers)
        publishers += [asyncio.create_task(load.publish(n, pause, e)) for n, e in zip(nodes, connected, strict=True)]
        await _all(connected, publishers)
        say(began, "all clients are connected")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            what = await _fault(nodes, links, rng)
            counts[what.partition(" ")[0]] += 1
            await asyncio.sleep(10)
            say(began, f"{what}; {len(load.stored)} events stored, {load.outstanding} deliveries outstanding")
            for node in nodes:
                node.check()
            for each in (*subscribers, *publishers):
                if each.done():
                    each.result()
        load.over = True
        await asyncio.gather(*publishers)
        until = time.monotonic() + PATIENCE
        while (missing := load.missing()) and time.monotonic() < until:
            say(began, "missing, by subscriber:", missing)
            await asyncio.sleep(5)
    finally:
        for task in (*subscribers, *publishers):
            task.cancel()
        await asyncio.gather(*subscribers, *publishers, return_exceptions=True)
    twice = sum(times - 1 for got in load.got.values() for times in got.values())
    ring = await whole(nodes)
    figures = {"events": len(load.stored), "deliveries": sum(map(len, load.got.values())), **counts}
    figures |= {"lost": sum(missing.values()), "twice": twice, "nodes in one ring": ring}
    figures["seconds for which a publisher waited, on average"] = round(load.paused / len(nodes))
    if figures["lost"] or ring != len(nodes):
        raise RingLossError(str(figures))
    return figures


async def _all(events: list[asyncio.Event], tasks: list[asyncio.Task[None]]) -> None:
    """Wait for all events, or raise what ended a task."""
    waiting = asyncio.gather(*(each.wait() for each in events))
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        for each in tasks:
            if each.done():
                each.result()


async def _fault(nodes: list[Node], links: Links, rng: Random) -> str:
    """One fault, from its beginning to its end."""
    node = rng.choice(nodes)
    what = rng.choice(["kill", "stop", "pause", "cut"])
    if what == "cut":
        part = rng.sample(nodes, rng.randint(1, len(nodes) // 2))
        seconds, close = rng.choice([0.5, 3.0, 8.0]), rng.random() < 0.5
        links.cut({f"weft://{each.ring}" for each in part})
        await asyncio.sleep(seconds)
        links.heal(close=close)
        return f"cut {sorted(each.number for each in part)} off for {seconds} s"
    if what == "pause":
        seconds = rng.choice([1.5, 4.0])
        node.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        node.send(signal.SIGCONT)
        return f"pause of {node.number} for {seconds} s"
    seconds = rng.choice([0.1, 2.0])
    await asyncio.to_thread(node.end, signal.SIGKILL if what == "kill" else signal.SIGTERM)
    await asyncio.sleep(seconds)
    node.start()
    return f"{what} of {node.number}, started again after {seconds} s"


def run_ring_chaos(seconds: float, seed: int, place: Path, count: int = 8, pause: float = 0.5) -> dict[str, int]:
    """Start the brokers at once, and run. Raises RingLossError."""
    first = free_ports(3 * count)
    ports = [*range(first, first + 3 * count)]
    nodes = [Node(place, n, ports[3 * n : 3 * n + 3], ports[1]) for n in range(count)]
    bound = {f"weft://127.0.0.1:{ports[3 * n + 1]}": ports[3 * n + 2] for n in range(count)}
    try:
        return asyncio.run(chaos(nodes, bound, seconds, Random(seed), pause))
    finally:
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                os.kill(node.process.pid, signal.SIGCONT)
                node.end()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two events of a publisher")
    parser.add_argument("--keep", type=Path, help="a directory for logs, which stay there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        started = time.monotonic()
        where = options.keep or Path(place)
        where.mkdir(parents=True, exist_ok=True)
        warm_up(lambda: routing_table(BrokerConfig(model=ModelOptions("simple")), None))  # once, and not in each broker
        figures = run_ring_chaos(options.seconds, options.seed, where, options.nodes, options.pause)
        took = time.monotonic() - started
        print(", ".join(f"{count} {name}" for name, count in figures.items()), f"in {took:.0f} s")


if __name__ == "__main__":
    main()
