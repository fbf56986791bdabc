"""The weight of a filter's boxes in an index. It bounds the memory of an admitted filter."""

from __future__ import annotations

from collections.abc import Iterable

from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns
from weft.algebra.strings import Strings
from weft.errors import FilterTooComplexError
from weft.model.limits import LIMITS

_CHARACTERS = 16  # of a string or pattern that weigh as much as one bound


def weigh(boxes: Iterable[Box]) -> int:
    """The number of bounds, patterns and residuals of boxes; a value set that several boxes share counts once.

    >>> from weft.algebra.valueset import ValueSet
    >>> weigh([Box({"x": ValueSet(numbers=((0, 0), (1, 1)))})])
    3
    """
    seen: set[int] = set()
    weight = 0
    for box in boxes:
        weight += len(box.sets) + 4 * len(box.residuals)
        for values in box.sets.values():
            if id(values) not in seen:
                seen.add(id(values))
                weight += len(values.numbers) + len(values.timestamps)
                strings = values.strings
                if strings.line or strings.terms:
                    weight += _string_weight(strings, seen)
    return weight


def check_weight(boxes: Iterable[Box]) -> int:
    """The weight of a filter's boxes. Raises FilterTooComplexError past the limit."""
    weight = weigh(boxes)
    if weight > LIMITS.filter_weight:
        raise FilterTooComplexError(
            f"the filter has {weight:,} bounds in its normal form, and an index takes at most "
            f"{LIMITS.filter_weight:,}; split the filter"
        )
    return weight


def check_weights(columns: BoxColumns) -> None:
    """Raise FilterTooComplexError if a filter of the columns is too large, and say which."""
    beside: dict[int, list[Box]] = {}
    for row, box in columns.odd.items():
        beside.setdefault(int(columns.owners[row]), []).append(box)
    for owner, boxes in beside.items():
        try:
            check_weight(boxes)
        except FilterTooComplexError as error:
            raise error.at(owner) from None


def _string_weight(strings: Strings, seen: set[int]) -> int:
    weight = _text_weight(strings.line)
    for term in strings.terms:
        weight += 2 + len(term.musts) + len(term.nots)
        if id(term.line) not in seen:
            seen.add(id(term.line))
            weight += _text_weight(term.line)
        for pattern in (*term.musts, *term.nots):
            if id(pattern) not in seen:
                seen.add(id(pattern))
                weight += len(pattern.segments) + pattern.shortest // _CHARACTERS
    return weight


def _text_weight(line: tuple[tuple[str, int], ...]) -> int:
    return len(line) + sum(len(text) for text, _ in line) // _CHARACTERS
