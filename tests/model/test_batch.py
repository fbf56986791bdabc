"""Arrow columns: what becomes of every type, and the round trip."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import Index
from weft.errors import EventError
from weft.model.batch import batch_from_events, events_from_batch
from weft.model.batch_size import oversized
from weft.model.column import unreadable
from weft.model.event import Event
from weft.model.schema import Attribute, Schema
from weft.model.value import Type

NOON = datetime(2018, 1, 31, 12, tzinfo=UTC)


def read(array):
    """The values that a column gives to its events, None where absent."""
    return [event["x"] for event in events_from_batch(pa.table({"x": array}))]


def exactly(values):
    return [(type(value), value) for value in values]


# --- the law ----------------------------------------------------------------------------------------

columns = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False),
    "a.b": st.text(max_size=2),
    "flag": st.booleans(),
    "at": st.datetimes(timezones=st.just(UTC)),
    "id": st.text(max_size=2),
    "time": st.datetimes(timezones=st.just(UTC)),
}
events = st.fixed_dictionaries({}, optional=columns).map(Event.of)
SCHEMA = Schema.of(at="timestamp", n="int", x="float", flag="bool", unseen="string")


@given(st.lists(events, max_size=5), st.none() | st.just(SCHEMA))
def test_events_survive_the_way_through_a_batch(events, schema):
    batch = batch_from_events(events, schema)
    assert batch.num_rows == len(events)
    assert events_from_batch(batch) == events
    assert events_from_batch(pa.Table.from_batches([batch, batch])) == events * 2


mixed = st.one_of(*columns.values())


@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys("nx", mixed)).map(Event.of), max_size=4))
def test_with_a_schema_a_batch_holds_the_events_as_they_conform(events):
    schema = Schema.of(n="int", x="float")
    conformed = [schema.conform(event) for event in events]
    try:
        batch = batch_from_events(events, schema)
    except EventError:
        assert any(type(event["x"]) is int and float(event["x"]) != event["x"] for event in events)
    else:
        assert events_from_batch(batch) == conformed


# --- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_integers_of_every_width_are_ints(kind):
    assert exactly(read(pa.array([1, None, 100], kind))) == exactly([1, None, 100])


def test_integers_keep_all_their_bits_beside_a_null():
    assert read(pa.array([2**63 - 1, None, -(2**63)])) == [2**63 - 1, None, -(2**63)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_every_width_are_floats_and_nan_is_absent(dtype):
    column = pa.array(np.array([1.5, math.nan, math.inf], dtype))
    assert exactly(read(pa.concat_arrays([column, pa.nulls(1, column.type)]))) == exactly([1.5, None, math.inf, None])


def test_negative_zero_is_zero():
    assert math.copysign(1, read(pa.array([-0.0]))[0]) == 1


@given(st.lists(st.decimals(-(10**9), 10**9, places=5), min_size=1, max_size=5))
def test_decimals_are_the_nearest_floats(decimals):
    expected = exactly([float(d) + 0.0 for d in decimals])
    assert exactly(read(pa.array(decimals, pa.decimal128(20, 5)))) == expected
    assert exactly(read(pa.array(decimals, pa.decimal256(40, 5)))) == expected


def test_decimals_may_be_null_and_have_a_negative_scale():
    assert read(pa.array([Decimal("12300"), None], pa.decimal128(5, -2))) == [12300.0, None]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "é"]),
        pa.array(["a", None, "é"], pa.large_string()),
        pa.array(["a", None, "é"], pa.string_view()),
        pa.array(["a", None, "é"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["é", "a"], pa.large_string())),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["é", "a"], pa.string_view())),
        pa.DictionaryArray.from_arrays(pa.array([1, 2, 0], pa.int8()), pa.array(["é", "a", None])),
    ],
)
def test_text_in_every_layout_is_a_string(column):
    assert read(column) == ["a", None, "é"]


def test_a_dictionary_may_hold_any_type_or_nothing_at_all():
    assert read(pa.array([NOON, None, NOON]).dictionary_encode()) == [NOON, None, NOON]
    assert read(pa.array([2, 3, 2]).dictionary_encode()) == [2, 3, 2]
    assert read(pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string()))) == [None]
    assert read(pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.nulls(1))) == [None]


def test_run_end_encoded_columns_are_unrolled():
    assert read(pc.run_end_encode(pa.array([1, 1, None]))) == [1, 1, None]


def test_bools_are_bools():
    assert exactly(read(pa.array([True, None, False]))) == exactly([True, None, False])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata", "+05:30"])
def test_timestamps_of_every_unit_and_zone_are_instants_in_utc(unit, zone):
    seconds = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    column = pa.array([1517400000 * seconds, None, -seconds], pa.int64()).cast(pa.timestamp(unit, zone))
    assert read(column) == [NOON, None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
    assert read(column)[0].tzinfo is UTC


def test_nanoseconds_are_floored_before_1970_too():
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    column = pa.array([-1, 0, 999, 1000, -1000, -1001], pa.timestamp("ns"))
    assert [(moment - epoch) // timedelta(microseconds=1) for moment in read(column)] == [-1, 0, 0, 1, -1, -2]


def test_dates_are_their_midnights():
    days = [date(2018, 1, 31), None, date(1, 1, 1), date(9999, 12, 31)]
    midnights = [d and datetime(d.year, d.month, d.day, tzinfo=UTC) for d in days]
    assert read(pa.array(days, pa.date32())) == midnights
    assert read(pa.array(days, pa.date64())) == midnights


def test_the_first_and_the_last_microsecond_fit():
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    assert read(pa.array(ends, pa.timestamp("us", "UTC"))) == ends


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_timestamps_beyond_the_years_are_refused(unit, off):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    edge = -62135596800 * per_second - 1 if off < 0 else 253402300800 * per_second
    with pytest.raises(EventError, match="attribute 'x' is outside the years 1 to 9999"):
        read(pa.array([0, edge]).cast(pa.timestamp(unit)))
    inside = pa.array([edge - off]).cast(pa.timestamp(unit))
    assert read(inside)[0].year == (1 if off < 0 else 9999)


def test_dates_beyond_the_years_are_refused():
    with pytest.raises(EventError, match="attribute 'x' is outside"):
        read(pa.array([2**31 - 1], pa.int32()).cast(pa.date32()))


def test_structs_are_flattened_and_a_null_struct_has_no_attributes():
    rows = pa.table({"a": pa.array([{"b": {"c": 1}, "d": "x"}, None, {"b": None, "d": "y"}]), "e": [1, 2, 3]})
    assert [event.attributes for event in events_from_batch(rows)] == [
        {"a.b.c": 1, "a.d": "x", "e": 1},
        {"e": 2},
        {"a.d": "y", "e": 3},
    ]


def test_attributes_come_in_the_order_of_the_columns_with_gaps_or_without():
    rows = pa.table({"a": [1, None], "b": ["x", "y"], "c": [None, 1.5]})
    assert [list(event) for event in events_from_batch(rows)] == [["a", "b"], ["b", "c"]]


def test_a_slice_is_read_from_where_it_begins():
    batch = pa.RecordBatch.from_pydict(
        {"n": [1, None, 3, 4], "s": ["a", "b", None, "d"], "f": [True, None, False, True]}
    )
    assert events_from_batch(batch.slice(1, 2)) == [Event({"s": "b"}), Event({"n": 3, "f": False})]


def test_null_columns_are_absent_and_rows_still_count():
    assert events_from_batch(pa.table({"x": pa.nulls(2)})) == [Event({}), Event({})]
    assert events_from_batch(pa.table({})) == []


def test_a_column_may_be_the_payload_whatever_its_type():
    rows = pa.table({"x": [1, 2], "raw": [b"p", None], "list": [[1], [2]]})
    assert events_from_batch(rows.drop("list"), payload="raw") == [Event({"x": 1}, b"p"), Event({"x": 2})]
    assert events_from_batch(rows.drop("raw"), payload="list")[1] == Event({"x": 2}, [2])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"raw"]),
        pa.array([b"raw"], pa.large_binary()),
        pa.array([b"raw"], pa.binary(3)),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.array([timedelta(1)]),
        pa.array([5], pa.time32("s")),
        pa.array([b"raw"]).dictionary_encode(),
        pa.array([None, [b"raw"]]),
    ],
)
def test_a_type_that_no_filter_sees_is_refused_by_name(column):
    with pytest.raises(EventError, match=r"attribute 'x' is of type .*, which filters cannot test") as caught:
        read(column)
    assert (caught.value.attribute, caught.value.position) == ("x", len(column) - 1)
    assert read(pa.nulls(1, column.type)) == [None]
    with pytest.raises(EventError, match=r"attribute 'a\.b'"):
        events_from_batch(pa.table({"a": pa.StructArray.from_arrays([column], ["b"])}))


def test_integers_beyond_64_bits_are_refused_by_name():
    with pytest.raises(EventError, match="attribute 'x' is an integer beyond 64 bits"):
        read(pa.array([1, 2**63], pa.uint64()))


def test_text_that_is_no_utf8_is_refused_by_name():
    offsets = pa.py_buffer(np.array([0, 1], np.int32))
    with pytest.raises(EventError, match="attribute 'x' is not valid Unicode text"):
        read(pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")]))


def test_the_buffers_of_text_may_have_any_length():
    offsets = pa.py_buffer(np.array([0, 1, 3], np.int32).tobytes() + b"rest")[:13]
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc and more")])
    assert read(column) == ["a", "bc"]
    assert read(column.slice(1)) == ["bc"]


@pytest.mark.parametrize("ends", [[0, 9, 3], [0, -1, 3], [1, 0, 3]])
def test_text_that_lies_outside_its_buffer_is_never_taken_for_ascii(ends):
    offsets = pa.py_buffer(np.array(ends, np.int32))
    assert unreadable(pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("inner", [-1, 9, 2**31 - 1, -(2**31)])
def test_text_that_lies_outside_its_buffer_is_refused_by_name(kind, inner):
    """Arrow checks the first and the last offset only; it would read whatever lies there, or crash."""
    offsets = pa.py_buffer(np.array([0, inner, 3], np.int32 if kind == pa.string() else np.int64))
    with pytest.raises(EventError, match="attribute 'x' is a column with offsets outside its buffers"):
        read(pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(b"abc")]))


@pytest.mark.parametrize(("places", "words"), [([0, 2], ["a", "b"]), ([-1, 0], ["a", "b"]), ([0], [])])
def test_places_outside_a_dictionary_are_refused_by_name(places, words):
    column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), pa.array(words, pa.string()), safe=False)
    with pytest.raises(EventError, match="attribute 'x' is a column with offsets outside its buffers"):
        read(column)


def test_text_in_views_that_is_no_utf8_is_refused_by_name():
    views = pa.array([b"short", b"a text of more than twelve bytes", b"\xff", None], pa.binary_view())
    column = pa.Array.from_buffers(pa.string_view(), 4, views.buffers())
    with pytest.raises(EventError, match="attribute 'x' is not valid Unicode text") as caught:
        read(column)
    assert caught.value.position == 2
    assert read(column.slice(0, 2)) == ["short", "a text of more than twelve bytes"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.table({"id": [1]}), "attribute 'id' must be a string, not a int"),
        (pa.table({"time": [1517363399650]}), "'time' must be a timestamp, not a int"),
        (pa.table({"time": ["2018-01-32"]}), "event 0: attribute 'time' is '2018-01-32', which is not a timestamp"),
        (pa.table({"source": [True]}), "'source' must be a string"),
        (pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), "two columns named 'x'"),
        (pa.table([pa.array([1]), pa.array([{"b": 2}])], names=["a.b", "a"]), "two columns named 'a.b'"),
        (pa.table({"": [1]}), "empty name"),
        (pa.table({"a": [{"": 1}]}), "empty name"),
        (pa.table({"": [{"a": 1}]}), "empty name"),
        ({"x": [1]}, "must be an Arrow RecordBatch or Table"),
    ],
)
def test_columns_that_cannot_be_attributes_are_refused(rows, said):
    with pytest.raises(EventError, match=said):
        events_from_batch(rows)


def test_null_is_allowed_for_the_attributes_with_fixed_types():
    assert events_from_batch(pa.table({"time": pa.nulls(1), "id": pa.array([None], pa.string())})) == [Event({})]


def test_a_payload_column_must_be_there_once():
    with pytest.raises(EventError, match=r"there are 0 columns named 'playload' .*: did you mean 'payload'\?"):
        events_from_batch(pa.table({"payload": [b"p"]}), payload="playload")
    with pytest.raises(EventError, match="there are 2 columns named 'p' for the payload; rename one"):
        events_from_batch(pa.table([pa.array([1]), pa.array([2])], names=["p", "p"]), payload="p")


def test_structs_nested_without_end_are_refused():
    column = pa.array([1])
    for _ in range(100):
        column = pa.StructArray.from_arrays([column], ["a"])
    assert events_from_batch(pa.table({"x": column})) == [Event({"x" + ".a" * 100: 1})]
    with pytest.raises(EventError, match=r"column 'x\.a.*nested deeper than 100"):
        events_from_batch(pa.table({"x": pa.StructArray.from_arrays([column], ["a"])}))


# --- writing ----------------------------------------------------------------------------------------


def test_columns_have_the_five_types():
    batch = batch_from_events([Event.of(n=1, x=1.5, s="a", flag=True, at=NOON)])
    kinds = [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us", "UTC")]
    assert batch.schema == pa.schema(list(zip(["n", "x", "s", "flag", "at"], kinds, strict=True)))


def test_columns_come_in_the_order_of_the_schema_and_then_as_they_appear():
    events = [Event.of(z=1, b="x"), Event.of(y=1.5, a=2)]
    assert batch_from_events(events).schema.names == ["z", "b", "y", "a"]
    batch = batch_from_events(events, Schema.of(a="float", unseen="timestamp", b="string"))
    assert batch.schema.names == ["a", "unseen", "b", "z", "y"]
    assert batch.schema.field("a").type == pa.float64()
    assert batch.schema.field("unseen").type == pa.timestamp("us", "UTC")


def test_events_may_come_one_at_a_time():
    batch = batch_from_events((Event.of(n=n, payload=str(n)) for n in range(2)), payload="p")
    assert batch.to_pydict() == {"n": [0, 1], "p": ["0", "1"]}


def test_no_events_make_the_columns_of_the_schema():
    assert batch_from_events([]).num_columns == 0
    assert batch_from_events([], Schema.of(x="int")).schema == pa.schema([("x", pa.int64())])


def test_events_without_attributes_still_count():
    assert batch_from_events([Event({}), Event({})]).num_rows == 2


def test_ints_among_floats_become_floats_where_that_is_exact():
    assert batch_from_events([Event.of(x=2**53), Event.of(x=1.5)]).to_pydict() == {"x": [2.0**53, 1.5]}
    assert batch_from_events([Event.of(x=2**62)], Schema.of(x="float")).to_pydict() == {"x": [2.0**62]}
    for huge in (2**53 + 1, 10**400):
        with pytest.raises(EventError, match="attribute 'x' is a float, but no float equals"):
            batch_from_events([Event({"x": huge}), Event({"x": 1.5})])
    with pytest.raises(EventError, match="no float equals 9007199254740993"):
        batch_from_events([Event.of(x=2**53 + 1)], Schema.of(x="float"))


def test_unlike_types_need_a_schema():
    events = [Event.of(x=1), Event.of(x="one"), Event.of(x=True)]
    with pytest.raises(EventError, match=r"'x' has values of several types \(bool, int, string\)"):
        batch_from_events(events)
    assert batch_from_events(events, Schema.of(x="int")).to_pydict() == {"x": [1, None, None]}


def test_null_in_an_unchecked_event_is_null_in_the_batch():
    nan = Event({"x": math.nan, "s": math.nan, "flag": None})
    batch = batch_from_events([nan, Event({"x": 1, "s": "a", "flag": None})])
    assert batch.to_pydict() == {"x": [None, 1], "s": [None, "a"], "flag": [None, None]}
    assert batch_from_events([nan], Schema.of(s="string")).column("s").to_pylist() == [None]
    assert batch_from_events([nan]).column("x").to_pylist() == [None]


def test_subclasses_are_what_they_extend_and_naive_instants_are_in_utc():
    class Word(str):
        __slots__ = ()

    batch = batch_from_events([Event({"s": Word("a"), "x": np.float64(1.5), "at": NOON.replace(tzinfo=None)})])
    assert batch.to_pydict() == {"s": ["a"], "x": [1.5], "at": [NOON]}
    local = NOON.astimezone(timezone(timedelta(hours=2)))
    assert batch_from_events([Event({"at": local})]).to_pydict() == {"at": [NOON]}


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"id": 5}, "attribute 'id' must be a string, but some event has a int"),
        ({"time": "now"}, "attribute 'time' must be a timestamp, but some event has a string"),
        ({"x": (1,)}, "attribute 'x' is of type tuple in some event; make events with Event.of"),
        ({"x": 2**63}, "column 'x' cannot be built"),
        ({"x": "\ud800"}, "column 'x' cannot be built"),
    ],
)
def test_unchecked_events_that_break_the_law_are_refused(attributes, said):
    with pytest.raises(EventError, match=said):
        batch_from_events([Event(attributes)])


def test_payloads_are_left_out_or_become_a_column():
    events = [Event({"x": 1}, b"p"), Event({"x": 2})]
    assert batch_from_events(events).schema.names == ["x"]
    assert events_from_batch(batch_from_events(events, payload="raw"), payload="raw") == events


def test_a_payload_column_that_cannot_be_is_refused():
    with pytest.raises(EventError, match="'x' is already an attribute"):
        batch_from_events([Event({"x": 1})], payload="x")
    with pytest.raises(EventError, match="column 'p' cannot be built"):
        batch_from_events([Event({}, object())], payload="p")


def test_a_declared_attribute_conforms_as_a_single_event_would():
    schema = Schema.of(Attribute("n", Type.INT, 0, 5))
    events = [Event.of(n=3.0), Event.of(n=3.5), Event.of(n=9)]
    assert batch_from_events(events, schema).to_pydict() == {"n": [3, None, 9]}


# -- columns that are stored in other ways --------------------------------------------------------------


def runs_of(values):
    """A run for each value, twice as long, without its first row."""
    ends = pa.array(range(2, 2 * len(values) + 2, 2), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values)[1:]


def stored_otherwise():
    """Columns, and the same as plain columns."""
    long = "a" * 40
    texts, raw = ["a", None, long, "b"], [b"a", None, b"a" * 40, b"b"]
    plain = {
        "string": pa.array(texts),
        "large string": pa.array(texts, pa.large_string()),
        "string view": pa.array(texts, pa.string_view()),
        "int": pa.array([1, None, 2, 3]),
        "float": pa.array([1.5, None, float("nan"), -0.0]),
        "bool": pa.array([True, None, False, True]),
        "timestamp": pa.array([datetime(2020, 1, 1), None, datetime(2021, 1, 1), datetime(1960, 1, 1)]),
        "dictionary": pa.array(texts).dictionary_encode(),
        "dictionary of views": pa.DictionaryArray.from_arrays(
            pa.array([0, None, 1, 2]), pa.array(["a", long, "b"], pa.string_view())
        ),
        "binary": pa.array(raw),
        "binary view": pa.array(raw, pa.binary_view()),
        "list": pa.array([[1], None, [2], []]),
    }
    found = {name: (values, pa.array(values.to_pylist())) for name, values in plain.items()}
    found["string view, a part"] = plain["string view"][1:], pa.array(texts[1:])
    for name, values in plain.items():
        twice = [each for each in values.to_pylist() for _ in range(2)][1:]
        found[f"runs of {name}"] = runs_of(values), pa.array(twice)
    found["runs of runs"] = (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["a", "b"])),
        pa.array(["a", "a", "b", "b"]),
    )
    return found


@pytest.mark.parametrize("kind", stored_otherwise())
@pytest.mark.parametrize("nested", [False, True])
def test_a_column_means_the_same_however_it_is_stored(kind: str, nested: bool) -> None:
    """Runs and views, whole or in a struct; what filters cannot test is refused by name, not by Arrow."""
    stored, plain = stored_otherwise()[kind]
    if nested:
        gone = pa.array([at % 2 == 0 for at in range(len(plain))])
        stored, plain = (pa.StructArray.from_arrays([each], ["x"], mask=gone) for each in (stored, plain))
    rows, same = pa.record_batch({"x": stored}), pa.record_batch({"x": plain})
    texts = ["x = 'a'", "x > 1", "x IS NULL", "x LIKE '%a%'", "x", "x.x = 'a'", "x.x IS NULL"]
    index = Index(dict(enumerate(texts)))
    found = list(index.match_batch(same))
    assert list(index.match_batch(rows)) == found
    assert list(index.match_batch(pa.table(rows))) == found
    assert Schema.infer(rows) == Schema.infer(same)
    try:
        due = [event.attributes for event in events_from_batch(same)]
    except EventError:
        with pytest.raises(EventError, match="which filters cannot test"):
            events_from_batch(rows)
    else:
        assert [event.attributes for event in events_from_batch(rows)] == due


def test_the_limits_of_events_hold_for_columns_that_are_stored_otherwise() -> None:
    texts = ["a" * 700_000, None, "b" * 2_000_000]
    views = pa.array(texts, pa.string_view())
    for stored in (views, runs_of(pa.array(texts)), runs_of(views)):
        rows = pa.record_batch({"x": stored})
        wrong = {at for at, text in enumerate(stored.to_pylist()) if text is not None and len(text) > 1_048_576}
        assert set(oversized(rows)) == wrong


def test_a_map_of_arrow_is_refused_by_name() -> None:
    value = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))[0]
    with pytest.raises(EventError, match="is of type map"):
        Event.of({"x": value})
