"""Two label spaces side by side, and filters and events as labels of them.

Two label spaces side by side (DLS 5.1): the one in use and, while a network is re-tuned, the next one. No label is
in both. Whatever holds for the labels of one space holds here.

A side is the highest bit of a label, which no space uses. Spaces alternate: the next one is on the other side, so the
labels of neighbours at different stages are never confused.

Filters and events as labels (DLS 4). An event that matches a filter has one of the filter's labels at some level in
use.

All of this is arithmetic on public parameters: a client that knows them can map its own subscriptions and events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.relate import Region, as_form
from weft.errors import LabelError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.dls.items import LabelSet
from weft.routing.dls.labels import MOST_BITS
from weft.routing.dls.space import LabelSpace
from weft.routing.table import Item

if TYPE_CHECKING:
    import pyarrow as pa

_LABEL = (1 << MOST_BITS) - 1


class Corners(NamedTuple):
    """Cells of labels: their side and application, and the corners of their boxes."""

    side: int
    application: int
    lows: Ints
    highs: Ints


@dataclass(frozen=True, slots=True)
class LabelSides:
    """A space for each side, or None; one of them is in use.

    >>> from weft import Schema
    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 12]}}})
    >>> both = LabelSides.of(LabelSpace.of(schema, 8)).beside(LabelSpace.of(schema, 16))
    >>> old, new = (both.labels("x = 3", side) for side in (0, 1))
    >>> both.sound(old).all(), both.sound(new).all(), both.moved().sound(old).any(), both.moved().sound(new).all()
    (np.True_, np.True_, np.False_, np.True_)
    """

    spaces: tuple[LabelSpace | None, LabelSpace | None]
    side: int = 0

    def __post_init__(self) -> None:
        if self.side not in (0, 1):
            raise LabelError(f"{self.side} is not a side of labels; use 0 or 1")
        if self.spaces[self.side] is None:
            raise LabelError(f"side {self.side} is in use but has no label space; give it one")

    @staticmethod
    def of(space: LabelSpace, side: int = 0) -> LabelSides:
        """One space, on one side."""
        return LabelSides((None, space) if side else (space, None), side)

    def beside(self, space: LabelSpace) -> LabelSides:
        """The same with a space on the other side. Raises LabelError if there already is one."""
        if self.coming is not None:
            raise LabelError("there are already two label spaces; wait until the old one is removed")
        return LabelSides((space, self.space) if self.side else (self.space, space), self.side)

    def moved(self) -> LabelSides:
        """Only the space of the other side, which is in use from now on. Raises LabelError if there is none."""
        if self.coming is None:
            raise LabelError("there is no next label space; add one with beside()")
        return LabelSides.of(self.coming, 1 - self.side)

    @property
    def space(self) -> LabelSpace:
        """The space in use."""
        found = self.spaces[self.side]
        assert found is not None
        return found

    @property
    def coming(self) -> LabelSpace | None:
        """The next space, or None."""
        return self.spaces[1 - self.side]

    # -- labels ------------------------------------------------------------------------------------

    def labels(self, region: Region, side: int) -> Ints:
        """The labels of a filter on one side; empty if there is no space. Raises FilterError if the filter never
        matches.
        """
        space = self.spaces[side]
        return np.zeros(0, np.int64) if space is None else space.labels(region) + (side << MOST_BITS)

    def sides(self, labels: Ints) -> Ints:
        """The side of each label."""
        return labels >> MOST_BITS

    def sound(self, labels: Ints) -> NDArray[np.bool_]:
        """Whether each is a label of one of the spaces."""
        out = np.zeros(labels.size, np.bool_)
        for side, space in enumerate(self.spaces):
            mine = self.sides(labels) == side
            out[mine] = space is not None and space.sound(labels[mine] & _LABEL)
        return out

    def level_of(self, labels: Ints) -> Ints:
        """The level of each label, on its side."""
        out = np.empty(labels.size, np.int64)
        for side in (0, 1):
            mine = self.sides(labels) == side
            if mine.any():
                out[mine] = self._space(side).level_of(labels[mine] & _LABEL) + (side << MOST_BITS)
        return out

    def levels(self, labels: Ints) -> Ints:
        """The levels of these labels, ascending, each once."""
        return np.unique(self.level_of(labels))

    def corners(self, labels: Iterable[int]) -> list[Corners]:
        """The cells of labels, by side and application. Raises LabelError for an invalid label."""
        sides: dict[int, list[int]] = {}
        for label in labels:
            sides.setdefault(label >> MOST_BITS, []).append(label & _LABEL)
        return [
            Corners(side, *boxes) for side, some in sides.items() for boxes in self._space(side).boxes_of_labels(some)
        ]

    def _space(self, side: int) -> LabelSpace:
        space = self.spaces[side] if side in (0, 1) else None
        if space is None:
            raise LabelError(f"there are no labels on side {side}; add a label space there first")
        return space

    # -- events ------------------------------------------------------------------------------------

    def of_events(self, batch: pa.RecordBatch | Sequence[AnyEvent], levels: Ints) -> Ints:
        """The labels of events, one row per event and one column per level. Cost: O(events x levels)."""
        out = np.empty((len(batch), len(levels)), np.int64)
        for side in (0, 1):
            columns = (self.sides(levels) == side).nonzero()[0]
            if columns.size:
                found = self._space(side).of_events(batch, levels[columns] & _LABEL)
                out[:, columns] = found + (side << MOST_BITS)
        return out

    def of_cells(self, cells: Ints, levels: Ints) -> Ints:
        """`of_events`, for events whose cells in the space in use are known, one row each; the other side has none."""
        ends = np.cumsum([len(grid.shape) for grid in self.space.grids])[:-1]
        return self.space.of_cells(np.split(cells, ends, axis=1), levels & _LABEL) + (self.side << MOST_BITS)

    def of_event(self, event: AnyEvent, levels: Ints) -> list[int]:
        """The labels of one event at these levels, which must ascend."""
        found: list[int] = []
        for side in (0, 1):
            some = levels[self.sides(levels) == side]
            if some.size:
                found += [label + (side << MOST_BITS) for label in self._space(side).of_event(event, some & _LABEL)]
        return found


def labels_of(wanted: Filter | NormalForm, sides: LabelSides) -> Ints | None:
    """The labels of a filter in the newest space; None if it never matches."""
    form = as_form(wanted)
    side = sides.side if sides.coming is None else 1 - sides.side
    return sides.labels(form, side) if form else None


def items_of(wanted: Filter, sides: LabelSides) -> tuple[LabelSet, ...]:
    """The labels of a filter in the form in which a client's broker is told them."""
    labels = labels_of(wanted, sides)
    return () if labels is None else (LabelSet(tuple(labels.tolist())),)


def labels_in(items: Iterable[Item]) -> Ints:
    """All labels of items, with repetitions."""
    return np.array([label for item in items if isinstance(item, LabelSet) for label in item.labels], np.int64)


def is_sound(item: object, sides: LabelSides) -> bool:
    """Whether an item is a set of labels of the current spaces."""
    if not isinstance(item, LabelSet) or not item.labels or not 0 <= min(item.labels) <= max(item.labels) < 1 << 63:
        return False
    labels = np.array(item.labels, np.int64)
    return bool((labels[1:] > labels[:-1]).all() and sides.sound(labels).all())


def cells_of(events: Sequence[AnyEvent], space: LabelSpace, schema: Schema | None = None) -> Ints:
    """The cells of events in all grids of a space, one row each; they determine the labels at any level."""
    return np.concatenate([grid.cells(events, schema) for grid in space.grids], axis=1)
