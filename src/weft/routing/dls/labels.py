"""Labels: the cells of a grid as short numbers (DLS 3.2). Different cells have different labels. A label has the fewest
bits that can number the granules of each attribute, whatever their number (errata, DLS 7).

A label is the sequence of granule numbers, with the first attribute in the highest bits. Where attributes may drop low
bits, so that one label stands for a block of cells, each has one more bit: a mark above the remaining bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import LabelError
from weft.kernels.arrays import Ints
from weft.routing.dls.kernels import labels as kernel

MOST_BITS = 62  # of a whole label, so that it is a signed number and never negative


def as_labels(values: ArrayLike) -> Ints:
    """Labels as an array of the type that kernels are compiled for. Raises LabelError for invalid labels."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iu":
        raise LabelError(f"labels are {found.dtype}; give integers")
    labels = np.require(found.ravel(), np.int64, ["C", "W"])
    if labels.size and labels.min() < 0:
        raise LabelError(f"the label {labels.min()} is negative; give labels of 0 or more")
    return labels


@dataclass(frozen=True, slots=True, eq=False)
class LabelSets:
    """The labels of many subscriptions: row i is labels[offsets[i] : offsets[i + 1]], ascending, each once."""

    offsets: Ints
    labels: Ints

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: int) -> Ints:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is out of range; there are {len(self)} rows")
        return self.labels[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[row] for row in range(len(self)))


@dataclass(frozen=True, slots=True)
class LabelCode:
    """How cells become labels; `granules` is the number of cells of each attribute.

    With `parts`, a box may drop the low bits of an attribute in that many steps, down to none. Without, it never does,
    and labels are those of the paper.

    >>> code = LabelCode((5, 5))
    >>> code.ranges, code.size, [code.text(label) for label in code.of_cells([(3, 3), (4, 0)]).tolist()]
    (25, 6, ['011-011', '100-000'])
    """

    granules: tuple[int, ...]
    parts: int = 0
    bits: Ints = field(init=False, compare=False, repr=False)
    places: Ints = field(init=False, compare=False, repr=False)
    steps: Ints = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "granules", tuple(self.granules))
        if not self.granules or min(self.granules) < 1:
            raise LabelError(
                f"the granules {self.granules} make no labels; give at least 1 for each of 1 or more attributes"
            )
        if self.parts < 0:
            raise LabelError(
                f"parts is {self.parts}; give the number of steps in which bits are dropped, or 0 for none"
            )
        bits = np.array([(count - 1).bit_length() for count in self.granules], np.int64)
        widths = bits + bool(self.parts)
        if widths.sum() > MOST_BITS:
            raise LabelError(
                f"the granules of {len(bits)} attributes make labels of {widths.sum()} bits, and {MOST_BITS} is the "
                "limit; use fewer granules, or only the attributes that matter"
            )
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "places", widths[::-1].cumsum()[::-1] - widths)
        object.__setattr__(self, "steps", np.maximum(-(-bits // max(self.parts, 1)), 1))

    @property
    def size(self) -> int:
        """The number of bits of a label."""
        return int(self.bits.sum()) + bool(self.parts) * len(self.granules)

    @property
    def ranges(self) -> int:
        """The number of cells: the number of different labels that drop nothing."""
        return math.prod(self.granules)

    def of_cells(self, cells: ArrayLike, levels: ArrayLike = (), base: int = 0) -> Ints:
        """The label of each cell (one per row), or with levels (rows of dropped bits) one column per level."""
        rows = np.require(cells, np.int64, ["C", "W"]).reshape(-1, len(self.granules))
        if ((rows < 0) | (rows >= self.granules)).any():
            raise LabelError(f"a cell is outside its {self.granules} granules; give cells of this grid")
        every = np.require(levels, np.int64, ["C", "W"]).reshape(-1, len(self.granules))
        drops = every if every.size else np.zeros((1, len(self.granules)), np.int64)
        out = np.empty((len(rows), len(drops)), np.int64)
        kernel.of_cells(rows, drops, self.bits, self.places, int(bool(self.parts)), base, out)
        return out if every.size else out.ravel()

    def of_boxes(self, lows: ArrayLike, highs: ArrayLike, room: ArrayLike | None = None, base: int = 0) -> LabelSets:
        """The labels of boxes of cells (inclusive). With `room`, a box with more labels drops bits until it has that
        many.

        Cost: O(labels).
        """
        low, high = (np.require(each, np.int64, ["C", "W"]).reshape(-1, len(self.granules)) for each in (lows, highs))
        if low.shape != high.shape or ((low < 0) | (low > high) | (high >= self.granules)).any():
            raise LabelError(f"a box has no cells, or is outside its {self.granules} granules; give boxes of this grid")
        if room is not None and not self.parts:
            raise LabelError("these labels cannot drop bits; create the code with parts")
        most = np.broadcast_to(np.int64(1 << MOST_BITS) if room is None else np.asarray(room, np.int64), len(low))
        drops, counts = np.empty(low.shape, np.int64), np.empty(len(low), np.int64)
        granules = np.array(self.granules, np.int64)
        kernel.choose(low, high, self.bits, granules, self.steps, most.copy(), drops, counts)
        offsets = np.append(0, np.cumsum(counts))
        out = np.empty(offsets[-1], np.int64)
        kernel.of_boxes(low, high, drops, self.bits, self.places, int(bool(self.parts)), base, offsets, out)
        return LabelSets(offsets, out)

    def cells(self, label: int) -> tuple[tuple[int, int], ...]:
        """The first and last cell of a label in each dimension."""
        found = []
        for (value, drop), granules in zip(self._fields(label), self.granules, strict=True):
            found.append((value << drop, min(((value + 1) << drop), granules) - 1))
        return tuple(found)

    def drops(self, label: int) -> tuple[int, ...]:
        """How many bits of each attribute a label drops."""
        return tuple(drop for _, drop in self._fields(label))

    def drops_of(self, levels: Ints) -> Ints:
        """`drops` of many levels, one row each. A level is the label of cell 0, which has only marks.

        Cost: O(levels x attributes).
        """
        if not self.parts:
            return np.zeros((len(levels), len(self.granules)), np.int64)
        marks = (levels[:, None] >> self.places) & ((2 << self.bits) - 1)
        if not marks.all():
            raise LabelError("a level is not of this code: an attribute has no mark; use levels of this space")
        drops: Ints = self.bits - (np.frexp(marks.astype(np.float64))[1] - 1)
        return drops

    def text(self, label: int) -> str:
        """A label as the paper writes it, with a star for each dropped bit.

        >>> code = LabelCode((8, 8), parts=3)
        >>> [code.text(each) for each in code.of_boxes([(2, 0)], [(3, 7)], room=2).labels.tolist()]
        ['010-***', '011-***']
        """
        shown = []
        for (value, drop), bits in zip(self._fields(label), self.bits.tolist(), strict=True):
            shown.append((f"{value:0{bits - drop}b}" if bits > drop else "") + "*" * drop)
        return "-".join(shown)

    def _fields(self, label: int) -> list[tuple[int, int]]:
        """The remaining number of each attribute, and how many of its bits are dropped."""
        found = []
        for bits, place in zip(self.bits.tolist(), self.places.tolist(), strict=True):
            if not self.parts:
                found.append(((label >> place) & ((1 << bits) - 1), 0))
                continue
            value = (label >> place) & ((2 << bits) - 1)
            if not value:
                raise LabelError(
                    f"{label} is not a label of this code: an attribute has no mark; use labels of this space"
                )
            top = value.bit_length() - 1
            found.append((value - (1 << top), bits - top))
        return found

    def levels(self, labels: Ints) -> Ints:
        """Only the marks of each label: equal for labels that drop the same bits. This is itself the label of
        cell 0.
        """
        out = np.empty(labels.size, np.int64)
        kernel.levels(labels, self.bits, self.places, out)
        return out

    def sound(self, labels: Ints) -> NDArray[np.bool_]:
        """Whether each is a label of this code, with marks."""
        out = np.empty(labels.size, np.bool_)
        granules = np.array(self.granules, np.int64)
        kernel.sound(labels, self.bits, self.places, granules, self.steps, out)
        out[labels >> self.size != 0] = False
        return out
