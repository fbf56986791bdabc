"""An automaton finds the pieces that a search for each of them finds, in tables that are full or not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from weft.kernels import automaton
from weft.kernels.automaton import build_automaton, find_pieces
from weft.kernels.jit import COMPILED


def _numbered(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)], dtype=np.int64)


@pytest.mark.parametrize("letters", ["ab", "abcdefgh", "".join(map(chr, range(97, 123)))])
@pytest.mark.parametrize("count", [1, 12, 3_000])
def test_pieces_are_found_once_each(letters: str, count: int) -> None:
    rng = random.Random(count)
    pieces = sorted({"".join(rng.choices(letters, k=rng.randint(1, 12))).encode() for _ in range(count)})
    rng.shuffle(pieces)
    made = build_automaton(*_numbered(pieces))
    if COMPILED and count == 3_000 and len(letters) == 26:
        assert len(made.dense) < len(made.pieces) * made.classes[256], "some states are not in the full table"
        assert (made.steps >= 0).any(), "some of these have several steps"
    texts = ["".join(rng.choices(letters + "?", k=rng.randint(0, 80))).encode() for _ in range(20)]
    texts += [b"".join(rng.choices(pieces, k=5)) for _ in range(20)]
    data, ends = _numbered(texts)
    offsets, met = np.zeros(len(texts) + 1, np.int64), np.full(len(pieces), -1, np.int64)
    found = find_pieces(made, data, ends[:-1], ends[1:], met, 0, np.empty(1, np.int32), offsets)
    for at, text in enumerate(texts):
        wanted = [number for number, piece in enumerate(pieces) if piece in text]
        assert sorted(found[offsets[at] : offsets[at + 1]].tolist()) == wanted


def test_what_states_share_is_bounded() -> None:
    """The full table has at most so many numbers for each state, however many different bytes there are."""
    pieces = [bytes([one, other, one ^ other]) for one in range(0, 256, 2) for other in range(256)]
    made = build_automaton(*_numbered(pieces))
    assert len(made.dense) <= automaton._DENSE * len(made.pieces)
