"""Ranges of numbers in lists are found by digits: never fewer than there are, whatever the numbers."""

from __future__ import annotations

import math
from random import Random

from strategies import EXAMPLES, EXTREME_FLOATS, EXTREME_INTS
from weft import TreeIndex, matches, parse
from weft.index.pieces import number_digits
from weft.language.constant import Constant
from weft.language.format import format_constant

NUMBERS = (*EXTREME_INTS, *EXTREME_FLOATS, 7, 7.25, -7.25, 1000, 1000.5, 1001, 999.999, 1e-9)
INFINITE = (math.inf, -math.inf)


def some_number(random: Random) -> float:
    if random.random() < 0.5:
        return random.choice(NUMBERS)
    return random.uniform(-1, 1) * 10.0 ** random.randrange(-3, 6)


def test_digits_have_the_order_of_numbers() -> None:
    ordered = sorted([*map(float, NUMBERS), *INFINITE])
    assert [number_digits(each) for each in ordered] == sorted(number_digits(each) for each in ordered)
    assert number_digits(-0.0) == number_digits(0)


def test_ranges_of_elements_are_found_whatever_the_numbers() -> None:
    random = Random(1)
    for _ in range(EXAMPLES):
        filters = []
        for _ in range(400):
            low = some_number(random)
            high = low + abs(low) * random.choice((0.0, 1e-12, 1e-6, 0.001, 0.1, 3)) + random.choice((0, 1e-9, 1))
            high = high if isinstance(high, float) or abs(high) < 2**63 else float(high)
            if not math.isfinite(high):
                continue
            ends = [format_constant(Constant.of(each)) for each in (low, high)]
            form = random.choice(("x HAS BETWEEN {} AND {}", "x HAS (> {} AND < {})", "x HAS (>= {} AND <= {} OR = 7)"))
            filters.append(parse(form.format(*ends)))
        index = TreeIndex(tail=0)
        for sub, each in enumerate(filters):
            index.add(sub, each)
        events = [{"x": [some_number(random) for _ in range(random.randrange(4))]} for _ in range(60)]
        events += [{"x": [each]} for each in (*NUMBERS, *INFINITE, math.nan)] + [{"x": each} for each in NUMBERS]
        for event, found in zip(events, index.match_batch(events), strict=True):
            wanted = [sub for sub, each in enumerate(filters) if matches(each, event)]
            assert sorted(found.tolist()) == wanted, event
            assert sorted(index.match(event).tolist()) == wanted, event
