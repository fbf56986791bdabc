"""What is shared of a filter is what each space would find by itself: checked with spaces of their own and with every
event of a tiny world.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, number_filters, thorough
from weft.algebra.box import Box, NormalForm
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers
from weft.language.meaning import matches
from weft.routing.negative.space import FilterProducts, LabelAxes, SharedFilters

SHAPES = [(most_axes, most_rows) for most_axes in (0, 1, 8) for most_rows in (1, 2, 64)]

asked = st.lists(  # which filter is the newest, whether spaces may widen, and what it is compared with
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=6
)


def _boxes(axes: LabelAxes, products: FilterProducts) -> list[Box]:
    lows, highs = axes.rows(products.around)
    return [axes.box(low, high) for low, high in zip(lows, highs, strict=True)]


def _admitting(boxes: list[Box]) -> set[int]:
    return {at for at, event in enumerate(EVENTS) if any(box.admits(event) for box in boxes)}


def _spaces(shapes: list[int]) -> list[LabelAxes]:
    return [LabelAxes(most_axes=SHAPES[shape][0], most_rows=SHAPES[shape][1]) for shape in shapes]


@given(st.lists(filters(), min_size=4, max_size=4), st.lists(st.integers(0, 8), min_size=4, max_size=4), asked)
@thorough(100, 40)
def test_spaces_that_share_find_what_they_find_alone(
    given_filters: list[Any], shapes: list[int], calls: list[tuple[int, bool, int]]
) -> None:
    """One object serves all spaces; beside it each space has a twin, which shares with nobody."""
    forms = [normalize(each) for each in given_filters]
    shared, spaces, twins = SharedFilters(), _spaces(shapes), _spaces(shapes)
    for newest, widen, other in calls:
        for space, twin in zip(spaces, twins, strict=True):
            found = shared.products(forms[newest], space, widen=widen)
            alone = SharedFilters().products(forms[newest], twin, widen=widen)
            assert found == alone
            assert list(space) == list(twin)
            for one, two in zip(space.rows(found.around), twin.rows(alone.around), strict=True):
                assert np.array_equal(one, two)
        assert shared.covers(forms[other], forms[newest]) == SharedFilters().covers(forms[other], forms[newest])


@given(filters(), st.integers(0, 8), st.booleans())
@thorough(200, 60)
def test_products_are_around_the_filter_and_the_first_ones_within(wanted: Any, shape: int, widen: bool) -> None:
    (axes,) = _spaces([shape])
    found = SharedFilters().products(normalize(wanted), axes, widen=widen)
    true = {at for at, event in enumerate(EVENTS) if matches(wanted, event)}
    boxes = _boxes(axes, found)
    assert true <= _admitting(boxes), "an event would be lost"
    assert _admitting(boxes[: found.exact]) <= true, "a part must be within the filter"
    assert found.whole == (found.exact == len(boxes))
    assert found.exact <= axes.most_rows
    assert len(boxes) <= axes.most_rows + 1, "one is around all that is left"


@given(number_filters(), number_filters())
@thorough(200, 60)
def test_covering_is_what_the_algebra_proves(wide: Any, narrow: Any) -> None:
    other, form = normalize(wide), normalize(narrow)
    shared = SharedFilters()
    covered, steps = shared.covers(other, form)
    assert covered == covers(other, form)
    assert shared.covers(other, form) == (covered, steps), "it is remembered"
    if covered:
        assert all(matches(wide, event) for event in EVENTS if matches(narrow, event))


def test_a_new_filter_takes_the_place_of_the_old_one() -> None:
    """Filters that are equal are not the same one: what was known of the old one is not asked for any more."""
    wide, narrow = normalize("x > 1"), normalize("x > 2")
    shared, known = SharedFilters(), NormalForm(narrow.boxes, narrow.schema)
    axes = LabelAxes()
    first = shared.products(narrow, axes)
    assert shared.products(narrow, axes) is first
    assert shared.covers(wide, known)[0]
    again = shared.products(narrow, axes)
    assert again == first
    assert again is not first
