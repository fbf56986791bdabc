"""Rows of subscriptions as boxes. Every row is read, or named with the reason why it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns
from weft.algebra.filter_texts import readable
from weft.index.base import Matches
from weft.index.bound_rows import Ends, boxes_of_bounds, listed
from weft.index.segment import DEFAULT, TreeShape
from weft.index.tree import TreeIndex
from weft.model.schema import Schema
from weft.pipeline.predicate_settings import environment_predicates

_NAMES = "names.arrow"  # beside a snapshot
NO_ID = "it has no id"
_CELLS = 1 << 21  # of the table of rows and attributes that is made of a piece, about
_FEW = 1_000  # rows of a piece at least
_WIDE = TreeShape(alpha=4.0)  # other cores wait for the index: it is built in two thirds of the time
_MOST_NAMES = 4  # attributes; with more, matching would take longer and building as long


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of some subscriptions; owner o of the columns is the one that its user calls ids[o]."""

    ids: Any  # an Arrow array of integers or strings
    columns: BoxColumns

    def __len__(self) -> int:
        return len(self.ids)

    def of_owners(self, owners: NDArray[np.int64]) -> Boxes:
        """Those of some, in ascending order."""
        return Boxes(self.ids.take(pa.array(owners)), self.columns.of_owners(owners))

    @staticmethod
    def none(numbered: bool) -> Boxes:
        """Without subscriptions; ids would be integers or strings."""
        return Boxes(pa.array([], pa.int64() if numbered else pa.string()), BoxColumns.of([]))

    def matcher(self, schema: Schema | None) -> Matcher:
        """An index of them; ids must differ."""
        numbered = pa.types.is_integer(self.ids.type)
        subs = self.ids.to_numpy() if numbered else np.arange(len(self.ids))
        names = {name for name, _ in self.columns.columns}
        index = TreeIndex(
            schema, predicates=environment_predicates(), shape=_WIDE if len(names) <= _MOST_NAMES else DEFAULT
        )
        index.add_boxes(subs, self.columns)
        return Matcher(index, None if numbered else self.ids)


@dataclass(frozen=True, slots=True)
class Matcher:
    """An index, and the users' names of its subscriptions where they are not integers."""

    index: TreeIndex
    names: Any = None  # an Arrow array of strings

    def match(self, batch: pa.RecordBatch) -> Matches:
        """The subscriptions of each event, by number."""
        return self.index.match_batch(batch).checked()

    def ids(self, numbers: NDArray[np.int64]) -> Any:
        """What their users call the subscriptions."""
        return pa.array(numbers) if self.names is None else self.names.take(pa.array(numbers))


def write_matcher(matcher: Matcher, place: Path) -> None:
    """Write a snapshot of the index, with the names beside it."""
    matcher.index.snapshot(place)
    if matcher.names is not None:
        table = pa.table({"names": matcher.names})
        with pa.OSFile(str(place / _NAMES), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)


def is_numbered(snapshot: Path) -> bool:
    """Whether a snapshot's subscriptions have no names but their numbers."""
    return not (snapshot / _NAMES).exists()


def open_matcher(path: Path, trusted: bool) -> Matcher:
    """The index of a snapshot that was verified, with its names; a trusted one was written by this process."""
    index = TreeIndex.open(path, verify=False, trusted=trusted, predicates=environment_predicates())
    return Matcher(index, None if is_numbered(path) else _names(path / _NAMES))


def _names(path: Path) -> Any:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all().column("names").combine_chunks()


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are read: the column of ids, and that of texts or those of bounds; filters are taken under a schema.

    >>> rows = pa.record_batch({"id": [1, 2, 3], "filter": ["x > 5", "x >", "x IN (1, 3)"]})
    >>> boxes, refused = Reading("id", "filter").read(rows)
    >>> boxes.ids.to_pylist(), list(refused)
    ([1, 3], [1])
    """

    id: str
    filter: str | None = None
    bounds: Mapping[str, Ends] | None = None
    schema: Schema | None = None
    numbered: bool = True  # ids are integers

    def read(self, batch: pa.RecordBatch) -> tuple[Boxes, dict[int, str]]:
        """The boxes of the rows that can be read, and the reasons why others cannot be."""
        ids = self.ids(batch)
        refused: dict[int, str] = dict.fromkeys(np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False)), NO_ID)
        if self.filter is not None:
            texts, unread = listed(batch.column(self.filter))
            columns, wrong = readable(texts, self.schema, environment_predicates())
            refused = wrong | unread | refused
        else:
            columns = boxes_of_bounds(batch, self.bounds or {}, self.schema, refused)
        if not refused:
            return Boxes(ids, columns), refused
        fine = np.delete(np.arange(batch.num_rows), list(refused))
        refused = {int(row): reason for row, reason in sorted(refused.items())}
        return Boxes(ids, columns).of_owners(fine), refused

    def pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Boxes, dict[int, str]]]:
        """The same in pieces: the first row of each, its boxes, and reasons by rows of the piece. One at least.

        Boxes are a table of rows and attributes while they are read: the more attributes, the fewer rows in a piece.
        """
        first, rows = 0, batch.num_rows
        if self.bounds is not None:
            rows = max(_CELLS // len(self.bounds), _FEW)
        elif batch.num_rows > 2 * _FEW:
            rows = _FEW  # nobody knows yet how many attributes texts have
        while True:
            boxes, refused = self.read(batch.slice(first, rows))
            yield first, boxes, refused
            first += rows
            if first >= batch.num_rows:
                return
            rows = max(_CELLS // max(len(boxes.columns.columns), 1), _FEW)

    def ids(self, batch: pa.RecordBatch) -> Any:
        """The ids of rows; those that are not valid UTF-8 become null."""
        ids: Any = batch.column(self.id).cast(pa.int64() if self.numbered else pa.string())
        if not self.numbered:
            found, unread = listed(ids)
            return pa.array(found, pa.string()) if unread else ids
        return ids
