"""Latencies of a broker at a steady rate. Each event carries the time at which it was due to be sent, so that a broker
that falls behind cannot hide it.

The load must not measure itself: its events are encoded before the first one is due, one burst a millisecond, and a
consumer reads no more of a delivery than that time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.client.connection import ACK_DELAY
from weft.log.base import Offset
from weft.protocol.codec import FrameReader, encode
from weft.protocol.messages import Ack, Deliver, Publish, Published
from weft.server.clock import PreciseTimer
from weftlab.bench.broker_load import LoadWire, cpu_of

if TYPE_CHECKING:
    from weftlab.bench.broker_weft import WeftLoad

_TURN = 0.001  # seconds between two bursts
_PATIENCE = 60.0  # seconds for what is late at the end
_TIME = Struct(">d")
_REST = b"x" * 122  # of a payload, behind the time; a delivery ends with its payload
_delivers = msgspec.msgpack.Decoder(Deliver)
_published = msgspec.msgpack.Decoder(Published)


class Latencies:
    """Seconds from when events were due to when they arrived, and to when they were confirmed."""

    def __init__(self) -> None:
        self.deliveries: list[float] = []
        self.confirmations: list[float] = []
        self.micros = 0.0  # of the broker's processor, for each event
        self.busy = 0.0  # the part of a processor that the load took while it published

    def delivery(self, part: float) -> float:
        """The latency that this part of the deliveries does not exceed."""
        return _part(self.deliveries, part)

    def confirmation(self, part: float) -> float:
        """The latency that this part of the confirmations does not exceed."""
        return _part(self.confirmations, part)


def _part(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


class Burst(NamedTuple):
    """Events that are due together: when, as seconds after the first burst, how many, and as bytes."""

    due: float
    events: int
    data: bytes


class LatencyClock:
    """When the first burst is due; set once everything is ready."""

    start = 0.0


class TimingReader:
    """Notes when deliveries and confirmations arrive, and acknowledges. `due` has the times of a publisher's events."""

    def __init__(
        self, found: Latencies, clock: LatencyClock, acking: bool, first: int = 1, due: Sequence[float] = ()
    ) -> None:
        self.deliveries = 0
        self.confirmed = first - 1
        self._found, self._clock, self._acking = found, clock, acking
        self._first, self._due = first, due
        self._acked = 0.0  # when
        self._frames = FrameReader()

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns the acknowledgement."""
        now, last = perf_counter() - self._clock.start, None
        unpack, back, note = _TIME.unpack_from, len(_REST) + _TIME.size, self._found.deliveries.append
        for frame in self._frames.feed(data):
            if frame[1] == 38:
                last = frame
                self.deliveries += 1
                note(now - unpack(frame, len(frame) - back)[0])
            elif frame[1] == 33:
                upto = _published.decode(frame).upto
                confirmed = self._due[self.confirmed + 1 - self._first : upto + 1 - self._first]
                self._found.confirmations += [now - due for due in confirmed]
                self.confirmed = upto
        if last is None or not self._acking or now - self._acked < ACK_DELAY:
            return b""
        self._acked = now
        message = _delivers.decode(last)
        return encode([Ack(message.queue, Offset(message.offset + 1))]) if message.offset else b""


async def latencies(  # noqa: PLR0913 - the parts of a load
    load: WeftLoad,
    events: Sequence[dict[str, object]],
    rate: float,
    seconds: float,
    *,
    pids: Sequence[int] = (),
    timed: Sequence[LoadWire] | None = None,
) -> Latencies:
    """Publish at a rate for some seconds, and note how long everything took to the `timed` consumers, or to all."""
    found, clock, first = Latencies(), LatencyClock(), load.sequence + 1
    bursts = _bursts(events, rate, seconds, first if load.durable else 0)
    due = [burst.due for burst in bursts for _ in range(burst.events)]
    load.sequence += len(due)
    timed = load.consumers if timed is None else timed
    before = [(wire, wire.reader) for wire in [*timed, load.publisher]]
    for wire in timed:
        wire.reader = TimingReader(found, clock, load.durable)
    load.publisher.reader = reader = TimingReader(found, clock, False, first, due)
    with _no_pauses():
        try:
            cpu, spent = cpu_of(pids), process_time()
            clock.start = perf_counter() + _TURN
            await _publish(load, bursts, clock)
            found.busy = (process_time() - spent) / (perf_counter() - clock.start)
            await _until_quiet(load, reader, found, load.sequence)
        finally:
            for wire, mine in before:
                wire.reader = mine
    load.reader.upto = load.sequence
    found.micros = 1e6 * (cpu_of(pids) - cpu) / len(due)
    return found


def _bursts(events: Sequence[dict[str, object]], rate: float, seconds: float, first: int) -> list[Burst]:
    """The events of each millisecond. Those that are durable are numbered from `first` on; 0 for others."""
    bursts: list[Burst] = []
    sent = 0
    for turn in range(1, max(1, round(seconds / _TURN)) + 1):
        due, upto = turn * _TURN, max(1, round(turn * _TURN * rate))
        if upto > sent:
            payload = _TIME.pack(due) + _REST
            some = [Publish.of(first + n if first else 0, events[n % len(events)], payload) for n in range(sent, upto)]
            bursts.append(Burst(due, len(some), encode(some)))
            sent = upto
    return bursts


@contextmanager
def _no_pauses() -> Iterator[None]:
    """A pause of the load would look like one of the broker, so it collects no garbage meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _publish(load: WeftLoad, bursts: Sequence[Burst], clock: LatencyClock) -> None:
    """Each burst when it is due, or as soon after it as the load comes to it."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    timer = PreciseTimer(woken.set)  # asyncio's own would be late by up to a millisecond
    try:
        for burst in bursts:
            wait = clock.start + burst.due - perf_counter()
            if wait > 0:
                woken.clear()
                timer.set(loop.time() + wait)
                await woken.wait()
            load.publisher.transport.write(burst.data)
    finally:
        timer.close()


async def _until_quiet(load: WeftLoad, reader: TimingReader, found: Latencies, last: int) -> None:
    """Until everything is confirmed, and nothing more arrives."""
    deadline = perf_counter() + _PATIENCE
    while load.durable and reader.confirmed < last:
        if perf_counter() > deadline:
            raise TimeoutError(f"{last - reader.confirmed:,} events were not confirmed within {_PATIENCE:g} s")
        await asyncio.sleep(_TURN)
    before = -1
    while before != len(found.deliveries):
        before = len(found.deliveries)
        await asyncio.sleep(0.1)
