"""What the page of the plane shows: boxes, curve, ranges, labels and negative boxes of the routing models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from weft.console.views.filter_steps import FilterSource, Generator, filter_steps
from weft.console.views.space import SpaceRequest, space_view
from weft.errors import OptionError
from weft.language.meaning import matches

GENERATED = FilterSource(Generator(filters=12))


def view(source: FilterSource = GENERATED, **options: Any) -> dict[str, Any]:
    return space_view(SpaceRequest(source, **options))


def inside(rects: list[Any], x: float, y: float) -> bool:
    return any(a <= x <= c and b <= y <= d for a, b, c, d in rects)


POINTS = [(x + 0.5, y + 0.5) for x in range(0, 100, 9) for y in range(0, 100, 9)]


@pytest.mark.parametrize("variable", [False, True])
def test_rectangles_ranges_and_labels_hold_what_filters_match(variable: bool) -> None:
    found = view(variable=variable, chosen=5)
    filters = {each["number"]: each for each in found["filters"]}
    present = filter_steps(GENERATED).present()
    for number, each in filters.items():
        for x, y in POINTS:
            assert matches(present[number].filter, {"a": x, "b": y}) == inside(each["rects"], x, y)
    mine = present[5].filter
    labels = [each["rect"] for each in found["labels"]["labels"]]
    for x, y in POINTS:
        if matches(mine, {"a": x, "b": y}):
            assert inside(found["ranges"]["cells"], x, y)
            assert inside(labels, x, y)
            assert inside(found["merged"]["cells"], x, y)
    for part in ("ranges", "labels"):
        assert found[part]["missed"] == 0
        assert found[part]["false"] == found[part]["admitted"] - found[part]["matching"] > 0


def test_finer_cells_admit_less() -> None:
    false = [view(bits=bits, chosen=5)["ranges"]["false"] for bits in (3, 4, 5, 6)]
    assert false[0] > false[-1]
    few, many = (view(labels=labels, chosen=5)["labels"] for labels in (2, 64))
    assert few["count"] <= 2 < many["count"]
    assert few["false"] > many["false"]


def test_the_curve_visits_every_cell_once_and_steps_to_a_neighbour() -> None:
    found = view(bits=3)
    points = [tuple(point) for piece in found["curve"] for point in piece]
    assert len(points) == len(set(points)) == 7 * 7
    xs = sorted({x for x, _ in points})
    ys = sorted({y for _, y in points})
    for piece in found["curve"]:
        for (a, b), (c, d) in pairwise(piece):
            assert abs(xs.index(a) - xs.index(c)) + abs(ys.index(b) - ys.index(d)) == 1


def test_ranges_merge_and_gaps_are_closed() -> None:
    plain, closed = view()["merged"], view(gap=5)["merged"]
    assert plain["ranges"] < plain["separately"]
    assert (plain["needless"], plain["extra"]) == (0, [])
    assert closed["ranges"] < plain["ranges"]
    assert closed["needless"] == closed["points"] - plain["points"] > 0


def test_negative_boxes_are_what_nothing_covers() -> None:
    whole = view()
    present = filter_steps(GENERATED).present()
    rects = whole["negative"]["boxes"] + whole["negative"]["appeared"]
    for x, y in POINTS:
        wanted = any(matches(each.filter, {"a": x, "b": y}) for each in present.values())
        assert wanted != inside(rects, x, y)
    assert sorted(whole["negative"]["told"] + whole["negative"]["passive"]) == sorted(present)
    nothing = view(FilterSource(Generator(filters=12), step=0))
    assert nothing["negative"]["count"] == 1
    one = view(FilterSource(Generator(filters=12), step=1))["negative"]
    assert one["vanished"] == nothing["negative"]["boxes"] + nothing["negative"]["appeared"]
    assert one["appeared"]


def test_a_point_and_who_matches_by_which_model() -> None:
    present = filter_steps(GENERATED).present()
    for x, y in POINTS[::7]:
        point = view(point=(x, y))["point"]
        wanted = [number for number, each in present.items() if matches(each.filter, {"a": x, "b": y})]
        assert [row["number"] for row in point["rows"] if row["exact"]] == wanted
        for row in point["rows"]:
            assert row["exact"] <= row["curve"]
            assert row["exact"] <= row["labels"]
        assert point["forwards"]["exact"] == point["forwards"]["negative"] == bool(wanted)
        assert point["forwards"]["exact"] <= point["forwards"]["curve"]


def test_rules_of_a_user() -> None:
    found = view(
        FilterSource(rules="x < 5 AND y > 3 AND z = 1\nx BETWEEN 2 AND 9 OR y = 7\nname = 'a' AND x > 1"), x="y"
    )
    assert (found["x"], found["y"], found["names"]) == ("y", "x", ["x", "y", "z"])
    assert found["filters"][0]["others"] == ["z"]
    assert len(found["filters"][1]["rects"]) == 2
    with pytest.raises(OptionError, match="two attributes"):
        view(FilterSource(rules="name = 'a'"))
    assert view(FilterSource(rules="# nothing"))["filters"] == []
