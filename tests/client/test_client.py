"""The client on real sockets, against a real broker in the same process."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import threading
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
import trustme

import weft
from server.proxy import Proxy
from server.wire import PATIENCE, make_core, until
from weft.broker import history
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.client.client import Client
from weft.client.connection import Waiter
from weft.client.engine import ClientEngine
from weft.client.events import Receipt
from weft.client.options import connection_policy
from weft.client.subscription_handle import Inbox
from weft.errors import (
    AccessError,
    BrokerError,
    ClientClosedError,
    ConnectError,
    EventError,
    FilterError,
    FilterSyntaxError,
    OptionError,
    PublishError,
    RequestError,
    SessionTakenError,
)
from weft.log.memory import MemoryLog
from weft.protocol.addresses import Address
from weft.protocol.codec import client_messages, encode
from weft.protocol.messages import Bye, Deliver, QueueNumber
from weft.server.node import BrokerNode
from weft.testing import broker


def run(body) -> None:
    async def patient() -> None:
        async with asyncio.timeout(PATIENCE):
            await body()

    asyncio.run(patient())


@asynccontextmanager
async def connected(**options):
    """A broker in memory, and a client of it."""
    async with broker() as local, local.connect(**options) as client:
        yield client


def set_rules(local, rights: Rights) -> None:
    local.call(lambda node: node.set_rules(Rules({"": rights})))


# -- publishing --------------------------------------------------------------------------------------------------


def test_an_event_reaches_whoever_subscribed_with_its_payload():
    async def body():
        async with connected() as client, client.subscribe("magnitude >= 5") as alerts:
            await client.publish({"magnitude": 3.0})
            moment = datetime(2026, 11, 16, tzinfo=UTC)
            given = {
                "magnitude": 6.1,
                "where": {"country": "Chile"},
                "time": moment,
                "seen": moment.replace(tzinfo=None),
            }
            await client.publish(given, payload={"felt": 12})
            event = await anext(alerts)
            assert event.attributes == {"magnitude": 6.1, "where.country": "Chile", "time": moment, "seen": moment}
            assert (event["magnitude"], event.get("depth", 10), "depth" in event) == (6.1, 10, False)
            assert (event.json(), event.datacontenttype, event.attempt) == ({"felt": 12}, "application/json", 1)
            assert abs(event.stored_at - datetime.now(UTC)) < timedelta(minutes=5)

    run(body)


@pytest.mark.parametrize(
    ("payload", "sent", "kind"),
    [
        (None, b"", ""),
        (b"\x00\xff", b"\x00\xff", ""),
        (bytearray(b"ab"), b"ab", ""),
        ("häh", "häh".encode(), "text/plain; charset=utf-8"),
        ([1, None], b"[1,null]", "application/json"),
    ],
)
def test_payloads_are_bytes_text_or_json(payload, sent, kind):
    with broker() as local, local.connect_sync() as client:
        events = client.subscribe("x = 1")
        client.publish(weft.Event({"x": 1}, payload))
        event = next(events)
        assert (event.payload, event.datacontenttype) == (sent, kind)


def test_what_cannot_be_an_event_is_refused_before_it_is_sent():
    with broker() as local, local.connect_sync() as client:
        for event, payload, reason in [
            ({"x": [b"1"]}, None, "'x'"),
            ({"x": 1}, object(), "neither bytes, text nor JSON"),
            ({"x": 1}, b"x" * (1 << 20), "at most 983,040 bytes"),
        ]:
            with pytest.raises(EventError, match=reason):
                client.publish(event, payload=payload)
        with pytest.raises(EventError, match="ttl is the number of seconds"):
            client.publish({"x": 1}, ttl=-1)
        assert local.call(lambda node: node.core.end) == 1


def test_many_events_are_stored_in_order_and_counted():
    many = 2_000  # more than a window of the client or of the broker

    async def body():
        async with connected() as client:
            events = client.subscribe("x >= 0", name="all")
            await events
            assert await client.publish_many({"x": x} for x in range(many)) == many
            seen = []
            async for event in events:
                seen.append(event["x"])
                await event.ack()
                if len(seen) == many:
                    break
            assert seen == list(range(many))

    run(body)


def test_a_refused_event_tells_its_publisher_and_nobody_else():
    async def body():
        async with broker() as local, local.connect() as client:
            set_rules(local, Rights(publish=("x != 3",)))
            outcomes = await asyncio.gather(*(client.publish({"x": x}) for x in range(6)), return_exceptions=True)
            assert [type(each).__name__ for each in outcomes] == ["Receipt"] * 3 + ["PublishError"] + ["Receipt"] * 2
            assert outcomes[3].code == "access"
            with pytest.raises(PublishError, match="event 1: no rule allows this event") as caught:
                await client.publish_many([{"x": 2}, {"x": 3}, {"x": 4}, {"x": 3}])
            assert sorted(caught.value.refused) == [1, 3]
            with pytest.raises(PublishError, match=r"^no rule allows this event") as caught:
                await client.publish_many([{"x": 3}])
            assert sorted(caught.value.refused) == [0]
            assert local.call(lambda node: node.core.end) == 1 + 5 + 2

    run(body)


def test_an_event_among_many_that_cannot_be_one_has_its_position():
    with broker() as local, local.connect_sync() as client:
        with pytest.raises(EventError, match="event 2: ") as caught:
            client.publish_many([{"x": 1}, {"x": 2}, {"x": b""}, {"x": 4}])
        assert caught.value.position == 2
        assert local.call(lambda node: node.core.end) == 3


def test_a_receipt_says_where_the_event_is_stored_in_both_faces():
    async def body():
        async with broker() as local, local.connect(name="p") as client:
            log_id = client.log_id
            assert [await client.publish({"x": x}) for x in range(2)] == [Receipt(log_id, 1), Receipt(log_id, 2)]
            waiting = [client.publish({"x": x}) for x in range(3)]
            assert [each.offset for each in await asyncio.gather(*waiting)] == [3, 4, 5]
            assert await client.publish({"x": 9}, durable=False) == Receipt("", 0)

    run(body)
    with broker() as local, local.connect_sync() as client:
        receipt = client.publish({"x": 1})
        assert receipt == Receipt(client.log_id, 1)
        assert str(receipt) == f"stored at offset 1 of log {receipt.log}"
        events = client.subscribe("x = 2", name="all", since=0)
        assert client.publish({"x": 2}).offset == next(events).offset


def test_an_event_that_is_not_durable_is_delivered_and_not_stored():
    with broker() as local, local.connect_sync() as client:
        events = client.subscribe("x = 1")
        client.publish({"x": 1}, durable=False)
        assert next(events).offset == 0
        assert local.call(lambda node: node.core.end) == 1


# -- subscriptions -----------------------------------------------------------------------------------------------


def test_a_named_subscription_goes_on_where_the_last_one_stopped():
    with broker() as local:
        with local.connect_sync() as client, client.subscribe("x > 0", name="alerts") as alerts:
            client.publish_many({"x": x} for x in range(1, 4))
            for event in alerts:
                event.ack()
                if event["x"] == 2:
                    break
        with local.connect_sync() as client:
            client.publish({"x": 4})
            alerts = client.subscribe("x > 0", name="alerts")
            assert [(event["x"], event.attempt) for event in (next(alerts), next(alerts))] == [(3, 2), (4, 1)]


def test_a_filter_is_replaced_and_a_subscription_ends_for_good():
    async def body():
        async with connected() as client:
            alerts = await client.subscribe("x > 0", name="alerts")
            await alerts.complete()
            await alerts.replace(weft.F.x > 10)
            await client.publish_many([{"x": 5}, {"x": 15}])
            assert (await anext(alerts))["x"] == 15
            await alerts.unsubscribe()
            with pytest.raises(StopAsyncIteration):
                await anext(alerts)
            again = await client.subscribe("x > 0", name="alerts")
            await client.publish({"x": 1})
            event = await anext(again)
            assert (event["x"], event.attempt) == (1, 1)

    run(body)


def test_a_wrong_filter_or_option_is_refused_where_it_is_written():
    async def body():
        async with connected() as client:
            with pytest.raises(FilterSyntaxError):
                client.subscribe("x >")
            with pytest.raises(OptionError, match="needs a name"):
                client.subscribe("x > 1", shared=True)
            with pytest.raises(OptionError, match="an offset or a datetime"):
                client.subscribe("x > 1", since="yesterday")
            alerts = await client.subscribe("x > 0", name="alerts")
            with pytest.raises(OptionError, match="already subscribed as 'alerts'"):
                await client.subscribe("x > 1", name="alerts")
            await alerts.close()
        async with connected(name="p") as client:
            with pytest.raises(OptionError, match="itself is known as 'p'"):
                await client.subscribe("x > 1", name="p")

    run(body)


def test_a_subscription_that_no_rule_covers_is_refused_and_a_revoked_one_ends():
    async def body():
        async with broker() as local, local.connect() as client:
            events = await client.subscribe("x > 3")
            set_rules(local, Rights(subscribe=("x > 5",)))
            with pytest.raises(AccessError):
                await anext(events)
            with pytest.raises(AccessError, match="nearest rule is x > 5"):
                await client.subscribe("x > 4", name="alerts")
            await client.subscribe("x > 6", name="alerts")

    run(body)


def test_those_who_share_a_name_share_the_events():
    with broker() as local, local.connect_sync() as one, local.connect_sync() as two:
        first = one.subscribe("x >= 0", name="work", shared=True)
        second = two.subscribe("x >= 0", name="work", shared=True)
        one.publish_many({"x": x} for x in range(10))
        mine = [first.receive(PATIENCE)["x"] for _ in range(5)]
        yours = [second.receive(PATIENCE)["x"] for _ in range(5)]
        assert sorted(mine + yours) == list(range(10))
        first.close()  # what it had not acknowledged goes to the other
        assert sorted(second.receive(PATIENCE)["x"] for _ in range(5)) == sorted(mine)


@pytest.mark.parametrize("name", ["", "replay"])
def test_older_events_come_first(name):
    with broker() as local, local.connect_sync() as client:
        client.publish_many({"x": x} for x in range(3))
        between = datetime.now(UTC)
        client.publish({"x": 3})
        events = client.subscribe("x >= 0", since=2, name=name)
        client.publish({"x": 4})
        seen = []
        for _ in range(4):
            event = events.receive(PATIENCE)
            event.ack()
            seen.append(event["x"])
        assert seen == [1, 2, 3, 4]
        later = client.subscribe("x >= 0", since=between)
        assert [later.receive(PATIENCE)["x"] for _ in range(2)] == [3, 4]
        later.close()


def test_history_is_read_without_subscribing(monkeypatch):
    monkeypatch.setattr(history, "MOST_EVENTS", 30)
    monkeypatch.setattr(history, "MOST_TESTED", 30)

    async def body():
        async with broker() as local, local.connect() as client:
            await client.publish_many({"x": x} for x in range(100))
            found = [event async for event in client.history()]
            assert [(event.offset, event["x"]) for event in found] == [(x + 1, x) for x in range(100)]
            assert [event["x"] async for event in client.history("x >= 50", first=40, end=54)] == [50, 51, 52]
            assert (await client.read_history(1)).next == 31
            assert (await client.status()).subscriptions == 0
            with pytest.raises(OptionError, match="is not an offset"):
                await client.read_history(-1)
            with pytest.raises(FilterError):
                [event async for event in client.history("x >")]
            set_rules(local, Rights(further=frozenset()))
            with pytest.raises(AccessError, match="the right 'history'"):
                await client.read_history(1)

    run(body)


def test_a_broker_without_history_is_not_sent_the_request(monkeypatch):
    monkeypatch.setattr("weft.broker.hello.NEWEST", 2)
    with broker() as local, local.connect_sync() as client:
        with pytest.raises(RequestError, match="an older version of Weft, which cannot read history; update it"):
            [*client.history()]
        client.publish({"x": 1})  # it goes on


def test_a_failed_event_comes_again_and_then_becomes_a_dead_letter():
    limits = ClientLimits(backoff=1_000, failures=2)
    with broker(limits=limits) as local, local.connect_sync() as client:
        events = client.subscribe("x > 0", name="alerts")
        client.publish_many([{"x": 1}, {"x": 2}])
        seen = []
        while len(seen) < 3:
            event = events.receive(PATIENCE)
            seen.append((event["x"], event.attempt))
            if event["x"] == 1:
                event.nack("no such place")
        assert seen[:2] == [(1, 1), (1, 2)]
        assert seen[2][0] == 2
        (letter,) = events.dead_letters.list()
        assert (letter.attributes, letter.reason, letter.failures) == ({"x": 1}, "no such place", 2)
        assert events.dead_letters.redeliver(letter.offset) == [letter.offset]
        event = events.receive(PATIENCE)
        assert event["x"] == 1
        event.nack("again")
        assert events.dead_letters.discard(letter.offset) == [letter.offset]
        assert events.dead_letters.list() == []


def test_a_loop_that_is_left_or_cancelled_releases_its_subscription():
    async def body():
        async with connected() as client:
            await client.subscribe("x >= 0", name="alerts")  # it stays at the broker
            seen, tasks = [], []

            async def consume(most):
                async for event in client.subscribe("x >= 0", name="alerts"):
                    await event.ack()
                    seen.append(event["x"])
                    if len(seen) == most:
                        break

            for x in range(3):
                await client.publish({"x": 2 * x})
                await consume(2 * x + 1)
                tasks.append(asyncio.create_task(consume(0)))  # whoever holds a task holds its traceback
                await client.publish({"x": 2 * x + 1})
                await until(lambda most=2 * x + 1: len(seen) > most)
                tasks[-1].cancel()
                with pytest.raises(asyncio.CancelledError):
                    await tasks[-1]
            assert seen == list(range(6))
            async with asyncio.timeout(PATIENCE):
                while (await client.status()).connections > 1:
                    await asyncio.sleep(0.01)

    run(body)


def test_a_loop_without_asyncio_that_is_left_releases_its_subscription():
    with broker() as local, local.connect_sync() as client:
        for x in range(3):
            client.publish({"x": x})
            for event in client.subscribe("x >= 0", name="alerts", since=0):
                event.ack()
                break
            assert event["x"] == x


def test_an_event_of_a_subscription_that_nobody_holds_is_awaited():
    async def body():
        async with connected() as client:
            waiting = asyncio.create_task(anext(client.subscribe("x > 0", name="alerts", since=0)))
            await client.publish({"x": 1})
            assert (await waiting)["x"] == 1

    run(body)


def test_several_threads_and_tasks_wait_for_the_events_of_one_subscription():
    with broker() as local, local.connect_sync() as client, client.subscribe("x > 0") as events:
        got = []
        threads = [threading.Thread(target=lambda: got.append(events.receive(PATIENCE)["x"])) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert client.publish_many({"x": x} for x in (1, 2, 3)) == 3
        for thread in threads:
            thread.join()
        assert sorted(got) == [1, 2, 3]

    async def body():
        async with connected() as client, client.subscribe("x > 0") as events:
            waiting = [asyncio.create_task(anext(events)) for _ in range(4)]
            await asyncio.sleep(0)
            waiting.pop(1).cancel()
            await client.publish_many({"x": x} for x in (1, 2, 3))
            assert sorted(event["x"] for event in await asyncio.gather(*waiting)) == [1, 2, 3]

    run(body)


def test_whoever_waits_for_an_inbox_is_woken_and_whoever_gave_up_is_forgotten():
    inbox = Inbox(durable=False, ordered=True, most=10, most_bytes=100, decided=lambda _: None)
    first, second, gone = Waiter(), Waiter(), Waiter()
    assert all(inbox.wait(each) for each in (first, second, gone))
    inbox.give_up(gone)
    inbox.put([Deliver(QueueNumber(2), 1, 1, 0, b"", b"", b"")])
    assert [each.is_done for each in (first, second, gone)] == [True, True, False]
    assert not inbox.wait(first)


def test_a_newer_client_takes_a_name_over():
    async def body():
        async with broker() as local, local.connect() as one, local.connect() as two:
            older = await one.subscribe("x > 0", name="alerts")
            newer = await two.subscribe("x > 0", name="alerts")
            with pytest.raises(SessionTakenError, match="'alerts'"):
                await anext(older)
            await one.publish({"x": 1})
            assert (await anext(newer))["x"] == 1

    run(body)


def test_a_slow_application_without_a_name_loses_the_oldest_events_and_knows():
    with broker() as local, local.connect_sync() as client:
        events = client.subscribe("x >= 0", lag=10)
        client.publish_many({"x": x} for x in range(100))
        while len(events._handle.inbox) + events.dropped < 100:
            time.sleep(0.001)
        assert (events.dropped, next(events)["x"]) == (90, 90)


# -- connections -------------------------------------------------------------------------------------------------


def test_a_broker_that_restarts_is_found_again_and_nothing_is_lost(tmp_path):
    async def body():
        async with broker(tmp_path / "data") as local, local.connect(name="publisher") as client:
            events = await client.subscribe("x >= 0", name="all")
            seen: list[int] = []

            async def read() -> None:
                async for event in events:
                    seen.append(event["x"])
                    await event.ack()
                    if event["x"] == 299:
                        return

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(read())
                for part in range(3):
                    sending = tasks.create_task(
                        client.publish_many({"x": x} for x in range(100 * part, 100 * part + 100))
                    )
                    if part < 2:
                        await asyncio.to_thread(local.kill if part else local.stop)
                        await asyncio.to_thread(local.start)
                    await sending
            assert sorted(set(seen)) == list(range(300))
            assert local.call(lambda node: node.core.end) == 301

    run(body)


@pytest.mark.parametrize("seed", range(4))
def test_cuts_of_the_stream_lose_nothing_repeat_nothing_and_keep_the_order(seed):
    async def body():
        rng = Random(seed)
        limits = ClientLimits(window_events=50, backoff=1_000, failures=1_000, idle=2_000_000)
        async with broker(limits=limits) as local, Proxy(local.address, rng) as proxy:
            async with (
                weft.connect(proxy.address, name="publisher") as client,
                weft.connect(proxy.address) as other,
                other.subscribe("x >= 0", name="all") as events,
            ):
                total, acked, first = 3_000, set(), []
                sending = asyncio.create_task(client.publish_many({"x": x, "pad": "." * 20} for x in range(total)))
                async for event in events:
                    x = event["x"]
                    assert x not in acked, "an acknowledged event returned"
                    if x not in first:
                        assert not first or x == first[-1] + 1, "out of order"
                        first.append(x)
                    else:
                        assert event.attempt > 1
                    if rng.random() < 0.01:
                        await event.nack("not now")
                        continue
                    if rng.random() < 0.01:
                        await asyncio.sleep(0.001)
                    await event.ack()
                    acked.add(x)
                    if len(acked) == total:
                        break
                assert await sending == total
                assert proxy.cuts > 3
                proxy.cutting = False
            assert local.call(lambda node: node.core.end) == total + 1

    run(body)


def test_heartbeats_go_on_while_the_application_blocks():
    async def body():
        async with broker(limits=ClientLimits(idle=1_000_000)) as local, local.connect() as client:
            events = await client.subscribe("x = 1")
            before = local.call(lambda node: node.counts["connections"])
            time.sleep(2)  # the application's loop does nothing
            await client.publish({"x": 1})
            assert (await anext(events))["x"] == 1
            assert local.call(lambda node: node.counts["connections"]) == before

    run(body)


def test_a_connection_over_which_nothing_comes_is_given_up():
    async def body():
        async with broker() as local, Proxy(local.address, Random(1)) as proxy:
            proxy.cutting = False
            async with weft.connect(proxy.address, name="p", heartbeat=0.1) as client:
                await client.publish({"x": 1})
                proxy.freeze()
                await client.publish({"x": 2})
            assert local.call(lambda node: node.core.end) == 3

    run(body)


def test_a_bounded_number_of_events_waits_for_a_broker_that_is_away(tmp_path):
    async def body():
        async with broker(tmp_path / "data") as local:
            options = connection_policy(local.address, None, None, None, None, 10.0, 10.0, None)
            async with Client(ClientEngine(options, "p", most_events=10)) as client:
                await client.publish({"x": 0})
                await asyncio.to_thread(local.stop)
                drawn = []

                def events():
                    for x in range(1, 101):
                        drawn.append(x)
                        yield {"x": x}

                sending = asyncio.create_task(client.publish_many(events()))
                while len(drawn) < 11:
                    await asyncio.sleep(0)
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert len(drawn) == 11
                assert client._engine._waiting == 10
                await asyncio.to_thread(local.start)
                assert await sending == 100
            assert local.call(lambda node: node.core.end) == 102

    run(body)


def test_several_addresses_are_tried_in_turn():
    with broker() as local, weft.connect_sync(["weft://127.0.0.1:1", local.address]) as client:
        client.publish({"x": 1})
        assert client.address == local.address


def test_a_broker_that_is_not_there_is_named():
    with (
        pytest.raises(ConnectError, match=r"no broker at weft://127.0.0.1:1: .*`weft serve`"),
        weft.connect_sync("weft://127.0.0.1:1"),
    ):
        pass
    with pytest.raises(OptionError, match="weft://"):
        weft.connect("http://example.org")


def test_something_that_is_no_broker_is_noticed():
    async def body():
        async def answer(reader, writer):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match="does not speak Weft's protocol"):
            async with weft.connect(f"weft://127.0.0.1:{port}"):
                pass
        server.close()

    run(body)


@asynccontextmanager
async def redirecting(target: str):
    """The address of a broker that sends everybody elsewhere."""

    async def answer(reader, writer):
        messages = client_messages()
        while not messages.feed(await reader.read(1000)):
            pass
        writer.write(encode([Bye("moved", target)]))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"weft://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


def test_a_redirect_is_followed():
    async def body():
        async with broker() as local, redirecting(local.address) as first, weft.connect(first, name="p") as client:
            await client.publish({"x": 1})
            assert client.address == local.address

    run(body)


def test_a_redirect_to_nowhere_is_an_error():
    async def body():
        async with redirecting("http://elsewhere") as first:
            with pytest.raises(ConnectError, match="cannot be reached"):
                async with weft.connect(first, name="p"):
                    pass
        async with redirecting("weft://127.0.0.1:1") as first:
            with pytest.raises(ConnectError, match=r"no broker at weft://127\.0\.0\.1:1"):
                async with weft.connect(first, name="p"):
                    pass

    run(body)


# -- leaving -----------------------------------------------------------------------------------------------------


def test_a_closed_client_says_so():
    async def body():
        async with broker() as local:
            client = local.connect()
            with pytest.raises(ClientClosedError, match="not connected"):
                await client.publish({"x": 1})
            async with client:
                events = await client.subscribe("x > 0")
            with pytest.raises(ClientClosedError):
                await client.publish({"x": 1})
            with pytest.raises(ClientClosedError):
                await client.subscribe("x > 0")
            with pytest.raises(StopAsyncIteration):
                await anext(events)
            for _ in range(2):
                with pytest.raises(ClientClosedError):
                    await events.replace("x > 1")
            with pytest.raises(ClientClosedError, match="connect only once"):
                async with client:
                    pass

    run(body)


def test_an_event_that_waits_when_the_client_ends_is_reported_as_unknown():
    async def body():
        async with broker() as local:
            async with local.connect() as client:
                await client.publish({"x": 1})
                await asyncio.to_thread(local.stop)
                waiting = asyncio.create_task(client.publish({"x": 2}))
                await asyncio.sleep(0)
            with pytest.raises(BrokerError, match="unknown whether the event is stored"):
                await waiting

    run(body)


def test_a_broker_that_does_not_come_back_is_given_up():
    with broker() as local, local.connect_sync(retry_for=0.2) as client:
        events = client.subscribe("x = 1")
        local.stop()
        with pytest.raises(BrokerError):
            client.publish({"x": 1})
        with pytest.raises(ConnectError):
            next(events)


async def nobody_at(local) -> None:
    """The broker has noticed that everybody is gone."""
    await until(lambda: not local.call(lambda node: node.connections or node._leaving))


def left_over() -> tuple[int, int]:
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux has them")
def test_cancelled_calls_leave_nothing_behind():
    async def calls(local, rng):
        async with local.connect() as client:
            events = await client.subscribe("x >= 0", name=f"n{rng.randrange(3)}")
            tasks = [
                asyncio.create_task(client.publish({"x": 1})),
                asyncio.create_task(client.publish_many({"x": x} for x in range(500))),
                asyncio.create_task(anext(events)),
                asyncio.create_task(anext(client.subscribe("x < 0"))),
                asyncio.create_task(events.replace("x >= 1")),
                asyncio.create_task(client.subscribe("x > 5").complete()),
            ]
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.publish({"x": 2})  # it still works

    async def body():
        async with broker() as local:
            rng = Random(1)
            await calls(local, rng)
            await nobody_at(local)
            before = left_over(), len(asyncio.all_tasks())
            for _ in range(20):
                await calls(local, rng)
            await nobody_at(local)
            assert (left_over(), len(asyncio.all_tasks())) == before

    run(body)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux has them")
def test_a_connection_that_is_cancelled_leaves_nothing_behind():
    async def body():
        async with broker() as local:
            before = left_over()
            for wait in range(20):
                task = asyncio.create_task(local.connect().__aenter__())
                for _ in range(wait % 5):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    client = await task
                except asyncio.CancelledError:
                    continue
                await client.close()  # it was quicker than the cancellation
            await until(lambda: left_over() == before)  # the broker notices a little later

    run(body)


def test_what_cannot_be_sent_is_refused_before_it_harms_the_connection():
    with broker(limits=ClientLimits(backoff=1_000)) as local, local.connect_sync() as client:
        for wrong in (
            lambda: client.subscribe("x = 1", name="n" * 257),
            lambda: client.subscribe("x = 1", name="\ud800"),
            lambda: client.subscribe("x = 1", since=1 << 63),
            lambda: client.subscribe("x = 1", lag=-1),
            lambda: client.dead_letters.redeliver(-1, name="n"),
            lambda: client.dead_letters.list("n", after=-1),
            lambda: weft.connect(name="\ud800"),
        ):
            with pytest.raises(OptionError):
                wrong()
        with pytest.raises(EventError, match="datacontenttype"):
            client.publish({"x": 1}, payload=b"", datacontenttype="\ud800")
        events = client.subscribe("x = 1", name="n")
        client.publish({"x": 1})
        events.receive(PATIENCE).nack("\ud800" * 5_000_000)  # a reason that no frame holds
        assert events.receive(PATIENCE).attempt == 2
        assert client.dead_letters.discard(*range(1, 2_500), name="n") == []


def test_a_failure_of_the_client_itself_ends_it_and_is_told():
    with broker() as local, local.connect_sync() as client:
        events = client.subscribe("x = 1")
        client._engine._main.post(lambda: 1 / 0)
        with pytest.raises(ConnectError, match="ZeroDivisionError"):
            events.receive(PATIENCE)
        with pytest.raises(BrokerError, match="ZeroDivisionError"):
            client.publish({"x": 1})


def test_closing_may_be_cancelled():
    async def body():
        async with broker() as local:
            before = left_over()
            client = local.connect()
            await client.__aenter__()
            await client.subscribe("x = 1", name="n")
            closing = asyncio.create_task(client.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await until(lambda: left_over() == before)  # the broker notices a little later

    run(body)


# -- TLS ---------------------------------------------------------------------------------------------------------


def test_an_encrypted_broker_is_trusted_by_its_authority(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    async def body():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "broker.pem")
        log = MemoryLog("a")
        async with BrokerNode(make_core(log), log) as node:
            address = str(await node.listen(Address.parse("weft+tls://localhost:0"), context))
            async with weft.connect(address, ca=str(tmp_path / "ca.pem")) as client:
                await client.publish({"x": 1})
            with pytest.raises(ConnectError, match="cannot be trusted"):
                async with weft.connect(address):
                    pass

    run(body)


def test_an_address_with_tls_where_there_is_none_and_the_other_way_round_says_so():
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)

    async def alert(reader, writer):  # what most TLS servers answer to plain text
        await reader.read(1)
        writer.write(b"\x15\x03\x01\x00\x02\x02\x46")
        writer.close()

    async def refusal(address):
        with pytest.raises(ConnectError) as caught:
            async with weft.connect(address):
                pass
        return str(caught.value)

    async def body():
        log = MemoryLog("a")
        async with BrokerNode(make_core(log), log) as node:
            plain = f"localhost:{(await node.listen(Address(port=0))).port}"
            assert await refusal(f"weft+tls://{plain}") == (
                f"weft+tls://{plain} does not use TLS; check the port, or connect to weft://{plain} without encryption"
            )
            secret = f"localhost:{(await node.listen(Address('weft+tls', port=0), context)).port}"
            assert await refusal(f"weft://{secret}") == (
                f"weft://{secret} closed the connection without an answer; if it uses TLS, connect to weft+tls://{secret}"
            )
        server = await asyncio.start_server(alert, "localhost", 0)
        address = f"localhost:{server.sockets[0].getsockname()[1]}"
        assert await refusal(f"weft://{address}") == (
            f"weft://{address} does not speak Weft's protocol: it uses TLS; connect to weft+tls://{address}"
        )
        server.close()

    run(body)


def test_a_filter_may_be_anything_that_is_one_elsewhere():
    with broker() as local, local.connect_sync() as client:
        for given in ("x = 1", weft.F.x == 1, {"exact": {"x": 1}}, '{"exact": {"x": 1}}'):
            with client.subscribe(given) as found:
                client.publish({"x": 1})
                assert found.receive(timeout=60)["x"] == 1
        for wrong in (None, 5, object()):
            with pytest.raises(FilterError, match="is not a filter"):
                client.subscribe(wrong)


def test_a_request_that_the_broker_refuses_has_a_code():
    with broker() as local, local.connect_sync() as client:
        work = client.subscribe("x = 1", name="work", shared=True)
        with pytest.raises(FilterError, match="another filter"):
            client.subscribe("x = 2", name="work", shared=True)
        with pytest.raises(RequestError, match="cannot be replaced") as caught:
            work.replace("x = 2")
        assert caught.value.code == "share"


def test_the_status_of_the_broker_is_a_value_for_those_who_may_read_it():
    async def body():
        async with broker() as local, local.connect() as client:
            _alerts = await client.subscribe("x > 0", name="alerts")
            await client.publish_many({"x": x} for x in range(5))
            one, few = await asyncio.gather(client.status(), client.status(queues=0))
            assert (one.end - one.first, one.connections, one.sessions) == (5, 2, 2)
            assert [(each.session, each.subscriptions) for each in one.furthest] == [("alerts", 1)]
            assert few.furthest == ()
            with pytest.raises(OptionError, match="a number of queues"):
                await client.status(queues=-1)
            set_rules(local, Rights(further=frozenset()))
            with pytest.raises(AccessError, match="status"):
                await client.status()
            await client.publish({"x": 1})  # it still works

    run(body)


def test_a_request_whose_answer_was_lost_is_made_again(tmp_path):
    with broker(tmp_path / "data") as local, local.connect_sync() as client:
        local.stop()
        answers = []
        asking = threading.Thread(target=lambda: answers.append(client.status(timeout=PATIENCE).end))
        asking.start()
        local.start()
        asking.join()
        assert answers == [1]


def test_dead_letters_are_named_by_the_client_and_not_by_a_subscription():
    with broker() as local, local.connect_sync() as client, client.subscribe("x > 0", name="alerts") as alerts:
        with pytest.raises(OptionError, match="name the subscription"):
            client.dead_letters.list()
        with pytest.raises(OptionError, match=r"use client\.dead_letters"):
            alerts.dead_letters.discard(1, name="other")
