"""Filters counted by their mistakes. Merging the counts of parts gives the counts of the whole. A filter counts once
for each mistake. The first examples are those of the first filters.

Filters of one shape have the same mistakes in their leaves, so that a shape is looked at once. Whether a filter is
never or always TRUE, and which are duplicates, is told by normal forms, made for all of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.filter_texts import plain_text, readable
from weft.algebra.form_hashes import Hashes, forms_of
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers
from weft.errors import FilterError
from weft.kernels.boxes import BOUNDED
from weft.language.ast import TRUE, Filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import TextShape, parse, shape_of
from weft.lint.seen_attributes import SeenAttributes
from weft.lint.tree_problems import LintKind, ProblemKey, TreeProblems, tree_problems
from weft.model.schema import Schema

LintedId = int | str | None

_INVALID, _NEVER, _ALWAYS = (ProblemKey(kind) for kind in (LintKind.INVALID, LintKind.NEVER_TRUE, LintKind.ALWAYS_TRUE))
EXAMPLES = 3


@dataclass(slots=True)
class Tally:
    """How many filters have a mistake, their ids, and the texts of the first (why, for texts that are not filters)."""

    count: int = 0
    ids: list[LintedId] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, id: LintedId, text: str, most: int | None) -> None:
        """Count one more."""
        self.count += 1
        if most is None or len(self.ids) < most:
            self.ids.append(id)
        if len(self.texts) < EXAMPLES:
            self.texts.append(text)


@dataclass(slots=True)
class LintCounts:
    """The mistakes of some filters; `hashes` are those of the normal forms of all that can match something."""

    filters: int = 0
    dead: int = 0  # filters that no event can match
    kinds: Counter[LintKind] = field(default_factory=Counter)
    tallies: dict[ProblemKey, Tally] = field(default_factory=dict)
    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    owners: Sequence[tuple[LintedId, str]] = field(default_factory=list)  # of the hashes

    @staticmethod
    def merged(parts: Iterable[LintCounts], most: int | None = None) -> LintCounts:
        """All mistakes, each with a limited number of ids."""
        whole, hashes = LintCounts(), [np.zeros(0, np.uint64)]
        owners: list[tuple[LintedId, str]] = []
        for part in parts:
            whole.filters += part.filters
            whole.dead += part.dead
            whole.kinds += part.kinds
            owners += part.owners
            hashes.append(part.hashes)
            for key, tally in part.tallies.items():
                into = whole.tallies.setdefault(key, Tally())
                into.count += tally.count
                into.ids = (into.ids + tally.ids)[:most]
                into.texts = (into.texts + tally.texts)[:EXAMPLES]
        whole.hashes, whole.owners = np.concatenate(hashes), owners
        return whole

    def duplicates(self) -> list[list[int]]:
        """The places of equal hashes, groups of two or more; the largest first."""
        order = np.argsort(self.hashes, kind="stable")
        ends = np.flatnonzero(np.diff(self.hashes[order])) + 1
        groups = [each.tolist() for each in np.split(order, ends) if len(each) > 1]
        return sorted(groups, key=lambda group: (-len(group), group[0]))

    def _add(self, key: ProblemKey, id: LintedId, text: str, most: int | None) -> None:
        self.tallies.setdefault(key, Tally()).add(id, text, most)


def lint_counts(  # noqa: PLR0913 - each has a default that serves
    ids: Sequence[LintedId],
    filters: Sequence[Filter | str | None],
    seen: SeenAttributes | None = None,
    schema: Schema | None = None,
    predicates: Predicates = NO_PREDICATES,
    *,
    most: int | None = None,
    duplicates: bool = True,
) -> LintCounts:
    """Count the mistakes of filters, texts or trees; keep `most` ids of each mistake, all unless told.

    >>> counts = lint_counts([1, 2, 3], ["x > 5 AND x < 3", "y = 1", "x >"])
    >>> counts.filters, dict(counts.kinds) == {LintKind.INVALID: 1, LintKind.NEVER_TRUE: 1}
    (3, True)

    Cost: O(characters) for most filters; those that are no conjunctions of comparisons are looked at one by one.
    """
    counts = LintCounts(filters=len(ids))
    texts = [str(each) if isinstance(each, Filter) else each for each in filters]
    columns, refused = readable(texts, schema, predicates)
    extra: dict[int, NormalForm] = {}
    for row in [row for row in refused if isinstance(filters[row], Filter)]:
        try:  # a tree may be larger than a text may be
            extra[row] = normalize(filters[row], schema)  # type: ignore[arg-type]
            del refused[row]
        except FilterError:
            continue
    trees = _Trees(seen, predicates)
    boxes = np.bincount(columns.owners, minlength=len(texts))
    for row, (its, text) in enumerate(zip(ids, texts, strict=True)):
        if row in refused:
            counts.kinds[LintKind.INVALID] += 1
            counts._add(_INVALID, its, refused[row], most)
            continue
        shown = str(text)
        given = filters[row] if row in extra else shown
        found = None if seen is None else trees.of(given)  # type: ignore[arg-type]
        nothing = not boxes[row] and not (row in extra and extra[row].boxes)
        if found is not None:
            for key in {problem.key for problem in found.problems}:
                counts._add(key, its, shown, most)
            counts.kinds.update({problem.key.kind for problem in found.problems})
        if nothing and (found is None or not found.dead):
            counts.kinds[LintKind.NEVER_TRUE] += 1
            counts._add(_NEVER, its, shown, most)
        counts.dead += bool(nothing or (found is not None and found.dead))
    for row in sorted({*_everything(columns, schema), *(row for row in extra if covers(extra[row], TRUE, schema))}):
        counts.kinds[LintKind.ALWAYS_TRUE] += 1
        counts._add(_ALWAYS, ids[row], str(texts[row]), most)
    if duplicates:
        owners, counts.hashes = forms_of(columns)
        rows = owners.tolist()
        for row, form in extra.items():
            if form.boxes:
                counts.hashes = np.append(counts.hashes, forms_of(BoxColumns.of(form.boxes, [0] * len(form.boxes)))[1])
                rows.append(row)
        counts.owners = [(ids[row], str(texts[row])) for row in rows]
    return counts


class _Trees:
    """The mistakes of trees, one for each shape of text."""

    def __init__(self, seen: SeenAttributes | None, predicates: Predicates) -> None:
        self._seen, self._predicates = seen, predicates
        self._shapes: dict[int, tuple[TextShape, TreeProblems]] = {}  # shapes are kept, or an id would be another's

    def of(self, filter: Filter | str) -> TreeProblems:
        assert self._seen is not None
        if isinstance(filter, Filter):
            return tree_problems(filter, self._seen)
        found = shape_of(filter) if not filter.lstrip().startswith(("{", "[")) else None
        if found is None:
            return tree_problems(parse(plain_text(filter, self._predicates), self._predicates), self._seen)
        shape = found[0]
        known = self._shapes.get(id(shape))
        if known is None:
            known = self._shapes[id(shape)] = shape, tree_problems(shape.tree, self._seen)
        return known[1]


def _everything(columns: BoxColumns, schema: Schema | None) -> list[int]:
    """The filters that every event matches: those with a box of no condition, and unions that are proven to be all."""
    free = np.ones(len(columns), bool)
    free[list(columns.odd)] = False
    for column in columns.columns.values():
        free &= column.marks & BOUNDED == 0
    found = set(columns.owners[free].tolist())
    # a union that every event matches has a box for the event that has no attribute at all
    for row, box in columns.odd.items():
        owner = int(columns.owners[row])
        if owner not in found and box.admits({}):
            first, last = np.searchsorted(columns.owners, (owner, owner + 1))
            form = NormalForm(tuple(columns.box(each) for each in range(first, last)), schema)
            if covers(form, TRUE, schema):
                found.add(owner)
    return sorted(found)
