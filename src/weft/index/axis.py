"""Axes: the dimensions of an index, and how an event is coded on them. Absent attributes have the code 0 on every axis.

An axis is an attribute; its strings reversed, on which a suffix is a prefix, or folded, on which case does not count,
or both; or a residual's subject, whose outcomes are its codes. One more axis, the anchor, has a code for each piece
that a string may contain (see `anchors`): there an event is at several places, and the axis itself says 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.algebra.residual import AttributeRelation, Subject
from weft.index.dimension import ABSENT, CodeDimension, Codes
from weft.index.events import EventColumns
from weft.model.lists import AttributeValue


@dataclass(frozen=True, slots=True)
class Axis:
    """What a dimension codes of an event: an attribute, its strings reversed or folded, or a residual's subject."""

    name: str = ""
    reverse: bool = False
    subject: Subject | None = None
    folded: bool = False
    anchor: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is an attribute as it is."""
        return self.subject is None and not self.reverse and not self.folded and not self.anchor

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes it looks at."""
        if self.anchor:
            return ()
        return (self.name,) if self.subject is None else self.subject.names

    def code(self, dimension: CodeDimension, event: Mapping[str, AttributeValue | None]) -> int:
        """The code of one event."""
        if self.anchor:
            return ABSENT
        if self.subject is not None:
            return outcomes(self.subject).index(self.subject.outcome(event))
        value = event.get(self.name)
        if not self.reverse and not self.folded:
            return dimension.code(value)
        return dimension.code_of_string(self.spelled(value)) if isinstance(value, str) else ABSENT

    def spelled(self, text: str) -> str:
        """A string of the attribute as it stands on this axis."""
        text = text.casefold() if self.folded else text
        return text[::-1] if self.reverse else text

    def write(self, dimension: CodeDimension, events: EventColumns, codes: Codes, dim: int) -> None:
        """The codes of events, into codes[:, dim]."""
        if self.subject is not None:
            codes[:, dim] = _outcome_codes(self.subject, events)
        elif not self.is_plain:
            code, spelled = dimension.code_of_string, self.spelled
            texts = events.values(self.name)
            codes[:, dim] = [code(spelled(text)) if isinstance(text, str) else ABSENT for text in texts]
        else:
            events.write(self.name, dimension, codes, dim)


ANCHOR = Axis(anchor=True)


def outcomes(subject: Subject) -> list[Any]:
    """The outcomes in the order of their codes; NULL is 0, as it is for an event without the attributes."""
    return [None, *sorted(subject.outcomes - {None}, key=str)]


def _outcome_codes(subject: Subject, events: EventColumns) -> Codes:
    order = outcomes(subject)
    if isinstance(subject, AttributeRelation):
        left, right = events.numbers(subject.left), events.numbers(subject.right)
        if left is not None and right is not None:
            codes = np.zeros(events.size, np.int32)
            for sign, holds in (("<", left < right), ("=", left == right), (">", left > right)):
                codes[holds] = order.index(sign)
            return codes
    columns = [events.values(name) for name in subject.names]
    names = subject.names
    codes = np.zeros(events.size, np.int32)
    if any(column.count(None) == events.size for column in columns):
        return codes
    for place, row in enumerate(zip(*columns, strict=True)):
        if None not in row:  # else it is NULL, without asking
            codes[place] = order.index(subject.outcome(dict(zip(names, row, strict=True))))
    return codes
