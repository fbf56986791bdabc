"""Latencies of a broker at a steady rate. Law: each event carries the time at which it was due to be sent, so that a
broker that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from weft.broker.codec import encode
from weft.broker.frames import FrameReader
from weft.broker.messages import Ack, Deliver, Publish, Published
from weft.log.base import Offset

if TYPE_CHECKING:
    from weft.bench.broker_weft import WeftLoad

_TURN = 0.001  # seconds between two sends
_TIME = Struct(">d")
_delivers = msgspec.msgpack.Decoder(Deliver)
_published = msgspec.msgpack.Decoder(Published)


class Latencies:
    """Seconds from when events were due to when they arrived, and to when they were confirmed."""

    def __init__(self) -> None:
        self.deliveries: list[float] = []
        self.confirmations: list[float] = []

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
        self._found, self._due, self._acking = found, due, acking
        self._frames = FrameReader()
        self._confirmed = min(due, default=1) - 1

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
                self._found.confirmations += [now - self._due[n] for n in range(self._confirmed + 1, upto + 1)]
                self._confirmed = upto
        if last is None or not self._acking or not last.offset:
            return b""
        return encode([Ack(last.queue, Offset(last.offset + 1))])


async def latencies(load: WeftLoad, events: Sequence[dict[str, object]], rate: float, seconds: float) -> Latencies:
    """Publish at a rate for some seconds, and note how long everything took."""
    found, due = Latencies(), {}
    count = max(1, min(len(events), int(rate * seconds)))
    first = load.sequence + 1
    start = perf_counter() + 0.05
    for n in range(count):
        due[first + n] = start + n / rate
    for wire in load.consumers:
        wire.reader = TimingReader(found, {}, load.durable)
    load.publisher.reader = reader = TimingReader(found, due, False)
    sent = 0
    while sent < count:
        now = perf_counter()
        upto = min(count, max(sent, int((now - start) * rate)))
        if upto > sent:
            some = [
                Publish.of(first + n if load.durable else 0, events[n], _TIME.pack(due[first + n]) + b"x" * 122)
                for n in range(sent, upto)
            ]
            load.publisher.transport.write(encode(some))
            sent = upto
        await asyncio.sleep(_TURN)
    load.sequence += count
    deadline = perf_counter() + 30
    while load.durable and reader._confirmed < first + count - 1 and perf_counter() < deadline:
        await asyncio.sleep(_TURN)
    before = -1
    while before != len(found.deliveries):  # until nothing more arrives
        before = len(found.deliveries)
        await asyncio.sleep(0.1)
    return found
