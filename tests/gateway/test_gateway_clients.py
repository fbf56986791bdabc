"""Clients that we did not write: curl, Node, a browser, and the official SDK of CloudEvents."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import subprocess
import threading
from contextlib import asynccontextmanager, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from gateway.gateway_lab import PATIENCE, event, http, publish, stream
from weft.gateway.process import GatewayOptions, running_gateway
from weft.server.config import GatewayConfig
from weft.server.log_lines import LogLines
from weft.testing import broker

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed; install one to run this test")


def ran(command, **environment):
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "no_proxy": "*", **environment},
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_curl
def test_the_example_for_curl():
    with broker(gateway=True) as local:
        found = ran(["sh", EXAMPLES / "gateway_curl.sh"], GATEWAY=local.gateway).splitlines()
    assert found == [
        "live:",
        "  q2 5.5",
        "  q3 6.1",
        "pulled:",
        '{"settled":1}',
        "unknown operator '=>' at column 10",
    ]


@needs_node
def test_the_example_for_node():
    with broker(gateway=True) as local:
        found = ran(["node", EXAMPLES / "gateway_node.mjs", "3"], GATEWAY=local.gateway).splitlines()
        with local.connect_sync() as client:
            status = client.status()
    assert found == ["live q1 6", "live q2 6.1", "live q3 6.2", "pulled q1"]
    assert status.furthest[0].session == "http//node-alerts"
    assert status.furthest[0].behind == 3  # only the first is acknowledged


# -- a browser -----------------------------------------------------------------------------------------------


@contextmanager
def pages(folder: Path):
    """A server of files, as any web site has one."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@asynccontextmanager
async def gateway_at(local, port, origin):
    options = GatewayOptions(GatewayConfig(f"127.0.0.1:{port}", origins=(origin,)), (local.address,))
    async with running_gateway(options, LogLines(level="error")) as place:
        yield place


@needs_browser
def test_the_example_for_browsers_loses_nothing_when_it_is_cut():
    from playwright.async_api import async_playwright, expect

    async def main():
        async with broker() as local, async_playwright() as playwright, local.connect() as python:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--no-proxy-server"]
            )
            with pages(EXAMPLES) as site:
                page = await browser.new_page()
                said = []
                page.on("pageerror", lambda error: said.append(str(error)))
                port = 0
                for turn in range(3):  # each time the gateway is another process to the browser
                    async with gateway_at(local, port, site) as (_, port):
                        if not turn:
                            await page.goto(f"{site}/gateway_browser.html?gateway=http://localhost:{port}")
                        state = page.locator("#state")
                        await expect(state).to_have_text("open", timeout=1000 * PATIENCE)
                        quakes = [{"id": f"{turn}-{n}", "magnitude": 5 + n} for n in range(3)]
                        await python.publish_many([*quakes, {"id": "weak", "magnitude": 1.5}])
                        rows = page.locator("li")
                        await expect(rows).to_have_count(6 * turn + 3, timeout=1000 * PATIENCE)
                        await page.locator("#publish").click()
                        await expect(rows).to_have_count(6 * turn + 4, timeout=1000 * PATIENCE)
                    await expect(state).to_have_text("lost", timeout=1000 * PATIENCE)
                    await python.publish_many([{"id": f"away-{turn}-{n}", "magnitude": 5} for n in range(2)])
                async with gateway_at(local, port, site):
                    await expect(rows).to_have_count(18, timeout=1000 * PATIENCE)
                    texts = await rows.all_inner_texts()
                expected = []
                for turn in range(3):
                    expected += [f"{turn}-{n} {5 + n}" for n in range(3)]
                    expected += [f"page-{turn + 1} 6.5", *(f"away-{turn}-{n} 5" for n in range(2))]
                assert texts == expected
                assert said == []
            await browser.close()

    asyncio.run(main())


# -- the official SDK ----------------------------------------------------------------------------------------


def sdk_event(**more):
    from datetime import UTC, datetime

    from cloudevents.core.v1.event import CloudEvent

    about = {
        "id": "q1",
        "source": "/usgs",
        "type": "quake",
        "specversion": "1.0",
        "subject": "Hil\u00f6",
        "time": datetime(2026, 11, 18, 12, tzinfo=UTC),
        "place": "near Hilo",
        **more,
    }
    return CloudEvent(about, {"felt": 12})


@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_the_official_sdk_publishes_and_reads(mode):
    from cloudevents.core.bindings import http as binding
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    sent = sdk_event(datacontenttype="application/json")
    if mode == "batch":
        body = b"[" + JSONFormat().write(sent) + b"]"
        message = binding.HTTPMessage({"content-type": "application/cloudevents-batch+json"}, body)
    else:
        write = binding.to_binary if mode == "binary" else binding.to_structured
        message = write(sent, JSONFormat())

    async def main():
        async with (
            broker(gateway=True) as local,
            http(local) as web,
            stream(web, "/events?where=subject='Hil\u00f6'") as live,
        ):
            answer = await web.post("/events", content=message.body, headers=dict(message.headers))
            assert answer.status_code == 202, answer.text
            data = json.dumps((await live.next())["data"]).encode()
            found = JSONFormat().read(CloudEvent, data)
            assert found.get_attributes() == sent.get_attributes()
            assert found.get_data() == sent.get_data()

    asyncio.run(main())


def test_the_official_sdk_reads_what_a_python_client_published():
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    async def main():
        async with broker(gateway=True) as local, http(local) as web, stream(web, "/events") as live:
            async with local.connect() as python:
                await python.publish({"magnitude": 6.1, "geo": {"lat": 1.5}, "n": 2**40}, payload=b"\x00\x01")
            found = JSONFormat().read(CloudEvent, json.dumps((await live.next())["data"]).encode())
            assert found.get_extension("magnitude") == "6.1"
            assert found.get_data() == b"\x00\x01"
            again = json.loads(JSONFormat().write(found))
            del again["time"]  # which the SDK has added
            await publish(web, again)
            second = (await live.next())["data"]
            assert second["weftdata"] == found.get_extension("weftdata")
            async with local.connect() as python:
                one, two = [each.attributes async for each in python.history()]
            assert one == two == {"magnitude": 6.1, "geo.lat": 1.5, "n": 2**40}

    asyncio.run(main())


# -- WebSocket -----------------------------------------------------------------------------------------------


def test_a_websocket_publishes_and_receives():
    from websockets.asyncio.client import connect

    async def main():
        async with broker(gateway=True) as local:
            address = local.gateway.replace("http://", "ws://") + "/events?where=n>0"
            async with connect(address, subprotocols=["cloudevents.json"], proxy=None) as socket:
                assert socket.subprotocol == "cloudevents.json"
                assert not socket.protocol.extensions  # no compression
                for n in (0, 1, 2):
                    await socket.send(json.dumps(event(n)))
                found = [json.loads(await asyncio.wait_for(socket.recv(), PATIENCE)) for _ in range(2)]
                last = found[1].pop("weftid")
                assert found[1] == event(2)
                await socket.send("{")
                refused = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
                assert (refused["type"], refused["data"]["status"]) == ("weft.problem", 400)
                await socket.send(b"{}")
                assert json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))["type"] == "weft.problem"
            async with http(local) as web:
                await publish(web, event(3))
            async with connect(f"{address}&after={last}", subprotocols=["cloudevents.json"], proxy=None) as socket:
                assert json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))["n"] == 3

    asyncio.run(main())


def test_a_websocket_reads_a_subscription_with_a_name():
    from websockets.asyncio.client import connect

    async def main():
        async with broker(gateway=True) as local, http(local) as web:
            await web.put("/subscriptions/alerts", json={"filters": [{"sql": "n > 0"}]})
            address = local.gateway.replace("http://", "ws://") + "/subscriptions/alerts/events"
            for n in (1, 2):
                await publish(web, event(n))
                async with connect(address, subprotocols=["cloudevents.json"], proxy=None) as socket:
                    assert json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))["n"] == n
                async with local.connect() as python:  # what was written is acknowledged
                    async with asyncio.timeout(PATIENCE):
                        while (await python.status()).furthest[0].behind:
                            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_websocket_of_another_site_or_kind_is_refused():
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    async def main():
        async with broker(gateway=True) as local:
            address = local.gateway.replace("http://", "ws://") + "/events"
            for options, status in (
                ({}, 400),
                ({"subprotocols": ["cloudevents.avro"]}, 400),
                ({"subprotocols": ["cloudevents.json"], "origin": "http://evil.example"}, 403),
            ):
                with pytest.raises(InvalidStatus) as caught:
                    async with connect(address, proxy=None, **options):
                        pass
                assert caught.value.response.status_code == status
                assert json.loads(caught.value.response.body)["status"] == status
            async with connect(address, subprotocols=["cloudevents.json"], proxy=None) as socket:
                with contextlib.suppress(ConnectionClosed):
                    await socket.send("x" * (2 << 20))
                with pytest.raises(ConnectionClosed):
                    await asyncio.wait_for(socket.recv(), PATIENCE)
            assert httpx.get(f"{local.gateway}/health", trust_env=False).status_code == 200

    asyncio.run(main())
