"""Drawings: every node once, nothing left out in silence, any text intact; boxes never overlap."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from order.things import RANGES, STRUCTURES, plain_ranges
from strategies import thorough
from weft import normalize, parse
from weft.drawing.layout import Spacing, place
from weft.drawing.order_view import OrderView, dot, label, tree, view, wanted
from weft.drawing.picture import svg
from weft.order import FilterRelation, Forest, Poset, Structure
from weft.workloads.thesis import SCHEMAS

NS = "{http://www.w3.org/2000/svg}"
FIGURE = [  # thesis, figure 3.4
    "type = 'A' AND rng BETWEEN 0 AND 100",
    "type = 'A' AND rng BETWEEN 0 AND 40",
    "type = 'A' AND rng BETWEEN 20 AND 90",
    "type = 'A' AND rng BETWEEN 30 AND 35",
    "type = 'A' AND rng BETWEEN 35 AND 38",
    "type = 'A' AND rng = 35 AND name = 'B'",
]
ODD = [
    """place LIKE '%"quoted" <tag> & more%'""",
    r"path = 'C:\new\"'",
    "note = 'one\ntwo\tthree'",
    "note = '" + "\x00\x1b\ufffe" + "'",
    "city = '東京都' AND x IN (1, 2)",
    "name = '" + "long " * 60 + "'",
    "tag = ']]> --> <!-- \\N \\G'",
]


def ordered(kind: str, texts: list[str]) -> Structure[Any]:
    structure = STRUCTURES[kind](FilterRelation())
    for client, text in enumerate(texts, 1):
        structure.add(parse(text), f"c{client}")
    return structure


def drawn(structure: Structure[Any], **limits: int) -> tuple[OrderView[Any], list[str]]:
    shown = view(structure, **limits)
    return shown, [str(line) for line in tree(shown)]


def labels(picture: str) -> list[str]:
    """The tooltips of the boxes of an SVG, which hold the whole texts."""
    root = ElementTree.fromstring(picture)
    return [title.text or "" for group in root.iter(f"{NS}g") for title in group.findall(f"{NS}title")]


def test_a_forest_is_a_tree_of_lines():
    _, lines = drawn(ordered("forest", ["x > 0", "x > 5", "x > 7", "y = 1", "x BETWEEN 6 AND 7"]))
    assert lines == [
        "x > 0  [c1]",
        "└─ x > 5  [c2]",
        "   ├─ x > 7  [c3]",
        "   └─ x BETWEEN 6 AND 7  [c5]",
        "y = 1  [c4]",
    ]


def test_guides_can_be_plain():
    shown = view(ordered("forest", ["x > 0", "x > 5", "x < 9 AND x > 0"]))
    assert [line.guide for line in tree(shown, ascii_only=True)] == ["", "|- ", "`- "]
    assert all(str(line).isascii() for line in tree(shown, ascii_only=True))


def test_a_poset_names_a_filter_below_each_predecessor_and_draws_it_once():
    _, lines = drawn(ordered("poset", FIGURE))
    shown = "\n".join(lines)
    assert shown.count("rng = 35 AND name = 'B'") == 2
    assert shown.count("name = 'B'  [c6]  (as above)") == 1
    assert shown.count("BETWEEN 30 AND 35") == shown.count("BETWEEN 35 AND 38") == 2


def test_the_same_filter_of_many_is_one_node_that_names_a_few():
    forest = Forest(FilterRelation())
    for client in range(1, 31):
        forest.add(parse("x > 1"), client)
    (node,) = forest
    assert wanted(node) == "1, 2, 3, 4 and 26 more"
    for client in range(6, 31):
        forest.discard(parse("x > 1"), client)
    assert wanted(node) == "1, 2, 3, 4, 5"


def test_a_normal_form_is_shown_as_a_filter():
    forest = Forest(FilterRelation())
    forest.add(normalize(parse("NOT x <= 3 AND y = 'a'")))
    assert [label(node) for node in forest] == ["x > 3 AND y = 'a'"]


@pytest.mark.parametrize("kind", STRUCTURES)
@given(
    chosen=st.lists(st.sampled_from(RANGES), max_size=12),
    first=st.none() | st.integers(0, 8),
    depth=st.none() | st.integers(1, 3),
)
@thorough(60)
def test_what_is_not_shown_is_counted(kind: str, chosen: list[Any], first: int | None, depth: int | None):
    structure = STRUCTURES[kind](plain_ranges())
    for client, thing in enumerate(chosen):
        structure.add(thing, client)
    shown = view(structure, first, depth)
    assert shown.total == len(structure)
    assert len(set(shown.nodes)) == len(shown.nodes)
    if first is None and depth is None:
        assert set(shown.nodes) == set(structure)
        assert not shown.hidden
    for node in (structure.top, *shown.nodes):
        hidden = shown.hidden.get(node, (0, 0))
        assert len(shown.children[node]) + hidden[0] == len(node.children)
        assert set(shown.children[node]) <= set(shown.nodes)
        assert node is structure.top or any(
            parent is structure.top or parent in shown.children for parent in node.parents
        )
    if kind != "poset":
        assert len(shown.nodes) + sum(with_them for _, with_them in shown.hidden.values()) == len(structure)
    once = [line for line in tree(shown) if line.filter and not line.note]
    assert len(once) == len(shown.nodes)
    assert sum(1 for line in tree(shown) if not line.filter) == len(shown.hidden)


def test_the_filters_with_most_below_come_first():
    texts = ["y = 1", *(f"x > {n}" for n in range(5))]
    shown, lines = drawn(ordered("forest", texts), first=2)
    assert lines == ["x > 0  [c2]", "└─ x > 1  [c3]", "   └─ ... 1 more, 3 with those below", "... 1 more"]
    assert len(shown.nodes) == 2


def test_a_very_deep_forest_is_drawn():
    structure = ordered("forest", [f"x > {n}" for n in reversed(range(1100))])
    shown = view(structure)
    assert sum(1 for _ in tree(shown)) == 1100
    assert len(labels(svg(shown))) == 1100
    assert dot(shown).count("->") == 1099


@pytest.mark.parametrize("kind", ["forest", "poset"])
def test_graphviz_gets_every_node_and_edge(kind: str):
    structure = ordered(kind, FIGURE)
    text = dot(view(structure))
    assert len(re.findall(r"^  n\d+ \[", text, re.M)) == 6
    assert text.count("->") == sum(len(node.parents) for node in structure if structure.top not in node.parents)


def unescaped(text: str) -> str:
    """What Graphviz shows for a quoted label."""
    return re.sub(r'\\(["\\n])', lambda found: "\n" if found[1] == "n" else found[1], text)


@pytest.mark.parametrize("text", ODD)
def test_graphviz_gets_odd_texts_as_they_are(text: str):
    (line,) = re.findall(r'^  n0 \[label="((?:[^"\\]|\\.)*)"\];$', dot(view(ordered("forest", [text]))), re.M)
    plain = "".join(sign if sign.isprintable() or sign == "\n" else f"\\u{ord(sign):04x}" for sign in str(parse(text)))
    assert unescaped(line) == f"{plain}\nc1"


STATEMENT = re.compile(
    r"""\s*(?:digraph\ "order"\ \{ | \} | rankdir=LR;
    | \w+(?:\ ->\ \w+)?(?:\ \[ATTRIBUTE(?:,\ ATTRIBUTE)*\])?; )""".replace(
        "ATTRIBUTE", r"""\w+=(?:[\w.]+|"(?:[^"\\]|\\.)*")"""
    ),
    re.VERBOSE,
)


def test_every_line_is_a_statement_of_graphviz_and_graphviz_reads_it():
    text = dot(view(ordered("poset", [*FIGURE, *ODD]), first=9))
    assert all(STATEMENT.fullmatch(line) for line in text.splitlines())
    nodes = set(re.findall(r"^  (\w+) \[(?:shape=plaintext, )?label", text, re.M))
    assert {end for edge in re.findall(r"^  (\w+) -> (\w+)", text, re.M) for end in edge} <= nodes
    if shutil.which("dot") is None:
        return
    done = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nnode ") == 9 + text.count("more_") - text.count("-> more_")


@pytest.mark.parametrize("kind", ["forest", "poset"])
def test_a_picture_holds_odd_texts_whole(kind: str):
    structure = ordered(kind, ODD)
    found = labels(svg(view(structure), title="<&> \x00"))
    for text in ODD:
        plain = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in str(parse(text)))
        assert any(said.startswith(f"{plain}, wanted by c") for said in found)


def test_a_long_text_is_cut_on_the_picture():
    root = ElementTree.fromstring(svg(view(ordered("forest", [ODD[5]]))))
    (said,) = [text.text for text in root.iter(f"{NS}text") if text.get("class") == "filter"]
    assert said is not None
    assert said.endswith("…")
    assert len(said) == 68


def test_an_empty_order_is_an_empty_picture():
    shown = view(Forest(FilterRelation()))
    assert list(tree(shown)) == []
    assert labels(svg(shown)) == []
    assert dot(shown).startswith("digraph")


@pytest.mark.parametrize("kind", [Forest, Poset])
@pytest.mark.parametrize("size", [6, 40, 120])
def test_boxes_of_a_picture_lie_apart_and_below_is_to_the_right(kind: Any, size: int):
    structure = kind(FilterRelation())
    for client, thing in enumerate(SCHEMAS["1-3"].draw(size, np.random.default_rng(2))):
        structure.add(thing, client)
    root = ElementTree.fromstring(svg(view(structure)))
    boxes = [
        tuple(float(box.get(name) or 0) for name in ("x", "y", "width", "height"))
        for box in root.iter(f"{NS}rect")
        if box.get("class")
    ]
    assert len(boxes) == len(structure)
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    assert all(0 <= x <= x + w < width and 0 <= y <= y + h < height for x, y, w, h in boxes)
    for (x, y, w, h), (other_x, other_y, other_w, other_h) in combinations(boxes, 2):
        assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y


@given(data=st.data())
@thorough(100)
def test_any_graph_without_cycles_is_placed(data: st.DataObject):
    size = data.draw(st.integers(1, 10))
    below = [
        sorted(data.draw(st.sets(st.integers(at + 1, size - 1), max_size=3))) if at < size - 1 else []
        for at in range(size)
    ]
    widths = data.draw(st.lists(st.floats(1, 90), min_size=size, max_size=size))
    room = Spacing()
    drawing = place(widths, below, room)
    assert drawing.at.keys() == set(range(size))
    for at, children in enumerate(below):
        for child in children:
            assert drawing.at[at][0] + widths[at] < drawing.at[child][0]
            points = drawing.lines[at, child]
            assert points[0] == pytest.approx((drawing.at[at][0] + widths[at], drawing.at[at][1]))
            assert points[-1] == pytest.approx(drawing.at[child])
    for one, other in combinations(range(size), 2):
        (x, y), (a, b) = drawing.at[one], drawing.at[other]
        assert abs(y - b) >= room.row - 1e-6 or x + widths[one] <= a or a + widths[other] <= x
    assert all(0 <= x <= x + widths[at] <= drawing.width + 1e-6 for at, (x, _) in drawing.at.items())
    assert all(room.row / 2 - 1e-6 <= y <= drawing.height - room.row / 2 + 1e-6 for _, y in drawing.at.values())
