"""Boxes: a value set for each of some attributes, and residuals. No set in a box is empty, none contains everything,
and an attribute that is not in a box can be anything, or absent. A membership, which HAS tests, stands in a box as an
attribute of its own (see `weft.language.membership`).

A normal form is a union of boxes: without boxes it is empty, and the box without attributes is everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.algebra import interval
from weft.algebra.budget import Budget
from weft.algebra.element_sets import is_member, possible_truths
from weft.algebra.residual import Outcomes, Residuals, Subject, contradicts, implied
from weft.algebra.valueset import ANYTHING, TRUTHS, ValueSet, of_type_or_absent
from weft.errors import FilterTooComplexError
from weft.language.membership import MARK, Truths, attribute_of, membership
from weft.model.event import Event, attributes_of
from weft.model.limits import LIMITS
from weft.model.lists import AttributeValue
from weft.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Box:
    """The events whose attributes are in its value sets and whose residuals have allowed outcomes.

    >>> box = Box({"depth": ValueSet(numbers=((0, 0), (70, 0)))})
    >>> {"depth": 12.5} in box, {"depth": 70} in box, {} in box
    (True, False, False)
    """

    sets: Mapping[str, ValueSet]
    residuals: Residuals = field(default_factory=dict)
    _hash: int = field(init=False, compare=False, repr=False)  # once somebody asked for it

    @staticmethod
    def of(
        sets: Mapping[str, ValueSet],
        residuals: Residuals | None = None,
        schema: Schema | None = None,
        budget: Budget | None = None,
    ) -> Box | None:
        """The box in its simplest form; None if it is proven empty.

        Cost: O(bounds of the sets); patterns and residuals take steps of the budget.

        >>> Box.of({"depth": ValueSet(numbers=((0, 0), (70, 0))), "place": ANYTHING}).names
        frozenset({'depth'})
        >>> Box.of({"depth": ValueSet()}) is None
        True
        """
        if residuals:
            if len(residuals) > LIMITS.residuals:
                raise too_many_residuals()
            budget = budget or Budget()
            budget.spend(16 + 4 * len(residuals))
            sets = dict(sets)
            for subject, allowed in residuals.items():
                for name, needed in subject.needs(allowed).items():
                    sets[name] = sets[name].intersect(needed, budget) if name in sets else needed
        least = {}
        for name, values in sets.items():
            if not values:
                return None
            if not values.absent or not values.covers(universe(name, schema), budget):
                least[name] = values
        if not residuals:
            return Box(least)
        kept = _least_residuals(residuals, least, budget or Budget())
        return None if kept is None else Box(least, kept)

    def __contains__(self, event: Event | Mapping[str, AttributeValue | None]) -> bool:
        return self.admits(attributes_of(event))

    def admits(self, values: Mapping[str, AttributeValue | None]) -> bool:
        """Whether an event with these attributes, as `attributes_of` gives them, is in the box.

        Cost: O(log bounds) for each attribute of the box; patterns and predicates are evaluated.

        >>> Box({"depth": ValueSet(numbers=((0, 0), (70, 0)))}).admits({"depth": 12.5, "place": "Chile"})
        True
        """
        for name, allowed in self.sets.items():
            value = values.get(name)
            if type(value) is float and value == value:  # noqa: PLR0124 - NaN is absent
                if not interval.contains(allowed.numbers, value):
                    return False
            elif value is None and name[0] == MARK:
                if is_member(name, values) not in allowed:
                    return False
            elif value not in allowed:
                return False
        return not self.residuals or all(
            subject.outcome(values) in allowed for subject, allowed in self.residuals.items()
        )

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            made = hash((frozenset(self.sets.items()), frozenset(self.residuals.items())))
            object.__setattr__(self, "_hash", made)
            return made

    def __reduce__(self) -> tuple[type[Box], tuple[object, object]]:
        return Box, (self.sets, self.residuals)  # a hash of text differs from process to process

    @property
    def names(self) -> frozenset[str]:
        """The attributes that it tests. Cost: O(attributes).

        >>> Box({"depth": ValueSet(numbers=((0, 0),))}).names
        frozenset({'depth'})
        """
        return frozenset(map(attribute_of, self.sets)).union(*(subject.names for subject in self.residuals))

    def covers(self, other: Box, budget: Budget | None = None) -> bool:
        """True only if every event in the other is in this; False when the budget is used up.

        Cost: O(bounds of both); patterns and residuals take steps of the budget.

        >>> wide, narrow = Box({"x": ValueSet(numbers=((0, 0),))}), Box({"x": ValueSet(numbers=((5, 0),))})
        >>> wide.covers(narrow), narrow.covers(wide)
        (True, False)
        """
        theirs = other.sets
        compared = 0
        for name, values in self.sets.items():
            narrow = theirs.get(name)
            if narrow is None:
                if name[0] == MARK and _is_implied(name, values, other, budget):
                    continue
                break
            if budget is None and (values.strings.terms or narrow.strings.terms):
                budget = Budget()  # one for all attributes
            compared += 1
            if values is narrow:
                continue
            if budget is not None and narrow.cuts > _SHORT and not _may_cover(values, narrow, budget):
                break
            if not values.covers(narrow, budget):
                if name[0] == MARK and _is_implied(name, values, other, budget):
                    continue
                break
        else:
            if budget is not None:
                budget.charge(compared // 2)
            return not self.residuals or self.residuals_implied_by(other, budget)
        if budget is not None:
            budget.charge(compared // 2)
        return False

    def residuals_implied_by(self, other: Box, budget: Budget | None = None) -> bool:
        """True only if every event in the other has all of this box's residuals. Cost: at most the steps of the budget.

        >>> from weft import normalize
        >>> (less,), (below,) = normalize("x <= y").boxes, normalize("x < y AND x > 5").boxes
        >>> less.residuals_implied_by(below), below.residuals_implied_by(less)
        (True, False)
        """
        budget = budget or Budget()
        try:
            return all(
                implied(subject, allowed, other.residuals, other.sets, budget)
                for subject, allowed in self.residuals.items()
            )
        except FilterTooComplexError:
            return False  # not proven

    def intersect(self, other: Box, budget: Budget | None = None) -> Box | None:
        """The box of what is in both; None if that is proven empty.

        Cost: O(bounds of both); patterns and residuals take steps of the budget.

        >>> wide, narrow = Box({"x": ValueSet(numbers=((0, 0),))}), Box({"x": ValueSet(numbers=((5, 0),))})
        >>> wide.intersect(narrow) == narrow, narrow.intersect(Box({"x": ValueSet(numbers=((0, 0), (5, 0)))}))
        (True, None)
        """
        sets = dict(self.sets)
        for name, values in other.sets.items():
            mine = sets.get(name)
            if mine is None:
                sets[name] = values
                continue
            both = mine.intersect(values, budget)
            if not both:
                return None
            sets[name] = both
        if not self.residuals and not other.residuals:
            return Box(sets)
        residuals = dict(self.residuals)
        for subject, allowed in other.residuals.items():
            residuals[subject] = residuals[subject] & allowed if subject in residuals else allowed
        return Box.of(sets, residuals, budget=budget)

    def overlaps(self, other: Box, budget: Budget | None = None) -> bool:
        """False only if nothing is in both; True if that is too complex to decide.

        Cost: O(bounds of both); patterns and residuals take steps of the budget.

        >>> low, high = Box({"x": ValueSet(numbers=((0, 0), (5, 0)))}), Box({"x": ValueSet(numbers=((5, 0),))})
        >>> low.overlaps(high), low.overlaps(Box({"y": ValueSet(numbers=((5, 0),))}))
        (False, True)
        """
        theirs = other.sets
        compared = 0
        for name, values in self.sets.items():
            compared += 1
            found = theirs.get(name)
            if found is None:
                continue
            if budget is None and (values.strings.terms or found.strings.terms):
                budget = Budget()  # one for all attributes
            if budget is not None and (long := min(values.cuts, found.cuts)) > _SHORT:
                if budget.left <= 0:
                    return True  # not disproved
                compared += long // 2
            if not values.overlaps(found, budget):
                if budget is not None:
                    budget.charge(compared // 2)
                return False
        if budget is not None:
            budget.charge(compared // 2)
        try:
            return not (self.residuals or other.residuals) or self.intersect(other, budget) is not None
        except FilterTooComplexError:
            return True


def _is_implied(name: str, values: ValueSet, other: Box, budget: Budget | None) -> bool:
    """True only if all events in the other box have a membership, because of others of the same attribute."""
    truths = _truths(values)
    if truths == _TRULY and len(membership(name).keys) == 1:
        return False  # one value is in no other set that a list has one of
    others = {each: _truths(held) for each, held in other.sets.items() if each[0] == MARK}
    try:
        return bool(others) and possible_truths(name, others, budget) <= truths
    except FilterTooComplexError:
        return False  # not proven


def _truths(values: ValueSet) -> Truths:
    return values.bools | {None} if values.absent else values.bools


EVERYTHING = Box({})
_TRULY: Truths = frozenset((True,))

_SHORT = 32  # cuts of a value set whose comparison takes a step or less


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A union of boxes, under a schema or none.

    >>> from weft import normalize
    >>> form = normalize("depth < 70 OR magnitude >= 5")
    >>> len(form.boxes), {"depth": 12.5} in form, {"depth": 300} in form
    (2, True, False)
    >>> bool(normalize("x > 5 AND x < 3"))
    False
    """

    boxes: tuple[Box, ...]
    schema: Schema | None = field(default=None)

    def __contains__(self, event: Event | Mapping[str, AttributeValue | None]) -> bool:
        return self.admits(attributes_of(event))

    def admits(self, values: Mapping[str, AttributeValue | None]) -> bool:
        """Whether an event with these attributes, as `attributes_of` gives them, is in one of the boxes.

        Cost: that of `Box.admits` for each box, until one admits the event.

        >>> from weft import normalize
        >>> normalize("depth < 70 OR magnitude >= 5").admits({"depth": 300, "magnitude": 6.1})
        True
        """
        for box in self.boxes:  # noqa: SIM110 - any() costs as much again
            if box.admits(values):
                return True
        return False

    def __bool__(self) -> bool:
        """Whether it may match an event: False only if it is empty."""
        return bool(self.boxes)


def required_memberships(form: NormalForm) -> frozenset[str]:
    """The memberships of single values that all events of a form have: `tags HAS 'rock'`.

    A form covers another only if the other has all that it has, because nothing else implies a single value.
    Cost: O(attributes of the boxes).

    >>> from weft import normalize
    >>> [len(required_memberships(normalize(text))) for text in ("t HAS 'a' AND x > 5", "t HAS ANY ('a', 'b')")]
    [1, 0]
    """
    common: frozenset[str] | None = None
    for box in form.boxes:
        own = frozenset(
            name
            for name, values in box.sets.items()
            if name[0] == MARK and _truths(values) == _TRULY and len(membership(name).keys) == 1
        )
        common = own if common is None else common & own
        if not common:
            break
    return common or frozenset()


def universe(name: str, schema: Schema | None) -> ValueSet:
    """Everything that an attribute can be: with a schema its type or absent, else anything; a membership is a truth."""
    if name[0] == MARK:
        return TRUTHS
    declared = None if schema is None else schema.get(name)
    return ANYTHING if declared is None else of_type_or_absent(declared.type)


def too_many_residuals() -> FilterTooComplexError:
    """The error for too many residuals."""
    return FilterTooComplexError(
        f"one box of the filter has more than {LIMITS.residuals} comparisons between attributes and predicates; "
        "split the filter"
    )


def _may_cover(wide: ValueSet, narrow: ValueSet, budget: Budget) -> bool:
    """Whether to compare a set of many cuts; if so, its steps are charged. Most sets differ at their first interval."""
    if budget.left <= 0 or not interval.covers(wide.numbers, narrow.numbers[:2]):
        return False
    if not wide.strings.terms and not interval.covers(wide.strings.line, narrow.strings.line[:2]):
        return False
    budget.charge(narrow.cuts // 4)
    return True


def _least_residuals(
    residuals: Residuals, sets: Mapping[str, ValueSet], budget: Budget
) -> dict[Subject, Outcomes] | None:
    """The residuals that the others do not imply; None if the others contradict one."""
    kept = dict(residuals)
    for subject, allowed in residuals.items():
        del kept[subject]
        if not allowed or contradicts(subject, allowed, kept, sets, budget):
            return None
        if allowed != subject.outcomes and not implied(subject, allowed, kept, sets, budget):
            kept[subject] = allowed
    return kept
