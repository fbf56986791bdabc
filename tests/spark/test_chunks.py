"""What a task does with a chunk, without Spark."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, thorough
from weft.algebra.bulk import columns_of_texts
from weft.algebra.normalize import normalize
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.schema import Schema
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.placement import Placement
from weft.spark.chunks import MATCHES_NOTHING, ChunkStep, Reduce, in_chunks, row_type, tables

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in "ab"}})
OTHER = Schema.from_dict({"attributes": {"c": {"type": "float", "bounds": [0, 2]}}})  # a and b may be of any type
SPACE = ContentSpace(Grid.uniform(SCHEMA, 4))
WAYS = {
    "covering": Reduce(ChunkStep.COVERING),
    "subsumption": Reduce(ChunkStep.SUBSUMPTION, OTHER),
    "merging": Reduce(ChunkStep.MERGING),
    "ranges": Reduce(ChunkStep.RANGES, space=SPACE),
}


def rows(texts: list[str], ids: list[Any] | None = None) -> pa.Table:
    numbers = pa.array(range(len(texts)) if ids is None else ids, pa.int64() if ids is None else pa.string())
    shape = row_type(numbers.type)
    columns = {"id": numbers, "filter": pa.array(texts, pa.string())}
    return pa.table([columns.get(field.name, pa.nulls(len(texts), field.type)) for field in shape], schema=shape)


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    starts = np.cumsum([0, *sizes])
    return [pa.record_batch({"x": np.arange(a, b)}) for a, b in pairwise(starts)]


@given(st.lists(st.integers(0, 7), max_size=5), st.integers(1, 6))
@thorough(100)
def test_chunks_have_all_rows_in_order_and_no_more_than_they_may(sizes: list[int], chunk: int) -> None:
    found = list(tables(batches(sizes), chunk))
    assert [x for table in found for x in table["x"].to_pylist()] == list(range(sum(sizes)))
    assert all(len(table) == chunk for table in found[:-1])
    assert all(0 < len(table) <= chunk for table in found)


def test_filters_in_json_are_filters() -> None:
    texts = pa.array(["type = 'a' OR x > 1", '{"exact": {"type": "a"}}'])
    out = Reduce(ChunkStep.COVERING).first(pa.table({"id": ["a", "b"], "filter": texts, "times": [1, 1]}))
    assert out["filter"].to_pylist()[1] == "type = 'a'"
    assert out["reason"].to_pylist() == [None, None]


def test_errors_go_out_whole_with_the_reason() -> None:
    table = pa.table(
        {
            "id": pa.array(["a", "b", "c", "c", None, "e", "f"]),
            "filter": pa.array(["x > 1", "x >", "x > 2", "x > 3", "x > 4", None, "x > 2 AND x < 1"]),
            "times": pa.array([1, 1, 2, 2, 1, 1, 1]),
        }
    )
    out = Reduce(ChunkStep.COVERING).first(table)
    wrong = {(row["id"], row["filter"]): row["reason"] for row in out.to_pylist() if row["reason"] is not None}
    assert [row["id"] for row in out.to_pylist() if row["reason"] is None] == ["a"]
    assert len(wrong) == len(out) - 1 == 6
    assert wrong["f", "x > 2 AND x < 1"] == MATCHES_NOTHING
    assert "2 subscriptions have this id" in wrong["c", "x > 3"]
    assert "no id" in wrong[None, "x > 4"]
    assert "no filter" in wrong["e", None]
    assert "column 4" in wrong["b", "x >"]


def test_where_nothing_is_wrong_there_are_no_errors() -> None:
    table = pa.table({"id": pa.array([7, 8]), "filter": pa.array(["x > 1", "x > 2"]), "times": pa.array([1, 1])})
    out = Reduce(ChunkStep.COVERING).first(table).to_pylist()
    assert [(row["id"], row["coverers"], row["reason"]) for row in out] == [(7, None, None), (8, [7], None)]


@pytest.mark.parametrize("way", WAYS)
@given(st.lists(filters(3).filter(lambda each: "is_a" not in str(each) and normalize(each)), max_size=6))
@thorough(25)
def test_every_row_goes_out_once_and_what_is_active_admits_it(way: str, some: list[Filter]) -> None:
    out = WAYS[way](rows([str(each) for each in some])).to_pylist()
    active = {row["id"]: row for row in out if row["coverers"] is None}
    passive = [row for row in out if row["coverers"] is not None]
    alone = [each for each, row in active.items() if row["components"] is None]
    assert sorted([*alone, *(row["id"] for row in passive)]) == list(range(len(some)))
    for row in passive:
        assert set(row["coverers"]) <= active.keys()
        others = [parse(active[each]["filter"]) for each in row["coverers"]]
        wanted = [event for event in EVENTS[::2] if matches(some[row["id"]], event)]
        if way == "ranges":
            cells = SPACE.indexes(wanted) if wanted else []
            assert SPACE.ranges(others[0]).contains(np.asarray(cells, np.int64)).all()
        else:
            assert all(any(matches(other, event) for other in others) for event in wanted)
    for row in active.values():
        if row["components"] is not None:
            parts = [some[part] for part in row["components"]]
            told = parse(row["filter"])
            assert all(matches(told, event) == any(matches(part, event) for part in parts) for event in EVENTS[::2])


def test_mergers_merge_again_and_keep_all_their_components() -> None:
    way = Reduce(ChunkStep.MERGING)
    first = way(rows(["x >= 0 AND x < 1", "x >= 1 AND x < 2", "x >= 5 AND x < 6 AND y = 1"]))
    stay = [row for row in first.to_pylist() if row["coverers"] is None]
    again = pa.Table.from_pylist(
        [*stay, {**stay[0], "id": 9, "filter": "x >= 2 AND x < 5", "components": None}], first.schema
    )
    out = way(again).to_pylist()
    alone, whole = sorted((row for row in out if row["coverers"] is None), key=lambda row: -row["id"])
    assert (alone["id"], alone["components"]) == (2, None)
    assert sorted(whole["components"]) == [0, 1, 9]
    assert {row["id"] for row in out if row["coverers"] is not None and row["components"] is None} == {9}


def test_near_filters_get_near_places() -> None:
    texts = [f"x BETWEEN {n % 50} AND {n % 50 + 1} AND s = 'v{n % 2}'" for n in range(200)]
    columns = columns_of_texts(texts)
    keys = Placement.learnt(columns).keys(columns, 200)
    same = [keys[n] for n in range(200) if n % 50 == 6]
    assert len(set(same)) == 1, "equal filters meet"
    assert len(set(keys.tolist())) == 50
    later = columns_of_texts([texts[6], "y > 1"])
    assert Placement.learnt(columns).keys(later, 2).tolist() == [keys[6], 0], "whoever works them out"


def test_the_body_of_a_task_gives_batches() -> None:
    out = list(in_chunks(lambda table: table, 3, batches([2, 2, 1])))
    assert [len(batch) for batch in out] == [3, 2]
