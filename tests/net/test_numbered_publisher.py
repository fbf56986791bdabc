"""Publishing under one's own numbers: whatever is sent again, and whatever breaks, is stored once and in order."""

from __future__ import annotations

import pytest

from weft.broker.admission import MAX_EVENT
from weft.broker.messages import Hello, Publish
from weft.errors import BrokerError, EventError
from weft.net.blocking_connection import BlockingConnection
from weft.net.numbered_publisher import NumberedPublisher
from weft.testing import broker


def events(first, count):
    return [Publish.of(0, {"n": first + at}) for at in range(count)]


def publish(address, epoch, some, session="query-0"):
    with BlockingConnection(address, Hello(session=session)) as connection:
        return NumberedPublisher(connection).publish(epoch, some)


def stored(local, count):
    with local.connect_sync() as client, client.subscribe("n >= 0", since=1) as found:
        return [next(found)["n"] for _ in range(count)]


def test_what_is_published_again_is_stored_once():
    with broker() as local:
        assert publish(local.address, 1, events(0, 3)) == 3
        assert publish(local.address, 1, events(0, 3)) == 0
        assert publish(local.address, 1, events(0, 5)) == 2  # a task that died after three
        assert publish(local.address, 3, events(5, 2)) == 2
        assert publish(local.address, 1, events(0, 5)) == 0  # an old micro-batch is complete
        assert publish(local.address, 3, events(5, 2), session="query-1") == 2
        assert stored(local, 9) == [0, 1, 2, 3, 4, 5, 6, 5, 6]


def test_many_events_are_confirmed():
    with broker() as local:
        assert publish(local.address, 1, events(0, 12_000)) == 12_000
        assert stored(local, 12_000) == list(range(12_000))


def test_a_broker_that_ends_meanwhile_has_what_it_confirmed(tmp_path):
    with broker(tmp_path / "data") as local:
        address = local.address

        def stopping():
            for place, event in enumerate(events(0, 4_000)):
                if place == 2_000:
                    local.kill()
                yield event

        with pytest.raises(BrokerError):
            publish(address, 1, stopping())
        with pytest.raises(BrokerError, match="is a broker running"):
            publish(address, 1, events(0, 4_000))
        local.start()
        assert publish(address, 1, events(0, 4_000)) <= 4_000
        assert publish(address, 2, events(4_000, 1)) == 1
        assert stored(local, 4_001) == list(range(4_001))


def test_an_event_that_the_broker_refuses_is_named():
    with broker() as local:
        some = [*events(0, 1), Publish.of(0, {"n": 1}, payload=b"x" * MAX_EVENT), *events(2, 1)]
        with pytest.raises(EventError, match="the broker refused event 2"):
            publish(local.address, 1, some)
        assert publish(local.address, 2, events(1, 1)) == 1
        assert stored(local, 2) == [0, 1]
