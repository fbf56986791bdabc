"""Every index and space takes the same events: those that `Event.of` takes. Others raise EventError."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft import Event, Schema, parse
from weft.algebra.normalize import normalize
from weft.errors import EventError
from weft.index.counting import CountingIndex
from weft.index.dimension import CodeDimension
from weft.index.scan import ScanIndex
from weft.index.tree import TreeIndex
from weft.language.meaning import matches
from weft.model.event import as_event, attributes_of
from weft.routing.dls.space import LabelSpace
from weft.space.content import ContentSpace
from weft.space.grid import Grid

SCHEMA = Schema.from_dict(
    {"attributes": {"x": {"type": "float", "bounds": [0, 10]}, "y.z": {"type": "int", "bounds": [0, 10]}}}
)
FILTERS = ("x BETWEEN 1 AND 8", "x IS NULL", "y.z > 2", "x > TIMESTAMP '2020-01-01'")
GRID = Grid.uniform(SCHEMA, 8)
CONTENT, LABELS = ContentSpace(GRID), LabelSpace([GRID])
LEVELS = LABELS.levels(LABELS.labels("x > 3"))

MAKERS = {
    "scan": ScanIndex,
    "counting": CountingIndex,
    "tree": lambda schema: TreeIndex(schema, tail=0),
    "tail": TreeIndex,
}


def answers(event):
    """What every index and space says of an event, one event at a time and in a batch, by who says it."""
    found = {}
    for name, make in MAKERS.items():
        for schema in (None, SCHEMA):
            index = make(schema)
            for sub, text in enumerate(FILTERS):
                index.add(sub, text)
            kind = "plain" if schema is None else "typed"
            found[kind, name, "one"] = lambda index=index: sorted(index.match(event).tolist())
            found[kind, name, "batch"] = lambda index=index: sorted(index.match_batch([event])[0].tolist())
            found[kind, name, "counts"] = lambda index=index: index.count_batch([event]).tolist()
            found[kind, name, "any"] = lambda index=index: index.any_batch([event]).tolist()
    found["filter", "matches", "one"] = lambda: [n for n, text in enumerate(FILTERS) if matches(parse(text), event)]
    found["filter", "form", "one"] = lambda: [n for n, text in enumerate(FILTERS) if event in normalize(parse(text))]
    found["curve", "content", "one"] = lambda: CONTENT.index(event)
    found["curve", "content", "batch"] = lambda: int(CONTENT.indexes([event])[0])
    found["curve", "content", "typed"] = lambda: int(CONTENT.indexes([event], SCHEMA)[0])
    found["label", "labels", "one"] = lambda: list(LABELS.of_event(event, LEVELS))
    found["label", "labels", "batch"] = lambda: list(LABELS.of_events([event], LEVELS)[0])
    return found


@pytest.mark.parametrize(
    "event",
    [
        {"x": [b"1"]},
        {"x": bytearray(b"1")},
        {"x": b"1"},
        {"x": 1j},
        {"x": np.array([b"1"])},
        {"x": 3.0, "other": [b"1"]},
        {"y": {"z": {b"1"}}},
        {"y.z": 1, "y": {"z": 2}},
        7,
        "x",
        None,
        [("x", 1)],
    ],
    ids=repr,
)
def test_what_is_no_event_is_refused_everywhere_with_an_event_error(event):
    for who, ask in answers(event).items():
        if who[1] in MAKERS and who[2] == "batch":
            continue
        with pytest.raises(EventError):
            pytest.fail(f"{who} took it: {ask()}")


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("event", [{"x": [b"1"]}, {"x": 3.0, "other": b"1"}, {"time": 10}, {"x": 2**64}, 7, "x", None])
def test_in_a_batch_a_bad_event_is_set_aside_and_the_others_are_matched(make, event):
    good = [{"x": 3.0}, {"x": Decimal(5)}, {}]
    for schema in (None, SCHEMA):
        index = make(schema)
        for sub, text in enumerate(FILTERS):
            index.add(sub, text)
        wanted = [sorted(index.match(each).tolist()) for each in good]
        found = index.match_batch([good[0], event, good[1], event, good[2]])
        assert [sorted(ids.tolist()) for ids in found] == [wanted[0], [], wanted[1], [], wanted[2]]
        assert list(found.errors) == [1, 3]
        with pytest.raises(EventError) as caught:
            index.match(event)
        assert found.errors[3].message == caught.value.message
        assert str(found.errors[3]) == f"event 3: {caught.value}"
        with pytest.raises(EventError, match="event 1: "):
            index.count_batch([good[0], event])
        with pytest.raises(EventError, match="event 1: "):
            index.any_batch([good[0], event])


@pytest.mark.parametrize(
    "event",
    [
        {"x": Decimal(3)},
        {"x": np.float32(3)},
        {"x": np.int64(3), "y.z": np.int64(9)},
        {"x": 3.0, "y": {"z": 9}},
        {"x": {}},
        {"x": float("nan")},
        {"x": np.datetime64("2020-05-05")},
        {"x": date(2020, 5, 5)},
        MappingProxyType({"x": 3.0}),
        MappingProxyType({"x": Decimal(3)}),
        Event({"x": 3.0}),
    ],
    ids=repr,
)
def test_every_index_and_space_sees_in_an_event_what_event_of_makes_of_it(event):
    plain = event if isinstance(event, Event) else Event.of(event)
    wanted = answers(plain)
    for who, ask in answers(event).items():
        assert ask() == wanted[who](), who
    assert answers(event)["filter", "matches", "one"]() == answers(event)["plain", "tree", "one"]()


def test_a_mapping_of_plain_values_is_not_copied():
    event = {"x": 1.5, "s": "a", "n": None}
    assert attributes_of(event) is event
    assert attributes_of(as_event(event)) == {"x": 1.5, "s": "a"}


WIDE_VALUES = st.sampled_from([0, 3, 2.5, math.nan, "ab", "", True, None, 2**60, datetime(2026, 1, 1, tzinfo=UTC)])
WIDE_EVENTS = st.dictionaries(st.integers(0, 149).map("a{}".format), WIDE_VALUES, max_size=4)


def wide_filters() -> list[str]:
    """Filters of 150 attributes; some of them need a box or a piece."""
    made = [f"a{n} > {n % 5}" for n in range(150)] + [f"a{n} IS NULL AND a{n + 1} = 'ab'" for n in range(0, 149, 7)]
    made += [f"a{n} LIKE '%b%' OR a{n} IS TRUE" for n in range(0, 150, 11)]
    return [*made, *(f"a{n} < a{n + 1}" for n in range(0, 149, 13)), *(f"a{n} LIKE 'a_%'" for n in range(0, 150, 17))]


@pytest.mark.parametrize("tail", [0, 1_000])
@given(events=st.lists(WIDE_EVENTS, min_size=1, max_size=20))
@thorough(60)
def test_events_with_few_of_many_attributes_match_as_they_mean(tail: int, events: list[dict[str, Any]]) -> None:
    index, scan = WIDE[tail]
    wanted = [sorted(scan.match(event).tolist()) for event in events]
    assert [sorted(ids.tolist()) for ids in index.match_batch(events)] == wanted
    assert index.count_batch(events).tolist() == [len(ids) for ids in wanted]
    assert [sorted(index.match(event).tolist()) for event in events] == wanted


def _wide(tail: int) -> tuple[TreeIndex, ScanIndex]:
    index, scan = TreeIndex(tail=tail), ScanIndex()
    for sub, text in enumerate(wide_filters()):
        index.add(sub, text)
        scan.add(sub, text)
    index.settle()
    return index, scan


WIDE = {tail: _wide(tail) for tail in (0, 1_000)}


def test_events_cost_what_they_have_however_many_attributes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    index = TreeIndex()
    index.add_texts(range(2_000), [f"a{n} > 5" for n in range(2_000)])
    coded, code = [], CodeDimension.code

    def counted(self: CodeDimension, value: Any) -> int:
        coded.append(value)
        return code(self, value)

    monkeypatch.setattr(CodeDimension, "code", counted)
    events = [{f"a{(7 * n + k) % 2_000}": 9 for k in range(10)} for n in range(300)]
    assert len(index.match_batch(events).ids) == 3_000
    assert len(coded) == 3_000
