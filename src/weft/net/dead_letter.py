"""Dead letters as a client sees them. Law: what cannot be asked is an OptionError before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from weft.broker.admission import read_head
from weft.broker.messages import DeadLetters
from weft.errors import OptionError
from weft.model.value import Value, from_micros

_MOST = 1_000  # offsets in one request


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a subscriber failed to handle too often."""

    offset: int
    attributes: dict[str, Value]
    payload: bytes
    failures: int
    reason: str  # of the last failure
    died_at: datetime


def letter_parts(offsets: Sequence[int]) -> list[tuple[int, ...]]:
    """Offsets of letters, as many at a time as one request may name. Raises OptionError.

    >>> letter_parts([7, 8])
    [(7, 8)]
    """
    for offset in offsets:
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 < offset < 1 << 63:
            raise OptionError(f"{offset!r} is not the offset of an event")
    return [tuple(offsets[at : at + _MOST]) for at in range(0, len(offsets), _MOST)]


def check_letters(limit: int, after: int) -> None:
    """Raise OptionError for a list of letters that cannot be."""
    if limit < 1 or not 0 <= after < 1 << 63:
        raise OptionError(f"limit is {limit} and after is {after}; give a limit of 1 or more, and an offset")


def dead_letters(answer: DeadLetters) -> list[DeadLetter]:
    """The letters of an answer."""
    return [
        DeadLetter(
            letter.offset,
            read_head(letter.head).attributes,
            letter.payload,
            letter.failures,
            letter.reason,
            from_micros(letter.at),
        )
        for letter in answer.letters
    ]
