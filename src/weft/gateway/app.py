"""One request at the gateway: where it may come from, who it is, what it may cost, and how it ends.

A request is refused before its body is read if its `Host` is not one of ours (a page of another site that gave our
address its own name), if it comes from a page of another origin that is not listed, or if the broker does not accept
its token. Cookies mean nothing here. Everything that is refused is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import parse_qsl

from weft.errors import EventError, WeftError
from weft.gateway.calls import GatewayCall, GatewayRoute, StreamAnswer, WholeAnswer
from weft.gateway.clients import ClientPool, PrincipalClient
from weft.gateway.cloud_http import read_message
from weft.gateway.frames import SUBPROTOCOL, notice_item
from weft.gateway.problems import (
    FAULT,
    MEDIA,
    MEDIA_TYPE,
    METHOD,
    ORIGIN,
    REQUEST,
    TOO_LARGE,
    UNKNOWN,
    ProblemError,
    login_problem,
    problem_of,
)
from weft.gateway.routes import OPEN, ROUTES, check_query
from weft.server.config import GatewayConfig
from weft.server.http import ABORT
from weft.server.log_lines import LogLines

STALLED = 60.0  # seconds after which a reader that takes nothing is disconnected
KEEP_ALIVE = 15  # seconds between comments in a quiet stream
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = "location, retry-after, weft-attempts, weft-offset, weft-offsets"
_HEADERS = re.compile(r"[A-Za-z0-9, _-]{0,1000}")

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class GatewaySite(Protocol):
    """What is served: a gateway, or one with more around it."""

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Handle a request or a WebSocket."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """What must go on while it serves."""


class Gateway:
    """The gateway as an ASGI application."""

    def __init__(  # noqa: PLR0913 - what it is given
        self,
        pool: ClientPool,
        lines: LogLines,
        counts: Counter[str],
        *,
        hosts: frozenset[str] = LOOPBACK,
        origins: frozenset[str] = frozenset(),
        config: GatewayConfig | None = None,
    ) -> None:
        self.pool, self.counts = pool, counts
        self.config = config or GatewayConfig()
        self.lines, self._hosts, self._origins = lines, hosts, origins
        self._exact = {(each.method, each.path): each for each in ROUTES if not each.names}
        self._others = [each for each in ROUTES if each.names]
        self._streams: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What must go on while it serves; at the end all streams are told, and end."""
        ticking = asyncio.create_task(self._tick(), name="weft-gateway")
        try:
            yield
        finally:
            ticking.cancel()
            await self.pool.close()
            if self._streams:
                await asyncio.wait(self._streams, timeout=1)

    async def _tick(self) -> None:
        loop, ticks = asyncio.get_running_loop(), 0
        while True:
            await asyncio.sleep(1)
            ticks += 1
            self.pool.tick(loop.time())
            if not ticks % KEEP_ALIVE:
                for each in self.pool.ready:
                    each.keep_alive()

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Handle a request or a WebSocket."""
        request = secrets.token_hex(4)
        headers = scope["headers"]
        shared: dict[str, str] = {}
        is_socket = scope["type"] == "websocket"
        try:
            shared = self.check_origin(scope, headers)
            route, values = self._route(scope, is_socket)
            if route is None:
                await send_whole(send, WholeAnswer(204), shared | _preflight(headers, scope["path"]))
                return
            query = query_of(scope["query_string"])
            check_query(route, query)
            if any(name == b"content-encoding" and value != b"identity" for name, value in headers):
                raise ProblemError(MEDIA, "compressed requests are not supported; leave Content-Encoding out")
            async with self._client(scope, route, headers) as client:
                body, gone = body_reader(receive, headers), until_gone(receive)
                host = client_host(scope)

                def audit(what: str, **fields: Any) -> None:
                    self.lines.audit(what, principal=client.principal, host=host, request=request, **fields)

                about = (client, audit, self.counts, host)
                call = GatewayCall(route.method, values, query, headers, body, gone, *about, request=request)
                if is_socket:
                    call.format = "websocket"
                    await self._socket(call, route, scope, receive, send)
                    return
                answer = await route.handler(call)
                if isinstance(answer, StreamAnswer):
                    try:
                        await self._stream(answer, scope, gone, send, shared)
                    finally:
                        answer.done()
                else:
                    self.counts[f"status {answer.status}"] += 1
                    await send_whole(send, answer, shared)
        except Exception as error:
            await self._fail(error, request, scope, send, shared)

    # -- before the body is read -------------------------------------------------------------------------------

    def check_origin(self, scope: AsgiScope, headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
        """Headers of the answer for the page that sent the request. Raises ProblemError if it may not."""
        found = {name: value.decode("latin-1") for name, value in headers if name in (b"host", b"origin", _SITE)}
        host = found.get(b"host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in self._hosts:
            self.counts["refused host"] += 1
            raise ProblemError(ORIGIN, f"{host[:100]!r} is not a name of this gateway; add it to gateway.hosts")
        origin, site = found.get(b"origin"), found.get(_SITE, "none")
        if origin is None:
            if site in ("same-origin", "none"):
                return {}
        elif origin in self._origins:
            vary = {"vary": "origin", "access-control-expose-headers": _EXPOSED}
            return {"access-control-allow-origin": origin, **vary}
        else:
            scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
            if origin.lower() == f"{scheme}://{host}":
                return {}
        self.counts["refused origin"] += 1
        raise ProblemError(ORIGIN, "pages of other sites may not use this gateway; add them to gateway.origins")

    def _route(self, scope: AsgiScope, is_socket: bool) -> tuple[GatewayRoute | None, Mapping[str, str]]:
        """What to do, and the variable parts of the path; None to describe what may be done."""
        path = scope["path"]
        method = "GET" if is_socket else scope["method"]
        found = self._exact.get((method, path))
        if found is not None:
            return found, {}
        methods = [each.method for each in self._exact.values() if each.path == path]
        for each in self._others:
            match = each.pattern.fullmatch(path)
            if match is not None:
                if each.method == method:
                    return each, match.groupdict()
                methods.append(each.method)
        if not methods:
            raise ProblemError(UNKNOWN, "there is no such resource; see /openapi.json")
        if method == "OPTIONS":
            return None, {}
        raise ProblemError(METHOD, f"{method[:20]} is not possible here", {"allow": ", ".join(sorted(methods))})

    @asynccontextmanager
    async def _client(
        self, scope: AsgiScope, route: GatewayRoute, headers: list[tuple[bytes, bytes]]
    ) -> AsyncIterator[PrincipalClient]:
        if route.path in OPEN:
            yield None  # type: ignore[misc] # these need none
            return
        given = [value for name, value in headers if name == b"authorization"]
        kind, _, token = given[0].partition(b" ") if given else (b"", b"", b"")
        if len(given) > 1 or (given and (kind.lower() != b"bearer" or not token.strip())):
            self.counts["logins refused"] += 1
            raise login_problem()
        async with self.pool.client(token.strip(), client_host(scope)) as client:
            yield client

    # -- answers -----------------------------------------------------------------------------------------------

    async def _fail(
        self, error: Exception, request: str, scope: AsgiScope, send: AsgiSend, shared: dict[str, str]
    ) -> None:
        problem = problem_of(error)
        self.counts[f"status {problem.kind.status}"] += 1
        if problem.kind is FAULT:
            self.lines.error("unexpected", request=request, error=f"{type(error).__name__}: {error}")
        answer = WholeAnswer(problem.kind.status, problem.body(request), MEDIA_TYPE, problem.headers)
        with contextlib.suppress(RuntimeError):  # the answer has begun
            await send_whole(send, answer, shared, socket=scope["type"] == "websocket")

    async def _stream(
        self, answer: StreamAnswer, scope: AsgiScope, gone: Callable[[], Any], send: AsgiSend, shared: dict[str, str]
    ) -> None:
        about = {"content-type": f"{answer.format}; charset=utf-8", "cache-control": "no-store"}
        about |= {"x-accel-buffering": "no", **_SAFE, **shared}
        await send({"type": "http.response.start", "status": 200, "headers": _raw(about)})
        self.counts["streams"] += 1

        async def write() -> None:
            async for frames in answer.frames:
                chunk = b"".join(frames)
                if chunk:
                    async with asyncio.timeout(STALLED):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        try:
            await self._until_gone(write(), gone(), answer.frames)
        except TimeoutError:
            self.counts["stalled readers"] += 1
            scope.get(ABORT, lambda: None)()

    async def _until_gone(self, *work: Any) -> None:
        """Do several things until one of them ends; the last is an iterator to be closed."""
        *todo, frames = work
        tasks = [asyncio.create_task(each, name="weft-stream") for each in todo]
        self._streams.update(tasks)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._streams.difference_update(tasks)
            await frames.aclose()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _socket(
        self, call: GatewayCall, route: GatewayRoute, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """A WebSocket: events as they come, and those that the client sends are published."""
        if route.gives != "stream":
            raise ProblemError(METHOD, "this resource is not a stream", {"allow": "GET"})
        if SUBPROTOCOL not in scope["subprotocols"]:
            raise ProblemError(REQUEST, f"a WebSocket here has the subprotocol {SUBPROTOCOL}")
        answer = await route.handler(call)
        assert isinstance(answer, StreamAnswer)
        try:
            await self._talk(answer, call, receive, send)
        finally:
            answer.done()

    async def _talk(self, answer: StreamAnswer, call: GatewayCall, receive: AsgiReceive, send: AsgiSend) -> None:
        await receive()  # websocket.connect
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
        self.counts["streams"] += 1

        async def say(frame: bytes) -> None:
            if frame:
                async with asyncio.timeout(STALLED):
                    await send({"type": "websocket.send", "text": frame.decode()})

        async def write() -> None:
            async for frames in answer.frames:
                for frame in frames:
                    await say(frame)

        async def read() -> None:
            while (message := await receive())["type"] == "websocket.receive":
                try:
                    if message.get("text") is None:
                        raise EventError("send events as text, not as bytes")
                    async with asyncio.timeout(10):
                        await call.client.client.publish(read_message(message["text"], call.schema))
                except (WeftError, TimeoutError) as error:
                    problem = problem_of(error)
                    about = {"title": problem.kind.title, "status": problem.kind.status, "detail": problem.detail}
                    await say(notice_item("problem", **about).frame("websocket"))

        try:
            await self._until_gone(write(), read(), answer.frames)
        except TimeoutError:
            self.counts["stalled readers"] += 1
        with contextlib.suppress(RuntimeError):
            await send({"type": "websocket.close", "code": 1001})


_SITE = b"sec-fetch-site"
_SAFE = {"x-content-type-options": "nosniff"}


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


async def send_whole(send: AsgiSend, answer: WholeAnswer, shared: Mapping[str, str], *, socket: bool = False) -> None:
    """Send an answer; `shared` are more headers of it. With `socket`, it refuses a WebSocket."""
    headers = {
        "content-length": str(len(answer.body)),
        "cache-control": "no-store",
        **_SAFE,
        **answer.headers,
        **shared,
    }
    if answer.kind:
        headers["content-type"] = answer.kind
    if answer.status == 204:
        del headers["content-length"]
    kind = "websocket.http" if socket else "http"
    await send({"type": f"{kind}.response.start", "status": answer.status, "headers": _raw(headers)})
    await send({"type": f"{kind}.response.body", "body": answer.body})


def _preflight(headers: list[tuple[bytes, bytes]], path: str) -> dict[str, str]:
    """What a page of an allowed origin may send."""
    asked = [value.decode("latin-1") for name, value in headers if name == b"access-control-request-headers"]
    allowed = {"allow": _METHODS}
    if asked and _HEADERS.fullmatch(asked[0]) and path:
        allowed |= {"access-control-allow-headers": asked[0]}
    return allowed | {"access-control-allow-methods": _METHODS, "access-control-max-age": "600"}


def query_of(raw: bytes) -> dict[str, str]:
    """The parameters of a request. Raises ProblemError."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise ProblemError(REQUEST, "the parameters are not UTF-8 in percent-encoding") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise ProblemError(REQUEST, "a parameter comes twice; keep one")
    return dict(pairs)


def body_reader(receive: AsgiReceive, headers: list[tuple[bytes, bytes]]) -> Callable[[int], Awaitable[bytes]]:
    """A function that reads the body."""
    length = next((int(value) for name, value in headers if name == b"content-length" and value.isdigit()), 0)

    async def read(most: int) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        if length > most:
            raise _too_large(most)
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ProblemError(REQUEST, "the client has closed the connection")
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > most:
                raise _too_large(most)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return read


def _too_large(most: int) -> ProblemError:
    return ProblemError(TOO_LARGE, f"a request has at most {most:,} bytes here", limit=most)


def until_gone(receive: AsgiReceive) -> Callable[[], Any]:
    """A function that returns when the client is gone."""

    async def wait() -> None:
        while (await receive())["type"] == "http.request":
            pass

    return wait


def client_host(scope: AsgiScope) -> str:
    """The address of the client."""
    client = scope.get("client")
    return client[0] if client else ""
