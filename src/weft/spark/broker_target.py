"""Rows published into a broker, by the driver or by tasks. Law: rows that are published again in the same order, for
the same query, partition and micro-batch, are stored once.

The session is that of the query and the partition, the epoch that of the micro-batch, and the number that of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from weft.broker.messages import Hello, Publish
from weft.errors import PipelineError
from weft.model.event import Event
from weft.net.blocking_connection import BlockingConnection
from weft.net.numbered_publisher import NumberedPublisher
from weft.net.tls import client_context
from weft.spark.log_columns import ABOUT_LOG, CONTENT_TYPE, PAYLOAD

_KEPT = 30 * 24 * 3600  # seconds that the broker remembers what a query published


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """A broker, and the credentials of a publisher. `name` is the query's, and begins the names of its sessions."""

    address: str
    name: str
    token: str = ""
    token_file: str = ""
    authority: str = ""  # a file of certificates
    patience: float = 30.0

    def hello(self, session: str) -> Hello:
        """How a session begins."""
        token = Path(self.token_file).read_text(encoding="utf-8").strip() if self.token_file else self.token
        return Hello(session=session, credentials=token.encode(), expires=_KEPT)

    def connect(self, session: str, **options: int) -> BlockingConnection:
        """A connection; the options are those of `Hello`. Raises BrokerError or AccessError."""
        tls = client_context(Path(self.authority)) if self.authority else None
        hello = msgspec.structs.replace(self.hello(session), **options)
        return BlockingConnection(self.address, hello, tls=tls, patience=self.patience)

    def publish(self, partition: int, batch: int, events: Iterable[Publish]) -> int:
        """Publish the events of one partition of a micro-batch; returns how many are new to the broker."""
        with self.connect(f"{self.name}-{partition}") as connection:
            return NumberedPublisher(connection).publish(batch + 1, events)


def events_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Publish]:
    """Events with a row's columns as attributes, without NULLs; `_payload` and `_content_type` are what they say."""
    for batch in batches:
        for row in batch.to_pylist():
            payload, content_type = row.get(PAYLOAD) or b"", row.get(CONTENT_TYPE) or ""
            attributes = {name: value for name, value in row.items() if value is not None and name not in ABOUT_LOG}
            yield Publish.of(0, Event.of(attributes).attributes, payload, content_type)


def in_order(batches: Iterable[pa.RecordBatch], column: str = "") -> list[Publish]:
    """The events of rows, by a column if one is named, and then by what is in them: the same rows, the same order."""
    rows: list[tuple[tuple[Any, ...], bytes, bytes, Publish]] = []
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
