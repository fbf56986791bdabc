"""Pictures of trees and orders for pages: boxes and lines, placed by `weft.drawing`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weft.drawing.layout import Spacing, place

Picture = dict[str, Any]  # width, height, at: [x, y] of each box, lines: [from, to, points]


def place_tree(names: Sequence[str], before: Sequence[str], width: float) -> Picture:
    """A tree of equal boxes: `before` has the name of each one's parent, empty for the root. Cost: O(n log n) once."""
    return _tree(tuple(names), tuple(before), width)


@lru_cache(16)
def _tree(names: tuple[str, ...], before: tuple[str, ...], width: float) -> Picture:
    number = {name: index for index, name in enumerate(names)}
    below: list[list[int]] = [[] for _ in names]
    for index, name in enumerate(before):
        parent = number.get(name)
        if parent is not None and parent != index:
            below[parent].append(index)
    return placed([width] * len(names), below, Spacing(row=62.0))


def placed(widths: Sequence[float], below: Sequence[Sequence[int]], spacing: Spacing) -> Picture:
    """Boxes of these widths above those below them."""
    drawing = place(widths, below, spacing)
    return {
        "width": round(drawing.width, 1),
        "height": round(drawing.height, 1),
        "at": [(round(x, 1), round(y, 1)) for x, y in (drawing.at[box] for box in range(len(widths)))],
        "lines": [(a, b, [(round(x, 1), round(y, 1)) for x, y in line]) for (a, b), line in drawing.lines.items()],
    }
