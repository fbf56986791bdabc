"""Commands that change the subscriptions of a stream. They take effect in order, each wholly or not at all. One that
cannot be used changes nothing, and is set aside whole, with the reason.

A command is a row: `action` is subscribe, unsubscribe or replace, `id` names the subscription, and `filter` is its text
(not needed to unsubscribe). To subscribe with an id that exists is an error; to replace one that does not exist adds
it; to unsubscribe one that does not exist changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.algebra.box import Box
from weft.errors import FilterTooComplexError, PipelineError
from weft.index.id_names import Id
from weft.index.weight import check_weight
from weft.model.schema import Schema, did_you_mean
from weft.pipeline.attributes import CORRUPT, UNREADABLE
from weft.pipeline.boxes import Boxes, Reading
from weft.spark.events import as_json, check_columns, decodable, quoted
from weft.spark.subscription_changes import SubscriptionChanges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from weft.spark.subscription_versions import SubscriptionVersions

_SORTED_HERE = ("tinyint", "smallint", "int", "bigint", "string", "timestamp", "timestamp_ntz", "date")
_ORDER = "order_"  # begins the names of columns by which commands are ordered
_PLACES = ("action", "id", "filter", "row", "reason")


class Action(StrEnum):
    """What a command does."""

    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    REPLACE = "replace"


class RefusedRow(NamedTuple):
    """A row that could not be used, as JSON, and why."""

    row: str
    reason: str


class CommandResult(NamedTuple):
    """What some commands change, the ids of the dropped, and the commands that were refused."""

    changes: SubscriptionChanges
    dropped_ids: list[Id]
    refused: list[RefusedRow]


@dataclass(frozen=True, slots=True)
class CommandColumns:
    """Which columns of a frame are a command's, and by which column commands are ordered within a micro-batch."""

    numbered: bool  # ids are integers
    order: str | None = None

    @staticmethod
    def of(frame: DataFrame, order: str | None = None) -> CommandColumns:
        """Raises PipelineError if a column is missing or has the wrong type."""
        check_columns(frame, "commands")
        for name in ("action", "id", "filter", *([order] if order else ())):
            if name not in frame.columns:
                known = [each for each in frame.columns if each != CORRUPT]
                hint = did_you_mean(name, known) or f", only {', '.join(known)}"
                raise PipelineError(f"the commands have no column {name!r}{hint}")
        kinds = {name: frame.schema[name].dataType.simpleString() for name in ("action", "id", "filter")}
        for name in ("action", "filter"):
            if kinds[name] != "string":
                raise PipelineError(f"the column {name!r} of the commands is not text: cast it to string")
        if kinds["id"] not in ("tinyint", "smallint", "int", "bigint", "string"):
            raise PipelineError(f"the ids of the commands are of type {kinds['id']}: make them bigint or string")
        return CommandColumns(kinds["id"] != "string", order)

    def projected(self, frame: DataFrame) -> DataFrame:
        """What `gathered` takes: rows as `fold` needs them, and the columns by which they are ordered."""
        from pyspark.sql import functions as sf

        reason = sf.lit(None).cast("string")
        row = as_json([name for name in frame.columns if name not in (CORRUPT, self.order)])
        if CORRUPT in frame.columns:
            broken = sf.col(CORRUPT)
            reason = sf.when(broken.isNotNull(), sf.lit(UNREADABLE))
            row = sf.coalesce(broken, row)
        texts = (decodable(sf.col(name)) for name in ("action", "filter"))
        action, text = texts
        key = sf.col("id").cast("bigint") if self.numbered else decodable(sf.col("id"))
        columns = (action, key, text, sf.make_valid_utf8(row), reason)
        named = [column.alias(name) for name, column in zip(_PLACES, columns, strict=True)]
        orders = [] if self.order is None else _sort_keys(frame, self.order)
        return frame.select(*named, *(key.alias(f"{_ORDER}{place}") for place, key in enumerate(orders)))

    def gathered(self, frame: DataFrame) -> pa.RecordBatch:
        """The commands of a micro-batch, in order, on the driver: what `fold` takes."""
        from pyspark.sql import functions as sf

        orders = [name for name in frame.columns if name.startswith(_ORDER)]
        sorted_here = all(frame.schema[name].dataType.simpleString() in _SORTED_HERE for name in orders)
        if not sorted_here:
            frame = frame.orderBy(*orders, sf.monotonically_increasing_id())
        found = frame.toArrow()
        if orders and sorted_here and len(found) > 1:  # on Spark, sorting takes several jobs
            found = found.take(_in_order([found[name] for name in orders]))
        batches = found.select(list(_PLACES)).combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=found.select(list(_PLACES)).schema)


def fold(commands: pa.RecordBatch, versions: SubscriptionVersions, schema: Schema | None = None) -> CommandResult:
    """What commands change together. Cost: that of reading their filters."""
    actions = commands.column("action").to_pylist()
    refused: dict[int, str] = {}
    wanting: list[int] = []  # rows that need a filter
    keys: list[Any] = commands.column("id").to_pylist()
    for row, (action, key, reason) in enumerate(zip(actions, keys, commands.column("reason").to_pylist(), strict=True)):
        wrong = reason or _wrong(action, key)
        if wrong is not None:
            refused[row] = wrong
        elif action != Action.UNSUBSCRIBE:
            wanting.append(row)
    reading = Reading("id", "filter", schema=schema, numbered=versions.numbered)
    boxes, unread = reading.read(commands.take(pa.array(wanting, pa.int64())))
    refused |= {wanting[at]: reason for at, reason in unread.items()}
    owners = {row: at for at, row in enumerate(row for row in wanting if row not in refused)}
    refused |= {row: heavy[at] for row, at in owners.items() if at in heavy} if (heavy := _too_heavy(boxes)) else {}
    final: dict[Id, int | None] = {}  # the row that has the last word, None for unsubscribe
    for row, action in enumerate(actions):
        if row in refused:
            continue
        key = keys[row]
        if action == Action.SUBSCRIBE:
            there = final[key] is not None if key in final else versions.number_of(key) is not None
            if there:
                refused[row] = f"subscription {key!r} already exists; use replace"
                continue
        final[key] = None if action == Action.UNSUBSCRIBE else row
    dropped = {key: number for key in final if (number := versions.number_of(key)) is not None}
    added = sorted((owners[row], key) for key, row in final.items() if row is not None)
    places = np.array([owner for owner, _ in added], np.int64)
    new_ids: list[Any] = [key for _, key in added]
    changes = SubscriptionChanges(
        np.array(sorted(dropped.values()), np.int64),
        versions.new_numbers(new_ids),
        None if versions.numbered else pa.array(new_ids, pa.string()),
        boxes.columns.of_owners(places),
    )
    rows = commands.column("row")
    return CommandResult(
        changes, list(dropped), [RefusedRow(rows[row].as_py(), refused[row]) for row in sorted(refused)]
    )


def _sort_keys(frame: DataFrame, order: str) -> list[Column]:
    """The columns by which rows are sorted: `order`, or its fields."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    kind, column = frame.schema[order].dataType, sf.col(quoted(order))
    return [column[name] for name in kind.names] if isinstance(kind, StructType) else [column]


def _in_order(columns: list[pa.ChunkedArray[Any]]) -> Any:
    """The places of rows in ascending order, NULLs first, and equal ones as they come."""
    keys: dict[str, Any] = {}
    for place, column in enumerate(columns):
        keys |= {f"known{place}": pc.is_valid(column).cast(pa.int8()), f"value{place}": column}
    by: Any = [(name, "ascending") for name in keys]
    return pc.sort_indices(pa.table(keys), sort_keys=by)


def _too_heavy(boxes: Boxes) -> dict[int, str]:
    """The owners whose filters no index takes, with the reason."""
    held: dict[int, list[Box]] = {}
    for row, box in boxes.columns.odd.items():
        held.setdefault(int(boxes.columns.owners[row]), []).append(box)
    refused = {}
    for owner, some in held.items():
        try:
            check_weight(some)
        except FilterTooComplexError as error:
            refused[owner] = str(error)
    return refused


def _wrong(action: str | None, id: Id | None) -> str | None:
    if action not in list(Action):
        hint = did_you_mean(action or "", Action) or f": use {', '.join(Action)}"
        return f"there is no action {action!r}{hint}"
    return "it has no id" if id is None else None
