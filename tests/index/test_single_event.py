"""One event at a time: whatever its values are, it finds what a batch of one finds, and what the scan finds."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.algebra.columns import BoxColumns
from weft.errors import EventError
from weft.index import ScanIndex, TreeIndex
from weft.index.single_event import SingleSearch

FILTERS = [
    *(f"x >= {n} AND x < {n + 3}" for n in range(-2, 6)),
    *(f"x = {n} AND kind = '{kind}'" for n in (0, 1.5, 3) for kind in ("a", "b", "é")),
    *("y > 0.5", "y <= -0.0", "kind > 'a'", "kind != 'b' OR x IS NULL", "x IN (1, 2, 'a', TRUE)", "flag", "NOT flag"),
    *("seen > TIMESTAMP '2026-01-01'", "x > 1e300", "x < -1e300", "kind LIKE 'a%'", "x < y"),
]
NUMBERS = [0, 1, 3, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 0.0, -0.0, 1.5, 0.5, math.inf, -math.inf, math.nan]
VALUES = st.sampled_from(
    [*NUMBERS, np.float64(1.5), True, False, None, "a", "b", "é", "zz", "", datetime(2026, 5, 1, tzinfo=UTC)]
)
EVENTS = st.dictionaries(st.sampled_from(["x", "y", "kind", "flag", "seen", "other"]), VALUES)


def both(filters: list[str], copies: int = 1) -> tuple[TreeIndex, ScanIndex]:
    tree, scan = TreeIndex(tail=4), ScanIndex()
    for index in (tree, scan):
        index.add_texts(np.arange(copies * len(filters)), copies * filters)
    return tree, scan


PLAIN = [text for text in FILTERS if "OR" not in text and "IN" not in text and text != "x < y"]
LIKES = [
    *("kind LIKE '%a%'", "kind LIKE '%é%' AND x > 1", "other LIKE '%a%' OR other ILIKE '%É%'", "kind ILIKE '%B%'"),
    *("kind LIKE '_'", "kind NOT LIKE '%a%' AND kind LIKE '%b%'", "kind LIKE '%a%' AND other LIKE '%z_' AND x < y"),
    *("other NOT LIKE '%z%'", "kind LIKE '%zz%' AND kind LIKE '%z%' AND other NOT ILIKE '%A%'"),
]
INDEXES = {
    "rows that say all": both(PLAIN),
    "equal filters": both(PLAIN, copies=5),
    "several rows": both(FILTERS),
    "patterns": both([*FILTERS, *LIKES], copies=2),
    "an integer that is no float": both([*PLAIN, f"x > {2**53 + 1}", f"x <= {-(2**53) - 1}"], copies=2),
}


def test_segments_are_searched_by_one_call() -> None:
    for name, (tree, _) in INDEXES.items():
        for view in tree._version.views:
            assert view.single is not None
            assert (view.single.beside is None) == (name not in {"several rows", "patterns"}), name


@pytest.mark.parametrize("name", INDEXES)
@given(event=EVENTS)
@thorough(200)
def test_one_event_finds_what_a_batch_and_the_scan_find(name: str, event: dict[str, Any]) -> None:
    tree, scan = INDEXES[name]
    found = sorted(tree.match(event).tolist())
    assert found == sorted(tree.match_batch([event])[0].tolist())
    assert found == sorted(scan.match(event).tolist())


@pytest.mark.parametrize("filters", [PLAIN, [*FILTERS, *LIKES]])
@pytest.mark.parametrize("copies", [1, 6])
def test_what_was_removed_is_not_found(copies: int, filters: list[str]) -> None:
    """Removed of late or for good, alone in its slot or among others."""
    tree, scan = both(filters, copies)
    events: list[dict[str, Any]] = [{"x": x, "kind": kind, "y": 1.0} for x in (0, 1.5, 3) for kind in ("a", "b")]
    for sub in range(0, copies * len(filters), 3):
        tree.discard(sub)
        scan.discard(sub)
        for event in events:
            assert sorted(tree.match(event).tolist()) == sorted(scan.match(event).tolist())


@pytest.mark.parametrize("count", [4095, 4096, 4097, 70_000])
def test_there_is_room_for_any_number_of_matches(count: int) -> None:
    """Of equal filters in one slot, and of different ones."""
    equal, different = TreeIndex(), TreeIndex()
    equal.add_columns(np.arange(count), {"x": (np.zeros(count), np.ones(count))})
    different.add_columns(np.arange(count), {"x": (-np.arange(float(count)), np.ones(count))})
    for index in (equal, different):
        for _ in range(2):
            assert np.sort(index.match({"x": 0.5})).tolist() == list(range(count))
            assert index.match({"x": 2.0}).tolist() == []


@pytest.mark.parametrize("count", [4095, 4097, 70_000])
def test_there_is_room_for_any_number_of_special_rows(count: int) -> None:
    """Those of filters with two rows, alone or together with others, after smaller and larger matches."""
    index = TreeIndex()
    lows = np.arange(count) % 3 + 0.0
    two = BoxColumns.from_bounds({"x": (np.repeat(-lows, 2), np.tile([1.0, 1.5], count))})
    index.add_boxes(np.arange(count), replace(two, owners=np.repeat(np.arange(count), 2)))
    index.add(count, "s LIKE '%b%' OR s LIKE '%c%'")
    index.add_columns(np.arange(count) + count + 1, {"y": (np.zeros(count), np.ones(count))})
    index.settle()
    for event, size in (({"x": 0.5}, count), ({"s": "abc", "y": 0.5}, count + 1), ({"x": 0.5, "y": 0}, 2 * count)):
        for _ in range(2):
            found = index.match(event)
            assert len(found) == len(set(found.tolist())) == size
            assert np.sort(found).tolist() == np.sort(index.match_batch([event])[0]).tolist()


def test_there_is_room_for_texts_of_any_length_and_any_number_of_pieces() -> None:
    """Pieces across the parts in which a text is read are found; a room is used again for other indexes."""
    words = [f"<{n:05d}>" for n in range(3_000)]
    for count in (3, 3_000):
        index = TreeIndex()
        texts = [f"{'st'[n % 2]} {'I' * (n % 3 == 0)}LIKE '%{words[n]}%'" for n in range(count)]
        index.add_texts(range(count), texts)
        for size in (0, 1_000, 1_024, 4_090, 4_094, 8_192, 500_000, 5):
            event = {"s": "é" + "?" * size + words[2] + words[0], "t": words[1] + "x" * size + words[-1]}
            assert sorted(index.match(event).tolist()) == [0, 1, 2] + [count - 1] * (count == 3_000)
            assert index.match({"s": 5, "t": None}).tolist() == []


def test_threads_match_at_the_same_time() -> None:
    tree, _ = INDEXES["patterns"]
    events = [{"kind": kind, "other": other, "x": 2} for kind in ("a", "abzz", "é", "b") for other in ("zé", "za", "É")]
    wanted = [sorted(tree.match(event).tolist()) for event in events]
    fresh = copy(tree)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            assert [sorted(ids.tolist()) for ids in pool.map(fresh.match, events)] == wanted


def test_results_belong_to_their_callers() -> None:
    """Memory is used again, but not while somebody has it."""
    tree, _ = both(PLAIN)
    first = tree.match({"x": 1.0})
    before = first.tolist()
    tree.match({"x": 5.0, "kind": "a"})
    assert first.tolist() == before
    assert first.flags.owndata


def test_more_attributes_than_one_call_takes() -> None:
    """Then the event is a batch of one."""
    tree, scan = both([f"a{n} > {n} AND x > 1" for n in range(50)])
    assert tree._version.views[0].single is None
    event = {"x": 2, **{f"a{n}": 10 for n in range(50)}}
    assert sorted(tree.match(event).tolist()) == sorted(scan.match(event).tolist()) == list(range(10))


def test_what_a_call_cannot_read_is_left_to_batches() -> None:
    """Arrays of other types than the kernel's: a handle would make it read something else."""
    view = both(PLAIN)[0]._version.views[0]
    strided = np.ones(2 * len(view.alive), bool)[::2]
    assert SingleSearch.of(view.segment, view.tree, view.alive, False) is not None
    assert SingleSearch.of(view.segment, view.tree, strided, False) is None
    wrong = view.tree._replace(nodes=view.tree.nodes.astype(np.int64))  # type: ignore[arg-type]
    assert SingleSearch.of(view.segment, wrong, view.alive, False) is None


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
def test_events_that_come_in_get_what_a_batch_gets_however_few_they_are(count: int) -> None:
    index = TreeIndex()
    index.add_texts(range(50), [f"x > {n} AND s != 'b{n % 3}'" for n in range(50)])
    events = [{"x": n % 60, "s": f"b{n % 4}"} for n in range(7, 7 + count)]
    found, batch = index.match_events(events), index.match_batch(events)
    assert [sorted(ids.tolist()) for ids in found] == [sorted(ids.tolist()) for ids in batch]


@pytest.mark.parametrize("count", [1, 20])
def test_an_event_that_cannot_be_read_is_an_error_however_few_come_with_it(count: int) -> None:
    index = TreeIndex()
    index.add(1, "x > 1")
    with pytest.raises(EventError):
        index.match_events([{"x": 5}] * count + [{"x": object()}])
