"""Label sets as the paper prints them beside ours: what is lost after unsubscriptions, and what memory it saves.

Losses: one link, 4 hashes, 400 labels that come and go at random; of the labels that are wanted, the share that the
neighbour does not find (errata, DLS 3). Memory: clients with one subscription of 2 x 2 x 2 granules each, 32 granules
an attribute, filters for a hundredth of false positives. Bytes are those that the objects take up in this process, the
filters of subscriptions not among them; `counters` are those of the counters alone. Of a broker as printed the receiver
is the routing table of one link, the sender the filter of all its clients, the clients their own filters; of ours what
a `DlsTable` holds of what a link told, of what it told a link, and of local subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from weft.index.base import SubId
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing.dls.items import LabelSet
from weft.routing.dls.printed import FilterBroker, FilterReceiver
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import CountingFilter, FilterShape, LabelCounts
from weft.routing.dls.table import DlsTable
from weft.routing.table import ItemId, Link, Update
from weft.space.grid import Grid
from weftlab.bench.report import Progress, Result
from weftlab.bench.traced_memory import TracedMemory

SIZES = (256, 1024, 4096)
_LABELS = 400
_GRANULES = 32
_RATE = 0.01
_BUNDLE = 64


def run(clients: int, passes: int, progress: Progress) -> list[Result]:
    """Losses, as means over some passes; and memory with a number of clients."""
    progress("one link, as printed and with exact counts: labels that come and go")
    results = []
    for size in SIZES:
        found = [losses(size, seed) for seed in range(passes)]
        for name, shares in zip(("printed", "ours"), zip(*found, strict=True), strict=True):
            results.append(Result(f"lost/m{size}/{name}", 100 * float(np.mean(shares)), "%"))
    progress(f"memory of {clients:,} clients, as printed and ours")
    return results + _memory(clients)


def losses(size: int, seed: int) -> tuple[float, float]:
    """The mean share of wanted labels that the neighbour does not find, as printed and with exact counts."""
    shape, rng = FilterShape(size, hashes=4, bits=8, seed=seed), np.random.default_rng(seed)
    broker: FilterBroker[int] = FilterBroker(shape, FilterShape(4))
    needs = LabelCounts()
    printed, ours = FilterReceiver(shape), FilterReceiver(shape)
    labels = rng.permutation(1 << 20)[:_LABELS].tolist()
    wanted: set[int] = set()
    missing: list[tuple[float, float]] = []
    for step in range(6 * _LABELS):
        label = labels[int(rng.integers(_LABELS))]
        if label in wanted:
            wanted.remove(label)
            printed.change(*broker.unsubscribe(0, [label]))
            ours.change(needs.remove([label]).tolist(), [])
        else:
            wanted.add(label)
            printed.change(*broker.subscribe(0, [label]))
            ours.change([], needs.add([label]).tolist())
        if wanted and step >= _LABELS and step % 20 == 0:
            missing.append((1 - printed.contains([*wanted]).mean(), 1 - ours.contains([*wanted]).mean()))
    means = np.mean(missing, axis=0)
    return float(means[0]), float(means[1])


def _memory(clients: int) -> list[Result]:
    """Bytes for each label at the receiver and at the sender of one link, and for each client's subscription."""
    names = ("a", "b", "c")
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 29]} for name in names}})
    space = LabelSpace([Grid.uniform(schema, _GRANULES)])
    filters = [_region(low, names) for low in np.random.default_rng(5).integers(0, 28, (clients, 3)).tolist()]
    wanted = [space.labels(each) for each in filters]
    every = np.unique(np.concatenate(wanted))
    whole, small = FilterShape.fitting(len(every), _RATE), FilterShape.fitting(max(map(len, wanted)), _RATE)
    one = _traced(partial(_received, whole), every)  # both ends of a link have the same filter
    clients_own = _traced(partial(_own_filters, small), wanted)
    held = {"printed/receiver": one, "printed/sender": one, "printed/clients": clients_own}
    for kind, shape in (("ours-filter", whole), ("ours-exact", None)):
        held[f"{kind}/receiver"] = _traced(partial(_heard, space, shape), every)
        alone, linked = (_traced(partial(_local, space, shape, links), filters) for links in (0, 1))
        held[f"{kind}/sender"] = linked - alone
        held[f"{kind}/clients"] = alone
    results = [Result(f"memory/{clients}/labels", len(every), "labels")]
    for name, taken in held.items():
        each, unit = (clients, "bytes/subscription") if name.endswith("clients") else (len(every), "bytes/label")
        results.append(Result(f"memory/{clients}/{name}", taken / each, unit))
    results.append(Result(f"memory/{clients}/printed/receiver_counters", whole.nbytes / len(every), "bytes/label"))
    results.append(Result(f"memory/{clients}/printed/clients_counters", small.nbytes, "bytes/subscription"))
    return results


def _region(low: list[int], names: tuple[str, ...]) -> Filter:
    """A box that touches two granules of each attribute."""
    return parse(" AND ".join(f"{name} > {at}.5 AND {name} < {at + 1}.5" for name, at in zip(names, low, strict=True)))


def _traced(make: Callable[[Any], Any], things: Any) -> int:
    """The bytes that what is made of things takes up; a small one before loads the compiled code."""
    make(things[:2])
    with TracedMemory() as traced:
        made = make(things)
    del made
    return traced.kept


def _received(shape: FilterShape, labels: Ints) -> FilterReceiver:
    made = FilterReceiver(shape)
    made.change([], labels.tolist())
    return made


def _own_filters(shape: FilterShape, wanted: list[Ints]) -> list[CountingFilter]:
    return [CountingFilter.of(shape, [labels]) for labels in wanted]


def _heard(space: LabelSpace, shape: FilterShape | None, labels: Ints) -> DlsTable:
    """A table that a neighbour told these labels."""
    made, link = DlsTable(space, shape=shape, rate=_RATE), Link("north")
    made.attach(link)
    bundles = [LabelSet(tuple(labels[at : at + _BUNDLE].tolist())) for at in range(0, len(labels), _BUNDLE)]
    made.learn(link, Update(add={ItemId(number): each for number, each in enumerate(bundles)}))
    return made


def _local(space: LabelSpace, shape: FilterShape | None, links: int, filters: list[Filter]) -> DlsTable:
    """A table with these local subscriptions, and neighbours that are told of them."""
    made = DlsTable(space, shape=shape, rate=_RATE)
    for number in range(links):
        made.attach(Link(f"link {number}"))
    made.change({SubId(number): each for number, each in enumerate(filters)}, ())
    return made
