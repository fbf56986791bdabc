"""Weft and other brokers on the same events, in turns. Brokers are measured in rounds, one after the other, and a ratio
is the median of the ratios of the rounds. A peer that does not start, or fails, is named, and only its own figures are
missing.

Every broker runs all the time; only one of them is given events at a time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

from weft.errors import RemoteProtocolError
from weftlab.bench.broker_load import Measured
from weftlab.bench.broker_mosquitto import mosquitto, mosquitto_load
from weftlab.bench.broker_nats import filtering_load, jetstream_load, nats, nats_load
from weftlab.bench.broker_peers import INSTALL, PeerServer, installed
from weftlab.bench.broker_rabbitmq import rabbitmq, rabbitmq_load
from weftlab.bench.broker_weft import WeftBroker, WeftLoad
from weftlab.bench.broker_workload import BrokerWorkload
from weftlab.bench.report import Progress, Result

_PAUSE = 0.3  # seconds between two measurements, in which brokers finish what they do by themselves
DECODED = 10_000  # subscriptions up to which consumers that look at every event are measured
_FAILURES = (OSError, RemoteProtocolError)  # of a peer

NoteSink = Callable[[str], None]


class Runner(Protocol):
    """A load that can be run again and again."""

    async def run(self) -> Measured:
        """Once."""

    def close(self) -> None:
        """No more."""


class WeftRunner:
    """Weft under the load, as one of several brokers."""

    def __init__(self, work: BrokerWorkload, load: WeftLoad, broker: WeftBroker, many: int | None = None) -> None:
        self.load, self.broker = load, broker
        self._work, self._events = work, work.events[:many]
        self._due = work.due(self._events)

    async def run(self) -> Measured:
        """Publish the events, and wait for their deliveries."""
        return await self.load.run(self._events, self._due, self.broker.pids)

    async def warm_up(self) -> None:
        """Some events before the first measurement."""
        await self.load.run(self._work.warm, self._work.due(self._work.warm), self.broker.pids)

    def close(self) -> None:
        """Cut every connection."""
        self.load.close()


class CheckedRunner:
    """A load whose consumers count matches: each run must find as many as the index does."""

    def __init__(self, runner: Runner, matches: Callable[[], int], due: int) -> None:
        self._runner, self._matches, self._due = runner, matches, due

    async def run(self) -> Measured:
        """Once, and compare."""
        before = self._matches()
        done = await self._runner.run()
        if (found := self._matches() - before) != self._due:
            raise RemoteProtocolError(f"consumers found {found:,} matches, and the index finds {self._due:,}")
        return done

    def close(self) -> None:
        """No more."""
        self._runner.close()


Opened = Awaitable[Runner]


class Contest(NamedTuple):
    """A peer in one role: how it is loaded, which figure of Weft it is compared with, and by size what is wanted."""

    name: str
    peer: str
    against: str  # loose, durable, or decoding: with the clients' processor time counted in
    goals: Mapping[int, float]
    load: Callable[[PeerServer, BrokerWorkload], Opened]
    most: int = 1 << 30  # subscriptions with which it can be measured in reasonable time


def contests(quick: bool) -> list[Contest]:
    """All of them. Where every event goes to hundreds of consumers, or is synced, fewer events are enough."""

    def few(work: BrokerWorkload, many: int, when_quick: int) -> list[dict[str, object]]:
        return work.events[: when_quick if quick else many]

    async def filtering(peer: PeerServer, work: BrokerWorkload) -> Runner:
        events = few(work, 5_000, 1_000)
        flood, matches = await filtering_load(peer, work, events)
        return CheckedRunner(flood, matches, work.matches(events))

    def by_subscription(peer: PeerServer, work: BrokerWorkload) -> Opened:
        return nats_load(peer, work, few(work, 300 if work.size > 10_000 else 1_000, 200), each=True)

    def by_symbol(peer: PeerServer, work: BrokerWorkload) -> Opened:
        return nats_load(peer, work, few(work, 20_000, 5_000), each=False)

    def headers(peer: PeerServer, work: BrokerWorkload) -> Opened:
        return rabbitmq_load(peer, work, few(work, 500 if work.size <= 1_000 else 60, 20), "headers")

    def direct(peer: PeerServer, work: BrokerWorkload) -> Opened:
        return rabbitmq_load(peer, work, few(work, 10_000, 1_000), "direct")

    def confirmed(peer: PeerServer, work: BrokerWorkload) -> Opened:
        return rabbitmq_load(peer, work, few(work, 5_000, 1_000), "direct", durable=True)

    return [
        Contest("nats_by_subscription", "nats", "loose", {10_000: 8}, by_subscription),
        Contest("nats_by_symbol", "nats", "loose", {10_000: 0.4}, by_symbol),
        Contest("nats_by_symbol_with_consumers", "nats", "decoding", {10_000: 2}, filtering, DECODED),
        Contest(
            "mosquitto", "mosquitto", "loose", {10_000: 1.3}, lambda p, w: mosquitto_load(p, w, few(w, 10_000, 1_000))
        ),
        Contest("rabbitmq_direct", "rabbitmq", "loose", {10_000: 5}, direct),
        Contest("rabbitmq_headers", "rabbitmq", "loose", {1_000: 60, 10_000: 500}, headers, 10_000),
        Contest("rabbitmq_confirmed", "rabbitmq", "durable", {10_000: 5}, confirmed),
        Contest("jetstream_synced", "nats", "durable", {}, lambda p, w: jetstream_load(p, w, few(w, 3_000, 300))),
    ]


_SERVERS: dict[str, Callable[[str, Path], PeerServer]] = {"nats": nats, "mosquitto": mosquitto, "rabbitmq": rabbitmq}


class Peers:
    """The peers that are installed, each started once."""

    def __init__(self, place: Path, note: NoteSink) -> None:
        self._place, self._note = place, note
        self._stack = AsyncExitStack()
        self._running: dict[str, PeerServer | None] = {}

    async def __aenter__(self) -> Peers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def get(self, name: str) -> PeerServer | None:
        """A running peer; None if it is not installed or does not start, which is reported once."""
        if name not in self._running:
            self._running[name] = await self._start(name)
        return self._running[name]

    async def _start(self, name: str) -> PeerServer | None:
        program = installed(name)
        if program is None:
            self._note(f"{name} is not installed: {INSTALL[name]}")
            return None
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(dir=self._place, ignore_cleanup_errors=True))
        try:
            return await self._stack.enter_async_context(_SERVERS[name](program, Path(directory)))
        except OSError as error:
            self._note(f"{name} was not measured: {error}")
            return None


async def compete(  # noqa: PLR0913, PLR0917 - the parts of a measurement
    work: BrokerWorkload,
    ours: Mapping[str, Runner],
    peers: Peers,
    rounds: int,
    quick: bool,
    progress: Progress,
    note: NoteSink,
) -> tuple[dict[str, list[Measured]], list[Result]]:
    """Measure Weft and every peer in turns: the rounds of Weft, and the figures of the peers."""
    runners: dict[str, Runner] = dict(ours)
    wanted = [each for each in contests(quick) if work.size <= each.most]
    try:
        for each in wanted:
            progress(f"{work.size:,} subscriptions, {each.name} gets ready")
            peer = await peers.get(each.peer)
            if peer is not None:
                try:
                    runners[each.name] = await each.load(peer, work)
                except _FAILURES as error:
                    note(f"{each.name} was not measured: {_said(error)}")
        done = await _rounds(work, runners, ours.keys(), rounds, progress, note)
    finally:
        for name, runner in runners.items():
            if name not in ours:
                runner.close()
    return done, [result for each in wanted for result in _compared(work, each, done)]


async def _rounds(  # noqa: PLR0913, PLR0917 - the parts of a measurement
    work: BrokerWorkload,
    runners: dict[str, Runner],
    ours: Collection[str],
    rounds: int,
    progress: Progress,
    note: NoteSink,
) -> dict[str, list[Measured]]:
    done: dict[str, list[Measured]] = {name: [] for name in runners}
    for number in range(1, rounds + 1):
        for name in list(runners):
            progress(f"{work.size:,} subscriptions, round {number} of {rounds}, {name}")
            await settle()
            try:
                done[name].append(await runners[name].run())
            except _FAILURES as error:
                if name in ours:
                    raise
                note(f"{name} was not measured: {_said(error)}")
                runners.pop(name).close()
                done[name] = []
    return done


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _compared(work: BrokerWorkload, each: Contest, done: Mapping[str, Sequence[Measured]]) -> list[Result]:
    name, goal = f"broker/{work.size}", each.goals.get(work.size)
    mine, theirs = done[each.against], done.get(each.name) or []

    def cost(one: Measured) -> float:
        return one.micros_of_all if each.against == "decoding" else one.micros

    ratio = median(cost(b) / cost(a) for a, b in zip(mine, theirs, strict=True)) if theirs else None
    found = middle(theirs) if theirs else None
    return [
        Result(f"{name}/{each.name}/cpu", None if found is None else cost(found), "us/event"),
        Result(f"{name}/{each.name}/rate", None if found is None else found.rate, "events/s"),
        Result(f"{name}/vs_{each.name}", ratio, "x", goal),
    ]


def middle(rounds: Sequence[Measured]) -> Measured:
    """The round with the median of the processor time."""
    return sorted(rounds, key=lambda each: each.micros)[len(rounds) // 2]


async def settle() -> None:
    """A pause before a measurement."""
    await asyncio.sleep(_PAUSE)
