"""A covering order as an SVG picture for any browser, created without other programs. It is well-formed whatever the
filters contain. A text that is cut is shown in full in its tooltip.
"""

from __future__ import annotations

import unicodedata
from typing import Any
from xml.sax.saxutils import escape

from weft.drawing.layout import Drawing, Point, Spacing, place
from weft.drawing.order_view import OrderView, label, more, wanted
from weft.order.node import Node

_CHARACTER = 7.0  # width of a character of a filter
_SMALL = 5.6  # and of an interface
_PAD = 9.0
_MARGIN = 18.0
_HEAD = 46.0
_ROOM = Spacing()
_CUT = 68  # characters of a text that are shown

_STYLE = """
  svg { background: #fff; font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; }
  .head { font: 600 15px system-ui, 'DejaVu Sans', sans-serif; fill: #1b2733; }
  .sub { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #66727f; }
  .filter { font-size: 11.5px; fill: #1b2733; }
  .wanted { font-size: 9.2px; fill: #66727f; }
  .more { font: italic 11px system-ui, 'DejaVu Sans', sans-serif; fill: #66727f; }
  rect.node { fill: #fff; stroke: #b6c2cf; }
  rect.root { fill: #e9f2fc; stroke: #4a86c8; stroke-width: 1.4; }
  rect.hidden { fill: #f6f7f9; stroke: #d5dbe1; stroke-dasharray: 3 3; }
  path { fill: none; stroke: #9fb0c2; stroke-width: 1.1; stroke-opacity: 0.8; }
  path.hidden { stroke-dasharray: 3 3; }
"""


def svg(shown: OrderView[Any], title: str = "Covering order", subtitle: str = "") -> str:
    """The view as SVG: a line leads from a filter, on the left, to those that it covers.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Forest
    >>> from weft.drawing.order_view import view
    >>> forest = Forest(FilterRelation())
    >>> change = forest.add(parse("x < 10"), "north")
    >>> "<title>x &lt; 10, wanted by north</title>" in svg(view(forest))
    True
    """
    boxes: list[Node[Any] | None] = list(shown.nodes)  # None: a place for what is hidden
    numbers = {node: at for at, node in enumerate(shown.nodes)}
    below = [[numbers[child] for child in shown.children[node]] for node in shown.nodes]
    notes: dict[int, str] = {}
    for node, hidden in shown.hidden.items():
        notes[len(boxes)] = more(*hidden)
        if node is not shown.top:
            below[numbers[node]].append(len(boxes))
        boxes.append(None)
        below.append([])
    texts = [_clean(label(box)) if box else notes[at] for at, box in enumerate(boxes)]
    interfaces = [_clean(wanted(box)) if box else "" for box in boxes]
    widths = [_width(text, interface) for text, interface in zip(texts, interfaces, strict=True)]
    drawing = place(widths, below, _ROOM) if boxes else Drawing()
    roots = set(shown.children[shown.top])
    parts = [_path(points, "hidden" if boxes[child] is None else "") for (_, child), points in drawing.lines.items()]
    for at, box in enumerate(boxes):
        kind = "hidden" if box is None else "root" if box in roots else "node"
        parts.append(_box(drawing.at[at], widths[at], kind, texts[at], interfaces[at]))
    least = 7.4 * max(len(title) * 1.3, len(subtitle))
    width, height = max(drawing.width, least) + 2 * _MARGIN, drawing.height + _HEAD + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{escape(_clean(title))}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
            f'<text class="head" x="{_MARGIN}" y="{_MARGIN + 12}">{escape(_clean(title))}</text>',
            f'<text class="sub" x="{_MARGIN}" y="{_MARGIN + 31}">{escape(_clean(subtitle))}</text>',
            f'<g transform="translate({_MARGIN} {_MARGIN + _HEAD})">',
            *parts,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _box(at: Point, width: float, kind: str, text: str, interfaces: str) -> str:
    height = _ROOM.row
    x, y = at[0], at[1] - height / 2
    title = f"{text}, wanted by {interfaces}" if interfaces else text
    said = [
        f"<g><title>{escape(title)}</title>",
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>',
    ]
    if kind == "hidden":
        said.append(f'<text class="more" x="{x + _PAD:.1f}" y="{at[1] + 4:.1f}">{escape(text)}</text></g>')
        return "".join(said)
    for sort, what, down in (("filter", _cut(text, _CUT), 15), ("wanted", _cut(interfaces, _CUT), 27)):
        said.append(
            f'<text class="{sort}" x="{x + _PAD:.1f}" y="{y + down:.1f}" xml:space="preserve">{escape(what)}</text>'
        )
    return "".join([*said, "</g>"])


def _path(points: list[Point], kind: str) -> str:
    """A path that is straight along boxes and curved between layers."""
    (x, y), *rest = points
    steps = [f"M{x:.1f} {y:.1f}"]
    for a, b in rest:
        if b == y:
            steps.append(f"H{a:.1f}")
        else:
            steps.append(f"C{(x + a) / 2:.1f} {y:.1f} {(x + a) / 2:.1f} {b:.1f} {a:.1f} {b:.1f}")
        x, y = a, b
    return f'<path{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} d="{"".join(steps)}"/>'


def _width(text: str, interfaces: str) -> float:
    columns = max(_CHARACTER * _columns(_cut(text, _CUT)), _SMALL * _columns(_cut(interfaces, _CUT)))
    return columns + 2 * _PAD


def _cut(text: str, most: int) -> str:
    """At most this many columns of a text."""
    if _columns(text) <= most:
        return text
    kept, room = "", most - 1
    for char in text:
        room -= _columns(char)
        if room < 0:
            break
        kept += char
    return kept + "…"


def _columns(text: str) -> int:
    """The number of columns of a text; wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _clean(text: str) -> str:
    """A text that XML can contain: unprintable characters and line ends are escaped."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
