"""What executors do, as ordinary functions over batches: reading, placing, matching, writing."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import filters, thorough
from weft import Schema, TreeIndex, parse
from weft.algebra.columns import BoxColumns, ColumnPart
from weft.algebra.normalize import normalize
from weft.algebra.sparse_column import SparseColumn
from weft.index.base import Matches
from weft.language.ast import Filter
from weft.pipeline import boxes as boxes_module
from weft.pipeline import lookup as lookup_module
from weft.pipeline import output as output_module
from weft.pipeline import packed_boxes as packed_module
from weft.pipeline.attributes import attributes
from weft.pipeline.boxes import Boxes, Ends, Matcher, Reading
from weft.pipeline.lookup import match_batches
from weft.pipeline.output import Output, ResultForm, write
from weft.pipeline.packed_boxes import PackedBoxes


def boxes_of(some: list[Filter], schema: Schema | None = None) -> Boxes:
    forms = [normalize(each, schema) for each in some]
    owners = [owner for owner, form in enumerate(forms) for _ in form.boxes]
    columns = BoxColumns.of((box for form in forms for box in form.boxes), owners)
    return Boxes(pa.array(range(len(some)), pa.int64()), columns)


# -- boxes ---------------------------------------------------------------------------------------------


@thorough(60)
@given(st.lists(filters(4), min_size=1, max_size=12), st.data(), st.booleans())
def test_boxes_come_out_of_pieces_as_they_went_in(some: list[Filter], data: st.DataObject, sparse: bool) -> None:
    boxes = boxes_of(some)
    cut = data.draw(st.integers(0, len(some)))
    whole = PackedBoxes.of(boxes)
    parts = [whole.of_owners(np.arange(0, cut)), whole.of_owners(np.arange(cut, len(some)))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_module, "_DENSE", 0 if sparse else 1 << 20)
        again = PackedBoxes.joined(PackedBoxes.from_bytes(part.to_bytes()) for part in parts).boxes()
    assert again.ids.to_pylist() == boxes.ids.to_pylist()
    assert again.columns.owners.tolist() == boxes.columns.owners.tolist()
    assert list(again.columns) == list(boxes.columns)
    once_more = PackedBoxes.of(again).of_owners(np.arange(cut, len(some))).boxes()
    assert list(once_more.columns) == list(boxes.of_owners(np.arange(cut, len(some))).columns)


def test_a_piece_has_only_its_own_strings_and_columns() -> None:
    boxes = boxes_of([parse(f"s{n} = 's{n}'") for n in range(50)])
    piece = PackedBoxes.of(boxes).of_owners(np.array([7]))
    assert piece.texts == ("s7",)
    assert [name for name, _ in piece.keys] == ["s7"]


def test_boxes_of_many_attributes_take_the_bytes_of_their_intervals() -> None:
    texts = [f"a{n % 500} BETWEEN {n} AND {n + 7}" for n in range(2_000)]
    boxes, _ = Reading("id", "filter").read(pa.record_batch({"id": list(range(2_000)), "filter": texts}))
    packed = PackedBoxes.of(boxes)
    assert len(packed.to_bytes()) / 2_000 < 50
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_module, "_DENSE", 0)
        held = packed.boxes()
    columns = held.columns.columns.values()
    assert all(isinstance(column, SparseColumn) for column in columns)
    assert pickle.loads(pickle.dumps(held.columns.columns["a7", ColumnPart.NUMBERS])).low.max() == 1507
    found = held.matcher(None).match(pa.record_batch({"a7": [510.0], "a8": [8.0]}))
    assert sorted(found.ids.tolist()) == [8, 507]


def test_rows_are_read_in_pieces_and_each_keeps_its_place() -> None:
    texts = [f"a{n} > {n}" if n % 7 else "oops (" for n in range(90)]
    rows = pa.record_batch({"id": list(range(90)), "filter": texts})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes_module, "_CELLS", 200)
        patch.setattr(boxes_module, "_FEW", 5)
        pieces = list(Reading("id", "filter").pieces(rows))
    assert len(pieces) == 4
    assert [sub for _, boxes, _ in pieces for sub in boxes.ids.to_pylist()] == [n for n in range(90) if n % 7]
    assert [first + row for first, _, refused in pieces for row in refused] == list(range(0, 90, 7))
    assert [refused for _, _, refused in Reading("id", "filter").pieces(rows.slice(0, 0))] == [{}]


def test_texts_are_read_and_bad_ones_named() -> None:
    rows = pa.record_batch(
        {
            "id": pa.array([1, 2, None, 4, 5, 6, 7]),
            "filter": ["x > 1", "x >", "x > 2", None, " ", '{"exact": {"type": "a"}}', '{"exact": 7}'],
        }
    )
    boxes, refused = Reading("id", "filter").read(rows)
    assert boxes.ids.to_pylist() == [1, 6]
    assert list(refused) == [1, 2, 3, 4, 6]
    assert "the text ends" in refused[1]
    assert refused[2] == "it has no id"
    assert refused[3] == "there is no filter; the text is NULL"
    assert "an empty text is not a filter" in refused[4]


BOUNDS = {
    "x": Ends("x_low", "x_high"),
    "n": Ends("n_low"),
    "s": Ends(equal="s"),
}


def test_bounds_mean_their_conjunction() -> None:
    rows = pa.record_batch(
        {
            "id": ["p", "q", "r"],
            "x_low": [1.0, None, float("nan")],
            "x_high": [2.0, 5.0, None],
            "n_low": pa.array([None, 3, None], pa.int64()),
            "s": [None, "a", None],
        }
    )
    boxes, refused = Reading("id", bounds=BOUNDS, numbered=False).read(rows)
    assert not refused
    forms = [normalize(parse(text)).boxes[0] for text in ("x BETWEEN 1 AND 2", "x <= 5 AND n >= 3 AND s = 'a'", "TRUE")]
    assert list(boxes.columns) == forms


@pytest.mark.parametrize(
    ("low", "text"),
    [
        (pa.array([2**53 + 1, None]), f"x >= {2**53 + 1}"),
        (pa.array([Decimal("1.50"), None]), "x >= 1.5"),
        (pa.array([datetime(2018, 2, 1, tzinfo=UTC), None]), "x >= TIMESTAMP '2018-02-01'"),
        (pa.array([datetime(2500, 2, 1, tzinfo=UTC), None]), "x >= TIMESTAMP '2500-02-01'"),
        (pa.array([datetime(2018, 2, 1, tzinfo=UTC).date(), None]), "x >= TIMESTAMP '2018-02-01'"),
    ],
    ids=["beyond floats", "decimal", "moment", "late moment", "date"],
)
def test_bounds_of_every_type_are_exact(low: Any, text: str) -> None:
    rows = pa.record_batch({"id": [1, 2], "x_low": low})
    boxes, refused = Reading("id", bounds={"x": Ends("x_low")}).read(rows)
    assert not refused
    assert list(boxes.columns) == [normalize(parse(text)).boxes[0], normalize(parse("TRUE")).boxes[0]]


def test_a_bound_that_is_no_value_refuses_its_row_only() -> None:
    rows = pa.record_batch(
        {"id": [1, 2], "x_low": pa.array([Decimal("1"), Decimal("2")]), "y_low": [float("inf"), 1.0]}
    )
    boxes, refused = Reading("id", bounds={"x": Ends("x_low"), "y": Ends("y_low")}).read(rows)
    assert boxes.ids.to_pylist() == [2]
    assert list(refused) == [0]


def test_a_row_that_python_has_no_value_for_is_refused_alone() -> None:
    bytes_of = pa.array([b"x > 1", b"s = '\xff\xfe'"], pa.binary())
    boxes, refused = Reading("id", "filter").read(pa.record_batch({"id": [1, 2], "filter": bytes_of.view(pa.string())}))
    assert boxes.ids.to_pylist() == [1]
    assert refused == {1: "its text is not valid UTF-8"}
    late = pa.array([0, 4_000_000_000_000_000_000], pa.int64()).view(pa.timestamp("us"))
    bounds = {"t": Ends("t_low"), "flag": Ends(equal="flag")}
    rows = pa.record_batch({"id": [1, 2], "t_low": late, "flag": [True, None]})
    boxes, refused = Reading("id", bounds=bounds).read(rows)
    assert boxes.ids.to_pylist() == [1]
    assert "no filter has such a value" in refused[1]


def test_strings_that_look_like_numbers_are_strings() -> None:
    rows = pa.record_batch({"id": [1], "zip_low": ["10000"], "zip_high": ["20000"]})
    boxes, refused = Reading("id", bounds={"zip": Ends("zip_low", "zip_high")}).read(rows)
    assert not refused
    assert list(boxes.columns) == [normalize(parse("zip BETWEEN '10000' AND '20000'")).boxes[0]]


def test_moments_and_numbers_do_not_bound_one_attribute() -> None:
    moment = pa.array([datetime(2018, 2, 1, tzinfo=UTC)])
    rows = pa.record_batch({"id": [1], "x_low": moment, "x_high": [5.0]})
    boxes, refused = Reading("id", bounds={"x": Ends("x_low", "x_high")}).read(rows)
    assert not refused
    assert not list(boxes.columns)  # nothing is both


# -- events --------------------------------------------------------------------------------------------


def test_filters_see_flat_columns_of_their_types() -> None:
    rows = pa.record_batch(
        {
            "x": [1, 2],
            "place": [{"country": "Chile", "tags": ["a"]}, None],
            "list": [[1], [2]],
            "raw": [b"a", b"b"],
        }
    )
    seen = attributes(rows)
    lists = {"place.tags": [["a"], None], "list": [[1], [2]]}
    assert seen.to_pydict() == {"x": [1, 2], "place.country": ["Chile", None], **lists}


def test_well_known_names_have_the_types_of_the_table() -> None:
    rows = pa.record_batch({"id": [5, 6], "time": ["2020-05-05", "soon"], "s": [b"raw", b"raw"]})
    index = TreeIndex(tail=0)
    for sub, text in enumerate(["id = 5", "time > TIMESTAMP '2020-01-01'", "time = 'soon'", "s IS NULL"]):
        index.add(sub, text)
    found = index.match_batch(attributes(rows))
    assert [sorted(ids.tolist()) for ids in found] == [[0, 3], [2, 3]]
    assert not found.errors
    assert index.count_batch(attributes(rows)).tolist() == [2, 2]


def test_events_without_attributes_are_as_many() -> None:
    assert attributes(pa.record_batch({"list": [[1], [2]]})).num_rows == 2


# -- results -------------------------------------------------------------------------------------------

counts = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def found(sizes: list[int], base: int) -> Matches:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Matches(offsets, base + np.arange(offsets[-1]))


@thorough(100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
def test_matches_of_two_indexes_go_together(sizes: list[tuple[int, int]]) -> None:
    one, other = found([a for a, _ in sizes], 0), found([b for _, b in sizes], 100)
    together = Matches.merged([one, other], len(sizes))
    for event in range(len(sizes)):
        assert sorted(together[event].tolist()) == sorted([*one[event].tolist(), *other[event].tolist()])


@thorough(100)
@given(counts, st.integers(1, 5), st.sampled_from([Output.PAIRS, Output.LISTS]))
def test_results_come_in_batches_and_say_all(sizes: list[int], most: int, form: Output) -> None:
    batch = pa.record_batch({"event": list(range(len(sizes))), "text": [f"e{n}" for n in range(len(sizes))]})
    hits = found(sizes, 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_module, "_ROWS", most)
        parts = list(write(batch, hits, form, pa.array))
    table = pa.Table.from_batches(parts)
    if form is Output.PAIRS:
        pairs = [(event, int(sub)) for event in range(len(sizes)) for sub in hits[event]]
        assert list(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True)) == pairs
        assert table["text"].to_pylist() == [f"e{event}" for event, _ in pairs]
        assert all(part.num_rows <= most for part in parts)
    else:
        assert table["subscriptions"].to_pylist() == [hits[event].tolist() for event in range(len(sizes))]


def test_no_events_give_an_empty_batch_with_its_columns() -> None:
    batch = pa.record_batch({"event": pa.array([], pa.int64())})
    (empty,) = write(batch, found([], 0), Output.LISTS, pa.array)
    assert empty.schema.names == ["event", "subscriptions"]


@pytest.mark.parametrize("form", list(Output))
def test_two_indexes_answer_as_one_by_names(form: Output) -> None:
    one = Boxes(pa.array(["a", "b"]), boxes_of([parse("x > 1"), parse("x > 2")]).columns).matcher(None)
    other = Boxes(pa.array(["c"]), boxes_of([parse("x < 3")]).columns).matcher(None)
    table = pa.Table.from_batches(
        match_batches([pa.record_batch({"x": [0, 2, 5]})], [one, other], ResultForm.of(form, ["x"], None))
    )
    found = {
        Output.PAIRS: ["c", "a", "c", "a", "b"],
        Output.LISTS: [["c"], ["a", "c"], ["a", "b"]],
        Output.COUNTS: [1, 2, 2],
    }
    assert table[form.column].to_pylist() == found[form]


@pytest.mark.parametrize("form", [Output.PAIRS, Output.LISTS])
def test_events_that_match_very_much_are_matched_a_few_at_a_time(form: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "_MATCHES", 20)
    index = boxes_of([parse(f"x >= {n}") for n in range(10)]).matcher(None)
    asked: list[int] = []

    class Watched(Matcher):
        def match(self, batch: pa.RecordBatch) -> Matches:
            asked.append(batch.num_rows)
            return super().match(batch)

    few, many = [{"x": -1, "n": n} for n in range(40)], [{"x": 99, "n": n} for n in range(40, 50)]
    batches = [pa.RecordBatch.from_pylist(rows) for rows in (few, [], many, many, few[:1]) if rows]
    batches.insert(1, batches[0].slice(0, 0))
    results = match_batches(batches, [Watched(index.index)], ResultForm.of(form, ["x", "n"], ["n"]))
    found = pa.Table.from_batches(results)
    assert asked == [2, 8, 30, 0, 10, 2, 2, 2, 2, 2, 1], asked  # none is known at first; then twenty matches
    if form is Output.PAIRS:
        assert found["n"].to_pylist() == [n for n in range(40, 50) for _ in range(10)] * 2
        assert found["subscription"].to_pylist() == list(range(10)) * 20
    else:
        assert found["n"].to_pylist() == [*range(50), *range(40, 50), 0]
        assert list(map(len, found["subscriptions"].to_pylist())) == [0] * 40 + [10] * 20 + [0]


def test_a_snapshot_in_the_place_of_another_is_seen(tmp_path: Any) -> None:
    from weft.spark.shipped_index import Shipped

    for version, (sub, text) in enumerate([(1, "x > 1"), (9, "x > 1")]):
        index = TreeIndex()
        index.add(sub, text)
        index.snapshot(tmp_path / "subs")
        found = Shipped(str(tmp_path / "subs"), written=version).open().match(pa.record_batch({"x": [2]}))
        assert found.ids.tolist() == [sub]


def test_pairs_of_a_large_event_come_in_several_batches() -> None:
    batch = pa.record_batch({"payload": ["x" * 1000]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_module, "_BYTES", 10_000)
        parts = list(write(batch, found([95], 0), Output.PAIRS, pa.array))
    assert [part.num_rows for part in parts] == [9] * 10 + [5]
    assert [sub for part in parts for sub in part.column("subscription").to_pylist()] == list(range(95))


def test_names_of_snapshots_are_kept(tmp_path: Any) -> None:
    from weft.spark.shipped_index import Shipped, written

    place = written(Boxes(pa.array(["a", "b"]), boxes_of([parse("x > 1"), parse("x > 2")]).columns).matcher(None))
    matcher = Shipped(str(place)).open()
    assert matcher is Shipped(str(place)).open()
    assert isinstance(matcher, Matcher)
    assert matcher.ids(matcher.match(pa.record_batch({"x": [2]})).ids).to_pylist() == ["a"]
