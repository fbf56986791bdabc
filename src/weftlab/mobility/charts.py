"""Charts of the mobility laboratory as SVG, made of text alone: lines over a number, and bars of protocols.

Lines and bars are means of all seeds; thin marks show the lowest and the highest seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from weftlab.mobility.campaign import ProtocolRow
from weftlab.ring.ring_chart import check_svg

_COLOURS = ("#3b6ea5", "#c0392b", "#2e8b57", "#c9a227", "#7d3c98", "#d35400", "#16748b", "#6b7480")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_LEFT, _TOP, _WIDTH, _HEIGHT, _LEGEND = 70.0, 46.0, 420.0, 270.0, 230.0
_SAFE, _UNSAFE, _PLAIN = "#2e8b57", "#c0392b", "#7d8793"


class Axes(NamedTuple):
    """What a chart shows."""

    title: str
    x: str
    y: str
    logarithmic: bool = False


def draw_lines(series: Mapping[str, Mapping[int, NDArray[np.float64]]], axes: Axes, path: Path) -> None:
    """Draw a line for each name, with the spread of the seeds. Raises WeftError as `check_svg` does."""
    check_svg(path)
    means = {name: {x: float(np.mean(ys)) for x, ys in line.items()} for name, line in series.items()}
    xs = sorted({x for line in means.values() for x in line})
    lows = [float(np.min(ys)) for line in series.values() for ys in line.values()]
    highs = [float(np.max(ys)) for line in series.values() for ys in line.values()]
    if axes.logarithmic:
        bottom, top = floor(log10(max(min(lows), 1e-9))), ceil(log10(max(*highs, 1e-9)))
        ticks = [10.0**power for power in range(bottom, max(top, bottom + 1) + 1)]
    else:
        ticks = _ticks(max(highs))

    def at_x(x: float) -> float:
        return _LEFT + _WIDTH * (x - xs[0]) / max(xs[-1] - xs[0], 1)

    def at_y(y: float) -> float:
        share = y / ticks[-1]
        if axes.logarithmic:
            share = (log10(max(y, ticks[0])) - log10(ticks[0])) / (log10(ticks[-1]) - log10(ticks[0]))
        return _TOP + _HEIGHT * (1 - share)

    width, height = _LEFT + _WIDTH + _LEGEND, _TOP + _HEIGHT + 56
    drawn = [_opening(width, height), _text(_LEFT, 22, axes.title, 'font-size="14"')]
    for tick in ticks:
        y = at_y(tick)
        drawn.append(f'<path d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}" stroke="#ddd"/>')
        drawn.append(_text(_LEFT - 8, y + 4, f"{tick:,.0f}", 'text-anchor="end" font-size="11"'))
    drawn += [_text(at_x(x), _TOP + _HEIGHT + 18, f"{x:,}", 'text-anchor="middle" font-size="11"') for x in xs]
    drawn.append(_text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 40, axes.x, 'text-anchor="middle" fill="#555"'))
    drawn.append(_text(_LEFT, _TOP - 8, axes.y, 'fill="#555" font-size="11"'))
    order = sorted(means, key=lambda name: -means[name][max(means[name])])
    for place, name in enumerate(means):
        colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place // 2 % len(_DASHES)]
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        points = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(means[name].items()))
        drawn.append(f'<polyline points="{points}" {style}/>')
        for x, ys in series[name].items():
            low, high = at_y(float(np.min(ys))), at_y(float(np.max(ys)))
            drawn.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(means[name][x]):.1f}" r="2.6" fill="{colour}"/>')
            if low - high > 0.5:
                drawn.append(f'<path d="M{at_x(x):.1f} {high:.1f}V{low:.1f}" stroke="{colour}" stroke-width="0.8"/>')
        y = _TOP + 8 + 20 * order.index(name)
        left = _LEFT + _WIDTH + 16
        drawn.append(f'<path d="M{left} {y - 4}h24" {style}/>')
        drawn.append(_text(left + 30, y, name, 'font-size="11"'))
    path.write_text("\n".join([*drawn, "</svg>"]) + "\n", encoding="utf-8")


def draw_protocols(rows: Sequence[ProtocolRow], title: str, path: Path) -> None:
    """Draw what each protocol loses, costs and takes. Raises WeftError as `check_svg` does."""
    check_svg(path)
    names, panel, high, top = 170.0, 240.0, 22.0, 62.0
    panels = (
        ("lost, of 10,000 events due", [1e4 * row.total.lost / max(1, row.total.due) for row in rows], None),
        ("message hops per move", [row.total.mean("signals") for row in rows], "signals"),
        ("latency, ms", [row.total.mean("latencies") / 1000 for row in rows], "latencies"),
    )
    width, height = names + panel * len(panels), top + high * len(rows) + 16
    drawn = [_opening(width, height), _text(10, 22, title, 'font-size="14"')]
    for at, row in enumerate(rows):
        colour = _SAFE if row.verdict == "safe" else _UNSAFE if row.total.lost else _PLAIN
        drawn.append(_text(names - 8, top + high * at + 12, row.name, f'text-anchor="end" fill="{colour}"'))
    for number, (heading, values, figure) in enumerate(panels):
        left = names + panel * number
        drawn.append(_text(left, top - 12, heading, 'fill="#555"'))
        spreads = [row.spread(figure) if figure else (value,) * 3 for row, value in zip(rows, values, strict=True)]
        scale = 1000 if figure == "latencies" else 1
        most = max(*values, *(spread[2] / scale for spread in spreads)) or 1.0
        for at, value in enumerate(values):
            y, size = top + high * at, (panel - 80) * value / most
            colour = _UNSAFE if not number and value else "#3b6ea5"
            drawn.append(f'<rect x="{left:.1f}" y="{y:.1f}" width="{size:.1f}" height="15" fill="{colour}"/>')
            low, best = (left + (panel - 80) * spreads[at][end] / scale / most for end in (0, 2))
            if best - low > 0.5:
                drawn.append(f'<path d="M{low:.1f} {y + 7.5}H{best:.1f}" stroke="#222" stroke-width="1.1"/>')
            drawn.append(_text(max(left + size, best) + 5, y + 12, f"{value:,.1f}", 'font-size="11"'))
    path.write_text("\n".join([*drawn, "</svg>"]) + "\n", encoding="utf-8")


def _ticks(most: float) -> list[float]:
    """Some five round values from 0 to at least the largest."""
    step = 10.0 ** floor(log10(max(most, 1e-9)))
    for part in (0.2, 0.5, 1.0, 2.0):
        if most <= step * part * 6:
            step *= part
            break
    return [step * number for number in range(ceil(most / step) + 1)]


def _opening(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
