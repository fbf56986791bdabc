"""Local subscriptions, apart from those of neighbours (thesis 4.8). The roots admit exactly what the subscriptions
admit.

A table sees only the roots of its local part, so a local part that finds few roots saves the table work, whatever the
table's model (Figures 4.13 and 4.14). Delivery happens elsewhere: an index of the broker contains every subscription
unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from weft.algebra.box import NormalForm
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.model.change import Change

Root = Filter | NormalForm
RootSetChange = Change[Collection[SubId], Mapping[SubId, Root]]  # an id may be in both


class Local(Protocol):
    """The local part of a table."""

    def change(self, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> RootSetChange:
        """Change subscriptions at once. Raises LocalProtocolError; nothing has changed in that case."""
        ...

    def roots(self) -> Mapping[SubId, Root]:
        """What stands for all subscriptions; the local part chooses the ids."""
        ...
