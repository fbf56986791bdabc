"""Relations of filters that are too complex to compare: the safe side, never an error."""

from __future__ import annotations

import pytest

from weft import covers, matches, normalize, overlaps, parse
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
