"""What hostile filters cost routing tables. Law: one addition is bounded, whatever the table holds already.

Each work makes a table with two neighbours and adds filters to it, parsing included; the figure is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.errors import WeftError
from weft.index.base import SubId
from weft.language.text import parse
from weft.routing import Link, make_table

Work = Callable[[], object]


def cutters(attributes: int, each: int = 30) -> list[str]:
    """A union of 50 boxes of `each` attributes, and one of 20 boxes with so many attributes and two more."""
    lows = np.random.default_rng(5).integers(0, 10, (50, each)).tolist()
    wide = " OR ".join(f"({' AND '.join(f'a{n} > {low}' for n, low in enumerate(row))})" for row in lows)
    rest = " AND ".join(f"a{n} > 5" for n in range(attributes))
    return [wide, f"({' OR '.join(f'b = {n} AND c > {n}' for n in range(20))}) AND {rest}"]


def unions_of_patterns(number: int) -> list[str]:
    """Three unions of so many patterns, without a word in common."""
    words = np.random.default_rng(7).integers(0, 2**32, (3, number)).tolist()
    return [" OR ".join(f"s LIKE '%{word:08x}%'" for word in row) for row in words]


def boxes(number: int) -> list[str]:
    """Three unions of so many boxes in five dimensions."""
    rng = np.random.default_rng(6)
    lows = rng.integers(0, 800, (3, number, 5)).tolist()
    return [
        " OR ".join(
            f"({' AND '.join(f'x{n} BETWEEN {low} AND {low + 300}' for n, low in enumerate(box))})" for box in form
        )
        for form in lows
    ]


def added(model: str, texts: Sequence[str]) -> Work:
    """Add filters to a new table, one by one; one that is refused is left out."""

    def work() -> None:
        table = make_table(model)
        for neighbour in ("north", "south"):
            table.attach(Link(neighbour))
        for sub, text in enumerate(texts):
            try:
                table.change({SubId(sub): parse(text)}, ())
            except WeftError:
                continue

    return work
