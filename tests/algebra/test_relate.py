"""Relations of filters that are too complex to compare: the safe side, never an error."""

from __future__ import annotations

import pickle

import pytest

from weft import covers, matches, normalize, overlaps, parse
from weft.algebra.budget import Budget
from weft.algebra.strings import Strings
from weft.errors import FilterTooComplexError

MANY = " OR ".join(f"x LIKE '%{n}a%' AND x LIKE '%{n}b%' AND x NOT LIKE '%{n}c%'" for n in range(130))
MORE = " OR ".join(f"x LIKE '%{n}d%' AND x LIKE '%{n}e%' AND x NOT LIKE '%{n}f%'" for n in range(130))


def strings(text: str) -> Strings:
    (box,) = normalize(parse(text)).boxes
    return box.sets["x"].strings


def test_too_many_patterns_to_compare_are_neither_covered_nor_apart() -> None:
    with pytest.raises(FilterTooComplexError):
        strings(MANY).intersect(strings(MORE))
    one, other = normalize(parse(MANY)), normalize(parse(MORE))
    assert not covers(one, other)
    assert not covers(other, one)
    assert overlaps(one, other)
    assert matches(parse(f"({MANY}) AND ({MORE})"), {"x": "1a1b1d1e"})


def test_everything_covers_any_filter_without_looking_at_its_boxes() -> None:
    many = normalize(parse(" OR ".join(f"(a{n} > 1 AND b{n} < 5)" for n in range(200))))
    budget = Budget()
    assert covers(normalize(parse("TRUE")), many, budget=budget)
    assert budget.used == 0
    assert not covers(many, normalize(parse("TRUE")))


def test_a_call_of_a_predicate_is_equal_after_a_copy() -> None:
    (box,) = normalize(parse("cidr(ip, '10.0.0.0/8')")).boxes
    (subject,) = box.residuals
    known = hash(subject)
    (again,) = pickle.loads(pickle.dumps(box)).residuals
    assert again == subject
    assert hash(again) == known
    assert box in {pickle.loads(pickle.dumps(box)), *normalize(parse("cidr(ip, '11.0.0.0/8')")).boxes}
