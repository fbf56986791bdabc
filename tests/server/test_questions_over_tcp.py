"""Questions of a client to three brokers that are linked over sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import weft
from server.test_links_over_tcp import chain, linked
from server.wire import run, until
from weft.errors import AccessError, ClientClosedError, OptionError, RequestError
from weft.protocol.questions import AskSummary
from weft.testing import broker


def test_a_network_is_asked_from_any_of_its_brokers():
    async def body():
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            near = await stack.enter_async_context(weft.connect(str(a.addresses[0]), name="near"))
            far = await stack.enter_async_context(weft.connect(str(c.addresses[0]), name="far"))
            alerts = await stack.enter_async_context(near.subscribe("x > 5", name="alerts"))
            await alerts.complete()
            await far.publish_many({"x": x} for x in range(10))
            for _ in range(4):
                await (await anext(alerts)).ack()
            assert [each.name for each in await far.overlay()] == ["c", "b", "a"]
            assert [each.name async for each in far.sessions("alert", broker="a")] == ["alerts"]
            (facts,) = [each async for each in far.subscriptions("alerts", broker="a")]
            assert (facts.filter, facts.matched) == ("x > 5", 4)
            (item,) = [each async for each in far.items("c", broker="b")]
            assert (item.text, item.reason) == ("x > 5", "wanted by 1 item of a")
            assert (await near.why("alerts")).findings == ()
            assert (await far.why("alerts", broker="a")).findings == ()
            (finding,) = (await far.why("alerts")).findings
            assert (finding.cause, finding.evidence) == ("unknown-session", "a has one")
            pages = [page async for page in near.search("x >= 8", broker="c")]
            assert [event["x"] for page in pages for event in page.events] == [8, 9]
            assert (pages[-1].scanned, pages[-1].total, pages[-1].is_done) == (10, 10, True)
            assert not (await far.trace({"x": 3}, "alerts", broker="a")).matches
            assert (await far.relate("x > 9", broker="a")).counts["covers"] == 1
            assert [each.filter async for each in far.order(broker="a")] == ["x > 5"]
            assert (await far.ask(AskSummary(), broker="b")).broker == "b"
            with pytest.raises(RequestError, match="no route leads to it"):
                await far.ask(AskSummary(), broker="z")
            await far.change("alerts", 1, "x > 7", broker="a")
            await far.publish_many([{"x": 6}, {"x": 8}])
            assert (await anext(alerts))["x"] == 8
            await far.change("alerts", 1, None, broker="a")
            with pytest.raises(AccessError, match="an operator has ended the subscription"):
                await anext(alerts)
            await near.detach("c", broker="b")
            await until(lambda: [link.peer for link in b.core.links()] == ["a"])
            await near.publish({"x": 1})  # the broker that has dialled c goes on
            assert [each.name for each in await near.overlay()] == ["a", "b"]

    run(body())


def test_a_neighbour_that_is_detached_while_it_is_dialled_is_no_fault():
    async def body():
        async with AsyncExitStack() as stack:
            a, b, c = await chain(stack)
            await until(lambda: linked(a, b, c))
            late = b.new_connection("c")
            b.driver.do(b.core.detach, "c")
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: late, c.addresses[0].host, c.addresses[0].port
            )
            await connection.gone.wait()
            await until(lambda: not b.core.is_attached("c"))
            assert not b.ended.done()

    run(body())


def test_an_operator_disconnects_a_client_which_comes_back():
    with broker() as local, local.connect_sync() as client, local.connect_sync(name="sensor") as sensor:
        client.disconnect("sensor", reason="maintenance")
        sensor.publish({"x": 1})  # it has come back by itself
        assert [each.name for each in client.sessions("sens")] == ["sensor"]
        with pytest.raises(RequestError, match="there is no session 'nobody' here"):
            client.disconnect("nobody")


def test_a_broker_of_an_older_version_is_not_sent_a_question(monkeypatch):
    monkeypatch.setattr("weft.broker.hello.NEWEST", 3)
    with broker() as local, local.connect_sync() as client:
        with pytest.raises(RequestError, match="an older version of Weft, which cannot answer questions; update it"):
            client.why("alerts")
        assert [*client.history()] == []
        client.publish({"x": 1})  # it goes on


def test_what_is_not_a_question_is_said_so():
    with broker() as local, local.connect_sync() as client:
        for wrong in ("sessions", AskSummary, None):
            with pytest.raises(OptionError, match="is not a question"):
                client.ask(wrong)
        for wrong in (-1, True, "yesterday"):
            with pytest.raises(OptionError, match="neither an offset nor a time"):
                next(client.search(since=wrong))
    with pytest.raises(ClientClosedError):
        client.ask(AskSummary())
