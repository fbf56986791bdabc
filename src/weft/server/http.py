"""HTTP that strangers may reach: uvicorn, with a guard against slow, huge and ambiguous requests.

uvicorn with httptools accepts any amount of headers, and waits for the rest of a request for ever. Here a request has
32 KiB and 10 seconds for its headers, and 30 seconds for each further part of its body. A request that two servers
could read differently is refused: `Transfer-Encoding` beside `Content-Length`, any coding but chunked, either header
twice, and not exactly one `Host`. Every refusal is counted and closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any, cast

from weft.errors import OptionError

MISSING = "HTTP needs the extra `broker`: install weft[broker]"
HEADERS, HEADER_TIME, BODY_TIME = 32 << 10, 10.0, 30.0  # bytes; seconds
ABORT = "weft.abort"  # in the scope of a request: ends its connection at once, also if the client does not read
_STOPPING = 1  # seconds that answers may take when the server stops
_KEEP_ALIVE = 75  # seconds that a connection may wait for its next request
_MOST_UNREAD = 16 << 20  # bytes of a body that are thrown away after the answer, so that the client reads that


def guarded(
    refused: Counter[str],
    *,
    connections: int = 1_000,
    headers: int = HEADERS,
    header_time: float = HEADER_TIME,
    body_time: float = BODY_TIME,
) -> type[Any]:
    """A protocol for uvicorn that refuses such requests, and counts them by reason."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Guarded(HttpToolsProtocol):
        """Reads requests within bounds."""

        _reading = ""  # headers or body; empty between requests
        _size = 0  # bytes that were read of the headers, while these are not complete
        _unread = 0  # bytes of bodies that nobody wanted
        _timer: asyncio.TimerHandle | None = None
        _is_refused = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait("headers")
            if len(self.connections) > connections:
                self.refuse(503, "too many connections")

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait("")
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            if self._reading == "body":
                self._wait("body")
            super().data_received(data)
            if self._reading == "headers":  # still
                self._size += len(data)
                if self._size > headers:
                    self.refuse(431, "headers too large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            cast("dict[str, Any]", self.scope)[ABORT] = self.transport.abort
            self._size = 0
            self._wait("headers")

        def on_headers_complete(self) -> None:
            if self._is_refused:
                return
            reason = _ambiguity(self.headers, self.parser.get_http_version())
            if reason:
                self.refuse(400, reason)
            elif len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > headers:
                self.refuse(431, "headers too large")
            else:
                self._wait("body")
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self._is_refused:
                return
            if self.cycle.response_complete:  # it was answered before it was read
                self._unread += len(body)
                if self._unread > _MOST_UNREAD:
                    self.transport.close()
            super().on_body(body)

        def on_message_complete(self) -> None:
            if not self._is_refused:
                self._wait("")
                super().on_message_complete()

        def handle_websocket_upgrade(self) -> None:
            if not self._is_refused:
                self._wait("")
                super().handle_websocket_upgrade()

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words say nothing new
            self.refuse(400, "malformed")

        def refuse(self, status: int, reason: str) -> None:
            """Answer with a status, and close the connection."""
            if self._is_refused:
                return
            refused[reason] += 1
            self._wait("")
            self._is_refused = True
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
                self.transport.write(f"{line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            self.transport.close()

        def _wait(self, reading: str) -> None:
            """Give the next part of a request its time."""
            self._reading = reading
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if reading:
                patience = header_time if reading == "headers" else body_time
                self._timer = self.loop.call_later(patience, self._late)

        def _late(self) -> None:
            if not self.transport.is_closing():
                self.refuse(408, f"slow {self._reading}")

    return Guarded


def _ambiguity(headers: list[tuple[bytes, bytes]], version: str) -> str:
    """Why two servers could read a request differently; empty if they could not."""
    names = [name for name, _ in headers]
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or b"content-length" in names or version != "1.1"):
        return "ambiguous length"
    if names.count(b"content-length") > 1:
        return "ambiguous length"
    return "" if names.count(b"host") == 1 or (version == "1.0" and b"host" not in names) else "ambiguous host"


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OptionError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise OptionError(f"cannot serve HTTP at {host}:{port}: {error.strerror or error}") from error


@contextlib.asynccontextmanager
async def http_serving(
    app: Any,
    host: str,
    port: int,
    refused: Counter[str],
    **options: Any,
) -> AsyncIterator[tuple[str, int]]:
    """Serve an ASGI application until the block ends; `options` are uvicorn's. Yields host and port.

    Raises OptionError.
    """
    try:
        import uvicorn

        options.setdefault("http", guarded(refused))
    except ImportError:
        raise OptionError(MISSING) from None

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals are the process's

    place = listening_socket(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_STOPPING,
        **{"ws": "none", **options},
    )
    server = Quiet(config)
    task = asyncio.create_task(server.serve(sockets=[place]), name="weft-http")
    try:
        yield host, place.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        place.close()
