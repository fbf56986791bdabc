"""The layout of boxes in a hierarchy, from left to right. No two boxes overlap. A box lies to the right of all its
parents. A line crosses a column only between its boxes.

Connected boxes form a block. A block is a tidy tree if each of its boxes has at most one parent, otherwise it is drawn
in layers (Sugiyama), in which a line that passes a layer has its own position. Blocks are arranged in columns so that
the drawing gets a pleasant shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]
Below = Sequence[Sequence[int]]  # the children of each box

_SWEEPS = 12
_SLACK = (1.0, 1.1, 1.25, 1.5)  # relative to columns of equal height


@dataclass(frozen=True, slots=True)
class Spacing:
    """The heights of boxes and lines, and the space between them."""

    row: float = 34.0
    gap: float = 9.0
    thread: float = 7.0  # height of a passing line
    between: float = 44.0  # between layers
    apart: float = 30.0  # between blocks
    shape: float = 1.5  # width to height, where the blocks allow it


@dataclass(slots=True)
class Drawing:
    """The left end and vertical centre of every box; the points of every line, from parent to child."""

    at: dict[int, Point] = field(default_factory=dict)
    lines: dict[tuple[int, int], list[Point]] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0

    def put(self, part: Drawing, x: float, y: float) -> None:
        """Add a part, moved to this position."""
        for box, (left, middle) in part.at.items():
            self.at[box] = left + x, middle + y
        for ends, points in part.lines.items():
            self.lines[ends] = [(a + x, b + y) for a, b in points]
        self.width, self.height = max(self.width, x + part.width), max(self.height, y + part.height)


def place(widths: Sequence[float], below: Below, spacing: Spacing | None = None) -> Drawing:
    """Place boxes of these widths; `below` must not contain a cycle. Cost: O(n log n) for trees."""
    room = spacing or Spacing()
    return _packed([_Block(boxes, widths, below, room).drawing() for boxes in _connected(below)], room)


class _Block:
    """Connected boxes in layers. Items that are not boxes are lines passing a layer."""

    def __init__(self, boxes: list[int], widths: Sequence[float], below: Below, room: Spacing) -> None:
        self.boxes, self.widths, self.room = boxes, widths, room
        self.real = frozenset(boxes)
        self.down: dict[int, list[int]] = {box: list(below[box]) for box in boxes}
        self.up: dict[int, list[int]] = {box: [] for box in boxes}
        for box in boxes:
            for child in below[box]:
                self.up[child].append(box)
        self.is_tree = all(len(parents) <= 1 for parents in self.up.values())
        self.layer: dict[int, int] = {}
        self.y: dict[int, float] = {}

    def drawing(self) -> Drawing:
        """The block, with its corner at the origin."""
        order = self._layered()
        edges = [(box, child) for box in self.boxes for child in self.down[box]]
        ways = {edge: [edge[0], edge[1]] for edge in edges}
        layers: list[list[int]] = [[] for _ in range(1 + max(self.layer.values()))]
        if self.is_tree:
            self._hang(order)
        else:
            ways = self._thread(edges)
        for item in self.layer:
            layers[self.layer[item]].append(item)
        if not self.is_tree:
            self._untangle(layers)
            self._settle(layers)
        return self._drawn(layers, ways)

    def _layered(self) -> list[int]:
        """Assign each box to the layer after its last parent; returns the boxes in topological order."""
        waiting = {box: len(parents) for box, parents in self.up.items()}
        order = [box for box in self.boxes if not waiting[box]]
        self.layer = dict.fromkeys(order, 0)
        for box in order:
            for child in self.down[box]:
                self.layer[child] = max(self.layer.get(child, 0), self.layer[box] + 1)
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(child)
        return order

    def _hang(self, order: list[int]) -> None:
        """A tidy tree: one row per leaf, every other box centred on its children."""
        step = self.room.row + self.room.gap
        row, open_ = 0, [order[0]]
        while open_:
            box = open_.pop()
            if not self.down[box]:
                self.y[box] = row * step
                row += 1
            open_ += reversed(self.down[box])
        for box in reversed(order):
            if self.down[box]:
                self.y[box] = (self.y[self.down[box][0]] + self.y[self.down[box][-1]]) / 2

    def _thread(self, edges: list[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
        """Give the lines that lead to the same box a common item in each layer that they pass; returns the items of
        each line.
        """
        threads: dict[tuple[int, int], int] = {}
        new = 1 + max(self.boxes)
        ways = {}
        for box, child in edges:
            passed = range(self.layer[box] + 1, self.layer[child])
            way = [threads.setdefault((child, layer), new + len(threads)) for layer in passed]
            self.layer.update(zip(way, passed, strict=True))
            ways[box, child] = [box, *way, child]
        self.up, self.down = {item: [] for item in self.layer}, {item: [] for item in self.layer}
        for one, other in dict.fromkeys(pair for way in ways.values() for pair in pairwise(way)):
            self.down[one].append(other)
            self.up[other].append(one)
        return ways

    def _untangle(self, layers: list[list[int]]) -> None:
        """Sort each layer by the positions of its neighbours, alternately downwards and upwards."""
        place = {item: float(at) for layer in layers for at, item in enumerate(layer)}
        for sweep in range(_SWEEPS):
            near = self.down if sweep % 2 else self.up
            for layer in reversed(layers) if sweep % 2 else layers:
                wish = {item: _mean([place[other] for other in near[item]], place[item]) for item in layer}
                layer.sort(key=wish.__getitem__)
                place.update((item, float(at)) for at, item in enumerate(layer))

    def _settle(self, layers: list[list[int]]) -> None:
        """Choose heights as close to those of the neighbours as the order of each layer allows."""
        rests = []
        for layer in layers:
            rest, total = [], 0.0
            for one, other in zip([None, *layer], layer, strict=False):
                total += 0 if one is None else (self._tall(one) + self._tall(other)) / 2
                rest.append(total)
            rests.append(rest)
            self.y.update(zip(layer, rest, strict=True))
        for sweep in range(_SWEEPS):
            for at in reversed(range(len(layers))) if sweep % 2 else range(len(layers)):
                layer, rest = layers[at], rests[at]
                near = self.down if sweep % 2 else self.up
                wish = [_mean([self.y[other] for other in near[item]], self.y[item]) for item in layer]
                moved = _rising([want - least for want, least in zip(wish, rest, strict=True)])
                self.y.update((item, least + by) for item, least, by in zip(layer, rest, moved, strict=True))

    def _tall(self, item: int) -> float:
        return self.room.row + self.room.gap if item in self.real else self.room.thread

    def _drawn(self, layers: list[list[int]], ways: dict[tuple[int, int], list[int]]) -> Drawing:
        drawing = Drawing()
        lefts, rights, x = [], [], 0.0
        for layer in layers:
            lefts.append(x)
            rights.append(x + max((self.widths[item] for item in layer if item in self.real), default=0.0))
            crossing = 0 if self.is_tree else sum(len(self.down[item]) for item in layer)
            x = rights[-1] + self.room.between * min(1 + crossing / 40, 4)  # space to tell many lines apart
        top = min(self.y[item] for item in self.layer) - self.room.row / 2
        for box in self.boxes:
            drawing.at[box] = lefts[self.layer[box]], self.y[box] - top
        for (box, child), way in ways.items():
            points = [(lefts[self.layer[box]] + self.widths[box], self.y[box] - top)]
            points.append((rights[self.layer[box]], self.y[box] - top))
            for item in way[1:-1]:
                points += [(side[self.layer[item]], self.y[item] - top) for side in (lefts, rights)]
            points.append((lefts[self.layer[child]], self.y[child] - top))
            drawing.lines[box, child] = points
        drawing.width = rights[-1]
        drawing.height = max(self.y.values()) - top + self.room.row / 2
        return drawing


def _connected(below: Below) -> list[list[int]]:
    """The connected components, in order of their first boxes."""
    near: list[list[int]] = [list(children) for children in below]
    for box, children in enumerate(below):
        for child in children:
            near[child].append(box)
    seen: set[int] = set()
    blocks = []
    for start in range(len(below)):
        if start in seen:
            continue
        seen.add(start)
        block = [start]
        for box in block:
            fresh = [other for other in dict.fromkeys(near[box]) if other not in seen]
            seen.update(fresh)
            block += fresh
        blocks.append(sorted(block))
    return blocks


def _packed(parts: list[Drawing], room: Spacing) -> Drawing:
    """Arrange the parts in the number of columns that shows them largest on a page of the desired shape."""
    total = sum(part.height + room.gap for part in parts)
    tallest = max((part.height for part in parts), default=0.0)
    limits = {
        max(total / columns * slack, tallest) for columns in range(1, min(len(parts), 40) + 1) for slack in _SLACK
    }
    tried = (_in_columns(parts, limit, room) for limit in sorted(limits))
    return min(tried, key=lambda each: max(each.width / room.shape, each.height), default=Drawing())


def _in_columns(parts: list[Drawing], limit: float, room: Spacing) -> Drawing:
    drawing = Drawing()
    x = y = right = 0.0
    for part in parts:
        if y and y + part.height > limit:
            x, y = right + room.apart, 0.0
        drawing.put(part, x, y)
        right = max(right, x + part.width)
        y += part.height + room.gap
    return drawing


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _rising(wishes: list[float]) -> list[float]:
    """The non-decreasing numbers closest to the wishes, by least squares (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for wish in wishes:
        value, size = wish, 1
        while pools and pools[-1][0] > value:
            above, many = pools.pop()
            value, size = (above * many + value * size) / (many + size), many + size
        pools.append((value, size))
    return [value for value, size in pools for _ in range(size)]
