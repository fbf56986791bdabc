"""A small canvas for the pictures of the documentation. Law: one palette, readable on light and on dark pages.

Filled shapes are dark enough for white text. Everything that lies on the page itself, lines and notes, has a grey whose
contrast with white and with near-black is about the same.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

BLUE, PURPLE, BROWN, GREEN = "#1f6f8b", "#6d4c9f", "#a3541a", "#3c7a3b"
GREY = "#757d88"
ON_PAGE = {BLUE: "#2c88aa", PURPLE: "#8a68c2", BROWN: "#c0692a", GREEN: "#4c9a4a"}  # for lines and text without a box
LETTER = 0.56  # the width of a letter, as a part of the font's size
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


class Canvas:
    """Shapes in the order in which they are drawn.

    >>> canvas = Canvas(100, 40, "An example")
    >>> canvas.text(10, 20, "x < 5")
    >>> "x &lt; 5" in canvas.svg()
    True
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, color: str = BLUE, **options: object) -> None:
        """A rectangle; `tint` fills it lightly and draws its border, `dashed` its border only."""
        style = f'fill="{color}"'
        ink = ON_PAGE.get(color, color)
        if options.get("tint"):
            style = f'fill="{color}" fill-opacity="0.18" stroke="{ink}" stroke-width="1.5"'
        if options.get("dashed"):
            style = f'fill="none" stroke="{ink}" stroke-width="1.2" stroke-dasharray="5 4"'
        radius = options.get("radius", 5)
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" {style}/>')

    def text(self, x: float, y: float, text: str, **options: object) -> None:
        """A line of text, on the page unless it has a `color`; `anchor` is start, middle or end."""
        size, color = options.get("size", 13), str(options.get("color", GREY))
        color = ON_PAGE.get(color, color)
        family = MONO if options.get("mono") else FONT
        weight = ' font-weight="600"' if options.get("bold") else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-family="{family}" font-size="{size}"{weight} fill="{color}" '
            f'text-anchor="{options.get("anchor", "start")}">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, lines: list[str], color: str = BLUE, **options: object) -> float:
        """A filled box with centred white lines; returns its height."""
        size = 13
        height = 18 * len(lines) + 16
        self.rect(x, y, width, height, color)
        for number, line in enumerate(lines):
            at = y + 21.5 + 18 * number
            bold = options.get("bold_head") and number == 0
            self.text(
                x + width / 2, at, line, anchor="middle", color="#fff", size=size, mono=options.get("mono"), bold=bold
            )
        return float(height)

    def line(self, points: list[tuple[float, float]], color: str = GREY, **options: object) -> None:
        """A line through the points; `arrow` ends it with a head, `width` is that of the stroke."""
        color = ON_PAGE.get(color, color)
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 4"' if options.get("dashed") else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{options.get("width", 1.5)}"{dash}/>'
        )
        if options.get("arrow"):
            (x1, y1), (x2, y2) = points[-2:]
            length = max(1e-9, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
            dx, dy = (x2 - x1) / length, (y2 - y1) / length
            left = (x2 - 9 * dx - 4.5 * dy, y2 - 9 * dy + 4.5 * dx)
            right = (x2 - 9 * dx + 4.5 * dy, y2 - 9 * dy - 4.5 * dx)
            corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
            self._parts.append(f'<polygon points="{corners}" fill="{color}"/>')

    def dot(self, x: float, y: float, radius: float = 5, color: str = BROWN) -> None:
        """A filled circle."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{ON_PAGE.get(color, color)}"/>')

    def svg(self) -> str:
        """The picture, without a background: the page shows through."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}" '
                f'viewBox="0 0 {self.width:g} {self.height:g}" role="img">',
                f"<title>{escape(self.title)}</title>",
                *self._parts,
                "</svg>",
                "",
            ]
        )
