"""Labels: the cells of a grid as short numbers (DLS 3.2). Laws: different cells have different labels; a label has the
fewest bits that can number the granules of each attribute, whatever their number (errata, DLS 7).

A label is the granule numbers one after another, the first attribute in the highest bits. Where attributes may drop
low bits, so that one label stands for a block of cells, each has one bit more: a mark above the bits that are left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import LabelError
from weft.kernels import labels as kernel
from weft.kernels.arrays import Ints

MOST_BITS = 62  # of a label, all told: so it is a signed number, and never negative


def as_labels(values: ArrayLike) -> Ints:
    """Labels in an array of the one kind that kernels are compiled for. Raises LabelError for what is none."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iu":
        raise LabelError(f"labels are integers, not {found.dtype}")
    labels = np.require(found.ravel(), np.int64, ["C", "W"])
    if labels.size and labels.min() < 0:
        raise LabelError(f"a label is not negative, as {labels.min()} is")
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
            raise IndexError(row)
        return self.labels[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[row] for row in range(len(self)))


@dataclass(frozen=True, slots=True)
class LabelCode:
    """How cells become labels; `granules` is the number of cells of each attribute.

    With `parts`, a box may drop the low bits of an attribute in so many steps, down to none; without, it never does,
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
            raise LabelError(f"every attribute needs a granule at least, and a label an attribute: not {self.granules}")
        if self.parts < 0:
            raise LabelError(f"bits are dropped in one step or more, or not at all (0): not in {self.parts}")
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
        """The bits of a label."""
        return int(self.bits.sum()) + bool(self.parts) * len(self.granules)

    @property
    def ranges(self) -> int:
        """How many cells there are: the number of different labels that drop nothing."""
        return math.prod(self.granules)

    def of_cells(self, cells: ArrayLike, levels: ArrayLike = (), base: int = 0) -> Ints:
        """The label of each cell (a row each), or with levels (rows of dropped bits) one for each level, as columns."""
        rows = np.require(cells, np.int64, ["C", "W"]).reshape(-1, len(self.granules))
        if ((rows < 0) | (rows >= self.granules)).any():
            raise LabelError(f"a cell is out of its {self.granules} granules")
        every = np.require(levels, np.int64, ["C", "W"]).reshape(-1, len(self.granules))
        drops = every if every.size else np.zeros((1, len(self.granules)), np.int64)
        out = np.empty((len(rows), len(drops)), np.int64)
        kernel.of_cells(rows, drops, self.bits, self.places, int(bool(self.parts)), base, out)
        return out if every.size else out.ravel()

    def of_boxes(self, lows: ArrayLike, highs: ArrayLike, room: ArrayLike | None = None, base: int = 0) -> LabelSets:
        """The labels of boxes of cells (inclusive). With `room` a box of more labels drops bits until it has so many.

        Cost: O(labels).
        """
        low, high = (np.require(each, np.int64, ["C", "W"]).reshape(-1, len(self.granules)) for each in (lows, highs))
        if low.shape != high.shape or ((low < 0) | (low > high) | (high >= self.granules)).any():
            raise LabelError(f"a box has no cells, or is out of its {self.granules} granules")
        if room is not None and not self.parts:
            raise LabelError("these labels cannot drop bits: give the code a number of parts")
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
        """How many bits a label drops of each attribute."""
        return tuple(drop for _, drop in self._fields(label))

    def text(self, label: int) -> str:
        """A label as the paper writes it, with a star for each bit dropped.

        >>> code = LabelCode((8, 8), parts=3)
        >>> [code.text(each) for each in code.of_boxes([(2, 0)], [(3, 7)], room=2).labels.tolist()]
        ['010-***', '011-***']
        """
        shown = []
        for (value, drop), bits in zip(self._fields(label), self.bits.tolist(), strict=True):
            shown.append((f"{value:0{bits - drop}b}" if bits > drop else "") + "*" * drop)
        return "-".join(shown)

    def _fields(self, label: int) -> list[tuple[int, int]]:
        """The number that is left of each attribute, and how many bits are dropped."""
        found = []
        for bits, place in zip(self.bits.tolist(), self.places.tolist(), strict=True):
            if not self.parts:
                found.append(((label >> place) & ((1 << bits) - 1), 0))
                continue
            value = (label >> place) & ((2 << bits) - 1)
            if not value:
                raise LabelError(f"{label} has an attribute without a mark: it is no label of this code")
            top = value.bit_length() - 1
            found.append((value - (1 << top), bits - top))
        return found

    def levels(self, labels: Ints) -> Ints:
        """The marks alone of each label: equal for labels that drop the same bits; itself the label of cell 0."""
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
