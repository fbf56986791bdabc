"""Many deliveries of one batch to one queue, as one. Law: a run is written as its deliveries would be, byte by byte.

An event that goes to many connections is copied from the batch into the frames of each, and no object is made for any
of them. Only first deliveries are in a run, of events that go out as they were matched.
"""

from __future__ import annotations

import numpy as np
from msgspec import Raw

from weft.broker.frames import MAX_FRAME
from weft.broker.messages import Deliver, QueueNumber
from weft.broker.tail import EventBatch
from weft.kernels.deliveries import measure_frames, write_frames

_TAG = Deliver.__struct_config__.tag


class BatchBytes:
    """The heads and the payloads of a batch, each in one piece, with where each of them begins and the last one ends.

    It takes as much memory as the batch again, so it is not kept with it: see `RecentBytes`.
    """

    __slots__ = ("_sizes", "batch", "head_bytes", "heads", "payload_bytes", "payloads")

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        self.heads, self.head_bytes = _joined(batch.heads)
        self.payloads, self.payload_bytes = _joined(batch.payloads)
        self._sizes = np.array(batch.sizes, np.int64)

    def __len__(self) -> int:
        return len(self.head_bytes) + len(self.payload_bytes)

    def sizes(self, low: int, high: int) -> list[int]:
        """The bytes of the events of some frames."""
        events = self.batch.frames.columns[0][low:high]
        return self._sizes[events].tolist()  # type: ignore[no-any-return]


def _joined(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    begins = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=begins[1:])
    return begins, np.frombuffer(b"".join(parts), np.uint8)


class RecentBytes:
    """The bytes of the batches that were sent last, for queues that are a little behind. Law: the latest one is kept,
    and others as long as all together have no more than `most` bytes.
    """

    def __init__(self, most: int = 4 << 20) -> None:
        self._most = most
        self._kept: dict[int, BatchBytes] = {}  # by where the batch is in memory; the latest last
        self._size = 0  # bytes of all

    def of(self, batch: EventBatch) -> BatchBytes:
        """The bytes of a batch. Cost: O(1) for one that is kept."""
        known = self._kept.get(id(batch))
        if known is not None:
            return known
        made = self._kept[id(batch)] = BatchBytes(batch)
        self._size += len(made)
        while self._size > self._most and len(self._kept) > 1:
            self._size -= len(self._kept.pop(next(iter(self._kept))))
        return made


class DeliveryRun:
    """Frames `low` to `high` of a batch for the queue that a client knows by a number."""

    __slots__ = ("_bytes", "batch", "durable", "high", "low", "queue")

    def __init__(self, queue: QueueNumber, whole: BatchBytes, low: int, high: int, *, durable: bool = True) -> None:
        self.queue = queue
        self.batch = whole.batch
        self.low, self.high = low, high
        self.durable = durable
        self._bytes = whole

    def __len__(self) -> int:
        return self.high - self.low

    def deliveries(self) -> list[Deliver]:
        """The same as messages."""
        return first_deliveries(self.queue, self.batch, self.low, self.high, durable=self.durable)

    @property
    def last(self) -> Deliver:
        """The last delivery."""
        return first_deliveries(self.queue, self.batch, self.high - 1, self.high, durable=self.durable)[0]

    def frames(self) -> bytes | None:
        """The deliveries as bytes; None if one of them may be longer than a frame."""
        batch, whole = self.batch, self._bytes
        events, starts = batch.frames.columns
        measured = np.empty(2, np.int64)
        measure_frames(self.low, self.high, events, starts, whole.heads, whole.payloads, measured)
        most, longest = measured.tolist()
        if longest > MAX_FRAME:
            return None
        first = batch.first if self.durable else 0
        fields = np.array([_TAG, self.queue, first, self.durable, batch.at], np.int64)
        out = np.empty(most, np.uint8)
        packed = np.frombuffer(batch.frames.packed, np.uint8)
        size = write_frames(
            self.low,
            self.high,
            events,
            starts,
            packed,
            whole.heads,
            whole.head_bytes,
            whole.payloads,
            whole.payload_bytes,
            fields,
            out,
        )
        return out[:size].tobytes()


def first_deliveries(
    queue: QueueNumber, batch: EventBatch, low: int, high: int, *, durable: bool = True
) -> list[Deliver]:
    """The deliveries of some frames of a batch, one by one, for the first time."""
    frames, first, at = batch.frames, batch.first, batch.at
    starts, packed, heads, payloads = frames.starts, frames.packed, batch.heads, batch.payloads
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
