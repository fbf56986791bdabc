"""Segments with `_` are found where they first fit, by each of the three ways."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import SMILE, thorough
from weft.language.pattern import Pattern
from weft.language.segment_search import SegmentSearch, fits

chunks = st.lists(st.text(st.sampled_from(("a", "b", SMILE)), max_size=3), min_size=2, max_size=5).filter(any)
texts = st.text(st.sampled_from(("a", "b", SMILE)), max_size=80)

WAYS = {"one by one": (10**9, 0), "at once": (-1, 10**9), "by convolution": (-1, 0), "all three": (3, 4)}


@given(chunks, texts, st.integers(0, 4), st.integers(0, 4))
@thorough(100)
def test_every_way_finds_the_first_place(segment: list[str], text: str, start: int, cut: int) -> None:
    sought, end = tuple(segment), max(start, len(text) - cut)
    length = sum(map(len, sought)) + len(sought) - 1
    first = next((at for at in range(start, end - length + 1) if fits(sought, text, at)), -1)
    for patience, few_signs in WAYS.values():
        assert SegmentSearch(text, patience, few_signs).find(sought, length, start, end) == first


@given(st.text(st.sampled_from("ab%_"), max_size=10), st.text(st.sampled_from("ab"), max_size=14))
@thorough(200)
def test_a_pattern_matches_what_its_regular_expression_does(pattern: str, text: str) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(sign, sign) for sign in pattern)
    assert Pattern.of(pattern).matches(text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


@pytest.mark.parametrize("letters", [3, 300, 70_000], ids=["one plane", "two planes", "beyond the text"])
def test_a_convolution_tells_all_letters_apart(letters: int) -> None:
    some = [chr(0x10000 + letter) for letter in range(min(letters, 600))]
    segment = tuple(some)
    length = 2 * len(some) - 1
    nearly = "_".join([*some[:-1], some[0]])
    text = nearly + "_" + "_".join(some) + nearly
    assert SegmentSearch(text, -1, 0).find(segment, length, 0, len(text)) == length + 1
    assert SegmentSearch(nearly * 3, -1, 0).find(segment, length, 0, 3 * length) == -1


def calls(pattern: str, text: str) -> int:
    """How many calls of functions a match takes, built-in ones included."""
    compiled, used = Pattern.of(pattern), 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal used
        used += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        compiled.matches(text)
    finally:
        sys.setprofile(None)
    return used


@pytest.mark.parametrize("pattern", [f"%{'a_' * 10}b%", f"%{'a_' * 400}b%", f"%{'aab_' * 50}c%", "%a_b%a_b%a_c%"])
def test_a_long_text_takes_few_calls(pattern: str) -> None:
    few, many = (calls(pattern, "a" * size) for size in (10_000, 160_000))
    assert many < 20_000
    assert many < 16 * few


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (f"%{'a_' * 30_000}b%", "a" * 200_000, False),
        (f"%{'a_' * 30_000}b%", "a" * 150_000 + "b", True),
        (f"%{'a_' * 1_000}b%", "a" * 200_000 + "xab", False),
        (f"%{'a_' * 1_000}b%", "a" * 200_000 + "xb", True),
        (f"%{'a_' * 20}b%", "a" * 200_000 + "xb", True),
        (f"%{'a_' * 20}b%{SMILE}", "a" * 100_000 + "xb" + SMILE, True),
        (f"%{'a_' * 20}b%", ("a" * 30 + "c") * 5_000, False),
    ],
)
def test_hostile_texts_are_matched_exactly(pattern: str, text: str, found: bool) -> None:
    assert Pattern.of(pattern).matches(text) is found
