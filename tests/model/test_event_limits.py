"""The limits of an event, checked at the door with an error that says what to do."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weft.errors import EventError
from weft.index import TreeIndex
from weft.model.batch import events_from_batch
from weft.model.cloudevents import from_cloudevent
from weft.model.column import FREE
from weft.model.event import Event
from weft.model.limits import LIMITS, Limits


def test_an_event_may_be_as_large_as_the_limits() -> None:
    assert len(Event.of({f"a{n}": n for n in range(4096)}).attributes) == 4096
    assert Event.of({"n" * 1024: 1}).attributes == {"n" * 1024: 1}
    assert Event.of(text="x" * (LIMITS.event - 4))["text"] == "x" * (LIMITS.event - 4)
    assert Event.of(text="ä" * (LIMITS.event // 2 - 2))["text"] is not None
    assert Event.of(x=1, payload=b"x" * 10_000_000).payload is not None


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({f"a{n}": n for n in range(4097)}, "at most 4,096 attributes; put the others in the payload"),
        ({f"a{n}": None for n in range(4097)}, "at most 4,096 attributes"),
        ({"n" * 1025: 1}, "longer than 1,024 characters; use the payload"),
        ({"a" * 600: {"b" * 600: 1}}, "longer than 1,024 characters"),
        ({"text": "x" * (1024 * 1024)}, "at most 1,048,576 bytes; put long texts in the payload"),
        ({"text": "ä" * (512 * 1024)}, "at most 1,048,576 bytes"),
        ({f"{n:04}" + "n" * 1000: 1 for n in range(1100)}, "at most 1,048,576 bytes"),
    ],
)
def test_an_event_past_a_limit_is_refused(mapping: dict[str, Any], said: str) -> None:
    with pytest.raises(EventError, match=said):
        Event.of(mapping)


def test_long_nested_keys_are_refused_before_they_are_multiplied() -> None:
    inner: Any = {f"k{leaf}": leaf for leaf in range(2_000)}
    for level in range(98):
        inner = {f"{level:05}" * 2_000: inner}
    with pytest.raises(EventError, match="longer than 1,024 characters"):
        Event.of(inner)


def test_a_cloudevent_has_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {"specversion": "1.0", "id": "1", "source": "/", "type": "t", "data": "x" * 5_000}
    monkeypatch.setattr(LIMITS, "event", 1_000)
    assert from_cloudevent(message)["id"] == "1"
    with pytest.raises(EventError, match="at most 1,000 bytes"):
        from_cloudevent({**message, "subject": "s" * 1_000})
    monkeypatch.setattr(LIMITS, "attributes", 3)
    with pytest.raises(EventError, match="at most 3 attributes"):
        from_cloudevent({**message, "extension": 1})


def refused(rows: Any, payload: str | None = None) -> str | None:
    """What is said against a batch; the same as against the first of its rows that is refused as a mapping."""
    said = None
    try:
        events_from_batch(rows, payload=payload)
    except EventError as error:
        said = error.position, error.message
    columns = rows.drop_columns([payload]) if payload else rows
    alone: dict[int | None, str] = {}
    for number, row in enumerate(columns.to_pylist()):
        try:
            Event.of(row)
        except EventError as error:
            alone[number] = error.message
    assert said == next(iter(alone.items()), None)
    found = TreeIndex().match_batch(columns)
    assert {number: error.message for number, error in found.errors.items()} == alone, "an index sets them all aside"
    return None if said is None else said[1]


def test_a_batch_has_the_limits_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "event", 100)
    monkeypatch.setattr(LIMITS, "attributes", 5)
    long, words = "y" * 60, pa.array(["y" * 50, None, "z"])
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    for kind in kinds:
        assert refused(pa.record_batch({"x": pa.array([long, None, "a"]).cast(kind)})) is None
        assert "100 bytes" in (refused(pa.record_batch({"x": pa.array(["a", "ä" * 51, None]).cast(kind)})) or "")
        assert "100 bytes" in (refused(pa.record_batch({"x": pa.array([long] * 3).cast(kind), "y": words})) or "")
        split = {"x": pa.array([None, long, long]).cast(kind), "y": words}
        assert refused(pa.record_batch(split)) is None, "no row is too large, though the batch is"
    assert "100 bytes" in (refused(pa.record_batch({"n" * 101: [1, 2]})) or "")
    assert refused(pa.record_batch({"n" * 101: [None, None]}, schema=pa.schema({"n" * 101: pa.int64()}))) is None
    assert "100 bytes" in (refused(pa.record_batch({"a": [{"b": long, "c": "d" * 50}]})) or "")
    assert refused(pa.record_batch({"x": [1], "p": ["y" * 5_000]}), "p") is None
    assert "5 attributes" in (refused(pa.record_batch({f"a{n}": [n] for n in range(6)})) or "")
    assert "5 attributes" in (refused(pa.record_batch({"a": [{f"b{n}": n for n in range(6)}]})) or "")
    with pytest.raises(EventError, match="100 bytes"):
        TreeIndex().match_batch(pa.record_batch({"x": ["y" * 200]})).checked()


def test_rows_of_a_cluster_have_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "event", 100)
    index = TreeIndex()
    index.add(1, "x LIKE 'y%'")
    rows = pa.record_batch({"x": ["y" * 200, "y"]})
    assert [ids.tolist() for ids in index.match_batch(rows)] == [[], [1]], "a row that is set aside matches nothing"
    assert [ids.tolist() for ids in index.match_batch(rows.replace_schema_metadata(FREE))] == [[1], [1]]


def test_every_limit_is_documented_in_one_place() -> None:
    guide = Path(__file__).parents[2].joinpath("docs", "guides", "filters.md").read_text()
    for each in fields(Limits):
        row = next((line for line in guide.splitlines() if line.endswith(f"| `{each.name}` |")), "")
        default = row.split("|")[2].strip() if row else ""
        number, _, unit = default.partition(" ")
        assert int(number.replace(",", "")) * {"KiB": 1 << 10, "MiB": 1 << 20}.get(unit, 1) == each.default, each.name
