"""The gateway as a process: started and watched by a broker, killed under load, and stopped with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket

import httpx
import pytest

import weft
from free_ports import free_ports
from gateway.gateway_lab import JSON, PATIENCE, EventStream, event, publish
from server.broker_program import BrokerProgram


@contextlib.contextmanager
def programs(folder):
    """A broker with a gateway, and the gateway's address."""
    port = free_ports()
    with BrokerProgram(folder / "data", "--gateway", str(port), "--http", "0") as program:
        yield program, f"http://127.0.0.1:{port}"


async def healthy(web) -> None:
    """Wait until the gateway answers."""
    async with asyncio.timeout(2 * PATIENCE):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await web.get("/health")).status_code == 200:
                    return
            await asyncio.sleep(0.1)


def gateway_process(program) -> int:
    """The process of the gateway: the broker's child."""
    children = f"/proc/{program.pid}/task/{program.pid}/children"
    with open(children) as file:
        (child,) = file.read().split()
    return int(child)


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc, which Linux has")


@needs_proc
def test_a_gateway_is_started_with_its_broker_restarted_and_stopped(tmp_path):
    async def body(program, address):
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE, trust_env=False) as web:
            await healthy(web)
            await publish(web, event(1))
            first = gateway_process(program)
            os.kill(first, signal.SIGKILL)
            await healthy(web)
            await publish(web, event(2))
            second = gateway_process(program)
            assert second != first
            answer = await web.get("/metrics")
            assert 'weft_gateway_happened_total{what="status 202"} 1' in answer.text
            return second

    with programs(tmp_path) as (program, address):
        child = asyncio.run(body(program, address))
        with weft.connect_sync(program.listen) as client:
            assert [each["n"] for each in client.history()] == [1, 2]
        assert program.stop() == 0
        lines = "\n".join(program.lines)
        assert "error gateway ended code=-9" in lines
        assert "info gateway stopped" in lines
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_metrics_of_a_broker_have_the_same_guard(tmp_path):
    with BrokerProgram(tmp_path / "data", "--http", "0") as program:
        host, port = program.http.removeprefix("http://").split(":")
        for attack, status in (
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000, b"431"),
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        ):
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
                line.sendall(attack)
                assert line.recv(1000).startswith(b"HTTP/1.1 " + status)
        text = httpx.get(f"{program.http}/metrics", trust_env=False).text
    assert set(re.findall(r'weft_http_refused_total{reason="([^"]*)"} 1.0', text)) == {
        "headers too large",
        "ambiguous host",
    }


class Reader:
    """A stream that is opened again and again after the last event that it has."""

    def __init__(self, web) -> None:
        self.web, self.found, self.gaps, self._last = web, [], [], ""

    async def run(self, last: int) -> None:
        while not self.found or self.found[-1] != last:
            with contextlib.suppress(httpx.TransportError, EOFError, TimeoutError):
                headers = {"last-event-id": self._last} if self._last else {}
                params = {"where": "n>=0"} | ({} if self._last else {"since": "0"})
                async with self.web.stream("GET", "/events", params=params, headers=headers) as answer:
                    if answer.status_code == 200:
                        await self._read(EventStream(answer), last)
            await asyncio.sleep(0.05)

    async def _read(self, live: EventStream, last: int) -> None:
        while not self.found or self.found[-1] != last:
            item = await live.next()
            if item.get("event") == "gap":
                self.gaps.append(item["data"])
            elif "event" not in item:
                self.found.append(item["data"]["n"])
                self._last = item["id"]


async def consume(web, found: list[int], last: int) -> None:
    """Pull and acknowledge, whatever happens."""
    made = False
    while last not in found:
        with contextlib.suppress(httpx.TransportError):
            if not made:
                body = {"filters": [{"sql": "n >= 0"}], "config": {"since": 0}}
                answer = await web.put("/subscriptions/all", json=body)
                made = answer.status_code in (200, 201)
            answer = await web.post("/subscriptions/all/pull", json={"wait": 5, "lease": 5}, headers=JSON)
            if answer.status_code == 200:
                found += [each["n"] for each in answer.json()]
                offsets = [int(each) for each in answer.headers["weft-offsets"].split(", ") if each]
                await web.post("/subscriptions/all/ack", json={"offsets": offsets})
        await asyncio.sleep(0.05)


@needs_proc
@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_nothing_is_lost_when_gateways_and_brokers_are_killed(tmp_path, kills):
    draw = random.Random(kills)

    async def body(program, address):
        web = httpx.AsyncClient(base_url=address, timeout=PATIENCE, trust_env=False)
        async with web, weft.connect(program.listen, name="source") as python:
            await healthy(web)
            reader, pulled, total = Reader(web), [], 0
            tasks = []
            for turn in range(kills):
                await python.publish_many({"n": n} for n in range(total, total + 200))
                total += 200
                if not turn:
                    end = 200 * kills + 200
                    tasks = [
                        asyncio.create_task(reader.run(end - 1)),
                        asyncio.create_task(consume(web, pulled, end - 1)),
                    ]
                while len(reader.found) < draw.randrange(total):
                    await asyncio.sleep(0.01)
                if turn % 2:
                    os.kill(gateway_process(program), signal.SIGKILL)
                else:
                    await asyncio.to_thread(program.kill)
                    await asyncio.to_thread(program.start)
                await healthy(web)
            await python.publish_many({"n": n} for n in range(total, total + 200))
            async with asyncio.timeout(4 * PATIENCE):
                await asyncio.gather(*tasks)
            return reader, pulled, total + 200

    with programs(tmp_path) as (program, address):
        reader, pulled, total = asyncio.run(body(program, address))
    assert reader.found == [*range(total)]  # each once, in order
    assert reader.gaps == []
    assert {*pulled} == {*range(total)}


@pytest.mark.slow
def test_a_thousand_listeners_get_every_event_through_restarts_of_the_broker(tmp_path):
    """Half of them by server-sent events, half by lines of JSON, with ten different filters."""
    from weft.gateway.process import GatewayOptions, running_gateway
    from weft.server.config import GatewayConfig
    from weft.server.log_lines import LogLines
    from weft.testing import broker

    listeners, rounds = 1_000, 4

    async def listen(host, port, number, found, ready):
        accept = ("text/event-stream", "application/x-ndjson")[number % 2]
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
        writer.write(
            f"GET /events?where=n>={number % 10} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        ready.release()
        try:
            while line := await reader.readline():
                if match := re.search(rb'"n":(\d+)', line):
                    found.append(int(match[1]))
        finally:
            writer.close()

    async def main():
        with contextlib.ExitStack() as stack:
            local = stack.enter_context(broker(data=tmp_path / "data"))
            options = GatewayOptions(GatewayConfig("127.0.0.1:0"), (local.address,))
            async with running_gateway(options, LogLines(level="error")) as (host, port):
                found = [[] for _ in range(listeners)]
                ready = asyncio.Semaphore(0)
                tasks = [
                    asyncio.create_task(listen(host, port, number, found[number], ready)) for number in range(listeners)
                ]
                for _ in tasks:
                    await ready.acquire()
                for turn in range(rounds):
                    if turn:
                        with contextlib.suppress(weft.errors.BrokerError):
                            await asyncio.to_thread(local.kill if turn % 2 else local.stop)
                        await asyncio.to_thread(local.start)
                    async with local.connect() as python:
                        await python.publish_many({"n": n} for n in range(20))
                    async with asyncio.timeout(10 * PATIENCE):
                        for number, each in enumerate(found):
                            while len(each) < (turn + 1) * (20 - number % 10):
                                await asyncio.sleep(0.05)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert all(each == [*range(number % 10, 20)] * rounds for number, each in enumerate(found)), (
                    "each event once, in order"
                )

    asyncio.run(main())
