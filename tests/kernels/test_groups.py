"""Lists of subscriptions, copied eight at a time: whatever their sizes, and wherever they end."""

from __future__ import annotations

import numpy as np
import pytest

from weft.kernels.groups import copy_members


@pytest.mark.parametrize("seed", range(20))
def test_lists_are_copied_whole_and_nothing_after_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 7, 8, 9, 15, 16, 17, 30, 40], int(rng.integers(1, 9)))
    firsts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
    subs = rng.permutation(int(firsts[-1]))
    slots = rng.integers(0, len(sizes), int(rng.integers(0, 12))).astype(np.int32)
    wanted = [sub for slot in slots for sub in subs[firsts[slot] : firsts[slot + 1]].tolist()]
    memory = np.full(len(wanted) + 20, -1)
    copy_members(slots, firsts, subs, memory[: len(wanted)])
    assert memory.tolist() == wanted + [-1] * 20
