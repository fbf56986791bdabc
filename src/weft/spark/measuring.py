"""What a link would cost that wants all subscriptions, measured on events that were kept apart. Laws: nothing is
estimated; an event that somebody wants passes, or `lost` counts it.

Each task reads its part of the subscriptions once: it matches the events exactly, and unites the ranges or labels. What
comes back is a bit for each event and what a neighbour would be told, so it fits on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.readable import readable
from weft.index.tree import TreeIndex
from weft.interest.budget import Figures
from weft.interest.label_filter import CountingFilter, FilterShape
from weft.interest.range_table import RangeTable
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.space.content import ContentSpace
from weft.space.label_space import LabelSpace
from weft.space.range_set import NOTHING, RangeSet
from weft.space.range_sets import RangeSets
from weft.spark.frames import subscriptions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Measured:
    """One link with all subscriptions: what it costs, with which filter, and on how many events that was seen."""

    figures: Figures
    shape: FilterShape | None
    events: int
    wanted: int  # events that somebody wants
    passed: int
    lost: int  # events that somebody wants and that do not pass: none, or something is broken


def measured(  # noqa: PLR0913, PLR0917
    subscriptions: DataFrame,
    held: pa.RecordBatch,
    space: ContentSpace | LabelSpace,
    shape: FilterShape | None = None,
    rate: float = 1.0,
    predicates: Predicates = NO_PREDICATES,
) -> Measured:
    """The cost with all subscriptions of a frame; a filter grows while more than the rate would pass, as in a table."""
    frame = subscriptions_of(subscriptions)
    job = partial(_told, space=(type(space), space.to_json()), held=_packed(held), predicates=predicates)
    wanted = np.zeros(held.num_rows, bool)
    parts = []
    for row in frame.mapInArrow(job, "wanted binary, told binary").toArrow().to_pylist():
        wanted |= _bits(row["wanted"], held.num_rows)
        parts.append(np.frombuffer(row["told"], np.int64))
    if isinstance(space, ContentSpace):
        passed, items, memory = _by_ranges(space, RangeSet.union_all(map(_ranges, parts)), held)
    else:
        labels = np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
        shape = shape or FilterShape.fitting(labels.size)
        while shape.rate(labels.size) > rate:
            shape = shape.resized(2 * shape.size)
        passed, items, memory = _by_labels(space, shape, labels, held)
    strangers = ~wanted
    share = float(passed[strangers].mean()) if strangers.any() else 0.0
    return Measured(
        Figures(share, items, memory),
        shape,
        held.num_rows,
        int(wanted.sum()),
        int(passed.sum()),
        int((wanted & ~passed).sum()),
    )


def _by_ranges(space: ContentSpace, told: RangeSet, held: pa.RecordBatch) -> tuple[Mask, int, int]:
    table = RangeTable()
    table.insert_batch(RangeSets.of([told]))
    return np.atleast_1d(table.match_batch(space.indexes(held))), len(told), table.nbytes


def _by_labels(space: LabelSpace, shape: FilterShape, told: Ints, held: pa.RecordBatch) -> tuple[Mask, int, int]:
    made = CountingFilter.of(shape, [told])
    asked = space.of_events(held, space.levels(told))
    passed: Mask = np.atleast_1d(made.contains(asked).reshape(asked.shape).any(axis=1))
    return passed, told.size, shape.nbytes


def _told(
    batches: Iterator[pa.RecordBatch], space: tuple[type[Any], str], held: bytes, predicates: Predicates
) -> Iterator[pa.RecordBatch]:
    """Which events somebody of this part wants, and what a neighbour is told for it."""
    import pyarrow as pa

    kind, parameters = space
    made: ContentSpace | LabelSpace = kind.from_json(parameters)
    events = _unpacked(held)
    wanted = np.zeros(events.num_rows, bool)
    ranges, labels = NOTHING, np.zeros(0, np.int64)
    for batch in batches:
        texts = batch.column(1).to_pylist()
        columns = readable(texts, None, predicates).columns
        index = TreeIndex(predicates=predicates)
        index.add_boxes(np.arange(len(texts)), columns)
        wanted |= index.any_batch(events)
        if isinstance(made, ContentSpace):
            ranges = RangeSet.union_all((ranges, made.range_sets(columns)[1].union()))
        else:
            labels = np.union1d(labels, made.label_sets(columns)[1].labels)
    told = np.stack([ranges.starts, ranges.ends], axis=1) if isinstance(made, ContentSpace) else labels
    yield pa.record_batch(
        {
            "wanted": pa.array([np.packbits(wanted).tobytes()], pa.binary()),
            "told": pa.array([np.ascontiguousarray(told, np.int64).tobytes()], pa.binary()),
        }
    )


def _ranges(flat: Ints) -> RangeSet:
    pairs = flat.reshape(-1, 2)
    return RangeSet(pairs[:, 0].copy(), pairs[:, 1].copy())


def _bits(packed: bytes, size: int) -> Mask:
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=size).astype(bool)


def _packed(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _unpacked(data: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
