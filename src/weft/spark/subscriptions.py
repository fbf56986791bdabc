"""Subscriptions on Spark: texts, bounds or a snapshot. A row that cannot be read is set aside, whole and with the
reason; the others are used.

Texts are columns `id` and `filter`. Bounds are `id` and, for an attribute x, `x_low` and `x_high` (both inclusive,
either may be missing) or `x` itself for equality; NULL means no bound. At least one `_low` or `_high` is required, or a
misspelt `filter` would be taken for an attribute.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.algebra.filter_texts import plain_text
from weft.errors import FilterError, PipelineError
from weft.index.bound_rows import bounds_of
from weft.index.tree import TreeIndex
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.schema import Schema, did_you_mean
from weft.pipeline.attributes import CORRUPT, UNREADABLE
from weft.pipeline.boxes import Boxes, Reading
from weft.pipeline.match_job import FILTER, ID
from weft.pipeline.packed_boxes import PackedBoxes
from weft.pipeline.predicate_settings import environment_predicates
from weft.pipeline.subscription_rows import DUPLICATE, as_texts, read_pieces, repeated_ids
from weft.spark.events import as_json, check_columns, decodable, quoted
from weft.spark.local_tables import read_local

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

ERRORS = "row string, reason string"
_FEW_BOUNDS = 16  # attributes; tables with more are mostly empty, and leave the executors without what is not there


class IdCensus(NamedTuple):
    """How many rows there are, and how many of them share their id with another."""

    rows: int
    repeated: int


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Rows of subscriptions, the names of the columns that are read (the id first), and how they are read."""

    frame: DataFrame
    names: tuple[str, ...]
    reading: Reading

    @property
    def id_type(self) -> DataType:
        """The type of ids: bigint or string."""
        from pyspark.sql.types import LongType, StringType

        return LongType() if self.reading.numbered else StringType()

    def columns(self) -> DataFrame:
        """The columns that are read, by their places, and no others."""
        return self.frame.select(*self._places())

    def gathered(self) -> tuple[Boxes, int]:
        """All boxes, on the driver, and the number of rows that could not be used."""
        plain = self.reading.bounds is not None and len(self.reading.bounds) <= _FEW_BOUNDS
        boxes, others = self._bounded() if plain else self._parsed()
        if boxes is None:
            return Boxes.none(self.reading.numbered), 0
        twice = repeated_ids(pa.concat_arrays([boxes.ids, others.drop_null()]))
        if not len(twice):
            return boxes, len(others)
        once = np.flatnonzero(~pc.is_in(boxes.ids, twice).to_numpy(zero_copy_only=False))
        return boxes.of_owners(once), len(others) + len(boxes) - len(once)

    def _parsed(self) -> tuple[Boxes | None, Any]:
        """Texts, which the executors parse, and the ids of those that are not filters."""
        rows = self.columns().mapInArrow(partial(_packed, self.reading), "boxes binary, others binary").toArrow()
        boxes, others = (cast("list[bytes]", column.to_pylist()) for column in rows.columns)
        if not boxes:
            return None, None
        unread = [pickle.loads(ids) for ids in others]
        return PackedBoxes.joined(map(PackedBoxes.from_bytes, boxes)).boxes(), pa.concat_arrays(unread)

    def _bounded(self) -> tuple[Boxes | None, Any]:
        """Few bounds, of which there is nothing to parse: they come as they are."""
        table = read_local(self.frame, self.names)
        if table is None:
            table = self.columns().toArrow()
        named = table.rename_columns([f"c{place}" for place in range(len(self.names))])
        read = [part for batch in named.combine_chunks().to_batches() for part in read_pieces(self.reading, batch)]
        if not read:
            return None, None
        boxes = read[0][0] if len(read) == 1 else PackedBoxes.joined(PackedBoxes.of(part) for part, _ in read).boxes()
        return boxes, pa.concat_arrays([ids for _, ids in read])

    def census(self) -> IdCensus:
        """How many rows there are, and how many of them share their id with another.

        Cost: one job, unless the driver can read the ids itself and they are numbers.
        """
        from pyspark.sql import functions as sf

        if self.reading.numbered and (table := read_local(self.frame, self.names[:1])) is not None:
            ids: Any = table.column(0).drop_null().combine_chunks()
            return IdCensus(table.num_rows, pc.is_in(ids, repeated_ids(ids)).true_count)
        key = sf.col(quoted(self.names[0])).alias(ID)
        each = self.frame.select(key).groupBy(ID).count()
        repeated = (sf.col("count") > 1) & sf.col(ID).isNotNull()
        row = each.agg(sf.sum("count"), sf.sum(sf.when(repeated, sf.col("count")))).head()
        assert row is not None
        return IdCensus(int(row[0] or 0), int(row[1] or 0))

    def once(self, census: IdCensus | None = None) -> Subscriptions:
        """Those with a unique id."""
        if not (census or self.census()).repeated:
            return self
        twice, known = self._twice()
        return replace(self, frame=self.frame.join(twice, known, "left_anti"))

    def errors(self) -> DataFrame:
        """The rows that cannot be used, as `row` (JSON) and `reason`."""
        from pyspark.sql import functions as sf

        frame = self.frame
        if CORRUPT in frame.columns:
            frame = frame.where(sf.col(CORRUPT).isNull()).drop(CORRUPT)
        whole = as_json(frame.columns).alias("row")
        rows = frame.select(whole, sf.struct(*self._places()).alias("it"))
        unread = rows.mapInArrow(partial(_errors, self.reading), ERRORS)
        again = frame.join(*self._twice(), "left_semi").select(whole, sf.struct(*self._places()).alias("it"))
        found = unread.unionByName(again.mapInArrow(partial(_repeated, self.reading), ERRORS))
        if CORRUPT in self.frame.columns:
            lines = self.frame.where(sf.col(CORRUPT).isNotNull())
            found = found.unionByName(lines.select(sf.col(CORRUPT).alias("row"), sf.lit(UNREADABLE).alias("reason")))
        return found

    def _places(self) -> list[Column]:
        from pyspark.sql import functions as sf

        return [sf.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(self.names)]

    def _twice(self) -> tuple[DataFrame, Column]:
        """The ids of more than one, and what joins them."""
        from pyspark.sql import functions as sf

        name = "__weft_id"
        while name in self.frame.columns:
            name += "_"
        key, again = sf.col(quoted(self.names[0])), sf.col(name)
        ids = self.frame.where(key.isNotNull()).select(key.alias(name))
        return ids.groupBy(again).count().where(sf.col("count") > 1).select(again), key == again

    def filters(self, most: int) -> list[tuple[int | str, Filter]]:
        """The ids and filters of those that can be read, here on the driver. Raises PipelineError past `most` rows."""
        found: list[tuple[int | str, Filter]] = []
        rows = self.once().texts().limit(most + 1).collect()
        if len(rows) > most:
            raise PipelineError(f"the strategy sql takes at most {most:,} subscriptions: use another strategy")
        for row in rows:
            try:
                if row[ID] is not None and row[FILTER] is not None:
                    found.append((row[ID], parse(plain_text(row[FILTER]), environment_predicates())))
            except FilterError:
                continue  # `errors` has it
        return found

    def texts(self) -> DataFrame:
        """The rows as `id` and `filter`, a text."""
        from pyspark.sql import functions as sf

        if self.reading.filter is not None:
            key, text = (sf.col(quoted(name)) for name in self.names)
            return self.frame.select(key.cast(self.id_type).alias(ID), decodable(text).alias(FILTER))
        form = f"{ID} {self.id_type.simpleString()}, {FILTER} string"
        return self.columns().mapInArrow(partial(as_texts, self.reading), form)


def subscriptions(
    source: DataFrame | Subscriptions | str | Path,
    schema: Schema | None = None,
    *,
    id: str = ID,
    filter: str = FILTER,
) -> Subscriptions | Path:
    """Find out what a source is: rows of texts or of bounds, or the folder of a snapshot. Raises PipelineError."""
    if isinstance(source, Subscriptions):
        return source
    if isinstance(source, str | Path):
        TreeIndex.open(source, predicates=environment_predicates())
        if schema is not None:
            raise PipelineError("a snapshot has its own schema: omit the schema")
        return Path(source)
    check_columns(source, "subscriptions")
    if source.isStreaming:
        raise PipelineError("the subscriptions are a stream: use match_stream, whose commands change subscriptions")
    names = source.columns
    if id not in names:
        shown = [name for name in names if name != CORRUPT]
        hint = did_you_mean(id, shown) or f", only {', '.join(shown)}"
        raise PipelineError(f"the subscriptions have no column {id!r}{hint}: rename one, or name it")
    kind = source.schema[id].dataType.simpleString()
    if kind not in ("tinyint", "smallint", "int", "bigint", "string"):
        raise PipelineError(f"the ids of subscriptions are of type {kind}: make them bigint or string")
    if CORRUPT in names:  # what a broken line seems to say is not taken
        from pyspark.sql import functions as sf

        source = source.withColumn(id, sf.when(sf.col(CORRUPT).isNull(), sf.col(quoted(id))))
    if filter in names:
        if source.schema[filter].dataType.simpleString() != "string":
            raise PipelineError(f"the column {filter!r} is not text: cast it to string")
        return Subscriptions(source, (id, filter), Reading("c0", "c1", schema=schema, numbered=kind != "string"))
    read = [id, *(name for name in names if name not in (id, CORRUPT))]
    bounds = bounds_of((name, f"c{place}") for place, name in enumerate(read[1:], 1))
    if not any(ends.low or ends.high for ends in bounds.values()):
        hint = did_you_mean(filter, names)
        raise PipelineError(
            f"the subscriptions have neither a column {filter!r} of text nor bounds such as x_low and x_high{hint}"
        )
    for name in read[1:]:
        _check_bound(name, source.schema[name].dataType)
    return Subscriptions(source, tuple(read), Reading("c0", bounds=bounds, schema=schema, numbered=kind != "string"))


def _check_bound(name: str, kind: DataType) -> None:
    from pyspark.sql import types as st

    fine = (st.NumericType, st.StringType, st.BooleanType, st.TimestampType, st.TimestampNTZType, st.DateType)
    if not isinstance(kind, fine):
        raise PipelineError(f"the column {name!r} is of type {kind.simpleString()}, which cannot be a bound: drop it")


# -- on the executors: ordinary functions over batches --------------------------------------------------


def _packed(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read = [(PackedBoxes.of(part), ids) for part, ids in read_pieces(reading, batch)]
        boxes = PackedBoxes.joined(part for part, _ in read).to_bytes()
        others = pickle.dumps(pa.concat_arrays([ids for _, ids in read]), protocol=5)
        yield pa.record_batch({"boxes": pa.array([boxes], pa.binary()), "others": pa.array([others], pa.binary())})


def _errors(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: Any = batch.column("it")
        _, refused = reading.read(pa.RecordBatch.from_struct_array(rows))
        texts = batch.column("row").take(pa.array(list(refused), pa.int64()))
        yield pa.record_batch({"row": texts, "reason": pa.array(list(refused.values()), pa.string())})


def _repeated(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that only have another's id; those that cannot be read are errors for that already."""
    for batch in batches:
        rows: Any = batch.column("it")
        _, refused = reading.read(pa.RecordBatch.from_struct_array(rows))
        texts = batch.column("row").take(np.delete(np.arange(batch.num_rows), list(refused)))
        yield pa.record_batch({"row": texts, "reason": pa.array([DUPLICATE] * len(texts), pa.string())})
