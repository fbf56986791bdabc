"""The cost of one covering table with three links: a change, an update learnt, a removal, in bulk; bytes; longest call.

Subscriptions are the popular regions of `weftlab.overlay.range_workloads`. Times are of the processor, and scaled to a
machine that does 830,000 `covers` between boxes a second, which is measured in the same run. Bytes are all that the
table allocates but for the filters themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from time import process_time

from weft.algebra.box import Box
from weft.algebra.relate import as_form
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse_many
from weft.routing.registry import make_table
from weft.routing.table import ItemId, Link, RoutingTable, Update
from weftlab.bench.language import repeated_shapes
from weftlab.bench.report import Result
from weftlab.bench.traced_memory import TracedMemory
from weftlab.overlay.range_workloads import WORKLOADS

LINKS = tuple(map(Link, ("north", "south", "west")))
STANDARD = 830_000  # pairs of boxes compared a second
_BATCH = 256  # items of a bulk change
_BUDGET = 16  # pieces of work in a step


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures of one table."""
    many = size or 20_000
    _warm()
    speed = _pairs_per_second()
    results = [Result(f"table/{many}/pairs_per_s", speed, "pairs/s")]
    progress(f"one covering table, {many:,} subscriptions one by one")
    results += _one_by_one(many, speed / STANDARD)
    progress(f"one covering table, {many:,} subscriptions in bulk")
    results += _in_bulk(many, speed / STANDARD)
    results.append(_bytes(many))
    large = size or (20_000 if quick else 100_000)
    progress(f"one covering table, the longest call at {large:,} subscriptions")
    return [*results, *_longest(large, speed / STANDARD)]


def _filters(size: int, seed: int = 1) -> list[Filter]:
    return parse_many(WORKLOADS["zipf"](size, 0, seed=seed).texts())


def _table() -> RoutingTable:
    table = make_table("covering")
    for link in LINKS:
        table.attach(link)
    return table


def _warm() -> None:
    table = _table()
    table.change({SubId(n): wanted for n, wanted in enumerate(_filters(600))}, ())
    table.learn(LINKS[0], Update(add={ItemId(n): wanted for n, wanted in enumerate(_filters(1_000, 2))}))
    table.route({"x": 1}, None)
    table.detach(LINKS[0])
    _finish(table)


def _finish(table: RoutingTable) -> None:
    while table.pending:
        table.step(_BUDGET)


def _pairs_per_second() -> float:
    """As `weft bench language` measures it."""
    boxes = [as_form(wanted).boxes[0] for wanted in parse_many(repeated_shapes(4_000))]
    wide = boxes[:20]
    hosts = [Box({name: values.hull() for name, values in box.sets.items() if name != "volume"}) for box in wide]
    pairs = [(a, b) for a in (*wide, *hosts) for b in boxes]
    start = process_time()
    for a, b in pairs:
        a.covers(b)
    return len(pairs) / (process_time() - start)


def _timed(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def _one_by_one(size: int, scale: float) -> list[Result]:
    """Half of the subscriptions are local, then as many are a neighbour's; then half of both go again."""
    filters = _filters(size)
    table = _table()
    half, gone = size // 2, size // 4
    gc.collect()
    start = process_time()
    for sub in range(half):
        table.change({SubId(sub): filters[sub]}, ())
    change = process_time() - start
    start = process_time()
    for item in range(half, size):
        table.learn(LINKS[0], Update(add={ItemId(item): filters[item]}))
    learn = process_time() - start
    start = process_time()
    for number in range(gone):
        table.change({}, [SubId(number)])
        table.learn(LINKS[0], Update(drop=(ItemId(half + number),)))
        _finish(table)
    removal = process_time() - start
    return [
        Result(f"table/{size}/change_us", 1e6 * scale * change / half, "us", 70, "lower"),
        Result(f"table/{size}/learn_us", 1e6 * scale * learn / half, "us", 140, "lower"),
        Result(f"table/{size}/removal_us", 1e6 * scale * removal / (2 * gone), "us", 250, "lower"),
    ]


def _in_bulk(size: int, scale: float) -> list[Result]:
    filters = _filters(size)
    table = _table()
    gc.collect()
    seconds = _timed(lambda: _change_all(table, filters))
    return [Result(f"table/{size}/bulk_us", 1e6 * scale * seconds / size, "us", 40, "lower")]


def _change_all(table: RoutingTable, filters: Sequence[Filter]) -> None:
    for start in range(0, len(filters), _BATCH):
        some = range(start, min(start + _BATCH, len(filters)))
        table.change({SubId(n): filters[n] for n in some}, ())


def _bytes(size: int) -> Result:
    filters = _filters(size)
    table = _table()
    with TracedMemory() as traced:
        _change_all(table, filters)
    return Result(f"table/{size}/bytes", traced.kept / size, "bytes", 1_600, "lower")


def _longest(size: int, scale: float) -> list[Result]:
    """A filter that covers all others comes and goes; a link comes, and one with a tenth of everything goes."""
    filters = _filters(size)
    table = _table()
    longest = 0.0

    def call(work: Callable[[], object]) -> None:
        nonlocal longest
        longest = max(longest, _timed(work))
        while table.pending:
            longest = max(longest, _timed(lambda: table.step(_BUDGET)))

    _change_all(table, filters)
    for n, wanted in enumerate(_filters(size // 10, 4)):
        table.learn(LINKS[1], Update(add={ItemId(n): wanted}))
    gc.collect()
    gc.disable()  # a broker freezes what lives long; what is measured is the table's own work
    try:
        (wide,) = parse_many(["x >= -1000000 AND y >= -1000000 AND z >= -1000000"])
        call(lambda: table.change({SubId(size): wide}, ()))
        call(lambda: table.change({}, [SubId(size)]))
        call(lambda: table.attach(Link("east")))
        call(lambda: table.detach(LINKS[1]))
    finally:
        gc.enable()
    return [Result(f"table/{size}/longest_call_ms", 1e3 * scale * longest, "ms", 20, "lower")]
