"""What routing tables do with a few filters, operation by operation, as brokers have them do it.

A broker with two neighbours gets the filters one by one; one neighbour learns what it receives, item by item, and has
a neighbour of its own. Both route events. Then the filters are removed again. Every operation is measured alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from measured_work import Work, measured
from weft.errors import WeftError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.limits import LIMITS
from weft.network.tables import BrokerId, RunWork, TableNetwork
from weft.routing import make_table
from weft.routing.registry import MODELS
from weft.routing.table import Tell, Update
from weftlab.bench.hostile_broker import bounded_schema

HOME, NORTH, SOUTH, FAR = map(BrokerId, ("home", "north", "south", "far"))
MEASURED = (HOME, NORTH)
NAMES = {"change": "add", "learn": "learn", "step": "step"}  # what a method of a table is called here
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
    done: list[tuple[str, Work]] = []
    turns = 0

    def run(broker: BrokerId, work: Callable[[], list[Tell]]) -> list[Tell]:
        """Measure what a table does; one that learns does so item by item."""
        nonlocal turns
        assert isinstance(work, partial)
        name = NAMES.get(work.func.__name__, "")
        if broker not in MEASURED or not name:
            return work()
        turns = turns + 1 if name == "step" else 0
        assert turns <= _TURNS, f"{model}: the work never ends"
        parts = [work]
        if name == "learn":
            link, update = work.args
            parts = [partial(work.func, link, piece) for piece in _pieces(update)]
        elif name == "add" and not work.args[0]:
            name = "remove"
        each = [measured(part, traced=traced) for part in parts]
        done.extend((name, some) for some in each)
        for some in each:
            if isinstance(some.result, Exception):
                raise some.result
        return [tell for some in each for tell in some.result]

    network = _network(model, run, **options)
    for one, other in ((HOME, NORTH), (HOME, SOUTH), (NORTH, FAR)):
        network.attach(one, other)
    network.settle()

    admitted = []
    for sub, wanted in enumerate(filters):
        try:
            network.subscribe(HOME, SubId(sub), wanted)
            admitted.append(sub)
        except WeftError:
            pass  # the work of a filter that is refused counts too
        network.settle()
    yield from done
    for table in map(network.table, MEASURED):
        for event in EVENTS:
            yield "route", measured(lambda table=table, event=event: table.route(event, None), traced=traced)
        yield "route", measured(lambda table=table: table.route_batch(EVENTS, None), traced=traced)
    done.clear()
    for sub in admitted:
        network.unsubscribe(HOME, SubId(sub))
        network.settle()
    yield from done


@cache
def _import(model: str) -> None:
    """Import whatever a table imports when it is used first, which is not the work of a filter."""
    network = _network(model)
    network.attach(HOME, NORTH)
    network.subscribe(HOME, SubId(1), parse("x < 5 OR s LIKE 'a%'"))
    network.settle()
    for broker in MEASURED:
        network.table(broker).route_batch(EVENTS, None)


def _network(model: str, run: RunWork = lambda _, work: work(), **options: Any) -> TableNetwork:
    """Brokers that are not yet linked; updates pass through the codec."""
    schema = bounded_schema() if MODELS[model].bounded else None
    codec = make_table(model, schema, **options).codec
    return TableNetwork(
        [HOME, NORTH, SOUTH, FAR],
        lambda: make_table(model, schema, **options),
        matcher=None,
        pieces=_STEPS,
        run=run,
        send=lambda _, update: codec.decode(codec.encode(update)),
    )


def _pieces(update: Update) -> Iterator[Update]:
    """An update with one item each; what else it says comes with the first."""
    items = [*update.add.items()]
    yield Update(update.about, update.fresh, update.drop, dict(items[:1]), update.notes)
    for item_id, item in items[1:]:
        yield Update(update.about, add={item_id: item})
