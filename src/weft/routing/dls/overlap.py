"""Label sets compared with advertisements, by cells. The answer is False only when disproved: they share no cell. A
comparison is bounded, whatever is compared.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.errors import WeftError
from weft.interest.label_set import LabelSet
from weft.language.ast import Filter
from weft.routing.table import Item
from weft.space.grid import CellBoxes
from weft.space.label_sides import Corners, LabelSides
from weft.space.label_space import LabelSpace

_MOST_LABELS = 4_096  # of a set that is compared; a larger one meets every advertisement
_MOST_COMPARED = 1 << 22  # labels times boxes times attributes
_AT_ONCE = 1 << 16  # of these


class _Advertisement:
    """An advertisement's boxes of cells in each space in which labels are compared, computed on demand."""

    def __init__(self, form: NormalForm) -> None:
        self._form = form
        self._boxes: dict[int, tuple[LabelSpace, tuple[CellBoxes, ...]]] = {}

    def boxes(self, side: int, sides: LabelSides) -> tuple[CellBoxes, ...]:
        """The boxes in each application of a space."""
        space = sides.spaces[side]
        assert space is not None
        if side not in self._boxes or self._boxes[side][0] is not space:
            self._boxes[side] = space, tuple(grid.boxes(self._form) for grid in space.grids)
        for other, old in enumerate(sides.spaces):
            if old is None:
                self._boxes.pop(other, None)  # that space is gone, and so is what was computed for it
        return self._boxes[side][1]

    def meets(self, corners: Corners, sides: LabelSides) -> bool:
        """Whether it has a cell in the given boxes."""
        if not self._form:
            return False
        boxes = self.boxes(corners.side, sides)[corners.application]
        if len(corners.lows) * boxes.lows.size > _MOST_COMPARED:
            return True  # not disproved
        together = max(1, _AT_ONCE // boxes.lows.size)
        for at in range(0, len(corners.lows), together):
            lows, highs = (each[at : at + together, None] for each in (corners.lows, corners.highs))
            if ((lows <= boxes.highs) & (highs >= boxes.lows)).all(axis=2).any():
                return True
        return False


class LabelOverlap:
    """Whether a label set and an advertisement share a cell. `sides` returns the current spaces."""

    def __init__(self, sides: Callable[[], LabelSides]) -> None:
        self._sides = sides

    def see(self, item: Item) -> list[Corners] | None:
        """The boxes of cells of labels."""
        try:
            if isinstance(item, LabelSet) and len(item.labels) <= _MOST_LABELS:
                return self._sides().corners(item.labels)
            return None
        except WeftError:
            return None

    def promise(self, advertisement: Item) -> _Advertisement | None:
        """An advertisement's cells; None if it is too complex to compare."""
        try:
            if isinstance(advertisement, Filter | NormalForm):
                schema = advertisement.schema if isinstance(advertisement, NormalForm) else None
                return _Advertisement(as_form(advertisement, schema))
        except WeftError:
            pass
        return None

    def meets(self, item: object, advertisement: object) -> bool:
        """Whether a cell may be in both."""
        if not isinstance(item, list) or not isinstance(advertisement, _Advertisement):
            return True
        return any(advertisement.meets(corners, self._sides()) for corners in item)
