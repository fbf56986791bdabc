"""The log of a running broker, read by offset over the network. Law: the events between two offsets are those that the
log has, in order; if some of them were removed, that is an error and not a gap.

Each reader has a session of its own, with a subscription to everything since an offset, for as long as it reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from weft.broker.messages import (
    Accepted,
    Ack,
    AskStatus,
    Deliver,
    Failed,
    Gap,
    QueueNumber,
    StatusReport,
    SubNumber,
    Subscribe,
    Unsubscribe,
)
from weft.broker.status import BrokerStatus
from weft.errors import AccessError, BrokerError, LogError
from weft.log.base import Offset
from weft.model.schema import Schema
from weft.net.blocking_connection import BlockingConnection
from weft.spark.broker_target import BrokerTarget
from weft.spark.log_columns import LogEvent

_decode = msgspec.msgpack.Decoder(BrokerStatus).decode
_WINDOW, _BYTES = 10_000, 8 << 20  # events, and bytes, that are on their way
_LOOK = 1.0  # seconds of silence after which the broker is asked whether more will come
_QUEUES = 200  # that a broker tells of, at most
_FORGET = 60  # seconds after which the broker forgets a reader that was killed
_SUB, _QUEUE = SubNumber(1), QueueNumber(1)


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """The log of a broker at an address."""

    target: BrokerTarget

    def position(self) -> tuple[str, int, int]:
        """The log's id, the offset of the oldest event that is stored, and the next offset. Raises BrokerError."""
        with self.target.connect("") as connection:
            status = _status(connection, 0)
        return status.log_id, status.first, status.end

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
        name = f"{self.target.name or 'spark'}-read-{uuid.uuid4().hex}"
        windows = {"window_events": _WINDOW, "window_bytes": _BYTES}
        with self.target.connect(name, expires=_FORGET, **windows) as connection:
            connection.send([Subscribe(_SUB, "TRUE", _QUEUE, durable=True, since=Offset(first))])
            yield from _events(connection, name, end, strict, self.target.patience)
            connection.send([Unsubscribe(_SUB)])


def _events(connection: BlockingConnection, name: str, end: int, strict: bool, patience: float) -> Iterator[LogEvent]:
    floor = acknowledged = silent = 0
    while True:
        try:
            message = connection.receive(_LOOK)
        except TimeoutError:
            if floor > acknowledged:
                connection.send([Ack(_QUEUE, Offset(floor))])
                acknowledged = floor
            done = is_delivered(_status(connection, _QUEUES), name)
            if done:
                return
            silent = silent + 1 if done is None else 0
            if silent * _LOOK > patience:
                raise BrokerError(
                    f"the broker does not tell whether events up to offset {end - 1} are still to come: many queues "
                    "are further behind than this reader; try again, or read the log from its directory"
                ) from None
            continue
        match message:
            case Deliver(offset=offset) if offset:
                if offset < end:
                    yield LogEvent(offset, message.at, None, bytes(message.head), message.payload)
                floor, silent = offset + 1, 0
                if floor >= end:
                    return
                if floor - acknowledged >= _WINDOW // 4:
                    connection.send([Ack(_QUEUE, Offset(floor))])
                    acknowledged = floor
            case Gap(_, first, after) if strict and first < end:
                raise _removed(first, min(after, end))
            case Gap(_, _, after):
                floor = max(floor, after)
                if floor >= end:
                    return
            case Failed(_, _, code, reason):
                raise AccessError(f"the log cannot be read ({code}): {reason}")
            case Accepted():
                pass


def is_delivered(status: BrokerStatus, name: str) -> bool | None:
    """Whether the reader of this name has everything: offsets may be skipped, so the last of a range may never come.

    None if the broker does not tell, because so many other queues are further behind.
    """
    if status.pending:
        return False
    mine = [queue for queue in status.furthest if queue.session == name]
    told = mine or status.furthest[-1:]  # no queue that is left out is further behind than the last
    done = bool(told) and all(queue.behind == 0 and queue.open == 0 for queue in told)
    return done if mine or done else None


def _status(connection: BlockingConnection, queues: int) -> BrokerStatus:
    """How the broker is; deliveries that come before the answer are kept."""
    connection.send([AskStatus(1, queues)])
    message = connection.receive_first(StatusReport, Failed)
    if isinstance(message, StatusReport):
        return _decode(message.body)
    assert isinstance(message, Failed)
    raise AccessError(f"the broker does not report the position of its log ({message.code}): {message.reason}")


def _removed(first: int, end: int) -> LogError:
    return LogError(
        f"the events from offset {first} to {end - 1} were removed from the log before they were read; set the option "
        "failOnDataLoss to false to go on without them"
    )
