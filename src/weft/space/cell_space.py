"""Cell spaces: a filter becomes items, and an event is looked up among them, whatever the items are. The items of a box
admit every event that matches the box. More items admit no fewer events. Spaces with equal parameters have equal items.

| space | an item is | its fields |
|---|---|---|
| `ContentSpace` | a range of one curve | start, end |
| `CurveGroups` | a range of the curve of one group of attributes | group, start, end |
| `LabelSpace` | a label | label |

Items are the rows of an integer array with one column per field, so they can be sent, counted and sorted without
knowing what they are. Boxes and events are given as cells of each of the space's grids, so that code that measures many
spaces maps them to the cells of a dimension only once.
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

    model: ClassVar[str]  # the model of the routing tables over this space
    fields: ClassVar[tuple[str, ...]]  # of an item
    countable: ClassVar[bool]  # whether two items are either equal or disjoint

    @property
    def grids(self) -> Sequence[Grid]:
        """The grids, each over some attributes."""
        ...

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Everything that two ends must agree on; hashable, and made of JSON types."""
        ...

    def to_json(self) -> str:
        """The parameters as JSON."""
        ...

    def items(self, boxes: Sequence[CellBoxes], owners: Ints) -> Ints:
        """The items of each owner, one owner after another. `boxes` holds the boxes of all rows, for each grid.

        `owners` is the owner of each row. An item of several owners occurs once for each.
        """
        ...

    def united(self, items: Ints) -> Ints:
        """The fewest items that admit the same events as the given ones, in any order: what a neighbour is told."""
        ...

    def admits(self, items: Ints, cells: Sequence[Ints]) -> Mask:
        """Which events united items admit. `cells` holds the cells of all events, one row each, for each grid."""
        ...


@runtime_checkable
class CellItem(Protocol):
    """What brokers send about a cell space: one or more of its items."""

    @property
    def units(self) -> int:
        """How many items of the space it stands for."""
        ...

    @property
    def numbers(self) -> tuple[int, ...]:
        """The item as numbers, in the form in which it is sent."""
        ...


def boxes_of(space: CellSpace, columns: BoxColumns) -> tuple[CellBoxes, ...]:
    """The boxes of cells of each grid, for many boxes of values."""
    return tuple(grid.boxes_of_columns(columns) for grid in space.grids)


def told_of(space: CellSpace, columns: BoxColumns) -> Ints:
    """The items that a neighbour is told for many boxes of values."""
    return space.united(space.items(boxes_of(space, columns), columns.owners))


def cells_of(space: CellSpace, batch: pa.RecordBatch | Sequence[AnyEvent]) -> tuple[Ints, ...]:
    """The cells of events in each grid."""
    return tuple(grid.cells(batch) for grid in space.grids)
