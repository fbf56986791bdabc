"""The interfaces of a routing table: its neighbours, and its local clients. Nothing is told to an interface that is not
attached, nor to a child.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from weft.model.paged_dict import PagedDict
from weft.routing.ledger import Ledger
from weft.routing.table import Link, Role

K = TypeVar("K", bound=Hashable)  # how a model names the items that it tells
H = TypeVar("H")  # what a model holds of a subscription or of an item heard


class TableInterface(Generic[K, H]):
    """Where items come from and where they are told: local clients (no link), or a neighbour while it is attached."""

    __slots__ = ("attached", "began", "ended", "held", "ledger", "link", "role")

    def __init__(self, link: Link | None, role: Role, numbers: Iterator[int]) -> None:
        self.link = link
        self.role = role
        self.attached = False  # a restored neighbour is not attached until it is present
        self.began = self.ended = 0  # when it was attached and detached, in the order of such events; 0: not yet
        self.held: PagedDict[int, H | None] = PagedDict()
        self.ledger: Ledger[K] = Ledger(numbers)

    def __repr__(self) -> str:
        return f"TableInterface({self.link}, {self.role})"

    @property
    def listening(self) -> bool:
        """Whether it is told anything."""
        return self.attached and self.role is not Role.CHILD
