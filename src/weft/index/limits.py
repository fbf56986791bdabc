"""The limits of an index, in one place. Law: whoever runs the process may raise them; a limit never changes an answer.

`LIMITS` holds for the whole process:

>>> LIMITS.filter_weight
40000
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.algebra.box import Box
from weft.algebra.valueset import ValueSet
from weft.errors import FilterTooComplexError

_CHARACTERS = 16  # of a string or pattern that weigh as much as one bound


@dataclass(slots=True)
class IndexLimits:
    """What an index takes, and what it remembers."""

    filter_weight: int = 40_000  # bounds in one filter's normal form; each takes about 100 bytes
    tail_weight: int = 2_048  # of the newest filters together, before they go into a tree
    memo_bytes: int = 32 << 20  # strings of events, remembered with their codes, in all indexes together
    memo_longest: int = 256  # characters; a longer string is not remembered


LIMITS = IndexLimits()


def weigh(boxes: Iterable[Box]) -> int:
    """What boxes weigh: their bounds, patterns and residuals; a value set that several boxes share counts once.

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
                weight += _weight(values, seen)
    return weight


def check_weight(boxes: Iterable[Box]) -> int:
    """The weight of a filter's boxes. Raises FilterTooComplexError past the limit."""
    weight = weigh(boxes)
    if weight > LIMITS.filter_weight:
        raise FilterTooComplexError(
            f"the filter has {weight} bounds in its normal form, and an index takes {LIMITS.filter_weight}: split it"
        )
    return weight


def _weight(values: ValueSet, seen: set[int]) -> int:
    weight = len(values.numbers) + len(values.timestamps)
    if values.strings:
        weight += _text_weight(values.strings.line)
        for term in values.strings.terms:
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
