"""Steps in blocks: splits, joins, wide ranges a block at a time, and the same answers without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.kernels import steps
from weft.kernels.steps import FREE, LAST, STEPS, USED, Blocks
from weft.routing.mics.kernels import ranges

IN, OUT = 1, -1


def points(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def run(change: int, t: Blocks, *pairs: tuple[int, int], gap: int = 0) -> tuple[int, list[list[int]], list[list[int]]]:
    """Counts ranges in or out; how many were done, the parts and what is told."""
    starts, ends = points(*(a for a, _ in pairs)), points(*(b for _, b in pairs))
    room, marks = np.empty((1, 2), np.int64), np.zeros(len(pairs) + 1, np.int64)
    done, parts, found, told, said = ranges.count(t, starts, ends, 0, change, gap, room, 0, room.copy(), 0, marks)
    assert marks[-1] == found or done < len(pairs)
    return done, parts[:found].tolist(), told[:said].tolist()


def held(t: Blocks) -> list[tuple[int, int]]:
    keys, counts = np.zeros(t.head[STEPS], np.int64), np.zeros(t.head[STEPS], np.int64)
    steps.write(t, keys, counts)
    return list(zip(keys.tolist(), counts.tolist(), strict=True))


def test_a_range_is_two_steps() -> None:
    t = steps.empty(4, 8)
    assert run(IN, t, (3, 5)) == (1, [[3, 5]], [])
    assert held(t) == [(0, 0), (3, 1), (6, 0)]
    assert run(OUT, t, (3, 5)) == (1, [[3, 5]], [])
    assert held(t) == [(0, 0)]


def test_adjacent_ranges_unite_and_come_apart() -> None:
    t = steps.empty(4, 8)
    run(IN, t, (3, 5), (6, 9), (1, 2))
    assert held(t) == [(0, 0), (1, 1), (10, 0)]
    run(OUT, t, (6, 9))
    assert held(t) == [(0, 0), (1, 1), (6, 0)]
    run(OUT, t, (2, 4))  # any part that is needed can be counted out
    assert held(t) == [(0, 0), (1, 1), (2, 0), (5, 1), (6, 0)]


def test_the_ends_of_the_curve() -> None:
    t = steps.empty(4, 8)
    assert run(IN, t, (0, 0), (LAST, LAST), gap=LAST)[1:] == (
        [[0, 0], [LAST, LAST]],
        [[0, 0], [1, LAST]],
    )
    assert held(t) == [(0, 1), (1, 0), (LAST, 1)]
    assert run(IN, t, (0, LAST))[1] == [[1, LAST - 1]]
    assert held(t) == [(0, 2), (1, 1), (LAST, 2)]
    run(OUT, t, (0, 0), (LAST, LAST))
    assert held(t) == [(0, 1)]
    assert run(OUT, t, (0, LAST))[1] == [[0, LAST]]
    assert held(t) == [(0, 0)]


def test_blocks_split_and_join() -> None:
    t = steps.empty(4, 64)
    many = [(10 * n + 1, 10 * n + 2) for n in range(30)]
    run(IN, t, *many)
    assert t.head[USED] > 12
    assert run(IN, t, (0, 400))[1][1:-1] == [[10 * n + 3, 10 * n + 10] for n in range(29)]
    run(OUT, t, (0, 400), *many[::-1])
    assert held(t) == [(0, 0)]
    assert t.head[USED] == 1
    assert t.head[FREE] == 63


def test_blocks_split_and_join_with_something_to_add() -> None:
    t = steps.empty(4, 256)
    many = [(10 * n + 1, 10 * n + 2) for n in range(20)]
    more = [(10 * n + i, 10 * n + i) for n in range(20) for i in (4, 6, 8)]
    run(IN, t, *many, (15, 150), *more)
    wanted = np.zeros(220, np.int64)
    for a, b in (*many, (15, 150), *more):
        wanted[a : b + 1] += 1
    for a, b in (*many, *more, (15, 150)):
        found = np.zeros(220, np.int64)
        ranges.needs(t, np.arange(220), found)
        assert found.tolist() == wanted.tolist()
        run(OUT, t, (a, b))
        wanted[a : b + 1] -= 1
    assert held(t) == [(0, 0)]


def test_a_wide_range_is_added_to_blocks_not_to_steps() -> None:
    t = steps.empty(4, 64)
    run(IN, t, *[(10 * n + 1, 10 * n + 2) for n in range(30)])
    before = t.counts.copy()
    run(IN, t, (0, LAST))
    inner = t.order[1 : t.head[USED] - 1]
    assert (t.pending[inner] == 1).all()
    assert (t.lowest[inner] == 1).all()
    assert np.array_equal(t.counts.reshape(-1, 4)[inner], before.reshape(-1, 4)[inner])


def test_without_free_slots_it_stops_before_a_range_and_goes_on_in_more() -> None:
    t = steps.empty(4, 4)
    many = [(10 * n + 1, 10 * n + 2) for n in range(30)]
    done, _, _ = run(IN, t, *many)
    assert 0 < done < 30
    assert held(t) == [(0, 0), *((k, c) for n in range(done) for k, c in ((10 * n + 1, 1), (10 * n + 3, 0)))]
    more = steps.resized(t, 64)
    assert held(more) == held(t)
    assert run(IN, more, *many[done:])[0] == 30 - done


def test_an_unneeded_point_stops_a_removal_before_it() -> None:
    t = steps.empty(4, 16)
    run(IN, t, (1, 5), (7, 9))
    assert run(OUT, t, (1, 5), (7, 10), (7, 9))[0] == -1 - 1
    assert held(t) == [(0, 0), (7, 1), (10, 0)]


@pytest.mark.parametrize(
    ("gap", "first", "more", "told"),
    [
        (2, (0, 3), (6, 9), [[4, 9]]),  # a gap of two is closed
        (1, (0, 3), (6, 9), [[6, 9]]),  # and is too wide for one
        (2, (6, 9), (0, 3), [[0, 5]]),
        (2, (5, 9), (2, 2), [[2, 4]]),  # the run before it is no gap: it reaches the curve's start
        (0, (5, 9), (7, 12), []),  # without gaps the parts say all
        (3, (5, 9), (7, 12), [[10, 12]]),
    ],
)
def test_gaps_are_told(gap: int, first: tuple[int, int], more: tuple[int, int], told: list[list[int]]) -> None:
    t = steps.empty(4, 16)
    run(IN, t, first, gap=gap)
    assert run(IN, t, more, gap=gap)[2] == told
    assert run(OUT, t, more, gap=gap)[2] == told, "taking back tells the same"


def test_a_range_in_a_closed_gap_tells_nothing() -> None:
    t = steps.empty(4, 16)
    run(IN, t, (0, 3), (8, 9), gap=4)
    assert run(IN, t, (5, 6), gap=4)[1:] == ([[5, 6]], [])


def test_kernels_run_without_a_compiler() -> None:
    root = Path(__file__).parents[3]
    machine = str(root / "tests" / "routing" / "mics" / "test_range_table.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, machine, "-k"]
    paths = os.pathsep.join([str(root / "src"), str(root / "tests")])
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}
    asked = "not compiler and (steps or gap or ends or split or random_changes)"
    ran = subprocess.run([*command, asked], env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
