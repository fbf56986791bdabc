"""The fast index where the machine does not go: large, odd, broken, concurrent."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strategies import EVENTS, KINDS, all_tests
from weft.algebra.normalize import normalize
from weft.errors import FilterError, SnapshotError
from weft.index import CountingIndex, Matches, ScanIndex, TreeIndex, settle_all
from weft.index.current_version import FlushOnMatch
from weft.index.joining import joining_cost
from weft.index.lookup import Lookup
from weft.index.segment import TreeShape
from weft.language.ast import AttributeRef
from weft.language.meaning import matches
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.model.schema import Schema

KNOWN = Predicates([KINDS])


def found(index: TreeIndex | CountingIndex | ScanIndex, event: dict[str, object]) -> list[int]:
    return sorted(index.match(event).tolist())  # type: ignore[arg-type]


def test_every_test_of_the_language_in_one_tree() -> None:
    tests = [*all_tests(AttributeRef("a")), *all_tests(AttributeRef("b"))]
    index = TreeIndex(tail=10_000)
    for sub, test in enumerate(tests):
        index.add(sub, test)
    waiting = {n: found(index, event) for n, event in enumerate(EVENTS)}  # matched as boxes
    flat = TreeIndex(tail=0, fan=10_000, large=10**9)
    for sub, test in enumerate(tests):
        flat.add(sub, test)
    for n, event in enumerate(EVENTS):
        wanted = [sub for sub, test in enumerate(tests) if matches(test, event)]
        assert waiting[n] == wanted
        assert found(flat, event) == wanted


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("values", [20, 127, 128, 400, 40_000])  # codes of a byte, just not of a byte, of more
def test_columns_of_every_width_are_exact(values: int, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookup, "_is_together", lambda *_: together)
    n, rng = 300, np.random.default_rng(values)
    lows = np.append(rng.integers(0, values, (2, n)), [[0, values], [0, values]], axis=1).astype(float)
    highs = lows + rng.integers(0, max(2, values // 10), (2, n + 2))
    lows[0, ::7] = highs[0, 1::7] = np.nan
    every = np.arange(min(values, 2_000), dtype=float) * max(1, values // 2_000)  # so that there are codes enough
    index = TreeIndex(shape=TreeShape(leaf=8, alpha=1.0))
    index.add_columns(np.arange(n + 2), {"x": (lows[0], highs[0]), "y": (lows[1], highs[1])})
    index.add_columns(n + 2 + np.arange(len(every)), {"x": every, "y": (every, None)})
    index.add_texts([-1, -2], ["x < 3 OR y < 5", "(x > 9 OR y > 9) AND x < y"])
    lows = np.concatenate([np.nan_to_num(lows, nan=-np.inf), [every, every]], axis=1)
    highs = np.concatenate([np.nan_to_num(highs, nan=np.inf), [every, np.full(len(every), np.inf)]], axis=1)
    points = rng.integers(-1, values + 2, (2, 100)) + rng.choice([0.0, 0.5], (2, 100))
    batch = pa.record_batch({"x": points[0], "y": points[1]})
    got, counts, wanted_at_all = index.match_batch(batch), index.count_batch(batch), index.any_batch(batch)
    for row, (x, y) in enumerate(points.T.tolist()):
        inside = (lows[0] <= x) & (x <= highs[0]) & (lows[1] <= y) & (y <= highs[1])
        wanted = np.flatnonzero(inside).tolist()
        wanted += [-1] * (x < 3 or y < 5) + [-2] * ((x > 9 or y > 9) and x < y)
        assert sorted(got[row].tolist()) == sorted(wanted)
        assert counts[row] == len(wanted)
        assert wanted_at_all[row] == bool(wanted)
    index.check()


def test_more_bounds_than_sixteen_bits_stay_exact() -> None:
    n = 50_000
    low = np.arange(n) * 0.5
    index = TreeIndex()
    index.add_columns(np.arange(n), {"x": (low, low + 0.25), "y": (np.zeros(n), np.arange(n, dtype=float))})
    assert index._version.views[0].segment.rows.dimensions[0].size > 65536
    rng = np.random.default_rng(5)
    points = np.concatenate([rng.choice(low, 200), rng.choice(low, 200) + 0.25, rng.uniform(-1, n / 2 + 1, 200)])
    batch = pa.record_batch({"x": points, "y": rng.uniform(0, n, 600)})
    got = index.match_batch(batch)
    for row, (x, y) in enumerate(zip(points, batch["y"].to_pylist(), strict=True)):
        wanted = np.flatnonzero((low <= x) & (x <= low + 0.25) & (y <= np.arange(n)))
        assert sorted(got[row].tolist()) == wanted.tolist()


def test_integers_beyond_floats_are_exact() -> None:
    big = 2**53
    index = TreeIndex(tail=0)
    index.add_texts(range(4), [f"x = {big + 1}", f"x > {big}", f"x < {big + 1}", f"x >= {big}.0"])
    for value in (big - 1, big, big + 1, big + 2, float(big), 2**63 - 1, -(2**63)):
        wanted = [n for n in range(4) if matches(index.filter(n), {"x": value})]
        assert found(index, {"x": value}) == wanted
        batch = pa.record_batch({"x": pa.array([value], pa.float64() if isinstance(value, float) else pa.int64())})
        assert sorted(index.match_batch(batch)[0].tolist()) == wanted
    plain = TreeIndex(tail=0)
    plain.add_texts([1], [f"x <= {big}.0"])
    assert found(plain, {"x": big + 1}) == []
    assert found(plain, {"x": big}) == [1]


def test_odd_values_match_as_they_mean() -> None:
    index = TreeIndex(tail=0)
    index.add_texts(range(5), ["x > 5", "x IS NULL", "x = 'a'", "NOT x = TRUE", "x >= TIMESTAMP '2018-01-01'"])
    for value in (math.inf, -math.inf, math.nan, None, "never seen", "", True, False, datetime(2018, 1, 1, tzinfo=UTC)):
        wanted = [n for n in range(5) if matches(index.filter(n), {"x": value})]
        assert found(index, {"x": value}) == wanted, value
    assert found(index, {}) == [1]


def test_batches_of_every_arrow_type() -> None:
    index = TreeIndex(tail=0)
    index.add_texts(range(4), ["n >= 2", "s = 'b'", "t > TIMESTAMP '2018-01-01'", "deep.x < 1.5 AND on"])
    rows = pa.table(
        {
            "n": pa.array([1, 2, None], pa.int8()),
            "s": pa.array(["a", "b", None]).dictionary_encode(),
            "t": pa.array([0, 1_600_000_000, None], pa.timestamp("s", "America/New_York")),
            "deep": pa.array([{"x": 1.0}, {"x": 2.0}, None]),
            "on": [True, True, None],
            "unused": [[1], [2], [3]],
        }
    )
    assert [sorted(ids.tolist()) for ids in index.match_batch(rows)] == [[3], [0, 1, 2], []]
    assert len(index.match_batch(rows.slice(0, 0))) == 0


def test_a_filter_that_matches_everything_and_one_that_matches_nothing() -> None:
    index = TreeIndex(tail=0)
    index.add(1, "TRUE")
    index.add(2, "FALSE")
    index.add(3, "x > 5 AND x < 3")
    assert found(index, {}) == [1]
    assert len(index) == 3
    index.discard(2)
    assert 2 not in index
    assert str(index.filter(1)) == "TRUE"
    assert str(index.filter(3)) == "FALSE"


def test_the_same_filter_a_hundred_thousand_times() -> None:
    n = 100_000
    index = TreeIndex()
    index.add_columns(np.arange(n), {"x": (np.zeros(n), np.ones(n)), "s": ["a"] * n})
    assert len(index.match({"x": 0.5, "s": "a"})) == n
    assert len(index.match({"x": 0.5, "s": "b"})) == 0
    assert index.count_batch([{"x": 0.5, "s": "a"}, {"x": 2.0}]).tolist() == [n, 0]


def test_filters_on_five_hundred_attributes() -> None:
    index = TreeIndex(tail=0, fan=1000, large=10**6)
    wide = " AND ".join(f"a{n} >= 0" for n in range(500))
    index.add_texts([0, *range(1, 501)], [wide, *(f"a{n} = {n}" for n in range(500))])
    assert found(index, {f"a{n}": 1000 for n in range(500)}) == [0]
    assert found(index, {"a7": 7, "a9": 9}) == [8, 10]
    batch = [{"a7": 7}, {f"a{n}": n for n in range(500)}]
    assert [len(ids) for ids in index.match_batch(batch)] == [1, 501]


def test_open_attributes_need_no_schema() -> None:
    index = TreeIndex()
    for n in range(3000):
        index.add(n, f"attribute_{n} = {n}")
    index.settle()
    assert found(index, {"attribute_2999": 2999, "attribute_3": 4}) == [2999]


def test_disjunctions_are_reported_once() -> None:
    index = TreeIndex(tail=0)
    index.add(1, "x > 5 OR y > 5 OR (x > 3 AND z = 1)")
    assert found(index, {"x": 9, "y": 9, "z": 1}) == [1]
    assert index.count_batch([{"x": 9, "y": 9, "z": 1}, {"x": 0}]).tolist() == [1, 0]


def test_rare_residuals_are_asked_in_batches_too() -> None:
    """More subjects than there are axes for: the rest are left to the boxes, whose attributes no axis has."""
    texts = [f"(a{n} < b{n}) IS NOT TRUE" for n in range(200)]
    index = TreeIndex(tail=0)
    index.add_texts(range(200), texts)
    events = [{}, *({f"a{n}": low, f"b{n}": 1.0} for n in (0, 99, 199) for low in (0.0, 1.0))]
    for event, ids in zip(events, index.match_batch(events), strict=True):
        wanted = [n for n, text in enumerate(texts) if matches(parse(text), event)]
        assert sorted(ids.tolist()) == found(index, event) == wanted


def test_long_lists_are_exact() -> None:
    index = TreeIndex(tail=0)
    index.add(1, "x IN (" + ", ".join(str(3 * n) for n in range(500)) + ")")
    index.add(2, "s NOT IN ('a', 'b', 'c') AND x != 3")
    assert found(index, {"x": 3 * 77}) == [1]
    assert found(index, {"x": 3 * 77 + 1, "s": "d"}) == [2]
    assert found(index, {"x": 3, "s": "d"}) == [1]


def test_a_schema_makes_integers_step() -> None:
    index = TreeIndex(Schema.of(x="int"), tail=0)
    index.add(1, "x > 4 AND x < 6")
    assert found(index, {"x": 5}) == [1]
    assert str(index.filter(1)) == "x >= 5 AND x < 6"


@pytest.mark.parametrize("value", [5, 5.0, 5.5, "5", True, None, 2.0**63, 2**53 + 1])
def test_events_conform_to_the_schema_in_every_index(value: object) -> None:
    schema = Schema.of(x="int", y="float", s="string")
    texts = ["x IS NULL", "x IS NOT NULL", "x = 5", "x > 4 AND x < 6", "x != 5", "y IS NULL", "s IS NULL OR y > 4"]
    waiting = TreeIndex(schema)  # its filters are still in the tail, as boxes
    for sub, text in enumerate(texts):
        waiting.add(sub, text)
    indexes = [TreeIndex(schema, tail=0), waiting, CountingIndex(schema), ScanIndex(schema)]
    for name in ("x", "y", "s"):
        event = {name: value}
        wanted = None
        for index in indexes:
            if len(index) == 0:
                index.add_texts(range(len(texts)), texts)
            got = found(index, event)
            wanted = got if wanted is None else wanted
            assert got == wanted
            assert sorted(index.match_batch([event])[0].tolist()) == wanted
            assert sorted(index.match_batch(pa.record_batch({name: [value]}))[0].tolist()) == wanted


def test_explain_says_which_predicate_failed() -> None:
    index = TreeIndex(tail=0)
    index.add(1, "x > 5 AND s LIKE '%b' AND y = 1")
    told = index.explain({"x": 9, "s": "ab", "y": 2}, 1)
    assert told.truth is False
    failed = [(str(part.filter), dict(part.values)) for part in told.parts if part.truth is False]
    assert failed == [("y = 1", {"y": 2})]
    with pytest.raises(KeyError, match="no subscription 9"):
        index.explain({}, 9)


def test_stats_show_what_is_dear() -> None:
    n = 5000
    rng = np.random.default_rng(2)
    low = rng.uniform(0, 100, n)
    index = TreeIndex()
    index.add_columns(np.arange(n), {"x": (low, low + 1.0), "y": (low, low + 1.0)})
    stats = index.stats()
    assert stats.subscriptions == n
    assert stats.rows == n
    assert stats.replication >= 1
    assert stats.depth > 1
    assert 0 < stats.bytes_per_subscription < 1000
    assert stats.expensive[0][1] >= stats.expensive[-1][1] >= 1
    assert stats.events == 0
    found = index.match_batch([{"x": 50.0, "y": 50.0}, {"x": -1.0}, {"x": -1.0}])
    index.match({"x": -1.0})
    stats = index.stats()
    assert (stats.events, stats.hit_rate) == (4, 0.25)
    assert stats.matches_per_event == len(found.ids) / 4


def test_a_tight_budget_makes_the_tree_coarser_and_keeps_it_exact() -> None:
    n = 20_000
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 1000, (3, n))
    bounds = {name: (side, side + 50) for name, side in zip("xyz", low, strict=True)}
    indexes = [TreeIndex(budget=budget) for budget in (math.inf, 60.0)]
    for index in indexes:
        index.add_columns(np.arange(n), bounds)
    sizes = [index.stats().bytes_per_subscription for index in indexes]
    assert sizes[1] < sizes[0]
    batch = pa.record_batch({name: rng.uniform(0, 1000, 200) for name in "xyz"})
    wide, tight = (index.match_batch(batch) for index in indexes)
    for row in range(200):
        point = [batch[name][row].as_py() for name in "xyz"]
        wanted = np.flatnonzero(np.all([(s <= p) & (p <= s + 50) for s, p in zip(low, point, strict=True)], axis=0))
        assert sorted(wide[row].tolist()) == sorted(tight[row].tolist()) == wanted.tolist()


# -- changes -----------------------------------------------------------------------------------------


def test_bulk_is_all_or_none() -> None:
    index = TreeIndex()
    index.add(7, "x = 1")
    with pytest.raises(KeyError, match="7"):
        index.add_texts([6, 7], ["x = 2", "x = 3"])
    with pytest.raises(FilterError):
        index.add_texts([8, 9], ["x = 2", "x ="])
    with pytest.raises(KeyError, match="duplicate id 8 at position 1"):
        index.add_texts([8, 8], ["x = 2", "x = 3"])
    with pytest.raises(ValueError, match="there are 1 ids for 2 filters"):
        index.add_texts([8], ["x = 2", "x = 3"])
    for wrong in ([8], [8, 9, 10]):
        with pytest.raises(ValueError, match="for 2 filters"):
            index.add_columns(wrong, {"x": ([1.0, 2.0], None)})
    assert len(index) == 1


def test_memory_returns_after_many_discards() -> None:
    n = 40_000
    index = TreeIndex()
    index.add_columns(np.arange(n), {"x": (np.arange(n, dtype=float), np.arange(n) + 2.0)})
    before = index.stats().bytes_for_matching
    index.discard_many(range(100, n))
    index.settle()
    assert len(index) == 100
    assert index.stats().bytes_for_matching < before / 20
    assert found(index, {"x": 50.5}) == [49, 50]


def test_no_match_sees_a_replacement_half_done() -> None:
    """While a subscription flips between two filters of which an event matches both, it is always there, once."""
    index = TreeIndex(tail=2, fan=2, large=8)
    for n in range(50):
        index.add(n, f"x >= {n}")
    wrong: list[object] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            ids = index.match({"x": 1000}).tolist()
            batch = index.match_batch([{"x": 1000}, {"x": 1000}])
            if sorted(ids) != list(range(50)) or sorted(batch[1].tolist()) != list(range(50)):
                wrong.append(ids)
                return

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(400):
        index.replace(turn % 50, f"x >= {turn % 7}")
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    index.settle()
    index.check()


# -- snapshots ---------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    index = TreeIndex(predicates=KNOWN)
    texts = [
        "x > 5",
        "s LIKE '%b' OR s LIKE 'a%b'",
        "x > y",
        "is_a(k, 'vehicle')",
        f"x = {2**53 + 1}",
        "s IN ('a', 'ü')",
    ]
    index.add_texts(range(len(texts)), texts)
    index.snapshot(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_snapshot_opens_as_it_was(saved: Path) -> None:
    index = TreeIndex.open(saved, predicates=KNOWN)
    index.check()
    assert found(index, {"x": 6, "y": 5, "s": "ab", "k": "car"}) == [0, 1, 2, 3]
    assert found(index, {"x": 2**53 + 1, "s": "ü"}) == [0, 4, 5]
    index.replace(0, "x < 0")
    index.discard(1)
    assert found(index, {"x": -1, "s": "ab"}) == [0]
    index.snapshot(saved)
    again = TreeIndex.open(saved, predicates=KNOWN)
    assert len(again) == 5
    assert found(again, {"x": -1, "s": "ab"}) == [0]
    assert not list(saved.parent.glob(".saved*")), "no drafts are left"


def test_other_processes_read_the_same_snapshot(saved: Path) -> None:
    code = (
        "import sys; from weft.index import TreeIndex; from weft.language.predicate import Predicates;"
        "from weft.language.taxonomy import IsA, Taxonomy;"
        "known = Predicates([IsA(Taxonomy({'car': ['vehicle']}))]);"
        "print(sorted(TreeIndex.open(sys.argv[1], predicates=known).match({'x': 6, 'y': 5}).tolist()))"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(saved)], stdout=subprocess.PIPE) for _ in range(2)]
    assert [run.communicate()[0].decode().strip() for run in runs] == ["[0, 2]"] * 2


def test_a_torn_snapshot_is_refused(saved: Path) -> None:
    for victim in sorted(saved.iterdir()):
        whole = victim.read_bytes()
        for broken in (whole[:-1], whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
            victim.write_bytes(broken)
            with pytest.raises(SnapshotError, match=r"damaged|cannot be read|not a snapshot"):
                TreeIndex.open(saved, predicates=KNOWN)
        victim.unlink()
        with pytest.raises(SnapshotError):
            TreeIndex.open(saved, predicates=KNOWN)
        victim.write_bytes(whole)
    TreeIndex.open(saved, predicates=KNOWN)


def test_a_foreign_or_newer_directory_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="not a snapshot"):
        TreeIndex.open(tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("mine")
    with pytest.raises(SnapshotError, match="another place"):
        TreeIndex().snapshot(tmp_path / "mine")
    assert (tmp_path / "mine" / "precious.txt").read_text() == "mine"
    sealed = json.loads((saved / "index.json").read_text())
    meta = json.loads(sealed["index"])
    changes = (({"version": 99}, "newer Weft"), ({"version": 1}, "older Weft"), ({"format": "other"}, "but of 'other'"))
    for change, message in changes:
        import zlib

        text = json.dumps({**meta, **change})
        (saved / "index.json").write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}))
        with pytest.raises(SnapshotError, match=message):
            TreeIndex.open(saved, predicates=KNOWN)


def test_a_snapshot_with_unknown_predicates_says_so(saved: Path) -> None:
    with pytest.raises(SnapshotError, match="is_a"):
        TreeIndex.open(saved)


def test_an_empty_index_matches_nothing_and_can_be_saved(tmp_path: Path) -> None:
    index = TreeIndex()
    assert found(index, {"x": 1}) == []
    assert index.match_batch([]).ids.tolist() == []
    assert len(index.match_batch([{"x": 1}])) == 1
    index.snapshot(tmp_path / "empty")
    assert len(TreeIndex.open(tmp_path / "empty")) == 0


# -- plain Python, matches ---------------------------------------------------------------------------


def test_the_kernels_run_as_plain_python_too(tmp_path: Path) -> None:
    here = Path(__file__).parent
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "WEFT_EXAMPLES": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    code = f"""
import sys; sys.path.insert(0, {str(here.parent)!r})
from strategies import EVENTS, all_tests, A, B
from weft.index import Index, TreeIndex, CountingIndex
from weft.language.meaning import matches
tests = [*all_tests(A)[::3], *all_tests(B)[::3]]
tree, counting = TreeIndex(tail=3, fan=3, large=20), CountingIndex()
for n, test in enumerate(tests):
    tree.add(n, test); counting.add(n, test)
for n in range(0, len(tests), 5):
    tree.discard(n); counting.discard(n)
tree.settle()
some = EVENTS[::20]
batch = tree.match_batch(some)
for k, event in enumerate(some):
    wanted = [n for n, test in enumerate(tests) if n % 5 and matches(test, event)]
    assert sorted(tree.match(event).tolist()) == sorted(batch[k].tolist()) == wanted
    assert sorted(counting.match(event).tolist()) == wanted
assert Index({{"a": "x > 1", "b": "x > 2", 3: "x > 0"}}).match({{"x": 2}}) == ["a", 3]
print("same")
"""
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr


def test_matches_are_a_sequence() -> None:
    some = Matches(np.array([0, 1, 1, 3]), np.array([5, 6, 7]))
    assert [ids.tolist() for ids in some] == [[5], [], [6, 7]]
    assert some.counts.tolist() == [1, 0, 2]
    with pytest.raises(IndexError):
        some[3]


def test_matches_are_merged_event_by_event_and_chained_batch_by_batch() -> None:
    def listed(matches: Matches) -> list[list[int]]:
        assert (matches.offsets.dtype, matches.ids.dtype) == (np.int64, np.int64)
        return [ids.tolist() for ids in matches]

    one, other, none = Matches.of([[5], [], [6, 7]]), Matches.of([[1, 2], [3], []]), Matches.of([[], [], []])
    assert listed(one) == [[5], [], [6, 7]]
    assert listed(Matches.merged([one, none, other], 3)) == [[5, 1, 2], [3], [6, 7]]
    assert listed(Matches.merged([none, other], 3)) == listed(other)
    assert listed(Matches.merged([], 2)) == [[], []]
    assert listed(Matches.chained([one, none, other])) == [*listed(one), *listed(none), *listed(other)]
    assert listed(Matches.chained([other])) == listed(other)
    assert listed(Matches.chained([])) == listed(Matches.of([])) == []


def test_parse_is_not_needed_for_filters() -> None:
    index = TreeIndex()
    index.add(1, parse("x = 1") & parse("y = 2"))
    assert found(index, {"x": 1, "y": 2}) == [1]


def test_a_filter_of_several_boxes_may_have_numbers_beyond_64_bits() -> None:
    index = TreeIndex()
    index.add_texts([1], ["x > 1.7976931348623157e308 OR x < -1e19 OR s LIKE '%a' OR y IN (1e300, 5)"])
    assert index.match({"x": math.inf}).tolist() == [1]
    assert index.match({"y": 1e300}).tolist() == [1]
    assert index.match({"x": 1e300}).tolist() == []


@pytest.mark.parametrize(
    "search",
    [
        lambda index, event: len(index.match(event)),
        lambda index, event: len(index.match_batch([event])[0]),
        lambda index, event: int(index.count_batch([event])[0]),
        lambda index, event: 2_000 * int(index.any_batch([event])[0]),
    ],
    ids=["match", "match_batch", "count_batch", "any_batch"],
)
def test_an_index_that_is_only_read_becomes_one_segment(search: Callable[[TreeIndex, Any], int]) -> None:
    """Several segments are joined when searching them has cost as much as joining them; no change is needed."""
    index = TreeIndex(tail=0, fan=8)
    for first in range(0, 4_000, 1_000):
        index.add_texts(range(first, first + 1_000), [f"x > {n}" for n in range(first, first + 1_000)])
    index.settle()
    before = len(index._version.views)
    assert before > 1
    events = 0
    while len(index._version.views) > 1:
        assert search(index, {"x": 2_000}) == 2_000
        events += 1
        assert (events - 1) * (before - 1) <= joining_cost(index._version.views) < 4_100
        index.settle()
    index.check()
    assert events > 100, "joined too soon"
    assert search(index, {"x": 2_000}) == 2_000


def test_changes_are_buffered_until_a_match_would_look_at_too_many() -> None:
    index = TreeIndex(tail=100, flush=FlushOnMatch(changes=4))
    for sub in range(50):
        index.add(sub, f"x > {sub}")
    assert (index.flushes, index.stats().waiting) == (0, 50), "no event has come"
    assert found(index, {"x": 3}) == [0, 1, 2]
    assert (index.flushes, index.stats().waiting) == (1, 0)
    index.add(50, "x > 1")
    for sub in (0, 2, 4):
        index.discard(sub)
    assert found(index, {"x": 3}) == [1, 50]
    assert (index.flushes, index._version.buffered) == (1, 4), "added and removed subscriptions are looked at"
    index.discard(50)
    index.discard(6)
    index.add(51, "x > 2")
    assert found(index, {"x": 3}) == [1, 51]
    assert (index.flushes, index._version.buffered) == (2, 0)
    index.check()


def test_more_events_flush_fewer_changes() -> None:
    index = TreeIndex(tail=100, flush=FlushOnMatch(tests=12))
    for sub in range(4):
        index.add(sub, f"x > {sub}")
    assert [len(ids) for ids in index.match_events([{"x": 2}] * 3)] == [2, 2, 2]
    assert index.flushes == 0
    assert [len(ids) for ids in index.match_events([{"x": 2}] * 4)] == [2, 2, 2, 2]
    assert index.flushes == 1
    index.add(4, "x > 1")
    assert index.count_batch(pa.table({"x": [2.0] * 12})).tolist() == [3] * 12
    assert index.flushes == 1
    assert len(index.match_batch({"x": n} for n in range(13))) == 13
    assert (index.flushes, index.stats().waiting) == (2, 0)


def test_a_change_flushes_what_a_tail_cannot_hold_and_counts_it() -> None:
    index = TreeIndex(tail=8, flush=FlushOnMatch(changes=10**6))
    index.change((), {sub: normalize(parse(f"x > {sub}")) for sub in range(8)})
    assert index.flushes == 0
    index.change((), {8: normalize(parse("x > 8"))})
    assert (index.flushes, index.stats().waiting) == (1, 0)
    for sub in range(8):
        index.discard(sub)
    assert index.flushes == 1
    index.discard(8)
    assert (index.flushes, len(index)) == (2, 0), "dead subscriptions left the tree"


def test_a_copy_flushes_as_the_index_does() -> None:
    index = TreeIndex(tail=100, flush=FlushOnMatch(changes=0))
    index.add(1, "x > 1")
    for other in (copy(index), pickle.loads(pickle.dumps(index))):
        other.add(2, "x > 2")
        assert found(other, {"x": 3}) == [1, 2]
        assert other.stats().waiting == 0
    assert index.flushes == 0


def test_what_gathers_during_a_rebuild_is_joined_without_another_change() -> None:
    index = TreeIndex(tail=0, fan=4)
    for first in range(0, 20_480, 256):
        index.add_texts(range(first, first + 256), [f"x > {n}" for n in range(first, first + 256)])
    index.settle()
    assert not index._current.joining.in_background(index._version.views)
    index.check()


def test_settling_waits_for_rebuilds_that_follow_each_other() -> None:
    """Between two rebuilds there was none for a moment, and a program that waited for them went on."""
    index = TreeIndex(tail=4, fan=2, large=8)
    current, gaps = index._current, list[bool]()

    class Watched:
        def __init__(self) -> None:
            self.lock = threading.RLock()

        def acquire(self, blocking: bool = True) -> bool:
            return self.lock.acquire(blocking)

        def release(self) -> None:
            self.lock.release()

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            if threading.current_thread().name.startswith("weft-index"):
                gaps.append(current._rebuild is None and bool(current.joining.in_background(current.value.views)))
            self.lock.release()

    current.changing = Watched()
    for number in range(400):
        index.add(number, parse(f"x > {number}"))
    settle_all()
    assert gaps
    assert not any(gaps), "a rebuild was due, and nobody could wait for it"
    assert current._rebuild is None
    index.check()
