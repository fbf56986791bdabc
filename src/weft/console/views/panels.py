"""Orders as pictures: boxes and lines, placed by `weft.drawing`, in full or so small that hundreds fit in a panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.console.drawings import placed
from weft.drawing.layout import Spacing
from weft.drawing.order_view import label, more, view, wanted
from weft.order.node import Node
from weft.order.structure import Structure

FULL = Spacing(row=38.0)
SMALL = Spacing(row=16.0, gap=3.0, thread=3.0, between=18.0, apart=12.0, shape=1.6)
_FEW = 10  # nodes up to which a panel is drawn in full
_NAMED = 6  # numbers of a node that are listed
_CUT = 46  # characters of a filter that are drawn

NodeNumbers = Mapping[Node[Any], list[int]]


def panel(
    structure: Structure[Any], numbers: NodeNumbers, first: int, *, full: bool = False, mark: str = ""
) -> dict[str, Any]:
    """A structure as nodes and a picture. Boxes have whole filters if there are few of them, otherwise numbers."""
    seen = view(structure, first)
    at = {node: index for index, node in enumerate(seen.nodes)}
    below = [[at[child] for child in seen.children[node]] for node in seen.nodes]
    roots = set(seen.children[seen.top])
    full = full or len(seen.nodes) <= _FEW
    nodes: list[dict[str, Any]] = []
    for node in seen.nodes:
        mine = numbers.get(node, [])
        short = f"{mark}{mine[0]}" if mine else "·"
        text = label(node)
        hidden = more(*seen.hidden[node]) if node in seen.hidden else ""
        wide = max(7.6 * min(len(text), _CUT) + 18, 60.0) if full else 7.6 * len(short) + 12.5
        names = ", ".join(f"{mark or '#'}{each}" for each in mine[:_NAMED])
        lines = [part for part in (f"{names}, {wanted(node)}", hidden) if part]
        nodes.append(
            {
                "text": text,
                "short": short,
                "lines": lines[:1] if full else lines,
                "w": round(wide, 1),
                "kind": "root" if node in roots else "",
                "numbers": mine,
            }
        )
    return {
        "nodes": nodes,
        "picture": placed([each["w"] for each in nodes], below, FULL if full else SMALL),
        "row": (FULL if full else SMALL).row,
        "full": full,
        "total": seen.total,
        "hidden": seen.total - len(nodes),
        "depth": structure.depth,
        "roots": sum(1 for _ in structure.roots),
        "edges": sum(len(node.parents) for node in structure if structure.top not in node.parents),
        "comparisons": structure.relation.comparisons,
    }
