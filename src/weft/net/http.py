"""`/metrics` and `/health` over HTTP, in the loop of a broker. Laws: nothing here changes the broker; it is healthy
when it accepts events and all its links are warm.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from weft.errors import OptionError
from weft.net.facts import links_of
from weft.net.metrics import exposition

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from weft.net.node import BrokerNode

_MISSING = "HTTP needs the extra `broker`: install weft[broker], or leave out the setting http"


def health_of(node: BrokerNode) -> tuple[bool, dict[str, Any]]:
    """Whether a node is ready, and why it is not."""
    links = links_of(node)
    cold = [link["peer"] for link in links if not link["warm"]]
    ready = not node.stopping and not node.ended.done() and not cold
    return ready, {"ready": ready, "stopping": node.stopping, "links": len(links), "cold links": cold}


def application(node: BrokerNode) -> Starlette:
    """The pages of a node. Raises OptionError without the extra `broker`."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ImportError:
        raise OptionError(_MISSING) from None

    async def metrics(_: Request) -> Response:
        body, kind = exposition(node)
        return Response(body, media_type=kind)

    async def health(_: Request) -> Response:
        ready, facts = health_of(node)
        return JSONResponse(facts, status_code=200 if ready else 503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/health", health)])


@contextlib.asynccontextmanager
async def http_server(node: BrokerNode, host: str, port: int) -> AsyncIterator[tuple[str, int]]:
    """Serve the pages until the block ends. Yields host and port. Raises OptionError."""
    try:
        import uvicorn
    except ImportError:
        raise OptionError(_MISSING) from None

    class Quiet(uvicorn.Server):
        """A server that leaves signals to the broker."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Signals are not its business."""
            yield

    pages = application(node)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        place = socket.create_server((host, port), family=family)
    except OSError as error:
        raise OptionError(f"cannot serve HTTP at {host}:{port}: {error.strerror or error}") from error
    config = uvicorn.Config(
        pages, log_config=None, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = Quiet(config)
    task = asyncio.create_task(server.serve(sockets=[place]), name="weft-http")
    try:
        yield host, place.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        place.close()
