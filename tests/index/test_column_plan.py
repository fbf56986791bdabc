"""A plan reads what the columns say one by one, however often it is used and whatever else the schema has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from weft.errors import EventError
from weft.index.column_plan import ColumnPlan
from weft.index.events import EventColumns
from weft.model.column import listed, typed_columns

WANTED = frozenset({"x", "s", "id", "time", "a.b", "gone"})
_BAD = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe")]
)
BATCHES = {
    "floats and strings": pa.record_batch({"x": [1.5, -0.0], "s": ["é", "b"], "other": [[1], [2]]}),
    "absent values": pa.record_batch({"x": [1.5, None], "s": [None, "b"]}),
    "not a number": pa.record_batch({"x": [float("nan"), 2.0], "s": pa.array(["a", None], pa.large_string())}),
    "other types": pa.record_batch({"x": [1, 2], "s": [True, None], "id": ["a", "b"], "time": ["soon", None]}),
    "a struct": pa.record_batch({"a": [{"b": 1.0}, {"b": 2.0}], "x": [1.0, 2.0]}),
    "dotted names": pa.record_batch({"a.b": [1.0, 2.0], "s": ["a", "b"]}),
    "not UTF-8": pa.record_batch({"s": _BAD, "x": [1.0, 2.0]}),
    "a well-known name": pa.record_batch({"id": [1.0, 2.0], "x": [1.0, 2.0]}),
    "nothing wanted": pa.record_batch({"y": [1.0, 2.0]}),
}


def _by_types(batch: pa.RecordBatch) -> tuple[dict[str, list[Any]], set[int]]:
    aside: dict[int, EventError] = {}
    return {name: listed(column) for name, column in typed_columns(batch, WANTED, aside).items()}, set(aside)


@pytest.mark.parametrize("name", BATCHES)
def test_a_plan_reads_what_the_types_say(name: str) -> None:
    batch = BATCHES[name]
    for part in (batch, batch.slice(1), batch.slice(0, 0), batch):
        expected, bad = _by_types(part)
        aside: dict[int, EventError] = {}
        events = EventColumns.of(part, WANTED, None, aside)
        assert set(aside) == bad
        assert {each: events.values(each) for each in WANTED if events.has(each)} == expected


def test_equal_schemas_share_a_plan_and_others_do_not() -> None:
    batch = BATCHES["floats and strings"]
    plan = ColumnPlan.of(batch, WANTED)
    assert ColumnPlan.of(batch.slice(1), WANTED) is plan
    assert ColumnPlan.of(batch, {"x"}) is not plan
    assert ColumnPlan.of(batch.replace_schema_metadata({"weft": "free types"}), WANTED).size is None
    for other in BATCHES.values():
        ColumnPlan.of(other, WANTED)
    assert ColumnPlan.of(batch, WANTED) == plan


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch([[1.0], [2.0]], names=["x", "x"]),
        pa.record_batch([[{"b": 1.0}], [2.0]], names=["a", "a.b"]),
        pa.record_batch([[{"b": "s"}], ["s"]], names=["a", "a.b"]),
    ],
)
def test_two_columns_of_one_name_are_refused(batch: pa.RecordBatch) -> None:
    for _ in range(2):
        with pytest.raises(EventError, match="two columns"):
            EventColumns.of(batch, WANTED)
