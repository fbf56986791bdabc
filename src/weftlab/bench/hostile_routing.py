"""The cost of hostile filters to routing tables. One addition is bounded, whatever the table holds already.

Each work makes a table with two neighbours and adds filters to it, parsing included; the figure is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, product

import numpy as np

from weft.errors import WeftError
from weft.index.base import SubId
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing import Link, make_table
from weft.routing.dls.items import LabelSet
from weft.routing.dls.space import LabelSpace
from weft.routing.table import About, ItemId, Update

Work = Callable[[], object]

_TOGETHER = 5_000  # labels of an item


def cutters(attributes: int, each: int = 30) -> list[str]:
    """A union of 50 boxes of `each` attributes, and one of 20 boxes with a number of attributes and two more."""
    lows = np.random.default_rng(5).integers(0, 10, (50, each)).tolist()
    wide = " OR ".join(f"({' AND '.join(f'a{n} > {low}' for n, low in enumerate(row))})" for row in lows)
    rest = " AND ".join(f"a{n} > 5" for n in range(attributes))
    return [wide, f"({' OR '.join(f'b = {n} AND c > {n}' for n in range(20))}) AND {rest}"]


def unions_of_patterns(number: int) -> list[str]:
    """Three unions of a number of patterns, without a word in common."""
    words = np.random.default_rng(7).integers(0, 2**32, (3, number)).tolist()
    return [" OR ".join(f"s LIKE '%{word:08x}%'" for word in row) for row in words]


def boxes(number: int) -> list[str]:
    """Three unions of a number of boxes in five dimensions."""
    rng = np.random.default_rng(6)
    lows = rng.integers(0, 800, (3, number, 5)).tolist()
    return [
        " OR ".join(
            f"({' AND '.join(f'x{n} BETWEEN {low} AND {low + 300}' for n, low in enumerate(box))})" for box in form
        )
        for form in lows
    ]


def cells(boxes: int) -> list[str]:
    """A union of a number of boxes that share three long lists, each in cells of its own."""
    lists = (f"{name} IN ({','.join(str(8 * n + 1) for n in range(120))})" for name in "xyz")
    return [f"{' AND '.join(lists)} AND ({' OR '.join(f'q{n} = 1' for n in range(boxes))})"]


def levels(number: int) -> Work:
    """Route an event in a table of labels to which a neighbour has told labels of so many levels."""
    names = [f"a{n}" for n in range(10)]
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 1000]} for name in names}})
    table = make_table("dls", schema)
    table.attach(Link("north"))
    code = LabelSpace.of(schema).codes[0]
    fields = zip(code.places.tolist(), code.bits.tolist(), code.steps.tolist(), strict=True)
    marks = [
        [1 << place + bits - min(drop, bits) for drop in range(0, bits + step, step)] for place, bits, step in fields
    ]
    found = sorted(map(sum, islice(product(*marks), number)))
    parts = range(0, len(found), _TOGETHER)
    items = {ItemId(at): LabelSet(tuple(found[at : at + _TOGETHER])) for at in parts}
    table.learn(Link("north"), Update(About.SUBSCRIPTIONS, add=items))
    return lambda: table.route(dict.fromkeys(names, 5), None)


def added(model: str, texts: Sequence[str], schema: Schema | None = None) -> Work:
    """Add filters to a new table, one by one; one that is refused is left out."""

    def work() -> None:
        table = make_table(model, schema)
        for neighbour in ("north", "south"):
            table.attach(Link(neighbour))
        for sub, text in enumerate(texts):
            try:
                table.change({SubId(sub): parse(text)}, ())
            except WeftError:
                continue

    return work
