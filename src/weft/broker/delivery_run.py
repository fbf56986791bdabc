"""Deliveries as bytes: many deliveries of one batch to one queue are one run, written together.

A run is written as its deliveries would be, byte by byte. An event that goes to many connections is copied from the
batch into the frames of each, and no object is made for any of them. The runs of a batch that leave in one turn are
written together. Only first deliveries are in a run, of events that go out as they were matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Raw

from weft.broker.recent import EventBatch
from weft.index.recycled import RESULTS
from weft.kernels.deliveries import measure_frames, write_frames
from weft.log.base import Offset
from weft.protocol.codec import MAX_FRAME, encode
from weft.protocol.link_messages import LinkMessage
from weft.protocol.messages import BrokerMessage, Deliver, QueueNumber

if TYPE_CHECKING:
    from weft.broker.effects import Outgoing

_OBJECTS = 1_000  # bytes of its arrays besides what is in them
_TAG = Deliver.__struct_config__.tag


class BatchBytes:
    """The heads and the payloads of a batch, each in one piece, with where each of them begins and the last one ends.

    It takes as much memory as the batch again, so it is not kept with it: see `RecentBytes`.
    """

    __slots__ = ("_head_bytes", "_heads", "_payload_bytes", "_payloads", "_unwritten", "batch")

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        self._heads, self._head_bytes = _joined(batch.heads)
        self._payloads, self._payload_bytes = _joined(batch.payloads)
        self._unwritten: list[DeliveryRun] = []

    @property
    def weight(self) -> int:
        """Bytes that it takes, roughly, with its batch, which the broker may have forgotten."""
        return _OBJECTS + len(self._head_bytes) + len(self._payload_bytes) + self.batch.weight

    def run(self, queue: QueueNumber, low: int, high: int, *, durable: bool = True) -> DeliveryRun:
        """Frames `low` to `high` for the queue that a client knows by a number."""
        run = DeliveryRun(self, queue, low, high, durable)
        self._unwritten.append(run)
        return run

    def write(self) -> None:
        """Write the runs that are not yet written. None of them is if one of their frames may be too long."""
        runs, self._unwritten = self._unwritten, []
        if not runs:
            return
        batch = self.batch
        events, starts = batch.frames.columns
        table = np.array([(run.low, run.high, run.queue, run.durable) for run in runs], np.int64)
        measured = np.empty(2, np.int64)
        measure_frames(table, events, starts, self._heads, self._payloads, measured)
        most, longest = measured.tolist()
        if longest > MAX_FRAME:
            return
        out, ends = RESULTS.array(most, np.uint8), np.empty(len(runs), np.int64)
        packed = np.frombuffer(batch.frames.packed, np.uint8)
        fields = np.array([_TAG, batch.first, batch.at], np.int64)
        heads, payloads = (self._heads, self._head_bytes), (self._payloads, self._payload_bytes)
        write_frames(table, events, starts, packed, *heads, *payloads, fields, out, ends)
        begin = 0
        for run, end in zip(runs, ends.tolist(), strict=True):
            run.written = out[begin:end].tobytes()
            begin = end


def _joined(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    begins = np.fromiter(accumulate(map(len, parts), initial=0), np.int64, len(parts) + 1)
    return begins, np.frombuffer(b"".join(parts), np.uint8)


class RecentBytes:
    """The bytes of the batches that were sent last, for queues that are a little behind.

    The latest one is kept, and others as long as all, with their batches, take no more than `most` bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[int, BatchBytes] = {}  # by where the batch is in memory; the latest last
        self._weight = 0  # of all

    def of(self, batch: EventBatch) -> BatchBytes:
        """The bytes of a batch. Cost: O(1) for one that is kept."""
        known = self._kept.get(id(batch))
        if known is not None:
            return known
        made = self._kept[id(batch)] = BatchBytes(batch)
        self._weight += made.weight
        while self._weight > self._most and len(self._kept) > 1:
            self._weight -= self._kept.pop(next(iter(self._kept))).weight
        return made


@dataclass(slots=True, eq=False, repr=False)
class DeliveryRun:
    """Frames `low` to `high` of a batch for the queue that a client knows by a number: see `BatchBytes.run`."""

    _bytes: BatchBytes
    queue: QueueNumber
    low: int
    high: int
    durable: bool
    written: bytes | None = None

    def __len__(self) -> int:
        return self.high - self.low

    def deliveries(self) -> list[Deliver]:
        """The same as messages."""
        return first_deliveries(self.queue, self._bytes.batch, self.low, self.high, durable=self.durable)

    @property
    def last(self) -> Deliver:
        """The last delivery."""
        return first_deliveries(self.queue, self._bytes.batch, self.high - 1, self.high, durable=self.durable)[0]

    def frames(self) -> bytes | None:
        """The deliveries as bytes; None if one of them, or of a run that left with it, may be longer than a frame."""
        if self.written is None:
            self._bytes.write()
        return self.written


def first_deliveries(
    queue: QueueNumber, batch: EventBatch, low: int, high: int, *, durable: bool = True
) -> list[Deliver]:
    """The deliveries of some frames of a batch, one by one, for the first time."""
    frames, first, at = batch.frames, batch.first, batch.at
    starts, packed, heads, payloads = frames.starts, frames.packed, batch.heads, batch.payloads
    if high - low == 1:
        event = frames.events[low]
        offset, numbers = Offset(first + event if durable else 0), packed[starts[low] : starts[high]]
        return [Deliver(queue, offset, 1, at, numbers, Raw(heads[event]), payloads[event])]
    return [
        Deliver(
            queue,
            first + event if durable else 0,  # type: ignore[arg-type]  # an Offset; a call for each would be felt
            1,
            at,
            packed[starts[frame] : starts[frame + 1]],
            Raw(heads[event]),
            payloads[event],
        )
        for frame, event in enumerate(frames.events[low:high], low)
    ]


def encode_all(messages: Iterable[Outgoing]) -> bytes:
    """The frames of what a broker sends, runs of deliveries included. Raises as `encode`."""
    parts: list[bytes] = []
    between: list[Any] = []
    for message in messages:
        if type(message) is DeliveryRun:
            written = message.frames()
            if written is None:
                between += message.deliveries()
                continue
            if between:
                parts.append(encode(between))
                between = []
            parts.append(written)
        else:
            between.append(message)
    if between:
        parts.append(encode(between))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def one_by_one(messages: Iterable[Outgoing]) -> Iterator[BrokerMessage | LinkMessage]:
    """The same messages, with each delivery of a run as one of its own."""
    for message in messages:
        if isinstance(message, DeliveryRun):
            yield from message.deliveries()
        else:
            yield message
