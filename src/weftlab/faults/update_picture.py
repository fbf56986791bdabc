"""A picture of the messages between brokers, in SVG. Time runs downwards, one row for each message. A text that is cut
is shown in full in its tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from weftlab.faults.shape import Shape
from weftlab.faults.trace import InterestUpdate

_LEFT = 96.0  # room for times
_COLUMN = 210.0  # between two brokers
_ROW = 30.0
_HEAD = 96.0
_CHARACTER = 6.2  # width of one in a label
_ROWS = 500  # at most

_STYLE = """
  text { font: 10.5px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1b2733; }
  .head { font: 600 15px system-ui, 'DejaVu Sans', sans-serif; }
  .sub { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #66727f; }
  .name { font: 600 13px system-ui, 'DejaVu Sans', sans-serif; text-anchor: middle; }
  .time { fill: #66727f; text-anchor: end; }
  .label { text-anchor: middle; }
  rect.broker { fill: #e9f2fc; stroke: #4a86c8; }
  line.life { stroke: #c9d3dd; stroke-width: 1.2; }
  line.add { stroke: #2f6fb3; stroke-width: 1.5; }
  line.drop { stroke: #b3562f; stroke-width: 1.5; stroke-dasharray: 5 3; }
  line.done { stroke: #8a97a5; stroke-width: 1.1; stroke-dasharray: 2 3; }
"""
_COLOURS = {"add": "#2f6fb3", "drop": "#b3562f", "done": "#8a97a5"}
_HEAD_OF_ARROW = (
    '<marker id="{}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="{}"/></marker>'
)


def update_picture(shape: Shape, updates: Sequence[InterestUpdate], title: str) -> str:
    """A line for each broker, neighbours side by side where the tree allows, and an arrow for each update.

    >>> from weft.routing.table import Role
    >>> two = Shape((0,), (Role.PEER,))
    >>> "x &lt; 4" in update_picture(two, [InterestUpdate(1500, "b1", "b2", "+1 x < 4")], "seed 1")
    True
    """
    order = _order(shape)
    x = {name: _LEFT + _COLUMN / 2 + _COLUMN * at for at, name in enumerate(order)}
    shown = updates[:_ROWS]
    width = _LEFT + _COLUMN * len(order)
    height = _HEAD + _ROW * (len(shown) + 2)
    sub = f"{shape.model}{' with advertisements' if shape.advertised else ''}, {shape.brokers} brokers"
    sub += f"; {len(updates)} updates" + (f", the first {len(shown)} of them" if len(shown) < len(updates) else "")
    sub += "; + is sent, - is withdrawn by its number, dotted: everything has been sent"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>" + "".join(_HEAD_OF_ARROW.format(kind, colour) for kind, colour in _COLOURS.items()) + "</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        f'<text class="head" x="18" y="28">{escape(title)}</text>',
        f'<text class="sub" x="18" y="47">{escape(sub)}</text>',
    ]
    for name in order:
        parts.append(f'<line class="life" x1="{x[name]}" y1="{_HEAD - 8}" x2="{x[name]}" y2="{height - _ROW:.0f}"/>')
        parts.append(f'<rect class="broker" x="{x[name] - 32}" y="{_HEAD - 32}" width="64" height="24" rx="5"/>')
        parts.append(f'<text class="name" x="{x[name]}" y="{_HEAD - 15}">{escape(name)}</text>')
    parts += [_row(update, x, _HEAD + _ROW * (at + 1)) for at, update in enumerate(shown)]
    return "\n".join([*parts, "</svg>", ""])


def _row(update: InterestUpdate, x: dict[str, float], y: float) -> str:
    start, end = x[update.sender], x[update.receiver]
    kind = "add" if "+" in update.what else "drop" if "-" in update.what else "done"
    room = max(1, int((abs(end - start) - 16) / _CHARACTER))
    text = update.what if len(update.what) <= room else update.what[: room - 1] + "…"
    full = f"{update.time / 1000:.3f} ms, {update.sender} to {update.receiver}: {update.what}"
    return (
        f"<g><title>{escape(full)}</title>"
        f'<text class="time" x="{_LEFT - 10}" y="{y + 3.5}">{update.time / 1000:.3f} ms</text>'
        f'<line class="{kind}" x1="{start}" y1="{y}" x2="{end}" y2="{y}" marker-end="url(#{kind})"/>'
        f'<text class="label" x="{(start + end) / 2}" y="{y - 5}">{escape(text)}</text></g>'
    )


def _order(shape: Shape) -> list[str]:
    """The brokers from left to right: a subtree stays together, next to its root."""
    below: dict[int, list[int]] = {}
    for near, far, _ in shape.links:
        below.setdefault(near, []).append(far)

    def walk(broker: int) -> list[int]:
        children = below.get(broker, [])
        left, right = ([each for child in some for each in walk(child)] for some in (children[:1], children[1:]))
        return [*left, broker, *right]

    return [shape.names[broker] for broker in walk(0)]
