"""What pages share in the process of the gateway: the worker, the live connection, samples, audit lines, settings."""

from __future__ import annotations

import asyncio
import json
import os
import time

import httpx
import pytest
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import InvalidStatus

from console.console_lab import api
from weft.console.app import Console
from weft.console.live import MOST_TOPICS
from weft.console.samples import MINUTES, MOST_BROKERS, SECONDS, SampleStore
from weft.console.worker import Worker
from weft.errors import FilterSyntaxError
from weft.gateway.problems import ProblemError
from weft.gateway.process import GatewayOptions, running_gateway
from weft.gateway.resources import read_body
from weft.language.text import parse
from weft.server.config import BrokerConfig, GatewayConfig
from weft.server.log_lines import LogLines
from weft.testing import broker

PATIENCE = 60


# -- the worker ----------------------------------------------------------------------------------------------


def test_a_job_runs_elsewhere_and_its_errors_come_back():
    async def main():
        worker = Worker()
        try:
            assert await worker.run(os.getpid) != os.getpid()
            first = await worker.run(os.getpid)
            with pytest.raises(FilterSyntaxError) as found:
                await worker.run(parse, "x => 5")
            assert found.value.column == 3
            with pytest.raises(ProblemError, match="ZeroDivisionError"):
                await worker.run(divmod, 1, 0)
            with pytest.raises(ProblemError, match="the request is not JSON") as problem:
                await worker.run(read_body, b"{", dict)
            assert problem.value.kind.status == 400
            assert await worker.run(os.getpid) == first  # none of this has ended it
        finally:
            await worker.close()

    asyncio.run(main())


def test_a_job_that_takes_too_long_is_killed_and_the_next_one_runs():
    async def main():
        worker = Worker(patience=0.3)
        try:
            first = await worker.run(abs, -1)
            await worker.run(time.sleep, 0)  # the first job of a kind has longer
            with pytest.raises(ProblemError, match="took longer than"):
                await worker.run(time.sleep, PATIENCE)
            worker._patience = PATIENCE  # the new process may be slow on a busy machine
            assert (first, await worker.run(abs, -2)) == (1, 2)
        finally:
            await worker.close()

    asyncio.run(main())


# -- samples -------------------------------------------------------------------------------------------------


def test_samples_take_a_fixed_room():
    store = SampleStore()
    for second in range(2 * SECONDS):
        store.add("ann", "north", second, {"events/s": second})
    assert len(store.recent("ann", "north", "events/s")) == SECONDS
    for minute in range(MINUTES + 100):
        store.add("ann", "north", 60.0 * minute + 2 * SECONDS, {"events/s": minute})
    assert len(store.minutes("ann", "north", "events/s")) == MINUTES
    for number in range(MOST_BROKERS):
        store.add("ann", f"broker {number}", 1, {"events/s": 1})
    assert store.recent("ann", "north", "events/s") == []  # what nobody has looked at for longest


# -- the live connection -------------------------------------------------------------------------------------


def live_address(local) -> str:
    return local.gateway.replace("http", "ws") + "/api/v1/live"


async def frame(socket) -> dict:
    return json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))


def test_only_pages_of_the_console_may_connect_live():
    async def main(local):
        for headers in ({}, {"Origin": "https://evil.example"}):
            with pytest.raises(InvalidStatus) as found:
                async with open_socket(live_address(local), additional_headers=headers, proxy=None):
                    pass
            assert found.value.response.status_code == 403

    with broker(gateway=True) as local:
        asyncio.run(main(local))


def test_a_tab_gets_the_newest_state_of_what_it_names_and_one_problem_of_what_is_not_there():
    async def main(local):
        async with (
            local.connect() as client,
            open_socket(live_address(local), origin=local.gateway, proxy=None) as socket,
        ):
            await socket.send(json.dumps({"topics": ["nothing", "tail:x =>"]}))
            found = {each["topic"]: each["problem"]["detail"] for each in [await frame(socket), await frame(socket)]}
            assert found["nothing"] == "there is no topic 'nothing'"
            assert found["tail:x =>"].startswith("a value is missing") or "column" in found["tail:x =>"]
            await socket.send(json.dumps({"topics": ["tail:x > 5"]}))
            assert (await frame(socket))["data"]["total"] == 0
            await client.publish_many({"x": n} for n in range(100))
            while (told := await frame(socket))["data"]["total"] < 94:
                pass
            assert told["topic"] == "tail:x > 5"
            assert len(told["data"]["events"]) <= 10  # a sample, with the true number beside it
            await socket.send(json.dumps({"topics": []}))
            await socket.send(json.dumps({"topics": [f"tail:x > {n}" for n in range(MOST_TOPICS + 5)]}))
            topics = {(await frame(socket))["topic"] for _ in range(MOST_TOPICS)}
            assert topics <= {f"tail:x > {n}" for n in range(MOST_TOPICS)}
            await socket.send("no JSON")  # such a tab is closed

    with broker(gateway=True) as local:
        asyncio.run(main(local))


# -- changes and settings ------------------------------------------------------------------------------------


def test_every_change_is_an_audit_line():
    async def main(local):
        written: list[str] = []
        options = GatewayOptions(GatewayConfig("127.0.0.1:0"), (local.address,))
        async with (
            running_gateway(options, LogLines(write=written.append), Console) as (host, port),
            httpx.AsyncClient(base_url=f"http://{host}:{port}/api/v1", timeout=PATIENCE, trust_env=False) as web,
            local.connect(name="alerts") as client,
            client.subscribe("x > 5"),
        ):
            (facts,) = [each async for each in client.subscriptions("alerts")]
            change = {"session": "alerts", "number": facts.number, "filter": "x > 7"}
            assert (await web.post("/subscriptions/change", json=change)).json() == {"done": True, "filter": "x > 7"}
            await web.post("/publish", json={"event": {"x": 8}})
            await web.post("/sessions/disconnect", json={"session": "alerts"})
        lines = [line for line in written if " audit " in line]
        assert [
            next(what for what in ("subscription changed", "event published", "session disconnected") if what in line)
            for line in lines
        ] == ["subscription changed", "event published", "session disconnected"]
        assert 'before="x > 5" after="x > 7"' in lines[0]
        assert all("host=127.0.0.1" in line for line in lines)

    with broker() as local:
        asyncio.run(main(local))


def test_a_gateway_may_be_without_a_console():
    config = BrokerConfig(gateway=GatewayConfig(console=False))
    with broker(config=config, gateway=True) as local, api(local) as web:
        assert web.get("/session").status_code == 404
        assert httpx.get(f"{local.gateway}/ui", trust_env=False).status_code == 404
        assert httpx.get(f"{local.gateway}/health", trust_env=False).status_code == 200


def test_sites_that_may_use_the_gateway_may_not_use_the_console():
    config = BrokerConfig(gateway=GatewayConfig(origins=("https://app.example",)))
    with broker(config=config, gateway=True) as local, api(local) as web:
        origin = {"origin": "https://app.example"}
        assert httpx.post(
            f"{local.gateway}/filters/check", json={"filter": "x > 5"}, headers=origin, trust_env=False
        ).is_success
        assert web.post("/filters/check", json={"filter": "x > 5"}, headers=origin).status_code == 403


def test_a_list_is_read_page_by_page():
    with broker(gateway=True) as local, local.connect_sync(name="many") as client, api(local) as web:
        kept = [client.subscribe(f"x > {number}").__enter__() for number in range(250)]
        found, page = [], ""
        while True:
            answer = web.get("/subscriptions", params={"page": page} if page else {}).json()
            found += [row["filter"] for row in answer["rows"]]
            page = answer["page"]
            if not page:
                break
        assert sorted(found) == sorted(f"x > {number}" for number in range(len(kept)))
        assert web.get("/subscriptions", params={"page": "zz"}).status_code == 400
        assert web.get("/subscriptions", params={"page": "00"}).status_code in (400, 422)
