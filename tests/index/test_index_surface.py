"""What users try first with an index: tables of bounds, files, readers, lazy frames, joins, look-ups."""

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import weft
from weft.errors import EventError, SubscriptionError, UnknownIdError

BOUNDS = {"id": ["a", "b", "c"], "x_low": [0.0, 5.0, None], "x_high": [4.0, None, 2.0], "kind": ["k", None, "k"]}
EVENTS = pa.table({"x": [1.0, 6.0, 3.0, None], "kind": ["k", "z", "k", "k"]})
FOUND = [["a", "c"], ["b"], ["a"], []]


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_a_table_of_bounds_is_a_table_of_filters(make):
    index = weft.Index(make(BOUNDS))
    assert [sorted(ids) for ids in index.match_batch(EVENTS).lists()] == FOUND
    assert {name: str(each) for name, each in index.items()} == {
        "a": "x BETWEEN 0 AND 4 AND kind = 'k'",
        "b": "x >= 5",
        "c": "x <= 2 AND kind = 'k'",
    }


def test_bounds_may_be_of_any_type_that_filters_compare():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    index = weft.Index(
        pa.table(
            {
                "id": [1, 2],
                "t_low": [moment, None],
                "d_high": [None, date(2026, 1, 1)],
                "p_low": pa.array([Decimal("1.5"), None], pa.decimal128(5, 2)),
                "ok": [True, None],
            }
        )
    )
    assert index.match({"t": moment, "p": 2, "ok": True}) == [1]
    assert index.match({"d": moment}) == [2]


FILES_OF_BOUNDS = {
    "rules.parquet": lambda at: pq.write_table(pa.table(BOUNDS), at),
    "rules.csv": lambda at: pl.DataFrame(BOUNDS).write_csv(at),
    "rules.jsonl": lambda at: pl.DataFrame(BOUNDS).write_ndjson(at),
    "rules.json": lambda at: pl.DataFrame(BOUNDS).write_json(at),
}


@pytest.mark.parametrize("name", FILES_OF_BOUNDS)
def test_a_file_of_bounds_is_read_as_the_table(tmp_path, name):
    index = weft.Index(_written(tmp_path / name, FILES_OF_BOUNDS[name]))
    assert [sorted(ids) for ids in index.match_batch(EVENTS).lists()] == FOUND
    assert [*index.items()] == [*weft.Index(pa.table(BOUNDS)).items()]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "key,x_low\n1,5\n", "must have one column 'id'"),
        ("a.csv", "id,x_low\n1,5\n,6\n", "position 1: an id must be"),
        ("a.csv", "id,x_low\n1,5,7\n", "a.csv cannot be read"),
        ("a.jsonl", '{"id": 1, "x_low": 5}\n{"id": 2, "x_low": "a"}\n', "a.jsonl cannot be read"),
        ("a.jsonl", '{"id": 1, "x_low": 5}\n7\n', "line 1 has no 'filter'"),
        ("a.json", '[{"id": 1, "x_low": {"a": 5}}]', "row 0"),
    ],
)
def test_a_file_of_bounds_that_is_wrong_is_refused(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    index = weft.Index({"a": "x > 5"})
    with pytest.raises(SubscriptionError, match=said):
        index.update(tmp_path / name)
    assert list(index) == ["a"]


def test_filters_come_from_another_index_and_from_a_series():
    index = weft.Index(pd.Series({"a": "x > 5", "b": "x < 3"}))
    assert [*weft.Index(index).items()] == [*index.items()]
    assert [*index] == ["a", "b"]


def test_a_row_of_bounds_that_is_not_a_filter_is_named_and_nothing_is_added():
    index = weft.Index({"a": "x > 5"})
    with pytest.raises(SubscriptionError, match=r"the table, row 0: .* cannot be a constant") as caught:
        index.update(pa.table({"id": ["a", "b"], "x_low": pa.array([b"1", b"2"], pa.binary())}))
    assert (caught.value.id, caught.value.position) == ("a", 0)
    assert str(index["a"]) == "x > 5"


def test_an_empty_table_of_bounds_changes_nothing():
    assert len(weft.Index(pa.table(BOUNDS).slice(0, 0))) == 0


def test_a_table_without_bounds_still_says_that_the_filter_is_missing():
    with pytest.raises(SubscriptionError, match="must have one column 'filter': did you mean 'filtre'"):
        weft.Index(pa.table({"id": [1], "filtre": ["x > 5"]}))
    with pytest.raises(SubscriptionError, match="must have one column 'filter', or bounds such as 'x_low'"):
        weft.Index(pa.table({"id": [1], "owner": ["a"]}))


BATCHES = {
    "reader": lambda path: EVENTS.to_reader(max_chunksize=2),
    "dataset": lambda path: pa.dataset.dataset(EVENTS),
    "lazy": lambda path: pl.from_arrow(EVENTS).lazy(),
    "parquet": lambda path: _written(path / "e.parquet", lambda at: pq.write_table(EVENTS, at)),
    "text": lambda path: str(_written(path / "e.PARQUET", lambda at: pq.write_table(EVENTS, at))),
    "arrow": lambda path: _written(path / "e.arrow", lambda at: pa.feather.write_feather(EVENTS, at)),
    "lines": lambda path: _written(path / "e.jsonl", lambda at: pl.from_arrow(EVENTS).write_ndjson(at)),
}


def _written(path, write):
    write(path)
    return path


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_may_be_a_reader_a_dataset_a_lazy_frame_or_a_file(kind, tmp_path):
    index = weft.Index(pa.table(BOUNDS))
    assert [sorted(ids) for ids in index.match_batch(BATCHES[kind](tmp_path)).lists()] == FOUND


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.parquet", None, "absent.parquet cannot be read: No such file"),
        ("bad.parquet", b"not parquet", "bad.parquet cannot be read"),
        ("bad.jsonl", b'{"x": 1}\n{"x": \n', r"bad.jsonl, line 2 is not JSON"),
        ("bad.xlsx", b"", "is not a file of events that can be read here"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(EventError, match=message):
        weft.Index({"a": "x > 5"}).match_batch(tmp_path / name)


def test_a_text_that_is_not_the_path_of_events_is_refused():
    with pytest.raises(EventError, match=r"'events.csv' is not a file of events; use one of .*pandas"):
        weft.Index({"a": "x > 5"}).match_batch("events.csv")


def test_a_join_keeps_the_index_of_a_filtered_frame():
    frame = EVENTS.to_pandas()
    part = frame[frame.kind == "k"]  # rows 0, 2 and 3: positions differ from labels
    joined = weft.Index(pa.table(BOUNDS)).match_batch(part).join(part)
    assert sorted(zip(joined.index, joined.x, joined.subscription, strict=True)) == [
        (0, 1.0, "a"),
        (0, 1.0, "c"),
        (2, 3.0, "a"),
    ]


@pytest.mark.parametrize(
    "events", [EVENTS, EVENTS.to_batches()[0], pl.from_arrow(EVENTS), EVENTS.to_pylist()], ids=type
)
def test_a_join_is_of_the_kind_of_the_batch(events):
    joined = weft.Index(pa.table(BOUNDS)).match_batch(events).join(events)
    assert type(joined) is type(events)
    library = type(joined).__module__.partition(".")[0]
    rows = joined if isinstance(joined, list) else (joined.to_dicts if library == "polars" else joined.to_pylist)()
    assert sorted((row["x"], row["subscription"]) for row in rows) == [(1.0, "a"), (1.0, "c"), (3.0, "a"), (6.0, "b")]


def test_a_join_with_other_events_is_refused():
    found = weft.Index({"a": "x > 0"}).match_batch(EVENTS)
    with pytest.raises(EventError, match="needs the batch of 4 events"):
        found.join(EVENTS.slice(0, 2))
    with pytest.raises(EventError, match="rename"):
        found.join(EVENTS.append_column("subscription", pa.array([1] * 4)))
    with pytest.raises(EventError, match="table or a list of mappings"):
        found.join([1, 2, 3, 4])
    for unread in (pl.from_arrow(EVENTS).lazy(), "e.parquet", EVENTS.to_reader()):
        with pytest.raises(EventError, match="read it first"):
            found.join(unread)


def test_filters_are_looked_up_by_id():
    index = weft.Index({"a": "x > 5", 7: "x < 3"})
    assert str(index["a"]) == "x > 5"
    assert str(index[np.int64(7)]) == "x < 3"
    with pytest.raises(UnknownIdError, match="no filter with the id 'b'"):
        index["b"]


def test_notebooks_show_escaped_tables():
    index = weft.Index({"<b>": "x > 5", **{f"r{n}": f"x > {n}" for n in range(20)}})
    shown = index._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "11 more" in shown
    found = index.match_batch([{"x": 30}, {"x": 0}])._repr_html_()
    assert "&lt;b&gt;" in found
    assert found.count("<tr>") == 2
