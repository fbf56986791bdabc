"""Label sets against advertisements, by cells. Law: False only when disproved: they share no cell."""

from __future__ import annotations

from collections.abc import Callable

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.errors import WeftError
from weft.interest.curve_range import CurveRange
from weft.interest.label_set import LabelSet
from weft.routing.adverts import Overlap, Seen
from weft.routing.table import Item
from weft.space.grid import CellBoxes
from weft.space.label_sides import LabelSides
from weft.space.label_space import LabelSpace


class _Advertisement:
    """An advertisement's boxes of cells in each space that labels are compared in, made when first asked for."""

    def __init__(self, form: NormalForm) -> None:
        self._form = form
        self._boxes: dict[int, tuple[LabelSpace, tuple[CellBoxes, ...]]] = {}

    def boxes(self, side: int, sides: LabelSides) -> tuple[CellBoxes, ...]:
        space = sides.spaces[side]
        assert space is not None
        if side not in self._boxes or self._boxes[side][0] is not space:
            self._boxes[side] = space, tuple(grid.boxes(self._form) for grid in space.grids)
        for other, old in enumerate(sides.spaces):
            if old is None:
                self._boxes.pop(other, None)  # that space is gone, and what was made for it
        return self._boxes[side][1]


class LabelOverlap(Overlap):
    """Whether a label set and an advertisement share a cell: for tables of labels that wear `Advertised`.

    `sides` says which spaces there are now, for a table may be re-tuned.
    """

    def __init__(self, sides: Callable[[], LabelSides]) -> None:
        super().__init__()
        self._sides = sides

    def see(self, item: Item) -> Seen:
        """The boxes of cells of labels; of an advertisement its form, empty or not."""
        try:
            if isinstance(item, LabelSet):
                return self._sides().corners(item.labels)
            form = None if isinstance(item, CurveRange) else as_form(item)
            return None if form is None else _Advertisement(form) if form else ()
        except (WeftError, TypeError):
            return None

    def meets(self, item: Seen, advertisement: Seen) -> bool:
        """Whether a cell may be in both."""
        if item is None or advertisement is None:
            return True
        for side, application, lows, highs in item if advertisement else ():
            boxes = advertisement.boxes(side, self._sides())[application]
            meeting = (lows[:, None] <= boxes.highs[None]) & (highs[:, None] >= boxes.lows[None])
            if meeting.all(axis=2).any():
                return True
        return False
