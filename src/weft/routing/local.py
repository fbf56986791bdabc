"""Local subscriptions, apart from those of neighbours (thesis 4.8). Law: the roots admit what they admit, no more.

A table sees only the roots of its local part, so a local part that finds few roots saves the table work, whatever the
table's model (Figures 4.13 and 4.14). Delivery is not here: an index of the broker has every subscription as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from weft.algebra.box import NormalForm
from weft.errors import LocalProtocolError
from weft.index.base import SubId
from weft.routing.table import Wanted

C_co = TypeVar("C_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Held:
    """An item and the events that it admits."""

    item: Wanted
    form: NormalForm
    made: list[Any] = field(default_factory=list, repr=False, compare=False)  # what an order made of it, and which


class RootChange(NamedTuple):
    """How the roots change; the drops come first, and an id may be in both."""

    drop: Collection[SubId]
    add: Mapping[SubId, Held]


class Local(Protocol):
    """The local part of a table."""

    def change(self, add: Mapping[SubId, Held], drop: Collection[SubId]) -> RootChange:
        """Change subscriptions at once. Raises LocalProtocolError, then nothing has changed."""
        ...

    def roots(self) -> Mapping[SubId, Held]:
        """What stands for all subscriptions; the ids are the local part's own choice."""
        ...


class EveryRoot:
    """The plain local part: every subscription is a root."""

    def __init__(self) -> None:
        self._held: dict[SubId, Held] = {}

    def change(self, add: Mapping[SubId, Held], drop: Collection[SubId]) -> RootChange:
        """Drop, then add."""
        check_change(self._held, add, drop)
        for sub in drop:
            del self._held[sub]
        self._held.update(add)
        return RootChange(drop, add)

    def roots(self) -> Mapping[SubId, Held]:
        """Every subscription."""
        return self._held


class Ordered(Protocol[C_co]):
    """Held items by who wants them, in an order that says how its roots change."""

    def add(self, thing: Held, interface: SubId) -> C_co:
        """Take one in."""
        ...

    def discard(self, thing: Held, interface: SubId) -> C_co:
        """Let one go."""
        ...


def changed(
    held: dict[SubId, Held], order: Ordered[C_co], add: Mapping[SubId, Held], drop: Collection[SubId]
) -> list[C_co]:
    """Drop, then add, in what is held and in its order; what matches nothing has no place there.

    Raises LocalProtocolError, then nothing has changed.
    """
    check_change(held, add, drop)
    changes = []
    for sub in drop:
        gone = held.pop(sub)
        if gone.form:
            changes.append(order.discard(gone, sub))
    for sub, new in add.items():
        held[sub] = new
        if new.form:
            changes.append(order.add(new, sub))
    return changes


def check_change(known: Collection[SubId], add: Collection[SubId], drop: Collection[SubId]) -> None:
    """Raise LocalProtocolError unless what is dropped is known, once, and what is added is new or dropped."""
    gone = set(drop)
    if len(gone) != len(drop):
        raise LocalProtocolError("a subscription is dropped twice in one change")
    for sub in drop:
        if sub not in known:
            raise LocalProtocolError(f"there is no subscription {sub} to drop")
    for sub in add:
        if sub in known and sub not in gone:
            raise LocalProtocolError(f"subscription {sub} is known: drop it in the same change to replace it")
