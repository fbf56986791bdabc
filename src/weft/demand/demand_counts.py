"""Counts of what filters ask for. Merging adds, so it is associative and commutative, and the merged parts equal the
whole. Applying `sampled` before a merge does not change the result of `sampled` after it, and the same holds for
`topped` if the parts share no long key.

Every count has a key of three strings: the fact, the attribute that it concerns (or none), and a value. Any system that
sums by key can therefore sum counts, including a cluster. Three facts can have as many keys as filters have different
constants, forms and ranges: the most frequent constants and forms are kept, and a sample of the ranges. How many were
left out is recorded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import ColumnPart

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 1_000  # ranges per attribute
TOP = 50  # constants per attribute, and forms

CountKey = tuple[str, str, str]


class Fact(StrEnum):
    """What a count is about, and what its value means."""

    FILTERS = "filters"  # read, refused, nothing (never TRUE) or everything (always TRUE)
    SIZE = "size"  # characters of a text, rounded up to a power of two
    BOXES = "boxes"  # of a filter
    ATTRIBUTES = "attributes"  # that a filter tests
    USE = "use"  # filters that test the attribute
    KIND = "kind"  # filters with a predicate of this kind on it
    TOGETHER = "together"  # filters that test both; the value is the other one, later in the alphabet
    CONSTANT = "constant"  # filters that require the attribute to equal it
    FORM = "form"  # filters with the same normal form, by its hash
    RANGE = "range"  # filters with this range on it: a pseudo-random rank, part, low and high
    SHARE = "share"  # predicates on it that this share of the sampled events passes
    PASSED = "passed"  # sampled events that pass a predicate on it, summed over predicates: passed, and total


@dataclass(frozen=True, slots=True)
class DemandRanges:
    """Ranges of numbers or timestamps, infinite where unbounded, and the number of filters that each stands for."""

    part: ColumnPart
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    weight: NDArray[np.int64]

    def around(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each point, the share of the ranges that contain it."""
        starts, ends = np.argsort(self.low), np.argsort(self.high)
        begun = np.append(0, np.cumsum(self.weight[starts]))[np.searchsorted(self.low[starts], points, "right")]
        ended = np.append(0, np.cumsum(self.weight[ends]))[np.searchsorted(self.high[ends], points, "left")]
        share: NDArray[np.float64] = (begun - ended) / max(int(self.weight.sum()), 1)
        return share


@dataclass(frozen=True, slots=True)
class DemandCounts:
    """Counts by key, one text per form, and the number of keys and counts that were left out.

    >>> some = DemandCounts({("use", "x", ""): 2, ("filters", "", "read"): 3})
    >>> some.merge(some).uses, some.read
    ({'x': 4}, 3)
    """

    counts: Mapping[CountKey, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)  # of each form, its first text in alphabetical order
    left: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def merged(parts: Iterable[DemandCounts]) -> DemandCounts:
        """The sum of all of them. Cost: O(keys)."""
        counts: dict[CountKey, int] = {}
        examples: dict[str, str] = {}
        left: dict[tuple[str, str], tuple[int, int]] = {}
        for part in parts:
            for key, count in part.counts.items():
                counts[key] = counts.get(key, 0) + count
            for form, text in part.examples.items():
                examples[form] = min(text, examples.get(form, text))
            for long, (keys, count) in part.left.items():
                before = left.get(long, (0, 0))
                left[long] = before[0] + keys, before[1] + count
        return DemandCounts(counts, examples, left)

    def merge(self, other: DemandCounts) -> DemandCounts:
        """The sum of both."""
        return DemandCounts.merged((self, other))

    def sampled(self, most: int = SAMPLE) -> DemandCounts:
        """The same with at most `most` ranges per attribute, those of lowest rank, which is a fair sample."""
        return self._trimmed({Fact.RANGE}, most, lambda key, count: key[2])  # noqa: ARG005

    def topped(self, most: int = TOP) -> DemandCounts:
        """The same with only the most frequent constants of an attribute, companions and forms."""
        trimmed = self._trimmed({Fact.CONSTANT, Fact.TOGETHER, Fact.FORM}, most, lambda key, count: (-count, key[2]))
        examples = {form: text for form, text in self.examples.items() if (Fact.FORM, "", form) in trimmed.counts}
        return DemandCounts(trimmed.counts, examples, trimmed.left)

    def _trimmed(self, facts: set[Fact], most: int, order: Any) -> DemandCounts:
        groups: dict[tuple[str, str], list[CountKey]] = defaultdict(list)
        for key in self.counts:
            if key[0] in facts:
                groups[key[:2]].append(key)
        counts, left = dict(self.counts), dict(self.left)
        for group, keys in groups.items():
            if len(keys) <= most:
                continue
            kept = set(nsmallest(most, keys, key=lambda key: order(key, self.counts[key])))
            gone = [counts.pop(key) for key in keys if key not in kept]
            if group[0] != Fact.RANGE:  # the number of ranges is known from the kinds of predicates
                before = left.get(group, (0, 0))
                left[group] = before[0] + len(gone), before[1] + sum(gone)
        return DemandCounts(counts, self.examples, left)

    # -- as rows -----------------------------------------------------------------------------------

    def to_batch(self) -> pa.RecordBatch:
        """One row per key: what, name, value, count, text, keys. The value is null where keys were left out."""
        import pyarrow as pa

        rows: list[tuple[str, str, str | None, int, str | None, int]] = [
            (*key, count, self.examples.get(key[2]) if key[0] == Fact.FORM else None, 1)
            for key, count in self.counts.items()
        ]
        rows += [(*group, None, count, None, keys) for group, (keys, count) in self.left.items()]
        columns = list(zip(*rows, strict=True)) if rows else [()] * 6
        kinds = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.string(), pa.int64())
        arrays: list[Any] = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=["what", "name", "value", "count", "text", "keys"])

    @staticmethod
    def from_batch(rows: pa.RecordBatch | pa.Table) -> DemandCounts:
        """Read what `to_batch` wrote. Rows with the same key are added up."""
        names = ("what", "name", "value", "count", "text", "keys")
        columns = (rows.column(name).to_pylist() for name in names)
        return DemandCounts.merged(map(_one, zip(*columns, strict=True)))

    # -- queries -----------------------------------------------------------------------------------

    def of(self, fact: Fact, name: str = "") -> dict[str, int]:
        """The counts of a fact by value, largest first."""
        found = {key[2]: count for key, count in self.counts.items() if key[0] == fact and key[1] == name}
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def distinct(self, fact: Fact, name: str = "") -> int:
        """The number of different values of a fact, including those that were left out."""
        return len(self.of(fact, name)) + self.left.get((fact, name), (0, 0))[0]

    def histogram(self, fact: Fact) -> dict[int, int]:
        """The counts of a fact with numeric values, sorted by value."""
        return {int(value): count for value, count in sorted(self.of(fact).items(), key=lambda pair: int(pair[0]))}

    @property
    def read(self) -> int:
        """The number of filters that could be parsed."""
        return self.counts.get((Fact.FILTERS, "", "read"), 0)

    @property
    def refused(self) -> int:
        """The number of texts that are not filters."""
        return self.counts.get((Fact.FILTERS, "", "refused"), 0)

    @property
    def uses(self) -> dict[str, int]:
        """For each attribute, how many filters test it, largest first."""
        found = Counter({key[1]: count for key, count in self.counts.items() if key[0] == Fact.USE})
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def together(self) -> dict[tuple[str, str], int]:
        """How many filters test both of two attributes, largest first."""
        found = {(key[1], key[2]): count for key, count in self.counts.items() if key[0] == Fact.TOGETHER}
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def lift(self, one: str, other: str) -> float:
        """How much more often both are tested than if they were independent; 0 if they never are."""
        first, second = sorted((one, other))
        both, uses = self.counts.get((Fact.TOGETHER, first, second), 0), self.uses
        return both * self.read / (uses[one] * uses[other]) if both else 0.0

    def ranges(self, name: str) -> dict[ColumnPart, DemandRanges]:
        """The sampled ranges of an attribute, by type."""
        found: dict[ColumnPart, list[tuple[float, float, int]]] = defaultdict(list)
        for value, count in self.of(Fact.RANGE, name).items():
            _, part, low, high = value.split(" ")
            found[ColumnPart(part)].append((float(low), float(high), count))
        return {part: DemandRanges(part, *_columns(rows)) for part, rows in found.items()}

    def share(self, name: str) -> float | None:
        """The mean share of the sampled events that pass a predicate on the attribute; None without events."""
        asked = self.counts.get((Fact.PASSED, name, "of"), 0)
        return self.counts.get((Fact.PASSED, name, ""), 0) / asked if asked else None

    def to_dict(self) -> dict[str, Any]:
        """The facts in JSON types: fact -> attribute -> value -> count."""
        found: dict[str, Any] = {}
        for (what, name, value), count in sorted(self.counts.items()):
            found.setdefault(what, {}).setdefault(name, {})[value] = count
        return {
            **found,
            "examples": dict(sorted(self.examples.items())),
            "left_out": [[*group, *left] for group, left in sorted(self.left.items())],
        }

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> DemandCounts:
        """Read what `to_dict` returned."""
        facts = ((what, form[what]) for what in map(str, Fact) if what in form)
        counts = {
            (what, name, value): count
            for what, names in facts
            for name, values in names.items()
            for value, count in values.items()
        }
        left = {(what, name): (keys, count) for what, name, keys, count in form["left_out"]}
        return DemandCounts(counts, dict(form["examples"]), left)


def _one(row: tuple[Any, ...]) -> DemandCounts:
    what, name, value, count, text, keys = row
    if value is None:
        return DemandCounts(left={(what, name): (keys, count)})
    return DemandCounts({(what, name, value): count}, {} if text is None else {value: text})


def _columns(rows: list[tuple[float, float, int]]) -> Iterator[Any]:
    low, high, weight = zip(*rows, strict=True)
    return chain((np.array(low), np.array(high)), (np.array(weight, np.int64),))
