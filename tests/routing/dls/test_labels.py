"""Labels: the paper's figure, every box of a tiny space, and the one law: an event that matches has a wanted label."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, thorough
from weft import Schema
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.errors import FilterError, LabelError, SchemaError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.model.schema import Attribute
from weft.model.value import Type
from weft.routing.dls.labels import LabelCode
from weft.routing.dls.space import LabelSpace
from weft.space import partition
from weft.space.grid import Grid

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}})


def test_figure_2() -> None:
    code = LabelCode((5, 5))
    assert code.ranges == 25
    assert code.bits.tolist() == [3, 3]  # "k1=k2=5" means 5 granules, so 3 bits (errata, DLS 7)
    assert code.size == 6
    assert [code.text(label) for label in code.of_cells([(3, 3), (3, 2), (4, 0)]).tolist()] == [
        "011-011",
        "011-010",
        "100-000",
    ]
    s1 = code.of_boxes([(2, 2)], [(3, 3)])[0]
    assert {code.text(label) for label in s1.tolist()} == {"010-011", "011-011", "010-010", "011-010"}
    every = code.of_boxes([(0, 0)], [(4, 4)])[0]
    assert len(set(every.tolist())) == 25


def test_figure_2_on_a_grid() -> None:
    """The five granules between the bounds are the grid's cells 2 to 6: before them are "absent" and what is below."""
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 5]} for name in ("d1", "d2")}})
    grid = Grid.uniform(schema, cells=8)
    assert grid.shape == (8, 8)  # 5 granules, below, above, absent: 3 bits still
    space = LabelSpace([grid])
    wanted = space.labels("d1 BETWEEN 2.5 AND 3.9 AND d2 BETWEEN 2.2 AND 3.5")
    paper = LabelCode((5, 5))
    granules = np.array([[low - 2 for low, _ in space.codes[0].cells(label)] for label in wanted.tolist()])
    assert {paper.text(label) for label in paper.of_cells(granules).tolist()} == {
        "010-011",
        "011-011",
        "010-010",
        "011-010",
    }
    events = [{"d1": 3.5, "d2": 3.4}, {"d1": 3.1, "d2": 2.9}, {"d1": 4.5, "d2": 0.5}]
    labels = space.of_events(events, space.levels(wanted))
    assert np.isin(labels, wanted).ravel().tolist() == [True, True, False]
    assert [space.text(label) for label in labels.ravel().tolist()] == ["101-101", "101-100", "110-010"]


@pytest.mark.parametrize("granules", [(5,), (1, 3), (3, 4), (2, 1, 3)])
@pytest.mark.parametrize("parts", [0, 1, 2, 3])
def test_every_box_by_brute_force(granules: tuple[int, ...], parts: int) -> None:
    code = LabelCode(granules, parts)
    cells = np.array(list(product(*map(range, granules))))
    plain = code.of_cells(cells)
    assert len(set(plain.tolist())) == code.ranges
    assert [code.cells(label) for label in plain.tolist()] == [tuple((c, c) for c in cell) for cell in cells.tolist()]
    corners = [(low, high) for low, high in product(cells.tolist(), repeat=2) if np.less_equal(low, high).all()]
    lows, highs = np.array([low for low, _ in corners]), np.array([high for _, high in corners])
    for room in (None, 1, 2, 5) if parts else (None,):
        found = code.of_boxes(lows, highs, room)
        for row, (low, high) in enumerate(corners):
            labels = found[row]
            assert (np.diff(labels) > 0).all()
            assert room is None or len(labels) <= room
            inside = (low <= cells).all(axis=1) & (cells <= high).all(axis=1)
            if room is None:
                assert set(labels.tolist()) == set(plain[inside].tolist())
            else:
                drops = [code.drops(label) for label in labels.tolist()]
                assert len(set(drops)) == 1, "a box has one level"
                assert code.sound(labels).all()
                theirs = code.of_cells(cells, drops[:1])[:, 0]
                assert np.isin(theirs[inside], labels).all(), "a cell is lost"
                blocks = [code.cells(label) for label in labels.tolist()]
                held = np.array(
                    [
                        any(all(a <= c <= b for c, (a, b) in zip(cell, block, strict=True)) for block in blocks)
                        for cell in cells.tolist()
                    ]
                )
                assert np.array_equal(np.isin(theirs, labels), held), "a label is the block that it says"


def test_an_attribute_without_a_predicate_costs_no_labels() -> None:
    grid = Grid.uniform(SCHEMA, cells=64)
    assert len(LabelSpace([grid], most=10_000).labels("a = 1")) == 64
    few = LabelSpace([grid], most=32)
    assert [few.text(label) for label in few.labels("a = 1").tolist()] == ["100000-******"]


def test_bits_go_where_they_cover_the_least_more() -> None:
    """The first attribute would save more labels, but cover 8 granules for 5; the second costs nothing."""
    code = LabelCode((16, 4), parts=2)
    labels = code.of_boxes([(1, 2)], [(5, 3)], room=5).labels
    assert [code.text(label) for label in labels.tolist()] == ["0001-1*", "0010-1*", "0011-1*", "0100-1*", "0101-1*"]


SPACES = [
    LabelSpace([Grid.uniform(SCHEMA, cells=cells)], most, parts)
    for cells, most, parts in ((2, 1, 1), (7, 1000, 1), (8, 3, 3), (16, 8, 2), (16, 1, 2))
]
SPACES += [
    LabelSpace([Grid.uniform(SCHEMA, 8, ["a"]), Grid.uniform(SCHEMA, 5), Grid.uniform(SCHEMA, 9, ["b"])], 4, 2),
    LabelSpace([Grid((partition.categories(Attribute("a", Type.STRING), ("a", "ab", "car")),))], 2, 1),
]


@given(filters(), st.sampled_from(SPACES))
@thorough(300)
def test_an_event_that_matches_has_a_wanted_label(wanted: Filter, space: LabelSpace) -> None:
    """Missing, NULL, of another type, out of bounds: no event is lost."""
    form = normalize(wanted)
    if not form:
        with pytest.raises(FilterError):
            space.labels(form)
        return
    for among in ((), *((number,) for number in range(len(space.grids)))):
        labels = space.labels(form, *among)
        assert space.sound(labels).all()
        levels = space.levels(labels)
        theirs = space.of_events(EVENTS, levels)
        inside = np.isin(theirs, labels).any(axis=1)
        for at, event in enumerate(EVENTS):
            assert inside[at] or not matches(wanted, event)
        assert [space.of_event(event, levels) for event in EVENTS[:20]] == theirs[:20].tolist()


@given(st.lists(filters(3), min_size=1, max_size=5), st.sampled_from(SPACES))
@thorough(100)
def test_many_at_once_are_each_alone(wanted: list[Filter], space: LabelSpace) -> None:
    forms = {owner: normalize(each) for owner, each in enumerate(wanted)}
    boxes = [(owner, box) for owner, form in forms.items() for box in form.boxes]
    columns = BoxColumns.of([box for _, box in boxes], [owner for owner, _ in boxes])
    owners, sets = space.label_sets(columns)
    assert owners.tolist() == [owner for owner, form in forms.items() if form.boxes]
    for owner, labels in zip(owners.tolist(), sets, strict=True):
        assert labels.tolist() == space.labels(forms[owner], 0).tolist()


def test_businesses_share_a_space() -> None:
    """Each has granules of its own; an event is published once, and has a label in each (DLS 5.4)."""
    schema = Schema.from_dict(
        {
            "attributes": {
                "price": {"type": "float", "bounds": [0, 100]},
                "symbol": {"type": "string", "categories": ["WEFT", "WARP"]},
            }
        }
    )
    trading, risk = Grid.uniform(schema, 16), Grid.uniform(schema, 6, ["price"])
    space = LabelSpace([trading, risk])
    bought = space.labels("symbol = 'WEFT' AND price < 10")
    alarm = space.labels("price > 90", 1)
    assert {space.text(label)[:2] for label in bought.tolist()} == {"0:"}
    assert {space.text(label)[:2] for label in alarm.tolist()} == {"1:"}
    levels = space.levels(np.concatenate([bought, alarm]))
    labels = space.of_events([{"price": 5, "symbol": "WEFT"}, {"price": 95, "symbol": "WARP"}], levels)
    assert np.isin(labels, bought).any(axis=1).tolist() == [True, False]
    assert np.isin(labels, alarm).any(axis=1).tolist() == [False, True]


def test_a_grid_that_is_added_leaves_labels_as_they_are() -> None:
    old = LabelSpace([Grid.uniform(SCHEMA, cells=8)])
    new = old.with_grid(Grid.uniform(SCHEMA, cells=64))
    assert new.labels("a > 1", 0).tolist() == old.labels("a > 1").tolist()
    assert new == LabelSpace(new.grids)
    assert new.parameters != old.parameters
    assert not old.sound(new.labels("a > 1", 1)).any()
    names = [f"a{number}" for number in range(7)]
    wide = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in names}})
    with pytest.raises(LabelError, match="fewer granules"):
        old.with_grid(Grid.uniform(wide, cells=129))


def test_parameters_travel() -> None:
    for space in SPACES:
        assert LabelSpace.from_json(space.to_json()) == space
        assert LabelSpace.from_json(space.to_json()).parameters == space.parameters
    assert len({space.parameters for space in SPACES}) == len(SPACES)
    for text in ("", "[]", "[1,2]", '["x", 2, []]', "[1, 2, []]", "[1, 2, [[]]]", "[1.5, 2, []]"):
        with pytest.raises(SchemaError):
            LabelSpace.from_json(text)


def test_an_invalid_label_is_refused() -> None:
    space = LabelSpace([Grid.uniform(SCHEMA, cells=6)], most=1, parts=3)
    sound = [label for label in range(1 << space.size) if space.sound(np.array([label]))[0]]
    nodes = {sum(-(-6 // (1 << drop)) for drop in range(4))}  # of each dimension: blocks of 1, 2, 4 and 8
    assert {len(sound)} == {count * count for count in nodes}
    assert not space.sound(np.array([1 << 62, 1 << space.size])).any()


def many(count: int) -> Schema:
    """A schema of so many attributes."""
    return Schema.from_dict({"attributes": {f"a{n}": {"type": "int", "bounds": [0, 9]} for n in range(count)}})


def test_a_label_has_room_for_31_attributes() -> None:
    space = LabelSpace.of(many(31))
    wanted = space.labels("a0 > 3 AND a30 = 2")
    levels = space.levels(wanted)
    assert np.isin(space.of_event({"a0": 5, "a30": 2}, levels), wanted).any()
    assert not np.isin(space.of_event({"a0": 5}, levels), wanted).any()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LabelCode(()), "granule"),
        (lambda: LabelCode((4, 0)), "granule"),
        (lambda: LabelCode((1 << 32, 1 << 32)), "fewer granules"),
        (lambda: LabelCode((4,)).of_boxes([(0,)], [(1,)], room=1), "parts"),
        (lambda: LabelCode((4,)).of_boxes([(2,)], [(1,)]), "no cells"),
        (lambda: LabelCode((4,)).of_boxes([(2,)], [(4,)]), "is outside its"),
        (lambda: LabelCode((4,)).of_cells([(4,)]), "is outside its"),
        (lambda: LabelCode((4,), parts=1).text(0), "mark"),
        (lambda: LabelCode((4,), parts=-1), "step"),
        (lambda: LabelSpace([]), "grid"),
        (lambda: LabelSpace([Grid.uniform(SCHEMA, 4)], most=0), "label"),
        (lambda: LabelSpace([Grid.uniform(SCHEMA, 4)], most=2.5), "is 2.5; give an integer from 1 to 65536"),  # type: ignore
        (lambda: LabelSpace([Grid.uniform(SCHEMA, 4)], parts=0), "is 0; give an integer from 1 to 62"),
        (lambda: LabelSpace([Grid.uniform(SCHEMA, 4)]).labels("a = 1", 1), "application"),
        (lambda: LabelSpace.of(many(32)), "has 32 attributes, and a label has room for at most 31"),
        (lambda: LabelSpace.of(many(32), 2), "has 32 attributes, and a label has room for at most 31"),
        (lambda: LabelSpace([Grid.uniform(many(32), 2)]), "32 attributes make labels of 64 bits"),
        (lambda: LabelSpace.of(many(31), 3), "31 attributes make labels of 93 bits"),
    ],
)
def test_bad_spaces_say_what_to_do(make: object, says: str) -> None:
    with pytest.raises(LabelError, match=says):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("parts", [0, 1, 2, 5])
def test_the_dropped_bits_of_many_levels_are_those_of_each(parts: int) -> None:
    code = LabelCode((64, 5, 1, 300), parts)
    lows, highs = np.array(list(product((0, 3), (0, 2), (0,), (7,)))), np.array([(60, 4, 0, 299)] * 4)
    labels = code.of_boxes(lows, highs, 3 if parts else None).labels
    levels = np.unique(code.levels(labels)) if parts else labels[:3]
    assert code.drops_of(levels).tolist() == [list(code.drops(level)) for level in levels.tolist()]


def test_a_level_without_marks_has_no_drops() -> None:
    with pytest.raises(LabelError, match="no mark"):
        LabelCode((4, 4), 2).drops_of(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    "parameters", [(1 << 17, 2), (10**400, 2), (1e9, 2), (256, 63), (256, 10**400), (256, 0), (True, 2)]
)
def test_a_space_with_too_many_labels_or_parts_is_refused(parameters: tuple[int, int]) -> None:
    grid = Grid.uniform(SCHEMA, 16)
    with pytest.raises((SchemaError, LabelError)):
        LabelSpace.from_json(json.dumps([*parameters, [grid.parameters]]))
