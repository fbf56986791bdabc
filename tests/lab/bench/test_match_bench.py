"""The match benchmark runs, tiny: its figures are there, and all find the same matches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from weft import matches, parse
from weft.cli.app import app
from weft.index import TreeIndex
from weft.workloads import WORKLOADS, Workload
from weftlab.bench import match, match_texts, match_titles, peers
from weftlab.bench.match_texts import SETS
from weftlab.bench.match_titles import TITLE_PEERS
from weftlab.bench.peers import PEERS, Lambdas, Peer, installed, pace, suits
from weftlab.bench.report import Result

FIGURES = {
    "us_per_event",
    "events_per_s",
    "ns_per_match",
    "build_per_s",
    "bytes_per_subscription",
    "count_us_per_event",
    "any_us_per_event",
    "polars_us_per_event",
    "duckdb_us_per_event",
    "lambdas_us_per_event",
    "vs_polars",
    "vs_duckdb",
    "vs_lambdas",
    "vs_best_join",
    "vs_best_peer",
    "vs_best_shape",
}
UPDATES = {"add_per_s", "discard_per_s", "match_p99_ms", "match_max_ms"}
RTREE = {"rtree_us_per_event", "vs_rtree"}
INDEX = {"index_single_more_us", "index_batch_vs_tree"}


def test_the_match_benchmark_measures_every_figure() -> None:
    told: list[str] = []
    notes: list[str] = []
    results = match.run(quick=True, progress=told.append, size=500, workloads=["W1", "W5"], note=notes.append)
    found = {result.name: result for result in results}
    assert len(found) == len(results)
    expected = {f"W1/500/{each}" for each in FIGURES | UPDATES | RTREE | INDEX | {"single_match_us", "growth"}}
    expected |= {f"W5/500/{each}" for each in FIGURES} | {"W1/50/us_per_event", "start/1/first_match"}
    assert found.keys() == expected
    missing = {peer.name for peer in PEERS if not installed(peer)}
    for name, result in found.items():
        depends = any(each in name for each in missing) or (missing and "best" in name and "shape" not in name)
        assert (result.value is None) == bool(depends)
    assert sum("not installed" in note for note in notes) == len(missing)
    assert missing & {"duckdb"} or any("JOIN" in note for note in notes), "plans are shown"
    assert told


@pytest.fixture
def _no_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "_first_match", lambda effort: Result("start/1/first_match", None, "ms"))


class Clock:
    """Measures in place of `timed`: the work is done, and takes as many seconds as its kind does here."""

    def __init__(self, seconds: Mapping[str, float], unknown: float = 0.125) -> None:
        self.seconds, self.unknown = seconds, unknown
        self.kinds: list[str] = []

    def timed(self, work: Callable[[], Any]) -> tuple[float, Any]:
        inner = work.func if isinstance(work, partial) else work
        self.kinds.append(inner.__qualname__)
        return self.seconds.get(inner.__qualname__, self.unknown), work()


@pytest.mark.usefixtures("_no_fresh_process")
def test_odd_filters_and_two_threads_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {
        "TreeIndex.add_texts": 0.5,
        "_single.<locals>.<lambda>": 4.0,
        "_two_threads.<locals>.<lambda>": 0.25,
    }
    clock = Clock(seconds)
    monkeypatch.setattr(match, "timed", clock.timed)
    results = match.run(quick=True, progress=lambda _: None, size=300, workloads=["W3", "W4"])
    found = {result.name: result.value for result in results}
    assert seconds.keys() <= {*clock.kinds}, "each of them was measured"
    assert found["mixed/300/build_per_s"] == 300 / 0.5
    assert found["W3/300/single_match_us"] == pytest.approx(1e6 * 4.0 / 1_000)
    assert found["W4/300/two_threads"] == found["mixed/300/slowdown"] == 1, "the same time for both"


def test_a_slowdown_is_the_time_with_odd_filters_in_times_of_the_time_without(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = iter([9.0, 9.0, 2.0, 5.0])  # small ones, to compile; then without and with odd filters
    monkeypatch.setattr(match, "_first_pass", lambda index, batches: (next(passes), None))
    effort = match.MatchEffort(True, lambda _: None, lambda _: None)
    found = {result.name: result.value for result in match._mixed(effort, 300)}
    assert found["mixed/300/slowdown"] == 2.5
    assert found["mixed/300/us_per_event"] == pytest.approx(1e6 * 5.0 / 1_000)


def test_two_threads_are_the_time_of_one_in_times_of_the_time_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(5 * [3.0, 2.0])  # alone and together, in turn
    monkeypatch.setattr(match, "timed", lambda work: (next(times), work()))
    workload = WORKLOADS["W4"](300, 2_000)
    assert match._two_threads(match._indexed(workload), workload).value == 1.5


@pytest.mark.usefixtures("_no_fresh_process")
def test_shared_filters_and_substrings_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock({"_with_ids": 3.0, "copyto": 0.5, "measure_titles.<locals>.<lambda>": 0.25})
    for module in (match, match_titles):
        monkeypatch.setattr(module, "timed", clock.timed)
    results = match.run(quick=True, progress=lambda _: None, size=400, workloads=["W6", "W7"])
    found = {result.name: result.value for result in results}
    assert clock.seconds.keys() <= {*clock.kinds}, "each of them was measured"
    assert found["W6/400/vs_copy"] == pytest.approx(3.0 / 0.5), "as many ids are copied as are found"
    assert found["W7/400/us_per_event"] == pytest.approx(1e6 * 3.0 / 1_000)
    assert found["W7/400/build_per_s"] == 400 / 0.25
    assert 4 <= found["W6/400/bytes_per_subscription"] < match.MEMORY, "an id at least"
    for peer in TITLE_PEERS:
        assert (found[f"W7/400/vs_{peer.name}"] is None) == (find_spec(peer.name) is None)


@pytest.mark.usefixtures("_no_fresh_process")
def test_rules_on_texts_and_on_few_of_many_attributes_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers find what we find, or the run fails; a figure is the time of its kind."""
    clock = Clock({"_with_ids": 4.0, "_ours.<locals>.<lambda>": 0.5})
    monkeypatch.setattr(match_texts, "timed", clock.timed)
    results = match.run(quick=True, progress=lambda _: None, size=300, workloads=[*SETS])
    found = {result.name: result.value for result in results}
    assert clock.seconds.keys() <= {*clock.kinds}, "each of them was measured"
    for name, (_, peers_of) in SETS.items():
        assert found[f"{name}/300/us_per_event"] == pytest.approx(1e6 * 4.0 / match_texts.QUICK_EVENTS)
        assert found[f"{name}/300/build_per_s"] == 300 / 0.5
        assert found[f"{name}/300/single_match_us"] == pytest.approx(1e6 * 0.5 / 1_000)
        for peer in peers_of:
            missing = peer != "dict" and find_spec(peer) is None
            assert (found[f"{name}/300/vs_{peer}"] is None) == missing
    assert found["urls/300/vs_apart"] == found["urls/300/single_vs_apart"] == 1, "the same time for both"


@pytest.mark.parametrize("name", SETS)
def test_the_same_seed_gives_the_same_texts_and_all_are_met(name: str) -> None:
    given = SETS[name][0](60, 200)
    assert given == SETS[name][0](60, 200)
    assert len(given) == 60 == len(given.rules)
    assert name == "tags" or len({*given.texts}) == 60  # several rules name the same tag
    index = TreeIndex()
    index.add_texts(range(60), given.texts)
    found = index.match_batch(given.events)
    scan = [[n for n, text in enumerate(given.texts) if matches(parse(text), event)] for event in given.events[:40]]
    assert [sorted(ids.tolist()) for ids in found][:40] == scan
    assert len(found.ids) > 0


def test_every_goal_has_its_figure_and_its_direction() -> None:
    for name, goal in match.GOALS.items():
        assert name.count("/") == 2
        assert goal > 0
    assert match._figure("W1/100000", "vs_rtree", 50, "x").ok
    assert match._figure("W1/100000", "single_match_us", 11, "us").ok is False
    assert match._figure("W1/100000", "vs_rtree", None, "x").ok is None


def by_scan(workload: Workload) -> int:
    """Matches of all events, one event at a time."""
    found = 0
    for event in workload.table.to_pylist():
        rows = np.ones(len(workload), bool)
        for name, column in workload.bounds.items():
            if isinstance(column, tuple):
                rows &= ~(event[name] < column[0]) & ~(event[name] > column[1])
            else:
                rows &= np.array([word in (None, event[name]) for word in column.to_pylist()])
        found += int(rows.sum())
    return found


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_finds_all_matches(peer: type[Peer], name: str) -> None:
    workload = WORKLOADS[name](1_000 if name != "W1" else 10_000, 30)
    if not installed(peer):
        pytest.skip(f"{peer.name} is not installed: {peer.install}")
    if not suits(peer, workload):
        return
    made = peer()
    made.build(workload)
    assert made.match(workload.table) == by_scan(Workload(name, first(workload, made.subscriptions()), workload.table))
    if peer.name in match.JOINS:
        assert "JOIN" in made.plan(workload.table)


def first(workload: Workload, size: int) -> dict:
    """The bounds of the first subscriptions."""
    return {
        name: tuple(ends[:size] for ends in column) if isinstance(column, tuple) else column.slice(0, size)
        for name, column in workload.bounds.items()
    }


def test_lambdas_are_scaled_to_all_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST_LAMBDAS", 100)
    workload = WORKLOADS["W5"](400, 40)
    made = Lambdas()
    made.build(workload)
    assert made.subscriptions() == 100
    assert pace(made, workload, 1, 10).matches == by_scan(Workload("W5", first(workload, 100), workload.table))


class Slow:
    """A peer whose clock is ours: an event takes a second, a batch ten more."""

    name, install = "slow", "pip install slow"

    def __init__(self) -> None:
        self.now, self.batches = 0.0, []

    def match(self, events: pa.RecordBatch) -> int:
        self.batches.append(events.num_rows)
        self.now += 10 + events.num_rows
        return events.num_rows

    def subscriptions(self) -> int:
        return 5


@pytest.mark.parametrize(
    ("budget", "batches", "seconds"),
    [
        (10_000, [2, 8, 64, 512, 1_000, 1_000, 1_000, 416], 2 * (3_416 + 40) / 3_416),  # scaled: it holds 5 of 10
        (500, [2, 8, 64, 64, 64, 64, 64, 64], 2 * 74 / 64),
        (1, [2, 8], 2 * 18 / 8),
    ],
)
def test_batches_grow_while_there_is_time(monkeypatch, budget: float, batches: list[int], seconds: float) -> None:
    slow = Slow()
    monkeypatch.setattr(peers, "perf_counter", lambda: slow.now)
    workload = WORKLOADS["W1"](10, 4_000)
    measured = pace(slow, workload, budget, 1_000)
    assert slow.batches == batches
    assert measured.seconds == pytest.approx(seconds)
    assert measured.events == measured.matches == sum(batches[1:])


@pytest.mark.usefixtures("_no_fresh_process")
def test_a_missing_peer_is_named_and_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    notes: list[str] = []
    results = match.run(quick=True, progress=lambda _: None, size=100, workloads=["W2"], note=notes.append)
    values = {result.name: result.value for result in results}
    assert values["W2/100/vs_rtree"] is values["W2/100/vs_best_peer"] is values["W2/100/duckdb_us_per_event"] is None
    assert values["W2/100/vs_lambdas"] > 0
    assert [note.rpartition(": ")[2] for note in notes] == [
        "pip install rtree",
        "pip install polars",
        "pip install duckdb",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("language", "--size", "100"), "size"),
        (("language", "--workloads", "W1"), "workloads"),
        (("match", "--workloads", "W1,W9"), "W9"),
        (("match", "--size", "0"), "1"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.usefixtures("_no_fresh_process")
def test_the_command_runs_a_size_and_some_workloads() -> None:
    done = CliRunner().invoke(app, ["bench", "match", "--quick", "--size", "120", "--workloads", "W2"])
    assert done.exit_code == 0, done.output
    assert "W2/120/us_per_event" in done.stdout
    assert "start/1/first_match" in done.stdout
    assert "W1/" not in done.stdout


def test_polars_is_told_to_use_one_thread() -> None:
    if not installed(peers.Polars):
        pytest.skip("polars is not installed")
    # in a process of its own: polars reads the number of threads when it is first imported, and others import it too
    code = (
        "from weftlab.bench import peers; from weft.workloads.standard import WORKLOADS; made = peers.Polars(); "
        "made.build(WORKLOADS['W1'](10, 5)); print(made.plan(WORKLOADS['W1'](10, 5).table))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("1 thread")
