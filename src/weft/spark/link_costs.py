"""The cost of a link that wants all subscriptions, measured on events that were kept apart. Nothing is estimated. An
event that a subscription wants passes, or `lost` counts it.

Each task reads its part of the subscriptions once: it matches the events exactly, and unites the items. What
comes back is a bit for each event and what a neighbour would be told, so it fits on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.algebra.filter_texts import readable
from weft.index.tree import TreeIndex
from weft.kernels.arrays import Mask
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.routing.dls.structure import FilterShape
from weft.space.cell_space import CellSpace, cells_of, told_of
from weft.spark.frames import subscriptions_of
from weft.tuning.budget import LinkFigures
from weft.tuning.grid_costs import MODELS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class LinkCosts:
    """One link with all subscriptions: what it costs, with which filter, and on how many events that was seen."""

    figures: LinkFigures
    shape: FilterShape | None
    events: int
    wanted: int  # events that somebody wants
    passed: int
    lost: int  # events that somebody wants and that do not pass: none, or something is broken


def measure_link(  # noqa: PLR0913, PLR0917
    subscriptions: DataFrame,
    held: pa.RecordBatch,
    space: CellSpace,
    shape: FilterShape | None = None,
    rate: float = 1.0,
    predicates: Predicates = NO_PREDICATES,
) -> LinkCosts:
    """The cost with all subscriptions of a frame; a filter grows while more than the rate would pass, as in a table."""
    frame = subscriptions_of(subscriptions)
    job = partial(_told, space=(type(space), space.to_json()), held=_packed(held), predicates=predicates)
    wanted = np.zeros(held.num_rows, bool)
    parts = [np.zeros(0, np.int64)]
    for row in frame.mapInArrow(job, "wanted binary, told binary").toArrow().to_pylist():
        wanted |= _bits(row["wanted"], held.num_rows)
        parts.append(np.frombuffer(row["told"], np.int64))
    told = space.united(np.concatenate(parts).reshape(-1, len(space.fields)))
    model = MODELS[space.model]
    shape = model.fitted(shape, rate, len(told))
    table = model.held(space, told, shape)
    passed = table.admits(cells_of(space, held))
    strangers = ~wanted
    share = float(passed[strangers].mean()) if strangers.any() else 0.0
    return LinkCosts(
        LinkFigures(share, len(told), table.nbytes),
        shape,
        held.num_rows,
        int(wanted.sum()),
        int(passed.sum()),
        int((wanted & ~passed).sum()),
    )


def _told(
    batches: Iterator[pa.RecordBatch], space: tuple[type[Any], str], held: bytes, predicates: Predicates
) -> Iterator[pa.RecordBatch]:
    """The events that a subscription of this part wants, and what a neighbour is told for it."""
    import pyarrow as pa

    kind, parameters = space
    made: CellSpace = kind.from_json(parameters)
    events = _unpacked(held)
    wanted = np.zeros(events.num_rows, bool)
    told = np.zeros((0, len(made.fields)), np.int64)
    for batch in batches:
        texts = batch.column(1).to_pylist()
        columns = readable(texts, None, predicates).columns
        index = TreeIndex(predicates=predicates)
        index.add_boxes(np.arange(len(texts)), columns)
        wanted |= index.any_batch(events)
        told = made.united(np.concatenate([told, told_of(made, columns)]))
    yield pa.record_batch(
        {
            "wanted": pa.array([np.packbits(wanted).tobytes()], pa.binary()),
            "told": pa.array([np.ascontiguousarray(told, np.int64).tobytes()], pa.binary()),
        }
    )


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
