"""The circle: which keys lie between two nodes, by enumeration."""

from __future__ import annotations

from itertools import product

import pytest

from weft.errors import RingError
from weft.ring.identifiers import IdSpace, successor


def test_between_goes_clockwise_and_excludes_the_start() -> None:
    space = IdSpace(8)
    for after, upto in product(range(8), repeat=2):
        walked, at = set(), after
        while True:
            at = (at + 1) % 8
            walked.add(at)
            if at == upto:
                break
        assert {key for key in range(8) if space.between(key, after, upto)} == walked


def test_a_key_belongs_to_its_successor_alone() -> None:
    space, nodes = IdSpace(16), [1, 4, 11]
    for key in range(16):
        owners = [n for p, n in zip(nodes[-1:] + nodes, nodes, strict=False) if space.between(key, p, n)]
        assert owners == [successor(key, nodes)]


def test_the_hash_is_the_same_everywhere() -> None:
    assert IdSpace(4096).hash("price\x00stocks") == 1498


@pytest.mark.parametrize("size", [0, 1, 12, 1 << 63])
def test_a_ring_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(RingError, match="power of two"):
        IdSpace(size)
