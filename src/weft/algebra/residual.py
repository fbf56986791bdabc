"""Residuals: what value sets cannot express, which are comparisons between attributes, and predicates. A residual
allows some outcomes of its subject. One implies another only when that is proven.

A subject has an outcome for every event, None where it is NULL, and a residual is a subject with its allowed outcomes.
NOT and IS NULL are other outcomes of the same subject, so that residuals need no logic of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from weft.algebra.budget import Budget
from weft.algebra.valueset import PRESENT, ValueSet, of_type
from weft.language.ast import AttributeRef, Call, Compare, Filter, Is, Not, Operator
from weft.language.meaning import compare, evaluate
from weft.model.lists import AttributeValue
from weft.model.value import Value

ResidualOutcome = str | bool | None
Outcomes = frozenset[ResidualOutcome]

_MOST_TRIALS = 64

_RESULTS = {
    Operator.EQ: "=",
    Operator.NE: "<>",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
}


@dataclass(frozen=True, slots=True)
class AttributeRelation:
    """How two attributes compare: `<`, `=` or `>`. Canonical: left sorts before right."""

    left: str
    right: str

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that it tests."""
        return (self.left, self.right)

    @property
    def outcomes(self) -> Outcomes:
        """All possible outcomes."""
        return frozenset(("<", "=", ">", None))

    def outcome(self, event: Mapping[str, AttributeValue | None]) -> ResidualOutcome:
        """How the event's values compare."""
        left, right = event.get(self.left), event.get(self.right)
        for operator in (Operator.LT, Operator.EQ, Operator.GT):
            if compare(operator, left, right):
                return str(operator)
        return None

    def needs(self, allowed: Outcomes) -> dict[str, ValueSet]:
        """The values that the attributes must have for an allowed outcome."""
        return {} if None in allowed else {self.left: PRESENT, self.right: PRESENT}

    def to_filter(self, allowed: Outcomes) -> Filter:
        """The filter that is TRUE for the allowed outcomes and FALSE for the others."""
        if allowed == {None}:
            return Not(Is(self._compares("<=>"), True))
        if None in allowed:
            return Not(Is(self._compares("".join(sorted(map(str, self.outcomes - allowed), key="<=>".index))), True))
        return self._compares("".join(sorted(map(str, allowed), key="<=>".index)))

    def _compares(self, results: str) -> Filter:
        if results == "<=>":  # any: two values that compare at all
            return self._compares("<=") | self._compares(">")
        operator = next(o for o, r in _RESULTS.items() if set(r) == set(results))
        return Compare(AttributeRef(self.left), operator, AttributeRef(self.right))


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a predicate on an attribute: TRUE or FALSE."""

    call: Call
    _hash: int = field(init=False, compare=False, repr=False)  # once somebody asked for it

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            made = hash(self.call)
            object.__setattr__(self, "_hash", made)
            return made

    def __reduce__(self) -> tuple[type[Called], tuple[Call]]:
        return Called, (self.call,)  # a hash of text differs from process to process

    @property
    def names(self) -> tuple[str, ...]:
        """The attribute that it tests."""
        return (self.call.left.name,)

    @property
    def outcomes(self) -> Outcomes:
        """All possible outcomes."""
        return frozenset((True, False, None))

    def outcome(self, event: Mapping[str, AttributeValue | None]) -> ResidualOutcome:
        """The outcome of the predicate for the event."""
        return evaluate(self.call, event)

    def needs(self, allowed: Outcomes) -> dict[str, ValueSet]:
        """The values that the attribute must have for an allowed outcome."""
        typed = of_type(self.call.predicate.type)
        if None not in allowed:
            return {self.call.left.name: typed}
        return {self.call.left.name: typed.complement()} if allowed == {None} else {}

    def to_filter(self, allowed: Outcomes) -> Filter:
        """The filter that is TRUE for the allowed outcomes and FALSE for the others."""
        if len(allowed) == 1:
            (only,) = allowed
            return Is(self.call, None) if only is None else self.call if only else Not(self.call)
        (other,) = self.outcomes - allowed
        return Not(Is(self.call, bool(other) if other is not None else None))


Subject = AttributeRelation | Called
Residuals = Mapping[Subject, Outcomes]


def relation(left: str, operator: Operator, right: str) -> tuple[AttributeRelation, Outcomes]:
    """The subject of a comparison between attributes, and the outcomes that make it TRUE."""
    if left > right:
        left, right, operator = right, left, operator.mirrored
    return AttributeRelation(left, right), frozenset(_RESULTS[operator])


def implied(
    subject: Subject, allowed: Outcomes, residuals: Residuals, sets: Mapping[str, ValueSet], budget: Budget
) -> bool:
    """True only if every event with these residuals and value sets gives the subject an allowed outcome."""
    budget.spend(4)
    known = residuals.get(subject)
    if known is not None and known <= allowed:
        return True
    tried = _outcomes(subject, sets, budget)
    if tried is not None and tried <= allowed:
        return True
    if isinstance(subject, Called):
        mine = subject.call
        values = sets.get(mine.left.name)
        typed = of_type(mine.predicate.type)
        if values is not None and (
            (None in allowed and not values.overlaps(typed, budget))
            or (allowed >= {True, False} and typed.covers(values, budget))
        ):
            return True
        budget.spend(len(residuals) // 4)
        for other, outcomes in residuals.items():
            if isinstance(other, Called) and _same_test(mine, other.call):
                test, wide, narrow = mine.predicate, mine.values, other.call.values
                budget.spend(8 + _length(wide) * _length(narrow) // 32)
                if outcomes == {True} and True in allowed and test.covers(wide, narrow):
                    return True
                if outcomes == {True} and False in allowed and not test.overlaps(wide, narrow):
                    return True
                if outcomes == {False} and False in allowed and test.covers(narrow, wide):
                    return True
    return False


def contradicts(
    subject: Subject, allowed: Outcomes, residuals: Residuals, sets: Mapping[str, ValueSet], budget: Budget
) -> bool:
    """True only if no event with these residuals and value sets gives the subject an allowed outcome."""
    return implied(subject, subject.outcomes - allowed, residuals, sets, budget)


def _length(arguments: tuple[Value, ...]) -> int:
    """The characters of the arguments of a predicate: comparing two takes up to their product."""
    return sum([len(each) for each in arguments if isinstance(each, str)])


def _same_test(one: Call, other: Call) -> bool:
    return one.left == other.left and one.predicate == other.predicate


def _outcomes(subject: Subject, sets: Mapping[str, ValueSet], budget: Budget) -> Outcomes | None:
    """The outcomes for finitely many values; None if there are too many to try."""
    choices: list[list[Any]] = []
    trials = 1
    for name in subject.names:
        if name not in sets or sets[name].cuts > 2 * _MOST_TRIALS:
            return None
        values = sets[name].finite()
        if values is None:
            return None
        choices.append(values)
        trials *= len(values)
        if trials > _MOST_TRIALS:
            return None
    budget.spend(4 * trials)
    return frozenset(subject.outcome(dict(zip(subject.names, chosen, strict=True))) for chosen in product(*choices))
