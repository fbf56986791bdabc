"""One door for events: a value of any kind means the same in a mapping, an `Event`, a list and a table of any library,
whether the filter stands in the tail or in a segment of an index, and in every index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft import Attribute, Event, Index, Schema, TreeIndex, Type, from_cloudevent, matches, to_cloudevent
from weft.broker.admission import Admission, read_head
from weft.client.events import outgoing
from weft.errors import EventError
from weft.index import CountingIndex, ScanIndex
from weft.protocol.messages import Publish

pl = pytest.importorskip("polars")

FILTERS = (
    "x > 0",
    "x < 1e19",
    "x >= 0.5",
    "x = -9223372036854775808",
    "x > 9007199254740992",
    "x BETWEEN 1 AND 5",
    "x != 3",
    "x IN (1, 2.5, 'a')",
    "x IS NULL",
    "x IS NOT NULL",
    "x",
    "NOT x",
    "x = 'a'",
    "x > 'a'",
    "x LIKE 'a%'",
    "x LIKE '%b'",
    "x LIKE '%a%'",
    "x = TIMESTAMP '2020-05-05'",
    "x > TIMESTAMP '2020-01-01T00:00:00.000001Z'",
    "x.a = 1",
    "x.a IS NULL AND x.b.c = 'a'",
    "x.a.c IS NOT NULL OR x.b > 0",  # tables are read by the columns that filters name: all of them here
    "x < y",
    "x HAS 'a'",
    "NOT x HAS 'a'",
    "x HAS ANY (1, 2.5, 'ab')",
    "x HAS ALL ('a', 'b') OR x HAS TIMESTAMP '2020-05-05'",
    "(x HAS 9007199254740993) IS NULL",
    "(x HAS TRUE) IS NOT TRUE AND x IS NULL",
    f"x HAS '{'a' * 300}' OR x.a HAS '00000000-0000-0000-0000-000000000005'",
    "x.b HAS 1 AND x.a IS NULL",
    "x HAS LIKE 'a%' OR x.a HAS BETWEEN 1 AND 3",
    "x HAS (> 1 AND < 3) OR x HAS > TIMESTAMP '2019-05-05'",
    "x HAS ((IN ('a', 1)) IS NOT TRUE)",
    "(x HAS IS NOT NULL) IS NOT TRUE",
    "time > TIMESTAMP '2020-01-01'",
    "time IS NULL",
    "id = 'a'",
    "id IS NULL",
)


class Text(str):
    __slots__ = ()


ZONE = timezone(timedelta(hours=5, minutes=30))
MOMENT = datetime(2020, 5, 5, tzinfo=UTC)

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 3, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**6]),
    st.sampled_from([0.0, -0.0, 0.5, 2.5, 3.0, -(2.0**63), 2.0**63, 1e19, 1e308, math.inf, -math.inf, math.nan]),
    st.sampled_from(["", "a", "ab", "b", "é", "2020-05-05", "2020-05-05T00:00:00Z", "2020-01-01 00:00:00.0000019"]),
    st.sampled_from([MOMENT, datetime(2020, 5, 5), datetime(2020, 5, 5, 5, 30, tzinfo=ZONE), datetime(1, 1, 1)]),
)
odd = st.one_of(
    st.sampled_from([Decimal("2.5"), Decimal("0.1"), Decimal(3), Decimal("NaN"), Decimal("Infinity"), Decimal(10**30)]),
    st.sampled_from([Fraction(1, 3), Fraction(5, 2), Fraction(10**400)]),
    st.sampled_from([date(2020, 5, 5), date(1, 1, 1), date(9999, 12, 31)]),
    st.sampled_from([np.int8(3), np.int64(2**63 - 1), np.uint64(5), np.uint64(2**63), np.bool_(True), np.str_("ab")]),
    st.sampled_from([np.float16(0.5), np.float32(0.1), np.float64(2.5), np.float32("nan"), np.longdouble(2.5)]),
    st.sampled_from(
        [np.datetime64("2020-05-05"), np.datetime64("2020-05-05T00:00:00.000000999"), np.datetime64("NaT", "us")]
    ),
    st.sampled_from([pd.NA, pd.NaT, pd.Timestamp("2020-05-05"), pd.Timestamp(1, tz="UTC"), pd.Timestamp(-1)]),
    st.sampled_from([pa.scalar(3), pa.scalar("ab"), pa.scalar(None, pa.int8()), pa.scalar(MOMENT)]),
    st.sampled_from([Text("ab"), np.array(2.5), UUID(int=5)]),
)
lists = st.one_of(
    st.lists(plain, max_size=3),
    st.lists(st.sampled_from(["a", "ab", "é", None]), max_size=3),
    st.lists(st.sampled_from([1, 2, 3.0, 0.5, math.nan, None, 2**53 + 1]), max_size=3),
    st.lists(st.one_of(plain, odd), max_size=3).map(tuple),
    st.sampled_from([{1}, {"a", "b"}, frozenset({2.5}), np.array([1.0, 2.5]), np.array(["a", "z"]), np.array([[1.0]])]),
    st.sampled_from([[{"a": 1}], [{"a": 1}, None], [[1]], [None], [[]], [(1, 2)], ["a", {"b": 1}], [1, ["a"]]]),
    st.sampled_from([pa.array(["a"]), pd.Series([1.0, None]), pd.array([1, None], "Int64"), pl.Series(["a", None])]),
    st.sampled_from([pa.scalar(["a", None]), pa.scalar([1, 3]), pa.scalar(None, pa.list_(pa.int8()))]),
    st.sampled_from([[MOMENT, None], [date(2020, 5, 5)], [Decimal("2.5")], [True], ["a" * 300], [UUID(int=5)]]),
)
wrong = st.sampled_from(
    [
        [b"a"],
        [2**63],
        ["\ud800"],
        b"a",
        bytearray(b"a"),
        1j,
        2**63,
        -(2**63) - 1,
        10**30,
        "\ud800",
        time(5),
        timedelta(1),
        np.timedelta64(1, "s"),
        np.datetime64("12000-01-01"),
        datetime(1, 1, 1, tzinfo=ZONE),
        object,
    ]
)
leaf = st.one_of(plain, plain, odd, wrong, lists)
nested = st.dictionaries(
    st.sampled_from(["a", "b"]), leaf | st.dictionaries(st.just("c"), leaf, max_size=1), max_size=2
)
values = leaf | nested | nested.map(MappingProxyType)
names = st.sampled_from(["x", "x", "x", "time", "id"])
SCHEMAS = {"none": None, "int": Schema.of(x="int"), "float": Schema.of(x="float"), "string": Schema.of(x="string")}


def build(make, schema):
    index = make(schema)
    for sub, text in enumerate(FILTERS):
        index.add(sub, text)
    return index


INDEXES = {
    kind: {
        "tail": build(TreeIndex, schema),
        "segment": build(lambda schema: TreeIndex(schema, tail=0), schema),
        "bulk": Index(enumerate(FILTERS), schema=schema),
        "counting": build(CountingIndex, schema),
        "scan": build(ScanIndex, schema),
    }
    for kind, schema in SCHEMAS.items()
}


def expected(mapping, schema):
    """The filters that match, or None for what is not an event."""
    try:
        event = Event.of(mapping)
    except EventError:
        return None
    seen = event if schema is None else schema.conform(event)
    return [sub for sub, text in enumerate(FILTERS) if matches(text, seen)]


def ids_of(found):
    return sorted(int(each) for each in found)


def held(given):
    """The value itself, if it is not a Decimal at which Polars panics."""
    if isinstance(given, Decimal) and not given.is_finite():
        raise ValueError(given)
    for part in given.values() if isinstance(given, dict) else ():
        held(part)
    return given


def batches(name, given):
    """The value in every kind of table that takes it; a library may refuse it when the table is made."""
    yield "list", [{name: given}]
    yield "generator", ({name: each} for each in [given])
    builders = {
        "arrow": lambda: pa.table({name: pa.array([given], from_pandas=True)}),
        "arrow batch": lambda: pa.record_batch({name: pa.array([None, given], from_pandas=True)}).slice(1),
        "dictionary": lambda: pa.table({name: pa.array([given], from_pandas=True).dictionary_encode()}),
        "pandas": lambda: pd.DataFrame({name: pd.Series([given], dtype=object)}),
        "pandas, its own type": lambda: pd.DataFrame([{name: given}]),
        "pandas, of two kinds": lambda: pd.DataFrame({name: pd.Series([given, "z"], dtype=object)}).iloc[:1],
        "polars": lambda: pl.DataFrame({name: [held(given)]}),
        "polars objects": lambda: pl.DataFrame({name: pl.Series([given], dtype=pl.Object)}),
    }
    for kind, make in builders.items():
        try:
            made = make()
            if kind == "polars":
                made.to_dicts()
        except BaseException as error:  # whatever a library has against a value; Polars panics at some
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            continue
        yield kind, made


def meant(name, given, kind, batch):
    """The mapping that a table stands for; a library may have made another value of the one given."""
    if kind == "pandas, its own type":
        return {name: batch[name].iloc[0]}
    if kind == "polars":
        return batch.to_dicts()[0]
    if kind in ("arrow", "arrow batch", "dictionary") and isinstance(given, list | tuple):
        with suppress(OverflowError):  # a timestamp that Python does not have
            return {name: batch.column(0)[0].as_py()}  # the number after a timestamp is one, too
    return {name: given}


@thorough(50)
@given(names, values)
def test_a_value_means_the_same_at_every_door(name, given):
    mapping = {name: given}
    for kind, schema in SCHEMAS.items():
        wanted = expected(mapping, schema)
        for who, index in INDEXES[kind].items():
            if wanted is None:
                with pytest.raises(EventError, match=r"attribute|name") as caught:
                    index.match(mapping)
                assert caught.value.attribute is not None
            else:
                assert ids_of(index.match(mapping)) == wanted, who
                assert ids_of(index.match(Event.of(mapping))) == wanted, who
                assert ids_of(index.match(MappingProxyType(mapping))) == wanted, who
    wanted = expected(mapping, None)
    for sub, text in enumerate(FILTERS):
        if wanted is None:
            with pytest.raises(EventError):
                matches(text, mapping)
        else:
            assert matches(text, mapping) == (sub in wanted)
    for index in (INDEXES["none"]["tail"], INDEXES["none"]["bulk"]):
        if wanted is None:
            with pytest.raises(EventError):
                index.explain(mapping, 0)
        else:
            assert [sub for sub in range(len(FILTERS)) if index.explain(mapping, sub).truth is True] == wanted


@thorough(50)
@given(names, values)
def test_a_table_means_what_its_rows_mean(name, given):
    name = "x" if isinstance(given, Mapping) else name
    for kind, schema in SCHEMAS.items():
        for which, batch in batches(name, given):
            wanted = expected(meant(name, given, which, batch), schema)
            for who, index in INDEXES[kind].items():
                again = [{name: given}] if which == "generator" else batch
                found = index.match_batch(again)
                assert ids_of(found[0]) == (wanted or []), (which, who)
                assert (0 in found.errors) == (wanted is None), (which, who)
                if wanted is None:
                    assert found.errors[0].attribute is not None
                    assert found.errors[0].position == 0


@thorough(25)
@given(st.lists(st.dictionaries(st.sampled_from(["x", "y", "time", "id"]), values, max_size=3), max_size=5))
def test_bad_events_of_a_batch_are_set_aside_and_the_others_are_matched(events):
    for kind, schema in SCHEMAS.items():
        wanted = [expected(event, schema) for event in events]
        for who, index in INDEXES[kind].items():
            found = index.match_batch(events)
            assert [ids_of(ids) for ids in found] == [ids or [] for ids in wanted], who
            assert sorted(found.errors) == [at for at, ids in enumerate(wanted) if ids is None], who
            if isinstance(index, Index):
                continue
            if None in wanted:
                with pytest.raises(EventError, match=f"event {wanted.index(None)}: "):
                    index.count_batch(events)
            else:
                assert index.count_batch(events).tolist() == [len(ids) for ids in wanted]


@thorough(50)
@given(names, values)
def test_an_event_means_the_same_on_the_wire_and_in_the_log(name, given):
    wanted = expected({name: given}, None)
    if wanted is None:
        with pytest.raises(EventError):
            outgoing({name: given})
        return
    sent = outgoing({name: given})
    attributes, head, _ = Admission().admit(Publish(1, sent.attributes), 0)
    relayed, again, _ = Admission().relayed(head)
    assert (attributes, head) == (relayed, again)
    for seen in (attributes, relayed, read_head(head).attributes):
        assert [sub for sub, text in enumerate(FILTERS) if matches(text, seen)] == wanted
        assert ids_of(INDEXES["none"]["segment"].match(seen)) == wanted


json_values = st.none() | st.booleans() | st.sampled_from([0, 1, 3, 2.5, 2**53 + 1, "", "a", "ab", "2020-05-05"])


@thorough(50)
@given(json_values | st.lists(json_values | st.sampled_from([{"a": 1}, ["a"]]), max_size=3))
def test_a_cloudevent_means_what_its_data_mean(given):
    for kind in ("int", "float", "string"):
        schema = Schema.of(Attribute("x", Type(kind), data="in.x"))
        message = {"specversion": "1.0", "id": "a", "source": "/s", "type": "t", "data": {"in": {"x": given}}}
        event = from_cloudevent(message, schema)
        assert to_cloudevent(event, schema) == message
        wanted = expected({"x": given, "id": "a", "source": "/s", "type": "t"}, SCHEMAS[kind])
        assert [sub for sub, text in enumerate(FILTERS) if matches(text, event)] == wanted


def test_values_are_read_as_the_documentation_says():
    index = INDEXES["int"]["segment"]
    assert FILTERS.index("x = -9223372036854775808") in index.match_batch(pa.table({"x": [-(2.0**63)]}))[0]
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array(["a"], pa.string()))
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    for column in (nothing, empty):
        for kind in ("none", "string"):
            found = INDEXES[kind]["segment"].match_batch(pa.table({"x": column}))
            assert ids_of(found[0]) == ids_of(found[1]) == expected({}, SCHEMAS[kind])
    times = pa.table({"time": ["2021-01-01T00:00:00Z", "soon", None]})
    found = INDEXES["none"]["tail"].match_batch(times)
    assert FILTERS.index("time > TIMESTAMP '2020-01-01'") in found[0]
    assert list(found.errors) == [1]
    assert str(found.errors[1]).startswith("event 1: attribute 'time' is 'soon', which is not a timestamp")


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("where", ["tail", "segment", "bulk"])
def test_every_filter_can_be_shown(kind, where):
    for sub in range(len(FILTERS)):
        assert str(INDEXES[kind][where].filter(sub))


def test_a_row_of_a_frame_and_a_named_tuple_are_events():
    frame = pd.DataFrame({"x": [3, 7], "id": ["a", "b"]})
    wanted = [expected({"x": 3, "id": "a"}, None), expected({"x": 7, "id": "b"}, None)]
    index = INDEXES["none"]["bulk"]
    assert [ids_of(index.match(row)) for _, row in frame.iterrows()] == wanted
    assert [ids_of(index.match(row)) for row in frame.itertuples(index=False)] == wanted
    assert [ids_of(index.match(row)) for row in pl.from_pandas(frame).iter_rows(named=True)] == wanted
    assert [ids_of(ids) for ids in index.match_batch(pl.from_pandas(frame).lazy())] == wanted


@pytest.mark.parametrize("batch", [{"x": 1}, b"x", 7, None, Event({"x": 1}), np.array([1.0]), pd.Series([1])])
def test_what_is_not_a_batch_is_refused(batch):
    for index in INDEXES["none"].values():
        with pytest.raises(EventError, match="a batch must be a table"):
            index.match_batch(batch)


def test_columns_of_one_name_are_refused():
    twice = pd.DataFrame([[1, 2]], columns=["x", "x"])
    for batch in (twice, pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])):
        with pytest.raises(EventError, match="two columns named 'x'; rename one"):
            INDEXES["none"]["segment"].match_batch(batch)
