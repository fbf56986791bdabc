"""weft.testing.broker: a real broker in the same process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from weft.errors import BrokerError, ClientClosedError, WeftError
from weft.testing import broker


def test_it_leaves_no_thread_behind():
    before = threading.active_count()
    with broker() as local, local.connect_sync() as client:
        client.publish({"x": 1})
    assert threading.active_count() == before
    with pytest.raises(BrokerError, match="not running"):
        local.call(lambda node: node)


def test_it_works_in_an_event_loop():
    async def body():
        async with broker() as local, local.connect() as client, client.subscribe("x = 1") as events:
            await client.publish({"x": 1})
            assert (await anext(events))["x"] == 1

    asyncio.run(body())


def test_with_a_directory_a_later_broker_goes_on(tmp_path):
    with broker(tmp_path) as local, local.connect_sync() as client:
        client.subscribe("x > 0", name="alerts").close()
        client.publish({"x": 1})
    with broker(tmp_path) as local, local.connect_sync() as client:
        assert client.subscribe("x > 0", name="alerts").receive(60)["x"] == 1


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    before = threading.active_count()
    with pytest.raises((WeftError, OSError)), broker(tmp_path / "file"):
        pass
    assert threading.active_count() == before


def test_a_broker_that_has_not_started_has_no_address():
    with pytest.raises(BrokerError, match="not running"):
        _ = broker().address


def test_a_kill_is_noticed_and_a_start_is_found():
    with broker() as local, local.connect_sync(name="p") as client:
        client.publish({"x": 1})
        local.kill()
        local.start()
        client.publish({"x": 2}, timeout=60)


def test_threads_that_publish_while_the_client_closes_all_end():
    with broker() as local:
        for _ in range(5):
            outcomes: list[object] = []
            with local.connect_sync() as client:

                def publish(client=client, outcomes=outcomes):
                    try:
                        while True:
                            client.publish({"x": 1})
                    except (BrokerError, ClientClosedError) as error:
                        outcomes.append(error)

                threads = [threading.Thread(target=publish) for _ in range(8)]
                for thread in threads:
                    thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            assert len(outcomes) == 8


def test_lists_are_published_stored_and_received(tmp_path):
    wanted = "tags HAS 'rock' AND tags IS NULL"
    with broker(tmp_path) as local, local.connect_sync() as client:
        client.subscribe(wanted, name="rock").close()
        for number, tags in enumerate((["pop"], ["rock", None, 2.5], "rock", [{"a": 1}], ("live", "rock"))):
            client.publish({"tags": tags, "number": number})
    with broker(tmp_path) as local, local.connect_sync() as client:
        events = client.subscribe(wanted, name="rock")
        assert [events.receive(60).attributes for _ in range(2)] == [
            {"tags": ["rock", 2.5], "number": 1},
            {"tags": ["live", "rock"], "number": 4},
        ]
