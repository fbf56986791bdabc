"""Sets of strings: intervals of the code-point order, and patterns. Laws: membership, union, intersection and
complement are exact; `covers` is True only when proven, and complete without patterns.

A set is a line (points, prefixes, ranges, and their complements) and terms: a term is the part of a line that matches
all of some patterns and none of some others. Comparing patterns spends a budget: when it is used up, `covers` is False,
`overlaps` is True, and union, intersection and complement raise FilterTooComplexError. A pattern that ignores case is
always a term, also without wildcards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from weft.algebra import interval
from weft.algebra.budget import Budget
from weft.algebra.interval import EMPTY, STRINGS, Line
from weft.errors import FilterTooComplexError
from weft.language.folding import spellings
from weft.language.pattern import Pattern
from weft.model.limits import LIMITS

_ALONE = 8  # a set that is compared without a budget gets this fraction of one: a box may have many sets
_SPELLINGS = 64  # of a text whose case is ignored; more are not enumerated
_FEW = 24  # more terms, or patterns of a term, are not compared with each other

_NONE: frozenset[Pattern] = frozenset()


@dataclass(frozen=True, slots=True)
class Term:
    """The strings of a line that match all `musts` and no `nots`; it has at least one pattern."""

    line: Line
    musts: frozenset[Pattern]
    nots: frozenset[Pattern]

    def __contains__(self, text: str) -> bool:
        return interval.contains(self.line, text) and self.admits(text)

    def admits(self, text: str) -> bool:
        """Whether the patterns alone let the text through."""
        folded = None  # folded once, whatever the number of patterns
        for patterns, wanted in ((self.musts, True), (self.nots, False)):
            for pattern in patterns:
                if not pattern.ignore_case:
                    found = pattern.fits(text)
                else:
                    folded = text.casefold() if folded is None else folded
                    found = pattern.fits(folded)
                if found is not wanted:
                    return False
        return True

    def covers(self, other: Term, budget: Budget, known: frozenset[Pattern] | None = None) -> bool:
        """True only if every string of the other is in this; all strings of the other match the `known` patterns."""
        budget.spend(1)
        if not interval.covers(self.line, other.line):
            return False
        known = other.known if known is None else known
        spend = budget.spend
        return all(_any_covers((p,), known, spend) for p in self.musts - known) and all(
            _any_covers(other.nots, (p,), spend) or _any_disjoint(p, known, spend) for p in self.nots - other.nots
        )

    def few_values(self, budget: Budget) -> list[str] | None:
        """Its strings, if a pattern without wildcards leaves only a few spellings; else None."""
        for pattern in self.musts:
            if pattern.ignore_case and (text := pattern.literal) is not None and len(text) <= _SPELLINGS:
                budget.spend(16 + len(text))
                some = spellings(text, _SPELLINGS)
                if some is not None:
                    budget.spend(len(some) * (1 + len(self.musts) + len(self.nots)))
                    return [each for each in some if each in self]
        return None

    @property
    def known(self) -> frozenset[Pattern]:
        """Patterns that all of its strings match."""
        return self.musts | {_prefix_pattern(self.line)}


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
        return interval.contains(self.line, text) or any(text in term for term in self.terms)

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
        if interval.intersect(self.line, other.line):
            return True
        if not self.terms and not other.terms:
            return False
        budget = budget or Budget(LIMITS.steps // _ALONE)
        try:
            for one, two in ((self, other), (other, self)):
                for term in one.terms if two.line else ():
                    budget.spend(1)
                    line = interval.intersect(term.line, two.line)
                    if line and _simplify(Term(line, term.musts, term.nots), budget):
                        return True
            for s in self.terms:
                for t in other.terms:
                    budget.spend(1)
                    line = interval.intersect(s.line, t.line)
                    if line and _simplify(Term(line, s.musts | t.musts, s.nots | t.nots), budget):
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
        near = _ByAnchor(self.terms, budget) if len(self.terms) > 8 and len(parts) > 8 else None
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


class _ByAnchor:
    """Terms by a literal text that all of their strings contain: where a term covers another, the other has it too."""

    def __init__(self, terms: Iterable[Term], budget: Budget) -> None:
        self.budget = budget
        self.free: list[Term] = []  # without such a text
        self.by_gram: dict[str, list[Term]] = {}
        for term in terms:
            budget.spend(8)
            chunks = (chunk for p in term.musts for segment in p.segments for chunk in segment)
            anchor = max(islice(chunks, _CHUNKS), key=len, default="")
            if anchor:
                self.by_gram.setdefault(anchor[:_GRAM], []).append(term)
            else:
                self.free.append(term)
        self.sizes = {len(gram) for gram in self.by_gram}

    def near(self, known: Iterable[Pattern]) -> Iterable[Term]:
        """The terms that may cover a term whose strings all match the known patterns."""
        yield from self.free
        chunks = [chunk for p in known for segment in p.segments for chunk in segment]
        chunks += [chunk.casefold() for p in known if not p.ignore_case for segment in p.segments for chunk in segment]
        text = "\0".join(chunks)
        self.budget.spend((len(chunks) + len(text) * len(self.sizes)) // 8)
        for gram in {text[at : at + size] for size in self.sizes for at in range(len(text) - size + 1)}:
            yield from self.by_gram.get(gram, ())


_GRAM = 4
_CHUNKS = 32  # of a term, of which the longest is taken

NO_STRINGS, ALL_STRINGS = Strings(), Strings(STRINGS)


def like(pattern: Pattern) -> Strings:
    """The strings that match; a plain text or prefix is an interval, unless case is ignored."""
    if pattern.literal is not None and not pattern.ignore_case:
        return Strings(interval.point(pattern.literal))
    if pattern.prefix is not None and not pattern.ignore_case:
        return Strings(starting_with(pattern.prefix))
    return Strings(EMPTY, frozenset((Term(starting_with(pattern.head), frozenset((pattern,)), _NONE),)))


def starting_with(prefix: str) -> Line:
    """The interval of all strings with this prefix."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            after = 0xE000 if code == 0xD7FF else code + 1  # lone surrogates are not text
            return ((prefix, 0), (prefix[:at] + chr(after), 0))
    return ((prefix, 0),)


def _gather(line: Line, terms: Iterable[Term], budget: Budget, simple: bool = False) -> Strings:
    """The union of a line and terms, simplified: finite terms become points, contained terms are dropped.

    With `simple`, the terms have been simplified already.
    """
    kept: dict[Term, None] = {}
    lines = [line]
    budget.spend(8)
    for term in terms:
        budget.spend(4 + (len(term.musts) + len(term.nots)) // 4)
        part = EMPTY if interval.covers(line, term.line) else term if simple else _simplify(term, budget)
        if isinstance(part, Term):
            kept[part] = None
        elif part:
            lines.append(part)
    while (joined := _join(kept, budget)) is not None:
        one, other, whole = joined
        del kept[one], kept[other]
        if whole.musts or whole.nots:
            kept[whole] = None
        else:
            lines.append(whole.line)
    if len(kept) > LIMITS.patterns:
        raise _too_many()
    least = _least(list(kept), budget) if len(kept) <= _FEW else kept
    return Strings(interval.union_of(lines), frozenset(least))


def _least(terms: list[Term], budget: Budget) -> list[Term]:
    """The terms that no other term contains."""
    kept: list[Term] = []
    for term in terms:
        if not any(other.covers(term, budget) for other in kept):
            kept = [other for other in kept if not term.covers(other, budget)]
            kept.append(term)
    return kept


def _join(terms: dict[Term, None], budget: Budget) -> tuple[Term, Term, Term] | None:
    """Two terms that together need one pattern less: (p and rest) or (not p and rest) is rest."""
    for term in terms:
        for pattern in term.nots:
            budget.spend(4 + (len(term.nots) + len(term.musts)) // 8)
            twin = Term(term.line, term.musts | {pattern}, term.nots - {pattern})
            if twin in terms:
                return twin, term, Term(term.line, term.musts, term.nots - {pattern})
    return None


def _simplify(term: Term, budget: Budget) -> Term | Line:
    """A term in least form, or the line that it is."""
    budget.spend(12)
    line = term.line
    for pattern in term.musts:
        if head := pattern.head:
            line = interval.intersect(line, starting_with(head))
    number = len(term.musts) + len(term.nots)
    values = interval.points(line)
    if values is not None:
        budget.spend(sum((4 + number) * (1 + len(value) // 256) for value in values))
        return interval.union_of(interval.point(value) for value in values if term.admits(value))
    if number > LIMITS.patterns:
        raise _too_many()
    if number > _FEW:
        budget.spend(number)
        return EMPTY if term.musts & term.nots else Term(line, term.musts, term.nots)
    spend = budget.spend
    prefix = _prefix_pattern(line)
    known = term.musts | {prefix}
    if any(_any_disjoint(p, known, spend) for p in term.musts) or _any_covers(term.nots, known, spend):
        return EMPTY
    if (number > 1 or line != STRINGS) and Term(line, term.musts, term.nots).few_values(budget) == []:
        return EMPTY
    musts, nots = set(term.musts), set(term.nots)
    for p in term.musts:  # one at a time: of two equal patterns one must stay
        if _any_covers((p,), (musts if prefix in term.musts else musts | {prefix}) - {p}, spend):
            musts.discard(p)
    for p in term.nots:
        if _any_disjoint(p, known, spend) or _any_covers(nots - {p}, (p,), spend):
            nots.discard(p)
    return Term(line, frozenset(musts), frozenset(nots)) if musts or nots else line


def _any_covers(wide: Iterable[Pattern], narrow: Iterable[Pattern], spend: Callable[[int], None]) -> bool:
    """True only if one of the wide patterns covers one of the narrow ones."""
    for p in wide:
        for q in narrow:
            spend(3)
            if p.covers(q, spend):
                return True
    return False


def _any_disjoint(pattern: Pattern, others: Iterable[Pattern], spend: Callable[[int], None]) -> bool:
    """True only if nothing matches both the pattern and one of the others."""
    for other in others:
        spend(3 + (pattern.shortest + other.shortest) // (4 if pattern.folds_with(other) else 256))
        if pattern.disjoint(other):
            return True
    return False


def _prefix_pattern(line: Line) -> Pattern:
    """`p%` for the longest p that all strings of a line start with."""
    low = line[0][0]
    high = "" if len(line) & 1 else line[-1][0]
    size = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    if not len(line) & 1 and starting_with(low[: size + 1])[1:] == line[-1:]:  # a prefix: its end is the next one
        size += 1
    return Pattern(((low[:size],), ("",)))


def _most_patterns(strings: Strings) -> int:
    return max((len(term.musts) + len(term.nots) for term in strings.terms), default=0)


def _too_many() -> FilterTooComplexError:
    return FilterTooComplexError("too many LIKE patterns on one attribute; split the filter")
