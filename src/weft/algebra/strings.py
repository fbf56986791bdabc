"""Sets of strings: intervals of the code-point order, and patterns. Laws: membership, union, intersection and
complement are exact; `covers` is True only when proven, and complete without patterns.

A set is a line (points, prefixes, ranges, and what they leave out) and terms: a term is the part of a line that
matches all of some patterns and none of some others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.algebra import interval
from weft.algebra.interval import EMPTY, STRINGS, Line
from weft.errors import FilterTooComplexError
from weft.language.pattern import Pattern

MAX_TERMS = 256  # and as many patterns in a term
_MAX_WORK = 300_000  # comparisons of patterns in one intersection
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
        return all(p.matches(text) for p in self.musts) and not any(p.matches(text) for p in self.nots)

    def covers(self, other: Term) -> bool:
        """True only if every string of the other is in this."""
        if not interval.covers(self.line, other.line):
            return False
        known = other.musts | {_prefix_pattern(other.line)}
        return all(any(p.covers(q) for q in known) for p in self.musts) and all(
            any(q.covers(p) for q in other.nots) or any(p.disjoint(q) for q in known) for p in self.nots
        )


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

    def union(self, other: Strings) -> Strings:
        """What is in either."""
        if not self.terms and not other.terms:
            return Strings(interval.union(self.line, other.line))
        return _gather(interval.union(self.line, other.line), (*self.terms, *other.terms))

    def intersect(self, other: Strings) -> Strings:
        """What is in both."""
        line = interval.intersect(self.line, other.line)
        if not self.terms and not other.terms:
            return Strings(line)
        if _most_patterns(self) * _most_patterns(other) * len(self.terms) * len(other.terms) > _MAX_WORK:
            raise _too_many()
        terms = [Term(interval.intersect(t.line, other.line), t.musts, t.nots) for t in self.terms]
        terms += [Term(interval.intersect(t.line, self.line), t.musts, t.nots) for t in other.terms]
        terms += [
            Term(interval.intersect(s.line, t.line), s.musts | t.musts, s.nots | t.nots)
            for s in self.terms
            for t in other.terms
        ]
        return _gather(line, terms)

    def complement(self) -> Strings:
        """All other strings."""
        rest = Strings(interval.complement(self.line, STRINGS))
        for term in sorted(self.terms, key=repr):
            outside = [Term(STRINGS, _NONE, frozenset((p,))) for p in term.musts]
            outside += [Term(STRINGS, frozenset((p,)), _NONE) for p in term.nots]
            rest = rest.intersect(_gather(interval.complement(term.line, STRINGS), outside))
        return rest

    def covers(self, other: Strings) -> bool:
        """True only if all of the other is in this."""
        if not self.terms and not other.terms:
            return interval.covers(self.line, other.line)
        if self == other:
            return True
        for low, high in self._left(other.line):
            if not self._has(Term((low,) if high is None else (low, high), _NONE, _NONE)):
                return False
        for term in other.terms - self.terms:
            rest = Term(interval.minus(term.line, self.line), term.musts, term.nots)
            if rest.line and not self._has(rest):
                return False
        return True

    def overlaps(self, other: Strings) -> bool:
        """False only if nothing is in both; too many patterns to compare disprove nothing."""
        try:
            return bool(self.intersect(other))
        except FilterTooComplexError:
            return True

    def hull_of_terms(self) -> Line:
        """The whole line and the lines of all terms: no string of the set is outside."""
        line = self.line
        for term in self.terms:
            line = interval.union(line, term.line)
        return line

    def _left(self, line: Line) -> Iterable[tuple[interval.Cut, interval.Cut | None]]:
        return interval.intervals(interval.minus(line, self.line))

    def _has(self, part: Term) -> bool:
        values = interval.points(part.line)
        if values is not None:
            return all(any(value in term for term in self.terms) for value in values if part.admits(value))
        return any(term.covers(part) for term in self.terms)


NO_STRINGS, ALL_STRINGS = Strings(), Strings(STRINGS)


def like(pattern: Pattern) -> Strings:
    """The strings that match; a plain text or prefix is an interval."""
    if pattern.literal is not None:
        return Strings(interval.point(pattern.literal))
    if pattern.prefix is not None:
        return Strings(starting_with(pattern.prefix))
    return _gather(EMPTY, [Term(STRINGS, frozenset((pattern,)), _NONE)])


def starting_with(prefix: str) -> Line:
    """The interval of all strings with this prefix."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            after = 0xE000 if code == 0xD7FF else code + 1  # no lone surrogates: they are no text
            return ((prefix, 0), (prefix[:at] + chr(after), 0))
    return ((prefix, 0),)


def _gather(line: Line, terms: Iterable[Term]) -> Strings:
    """The union of a line and terms, simplified: finite terms become points, contained terms go."""
    kept: dict[Term, None] = {}
    for term in terms:
        simple = EMPTY if interval.covers(line, term.line) else _simplify(term)
        if isinstance(simple, Term):
            kept[simple] = None
        else:
            line = interval.union(line, simple)
    while (joined := _join(kept)) is not None:
        one, other, whole = joined
        del kept[one], kept[other]
        if whole.musts or whole.nots:
            kept[whole] = None
        else:
            line = interval.union(line, whole.line)
    if len(kept) > MAX_TERMS:
        raise _too_many()
    least = _least(list(kept)) if len(kept) <= _FEW else kept
    return Strings(line, frozenset(least))


def _least(terms: list[Term]) -> list[Term]:
    """Without the terms that another one contains."""
    kept: list[Term] = []
    for term in terms:
        if not any(other.covers(term) for other in kept):
            kept = [other for other in kept if not term.covers(other)]
            kept.append(term)
    return kept


def _join(terms: Iterable[Term]) -> tuple[Term, Term, Term] | None:
    """Two terms that together lose a pattern: (p and rest) or (not p and rest) is rest."""
    known = set(terms)
    for term in known:
        for pattern in term.musts:
            twin = Term(term.line, term.musts - {pattern}, term.nots | {pattern})
            if twin in known:
                return term, twin, Term(term.line, term.musts - {pattern}, term.nots)
    return None


def _simplify(term: Term) -> Term | Line:
    """A term in least form, or the line that it is."""
    line = term.line
    for pattern in term.musts:
        line = interval.intersect(line, starting_with(pattern.head))
    values = interval.points(line)
    if values is not None:
        kept: Line = EMPTY
        for value in values:
            if term.admits(value):
                kept = interval.union(kept, interval.point(value))
        return kept
    if len(term.musts) + len(term.nots) > MAX_TERMS:
        raise _too_many()
    if len(term.musts) + len(term.nots) > _FEW:
        return EMPTY if term.musts & term.nots else Term(line, term.musts, term.nots)
    known = term.musts | {_prefix_pattern(line)}
    if any(p.disjoint(q) for p in term.musts for q in known) or any(p.covers(q) for p in term.nots for q in known):
        return EMPTY
    musts, nots = set(term.musts), set(term.nots)
    for p in term.musts:  # one at a time: of two equals one must stay
        if any(q != p and p.covers(q) for q in musts | known - term.musts):
            musts.discard(p)
    for p in term.nots:
        if any(p.disjoint(q) for q in known) or any(q != p and q.covers(p) for q in nots):
            nots.discard(p)
    return Term(line, frozenset(musts), frozenset(nots)) if musts or nots else line


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
    return FilterTooComplexError("too many LIKE patterns on one attribute: split the filter")
