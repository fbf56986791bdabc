"""Matching when the subscriptions are too many for one machine: events and subscriptions meet by ranges of a curve.
Laws: every event is in one group; a subscription is in every group where an event that it matches may be, so that each
pair is found, and found once; matching in a group is exact, on the values themselves.

The curve goes through a few attributes that tell most, in cells of equal depth by a sample of both sides. Groups are
ranges of it that hold about as much each; a place where more events are than a group should have is several groups,
each with a share of the events, by what is in them, and all of the subscriptions. What reaches into very many groups is
indexed apart, once for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weft.algebra.columns import BoxColumns
from weft.errors import SchemaError
from weft.kernels.arrays import Ints
from weft.model.schema import Schema
from weft.space.content import ContentSpace
from weft.space.dimension import GridDimension
from weft.space.grid import Grid
from weft.space.projection import choose
from weft.spark.boxes import Boxes, Reading
from weft.spark.events import attributes, by_place
from weft.spark.executor_lookup import match_batches
from weft.spark.frames import one_batch
from weft.spark.output import ResultForm
from weft.spark.shipped_index import Shipped, ship, written
from weft.spark.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_Group = tuple[Reading, Shipped | None, ResultForm]

_GROUP, _SALT = "__weft_group", "__weft_salt"
MOST_EVENTS = 1_000_000  # of a group, about
_SAMPLE = 20_000  # rows of each side
_TRIED = 2_000  # of these, how many choose the attributes
_CELLS = 64  # of an attribute
_DIMENSIONS = 3
_RANGES = 32  # of a subscription: more would only name more groups
_WIDE = 8  # a subscription in more than an eighth of the groups is indexed apart


@dataclass(frozen=True, slots=True)
class JoinGroups:
    """Ranges of a curve, cut before `cuts`; range r has groups first[r] to before first[r + 1].

    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 7]}}})
    >>> groups = JoinGroups(ContentSpace(Grid.uniform(schema, 10)), np.array([5]), np.array([0, 1, 2]))
    >>> groups.of_events(pa.record_batch({"x": [0, 2, 5, None]}), np.arange(4)).tolist()
    [0, 0, 1, 0]
    """

    space: ContentSpace
    cuts: Ints
    first: Ints

    def __len__(self) -> int:
        return int(self.first[-1])

    def of_events(self, batch: pa.RecordBatch, salt: Ints, schema: Schema | None = None) -> Ints:
        """The group of each event, as it conforms to a schema; where a range has several, the salt chooses."""
        ranges = np.searchsorted(self.cuts, self.space.indexes(batch, schema), "right")
        return self.first[ranges] + salt % (self.first[ranges + 1] - self.first[ranges])

    def of_boxes(self, columns: BoxColumns) -> tuple[Ints, Ints, Ints]:
        """Pairs of an owner and a group that it is in, each once and by owner; and the owners that are in too many."""
        owners, sets = self.space.range_sets(columns)
        holders = np.repeat(np.arange(len(owners)), np.diff(sets.offsets))
        low = self.first[np.searchsorted(self.cuts, sets.starts, "right")]
        high = self.first[np.searchsorted(self.cuts, sets.ends, "right") + 1]
        after = np.flatnonzero(holders[1:] == holders[:-1]) + 1  # ranges are in order: what one has, the next has not
        low[after] = np.maximum(low[after], high[after - 1])
        lengths = np.maximum(high - low, 0)
        wide = np.bincount(holders, lengths, len(owners)) > max(_WIDE, len(self) // _WIDE)
        lengths[wide[holders]] = 0
        starts = np.cumsum(lengths) - lengths
        groups = np.arange(lengths.sum()) + np.repeat(low - starts, lengths)
        return owners[np.repeat(holders, lengths)], groups, owners[wide]


def plan(events: pa.RecordBatch, boxes: BoxColumns, groups: int, schema: Schema | None = None) -> JoinGroups:
    """Groups by a sample of both sides, about so many. Raises SchemaError if no attribute tells anything."""
    space = _space(events, boxes, schema)
    where = np.sort(space.indexes(events, schema))
    _, sets = space.range_sets(boxes)
    middles = np.sort(sets.starts + (sets.ends - sets.starts) // 2)
    weights = np.concatenate([np.full(len(side), 1 / max(len(side), 1)) for side in (where, middles)])
    places = np.concatenate([where, middles])
    order = np.argsort(places, kind="stable")
    depth = np.cumsum(weights[order])
    shares = np.arange(1, groups) * depth[-1] / groups
    cuts = np.unique(places[order][np.searchsorted(depth, shares)]) + 1  # each place belongs to the range below its cut
    held = np.bincount(np.searchsorted(cuts, where, "right"), minlength=len(cuts) + 1)
    copies = np.maximum(1, held * groups // max(2 * len(where), 1))  # twice a share and more
    return JoinGroups(space, cuts, np.concatenate([[0], np.cumsum(copies)]))


def match_partitioned(
    events: DataFrame, subscriptions: Subscriptions, groups: int, wanted: ResultForm, results: StructType
) -> DataFrame:
    """The matches of events among subscriptions whose ids differ."""
    reading = subscriptions.reading
    placeless, names = by_place(events), events.columns
    happening, many = _sampled(placeless)
    batch = attributes(happening.rename_columns(names))
    boxes = reading.read(_sampled(subscriptions.columns())[0])[0].columns
    groups = max(groups, -(-many // MOST_EVENTS))
    try:
        chosen = plan(batch, boxes, groups, reading.schema)
    except SchemaError:  # nothing to partition by: all meet
        chosen = None
    wide = None if chosen is None else _wide(subscriptions, chosen)
    place = partial(_place_events, chosen, reading.schema, names)
    left = _salted(placeless).mapInArrow(place, _with_group(placeless.schema))
    right = subscriptions.columns().mapInArrow(partial(_place_boxes, reading, chosen), f"{_GROUP} int, boxes binary")
    body = partial(_match_group, (reading, wide, wanted))
    return left.groupBy(_GROUP).cogroup(right.groupBy(_GROUP)).applyInArrow(body, results)


def _wide(subscriptions: Subscriptions, groups: JoinGroups) -> Shipped | None:
    """An index of those that reach into very many groups, if there are any."""
    find = partial(_pack_wide, subscriptions.reading, groups)
    found = subscriptions.columns().mapInArrow(find, "boxes binary").toArrow().column("boxes")
    if not len(found):
        return None
    boxes = Boxes.joined(Boxes.from_bytes(data.as_py()) for data in found)
    return ship(subscriptions.frame.sparkSession, written(boxes.matcher(subscriptions.reading.schema)))


def _with_group(schema: StructType) -> StructType:
    from pyspark.sql.types import IntegerType, StructField, StructType

    return StructType([*schema.fields, StructField(_GROUP, IntegerType(), False)])


def _salted(frame: DataFrame) -> DataFrame:
    """The rows with a number of each that depends on nothing else: a task that runs again must place them alike."""
    from pyspark.sql import functions as sf

    plain = [field.name for field in frame.schema.fields if not _has_map(field.dataType)]
    return frame.withColumn(_SALT, sf.xxhash64(*map(sf.col, plain)) if plain else sf.lit(0).cast("bigint"))


def _has_map(kind: DataType) -> bool:
    """Whether a type is one that Spark does not hash."""
    return any(word in kind.simpleString() for word in ("map<", "variant"))


def _sampled(frame: DataFrame) -> tuple[pa.RecordBatch, int]:
    """Some rows, the same at every run over the same rows; and how many there are in all."""
    whole = frame.count()
    if whole > _SAMPLE:
        frame = frame.sample(False, min(1.0, 1.1 * _SAMPLE / whole), 1)
    return one_batch(frame.limit(2 * _SAMPLE).toArrow()), whole


def _space(events: pa.RecordBatch, boxes: BoxColumns, schema: Schema | None) -> ContentSpace:
    """The attributes by which most pairs of the samples part, in cells of equal depth."""
    named = {name for name, _ in boxes.columns} | {name for box in boxes.odd.values() for name in box.sets}
    dimensions: list[GridDimension] = []
    for name in sorted(named & set(events.schema.names)):
        try:
            known = schema if schema is not None and name in schema else Schema.infer(events.select([name]))
            dimensions += Grid.equi_depth(known, events, _CELLS, [name]).dimensions
        except SchemaError:
            continue  # no event of the sample has it
    grid = Grid(tuple(dimensions))
    tried = boxes.of_owners(np.unique(boxes.owners)[:_TRIED])
    cells = grid.cells(events.slice(0, _TRIED), schema)
    best = choose(grid.boxes_of_columns(tried), cells, min(_DIMENSIONS, len(dimensions)))
    return ContentSpace(Grid(tuple(dimensions[at] for at in best.dimensions)), most=_RANGES)


# -- on the executors: ordinary functions over batches --------------------------------------------------


def _place_events(
    groups: JoinGroups | None, schema: Schema | None, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for salted in batches:
        batch = salted.select(range(len(names)))
        where = np.zeros(batch.num_rows, np.int64)
        if groups is not None:
            salt = salted.column(len(names)).to_numpy().view(np.uint64) >> np.uint64(1)
            where = groups.of_events(attributes(batch.rename_columns(list(names))), salt.astype(np.int64), schema)
        group: Any = pa.array(where.astype(np.int32))
        yield pa.record_batch([*batch.columns, group], names=[*batch.schema.names, _GROUP])


def _place_boxes(
    reading: Reading, groups: JoinGroups | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        boxes, _ = reading.read(batch)
        placed = [(0, boxes)] if groups is None else list(_by_group(boxes, groups))
        where = pa.array([group for group, _ in placed], pa.int32())
        packed = pa.array([part.to_bytes() for _, part in placed], pa.binary())
        yield pa.record_batch([where, packed], names=[_GROUP, "boxes"])


def _by_group(boxes: Boxes, groups: JoinGroups) -> Iterator[tuple[int, Boxes]]:
    """The boxes of each group, without the wide ones."""
    owners, where, _ = groups.of_boxes(boxes.columns)
    order = np.argsort(where, kind="stable")  # owners stay in order within each group
    owners, where = owners[order], where[order]
    found, starts, sizes = np.unique(where, return_index=True, return_counts=True)
    for group, start, size in zip(found.tolist(), starts, sizes, strict=True):
        yield group, boxes.of_owners(owners[start : start + size])


def _pack_wide(reading: Reading, groups: JoinGroups, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        boxes, _ = reading.read(batch)
        *_, wide = groups.of_boxes(boxes.columns)
        if len(wide):
            yield pa.record_batch({"boxes": pa.array([boxes.of_owners(wide).to_bytes()])})


def _match_group(given: _Group, left: pa.Table, right: pa.Table) -> pa.Table:
    """The results of one group."""
    reading, wide, wanted = given
    parts = [Boxes.from_bytes(data.as_py()) for data in right.column("boxes")]
    matchers = [(Boxes.joined(parts) if parts else Boxes.none(reading.numbered)).matcher(reading.schema)]
    if wide is not None:
        matchers.append(wide.open())
    rows = left.drop_columns(_GROUP)
    batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    results = pa.Table.from_batches(match_batches(batches, matchers, wanted))
    return results.cast(pa.schema([field.with_type(_in_utc(field.type)) for field in results.schema]))


def _in_utc(kind: Any) -> Any:
    """The type in which Spark takes results back: moments have the session's zone on their way here only."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = (each.with_type(_in_utc(each.type)) for each in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    return kind
