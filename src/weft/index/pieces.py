"""Pieces: literal parts of patterns, which a text must or must not contain. The pieces found in an event are those that
its strings contain. The work is linear in its strings, whatever the patterns are.

All pieces of an attribute are found by one automaton; those of patterns that ignore case by another, in folded strings.
The elements of a list are pieces, too: of a text of all elements, with a byte between them that no string contains.
Automata are built when they are first needed, and neither pickled nor stored: to build one is quicker than to check it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import nsmallest
from itertools import chain
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import FilterTooComplexError
from weft.index.events import EventColumns
from weft.index.recycled import RESULTS
from weft.kernels.automaton import DENSE, LEAST, Automaton, build_automaton, find_pieces
from weft.language.membership import MARK
from weft.language.pattern import Pattern
from weft.model.door import shown
from weft.model.lists import AttributeValue, element_key, elements_of

LONGEST = 256  # bytes of a piece; of a longer text parts are looked for, and the pattern is evaluated
MOST_NEEDS = 8  # of one row
_MOST_EXPECTED = 256  # pieces of an event for which there is room before they are found


class Piece(NamedTuple):
    """Bytes that the UTF-8 of an attribute's string, or of its folding, may contain."""

    name: str
    folded: bool
    data: bytes


_LIST = MARK  # before the name of an attribute whose elements are pieces
_BETWEEN = "\udcff"  # which is written as the byte 255
_LISTED = "\udcfe"  # which is written as the byte 254, after the elements of what is a list and not a scalar
_LONG_ELEMENT = 200  # bytes; of a longer one, a digest is the piece


def list_axis(attribute: str) -> str:
    """The name under which the elements of an attribute are pieces."""
    return _LIST + attribute


def is_list_axis(name: str) -> bool:
    """Whether the pieces under a name are elements of lists."""
    return name[0] == _LIST


def attribute_of(name: str) -> str:
    """The attribute whose strings or elements are read under a name."""
    return name[1:] if name[0] == _LIST else name


def element_piece(attribute: str, key: str) -> Piece:
    """The piece that is in a list's text if and only if the list has the element."""
    return Piece(list_axis(attribute), False, _list_text(_short_key(key)))


def any_list(attribute: str) -> Piece:
    """The piece that is in every list's text, so that it is there unless the attribute is absent."""
    return Piece(list_axis(attribute), False, b"\xff")


def real_list(attribute: str) -> Piece:
    """The piece that is in the text of a list, and not in that of a scalar."""
    return Piece(list_axis(attribute), False, b"\xfe")


def element_prefix(attribute: str, prefix: str) -> Piece | None:
    """The piece that is in a list's text if and only if an element is a string with this prefix; None if too long."""
    data = b"\xffs" + prefix.encode("utf-8", "surrogatepass")
    return Piece(list_axis(attribute), False, data) if len(data) <= LONGEST else None


def element_part(attribute: str, pattern: Pattern) -> Piece | None:
    """A piece that is in a list's text if an element matches the pattern, and may be there otherwise; None if the
    pattern has no text of its own.
    """
    if pattern.ignore_case:
        return None
    longest = max((chunk for segment in pattern.segments for chunk in segment), key=len)
    data = longest.encode("utf-8", "surrogatepass")[:LONGEST]
    return Piece(list_axis(attribute), False, data) if data else None


def number_parts(attribute: str, low: float, high: float) -> list[Piece] | None:
    """Pieces of which one is in a list's text if an element is a number from low to high, and which few other lists
    have; None if there are none, because the range is wide.
    """
    first, last = number_digits(low), number_digits(high)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), len(first) - 1)
    if same < _LEAST_DIGITS:
        return None
    digits = _HEX[_HEX.index(first[same]) : _HEX.index(last[same]) + 1]
    return [Piece(list_axis(attribute), False, f"\0N{first[:same]}{digit}".encode()) for digit in digits]


def number_digits(value: float) -> str:
    """Sixteen digits that have the order of the numbers that they stand for.

    >>> number_digits(-2.5) < number_digits(-1) < number_digits(0.0) < number_digits(3) <= number_digits(3.0)
    True
    """
    (bits,) = _BITS.unpack(_FLOAT.pack(float(value) + 0.0))  # -0.0 is 0.0
    return f"{bits ^ _ALL if bits >> 63 else bits | _SIGN:016x}"


_FLOAT, _BITS = Struct(">d"), Struct(">Q")
_SIGN, _ALL = 1 << 63, (1 << 64) - 1
_HEX = "0123456789abcdef"
_LEAST_DIGITS = 2  # of sign and exponent: a piece of fewer is in too many lists


def list_text(value: Any) -> bytes:
    """The text of a list's elements, a scalar being a list of one; empty if the attribute is absent."""
    elements = elements_of(value)
    if elements is None:
        return b""
    if type(elements) is list and set(map(type, elements)) == _STRINGS and max(map(len, elements)) < _LONG_ELEMENT // 4:
        joined = f"{_BETWEEN}s" + f"{_BETWEEN}s".join(elements) + _BETWEEN + _LISTED
        try:
            return joined.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            pass  # a string that is not text: it came through no door
    keys = [key for key in map(element_key, elements) if key is not None]
    text = _list_text(*chain.from_iterable(map(_written_keys, keys)))
    if type(value) is not list:
        return text
    numbers = [each for each in value if type(each) in _NUMERIC and each == each]  # noqa: PLR0124 - NaN is NULL
    return text + b"\xfe" + "".join([f"\0N{number_digits(each)}" for each in numbers]).encode()


def _list_text(*keys: bytes) -> bytes:
    return b"\xff".join([b"", *keys, b""]) if keys else b"\xff"


def _short_key(key: str) -> bytes:
    data = key.encode("utf-8", "surrogatepass")
    return data if len(data) <= _LONG_ELEMENT else b"h" + blake2b(data, digest_size=32).hexdigest().encode()


def _written_keys(key: str) -> tuple[bytes, ...]:
    """What stands for an element: a long string is there as its digest, and as itself for tests of its parts."""
    short = _short_key(key)
    return (short, key.encode("utf-8", "surrogatepass")) if short[:1] == b"h" else (short,)


_STRINGS = {str}
_NUMERIC = (int, float)


class Need(NamedTuple):
    """A piece that must be there, or must not."""

    piece: Piece
    wanted: bool


def contained(pattern: Pattern) -> str | None:
    """The text that is all this pattern requires a string to contain (`%abc%`), else None."""
    segments = pattern.segments
    plain = len(segments) == 3 and segments[0] == ("",) and segments[2] == ("",) and len(segments[1]) == 1
    return segments[1][0] if plain else None


def pieces_of(name: str, pattern: Pattern) -> list[Piece]:
    """Pieces that every match contains, besides the text that it begins and ends with."""
    every = [*chain.from_iterable(pattern.segments)][1:-1]
    chunks = every if len(every) == 1 else sorted({*every})  # the same text may come again and again
    data = [chunk.encode("utf-8", "surrogatepass") for chunk in chunks if chunk]
    if any(len(each) > LONGEST for each in data):
        data = [part for each in data for part in _parts(each)]
    if len(data) > 2 * MOST_NEEDS:  # no row has room for all of them: those that `fitting` chooses
        data = nsmallest(MOST_NEEDS + 1, set(data), key=lambda each: (-len(each), each))
    return [Piece(name, pattern.ignore_case, each) for each in data]


def _parts(data: bytes) -> Iterator[bytes]:
    """A text; or, of one that is too long for a piece, parts from its beginning to its end. Texts that differ have a
    part that differs, unless they have more bytes than MOST_NEEDS pieces.
    """
    if len(data) <= LONGEST:
        yield data
        return
    last = min(MOST_NEEDS, -(-len(data) // LONGEST)) - 1
    for at in range(last + 1):
        begin = at * (len(data) - LONGEST) // last
        yield data[begin : begin + LONGEST]


def fitting(needs: Iterable[Need]) -> tuple[frozenset[Need], bool]:
    """The needs of a row, and whether some were left out because there are too many: the longest say most."""
    every = sorted(set(needs), key=lambda need: (-len(need.piece.data), need))
    return frozenset(every[:MOST_NEEDS]), len(every) > MOST_NEEDS


class FoundPieces(NamedTuple):
    """The pieces of each event: numbers[offsets[e]:offsets[e + 1]]."""

    offsets: NDArray[np.int64]
    numbers: NDArray[np.int32]


class _Marks(threading.local):
    """Room to mark pieces, and one that no text contains, while an event is searched; a thread has its own."""

    def __init__(self, size: int) -> None:
        self.of_pieces = np.zeros(size + 1, np.uint8)


class Pieces:
    """Numbered pieces, and the automata that find them.

    >>> pieces = Pieces([Piece("title", False, b"red"), Piece("title", False, b"shoe"), Piece("title", True, b"red")])
    >>> pieces.find_one({"title": "RED shoes"}).numbers.tolist()
    [1, 2]
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}
        self.names = frozenset(map(attribute_of, {piece.name for piece in self.pieces}))
        self.marks = _Marks(len(self.pieces))
        self._expected = 16  # pieces of an event
        self._automata: list[tuple[str, bool, Automaton]] | None = None

    def __len__(self) -> int:
        return len(self.pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pieces, (self.pieces,)

    @property
    def nbytes(self) -> int:
        """The bytes of what matching reads."""
        return sum(array.nbytes for _, _, automaton in self.automata() for array in automaton)

    def automata(self) -> list[tuple[str, bool, Automaton]]:
        """The automata, each with its attribute and whether it reads foldings. Two threads may build equal ones."""
        if self._automata is None:
            self._automata = [(name, folded, self._built(name, folded)) for name, folded in self._kinds()]
        return self._automata

    def _kinds(self) -> list[tuple[str, bool]]:
        return sorted({(piece.name, piece.folded) for piece in self.pieces})

    def _built(self, name: str, folded: bool) -> Automaton:
        some = [(number, piece.data) for number, piece in enumerate(self.pieces) if piece[:2] == (name, folded)]
        offsets = np.cumsum([0, *(len(data) for _, data in some)], dtype=np.int64)
        data = np.frombuffer(b"".join(data for _, data in some), np.uint8)
        made: Automaton = build_automaton(data, offsets, DENSE, LEAST)
        if not len(made.endings):
            raise FilterTooComplexError(
                f"the patterns of {shown(attribute_of(name))} have too many characters for one index; use two"
            )
        numbers = np.array([number for number, _ in some], np.int32)
        longest = made.endings[::2]
        longest[:] = np.where(longest < 0, -1, numbers[longest])
        return made

    def find_one(self, event: Mapping[str, AttributeValue | None]) -> FoundPieces:
        """The pieces of one event."""

        def texts(name: str, folded: bool) -> _Texts | None:
            value = event.get(attribute_of(name))
            if name[0] == _LIST:
                return None if value is None else _joined([list_text(value)])
            return _encoded([value], folded) if isinstance(value, str) else None

        return self._find(1, texts)

    def find(self, events: EventColumns) -> FoundPieces:
        """The pieces of each event of a batch."""

        def texts(name: str, folded: bool) -> _Texts | None:
            if name[0] == _LIST:
                attribute = attribute_of(name)
                return _list_texts(events, attribute) if events.has(attribute) else None
            if not folded and name in events.strings:
                return _arrow_texts(events.strings[name])
            return _encoded(events.values(name), folded) if events.has(name) else None

        return self._find(events.size, texts)

    def _find(self, size: int, texts: Callable[[str, bool], _Texts | None]) -> FoundPieces:
        parts = []
        marks = self.marks.of_pieces
        for name, folded, automaton in self.automata():
            given = texts(name, folded)
            if given is None:
                continue
            offsets = np.zeros(size + 1, np.int64)
            found = RESULTS.array(self._expected * size + len(marks) + 1, np.int32)
            numbers = find_pieces(automaton, *given, marks, found, offsets)
            self._expected = min(_MOST_EXPECTED, 4 + int(offsets[-1]) // max(1, size))
            parts.append(FoundPieces(offsets, numbers[: offsets[-1]]))
        return parts[0] if len(parts) == 1 else _merged(parts, size)


_Texts = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]  # bytes, and where each text begins and ends


def _encoded(values: Sequence[AttributeValue | None], folded: bool) -> _Texts:
    """Strings as bytes; what is not a string is an empty text, which contains no piece."""
    texts = [value if isinstance(value, str) else "" for value in values]
    spelled = [text.casefold() for text in texts] if folded else texts
    return _joined([text.encode("utf-8", "surrogatepass") for text in spelled])


def _joined(data: Sequence[bytes]) -> _Texts:
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return np.frombuffer(b"".join(data), np.uint8), ends[:-1], ends[1:]


def _list_texts(events: EventColumns, attribute: str) -> _Texts:
    """The elements of each event's list, as one text."""
    return _joined([list_text(value) for value in events.with_lists(attribute)])


def _arrow_texts(array: Any) -> _Texts:
    """The strings of an Arrow array where they are; NULL is an empty text."""
    import pyarrow as pa

    if array.null_count:
        array = array.fill_null("")
    _, places, data = array.buffers()
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    ends = np.zeros(1, np.int64)
    if places is not None and len(array):
        ends = np.frombuffer(places, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), ends[:-1], ends[1:]


def _merged(parts: Sequence[FoundPieces], size: int) -> FoundPieces:
    """What several automata found, for each event."""
    counts = sum((np.diff(part.offsets) for part in parts), np.zeros(size, np.int64))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    numbers = np.empty(int(offsets[-1]), np.int32)
    free = offsets[:-1].copy()
    for part in parts:
        own = np.diff(part.offsets)
        numbers[np.repeat(free - part.offsets[:-1], own) + np.arange(len(part.numbers))] = part.numbers
        free += own
    return FoundPieces(offsets, numbers)


NO_PIECES = Pieces(())
