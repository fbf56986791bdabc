"""CloudEvents: every valid message comes back as it was; every other is refused with a sentence."""

import base64
import json
import math
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from weft.errors import EventError
from weft.model.cloudevents import CloudData, data_of, from_cloudevent, payload_of, to_cloudevent, to_json
from weft.model.event import Event
from weft.model.schema import Attribute, Schema
from weft.model.value import Type

MESSAGE = {"specversion": "1.0", "id": "1", "source": "/usgs", "type": "quake"}
NATIVE = {"id": "1", "source": "/usgs", "type": "quake"}
NOON = datetime(2018, 1, 31, 12, tzinfo=UTC)
DEPTH = Schema.of(Attribute("depth", Type.FLOAT, data="where.depth"))


def same(one, other):
    """Equal as JSON: True is not 1, and 1 is not 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# --- the law ----------------------------------------------------------------------------------------

filled = st.text(min_size=1, max_size=3)
times = st.builds(
    "{:%Y-%m-%d}{}{:%H:%M:%S}{}{}".format,
    (days := st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30))),
    st.sampled_from("Tt"),
    days,
    st.sampled_from(["", ".0", ".5", ".000001", ".123456", ".999999999"]),
    st.sampled_from(["Z", "z", "+00:00", "-00:00", "+05:30", "-11:00"]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
extensions = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    times,
)
data = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"data": json_values}),
    st.fixed_dictionaries({"data": st.fixed_dictionaries({}, optional={"a": extensions, "b": json_values})}),
    st.fixed_dictionaries({"data_base64": st.binary(max_size=4).map(lambda raw: base64.b64encode(raw).decode())}),
)
messages = st.builds(
    lambda context, more, data: context | more | data,
    st.fixed_dictionaries(
        {"specversion": st.just("1.0"), "id": filled, "source": filled, "type": filled},
        optional={
            "time": st.none() | times,
            "datacontenttype": st.none() | st.just("application/json"),
            "dataschema": st.none() | filled,
            "subject": st.none() | filled,
        },
    ),
    st.dictionaries(st.sampled_from(["x", "y", "0z"]), extensions, max_size=3),
    data,
)
schemas = st.none() | st.lists(
    st.builds(
        Attribute,
        st.sampled_from(["x", "y", "not.there"]),
        st.sampled_from(Type),
        data=st.sampled_from([None, "a", "b", "a.b"]),
    ),
    unique_by=lambda attribute: attribute.name,
).map(Schema)


@given(messages, schemas)
def test_every_valid_message_comes_back_as_it_was(message, schema):
    event = from_cloudevent(message, schema)
    assert same(to_cloudevent(event, schema), message)
    assert same(to_cloudevent(event), message)  # what was promoted is known to come from the data


@given(messages, schemas)
def test_json_text_says_the_same_as_the_dict(message, schema):
    event = from_cloudevent(message, schema)
    text = to_json(event, schema)
    assert same(json.loads(text), message)
    assert from_cloudevent(text, schema) == from_cloudevent(text.decode(), schema) == event


@given(messages, schemas)
def test_a_schema_only_lets_through_what_it_declares(message, schema):
    event = from_cloudevent(message, schema)
    assert (schema or Schema()).conform(event) is event
    assert Event.of(event.attributes).attributes == event.attributes


native_values = {
    Type.BOOL: st.booleans(),
    Type.INT: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    Type.STRING: st.text(max_size=3),
    Type.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
}


@given(st.data())
def test_an_event_made_here_comes_back_through_its_cloudevent(draw):
    paths = {"x": "a.x", "odd name": "a.y", "data": "b"}
    schema = Schema(tuple(Attribute(name, draw.draw(st.sampled_from(Type)), data=p) for name, p in paths.items()))
    given = {name: draw.draw(st.none() | native_values[schema[name].type]) for name in paths}
    event = Event.of(NATIVE | given, time=NOON, flag=True, n=5, payload=draw.draw(st.sampled_from([None, {"c": [1]}])))
    assert from_cloudevent(to_json(event, schema), schema).attributes == event.attributes


@given(st.binary(max_size=20) | st.text(st.characters(), max_size=20))
def test_whatever_is_no_cloudevent_raises_event_error(text):
    with pytest.raises(EventError):
        from_cloudevent(text)


@given(messages, st.data())
def test_a_damaged_message_is_read_or_refused_and_nothing_else(message, draw):
    text = json.dumps(message)
    at = draw.draw(st.integers(0, len(text)))
    damaged = text[:at] + draw.draw(st.text('"{}[]:,0e\\u', max_size=2)) + text[at + draw.draw(st.integers(0, 3)) :]
    try:
        event = from_cloudevent(damaged)
    except EventError:
        return
    assert same(to_cloudevent(event), json.loads(damaged))


# --- reading ----------------------------------------------------------------------------------------


def test_context_attributes_and_extensions_become_attributes():
    event = from_cloudevent(
        MESSAGE | {"time": "2018-01-31T14:00:00+02:00", "subject": "s", "tsunami": True, "sig": 5, "at": "2018-01-31"}
    )
    assert event.attributes == {
        "id": "1",
        "source": "/usgs",
        "type": "quake",
        "time": NOON,
        "subject": "s",
        "tsunami": True,
        "sig": 5,
        "at": "2018-01-31",
    }


def test_data_is_json_bytes_or_nothing():
    assert from_cloudevent(MESSAGE | {"data": {"a": [1]}}).payload == CloudData({"a": [1]})
    assert from_cloudevent(MESSAGE | {"data": None}).payload == CloudData(None)
    assert from_cloudevent(MESSAGE | {"data_base64": "AQI="}).payload == CloudData(b"\1\2")
    assert from_cloudevent(MESSAGE).payload == CloudData(UNSET)


def test_a_message_in_our_own_spelling_leaves_nothing_beside_its_data():
    event = from_cloudevent(MESSAGE | {"time": "2018-01-31T12:00:00Z", "sig": 5, "data": 1})
    assert event.payload == CloudData(1, {}, {})


def test_time_is_floored_to_microseconds_and_its_spelling_kept():
    event = from_cloudevent(MESSAGE | {"time": "2018-01-31T12:00:00.000000999Z"})
    assert event["time"] == NOON
    assert event.payload.spelled == {"time": "2018-01-31T12:00:00.000000999Z"}


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("float", 1.5, 1.5),
        ("float", 10, 10),
        ("float", "10", None),
        ("float", -0.0, 0.0),
        ("int", 3.0, 3),
        ("int", 2**63, None),
        ("string", "deep", "deep"),
        ("string", "\ud800", None),
        ("bool", False, False),
        ("timestamp", "2018-01-31T12:00:00Z", NOON),
        ("timestamp", "noon", None),
        ("timestamp", 1517363399650, None),
        ("float", [1.5, "a", None], [1.5]),
        ("timestamp", ["noon"], None),
        ("float", [{"value": 1.5}], None),
        ("float", {"value": 1.5}, None),
        ("float", None, None),
    ],
)
def test_a_value_in_the_data_is_promoted_as_its_declared_type(kind, data, value):
    schema = Schema.of(Attribute("depth", kind, data="where.depth"))
    event = from_cloudevent(MESSAGE | {"data": {"where": {"depth": data}}}, schema)
    assert (type(event["depth"]), event["depth"]) == (type(value), value)


@pytest.mark.parametrize("data", [None, 5, "text", [], {}, {"where": 5}, {"where": {}}])
def test_data_without_the_path_promotes_nothing(data):
    assert "depth" not in from_cloudevent(MESSAGE | {"data": data}, DEPTH)


def test_the_message_itself_is_heard_before_its_data():
    message = MESSAGE | {"depth": 5, "data": {"where": {"depth": 70}}}
    assert from_cloudevent(message, DEPTH)["depth"] == 5
    assert from_cloudevent(message | {"depth": "deep"}, DEPTH)["depth"] == 70


def test_an_extension_is_a_timestamp_when_the_schema_says_so():
    schema = Schema.of(seen="timestamp", sig="int")
    event = from_cloudevent(MESSAGE | {"seen": "2018-01-31 14:00+02:00", "sig": "many"}, schema)
    assert (event["seen"], "sig" in event) == (NOON, False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"specversion": "0.3"}, "specversion '1.0', not '0.3'"),
        ({"specversion": 1.0}, "specversion '1.0', not 1.0"),
        ({"id": None}, "a CloudEvent must have 'id'; add it"),
        ({"id": ""}, "'id' of a CloudEvent must be text that is not empty"),
        ({"id": 10**5000}, "'id' of a CloudEvent must be text that is not empty, not a huge int"),
        ({"source": 5}, "'source' of a CloudEvent must be text that is not empty, not 5"),
        ({"subject": ""}, "'subject' of a CloudEvent"),
        ({"dataschema": ""}, "'dataschema' of a CloudEvent"),
        ({"datacontenttype": 5}, "'datacontenttype' of a CloudEvent"),
        ({"time": "2018-01-31"}, "RFC 3339"),
        ({"time": "2018-01-31T12:00:00"}, "RFC 3339"),
        ({"time": 5}, "RFC 3339"),
        ({"time": "2018-02-30T12:00:00Z"}, "not a timestamp"),
        ({"time": "0001-01-01T00:00:00+01:00"}, "outside the years"),
        ({"Upper": 1}, "'Upper' cannot name a CloudEvents attribute"),
        ({"under_score": 1}, "'under_score' cannot name"),
        ({"": 1}, "'' cannot name"),
        ({5: 1}, "5 cannot name"),
        ({"x": [1]}, "extension 'x' must be a boolean, an integer or text; put it in the data"),
        ({"x": {}}, "extension 'x'"),
        ({"x": math.inf}, "extension 'x'"),
        ({"x": 2**63}, "beyond 64 bits"),
        ({"x": "\ud800"}, "not valid Unicode"),
        ({"data": 1, "data_base64": "AQI="}, "'data' or 'data_base64', not both"),
        ({"data": b"raw"}, "pass bytes as base64 text"),
        ({"data_base64": "AQI"}, "not base64"),
        ({"data_base64": "AQJ="}, "not base64"),  # stray bits that another spelling would lose
        ({"data_base64": "A QI="}, "not base64"),
        ({"data_base64": "é==="}, "not base64"),
        ({"data_base64": None}, "not base64"),
    ],
)
def test_a_message_that_breaks_the_specification_is_refused(change, said):
    with pytest.raises(EventError, match=said):
        from_cloudevent(MESSAGE | change)


def test_what_is_required_may_not_be_missing():
    for name in ("specversion", "id", "source", "type"):
        with pytest.raises(EventError, match=name):
            from_cloudevent({key: value for key, value in MESSAGE.items() if key != name})


def text_with(data):
    return json.dumps(MESSAGE)[:-1] + f', "data": {data}}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff", "JSON text in UTF-8"),
        ("", "JSON text in UTF-8"),
        ("[1]", "a CloudEvent must be a JSON object, not a list"),
        ("null", "must be a JSON object, not a NoneType"),
        (text_with("tru"), "line 1 column"),
        (text_with('{"a": 1, "b": 1, "a": 1}'), "has 'a' twice"),
        ('{"id": "1", "id": "1"}', "has 'id' twice"),
        (text_with("NaN"), "the JSON number NaN"),
        (text_with("1e999"), "the JSON number 1e999"),
        (text_with("9" * 5000), "JSON text in UTF-8"),
        (text_with('"\\ud800"'), "JSON text in UTF-8"),
        (text_with('"\ud800"'), "JSON text in UTF-8"),
        (text_with("[" * 100 + "]" * 100), "nested deeper than 100"),
        ("[" * 1_000_000, "nested deeper than 100"),
        ('{"a":' * 1_000_000, "nested deeper than 100"),
    ],
)
def test_malformed_json_is_refused(text, said):
    with pytest.raises(EventError, match=said):
        from_cloudevent(text)


def test_brackets_are_counted_by_depth_and_not_in_strings():
    deep = "[" * 99 + "]" * 99
    many = "[" + ",".join(["[]"] * 200) + "]"
    quoted = json.dumps('\\"[{' * 200)
    for data in (deep, many, quoted):
        assert from_cloudevent(text_with(data)).payload.data == json.loads(data)


def test_a_text_of_quotes_that_never_end_is_refused_in_linear_time():
    with pytest.raises(EventError):
        from_cloudevent("[" * 99 + "[]" * 10 + '"\\' * 500_000)


def test_a_surrogate_pair_is_one_character():
    assert from_cloudevent(text_with('"\\ud83c\\udf0d"')).payload.data == "🌍"


# --- writing ----------------------------------------------------------------------------------------


def test_a_native_event_is_written_with_its_payload_as_data():
    event = Event.of(NATIVE, time=NOON, seen=NOON, sig=5)
    marks = {"weftdata": '{"seen":"timestamp"}'}
    context = MESSAGE | {"time": "2018-01-31T12:00:00Z", "seen": "2018-01-31T12:00:00Z", "sig": 5} | marks
    for payload, data in [(None, {}), ({"a": 1}, {"data": {"a": 1}}), (b"\1\2", {"data_base64": "AQI="})]:
        assert to_cloudevent(msgspec.structs.replace(event, payload=payload)) == context | data


def test_null_attributes_are_not_written():
    assert to_cloudevent(Event(NATIVE | {"x": None, "y": math.nan})) == MESSAGE


def test_an_attribute_with_a_data_path_is_written_into_the_data():
    schema = Schema.of(
        Attribute("depth", Type.FLOAT, data="where.depth"), Attribute("seen at", Type.TIMESTAMP, data="seen")
    )
    payload = {"where": {"place": "Chile"}}
    message = to_cloudevent(Event.of(NATIVE | {"depth": 1.5, "seen at": NOON}, payload=payload), schema)
    assert message == MESSAGE | {"data": {"where": {"place": "Chile", "depth": 1.5}, "seen": "2018-01-31T12:00:00Z"}}
    assert payload == {"where": {"place": "Chile"}}  # untouched


def test_what_the_data_says_already_is_left_in_its_spelling():
    schema = Schema.of(Attribute("seen", Type.TIMESTAMP, data="seen"))
    event = Event.of(NATIVE, seen=NOON, payload={"seen": "2018-01-31T14:00:00+02:00"})
    assert to_cloudevent(event, schema)["data"] == {"seen": "2018-01-31T14:00:00+02:00"}


def test_what_was_promoted_is_not_repeated_as_an_extension():
    schema = Schema.of(Attribute("sig", Type.INT, data="sig"))
    message = MESSAGE | {"data": {"sig": 5}}
    event = from_cloudevent(message, schema)
    assert event["sig"] == 5
    assert to_cloudevent(event) == to_cloudevent(event, schema) == message


def test_a_changed_attribute_is_written_anew():
    message = MESSAGE | {"time": "2018-01-31T14:00:00+02:00", "n": 2.5, "data": {"where": {"depth": 70}}}
    event = from_cloudevent(message, DEPTH)
    changed = Event(event.attributes | {"time": NOON.replace(hour=13), "n": 3, "depth": 5.5}, event.payload)
    assert to_cloudevent(changed, DEPTH) == MESSAGE | {
        "time": "2018-01-31T13:00:00Z",
        "n": 3,
        "data": {"where": {"depth": 5.5}},
    }


def test_a_removed_attribute_is_not_written():
    event = from_cloudevent(MESSAGE | {"time": "2018-01-31T14:00:00+02:00", "n": 2.5})
    assert to_cloudevent(Event(NATIVE, event.payload)) == MESSAGE


@pytest.mark.parametrize("attributes", [{"id": None}, {"id": ""}, {"id": 5}])
def test_an_event_without_what_every_cloudevent_has_is_refused(attributes):
    with pytest.raises(EventError, match="a CloudEvent must have 'id', and this event has none"):
        to_cloudevent(Event(NATIVE | attributes))


@pytest.mark.parametrize(
    ("attributes", "written"),
    [
        ({"depth.km": 1}, {"depthkm": 1, "weftdata": '{"depthkm":"int depth.km"}'}),
        ({"Depth": 1, "depth": 2}, {"depth": 2, "depth1": 1, "weftdata": '{"depth1":"int Depth"}'}),
        ({"data": True}, {"data1": True, "weftdata": '{"data1":"bool data"}'}),
        ({"specversion": "1.0"}, {"specversion1": "1.0", "weftdata": '{"specversion1":"text specversion"}'}),
        ({"weftdata": "x"}, {"weftdata1": "x", "weftdata": '{"weftdata1":"text weftdata"}'}),
        ({"depth": 1.5}, {"depth": "1.5", "weftdata": '{"depth":"float"}'}),
        ({"depth": -math.inf}, {"depth": "-inf", "weftdata": '{"depth":"float"}'}),
        ({"n": 2**31}, {"n": "2147483648", "weftdata": '{"n":"int"}'}),
        ({"subject": 5}, {"subject1": 5, "weftdata": '{"subject1":"int subject"}'}),
        ({"\u00e9": "x"}, {"attribute": "x", "weftdata": '{"attribute":"text \u00e9"}'}),
    ],
)
def test_what_no_extension_can_hold_is_marked(attributes, written):
    event = Event(NATIVE | attributes)
    assert to_cloudevent(event) == MESSAGE | written
    assert from_cloudevent(MESSAGE | written).attributes == event.attributes


def test_what_an_event_lacks_is_marked_as_absent():
    message = to_cloudevent(Event.of(magnitude=6.1, type="quake"), None, {"id": "7f.1", "source": "/weft", "type": "-"})
    assert message == MESSAGE | {
        "id": "7f.1",
        "source": "/weft",
        "magnitude": "6.1",
        "weftdata": '{"magnitude":"float","id":"absent","source":"absent"}',
    }
    assert from_cloudevent(message).attributes == {"magnitude": 6.1, "type": "quake"}


names = st.sampled_from(["id", "source", "type", "subject", "data", "a", "A", "a.b", "weftdata", "x y", "time2"])
attribute_values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False).map(lambda x: x + 0.0),
    st.text(max_size=3),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
)


@given(st.dictionaries(names, attribute_values, max_size=5))
def test_every_event_comes_back_with_its_attributes(attributes):
    for name in ("id", "source", "type"):
        if name in attributes:
            attributes[name] = str(attributes[name])
    defaults = {"id": "1", "source": "/", "type": "event"}
    message = to_cloudevent(Event(attributes), None, defaults)
    found = from_cloudevent(json.dumps(message)).attributes
    assert found == attributes
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in attributes.items()}
    assert same(to_cloudevent(from_cloudevent(message)), message)


@pytest.mark.parametrize("marks", ["", "{", "[]", "{}", '{"n":"number"}', '{"m":"int"}', '{"data":"int"}', '{"n":5}'])
def test_other_weftdata_is_an_attribute_like_any_other(marks):
    message = MESSAGE | {"n": "5", "data": 1, "weftdata": marks}
    event = from_cloudevent(message)
    assert event.attributes == NATIVE | {"n": "5", "weftdata": marks}
    assert to_cloudevent(event) == message


@pytest.mark.parametrize(
    ("n", "mark", "said"),
    [
        ("x", "float", "'n' of a CloudEvent is 'x', which weftdata calls a float"),
        (True, "int", "weftdata calls a int"),
        ("9" * 30, "int", "beyond 64 bits"),
        ("soon", "timestamp", "weftdata calls a timestamp"),
        (5, "timestamp", "weftdata calls a timestamp"),
        ("5", "float time", "'time' must be a timestamp"),
        ("x", "text m", "'m' comes twice"),
    ],
)
def test_a_wrong_mark_is_refused(n, mark, said):
    with pytest.raises(EventError, match=said):
        from_cloudevent({"m": "y"} | MESSAGE | {"n": n, "weftdata": json.dumps({"n": mark})})
    with pytest.raises(EventError, match=said):
        from_cloudevent(MESSAGE | {"n": n, "weftdata": json.dumps({"n": mark}), "m": "y"})


@pytest.mark.parametrize(
    ("depth", "payload", "written"),
    [
        (1.5, "text", {"depth": "1.5", "data": "text"}),
        (1.5, b"raw", {"depth": "1.5", "data_base64": "cmF3"}),
        (1.5, {"where": 5}, {"depth": "1.5", "data": {"where": 5}}),
        (1.5, {"where": {"depth": {}}}, {"depth": "1.5", "data": {"where": {"depth": {}}}}),
        (math.inf, None, {"depth": "inf"}),
    ],
)
def test_an_attribute_that_does_not_fit_the_data_is_marked(depth, payload, written):
    event = Event.of(NATIVE, depth=depth, payload=payload)
    message = MESSAGE | written | {"weftdata": '{"depth":"float"}'}
    assert to_cloudevent(event, DEPTH) == message
    assert from_cloudevent(message, DEPTH)["depth"] == depth


@given(st.binary(max_size=6) | json_values.map(lambda value: json.dumps(value, indent=1).encode()))
@pytest.mark.parametrize(
    "kind", ["", "application/json", "Text/JSON; charset=utf-8", "a/b+json", "text/xml", "image/png"]
)
def test_a_payload_comes_back_from_its_data(kind, payload):
    data = data_of(payload, kind)
    if isinstance(data, msgspec.Raw):
        assert b"\n" not in bytes(data)
        data = json.loads(bytes(data))
        assert json.loads(payload_of(data, kind)[0]) == json.loads(payload)
    else:
        assert payload_of(data, kind) == (payload, kind if data is not UNSET else "")


def endless():
    payload = []
    payload.append(payload)
    return payload


def deep(levels):
    payload = []
    for _ in range(levels):
        payload = [payload]
    return payload


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (object(), "event '1' cannot be written as JSON, .*; pass its payload as bytes"),
        (math.nan, "cannot be written as JSON"),
        ("\ud800", "cannot be written as JSON"),
        (endless(), "cannot be written as JSON"),
        (deep(100_000), "cannot be written as JSON"),
        (deep(200), "nested deeper than 100"),
    ],
)
def test_a_payload_that_is_no_json_is_refused_as_text(payload, said):
    with pytest.raises(EventError, match=said):
        to_json(Event.of(NATIVE, payload=payload))
