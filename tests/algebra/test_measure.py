"""Volumes within a schema's bounds, and what merging adds to them."""

from __future__ import annotations

import pytest

from weft import Schema, normalize, parse, subtract
from weft.algebra.measure import volume
from weft.algebra.merge import merge, merge_attributes, merge_bounding, merge_perfect
from weft.errors import SchemaError
from weft.model.schema import Attribute
from weft.model.value import Type

SQUARE = Schema([Attribute("x", Type.FLOAT, 0, 1000), Attribute("y", Type.FLOAT, 0, 1000)])
S1 = parse("x BETWEEN 175 AND 510 AND y BETWEEN 180 AND 680")
S2 = parse("x BETWEEN 405 AND 840 AND y BETWEEN 110 AND 540")
S3 = parse("x BETWEEN 380 AND 720 AND y BETWEEN 230 AND 495")


def test_the_negative_space_example() -> None:
    """(Negative space, worked example) s3 is subsumed by s1 and s2, though neither covers it."""
    either = normalize(S1 | S2, SQUARE)
    assert volume(normalize(~(S1 | S2), SQUARE), SQUARE) == 683250
    assert volume(either, SQUARE) == 1000 * 1000 - 683250
    (box,) = normalize(S3, SQUARE).boxes
    assert subtract(box, either.boxes, SQUARE) == []
    assert subtract(box, either.boxes[:1], SQUARE) != []


def test_volume_counts_what_can_be_counted() -> None:
    schema = Schema(
        [
            Attribute("n", Type.INT, 0, 9),
            Attribute("on", Type.BOOL),
            Attribute("kind", Type.STRING, categories=("low", "mid", "high")),
        ]
    )
    assert volume(parse("TRUE"), schema) == 10 * 2 * 3
    assert volume(parse("n BETWEEN 3 AND 5 AND on AND kind != 'low'"), schema) == 3 * 1 * 2
    assert volume(parse("n > 7.5"), schema) == 2 * 2 * 3
    assert volume(parse("n IS NULL"), schema) == 0, "absence has no volume"


def test_a_precision_gives_points_a_size() -> None:
    fine = Schema([Attribute("x", Type.FLOAT, 0, 1, precision=0.1)])
    assert volume(parse("x = 0.3"), fine) == 1
    assert volume(parse("x >= 0.3 AND x < 0.7"), fine) == 4
    assert volume(parse("x < 0.3"), fine) + volume(parse("x >= 0.3"), fine) == volume(parse("TRUE"), fine) == 11


def test_volume_without_bounds_says_what_is_missing() -> None:
    with pytest.raises(SchemaError, match="bounds for 'x'"):
        volume(parse("x > 5"), Schema.of(x="float"))
    with pytest.raises(SchemaError, match="categories for 's'"):
        volume(parse("s = 'a'"), Schema.of(s="string"))
    with pytest.raises(SchemaError, match="add 'y'"):
        volume(parse("y > 5"), SQUARE.__class__([Attribute("x", Type.FLOAT, 0, 1)]))


def test_imperfect_mergers_state_what_they_add() -> None:
    left, right = (
        parse("x BETWEEN 0 AND 100 AND y BETWEEN 0 AND 100"),
        parse("x BETWEEN 200 AND 300 AND y BETWEEN 50 AND 200"),
    )
    assert merge_perfect([left, right], SQUARE) is None
    by_attribute, bounding = merge_attributes([left, right], SQUARE), merge_bounding([left, right], SQUARE)
    assert by_attribute is not None
    assert by_attribute.added == 200 * 200 - 100 * 100 - 100 * 150
    assert bounding.added == 300 * 200 - 100 * 100 - 100 * 150
    best = merge([left, right], SQUARE)
    assert (best.rule, best.added, best.perfect) == ("attributes", by_attribute.added, False)


def test_filters_of_unlike_structure_have_only_a_bounding_box() -> None:
    one, other = parse("x > 5 AND y = 1"), parse("x BETWEEN 1 AND 2")
    assert merge_attributes([one, other], SQUARE) is None
    merger = merge_bounding([one, other], SQUARE)
    assert merger.form == normalize(parse("x >= 1"), SQUARE)
    assert merge([one, other]).added is None, "without a schema there is nothing to measure with"


def test_a_covering_part_is_the_merger() -> None:
    wide, narrow = parse("x > 0"), parse("x > 5 AND y = 3")
    assert merge([narrow, wide]).rule == "covering"
    assert merge([narrow, wide]).form == normalize(wide)
