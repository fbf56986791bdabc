"""Sessions that map their events, against a real broker core without sockets."""

from __future__ import annotations

import pytest

from client.client_lab import Lab, Line
from weft.broker.effects import ConnectionId
from weft.client.events import outgoing
from weft.client.session import ClientSession
from weft.model.schema import Schema
from weft.protocol.codec import encode
from weft.protocol.messages import AskSpace, Hello, OfferedSpace, Publish, PublishPlaced
from weft.routing.table import Role

SCHEMA = Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 7]}}})


def lab(model: str = "mics") -> Lab:
    made = Lab(schema=SCHEMA, model=model, name="a")
    made.broker.attach("b", Role.PEER)
    made.store()
    return made


def publish(line: Line, *xs: object) -> None:
    line.session.publisher.add([outgoing({"x": x}) for x in xs])
    line.run()


def kinds(line: Line) -> list[type]:
    return [type(each) for each in line.said if isinstance(each, Publish)]


@pytest.mark.parametrize("model", ["mics", "dls"])
def test_events_are_mapped_as_soon_as_the_broker_has_sent_its_space(model: str) -> None:
    on, session = lab(model), ClientSession("p", map_events=True)
    line = on.connect(session)
    publish(line, 1)
    publish(line, 2, 3)
    publish(line, *range(10))
    assert line.said[0].versions == (2, 7)  # type: ignore[union-attr]
    assert kinds(line)[-12:] == [PublishPlaced] * 12
    assert on.core.counts["places examined"] >= 2
    assert "wrong places" not in on.core.counts


def test_a_session_that_does_not_map_says_what_it_always_said() -> None:
    on, session = lab(), ClientSession("p")
    line = on.connect(session)
    publish(line, 1)
    hello = next(each for each in line.said if isinstance(each, Hello))
    assert hello.versions == (2, 6)
    assert not any(isinstance(each, AskSpace | PublishPlaced) for each in line.said)
    assert not any(isinstance(each, OfferedSpace) for each in line.heard)


def test_an_older_broker_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.broker.hello.PLACES", 1 << 20)
    line = lab().connect(ClientSession("p", map_events=True))
    publish(line, 1)
    assert not any(isinstance(each, AskSpace | PublishPlaced) for each in line.said)


@pytest.mark.parametrize("packed", [b"", b"not a space"])
def test_without_a_space_that_it_can_read_a_session_sends_no_places(packed: bytes) -> None:
    on, session = lab(), ClientSession("p", map_events=True)
    line = on.connect(session)
    publish(line, 1)
    line.back += encode([OfferedSpace(9, packed)])
    line.to_client()
    publish(line, 2, 3)
    assert kinds(line)[-2:] == [Publish] * 2


def test_what_is_sent_again_at_a_broker_without_a_space_has_no_place() -> None:
    on, session = lab(), ClientSession("p", map_events=True)
    line = on.connect(session)
    publish(line, 1)
    session.publisher.add([outgoing({"x": 5})])
    line.flush()
    line.cut()
    on.notice()
    on.broker.call(on.core.detach, "b")
    on.store()
    line = on.connect(session)
    publish(line)
    assert kinds(line) == [Publish]
    assert ConnectionId("c2") in on.lines


def test_an_event_that_cannot_be_mapped_is_sent_without_a_place() -> None:
    on, session = lab(), ClientSession("p", map_events=True)
    line = on.connect(session)
    line.run()
    mapping = session.publisher.mapping
    assert mapping is not None
    odd = outgoing({"x": 1})
    odd.attributes = type(odd.attributes)(b"\xc1")  # no MessagePack
    assert mapping.places([outgoing({"x": 1}), odd]) is None
