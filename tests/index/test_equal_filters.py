"""Equal filters share a row: in bulk, one by one, when segments are joined, in snapshots, when some are discarded."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from weft.errors import OptionError, SubscriptionError
from weft.index import ScanIndex, TreeIndex
from weft.index.recycled import Recycler
from weft.workloads import WORKLOADS

TEXTS = ["x > 5 AND y = 'a'", "x IN (1, 9)", "y LIKE '%a%'", "y LIKE '%b' OR x < 3", "x > y", "FALSE", "TRUE"]
EVENTS = [{"x": x, "y": y} for x in (0, 1, 4, 9) for y in ("a", "ab", "zaz", "")] + [{"x": 9, "y": 3}, {}]


def texts_of(subs: range) -> list[str]:
    return [TEXTS[sub % len(TEXTS)] for sub in subs]


def agree(index: TreeIndex, oracle: ScanIndex) -> None:
    index.check()
    wanted = [sorted(oracle.match(event).tolist()) for event in EVENTS]
    assert [sorted(ids.tolist()) for ids in index.match_batch(EVENTS)] == wanted
    assert [sorted(index.match(event).tolist()) for event in EVENTS] == wanted
    assert index.count_batch(EVENTS).tolist() == [len(ids) for ids in wanted]
    assert index.any_batch(EVENTS).tolist() == [bool(ids) for ids in wanted]


def slots(index: TreeIndex) -> int:
    return sum(view.segment.rows.slot_count for view in index._version.views)


def both(subs: range) -> tuple[TreeIndex, ScanIndex]:
    index, oracle = TreeIndex(tail=4, fan=2, large=30), ScanIndex()
    for each in (index, oracle):
        each.add_texts(subs, texts_of(subs))
    return index, oracle


def test_in_bulk_there_is_one_slot_for_each_filter() -> None:
    index, oracle = both(range(100))
    assert slots(index) == len(TEXTS)
    agree(index, oracle)


def test_one_by_one_they_meet_when_segments_are_joined() -> None:
    index, oracle = TreeIndex(tail=3, fan=2, large=5), ScanIndex()
    for sub, text in enumerate(texts_of(range(60))):
        index.add(sub, text)
        oracle.add(sub, text)
    agree(index, oracle)
    joined: TreeIndex = pickle.loads(pickle.dumps(index))
    assert slots(joined) == len(TEXTS)
    agree(joined, oracle)


def test_tests_in_another_order_are_the_same_filter() -> None:
    index = TreeIndex(tail=0)
    index.add_texts([1, 2], ["x > 5 AND y = 'a'", "y = 'a' AND x > 5"])
    assert slots(index) == 1
    index.add_texts([3], ["y = 'a' AND NOT x <= 5"])
    pickled: TreeIndex = pickle.loads(pickle.dumps(index))  # joins all segments
    assert slots(pickled) == 1
    assert sorted(pickled.match({"x": 6, "y": "a"}).tolist()) == [1, 2, 3]


@pytest.mark.parametrize("tail", [0, 4, 1000])
def test_some_of_a_group_are_discarded_and_then_all(tail: int) -> None:
    index, oracle = TreeIndex(tail=tail, fan=3, large=10**6), ScanIndex()
    for each in (index, oracle):
        each.add_texts(range(140), texts_of(range(140)))
    rng = np.random.default_rng(tail)
    order = rng.permutation(140).tolist()
    for first in range(0, 140, 10):
        for each in (index, oracle):
            each.discard_many(order[first : first + 10])
        agree(index, oracle)
    assert len(index) == 0


def test_a_member_of_a_group_gets_another_filter() -> None:
    index, oracle = both(range(70))
    for sub in range(0, 70, 3):
        for each in (index, oracle):
            each.replace(sub, TEXTS[(sub + 1) % len(TEXTS)])
        agree(index, oracle)
    assert index.filter(3) == index.filter(11) != index.filter(10)


def test_groups_are_in_snapshots(tmp_path: Path) -> None:
    index, oracle = both(range(100))
    for each in (index, oracle):
        each.discard_many(range(0, 100, 2))
    index.snapshot(tmp_path / "index")
    opened = TreeIndex.open(tmp_path / "index")
    assert slots(opened) == len(TEXTS)
    agree(opened, oracle)
    for each in (opened, oracle):
        each.discard_many(range(60))
        each.add_texts(range(200, 230), texts_of(range(200, 230)))
    agree(opened, oracle)
    assert all(opened.filter(sub) == index.filter(sub) for sub in range(61, 100, 2))


def test_memory_returns_when_most_of_every_group_is_discarded() -> None:
    n = 40_000
    index = TreeIndex()
    index.add_columns(np.arange(n), {"x": (np.arange(n) % 50, None)})
    before = index.stats().bytes_for_matching
    index.discard_many(range(50, n))
    index.settle()
    assert len(index) == 50
    assert index.stats().bytes_for_matching < before / 20
    assert sorted(index.match({"x": 2.5}).tolist()) == [0, 1, 2]


def test_the_popular_filters_of_w6_take_a_row_each() -> None:
    market = WORKLOADS["W6"](20_000, 300)
    index, plain = TreeIndex(), TreeIndex()
    index.add_columns(np.arange(len(market)), market.bounds)
    assert index.stats().rows <= 400
    assert index.stats().bytes_per_subscription < 24
    for sub in range(0, len(market), 100):  # some of them, alone
        plain.add_columns([sub], {name: _row(column, sub) for name, column in market.bounds.items()})
    wanted = [sorted(ids.tolist()) for ids in plain.match_batch(market.table)]
    assert [sorted(ids[ids % 100 == 0].tolist()) for ids in index.match_batch(market.table)] == wanted


def _row(column: object, row: int) -> object:
    if isinstance(column, tuple):
        return tuple(side[row : row + 1] for side in column)
    return column.slice(row, 1)  # type: ignore[attr-defined]


def test_a_few_equal_filters_among_many_are_found_all_the_same() -> None:
    index = TreeIndex(tail=0)
    index.add_texts(range(104), [f"x = {n}" for n in range(100)] + ["x = 7"] * 4)
    assert slots(index) == 104
    assert sorted(index.match({"x": 7}).tolist()) == [7, 100, 101, 102, 103]
    assert index.count_batch([{"x": 7}, {"x": 8}]).tolist() == [5, 1]
    index.discard_many([7, 101])
    assert sorted(index.match_batch([{"x": 7}])[0].tolist()) == [100, 102, 103]
    index.check()


# -- output ------------------------------------------------------------------------------------------


def test_ids_are_written_to_the_buffer_of_the_caller_if_they_fit() -> None:
    index = TreeIndex()
    index.add_texts(range(100), [f"x >= {n}" for n in range(100)])
    buffer = np.zeros(1000, np.int64)
    found = index.match_batch([{"x": 9}, {"x": 4}], out=buffer)
    assert np.shares_memory(found.ids, buffer)
    assert [sorted(ids.tolist()) for ids in found] == [list(range(10)), list(range(5))]
    small = index.match_batch([{"x": 9}, {"x": 4}], out=buffer[:3])
    assert not np.shares_memory(small.ids, buffer)
    assert len(small.ids) == 15


READ_ONLY = np.zeros(9, np.int64)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "out",
    [
        *(np.zeros(9, dtype) for dtype in (np.int32, np.float64, np.uint8, np.uint64, ">i8", object)),
        [0] * 9,
        5,
        "text",
        READ_ONLY,
        np.zeros((3, 3), np.int64),
        np.zeros(18, np.int64)[::2],
        np.zeros(80, np.uint8)[1:73].view(np.int64),
    ],
)
def test_ids_are_written_only_where_they_fit_as_they_are(out: Any) -> None:
    index = TreeIndex()
    index.add(1 << 40, "x > 1")
    with pytest.raises(OptionError, match="out must be a"):
        index.match_batch([{"x": 9}], out=out)


def test_what_was_found_stays_when_the_index_changes_before_ids_are_read() -> None:
    index = TreeIndex(tail=0)
    index.add_texts(range(20), ["x > 1"] * 20)
    found = index.match_batch([{"x": 5}, {"x": 0}, {"x": 7}])
    for _ in range(3):
        index.match_batch([{"x": 5}] * 50)
    index.discard_many(range(15))
    assert found.counts.tolist() == [20, 0, 20]
    assert sorted(found[2].tolist()) == list(range(20))
    assert index.match_batch([{"x": 5}]).counts.tolist() == [5]


def test_labels_are_distinct_and_may_be_any_integers() -> None:
    index = TreeIndex(tail=2, fan=3)
    for sub in range(30):
        index.add(sub, f"x > {sub % 3}")
    for labels in (np.arange(30) % 4, 10**12 * (np.arange(30) % 4), -(np.arange(30) % 4), np.zeros(30, np.uint8)):
        found = index.match_batch([{"x": 1}, {"x": 9}, {"x": 0}, {"x": b"1"}], by=labels)
        wanted = [sorted({int(labels[sub]) for sub in range(30) if sub % 3 < x}) for x in (1, 9, 0)]
        assert [sorted(each.tolist()) for each in found][:3] == wanted
        assert list(found.errors) == [3]
    with pytest.raises(SubscriptionError, match="subscription 29 has no label"):
        index.match_batch([{"x": 9}], by=np.arange(29))
    with pytest.raises(SubscriptionError, match="array of integers"):
        index.match_batch([{"x": 9}], by=np.ones(30))


def test_memory_is_used_again_only_when_nobody_has_it() -> None:
    memory = Recycler(10_000_000)
    one = memory.array(200_000, np.int64)
    part, place = one[5:10], one.ctypes.data
    one[:] = 7
    del one
    assert memory.array(200_000, np.int64).ctypes.data != place  # a part of it is still there
    arrow = pa.array(part)
    del part
    assert memory.array(10, np.int64).base is None  # too small to matter
    del arrow
    assert memory.kept <= 10_000_000
    held = [memory.array(100_000, np.int64) for _ in range(30)]
    assert memory.kept <= 10_000_000
    assert len({each.ctypes.data for each in held}) == 30


def test_a_small_result_does_not_take_the_memory_of_a_large_one() -> None:
    memory = Recycler(100_000_000)
    large, small = memory.array(1_000_000, np.int64), memory.array(20_000, np.int32)
    places = large.ctypes.data, small.ctypes.data
    del large, small
    again = memory.array(19_000, np.int32), memory.array(1_000_000, np.int64)
    assert (again[1].ctypes.data, again[0].ctypes.data) == places
    assert memory.array(100_000, np.int64).ctypes.data not in places
    del again
    assert memory.array(200_000, np.int64).ctypes.data not in places  # much less than the large one
    assert memory.array(400_000, np.int64).ctypes.data == places[0]
