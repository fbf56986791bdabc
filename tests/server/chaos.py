"""Three brokers as processes, linked with mutual TLS, under load, killed at random: `make chaos`.

Law: of what publishers were told is stored, every subscriber gets exactly what its filter matches, in the order of each
publisher. The clients here speak the protocol themselves; they are no part of Weft's own client.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import msgspec
import trustme

from server.broker_program import BrokerProgram
from server.wire import Wire, run
from weft.protocol.messages import Ack, Complete, Deliver, Hello, Publish, Published, Subscribe, Welcome

NAMES = ("a", "b", "c")  # a - b - c
BATCH, WINDOW = 10, 200  # events that a publisher sends at once, and that may be unconfirmed
PATIENCE = 180.0  # seconds within which everything must have arrived after the last kill


class LossError(AssertionError):
    """A promise was broken."""


class Net:
    """The brokers, and how to reach them."""

    def __init__(self, place: Path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(place / "authority.pem")
        self.client = ssl.create_default_context(cafile=str(place / "authority.pem"))
        authority.issue_cert("client").configure_cert(self.client)
        self.programs: dict[str, BrokerProgram] = {}
        for name in NAMES:
            authority.issue_cert("localhost", common_name=name).private_key_and_cert_chain_pem.write_to_path(
                place / f"{name}.pem"
            )
            (place / f"{name}.toml").write_text(self._settings(name), encoding="utf-8")
            self.programs[name] = BrokerProgram(
                place / name, "--config", str(place / f"{name}.toml"), listen="weft+tls://localhost:0"
            )
        self.place = place

    def _settings(self, name: str, links: dict[str, str] | None = None) -> str:
        text = f'name = "{name}"\n[tls]\ncertificate = "{name}.pem"\nauthority = "authority.pem"\n'
        for peer in {"a": "b", "b": "ac", "c": "b"}[name]:
            text += f'[links.{peer}]\naddress = "{(links or {}).get(peer, "")}"\n'
        return text

    def start(self) -> None:
        """Start all; the one in the middle dials the others."""
        self.programs["a"].start()
        self.programs["c"].start()
        ends = {name: self.programs[name].listen for name in "ac"}
        (self.place / "b.toml").write_text(self._settings("b", ends), encoding="utf-8")
        self.programs["b"].start()

    async def connect(self, name: str) -> Wire:
        address = self.programs[name].address
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(Wire, "localhost", address.port, ssl=self.client)
        return wire


class Client:
    """What publishers and subscribers share: they connect again and again."""

    def __init__(self, net: Net, home: str, name: str) -> None:
        self.net, self.home, self.name = net, home, name
        self.reconnects = -1

    async def connected(self) -> Wire:
        """A connection that is welcome."""
        while True:
            try:
                wire = await self.net.connect(self.home)
                wire.send(Hello(session=self.name))
                await wire.until(lambda wire=wire: wire.all(Welcome) or wire.closed)
                if wire.all(Welcome):
                    self.reconnects += 1
                    return wire
            except (OSError, AssertionError):
                pass
            await asyncio.sleep(0.05)


class Publisher(Client):
    """Publishes events 1, 2, 3 and so on, each with a value, and remembers what was confirmed."""

    def __init__(self, net: Net, home: str, name: str, seed: int) -> None:
        super().__init__(net, home, name)
        self._values = Random(seed)
        self.values: list[int] = [0]  # of event n
        self.confirmed = 0
        self.goal: int | None = None  # the last event, once that is known

    async def run(self) -> None:
        while self.goal is None or self.confirmed < self.goal:
            wire = await self.connected()
            stored = wire.all(Welcome)[0].pub_seq
            if not self.confirmed <= stored < len(self.values):
                raise LossError(f"{self.name}: {self.confirmed} events were confirmed, but {stored} are stored")
            sent = stored
            while not wire.closed and (self.goal is None or self.confirmed < self.goal):
                most = min(sent + BATCH, self.confirmed + WINDOW, self.goal or 1 << 60)
                while len(self.values) <= most:
                    self.values.append(self._values.randrange(100))
                if most > sent:
                    wire.send(*(Publish.of(n, self.event(n), b"x" * 100) for n in range(sent + 1, most + 1)))
                    sent = most
                await asyncio.sleep(0.01)
                self._read(wire)
            self._read(wire)
            wire.transport.abort()

    def _read(self, wire: Wire) -> None:
        for message in wire.all(Published):
            self.confirmed = max(self.confirmed, message.upto)
        wire.messages.clear()

    def event(self, n: int) -> dict[str, object]:
        return {"publisher": self.name, "n": n, "value": self.values[n]}


class Subscriber(Client):
    """Reads what lies between two values, and acknowledges it."""

    def __init__(self, net: Net, home: str, name: str, low: int, high: int) -> None:
        super().__init__(net, home, name)
        self.low, self.high = low, high
        self.seen: dict[str, list[int]] = {}  # by publisher
        self.again = 0  # events that came more than once
        self.complete = asyncio.Event()

    async def run(self) -> None:
        while True:
            wire = await self.connected()
            if not wire.all(Welcome)[0].subscriptions:
                wire.send(Subscribe(1, f"value >= {self.low} AND value < {self.high}"))
            while not wire.closed:
                self._read(wire)
                await asyncio.sleep(0.01)
            self._read(wire)

    def _read(self, wire: Wire) -> None:
        events = wire.all(Deliver)
        if wire.all(Complete):
            self.complete.set()
        wire.messages.clear()
        for event in events:
            self._take(event)
        if events and not wire.closed:
            wire.send(Ack(0, events[-1].offset + 1))

    def _take(self, event: Deliver) -> None:
        attributes = msgspec.msgpack.decode(event.head)[0]
        publisher, n, value = attributes["publisher"], attributes["n"], attributes["value"]
        if not self.low <= value < self.high:
            raise LossError(f"{self.name} wants [{self.low}, {self.high}) and was sent {attributes}")
        seen = self.seen.setdefault(publisher, [])
        if seen and n <= seen[-1]:
            if event.attempt < 2 or n not in seen:
                raise LossError(f"{self.name}: event {n} of {publisher} came after {seen[-1]}, attempt {event.attempt}")
            self.again += 1
        else:
            seen.append(n)


async def chaos(net: Net, kills: int, rng: Random, pause: float = 0.5) -> dict[str, int]:
    """Kill so many times; return figures. Raises LossError."""
    loop = asyncio.get_running_loop()
    publishers = [Publisher(net, name, f"publisher-{name}", rng.getrandbits(32)) for name in NAMES]
    subscribers = [
        Subscriber(net, name, f"subscriber-{name}-{low}", low, high)
        for name in NAMES
        for low, high in ((0, 100), (20, 40), (90, 95))
    ]
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(each.run()) for each in subscribers]
        for each in subscribers:
            async with asyncio.timeout(PATIENCE):
                await each.complete.wait()
        writing = [tasks.create_task(each.run()) for each in publishers]
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0.2, 1.0) * pause)
            victims = rng.sample(NAMES, 2 if rng.random() < 0.1 else 1)
            for name in victims:
                await loop.run_in_executor(None, net.programs[name].kill)
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * pause)
            for name in victims:
                await loop.run_in_executor(None, net.programs[name].start)
        for each in publishers:
            each.goal = len(each.values) - 1
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*writing)
            while not all(_has_all(each, publishers) for each in subscribers):
                await asyncio.sleep(0.05)
        for task in reading:
            task.cancel()
    for each in subscribers:
        for publisher in publishers:
            if each.seen.get(publisher.name, []) != _wanted(each, publisher):
                raise LossError(f"{each.name} has not what {publisher.name} has published")
    return {
        "kills": kills,
        "events confirmed": sum(each.confirmed for each in publishers),
        "deliveries": sum(len(seen) for each in subscribers for seen in each.seen.values()),
        "deliveries again": sum(each.again for each in subscribers),
        "reconnects": sum(each.reconnects for each in [*publishers, *subscribers]),
        "lost": 0,
        "wrong": 0,
    }


def _wanted(subscriber: Subscriber, publisher: Publisher) -> list[int]:
    values = publisher.values
    return [n for n in range(1, len(values)) if subscriber.low <= values[n] < subscriber.high]


def _has_all(subscriber: Subscriber, publishers: list[Publisher]) -> bool:
    return all(len(subscriber.seen.get(each.name, ())) >= len(_wanted(subscriber, each)) for each in publishers)


def run_chaos(kills: int, seed: int, place: Path, pause: float = 0.5) -> dict[str, int]:
    """Everything, from the first start to the last check."""
    net = Net(place)
    try:
        net.start()
        return run(chaos(net, kills, Random(seed), pause))
    finally:
        for program in net.programs.values():
            program.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        try:
            figures = run_chaos(options.kills, options.seed, Path(place))
        except* (LossError, TimeoutError) as group:
            for error in group.exceptions:
                print(f"chaos, seed {options.seed}: {type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(1)
    print(
        f"seed {options.seed}, {time.monotonic() - begun:.0f} s: " + ", ".join(f"{v:,} {k}" for k, v in figures.items())
    )


if __name__ == "__main__":
    main()
