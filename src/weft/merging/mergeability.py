"""Mergeability: which two filters merge, and into what (thesis 8.3.1, Appendix A). A merger covers both. A perfect
merger matches nothing else. What imperfect mergers add stays within a budget.

Two boxes merge perfectly only if they differ in at most one attribute (Definition A.2). Candidates are therefore found
by signatures (all of the filter except one attribute, for each attribute), not by trying every pair.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Literal, TypeVar

from weft.algebra.box import EVERYTHING, Box, NormalForm
from weft.algebra.measure import volume
from weft.algebra.merge import Merger, merge_attributes, merge_bounding, merge_perfect
from weft.algebra.relate import Region
from weft.algebra.valueset import ValueSet
from weft.errors import FilterTooComplexError, OptionError, SchemaError
from weft.model.schema import Schema
from weft.order.filter_relation import Boxed

T = TypeVar("T")
MergeChoice = Literal["first", "widest"]

_MAX_LETTERS = 16_384
_BOXES = 4  # of a filter that may merge


@dataclass(frozen=True, slots=True)
class Merged(Generic[T]):
    """What two things merge into, and the share of all events that it adds to them: 0 for a perfect merger."""

    thing: T
    waste: float = 0.0


@dataclass(frozen=True, slots=True)
class MergeBudget:
    """The share of the domain's volume that all mergers together may add. It grows to its full size at `saturation`
    items.

    A few filters stay precise; they become more general as the space fills (thesis 8.8).

    >>> MergeBudget(0.1, saturation=50).at(25), MergeBudget(0.1, saturation=50).at(80), MergeBudget(0.1).at(1)
    (0.05, 0.1, 0.1)
    """

    share: float
    saturation: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.saturation < 0:
            raise OptionError(
                f"MergeBudget({self.share}, saturation={self.saturation}) is not a budget; "
                "give a share from 0 to 1 and a saturation of 0 or more items"
            )

    def at(self, items: int) -> float:
        """What may be added while this many items are told."""
        return self.share * min(1.0, items / self.saturation) if self.saturation else self.share


class Merging(Generic[T]):
    """How things of any type merge: `merge` takes two things, as their relation compares them, and returns a thing or
    None.

    Things without a common signature are never tried; without `signatures`, all things are candidates. For each
    signature at most `tries` candidates are tried, the latest first. `choice` selects the first merger found, or the
    widest: the one with the least waste and then the largest `breadth` (thesis A.5).

    >>> touching = Merging(lambda a, b: (min(a[0], b[0]), max(a[1], b[1])) if a[0] <= b[1] and b[0] <= a[1] else None)
    >>> touching.merged((0, 5), (4, 9), room=0.0), touching.merged((0, 3), (5, 9), room=0.0)
    (Merged(thing=(0, 9), waste=0.0), None)
    """

    def __init__(
        self,
        merge: Callable[[Any, Any], T | None],
        *,
        signatures: Callable[[Any], Iterable[Hashable]] | None = None,
        breadth: Callable[[Any], float] | None = None,
        choice: MergeChoice = "first",
        tries: int = 8,
    ) -> None:
        if choice not in ("first", "widest"):
            raise OptionError(f"choice is {choice!r}; use 'first' or 'widest'")
        if tries < 1:
            raise OptionError(f"tries is {tries}; at least one candidate must be tried")
        self.choice = choice
        self.tries = tries
        self._merge = merge
        self._signatures = signatures
        self._breadth = breadth

    def signatures(self, made: Any) -> Iterable[Hashable]:
        """The keys under which merge candidates find a thing."""
        return (None,) if self._signatures is None else self._signatures(made)

    def merged(self, one: Any, other: Any, room: float) -> Merged[T] | None:  # noqa: ARG002 - for subclasses
        """What two things merge into, adding no more than `room`; None if they do not merge."""
        thing = self._merge(one, other)
        return None if thing is None else Merged(thing)

    def breadth(self, made: Any) -> float:
        """How much a thing lets through, as a basis for the choice."""
        return 0.0 if self._breadth is None else self._breadth(made)

    def size(self, made: Any) -> int:  # noqa: ARG002 - for subclasses
        """How many intervals, points and patterns a thing has, where that is known."""
        return 0

    def room(self, items: int, spent: float) -> float:  # noqa: ARG002
        """What may still be added while this many items are told that have already added `spent`."""
        return 0.0

    def best(self, found: Iterator[tuple[Any, Merged[T], Any]]) -> tuple[Any, Merged[T], Any] | None:
        """Choose among triples of a candidate, its merger, and the merger as it is compared."""
        if self.choice == "first":
            return next(found, None)
        return min(found, key=lambda each: (each[1].waste, -self.breadth(each[2])), default=None)


def never() -> Merging[Any]:
    """Nothing merges: covering alone."""
    return Merging(lambda one, other: None, signatures=lambda made: ())  # noqa: ARG005


class FilterMerging(Merging[Region]):
    """How filters merge: perfectly, and with a `budget` also imperfectly if they test the same attributes (A.6).

    Added volume is measured under the schema's bounds; a filter that they cannot measure merges only perfectly. A
    merger has at most `pieces` intervals, points and patterns, or as many as its larger part, and a filter that has as
    many already is left as it is: otherwise every new value of an attribute would tell all values again. Filters of
    more than four boxes are not tried.

    >>> from weft import to_filter, parse
    >>> from weft.order import FilterRelation
    >>> filters, merging = FilterRelation(), FilterMerging()
    >>> one, other = filters.make(parse("a = 1 AND x < 10")), filters.make(parse("a = 1 AND x > 5"))
    >>> print(to_filter(merging.merged(one, other, room=0.0).thing))
    a = 1 AND (x < 0 OR x >= 0)
    """

    def __init__(
        self,
        schema: Schema | None = None,
        budget: MergeBudget | None = None,
        *,
        pieces: int = 64,
        choice: MergeChoice = "first",
        tries: int = 8,
    ) -> None:
        super().__init__(self._perfect, choice=choice, tries=tries)
        self.schema = schema
        self.budget = budget
        self.pieces = pieces
        self._domain = self._measured(NormalForm((EVERYTHING,), schema))

    def signatures(self, made: Boxed) -> Iterable[Hashable]:
        """Each box without one of its attributes or comparisons; with a budget, also the structure."""
        boxes = made.form.boxes
        if len(boxes) > _BOXES or _pieces(made.form) >= self.pieces:
            return  # hardly anything can merge with a filter that is already full
        for box in boxes:
            hashes = {part: hash((part, held)) for part, held in (*box.sets.items(), *box.residuals.items())}
            whole = reduce(int.__xor__, hashes.values(), 0)
            for part, own in hashes.items():
                yield part, whole ^ own
        if self.budget is not None and len(boxes) == 1:
            yield frozenset(boxes[0].sets), frozenset(boxes[0].residuals)

    def merged(self, one: Boxed, other: Boxed, room: float) -> Merged[Region] | None:
        """The perfect merger, or else one that adds no more than `room`; None if there is neither."""
        try:
            perfect = self._perfect(one, other)
            if perfect is not None:
                return Merged(perfect)
            return self._imperfect(one.form, other.form, room) if room > 0 else None
        except FilterTooComplexError:
            return None

    def breadth(self, made: Boxed) -> float:
        """Its share of the domain. Where that cannot be measured, a filter with fewer attributes is broader."""
        share = self.share(made)
        return -min(len(box.sets) for box in made.form.boxes) if share is None else share

    def size(self, made: Boxed) -> int:
        """How many intervals, points and patterns it has."""
        return _pieces(made.form)

    def share(self, made: Boxed) -> float | None:
        """Its share of the domain, or None if the schema cannot measure it."""
        size = self._measured(made.form)
        return size / self._domain if size is not None and self._domain else None

    def room(self, items: int, spent: float) -> float:
        """What is left of the budget."""
        return 0.0 if self.budget is None else self.budget.at(items) - spent

    def _perfect(self, one: Boxed, other: Boxed) -> NormalForm | None:
        mine, theirs = one.form.boxes, other.form.boxes
        if len(mine) == len(theirs) == 1:
            box = _joined(mine[0], theirs[0], self.schema)
            form = None if box is None else NormalForm((box,), self.schema)
        else:
            merger = merge_perfect((one.form, other.form), self.schema)
            form = None if merger is None else merger.form
        return form if form is not None and self._fits(form, one.form, other.form) else None

    def _imperfect(self, one: NormalForm, other: NormalForm, room: float) -> Merged[Region] | None:
        """Merge attribute by attribute; if that has too many pieces, use the box around both."""
        if not self._domain:
            return None
        merger: Merger | None = merge_attributes((one, other), self.schema)
        if merger is not None and not self._fits(merger.form, one, other):
            merger = merge_bounding((one, other), self.schema)
        if merger is None or merger.added is None or merger.added > room * self._domain:
            return None
        return Merged(merger.form, merger.added / self._domain)

    def _fits(self, form: NormalForm, *parts: NormalForm) -> bool:
        size = _pieces(form)
        small = size <= self.pieces or size <= max(map(_pieces, parts))
        return small and _letters(form) <= _MAX_LETTERS

    def _measured(self, form: NormalForm) -> float | None:
        try:
            return None if self.schema is None else volume(form, self.schema)
        except (SchemaError, FilterTooComplexError):
            return None


def _joined(one: Box, other: Box, schema: Schema | None) -> Box | None:
    """The union of two boxes that differ in at most one attribute or comparison; None for other boxes."""
    if one.sets.keys() != other.sets.keys() or one.residuals.keys() != other.residuals.keys():
        return None
    names = [name for name, values in one.sets.items() if values != other.sets[name]]
    subjects = [subject for subject, allowed in one.residuals.items() if allowed != other.residuals[subject]]
    if len(names) + len(subjects) != 1:
        return None
    sets, residuals = dict(one.sets), dict(one.residuals)
    for name in names:
        sets[name] = sets[name].union(other.sets[name])
    for subject in subjects:
        residuals[subject] |= other.residuals[subject]
    return Box.of(sets, residuals, schema)


def _pieces(form: NormalForm) -> int:
    return sum(_size(values) for box in form.boxes for values in box.sets.values())


def _letters(form: NormalForm) -> int:
    """The total length of its strings: a merger must not exceed the size of a filter that can be written."""
    texts = (cut[0] for box in form.boxes for values in box.sets.values() for cut in values.strings.line)
    return sum(map(len, texts))


def _size(values: ValueSet) -> int:
    cuts = len(values.numbers) + len(values.timestamps) + len(values.strings.line)
    return (cuts + 1) // 2 + len(values.strings.terms) + len(values.bools) + values.absent
