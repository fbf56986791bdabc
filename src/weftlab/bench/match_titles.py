"""W7, substrings: Weft against two query engines and an automaton driven from Python, measured as in `match`.

The peers are written as their experts would: both engines join by the range of prices first, which leaves one pair in
twenty, and test words without patterns; the automaton finds all words of a title at once, and looks up the rules by the
rarest of their words.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from weft.index import TreeIndex
from weft.workloads.titles import Titles, w7
from weftlab.bench.peers import EVENT, SUBSCRIPTION, LoadedPeer, pace
from weftlab.bench.report import timed

BATCH = 4_096
EVENTS = 20_000


class TitleDuckDB:
    """One join by price, with the words tested for each pair."""

    name, install = "duckdb", "pip install duckdb"

    def __init__(self, titles: Titles) -> None:
        self._duckdb = import_module("duckdb").connect()
        self._duckdb.execute("SET threads = 1")
        self._duckdb.execute("SET nested_loop_join_threshold = 0")
        self._duckdb.register("given", _rules(titles))
        self._duckdb.execute("CREATE TABLE rules AS SELECT * FROM given")
        self._size = len(titles)
        words = " AND ".join(f"contains(e.title, r.word{n})" for n in range(3))
        self._sql = (
            f"SELECT e.{EVENT}, r.{SUBSCRIPTION} FROM happened e JOIN rules r "
            f"ON e.price >= r.low AND e.price <= r.high WHERE {words}"
        )

    def match(self, events: pa.RecordBatch) -> int:
        """One query for the batch, its result an Arrow table."""
        numbers = pa.array(np.arange(events.num_rows))
        self._duckdb.register("happened", pa.Table.from_batches([events]).append_column(EVENT, numbers))
        found: int = self._duckdb.sql(self._sql).to_arrow_table().num_rows
        return found

    def subscriptions(self) -> int:
        """All."""
        return self._size


class TitlePolars:
    """The same in Polars."""

    name, install = "polars", "pip install polars"

    def __init__(self, titles: Titles) -> None:
        if "polars" not in sys.modules:
            os.environ["POLARS_MAX_THREADS"] = "1"  # read once, when it is imported
        self._polars = import_module("polars")
        self._rules = self._polars.from_arrow(_rules(titles)).lazy()
        self._size = len(titles)

    def match(self, events: pa.RecordBatch) -> int:
        """One lazy query for the batch."""
        column = self._polars.col
        frame = self._polars.from_arrow(events).with_row_index(EVENT).lazy()
        pairs = frame.join_where(self._rules, column("price") >= column("low"), column("price") <= column("high"))
        for n in range(3):
            pairs = pairs.filter(column("title").str.contains(column(f"word{n}"), literal=True))
        found: int = pairs.select(EVENT, SUBSCRIPTION).collect(engine="streaming").height
        return found

    def subscriptions(self) -> int:
        """All."""
        return self._size


class TitleAutomaton:
    """An automaton of all words, and in Python the rules of each word that is the rarest of its rule."""

    name, install = "ahocorasick_rs", "pip install ahocorasick_rs"

    def __init__(self, titles: Titles) -> None:
        users = Counter(word for words in titles.words for word in words)
        numbers = {word: number for number, word in enumerate(users)}
        self._automaton = import_module("ahocorasick_rs").AhoCorasick(list(numbers))
        self._rules: list[list[tuple[int, float, float, tuple[int, ...]]]] = [[] for _ in numbers]
        ends = zip(titles.words, titles.low.tolist(), titles.high.tolist(), strict=True)
        for rule, (words, low, high) in enumerate(ends):
            rarest, *others = sorted(words, key=lambda word: users[word])
            self._rules[numbers[rarest]].append((rule, low, high, tuple(numbers[word] for word in others)))

    def match(self, events: pa.RecordBatch) -> int:
        """Event by event."""
        found = 0
        find, rules = self._automaton.find_matches_as_indexes, self._rules
        for title, price in zip(events.column("title").to_pylist(), events.column("price").to_pylist(), strict=True):
            words = {hit[0] for hit in find(title, overlapping=True)}
            matched = [
                rule
                for word in words
                for rule, low, high, others in rules[word]
                if low <= price <= high and (not others or words.issuperset(others))
            ]
            found += len(matched)
        return found

    def subscriptions(self) -> int:
        """All."""
        return sum(map(len, self._rules))


TITLE_PEERS: tuple[Any, ...] = (TitleDuckDB, TitlePolars, TitleAutomaton)


def measure_titles(
    size: int, budget: float, progress: Callable[[str], None]
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Our figures, and seconds that each peer takes for an event; None for one that is not installed."""
    progress(f"W7 with {size:,} rules")
    titles = w7(size, min(EVENTS, max(size, 1_000)))
    texts = titles.texts()
    index = TreeIndex()
    index.add_texts(range(20), texts[:20])  # compiles, or loads what was compiled
    _with_ids(index, titles.table.slice(0, 3))
    index = TreeIndex()
    build_seconds, _ = timed(lambda: index.add_texts(np.arange(size), texts))
    _with_ids(index, titles.table.slice(0, 3))
    seconds, counts = 0.0, []
    for batch in titles.batches(BATCH):
        took, found = timed(partial(_with_ids, index, batch))
        seconds += took
        counts.append(found.counts)
    per_event = np.concatenate(counts)
    ours = {
        "us_per_event": 1e6 * seconds / len(per_event),
        "ns_per_match": 1e9 * seconds / max(1, int(per_event.sum())),
        "build_per_s": size / build_seconds,
        "bytes_per_subscription": index.stats().bytes_per_subscription,
    }
    theirs: dict[str, float | None] = {}
    for peer in TITLE_PEERS:
        theirs[peer.name] = None
        if find_spec(peer.name) is not None:
            progress(f"{peer.name} on W7 with {size:,} rules")
            made: LoadedPeer = peer(titles)
            measured = pace(made, titles, budget, BATCH)
            expected = int(per_event[: measured.events].sum())
            assert measured.matches == expected, f"{peer.name} found {measured.matches} matches, Weft {expected}"
            theirs[peer.name] = measured.seconds
    return ours, theirs


def _with_ids(index: TreeIndex, batch: pa.RecordBatch) -> Any:
    found = index.match_batch(batch)
    assert len(found.ids) == found.offsets[-1]
    return found


def _rules(titles: Titles) -> pa.Table:
    """The rules as a table; every title contains the empty word."""
    columns: dict[str, Any] = {SUBSCRIPTION: np.arange(len(titles)), "low": titles.low, "high": titles.high}
    for n in range(3):
        columns[f"word{n}"] = pa.array([words[n] if n < len(words) else "" for words in titles.words], pa.string())
    return pa.table(columns)
