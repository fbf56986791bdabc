"""A covering order for people: as lines of text, and for Graphviz. A node is drawn once, whatever is above it. Nothing
is left out without being counted. The text of a filter is preserved.

`picture` draws the same view as SVG.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

from weft.algebra.box import Box, NormalForm
from weft.algebra.to_filter import to_filter
from weft.order.node import Node
from weft.order.structure import Structure

T = TypeVar("T")

_NAMED = 4  # interfaces named in a label


@dataclass(frozen=True, slots=True)
class OrderView(Generic[T]):
    """The visible part of a structure: nodes from the widest to the narrowest, each with its visible children."""

    nodes: list[Node[T]]
    children: dict[Node[T], list[Node[T]]]  # the children of the imaginary root are the roots
    hidden: dict[Node[T], tuple[int, int]]  # how many children of a node are hidden, and how many nodes in all
    top: Node[T]
    total: int


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A line of a drawing. `filter` is empty where the line only states how many more there are."""

    guide: str
    filter: str
    wanted: str = ""
    note: str = ""

    def __str__(self) -> str:
        if not self.filter:
            return f"{self.guide}... {self.note}"
        said = (self.filter, self.wanted and f"[{self.wanted}]", self.note and f"({self.note})")
        return self.guide + "  ".join(filter(None, said))


def view(structure: Structure[T], first: int | None = None, depth: int | None = None) -> OrderView[T]:
    """The whole structure, the nodes with the most below them, or a number of levels. Cost: O(n log n)."""
    chosen: dict[Node[T], None] = {}
    children: dict[Node[T], list[Node[T]]] = {}
    order = count()
    open_: list[tuple[int, int, int, Node[T]]] = []

    def offer(node: Node[T], level: int) -> None:
        if depth is None or level <= depth:
            for child in node.children:
                heappush(open_, (-_importance(child), next(order), level, child))

    offer(structure.top, 1)
    while open_ and (first is None or len(chosen) < first):
        _, _, level, node = heappop(open_)
        if node not in chosen:
            chosen[node] = None
            offer(node, level + 1)
    hidden = {}
    for node in (structure.top, *chosen):
        children[node] = sorted(
            (child for child in node.children if child in chosen), key=lambda each: -_importance(each)
        )
        left = [child for child in node.children if child not in chosen]
        if left:
            hidden[node] = len(left), sum(child.size for child in left)
    return OrderView(list(chosen), children, hidden, structure.top, len(structure))


def tree(shown: OrderView[Any], ascii_only: bool = False) -> Iterator[TreeLine]:
    """The view as lines, with children indented below the filter that covers them. In a poset, a filter that was
    already shown below another one is only named again.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Poset
    >>> poset = Poset(FilterRelation())
    >>> for client, text in enumerate(("x < 10", "x > 0", "x BETWEEN 2 AND 3", "x = 2"), 1):
    ...     change = poset.add(parse(text), client)
    >>> print(*tree(view(poset)), sep="\\n")
    x < 10  [1]
    └─ x BETWEEN 2 AND 3  [3]
       └─ x = 2  [4]
    x > 0  [2]
    └─ x BETWEEN 2 AND 3  [3]  (as above)
    """
    fork, last, bar, gap = ("|- ", "`- ", "|  ", "   ") if ascii_only else ("├─ ", "└─ ", "│  ", "   ")
    seen: set[Node[Any]] = set()
    # the guide of its line, the guide of the lines below, and the content
    open_: list[tuple[str, str, Node[Any] | TreeLine]] = []

    def push(node: Node[Any], guide: str) -> None:
        inside: list[Node[Any] | TreeLine] = list(shown.children[node])
        if node in shown.hidden:
            inside.append(TreeLine("", "", note=more(*shown.hidden[node])))
        for at, each in reversed(list(enumerate(inside, 1))):
            if node is shown.top:
                open_.append(("", "", each))
            elif at == len(inside):
                open_.append((guide + last, guide + gap, each))
            else:
                open_.append((guide + fork, guide + bar, each))

    push(shown.top, "")
    while open_:
        guide, below, node = open_.pop()
        if isinstance(node, TreeLine):
            yield TreeLine(guide, "", note=node.note)
            continue
        again = node in seen
        seen.add(node)
        yield TreeLine(guide, label(node), wanted(node), "as above" if again else "")
        if not again:
            push(node, below)


def dot(shown: OrderView[Any]) -> str:
    """The view in the DOT language of Graphviz: an edge leads from a filter to those that it covers.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Forest
    >>> forest = Forest(FilterRelation())
    >>> change = forest.add(parse("place LIKE '%\\"A\\"'"), "north")
    >>> print(dot(view(forest)).splitlines()[4])
      n0 [label="place LIKE '%\\"A\\"'\\nnorth"];
    """
    numbers = {node: at for at, node in enumerate(shown.nodes)}
    lines = [
        'digraph "order" {',
        "  rankdir=LR;",
        '  node [shape=box, style=rounded, fontname="monospace", fontsize=10];',
        "  edge [arrowsize=0.6, color=gray50];",
    ]
    for node, number in numbers.items():
        lines.append(f'  n{number} [label="{_escaped(label(node))}\\n{_escaped(wanted(node))}"];')
    for node, number in numbers.items():
        lines += [f"  n{number} -> n{numbers[child]};" for child in shown.children[node]]
    for node, hidden in shown.hidden.items():
        at = "roots" if node is shown.top else f"n{numbers[node]}"
        lines.append(f'  more_{at} [shape=plaintext, label="{_escaped(more(*hidden))}"];')
        if node is not shown.top:
            lines.append(f"  {at} -> more_{at} [style=dashed, arrowhead=none];")
    return "\n".join([*lines, "}", ""])


def label(node: Node[Any]) -> str:
    """The filter as text."""
    thing = node.thing
    return str(to_filter(thing) if isinstance(thing, NormalForm | Box) else thing)


def wanted(node: Node[Any], named: int = _NAMED) -> str:
    """The interfaces that want a node; if there are many, the first few and their number."""
    names = sorted(map(str, node.interfaces), key=lambda name: (len(name), name))
    if len(names) <= named + 1:
        return ", ".join(names)
    return f"{', '.join(names[:named])} and {len(names) - named:,} more"


def more(children: int, in_all: int) -> str:
    """How many more there are, as text."""
    return f"{children:,} more" if in_all == children else f"{children:,} more, {in_all:,} with those below"


def _importance(node: Node[Any]) -> int:
    """The number of nodes below. A poset does not store it, so its children are counted."""
    return max(node.size, 1 + len(node.children))


def _escaped(text: str) -> str:
    """A text as the content of a quoted Graphviz string."""
    shown = "".join(char if char.isprintable() or char == "\n" else f"\\u{ord(char):04x}" for char in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
