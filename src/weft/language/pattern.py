"""LIKE patterns. Laws: matching is linear in the text; `covers` and `disjoint` are True only when proven.

A pattern is cut at its `%` into segments, and a segment at its `_` into chunks. Canonical: `%%` is `%`,
and `%_` is `_%`, so equal patterns have equal segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from weft.errors import FilterError
from weft.language.segment_search import PatternSegment, SegmentSearch, fits

_RELATE_LIMIT = 4096  # pattern tokens times pattern tokens; past it only equal patterns are related


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled LIKE pattern.

    >>> Pattern.of("a%b").matches("a long climb")
    True
    >>> Pattern.of("%bc%").covers(Pattern.of("%abc"))
    True
    """

    segments: tuple[PatternSegment, ...]
    lengths: tuple[int, ...] = field(init=False, compare=False, repr=False)  # of the segments
    shortest: int = field(init=False, compare=False, repr=False)  # the length of the shortest match
    _hash: int = field(init=False, compare=False, repr=False)
    _texts: str = field(init=False, compare=False, repr=False)  # all literal texts, for patterns that are compared

    def __post_init__(self) -> None:
        lengths = tuple([sum(map(len, segment)) + len(segment) - 1 for segment in self.segments])
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "shortest", sum(lengths))
        object.__setattr__(self, "_hash", hash(self.segments))
        short = self.shortest <= _RELATE_LIMIT
        texts = "\0".join([chunk for segment in self.segments for chunk in segment]) if short else ""
        object.__setattr__(self, "_texts", texts)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Pattern], tuple[tuple[PatternSegment, ...]]]:
        return Pattern, (self.segments,)  # a hash of text differs from process to process

    @staticmethod
    def of(text: str, escape: str | None = None) -> Pattern:
        """Compile; without `escape` no character is special but `%` and `_`."""
        return (_remembered if len(text) <= _MOST_REMEMBERED else _compile)(text, escape)

    @property
    def literal(self) -> str | None:
        """The only text that matches, if there is just one."""
        return self.head if len(self.segments) == 1 and len(self.segments[0]) == 1 else None

    @property
    def prefix(self) -> str | None:
        """The prefix that is all this pattern asks for (`abc%`), else None."""
        plain = len(self.segments) == 2 and self.segments[1] == ("",) and len(self.segments[0]) == 1
        return self.head if plain else None

    @property
    def head(self) -> str:
        """The literal text that every match starts with."""
        return self.segments[0][0]

    @property
    def tail(self) -> str:
        """The literal text that every match ends with."""
        return self.segments[-1][-1]

    @property
    def size(self) -> int:
        """The number of its signs: characters, `_` and `%`."""
        return self.shortest + len(self.segments) - 1

    @property
    def is_fixed(self) -> bool:
        """Whether all matches have one length (there is no `%`)."""
        return len(self.segments) == 1

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Cost: O(len(text)), without backtracking; a factor of log(len(self)) where a
        long segment has `_` in it and almost fits everywhere.
        """
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
            if len(segment) == 1:  # leftmost is best: it leaves the most room
                at = text.find(segment[0], at, end)
            else:
                search = search or SegmentSearch(text)
                at = search.find(segment, length, at, end)
            if at < 0:
                return False
            at += length
        return True

    def covers(self, other: Pattern, spend: Callable[[int], None] | None = None) -> bool:
        """True only if every text that matches `other` matches this; `spend` is told the steps that it takes."""
        if self == other:
            return True
        if (
            self.shortest > other.shortest
            or self.size * other.size > _RELATE_LIMIT
            or not other.head.startswith(self.head)
            or not other.tail.endswith(self.tail)
        ):
            return False
        texts = other._texts
        if spend is not None:
            spend(1 + len(self.segments) // 4)
        for segment in self.segments:
            for chunk in segment:
                if chunk not in texts:
                    return False  # what this asks for is not in the other
        found, steps = _swallows(self._tokens(), other._tokens())
        if spend is not None:
            spend(20 + steps // 2)
        return found

    def disjoint(self, other: Pattern) -> bool:
        """True only if no text matches both."""
        short, long = (self.head, other.head) if len(self.head) < len(other.head) else (other.head, self.head)
        if not long.startswith(short):
            return True
        short, long = (self.tail, other.tail) if len(self.tail) < len(other.tail) else (other.tail, self.tail)
        if not long.endswith(short):
            return True
        for fixed, free in ((self, other), (other, self)):
            if fixed.literal is not None:
                return not free.matches(fixed.literal)
            if fixed.is_fixed and (
                free.shortest > fixed.shortest or (free.is_fixed and free.shortest != fixed.shortest)
            ):
                return True
        return False

    def _tokens(self) -> list[str | None]:
        """One item a character; `""` stands for `_` and None for `%`."""
        tokens: list[str | None] = []
        for number, segment in enumerate(self.segments):
            if number:
                tokens.append(None)
            for place, chunk in enumerate(segment):
                if place:
                    tokens.append("")
                tokens.extend(chunk)
        return tokens


def _compile(text: str, escape: str | None) -> Pattern:
    if escape is not None and len(escape) != 1:
        raise FilterError("the ESCAPE of a LIKE must be one character")
    segments: list[list[str]] = [[""]]
    chunks, literal = segments[0], []
    signs = iter(text)
    for sign in signs:
        if sign == escape:
            escaped = next(signs, "")
            if not escaped or escaped not in ("%", "_", escape):
                raise FilterError(f"in a LIKE pattern {escape!r} may only escape '%', '_' and itself")
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
    return Pattern(_canonical(segments))


_MOST_REMEMBERED = 64  # longer patterns are compiled anew, so that what is remembered stays small
_remembered = lru_cache(maxsize=4096)(_compile)


def _canonical(segments: list[list[str]]) -> tuple[PatternSegment, ...]:
    """Move the `_` that follow a `%` before it, from the right; then drop empty middle segments."""
    moving = 0
    for at in range(len(segments) - 1, 0, -1):
        chunks = segments[at]
        if any(chunks):
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
    """Wildcard matching of `wide` against the signs of `narrow`: only `%` takes `%`, only `%` and `_` take `_`.

    Returns also the number of signs compared.
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
