"""Disjoint boxes that tile the space of all events, each free or owned. They always tile it exactly. An owner's tiles
lie in the owner's boxes. There are never more than `most` tiles.

Boxes are rows of labels (`label_axes`). A kernel provides the tree that finds the free tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple, NewType

import numpy as np
from numpy.typing import NDArray

from weft.model.schema import Schema
from weft.routing.negative.cuts import REACH
from weft.routing.negative.kernels import tile_build
from weft.routing.negative.kernels import tiles as kernel
from weft.routing.negative.kernels.tiles import FREE, NO_LIMIT, NONE, SPARE, USED
from weft.routing.negative.space import MOST_AXES, MOST_ROWS, LabelAxes, Labels, TileRows, relabel

Owner = NewType("Owner", int)
Nodes = NDArray[np.int32]
_BAD = 8  # a search that visits more than one in this many tiles is a bad one
MOST_TILES = 1 << 17
_SMALL = 1 << 13  # tiles of a tree that may be balanced at any time


class SplitChoice(IntEnum):
    """What makes a tile worth splitting (section 4, figures 14 and 15)."""

    RATIO = kernel.RATIO  # covered volume per additional tile
    BENEFIT = kernel.BENEFIT  # covered volume
    COST = kernel.COST  # few additional tiles


class SplitOrder(IntEnum):
    """The axis on which a tile is cut first. A split makes equally many pieces in any order, but later splits
    may not.
    """

    GIVEN = kernel.GIVEN  # in the order of the axes
    LEAST_OUTSIDE = kernel.LEAST  # where the smallest part of the tile remains
    MOST_OUTSIDE = kernel.MOST  # where the largest part remains


class Took(NamedTuple):
    """What an owner took of a row: how many more free tiles there are now, and whether it took all that was free."""

    made: int
    whole: bool


class Tiles:
    """The tiles of one space. An owner takes what is free in its boxes, and releases it.

    There are never more than `most` tiles, free and taken: what an owner cannot take stays free. A tree of more than
    8,192 tiles is balanced only when it is coalesced, so that no change takes long. For the other constants see
    `LabelAxes`.
    """

    def __init__(  # noqa: PLR0913 - structural constants
        self,
        schema: Schema | None = None,
        *,
        order: SplitOrder = SplitOrder.MOST_OUTSIDE,
        most: int = MOST_TILES,
        most_axes: int = MOST_AXES,
        most_rows: int = MOST_ROWS,
        reach: int = REACH,
        spare: int = 1024,
        patience: int = 256,
    ) -> None:
        self.axes = LabelAxes(schema, most_axes=most_axes, most_rows=most_rows, reach=reach)
        self.order, self.most = order, most
        self._spare = spare  # unused nodes that trigger a rebuild of the tree
        self._patience = patience  # fruitless visits per tile that trigger a rebuild
        self.looked = 0  # total number of nodes visited
        self._taken: dict[int, int] = {}  # the first tile of each owner, which leads to the others
        self._tree = kernel.empty(64, 0)
        self._build(*self.axes.whole(1), np.full(1, FREE, np.int32))
        self.axes.follow(self._relabel, lambda: self._resize(len(self._tree.low)))

    # -- sizes ------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """The number of free tiles."""
        return int(self._tree.head[kernel.FREE_LEAVES])

    def __len__(self) -> int:
        """The number of tiles."""
        return int(self._tree.head[kernel.LEAVES])

    @property
    def nbytes(self) -> int:
        """The memory of the tree."""
        return sum(array.nbytes for array in self._tree)

    # -- queries ----------------------------------------------------------------------------------

    def are_free(self, lows: Labels, highs: Labels) -> NDArray[np.bool_]:
        """Whether a free tile meets each row. Cost: O(nodes that meet it) per row, few where little is free."""
        out = np.zeros(len(lows), np.bool_)
        self._look(kernel.each_meeting(self._tree, lows, highs, out), len(lows))
        return out

    def meeting(self, low: Labels, high: Labels) -> Nodes:
        """The free tiles that meet the row."""
        out = np.empty(self.free + 1, np.int32)
        found, looked = kernel.meeting(self._tree, low, high, out)
        self._look(looked - found, 1)
        return out[:found].copy()

    def _look(self, nodes: int, searches: int) -> None:
        self.looked += nodes
        self._idle += nodes
        self._searches += searches

    def tiles(self) -> tuple[Labels, Labels, Nodes]:
        """All tiles: low, high, and the owner or FREE. Cost: O(tiles)."""
        nodes = self._leaves()
        return self._tree.low[nodes], self._tree.high[nodes], self._tree.owner[nodes]

    def taken(self, owner: Owner) -> TileRows:
        """The owner's tiles."""
        nodes = self._nodes(owner)
        return self._tree.low[nodes], self._tree.high[nodes]

    def _nodes(self, owner: int) -> Nodes:
        nodes, node = [], self._taken.get(owner, NONE)
        while node != NONE:
            nodes.append(node)
            node = int(self._tree.chain[node])
        return np.array(nodes, np.int32)

    def _leaves(self) -> Nodes:
        out = np.empty(len(self), np.int32)
        kernel.leaves(self._tree, out)
        return out

    # -- changes ----------------------------------------------------------------------------------

    def take(
        self, low: Labels, high: Labels, owner: Owner, most: int = NO_LIMIT, choice: SplitChoice = SplitChoice.RATIO
    ) -> Took:
        """Give the owner what is free in the row, creating at most `most` more free tiles, as far as there is room."""
        tiles = len(self)
        if self._patience * tiles < self._idle > self._searches * tiles // _BAD and tiles <= _SMALL:
            self._build(*self.tiles())  # the searches have cost as much as building a balanced tree
        found = self.meeting(low, high)
        if not found.size:
            return Took(0, True)
        room, needed = max(0, self.most - tiles), found.size * 2 * len(self.axes)
        if needed > room:
            most = min(most, room)  # it must choose
        nodes = int(self._tree.head[USED]) + min(needed, room) + found.size
        if nodes > len(self._tree.low):
            self._resize(nodes * 3 // 2)
        head = self._taken.get(owner, NONE)
        head, made, given = kernel.take(self._tree, found, low, high, owner, head, most, room, choice, self.order)
        if head != NONE:
            self._taken[owner] = int(head)
        return Took(int(made), int(given) == found.size)

    def release(self, owner: Owner) -> None:
        """Free the owner's tiles. Cost: O(depth) per tile."""
        kernel.release(self._tree, self._taken.pop(owner, NONE))
        if len(self) <= _SMALL and self._tree.head[SPARE] > max(self._spare, int(self._tree.head[USED]) // 2):
            self._build(*self.tiles())

    def coalesce(self, budget: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Combine adjacent free tiles that form a box together; returns how many tiles that saved.

        `budget` is the number of tiles that may be examined, counted once per axis; `stop` is called before each axis.
        Afterwards the tree is balanced, which costs O(tiles log^2 tiles) more.
        """
        low, high, owner = self.tiles()
        before, axes = len(owner), len(self.axes)
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
        self._tree, self._idle, self._searches = tree, 0, 0
        nodes = self._leaves()
        nodes = nodes[tree.owner[nodes] != FREE]
        nodes = nodes[np.argsort(tree.owner[nodes], kind="stable")]
        heads = np.empty_like(nodes)
        heads = heads[: kernel.linked(tree, nodes, heads)]
        self._taken = dict(zip(tree.owner[heads].tolist(), heads.tolist(), strict=True))

    def _resize(self, nodes: int) -> None:
        lowest, highest = self.axes.ends(-1) if len(self.axes) else (0, 0)
        self._tree = kernel.resized(self._tree, nodes, len(self.axes), lowest, highest)

    def _relabel(self, axis: int, old: Labels, new: Labels) -> None:
        used = int(self._tree.head[USED])
        for side in (self._tree.low, self._tree.high):
            relabel(side[:used, axis], old, new)

    # ---------------------------------------------------------------------------------------------

    def check(self, boxes: Callable[[Owner], TileRows]) -> None:
        """Raise AssertionError unless tiles are disjoint, cover everything and lie in their owners' boxes.

        Cost: O(tiles^2).
        """
        self.axes.check()
        low, high, owner = self.tiles()
        assert (low < high).all(), "no tile is empty"
        assert len(owner) == len(self) <= self.most, "there are not too many"
        assert int((owner == FREE).sum()) == self.free
        for at in range(len(owner)):
            meets = ((low[at] < high[at + 1 :]) & (high[at] > low[at + 1 :])).all(axis=1)
            assert not meets.any(), "tiles are disjoint"
        lows, highs = self.axes.whole(1)
        assert _volume(low, high) == _volume(lows, highs), "tiles make up everything"
        assert set(owner.tolist()) - {FREE} == {each for each in self._taken if self._nodes(each).size}
        for each in set(owner.tolist()) - {FREE}:
            assert sorted(self._nodes(each)) == sorted(self._leaves()[owner == each]), "an owner's tiles are known"
            theirs, tops = boxes(each)
            mine = owner == each
            inside = np.all((low[mine, None] >= theirs) & (high[mine, None] <= tops), axis=2)
            assert np.any(inside, axis=1).all(), "a tile lies in a box of its owner"


def _merged(low: Labels, high: Labels, owner: Nodes, axis: int) -> tuple[Labels, Labels, Nodes]:
    """Combine free tiles that differ only on one axis and touch there."""
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
    """The volume of boxes, in labels: exact, so that rounding hides nothing."""
    rows: Iterable[list[int]] = (high.astype(object) - low.astype(object)).tolist()
    return sum(math.prod(row) for row in rows)
