"""The kernels against plain comparisons of cuts, over every pair of small intervals."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from weft.algebra import interval
from weft.kernels import boxes
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN

ENDS = (-math.inf, 0.0, 1.0, math.inf)
SPANS = [
    (low, high, BOUNDED | marks)
    for low, high in product(ENDS, repeat=2)
    for marks in (0, LOW_OPEN, HIGH_OPEN, LOW_OPEN | HIGH_OPEN)
    if low < high or (low == high and not marks)
]
LOW, HIGH = (np.array([span[i] for span in SPANS] + [end]) for i, end in ((0, -np.inf), (1, np.inf)))
MARKS = np.array([span[2] for span in SPANS] + [0], np.uint8)  # the last row has no interval


def line(span: tuple[float, float, int]) -> interval.Line:
    low, high, marks = span
    return ((low, marks & LOW_OPEN), (high, 0 if marks & HIGH_OPEN else 1))


@pytest.mark.parametrize("asked", SPANS)
def test_kernels_compare_as_lines_do(asked: tuple[float, float, int]) -> None:
    mine = line(asked)
    within = [interval.covers(mine, line(span)) for span in SPANS]
    around = [interval.covers(line(span), mine) for span in SPANS]
    meeting = [bool(interval.intersect(line(span), mine)) for span in SPANS]
    assert boxes.within(LOW, HIGH, MARKS, *asked).tolist() == [*within, False]
    assert boxes.around(LOW, HIGH, MARKS, *asked).tolist() == [*around, True]
    assert boxes.meeting(LOW, HIGH, MARKS, *asked).tolist() == [*meeting, True]


def test_only_rows_without_an_interval_hold_everything() -> None:
    assert boxes.around(LOW, HIGH, MARKS, -math.inf, math.inf, 0).tolist() == [False] * len(SPANS) + [True]


def test_nothing_is_mutated() -> None:
    before = LOW.copy(), HIGH.copy(), MARKS.copy()
    for kernel in (boxes.within, boxes.around, boxes.meeting):
        kernel(LOW, HIGH, MARKS, 0.0, 1.0, BOUNDED)
    assert all((a == b).all() for a, b in zip(before, (LOW, HIGH, MARKS), strict=True))
