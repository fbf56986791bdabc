"""A client says what it is doing: its state, the changes of it, the log, the text of a time-out."""

import asyncio
import logging
from types import MappingProxyType

import pytest

import weft
import weft.testing
from weft.client.connection_state import ConnectionState, ConnectionStates
from weft.errors import ClientClosedError, ConnectError
from weft.model.event import attributes_of


def test_states_begin_with_the_present_one_and_end_with_the_client():
    states = ConnectionStates("sensor-7")
    states.connected("weft://a:1")
    watch = states.watch()
    states.lost("weft://a:1")
    states.failed("weft://a:1", ConnectError("no broker at weft://a:1"))
    states.failed("weft://a:1", ConnectError("no broker at weft://a:1"))  # said once
    states.connected("weft://b:1")
    states.over(ClientClosedError("the client is closed"), expected=True)
    seen = []
    while (state := _next(watch)) is not None:
        seen.append(state)
    assert seen == [
        ConnectionState(True, "weft://a:1"),
        ConnectionState(False, "weft://a:1", "the connection to weft://a:1 was lost"),
        ConnectionState(False, "weft://a:1", "no broker at weft://a:1"),
        ConnectionState(True, "weft://b:1"),
        ConnectionState(False, "weft://b:1", "the client is closed"),
    ]
    assert _next(states.watch()) == seen[-1]


def _next(watch):
    """What is there already: nothing is awaited."""
    with pytest.raises(StopIteration) as done:
        watch.next().send(None)
    return done.value.value


def test_a_client_logs_what_happens_to_it_and_says_it_in_errors(caplog):
    caplog.set_level(logging.INFO, "weft.client")
    with weft.testing.broker() as broker, broker.connect_sync(name="sensor-7") as client:
        assert client.connected
        assert repr(client) == f"<weft.SyncClient 'sensor-7': connected to {client.address}>"
        states = client.states()
        assert next(states).connected
        alerts = client.subscribe("x > 0", name="alerts")
        assert repr(alerts) == "<weft.SyncSubscription 'alerts': x > 0, 0 waiting>"
        with pytest.raises(TimeoutError, match=r"no event came within 0.01 s; the client is connected to weft://"):
            alerts.receive(timeout=0.01)
        broker.stop()
        lost = next(states)
        assert not lost.connected
        with pytest.raises(
            TimeoutError, match=r"has not confirmed the event within 0.01 s; the client is not connected"
        ):
            client.publish({"x": 1}, timeout=0.01)
    said = [record.getMessage() for record in caplog.records if record.name == "weft.client"]
    assert any(line.startswith("client 'sensor-7' is connected to weft://") for line in said)
    assert any("lost its connection" in line for line in said)


def test_a_client_that_never_connects_raises_and_logs_nothing(caplog):
    with pytest.raises(ConnectError, match="no broker at"), weft.connect_sync("weft://127.0.0.1:1", timeout=60):
        pass
    assert not [record for record in caplog.records if record.name == "weft.client"]


def test_a_client_may_be_awaited_and_an_event_received_with_a_time_out():
    async def main():
        async with weft.testing.broker() as broker:
            client = await broker.connect()
            alerts = await client.subscribe("x > 0")
            assert repr(alerts) == "<weft.Subscription: x > 0, 0 waiting>"
            with pytest.raises(TimeoutError, match="no event came"):
                await alerts.receive(timeout=0.01)
            await client.publish({"x": 1})
            event = await alerts.receive(timeout=60)
            waiting = asyncio.ensure_future(_states(client))
            await client.close()
            assert [state.connected for state in await waiting][-1] is False
            with pytest.raises(ClientClosedError):
                await alerts.receive()
            return event

    event = asyncio.run(main())
    assert dict(event) == {"x": 1}
    assert attributes_of(event) == {"x": 1}


async def _states(client):
    return [state async for state in client.states()]


def test_a_received_event_is_a_mapping_and_can_be_matched_and_published_again():
    index = weft.Index({"high": "x > 5"})
    with weft.testing.broker() as broker, broker.connect_sync() as client:
        first, again = client.subscribe("x > 0"), client.subscribe("copy = TRUE")
        client.publish({"x": 7}, payload={"felt": 3})
        event = first.receive(timeout=60)
        assert index.match(event) == ["high"]
        assert index.match_batch([event]).lists() == [["high"]]
        assert (len(event), list(event.items()), event["absent"]) == (1, [("x", 7)], None)
        assert event == {"x": 7}
        client.publish(MappingProxyType({"x": 8}))
        assert first.receive(timeout=60)["x"] == 8
        client.publish({**event, "copy": True}, payload=event.payload)
        assert again.receive(timeout=60).json() == {"felt": 3}
        client.publish(event)
        first.receive(timeout=60)
        assert first.receive(timeout=60).json() == {"felt": 3}
