"""Disjoint boxes that tile the space of all events, each free or taken by an owner. Laws: they tile it exactly, always;
an owner's tiles lie in the owner's boxes.

An attribute becomes an axis when a box first restricts it; on the others a box is everything, absence included. Boxes
are rows of labels (`cuts`); the tree that finds the free tiles is a kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import product
from typing import Any, NewType

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.interest.cuts import REACH, CutLine, Interval
from weft.kernels import tile_build
from weft.kernels import tiles as kernel
from weft.kernels.tiles import FREE, NO_LIMIT, SPARE, USED
from weft.model.schema import Schema

Owner = NewType("Owner", int)
Nodes = NDArray[np.int32]
Labels = NDArray[np.int64]
Rows = tuple[Labels, Labels]  # boxes: low and high, int64[boxes, axes]


class Choice(IntEnum):
    """What makes a tile worth splitting (section 4, figures 14 and 15)."""

    RATIO = kernel.RATIO  # the volume that is covered, for each tile more
    BENEFIT = kernel.BENEFIT  # the volume that is covered
    COST = kernel.COST  # few tiles more


class SplitOrder(IntEnum):
    """Which axis a tile is cut on first. A split makes equally many pieces in any order; later ones do not."""

    GIVEN = kernel.GIVEN  # as the axes came
    LEAST_OUTSIDE = kernel.LEAST  # on which the least part of the tile remains
    MOST_OUTSIDE = kernel.MOST  # on which the most remains


class Tiles:
    """The tiles of one space; an owner takes what is free in its boxes, and gives it back.

    A box that restricts more than `most_axes` attributes in all, that is more than `most_rows` products of intervals,
    or that has patterns or residuals, is none here: see `rows`.
    """

    def __init__(  # noqa: PLR0913 - structural constants
        self,
        schema: Schema | None = None,
        *,
        order: SplitOrder = SplitOrder.MOST_OUTSIDE,
        most_axes: int = 32,
        most_rows: int = 256,
        reach: int = REACH,
        spare: int = 1024,
        patience: int = 256,
    ) -> None:
        self.schema = schema
        self.axes: dict[str, CutLine] = {}
        self.order = order
        self._most_axes, self._most_rows, self._reach = most_axes, most_rows, reach
        self._spare = spare  # nodes that may lie idle before the tree is built anew
        self._patience = patience  # how many nodes may be looked at in vain, for each tile, before it is
        self._relabelled: list[Callable[[int, Labels, Labels], None]] = []
        self._widened: list[Callable[[], None]] = []
        self._lines: list[CutLine] = []
        self._lowest, self._highest = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64)
        self._taken: dict[int, list[Nodes]] = {}  # by owner
        self._tree = kernel.empty(64, 0)
        self._build(*self.whole(1), np.full(1, FREE, np.int32))

    # -- sizes ------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """How many tiles are free."""
        return int(self._tree.head[kernel.FREE_LEAVES])

    def __len__(self) -> int:
        """How many tiles there are."""
        return int(self._tree.head[kernel.LEAVES])

    @property
    def nbytes(self) -> int:
        """The memory of the tree."""
        return sum(array.nbytes for array in self._tree)

    # -- boxes as rows of labels ------------------------------------------------------------------

    def spans(self, box: Box, *, widen: bool = True) -> list[dict[str, Interval]] | None:
        """The box as products of intervals, disjoint; None if it has patterns or residuals, or is too many.

        New attributes become axes; unless they may `widen` the space, they are left out: no tile is restricted there.
        """
        if box.residuals:
            return None
        sides: dict[str, list[Interval]] = {}
        for name, values in box.sets.items():
            if name not in self.axes and (values.strings.terms or len(self.axes) >= self._most_axes):
                return None
            if name not in self.axes and not widen:
                continue
            found = self._line(name).intervals(values)
            if found is None:
                return None
            sides[name] = found
        if math.prod(map(len, sides.values())) > self._most_rows:
            return None
        return [dict(zip(sides, each, strict=True)) for each in product(*sides.values())]

    def _line(self, name: str) -> CutLine:
        line = self.axes.get(name)
        if line is None:
            declared = None if self.schema is None else self.schema.get(name)
            line = self.axes[name] = CutLine(declared, self._reach)
            self._lines.append(line)
            self._lowest = np.array([[each.lowest for each in self._lines]], np.int64)
            self._highest = np.array([[each.highest for each in self._lines]], np.int64)
            self._resize(len(self._tree.low))
            for tell in self._widened:
                tell()
        return line

    def rows(self, spans: Sequence[dict[str, Interval]]) -> Rows:
        """Products of intervals as rows of labels. Cost: O(axes log cuts) a row."""
        while True:
            low, high = self.whole(len(spans))
            if all(self._write(low[row], high[row], each) for row, each in enumerate(spans)):
                return low, high

    def _write(self, low: Labels, high: Labels, spans: dict[str, Interval]) -> bool:
        """Write the labels of one product; False if some were spread anew meanwhile, so that none before holds."""
        for axis, (name, line) in enumerate(self.axes.items()):
            ends = spans.get(name)
            if ends is None:
                continue
            for cut, side in zip(ends, (low, high), strict=True):
                label = line.label(cut)
                if label is None:
                    self._spread(axis)
                    return False
                side[axis] = label
        return True

    def whole(self, size: int) -> Rows:
        """Rows that are everything."""
        return self._lowest.repeat(size, axis=0), self._highest.repeat(size, axis=0)

    def box(self, low: Labels, high: Labels) -> Box:
        """The box of a row."""
        sets = {}
        for axis, (name, line) in enumerate(self.axes.items()):
            if low[axis] > line.lowest or high[axis] < line.highest:
                sets[name] = line.values(line.cut(int(low[axis])), line.cut(int(high[axis])))
        return Box(sets)

    def follow(self, relabelled: Callable[[int, Labels, Labels], None], widened: Callable[[], None]) -> None:
        """Be told of an axis whose old labels are now others, and of a new axis."""
        self._relabelled.append(relabelled)
        self._widened.append(widened)

    def _spread(self, axis: int) -> None:
        old, new = self._lines[axis].spread()
        used = int(self._tree.head[USED])
        for side in (self._tree.low, self._tree.high):
            side[:used, axis] = new[np.searchsorted(old, side[:used, axis])]
        for tell in self._relabelled:
            tell(axis, old, new)

    # -- questions --------------------------------------------------------------------------------

    def are_free(self, lows: Labels, highs: Labels) -> NDArray[np.bool_]:
        """Whether a free tile meets each row. Cost: O(nodes that meet it) a row, a few where little is free."""
        out = np.zeros(len(lows), np.bool_)
        self._looked += kernel.each_meeting(self._tree, lows, highs, out)
        return out

    def meeting(self, low: Labels, high: Labels) -> Nodes:
        """The free tiles that meet the row."""
        room = 256
        while True:
            out = np.empty(room, np.int32)
            found, looked = kernel.meeting(self._tree, low, high, out)
            self._looked += looked - found
            if found < room:
                return out[:found]
            room *= 8

    def tiles(self) -> tuple[Labels, Labels, Nodes]:
        """All tiles: low, high, and the owner or FREE. Cost: O(tiles)."""
        nodes = self._leaves()
        return self._tree.low[nodes], self._tree.high[nodes], self._tree.owner[nodes]

    def taken(self, owner: Owner) -> Rows:
        """The owner's tiles."""
        nodes = self._nodes(owner)
        return self._tree.low[nodes], self._tree.high[nodes]

    def _nodes(self, owner: int) -> Nodes:
        return np.concatenate([np.empty(0, np.int32), *self._taken.get(owner, ())])

    def _leaves(self) -> Nodes:
        out = np.empty(len(self), np.int32)
        kernel.leaves(self._tree, out)
        return out

    # -- changes ----------------------------------------------------------------------------------

    def take(self, low: Labels, high: Labels, owner: Owner, most: int = NO_LIMIT, choice: Choice = Choice.RATIO) -> int:
        """Give the owner what is free in the row, making at most `most` free tiles more; how many it made."""
        if self._looked > self._patience * len(self):
            self._build(*self.tiles())  # the searches have cost as much as a balanced tree does
        found = self.meeting(low, high)
        if not found.size:
            return 0
        room = int(self._tree.head[USED]) + found.size * (2 * len(self._lines) + 1)
        if room > len(self._tree.low):
            self._resize(room * 3 // 2)
        taken = np.empty_like(found)
        given, made = kernel.take(self._tree, found, low, high, owner, most, choice, self.order, taken)
        self._taken.setdefault(owner, []).append(taken[:given])
        return int(made)

    def release(self, owner: Owner) -> None:
        """Make the owner's tiles free. Cost: O(depth) a tile."""
        kernel.release(self._tree, self._nodes(owner))
        self._taken.pop(owner, None)
        if self._tree.head[SPARE] > max(self._spare, int(self._tree.head[USED]) // 2):
            self._build(*self.tiles())

    def coalesce(self, budget: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Make one of adjacent free tiles that are a box together; how many it saved.

        `budget` is how many tiles may be looked at, counting each once an axis; `stop` is asked before each axis.
        Afterwards the tree is balanced: O(tiles log^2 tiles) more.
        """
        low, high, owner = self.tiles()
        before, axes = len(owner), len(self._lines)
        axis = idle = 0
        while idle < axes and len(owner) <= budget and not stop():
            budget -= len(owner)
            size = len(owner)
            low, high, owner = _merged(low, high, owner, axis)
            idle = idle + 1 if len(owner) == size else 0
            axis = (axis + 1) % axes
        self._build(low, high, owner)
        return before - len(owner)

    def _build(self, low: Labels, high: Labels, owner: Nodes) -> None:
        tree = kernel.empty(max(64, 3 * len(owner)), low.shape[1])
        tile_build.build(tree, low, high, owner, np.arange(len(owner)))
        self._tree, self._looked = tree, 0
        nodes = self._leaves()
        nodes = nodes[np.argsort(tree.owner[nodes], kind="stable")]
        owners, starts = np.unique(tree.owner[nodes], return_index=True)
        self._taken = {
            each: [some]
            for each, some in zip(owners.tolist(), np.split(nodes, starts[1:]), strict=True)
            if each != FREE
        }

    def _resize(self, nodes: int) -> None:
        last = self._lines[-1] if self._lines else None
        lowest, highest = (0, 0) if last is None else (last.lowest, last.highest)
        self._tree = kernel.resized(self._tree, nodes, len(self._lines), lowest, highest)

    # ---------------------------------------------------------------------------------------------

    def check(self, boxes: Callable[[Owner], Rows]) -> None:
        """Raise AssertionError unless tiles are disjoint, make up everything and lie in their owners' boxes.

        Cost: O(tiles^2).
        """
        for line in self._lines:
            line.check()
        low, high, owner = self.tiles()
        assert (low < high).all(), "no tile is empty"
        assert len(owner) == len(self)
        assert int((owner == FREE).sum()) == self.free
        for at in range(len(owner)):
            meets = ((low[at] < high[at + 1 :]) & (high[at] > low[at + 1 :])).all(axis=1)
            assert not meets.any(), "tiles are disjoint"
        lows, highs = self.whole(1)
        assert _volume(low, high) == _volume(lows, highs), "tiles make up everything"
        assert set(owner.tolist()) - {FREE} == {each for each in self._taken if self._nodes(each).size}
        for each in set(owner.tolist()) - {FREE}:
            assert sorted(self._nodes(each)) == sorted(self._leaves()[owner == each]), "an owner's tiles are known"
            theirs, tops = boxes(each)
            mine = owner == each
            inside = np.all((low[mine, None] >= theirs) & (high[mine, None] <= tops), axis=2)
            assert np.any(inside, axis=1).all(), "a tile lies in a box of its owner"


def _merged(low: Labels, high: Labels, owner: Nodes, axis: int) -> tuple[Labels, Labels, Nodes]:
    """Tiles with those free ones made one that are alike but on one axis, and touch there."""
    others = [each for each in range(low.shape[1]) if each != axis]
    keys: list[NDArray[Any]] = [low[:, axis], *(side[:, each] for each in others for side in (low, high)), owner]
    order = np.lexsort(keys)
    low, high, owner = low[order], high[order], owner[order]
    joins = (owner[1:] == FREE) & (owner[:-1] == FREE) & (low[1:, axis] == high[:-1, axis])
    for each in others:
        joins &= (low[1:, each] == low[:-1, each]) & (high[1:, each] == high[:-1, each])
    first = np.flatnonzero(np.append(True, ~joins))
    last = np.append(first[1:], len(owner)) - 1
    tops = high[first]
    tops[:, axis] = high[last, axis]
    return low[first], tops, owner[first]


def _volume(low: Labels, high: Labels) -> int:
    """The volume of boxes, in labels: exactly, so that nothing can hide in rounding."""
    rows: Iterable[list[int]] = (high.astype(object) - low.astype(object)).tolist()
    return sum(math.prod(row) for row in rows)
