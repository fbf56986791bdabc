"""Compilation of the kernels ahead of time. Every kernel is compiled for the arrays that the library passes to it; what
is already compiled is only loaded.

`weft warm` does it, and `make setup` runs it as `python -m weft.warm`: the kernels are called as the library calls
them, on a few events and subscriptions, and the compiler's cache keeps them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from weft.algebra.bulk import columns_of_texts
from weft.index.counting import CountingIndex
from weft.index.index import Index
from weft.index.tree import TreeIndex
from weft.kernels.compiler import KERNELS, compiled_here, uncached
from weft.kernels.jit import load
from weft.language.text import parse_many
from weft.model.schema import Schema
from weft.models.candidates import CANDIDATES
from weft.models.evidence import Data, compare
from weft.order import FilterRelation, Forest
from weft.routing.dls.structure import CountingFilter, FilterShape
from weft.routing.mics.structure import RangeTable
from weft.space.curve import Curve, Order
from weft.space.range_set import RangeSet
from weft.workloads import WORKLOADS
from weft.workloads.base import Workload

_SUBSCRIPTIONS, _EVENTS = 700, 200  # enough for every branch that is compiled apart
_DISCARDED = 200  # more than are only marked
_EACH = 60  # subscriptions of a routing model


def warm(tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Compile all kernels, or load them; return the names of those that are still not compiled."""
    load()
    given = WORKLOADS["W3"](_SUBSCRIPTIONS, _EVENTS, seed=1)
    for what, use in _uses(given):
        tell(what)
        use()
    return uncached()


def _uses(given: Workload) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "the index", lambda: _index(given)
    yield "the covering order", lambda: _order(given)
    yield "routing models", lambda: _interest(given)
    yield "curves, ranges and labels", _spaces


def _index(given: Workload) -> None:
    odd = ["kind LIKE '%a%' OR x IN (1, 2)", "kind LIKE '%a%' AND kind NOT LIKE '%b%' AND x > 1", "TRUE"]
    texts = [*given.texts(), *odd, *odd, "when > TIMESTAMP '2018-01-01' AND kind = 'a'"]
    events = [*given.table.to_pylist(), {"kind": "ab", "x": 2}]
    alike = TreeIndex()  # filters whose rows say all, some of them equal
    alike.add_columns(np.arange(2 * len(given)), {name: _twice(column) for name, column in given.bounds.items()})
    alike.match(events[0])
    assert len(alike.match_batch(given.table).ids)
    alike.discard_many(range(_DISCARDED))
    assert len(alike.match_batch(given.table).ids)
    assert Index({"rule": "TRUE"}).match(events[0]) == ["rule"]
    wide = WORKLOADS["W5"](_SUBSCRIPTIONS, _EVENTS, seed=1)  # its events reach many leaves: they are searched together
    scattered = TreeIndex()
    scattered.add_columns(np.arange(len(wide)), wide.bounds)
    for each in (scattered, _reopened(scattered)):
        assert len(each.match_batch(wide.table).ids)
        each.count_batch(wide.table)
    for index in (TreeIndex(), CountingIndex()):
        index.add_texts(np.arange(len(texts)), texts)
        index.match(events[0])
        index.match_batch(events)
        assert len(index.match_batch(given.table).ids)
        index.count_batch(given.table)
        index.any_batch(given.table)
        index.discard_many(range(_DISCARDED))
        index.match_batch(given.table)
        if isinstance(index, TreeIndex):
            index.match_batch(given.table, by=np.arange(len(texts)))
            _reopened(index).match_batch(given.table)


def _reopened(index: TreeIndex) -> TreeIndex:
    """The index of a snapshot; its arrays are of another type, because they cannot be written to."""
    with tempfile.TemporaryDirectory() as place:
        index.snapshot(Path(place, "index"))
        return TreeIndex.open(Path(place, "index"))


def _twice(column: Any) -> Any:
    """The bounds of an attribute, and then the same again."""
    if isinstance(column, tuple):
        return tuple(np.concatenate([ends, ends]) for ends in column)
    return pa.concat_arrays([column, column])


def _order(given: Workload) -> None:
    forest: Forest[Any] = Forest(FilterRelation())
    for number, each in enumerate(parse_many(given.texts())):
        forest.add(each, number)
    columns_of_texts(given.texts()).covered_by(columns_of_texts(given.texts()[:1]).box(0))


def _interest(given: Workload) -> None:
    schema = Schema.infer(given.table)
    odd = [f"{text} OR {schema.attributes[0].name} IS NULL" for text in given.texts()[_EACH : 2 * _EACH]]
    filters = parse_many([*given.texts()[:_EACH], *odd])
    compare(Data.of(filters, given.table.to_pylist(), schema, 1), list(CANDIDATES), patience=600)


def _spaces() -> None:
    for order in Order:
        curve = Curve(dims=2, bits=3, order=order)
        curve.cells(curve.index([(3, 5), (5, 3)]))
    table, ranges = RangeTable(), RangeSet.of((10, 19), (30, 39))
    table.insert(ranges)
    table.covers(ranges)
    table.uncovered(ranges)
    table.needed()
    for bits in (4, 8):
        shape = FilterShape(64, bits=bits)
        one, other = CountingFilter(shape), CountingFilter(shape)
        one.add([1, 2, 3])
        other.add([3, 4])
        one.merge(other)
        one.counts([1])
        one.remove([1])
        repr(one.saturated)


def main(quiet: bool = False) -> int:
    """Compile all kernels and report it on standard output; returns the exit code: 1 if some could not be compiled."""
    left = warm((lambda _: None) if quiet else (lambda what: print(f"compiling kernels: {what}", flush=True)))
    if left or not quiet:
        lines = (f"{len(KERNELS)} kernels, {compiled_here()} compiled now", *(f"not compiled: {each}" for each in left))
        print(*lines, sep="\n")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
