"""The demo's chapter on Spark: its filters mean something, and its figures are those of every filter asked."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
from rich.console import Console

from strategies import EXAMPLES
from weft import matches, parse
from weft.model.batch import events_from_batch
from weft.spark.session import java_runs
from weftlab.demo import earthquakes
from weftlab.demo.feeds import ROW, feeds
from weftlab.demo.live import WATCHERS, replayed
from weftlab.demo.pipeline import matching_on_spark

SIZE, MOST = (400, 400) if EXAMPLES > 1 else (200, 150)


def test_every_subscriber_would_get_what_is_in_mind_or_might():
    for feed in feeds(MOST):
        filters = feed.filters(SIZE, np.random.default_rng(1))
        assert filters == feed.filters(SIZE, np.random.default_rng(1))
        assert len(set(filters)) > 10
        events = events_from_batch(feed.table)
        assert any(matches(parse(text), event) for text in filters for event in events), feed.name
        assert feed.table[ROW].to_pylist() == list(range(feed.table.num_rows))


def test_the_figures_are_those_of_every_filter_asked():
    pytest.importorskip("pyspark")
    console = Console(file=io.StringIO(), width=80)
    events = earthquakes.events()
    facts = json.loads(json.dumps(matching_on_spark(console, events, SIZE, MOST)))
    assert "skipped" not in facts
    assert list(facts["feeds"]) == [feed.name for feed in feeds(1)]
    for feed in feeds(MOST):
        found = facts["feeds"][feed.name]
        filters = [parse(text) for text in feed.filters(SIZE, np.random.default_rng(2013))]
        counts = [sum(matches(each, event) for each in filters) for event in events_from_batch(feed.table)]
        assert (found["events"], found["subscriptions"]) == (feed.table.num_rows, SIZE)
        assert (found["matches"], found["matched"]) == (sum(counts), sum(count > 0 for count in counts))
        assert found["equal"] == found["checked"] == 3
        assert found["errors"] == {"event": 0, "subscription": 0}
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert "3 of 3" in shown
    live, everything = facts["live"], replayed(events)
    assert live["events"] == len(everything)
    for name, text in WATCHERS.items():
        wanted = sum(matches(parse(text), event) for event in everything)
        assert live["matches"][name] == {"wanted": wanted, "found": wanted}
    assert live["batches"] >= 5


def test_without_spark_it_says_so_and_ends(monkeypatch):
    before = java_runs()  # of another test in this process, which goes on
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    console = Console(file=io.StringIO(), width=80)
    facts = matching_on_spark(console, [])
    assert facts == {"skipped": "Spark is not installed: pip install 'weft[spark]'"}
    assert "pip install 'weft[spark]'" in " ".join(console.file.getvalue().split())
    assert java_runs() == before
