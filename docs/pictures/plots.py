"""Pictures of what the library computes: each is drawn from its results."""

from __future__ import annotations

from math import log10
from pathlib import Path

from pictures.canvas import BLUE, BROWN, GREEN, GREY, PURPLE, Canvas

from weft import Schema, parse
from weft.order import FilterRelation, Forest
from weft.routing.dls.labels import LabelCode
from weft.routing.negative.structure import NegativeSpace
from weft.space import Curve

BENCHMARKS = Path(__file__).parent.parent / "benchmarks.md"


def order() -> Canvas:
    """The forest of the first example of the covering order."""
    forest = Forest(FilterRelation())
    texts = ("magnitude >= 4.5", "magnitude >= 5 AND depth < 70", "magnitude >= 6 AND depth < 70", "tsunami")
    for client, text in zip(("ann", "bob", "cem", "dee"), texts, strict=True):
        forest.add(parse(text), client)
    canvas = Canvas(720, 230, "Each filter hangs below one that covers it; only the roots are forwarded")
    canvas.text(10, 20, "roots: what is forwarded", bold=True)

    def hang(node: object, x: float, depth: int) -> None:
        y = 34 + 66 * depth
        canvas.rect(x, y, 270, 38, BLUE if depth == 0 else GREY)
        canvas.text(x + 12, y + 24, str(node.thing), color="#fff", size=12, mono=True)  # type: ignore[attr-defined]
        canvas.text(x + 280, y + 24, ", ".join(sorted(node.interfaces)), size=12)  # type: ignore[attr-defined]
        for child in node.children:  # type: ignore[attr-defined]
            canvas.line([(x + 40, y + 38), (x + 40, y + 66)], arrow=True)
            hang(child, x, depth + 1)

    for number, root in enumerate(sorted(forest.roots, key=lambda node: str(node.thing))):
        hang(root, 10 + 370 * number, 0)
    return canvas


def curve() -> Canvas:
    """A Hilbert curve, and the ranges of a box on it."""
    made, (low, high) = Curve(dims=2, bits=3), ((4, 2), (6, 5))
    found = made.ranges(low, high)
    ranges = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
    canvas = Canvas(720, 350, "A Hilbert curve through 64 cells, and the three ranges of a box")
    side, left, top = 40.0, 14.0, 14.0

    def centre(index: int) -> tuple[float, float]:
        x, y = made.cells([index])[0].tolist()
        return left + side * (x + 0.5), top + side * (7 - y + 0.5)

    canvas.rect(left, top, 8 * side, 8 * side, GREY, dashed=True)
    width, height = (high[0] - low[0] + 1) * side, (high[1] - low[1] + 1) * side
    canvas.rect(left + low[0] * side, top + (7 - high[1]) * side, width, height, BLUE, tint=True, radius=2)
    canvas.line([centre(index) for index in range(64)], GREY, width=1.5)
    colors = (BROWN, PURPLE, GREEN)
    for (start, end), color in zip(ranges, colors, strict=True):
        canvas.line([centre(index) for index in range(start, end + 1)], color, width=5)
        for index in range(start, end + 1):
            canvas.dot(*centre(index), radius=4.5, color=color)
    canvas.text(370, 50, "The box x 4 to 6, y 2 to 5", bold=True)
    canvas.text(370, 72, "has 12 of 64 cells on 3 ranges:")
    for number, ((start, end), color) in enumerate(zip(ranges, colors, strict=True)):
        canvas.rect(370, 90 + 40 * number, 100, 30, color)
        canvas.text(420, 110 + 40 * number, f"{start} to {end}", anchor="middle", color="#fff", bold=True)
        canvas.text(482, 110 + 40 * number, f"{end - start + 1} cells")
    canvas.text(370, 236, "An event is one number: its place on")
    canvas.text(370, 256, "the curve. It may match if one of the")
    canvas.text(370, 276, "ranges contains it.")
    return canvas


def negative() -> Canvas:
    """What two subscriptions leave uncovered, as the space has it."""
    bounds = {"s1": (175, 510, 180, 680), "s2": (405, 840, 110, 540), "s3": (380, 720, 230, 495)}
    space = NegativeSpace(
        Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1000]} for name in "xy"}})
    )
    for key, (x1, x2, y1, y2) in bounds.items():
        space.add(key, parse(f"x BETWEEN {x1} AND {x2} AND y BETWEEN {y1} AND {y2}"))
    canvas = Canvas(720, 360, "Two subscriptions cover a third together; seven boxes are negative")
    scale, left, top = 0.33, 14.0, 14.0

    def reach(box: object, name: str) -> tuple[float, float]:
        values = box.sets.get(name)  # type: ignore[attr-defined]
        cuts = [cut[0] for cut in values.numbers] if values else []
        low = cuts[0] if cuts else 0
        high = cuts[1] if len(cuts) > 1 else 1000
        return max(0.0, float(low)), min(1000.0, float(high))

    def draw(x1: float, x2: float, y1: float, y2: float, color: str, **options: object) -> None:
        canvas.rect(
            round(left + x1 * scale, 1),
            round(top + (1000 - y2) * scale, 1),
            round((x2 - x1) * scale, 1),
            round((y2 - y1) * scale, 1),
            color,
            radius=1,
            **options,
        )

    for number, box in enumerate(space.negative()):
        x1, x2, y1, y2 = *reach(box, "x"), *reach(box, "y")
        draw(x1, x2, y1, y2, GREY, tint=True)
        canvas.text(
            left + (x1 + x2) / 2 * scale, top + (1000 - (y1 + y2) / 2) * scale + 5, str(number + 1), anchor="middle"
        )
    draw(*bounds["s1"], BLUE, tint=True)
    draw(*bounds["s2"], PURPLE, tint=True)
    draw(*bounds["s3"], BROWN, dashed=True)
    for key, x, y, color in (("s1", 200, 640, BLUE), ("s2", 780, 130, PURPLE), ("s3", 560, 440, BROWN)):
        canvas.text(left + x * scale, top + (1000 - y) * scale, key, color=color, bold=True)
    canvas.text(370, 60, "s1 and s2 are told.", bold=True)
    canvas.text(370, 86, "s3 touches no negative box, so both")
    canvas.text(370, 106, "together cover it, and it is not told.")
    canvas.text(370, 146, f"The rest of the plane is {len(space.negative())} negative boxes.")
    return canvas


def labels() -> Canvas:
    """The paper's figure 2: five granules on each of two attributes, and the labels of a filter."""
    code = LabelCode((5, 5))
    wanted = set(code.of_boxes([(2, 2)], [(3, 3)]).labels.tolist())
    canvas = Canvas(720, 270, "Cells with labels; a filter wants four of them")
    width, height = 82.0, 44.0
    for x in range(5):
        for y in range(5):
            (label,) = code.of_cells([(x, y)]).tolist()
            hit = label in wanted
            at = (34 + width * x, 10 + height * (4 - y))
            canvas.rect(at[0], at[1], width - 4, height - 4, BLUE if hit else GREY, tint=not hit, radius=3)
            color = "#fff" if hit else GREY
            canvas.text(
                at[0] + width / 2 - 2, at[1] + 25, code.text(label), anchor="middle", size=12, mono=True, color=color
            )
    canvas.text(34, 252, "first attribute: granules 0 to 4")
    canvas.text(470, 60, "The filter wants four labels.", bold=True)
    canvas.text(470, 84, "An event has one label, and is")
    canvas.text(470, 104, "looked up once, however many")
    canvas.text(470, 124, "subscriptions there are.")
    return canvas


def compared() -> Canvas:
    """Microseconds per event at a million subscriptions, read from the page of benchmarks."""
    table = BENCHMARKS.read_text(encoding="utf-8").partition("### 1,000,000 subscriptions")[2].splitlines()
    rows: dict[str, list[str]] = {}
    for line in table:
        if line.startswith("| W"):  # the first table has the peers
            rows.setdefault(line.split("|")[1].strip(), [cell.strip() for cell in line.split("|")[2:7]])
    names = ["Weft", "rtree", "DuckDB", "Polars", "Python lambdas"]
    canvas = Canvas(720, 352, "Microseconds per event at 1,000,000 subscriptions, on a logarithmic scale")
    canvas.text(10, 18, "microseconds per event, 1,000,000 subscriptions, one thread (logarithmic scale)", bold=True)
    left, right, most = 150.0, 610.0, 1e6
    for panel, workload in enumerate(("W1", "W5")):
        top = 44 + 156 * panel
        what = {"W1": "W1: ranges on 3 attributes", "W5": "W5: 2 to 8 tests on 20 attributes"}[workload]
        canvas.text(10, top, what, bold=True)
        for number, (name, cell) in enumerate(zip(names, rows[workload], strict=True)):
            y = top + 10 + 25 * number
            canvas.text(left - 10, y + 15, name, anchor="end", size=12)
            if not cell[0].isdigit():
                canvas.text(left, y + 15, "not measured", size=12)
                continue
            value = float(cell.replace(",", ""))
            length = (right - left) * (log10(value) + 1) / (log10(most) + 1)
            canvas.rect(left, y, round(length, 1), 20, BLUE if name == "Weft" else GREY, radius=2)
            canvas.text(left + round(length, 1) + 8, y + 15, cell, size=12, bold=name == "Weft")
    return canvas
