"""The events of a broker's log as columns. A row is one event; a value of another type than its column is NULL, as
under a schema.

Besides the attributes there are columns about the log: `_offset`, `_at` (when it was stored), `_session`, `_epoch` and
`_sequence` (its publisher's), `_content_type` and `_payload`. An event that cannot be decoded is a row with its text in
`_corrupt_record`, if there is such a column; without one it is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from weft.broker.admission import read_head
from weft.errors import LogError, PipelineError
from weft.log.base import StoredGroup
from weft.model.schema import Schema
from weft.model.value import Type
from weft.pipeline.attributes import CORRUPT
from weft.protocol.messages import Head

OFFSET, PAYLOAD, CONTENT_TYPE = "_offset", "_payload", "_content_type"
_ABOUT: dict[str, tuple[str, Any]] = {  # name -> the type for Spark, and for Arrow
    OFFSET: ("bigint", pa.int64()),
    "_at": ("timestamp", pa.timestamp("us", "UTC")),
    "_session": ("bigint", pa.int64()),
    "_epoch": ("bigint", pa.int64()),
    "_sequence": ("bigint", pa.int64()),
    CONTENT_TYPE: ("string", pa.string()),
    PAYLOAD: ("binary", pa.binary()),
    CORRUPT: ("string", pa.string()),
}
ABOUT_LOG = frozenset(_ABOUT)
_ATTRIBUTES: dict[Type, tuple[str, Any, tuple[type, ...]]] = {  # for Spark, for Arrow, and of Python
    Type.INT: ("bigint", pa.int64(), (int,)),
    Type.FLOAT: ("double", pa.float64(), (float, int)),
    Type.STRING: ("string", pa.string(), (str,)),
    Type.BOOL: ("boolean", pa.bool_(), (bool,)),
    Type.TIMESTAMP: ("timestamp", pa.timestamp("us", "UTC"), (datetime,)),
}
_KINDS = {spark: kind for kind, (spark, _, _) in _ATTRIBUTES.items()}
_ROWS = 50_000  # of a batch, at most


class LogEvent(NamedTuple):
    """An event of a log, wherever it was read."""

    offset: int
    at: int  # UTC microseconds
    origin: tuple[int, int, int] | None  # session, epoch, sequence; a broker does not tell it over the network
    head: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The columns that are wanted: those about the log by their names, the others by name and type."""

    about: tuple[str, ...]
    attributes: tuple[tuple[str, Type], ...]
    order: tuple[str, ...]

    @staticmethod
    def of(columns: Sequence[tuple[str, str]]) -> LogColumns:
        """From names and Spark's types. Raises PipelineError for a type that no attribute has."""
        about, attributes = [], []
        for name, kind in columns:
            if name in _ABOUT:
                if kind != _ABOUT[name][0]:
                    raise PipelineError(f"the column {name!r} of a log is of type {_ABOUT[name][0]}, not {kind}")
                about.append(name)
            elif kind in _KINDS:
                attributes.append((name, _KINDS[kind]))
            else:
                known = ", ".join(_KINDS)
                raise PipelineError(f"the column {name!r} is of type {kind}: attributes are of type {known}")
        return LogColumns(tuple(about), tuple(attributes), tuple(name for name, _ in columns))

    @staticmethod
    def all(types: dict[str, Type]) -> LogColumns:
        """All columns about the log, and these attributes."""
        taken = [name for name in types if name in _ABOUT]
        if taken:
            raise PipelineError(f"the events have an attribute {taken[0]!r}, a column about the log: give a schema")
        return LogColumns(tuple(_ABOUT), tuple(types.items()), (*types, *_ABOUT))

    def ddl(self) -> str:
        """The columns as Spark's text."""
        kinds = {name: kind for name, (kind, _) in _ABOUT.items()}
        kinds |= {name: _ATTRIBUTES[kind][0] for name, kind in self.attributes}
        return ", ".join(f"`{name.replace('`', '``')}` {kinds[name]}" for name in self.order)

    def batches(self, events: Iterable[LogEvent]) -> Iterator[pa.RecordBatch]:
        """The events as batches of rows. Cost: some microseconds an event."""
        some: list[LogEvent] = []
        for event in events:
            some.append(event)
            if len(some) == _ROWS:
                yield self.batch(some)
                some = []
        if some:
            yield self.batch(some)

    def batch(self, events: Sequence[LogEvent]) -> pa.RecordBatch:
        """Some events as rows. Raises LogError if one cannot be decoded and there is no column for broken ones."""
        heads, broken = self._decoded(events)
        found: dict[str, Any] = {}
        for name, kind in self.attributes:
            _, arrow, fine = _ATTRIBUTES[kind]
            values = [head.attributes.get(name) for head in heads]
            found[name] = pa.array([_fitting(value, fine, kind) for value in values], arrow)
        for name in self.about:
            found[name] = self._about(name, events, heads, broken)
        return pa.record_batch([found[name] for name in self.order], names=list(self.order))

    def _decoded(self, events: Sequence[LogEvent]) -> tuple[list[Head], list[str | None]]:
        heads: list[Head] = []
        broken: list[str | None] = [None] * len(events)
        for place, event in enumerate(events):
            try:
                heads.append(read_head(event.head))
            except (msgspec.MsgspecError, ValueError) as error:
                if CORRUPT not in self.about:
                    raise LogError(f"the event at offset {event.offset} cannot be decoded: {error}") from error
                heads.append(Head({}))
                broken[place] = f"the event at offset {event.offset}: {event.head.hex()}"
        return heads, broken

    def _about(self, name: str, events: Sequence[LogEvent], heads: Sequence[Head], broken: list[str | None]) -> Any:
        arrow = _ABOUT[name][1]
        if name in ("_session", "_epoch", "_sequence"):
            place = ("_session", "_epoch", "_sequence").index(name)
            return pa.array([None if event.origin is None else event.origin[place] for event in events], arrow)
        match name:
            case "_offset":
                return pa.array([event.offset for event in events], arrow)
            case "_at":
                return pa.array(np.array([event.at for event in events], np.int64)).cast(arrow)
            case "_payload":
                return pa.array([event.payload for event in events], arrow)
            case "_content_type":
                return pa.array([head.datacontenttype or None for head in heads], arrow)
        return pa.array(broken, arrow)


def events_of(group: StoredGroup) -> Iterator[LogEvent]:
    """The events of a stored group."""
    events = group.events
    origins: list[list[int]] = events.origins.tolist()
    rows = zip(origins, events.heads, events.payloads, strict=True)
    for place, (origin, head, payload) in enumerate(rows):
        if origin[0] < 0:
            continue  # a copy for a session that has moved to this broker
        yield LogEvent(events.first + place, group.at, (origin[0], origin[1], origin[2]), head, payload)


def inferred(events: Iterable[LogEvent], schema: Schema | None = None) -> dict[str, Type]:
    """The attributes of events and their types, as declared or as found. Raises PipelineError if they do not agree."""
    if schema is not None:
        return {name: schema[name].type for name in schema}
    types: dict[str, Type] = {}
    for event in events:
        for name, value in read_head(event.head).attributes.items():
            kind = _kind(value)
            if kind is None:
                continue
            before = types.setdefault(name, kind)
            if before is not kind:
                if {before, kind} != {Type.INT, Type.FLOAT}:
                    raise PipelineError(
                        f"the attribute {name!r} is {before} in some events and {kind} in others: give a schema"
                    )
                types[name] = Type.FLOAT
    return types


def _kind(value: Any) -> Type | None:
    for kind, (_, _, fine) in _ATTRIBUTES.items():
        if type(value) is fine[0]:
            return kind
    return None


def _fitting(value: Any, fine: tuple[type, ...], kind: Type) -> Any:
    """A value if it is of its column's type, else None."""
    if type(value) not in fine:
        return None
    if kind is Type.FLOAT:
        return float(value)
    if kind is Type.TIMESTAMP and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
