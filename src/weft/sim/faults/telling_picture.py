"""Who told whom what, as an SVG picture for any browser. Laws: time runs downwards, one row for each thing told; it is
well-formed whatever filters contain; a text that is cut is shown in full in its tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from weft.sim.faults.shape import Shape
from weft.sim.faults.trace import ToldUpdate

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


def telling_picture(shape: Shape, tellings: Sequence[ToldUpdate], title: str) -> str:
    """A line for each broker, neighbours side by side where the tree allows, and an arrow for each update.

    >>> from weft.routing.table import Role
    >>> two = Shape((0,), (Role.PEER,))
    >>> "x &lt; 4" in telling_picture(two, [ToldUpdate(1500, "b1", "b2", "+1 x < 4")], "seed 1")
    True
    """
    order = _order(shape)
    x = {name: _LEFT + _COLUMN / 2 + _COLUMN * at for at, name in enumerate(order)}
    shown = tellings[:_ROWS]
    width = _LEFT + _COLUMN * len(order)
    height = _HEAD + _ROW * (len(shown) + 2)
    hidden = len(tellings) - len(shown)
    sub = f"{shape.model}{' with advertisements' if shape.advertised else ''}, {shape.brokers} brokers"
    sub += f"; {len(tellings)} updates" + (f", the first {len(shown)} of them" if hidden else "")
    sub += "; + is told, - is withdrawn by its number, dotted: everything has been told"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>" + "".join(_head(kind, colour) for kind, colour in _COLOURS.items()) + "</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        f'<text class="head" x="18" y="28">{escape(title)}</text>',
        f'<text class="sub" x="18" y="47">{escape(sub)}</text>',
    ]
    for name in order:
        parts.append(f'<line class="life" x1="{x[name]}" y1="{_HEAD - 8}" x2="{x[name]}" y2="{height - _ROW:.0f}"/>')
        parts.append(f'<rect class="broker" x="{x[name] - 32}" y="{_HEAD - 32}" width="64" height="24" rx="5"/>')
        parts.append(f'<text class="name" x="{x[name]}" y="{_HEAD - 15}">{escape(name)}</text>')
    parts += [_row(telling, x, _HEAD + _ROW * (at + 1)) for at, telling in enumerate(shown)]
    return "\n".join([*parts, "</svg>", ""])


_COLOURS = {"add": "#2f6fb3", "drop": "#b3562f", "done": "#8a97a5"}


def _head(kind: str, colour: str) -> str:
    return (
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
    )


def _row(telling: ToldUpdate, x: dict[str, float], y: float) -> str:
    start, end = x[telling.teller], x[telling.hearer]
    kind = "add" if "+" in telling.what else "drop" if "-" in telling.what else "done"
    room = max(1, int((abs(end - start) - 16) / _CHARACTER))
    text = telling.what if len(telling.what) <= room else telling.what[: room - 1] + "…"
    full = f"{telling.time / 1000:.3f} ms, {telling.teller} to {telling.hearer}: {telling.what}"
    return (
        f"<g><title>{escape(full)}</title>"
        f'<text class="time" x="{_LEFT - 10}" y="{y + 3.5}">{telling.time / 1000:.3f} ms</text>'
        f'<line class="{kind}" x1="{start}" y1="{y}" x2="{end}" y2="{y}" marker-end="url(#{kind})"/>'
        f'<text class="label" x="{(start + end) / 2}" y="{y - 5}">{escape(text)}</text></g>'
    )


def _order(shape: Shape) -> list[str]:
    """The brokers from left to right: a subtree stays together, beside its root."""
    below: dict[int, list[int]] = {}
    for near, far, _ in shape.links:
        below.setdefault(near, []).append(far)

    def walk(broker: int) -> list[int]:
        children = below.get(broker, [])
        left, right = ([each for child in some for each in walk(child)] for some in (children[:1], children[1:]))
        return [*left, broker, *right]

    return [shape.names[broker] for broker in walk(0)]
