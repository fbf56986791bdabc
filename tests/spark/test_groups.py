"""Groups in which events and subscriptions meet, as ordinary functions: each pair once, and about the same work."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.test_pieces import boxes_of
from strategies import filters, thorough
from weft import Schema, matches, parse
from weft.algebra.columns import BoxColumns
from weft.errors import SchemaError
from weft.language.ast import Filter
from weft.model.batch import batch_from_events
from weft.model.event import Event
from weft.pipeline.boxes import Boxes, Matcher, Reading
from weft.pipeline.output import ResultForm
from weft.pipeline.packed_boxes import PackedBoxes
from weft.spark.group_join import GroupMatch, _by_group, _pack_wide, _place_boxes, match_group, place_events
from weft.spark.join_groups import Amounts, JoinGroups, Salting, plan
from weft.spark.shipped_index import Shipped

# one type an attribute, as columns have it
TYPED = [
    {"a": a, "b": b}
    for a, b in product((None, -1, 0, 1, 2, 3, 7), (None, "", "a", "ab", "b"))
    if a is not None or b is not None
]


@dataclass
class InHand:
    """An index that nobody ships: snapshots have the built-in predicates only."""

    matcher: Matcher

    def open(self) -> Matcher:
        return self.matcher


def wanted(some: list[Filter], rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(at, sub) for at, row in enumerate(rows) for sub, each in enumerate(some) if matches(each, row)]


def hashes_of(batch: pa.RecordBatch) -> Any:
    texts = (str(row).encode() for row in batch.to_pylist())
    return np.array([int.from_bytes(blake2b(text, digest_size=8).digest()) for text in texts], np.uint64)


def planned(batch: pa.RecordBatch, columns: BoxColumns, groups: int, schema: Schema | None = None) -> JoinGroups:
    amounts = Amounts(batch.num_rows, len(np.unique(columns.owners)))
    return plan(batch, hashes_of(batch), columns, amounts, groups, schema)


def placed(groups: JoinGroups, batch: pa.RecordBatch, schema: Schema | None = None, step: int = 7) -> Any:
    """The group of each event; batches of a few, as executors may get them."""

    def batches() -> Iterator[tuple[Any, ...]]:
        for at in range(0, batch.num_rows, step):
            some = batch.slice(at, step)
            hashes = pa.array(hashes_of(some).view(np.int64))
            yield (hashes, pa.array([0] * some.num_rows), *(some.column(name) for name in groups.names))

    return np.concatenate([np.array(part) for part in place_events(groups, schema, batches())])


def pairs_by_groups(groups: JoinGroups, boxes: Boxes, batch: pa.RecordBatch, schema: Schema | None = None) -> list[Any]:
    """Every pair that groups and the wide index find, as the executors do it."""
    where = placed(groups, batch, schema)
    *_, counts = groups.of_boxes(boxes.columns)
    few = np.flatnonzero(groups.is_wide(counts))
    wide = cast("Shipped", InHand(boxes.of_owners(few).matcher(schema))) if len(few) else None
    narrow: dict[int, list[bytes]] = {}
    for some in (np.arange(0, len(boxes), 2), np.arange(1, len(boxes), 2)):
        for group, part in _by_group(boxes.of_owners(some), groups, wide is not None):
            narrow.setdefault(group, []).append(part.to_bytes())
    numbered = batch.append_column("number", pa.array(range(batch.num_rows)))
    form = ResultForm.of("lists", numbered.schema.names, ["number"])
    pairs = []
    for group in range(len(groups)):
        rows = numbered.take(np.flatnonzero(where == group))
        held = pa.array(narrow.get(group, []), pa.binary())
        first = pa.record_batch([*(pa.nulls(len(held), f.type) for f in rows.schema), held], [*rows.schema.names, "b"])
        last = rows.append_column("b", pa.nulls(rows.num_rows, pa.binary()))
        both = pa.Table.from_batches([first, last]).combine_chunks().to_batches(max_chunksize=5)
        for part in match_group(GroupMatch(Reading("id", "filter", schema=schema), wide, form), iter(both)):
            for row, subs in zip(*(column.to_pylist() for column in part.columns), strict=True):
                pairs += [(row, sub) for sub in subs]
    return pairs


@thorough(60)
@given(st.lists(filters(4), min_size=1, max_size=10), st.integers(1, 12), st.integers(0, 3))
def test_each_pair_is_found_once_whatever_the_groups(some: list[Filter], groups: int, hot: int) -> None:
    rows = TYPED + [TYPED[hot]] * (40 * (hot > 0))  # many events in one place
    batch = batch_from_events([Event.of({k: v for k, v in row.items() if v is not None}) for row in rows])
    boxes = boxes_of(some)
    try:
        chosen = planned(batch, boxes.columns, groups)
    except SchemaError:
        chosen = JoinGroups.of_nothing(groups)
    pairs = pairs_by_groups(chosen, boxes, batch)
    assert len(pairs) == len(set(pairs))
    assert sorted(pairs) == wanted(some, rows)


def test_events_are_placed_as_they_conform_to_the_schema() -> None:
    schema = Schema.of(x="int")
    rows = [{"x": float(n) / 2} for n in range(40)]
    some = [parse("x IS NULL"), parse("x > 5"), parse("x <= 5")]
    boxes = boxes_of(some, schema)
    batch = pa.record_batch({"x": [row["x"] for row in rows]})
    chosen = planned(batch, boxes.columns, 5, schema)
    conformed = [schema.conform(Event.of(row)).attributes for row in rows]
    assert sorted(pairs_by_groups(chosen, boxes, batch, schema)) == wanted(some, conformed)


@pytest.mark.parametrize("groups", [2, 4, 10, 20])
@pytest.mark.parametrize("equal", [300, 600, 900])
def test_a_place_with_most_events_is_shared_however_few_groups_there_are(groups: int, equal: int) -> None:
    batch = pa.record_batch({"x": [5.0] * equal + [float(7 * n % 300) for n in range(1000 - equal)]})
    boxes = boxes_of([parse(f"x BETWEEN {n} AND {n + 3}") for n in range(300)])
    chosen = planned(batch, boxes.columns, groups)
    assert len(chosen) <= groups
    events = np.bincount(placed(chosen, batch), minlength=groups)
    subscriptions = np.bincount(chosen.of_boxes(boxes.columns)[1], minlength=groups)
    work = 3 * events + subscriptions
    assert work.max() <= 1.5 * work.mean(), (events, subscriptions)


def test_values_that_are_mostly_absent_are_spread() -> None:
    rng = np.random.default_rng(5)
    values = {f"a{k}": np.where(rng.random(4_000) < 0.9, np.nan, rng.uniform(0, 100, 4_000)) for k in range(6)}
    batch = pa.record_batch({name: pa.array(column, from_pandas=True) for name, column in values.items()})
    some = [f"a{n % 6} BETWEEN {n % 97} AND {n % 97 + 2} AND a{(n + 1) % 6} > {n % 50}" for n in range(600)]
    boxes = boxes_of([parse(text) for text in some])
    chosen = planned(batch, boxes.columns, 8)
    work = 3 * np.bincount(placed(chosen, batch), minlength=8) + np.bincount(
        chosen.of_boxes(boxes.columns)[1], minlength=8
    )
    assert work.max() <= 1.5 * work.mean()


def test_subscriptions_of_one_size_are_spread_evenly() -> None:
    rng = np.random.default_rng(3)
    low = rng.zipf(1.3, 20_000).clip(1, 5_000).astype(float)  # most of them in a few places
    other = rng.uniform(0, 1000, 20_000)
    columns = BoxColumns.from_bounds({"x": (low, low + 3), "y": (other, other + 5)})
    batch = pa.record_batch({"x": rng.choice(low, 20_000) + 1, "y": rng.uniform(0, 1000, 20_000)})
    groups = planned(batch, columns, 16)
    _, where, counts = groups.of_boxes(columns)
    assert counts.max() <= 16
    assert np.bincount(where).max() < 3 * len(columns) / 16
    assert np.bincount(groups.of_events(batch, np.arange(20_000))).max() < 3 * 20_000 / 16


def test_where_an_event_goes_does_not_depend_on_the_order_of_events() -> None:
    rng = np.random.default_rng(1)
    batch = pa.record_batch({"x": [5.0] * 300 + [float(n % 10) for n in range(100)], "n": [0] * 300 + list(range(100))})
    boxes = boxes_of([parse(f"x BETWEEN {n} AND {n + 3}") for n in range(10)])
    groups = planned(batch, boxes.columns, 8)
    assert len(groups.often) == 1
    before: dict[int, list[str]] = {}
    for step in (7, 50, 400):
        mixed = batch.take(rng.permutation(400))
        found: dict[int, list[str]] = {}
        for row, group in zip(mixed.to_pylist(), placed(groups, mixed, step=step).tolist(), strict=True):
            found.setdefault(group, []).append(str(row))
        ordered = {group: sorted(rows) for group, rows in found.items()}
        assert ordered == (before or ordered)  # the same rows, of which equal ones are interchangeable
        before = ordered


def test_equal_events_of_many_small_partitions_do_not_begin_with_one_group() -> None:
    often = np.array([3, 9], np.uint64)
    first = [int(Salting(often, task)(np.array([9], np.uint64))[0] % 4) for task in range(8)]
    assert sorted(first) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_executors_pack_what_they_place() -> None:
    texts = [f"x BETWEEN {n} AND {n + 1}" for n in range(50)] + ["TRUE", "oops ("]
    rows = pa.record_batch({"id": list(range(52)), "filter": texts})
    reading = Reading("id", "filter")
    batch = pa.record_batch({"x": [float(n) for n in range(50)]})
    groups = pickle.loads(pickle.dumps(planned(batch, reading.read(rows)[0].columns, 20)))
    for apart in (True, False):
        (parts,) = _place_boxes(reading, groups, apart, iter([rows]))
        where, packed, refused = (column.to_pylist() for column in parts.columns)
        here = {sub for data in packed[1:] for sub in PackedBoxes.from_bytes(data).ids.to_pylist()}
        assert here == set(range(50 if apart else 51))
        assert (where[0], packed[0], sum(refused)) == (-1, None, 1)
        assert min(where[1:]) >= 0
    (wide,) = _pack_wide(reading, groups, iter([rows]))
    assert PackedBoxes.from_bytes(wide.column("boxes")[0].as_py()).ids.to_pylist() == [50]


def test_a_group_without_events_builds_nothing() -> None:
    form = ResultForm.of("pairs", ["x"], None)
    held = pa.record_batch([pa.nulls(1, pa.int64()), pa.array([b"not boxes at all"])], ["x", "b"])
    broken = GroupMatch(Reading("id", "filter"), None, form)
    with pytest.raises(pickle.UnpicklingError):
        list(match_group(broken, iter([held])))
    assert list(match_group(broken, iter([held.slice(0, 0)]))) == []
