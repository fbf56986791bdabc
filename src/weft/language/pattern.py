"""LIKE and ILIKE patterns. Matching is linear in the text. `covers` and `disjoint` are True only when proven.

A pattern is cut at its `%` into segments, and a segment at its `_` into chunks. Canonical: `%%` is `%`,
and `%_` is `_%`, so equal patterns have equal segments.

A pattern that ignores case (ILIKE) has folded chunks and is compared with the folding of a text, so that `_` is one
folded character. One without any letter and without `_` matches the same texts either way, and is compiled as a
LIKE. What a LIKE matches, folded, matches its `folded` pattern: this is how patterns of the two kinds are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from weft.errors import FilterError
from weft.language.folding import caseless_head, folded_text
from weft.language.segment_search import PatternSegment, SegmentSearch, fits

_RELATE_LIMIT = 4096  # characters of one pattern times those of the other; larger ones are related only if equal

_FOLD_LIMIT = 512  # characters of a LIKE and an ILIKE, one without `%`; longer ones are taken to have common matches


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled LIKE pattern, or ILIKE pattern if it ignores case.

    >>> Pattern.of("a%b").matches("a long climb")
    True
    >>> Pattern.of("%bc%").covers(Pattern.of("%abc"))
    True
    >>> Pattern.of("STRASSE", ignore_case=True).matches("Straße")
    True
    """

    segments: tuple[PatternSegment, ...]
    ignore_case: bool = False  # its chunks are folded, and so is a text before it is compared
    lengths: tuple[int, ...] = field(init=False, compare=False, repr=False)  # of the segments
    shortest: int = field(init=False, compare=False, repr=False)  # the length of the shortest match
    _hash: int = field(init=False, compare=False, repr=False)
    _texts: str = field(init=False, compare=False, repr=False)  # all literal texts, for patterns that are compared

    def __post_init__(self) -> None:
        lengths = tuple(
            [
                len(segment[0]) if len(segment) == 1 else sum(map(len, segment)) + len(segment) - 1
                for segment in self.segments
            ]
        )
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "shortest", sum(lengths))
        object.__setattr__(self, "_hash", hash((self.segments, self.ignore_case)))
        short = self.shortest <= 3 * _RELATE_LIMIT  # folding makes a text at most three times as long
        texts = "\0".join([chunk for segment in self.segments for chunk in segment]) if short else ""
        object.__setattr__(self, "_texts", texts)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Pattern], tuple[tuple[PatternSegment, ...], bool]]:
        return Pattern, (self.segments, self.ignore_case)  # a hash of text differs from process to process

    @staticmethod
    def of(text: str, escape: str | None = None, ignore_case: bool = False) -> Pattern:
        """Compile; without `escape` no character is special except `%` and `_`."""
        return (_remembered if len(text) <= _MOST_REMEMBERED else _compile)(text, escape, ignore_case)

    @property
    def literal(self) -> str | None:
        """The only text that matches, if there is just one; with `ignore_case`, the only folded text."""
        return self.segments[0][0] if len(self.segments) == 1 and len(self.segments[0]) == 1 else None

    @property
    def prefix(self) -> str | None:
        """The prefix, or folded prefix, that is all this pattern requires (`abc%`), else None."""
        plain = len(self.segments) == 2 and self.segments[1] == ("",) and len(self.segments[0]) == 1
        return self.segments[0][0] if plain else None

    @property
    def suffix(self) -> str | None:
        """The suffix, or folded suffix, that is all this pattern requires (`%abc`), else None."""
        plain = len(self.segments) == 2 and self.segments[0] == ("",) and len(self.segments[1]) == 1
        return self.segments[1][0] if plain else None

    @property
    def head(self) -> str:
        """Literal text that every match starts with."""
        return caseless_head(self.segments[0][0]) if self.ignore_case else self.segments[0][0]

    @property
    def tail(self) -> str:
        """The literal text that every match, or folded match, ends with."""
        return self.segments[-1][-1]

    @property
    def size(self) -> int:
        """The number of its characters, `_` and `%` included."""
        return self.shortest + len(self.segments) - 1

    @property
    def is_fixed(self) -> bool:
        """Whether all matches have the same length: there is no `%`."""
        return len(self.segments) == 1

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Cost: O(len(text)), without backtracking; a factor of log(len(self)) where a
        long segment has `_` in it and almost fits everywhere.
        """
        return self.fits(folded_text(text) if self.ignore_case else text)

    def fits(self, text: str) -> bool:
        """The same for a text that has been folded already if this pattern ignores case."""
        segments, lengths = self.segments, self.lengths
        if self.shortest > len(text):
            return False
        if len(segments) == 1:
            return len(text) == lengths[0] and fits(segments[0], text, 0)
        at, end = lengths[0], len(text) - lengths[-1]
        if not fits(segments[0], text, 0) or not fits(segments[-1], text, end):
            return False
        search = None
        for segment, length in zip(segments[1:-1], lengths[1:-1], strict=True):
            if len(segment) == 1:  # the leftmost place is best: it leaves the most room
                at = text.find(segment[0], at, end)
            else:
                search = search or SegmentSearch(text)
                at = search.find(segment, length, at, end)
            if at < 0:
                return False
            at += length
        return True

    def covers(self, other: Pattern, spend: Callable[[int], None] | None = None) -> bool:
        """True only if every text that matches `other` matches this; `spend` is called with the steps taken."""
        if self == other:
            return True
        if self.size * other.size > _RELATE_LIMIT:
            return False
        if self.ignore_case and not other.ignore_case:
            other = other.folded
            if spend is not None:
                spend(2 + other.size // 4)
        elif other.ignore_case and not self.ignore_case and not self._is_caseless:
            return False
        if (
            self.shortest > other.shortest
            or not other.segments[0][0].startswith(self.segments[0][0])
            or not other.tail.endswith(self.tail)
        ):
            return False
        texts = other._texts
        if spend is not None:
            spend(1 + len(self.segments) // 4)
        for segment in self.segments:
            for chunk in segment:
                if chunk not in texts:
                    return False  # what this requires is not in the other
        found, steps = _swallows(self._tokens(), other._tokens())
        if spend is not None:
            spend(20 + steps // 2)
        return found

    def disjoint(self, other: Pattern) -> bool:
        """True only if no text matches both."""
        mixed = self.ignore_case is not other.ignore_case  # then both are compared folded
        one, two = self.segments[0][0], other.segments[0][0]
        if mixed:
            one, two = one.casefold(), two.casefold()
        if one and two and not one.startswith(two) and not two.startswith(one):
            return True
        one, two = self.segments[-1][-1], other.segments[-1][-1]
        if mixed:
            one, two = one.casefold(), two.casefold()
        if one and two and not one.endswith(two) and not two.endswith(one):
            return True
        if len(self.segments) > 1 and len(other.segments) > 1:
            return False  # both have a `%`, which leaves room for what the other requires
        if mixed:  # what matches both, folded, matches both of these
            if not self.folds_with(other):
                return False
            return self.disjoint(other.folded) if self.ignore_case else self.folded.disjoint(other)
        for fixed, free in ((self, other), (other, self)):
            if fixed.literal is not None:
                return not free.fits(fixed.literal)
            if fixed.is_fixed and (
                free.shortest > fixed.shortest or (free.is_fixed and free.shortest != fixed.shortest)
            ):
                return True
        return False

    def folds_with(self, other: Pattern) -> bool:
        """Whether `disjoint` folds one of two patterns as a whole, which takes longer: not if they are long."""
        return (
            self.ignore_case is not other.ignore_case
            and (self.is_fixed or other.is_fixed)
            and self.size + other.size <= _FOLD_LIMIT
        )

    @property
    def folded(self) -> Pattern:
        """For a LIKE, an ILIKE that matches whatever it matches: a `_` may fold to several characters."""
        segments: list[list[str]] = []
        for segment in self.segments:
            first, *rest = (chunk.casefold() for chunk in segment)
            segments.append([first])
            for chunk in rest:  # `_` becomes `_%`
                segments[-1].append("")
                segments.append([chunk])
        return Pattern(_canonical(segments), ignore_case=True)

    @property
    def _is_caseless(self) -> bool:
        """Whether LIKE and ILIKE with these segments match the same texts."""
        return _are_caseless(self.segments)

    def _tokens(self) -> list[str | None]:
        """One item per character; `""` stands for `_` and None for `%`."""
        tokens: list[str | None] = []
        for number, segment in enumerate(self.segments):
            if number:
                tokens.append(None)
            for place, chunk in enumerate(segment):
                if place:
                    tokens.append("")
                tokens.extend(chunk)
        return tokens


def _compile(text: str, escape: str | None, ignore_case: bool) -> Pattern:
    word = "ILIKE" if ignore_case else "LIKE"
    if escape is not None and len(escape) != 1:
        raise FilterError(f"the ESCAPE of {word} must be a single character")
    if escape is None or escape not in text:
        segments = [segment.split("_") for segment in text.split("%")]
    else:
        segments = _cut_escaped(text, escape, word)
    if not ignore_case:
        return Pattern(_canonical(segments))
    folded = _canonical([[chunk.casefold() for chunk in segment] for segment in segments])
    return Pattern(folded, ignore_case=not _are_caseless(folded))


def _are_caseless(segments: tuple[PatternSegment, ...]) -> bool:
    """Whether there are no letters and no `_`."""
    return all(len(segment) == 1 and caseless_head(segment[0]) == segment[0] for segment in segments)


def _cut_escaped(text: str, escape: str, word: str) -> list[list[str]]:
    """The chunks of the segments of a pattern with an escape."""
    segments: list[list[str]] = [[""]]
    chunks, literal = segments[0], []
    signs = iter(text)
    for sign in signs:
        if sign == escape:
            escaped = next(signs, "")
            if not escaped or escaped not in ("%", "_", escape):
                raise FilterError(f"in a pattern of {word}, {escape!r} can only escape '%', '_' and itself")
            literal.append(escaped)
        elif sign in "%_":
            chunks[-1] = "".join(literal)
            literal = []
            if sign == "%":
                chunks = [""]
                segments.append(chunks)
            else:
                chunks.append("")
        else:
            literal.append(sign)
    chunks[-1] = "".join(literal)
    return segments


_MOST_REMEMBERED = 64  # longer patterns are not cached, so that the cache stays small
_remembered = lru_cache(maxsize=4096)(_compile)


def _canonical(segments: list[list[str]]) -> tuple[PatternSegment, ...]:
    """Move the `_` that follow a `%` before it, from the right; then drop empty middle segments."""
    moving = 0
    for at in range(len(segments) - 1, 0, -1):
        chunks = segments[at]
        if chunks[0]:
            if moving:
                chunks += [""] * moving
                moving = 0
        elif any(chunks):
            holes = next(place for place, chunk in enumerate(chunks) if chunk)
            segments[at] = chunks[holes:] + [""] * moving
            moving = holes
        else:
            segments[at] = [""]
            moving += len(chunks) - 1
    segments[0] += [""] * moving
    kept = [s for s in segments[1:-1] if s != [""]]
    return tuple(map(tuple, segments[:1] + kept + segments[1:][-1:]))


def _swallows(wide: list[str | None], narrow: list[str | None]) -> tuple[bool, int]:
    """Wildcard matching of `wide` against `narrow`: only `%` matches `%`, only `%` and `_` match `_`.

    Also returns the number of characters compared.
    """
    at = mark = steps = 0
    star = -1
    w = 0
    while at < len(narrow):
        steps += 1
        sign = narrow[at]
        if w < len(wide) and wide[w] is None:
            star, mark = w, at
            w += 1
        elif w < len(wide) and sign is not None and (wide[w] in ("", sign)):
            w += 1
            at += 1
        elif star >= 0:
            mark += 1
            w, at = star + 1, mark
        else:
            return False, steps
    return all(sign is None for sign in wide[w:]), steps
