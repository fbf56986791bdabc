"""The thesis's filters are as it describes them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from weft import is_empty
from weft.errors import SchemaError
from weft.language.ast import And, Between, Compare, attributes
from weft.workloads.thesis import ANY_PREDICATE, SCHEMAS, TOP, FilterSchema, in_turn


def parts(filter):
    return filter.operands if isinstance(filter, And) else (filter,)


@pytest.mark.parametrize(("name", "counts"), [("2d", {2}), ("3d", {3}), ("1-3", {1, 2, 3})])
def test_a_filter_has_a_range_on_as_many_attributes_as_the_schema_says(name, counts):
    drawn = SCHEMAS[name].draw(300, np.random.default_rng(1))
    assert len(drawn) == 300
    assert {len(parts(each)) for each in drawn} == counts
    assert frozenset().union(*map(attributes, drawn)) == set(SCHEMAS[name].names)
    ranges = [part for each in drawn for part in parts(each)]
    assert all(isinstance(part, Between) and 0 <= part.low.value <= part.high.value <= TOP for part in ranges)
    assert {part.low.value for part in ranges} | {part.high.value for part in ranges} == set(range(TOP + 1))


def test_the_number_of_attributes_and_their_choice_are_even():
    drawn = SCHEMAS["1-3"].draw(9_000, np.random.default_rng(1))
    counts = Counter(len(parts(each)) for each in drawn)
    assert all(2_700 < many < 3_300 for many in counts.values())
    alone = Counter(next(iter(attributes(each))) for each in drawn if len(parts(each)) == 1)
    assert all(900 < many < 1_100 for many in alone.values())


def test_the_same_seed_draws_the_same_filters():
    one, same, other = (SCHEMAS["3d"].draw(20, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_any_predicate_of_chapter_8_is_drawn_and_every_filter_can_match():
    schema = FilterSchema(("a", "b", "c"), 1, 3, ANY_PREDICATE, kind="A")
    drawn = schema.draw(500, np.random.default_rng(1))
    said = {"[a,b]" if isinstance(part, Between) else str(part.operator) for each in drawn for part in parts(each)[1:]}
    assert said == set(ANY_PREDICATE)
    assert all(isinstance(parts(each)[0], Compare) and str(parts(each)[0]) == "type = 'A'" for each in drawn)
    assert {len(parts(each)) for each in drawn} == {2, 3, 4}
    assert not any(map(is_empty, drawn))


def test_a_width_is_a_part_of_the_domain():
    schema = FilterSchema(("x", "y"), 2, 2, width=0.01)
    ranges = [part for each in schema.draw(200, np.random.default_rng(1)) for part in parts(each)]
    assert all(part.high.value - part.low.value == pytest.approx(1, abs=1e-5) for part in ranges)
    assert all(part.low.value >= 0 and part.high.value <= TOP for part in ranges)


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 0},
        {"most": 3},
        {"least": 2, "most": 1},
        {"predicates": ()},
        {"predicates": ("~",)},
        {"width": 0.0},
        {"width": 1.5},
    ],
)
def test_a_schema_is_valid_from_birth(wrong):
    with pytest.raises(SchemaError):
        FilterSchema(**{"names": ("a", "b"), "least": 1, "most": 2, **wrong})


def test_interfaces_come_in_turn():
    assert in_turn([10, 11, 12, 13, 14], "ab") == [(10, "a"), (11, "b"), (12, "a"), (13, "b"), (14, "a")]
