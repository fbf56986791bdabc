"""What brokers tell of labels: sets of them as items, and notes that go with an update and hold from it on."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class LabelSet(msgspec.Struct, frozen=True, order=True):
    """Labels of one label space, ascending, each once, and one at least."""

    labels: tuple[int, ...]

    @property
    def units(self) -> int:
        """Every label is an item of its space."""
        return len(self.labels)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The item in numbers, as it is sent."""
        return self.labels


class Switch(msgspec.Struct, frozen=True, tag=True):
    """The filters at both ends of this direction have so many counters from here on, and are made anew."""

    number: int  # one more than that of the switch before, so that none is missed; a link begins with 0
    counters: int


class Stage(IntEnum):
    """How far a broker has come with a new label space; a neighbour hears of each stage once."""

    UNAWARE = 0
    OFFERED = 1  # it understands new labels, and tells what is wanted at its own clients' in them
    DONE = 2  # it passes no old labels on either


class Retuning(msgspec.Struct, frozen=True, tag=True):
    """A label space that is to follow the one in use, and how far the teller is with it."""

    space: str  # as LabelSpace.to_json writes it
    stage: Stage


Note = Switch | Retuning
