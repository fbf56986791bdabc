"""The tables under test, one line each: a new table adds its line to TABLES and passes the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from strategies import EVENTS, KINDS
from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form, covers, is_empty
from weft.index import TreeIndex
from weft.index.base import SubId
from weft.interest.curve_range import CurveRange
from weft.interest.label_filter import FilterShape
from weft.interest.label_set import LabelSet
from weft.interest.negative import Limit
from weft.interest.tiles import Tiles
from weft.language.predicate import Predicates
from weft.model.schema import Schema
from weft.order import NonRedundantForest
from weft.routing.adverts import Overlap
from weft.routing.covering import CoveringTable, covering_forest
from weft.routing.dls import DlsTable
from weft.routing.exact import ExactTable
from weft.routing.flooding import FloodingTable
from weft.routing.identity import Form, IdentityTable, form_of
from weft.routing.local import EveryRoot, Held, RootChange
from weft.routing.local_forest import ForestLocal
from weft.routing.merging import MergedLocal, MergingTable
from weft.routing.mics import CurveOverlap, MicsTable
from weft.routing.negative import NegativeTable
from weft.routing.simple import SimpleTable
from weft.routing.table import Item, Link, RoutingTable
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.label_space import LabelSpace

K = TypeVar("K", bound=Hashable)


class AtOnce(Executor):
    """Runs what it is given here and now, so that runs repeat."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def small_index(schema: Schema | None = None) -> TreeIndex:
    """An index in which ten filters reach every branch."""
    return TreeIndex(schema, predicates=Predicates([KINDS]), executor=AtOnce(), tail=3, fan=2, large=6)


def minimal_cover(forms: Mapping[K, NormalForm]) -> set[K]:
    """The naive mechanism (thesis 3.2.1): the first of the filters that none of the others covers, from scratch."""
    kept: dict[K, NormalForm] = {}
    for key, form in forms.items():
        if not any(covers(other, form, form.schema) for other in kept.values()):
            kept = {k: other for k, other in kept.items() if not covers(form, other, form.schema)}
            kept[key] = form
    return set(kept)


class NaiveTable(ExactTable[Form]):
    """The oracle of covering tables: the minimal cover for each link, computed anew at every change."""

    model = "naive"

    def wanted(self, link: Link) -> Mapping[Form, Item]:
        others = [each for source, held in self.held.items() if source != link for each in held.values()]
        least = minimal_cover({form_of(each): each.form for each in others})
        return {form_of(each): each.item for each in others if form_of(each) in least}


class LeastRoots(EveryRoot):
    """A local part that gives its table the minimal cover of the local subscriptions, as a forest would."""

    def change(self, add: Mapping[SubId, Held], drop: Collection[SubId]) -> RootChange:
        before = self.roots()
        super().change(add, drop)
        after = self.roots()
        gone = [sub for sub, held in before.items() if after.get(sub) is not held]
        return RootChange(gone, {sub: held for sub, held in after.items() if before.get(sub) is not held})

    def roots(self) -> Mapping[SubId, Held]:
        every = super().roots()
        least = minimal_cover({sub: held.form for sub, held in every.items()})
        return {sub: held for sub, held in every.items() if sub in least}


class Model(NamedTuple):
    """A table under test; `admits` says which of EVENTS it takes an item for, a bit each, if that is not the item's
    meaning: for a filter in a table of CELLS, all events of the cells that it touches.
    """

    make: Callable[[], RoutingTable]
    proves: bool = False  # for every wish there is a told item that `covers` proves to cover it
    admits: Callable[[Item], int] | None = None
    loose: bool = False  # more may be told than is wanted: law 3 does not hold
    overlap: Overlap | None = None  # of items with advertisements, if they are no filters


SPACE = ContentSpace(
    Grid.uniform(
        Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}}), cells=8
    )
)
CELLS = SPACE.indexes(EVENTS)


def cells(item: Item) -> int:
    """The events of EVENTS in the cells of a range, or in those that a filter touches."""
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


SMALL = {"make_tiles": partial(Tiles, most_axes=2, most_rows=4, reach=1 << 7, spare=4, patience=2)}

TABLES: dict[str, Model] = {
    "flooding": Model(FloodingTable),
    "simple": Model(partial(SimpleTable, index=small_index, beside=2, refresh=True), proves=True),
    "identity": Model(partial(IdentityTable, index=small_index, beside=0, refresh=True), proves=True),
    "simple, local roots": Model(lambda: SimpleTable(index=small_index, beside=3, local=LeastRoots())),
    "covering, poset": Model(partial(CoveringTable, index=small_index, refresh=True)),
    "covering, forest": Model(partial(covering_forest, index=small_index)),
    "covering, approximate": Model(partial(covering_forest, exact=False, index=small_index)),
    "covering, figure 4.13a": Model(lambda: CoveringTable(local=ForestLocal(), index=small_index)),
    "covering, figure 4.13b": Model(lambda: covering_forest(local=ForestLocal(), index=small_index, refresh=True)),
    "merging": Model(partial(MergingTable, index=small_index, refresh=True)),
    "merging, forest": Model(
        lambda: MergingTable(index=small_index, structure=NonRedundantForest, overlapping=True, local=MergedLocal())
    ),
    "merging, lazy": Model(partial(MergingTable, index=small_index, lazy=True), loose=True),
    "mics": Model(partial(MicsTable, [SPACE], refresh=True), admits=cells, overlap=CurveOverlap([SPACE])),
    "mics, gaps": Model(partial(MicsTable, [SPACE], gap=3), admits=cells, loose=True),
    "dls": Model(partial(DlsTable, LABELS, bundle=3, refresh=True), admits=labelled),
    "dls, hashed": Model(  # so small that nearly everything collides, and counters are full at once
        partial(DlsTable, LABELS, shape=FilterShape(8, 3), rate=1.0, bundle=2), admits=labelled
    ),
    "dls, growing": Model(partial(DlsTable, LABELS, shape=FilterShape(2, 1, bits=8), rate=0.2), admits=labelled),
    "negative": Model(partial(NegativeTable, index=small_index, refresh=True)),
    "negative, k = 2": Model(partial(NegativeTable, limit=Limit(2), index=small_index)),
    "negative, dynamic": Model(lambda: NegativeTable(limit=Limit(1, dynamic=True), local=ForestLocal(), space=SMALL)),
    "naive": Model(partial(NaiveTable, index=small_index)),
}
