"""Items and notes that brokers send about labels: sets of labels, and notes that take effect with the update that
carries them.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec


class LabelSet(msgspec.Struct, frozen=True, order=True):
    """Labels of one label space: at least one, ascending, without duplicates."""

    labels: tuple[int, ...]

    @property
    def units(self) -> int:
        """Every label is an item of its space."""
        return len(self.labels)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The item as numbers, in the form in which it is sent."""
        return self.labels


class Switch(msgspec.Struct, frozen=True, tag=True):
    """From here on, the filters at both ends of this direction have this many counters. Both are rebuilt."""

    number: int  # one more than the previous switch, so that none is missed; a link begins with 0
    counters: int


class Stage(IntEnum):
    """How far a broker has adopted a new label space. A neighbour is told each stage once."""

    UNAWARE = 0
    OFFERED = 1  # it understands new labels, and sends those of its own clients
    DONE = 2  # it no longer passes old labels on, either
    MOVED = 3  # it has removed the old space, and so has every broker behind it


class Retuning(msgspec.Struct, frozen=True, tag=True):
    """The label space that follows the one in use, and how far the sender has adopted it."""

    space: str  # written by LabelSpace.to_json
    stage: Stage


Note = Switch | Retuning
