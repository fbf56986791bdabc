"""The gateway before a real broker: publish, streams, subscriptions, pull, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.gateway_lab import BATCH, CLOUD, JSON, PATIENCE, event, http, publish, stream
from weft.errors import BrokerError
from weft.gateway.process import GatewayOptions, running_gateway
from weft.server.config import BrokerConfig, GatewayConfig, LinkConfig
from weft.server.log_lines import LogLines
from weft.testing import broker


@asynccontextmanager
async def gateway_of(local):
    """A gateway of its own before a broker."""
    options = GatewayOptions(GatewayConfig("127.0.0.1:0"), (local.address,))
    async with (
        running_gateway(options, LogLines(level="error")) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=PATIENCE, trust_env=False) as web,
    ):
        yield web


def run(test):
    async def main():
        async with broker(gateway=True) as local, http(local) as web:
            await asyncio.wait_for(test(local, web), 2 * PATIENCE)

    asyncio.run(main())


# -- events --------------------------------------------------------------------------------------------------


def test_published_events_come_back_through_every_kind_of_stream():
    async def test(local, web):
        async with stream(web, "/events?where=n>=2") as live, local.connect() as python:
            lines = web.stream("GET", "/events?where=n>=2", headers={"accept": "application/x-ndjson"})
            async with lines as answer, python.subscribe("n >= 2") as expected:
                assert answer.headers["content-type"].startswith("application/x-ndjson")
                await publish(web, event(1), event(2, data={"a": [1.5]}), event(3, magnitude=6.1))
                got = [await live.next() for _ in range(2)]
                assert got[0]["data"] == event(2, data={"a": [1.5]})
                assert got[1]["data"] == event(3, magnitude="6.1", weftdata='{"magnitude":"float"}')
                found = []
                async for line in answer.aiter_lines():
                    if line:
                        found.append(json.loads(line))
                    if len(found) == 2:
                        break
                assert [each.pop("weftid") for each in found] == [each["id"] for each in got]
                assert found == [each["data"] for each in got]
                assert [(await anext(expected)).offset for _ in got] == [int(each["id"].split(".")[1]) for each in got]

    run(test)


def test_what_a_python_client_publishes_is_a_cloudevent():
    async def test(local, web):
        async with stream(web, "/events") as live, local.connect() as python:
            await python.publish({"magnitude": 6.1, "geo": {"lat": 1.5}}, payload="felt")
            found = await live.next()
            data = found["data"]
            assert data["id"] == found["id"]
            assert (data["magnitude"], data["geolat"], data["data"]) == ("6.1", "1.5", "felt")
            assert json.loads(data["weftdata"])["geolat"] == "float geo.lat"

    run(test)


def test_an_event_in_binary_mode():
    async def test(local, web):
        headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-place": "K%C3%B6ln"}
        async with stream(web, "/events?where=place='K\u00f6ln'") as live:
            answer = await web.post("/events", content=b"\x01\x02", headers={**headers, "content-type": "image/png"})
            assert (answer.status_code, answer.content) == (202, b"")
            assert (await live.next())["data"]["data_base64"] == "AQI="

    run(test)


def test_the_answer_to_one_event_has_its_offset():
    async def test(local, web):
        async with stream(web, "/events") as live, local.connect() as python:
            assert (await python.publish({"n": 1})).offset == 1
            answers = await asyncio.gather(*(web.post("/events", json=event(n), headers=CLOUD) for n in range(2, 22)))
            offsets = {int(each.headers["weft-offset"]): n for n, each in enumerate(answers, 2)}
            assert sorted(offsets) == list(range(2, 22))
            found = [await live.next() for _ in range(21)]
            assert {int(each["id"].partition(".")[2]): each["data"]["n"] for each in found} == {1: 1, **offsets}
            quick = await web.post("/events?durable=false", json=event(1), headers=CLOUD)
            assert "weft-offset" not in quick.headers

    run(test)


def test_events_that_are_not_durable_have_no_id_and_one_may_expire():
    async def test(local, web):
        async with stream(web, "/events") as live:
            assert (await web.post("/events?durable=false", json=event(1), headers=CLOUD)).status_code == 202
            assert (await web.post("/events?ttl=60", json=event(2), headers=CLOUD)).status_code == 202
            first, second = await live.next(), await live.next()
            assert ("id" in first, first["data"]["n"], "id" in second) == (False, 1, True)

    run(test)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "said"),
    [
        ("/events", event(1), JSON, 415, "not a CloudEvent"),
        ("/events", "{", CLOUD, 400, "must be JSON"),
        ("/events", [event(1), {"id": "x"}], BATCH, 400, "1 of 2 events cannot be read"),
        ("/events", [event(n) for n in range(1_001)], BATCH, 413, "at most 1,000"),
        ("/events", event(1, data="x" * 2_000_000), CLOUD, 400, "bytes"),
        ("/events", event(1), {**CLOUD, "content-encoding": "gzip"}, 415, "compressed"),
        ("/events?durable=maybe", event(1), CLOUD, 400, "durable is true or false"),
        ("/events?ttl=-1", event(1), CLOUD, 400, "ttl"),
        ("/events?dureble=true", event(1), CLOUD, 400, "did you mean 'durable'"),
        ("/events?ttl=1&ttl=2", event(1), CLOUD, 400, "comes twice"),
        ("/filters/check", {"filter": "magnitude => 5"}, JSON, 400, "unknown operator '=>' at column 11"),
        ("/filters/check", {"filtre": "x > 5"}, JSON, 422, "filtre"),
        ("/filters/check", "{", JSON, 400, "not JSON"),
        ("/filters/check", {"filter": "x > 5"}, CLOUD, 415, "Content-Type: application/json"),
        ("/nowhere", {}, JSON, 404, "no such resource"),
        ("/health", {}, JSON, 405, "POST is not possible here"),
        ("/subscriptions", {"sink": "https://example.com"}, JSON, 422, "does not deliver to a sink"),
        ("/subscriptions", {"protocol": "HTTP"}, JSON, 422, "the protocol is PULL"),
        ("/subscriptions", {"id": "mine"}, JSON, 422, "choose one with PUT"),
        ("/subscriptions", {"filters": [{"sql": "x >"}]}, JSON, 400, ""),
        ("/subscriptions/none/pull", {}, JSON, 404, "no such subscription"),
    ],
)
def test_what_cannot_be_done_is_a_problem(path, body, headers, status, said):
    async def test(local, web):
        content = body if isinstance(body, str) else json.dumps(body)
        answer = await web.post(path, content=content, headers=headers)
        problem = answer.json()
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert said in problem["detail"]
        assert problem["status"] == status
        assert problem["type"].startswith("/problems/")
        assert (await web.get("/health")).json() == {"ready": True}

    run(test)


def test_a_problem_points_at_the_mistake():
    async def test(local, web):
        answer = await web.get("/events", params={"where": "magnitude => 5"})
        problem = answer.json()
        shown = {name: problem[name] for name in ("text", "column", "length", "hint", "title")}
        assert shown == {
            "text": "magnitude => 5",
            "column": 11,
            "length": 2,
            "hint": "did you mean '>='?",
            "title": "The filter cannot be read",
        }

    run(test)


def test_a_body_beyond_the_limit_is_refused_before_and_while_it_is_read():
    async def test(local, web):
        async def endless():
            for _ in range(10):
                yield b"x" * (1 << 20)

        answer = await web.post("/events", content=b"x" * (9 << 20), headers=CLOUD)
        assert (answer.status_code, answer.json()["limit"]) == (413, 8 << 20)
        answer = await web.post("/events", content=endless(), headers=CLOUD)
        assert answer.status_code == 413

    run(test)


# -- streams -------------------------------------------------------------------------------------------------


def test_a_stream_goes_on_after_the_last_event_that_was_read():
    async def test(local, web):
        async with stream(web, "/events?where=n>0") as live:
            await publish(web, *(event(n) for n in range(1, 6)))
            assert await live.numbers(3) == [1, 2, 3]
            last = live.last_id
        await publish(web, event(6), event(0))
        for n, options in enumerate(
            ({"headers": {"last-event-id": last}}, {"params": {"where": "n>0", "after": last}})
        ):
            async with stream(web, "/events?where=n>0", "", **options) as again:
                assert await again.numbers(3 + n) == [4, 5, 6, 7][: 3 + n]
                await publish(web, event(7 + n))
                assert await again.numbers(1) == [7 + n]

    run(test)


def test_a_stream_begins_with_older_events():
    async def test(local, web):
        await publish(web, *(event(n) for n in range(1, 2_501)[:1000]))
        async with stream(web, "/events?where=n>=998&since=0", "") as live:
            assert await live.numbers(3) == [998, 999, 1000]
        async with local.connect() as python:
            page = await python.read_history(501)
            when = page.events[0].at
        from weft.model.value import format_timestamp

        async with stream(web, f"/events?since={format_timestamp(when)}", "") as live:
            assert (await live.numbers(1))[0] <= 501
        async with stream(web, "/events?where=n>=1000&since=9999-01-01", "") as live:
            await publish(web, event(1001))
            assert await live.numbers(1) == [1001]

    run(test)


@pytest.mark.parametrize(("last", "reason"), [("00000000.1", "another log"), ("LOG.999", "another log"), ("LOG.0", "")])
def test_what_cannot_be_read_again_is_a_gap(last, reason):
    async def test(local, web):
        await publish(web, event(1))
        async with local.connect() as python:
            log = python.log_id[:8]
        headers = {"last-event-id": last.replace("LOG", log)}
        async with stream(web, "/events", "", headers=headers) as live:
            if reason:
                found = await live.next()
                assert found["event"] == "gap"
                assert reason in found["data"]["reason"]
                await live.until("complete")
                await publish(web, event(2))
                assert await live.numbers(1) == [2]
            else:
                assert await live.numbers(1) == [1]

    run(test)


def test_an_id_that_is_none_is_refused():
    async def test(local, web):
        answer = await web.get("/events", headers={"last-event-id": "x"})
        assert answer.status_code == 400
        answer = await web.get("/events", headers={"accept": "image/png"})
        assert answer.status_code == 406

    run(test)


def test_streams_of_one_filter_share_a_subscription_at_the_broker():
    async def test(local, web):
        async with stream(web, "/events?where=n>0") as one, stream(web, "/events?where=n>0") as two:
            async with local.connect() as python:
                assert (await python.status()).subscriptions == 1
            await publish(web, event(1))
            assert await one.numbers(1) == await two.numbers(1) == [1]
        async with local.connect() as python:
            while (await python.status()).subscriptions:
                await asyncio.sleep(0.01)

    run(test)


def test_a_stream_that_begins_while_the_last_of_its_kind_ends_is_alive():
    from weft.gateway.clients import PrincipalClient
    from weft.gateway.feeds import StreamReader

    async def test(local, web):
        async with local.connect() as python:
            client = PrincipalClient(python, "", None, patience=0)
            readers = [StreamReader("text/event-stream") for _ in range(20)]
            feeds = [await client.feed("n > 0", readers[0])]
            for before, reader in itertools.pairwise(readers):
                beginning = asyncio.create_task(client.feed("n > 0", reader))
                if len(feeds) % 3:
                    await asyncio.sleep(0)
                feeds[-1].remove(before)
                feeds.append(await beginning)
                assert not feeds[-1].is_over
                await python.publish({"n": len(feeds)})
                assert await asyncio.wait_for(reader.wait(), PATIENCE)
            feeds[-1].remove(readers[-1])
            assert not client.feeds

    run(test)


def test_a_stream_survives_a_restart_of_the_broker(tmp_path):
    async def main():
        async with (
            broker(data=tmp_path / "data") as local,
            gateway_of(local) as web,
            stream(web, "/events?where=n>0") as live,
        ):
            await publish(web, event(1))
            assert await live.numbers(1) == [1]
            for n in range(2, 8, 2):
                with contextlib.suppress(BrokerError):
                    await asyncio.to_thread(local.kill if n == 4 else local.stop)
                await asyncio.to_thread(local.start)
                async with local.connect() as python:  # perhaps before the gateway is back
                    await python.publish_many([{"n": n}, {"n": n + 1}])
                found = [(await live.next())["data"] for _ in range(2)]
                assert [each["n"] for each in found] == [n, n + 1]

    asyncio.run(main())


@asynccontextmanager
async def two_brokers(tmp_path):
    """Two linked brokers, and a gateway at the first one."""
    ends = LinkConfig("")
    async with broker(tmp_path / "a", config=BrokerConfig(name="a", links={"b": ends})) as a:
        there = BrokerConfig(name="b", links={"a": LinkConfig(a.address)})
        async with broker(config=there) as b, gateway_of(a) as web, b.connect() as far:
            while not all(each.synced for each in (await far.overlay())[0].links):
                await asyncio.sleep(0.01)
            yield a, far, web


def test_a_reader_that_comes_back_soon_has_missed_nothing_of_other_brokers(tmp_path):
    async def main():
        async with two_brokers(tmp_path) as (_, far, web):
            async with stream(web, "/events?where=n>0") as live:
                await far.publish_many([{"n": 1}, {"n": 2}])
                assert await live.numbers(2) == [1, 2]
            await far.publish_many([{"n": 3}, {"n": 4}])
            last = {"last-event-id": live.last_id}
            async with stream(web, "/events?where=n>0", wait="", headers=last) as live:
                assert await live.numbers(2) == [3, 4]

    asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))


def test_the_status_of_a_subscription_says_for_whom_it_waits(tmp_path):
    async def main():
        ends = BrokerConfig(name="a", links={"b": LinkConfig("")})  # b is not there yet
        async with broker(tmp_path / "a", config=ends) as a:
            async with gateway_of(a) as web:
                made = (await web.put("/subscriptions/s", json={})).json()["status"]
                assert (made["state"], made["waiting_for"]) == ("accepted", ["b"])
            there = BrokerConfig(name="b", links={"a": LinkConfig(a.address)})
            async with broker(config=there), gateway_of(a) as web:  # a new gateway, which asks the broker
                while (found := (await web.get("/subscriptions/s")).json()["status"])["state"] != "complete":
                    assert found["waiting_for"] == ["b"]
                assert found["waiting_for"] == []

    asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))


def test_a_reader_that_comes_back_too_late_is_told_of_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.gateway.clients.MOST_LINGERING", 0)

    async def main():
        async with two_brokers(tmp_path) as (_, far, web):
            async with stream(web, "/events?where=n>0") as live:
                await far.publish({"n": 1})
                assert await live.numbers(1) == [1]
            async with stream(web, "/events?where=n>1"):  # the first one has ended now, and the broker forgets it
                while "n > 0" in [each.text async for each in far.items("a", direction="received")]:
                    await asyncio.sleep(0.01)
                await far.publish({"n": 1})
            last = {"last-event-id": live.last_id}
            async with stream(web, "/events?where=n>0", wait="", headers=last) as again:
                found = await again.next()
                assert (found["event"], found["data"]["from"], found["data"]["to"]) == ("gap", live.last_id, None)
                await again.until("complete")
                await far.publish({"n": 5})
                assert await again.numbers(1) == [5]

    asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))


def test_a_stream_whose_broker_was_away_says_that_events_of_others_may_be_missing(tmp_path):
    async def main():
        async with two_brokers(tmp_path) as (a, far, web), stream(web, "/events?where=n>0") as live:
            await far.publish({"n": 1})
            assert await live.numbers(1) == [1]
            first = live.last_id
            await asyncio.to_thread(a.stop)
            await far.publish({"n": 2})
            await asyncio.to_thread(a.start)
            found = await live.next()
            while "event" not in found:  # the neighbour may have kept the second event
                found = await live.next()
            assert (found["event"], found["data"]["from"]) == ("gap", first)
            await live.until("complete")
            await far.publish({"n": 3})
            while (n := (await live.numbers(1))[0]) != 3:
                assert n == 2

    asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))


def test_a_slow_reader_is_told_how_many_events_it_lost():
    from weft.gateway.feeds import MOST_HELD, StreamReader
    from weft.gateway.frames import StreamId, event_item

    reader = StreamReader("text/event-stream")
    for n in range(1, MOST_HELD + 11):
        reader.put(event_item({"n": n}, b"", "", StreamId("0" * 8, n)))
    frames = []
    while chunk := reader.take():
        frames += chunk
    assert frames[0] == b'event: dropped\ndata: {"count":10}\n\n'
    assert len(frames) == MOST_HELD + 1
    assert frames[1].startswith(b"id: 00000000.11\n")


def test_a_reader_that_takes_nothing_is_disconnected_and_others_go_on(monkeypatch):
    monkeypatch.setattr("weft.gateway.app.STALLED", 0.3)

    async def test(local, web):
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, port = local.gateway.removeprefix("http://").split(":")
        stuck.connect((host, int(port)))
        stuck.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.closing(stuck):
            async with stream(web, "/events?where=n>0") as live:
                n = 0
                while 'what="stalled readers"' not in (await web.get("/metrics")).text:
                    n += 1
                    await publish(web, event(n, data="x" * 200_000))
                    assert await live.numbers(1) == [n]

    run(test)


# -- subscriptions -------------------------------------------------------------------------------------------


async def made(web, **body):
    answer = await web.put("/subscriptions/alerts", json={"filters": [{"sql": "n > 0"}], **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def pulled(web, **body):
    answer = await web.post("/subscriptions/alerts/pull", json={"wait": 30, **body})
    assert answer.status_code == 200, answer.text
    offsets = [int(each) for each in answer.headers["weft-offsets"].split(", ") if each]
    attempts = [int(each) for each in answer.headers["weft-attempts"].split(", ") if each]
    return [each["n"] for each in answer.json()], offsets, attempts


def test_a_subscription_is_made_read_listed_changed_and_ended():
    async def test(local, web):
        answer = await web.post("/subscriptions", json={"types": ["a", "test"], "source": "/test"})
        assert answer.status_code == 201
        shown = answer.json()
        assert answer.headers["location"] == f"/subscriptions/{shown['id']}"
        assert shown["filters"] == [{"sql": "source = '/test' AND type IN ('a', 'test')"}]
        await made(web)
        listed = (await web.get("/subscriptions")).json()["subscriptions"]
        assert {each["id"] for each in listed} == {"alerts", shown["id"]}
        assert (await web.get("/subscriptions/alerts")).json()["filters"] == [{"sql": "n > 0"}]
        answer = await web.patch("/subscriptions/alerts", json={"filters": [{"sql": "n > 5"}]})
        assert answer.json()["filters"] == [{"sql": "n > 5"}]
        answer = await web.put("/subscriptions/alerts", json={"filters": [{"sql": "n > 6"}]})
        assert (answer.status_code, answer.json()["filters"]) == (200, [{"sql": "n > 6"}])
        answer = await web.patch("/subscriptions/alerts", json={"sink": "https://example.com"})
        assert answer.status_code == 422
        answer = await web.put("/subscriptions/alerts", json={"config": {"ordered": False}})
        assert answer.status_code == 422
        assert (await web.delete("/subscriptions/alerts")).status_code == 204
        assert (await web.get("/subscriptions/alerts")).status_code == 404
        assert (await web.delete("/subscriptions/alerts")).status_code == 404

    run(test)


def test_pulled_events_are_acknowledged_refused_or_come_again():
    async def test(local, web):
        await made(web)
        await publish(web, *(event(n) for n in range(1, 7)))
        got = []
        while len(got) < 6:
            got += (await pulled(web, lease=1))[0]
        assert got == [1, 2, 3, 4, 5, 6]
        answer = await web.post("/subscriptions/alerts/ack", json={"upto": 2, "offsets": [4]})
        assert answer.json() == {"settled": 3}
        answer = await web.post("/subscriptions/alerts/nack", json={"offsets": [5], "reason": "no"})
        assert answer.json() == {"settled": 1}
        numbers: dict[int, int] = {}
        while set(numbers) != {3, 5, 6}:
            found, _, attempts = await pulled(web, lease=1)
            numbers |= dict(zip(found, attempts, strict=True))
        assert numbers[3] >= 2
        assert numbers[5] >= 2
        answer = await web.post("/subscriptions/alerts/ack", json={"upto": 6})
        assert answer.json() == {"settled": 3}
        async with local.connect() as python:
            while (await python.status()).furthest[0].behind:
                await asyncio.sleep(0.01)

    run(test)


def test_the_stream_of_a_subscription_goes_on_where_it_was():
    async def test(local, web):
        await made(web)
        await publish(web, *(event(n) for n in range(1, 4)))
        async with stream(web, "/subscriptions/alerts/events", "") as live:
            assert await live.numbers(3) == [1, 2, 3]
        await publish(web, event(4), event(5))
        async with stream(web, "/subscriptions/alerts/events", "") as live:
            assert await live.numbers(2) == [4, 5]
        prefix = live.last_id.split(".")[0]
        headers = {"last-event-id": f"{prefix}.2"}  # its reader lost what was written to it
        async with stream(web, "/subscriptions/alerts/events", "", headers=headers) as live:
            assert await live.numbers(3) == [3, 4, 5]
            await publish(web, event(6))
            assert await live.numbers(1) == [6]

    run(test)


def test_a_newer_stream_ends_the_older():
    async def test(local, web):
        await made(web)
        path = "/subscriptions/alerts/events"
        async with stream(web, path, "subscribed") as one, stream(web, path, "subscribed") as two:
            ended = await one.next()
            assert (ended["event"], "newer" in ended["data"]["reason"]) == ("stopping", True)
            answer = await web.post("/subscriptions/alerts/pull", json={})
            assert answer.status_code == 409
            await publish(web, event(1))
            assert await two.numbers(1) == [1]

    run(test)


def test_a_change_of_the_filter_is_exact_and_loses_nothing():
    async def test(local, web):
        await made(web)
        await publish(web, event(1), event(2))
        await web.patch("/subscriptions/alerts", json={"filters": [{"sql": "n = 4"}]})
        await publish(web, event(3), event(4))
        async with stream(web, "/subscriptions/alerts/events", "") as live:
            assert await live.numbers(3) == [1, 2, 4]

    run(test)


def test_a_reader_that_resumes_gets_what_an_older_filter_matched():
    async def test(local, web):
        await made(web)
        await publish(web, event(1), event(2), event(3))
        async with stream(web, "/subscriptions/alerts/events", "") as live:
            prefix = (await live.next())["id"].split(".")[0]
        await web.post("/subscriptions/alerts/pull", json={"max": 1})
        await publish(web, event(4))
        await web.patch("/subscriptions/alerts", json={"filters": [{"sql": "n = 6"}]})
        await publish(web, event(5), event(6))
        headers = {"last-event-id": f"{prefix}.3"}
        found = []
        async with stream(web, "/subscriptions/alerts/events", "", headers=headers) as live:
            while not {4, 6} <= set(found):
                found += await live.numbers(1)
        assert 5 not in found

    run(test)


def test_a_pull_waits_for_the_first_event_and_a_client_that_leaves_loses_nothing():
    async def test(local, web):
        await made(web)
        waiting = asyncio.create_task(pulled(web))
        await asyncio.sleep(0)
        await publish(web, event(1))
        assert (await waiting)[0] == [1]
        gone = asyncio.create_task(web.post("/subscriptions/alerts/pull", json={"wait": 30}))
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await publish(web, event(2))
        assert (await pulled(web))[0] == [2]
        assert (await web.post("/subscriptions/alerts/pull", json={"wait": 0})).json() == []

    run(test)


def test_subscriptions_are_known_after_a_restart_of_the_gateway():
    async def main():
        async with broker() as local:
            async with gateway_of(local) as web:
                await made(web)
                await publish(web, event(1), event(2))
                found, offsets, _ = await pulled(web, max=1)
                assert found == [1]
            async with gateway_of(local) as web:
                answer = await web.post("/subscriptions/alerts/ack", json={"offsets": offsets})
                assert answer.status_code == 200
                while 2 not in (await pulled(web))[0]:
                    pass
                listed = (await web.get("/subscriptions")).json()["subscriptions"]
                assert [each["id"] for each in listed] == ["alerts"]
            async with gateway_of(local) as web:
                assert (await pulled(web))[0] == [2]

    asyncio.run(main())


def test_a_subscription_that_nobody_reads_expires_and_one_that_is_read_does_not():
    async def main():
        async with broker() as local:
            async with gateway_of(local) as web:
                for name in ("short", "long"):
                    config = {"expires": 1 if name == "short" else 10**6, "ordered": False}
                    made = await web.put(f"/subscriptions/{name}", json={"config": config})
                    assert made.status_code == 201, made.text
                    assert made.json()["config"] == {"ordered": False, "expires": config["expires"], "lag": 0}
                again = await web.put("/subscriptions/long", json={"config": {"ordered": False}})
                assert again.status_code == 422
                assert "config cannot change" in again.json()["detail"]
                found = (await web.get("/subscriptions")).json()["subscriptions"]
                assert [each["id"] for each in found] == ["long", "short"]
                await publish(web, event(1))
                assert (await web.post("/subscriptions/short/pull", json={"wait": 20})).json() == [event(1)]
            async with gateway_of(local) as web:  # a new process: it learns from the broker when they expire
                assert (await web.get("/subscriptions/long")).json()["config"] == {"ordered": False, "expires": 10**6}
                while (await web.get("/subscriptions/short")).status_code != 404:
                    await asyncio.sleep(0.2)
                assert (await web.post("/subscriptions/long/pull", json={"wait": 20})).json() == [event(1)]

    asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))


def test_a_filter_that_is_too_long_to_be_read_back_is_sent_again():
    async def main():
        async with broker() as local:
            body = {"filters": [{"sql": " OR ".join(f"n = {n}" for n in range(1_000))}]}
            async with gateway_of(local) as web:
                assert (await web.put("/subscriptions/alerts", json=body)).status_code == 201
                await publish(web, event(1))
            async with gateway_of(local) as web:
                answer = await web.post("/subscriptions/alerts/pull", json={})
                assert (answer.status_code, "with PUT" in answer.json()["detail"]) == (409, True)
                assert (await web.put("/subscriptions/alerts", json=body)).status_code == 200
                assert (await pulled(web))[0] == [1]

    asyncio.run(main())


# -- questions -----------------------------------------------------------------------------------------------


def test_questions_are_answered():
    async def test(local, web):
        await made(web)
        await publish(web, *(event(n) for n in range(1, 4)))
        answer = await web.post("/filters/check", json={"filter": "n>5 AND n<3", "event": {"n": 1}})
        assert answer.json() == {
            "filter": "n > 5 AND n < 3",
            "json": {"all": [{"sql": "n > 5"}, {"sql": "n < 3"}]},
            "empty": True,
            "attributes": ["n"],
            "matches": False,
        }
        answer = await web.post("/filters/relate", json={"a": "x < 10", "b": "x < 20"})
        assert answer.json() == {
            "a_covers_b": False,
            "b_covers_a": True,
            "overlap": True,
            "merge": "x < 20",
            "in_b_not_a": "x >= 10 AND x < 20",
            "in_a_not_b": None,
        }
        answer = await web.post("/explain", json={"event": event(1)})
        assert answer.json()["matched"] == 1
        answer = await web.post("/trace", json={"event": {"n": -1}, "subscription": "alerts"})
        assert (answer.json()["matches"], answer.json()["trace"]["filter"]) == (False, "n > 0")
        answer = await web.post("/trace", json={"event": {"n": 1}, "filter": "n > 0 AND m = 1"})
        assert [part["truth"] for part in answer.json()["trace"]["parts"]] == [True, None]
        answer = await web.post("/search", json={"filter": "n >= 2"})
        found = answer.json()
        assert ([each["n"] for each in found["events"]], found["done"], found["scanned"]) == ([2, 3], True, 3)
        answer = await web.post("/search", json={"filter": "n >= 1", "max": 2})
        assert ([each["n"] for each in answer.json()["events"]], answer.json()["next"]) == ([1, 2], 3)
        answer = await web.get("/subscriptions/alerts/why")
        assert answer.json()["healthy"] is True
        answer = await web.post("/subscriptions/related", json={"filter": "n > 5"})
        assert answer.json()["counts"]["covers"] == 1

    run(test)


def test_filters_call_the_predicates_of_the_broker_in_every_form(tmp_path):
    (tmp_path / "kinds.toml").write_text('van = ["vehicle"]\n')
    config = BrokerConfig(taxonomy=(tmp_path / "kinds.toml",))
    wanted = "is_a(kind, 'vehicle')"

    async def main():
        async with broker(config=config, gateway=True) as local, http(local) as web:
            answer = await web.put("/subscriptions/s", json={"filters": [{"not": {"not": {"sql": wanted}}}]})
            assert answer.status_code == 201, answer.text
            async with stream(web, f"/events?where={wanted}") as live:
                await publish(web, event(1, kind="house"), event(2, kind="van"))
                assert (await live.next())["data"]["n"] == 2
            pulled = await web.post("/subscriptions/s/pull", json={"wait": 30}, headers=JSON)
            assert [each["n"] for each in pulled.json()] == [2]
            checked = (await web.post("/filters/check", json={"filter": wanted, "event": event(3, kind="van")})).json()
            assert (checked["filter"], checked["matches"]) == (wanted, True)
            both = {"a": wanted, "b": "is_a(kind, 'van')"}
            assert (await web.post("/filters/relate", json=both)).json()["a_covers_b"] is True
            traced = await web.post("/trace", json={"filter": wanted, "event": event(4, kind="house")})
            assert traced.json()["matches"] is False
            found = (await web.post("/search", json={"filter": wanted})).json()
            assert [each["n"] for each in found["events"]] == [2]
            refused = await web.put("/subscriptions/t", json={"filters": [{"sql": "even(n)"}]})
            assert refused.status_code == 400
            assert "unknown predicate 'even'" in refused.text

    asyncio.run(main())
