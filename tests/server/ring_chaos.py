"""Brokers on a ring as processes under load: killed, stopped, paused and started again: `make chaos RING=1`.

All are started at once. Every broker has a durable subscriber and a publisher, and one fault happens at a time, each in
turn with time for its repair. In the end every event that a publisher was told is stored has reached every subscriber
that wants it, once, and there is one ring.
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
from pathlib import Path
from random import Random

import weft
from free_ports import free_ports
from weft.errors import WeftError
from weft.server.ring_status import walk

PATIENCE = 300.0  # seconds within which everything must have arrived after the last fault


class RingLossError(AssertionError):
    """A promise was broken."""


class Node:
    """A broker on the ring, one process after another."""

    def __init__(self, place: Path, number: int, clients: int, ring: int, first: int) -> None:
        self.number, self.ring = number, f"127.0.0.1:{ring}"
        self.clients = f"weft://127.0.0.1:{clients}"
        begins = ["--new-ring"] if ring == first else ["--join", f"127.0.0.1:{first}"]
        self._command = [
            sys.executable, "-m", "weft", "ring", "serve", "--data", str(place / f"n{number}"), "--replicas", "3",
            "--listen", self.clients, "--ring", self.ring, "--interval", "x=0:100:10", *begins,
        ]  # fmt: skip
        self._log = place / f"n{number}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log)

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
        self._next = 0

    async def subscribe(self, node: Node, ready: asyncio.Event) -> None:
        """Receive everything at a broker, for ever."""
        async with weft.connect(node.clients, name=f"subscriber-{node.number}", timeout=60) as client:
            wanted = client.subscribe("x >= 0", name="all")
            await wanted.complete()
            ready.set()
            async for event in wanted:
                self.got[node.number][int(event["number"])] += 1
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
                except WeftError:
                    continue  # nobody was told that it is stored
                self.stored.append(number)
                await asyncio.sleep(pause)

    def missing(self) -> int:
        """Deliveries that have not come yet."""
        return sum(number not in got for got in self.got.values() for number in self.stored)


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
    return found


async def chaos(nodes: list[Node], seconds: float, rng: Random, pause: float) -> dict[str, int]:
    """Faults for so long, and then the verdict."""
    load = Load(nodes)
    counts: Counter[str] = Counter()
    await whole(nodes)
    ready = [asyncio.Event() for _ in nodes]
    subscribers = [asyncio.create_task(load.subscribe(n, e)) for n, e in zip(nodes, ready, strict=True)]
    waiting = asyncio.gather(*(each.wait() for each in ready))
    await asyncio.wait([waiting, *subscribers], return_when=asyncio.FIRST_COMPLETED)
    for each in subscribers:
        if each.done():
            each.result()
    connected = [asyncio.Event() for _ in nodes]
    publishers = [asyncio.create_task(load.publish(n, pause, e)) for n, e in zip(nodes, connected, strict=True)]
    await asyncio.gather(*(each.wait() for each in connected))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        node = rng.choice(nodes)
        what = rng.choice(["kill", "stop", "pause"])
        counts[what] += 1
        if what == "pause":
            node.send(signal.SIGSTOP)
            await asyncio.sleep(rng.choice([1.5, 4.0]))
            node.send(signal.SIGCONT)
        else:
            await asyncio.to_thread(node.end, signal.SIGKILL if what == "kill" else signal.SIGTERM)
            await asyncio.sleep(rng.choice([0.1, 2.0]))
            node.start()
        await asyncio.sleep(10)
    load.over = True
    await asyncio.gather(*publishers)
    until = time.monotonic() + PATIENCE
    while load.missing() and time.monotonic() < until:
        await asyncio.sleep(0.5)
    for each in subscribers:
        each.cancel()
    await asyncio.gather(*subscribers, return_exceptions=True)
    twice = sum(times - 1 for got in load.got.values() for times in got.values())
    ring = await whole(nodes)
    figures = {"events": len(load.stored), "deliveries": sum(map(len, load.got.values())), **counts}
    figures |= {"lost": load.missing(), "twice": twice, "nodes in one ring": ring}
    if figures["lost"] or ring != len(nodes):
        raise RingLossError(str(figures))
    return figures


def run_ring_chaos(seconds: float, seed: int, place: Path, count: int = 8, pause: float = 0.2) -> dict[str, int]:
    """Start the brokers at once, and run. Raises RingLossError."""
    first = free_ports(2 * count)
    ports = [*range(first, first + 2 * count)]
    nodes = [Node(place, n, ports[2 * n], ports[2 * n + 1], ports[1]) for n in range(count)]
    try:
        for node in nodes:
            node.start()
        return asyncio.run(chaos(nodes, seconds, Random(seed), pause))
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        started = time.monotonic()
        figures = run_ring_chaos(options.seconds, options.seed, Path(place), options.nodes)
        took = time.monotonic() - started
        print(", ".join(f"{count} {name}" for name, count in figures.items()), f"in {took:.0f} s")


if __name__ == "__main__":
    main()
