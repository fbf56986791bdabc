"""Many boxes, of which others cover some."""

from __future__ import annotations

import random
from typing import Any

import pytest

from weft.algebra.absorption import absorb
from weft.algebra.box import Box
from weft.algebra.budget import Budget
from weft.algebra.normalize import normalize
from weft.language.text import parse


def boxes_of(*texts: str) -> list[Box]:
    return [box for text in texts for box in normalize(parse(text)).boxes]


def test_of_boxes_with_attributes_of_their_own_the_covered_ones_go() -> None:
    wide = boxes_of(*(f"a{n} > 0" for n in range(40)))
    narrow = boxes_of(*(f"a{n} > 1 AND b{n} = 1" for n in range(40)))
    budget = Budget()
    assert absorb([*narrow, *wide], budget) == wide
    assert absorb([*wide, *narrow], Budget()) == wide
    assert absorb([*wide, *wide], Budget()) == wide
    assert budget.used < 1_000


@pytest.mark.parametrize("seed", range(20))
def test_the_union_of_sparse_boxes_stays_the_same(seed: int) -> None:
    rng = random.Random(seed)
    texts = [
        " AND ".join(f"a{name} > {rng.randrange(4)}" for name in rng.sample(range(60), rng.randrange(1, 4)))
        for _ in range(60)
    ]
    boxes = boxes_of(*texts)
    kept = absorb(boxes, Budget())
    assert not any(one.covers(other) for one in kept for other in kept if one is not other)
    for _ in range(200):
        event: dict[str, Any] = {f"a{name}": rng.randrange(6) for name in rng.sample(range(60), 30)}
        assert any(event in box for box in boxes) == any(event in box for box in kept)


def test_many_calls_are_kept_without_comparing_them() -> None:
    boxes = boxes_of(*(f"cidr(ip, '10.{n}.0.0/16')" for n in range(200)))
    budget = Budget()
    assert absorb(boxes, budget) == boxes
    assert budget.used < 1_000
