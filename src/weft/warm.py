"""Compile what Weft compiles, before somebody waits for it. Law: every kernel is compiled, for the arrays it is given in
use; what is compiled already is only loaded.

`python -m weft.warm` is run by `make setup`: the kernels are called as the library calls them, on a few events and
subscriptions, and the compiler's cache keeps them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from weft.algebra.bulk import columns_of_texts
from weft.index.counting import CountingIndex
from weft.index.tree import TreeIndex
from weft.kernels.jit import COMPILED, KERNELS
from weft.language.text import parse_many
from weft.model.schema import Schema
from weft.order import FilterRelation, Forest
from weft.sim.candidates import CANDIDATES
from weft.sim.evidence import Data, compare
from weft.workloads import WORKLOADS
from weft.workloads.base import Workload

_SUBSCRIPTIONS, _EVENTS = 700, 200  # enough for every branch that is compiled apart
_EACH = 60  # subscriptions of a model of interest


def warm(tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Compile all kernels, or load them; the names of those that nothing here calls."""
    if not COMPILED:
        return []
    given = WORKLOADS["W3"](_SUBSCRIPTIONS, _EVENTS, seed=1)
    for what, use in _uses(given):
        tell(what)
        use()
    return sorted(_name(kernel) for kernel in KERNELS if not kernel.signatures)


def compiled() -> list[str]:
    """The kernels that this process compiled itself, instead of loading them."""
    return sorted(_name(kernel) for kernel in KERNELS if COMPILED and kernel.stats.cache_misses)


def _uses(given: Workload) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "the index", lambda: _index(given)
    yield "the covering order", lambda: _order(given)
    yield "models of interest", lambda: _interest(given)


def _index(given: Workload) -> None:
    texts = [*given.texts(), "kind LIKE '%a%' OR x IN (1, 2)", "TRUE", "when > TIMESTAMP '2018-01-01' AND kind = 'a'"]
    events = [*given.table.to_pylist(), {"kind": "ab", "x": 2}]
    for index in (TreeIndex(), CountingIndex()):
        index.add_texts(np.arange(len(texts)), texts)
        index.match(events[0])
        index.match_batch(events)
        index.match_batch(given.table)
        index.count_batch(given.table)
        index.any_batch(given.table)
        index.discard(0)
        index.match_batch(given.table)
        if isinstance(index, TreeIndex):
            with tempfile.TemporaryDirectory() as place:
                index.snapshot(Path(place, "index"))
                TreeIndex.open(Path(place, "index")).match_batch(given.table)


def _order(given: Workload) -> None:
    forest: Forest[Any] = Forest(FilterRelation())
    for number, each in enumerate(parse_many(given.texts())):
        forest.add(each, number)
    columns_of_texts(given.texts()).covered_by(columns_of_texts(given.texts()[:1]).box(0))


def _interest(given: Workload) -> None:
    schema = Schema.infer(given.table)
    data = Data.of(parse_many(given.texts()[:_EACH]), given.table.to_pylist(), schema, 1)
    compare(data, list(CANDIDATES), patience=600)


def _name(kernel: Any) -> str:
    return f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"


if __name__ == "__main__":
    unused = warm(lambda what: print(f"compiling: {what}", flush=True))
    print(f"{len(KERNELS)} kernels, {len(compiled())} compiled now", *(f"not called: {name}" for name in unused), sep="\n")
    sys.exit(bool(unused))
