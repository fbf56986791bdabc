"""What a broker admits is plain. Law: the index may match admitted events without looking at them again."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from weft.broker.admission import Admission
from weft.errors import EventError
from weft.index.tree import TreeIndex
from weft.model.door import PlainEvents
from weft.model.event import attributes_of
from weft.protocol.messages import Publish

_NAMES = st.sampled_from(["x", "y", "a.b", "id", "time", "type", "", "n" * 300]) | st.text(max_size=3)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.datetimes()
    | st.sampled_from(["2018-02-01T00:00:00Z", b"bytes", 5, 5.0, "5"]),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2) | st.lists(inner, max_size=2),
    max_leaves=3,
)


@given(st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), max_size=6))
@example([{"x": 1}, {"x": 2**63}, {"x": float("nan")}])
@example([{"time": "2018-02-01T00:00:00Z"}, {"time": 5}])
def test_admitted_attributes_are_what_the_door_makes_of_them(events: list[dict[str, Any]]) -> None:
    door, admitted = Admission(), PlainEvents()
    for event in events:
        message = Publish(1, msgspec.Raw(msgspec.msgpack.encode(event)), b"")
        try:
            admitted.append(door.admit(message, 0)[0])
        except EventError:
            continue
    assert [attributes_of(each) for each in admitted] == admitted
    index = TreeIndex()
    for number, text in enumerate(["x = 5", "x < 3 OR y IS NULL", "x LIKE '5%'", '"a.b" > 1', "time IS NOT NULL"]):
        index.add(number, text)
    for batch in (admitted, PlainEvents(admitted * 3)):
        plain, looked_at = index.match_batch(batch), index.match_batch([*batch])
        assert plain.offsets.tolist() == looked_at.offsets.tolist()
        assert plain.ids.tolist() == looked_at.ids.tolist()
