"""Sets of strings: intervals of the code-point order, and patterns. Membership, union, intersection and complement are
exact. `covers` is True only when proven, and complete without patterns.

A set is a line (points, prefixes, ranges, and their complements) and terms: a term is the part of a line that matches
all of some patterns and none of some others. Comparing patterns spends a budget: when it is used up, `covers` is False,
`overlaps` is True, and union, intersection and complement raise FilterTooComplexError. A pattern that ignores case is
always a term, also without wildcards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.algebra import interval
from weft.algebra.budget import Budget
from weft.algebra.interval import EMPTY, STRINGS, Line
from weft.algebra.string_terms import (
    Term,
    TermsByAnchor,
    least_form,
    least_terms,
    starting_with,
    too_many_patterns,
    twins,
)
from weft.algebra.term_search import LONG, MANY, pattern_search
from weft.errors import FilterTooComplexError
from weft.language.pattern import Pattern
from weft.model.limits import LIMITS

_ALONE = 8  # a set that is compared without a budget gets this fraction of one: a box may have many sets
_FEW = 24  # more terms are not compared with each other

_NONE: frozenset[Pattern] = frozenset()


@dataclass(frozen=True, slots=True)
class Strings:
    """A set of strings.

    >>> "abc" in like(Pattern.of("a%")), "abc" in like(Pattern.of("%c")).complement()
    (True, False)
    """

    line: Line = EMPTY
    terms: frozenset[Term] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.line or self.terms)

    def __contains__(self, text: str) -> bool:
        if interval.contains(self.line, text):
            return True
        if len(text) > LONG and sum([len(term.musts) + len(term.nots) for term in self.terms]) > MANY:
            fits = pattern_search(text, {p for term in self.terms for p in term.musts | term.nots})
            return any(term.contains(text, fits) for term in self.terms)
        return any(text in term for term in self.terms)

    def union(self, other: Strings, budget: Budget | None = None) -> Strings:
        """What is in either."""
        if not self.terms and not other.terms:
            return Strings(interval.union(self.line, other.line))
        return _gather(interval.union(self.line, other.line), (*self.terms, *other.terms), budget or Budget(), True)

    @staticmethod
    def union_of(sets: Iterable[Strings], budget: Budget | None = None) -> Strings:
        """What is in any of them. Cost: O(n log n) without patterns."""
        some = list(sets)
        line = interval.union_of(each.line for each in some)
        terms = [term for each in some for term in each.terms]
        return _gather(line, terms, budget or Budget(), True) if terms else Strings(line)

    def intersect(self, other: Strings, budget: Budget | None = None) -> Strings:
        """What is in both."""
        line = interval.intersect(self.line, other.line)
        if not self.terms and not other.terms:
            return Strings(line)
        budget = budget or Budget()
        pairs = len(self.terms) * len(other.terms)
        budget.spend(2 * pairs + _most_patterns(self) * _most_patterns(other) * pairs // 4)
        terms = [Term(interval.intersect(t.line, other.line), t.musts, t.nots) for t in self.terms]
        terms += [Term(interval.intersect(t.line, self.line), t.musts, t.nots) for t in other.terms]
        terms += [
            Term(both, s.musts | t.musts, s.nots | t.nots)
            for s in self.terms
            for t in other.terms
            if (both := interval.intersect(s.line, t.line))
        ]
        return _gather(line, terms, budget)

    @staticmethod
    def intersection_of(sets: Iterable[Strings], budget: Budget | None = None) -> Strings:
        """What is in all of them. Cost: O(n log n) without patterns."""
        some = list(sets)
        plain = interval.intersection_of((each.line for each in some if not each.terms), STRINGS)
        patterned = [each for each in some if each.terms]
        single = [each for each in patterned if not each.line and len(each.terms) == 1]
        if len(single) > 1:  # a conjunction of patterns is one term
            terms = [term for each in single for term in each.terms]
            whole = Term(
                interval.intersection_of((term.line for term in terms), STRINGS),
                frozenset[Pattern]().union(*(term.musts for term in terms)),
                frozenset[Pattern]().union(*(term.nots for term in terms)),
            )
            rest = [each for each in patterned if each.line or len(each.terms) > 1]
            patterned = [_gather(EMPTY, (whole,), budget or Budget()), *rest]
        result = Strings(plain)
        for each in patterned:
            result = result.intersect(each, budget)
        return result

    def complement(self, budget: Budget | None = None) -> Strings:
        """All other strings."""
        rest = Strings(interval.complement(self.line, STRINGS))
        if not self.terms:
            return rest
        if len(self.terms) == 1 and not self.line:
            (only,) = self.terms
            if len(only.musts) == 1 and not only.nots:  # NOT LIKE: what the general way gives, at once
                return Strings(interval.complement(only.line, STRINGS), frozenset((Term(STRINGS, _NONE, only.musts),)))
        budget = budget or Budget()
        for term in sorted(self.terms, key=repr):
            outside = [Term(STRINGS, _NONE, frozenset((p,))) for p in term.musts]
            outside += [Term(STRINGS, frozenset((p,)), _NONE) for p in term.nots]
            rest = rest.intersect(_gather(interval.complement(term.line, STRINGS), outside, budget), budget)
        return rest

    def covers(self, other: Strings, budget: Budget | None = None) -> bool:
        """True only if all of the other is in this."""
        if not self.terms and not other.terms:
            return interval.covers(self.line, other.line)
        if self == other:
            return True
        left = interval.minus(other.line, self.line)
        if left and not self.terms:
            return False
        try:
            return self._has_all(left, other.terms - self.terms, budget or Budget(LIMITS.steps // _ALONE))
        except FilterTooComplexError:
            return False  # not proven

    def overlaps(self, other: Strings, budget: Budget | None = None) -> bool:
        """False only if nothing is in both; True when the budget is used up."""
        if interval.meets(self.line, other.line):
            return True
        if not self.terms and not other.terms:
            return False
        budget = budget or Budget(LIMITS.steps // _ALONE)
        try:
            for one, two in ((self, other), (other, self)):
                for term in one.terms if two.line else ():
                    budget.spend(1)
                    line = interval.intersect(term.line, two.line)
                    if line and least_form(Term(line, term.musts, term.nots), budget):
                        return True
            for s in self.terms:
                for t in other.terms:
                    budget.spend(1)
                    line = interval.intersect(s.line, t.line)
                    if line and least_form(Term(line, s.musts | t.musts, s.nots | t.nots), budget):
                        return True
        except FilterTooComplexError:
            return True
        return False

    def hull_of_terms(self) -> Line:
        """The line and the lines of all terms: every string of the set is in it."""
        return interval.union_of((self.line, *(term.line for term in self.terms)))

    def _has_all(self, line: Line, terms: Iterable[Term], budget: Budget) -> bool:
        """True only if all of a line and of terms is in this."""
        parts = [Term((low,) if high is None else (low, high), _NONE, _NONE) for low, high in interval.intervals(line)]
        for term in terms:
            budget.spend(1 + (len(term.line) + len(self.line)) // 8)
            rest = interval.minus(term.line, self.line)
            if rest:
                part = Term(rest, term.musts, term.nots)
                values = part.few_values(budget)
                parts.append(part if values is None else Term(interval.points_line(values), _NONE, _NONE))
        parts = [part for part in parts if part.line]
        if not parts:
            return True
        near = TermsByAnchor(self.terms, budget) if len(self.terms) > 8 and len(parts) > 8 else None
        for part in parts:
            values = interval.points(part.line)
            if values is not None:
                held = all(self._has_value(value, budget) for value in values if part.admits(value))
            else:
                known = part.known
                held = any(t.covers(part, budget, known) for t in (near.near(known) if near else self.terms))
            if not held:
                return False
        return True

    def _has_value(self, value: str, budget: Budget) -> bool:
        budget.spend(len(self.terms) * (1 + len(value) // 256))
        return any(value in term for term in self.terms)


NO_STRINGS, ALL_STRINGS = Strings(), Strings(STRINGS)


def like(pattern: Pattern) -> Strings:
    """The strings that match; a plain text or prefix is an interval, unless case is ignored."""
    if pattern.literal is not None and not pattern.ignore_case:
        return Strings(interval.point(pattern.literal))
    if pattern.prefix is not None and not pattern.ignore_case:
        return Strings(starting_with(pattern.prefix))
    return Strings(EMPTY, frozenset((Term(starting_with(pattern.head), frozenset((pattern,)), _NONE),)))


def _gather(line: Line, terms: Iterable[Term], budget: Budget, simple: bool = False) -> Strings:
    """The union of a line and terms, simplified: finite terms become points, contained terms are dropped.

    With `simple`, the terms have been simplified already.
    """
    kept: dict[Term, None] = {}
    lines = [line]
    budget.spend(8)
    for term in terms:
        budget.spend(4 + (len(term.musts) + len(term.nots)) // 4)
        part = EMPTY if interval.covers(line, term.line) else term if simple else least_form(term, budget)
        if isinstance(part, Term):
            kept[part] = None
        elif part:
            lines.append(part)
    while (joined := twins(kept, budget)) is not None:
        one, other, whole = joined
        del kept[one], kept[other]
        if whole.musts or whole.nots:
            kept[whole] = None
        else:
            lines.append(whole.line)
    if len(kept) > LIMITS.patterns:
        raise too_many_patterns()
    least = least_terms(list(kept), budget) if len(kept) <= _FEW else kept
    return Strings(interval.union_of(lines), frozenset(least))


def _most_patterns(strings: Strings) -> int:
    return max((len(term.musts) + len(term.nots) for term in strings.terms), default=0)
