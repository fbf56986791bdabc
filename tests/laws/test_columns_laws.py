"""Columns of boxes answer as the boxes do, row by row; texts in bulk give the boxes that they give one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import A, all_tests, filters, thorough
from weft.algebra.box import Box
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.errors import FilterError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.schema import Schema

boxes = filters(4).map(lambda f: normalize(f).boxes)


@given(st.lists(filters(4), max_size=8), filters(4))
@thorough(400)
def test_every_answer_is_the_boxes_own(rows: list[Filter], asked: Filter) -> None:
    held = [box for row in rows for box in normalize(row).boxes]
    columns = BoxColumns.of(held)
    assert list(columns) == held
    for box in normalize(asked).boxes:
        assert columns.covered_by(box).tolist() == [box.covers(row) for row in held]
        assert columns.covering(box).tolist() == [row.covers(box) for row in held]
        assert columns.overlapping(box).tolist() == [row.overlaps(box) for row in held]


def test_every_two_tests_of_one_attribute_agree_with_their_columns() -> None:
    held = [box for test in all_tests(A) for box in normalize(test).boxes]
    columns = BoxColumns.of(held)
    assert 0 < len(columns.odd) < len(held) / 2
    for box in held:
        assert columns.covered_by(box).tolist() == [box.covers(row) for row in held]
        assert columns.covering(box).tolist() == [row.covers(box) for row in held]
        assert columns.overlapping(box).tolist() == [row.overlaps(box) for row in held]


_numbers = st.one_of(
    st.integers(-3, 3).map(str),
    st.sampled_from(["0.5", "-1.5", "1e3", "2.", ".5", "-0.0", "9007199254740993", "-9223372036854775808", "1e-320"]),
)
_strings = st.sampled_from(["'a'", "'b'", "'it''s'", "''", "'ü'"])
_moments = st.sampled_from(
    ["'2018-02-01'", "'1018-02-01T00:00:00.5Z'", "'2018-02-01T00:00:00.000001Z'", "'9999-12-31'"]
)
_comparisons = st.sampled_from(["=", "<", "<=", ">", ">=", "!="])
_names = st.sampled_from(["x", "y", '"z 1"'])
_test = st.one_of(
    st.tuples(_names, _comparisons, _numbers).map(" ".join),
    st.tuples(_names, st.just("="), _strings).map(" ".join),
    st.tuples(_names, _comparisons, _strings).map(" ".join),
    st.tuples(_names, _comparisons, st.just("TIMESTAMP"), _moments).map(" ".join),
    st.tuples(_numbers, _comparisons, _names).map(" ".join),
    st.tuples(_names, _numbers, _numbers).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}"),
    st.tuples(_names, _numbers, _numbers).map(lambda t: f"{t[0]} IN ({t[1]}, {t[2]})"),
    st.sampled_from(["x", "x IS NULL", "x LIKE 'a%'", "x = TRUE", "1 < 2"]),
)
_texts = st.lists(
    st.one_of(
        st.lists(_test, min_size=1, max_size=3).map(" AND ".join),
        st.lists(_test, min_size=2, max_size=3).map(" OR ".join),
    ),
    max_size=12,
)
_schemas = st.sampled_from(
    [None, Schema.of(x="int"), Schema.of(x="string", y="timestamp"), Schema.of(x="float", y="bool")]
)


@given(_texts, _schemas)
@thorough(500)
def test_bulk_texts_become_the_boxes_of_each(texts: list[str], schema: Schema | None) -> None:
    one_by_one: list[tuple[int, Box]] = []
    for number, text in enumerate(texts):
        one_by_one += [(number, box) for box in normalize(parse(text), schema).boxes]
    columns = columns_of_texts(texts, schema)
    assert list(zip(columns.owners.tolist(), columns, strict=True)) == one_by_one
    assert list(BoxColumns.of([box for _, box in one_by_one])) == [box for _, box in one_by_one]
    for _, box in one_by_one[:4]:
        assert columns.covering(box).tolist() == [row.covers(box) for _, row in one_by_one]
        assert columns.covered_by(box).tolist() == [box.covers(row) for _, row in one_by_one]


@pytest.mark.parametrize(
    "bad", ["x >", "x = 1e999", "x = 99999999999999999999", "x = TIMESTAMP '2018-13-01'", "x = 1e-400"]
)
def test_a_bad_text_among_many_is_named(bad: str) -> None:
    good = ["x = 1", "x = 1.5", "x = TIMESTAMP '2018-01-01'"]
    with pytest.raises(FilterError) as caught:
        columns_of_texts([*good, bad, *good])
    assert caught.value.position == 3


def test_no_texts_give_no_rows() -> None:
    columns = columns_of_texts([])
    assert len(columns) == 0
    assert columns.covered_by(Box({})).tolist() == []


@pytest.mark.parametrize(
    "text", ["x <= 1e17", "x = 1e17", "x > 1e17", "x < 9007199254740993", "x >= 9007199254740992.0"]
)
def test_integers_beyond_floats_are_as_one_by_one(text: str) -> None:
    schema = Schema.of(x="int")
    rows = columns_of_texts([text, "x > 5"], schema)
    assert [rows.box(row) for row in range(len(rows)) if rows.owners[row] == 0] == list(
        normalize(parse(text), schema).boxes
    )


def test_a_text_that_is_too_long_is_refused_alone() -> None:
    refused: dict[int, FilterError] = {}
    rows = columns_of_texts(["x > 1 OR " * 8000 + "x > 2", "y > 1", "s = '\ud800'"], refused=refused)
    assert sorted(refused) == [0, 2]
    assert rows.owners.tolist() == [1]


@pytest.mark.parametrize(
    "values", [["10000"], [True], np.array(["2018-02-01"], "M8[D]")], ids=["string", "bool", "day"]
)
def test_bounds_that_are_no_numbers_are_refused(values: Any) -> None:
    with pytest.raises(FilterError, match="not numbers"):
        BoxColumns.from_bounds({"x": (values, values)})
