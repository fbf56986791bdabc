"""Bar charts of the ring's designs as SVG, made of text alone: means of all seeds, with a line from the lowest to the
highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from weft.errors import WeftError
from weftlab.ring.ring_comparison import DesignRow

_PARTS = (("storing", "#3b6ea5"), ("registration", "#7fa7d0"), ("delivery", "#c9a227"), ("matching", "#c0392b"))
_PANELS = (
    ("seconds of work", "cost", "{:,.0f}"),
    ("mean seconds to a match", "latency", "{:,.2f}"),
    ("most subscriptions at a node", "largest", "{:,.0f}"),
)
_LINE = 'stroke="#222" stroke-width="1.2"'
_PLAIN = "#7d8793"  # none of the parts
_WIDTH, _NAMES, _ROW, _TOP = 300.0, 140.0, 24.0, 62.0


def check_svg(path: Path) -> None:
    """Raise WeftError if no chart can be written to the file. Call it before a long run, not after it."""
    if path.suffix.lower() != ".svg":
        raise WeftError(f"{path} is not a chart file; name it .svg")
    if not path.absolute().parent.is_dir():
        raise WeftError(f"there is no directory {path.parent} for the chart; create it first")


def draw_designs(rows: Sequence[DesignRow], title: str, path: Path) -> None:
    """Draw cost by its parts, latency and the largest load. Raises WeftError as `check_svg` does."""
    check_svg(path)
    means = [row.means() for row in rows]
    width, height = _NAMES + len(_PANELS) * _WIDTH, _TOP + _ROW * len(rows) + 30
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        _text(10, 22, title, 'font-size="14"'),
    ]
    drawn += [_text(_NAMES - 8, _y(at) + 12, row.name, 'text-anchor="end"') for at, row in enumerate(rows)]
    for number, (heading, name, shown) in enumerate(_PANELS):
        left = _NAMES + number * _WIDTH
        drawn.append(_text(left, _TOP - 12, heading, 'fill="#555"'))
        most = max(row.spread(name)[1] for row in rows) or 1.0
        for at, each in enumerate(means):
            parts = [(each[part], colour) for part, colour in _PARTS] if name == "cost" else [(each[name], _PLAIN)]
            x = left
            for value, colour in parts:
                size = (_WIDTH - 80) * value / most
                drawn.append(f'<rect x="{x:.1f}" y="{_y(at):.1f}" width="{size:.1f}" height="16" fill="{colour}"/>')
                x += size
            low, high = (left + (_WIDTH - 80) * value / most for value in rows[at].spread(name))
            if low < high:
                y = _y(at) + 8
                drawn.append(f'<path d="M{low:.1f} {y}H{high:.1f}M{low:.1f} {y - 3}v6M{high:.1f} {y - 3}v6" {_LINE}/>')
            drawn.append(_text(max(x, high) + 5, _y(at) + 12, shown.format(each[name]), 'font-size="11"'))
    x = _NAMES
    for part, colour in _PARTS:
        drawn.append(f'<rect x="{x:.0f}" y="{height - 20:.0f}" width="10" height="10" fill="{colour}"/>')
        drawn.append(_text(x + 14, height - 11, part, 'font-size="11"'))
        x += 95
    path.write_text("\n".join([*drawn, "</svg>"]) + "\n", encoding="utf-8")


def _y(row: int) -> float:
    return _TOP + row * _ROW


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
