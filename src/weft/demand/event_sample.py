"""A sample of events, and how many of them have a value in a set. Counts are exact except for patterns; if there are
many different strings, a pattern is tested on an evenly spaced selection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from weft.algebra import interval
from weft.algebra.columns import Column, ColumnPart
from weft.algebra.interval import Line
from weft.algebra.strings import Strings
from weft.algebra.valueset import ValueSet
from weft.kernels.arrays import Ints
from weft.kernels.boxes import HIGH_OPEN, LOW_OPEN
from weft.model.column import typed_columns
from weft.model.schema import Schema
from weft.model.value import Type

if TYPE_CHECKING:
    import pyarrow as pa

_TRIED = 256  # strings that are tested with a pattern


@dataclass(frozen=True, slots=True)
class SampledValues:
    """The values of one attribute: sorted, with the number of values below each, and the number of events
    without one.
    """

    part: ColumnPart
    ordered: Any  # an array of numbers or microseconds, or a list of different strings
    below: Ints  # for strings only: how many events have an earlier string
    absent: int

    def of_line(self, line: Line) -> int:
        """How many values are on a line."""
        return sum(
            (self._below(high) if high is not None else self._all()) - self._below(low)
            for low, high in interval.intervals(line)
        )

    def of_spans(self, column: Column, texts: Sequence[str]) -> Ints:
        """How many values are in each interval of a column of boxes."""
        if self.part is ColumnPart.STRINGS:
            numbers = np.array([self.of_line(interval.point(text)) for text in texts] + [self._all()], np.int64)
            return numbers[np.where(np.isneginf(column.low), len(texts), column.low).astype(np.int64)]
        sides: tuple[Literal["left", "right"], ...] = ("left", "right")
        below_low, to_low = (np.searchsorted(self.ordered, column.low, side) for side in sides)
        below_high, to_high = (np.searchsorted(self.ordered, column.high, side) for side in sides)
        first = np.where(column.marks & LOW_OPEN, to_low, below_low)
        last = np.where(column.marks & HIGH_OPEN, below_high, to_high)
        found: Ints = np.maximum(last - first, 0)
        return found

    def of_strings(self, strings: Strings) -> int:
        """How many values are in a set of strings."""
        if not strings.terms:
            return self.of_line(strings.line)
        step = max(1, len(self.ordered) // _TRIED)
        weights = np.diff(self.below)[::step]
        hits = sum(int(w) for w, text in zip(weights, self.ordered[::step], strict=True) if text in strings)
        return round(hits * self._all() / max(int(weights.sum()), 1))

    def _below(self, cut: interval.Cut) -> int:
        value, side = cut
        if self.part is not ColumnPart.STRINGS:
            return int(np.searchsorted(self.ordered, value, "right" if side else "left"))
        at = bisect_left(self.ordered, value)
        return int(self.below[at + (side and at < len(self.ordered) and self.ordered[at] == value)])

    def _all(self) -> int:
        return int(self.below[-1]) if self.part is ColumnPart.STRINGS else len(self.ordered)


@dataclass(frozen=True, slots=True)
class EventSample:
    """A sample of events, stored so that predicates on single attributes are counted fast.

    >>> import pyarrow as pa
    >>> some = EventSample.of(pa.record_batch({"x": [1.0, 2.0, None, 9.0], "s": ["a", "b", "b", None]}))
    >>> some.count("x", ValueSet(numbers=((2, 0),))), some.count("s", ValueSet(absent=True))
    (2, 1)
    """

    size: int
    values: dict[str, SampledValues]

    @staticmethod
    def of(batch: pa.RecordBatch) -> EventSample:
        """The sample of a batch. Columns that filters cannot test are left out."""
        found = {}
        names = list(Schema.infer(batch, most_categories=0))
        for name, column in typed_columns(batch, names).items():
            made = _values(column.type, column.values[~column.absent], int(column.absent.sum()))
            if made is not None:
                found[name] = made
        return EventSample(batch.num_rows, found)

    def spans(self, name: str, part: ColumnPart, column: Column, texts: Sequence[str]) -> Ints:
        """How many events have the attribute in each interval of a column of boxes."""
        values = self.values.get(name)
        if values is None or values.part is not part:
            return np.zeros(len(column.low), np.int64)
        return values.of_spans(column, texts)

    def count(self, name: str, wanted: ValueSet) -> int:
        """How many events have the attribute in a set."""
        values = self.values.get(name)
        if values is None:
            return self.size if wanted.absent else 0
        found = values.absent if wanted.absent else 0
        match values.part:
            case ColumnPart.NUMBERS:
                return found + values.of_line(wanted.numbers)
            case ColumnPart.TIMESTAMPS:
                return found + values.of_line(wanted.timestamps)
            case ColumnPart.STRINGS:
                return found + values.of_strings(wanted.strings)
        return found + sum(values.of_line(interval.point(float(each))) for each in wanted.bools)


def _values(kind: Type | None, present: NDArray[Any], absent: int) -> SampledValues | None:
    if kind is None:
        return None
    if kind is Type.STRING:
        seen = Counter(present.tolist())
        texts = sorted(seen)
        return SampledValues(
            ColumnPart.STRINGS, texts, np.append(0, np.cumsum([seen[text] for text in texts], dtype=np.int64)), absent
        )
    part = (
        ColumnPart.BOOLS
        if kind is Type.BOOL
        else ColumnPart.TIMESTAMPS
        if kind is Type.TIMESTAMP
        else ColumnPart.NUMBERS
    )
    return SampledValues(part, np.sort(present.astype(np.float64)), np.zeros(0, np.int64), absent)
