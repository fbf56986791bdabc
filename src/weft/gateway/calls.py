"""A request as a route sees it, its answer, and what a route is."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from weft.gateway.clients import PrincipalClient
from weft.gateway.frames import StreamFormat, StreamId
from weft.gateway.problems import MEDIA, REQUEST, UNAVAILABLE, ProblemError
from weft.gateway.resources import (
    read_body,
)
from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.model.schema import Schema

PATIENCE = 10.0  # seconds that a request waits for the broker
MOST_JSON = 1 << 20  # bytes of a request that is not an event
JSON = "application/json"
encode_json = msgspec.json.Encoder().encode
Waited = TypeVar("Waited")


class WholeAnswer(msgspec.Struct, frozen=True):
    """An answer that is whole."""

    status: int = 200
    body: bytes = b""
    kind: str = ""  # the media type
    headers: dict[str, str] = {}


class StreamAnswer(msgspec.Struct, frozen=True):
    """An answer that goes on: frames, until the stream ends or the client is gone."""

    frames: AsyncIterator[list[bytes]]
    format: StreamFormat
    done: Callable[[], None] = lambda: None  # called at the end, also of a stream that never began


@dataclass(slots=True)
class GatewayCall:
    """One request, as a route sees it."""

    method: str
    values: Mapping[str, str]  # of the path
    query: Mapping[str, str]
    headers: list[tuple[bytes, bytes]]
    receive: Callable[[int], Awaitable[bytes]]  # the body, of at most so many bytes
    gone: Callable[[], Coroutine[Any, Any, None]]  # returns when the client is gone, after the body is read
    client: PrincipalClient
    audit: Callable[..., None]
    counts: Counter[str]  # what has happened at the gateway
    host: str  # the address of the client
    format: StreamFormat | None = None  # of a WebSocket
    request: str = field(default_factory=lambda: secrets.token_hex(4))

    def header(self, name: bytes) -> str:
        """A header, empty if there is none. Raises ProblemError if it comes twice."""
        found = [value for each, value in self.headers if each == name]
        if len(found) > 1:
            raise ProblemError(REQUEST, f"the header {name.decode()} comes twice; keep one")
        return found[0].decode("latin-1") if found else ""

    async def body(self, kind: type[Any], *more: str) -> Any:
        """The body, read as JSON. Raises ProblemError."""
        given = self.header(b"content-type").partition(";")[0].strip().lower()
        if given not in (JSON, *more):
            raise ProblemError(MEDIA, f"send the request with Content-Type: {JSON}")
        return read_body(await self.receive(MOST_JSON), kind)

    @property
    def schema(self) -> Schema | None:
        """The schema of events, if the gateway has one."""
        return self.client.schema

    @property
    def predicates(self) -> Predicates:
        """What filters may call."""
        return self.client.predicates

    def filter(self, given: AnyFilter) -> Filter:
        """A filter in any form. Raises FilterError."""
        return as_filter(given, self.client.predicates)


RouteHandler = Callable[[GatewayCall], Awaitable[WholeAnswer | StreamAnswer]]


@dataclass(frozen=True)
class GatewayRoute:
    """One thing that can be done, and its description."""

    method: str
    path: str
    handler: RouteHandler
    summary: str
    body: type[Any] | None = None
    answer: type[Any] | None = None
    status: int = 200
    query: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    gives: str = ""  # stream, batch, or a media type
    takes_events: bool = False
    problems: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.handler.__name__

    @cached_property
    def names(self) -> list[str]:
        """The variable parts of its path."""
        return re.findall(r"{(\w+)}", self.path)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What matches its path."""
        return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path.replace(".", r"\.")))


async def within(work: Awaitable[Any]) -> Any:
    """What the broker answers. Raises ProblemError if that takes too long."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await work
    except TimeoutError:
        raise ProblemError(UNAVAILABLE, f"the broker did not answer within {PATIENCE:g} s; try again") from None


async def unless_gone(call: GatewayCall, work: Coroutine[Any, Any, Waited]) -> Waited:
    """The result of work that waits, which is cancelled if the client is gone."""
    gone, working = asyncio.create_task(call.gone()), asyncio.create_task(work)
    try:
        await asyncio.wait({gone, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ProblemError(REQUEST, "the client has closed the connection")
        return working.result()
    finally:
        gone.cancel()
        working.cancel()


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> WholeAnswer:
    """An answer in JSON."""
    return WholeAnswer(status, encode_json(value), JSON, headers or {})


def after_id(call: GatewayCall) -> StreamId | None:
    """The event after which a stream goes on."""
    given = call.header(b"last-event-id") or call.query.get("after", "")
    return StreamId.parse(given) if given else None
