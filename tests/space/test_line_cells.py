"""Lines of many intervals in cells: each cell is looked up in the line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.algebra import interval
from weft.algebra.valueset import ValueSet
from weft.model.value import Type
from weft.space.line_cells import LineCells

CUTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), unique=True, max_size=24).map(sorted).map(tuple)


@given(CUTS, CUTS.filter(lambda cuts: len(cuts) < 5), st.booleans())
def test_a_line_takes_the_cells_that_its_intervals_meet(line: interval.Line, cuts: interval.Line, below: bool) -> None:
    whole = (*interval.NUMBERS, *line) if below else line
    cells = LineCells("x", Type.FLOAT, cuts)
    met = {cell for cell, _ in cells._cells_met(whole)}
    edges = (interval.NUMBERS[0], *cuts)
    for cell in range(1, len(cuts) + 2):
        high = cuts[cell - 1 : cell]
        assert (cell in met) == bool(interval.intersect(whole, (edges[cell - 1], *high)))


def test_a_long_list_is_in_the_cells_of_its_values() -> None:
    cells = LineCells("x", Type.INT, ((0, 0), (100, 0), (200, 1)))
    values = ValueSet(numbers=interval.points_line([*range(-300, -1, 3), 200, *range(201, 300)]), absent=True)
    assert cells.intervals(values, {}) == [(0, 1), (3, 4)]
