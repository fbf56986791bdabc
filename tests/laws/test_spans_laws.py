"""A span holds all of its set; an exact one is the set."""

from __future__ import annotations

import math

from hypothesis import given

from strategies import filters
from weft.algebra.normalize import normalize
from weft.algebra.spans import ColumnPart, only_string, span_of, values_of
from weft.algebra.strings import ALL_STRINGS, Strings
from weft.algebra.valueset import ANYTHING, ValueSet
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.ast import Filter
from weft.language.text import parse
from weft.order import FilterRelation


@given(filters())
def test_the_span_of_a_set_holds_the_set_and_an_exact_one_gives_it_back(wanted: Filter) -> None:
    texts: dict[str, int] = {}
    for box in normalize(wanted).boxes:
        for name, values in box.sets.items():
            span, exact = span_of(name, values, lambda text: texts.setdefault(text, len(texts)))
            if span is None:
                assert not exact
                continue
            assert span[0][0] == name
            back = values_of(span, list(texts))
            assert back.covers(values)
            assert exact == (back == values)


def test_which_sets_have_an_exact_span() -> None:
    def made(values: ValueSet) -> tuple[object, bool]:
        span, exact = span_of("x", values, lambda text: 7.0)
        return (None if span is None else (span[0][1], *span[1:])), exact

    big = 2**53 + 1
    assert made(ValueSet(numbers=((1, 1), (4, 0)))) == (
        (ColumnPart.NUMBERS, 1, 4, BOUNDED | LOW_OPEN | HIGH_OPEN),
        True,
    )
    assert made(ValueSet(numbers=((1, 0), (2, 0), (5, 1)))) == ((ColumnPart.NUMBERS, 1, math.inf, BOUNDED), False)
    assert made(ValueSet(numbers=((big, 0), (big, 1)))) == ((ColumnPart.NUMBERS, big - 1, big - 1, BOUNDED), False)
    assert made(ValueSet(timestamps=((3, 0), (9, 0)))) == ((ColumnPart.TIMESTAMPS, 3, 8, BOUNDED), True)
    assert made(ValueSet(timestamps=((3, 0),))) == ((ColumnPart.TIMESTAMPS, 3, math.inf, BOUNDED), True)
    assert made(ValueSet(timestamps=((3, 0), (4, 0), (6, 0)))) == ((ColumnPart.TIMESTAMPS, 3, math.inf, BOUNDED), False)
    assert made(ValueSet(bools=frozenset((False, True)))) == ((ColumnPart.BOOLS, 0, 1, BOUNDED), True)
    assert made(ValueSet(strings=ALL_STRINGS)) == ((ColumnPart.STRINGS, -math.inf, math.inf, BOUNDED), True)
    assert made(ValueSet(strings=Strings((("a", 0), ("a", 1))))) == ((ColumnPart.STRINGS, 7, 7, BOUNDED), True)
    assert made(ValueSet(strings=Strings((("a", 0), ("b", 0))))) == (
        (ColumnPart.STRINGS, -math.inf, math.inf, BOUNDED),
        False,
    )
    assert made(ANYTHING) == (None, False)
    assert made(ValueSet(numbers=((1, 0),), absent=True)) == (None, False)
    assert made(ValueSet(numbers=((1, 0),), strings=ALL_STRINGS)) == (None, False)
    assert only_string(ALL_STRINGS) is None


def test_a_filter_on_any_string_is_its_span_in_the_order() -> None:
    order = FilterRelation()
    every, one, like = (order.make(parse(text)) for text in ("s LIKE '%'", "s = 'a'", "s LIKE '%a'"))
    assert (every.exact, one.exact, like.exact) == (True, True, False)
    assert order.covers(every, one)
    assert order.covers(every, like)
    assert not order.covers(like, every)
    assert order.key(every) != order.key(like)
