"""Events: what `Event.of` keeps, converts, leaves out and refuses."""

import math
import os
import pickle
import subprocess
import sys
from collections import ChainMap
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum, StrEnum
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import EventError
from weft.model.door import WELL_KNOWN, as_value
from weft.model.event import Event, attributes_of
from weft.model.value import Type, type_of

NOON = datetime(2018, 1, 31, 12, tzinfo=UTC)


def kept(value):
    """The value that an event keeps, with its type: True is not 1 here."""
    attributes = Event.of(x=value).attributes
    return (type(attributes["x"]), attributes["x"]) if attributes else None


def test_attributes_come_from_a_mapping_from_names_and_from_both():
    assert Event.of({"a": 1, "odd name": 2}, b=3).attributes == {"a": 1, "odd name": 2, "b": 3}


def test_the_payload_is_not_looked_at():
    payload = object()
    assert Event.of(payload=payload).payload is payload
    assert Event.of({"payload": "an attribute"}).attributes == {"payload": "an attribute"}


def test_nested_mappings_become_dotted_names_in_their_order():
    event = Event.of({"a": {"b": 1, "c": ChainMap({"d": 2}), "e": {}}, "f": 3})
    assert list(event.attributes.items()) == [("a.b", 1), ("a.c.d", 2), ("f", 3)]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (True, True),
        (7, 7),
        (-(2**63), -(2**63)),
        (2**63 - 1, 2**63 - 1),
        (1.5, 1.5),
        (math.inf, math.inf),
        ("Åsgård\0🌍", "Åsgård\0🌍"),
        (NOON, NOON),
        (Decimal("1.5"), 1.5),
        (Decimal("Infinity"), math.inf),
        (date(2018, 1, 31), datetime(2018, 1, 31, tzinfo=UTC)),
        (datetime(2018, 1, 31, 12), NOON),
        (datetime(2018, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))), NOON),
        (datetime(2018, 1, 31, 13, tzinfo=ZoneInfo("Europe/Rome")), NOON),
        (StrEnum("Status", {"OPEN": "open"}).OPEN, "open"),
        (IntEnum("Level", {"HIGH": 3}).HIGH, 3),
        (np.int8(3), 3),
        (np.uint64(3), 3),
        (np.float32(1.5), 1.5),
        (np.float64(1.5), 1.5),
        (np.longdouble(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("text"), "text"),
        (np.array(3), 3),
        (np.datetime64("2018-01-31T12"), NOON),
        (np.datetime64("2018-01-31"), datetime(2018, 1, 31, tzinfo=UTC)),
        (np.datetime64(-1, "ns"), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_a_value_becomes_exactly_one_of_the_five_types(given, value):
    assert kept(given) == (type(value), value)


def test_an_instant_is_kept_in_utc_itself():
    assert Event.of(x=datetime(2018, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))))["x"].tzinfo is UTC


def test_a_zone_that_knows_no_offset_is_as_naive_as_none():
    class Nowhere(tzinfo):
        def utcoffset(self, _):
            return None

    assert kept(datetime(2018, 1, 31, 12, tzinfo=Nowhere())) == (datetime, NOON)


@pytest.mark.parametrize(
    "null", [None, math.nan, Decimal("NaN"), Decimal("sNaN"), np.float32("nan"), np.datetime64("NaT", "us")]
)
def test_null_is_left_out(null):
    assert kept(null) is None


def test_negative_zero_is_zero():
    for zero in (-0.0, Decimal("-0.0"), np.float64(-0.0)):
        assert math.copysign(1, Event.of(x=zero)["x"]) == 1


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"x": 2**63}, "attribute 'x' is an integer beyond 64 bits"),
        ({"x": -(2**63) - 1}, "beyond 64 bits"),
        ({"x": 10**5000}, "beyond 64 bits"),
        ({"x": np.uint64(2**63)}, "beyond 64 bits"),
        ({"x": [b"1"]}, "attribute 'x' is of type bytes, which filters cannot test; put it in the payload"),
        ({"x": b"1"}, "type bytes"),
        ({"x": np.bytes_(b"1")}, "type bytes_"),
        ({"x": [1] * 10_001}, "attribute 'x' is a list of more than 10,000 values; use the payload"),
        ({"id": ["a"]}, "attribute 'id' must be a string, not"),
        ({"x": np.timedelta64(5, "ns")}, "type timedelta64"),
        ({"x": np.complex64(1)}, "type complex64"),
        ({"x": 1j}, "type complex"),
        ({"x": timedelta(1)}, "type timedelta"),
        ({"x": "\ud800"}, "attribute 'x' is not valid Unicode text"),
        ({"\ud800": 1}, "name '\\\\ud800' is not valid Unicode text"),
        ({"": 1}, "name must be a string that is not empty, not ''"),
        ({"a": {"": 1}}, "name must be a string that is not empty, not ''"),
        ({3: 1}, "not empty, not 3"),
        ({10**5000: 1}, "not empty, not a huge int"),
        ({"a": {None: 1}}, "not empty, not None"),
        ({"a.b": 1, "a": {"b": 1}}, "attribute 'a.b' is given twice"),
        ({"a": {"b": None}, "a.b": 1}, "attribute 'a.b' is given twice"),
        (
            {"x": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
            "'x' is outside the years 1 to 9999",
        ),
        ({"x": np.datetime64("12000-01-01")}, "outside the years 1 to 9999"),
        ({"x": np.datetime64(10**17, "s")}, "outside the years 1 to 9999"),  # numpy itself would wrap around
        ({"id": 5}, "attribute 'id' must be a string, not 5"),
        ({"source": True}, "attribute 'source' must be a string, not True"),
        ({"type": 1.5}, "attribute 'type' must be a string, not 1.5"),
        ({"time": 1517363399650}, "attribute 'time' must be a timestamp, not 1517363399650"),
        ({"time": "yesterday"}, "attribute 'time' is 'yesterday', which is not a timestamp: write it as"),
        ({"time": "2018-02-30"}, "not a timestamp"),
        ([("x", 1)], "attributes must be a mapping"),
    ],
)
def test_what_can_be_no_attribute_is_refused(attributes, said):
    with pytest.raises(EventError, match=said):
        Event.of(attributes)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [([{"x": 1}], "match_batch"), (pa.table({"x": [1]}), "match_batch"), ('{"x": 1}', "json.loads"), (5, "not 5$")],
)
def test_what_is_no_event_gets_a_hint(wrong, hint):
    with pytest.raises(EventError, match=f"(?s)an event must be.*{hint}"):
        attributes_of(wrong)


def test_an_attribute_given_in_the_mapping_and_by_name_is_refused():
    with pytest.raises(EventError, match="'x' is given twice"):
        Event.of({"x": 1}, x=None)


def test_an_error_shows_no_more_of_a_value_than_fits_a_line():
    with pytest.raises(EventError) as caught:
        Event.of(time="x" * 100_000)
    assert len(str(caught.value)) < 200


def nested(depth):
    mapping = {"x": 1}
    for _ in range(depth - 1):
        mapping = {"a": mapping}
    return mapping


def test_nesting_has_a_limit_and_never_exhausts_the_stack():
    assert Event.of(nested(100)).attributes == {"a." * 99 + "x": 1}
    with pytest.raises(EventError, match="nested deeper than 100"):
        Event.of(nested(101))
    endless = {}
    endless["again"] = endless
    with pytest.raises(EventError, match="nested deeper than 100"):
        Event.of(endless)


def test_time_may_be_iso_text_and_no_other_attribute_is_parsed():
    assert Event.of(time="2018-01-31T14:00:00+02:00", at="2018-01-31").attributes == {
        "time": NOON,
        "at": "2018-01-31",
    }


def test_null_is_allowed_for_the_attributes_with_fixed_types():
    assert Event.of(dict.fromkeys(WELL_KNOWN)).attributes == {}


def test_an_event_reads_like_a_mapping_in_which_absent_is_none():
    event = Event.of(x=1)
    assert (event["x"], event["y"], event.get("x"), event.get("y"), event.get("y", 0)) == (
        1,
        None,
        1,
        None,
        0,
    )
    assert ("x" in event, "y" in event, list(event)) == (True, False, ["x"])


def test_the_identity_is_source_and_id():
    assert Event.of(id="1", source="/usgs").identity == ("/usgs", "1")
    assert Event.of().identity == (None, None)


def test_events_are_equal_by_attributes_and_payload():
    assert Event.of(x=1, payload="p") == Event({"x": 1}, "p")
    assert Event.of(x=1) != Event.of(x=2)
    assert Event.of(x=1) != Event.of(x=1, payload="p")


def test_an_event_is_frozen_and_can_be_pickled():
    event = Event.of(x=1, time=NOON, payload=b"p")
    with pytest.raises(AttributeError):
        event.payload = None
    assert pickle.loads(pickle.dumps(event)) == event
    assert msgspec.structs.replace(event, payload=None) == Event({"x": 1, "time": NOON})


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters()),
    st.datetimes(timezones=st.just(UTC) | st.none()),
    st.decimals(),
    st.dates(),
    st.binary(max_size=2),
)
trees = st.recursive(values, lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3), max_leaves=6)


@given(st.dictionaries(st.text(max_size=2) | st.sampled_from([*WELL_KNOWN]), trees, max_size=4))
def test_an_event_made_at_the_door_keeps_the_law_or_is_refused(mapping):
    try:
        event = Event.of(mapping)
    except EventError:
        return
    for name, value in event.attributes.items():
        assert name
        assert type(value) in (bool, int, float, str, datetime)
        assert type_of(value) is WELL_KNOWN.get(name, type_of(value))
        assert not isinstance(value, datetime) or value.tzinfo is UTC
    assert Event.of(event.attributes) == event


def test_a_single_value_is_checked_under_the_name_it_will_have():
    assert as_value("x", "2018-01-31") == "2018-01-31"
    assert as_value("time", "2018-01-31") == datetime(2018, 1, 31, tzinfo=UTC)
    assert WELL_KNOWN["time"] is Type.TIMESTAMP


def test_events_and_schemas_are_imported_without_numpy_and_arrow():
    check = (
        "import sys, weft.model.event, weft.model.schema, weft.model.cloudevents, weft.model.batch;"
        "assert not {'numpy', 'pyarrow'} & set(sys.modules)"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", check], check=True, env=paths)
