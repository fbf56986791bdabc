"""Terms: parts of a line of strings, by patterns. A term has exactly the strings of its line that match all of some
patterns and none of some others. `covers` is True only when proven, and a least form has the same strings.

Comparing patterns spends a budget.
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

_SPELLINGS = 64  # of a text whose case is ignored; more are not enumerated
_FEW = 24  # more patterns of a term are not compared with each other
_GRAM = 4
_CHUNKS = 32  # of a term, of which the longest is taken


@dataclass(frozen=True, slots=True)
class Term:
    """The strings of a line that match all `musts` and no `nots`; it has at least one pattern."""

    line: Line
    musts: frozenset[Pattern]
    nots: frozenset[Pattern]

    def __contains__(self, text: str) -> bool:
        return interval.contains(self.line, text) and self.admits(text)

    def contains(self, text: str, fits: Callable[[Pattern], bool]) -> bool:
        """The same, where it is known which patterns the text matches."""
        return interval.contains(self.line, text) and all(map(fits, self.musts)) and not any(map(fits, self.nots))

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


def starting_with(prefix: str) -> Line:
    """The interval of all strings with this prefix."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            after = 0xE000 if code == 0xD7FF else code + 1  # lone surrogates are not text
            return ((prefix, 0), (prefix[:at] + chr(after), 0))
    return ((prefix, 0),)


def least_terms(terms: list[Term], budget: Budget) -> list[Term]:
    """The terms that no other term contains."""
    kept: list[Term] = []
    for term in terms:
        if not any(other.covers(term, budget) for other in kept):
            kept = [other for other in kept if not term.covers(other, budget)]
            kept.append(term)
    return kept


def twins(terms: dict[Term, None], budget: Budget) -> tuple[Term, Term, Term] | None:
    """Two terms that together need one pattern less: (p and rest) or (not p and rest) is rest."""
    for term in terms:
        for pattern in term.nots:
            budget.spend(4 + (len(term.nots) + len(term.musts)) // 8)
            twin = Term(term.line, term.musts | {pattern}, term.nots - {pattern})
            if twin in terms:
                return twin, term, Term(term.line, term.musts, term.nots - {pattern})
    return None


def least_form(term: Term, budget: Budget) -> Term | Line:
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
        raise too_many_patterns()
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


class TermsByAnchor:
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


def too_many_patterns() -> FilterTooComplexError:
    """The error for more patterns than a set of strings may have."""
    return FilterTooComplexError("too many LIKE patterns on one attribute; split the filter")
