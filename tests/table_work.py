"""What routing tables do with a few filters, operation by operation, as brokers have them do it.

A table with two neighbours gets the filters one by one; one neighbour learns what it is told, item by item, and has a
neighbour of its own. Both route events. Then the filters are removed again. Every operation is measured alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from measured_work import Work, measured
from weft.bench.hostile_broker import bounded_schema
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.limits import LIMITS
from weft.routing import Link, make_table
from weft.routing.registry import MODELS
from weft.routing.table import Tell, Update

HOME, NORTH, SOUTH = Link("home"), Link("north"), Link("south")
EVENTS: tuple[dict[str, Any], ...] = (
    {},
    {"x": 5, "y": 17.5, "z": 300, "n": 7, "s": "w3"},
    {"x": 1000, "y": -1, "z": 0, "n": 999, "s": "ab1", "a": 1, "b": 2},
)
# The steps and lines of one operation: a filter is normalized once and compared once, and a line takes 50 to 100 ns.
ALLOWED = {
    "add": (2 * LIMITS.steps, 1_000_000),
    "learn": (2 * LIMITS.steps, 1_000_000),
    "step": (2 * LIMITS.steps, 1_000_000),
    "remove": (2 * LIMITS.steps, 400_000),
    "route": (0, 200_000),
}
_STEPS = 8  # of pending work in one turn
_TURNS = 2_000  # after which pending work counts as endless


def table_work(
    model: str, filters: Sequence[Filter], *, traced: bool = True, **options: Any
) -> Iterator[tuple[str, Work]]:
    """The operations by name, with what each takes. Options are those of the tables."""
    _import(model)
    schema = bounded_schema() if MODELS[model].bounded else None
    table, neighbour = (make_table(model, schema, **options) for _ in range(2))
    for link in (NORTH, SOUTH):
        table.attach(link)
    for link in (HOME, SOUTH):
        neighbour.attach(link)

    def run(name: str, operation: Callable[[], list[Tell]]) -> Iterator[tuple[str, Work]]:
        """An operation of the table, its consequences, and what the neighbour does with them."""
        done = measured(operation, traced=traced)
        yield name, done
        tells = [] if isinstance(done.result, Exception) else [*done.result]
        for _ in range(_TURNS):
            if not table.pending:
                break
            done = measured(lambda: table.step(_STEPS), traced=traced)
            yield "step", done
            tells += done.result
        assert not table.pending, f"{model}: the work never ends"
        yield from told(tells)

    def told(tells: Sequence[Tell]) -> Iterator[tuple[str, Work]]:
        for tell in tells:
            if tell.link == NORTH:
                for update in _pieces(table.codec.decode(table.codec.encode(tell.update))):
                    yield "learn", measured(lambda update=update: neighbour.learn(HOME, update), traced=traced)
                while neighbour.pending:
                    yield "step", measured(lambda: neighbour.step(_STEPS), traced=traced)

    admitted = []
    for sub, wanted in enumerate(filters):
        for name, done in run("add", lambda sub=sub, wanted=wanted: table.change({SubId(sub): wanted}, ())):
            if name == "add" and not isinstance(done.result, Exception):
                admitted.append(sub)
            yield name, done
    for each in (table, neighbour):
        for event in EVENTS:
            yield "route", measured(lambda each=each, event=event: each.route(event, None), traced=traced)
        yield "route", measured(lambda each=each: each.route_batch(EVENTS, None), traced=traced)
    for sub in admitted:
        yield from run("remove", lambda sub=sub: table.change({}, (SubId(sub),)))


@cache
def _import(model: str) -> None:
    """Import whatever a table imports when it is used first, which is not the work of a filter."""
    schema = bounded_schema() if MODELS[model].bounded else None
    table = make_table(model, schema)
    table.attach(HOME)
    (told,) = table.change({SubId(1): parse("x < 5 OR s LIKE 'a%'")}, ()) or (None,)
    if told is not None:
        table.learn(HOME, table.codec.decode(table.codec.encode(told.update)))
    table.route_batch(EVENTS, None)


def _pieces(update: Update) -> Iterator[Update]:
    """An update with one item each; what else it says comes with the first."""
    items = [*update.add.items()]
    yield Update(update.about, update.fresh, update.drop, dict(items[:1]), update.notes)
    for item_id, item in items[1:]:
        yield Update(update.about, add={item_id: item})
