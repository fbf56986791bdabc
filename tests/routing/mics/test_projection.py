"""Choosing and grouping attributes: only false positives grow, and the measure is the brute-force one."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.errors import SchemaError
from weft.kernels.arrays import Ints
from weft.routing.mics.projected_index import choose, group, measure, selectivity
from weft.space.grid import CellBoxes


def boxes(lows: list[list[int]], highs: list[list[int]]) -> CellBoxes:
    return CellBoxes(np.array(lows, np.int64), np.array(highs, np.int64), np.arange(len(lows)))


@st.composite
def samples(draw: st.DrawFn) -> tuple[CellBoxes, Ints]:
    dims = draw(st.integers(1, 4))
    row = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted), min_size=dims, max_size=dims)
    rows = np.array(draw(st.lists(row, min_size=1, max_size=6)), np.int64)
    cells = draw(st.lists(st.lists(st.integers(0, 4), min_size=dims, max_size=dims), min_size=1, max_size=12))
    return CellBoxes(rows[:, :, 0].copy(), rows[:, :, 1].copy(), np.arange(len(rows))), np.array(cells, np.int64)


def inside(sample: CellBoxes, cells: Ints, dims: list[int]) -> Ints:
    """bool[boxes, cells]: which boxes hold which cells in these dimensions."""
    low, high, at = sample.lows[:, None, dims], sample.highs[:, None, dims], cells[None][:, :, dims]
    return ((low <= at) & (at <= high)).all(axis=2)


@given(samples(), st.integers(1, 4))
@thorough(150)
def test_groups_hold_every_dimension_once_and_lose_nothing(sample: tuple[CellBoxes, Ints], size: int) -> None:
    held, cells = sample
    dims = cells.shape[1]
    groups = group(held, cells, size)
    assert sorted(chain.from_iterable(groups)) == list(range(dims))
    assert all(1 <= len(members) <= size for members in groups)
    traffic = measure(held, cells, groups)
    wanted = inside(held, cells, list(range(dims))).any(axis=0)
    forwarded = np.logical_and.reduce([inside(held, cells, list(each)).any(axis=0) for each in groups])
    assert (traffic.events, traffic.forwarded, traffic.wanted) == (len(cells), forwarded.sum(), wanted.sum())
    assert not (wanted & ~forwarded).any()


@given(samples(), st.integers(1, 4))
@thorough(150)
def test_each_choice_leaves_the_fewest_pairs(sample: tuple[CellBoxes, Ints], count: int) -> None:
    held, cells = sample
    dims = cells.shape[1]
    count = min(count, dims)
    choice = choose(held, cells, count)
    assert len(set(choice.dimensions)) == count
    for at in range(count):
        before = list(choice.dimensions[:at])
        shares = {d: inside(held, cells, [*before, d]).mean() for d in range(dims) if d not in before}
        assert choice.passing[at] == pytest.approx(min(shares.values()))
        assert shares[choice.dimensions[at]] == min(shares.values())
    alone = selectivity(held, cells)
    assert alone == pytest.approx([inside(held, cells, [d]).mean() for d in range(dims)])


def test_a_second_attribute_that_says_the_same_is_not_chosen() -> None:
    """x and its copy are the most selective; after x the copy rejects nothing, y does."""
    held = boxes([[0, 0, 0], [4, 4, 0]], [[1, 1, 3], [5, 5, 3]])
    cells = np.array([[x, x, y] for x in range(8) for y in range(8)])
    assert selectivity(held, cells).tolist() == [0.25, 0.25, 0.5]
    assert choose(held, cells, 2).dimensions == (0, 2)
    assert choose(held, cells, 2).passing == (0.25, 0.125)


def test_attributes_that_differ_together_are_grouped() -> None:
    """Each subscription wants a pair (0, 1) of its own; apart they would let every mixture through."""
    held = boxes([[i, i, 0, 0] for i in range(4)], [[i, i, 9, 9] for i in range(4)])
    cells = np.array([[a, b, c, c] for a in range(4) for b in range(4) for c in range(2)])
    groups = group(held, cells, 2)
    assert (0, 1) in groups
    assert measure(held, cells, groups).false_positives == 0
    apart = measure(held, cells, [(0, 2), (1, 3)])
    assert (apart.forwarded, apart.wanted, apart.false_positives) == (32, 8, 0.75)


def test_false_positives_against_the_truth() -> None:
    held = boxes([[0, 0]], [[3, 3]])
    cells = np.array([[0, 0], [1, 9], [9, 9]])
    traffic = measure(held, cells, [(0,)], wanted=np.array([True, False, False]))
    assert (traffic.forwarded, traffic.wanted, traffic.false_positives) == (2, 1, 0.5)
    assert measure(held, cells[2:], [(0,)]).false_positives == 0


def test_what_is_refused() -> None:
    held, cells = boxes([[0, 0]], [[3, 3]]), np.zeros((2, 2), np.int64)
    with pytest.raises(SchemaError, match="cannot choose 3 of 2 attributes; give a number from 1 to 2"):
        choose(held, cells, 3)
    with pytest.raises(SchemaError, match="needs a sample"):
        choose(held, cells[:0], 1)
    with pytest.raises(SchemaError, match="use one grid"):
        selectivity(held, cells[:, :1])
    with pytest.raises(SchemaError, match="at least"):
        group(held, cells, 0)
