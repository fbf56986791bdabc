"""CloudEvents over HTTP: what comes back equals what was published, in every mode."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.client.events import outgoing
from weft.errors import EventError
from weft.gateway.cloud_http import BATCH, STRUCTURED, header_value, read_event, read_events, write_event
from weft.gateway.problems import ProblemError
from weft.model.event import Event
from weft.model.schema import Attribute, Schema
from weft.model.value import Type, parse_timestamp
from weft.protocol.messages import Head, read_head

REQUIRED = {"specversion": "1.0", "id": "q1", "source": "/usgs", "type": "quake"}
SCHEMA = Schema.of(Attribute("depth", Type.FLOAT, data="where.depth"), Attribute("magnitude", Type.FLOAT))


def stored(sent):
    """An event as the broker stores and delivers it."""
    head = read_head(msgspec.msgpack.encode(Head(msgspec.msgpack.decode(sent.attributes), sent.datacontenttype)))
    return head.attributes, sent.payload, head.datacontenttype


def back(sent, schema=None):
    return json.loads(write_event(*stored(sent), "9f3c21aa.7", schema))


def comparable(message):
    """A CloudEvent as the specification compares it."""
    found = {name: value for name, value in message.items() if value is not None or name == "data"}
    if "time" in found:
        found["time"] = parse_timestamp(found["time"])
    kind = found.get("datacontenttype", "application/json")
    if "data" in found and "json" not in kind:
        found["data_base64"] = base64.b64encode(found.pop("data").encode()).decode()
    if found.get("data_base64") == "" and "datacontenttype" not in found:
        del found["data_base64"]
    return json.dumps(found, sort_keys=True)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)
texts = st.text(min_size=1, max_size=4)
base64s = st.binary(max_size=5).map(lambda raw: base64.b64encode(raw).decode())
datas = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"data": json_values}),
    st.fixed_dictionaries({"data": json_values, "datacontenttype": st.sampled_from(["application/json", "a/b+json"])}),
    st.fixed_dictionaries(
        {"data": st.text(max_size=4), "datacontenttype": st.sampled_from(["text/xml", "text/plain"])}
    ),
    st.fixed_dictionaries({"data_base64": base64s}),
    st.fixed_dictionaries({"data_base64": base64s, "datacontenttype": st.sampled_from(["image/png", "text/plain"])}),
)
times = st.builds(
    "{:%Y-%m-%dT%H:%M:%S}{}{}".format,
    st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30)),
    st.sampled_from(["", ".5", ".123456"]),
    st.sampled_from(["Z", "+05:30"]),
)
extension_values = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.text(max_size=4))
messages = st.builds(
    lambda context, extensions, data: {**extensions, "specversion": "1.0", **context, **data},
    st.fixed_dictionaries(
        {"id": texts, "source": texts, "type": texts}, optional={"time": times, "subject": texts, "dataschema": texts}
    ),
    st.dictionaries(st.sampled_from(["a", "b2", "magnitude", "weftx"]), extension_values, max_size=3),
    datas,
)


@given(messages)
def test_what_is_published_in_structured_mode_comes_back(message):
    (sent,) = read_events(f"{STRUCTURED}; charset=UTF-8", [], json.dumps(message).encode())
    assert comparable(back(sent)) == comparable(message)


@given(st.lists(messages, max_size=3))
def test_what_is_published_as_a_batch_comes_back(some):
    sent = read_events(BATCH.upper(), [], json.dumps(some).encode())
    assert [comparable(back(each)) for each in sent] == [*map(comparable, some)]


def header(value: str) -> bytes:
    return quote(value, safe="!#$&'()*+,-./:;<=>?@[]^_`{|}~").encode()


@given(messages)
def test_what_is_published_in_binary_mode_comes_back_with_texts(message):
    context = {
        name: str(value) for name, value in message.items() if name not in ("data", "data_base64", "datacontenttype")
    }
    (structured,) = read_events(STRUCTURED, [], json.dumps(message).encode())
    headers = [(f"ce-{name}".encode(), header(value)) for name, value in context.items()]
    (sent,) = read_events(structured.datacontenttype, headers, structured.payload)
    expected = dict(message) | context
    if structured.payload and structured.datacontenttype:
        expected["datacontenttype"] = structured.datacontenttype
    elif "data_base64" in expected and not structured.payload:
        del expected["data_base64"]  # an empty body is no data
    elif not structured.payload and "data" in expected:
        del expected["data"]
    assert comparable(back(sent)) == comparable(expected)


attributes = st.dictionaries(
    st.sampled_from(["magnitude", "depth.km", "Place", "id", "data", "time2", "x y", "subject"]),
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False).map(lambda x: x + 0.0),
        st.text(max_size=3),
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
    ),
    max_size=5,
)
payloads = st.one_of(st.none(), st.binary(max_size=5), st.text(max_size=4), json_values.filter(lambda x: x is not None))


@given(attributes, payloads, st.sampled_from(["", "application/json", "text/xml", "image/png"]))
def test_what_a_python_client_published_comes_back_as_the_same_event(values, payload, kind):
    if "id" in values:
        values["id"] = str(values["id"])
    first = outgoing(Event.of(values), payload, kind)
    written = back(first)
    (again,) = read_events(STRUCTURED, [], json.dumps(written).encode())
    before, after = stored(first), stored(again)
    assert after[0] == before[0]
    assert {n: type(v) for n, v in after[0].items()} == {n: type(v) for n, v in before[0].items()}
    assert after[2] == before[2]
    if after[1] != before[1]:  # JSON, spelled otherwise
        assert json.loads(after[1]) == json.loads(before[1])
    assert back(again) == written


def test_floats_and_dotted_names_are_marked():
    sent = outgoing({"magnitude": 6.1, "geo": {"lat": 19.7}, "place": "Hilo"}, payload={"felt": 12})
    assert back(sent) == {
        "specversion": "1.0",
        "place": "Hilo",
        "magnitude": "6.1",
        "geolat": "19.7",
        "id": "9f3c21aa.7",
        "source": "/weft",
        "type": "event",
        "weftdata": '{"magnitude":"float","geolat":"float geo.lat","id":"absent","source":"absent","type":"absent"}',
        "data": {"felt": 12},
    }


def test_a_json_number_is_a_float_although_cloudevents_have_none():
    (sent,) = read_events(STRUCTURED, [], json.dumps(REQUIRED | {"magnitude": 6.1}).encode())
    assert stored(sent)[0]["magnitude"] == 6.1
    assert back(sent) == REQUIRED | {"magnitude": "6.1", "weftdata": '{"magnitude":"float"}'}


def test_a_schema_types_headers_and_promotes_data():
    headers = [(f"ce-{name}".encode(), value.encode()) for name, value in REQUIRED.items()]
    headers.append((b"ce-magnitude", b"6.1"))
    body = b'{"where": {"depth": 10.5}}'
    (sent,) = read_events("application/json", headers, body, SCHEMA)
    found, payload, _ = stored(sent)
    assert (found["magnitude"], found["depth"], payload) == (6.1, 10.5, body)
    kept = {"datacontenttype": "application/json", "magnitude": "6.1", "weftdata": '{"magnitude":"float"}'}
    assert back(sent, SCHEMA) == REQUIRED | kept | {"data": {"where": {"depth": 10.5}}}
    (sent,) = read_events(STRUCTURED, [], json.dumps(REQUIRED | {"data": json.loads(body)}).encode(), SCHEMA)
    assert stored(sent)[0]["depth"] == 10.5
    assert back(sent, SCHEMA) == REQUIRED | {"data": json.loads(body)}


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"plain", "plain"),
        (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro \u20ac \U0001f600"),
        ("\u20ac".encode(), "\u20ac"),
        (b'"quoted \\"value\\""', 'quoted "value"'),
        (b'"%20"', " "),
        (b"%2520", "%20"),
        (b"%41", "A"),
    ],
)
def test_header_values_are_decoded_as_the_binding_says(raw, value):
    assert header_value(raw) == value


@pytest.mark.parametrize("raw", [b"%C0%A0", b"%ED%A0%80", b"\xff", b"50%", b"%zz", b"%F0%9F"])
def test_a_header_value_that_is_not_utf_8_is_refused(raw):
    with pytest.raises(EventError):
        header_value(raw)


def headers_of(**more):
    return [(f"ce-{name}".encode(), str(value).encode()) for name, value in (REQUIRED | more).items()]


@pytest.mark.parametrize(
    ("kind", "headers", "body", "status", "said"),
    [
        ("", [], b"", 415, "the request is not a CloudEvent"),
        ("application/json", [], b"{}", 415, "the request is not a CloudEvent"),
        ("application/cloudevents+avro", [], b"", 415, "application/cloudevents.avro are not supported"),
        (BATCH, [], b"{}", 400, "a batch must be a JSON array"),
        (BATCH, [], b"[" + b"{}," * 1000 + b"{}]", 413, "a batch has at most 1,000 events"),
        (STRUCTURED, [], b"{", 400, "must be JSON text"),
        (STRUCTURED, [], b'{"a":1,"a":1}', 400, "has 'a' twice"),
        (STRUCTURED, [], b"[" * 5000, 400, "nested deeper"),
        ("", [*headers_of(), (b"ce-id", b"2")], b"", 400, "ce-id comes twice"),
        ("", headers_of(datacontenttype="a/b"), b"", 400, "ce-datacontenttype is not a header"),
        ("", headers_of(specversion="0.3"), b"", 400, "specversion '1.0'"),
        ("", headers_of(**{"x-y": "1"}), b"", 400, "cannot name a CloudEvents attribute"),
    ],
)
def test_what_is_not_an_event_is_refused_with_a_sentence(kind, headers, body, status, said):
    from weft.gateway.problems import problem_of

    with pytest.raises((EventError, ProblemError), match=said) as caught:
        read_events(kind, headers, body)
    assert problem_of(caught.value).kind.status == status


def test_one_bad_event_refuses_a_batch_and_each_is_named():
    batch = [REQUIRED, {"id": "2"}, REQUIRED | {"time": "now"}]
    with pytest.raises(ProblemError) as caught:
        read_events(BATCH, [], json.dumps(batch).encode())
    assert [each["index"] for each in caught.value.fields["errors"]] == [1, 2]


def test_the_id_of_a_stream_is_not_part_of_the_event():
    (sent,) = read_events(STRUCTURED, [], json.dumps(REQUIRED | {"weftid": "9f.1"}).encode())
    assert back(sent) == REQUIRED


def test_an_event_that_is_asked_about_may_be_any_mapping():
    assert read_event({"magnitude": 6.1, "geo": {"lat": 1}}).attributes == {"magnitude": 6.1, "geo.lat": 1}
    assert read_event(REQUIRED | {"n": 1})["n"] == 1
    assert math.isinf(read_event(REQUIRED | {"n": "inf", "weftdata": '{"n":"float"}'})["n"])
