"""Cell spaces: a filter becomes items, and an event is looked up among them, whatever the items are. Laws: the items of
a box admit every event that matches the box; more items admit no fewer events; spaces with equal parameters have equal
items.

| space | an item is | its fields |
|---|---|---|
| `ContentSpace` | a range of one curve | start, end |
| `CurveGroups` | a range of the curve of one group of attributes | group, start, end |
| `LabelSpace` | a label | label |

Items are the rows of an integer array, a column for each field, so that they can be sent, counted and sorted without
knowing what they are. Boxes and events come as cells of each of the space's grids, so that whoever measures many spaces
maps them to the cells of a dimension once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from weft.algebra.columns import BoxColumns
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints, Mask
from weft.space.grid import CellBoxes, Grid

if TYPE_CHECKING:
    import pyarrow as pa


class CellSpace(Protocol):
    """Grids, and how boxes of their cells become items."""

    model: ClassVar[str]  # of the routing table that is made of it
    fields: ClassVar[tuple[str, ...]]  # of an item
    countable: ClassVar[bool]  # whether two items are equal or have nothing in common

    @property
    def grids(self) -> Sequence[Grid]:
        """The grids, each over some attributes."""
        ...

    @property
    def parameters(self) -> tuple[Any, ...]:
        """All that two ends must agree on; hashable, and of JSON's types."""
        ...

    def to_json(self) -> str:
        """The parameters as JSON."""
        ...

    def items(self, boxes: Sequence[CellBoxes], owners: Ints) -> Ints:
        """The items of each owner, one owner after another; of each grid there are the boxes of all rows.

        `owners` has the owner of each row. An item that several owners have is there once for each.
        """
        ...

    def united(self, items: Ints) -> Ints:
        """Items in any order, as few as admit the same events: what a neighbour is told."""
        ...

    def admits(self, items: Ints, cells: Sequence[Ints]) -> Mask:
        """Which events united items admit; of each grid there are the cells of all events, a row each."""
        ...


@runtime_checkable
class CellItem(Protocol):
    """What brokers tell of a cell space: one or more of its items."""

    @property
    def units(self) -> int:
        """How many items of the space it stands for."""
        ...

    @property
    def numbers(self) -> tuple[int, ...]:
        """The item in numbers, as it is sent."""
        ...


def boxes_of(space: CellSpace, columns: BoxColumns) -> tuple[CellBoxes, ...]:
    """The boxes of cells, of each grid, for many boxes of values."""
    return tuple(grid.boxes_of_columns(columns) for grid in space.grids)


def told_of(space: CellSpace, columns: BoxColumns) -> Ints:
    """The items that a neighbour is told for many boxes of values."""
    return space.united(space.items(boxes_of(space, columns), columns.owners))


def cells_of(space: CellSpace, batch: pa.RecordBatch | Sequence[AnyEvent]) -> tuple[Ints, ...]:
    """The cells of events, of each grid."""
    return tuple(grid.cells(batch) for grid in space.grids)
