"""Columns of bounds, as users have them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from weft import normalize, parse
from weft.algebra.columns import BoxColumns
from weft.errors import FilterError


def test_bounds_become_the_boxes_that_they_say() -> None:
    columns = BoxColumns.from_bounds(
        {
            "x": (np.array([1.0, math.nan, 3.0]), pa.array([2.0, 5.0, None])),
            "y": (None, [7, 8, 9]),
            "s": pa.array(["a", None, "b"]),
            "n": np.array([1, 2, 3]),
        }
    )
    wanted = [
        "x BETWEEN 1 AND 2 AND y <= 7 AND s = 'a' AND n = 1",
        "x <= 5 AND y <= 8 AND n = 2",
        "x >= 3 AND y <= 9 AND s = 'b' AND n = 3",
    ]
    assert list(columns) == [normalize(parse(text)).boxes[0] for text in wanted]


def test_a_row_with_its_ends_crossed_matches_nothing() -> None:
    columns = BoxColumns.from_bounds({"x": ([1.0, 5.0], [2.0, 4.0])})
    assert columns.owners.tolist() == [0]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"x": ([1.0], [2.0, 3.0])}, "1 and 2 rows"),
        ({"x": ([2**60], None)}, "beyond 53 bits"),
        ({"x": (["a"], ["b"])}, "not numbers"),
        ({"x": [object()]}, "not numbers"),
    ],
)
def test_wrong_bounds_say_what_is_wrong(bounds: dict[str, object], message: str) -> None:
    with pytest.raises(FilterError, match=message):
        BoxColumns.from_bounds(bounds)


def test_no_bounds_give_no_rows() -> None:
    assert len(BoxColumns.from_bounds({})) == 0
