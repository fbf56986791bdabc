"""Charts as SVG, made of text alone. They are well-formed whatever the names contain. A name that is cut is shown in
full in its tooltip. No chart needs a script, a font or a network.

Colours are the page's (`var(--c0)` to `var(--c7)`, `--ink`, `--faint`, `--line`), so that a page is light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

from weft.kernels.arrays import Floats

COLOURS = 8
_ROW = 24.0
_SIGN = 6.6  # the width of a character


def clean(text: str) -> str:
    """A text that XML can hold, escaped; what it cannot hold is shown as numbers."""
    return escape("".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text), {'"': "&quot;"})


def stacked(rows: Mapping[str, Mapping[str, int]], colours: Mapping[str, int], whole: int, width: float = 640) -> str:
    """A bar for each name, of parts in their colours; as long as the part of the whole that it is.

    >>> "<title>x: range, 1 of 2</title>" in stacked({"x": {"range": 1}}, {"range": 0}, 2)
    True
    """
    left = _margin(rows)
    room = width - left - 60
    drawn = []
    most = max([whole, *(sum(parts.values()) for parts in rows.values())], default=1)
    for at, (name, parts) in enumerate(rows.items()):
        y = at * _ROW
        drawn.append(_name(name, left, y))
        x = left
        for part, count in parts.items():
            size = room * count / max(most, 1)
            said = f"{clean(name)}: {clean(part)}, {count:,} of {whole:,}"
            drawn.append(_rect(x, y + 4, size, _ROW - 8, colours[part], said))
            x += size
        drawn.append(f'<text x="{x + 6:.1f}" y="{y + 16:.1f}" class="n">{_percent(sum(parts.values()), whole)}</text>')
    return _svg(width, len(rows) * _ROW, drawn)


def bars(values: Mapping[str, float], shown: Callable[[float], str], colour: int = 0, width: float = 420) -> str:
    """A bar for each name, as long as its value."""
    left = min(_margin(values), width * 0.5)
    most = max(values.values(), default=1) or 1
    drawn = []
    for at, (name, value) in enumerate(values.items()):
        y, size = at * _ROW, (width - left - 70) * value / most
        drawn.append(_name(name, left, y))
        drawn.append(_rect(left, y + 4, size, _ROW - 8, colour, f"{clean(name)}: {clean(shown(value))}"))
        drawn.append(f'<text x="{left + size + 6:.1f}" y="{y + 16:.1f}" class="n">{clean(shown(value))}</text>')
    return _svg(width, len(values) * _ROW, drawn)


def columns(values: Mapping[str, int], colour: int = 0, width: float = 300, height: float = 140) -> str:
    """A column for each value, in their order; the heights are shares of all."""
    whole, most = sum(values.values()) or 1, max(values.values(), default=1)
    step = width / max(len(values), 1)
    every = max(1, math.ceil(len(values) * 30 / width))
    drawn = []
    for at, (name, count) in enumerate(values.items()):
        tall = (height - 34) * count / max(most, 1)
        said = f"{clean(name)}: {count:,} ({_percent(count, whole)})"
        drawn.append(_rect(at * step + 1.5, height - 18 - tall, max(step - 3, 1), tall, colour, said))
        if at % every == 0:
            middle = (at + 0.5) * step
            drawn.append(
                f'<text x="{middle:.1f}" y="{height - 5:.1f}" class="n" text-anchor="middle">{clean(name)}</text>'
            )
        if count == most:
            drawn.append(
                f'<text x="{(at + 0.5) * step:.1f}" y="{height - 23 - tall:.1f}" class="n" text-anchor="middle">'
                f"{_percent(count, whole)}</text>"
            )
    return _svg(width, height, drawn)


def demand(  # noqa: PLR0913, PLR0917 - a chart's data
    points: Floats,
    asked: Floats,
    occurring: Floats | None,
    shown: Callable[[float], str],
    width: float = 420,
    height: float = 170,
) -> str:
    """How many filters are around each point, as an area, and where events are, as a line; each to its own scale."""
    low, high = float(points[0]), float(points[-1])
    top, bottom, left = 16.0, height - 22, 40.0

    def place(at: float, share: float) -> str:
        x = left + (width - left - 8) * (at - low) / ((high - low) or 1)
        return f"{x:.1f} {bottom - (bottom - top) * share:.1f}"

    most = float(asked.max(initial=0)) or 1.0
    line = "L".join(place(at, share) for at, share in zip(points.tolist(), (asked / most).tolist(), strict=True))
    area = f"M{place(low, 0)}L{line}L{place(high, 0)}Z"
    drawn = [
        f'<line x1="{left}" y1="{bottom:.1f}" x2="{width - 8}" y2="{bottom:.1f}" class="axis"/>',
        f'<line x1="{left}" y1="{top:.1f}" x2="{width - 8}" y2="{top:.1f}" class="grid"/>',
        f'<text x="{left - 6}" y="{top + 4:.1f}" class="n" text-anchor="end">{most:.0%}</text>',
        f'<text x="{left - 6}" y="{bottom + 4:.1f}" class="n" text-anchor="end">0</text>',
        f'<path d="{area}" class="area"><title>filters whose range holds the value: at most {most:.1%}</title></path>',
    ]
    if occurring is not None:
        peak = float(occurring.max(initial=0)) or 1.0
        steps = []
        for cell, share in enumerate((occurring / peak).tolist()):
            steps += [place(float(points[cell]), share), place(float(points[cell + 1]), share)]
        drawn.append(f'<path d="M{"L".join(steps)}" class="events"><title>where events are</title></path>')
    for at, anchor in ((low, "start"), ((low + high) / 2, "middle"), (high, "end")):
        x = place(at, 0).split(" ")[0]
        drawn.append(f'<text x="{x}" y="{height - 6:.1f}" class="n" text-anchor="{anchor}">{clean(shown(at))}</text>')
    return _svg(width, height, drawn)


def heat(names: Sequence[str], share: Callable[[int, int], float], said: Callable[[int, int], str]) -> str:
    """A square of cells, the darker the larger the share; its figures are in its tooltip."""
    side, left = 30.0, _margin(names)
    top = min(150.0, 12 + _SIGN * max(map(len, names), default=0) * 0.75)
    drawn = []
    for row, name in enumerate(names):
        drawn.append(_name(name, left, top + row * side + 3))
        x = left + (row + 0.6) * side
        drawn.append(
            f'<text transform="translate({x:.1f} {top - 6:.1f}) rotate(-45)" class="l">'
            f"<title>{clean(name)}</title>{clean(_cut(name, 22))}</text>"
        )
        for column in range(len(names)):
            value = share(row, column)
            drawn.append(
                f'<rect x="{left + column * side + 1:.1f}" y="{top + row * side + 1:.1f}" width="{side - 2}" '
                f'height="{side - 2}" rx="3" fill="var(--c0)" fill-opacity="{0.06 + 0.94 * min(1.0, value):.3f}">'
                f"<title>{clean(said(row, column))}</title></rect>"
            )
    return _svg(left + len(names) * side + top * 0.8, top + len(names) * side + 4, drawn)


def _svg(width: float, height: float, drawn: Sequence[str]) -> str:
    wide, tall = f"{width:.0f}", f"{max(height, 1):.0f}"
    head = f'<svg viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" role="img">'
    return "".join([head, *drawn, "</svg>"])


def _rect(x: float, y: float, width: float, height: float, colour: int, said: str) -> str:  # noqa: PLR0913, PLR0917
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
        f'fill="var(--c{colour % COLOURS})"><title>{said}</title></rect>'
    )


def _name(name: str, left: float, y: float) -> str:
    most = int((left - 12) / _SIGN)
    return (
        f'<text x="{left - 8:.1f}" y="{y + 16:.1f}" class="l" text-anchor="end">'
        f"<title>{clean(name)}</title>{clean(_cut(name, most))}</text>"
    )


def _margin(names: Mapping[str, object] | Sequence[str]) -> float:
    return 16 + _SIGN * min(26, max((len(name) for name in names), default=0))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 1)] + "…"


def _percent(count: float, whole: float) -> str:
    share = count / whole if whole else 0.0
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.2%}" if share < 0.01 else f"{share:.1%}"
