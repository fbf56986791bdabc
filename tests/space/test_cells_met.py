"""The cells of filters with very many intervals, boxes and categories: bounded work, and no cell is left out."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft import Schema, normalize, parse
from weft.algebra.residual import Called
from weft.algebra.strings import Strings
from weft.space import cells_met
from weft.space.categories import Categories
from weft.space.cells_met import fewer
from weft.space.dimension import CellInterval, joined
from weft.space.grid import Grid
from weft.space.line_cells import LineCells

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1000]} for name in ("x", "y")}})


def one_by_one(every: list[list[CellInterval]], most: int) -> list[list[CellInterval]]:
    """The smallest gap of all, again and again."""
    every = list(every)
    while math.prod(map(len, every)) > max(most, 1):
        gaps = ((b[0] - a[1], at, n) for at, some in enumerate(every) for n, (a, b) in enumerate(pairwise(some)))
        _, at, place = min(gaps)
        some = every[at]
        every[at] = [*some[:place], (some[place][0], some[place + 1][1]), *some[place + 2 :]]
    return every


intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), min_size=1, max_size=8).map(
    lambda drawn: joined((low, low + more) for low, more in drawn)
)


@given(st.lists(intervals, min_size=1, max_size=3), st.integers(0, 20))
@thorough(300)
def test_gaps_are_closed_as_if_one_by_one(every: list[list[CellInterval]], most: int) -> None:
    assert fewer(every, most) == one_by_one(every, most)


def test_value_sets_that_boxes_share_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 1 KB: 50 boxes of cells with two long lists each."""
    looked: list[str] = []
    plain = LineCells.intervals

    def counted(self: LineCells, *args: Any) -> list[CellInterval]:
        looked.append(self.name)
        return plain(self, *args)

    monkeypatch.setattr(LineCells, "intervals", counted)
    closed: list[object] = []
    monkeypatch.setattr(cells_met, "fewer", lambda *args: closed.append(args) or fewer(*args))
    lists = " AND ".join(f"{name} IN ({','.join(map(str, range(0, 1000, 9)))})" for name in "xy")
    form = normalize(parse(f"{lists} AND ({' OR '.join(f'q{n} = 1' for n in range(50))})"))
    assert len(form.boxes) == 50
    found = Grid.uniform(SCHEMA, 256).boxes(form, most=16)
    assert sorted(looked) == ["x", "y"]
    assert len(closed) == 1
    assert len(found.rows) == 50 * 16
    assert {tuple(row) for row in found.lows.tolist()} == {tuple(row) for row in found.lows[:16].tolist()}


def test_categories_are_tested_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    plain = Called.outcome

    def counted(self: Called, event: Any) -> Any:
        nonlocal asked
        asked += 1
        return plain(self, event)

    monkeypatch.setattr(Called, "outcome", counted)
    kinds = Categories("ip", tuple((f"10.0.{n // 256}.{n % 256}",) for n in range(600)))
    calls = " OR ".join(f"cidr(ip, '10.0.{n}.0/24')" for n in range(120))
    form = normalize(parse(calls))
    grid = Grid((kinds,))
    found = grid.boxes(form)
    assert 600 < asked <= cells_met.MOST_TESTS + 4 * kinds.size < 600 * 120
    for text in ("10.0.0.5", "10.0.2.80", "10.0.119.1"):
        (cell,) = grid.cell({"ip": text})
        assert any(low <= cell <= high for (low,), (high,) in zip(found.lows, found.highs, strict=True))
    first, last = found.lows[0], found.highs[0]
    assert (first, last) == (1, 256)  # as long as there are tests left, cells are exact


def test_patterns_on_many_categories_are_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = Categories("s", tuple((f"word{n}",) for n in range(400)))
    many = normalize(parse(" OR ".join(f"s LIKE '%{n}z%'" for n in range(250)) + " OR s IS NULL"))
    few = normalize(parse("s LIKE '%d7' OR s = 5"))

    def fail(*_: object) -> bool:
        raise AssertionError("a category is tested")

    for form, expected in ((few, [(0, 0), (8, 8), (401, 401)]), (many, [(0, 401)])):
        (box,) = form.boxes
        assert cells_met.CellsMet([kinds], 16).boxes(box) == [(each,) for each in expected]
        monkeypatch.setattr(Strings, "__contains__", fail)
