"""Bounded work: what an index remembers, what a filter may cost it, what one change does. By counts, not by time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from index.churn import LIVE, Churn
from strategies import EVENTS, KINDS, all_tests
from weft.algebra.normalize import normalize
from weft.errors import FilterTooComplexError
from weft.index import CountingIndex, ScanIndex, TreeIndex
from weft.index.alternatives import MOST_ENTRIES, MOST_TESTS, alternatives
from weft.index.box_codec import decode_boxes, encode_boxes
from weft.index.dimension import CodeDimension
from weft.index.joining import Joining
from weft.index.memo import ROOM
from weft.index.weight import weigh
from weft.language.ast import AttributeRef
from weft.language.meaning import matches
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.limits import LIMITS

# -- memory ------------------------------------------------------------------------------------------


def memos(index: TreeIndex) -> list[dict[str, int]]:
    return [dimension.texts for view in index._version.views for dimension in view.segment.rows.dimensions]


def test_long_strings_are_not_remembered() -> None:
    index = TreeIndex(tail=0)
    index.add_texts([1, 2], ["s = 'zz'", "s LIKE '%z'"])
    for n in range(30):
        assert index.match({"s": f"{n}" + "y" * LIMITS.memo_longest}).tolist() == []
    assert index.match_batch([{"s": "a" * 5_000}, {"s": "zz"}]).counts.tolist() == [0, 2]
    assert all(len(text) <= LIMITS.memo_longest for memo in memos(index) for text in memo)


def test_all_memos_together_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "memo_bytes", 50_000)
    index = TreeIndex(tail=0)
    index.add_texts(range(20), [f"s{n} = 'zz'" for n in range(20)])
    most = 0
    for n in range(400):
        found = index.match({f"s{k}": f"text {n}" if k != n % 20 else "zz" for k in range(20)})
        assert found.tolist() == [n % 20]
        most = max(most, sum(map(len, memos(index))))
    assert 0 < most <= 50_000 // 128
    assert ROOM.used <= 50_000


# -- what a filter may cost --------------------------------------------------------------------------


def rows_of(text: str, events: list[dict[str, Any]]) -> TreeIndex:
    """An index with one filter, which must answer as the filter means."""
    index, counting, held = TreeIndex(tail=0), CountingIndex(), parse(text)
    index.add(1, held)
    counting.add(1, held)
    for event in events:
        wanted = [1] if matches(held, event) else []
        assert index.match(event).tolist() == index.match_batch([event])[0].tolist() == wanted, event
        assert counting.match(event).tolist() == wanted, event
    return index


def test_a_long_list_makes_one_row_and_two_cuts() -> None:
    values = ", ".join(str(2 * n) for n in range(300))
    for text in (f"x IN ({values})", f"x IN (9007199254740993, {values})"):
        index = rows_of(text, [{"x": 6}, {"x": 7}, {"x": 9007199254740993}, {"x": -2}, {"x": 598.0}, {}])
        (view,) = index._version.views
        assert len(view.segment.rows) == 1
        assert len(view.segment.rows.dimensions[0].numbers) == 2


def test_places_of_inexact_numbers_are_found_by_bisection() -> None:
    """With many ints beyond floats a search through all of them for each would never end."""
    cuts = [(2**53 + 2 * n + 1, side) for n in range(5_000) for side in (0, 1)]
    dimension = CodeDimension.of(cuts, [], [])
    assert dimension.inexact
    assert [dimension._number_place(cut) for cut in cuts] == list(range(len(cuts)))
    with pytest.raises(ValueError, match="not among"):
        dimension._number_place((2**53 + 2, 0))


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (" AND ".join(f"a{n} = {n}" for n in range(300)), [{f"a{n}": n for n in range(300)}, {"a1": 1}]),
        (
            " OR ".join(f"(a{n} IN (1, 3) AND b{n} IN (1, 3) AND c{n} IN (1, 3))" for n in range(80)),
            [{"a7": 3, "b7": 1, "c7": 1}, {"a7": 3, "b7": 1, "c8": 1}],
        ),
        (
            " OR ".join(" AND ".join(f"a{n + k} = {n}" for k in range(12)) for n in range(0, 500, 12)),
            [{f"a{12 + k}": 12 for k in range(12)}, {f"a{12 + k}": 12 for k in range(11)}],
        ),
        (
            " AND ".join(f"x{n} NOT IN (1, 2, 3)" for n in range(10)),
            [{f"x{n}": 5 for n in range(10)}, {f"x{n}": 2 for n in range(10)}, {"x0": 5}],
        ),
        (
            "s LIKE '%a%' AND s LIKE '%b' AND s NOT LIKE '%cb' AND x != 3 AND y != 3 AND z != 3 AND w != 3 AND v != 3"
            " AND u != 3 AND t NOT IN (1, 2)",
            [dict.fromkeys("xyzwvut", 4) | {"s": "xab"}, dict.fromkeys("xyzwvut", 4) | {"s": "acb"}],
        ),
    ],
)
def test_rows_and_axes_of_a_filter_are_bounded(text: str, events: list[dict[str, Any]]) -> None:
    index = rows_of(text, events)
    (view,) = index._version.views
    rows, boxes = view.segment.rows, normalize(parse(text)).boxes
    assert np.diff(rows.starts).max() <= MOST_TESTS
    assert len(rows.dims) <= MOST_ENTRIES + len(boxes)
    assert len(rows.axes) <= MOST_ENTRIES


def test_alternatives_hold_their_box() -> None:
    """With hardly any room every set is widened and most tests go; what is left must still hold every event."""
    for test in [*all_tests(AttributeRef("a"))[::3], parse("a IN (1, 3, 5) AND b != 'x' AND c < d")]:
        for box in normalize(test).boxes:
            for boxes in (1, 100, MOST_ENTRIES):
                parts = list(alternatives(box, frozenset(box.residuals), boxes))
                for event in EVENTS[::7]:
                    if event in box:
                        assert any(_holds(part.tests, event) for part in parts)


def _holds(tests: Any, event: dict[str, Any]) -> bool:
    for axis, values in tests.items():
        if axis.subject is not None:
            held = axis.subject.outcome(event) in values
        elif axis.reverse:
            held = isinstance(event.get(axis.name), str) and event[axis.name][::-1] in values
        else:
            held = event.get(axis.name) in values
        if not held:
            return False
    return True


def test_a_filter_past_the_limit_is_refused_when_it_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "filter_weight", 100)
    long = "x IN (" + ", ".join(str(2 * n) for n in range(100)) + ")"
    for index in (TreeIndex(), CountingIndex()):
        index.add(1, "x > 5")
        for change in (index.add, index.replace):
            with pytest.raises(FilterTooComplexError, match="split"):
                change(2, long)
        with pytest.raises(FilterTooComplexError) as caught:
            index.add_texts([3, 4], ["x > 6", long])
        assert len(index) == 1
    assert caught.value is not None
    tree = TreeIndex()
    with pytest.raises(FilterTooComplexError) as caught:
        tree.add_forms([7, 8], [normalize(parse("x > 6")), normalize(parse(long))])
    assert caught.value.position == 1


def test_a_set_that_many_boxes_share_weighs_and_is_stored_once() -> None:
    values = ", ".join(str(2 * n) for n in range(200))
    form = normalize(parse(f"x IN ({values}) AND (" + " OR ".join(f"y{n} = 1" for n in range(30)) + ")"))
    assert len(form.boxes) == 30
    assert weigh(form.boxes) < 600
    stored = encode_boxes(form.boxes)
    assert len(stored) < 3_000
    assert decode_boxes(stored, NO_PREDICATES) == form.boxes


def test_boxes_are_decoded_as_they_were() -> None:
    for test in [*all_tests(AttributeRef("a")), parse("a < b AND c LIKE '_x%y' AND d IS NULL")]:
        boxes = normalize(test).boxes
        assert decode_boxes(encode_boxes(boxes), Predicates([KINDS])) == boxes


@pytest.mark.parametrize(
    "wrong", [b"", b"\x90", b"\x93\x90\x90\x91\xc0", b"\x93\x90\x91\x96\x92\x05\x00\xc0", b"\xc1", b"\x93\x01\x02\x03"]
)
def test_bytes_that_are_no_boxes_raise(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="not encoded boxes"):
        decode_boxes(wrong, NO_PREDICATES)


# -- changes -----------------------------------------------------------------------------------------


class Counted(TreeIndex):
    """An index that tells how many rows each change coded or joined on its way."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.built: list[int] = []
        build, home = self._current.build, threading.get_ident()

        def counted(rows: Any, **settings: Any) -> Any:
            if threading.get_ident() == home:
                self.built.append(len(rows))
            return build(rows, **settings)

        self._current.build = counted


def test_no_change_joins_more_than_little() -> None:
    index, scan = Counted(), ScanIndex()
    rng = np.random.default_rng(1)
    for sub in range(3_000):
        text = f"x BETWEEN {rng.integers(900)} AND {rng.integers(900, 1000)} AND y > {rng.integers(100)}"
        index.built.clear()
        index.add(sub, text)
        if sub % 3 == 0:
            index.discard(int(rng.integers(sub + 1)))
        assert len(index.built) <= 2, "one piece of work for each change"
        assert sum(index.built) <= index._current.joining.small + index._current.joining.tail + 1
        if sub % 300 == 0:
            scan.replace(sub, text)
    index.settle()
    index.check()
    for n in range(20):
        event = {"x": 50 * n, "y": 60}
        held = {sub: index.filter(sub) for sub in scan.held if sub in index}
        assert set(held) & set(index.match(event).tolist()) == {s for s, f in held.items() if matches(f, event)}


def test_heavy_filters_leave_the_tail_early() -> None:
    index = Counted()
    for sub in range(60):
        index.add(sub, "x IN (" + ", ".join(str(7 * n + sub) for n in range(200)) + ")")
        assert sum(weigh(boxes) for boxes in index._version.tail.values()) <= LIMITS.tail_weight + 500
    assert index.stats().segments > 0


def test_what_is_joined_on_the_way_and_what_in_the_background() -> None:
    def views(*sizes: int) -> list[Any]:
        index = TreeIndex(fan=10**6, large=10**9)
        first = 0
        for size in sizes:
            index.add_columns(range(first, first + size), {"x": np.arange(size, dtype=float)})
            first += size
        return list(index._version.views)

    joining = Joining(tail=4, fan=3, large=1_000, small=100)
    assert joining.on_the_way(views(10, 10), ()) == []
    assert len(joining.on_the_way(views(10, 10, 25, 900), ())) == 3
    assert joining.on_the_way(views(50, 60, 70, 900), ()) == []
    assert [len(view.alive) for view in joining.in_background(views(50, 60, 70, 900))] == [50, 60, 70]
    assert joining.in_background(views(50, 60, 900)) == ()
    assert len(joining.in_background(views(700, 800, 900))) == 3, "much has gathered beside the largest"


def test_an_event_is_coded_on_the_axes_of_its_own_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    index = TreeIndex()
    index.add_texts(range(500), [f"a{n} = {n}" for n in range(500)])
    asked = 0
    code = CodeDimension.code

    def counted(self: CodeDimension, value: Any) -> int:
        nonlocal asked
        asked += 1
        return code(self, value)

    monkeypatch.setattr(CodeDimension, "code", counted)
    assert index.match({"a7": 7, "other": 1}).tolist() == [7]
    assert asked == 1
    assert [ids.tolist() for ids in index.match_batch([{"a7": 7}, {"a8": 8}, {"a9": 8}])] == [[7], [8], []]
    assert asked < 50


def churned(turns: int, subscriptions: int) -> None:
    """Changes in one thread while two match: what they find is right for the subscriptions that nobody changes."""
    churn = Churn(subscriptions)
    churn.run(lambda turn: turn < turns)
    assert churn.wrong == []
    stats = churn.index.stats()
    assert stats.subscriptions == subscriptions + len(churn.live)
    assert stats.rows - stats.subscriptions < 4 * (subscriptions + LIVE), "what is dead does not gather"
    assert sum(map(len, memos(churn.index))) < 1_000


def test_two_threads_match_while_changes_go_on() -> None:
    churned(800, 200)


@pytest.mark.slow
def test_long_churn_leaves_memory_flat() -> None:
    churned(40_000, 1_000)
