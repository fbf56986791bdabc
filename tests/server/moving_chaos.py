"""Three brokers as processes under load, killed in the middle of moves: `make chaos MOVES=1`.

Half of the clients publish, half subscribe; they are Weft's own, and all of them move from broker to broker all the
time. Law: of what publishers were told is stored, every subscriber gets exactly what its filter matches, once, in the
order of each publisher; what it has acknowledged does not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import weft
from server.broker_program import BrokerProgram
from server.chaos import LossError
from server.mortal_broker import STATES
from weft.errors import ConnectError

NAMES = ("a", "b", "c")  # a - b - c
PATIENCE = 300.0  # seconds within which everything must have arrived after the last kill
HIT = 30.0  # seconds that a broker has to get into the state in which it is to die
BATCH, MOST = 20, 400  # events that are published at once, at least and at most


class Net:
    """The brokers, and how to kill them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.programs: dict[str, BrokerProgram] = {}
        for name in NAMES:
            (place / name).mkdir()
            program = Path(__file__).with_name("mortal_broker.py")
            prefix = ["env", f"MORTAL={place / name}", sys.executable, str(program)]
            settings = place / f"{name}.toml"
            self.programs[name] = BrokerProgram(place / name / "log", "--config", str(settings), prefix=prefix)

    def start(self) -> None:
        """Start all; the one in the middle dials the others."""
        for name, peers in (("a", "b"), ("c", "b"), ("b", "ac")):
            links = {peer: self.programs[peer].listen if name == "b" else "" for peer in peers}
            text = f'name = "{name}"\n' + "".join(f'[links.{peer}]\naddress = "{at}"\n' for peer, at in links.items())
            (self.place / f"{name}.toml").write_text(text, encoding="utf-8")
            self.programs[name].start()

    def address(self, name: str) -> str:
        return self.programs[name].listen

    async def kill_in(self, name: str, state: str) -> str:
        """Let a broker die in a state, or in any if it does not get there in time; returns in which it was."""
        place, program = self.place / name, self.programs[name]
        (place / "arm").write_text(state)
        until = time.monotonic() + HIT
        while time.monotonic() < until and not (place / "killed").exists():
            await asyncio.sleep(0.01)
        (place / "arm").unlink(missing_ok=True)
        await asyncio.to_thread(program.kill)
        hit = (place / "killed").exists()
        (place / "killed").unlink(missing_ok=True)
        return state if hit else "any other"


class Mover:
    """One client of the library, which moves all the time."""

    def __init__(self, net: Net, name: str, rng: Random) -> None:
        self.net, self.name, self.rng = net, name, rng
        self.home = rng.choice(NAMES)
        self.client = weft.connect(net.address(self.home), name=name)
        self.moves = self.refused = 0

    async def wander(self, goal: asyncio.Event) -> None:
        """Move from broker to broker until it is enough."""
        while not goal.is_set():
            await asyncio.sleep(self.rng.random() * 0.2)
            target = self.rng.choice([name for name in NAMES if name != self.home])
            try:
                await self.client.move(self.net.address(target))
            except ConnectError:
                self.refused += 1  # nobody is there; it stays
            else:
                self.home = target
                self.moves += 1


class Publisher(Mover):
    """Publishes events 1, 2, 3 and so on, each with a value."""

    def __init__(self, net: Net, name: str, rng: Random, rate: float) -> None:
        super().__init__(net, name, rng)
        self.values: list[int] = []
        self.times = Counter[int]()  # that each value was published
        self.rate, self.confirmed = rate, 0

    async def run(self, over: asyncio.Event) -> None:
        """Publish at the rate, and catch up with what could not be published while its broker was down."""
        began = time.monotonic()
        while not over.is_set():
            first, due = len(self.values), int(self.rate * (time.monotonic() - began))
            size = min(due - first, MOST)
            if size < BATCH:
                await asyncio.sleep((BATCH - size) / self.rate)
                continue
            self.values += [self.rng.randrange(100) for _ in range(size)]
            self.times.update(self.values[first:])
            events = ({"publisher": self.name, "n": n, "value": self.values[n]} for n in range(first, first + size))
            self.confirmed += await self.client.publish_many(events)


class Subscriber(Mover):
    """Reads what lies between two values, and acknowledges it."""

    def __init__(self, net: Net, name: str, rng: Random) -> None:
        super().__init__(net, name, rng)
        self.low = rng.randrange(80)
        self.high = self.low + rng.choice((5, 20))
        self.seen: dict[str, list[int]] = {}
        self.deliveries = 0

    async def begin(self) -> None:
        wanted = f"value >= {self.low} AND value < {self.high}"
        self.events = await self.client.subscribe(wanted, name=f"events of {self.name}")
        await self.events.complete()

    async def run(self) -> None:
        async for event in self.events:
            publisher, n, value = event["publisher"], event["n"], event["value"]
            if not self.low <= value < self.high:
                raise LossError(f"{self.name} was shown {value}, which it does not want")
            seen = self.seen.setdefault(publisher, [])
            if seen and n <= seen[-1]:
                what = "again, though it was acknowledged" if n in seen else "out of order"
                raise LossError(f"{self.name} was shown event {n} of {publisher} {what}, after {seen[-1]}")
            seen.append(n)
            self.deliveries += 1
            await event.ack()

    def lacks(self, publishers: list[Publisher]) -> int:
        """How many events it has yet to get."""
        due = sum(each.times[value] for each in publishers for value in range(self.low, self.high))
        return due - self.deliveries

    def wanted(self, publisher: Publisher) -> list[int]:
        return [n for n, value in enumerate(publisher.values) if self.low <= value < self.high]


async def chaos(net: Net, rng: Random, *, kills: int, moves: int, clients: int, rate: float) -> dict[str, object]:
    """Kill so many times while so many moves are made; return figures. Raises LossError."""
    publishers = [Publisher(net, f"p{n}", Random(rng.random()), 2 * rate / clients) for n in range(clients // 2)]
    subscribers = [Subscriber(net, f"s{n}", Random(rng.random())) for n in range(clients - clients // 2)]
    movers: list[Mover] = [*publishers, *subscribers]
    enough, over, deaths = asyncio.Event(), asyncio.Event(), Counter[str]()
    for each in movers:
        await each.client.__aenter__()
    try:
        for each in subscribers:
            await each.begin()
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(each.run()) for each in subscribers]
            began = time.monotonic()
            writing = [tasks.create_task(each.run(over)) for each in publishers]
            wandering = [tasks.create_task(each.wander(enough)) for each in movers]
            for _ in range(kills):
                victim, state = rng.choice(NAMES), min(STATES, key=deaths.__getitem__)
                deaths[await net.kill_in(victim, state)] += 1
                await asyncio.sleep(rng.random() * 0.3)
                await asyncio.to_thread(net.programs[victim].start)
            while sum(each.moves for each in movers) < moves:
                await asyncio.sleep(0.05)
            enough.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*wandering)
            over.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*writing)
                seconds = time.monotonic() - began
                while any(each.lacks(publishers) for each in subscribers):
                    await asyncio.sleep(0.05)
            for task in reading:
                task.cancel()
    finally:
        for each in movers:
            await each.client.close()
    for each in subscribers:
        for publisher in publishers:
            if each.seen.get(publisher.name, []) != each.wanted(publisher):
                raise LossError(f"{each.name} does not have what {publisher.name} has published")
    confirmed = sum(each.confirmed for each in publishers)
    return {
        "kills": {"in all": kills, **deaths},
        "moves": sum(each.moves for each in movers),
        "moves refused": sum(each.refused for each in movers),
        "events confirmed": confirmed,
        "events per second": round(confirmed / seconds),
        "deliveries": sum(each.deliveries for each in subscribers),
        "lost": 0,
        "again or out of order": 0,
    }


def run_chaos(
    place: Path, *, kills: int, moves: int, clients: int = 20, rate: float = 2_000, seed: int = 1
) -> dict[str, object]:
    """Everything, from the first start to the last check."""
    net = Net(place)
    try:
        net.start()
        return asyncio.run(chaos(net, Random(seed), kills=kills, moves=moves, clients=clients, rate=rate))
    finally:
        for program in net.programs.values():
            program.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--moves", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rate", type=float, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("weft").setLevel(logging.ERROR)  # every kill is noticed by many clients
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        try:
            figures = run_chaos(Path(place), **vars(options))
        except* (LossError, TimeoutError) as group:
            for error in group.exceptions:
                print(f"chaos, seed {options.seed}: {type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(1)
    load = f"load {os.getloadavg()[0]:.0f}"
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s, {load}: {figures}")


if __name__ == "__main__":
    main()
