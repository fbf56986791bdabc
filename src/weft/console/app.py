"""One request at the console: a page, a file, a question of a page, or the live connection of a tab.

Everything that is not the console's goes to the gateway, whose checks of `Host`, `Origin` and `Sec-Fetch-Site` hold
here, too. Pages run under a policy that lets them load nothing from elsewhere and evaluate no text.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from weft.console.assets import assets
from weft.console.live import LiveHub
from weft.console.login import Logins, cookie_header, cookie_of, identity
from weft.console.page import ConsoleCall, ConsoleRoute, ConsoleServices, get, post
from weft.console.pages import PAGES
from weft.console.samples import SampleStore
from weft.console.worker import Worker
from weft.gateway.app import (
    STALLED,
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    Gateway,
    body_reader,
    client_host,
    query_of,
    send_whole,
    until_gone,
)
from weft.gateway.calls import MOST_JSON, WholeAnswer
from weft.gateway.problems import (
    FAULT,
    MEDIA,
    MEDIA_TYPE,
    METHOD,
    ORIGIN,
    REQUEST,
    UNKNOWN,
    ProblemError,
    problem_of,
)
from weft.gateway.resources import read_body

API = "/api/v1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_INLINE = b"weft-problems"  # a page sends it, because browsers report every answer of another status as an error
_encode = msgspec.json.Encoder(enc_hook=str).encode


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A token, or the code of one. With `wanted="code"`, the answer is a code instead of a cookie."""

    token: str = ""
    code: str = ""
    wanted: str = "cookie"


async def _never(_: ConsoleCall) -> Any:
    raise AssertionError("log-in needs no client")


LOG_IN = post("/session", _never)


class Console:
    """A gateway with a console around it, as an ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._logins = Logins(gateway.pool)
        self._live = LiveHub({name: source for page in PAGES for name, source in page.topics.items()})
        self._services = ConsoleServices(Worker(), self._live, self._logins, SampleStore(), gateway.config)
        self._live.services = self._services
        own = (LOG_IN, get("/session", self._session), post("/session/end", self._log_out))
        every = [*own, *(route for page in PAGES for route in page.routes)]
        self._routes: dict[tuple[str, str], ConsoleRoute] = {(route.method, API + route.path): route for route in every}
        assert len(self._routes) == len(every)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What must go on while it serves."""
        async with self._gateway.running():
            ticking = asyncio.create_task(self._tick(), name="weft-console")
            try:
                yield
            finally:
                ticking.cancel()
                self._live.close()
                await self._logins.close()
                await self._services.worker.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._logins.tick()

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Handle a request or a WebSocket."""
        path: str = scope["path"]
        if not (path in ("/", "/ui", "/favicon.ico") or path.startswith(("/ui/", API + "/"))):
            await self._gateway(scope, receive, send)
            return
        request = secrets.token_hex(4)
        is_socket = scope["type"] == "websocket"
        try:
            if self._gateway.check_origin(scope, scope["headers"]):  # one of gateway.origins
                raise ProblemError(ORIGIN, "the console is for its own pages; other sites use the gateway with a token")
            if is_socket:
                await self._tab(scope, receive, send)
                return
            if path.startswith(API + "/"):
                answer = await self._ask(scope, receive, request)
            else:
                answer = _file(scope)
        except Exception as error:
            problem = problem_of(error)
            if problem.kind is FAULT:
                self._gateway.lines.error("unexpected", request=request, error=f"{type(error).__name__}: {error}")
            headers = {name: value for name, value in problem.headers.items() if name != "www-authenticate"}
            answer = WholeAnswer(problem.kind.status, problem.body(request), MEDIA_TYPE, headers)
            if problem.kind.status < 500 and (_INLINE, b"inline") in scope["headers"]:
                answer = WholeAnswer(200, b'{"problem":%b}' % answer.body, "application/json", headers)
        self._gateway.counts[f"console status {answer.status}"] += 1
        await send_whole(send, answer, SAFE, socket=is_socket)

    # -- questions of pages ------------------------------------------------------------------------------------

    async def _ask(self, scope: AsgiScope, receive: AsgiReceive, request: str) -> WholeAnswer:
        headers, host = scope["headers"], client_host(scope)
        route = self._route(scope["method"], scope["path"])
        query = query_of(scope["query_string"])
        if unknown := query.keys() - route.query:
            raise ProblemError(REQUEST, f"{min(unknown)[:60]!r} is not a parameter here")
        if any(name == b"content-encoding" and value != b"identity" for name, value in headers):
            raise ProblemError(MEDIA, "compressed requests are not supported; leave Content-Encoding out")
        if route is LOG_IN:
            return await self._log_in(scope, receive)
        async with self._logins.client(headers, host) as client:

            def audit(what: str, **fields: Any) -> None:
                self._gateway.lines.audit(what, principal=client.principal, host=host, request=request, **fields)

            call = ConsoleCall(
                route.method,
                {},
                query,
                headers,
                body_reader(receive, headers),
                until_gone(receive),
                client,
                audit,
                self._gateway.counts,
                host,
                request=request,
                services=self._services,
            )
            answer = await route.handler(call)
        return answer if isinstance(answer, WholeAnswer) else _json(answer)

    def _route(self, method: str, path: str) -> ConsoleRoute:
        found = self._routes.get((method, path))
        if found is not None:
            return found
        methods = sorted(known for known, each in self._routes if each == path)
        if methods:
            raise ProblemError(METHOD, f"{method[:20]} is not possible here", {"allow": ", ".join(methods)})
        raise ProblemError(UNKNOWN, "there is no such question")

    async def _session(self, call: ConsoleCall) -> Any:
        """Who is logged in, and what pages there are."""
        expires = self._logins.expires(call.client)
        pages = [{"name": each.name, "title": each.title, "group": each.group, "about": each.about} for each in PAGES]
        return identity(call.client) | {
            "address": call.client.client.address,
            "expires": None if expires == float("inf") else expires,
            "pages": pages,
        }

    async def _log_in(self, scope: AsgiScope, receive: AsgiReceive) -> WholeAnswer:
        headers = scope["headers"]
        if not any(name == b"content-type" and value.startswith(b"application/json") for name, value in headers):
            raise ProblemError(MEDIA, "send the request with Content-Type: application/json")
        given = read_body(await body_reader(receive, headers)(MOST_JSON), LoginRequest)
        token = self._logins.redeem(given.code) if given.code else given.token
        key = await self._logins.log_in(token, client_host(scope))
        if given.wanted == "code":
            self._logins.log_out(key)
            return _json({"code": self._logins.code(token)})
        self._logins.log_out(cookie_of(headers))
        return _json({"done": True}, {"set-cookie": cookie_header(key, scope["scheme"] == "https")})

    async def _log_out(self, call: ConsoleCall) -> WholeAnswer:
        await call.body(dict[str, Any])
        self._logins.log_out(cookie_of(call.headers))
        return _json({"done": True}, {"set-cookie": cookie_header("", False)})

    # -- the live connection of a tab --------------------------------------------------------------------------

    async def _tab(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["path"] != API + "/live":
            raise ProblemError(UNKNOWN, "there is no such live connection")
        if not any(name == b"origin" for name, _ in scope["headers"]):
            raise ProblemError(ORIGIN, "the live connection is for pages of the console")
        async with self._logins.client(scope["headers"], client_host(scope)) as client:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})

            async def read() -> str | None:
                message = await receive()
                return message.get("text") or "" if message["type"] == "websocket.receive" else None

            async def write(text: str) -> None:
                async with asyncio.timeout(STALLED):
                    await send({"type": "websocket.send", "text": text})

            ended = asyncio.create_task(self._logins.ended(scope["headers"]).wait(), name="weft-tab")
            serving = asyncio.create_task(self._live.serve(client, read, write), name="weft-tab")
            try:
                await asyncio.wait({ended, serving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                serving.cancel()
                await asyncio.gather(ended, serving, return_exceptions=True)
            with suppress(RuntimeError):  # the tab is gone
                await send({"type": "websocket.close", "code": 1000})


def _json(value: Any, headers: dict[str, str] | None = None) -> WholeAnswer:
    return WholeAnswer(200, _encode(value), "application/json", headers or {})


def _file(scope: AsgiScope) -> WholeAnswer:
    """A page, which is the same for all addresses below /ui, or a file of it."""
    path: str = scope["path"]
    if scope["method"] not in ("GET", "HEAD"):
        raise ProblemError(METHOD, f"{scope['method'][:20]} is not possible here", {"allow": "GET, HEAD"})
    if path == "/":
        return WholeAnswer(307, headers={"location": "/ui"})
    name = "icon.svg" if path == "/favicon.ico" else "index.html"
    if path.startswith("/ui/static/"):
        name = path.removeprefix("/ui/static/")
    found = assets().get(name)
    if found is None:
        raise ProblemError(UNKNOWN, "there is no such file")
    headers = {"etag": found.tag, "cache-control": "no-cache"}
    if any(key == b"if-none-match" and value.decode("latin-1") == found.tag for key, value in scope["headers"]):
        return WholeAnswer(304, headers=headers)
    return WholeAnswer(200, b"" if scope["method"] == "HEAD" else found.body, found.kind, headers)
