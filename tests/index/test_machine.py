"""One machine drives every index against the oracle: add, discard, replace, bulk, match, batch, rebuild."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strategies import EVENTS, KINDS, filters, one_of, thorough
from weft.algebra.normalize import normalize
from weft.index import CountingIndex, ScanIndex, TreeIndex
from weft.index.current_version import FlushOnMatch
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.model.batch import batch_from_events
from weft.model.event import Event

KNOWN = Predicates([KINDS])
subs = st.integers(0, 12)
limits = st.none() | st.integers(0, 3)
policies = st.none() | st.builds(FlushOnMatch, changes=limits, tests=limits)
FLOATS = [e for e in EVENTS if isinstance(e.get("a"), float | None) and isinstance(e.get("b"), str | None)]
events, floats = one_of(EVENTS), one_of(FLOATS)


class Waiting(Executor):
    """Runs what it is given when told to, so that changes come between the start and the end of a rebuild."""

    def __init__(self) -> None:
        self.work: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.work.append((future, fn, args))
        return future

    def run(self) -> None:
        while self.work:
            future, fn, args = self.work.pop(0)
            fn(*args)
            future.set_result(None)


class IndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.oracle = ScanIndex()
        self.waiting = Waiting()
        self.indexes: list[Any] = []

    @initialize(tail=st.integers(0, 3), fan=st.integers(2, 3), flush=policies)
    def start(self, tail: int, fan: int, flush: FlushOnMatch | None) -> None:
        self.tree = TreeIndex(predicates=KNOWN, executor=self.waiting, tail=tail, fan=fan, large=6, flush=flush)
        self.indexes = [self.oracle, CountingIndex(), self.tree]

    @rule(sub=subs, filter=filters(4))
    def add(self, sub: int, filter: Filter) -> None:
        known = sub in self.oracle
        for index in self.indexes:
            if known:
                with pytest.raises(KeyError, match=str(sub)):
                    index.add(sub, filter)
            else:
                index.add(sub, filter)

    @rule(sub=subs)
    def discard(self, sub: int) -> None:
        for index in self.indexes:
            index.discard(sub)

    @rule(sub=subs, filter=filters(4))
    def replace(self, sub: int, filter: Filter) -> None:
        for index in self.indexes:
            index.replace(sub, filter)

    @rule(first=subs, some=st.lists(filters(3), max_size=6))
    def add_texts(self, first: int, some: list[Filter]) -> None:
        texts = [str(each) for each in some if "is_a" not in str(each)]
        ids = [100 + first * 10 + n for n in range(len(texts))]
        known = any(sub in self.oracle for sub in ids)
        for index in self.indexes:
            if known:
                with pytest.raises(KeyError):
                    index.add_texts(ids, texts)
            else:
                index.add_texts(ids, texts)

    @rule(first=subs, size=st.integers(2, 5), filter=filters(3), bulk=st.booleans())
    def add_alike(self, first: int, size: int, filter: Filter, bulk: bool) -> None:
        """Subscriptions with one filter, as W6 has them."""
        ids = [sub for sub in range(300 + first, 300 + first + size) if sub not in self.oracle]
        if bulk and "is_a" not in str(filter):
            for index in self.indexes:
                index.add_texts(ids, [str(filter)] * len(ids))
        else:
            for index in self.indexes:
                for sub in ids:
                    index.add(sub, filter)

    @rule(some=st.sets(subs), more=st.sets(st.one_of(st.integers(100, 230), st.integers(300, 316)), max_size=30))
    def discard_many(self, some: set[int], more: set[int]) -> None:
        for index in self.indexes:
            index.discard_many([*some, *more])

    @rule(drop=st.sets(subs, max_size=4), add=st.dictionaries(subs, filters(3), max_size=4))
    def change(self, drop: set[int], add: dict[int, Filter]) -> None:
        """Subscriptions are removed and added in one step, or nothing changes."""
        forms = {sub: normalize(each) for sub, each in add.items()}
        if any(sub in self.oracle for sub in add.keys() - drop):
            with pytest.raises(KeyError):
                self.tree.change(drop, forms)
            return
        self.tree.change(drop, forms)
        for index in self.indexes[:2]:
            index.discard_many([*drop])
            for sub, each in add.items():
                index.add(sub, each)

    @rule()
    def flush(self) -> None:
        self.tree.flush()
        assert self.tree.stats().waiting == 0

    @rule()
    def rebuild(self) -> None:
        self.waiting.run()

    @rule()
    def snapshot_and_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.tree.snapshot(Path(folder) / "index")
            self.waiting.run()
            opened = TreeIndex.open(Path(folder) / "index", predicates=KNOWN, executor=self.waiting)
        opened._current.joining, opened._current.on_match = self.tree._current.joining, self.tree._current.on_match
        self.tree = self.indexes[2] = opened

    @rule(event=events)
    def match(self, event: dict[str, Any]) -> None:
        wanted = sorted(self.oracle.match(event).tolist())
        for index in self.indexes[1:]:
            assert sorted(index.match(event).tolist()) == wanted
            assert sorted(index.match(Event(event)).tolist()) == wanted
        self.is_flushed_for(1)

    def is_flushed_for(self, events: int) -> None:
        policy, buffered = self.tree._current.on_match, self.tree._version.buffered
        assert policy is None or not policy.is_due(buffered, events)

    @rule(some=st.lists(events, max_size=6))
    def batch(self, some: list[dict[str, Any]]) -> None:
        wanted = [sorted(self.oracle.match(event).tolist()) for event in some]
        for index in self.indexes:
            found = index.match_batch(some)
            assert [sorted(ids.tolist()) for ids in found] == wanted
            assert index.count_batch(some).tolist() == [len(ids) for ids in wanted]
            assert index.any_batch(some).tolist() == [bool(ids) for ids in wanted]
        self.is_flushed_for(len(some))
        assert [sorted(ids.tolist()) for ids in self.tree.match_events(some)] == wanted
        labels = np.arange(400) % 5
        by_label = [sorted(set(labels[ids].tolist())) for ids in wanted]
        assert [sorted(each.tolist()) for each in self.tree.match_batch(some, by=labels)] == by_label

    @rule(some=st.lists(floats, max_size=5))
    def arrow_batch(self, some: list[dict[str, Any]]) -> None:
        rows = batch_from_events([Event.of(event) for event in some])
        wanted = [sorted(self.oracle.match(event).tolist()) for event in some]
        for index in self.indexes:
            assert [sorted(ids.tolist()) for ids in index.match_batch(rows)] == wanted

    @invariant()
    def invariants_hold(self) -> None:
        for index in self.indexes:
            index.check()
            assert len(index) == len(self.oracle)
            assert all(sub in index for sub in self.oracle.held)


IndexMachine.TestCase.settings = thorough(60)
TestIndexes = IndexMachine.TestCase
