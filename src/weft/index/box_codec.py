"""Boxes as bytes, and back. Decoding gives the boxes that were encoded, whatever their size, in time linear in the
bytes. Bytes that encode no boxes raise ValueError.

An index stores what its rows cannot tell as these bytes rather than as text: no limit of the language applies on the
way back. Patterns and value sets that several boxes share are written once. The bytes are MessagePack: a list of
patterns, a list of value sets, and a list of boxes that name them by number. A pattern that ignores case is a map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from weft.algebra.box import Box
from weft.algebra.interval import EMPTY, NUMBERS, STRINGS, Line
from weft.algebra.residual import AttributeRelation, Called, Outcomes, Residuals, Subject
from weft.algebra.string_terms import Term
from weft.algebra.strings import Strings
from weft.algebra.valueset import ValueSet
from weft.errors import FilterError
from weft.language.ast import AttributeRef, Call
from weft.language.constant import Constant, encodes
from weft.language.membership import is_membership, membership
from weft.language.pattern import Pattern
from weft.language.predicate import Predicates
from weft.model.value import INT_MAX, INT_MIN, Type

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode
_FOLDED = "folded"  # the key of a pattern that ignores case; any other pattern is a list


def encode_boxes(boxes: Iterable[Box]) -> bytes:
    """The bytes of boxes. Cost: O(size of the boxes)."""
    writer = _Writer()
    rows = [writer.box(box) for box in boxes]
    return _encode((writer.patterns, writer.sets, rows))


def decode_boxes(data: bytes, predicates: Predicates) -> tuple[Box, ...]:
    """The boxes of bytes. Raises ValueError, or FilterError if a predicate is unknown or refuses its arguments."""
    try:
        patterns, sets, rows = _decode(data)
        reader = _Reader(patterns, sets, predicates)
        return tuple(reader.box(row) for row in rows)
    except FilterError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"the bytes are not encoded boxes: {error}") from error


class _Writer:
    def __init__(self) -> None:
        self.patterns: list[Any] = []
        self.sets: list[Any] = []
        self._known: dict[Any, int] = {}  # patterns by value, value sets by identity
        self._alive: list[ValueSet] = []  # so that no identity is used again

    def box(self, box: Box) -> tuple[Any, ...]:
        sets = [(name, self.values(values)) for name, values in box.sets.items()]
        return (sets, [(*encode_subject(s), sorted(allowed, key=str)) for s, allowed in box.residuals.items()])

    def values(self, values: ValueSet) -> int:
        number = self._known.get(id(values))
        if number is None:
            number = self._known[id(values)] = len(self.sets)
            self._alive.append(values)
            strings = values.strings
            terms = [
                (
                    [part for cut in term.line for part in cut],
                    sorted(map(self.pattern, term.musts)),
                    sorted(map(self.pattern, term.nots)),
                )
                for term in (sorted(strings.terms, key=_order) if strings.terms else ())
            ]
            self.sets.append(
                (
                    [part for cut in values.numbers for part in cut],
                    [part for cut in strings.line for part in cut],
                    terms,
                    sum([1 << value for value in values.bools]) if values.bools else 0,
                    [part for cut in values.timestamps for part in cut],
                    values.absent,
                )
            )
        return number

    def pattern(self, pattern: Pattern) -> int:
        number = self._known.get(pattern)
        if number is None:
            number = self._known[pattern] = len(self.patterns)
            self.patterns.append({_FOLDED: pattern.segments} if pattern.ignore_case else pattern.segments)
        return number


def _order(term: Term) -> tuple[Any, ...]:
    """An order that does not depend on hashes, so that equal boxes have equal bytes."""
    return (
        sorted((pattern.segments, pattern.ignore_case) for pattern in term.musts),
        sorted((pattern.segments, pattern.ignore_case) for pattern in term.nots),
        term.line,
    )


def encode_subject(subject: Subject) -> list[Any]:
    """A residual's subject as lists and values."""
    if isinstance(subject, AttributeRelation):
        return [subject.left, subject.right]
    call = subject.call
    return [call.predicate.name, call.left.name, [[each.type.value, each.value] for each in call.arguments]]


def decode_subject(said: Any, predicates: Predicates) -> Subject:
    """The subject that lists and values say. Raises ValueError or FilterError."""
    if len(said) == 2:
        return AttributeRelation(_name(said[0]), _name(said[1]))
    name, left, arguments = said
    predicate = predicates.get(_name(name))
    if predicate is None:
        raise FilterError(f"the predicate {name!r} is unknown here: pass it to open")
    constants = tuple(Constant(Type(kind), value) for kind, value in arguments)
    return Called(Call(predicate, AttributeRef(_name(left)), constants))


class _Reader:
    def __init__(self, patterns: Any, sets: Any, predicates: Predicates) -> None:
        self.predicates = predicates
        self.patterns = [_pattern(segments) for segments in patterns]
        self.sets = [self.values(*parts) for parts in sets]

    def box(self, row: Any) -> Box:
        sets, residuals = row
        held = {_name(name): self.sets[_place(number)] for name, number in sets}
        if len(held) != len(sets) or not all(held.values()):
            raise ValueError("a box names an attribute twice, or has an empty set")
        return Box(held, self.residuals(residuals))

    def residuals(self, rows: Sequence[Any]) -> Residuals:
        made: dict[Subject, Outcomes] = {}
        for *said, outcomes in rows:
            subject = decode_subject(said, self.predicates)
            allowed: Outcomes = frozenset(outcomes)
            if not allowed or not allowed <= subject.outcomes:
                raise ValueError(f"{outcomes!r} are not outcomes of a residual")
            made[subject] = allowed
        if len(made) != len(rows):
            raise ValueError("a box has a residual twice")
        return made

    def values(  # noqa: PLR0913, PLR0917 - the parts as they are written
        self, numbers: Any, strings: Any, terms: Any, bools: Any, timestamps: Any, absent: Any
    ) -> ValueSet:
        if bools not in (0, 1, 2, 3) or not isinstance(absent, bool):
            raise ValueError("a value set has odd parts")
        held = frozenset(Term(_strings(line), self.some(musts), self.some(nots)) for line, musts, nots in terms)
        if not all(term.line and (term.musts or term.nots) for term in held):
            raise ValueError("a term has no pattern or no strings")
        return ValueSet(
            _numbers(numbers, (int, float)),
            Strings(_strings(strings), held),
            frozenset(value for value in (False, True) if bools >> value & 1),
            _numbers(timestamps, (int,)),
            absent,
        )

    def some(self, numbers: Sequence[Any]) -> frozenset[Pattern]:
        return frozenset(self.patterns[_place(number)] for number in numbers)


def _place(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is not a place in a list")
    return number


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name or not encodes(name):
        raise ValueError(f"{name!r} cannot name an attribute")
    if is_membership(name):
        membership(name)
    return name


def _pattern(said: Any) -> Pattern:
    folded = isinstance(said, dict)
    segments = said[_FOLDED] if folded else said
    made = tuple(tuple(segment) for segment in segments)
    if not made or not all(
        segment and all(isinstance(chunk, str) and encodes(chunk) for chunk in segment) for segment in made
    ):
        raise ValueError("a pattern has an empty segment, or one that is not text")
    if folded and any(chunk.casefold() != chunk for segment in made for chunk in segment):
        raise ValueError("a pattern that ignores case is not folded")
    return Pattern(made, ignore_case=folded)


def _numbers(flat: Sequence[Any], kinds: tuple[type, ...]) -> Line:
    if not flat:
        return EMPTY
    for value in flat[::2]:
        if type(value) not in kinds and value != -math.inf:
            raise ValueError(f"{value!r} is not a bound of a number")
        if isinstance(value, int) and not INT_MIN <= value <= INT_MAX + 1:
            raise ValueError(f"{value!r} is beyond 64 bits")
    line = _line(flat)
    if any(not math.isfinite(value) for value, _ in line[1:]) or (
        line and not math.isfinite(line[0][0]) and line[0] != NUMBERS[0]
    ):
        raise ValueError("a bound of a number is not finite")
    return line


def _strings(flat: Sequence[Any]) -> Line:
    if not flat:
        return EMPTY
    if not all(isinstance(value, str) and encodes(value) for value in flat[::2]):
        raise ValueError("a bound of strings is not text")
    line = _line(flat)
    if line and line[0][0] == "" and line[0] not in (STRINGS[0], ("", 1)):
        raise ValueError("a line of strings begins oddly")
    return line


def _line(flat: Sequence[Any]) -> Line:
    """The cuts of a line, which must ascend."""
    if len(flat) % 2 or not all(type(side) is int and side in (0, 1) for side in flat[1::2]):
        raise ValueError("a line has half a cut, or one on no side")
    line = tuple(zip(flat[::2], flat[1::2], strict=True))
    if any(line[at] >= line[at + 1] for at in range(len(line) - 1)):
        raise ValueError("the cuts of a line do not ascend")
    return line
