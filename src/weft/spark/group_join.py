"""Matching when the subscriptions are too many for one machine: events and subscriptions meet in groups. Each pair is
found, and found once. Matching in a group is exact, on the values themselves. A task holds the subscriptions of one
group, and one batch of events and results.

`join_groups` says who meets where. Both sides go through one shuffle, with one partition for each group in which the
subscriptions come first. Subscriptions that reach into very many groups are copied to each of them, or, if that would
be most of the shuffle, indexed apart, once for all. Where each group would hold nearly all subscriptions, nothing is
shuffled: they are indexed once, and the events stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from weft.errors import SchemaError
from weft.model.schema import Schema
from weft.pipeline.boxes import Boxes, Reading
from weft.pipeline.output import ResultForm
from weft.pipeline.packed_boxes import PackedBoxes
from weft.spark.events import by_place, fields, is_seen, quoted
from weft.spark.executor_lookup import match_batches, match_shipped
from weft.spark.join_groups import MOST_TRIED, Amounts, JoinGroups, Salting, constrained, plan
from weft.spark.join_samples import SampledEvents, attributes, row_hash, sampled_events, sampled_subscriptions
from weft.spark.left_out import ROWS
from weft.spark.shipped_index import Shipped, ship_boxes
from weft.spark.spreading import spread
from weft.spark.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.types import StructType

_GROUP, _BOXES, _REFUSED = "__weft_group", "__weft_boxes", "__weft_refused"
MOST_EVENTS = 1_000_000  # of a group, about
_EVENTS = 20_000  # rows of the sample
_FEWEST, _EACH = 5_000, 50  # subscriptions of the sample: at least, and for each group
_WHOLE = 0.9  # of all subscriptions in the mean group: the groups divide the events alone
_COPIES = 1.0  # copies of wide subscriptions, for each of all, that are not worth an index of their own


class GroupMatch(NamedTuple):
    """What a task needs besides its rows."""

    reading: Reading
    wide: Shipped | None
    wanted: ResultForm


def match_partitioned(  # noqa: PLR0913, PLR0917 - both sides, and what is made of them
    events: DataFrame,
    subscriptions: Subscriptions,
    size: int,
    groups: int,
    wanted: ResultForm,
    results: StructType,
    refused: Observation | None = None,
) -> DataFrame:
    """The matches of events among subscriptions, `size` of them, whose ids differ.

    Rows of subscriptions that cannot be read are counted as `refused` while the result is made.
    """
    from pyspark.sql import functions as sf

    reading = subscriptions.reading
    kept = _kept(events, reading, wanted)
    wanted = ResultForm.of(wanted.output, kept, [wanted.names[at] for at in wanted.carried])
    named = events.select(*(sf.col(quoted(name)) for name in kept))
    source = by_place(named)
    paths = {
        name: path
        for (name, kind, _), (_, _, path) in zip(fields(named.schema), fields(source.schema), strict=True)
        if is_seen(kind) and kind.typeName() != "array"
    }
    boxes = reading.read(sampled_subscriptions(subscriptions, min(_EVENTS, max(_FEWEST, _EACH * groups))))[0]
    tried = [name for name in constrained(boxes.columns) if name in paths][:MOST_TRIED]
    sample = sampled_events(events, kept, source, tried, paths, _EVENTS)
    chosen = _planned(sample, boxes, size, groups, reading.schema)
    *_, copies = chosen.of_boxes(boxes.columns)
    if copies.sum() >= _WHOLE * len(chosen) * len(boxes):
        return _match_whole(source, subscriptions, wanted, results, refused)
    apart = bool(copies[chosen.is_wide(copies)].sum() > _COPIES * len(boxes))
    wide = _wide(subscriptions, chosen) if apart else None
    left = source.withColumn(_GROUP, _group_of(source, chosen, paths, reading.schema))
    left = left.withColumn(_BOXES, sf.lit(None).cast("binary"))
    shape = f"{_GROUP} int, {_BOXES} binary, {_REFUSED} bigint"
    right = subscriptions.columns().mapInArrow(partial(_place_boxes, reading, chosen, apart), shape)
    if refused is not None:
        right = right.observe(refused, sf.sum(_REFUSED).alias(ROWS))
    absent = [sf.lit(None).cast(field.dataType).alias(field.name) for field in source.schema.fields]
    right = right.where(sf.col(_GROUP) >= 0).select(*absent, _GROUP, _BOXES)
    both = left.unionByName(right).repartitionById(len(chosen), _GROUP)
    ordered = both.sortWithinPartitions(sf.col(_BOXES).isNull()).drop(_GROUP)
    return ordered.mapInArrow(partial(match_group, GroupMatch(reading, wide, wanted)), results)


def _kept(events: DataFrame, reading: Reading, wanted: ResultForm) -> list[str]:
    """The columns of events that are carried along or that filters may see; one at least."""
    known = None if reading.bounds is None else set(reading.bounds)
    carried = {wanted.names[at] for at in wanted.carried}
    kept = []
    for field in events.schema.fields:
        leaves = fields(type(events.schema)([field]))
        if field.name in carried or any(is_seen(kind) and (known is None or name in known) for name, kind, _ in leaves):
            kept.append(field.name)
    return kept or events.columns[:1]


def _planned(sample: SampledEvents, boxes: Boxes, size: int, groups: int, schema: Schema | None) -> JoinGroups:
    """Groups by samples of both sides."""
    groups = max(groups, -(-sample.many // MOST_EVENTS))
    try:
        return plan(sample.attributes, sample.hashes, boxes.columns, Amounts(sample.many, size), groups, schema)
    except SchemaError:  # nothing to partition by: every subscription is in every group
        return JoinGroups.of_nothing(groups if sample.many > groups else 1)


def _match_whole(
    source: DataFrame,
    subscriptions: Subscriptions,
    wanted: ResultForm,
    results: StructType,
    refused: Observation | None,
) -> DataFrame:
    """Match with one index of all subscriptions; each group would hold nearly as many."""
    from pyspark.sql import functions as sf

    boxes, unread = subscriptions.gathered()
    if refused is not None:
        source = source.observe(refused, sf.coalesce(sf.max(sf.lit(unread)), sf.lit(unread)).alias(ROWS))
    shipped = ship_boxes(source.sparkSession, boxes, subscriptions.reading.schema, wait=False)
    return spread(source).mapInArrow(partial(match_shipped, shipped, wanted), results)


def _wide(subscriptions: Subscriptions, groups: JoinGroups) -> Shipped | None:
    """An index of those that reach into very many groups, if there are any."""
    find = partial(_pack_wide, subscriptions.reading, groups)
    found = subscriptions.columns().mapInArrow(find, "boxes binary").toArrow().column("boxes")
    if not len(found):
        return None
    packed = PackedBoxes.joined(PackedBoxes.from_bytes(data.as_py()) for data in found)
    return ship_boxes(subscriptions.frame.sparkSession, packed.boxes(), subscriptions.reading.schema)


def _group_of(source: DataFrame, groups: JoinGroups, paths: dict[str, str], schema: Schema | None) -> Column:
    """The group of each event; only the attributes that decide leave Spark for it."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.functions import arrow_udf

    def place(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:  # type: ignore[type-arg]
        yield from place_events(groups, schema, batches)  # Spark asks for these very types

    chosen = [sf.col(paths[name]) for name in groups.names]
    # Never evaluated twice: equal events are counted. The constant is for Spark, which passes a single column bare.
    found = cast("Any", arrow_udf)(place, "int").asNondeterministic()
    group: Column = found(row_hash(source), sf.lit(0), *chosen)
    return group


# -- on the executors: ordinary functions over batches --------------------------------------------------


def place_events(groups: JoinGroups, schema: Schema | None, batches: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
    """The groups of events, given as their hashes and the attributes that decide."""
    from pyspark import TaskContext

    task = TaskContext.get()
    salting = Salting(groups.often, 0 if task is None else task.partitionId())  # or all would begin with one group
    for hashes, _, *columns in batches:
        salt = salting(hashes.to_numpy(zero_copy_only=False).view(np.uint64))
        where = groups.of_events(attributes(groups.names, columns, len(hashes)), salt, schema)
        yield pa.array(where.astype(np.int32))


def _place_boxes(
    reading: Reading, groups: JoinGroups, apart: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The boxes of each group, without the wide ones if they are apart; and how many rows could not be read."""
    for batch in batches:
        for _, boxes, refused in reading.pieces(batch):
            placed = list(_by_group(boxes, groups, apart))
            where = pa.array([-1, *(group for group, _ in placed)], pa.int32())
            packed = pa.array([None, *(part.to_bytes() for _, part in placed)], pa.binary())
            counts = pa.array([len(refused), *([0] * len(placed))], pa.int64())
            yield pa.record_batch([where, packed, counts], names=[_GROUP, _BOXES, _REFUSED])


def _by_group(boxes: Boxes, groups: JoinGroups, apart: bool) -> Iterator[tuple[int, PackedBoxes]]:
    owners, where, counts = groups.of_boxes(boxes.columns)
    if apart:
        narrow = ~groups.is_wide(counts)[owners]
        owners, where = owners[narrow], where[narrow]
    packed = PackedBoxes.of(boxes)
    found, starts, sizes = np.unique(where, return_index=True, return_counts=True)
    for group, start, size in zip(found.tolist(), starts, sizes, strict=True):
        yield group, packed.of_owners(owners[start : start + size])


def _pack_wide(reading: Reading, groups: JoinGroups, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for _, boxes, _ in reading.pieces(batch):
            *_, counts = groups.of_boxes(boxes.columns)
            wide = np.flatnonzero(groups.is_wide(counts))
            if len(wide):
                packed = PackedBoxes.of(boxes.of_owners(wide)).to_bytes()
                yield pa.record_batch({"boxes": pa.array([packed], pa.binary())})


def match_group(given: GroupMatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of one group: its boxes come first, then its events, which are matched as they come."""
    held: list[PackedBoxes] = []
    events = _events(batches, held)
    first = next(events, None)
    if first is None:
        return
    boxes = PackedBoxes.joined(held).boxes() if held else Boxes.none(given.reading.numbered)
    held.clear()
    matchers = [boxes.matcher(given.reading.schema)]
    if given.wide is not None:
        matchers.append(given.wide.open())
    del boxes
    yield from match_batches(chain([first], events), matchers, given.wanted)


def _events(batches: Iterator[pa.RecordBatch], held: list[PackedBoxes]) -> Iterator[pa.RecordBatch]:
    """The rows that are events; the others, which are all before them, are held."""
    for batch in batches:
        *columns, boxes = batch.columns
        count = len(boxes) - boxes.null_count
        held += [PackedBoxes.from_bytes(data.as_py()) for data in boxes.slice(0, count)]
        if count < len(boxes):
            rows = pa.record_batch(columns, names=batch.schema.names[:-1])
            yield rows.slice(count) if count else rows
