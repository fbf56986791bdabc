"""A table of texts gives each text its code, and knows no other; texts that collide too often are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.index.known_texts import UNKNOWN, KnownTexts
from weft.kernels import text_table

TEXTS = st.text(st.sampled_from("ab\0é"), max_size=6)


@given(st.lists(TEXTS, unique=True, max_size=12), st.lists(TEXTS, max_size=12), st.integers(0, 3), st.booleans())
def test_a_known_text_has_its_code_and_any_other_none(
    known: list[str], asked: list[str], cut: int, large: bool
) -> None:
    codes = {text: 10 + at for at, text in enumerate(known)}
    array = pa.array(asked, pa.large_string() if large else pa.string()).slice(cut)
    assert KnownTexts.of(codes).codes_of(array).tolist() == [codes.get(text, UNKNOWN) for text in asked[cut:]]


def test_many_texts_are_nearly_all_found() -> None:
    codes = {f"S{n:05d}": n for n in range(1_000)}
    found = KnownTexts.of(codes).codes_of(pa.array(list(codes)))
    assert ((found == UNKNOWN) | (found == np.arange(1_000))).all()
    assert (found == UNKNOWN).sum() <= 10


def test_a_text_that_finds_no_place_is_left_out() -> None:
    letters, starts = np.frombuffer(b"abcd", np.uint8), np.arange(5)
    table = np.full(2, -1, np.int32)
    text_table.fill_table(letters, starts, table)
    found = np.zeros(4, np.int32)
    text_table.find_texts(letters, starts, table, np.arange(4, dtype=np.int32), letters, starts, found)
    assert sorted(table.tolist()) == [0, 1]
    assert found.tolist() == [0, 1, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("text", ["", "a", "abc", "abcd", "abcde", "é" * 9])
def test_nulls_and_empty_columns_are_no_trouble(text: str) -> None:
    known = KnownTexts.of({text: 4})
    assert known.codes_of(pa.array([], pa.string())).tolist() == []
    assert known.codes_of(pa.array([None, text, None])).tolist()[1] == 4
