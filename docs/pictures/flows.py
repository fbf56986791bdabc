"""Pictures of how things flow: boxes and arrows."""

from __future__ import annotations

from pictures.canvas import BLUE, BROWN, GREEN, GREY, PURPLE, Canvas

RULES = {
    "strong": "magnitude >= 5",
    "shallow": "depth < 10 AND magnitude > 3",
    "alaska": "place ILIKE '%alaska'",
}
EVENT = {"magnitude": 6.1, "depth": 12, "place": "Alaska"}
MATCHED = ["alaska", "strong"]  # a test matches EVENT with RULES


def home() -> Canvas:
    """What Weft does: rules and an event in, the ids of the matching rules out."""
    canvas = Canvas(720, 210, "Rules and events go into an index, and the ids of the matching rules come out")
    canvas.text(10, 20, "your rules", bold=True)
    for number, (name, text) in enumerate(RULES.items()):
        y = 32 + 38 * number
        canvas.rect(10, y, 300, 30, BLUE)
        canvas.text(20, y + 20, name, color="#fff", size=12.5, bold=True)
        canvas.text(88, y + 20, text, color="#fff", size=11.5, mono=True)
        canvas.line([(310, y + 15), (350, y + 15), (350, 92), (382, 92)], arrow=number == 1)
    canvas.text(10, 170, "an event, or a table of them", bold=True)
    canvas.rect(10, 178, 300, 28, BROWN)
    canvas.text(
        20, 197, ", ".join(f"{name}: {value}" for name, value in EVENT.items()), color="#fff", size=11.5, mono=True
    )
    canvas.line([(310, 192), (436, 192), (436, 132)], arrow=True)
    canvas.box(384, 56, 104, ["weft", "Index"], PURPLE, bold_head=True)
    canvas.rect(384, 108, 104, 22, PURPLE)
    canvas.text(436, 123, "1,000,000 rules", anchor="middle", color="#fff", size=11)
    canvas.line([(488, 92), (556, 92)], arrow=True)
    canvas.text(522, 82, "match", anchor="middle", size=12)
    canvas.text(560, 48, "rules that it matches", bold=True)
    for number, name in enumerate(MATCHED):
        canvas.rect(560, 60 + 38 * number, 150, 30, GREEN)
        canvas.text(635, 80 + 38 * number, name, anchor="middle", color="#fff", bold=True)
    return canvas


def matching() -> Canvas:
    """How the index works: boxes, codes, tree."""
    canvas = Canvas(
        720, 270, "Filters become boxes, bounds become codes, and a tree of cells finds the boxes of an event"
    )
    boxes = [
        (12, 30, 58, 48),
        (40, 20, 40, 80),
        (96, 84, 70, 50),
        (110, 100, 40, 62),
        (20, 120, 56, 40),
        (130, 14, 44, 40),
    ]
    for panel, title in enumerate(("1. Filters are boxes", "2. Bounds make cells", "3. A tree of cells")):
        canvas.text(10 + 245 * panel, 18, title, bold=True)
    for left in (10, 255):
        canvas.rect(left, 34, 190, 180, GREY, dashed=True)
        for x, y, width, height in boxes:
            canvas.rect(left + x, 34 + y, width, height, BLUE, tint=True, radius=2)
    canvas.dot(10 + 128, 34 + 120)
    canvas.text(10, 256, "Which boxes hold the event?", size=12)
    cuts = sorted({x for x, _, width, _ in boxes for x in (x, x + width)})
    for cut in cuts:
        canvas.line([(255 + cut, 34), (255 + cut, 214)], GREY, width=0.8, dashed=True)
    canvas.dot(255 + 128, 34 + 120)
    code = sum(cut <= 128 for cut in cuts)
    canvas.text(255 + 128, 232, f"code {code}", anchor="middle", size=12, color=BROWN, bold=True)
    canvas.text(255, 256, "A test is low <= code <= high.", size=12)
    canvas.box(560, 34, 90, ["cut x"], PURPLE)
    for number, name in enumerate(("0-3", "4-7", "8-11", "wide")):
        x = 500 + 54 * number
        hit = number in (2, 3)
        canvas.line([(605, 68), (x + 23, 100)], BROWN if hit else GREY, width=2.5 if hit else 1.2)
        canvas.rect(x, 100, 48, 28, BROWN if hit else GREY)
        canvas.text(x + 24, 119, name, anchor="middle", color="#fff", size=12)
    canvas.line([(632, 128), (605, 158)], BROWN, width=2.5)
    canvas.line([(686, 128), (640, 158)], BROWN, width=2.5)
    canvas.box(530, 158, 150, ["32 rows at a time", "low  low  low  ...", "high high high ..."], BLUE)
    canvas.text(500, 256, "One cell, and the wide rows.", size=12)
    return canvas


def pipeline() -> Canvas:
    """Matching on Spark, from files to files."""
    canvas = Canvas(720, 380, "Events and subscriptions are read, prepared and matched by one of three strategies")
    canvas.box(20, 10, 220, ["events", "parquet, CSV, JSON lines"], BROWN, bold_head=True)
    canvas.box(330, 10, 370, ["subscriptions", "id and filter, id and bounds, or a snapshot"], BLUE, bold_head=True)
    canvas.line([(130, 62), (130, 90)], arrow=True)
    canvas.line([(460, 62), (460, 90)], arrow=True)
    canvas.box(60, 90, 140, ["read_frame"], GREY)
    canvas.box(360, 90, 200, ["read_frame, prepare"], GREY)
    canvas.text(572, 104, "executors", size=12)
    canvas.text(572, 120, "parse the texts", size=12)
    canvas.line([(460, 124), (460, 156)], arrow=True)
    canvas.line([(130, 124), (130, 196), (168, 196)], arrow=True)
    canvas.rect(170, 156, 440, 104, PURPLE, tint=True)
    canvas.text(186, 178, "match, by one of three strategies", bold=True)
    for number, (name, text) in enumerate(
        (
            ("index", "one snapshot, mapped by every executor"),
            ("partitioned", "both sides meet in groups"),
            ("sql", "one Spark expression for each filter"),
        )
    ):
        canvas.text(186, 200 + 20 * number, name, bold=True, color=PURPLE)
        canvas.text(282, 200 + 20 * number, text)
    canvas.line([(300, 260), (300, 300)], arrow=True)
    canvas.line([(540, 260), (540, 300)], arrow=True)
    canvas.box(170, 300, 260, ["pairs, lists or counts", "parquet, CSV, JSON lines"], GREEN, bold_head=True)
    canvas.box(460, 300, 160, ["errors", "side, row, reason"], GREY, bold_head=True)
    canvas.text(170, 372, "A row that cannot be read never fails a job.", size=12)
    return canvas


def architecture() -> Canvas:
    """The data flow between the packages."""
    canvas = Canvas(720, 330, "The data flow from filters and events to matches, routing tables and Spark")
    canvas.box(10, 130, 110, ["text", "JSON", "Python"], BROWN)
    canvas.line([(120, 165), (150, 165)], arrow=True)
    canvas.box(150, 148, 70, ["tree"], PURPLE)
    canvas.line([(220, 165), (250, 165)], arrow=True)
    canvas.box(250, 148, 70, ["boxes"], PURPLE)
    canvas.line([(185, 182), (185, 240)], arrow=True)
    canvas.box(110, 240, 150, ["meaning", "the definition"], GREY, bold_head=True)
    rows = [
        (["covering, overlap"], ["order, merging", "profiles, drawing"]),
        (["rows of codes", "partition tree"], ["matches"]),
        (["cells, curves, labels", "negative space"], ["routing tables", "overlay"]),
        (["snapshot"], ["executors of Spark", "pairs, lists, counts"]),
    ]
    for number, (middle, right) in enumerate(rows):
        y = 10 + 80 * number
        canvas.line([(320, 165), (344, 165), (344, y + 26), (370, y + 26)], arrow=True)
        canvas.box(370, y + (0 if len(middle) == 2 else 9), 150, middle, BLUE)
        canvas.line([(520, y + 26), (550, y + 26)], arrow=True)
        canvas.box(550, y + (0 if len(right) == 2 else 9), 160, right, GREEN)
    return canvas


def routing() -> Canvas:
    """Four brokers, two subscriptions, one of which is never told."""
    canvas = Canvas(720, 250, "A wide filter is told over every link, a narrower one that it covers is not")
    at = {"west": (120, 130), "middle": (340, 130), "east": (560, 60), "south": (560, 200)}
    for left, right in (("west", "middle"), ("middle", "east"), ("middle", "south")):
        (x1, y1), (x2, y2) = at[left], at[right]
        canvas.line([(x2, y2), (x1, y1)], GREY, width=2)
    for (x, y), (dx, dy) in (((230, 130), (1, 0)), ((450, 95), (0.9, -0.3)), ((450, 165), (0.9, 0.3))):
        canvas.line([(x - 26 * dx, y - 26 * dy), (x + 26 * dx, y + 26 * dy)], BLUE, width=3, arrow=True)
    canvas.text(230, 116, "magnitude >= 5", anchor="middle", size=12, color=BLUE, bold=True)
    canvas.text(440, 66, "magnitude >= 5", anchor="middle", size=12, color=BLUE, bold=True)
    canvas.text(440, 212, "magnitude >= 5", anchor="middle", size=12, color=BLUE, bold=True)
    for name, (x, y) in at.items():
        canvas.rect(x - 42, y - 20, 84, 40, PURPLE)
        canvas.text(x, y + 5, name, anchor="middle", color="#fff", bold=True)
    canvas.line([(120, 62), (120, 108)], arrow=True)
    canvas.box(20, 24, 200, ["ann: magnitude >= 5"], BLUE)
    canvas.line([(120, 194), (120, 152)], arrow=True)
    canvas.box(20, 194, 200, ["bob: magnitude >= 6"], GREY)
    canvas.text(230, 216, "covered: not told", size=12)
    canvas.text(620, 54, "publishes", size=12)
    canvas.text(620, 72, "magnitude 6.1", size=12, color=BROWN, bold=True)
    canvas.text(340, 172, "events go against", anchor="middle", size=12)
    canvas.text(340, 188, "the arrows", anchor="middle", size=12)
    return canvas
