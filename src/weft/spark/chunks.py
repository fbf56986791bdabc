"""The work on a chunk of subscriptions, without Spark. A row that cannot be read is returned with the reason and stops
nothing. Every other row is returned as active, or as passive with active rows that admit what it admits.

Rows come in and go out as Arrow tables, so that a task is only a loop over these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
import pyarrow as pa

from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.filter_texts import plain_text, readable
from weft.errors import FilterError
from weft.index.base import AnyEvent
from weft.index.tree import TreeIndex
from weft.kernels.arrays import Ints
from weft.merging.bulk_mergers import merge_all
from weft.model.schema import Schema
from weft.order.minimal_cover import NOTHING, forms_of, minimal_cover
from weft.pipeline.predicate_settings import environment_predicates
from weft.routing.negative.joint_cover import range_cover, subsumption
from weft.space.cell_space import CellSpace, boxes_of
from weft.space.content import ContentSpace
from weft.space.placement import Placement

MATCHES_NOTHING = "matches nothing"
NOWHERE = Placement()


class ChunkStep(StrEnum):
    """How a chunk is reduced."""

    COVERING = "covering"  # by what one other covers
    SUBSUMPTION = "subsumption"  # by what others cover together
    MERGING = "merging"  # to mergers
    RANGES = "ranges"  # by the cells of a curve that one other has


def row_type(id_type: pa.DataType) -> pa.Schema:
    """The columns of rows, in and out of a chunk: with a reason an error, with coverers passive, else active.

    A row with components is a merger, known by the id of its first component. `unsure` counts what may not be minimal.
    """
    ids = pa.list_(id_type)
    columns = {"id": id_type, "filter": pa.string(), "components": ids, "coverers": ids}
    return pa.schema({**columns, "reason": pa.string(), "place": pa.int64(), "unsure": pa.int64()})


def tables(batches: Iterable[pa.RecordBatch], chunk: int) -> Iterator[pa.Table]:
    """Batches as tables of a given number of rows; the last may have fewer."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while rows + len(batch) - start >= chunk:
            end = start + chunk - rows
            yield pa.Table.from_batches([*waiting, batch.slice(start, end - start)])
            waiting, rows, start = [], 0, end
        if start < len(batch):
            waiting.append(batch.slice(start))
            rows += len(batch) - start
    if waiting:
        yield pa.Table.from_batches(waiting)


def screen(given: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows (id, filter, times) apart: those with an id of their own and a text, as rows of a chunk, and the errors."""
    wrong = (
        given["id"].is_null().to_numpy() | given["filter"].is_null().to_numpy() | (given["times"].to_numpy() > 1)
    ).nonzero()[0]
    reasons = [_wrong(row) for row in given.take(wrong).to_pylist()]
    rest = np.delete(np.arange(len(given)), wrong)
    shape = row_type(given.schema.field("id").type)
    return _shaped(given.take(rest), shape), _failed(_shaped(given.take(wrong), shape), reasons)


def _wrong(row: dict[str, Any]) -> str:
    if row["id"] is None:
        return "has no id: give every subscription one of its own"
    if row["times"] > 1:
        return f"{row['times']} subscriptions have this id: give each its own"
    return "has no filter: TRUE is the one that everything matches"


def _failed(rows: pa.Table, reasons: list[str]) -> pa.Table:
    at = rows.schema.get_field_index("reason")
    return rows.set_column(at, rows.schema.field(at), pa.array(reasons, pa.string()))


@dataclass(frozen=True, slots=True)
class Reduce:
    """One way to reduce a chunk; what stays active is placed for the next round."""

    step: ChunkStep
    schema: Schema | None = None
    placement: Placement = NOWHERE
    middle: bool = True
    space: ContentSpace | None = None
    budget: float = 0.0  # for each row

    def first(self, given: pa.Table) -> pa.Table:
        """A chunk of rows (id, filter, times) as they were given: read, with the errors among what goes out."""
        fine, errors = screen(given)
        try:
            return pa.concat_tables([self(fine), errors])
        except FilterError:
            reasons = readable(texts_of(fine), self.schema, environment_predicates()).refused
        bad = np.array(list(reasons), np.int64)
        more = _failed(fine.take(bad), list(reasons.values()))
        rest = fine.take(np.delete(np.arange(len(fine)), bad))
        plain = pa.array(map(plain_text, texts_of(rest)), pa.string())  # also of those that are JSON
        rest = rest.set_column(rest.schema.get_field_index("filter"), "filter", plain)
        return pa.concat_tables([self(rest), more, errors])

    def __call__(self, rows: pa.Table) -> pa.Table:
        """A chunk of rows that are active, reduced."""
        texts = texts_of(rows)
        columns = columns_of_texts(texts, self.schema, environment_predicates())
        places = pa.array(self.placement.keys(columns, len(texts), self.middle))
        rows = rows.set_column(rows.schema.get_field_index("place"), "place", places)
        match self.step:
            case ChunkStep.COVERING:
                return self._covering(rows, columns)
            case ChunkStep.RANGES:
                return self._ranges(rows, columns)
            case ChunkStep.SUBSUMPTION:
                assert self.schema is not None
                forms = forms_of(columns, np.arange(len(texts)), self.schema)
                return _standing(rows, subsumption(forms, self.schema))
        return self._merging(rows, columns)

    def _covering(self, rows: pa.Table, columns: BoxColumns) -> pa.Table:
        cover = minimal_cover(columns, len(rows), self.schema)
        nothing = cover.coverers == NOTHING
        reasons = pa.array([MATCHES_NOTHING if none else None for none in nothing.tolist()], pa.string())
        rows = rows.set_column(rows.schema.get_field_index("reason"), "reason", reasons)
        unsure = np.zeros(len(rows), np.int64)
        unsure[:1] = cover.unsure
        rows = rows.set_column(rows.schema.get_field_index("unsure"), "unsure", pa.array(unsure))
        return _covered(rows, np.where(nothing, np.arange(len(rows)), cover.coverers))

    def _ranges(self, rows: pa.Table, columns: BoxColumns) -> pa.Table:
        assert self.space is not None
        owners, sets = self.space.range_sets(columns)  # every row that is active matches something
        coverers = np.arange(len(rows))
        coverers[owners] = owners[range_cover(sets)]
        return _covered(rows, coverers)

    def _merging(self, rows: pa.Table, columns: BoxColumns) -> pa.Table:
        """Mergers are rows of their own, active; what was merged is passive, mergers of an earlier round as well."""
        forms = forms_of(columns, np.arange(len(rows)), self.schema)
        mergers = merge_all(forms, self.schema, self.budget * len(rows))
        roots = np.arange(len(rows))
        merged = []
        for merger in mergers:
            root = merger.components[0]
            roots[[*merger.components, *merger.covered]] = root
            if merger.text is not None:
                merged.append((root, merger.text, merger.components))
        ids, before = rows["id"].to_pylist(), rows["components"].to_pylist()
        made = {root for root, *_ in merged}
        away = [at for at in range(len(rows)) if roots[at] != at or (at in made and before[at] is None)]
        stay = [at for at in range(len(rows)) if roots[at] == at and at not in made]
        parts = [sorted(part for at in some for part in before[at] or [ids[at]]) for _, _, some in merged]
        wholes = rows.take(pa.array([root for root, *_ in merged], pa.int64()))
        for name, values in (("filter", [text for _, text, _ in merged]), ("components", parts)):
            at = rows.schema.get_field_index(name)
            wholes = wholes.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))
        gone = _pointing(rows.take(pa.array(away, pa.int64())), [[ids[roots[at]]] for at in away])
        return pa.concat_tables([rows.take(pa.array(stay, pa.int64())), wholes, gone])


def _covered(rows: pa.Table, coverers: Ints) -> pa.Table:
    """Rows with the one that covers each of them, where that is another."""
    own = coverers == np.arange(len(rows))
    offsets = pa.array(np.append(0, np.cumsum(~own)), pa.int32())
    at = rows.schema.get_field_index("coverers")
    ids = rows["id"].take(pa.array(coverers[~own])).combine_chunks()
    missing = cast("pa.BooleanArray", pa.array(own))
    lists = pa.ListArray.from_arrays(offsets, ids, type=rows.schema.field(at).type, mask=missing)
    return rows.set_column(at, rows.schema.field(at), lists)


def _standing(rows: pa.Table, standing: Sequence[Sequence[int]]) -> pa.Table:
    ids = rows["id"].to_pylist()
    return _pointing(rows, [[ids[at] for at in some] or None for some in standing])


def _pointing(rows: pa.Table, coverers: list[list[object] | None]) -> pa.Table:
    at = rows.schema.get_field_index("coverers")
    return rows.set_column(at, rows.schema.field(at), pa.array(coverers, rows.schema.field(at).type))


def _shaped(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    """Rows with all columns, NULL where they had none."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in shape
    ]
    return pa.Table.from_arrays(columns, schema=shape)


def texts_of(rows: pa.Table) -> list[str]:
    """The filters of rows that have one."""
    return cast("list[str]", rows["filter"].to_pylist())


def items_of(space: CellSpace, rows: pa.Table) -> pa.Table:
    """The items that a chunk's filters have together, and how many filters have each if they can be counted."""
    columns = columns_of_texts(texts_of(rows), None, environment_predicates())
    items = space.items(boxes_of(space, columns), columns.owners)
    if not space.countable:
        return _in_columns(space, space.united(items))
    different, counts = np.unique(items, axis=0, return_counts=True)
    return _in_columns(space, different).append_column("count", pa.array(counts))


def united(space: CellSpace, rows: pa.Table) -> pa.Table:
    """As few items as admit what the items of a chunk admit."""
    return _in_columns(space, space.united(np.stack([rows[name].to_numpy() for name in space.fields], axis=1)))


def _in_columns(space: CellSpace, items: Ints) -> pa.Table:
    return pa.table({name: items[:, at] for at, name in enumerate(space.fields)})


def admitted(events: Sequence[AnyEvent], rows: pa.Table) -> pa.Table:
    """Which of some events a chunk's filters admit, by their number."""
    index = TreeIndex(predicates=environment_predicates())
    index.add_texts(range(len(rows)), texts_of(rows))
    return pa.table({"event": np.flatnonzero(index.any_batch(list(events)))})


def in_chunks(
    work: Callable[[pa.Table], pa.Table], chunk: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of a task: batches in, each chunk worked on, batches out."""
    for table in tables(batches, chunk):
        yield from work(table).combine_chunks().to_batches()
