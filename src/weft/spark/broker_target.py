"""Rows published into a broker, by the driver or by tasks. Law: rows that are published again in the same order, for
the same query, partition and micro-batch, are stored once.

The name of the client is that of the query and the partition; the epoch is the micro-batch, and the position the row.
A broker that is away, while it restarts for example, is waited for as long as `patience` says. Then the task or the
micro-batch fails, and can be run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa

from weft.client.engine import ClientEngine
from weft.client.events import outgoing
from weft.client.options import connection_policy
from weft.client.publisher import UnconfirmedEvent
from weft.client.sync import SyncClient
from weft.errors import AccessError, BrokerError, ConnectError, EventError, PipelineError, PublishError
from weft.model.event import Event
from weft.spark.log_columns import ABOUT_LOG, CONTENT_TYPE, PAYLOAD

_KEPT = 30 * 24 * 3600  # seconds that the broker remembers what a query published
_PAUSE = 0.2  # seconds between attempts to connect
_WINDOW, _BYTES = 10_000, 8 << 20  # events, and bytes, that may be on their way to a reader


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """A broker, and the credentials of a publisher. `name` is the query's, and begins the names of its sessions."""

    address: str
    name: str
    token: str = ""
    token_file: str = ""
    authority: str = ""  # a file of certificates
    patience: float = 30.0  # seconds that the broker may be silent, or away

    @contextmanager
    def connect(self, name: str = "", *, retry_for: float = 0.0) -> Iterator[SyncClient]:
        """A client, closed at the end of the block. Raises BrokerError or AccessError.

        It tries to connect, and to connect again, for so many seconds.
        """
        token = Path(self.token_file).read_text(encoding="utf-8").strip() if self.token_file else self.token
        beat = min(10.0, self.patience / 3)
        policy = connection_policy(
            self.address, token, None, self.authority or None, None, self.patience, beat, retry_for
        )
        policy = replace(policy, window_events=_WINDOW, window_bytes=_BYTES)
        end = monotonic() + retry_for
        while True:
            client = SyncClient(ClientEngine(policy, name, expires=_KEPT))
            try:
                client.__enter__()
                break
            except ConnectError as error:
                if error.code:
                    raise AccessError(str(error)) from error
                if monotonic() >= end:
                    raise BrokerError(f"{self.address} cannot be reached; is a broker running? ({error})") from error
            sleep(_PAUSE)
        try:
            yield client
        finally:
            client.close()

    def publish(self, partition: int, batch: int, events: Iterable[UnconfirmedEvent]) -> int:
        """Publish the events of one partition of a micro-batch; returns how many are new to the broker.

        Raises EventError if the broker refuses an event, and BrokerError if the broker stays away.
        """
        with self.connect(f"{self.name}-{partition}", retry_for=self.patience) as client:
            try:
                return client.publish_epoch(batch + 1, events)
            except PublishError as error:
                at = min(error.refused)
                why = f"the broker refused event {at + 1} ({error.code}): {error.refused[at]}"
                raise EventError(why, position=at) from error


def events_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[UnconfirmedEvent]:
    """Events with a row's columns as attributes, without NULLs; `_payload` and `_content_type` are what they say."""
    for batch in batches:
        for row in batch.to_pylist():
            payload, content_type = row.get(PAYLOAD) or b"", row.get(CONTENT_TYPE) or ""
            attributes = {name: value for name, value in row.items() if value is not None and name not in ABOUT_LOG}
            yield outgoing(Event.of(attributes), payload, content_type)


def in_order(batches: Iterable[pa.RecordBatch], column: str = "") -> list[UnconfirmedEvent]:
    """The events of rows, by a column if one is named, and then by what is in them: the same rows, the same order."""
    rows: list[tuple[tuple[Any, ...], bytes, bytes, UnconfirmedEvent]] = []
    for batch in batches:
        values = batch.column(column).to_pylist() if column else [None] * batch.num_rows
        for value, event in zip(values, events_of_rows([batch]), strict=True):
            rows.append((() if value is None else (value,), bytes(event.attributes), event.payload, event))
    rows.sort(key=lambda row: row[:3])
    return [event for *_, event in rows]


def check_publishable(columns: Iterable[tuple[str, Any]]) -> None:
    """Raise PipelineError for a column that cannot be an attribute."""
    for name, kind in columns:
        if name not in ABOUT_LOG and kind.typeName() in ("array", "map", "binary", "variant"):
            raise PipelineError(f"the column {name!r} of type {kind.simpleString()} cannot be an attribute: drop it")
