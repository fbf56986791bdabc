"""The demand of many filter texts. The counts of all are the sum of the counts of the parts. A filter counts once for
each fact, however many boxes it has. Equal normal forms have equal hashes.

Boxes stored in columns are counted column by column, the others one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from weft.algebra import interval
from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns, Column, ColumnPart
from weft.algebra.filter_texts import readable
from weft.algebra.form_hashes import Hashes, forms_of, hash_of, ranks_of
from weft.algebra.residual import Called
from weft.algebra.valueset import PRESENT, ValueSet
from weft.demand.demand_counts import SAMPLE, DemandCounts, Fact
from weft.demand.event_sample import EventSample
from weft.demand.predicate_kinds import PredicateKind, kind_of
from weft.kernels.arrays import Ints
from weft.kernels.boxes import BOUNDED
from weft.language.constant import Constant
from weft.language.format import format_constant
from weft.language.membership import is_membership
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.value import Value, from_micros

_SHOWN = 200  # characters of a text that represents a form
_COMPANIONS = 50  # a filter with more attributes does not show which of them belong together


def demand_of(
    ids: Sequence[int | str | None],
    texts: Sequence[str | None],
    sample: EventSample | None = None,
    ranges: int = SAMPLE,
    predicates: Predicates = NO_PREDICATES,
) -> DemandCounts:
    """Count what the filters ask for, and how many of the sampled events pass. Texts that are not filters are counted
    too.

    >>> texts = ["x > 5", "x BETWEEN 1 AND 3 AND kind = 'a'", "kind = 'a' AND x >= 1 AND x <= 3", "x >"]
    >>> some = demand_of(range(4), texts)
    >>> some.uses, some.of(Fact.KIND, "x"), some.of(Fact.CONSTANT, "kind"), some.refused
    ({'x': 3, 'kind': 2}, {'range': 2, 'one-sided': 1}, {"'a'": 2}, 1)
    >>> some.distinct(Fact.FORM), sorted(some.examples.values())
    (2, ["kind = 'a' AND x >= 1 AND x <= 3", 'x > 5'])
    """
    found = readable(texts, None, predicates)
    counting = _Counting(found.columns, sample)
    counting.columns()
    for row, box in found.columns.odd.items():
        counting.box(row, box)
    counts = counting.totals()
    fine = [number for number in range(len(texts)) if number not in found.refused]
    counts[Fact.FILTERS, "", "read"] = len(fine)
    counts[Fact.FILTERS, "", "refused"] = len(found.refused)
    boxes = np.bincount(found.columns.owners, minlength=len(texts))
    for number, filters in zip(*np.unique(boxes[fine], return_counts=True), strict=True):
        counts[Fact.BOXES, "", str(number)] = int(filters)
    nothing = counts[Fact.FILTERS, "", "nothing"] = counts[Fact.BOXES, "", "0"]
    looking = sum(count for key, count in counts.items() if key[0] == Fact.ATTRIBUTES)
    counts[Fact.ATTRIBUTES, "", "0"] = len(fine) - nothing - looking
    for number in fine:
        counts[Fact.SIZE, "", str(1 << (len(texts[number] or "") - 1).bit_length())] += 1
    examples: dict[str, str] = {}
    wanted, hashes = forms_of(found.columns)
    for number, form in zip(wanted.tolist(), hashes.tolist(), strict=True):
        key, text = f"{form:016x}", (texts[number] or "")[:_SHOWN]
        counts[Fact.FORM, "", key] += 1
        examples[key] = min(text, examples.get(key, text))
    _count_ranges(counts, counting.spans, ranks_of(ids), ranges)
    return DemandCounts({key: count for key, count in counts.items() if count}, examples).sampled(ranges)


@dataclass(slots=True)
class _Counting:
    """Which filters have which facts, collected as arrays of filters, possibly with duplicates."""

    rows: BoxColumns
    sample: EventSample | None
    uses: dict[str, list[Ints]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[tuple[str, PredicateKind], list[Ints]] = field(default_factory=lambda: defaultdict(list))
    constants: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    equals: dict[str, list[tuple[Ints, Ints]]] = field(default_factory=lambda: defaultdict(list))
    spans: dict[tuple[str, ColumnPart], list[tuple[Ints, Any, Any]]] = field(default_factory=lambda: defaultdict(list))
    passed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    everything: list[Ints] = field(default_factory=list)

    def columns(self) -> None:
        """Count everything that is stored in columns."""
        free = np.ones(len(self.rows), bool)
        free[list(self.rows.odd)] = False
        for (name, part), whole in self.rows.columns.items():
            at = np.flatnonzero(whole.marks & BOUNDED)
            free[at] = False
            column = Column(whole.low[at], whole.high[at], whole.marks[at])
            filters = self.rows.owners[at]
            self.uses[name].append(filters)
            one = column.low == column.high
            from_, to = np.isfinite(column.low), np.isfinite(column.high)
            any_ = ~from_ & ~to if part is not ColumnPart.BOOLS else ~one
            ends = part in (ColumnPart.NUMBERS, ColumnPart.TIMESTAMPS)
            for kind, mask in (
                (PredicateKind.EQUALITY, one),
                (PredicateKind.PRESENCE, any_),
                (PredicateKind.RANGE, ~one & from_ & to & ends),
                (PredicateKind.ONE_SIDED, from_ ^ to),
            ):
                self.kinds[name, kind].append(filters[mask])
            values, places = np.unique(column.low[one], return_inverse=True)
            numbers = [self._constant(name, _value(part, value, self.rows.texts())) for value in values.tolist()]
            self.equals[name].append((filters[one], np.array(numbers, np.int64)[places]))
            if ends:
                open_ = ~one & ~any_
                self.spans[name, part].append((filters[open_], column.low[open_], column.high[open_]))
            if self.sample is not None:
                self._pass(name, self.sample.spans(name, part, column, self.rows.texts()))
        self.everything.append(self.rows.owners[free])

    def box(self, row: int, box: Box) -> None:
        """Count a single box."""
        filters = self.rows.owners[row : row + 1]
        compared: set[str] = set()
        for subject in box.residuals:
            compared.update(subject.names)
            for name in subject.names:
                kind = PredicateKind.PREDICATE if isinstance(subject, Called) else PredicateKind.COMPARISON
                self.kinds[name, kind].append(filters)
        for name in box.names:
            self.uses[name].append(filters)
        for name, values in box.sets.items():
            if is_membership(name) or (name in compared and values == PRESENT):
                continue  # a test of a list; or required by the comparison, not by the subscriber
            kind = kind_of(values)
            self.kinds[name, kind].append(filters)
            if kind in (PredicateKind.EQUALITY, PredicateKind.SET):
                for each in values.finite() or ():
                    if each is not None:
                        self.equals[name].append((filters, np.array([self._constant(name, each)])))
            else:
                self._lines(name, filters, values)
            if self.sample is not None:
                self._pass(name, np.array([self.sample.count(name, values)]))

    def _lines(self, name: str, filters: Ints, values: ValueSet) -> None:
        for part, line in ((ColumnPart.NUMBERS, values.numbers), (ColumnPart.TIMESTAMPS, values.timestamps)):
            if line == interval.NUMBERS:
                continue
            for low, high in interval.intervals(line):
                ends = float(low[0]), np.inf if high is None else float(high[0])
                self.spans[name, part].append((filters, np.array(ends[:1]), np.array(ends[1:])))

    def _constant(self, name: str, value: Value) -> int:
        known = self.constants[name]
        return known.setdefault(format_constant(Constant.of(value)), len(known))

    def _pass(self, name: str, passed: Ints) -> None:
        assert self.sample is not None
        size = self.sample.size
        self.passed[Fact.PASSED, name, ""] += int(passed.sum())
        self.passed[Fact.PASSED, name, "of"] += size * len(passed)
        for number, times in zip(*np.unique(passed, return_counts=True), strict=True):
            self.passed[Fact.SHARE, name, f"{number / max(size, 1):.2g}"] += int(times)

    def totals(self) -> Counter[tuple[str, str, str]]:
        """The counts by key."""
        counts = Counter(self.passed)
        counts[Fact.FILTERS, "", "everything"] = _different(self.everything)
        for (name, kind), seen in self.kinds.items():
            counts[Fact.KIND, name, str(kind)] = _different(seen)
        for name, pairs in self.equals.items():
            texts = list(self.constants[name])
            keys = np.concatenate([filters * len(texts) + places for filters, places in pairs])
            for at, times in enumerate(np.bincount(np.unique(keys) % max(len(texts), 1)).tolist()):
                counts[Fact.CONSTANT, name, texts[at]] = times
        names = sorted(self.uses)
        uses = [np.unique(np.concatenate(self.uses[name])) for name in names]
        for name, filters in zip(names, uses, strict=True):
            counts[Fact.USE, name, ""] = len(filters)
        filters = np.concatenate([np.zeros(0, np.int64), *uses])
        order = np.argsort(filters, kind="stable")
        numbers = np.repeat(np.arange(len(names)), [len(each) for each in uses])[order]
        _, firsts, sizes = np.unique(filters[order], return_index=True, return_counts=True)
        for size, times in zip(*np.unique(sizes, return_counts=True), strict=True):
            counts[Fact.ATTRIBUTES, "", str(size)] = int(times)
        _count_pairs(counts, names, numbers, firsts, sizes)
        return counts


def _count_pairs(
    counts: Counter[tuple[str, str, str]], names: list[str], numbers: Ints, firsts: Ints, sizes: Ints
) -> None:
    """Count the pairs of attributes of each filter. Filters with the same attributes, which are common, are counted at
    once.
    """
    if not len(firsts):
        return
    random = np.array([hash_of(name) for name in names], np.uint64)
    _, one_of, times = np.unique(np.add.reduceat(random[numbers], firsts), return_index=True, return_counts=True)
    for filter_, many in zip(one_of.tolist(), times.tolist(), strict=True):
        if sizes[filter_] <= _COMPANIONS:
            mine = numbers[firsts[filter_] : firsts[filter_] + sizes[filter_]]
            for one, other in combinations(sorted(mine.tolist()), 2):
                counts[Fact.TOGETHER, names[one], names[other]] += many


def _count_ranges(
    counts: Counter[tuple[str, str, str]],
    spans: dict[tuple[str, ColumnPart], list[tuple[Ints, Any, Any]]],
    ranks: Hashes,
    most: int,
) -> None:
    """Add a key for each range of lowest rank: as many as are kept, and those of equal rank."""
    for (name, part), each in spans.items():
        filters, low, high = (np.concatenate(column) for column in zip(*each, strict=True))
        mine = ranks[filters]
        different = np.unique(mine)
        kept = mine <= different[most - 1] if len(different) > most else np.ones(len(mine), bool)
        for rank, start, end in zip(mine[kept].tolist(), low[kept].tolist(), high[kept].tolist(), strict=True):
            counts[Fact.RANGE, name, f"{rank:016x} {part} {start!r} {end!r}"] += 1


def _different(seen: Iterable[Ints]) -> int:
    return len(np.unique(np.concatenate([np.zeros(0, np.int64), *seen])))


def _value(part: ColumnPart, value: float, texts: Sequence[str]) -> Value:
    match part:
        case ColumnPart.STRINGS:
            return texts[int(value)]
        case ColumnPart.BOOLS:
            return bool(value)
        case ColumnPart.TIMESTAMPS:
            return from_micros(int(value))
    return int(value) if value.is_integer() and abs(value) < 2**63 else value
