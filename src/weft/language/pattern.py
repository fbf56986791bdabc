"""LIKE patterns. Laws: matching is linear in the text; `covers` and `disjoint` are True only when proven.

A pattern is cut at its `%` into segments, and a segment at its `_` into chunks. Canonical: `%%` is `%`,
and `%_` is `_%`, so equal patterns have equal segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from weft.errors import FilterError

Segment = tuple[str, ...]  # literal chunks with one `_` between each two

_RELATE_LIMIT = 4096  # pattern tokens times pattern tokens; past it only equal patterns are related


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled LIKE pattern.

    >>> Pattern.of("a%b").matches("a long climb")
    True
    >>> Pattern.of("%bc%").covers(Pattern.of("%abc"))
    True
    """

    segments: tuple[Segment, ...]

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
    def shortest(self) -> int:
        """The length of the shortest match."""
        return sum(map(_length, self.segments))

    @property
    def is_fixed(self) -> bool:
        """Whether all matches have one length (there is no `%`)."""
        return len(self.segments) == 1

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Cost: O(len(text)) for one pattern, without backtracking."""
        first, last = self.segments[0], self.segments[-1]
        if self.is_fixed:
            return len(text) == _length(first) and _fits(first, text, 0)
        at, end = _length(first), len(text) - _length(last)
        if at > end or not _fits(first, text, 0) or not _fits(last, text, end):
            return False
        for segment in self.segments[1:-1]:  # leftmost is best: it leaves the most room
            at = _find(segment, text, at, end)
            if at < 0:
                return False
            at += _length(segment)
        return True

    def covers(self, other: Pattern) -> bool:
        """True only if every text that matches `other` matches this."""
        if self == other:
            return True
        if self.shortest > other.shortest or not other.head.startswith(self.head) or not other.tail.endswith(self.tail):
            return False
        texts = "\0".join(chunk for segment in other.segments for chunk in segment)
        if not all(chunk in texts for segment in self.segments for chunk in segment):
            return False  # what this asks for is not in the other
        mine, theirs = self._tokens(), other._tokens()
        return len(mine) * len(theirs) <= _RELATE_LIMIT and _swallows(mine, theirs)

    def disjoint(self, other: Pattern) -> bool:
        """True only if no text matches both."""
        heads = sorted((self.head, other.head), key=len)
        tails = sorted((self.tail, other.tail), key=len)
        if not heads[1].startswith(heads[0]) or not tails[1].endswith(tails[0]):
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


_MOST_REMEMBERED = 256  # longer patterns are compiled anew, so that what is remembered stays small
_remembered = lru_cache(maxsize=4096)(_compile)


def _canonical(segments: list[list[str]]) -> tuple[Segment, ...]:
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


def _length(segment: Segment) -> int:
    return sum(map(len, segment)) + len(segment) - 1


def _fits(segment: Segment, text: str, at: int) -> bool:
    for chunk in segment:
        if not text.startswith(chunk, at):
            return False
        at += len(chunk) + 1
    return True


def _find(segment: Segment, text: str, start: int, end: int) -> int:
    """Where the segment first fits within text[start:end], else -1."""
    if len(segment) == 1:
        return text.find(segment[0], start, end)
    # Shift-and: bit i of `state` says that the first i+1 signs of the segment end here.
    masks: dict[str, int] = {}
    holes, bit = 0, 1
    for place, chunk in enumerate(segment):
        if place:
            holes |= bit
            bit <<= 1
        for sign in chunk:
            masks[sign] = masks.get(sign, 0) | bit
            bit <<= 1
    length, state, accept = _length(segment), 0, bit >> 1
    for at in range(start, end):
        state = ((state << 1) | 1) & (masks.get(text[at], 0) | holes)
        if state & accept:
            return at - length + 1
    return -1


def _swallows(wide: list[str | None], narrow: list[str | None]) -> bool:
    """Wildcard matching of `wide` against the signs of `narrow`: only `%` takes `%`, only `%` and `_` take `_`."""
    at = mark = 0
    star = -1
    w = 0
    while at < len(narrow):
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
            return False
    return all(sign is None for sign in wide[w:])
