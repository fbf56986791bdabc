"""The results of matching: one row per match, or one row per event with its subscriptions or their number. The columns
of the events come first, unchanged. Batches of rows are never much larger than stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.errors import PipelineError
from weft.index.base import Matches
from weft.model.schema import did_you_mean

_ROWS = 100_000  # so many pairs, or about so many ids of lists, in a batch of results
_BYTES = 1 << 28  # about the most that a batch of pairs may take


class Output(StrEnum):
    """The form of results."""

    PAIRS = "pairs"
    LISTS = "lists"
    COUNTS = "counts"

    @property
    def column(self) -> str:
        """The column that is added to those of the events."""
        return {"pairs": "subscription", "lists": "subscriptions", "counts": "matches"}[self]

    @staticmethod
    def named(name: str) -> Output:
        """The form of that name. Raises PipelineError."""
        try:
            return Output(name)
        except ValueError:
            hint = did_you_mean(name, Output) or f": use one of {', '.join(Output)}"
            raise PipelineError(f"there is no output {name!r}{hint}") from None

    def check(self, names: Iterable[str]) -> None:
        """Raise PipelineError if the events have a column of the name that is added."""
        if self.column.lower() in map(str.lower, names):
            raise PipelineError(f"the events have a column {self.column!r}, which the results need: rename it")


@dataclass(frozen=True, slots=True)
class ResultForm:
    """What is made of events: the form of results, the events' columns by name, and the places of those carried."""

    output: Output
    names: tuple[str, ...]
    carried: tuple[int, ...]

    @staticmethod
    def of(output: str, names: Sequence[str], carry: Sequence[str] | None) -> ResultForm:
        """All columns are carried along, or the named ones. Raises PipelineError."""
        for name in carry or ():
            if name not in names:
                hint = did_you_mean(name, names) or f", only {', '.join(names)}"
                raise PipelineError(f"the events have no column {name!r}{hint}")
        carried = range(len(names)) if carry is None else (names.index(name) for name in dict.fromkeys(carry))
        return ResultForm(Output.named(output), tuple(names), tuple(carried))


def write(
    batch: pa.RecordBatch, found: Matches, output: Output, ids: Callable[[NDArray[np.int64]], Any]
) -> Iterator[pa.RecordBatch]:
    """The pairs or lists of a batch of events, in batches; one at least."""
    names = [*batch.schema.names, output.column]
    if output is Output.LISTS:
        for first, last in _slices(found.offsets):
            low, high = found.offsets[first], found.offsets[last]
            wanted = ids(found.ids[low:high])
            offsets = pa.array((found.offsets[first : last + 1] - low).astype(np.int32))
            kind = pa.list_(pa.field("element", wanted.type, nullable=False))
            lists: Any = pa.ListArray.from_arrays(offsets, wanted, type=kind)
            yield pa.record_batch([*batch.slice(first, last - first).columns, lists], names=names)
        return
    row_bytes = batch.get_total_buffer_size() // max(batch.num_rows, 1) + 1
    step = max(1, min(_ROWS, _BYTES // row_bytes))
    for low in range(0, max(len(found.ids), 1), step):
        high = min(low + step, len(found.ids))
        rows = np.searchsorted(found.offsets, np.arange(low, high), "right") - 1
        yield pa.record_batch([*batch.take(rows).columns, ids(found.ids[low:high])], names=names)


def _slices(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Events from first to before last whose matches are about _ROWS; an event alone may have more."""
    first, events = 0, len(offsets) - 1
    if not events:
        yield 0, 0
    while first < events:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _ROWS, "right")) - 1)
        last = min(last, first + _ROWS, events)
        yield first, last
        first = last
