"""A dead letter as a client sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from weft.broker.admission import read_head
from weft.broker.messages import DeadLetters
from weft.model.value import Value, from_micros


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a subscriber failed to handle too often."""

    offset: int
    attributes: dict[str, Value]
    payload: bytes
    failures: int
    reason: str  # of the last failure
    died_at: datetime


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
