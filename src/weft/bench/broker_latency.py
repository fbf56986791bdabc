"""Latencies of a broker at a steady rate. Law: each event carries the time at which it was due to be sent, so that a
broker that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from weft.bench.broker_load import LoadWire, cpu_of
from weft.broker.codec import encode
from weft.broker.frames import FrameReader
from weft.broker.messages import Ack, Deliver, Publish, Published
from weft.log.base import Offset

if TYPE_CHECKING:
    from weft.bench.broker_weft import WeftLoad

_TURN = 0.001  # seconds between two sends
_PATIENCE = 60.0  # seconds for what is late at the end
_TIME = Struct(">d")
_delivers = msgspec.msgpack.Decoder(Deliver)
_published = msgspec.msgpack.Decoder(Published)


class Latencies:
    """Seconds from when events were due to when they arrived, and to when they were confirmed."""

    def __init__(self) -> None:
        self.deliveries: list[float] = []
        self.confirmations: list[float] = []
        self.micros = 0.0  # of the broker's processor, for each event

    def delivery(self, part: float) -> float:
        """The latency that this part of the deliveries does not exceed."""
        return _part(self.deliveries, part)

    def confirmation(self, part: float) -> float:
        """The latency that this part of the confirmations does not exceed."""
        return _part(self.confirmations, part)


def _part(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


class TimingReader:
    """Notes when deliveries and confirmations arrive, and acknowledges."""

    def __init__(self, found: Latencies, due: dict[int, float], acking: bool) -> None:
        self.deliveries = 0
        self.confirmed = min(due, default=1) - 1
        self._found, self._due, self._acking = found, due, acking
        self._frames = FrameReader()

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns the acknowledgement."""
        now, last = perf_counter(), None
        for frame in self._frames.feed(data):
            if frame[1] == 38:
                last = _delivers.decode(frame)
                self.deliveries += 1
                self._found.deliveries.append(now - _TIME.unpack_from(last.payload)[0])
            elif frame[1] == 33:
                upto = _published.decode(frame).upto
                self._found.confirmations += [now - self._due[n] for n in range(self.confirmed + 1, upto + 1)]
                self.confirmed = upto
        if last is None or not self._acking or not last.offset:
            return b""
        return encode([Ack(last.queue, Offset(last.offset + 1))])


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
    found, count = Latencies(), max(1, int(rate * seconds))
    first = load.sequence + 1
    start = perf_counter() + 0.05
    due = {first + n: start + n / rate for n in range(count)}
    timed = load.consumers if timed is None else timed
    before = [(wire, wire.reader) for wire in [*timed, load.publisher]]
    for wire in timed:
        wire.reader = TimingReader(found, {}, load.durable)
    load.publisher.reader = reader = TimingReader(found, due, False)
    spent = cpu_of(pids)
    gc.collect()
    gc.disable()  # a pause of the load would look like one of the broker
    try:
        await _publish(load, events, due, first)
        load.sequence += count
        await _until_quiet(load, reader, found, first + count - 1)
    finally:
        gc.enable()
        for wire, mine in before:
            wire.reader = mine
    load.reader.upto = load.sequence
    found.micros = 1e6 * (cpu_of(pids) - spent) / count
    return found


async def _publish(load: WeftLoad, events: Sequence[dict[str, object]], due: dict[int, float], first: int) -> None:
    """Each event when it is due, or as soon after it as the load comes to it."""
    times = [*due.values()]
    sent = 0
    while sent < len(times):
        now, upto = perf_counter(), sent
        while upto < len(times) and times[upto] <= now:
            upto += 1
        if upto > sent:
            some = [
                Publish.of(first + n if load.durable else 0, events[n % len(events)], _TIME.pack(times[n]) + b"x" * 122)
                for n in range(sent, upto)
            ]
            load.publisher.transport.write(encode(some))
            sent = upto
        await asyncio.sleep(_TURN)


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
