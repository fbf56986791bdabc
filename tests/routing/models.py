"""The tables under test, one line each: a new table adds its line to TABLES and passes the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from strategies import EVENTS, KINDS
from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form, covers, is_empty
from weft.index import TreeIndex
from weft.index.base import SubId
from weft.index.current_version import FlushOnMatch
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.model.change import Change
from weft.model.schema import Schema
from weft.routing.covering.table import CoveringTable
from weft.routing.dls.items import LabelSet
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.dls.table import DlsTable
from weft.routing.filter_table import FilterTable
from weft.routing.flooding.table import FloodingTable
from weft.routing.identity.table import FormKey, IdentityTable, form_key
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.ledger import check_change
from weft.routing.local import RootSetChange
from weft.routing.local_forest import ForestLocal, MergedLocal
from weft.routing.merging.table import MergingTable
from weft.routing.mics.exact import MicsExactTable
from weft.routing.mics.items import CurveRange
from weft.routing.mics.table import MicsTable
from weft.routing.negative.structure import Limit
from weft.routing.negative.table import NegativeTable
from weft.routing.negative.tiles import Tiles
from weft.routing.routed_filter import RoutedFilter
from weft.routing.simple.table import SimpleTable
from weft.routing.table import Item, RoutingTable
from weft.space.content import ContentSpace
from weft.space.grid import Grid

K = TypeVar("K", bound=Hashable)


class AtOnce(Executor):
    """Runs what it is given here and now, so that runs repeat."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def small_index(schema: Schema | None = None, buffered: int = 3) -> TreeIndex:
    """An index in which ten filters reach every branch; a match leaves so many changes buffered."""
    flush = FlushOnMatch(changes=buffered)
    known = Predicates([KINDS])
    return TreeIndex(schema, predicates=known, executor=AtOnce(), tail=3, fan=2, large=6, flush=flush)


def minimal_cover(forms: Mapping[K, NormalForm]) -> set[K]:
    """The naive mechanism (thesis 3.2.1): the first of the filters that none of the others covers, from scratch."""
    kept: dict[K, NormalForm] = {}
    for key, form in forms.items():
        if not any(covers(other, form, form.schema) for other in kept.values()):
            kept = {k: other for k, other in kept.items() if not covers(form, other, form.schema)}
            kept[key] = form
    return set(kept)


class NaiveTable(FilterTable[FormKey, RoutedFilter]):
    """The oracle of covering tables: the minimal cover for each link, computed anew at every change."""

    model = "naive"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.items: dict[FormKey, Item] = {}

    def item(self, key: FormKey) -> Item:
        return self.items[key]

    def wanted(self, interface: TableInterface[FormKey, RoutedFilter]) -> set[FormKey]:
        others = [*self.holding(interface)]
        for each in others:
            self.items.setdefault(form_key(each.form), each.item)
        return minimal_cover({form_key(each.form): each.form for each in others})

    def revise(
        self, source: TableInterface[FormKey, RoutedFilter], drop: Sequence[RoutedFilter], add: Sequence[RoutedFilter]
    ) -> Job:
        for interface in self.listening(source):
            self.tell_everything(interface)
        return iter(())

    def tell_everything(self, interface: TableInterface[FormKey, RoutedFilter]) -> Job:
        wanted = self.wanted(interface)
        for key in [*interface.ledger.keys()]:
            if key not in wanted:
                self.withdraw(interface, key)
        for key in wanted:
            if not interface.ledger.knows(key):
                self.tell(interface, key)
        return iter(())


class LeastRoots:
    """A local part that gives its table the minimal cover of the local subscriptions, as a forest would."""

    def __init__(self) -> None:
        self.filters: dict[SubId, Filter] = {}

    def change(self, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> RootSetChange:
        check_change(self.filters, add, drop)
        before = self.roots()
        for sub in drop:
            del self.filters[sub]
        self.filters.update(add)
        after = self.roots()
        gone = [sub for sub, root in before.items() if after.get(sub) is not root]
        return Change(gone, {sub: root for sub, root in after.items() if before.get(sub) is not root})

    def roots(self) -> Mapping[SubId, Filter]:
        least = minimal_cover({sub: as_form(wanted) for sub, wanted in self.filters.items()})
        return {sub: wanted for sub, wanted in self.filters.items() if sub in least}


class Model(NamedTuple):
    """A table under test; `admits` says which of EVENTS it takes an item for, a bit each, if that is not the item's
    meaning: for a filter in a table of CELLS, all events of the cells that it touches.
    """

    make: Callable[[], RoutingTable]
    proves: bool = False  # for every wish there is a told item that `covers` proves to cover it
    admits: Callable[[Item], int] | None = None
    loose: bool = False  # `admits` does not know all items: law 3 is not looked at


SPACE = ContentSpace(
    Grid.uniform(
        Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}}), cells=8
    )
)
FIRST = ContentSpace(Grid(SPACE.grid.dimensions[:1]))  # one attribute of two
CELLS = SPACE.indexes(EVENTS)
_known_cells: dict[int, tuple[Item, int]] = {}  # by identity, as in `machine.bits`


def cells(item: Item) -> int:
    """The events of EVENTS in the cells of a range, or in those that a filter touches."""
    if id(item) not in _known_cells:
        _known_cells[id(item)] = item, _cells(item)
    return _known_cells[id(item)][1]


def _cells(item: Item) -> int:
    if isinstance(item, CurveRange):
        inside = (item.start <= CELLS) & (item.end >= CELLS)
    elif is_empty(item):
        return 0
    else:
        inside = SPACE.ranges(as_form(item)).contains(CELLS)
    return sum(1 << int(at) for at in inside.nonzero()[0])


# Two applications, and so few labels a filter that most drop bits.
LABELS = LabelSpace([SPACE.grid, Grid(SPACE.grid.dimensions[:1])], most=6, parts=3)
_known_labels: dict[bytes, int] = {}


def labelled(item: Item) -> int:
    """The events of EVENTS that have one of a set of labels, or of those of a filter."""
    if isinstance(item, LabelSet):
        wanted = np.array(item.labels, np.int64)
    elif is_empty(item):
        return 0
    else:
        wanted = LABELS.labels(as_form(item))
    key = wanted.tobytes()
    if key not in _known_labels:
        inside = np.isin(LABELS.of_events(EVENTS, LABELS.levels(wanted)), wanted).any(axis=1)
        _known_labels[key] = sum(1 << int(at) for at in inside.nonzero()[0])
    return _known_labels[key]


PREDICATES = Predicates([KINDS])
KNOWN: dict[str, Any] = {"index": small_index, "predicates": PREDICATES}


def buffering(changes: int) -> dict[str, Any]:
    """The same for a table whose matches leave so many changes buffered."""
    return {**KNOWN, "index": partial(small_index, buffered=changes)}


SMALL = {"make_tiles": partial(Tiles, most_axes=2, most_rows=4, reach=1 << 7, spare=4, patience=2)}

TABLES: dict[str, Model] = {
    "flooding": Model(partial(FloodingTable, predicates=PREDICATES)),
    "simple": Model(partial(SimpleTable, **buffering(2), refresh=True), proves=True),
    "identity": Model(partial(IdentityTable, **buffering(0), refresh=True), proves=True),
    "simple, local roots": Model(lambda: SimpleTable(**KNOWN, local=LeastRoots())),
    "covering": Model(partial(CoveringTable, **KNOWN, refresh=True)),
    "covering, piece by piece": Model(partial(CoveringTable, **KNOWN, work=1)),
    "covering, figure 4.13": Model(lambda: CoveringTable(local=ForestLocal(), **KNOWN, refresh=True)),
    "merging": Model(partial(MergingTable, **KNOWN, refresh=True)),
    "merging, local roots": Model(lambda: MergingTable(**KNOWN, local=MergedLocal(), work=2)),
    "merging, lazy": Model(partial(MergingTable, **KNOWN, lazy=True)),
    "mics": Model(partial(MicsTable, [SPACE], predicates=PREDICATES, refresh=True), admits=cells),
    "mics-exact": Model(partial(MicsExactTable, [SPACE], predicates=PREDICATES, work=2)),
    "mics, gaps": Model(partial(MicsTable, [SPACE], predicates=PREDICATES, gap=3, work=1), admits=cells),
    "dls": Model(partial(DlsTable, LABELS, predicates=PREDICATES, bundle=3, refresh=True), admits=labelled),
    "dls, hashed": Model(  # so small that nearly everything collides, and counters are full at once
        partial(DlsTable, LABELS, predicates=PREDICATES, shape=FilterShape(8, 3), rate=1.0, bundle=2), admits=labelled
    ),
    "dls, growing": Model(
        partial(DlsTable, LABELS, predicates=PREDICATES, shape=FilterShape(2, 1, bits=8), rate=0.2, work=1),
        admits=labelled,
    ),
    "negative": Model(partial(NegativeTable, **KNOWN, refresh=True)),
    "negative, k = 2": Model(partial(NegativeTable, limit=Limit(2), **KNOWN, work=1)),
    "negative, dynamic": Model(
        lambda: NegativeTable(limit=Limit(1, dynamic=True), local=ForestLocal(), space=SMALL, predicates=PREDICATES)
    ),
    "covering, poset": Model(partial(CoveringTable, **KNOWN, structure="poset", refresh=True)),
    "covering, poset, piece by piece": Model(partial(CoveringTable, **KNOWN, structure="poset", work=1)),
    "covering, two tests": Model(partial(CoveringTable, **KNOWN, tests=2)),
    "merging, by source": Model(partial(MergingTable, **KNOWN, scope="local", structure="poset")),
    "merging, by sources": Model(partial(MergingTable, **KNOWN, scope="aggregate", lazy=True, work=1)),
    "negative, never rebuilt": Model(partial(NegativeTable, **KNOWN, rebuild=False)),
    "naive": Model(partial(NaiveTable, **KNOWN)),
    "mics-exact, projected": Model(partial(MicsExactTable, [FIRST], predicates=PREDICATES, work=2)),
}
