"""What tests of the gateway share: requests, and streams that are read item by item."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import httpx

JSON = {"content-type": "application/json"}
CLOUD = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
PATIENCE = 60  # seconds; a busy machine is slow


def event(n: int, **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": str(n), "source": "/test", "type": "test", "n": n, **more}


def http(local, **options) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=local.gateway, timeout=PATIENCE, trust_env=False, **options)


async def publish(web: httpx.AsyncClient, *events: dict[str, Any]) -> None:
    answer = await web.post("/events", json=list(events), headers=BATCH)
    assert answer.status_code == 202, answer.text


class EventStream:
    """A stream of server-sent events, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()
        self.comments: list[str] = []
        self.last_id = ""

    async def next(self) -> dict[str, Any]:
        """The next event or notice: event, id, data."""
        return await asyncio.wait_for(self._next(), PATIENCE)

    async def _next(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async for line in self._lines:
            if not line:
                if "data" in found:
                    found["data"] = json.loads(found["data"])
                    self.last_id = found.get("id", self.last_id)
                    return found
                found = {}
            elif line.startswith(":"):
                self.comments.append(line[1:].strip())
            else:
                name, _, value = line.partition(": ")
                found[name] = value
        raise EOFError

    async def numbers(self, count: int) -> list[int]:
        return [(await self.next())["data"]["n"] for _ in range(count)]

    async def until(self, comment: str) -> None:
        """Read until a comment; there is no event before it."""
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line == f": {comment}":
                    return


@asynccontextmanager
async def stream(web: httpx.AsyncClient, path: str, wait: str = "complete", **options):
    """A stream, when its subscription is complete."""
    async with web.stream("GET", path, **options) as answer:
        if answer.status_code != 200:
            await answer.aread()
            raise AssertionError(f"{answer.status_code} {answer.text}")
        found = EventStream(answer)
        if wait:
            await found.until(wait)
        yield found
