"""The HTTP gateway against a bare uvicorn, in the same run: requests, events in batches, and events in streams.

Rates are per second of the gateway's own processor time, which is what one core can do; the broker and the load have
processes of their own. The echo answers each request with nothing, over the same server with the same guard, and is
what HTTP itself costs. The latency of the broker's own clients is measured in rounds: alone; while the echo is loaded,
which takes some of the machine and nothing of the broker; while native publishers load the broker at the rate that the
gateway reaches; and while the gateway is loaded. The load itself runs with the lowest priority, since it would come
from other machines. The ratio is that of the last two, the median over the rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from threading import Thread
from time import clock_gettime, perf_counter
from typing import Any

import weft
from weftlab.bench.report import Progress, Result

POSTS, EVENTS = 4_000, 50_000  # per second of one core: the goals
SLOWER = 1.2  # how much slower the broker may be to its own clients
_BATCH = 500
_CONNECTIONS = 16
_READERS = 10
_ECHO = """
import asyncio, sys
from collections import Counter
from weft.server.http import http_serving
async def echo(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})
async def main():
    async with http_serving(echo, "127.0.0.1", 0, Counter()) as (host, port):
        print(f"info gateway address=http://{host}:{port}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


class _Process:
    """A process that has said where it listens."""

    def __init__(self, *command: str, said: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", env=environment)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = re.search(said, line)
            if found:
                self.address = found[1]
                self._draining = Thread(target=self._process.stderr.read, daemon=True)  # a full pipe would stop it
                self._draining.start()
                return
        raise RuntimeError(f"{' '.join(command)} did not start")

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.address.rpartition("/")[2].split(":")
        return host, int(port)

    def cpu(self) -> float:
        """Seconds of processor time so far; 0 where the system does not tell."""
        if not sys.platform.startswith("linux"):
            return 0.0
        return clock_gettime(~self._process.pid << 3 | 2)  # Linux numbers the clocks of processes so

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._draining.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def _processes() -> Iterator[tuple[_Process, _Process, _Process]]:
    """A broker, its gateway, and an echo."""
    weft_ = (sys.executable, "-m", "weft")
    listen = "weft://127.0.0.1:0"
    found: list[_Process] = []
    try:
        found.append(_Process(*weft_, "serve", "--memory", "--listen", listen, said=r" listening address=(\S+)"))
        broker = found[0].address
        said = r"info gateway address=(\S+)"
        found.append(_Process(*weft_, "gateway", "--broker", broker, "--listen", "127.0.0.1:0", said=said))
        found.append(_Process(sys.executable, "-c", _ECHO, said=said))
        yield found[0], found[1], found[2]
    finally:
        for each in found:
            each.end()


def _event(n: int) -> dict[str, Any]:
    about = {"specversion": "1.0", "id": str(n), "source": "/bench", "type": "quake", "time": "2026-11-18T12:00:00Z"}
    return {**about, "n": n, "magnitude": n % 90 / 10, "place": "near Hilo", "data": {"felt": n % 100}}


def _post(body: bytes, kind: str) -> bytes:
    head = f"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _posts(place: tuple[str, int], requests: list[bytes], count: int) -> None:
    """Send requests over some connections, each after the answer to the one before."""
    left = iter(range(count))

    async def work() -> None:
        reader, writer = await asyncio.open_connection(*place)
        for n in left:
            writer.write(requests[n % len(requests)])
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 202"):
                raise RuntimeError(f"a request failed: {answer!r}")
        writer.close()

    await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))


async def _rate(process: _Process, requests: list[bytes], count: int, each: int = 1) -> tuple[float, float]:
    """Events per second of processor time, and per second."""
    await _posts(process.place, requests, max(1, count // 10))
    cpu, start = process.cpu(), perf_counter()
    await _posts(process.place, requests, count)
    spent, seconds = process.cpu() - cpu, perf_counter() - start
    return count * each / spent if spent else 0.0, count * each / seconds


async def _streams(broker: _Process, gateway: _Process, accept: str, count: int) -> float:
    """Deliveries to readers per second of processor time."""
    lines = []
    for _ in range(_READERS):
        reader, writer = await asyncio.open_connection(*gateway.place, limit=1 << 22)
        writer.write(f"GET /events?where=n>=0 HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        lines.append((reader, writer))

    async def read(reader: asyncio.StreamReader, last: bytes) -> None:
        tail = b""
        while last not in tail:
            tail = tail[-100:] + await reader.read(1 << 18)

    cpu = gateway.cpu()
    async with weft.connect(broker.address) as client, asyncio.timeout(300):
        for first in range(0, count, _BATCH):  # readers without a name may not be far behind
            end = first + _BATCH
            await client.publish_many([{"n": n, "place": "near Hilo"} for n in range(first, end)])
            await asyncio.gather(*(read(reader, b'"n":%d,' % (end - 1)) for reader, _ in lines))
    spent = gateway.cpu() - cpu
    for _, writer in lines:
        writer.close()
    return count * _READERS / spent if spent else 0.0


async def _latency(broker: _Process, count: int) -> float:
    """The 99th percentile of the time that the broker takes to store an event, in milliseconds."""
    times = []
    async with weft.connect(broker.address) as client:
        for n in range(count):
            start = perf_counter()
            await client.publish({"n": n})
            times.append(perf_counter() - start)
            await asyncio.sleep(0.002)
    return 1000 * sorted(times)[len(times) * 99 // 100]


def load(host: str, port: int) -> None:
    """Send single events to a gateway, as fast as it answers, until the process is killed."""
    _stand_back()
    requests = _singles()

    async def work() -> None:
        await _posts((host, port), requests, 100)
        print("info load address=on", file=sys.stderr, flush=True)
        while True:
            await _posts((host, port), requests, 1_000)

    asyncio.run(work())


def load_natively(broker: str, rate: float) -> None:
    """Publish single events at a broker, as many at a time and at most so many a second, until it is killed."""
    _stand_back()

    async def work() -> None:
        async with weft.connect(broker) as client:
            started, sent = perf_counter(), 0

            async def publish() -> None:
                nonlocal sent
                while True:
                    sent += 1
                    await client.publish({"n": 1, "magnitude": 6.1, "place": "near Hilo"}, payload={"felt": 1})
                    await asyncio.sleep(max(0.0, started + sent / rate - perf_counter()))

            tasks = [asyncio.create_task(publish()) for _ in range(_CONNECTIONS)]
            print("info load address=on", file=sys.stderr, flush=True)
            await asyncio.gather(*tasks)

    asyncio.run(work())


def _stand_back() -> None:
    if hasattr(os, "nice"):
        os.nice(19)


async def _under_load(broker: _Process, what: str, count: int) -> tuple[float, float]:
    """The same latency while another process does something, and how many events a second the broker then stores."""
    program = f"from weftlab.bench.gateway import load, load_natively; {what}"
    loading = _Process(sys.executable, "-c", program, said=r"info load address=(\S+)")
    try:
        async with weft.connect(broker.address) as client:
            before, start = (await client.status()).end, perf_counter()
            found = await _latency(broker, count)
            stored, seconds = (await client.status()).end - before - count, perf_counter() - start
        return found, stored / seconds
    finally:
        loading.end()


def _singles() -> list[bytes]:
    return [_post(json.dumps(_event(n)).encode(), "application/cloudevents+json") for n in range(100)]


async def _neighbours(broker: _Process, gateway: _Process, echo: _Process, quick: bool) -> list[Result]:
    """What the broker's own clients notice of a gateway at full load."""
    count, rounds = (100, 1) if quick else (1_000, 5)
    alone, beside, native, loaded, rates = [], [], [], [], []
    for _ in range(rounds):
        alone.append(await _latency(broker, count))
        beside.append((await _under_load(broker, f"load{echo.place!r}", count))[0])
        found, rate = await _under_load(broker, f"load{gateway.place!r}", count)
        loaded.append(found)
        rates.append(rate)
        native.append((await _under_load(broker, f"load_natively({broker.address!r}, {max(1.0, rate)})", count))[0])
    ratios = [one / other for one, other in zip(loaded, native, strict=True)]
    return [
        Result("broker/publish_p99_ms", median(alone), "ms"),
        Result("broker/publish_p99_ms_beside_echo", median(beside), "ms"),
        Result("broker/publish_p99_ms_native_load", median(native), "ms"),
        Result("broker/publish_p99_ms_gateway_load", median(loaded), "ms"),
        Result("broker/gateway_load", median(rates), "events/s"),
        Result("broker/publish_p99_ratio", median(ratios), "ratio", SLOWER, "lower"),
    ]


def run(quick: bool, progress: Progress) -> list[Result]:
    """Measure everything."""
    count = 400 if quick else 20_000
    batches = 10 if quick else 400
    single = _singles()
    several = [json.dumps([_event(n) for n in range(at, at + _BATCH)]).encode() for at in range(0, 5 * _BATCH, _BATCH)]
    batch = [_post(body, "application/cloudevents-batch+json") for body in several]

    async def measure(broker: _Process, gateway: _Process, echo: _Process) -> list[Result]:
        found: list[Result] = []
        progress("a bare uvicorn")
        bare, bare_wall = await _rate(echo, single, count)
        progress("single requests")
        posts, posts_wall = await _rate(gateway, single, count)
        progress("batches")
        events, events_wall = await _rate(gateway, batch, batches, _BATCH)
        found += [
            Result("echo/posts_per_cpu_s", bare, "posts/s"),
            Result("echo/posts_per_s", bare_wall, "posts/s"),
            Result("post/posts_per_cpu_s", posts, "posts/s", POSTS),
            Result("post/posts_per_s", posts_wall, "posts/s"),
            Result("post/of_echo", posts / bare if bare else None, "ratio"),
            Result("batch/events_per_cpu_s", events, "events/s", EVENTS),
            Result("batch/events_per_s", events_wall, "events/s"),
        ]
        for name, accept in (("sse", "text/event-stream"), ("ndjson", "application/x-ndjson")):
            progress(f"streams: {name}")
            rate = await _streams(broker, gateway, accept, 1_000 if quick else 10_000)
            found.append(Result(f"{name}/deliveries_per_cpu_s", rate, "events/s"))
        progress("the broker's own clients")
        return [*found, *await _neighbours(broker, gateway, echo, quick)]

    with _processes() as processes:
        return asyncio.run(measure(*processes))
