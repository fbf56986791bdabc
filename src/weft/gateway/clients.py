"""The clients of the principals that are logged in, one for each token.

A token is passed on to the broker, which alone decides whom it lets in and what a principal may do. If the gateway has
the keys, it verifies tokens before, so that nobody can make the broker refuse the gateway's address by sending it bad
ones; without them, an address whose tokens fail waits longer after each failure. A token that is accepted once has a
client of its own for one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from weft.client.client import Client
from weft.errors import AccessError, ConnectError, WeftError
from weft.gateway.durable import DurableSubscription
from weft.gateway.feeds import HistoryReader, LiveFeed, StreamReader
from weft.gateway.problems import BUSY, UNAVAILABLE, ProblemError, login_problem, problem_of
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.schema import Schema
from weft.server.clock import clock
from weft.server.security.authenticator import LoginLimits
from weft.server.security.tokens import MOST_TOKEN, Tokens

IDLE = 60.0  # seconds after which a client that nobody uses is closed
MOST_CLIENTS = 1_000
MOST_STREAMS = 2_000  # of one principal
MOST_LINGERING = 100  # subscriptions of one principal that wait for a reader to come back


class PrincipalClient:
    """The client of one token, with its streams and subscriptions."""

    def __init__(
        self,
        client: Client,
        principal: str,
        schema: Schema | None,
        predicates: Predicates = NO_PREDICATES,
        patience: float = IDLE,
    ) -> None:
        self.client, self.principal, self.schema, self.predicates = client, principal, schema, predicates
        self.log = HistoryReader(client, schema)
        self.feeds: dict[str, LiveFeed] = {}  # by filter
        self.durable: dict[str, DurableSubscription] = {}  # by id
        self.users = 0  # requests that use it now
        self._idle_since, self._patience = asyncio.get_running_loop().time(), patience

    def release(self) -> None:
        """A request is done."""
        self.users -= 1
        self._idle_since = asyncio.get_running_loop().time()

    def is_idle(self, now: float) -> bool:
        """Whether nobody has used it for long."""
        return not self.is_used and self._idle_since + self._patience < now

    @property
    def is_used(self) -> bool:
        """Whether somebody needs its connection."""
        return bool(self.users or self.feeds or self.durable)

    async def feed(self, text: str, reader: StreamReader) -> LiveFeed:
        """The live events of a filter, shared by all streams that want them; this one is among its readers.

        Raises as `Client.subscribe`.
        """
        feed = self.feeds.get(text)
        if feed is None or feed.is_over:
            if sum(len(each.listeners) for each in self.feeds.values()) >= MOST_STREAMS:
                raise ProblemError(BUSY, f"you have {MOST_STREAMS:,} streams already; close some", limit=MOST_STREAMS)
            self._end_lingering()
            feed = self.feeds[text] = LiveFeed(self.log, text, lambda: self._forget(text), self._patience)
        feed.add(reader)  # before anything is awaited: a feed without readers ends
        try:
            await feed.open()
        except BaseException:
            feed.remove(reader)
            raise
        return feed

    def _end_lingering(self) -> None:
        """End those that have waited longest for a reader, if too many do."""
        waiting = sorted((each for each in self.feeds.values() if not each.listeners), key=lambda each: each.idle_since)
        for feed in waiting[: max(0, len(waiting) - MOST_LINGERING)]:
            feed.close()

    def _forget(self, text: str) -> None:
        feed = self.feeds.get(text)
        if feed is not None and feed.is_over:
            del self.feeds[text]

    def tick(self, now: float) -> None:
        """Called every second."""
        for feed in list(self.feeds.values()):
            if feed.is_idle(now):
                feed.close()
            else:
                feed.check()
        for durable in list(self.durable.values()):
            if durable.is_idle(now):
                del self.durable[durable.id]
                in_background(durable.close())

    def keep_alive(self) -> None:
        """Write something to every stream."""
        for feed in self.feeds.values():
            for listener in feed.listeners:
                listener.say()
        for durable in self.durable.values():
            durable.keep_alive()

    async def close(self, reason: str) -> None:
        """End all its streams, and the connection."""
        for feed in list(self.feeds.values()):
            feed.end("stopping", reason)
        for durable in self.durable.values():
            durable.end("stopping", reason)
        with contextlib.suppress(WeftError):
            await self.client.close()


class ClientPool:
    """All clients. `connect` makes one with a token."""

    def __init__(  # noqa: PLR0913 - what it is given
        self,
        connect: Callable[[bytes], Client],
        counts: Counter[str],
        *,
        schema: Schema | None = None,
        predicates: Predicates = NO_PREDICATES,
        tokens: Tokens | None = None,
        single_use: bool = False,
    ) -> None:
        self._connect, self._counts, self._schema, self._predicates = connect, counts, schema, predicates
        self._tokens, self._single_use = tokens, single_use
        self._limits = LoginLimits()
        self._clients: dict[bytes, asyncio.Task[PrincipalClient]] = {}
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def ready(self) -> list[PrincipalClient]:
        """The clients that are connected."""
        done = [task for task in self._clients.values() if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    @asynccontextmanager
    async def client(self, token: bytes, host: str) -> AsyncIterator[PrincipalClient]:
        """The client for a request from a host. Raises ProblemError."""
        found = await self._enter(token, host)
        found.users += 1
        try:
            yield found
        finally:
            found.release()

    async def _enter(self, token: bytes, host: str) -> PrincipalClient:
        now = clock()
        if self._is_closing:
            raise ProblemError(UNAVAILABLE, "the gateway stops; try again")
        if token and not self._limits.may_try(host, now.monotonic):
            self._counts["logins not tried"] += 1
            raise login_problem()
        claims = unverified_claims(token)
        try:
            if len(token) > MOST_TOKEN:
                raise AccessError("the token is too long")
            if self._tokens is not None:
                self._tokens.verify(token, now.utc)
        except AccessError:
            self._refused(host)
            raise login_problem() from None
        key = sha256(token).digest()
        once = bool(token) and (self._single_use or claims.get("once") is True)
        if once:
            key += secrets.token_bytes(8)  # nobody else finds it
        known = self._clients.get(key)
        if known is None or (known.done() and _is_over(known)):
            if len(self._clients) >= MOST_CLIENTS:
                raise ProblemError(UNAVAILABLE, f"{MOST_CLIENTS:,} principals are logged in; try again later")
            work = self._log_in(token, str(claims.get("sub", "")), 0 if once else IDLE)
            known = self._clients[key] = asyncio.create_task(work, name="weft-login")
        try:
            found = await asyncio.shield(known)
        except ConnectError as error:
            if error.code == "refused":
                self._refused(host)
            raise problem_of(error) from None
        if token:
            self._limits.succeeded(host)
        return found

    async def _log_in(self, token: bytes, principal: str, patience: float) -> PrincipalClient:
        client = self._connect(token)
        await client.__aenter__()
        self._counts["logins"] += 1
        return PrincipalClient(client, principal, self._schema, self._predicates, patience)

    def _refused(self, host: str) -> None:
        self._limits.failed(host, clock().monotonic)
        self._counts["logins refused"] += 1

    def tick(self, now: float) -> None:
        """Called every second: close what nobody uses."""
        for key, task in list(self._clients.items()):
            if not task.done():
                continue
            if _is_over(task):
                del self._clients[key]
                continue
            found = task.result()
            found.tick(now)
            if found.is_idle(now):
                del self._clients[key]
                in_background(found.close("nobody uses it"))

    async def close(self) -> None:
        """End everything."""
        self._is_closing = True
        ready, self._clients = self.ready, {}
        await asyncio.gather(*(each.close("the gateway stops; connect again") for each in ready))


_background: set[asyncio.Task[None]] = set()


def in_background(work: Coroutine[None, None, None]) -> None:
    """Do something that nobody waits for."""
    task = asyncio.create_task(work, name="weft-close")
    _background.add(task)
    task.add_done_callback(_background.discard)


def _is_over(task: asyncio.Task[PrincipalClient]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().client.is_over


def unverified_claims(token: bytes) -> dict[str, Any]:
    """What a token says, unverified: nothing is done with it before the broker has let the token in."""
    try:
        part = token.split(b".")[1]
        found = json.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
