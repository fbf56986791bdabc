"""The peers of Weft, each as its experts would write it, on one thread with the same filters and events. A peer returns
every pair of event and subscription, as Weft does, and reports how many there were.

Each was tuned on W1 to W5: capacities of the R-tree, the streaming engine of Polars (as fast, and a batch never fills
the memory), DuckDB's joins. A bound that is missing is stored as infinity, so that the joins have plain comparisons.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.workloads import Workload

EVENT, SUBSCRIPTION, LOW, HIGH, IS = "event_", "subscription_", "_low", "_high", "_is"  # names of columns
MOST_DIMENSIONS = 4  # beyond, an R-tree is a slow scan
MOST_LAMBDAS = 20_000
_EVER = 1_000_000_000  # more rows than any batch has
GROWTH = 8  # of batches, while there is time


class Peer(Protocol):
    """A way to match events that is not ours."""

    name: str
    install: str  # how to get it; empty if there is nothing to install

    def build(self, workload: Workload) -> None:
        """Load the subscriptions."""

    def match(self, events: pa.RecordBatch) -> int:
        """Find all pairs of event and subscription, and say how many there are."""

    def subscriptions(self) -> int:
        """How many it holds: the first ones of the workload."""

    def plan(self, events: pa.RecordBatch) -> str:
        """How it would do it, in lines for a reader; empty if there is only one way."""


class LoadedPeer(Protocol):
    """What can be timed: a peer that holds subscriptions."""

    def match(self, events: pa.RecordBatch) -> int:
        """Find all pairs of event and subscription, and say how many there are."""

    def subscriptions(self) -> int:
        """How many it holds: the first ones of the workload."""


class Given(Protocol):
    """Subscriptions, and events to match."""

    @property
    def table(self) -> pa.RecordBatch:
        """The events."""

    def __len__(self) -> int:
        """The number of subscriptions."""


class Rtree:
    """libspatialindex, loaded in bulk and asked in bulk; strings are the codes of a dimension."""

    name, install = "rtree", "pip install rtree"

    def build(self, workload: Workload) -> None:
        """Boxes by their corners; an open side ends where the domain ends."""
        rtree: Any = import_module("rtree.index")
        self._codes: dict[str, Any] = {}
        lows, highs = [], []
        for name, column in workload.bounds.items():
            if isinstance(column, tuple):
                values = np.concatenate([*column, workload.table.column(name).to_numpy()])
                low, high = column
                lows.append(np.nan_to_num(low, nan=np.nanmin(values)))
                highs.append(np.nan_to_num(high, nan=np.nanmax(values)))
            else:
                coded = column.dictionary_encode()
                self._codes[name] = coded.dictionary
                lows.append(coded.indices.to_numpy().astype(np.float64))
                highs.append(lows[-1])
        self._attributes, self._size = list(workload.bounds), len(workload)
        properties = rtree.Property(dimension=len(lows), leaf_capacity=20, index_capacity=20, fill_factor=0.99)
        corners = np.column_stack(lows), np.column_stack(highs)
        self._tree = rtree.Index((np.arange(self._size), *corners), properties=properties, interleaved=False)

    def match(self, events: pa.RecordBatch) -> int:
        """One call for the whole batch."""
        points = np.column_stack([self._point(name, events.column(name)) for name in self._attributes])
        found, _ = self._tree.intersection_v(points, points)
        return len(found)

    def subscriptions(self) -> int:
        """All."""
        return self._size

    def plan(self, _: pa.RecordBatch) -> str:
        """There is only one."""
        return ""

    def _point(self, name: str, values: Any) -> Any:
        if name not in self._codes:
            return values.to_numpy()
        return pc.index_in(values, value_set=self._codes[name]).fill_null(-1).to_numpy().astype(np.float64)


class Polars:
    """`join_where`: a hash join on what must be equal, else an IEJoin on two ranges, and a filter."""

    name, install = "polars", "pip install polars"

    def build(self, workload: Workload) -> None:
        """A frame of the subscriptions, and the predicates of the join."""
        if "polars" not in sys.modules:
            os.environ["POLARS_MAX_THREADS"] = "1"  # read once, when it is imported
        self._polars = polars = import_module("polars")
        self._subscriptions = polars.from_arrow(_columns(workload)).lazy()
        self._size = len(workload)
        column = polars.col
        self._predicates = []
        for name, kind in _kinds(workload):
            if kind in (LOW, HIGH):
                value, bound = column(name), column(name + kind)
                self._predicates.append(value >= bound if kind == LOW else value <= bound)
            else:
                same = column(name) == column(name + IS)
                self._predicates.append(same if kind == IS else column(name + IS).is_null() | same)

    def match(self, events: pa.RecordBatch) -> int:
        """One lazy query for the batch."""
        found: int = self._query(events).collect(engine="streaming").height
        return found

    def subscriptions(self) -> int:
        """All."""
        return self._size

    def plan(self, events: pa.RecordBatch) -> str:
        """What the optimizer made of it, and its threads."""
        threads = self._polars.thread_pool_size()
        return f"{threads} thread{'s' if threads > 1 else ''}\n{self._query(events).explain()}"

    def _query(self, events: pa.RecordBatch) -> Any:
        frame = self._polars.from_arrow(events).with_row_index(EVENT).lazy()
        return frame.join_where(self._subscriptions, *self._predicates).select(EVENT, SUBSCRIPTION)


class DuckDB:
    """One join over all predicates: a hash join where one must be equal, else a join by inequalities."""

    name, install = "duckdb", "pip install duckdb"

    def build(self, workload: Workload) -> None:
        """A table of the subscriptions, and the query."""
        self._duckdb = import_module("duckdb").connect()
        self._duckdb.execute("SET threads = 1")
        self._duckdb.register("given", _columns(workload))
        self._duckdb.execute("CREATE TABLE subscriptions AS SELECT * FROM given")
        self._duckdb.unregister("given")
        self._size = len(workload)
        kinds = list(_kinds(workload))
        # An IEJoin is best where every subscription has two ranges to begin with. Where most lack any given one, it
        # finds far too many pairs first, and so does a sorted join where strings may be lacking too.
        strings = any(kind == "" for _, kind in kinds)
        ranges = any(np.isnan(low).any() and np.isnan(high).any() for low, high in _ranges(workload))
        self._duckdb.execute(f"SET nested_loop_join_threshold = {_EVER if strings else 0}")
        self._duckdb.execute(f"SET merge_join_threshold = {_EVER if ranges else 0}")
        forms = {
            LOW: 'e."{0}" >= s."{0}_low"',
            HIGH: 'e."{0}" <= s."{0}_high"',
            IS: 'e."{0}" = s."{0}_is"',
            "": '(s."{0}_is" IS NULL OR e."{0}" = s."{0}_is")',
        }
        on = " AND ".join(forms[kind].format(name) for name, kind in kinds)
        self._sql = f"SELECT e.{EVENT}, s.{SUBSCRIPTION} FROM happened e JOIN subscriptions s ON {on}"

    def match(self, events: pa.RecordBatch) -> int:
        """One query for the batch, its result an Arrow table."""
        self._register(events)
        found: int = self._duckdb.sql(self._sql).to_arrow_table().num_rows
        return found

    def subscriptions(self) -> int:
        """All."""
        return self._size

    def plan(self, events: pa.RecordBatch) -> str:
        """The operators, an indent a level."""
        self._register(events)
        tree = json.loads(self._duckdb.execute("EXPLAIN (FORMAT json) " + self._sql).fetchall()[0][1])
        return "\n".join(_operators(tree, 0))

    def _register(self, events: pa.RecordBatch) -> None:
        numbers = pa.array(np.arange(events.num_rows))
        self._duckdb.register("happened", pa.Table.from_batches([events]).append_column(EVENT, numbers))


class Lambdas:
    """What a program without an index does: a compiled lambda per subscription, called for every event."""

    name, install = "lambdas", ""

    def build(self, workload: Workload) -> None:
        """Compile the first ones; the rest is scaled."""
        self._attributes = list(workload.bounds)
        head = f"lambda {', '.join(self._attributes)}: "
        self._lambdas = [eval(head + _python(text)) for text in workload.texts(MOST_LAMBDAS)]

    def match(self, events: pa.RecordBatch) -> int:
        """Call all of them for every event."""
        rows = zip(*(events.column(name).to_pylist() for name in self._attributes), strict=True)
        return sum(len([at for at, wants in enumerate(self._lambdas) if wants(*row)]) for row in rows)

    def subscriptions(self) -> int:
        """The first 20,000."""
        return len(self._lambdas)

    def plan(self, _: pa.RecordBatch) -> str:
        """There is only one."""
        return ""


class Pace(NamedTuple):
    """How quick a peer was: `events` were matched and had `matches`, the last ones in `seconds` each."""

    events: int
    matches: int
    seconds: float  # per event and for all subscriptions of the workload
    batch: int


PEERS: tuple[type[Peer], ...] = (Rtree, Polars, DuckDB, Lambdas)


def installed(peer: type[Peer]) -> bool:
    """Whether it can be measured here."""
    return not peer.install or find_spec(peer.name) is not None


def suits(peer: type[Peer], workload: Workload) -> bool:
    """Whether an expert would use it for the workload."""
    return peer is not Rtree or len(workload.bounds) <= MOST_DIMENSIONS


def pace(peer: LoadedPeer, workload: Given, budget: float, most: int) -> Pace:
    """The time that a peer needs for an event, in batches that grow to `most` events while the budget allows it.

    Only the batches of the last size count. The first two events are matched twice: one-time work is not timed.
    """
    peer.match(workload.table.slice(0, 2))
    events = matches = counted = 0
    spent = seconds = before = 0.0
    size = min(GROWTH, most)
    while events < workload.table.num_rows:
        batch = workload.table.slice(events, size)
        start = perf_counter()
        matches += peer.match(batch)
        took = perf_counter() - start
        events, counted = events + batch.num_rows, counted + batch.num_rows
        spent, seconds = spent + took, seconds + took
        left, larger = budget - spent, min(GROWTH * size, most)
        # A batch costs something and an event costs something; one eighth of the time at least is the events'.
        of_an_event = max((took - before) / (size - size // GROWTH), took / size / 8) if before else took / size
        if size < larger <= workload.table.num_rows - events and took + of_an_event * (larger - size) < left:
            size, counted, seconds, before = larger, 0, 0.0, took
        elif took > left:
            break
    scale = len(workload) / peer.subscriptions()
    return Pace(events, matches, scale * seconds / counted, size)


def _columns(workload: Workload) -> pa.Table:
    """The subscriptions as a table: open sides are infinite, strings without a predicate NULL."""
    columns: dict[str, Any] = {SUBSCRIPTION: np.arange(len(workload))}
    for name, column in workload.bounds.items():
        if isinstance(column, tuple):
            columns[name + LOW] = np.nan_to_num(column[0], nan=-np.inf)
            columns[name + HIGH] = np.nan_to_num(column[1], nan=np.inf)
        else:
            columns[name + IS] = column
    return pa.table(columns)


def _kinds(workload: Workload) -> Iterator[tuple[str, str]]:
    """The predicates: attribute and LOW, HIGH, IS, or nothing where a string is in some subscriptions only."""
    for name, column in workload.bounds.items():
        if not isinstance(column, tuple):
            yield name, "" if column.null_count else IS
    for name, column in workload.bounds.items():
        if isinstance(column, tuple):
            yield from (
                (name, side) for side, ends in zip((LOW, HIGH), column, strict=True) if not np.isnan(ends).all()
            )


def _ranges(workload: Workload) -> list[Any]:
    return [column for column in workload.bounds.values() if isinstance(column, tuple)]


def _operators(nodes: Iterable[dict[str, Any]], depth: int) -> Iterator[str]:
    """DuckDB's plan, an operator a line with how it joins or what it scans."""
    for node in nodes:
        about = node["extra_info"]
        what = about.get("Conditions") or about.get("Condition") or about.get("Table") or about.get("Function") or ""
        what = ", ".join(what) if isinstance(what, list) else what
        rows = about.get("Estimated Cardinality", "?")
        yield f"{'  ' * depth}{node['name']} {what} (~{rows} rows)"
        yield from _operators(node["children"], depth + 1)


def _python(text: str) -> str:
    """The Python expression of a filter of W1 to W5: a conjunction of ranges and equalities."""
    ranges = re.sub(r"(\w+) BETWEEN (\S+) AND (\S+)", r"\2 <= \1 <= \3", text)
    return ranges.replace(" = ", " == ").replace(" AND ", " and ")
