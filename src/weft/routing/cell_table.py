"""Tables whose items are cells of a space: ranges of curves, or labels. The laws of `table` hold, CELLS or wider: a
link is told the cells of all others' filters. Only new cells are told, and only cells that no other source wants are
withdrawn.

Each listening link has counts of what all others want, without what came from the link itself, so that unsubscription
is exact (errata, MICS 3 and 4, DLS 3 and 5). They are `outgoing`; what a link told is `incoming`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from weft.model.change import Change
from weft.routing.dls.items import Note
from weft.routing.engine import TableEngine
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.table import Item

C = TypeVar("C")  # the cells of a subscription or of an item
C_contra = TypeVar("C_contra", contravariant=True)
_CellItem = TypeVar("_CellItem", bound=Item)
CellItem_co = TypeVar("CellItem_co", bound=Item, covariant=True)

_TOGETHER = 16  # subscriptions that are counted as one piece of work


class Cells(Generic[C]):
    """The cells of one subscription, or of one item of a neighbour."""

    __slots__ = ("cells", "wanted")

    def __init__(self, cells: C, wanted: Any = None) -> None:
        self.cells = cells
        self.wanted = wanted  # their source, if they may have to be recomputed


class OutgoingCells(Protocol[C_contra, CellItem_co]):
    """What one link is told: the cells that all others want, with counts."""

    def change(self, drop: Iterable[C_contra], add: Iterable[C_contra]) -> ToldCells[CellItem_co]:
        """Remove and add cells that others want; returns the items removed and added, and notes."""
        ...

    def improve(self) -> ToldCells[CellItem_co]:
        """Combine the same cells into fewer items, if that saves half of them."""
        ...

    def __len__(self) -> int:
        """The number of items."""
        ...


ToldCells = tuple[Change[Collection[_CellItem], Collection[_CellItem]], tuple[Note, ...]]


class CellTable(TableEngine[_CellItem, Cells[C]], Generic[_CellItem, C]):
    """What tables of cells have in common; an item is its own key."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.outgoing: dict[TableInterface[_CellItem, Cells[C]], OutgoingCells[C, _CellItem]] = {}
        self._waiting: dict[
            TableInterface[_CellItem, Cells[C]], dict[Cells[C], None]
        ] = {}  # not yet counted for a new link

    @abstractmethod
    def make_outgoing(self) -> OutgoingCells[C, _CellItem]:
        """What a new link is told: nothing yet."""

    def item(self, key: _CellItem) -> Item:
        """An item is its own key."""
        return key

    def revise(
        self,
        source: TableInterface[_CellItem, Cells[C]],
        drop: Sequence[Cells[C]],
        add: Sequence[Cells[C]],
    ) -> Job:
        """Update every link except the source, by its counts. Cost: O(links x cells that change)."""
        for interface in self.listening(source):
            if source.ended and interface.began > source.ended:
                continue  # it was attached after the source had left
            waiting = self._waiting.get(interface)
            known = drop
            if waiting:
                known = [each for each in drop if each not in waiting]
                for each in drop:
                    waiting.pop(each, None)
            self._tell(interface, self._counted(interface, known, add))
        return iter(())

    def _counted(
        self, interface: TableInterface[_CellItem, Cells[C]], drop: Sequence[Cells[C]], add: Sequence[Cells[C]]
    ) -> ToldCells[_CellItem]:
        return self.outgoing[interface].change([each.cells for each in drop], [each.cells for each in add])

    def _tell(self, interface: TableInterface[_CellItem, Cells[C]], told: ToldCells[_CellItem]) -> None:
        change, notes = told
        for item in change.drop:
            self.withdraw(interface, item)
        for item in change.add:
            self.tell(interface, item)
        interface.ledger.notes += notes

    def tell_everything(self, interface: TableInterface[_CellItem, Cells[C]]) -> Job:
        """Count what all others want, some subscriptions at a time."""
        self.outgoing[interface] = self.make_outgoing()
        waiting = self._waiting[interface] = dict.fromkeys(self.holding(interface))
        while waiting:
            some = [*islice(waiting, _TOGETHER)]
            for each in some:
                del waiting[each]
            self._tell(interface, self._counted(interface, (), some))
            yield
        self._waiting.pop(interface, None)

    def link_removed(self, interface: TableInterface[_CellItem, Cells[C]]) -> Job:
        """Forget what the link was told."""
        self.outgoing.pop(interface, None)
        waiting = self._waiting.get(interface)
        if waiting:
            waiting.clear()
        return iter(())

    def improve(self, budget: int) -> None:
        """Combine small items if that saves half of them."""
        for interface, outgoing in self.outgoing.items():
            if len(outgoing) <= budget:
                self._tell(interface, outgoing.improve())

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        assert set(self.outgoing) == set(self.listening())
        if not self.pending:
            assert not any(self._waiting.values())
