"""The log of a running broker, read by offset over the network. Law: the events between two offsets are those that the
log has, in order; if some of them were removed, that is an error and not a gap.

Reading is a request of its own, and not a subscription: it changes nothing at the broker or its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from weft.client.sync import SyncClient
from weft.errors import LogError
from weft.model.schema import Schema
from weft.protocol.messages import History
from weft.spark.broker_target import BrokerTarget
from weft.spark.log_columns import LogEvent


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """The log of a broker at an address."""

    target: BrokerTarget
    patient: bool = False  # whether a broker that is away is waited for, as long as the target says

    def position(self) -> tuple[str, int, int]:
        """The log's id, the offset of the oldest event that is stored, and the next offset. Raises BrokerError."""
        with self._connect() as client:
            page = client.read_history(0, 0)
        return page.log_id, page.oldest, page.end

    def schema(self) -> Schema | None:
        """Unknown: types are those that the events have."""
        return None

    def read(self, first: int, end: int) -> Iterator[LogEvent]:
        """The events from one offset to before another, in order; events that were removed are passed over."""
        yield from self._read(first, end, strict=False)

    def read_all(self, first: int, end: int) -> Iterator[LogEvent]:
        """The same. Raises LogError if some of them were removed."""
        yield from self._read(first, end, strict=True)

    def check_stored(self, first: int, end: int) -> str:
        """The log's id. Raises LogError if events from an offset on, before another, are no longer stored."""
        log_id, oldest, _ = self.position()
        if first < min(oldest, end):
            raise _removed(first, min(oldest, end))
        return log_id

    def _read(self, first: int, end: int, strict: bool) -> Iterator[LogEvent]:
        if first >= end:
            return
        for page in self._pages(first, end):
            if strict and first < min(page.oldest, end):
                raise _removed(first, min(page.oldest, end))
            for event in page.events:
                yield LogEvent(event.offset, event.at, None, bytes(event.head), event.payload)
            first = page.next

    def _pages(self, first: int, end: int) -> Iterator[History]:
        """The pages from one offset to before another, at least one; none of events that are not stored yet."""
        log_id = ""
        with self._connect() as client:
            while True:
                page = client.read_history(first, end)
                if log_id not in ("", page.log_id):
                    raise LogError("the log of the broker was replaced while it was read: use another checkpoint")
                yield page
                first, log_id = page.next, page.log_id
                if first >= min(end, page.end):
                    return

    def _connect(self) -> AbstractContextManager[SyncClient]:
        return self.target.connect(retry_for=self.target.patience if self.patient else 0.0)


def _removed(first: int, end: int) -> LogError:
    return LogError(
        f"the events from offset {first} to {end - 1} were removed from the log before they were read; set the option "
        "failOnDataLoss to false to go on without them"
    )
