"""The index of boxes by covering, against the boxes themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plain_python import compiled_and_plain
from strategies import filters, thorough
from weft.algebra.relate import covers, is_empty
from weft.algebra.spans import ColumnPart, Span
from weft.errors import OptionError
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.text import parse
from weft.order import FilterRelation, Forest
from weft.order.cover_index import CoverIndex

AXES = [
    ("x", ColumnPart.NUMBERS),
    ("y", ColumnPart.NUMBERS),
    ("kind", ColumnPart.STRINGS),
    ("z", ColumnPart.TIMESTAMPS),
    ("w", ColumnPart.BOOLS),
]
Box = dict[int, tuple[float, float, int]]

ends = st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from((0, LOW_OPEN, HIGH_OPEN, LOW_OPEN | HIGH_OPEN)))
intervals = ends.map(lambda e: (float(min(e[:2])), float(max(e[:2])), BOUNDED | e[2]))
boxes = st.dictionaries(st.integers(0, len(AXES) - 1), intervals | st.just((-np.inf, np.inf, BOUNDED)), max_size=4)


def spans(box: Box) -> list[Span]:
    return [(AXES[axis], *interval) for axis, interval in box.items()]


def starts(low: float, marks: int) -> tuple[float, bool]:
    return low, bool(marks & LOW_OPEN)


def ends_at(high: float, marks: int) -> tuple[float, bool]:
    return high, not marks & HIGH_OPEN


def holds(wide: Box, narrow: Box) -> bool:
    """Whether one box is in the other, interval by interval."""
    return all(
        axis in narrow
        and starts(low, marks) <= starts(narrow[axis][0], narrow[axis][2])
        and ends_at(high, marks) >= ends_at(narrow[axis][1], narrow[axis][2])
        for axis, (low, high, marks) in wide.items()
    )


def meets(one: Box, other: Box) -> bool:
    """Whether two boxes share a point on every axis that both bound."""
    return all(
        starts(one[axis][0], one[axis][2]) < ends_at(other[axis][1], other[axis][2])
        and starts(other[axis][0], other[axis][2]) < ends_at(one[axis][1], one[axis][2])
        for axis in one.keys() & other.keys()
    )


@given(data=st.data())
@thorough(150)
def test_every_answer_is_that_of_the_boxes(data: st.DataObject) -> None:
    """Rows come and go, with buffers and leaves so small that runs are merged, packed and widened all the time."""
    leaf = data.draw(st.integers(1, 3))
    index = CoverIndex(buffer=data.draw(st.integers(leaf, 4)), leaf=leaf, run=data.draw(st.integers(4, 16)))
    rows: dict[int, Box] = {}
    for box, gone in data.draw(st.lists(st.tuples(boxes, st.booleans()), max_size=40)):
        if gone and rows:
            row = next(iter(rows))
            del rows[row]
            index.discard(row)
        else:
            row = index.add(spans(box), exact=True)
            assert row not in rows
            rows[row] = box
            index.tag(row, 1 << len(box))
        index.check()
        assert len(index) == len(rows)
    for asked in data.draw(st.lists(boxes, min_size=1, max_size=5)):
        around = {row for row, box in rows.items() if holds(box, asked)}
        assert sorted(index.around(spans(asked), exact=True)) == sorted(around)
        assert sorted(index.within(spans(asked), exact=True)) == sorted(
            r for r, box in rows.items() if holds(asked, box)
        )
        meeting = {row for row, box in rows.items() if meets(box, asked)}
        if all(starts(low, m) < ends_at(high, m) for low, high, m in asked.values()):
            assert {r for r in index.meeting(spans(asked), exact=True) if real(rows[r])} == {
                r for r in meeting if real(rows[r])
            }
        for size in range(5):
            found = index.around_until(spans(asked), True, 1 << size)
            assert (found is None) == any(len(rows[row]) == size for row in around)
            assert found is None or sorted(found) == sorted(around)


def real(box: Box) -> bool:
    """Whether no interval is empty: the algebra never makes such a box."""
    return all(starts(low, marks) < ends_at(high, marks) for low, high, marks in box.values())


@given(st.lists(filters(5), max_size=12), filters(5))
@thorough(150)
def test_filters_of_the_whole_language_are_found(rows: list[object], asked: object) -> None:
    """Hulls lead to all that `covers` proves, node by node, and to nothing else."""
    things = {thing for thing in rows if not is_empty(thing)}  # type: ignore[arg-type]
    if is_empty(asked):  # type: ignore[arg-type]
        return
    forest, one_by_one = Forest(FilterRelation()), FilterRelation(indexed=False)
    for thing in things:
        forest.add(thing)  # type: ignore[arg-type]
    nodes = {node.thing for node in forest}
    made = one_by_one.make(asked)  # type: ignore[arg-type]
    assert {node.thing for node in forest.covering(asked)} == {  # type: ignore[arg-type]
        thing
        for thing in nodes
        if one_by_one.covers(one_by_one.make(thing), made)  # type: ignore[arg-type]
    }
    assert {node.thing for node in forest.covered(asked)} == {  # type: ignore[arg-type]
        thing
        for thing in nodes
        if one_by_one.covers(made, one_by_one.make(thing))  # type: ignore[arg-type]
    }


def test_numbers_that_float64_cannot_hold() -> None:
    """Ends that round to the same float are told apart by the filters themselves."""
    big = 2**53
    texts = [f"x {op} {big + step}" for op in (">", ">=", "<", "<=", "=") for step in (-1, 0, 1, 2, 3)]
    forest = Forest(FilterRelation())
    for text in texts:
        forest.add(parse(text))
    for text in texts:
        expected = {other for other in texts if covers(parse(other), parse(text))}
        found = {str(node.thing) for node in forest.covering(parse(text))}
        assert {t for t in expected if any(str(n.thing) == t for n in forest)} <= found <= expected


def test_more_attributes_than_axes() -> None:
    """Beyond the axes that rows have, the filters decide: nothing is lost, and nothing is claimed."""
    texts = [f"a{n} > 0 AND a{n + 1} > 0" for n in range(90)]
    forest = Forest(FilterRelation())
    for text in texts:
        forest.add(parse(text))
    assert len(list(forest.roots)) == 90
    forest.add(parse("a80 > 0"))
    assert len(list(forest.roots)) == 89
    forest.add(parse("a80 > 1 AND a81 > 1"))
    assert len(list(forest.roots)) == 89
    assert {str(n.thing) for n in forest.covered(parse("a80 > 0"))} == {
        "a80 > 0",
        texts[79],
        texts[80],
        "a80 > 1 AND a81 > 1",
    }


def test_rows_that_are_let_go_are_used_again() -> None:
    index = CoverIndex(buffer=4, leaf=2)
    axis = AXES[0]
    for turn in range(200):
        row = index.add([(axis, float(turn), float(turn), BOUNDED)], exact=True)
        index.discard(row)
        index.check()
    assert row < 16


def test_after_a_packing_no_change_builds_more_than_one_tree() -> None:
    index = CoverIndex(buffer=4, leaf=2, run=8)
    rows = [index.add([(AXES[0], float(n), float(n), BOUNDED)], exact=True) for n in range(100)]
    for row in rows[:51]:
        index.discard(row)
    left = rows[51:]
    for row in left[:10]:
        index.check()
        assert sorted(index.within([(AXES[0], 0.0, 100.0, BOUNDED)], exact=True)) == sorted(left)
        index.discard(row)
        left.remove(row)


@pytest.mark.parametrize(("buffer", "leaf"), [(4, 0), (2, 4)])
def test_a_buffer_holds_a_leaf(buffer: int, leaf: int) -> None:
    with pytest.raises(OptionError, match="leaf <= buffer"):
        CoverIndex(buffer=buffer, leaf=leaf)


def test_without_the_compiler() -> None:
    """The same answers from the kernels as plain Python."""
    code = (
        "import numpy as np; from weft.order.cover_index import CoverIndex; from weft.kernels.boxes import BOUNDED\n"
        "from weft.algebra.columns import ColumnPart; rng = np.random.default_rng(1); index = CoverIndex(8, 2)\n"
        "ends = lambda: sorted(rng.integers(0, 20, 2).astype(float))\n"
        "span = lambda: [((a, ColumnPart.NUMBERS), *ends(), BOUNDED) for a in 'xy']\n"
        "rows = [index.add(span(), True) for _ in range(60)]; [index.discard(row) for row in rows[::3]]\n"
        "print([sorted(f(span(), True)) for f in (index.around, index.within, index.meeting) for _ in range(5)])\n"
    )
    compiled, plain = compiled_and_plain(code)
    assert compiled == plain


def test_no_addition_moves_more_than_some_rows() -> None:
    """Sixteen times smaller than the sizes that an index has: 6,250 rows in place of 100,000."""
    index = CoverIndex(buffer=16, leaf=4, run=1_024)
    most = 0
    for number in range(6_250):
        before = index.moved
        index.add([("x", float(number), number + 1.0, BOUNDED)], exact=True)
        most = max(most, index.moved - before)
    index.check()
    assert most <= 2 * 1_024, "a tree of one run, and as many rows that are copied"
    assert index.around([("x", 5_000.5, 5_000.75, BOUNDED)], exact=True) == [5_000]
