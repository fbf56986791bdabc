"""An automaton finds the pieces that a search for each of them finds, in tables that are full or not."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.kernels import automaton
from weft.kernels.automaton import DENSE, LEAST, build_automaton, find_pieces


def _numbered(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)], dtype=np.int64)


@pytest.mark.parametrize("letters", ["ab", "abcdefgh", "".join(map(chr, range(97, 123)))])
@pytest.mark.parametrize("count", [1, 12, 3_000])
@pytest.mark.parametrize("dense", [0, DENSE])
@pytest.mark.parametrize("least", [1, 4, LEAST])
def test_pieces_are_found_once_each(letters: str, count: int, dense: int, least: int) -> None:
    rng = random.Random(count)
    pieces = sorted({"".join(rng.choices(letters, k=rng.randint(1, 12))).encode() for _ in range(count)})
    rng.shuffle(pieces)
    made = build_automaton(*_numbered(pieces), dense, least)
    assert not len(made.cuts) or least < LEAST
    if count == 3_000 and len(letters) == 26 and least == LEAST:
        every = len(made.endings) // 2 * made.classes[256]
        assert (len(made.dense) < every) == (dense == 0), "some states are not in the full table, if it is small"
        assert (made.steps >= 0).any() == (dense == 0), "some of these have several steps"
    texts = ["".join(rng.choices(letters + "?", k=rng.randint(0, 80))).encode() for _ in range(20)]
    texts += [b"".join(rng.choices(pieces, k=5)) for _ in range(20)]
    data, ends = _numbered(texts)
    offsets, marks = np.zeros(len(texts) + 1, np.int64), np.zeros(len(pieces), np.uint8)
    found = find_pieces(made, data, ends[:-1], ends[1:], marks, np.empty(1, np.int32), offsets)
    for at, text in enumerate(texts):
        wanted = [number for number, piece in enumerate(pieces) if piece in text]
        assert sorted(found[offsets[at] : offsets[at + 1]].tolist()) == wanted


def test_what_states_share_is_bounded() -> None:
    """The full table has at most so many numbers for each state, however many different bytes there are."""
    pieces = [bytes([one, other, one ^ other]) for one in range(0, 256, 2) for other in range(256)]
    made = build_automaton(*_numbered(pieces), 0, LEAST)
    assert len(made.dense) <= automaton._PER_STATE * (len(made.endings) // 2)
    assert len(build_automaton(*_numbered(pieces), DENSE, LEAST).dense) <= DENSE


@pytest.mark.parametrize("dense", [0, DENSE])
@pytest.mark.parametrize("least", [1, LEAST])
def test_texts_of_all_lengths_are_walked_in_turns(dense: int, least: int) -> None:
    """Those that are too long for the room are read part by part, and pieces across the parts are found."""
    rng = random.Random(7)
    pieces = sorted({"".join(rng.choices("abcd", k=rng.randint(2, 9))).encode() for _ in range(200)})
    sizes = [automaton._ROOM - 1, 3, automaton._ROOM, 0, 2 * automaton._ROOM + 5, *range(40), automaton._ROOM + 1]
    texts = [b"?" * size for size in sizes]
    longest = max(pieces, key=len)
    for at, size in enumerate(sizes):
        if size > automaton._ROOM:
            texts[at] = b"?" * (automaton._ROOM - 2) + longest + b"?" * (size - automaton._ROOM + 2 - len(longest))
        elif size >= len(longest):
            texts[at] = b"?" * (size - len(longest)) + longest
    made = build_automaton(*_numbered(pieces), dense, least)
    data, ends = _numbered(texts)
    offsets, marks = np.zeros(len(texts) + 1, np.int64), np.zeros(len(pieces), np.uint8)
    found = find_pieces(made, data, ends[:-1], ends[1:], marks, np.empty(1, np.int32), offsets)
    for at, text in enumerate(texts):
        wanted = [number for number, piece in enumerate(pieces) if piece in text]
        assert sorted(found[offsets[at] : offsets[at + 1]].tolist()) == wanted


def _found(pieces: list[bytes], text: bytes, least: int) -> list[int]:
    data = np.frombuffer(text, np.uint8)
    begins, ends, offsets = np.zeros(1, np.int64), np.array([len(text)]), np.zeros(2, np.int64)
    made, marks = build_automaton(*_numbered(pieces), DENSE, least), np.zeros(len(pieces), np.uint8)
    found = find_pieces(made, data, begins, ends, marks, np.empty(1, np.int32), offsets)[: offsets[1]].tolist()
    assert not marks.any()
    assert len(found) == len(set(found))
    return sorted(found)


@given(
    st.sets(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=12),
    st.text("ab", max_size=30),
    st.integers(1, 5),
)
@thorough(300)
def test_pieces_that_are_cut_are_found_where_all_of_them_is(some: set[str], text: str, least: int) -> None:
    pieces = [piece.encode() for piece in sorted(some)]
    assert _found(pieces, text.encode(), least) == [at for at, piece in enumerate(sorted(some)) if piece in text]


def test_a_rest_is_looked_for_wherever_its_beginning_is() -> None:
    """Not only where a piece that ends there too is found for the first time."""
    pieces = [b"xabc", b"abcdefg", b"bc"]
    assert _found(pieces, b"xabc xabc abcdefg", 3) == [0, 1, 2]
    assert _found(pieces, b"xabc xabcdefg", 3) == [0, 1, 2]
    assert _found(pieces, b"xabcdef", 3) == [0, 2]


def test_long_pieces_have_no_more_states_than_short_ones() -> None:
    """Unless they share their beginnings, and then they share the states."""
    rng = random.Random(3)
    alike = [b"https://shop.example.com/products/%06d" % n for n in range(1_000)]
    other = [bytes(rng.choices(range(97, 123), k=200)) for _ in range(1_000)]
    shared = build_automaton(*_numbered(alike), DENSE, LEAST)
    assert len(shared.endings) // 2 == 1 + 37 + 10 + 100 + 1_000
    apart = build_automaton(*_numbered(other), DENSE, LEAST)
    assert len(apart.endings) // 2 <= 1 + LEAST * 1_000
    assert [_found(other, b"-" + each + b"-", LEAST) for each in other[:5]] == [[0], [1], [2], [3], [4]]
