"""The curves against two independent packages, and their ranges against every cell, sorted."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hilbert import encode
from hilbertcurve.hilbertcurve import HilbertCurve
from hypothesis import given
from hypothesis import strategies as st

from plain_python import compiled_and_plain
from strategies import thorough
from weft.errors import SchemaError
from weft.kernels.arrays import Ints
from weft.kernels.jit import COMPILED
from weft.space.curve import Curve, Order
from weft.space.range_set import RangeSet

ORDERS = list(Order)
compiled = pytest.mark.skipif(not COMPILED, reason="many boxes: too much for plain Python")


def all_cells(low: tuple[int, ...], high: tuple[int, ...]) -> Ints:
    return np.array(list(product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))), np.int64)


def sorted_ranges(curve: Curve, low: tuple[int, ...], high: tuple[int, ...]) -> list[tuple[int, int]]:
    """What the descent must find: the index of every cell, sorted and joined."""
    indexes = np.sort(curve.index(all_cells(low, high)))
    breaks = np.flatnonzero(np.diff(indexes) > 1)
    starts, ends = indexes[np.append(0, breaks + 1)], indexes[np.append(breaks, len(indexes) - 1)]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def pairs(found: RangeSet) -> list[tuple[int, int]]:
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


def test_the_papers_example() -> None:
    curve = Curve(dims=2, bits=3)
    assert curve.index([(0, 0), (7, 0), (3, 5), (5, 3), (6, 2)]).tolist() == [0, 63, 28, 52, 50]
    found = curve.ranges((4, 2), (6, 5))
    assert pairs(found) == [(32, 35), (45, 46), (50, 55)]
    assert found.contains([28, 52, 50]).tolist() == [False, True, True]


@pytest.mark.parametrize("dims", range(2, 9))
def test_hilbert_is_the_curve_of_two_other_packages(dims: int) -> None:
    """Both number the axes as we do: the first dimension is the one in which the curve ends."""
    rng = np.random.default_rng(dims)
    for bits in (1, 2, 3, 5, 63 // dims):
        cells = rng.integers(0, 2**bits, (60, dims))
        mine = Curve(dims, bits).index(cells)
        assert mine.tolist() == HilbertCurve(bits, dims).distances_from_points(cells.tolist())
        assert mine.tolist() == encode(cells, dims, bits).tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("dims", "bits"), [(1, 1), (1, 6), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2), (8, 1), (11, 1)])
def test_every_index_has_one_cell(dims: int, bits: int, order: Order) -> None:
    curve = Curve(dims, bits, order)
    cells = curve.cells(np.arange(curve.last + 1))
    assert len(np.unique(cells, axis=0)) == curve.last + 1
    assert curve.index(cells).tolist() == list(range(curve.last + 1))
    if order is Order.HILBERT:
        assert (np.abs(np.diff(cells, axis=0)).sum(axis=1) == 1).all()
        assert cells[0].tolist() == [0] * dims
        assert cells[-1].tolist() == [2**bits - 1] + [0] * (dims - 1)
    if order is Order.GRAY:  # one bit of one coordinate changes
        changed = cells[1:] ^ cells[:-1]
        assert (np.bitwise_count(changed).sum(axis=1) == 1).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("dims", "bits"), [(1, 63), (63, 1), (7, 9), (3, 21), (21, 3)])
def test_the_longest_indexes(dims: int, bits: int, order: Order) -> None:
    curve = Curve(dims, bits, order)
    rng = np.random.default_rng(3)
    indexes = np.concatenate([rng.integers(0, curve.last, 50), [0, 1, curve.last - 1, curve.last]])
    assert curve.index(curve.cells(indexes)).tolist() == indexes.tolist()
    top = 2**bits - 1
    assert pairs(curve.ranges([0] * dims, [top] * dims)) == [(0, curve.last)]
    for cell in curve.cells(indexes[-6:]):
        index = int(curve.index([cell])[0])
        assert pairs(curve.ranges(cell, cell)) == [(index, index)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_every_box_in_two_dimensions(bits: int, order: Order) -> None:
    curve = Curve(2, bits, order)
    sides = [(a, b) for a, b in product(range(2**bits), repeat=2) if a <= b]
    corners = [((a, c), (b, d)) for (a, b), (c, d) in product(sides, repeat=2)]
    found = curve.range_sets([low for low, _ in corners], [high for _, high in corners])
    for row, (low, high) in enumerate(corners):
        assert pairs(found[row]) == sorted_ranges(curve, low, high)


@st.composite
def curves_and_boxes(draw: st.DrawFn) -> tuple[Curve, tuple[int, ...], tuple[int, ...]]:
    dims, bits = draw(st.sampled_from([(1, 5), (2, 5), (3, 3), (3, 2), (4, 2), (4, 3), (5, 2), (6, 1)]))
    ends = [sorted(draw(st.tuples(*[st.integers(0, 2**bits - 1)] * 2))) for _ in range(dims)]
    return (
        Curve(dims, bits, draw(st.sampled_from(ORDERS))),
        tuple(low for low, _ in ends),
        tuple(high for _, high in ends),
    )


@given(curves_and_boxes())
@thorough(300)
def test_the_ranges_of_a_box_are_its_cells(case: tuple[Curve, tuple[int, ...], tuple[int, ...]]) -> None:
    curve, low, high = case
    assert pairs(curve.ranges(low, high, most=4096)) == sorted_ranges(curve, low, high)


def closed(ranges: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """The smallest gap closed, of equal ones the last, until there are few enough."""
    left = list(ranges)
    while len(left) > most:
        at = min(range(1, len(left)), key=lambda i: (left[i][0] - left[i - 1][1], -i))
        left[at - 1 : at + 1] = [(left[at - 1][0], left[at][1])]
    return left


@given(curves_and_boxes(), st.integers(1, 9))
@thorough(300)
def test_a_cap_closes_the_smallest_gaps(case: tuple[Curve, tuple[int, ...], tuple[int, ...]], most: int) -> None:
    curve, low, high = case
    assert pairs(curve.ranges(low, high, most, patience=10**6)) == closed(sorted_ranges(curve, low, high), most)


@given(curves_and_boxes(), st.integers(1, 9), st.integers(1, 12))
@thorough(300)
def test_little_patience_gives_more_cells_and_never_fewer(
    case: tuple[Curve, tuple[int, ...], tuple[int, ...]], most: int, patience: int
) -> None:
    curve, low, high = case
    found = curve.ranges(low, high, most, patience)
    assert 1 <= len(found.starts) <= most
    assert found.contains(curve.index(all_cells(low, high))).all()
    assert all(after[0] > before[1] + 1 for before, after in pairwise(pairs(found)))


def test_a_huge_box_in_six_dimensions_ends_and_is_not_everything() -> None:
    curve = Curve(6, 10)
    low, high = [1] * 6, [1022, 1022, 1022, 1022, 1022, 400]
    found = curve.ranges(low, high)
    assert len(found.starts) <= 256
    rng = np.random.default_rng(0)
    inside = rng.integers(low, np.array(high) + 1, (2000, 6))
    assert found.contains(curve.index(inside)).all()
    outside = inside.copy()
    outside[:, 5] = rng.integers(600, 1024, 2000)
    assert not found.contains(curve.index(outside)).all()


def test_many_boxes_at_once_are_each_box_alone() -> None:
    rng = np.random.default_rng(5)
    curve = Curve(3, 5)
    lows = rng.integers(0, 32, (300, 3))
    highs = np.minimum(lows + rng.integers(0, 20, (300, 3)), 31)
    for most, patience in ((1, 256), (4, 256), (200, 256), (4, 1), (4, 12), (200, 1)):
        found = curve.range_sets(lows, highs, most, patience)
        assert found.offsets[0] == 0
        for row in range(300):  # how deep the one before was followed is only where the search begins
            assert pairs(found[row]) == pairs(curve.ranges(lows[row], highs[row], most, patience))
    assert curve.range_sets([], []).offsets.tolist() == [0]


@compiled
@pytest.mark.parametrize(("side", "mean"), [(2, 1.994), (4, 3.985), (8, 7.968), (16, 15.934)])
def test_ranges_of_a_square_at_all_places(side: int, mean: float) -> None:
    """The published limit is q^(d-1); over all places of a grid of 256 x 256 it is this (MICS 3.3)."""
    places = np.array(list(product(range(257 - side), repeat=2)))
    found = Curve(2, 8).range_sets(places, places + side - 1)
    assert round(len(found.starts) / len(places), 3) == mean


@compiled
@pytest.mark.parametrize(("dims", "side"), [(3, 2), (3, 4), (3, 8), (4, 2), (4, 4), (4, 8)])
def test_ranges_of_a_cube_are_near_the_limit(dims: int, side: int) -> None:
    places = np.random.default_rng(7).integers(0, 257 - side, (2000, dims))
    found = Curve(dims, 8).range_sets(places, places + side - 1, most=4096)
    assert len(found.starts) / len(places) == pytest.approx(side ** (dims - 1), rel=0.03)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12), st.integers(1, 6))
@thorough(200)
def test_union_joins_what_touches(given_ranges: list[tuple[int, int]], most: int) -> None:
    cells = sorted({cell for start, more in given_ranges for cell in range(start, start + more + 1)})
    exact = [(a, b) for a, b in sorted_runs(cells)]
    starts = np.array([start for start, _ in given_ranges], np.int64)
    ends = starts + np.array([more for _, more in given_ranges], np.int64)
    assert pairs(RangeSet.union_of(starts, ends)) == exact
    assert pairs(RangeSet.union_of(starts, ends).capped(most)) == closed(exact, most)


def sorted_runs(cells: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for cell in cells:
        if runs and runs[-1][1] + 1 == cell:
            runs[-1] = (runs[-1][0], cell)
        else:
            runs.append((cell, cell))
    return runs


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Curve(8, 8), "at most 7 bits"),
        (lambda: Curve(64, 1), "at most 63 dimensions"),
        (lambda: Curve(0, 3), "at least 1 of both"),
        (lambda: Curve(2, 3, "peano"), "hilbert, z-order, gray"),  # type: ignore[arg-type]
        (lambda: Curve(2, 3).index([(8, 0)]), "from 0 to 7"),
        (lambda: Curve(2, 3).index([(0, 0, 0)]), "needs 2 per row"),
        (lambda: Curve(2, 3).cells([64]), "from 0 to 63"),
        (lambda: Curve(2, 3).ranges((4, 4), (3, 5)), "low above its high"),
        (lambda: Curve(2, 3).ranges((3, 4), (3, 5), most=0), "the cap 0"),
    ],
)
def test_wrong_curves_and_cells_are_refused(make: object, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        make()  # type: ignore[operator]


def test_the_same_without_a_compiler() -> None:
    """The kernels as plain Python, in a process of their own."""
    program = """
import numpy as np
from weft.space.curve import Curve, Order
for order in Order:
    curve = Curve(3, 2, order)
    found = curve.range_sets([(0, 1, 1), (1, 1, 0)], [(2, 3, 2), (3, 3, 3)], most=3)
    print(found.offsets.tolist(), found.starts.tolist(), found.ends.tolist())
    print(curve.index(curve.cells(np.arange(64))).tolist() == list(range(64)))
    for dims, bits in ((1, 63), (63, 1), (7, 9)):
        long = Curve(dims, bits, order)
        print(long.index(long.cells([long.last, 12345])).tolist(), long.ranges([0] * dims, [1] * dims).ends.tolist())
"""
    compiled, plain = compiled_and_plain(program)
    assert compiled == plain
    assert "True" in plain
    assert "False" not in plain
