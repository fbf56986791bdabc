"""Places as bytes, and the spaces that publishers get: what is read is what was written."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.broker.admission import Admission
from weft.errors import RemoteProtocolError
from weft.model.schema import Schema
from weft.protocol.messages import Publish
from weft.routing.mapping import Mapper
from weft.routing.place_format import MOST_SPACE, PlaceFormat, pack_space, unpack_space
from weft.routing.registry import make_table

SCHEMA = Schema.from_dict(
    {
        "attributes": {
            "x": {"type": "int", "bounds": [0, 7]},
            "z": {"type": "float", "bounds": [0, 1]},
            "y": {"type": "string", "categories": ["a", "b"]},
        }
    }
)
VALUES = st.one_of(
    st.integers(-3, 12), st.sampled_from([1 << 70, 0.5, 2.0, 7.5, -0.0, float("inf"), True, None]), st.text(max_size=2)
)
EVENTS = st.dictionaries(st.sampled_from(["x", "y", "z", "other"]), VALUES | st.lists(VALUES, max_size=2), max_size=4)


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=3), st.data())
def test_places_come_back(limits: list[int], data: st.DataObject) -> None:
    made = PlaceFormat("table", tuple(limits))
    rows = data.draw(st.lists(st.tuples(*(st.integers(0, limit) for limit in limits)), max_size=4))
    keys = np.array(rows, np.int64).reshape(len(rows), len(limits))
    written = made.encode(keys)
    found = made.decode(written, len(rows))
    assert found is not None
    assert np.array_equal(found, keys)
    assert b"".join(made.divide(written)) == written
    assert len(made.divide(written)) == len(rows)
    assert made.decode(written + b"\0", len(rows)) is None


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=3), st.binary(max_size=48), st.integers(0, 6))
def test_any_bytes_are_keys_within_the_limits_or_none(limits: list[int], data: bytes, count: int) -> None:
    keys = PlaceFormat("table", tuple(limits)).decode(data, count)
    assert keys is None or ((keys >= 0) & (keys <= np.array(limits, np.int64))).all()


@pytest.mark.parametrize("model", ["mics", "dls"])
@given(st.lists(EVENTS, max_size=6))
def test_a_client_maps_as_its_broker(model: str, events: list[dict[str, Any]]) -> None:
    """The broker maps what it has admitted, under its schema; the client what it sends."""
    table = make_table(model, SCHEMA)
    mapper, admission = Mapper.of(pack_space(table.fingerprint, SCHEMA)), Admission(SCHEMA)
    sent = [event for event in events if all(type(value) is not int or value < 1 << 63 for value in flat(event))]
    admitted = [admission.admit(Publish.of(1, event), 0)[0] for event in sent]
    places = table.place(admitted)
    assert places is not None
    assert mapper.written(sent) == mapper.format.divide(mapper.format.encode(places.keys))
    assert [mapper.written([event]) for event in sent] == [[each] for each in mapper.written(sent)]
    assert len(table.place_limits) == places.keys.shape[1]
    assert mapper.format == PlaceFormat(table.fingerprint, table.place_limits)


def flat(event: dict[str, Any]) -> list[Any]:
    return [each for value in event.values() for each in (value if isinstance(value, list) else [value])]


def test_a_space_that_is_too_large_is_not_sent() -> None:
    names = [f"attribute {number * number:x}" for number in range(30_000)]
    assert pack_space(json.dumps(names), None) == b""
    assert 0 < len(pack_space(json.dumps(names[:100]), SCHEMA)) < MOST_SPACE


def spaces() -> list[bytes]:
    text = json.dumps([1, make_table("dls", SCHEMA).fingerprint, SCHEMA.to_dict()])
    known = json.loads(text)
    wrong = [
        [2, *known[1:]],
        [1, 5, None],
        [1, "{}", None],
        [1, make_table("covering").fingerprint, None],
        [1, known[1].replace('"side":0', '"side":7'), None],
        [1, known[1], {"attributes": 3}],
        {},
        "",
        None,
        [[]] * 3,
    ]
    packed = [zlib.compress(json.dumps(each).encode()) for each in wrong]
    whole = zlib.compress(text.encode())
    bomb = zlib.compress(bytes(1 << 25))
    return [*packed, whole[:-5], b"", b"x", bomb, zlib.compress(b"[" * 100_000)]


@pytest.mark.parametrize("packed", spaces())
def test_what_is_no_space_is_a_remote_protocol_error(packed: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Mapper.of(packed)


@given(st.data())
def test_a_space_with_other_bytes_is_a_remote_protocol_error_or_a_space(data: st.DataObject) -> None:
    text = bytearray(json.dumps([1, make_table("dls", SCHEMA).fingerprint, SCHEMA.to_dict()]).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    try:
        mapper = Mapper.of(zlib.compress(bytes(text)))
        mapper.written([msgspec.msgpack.decode(msgspec.msgpack.encode({"x": 3}))])
    except RemoteProtocolError:
        pass
    unpack_space(pack_space("any", SCHEMA))
