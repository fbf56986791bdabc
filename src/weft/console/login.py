"""Who is logged in: a token is exchanged for a cookie, which pages alone understand.

A login ends by log-out, with its token, after an hour without a request, and when the broker refuses the token. It
holds the client that its token has made, so that a token that is accepted once is enough. `weft console --open`
hands its token over by a code that is good for one minute and one use.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

from weft.gateway.clients import ClientPool, PrincipalClient, in_background, unverified_claims
from weft.gateway.problems import UNAVAILABLE, ProblemError, login_problem
from weft.server.clock import clock

COOKIE = "weft"
IDLE = 3_600.0  # seconds
MOST_LOGINS = 1_000
_CODE = 60.0  # seconds that a code is good for
_FOREVER = float("inf")
_REFUSED = 5.0  # seconds that nobody tries again to enter without a token


@dataclass(slots=True)
class ConsoleLogin:
    """Somebody who is logged in."""

    client: PrincipalClient
    holding: AsyncExitStack
    expires: float  # UTC seconds
    used_at: float
    users: int = 0  # requests and live connections that use it now
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Logins:
    """All logins of a gateway, by their cookies."""

    pool: ClientPool
    _known: dict[str, ConsoleLogin] = field(default_factory=dict)
    _codes: dict[str, tuple[str, float]] = field(default_factory=dict)  # a token and until when it waits
    _closed_until: float = 0.0  # until when the broker is known to want a token

    async def log_in(self, token: str, host: str) -> str:
        """Log in with a token; the result is the value of the cookie. Raises ProblemError."""
        now = _now()
        if len(self._known) >= MOST_LOGINS:
            raise ProblemError(UNAVAILABLE, f"{MOST_LOGINS:,} people are logged in; try again later")
        if not token or not token.isascii():
            raise login_problem()
        holding = AsyncExitStack()
        client = await holding.enter_async_context(self.pool.client(token.encode(), host))
        expiry = unverified_claims(token.encode()).get("exp")  # the broker has accepted the token
        expires = float(expiry) if isinstance(expiry, int | float) else _FOREVER
        key = secrets.token_urlsafe(32)
        self._known[key] = ConsoleLogin(client, holding, expires, now)
        return key

    def code(self, token: str) -> str:
        """A code for which the token is handed over once."""
        now = _now()
        self._codes = {code: kept for code, kept in self._codes.items() if kept[1] > now}
        if len(self._codes) >= MOST_LOGINS:
            raise ProblemError(UNAVAILABLE, "too many codes wait to be used; try again in a minute")
        code = secrets.token_urlsafe(32)
        self._codes[code] = token, now + _CODE
        return code

    def redeem(self, code: str) -> str:
        """The token of a code. Raises ProblemError."""
        token, until = self._codes.pop(code, ("", 0.0))
        if not token or until < _now():
            raise login_problem()
        return token

    def log_out(self, key: str) -> None:
        """End a login."""
        login = self._known.pop(key, None)
        if login is not None:
            login.ended.set()
            in_background(login.holding.aclose())

    def ended(self, headers: list[tuple[bytes, bytes]]) -> asyncio.Event:
        """What is set when the login of a request ends; never, if it has none."""
        login = self._known.get(cookie_of(headers))
        return asyncio.Event() if login is None else login.ended

    @asynccontextmanager
    async def client(self, headers: list[tuple[bytes, bytes]], host: str) -> AsyncIterator[PrincipalClient]:
        """The client of a request: of its cookie; without one, of nobody in particular. Raises ProblemError."""
        login = self._known.get(cookie_of(headers))
        if login is not None and not self._is_over(login, _now()):
            login.users += 1
            try:
                yield login.client
            finally:
                login.users -= 1
                login.used_at = _now()
            return
        if self._closed_until > _now():
            raise login_problem()
        async with AsyncExitStack() as around:
            try:
                found = await around.enter_async_context(self.pool.client(b"", host))
            except ProblemError as error:
                if error.kind.status == 401:
                    self._closed_until = _now() + _REFUSED
                raise
            yield found

    def expires(self, client: PrincipalClient) -> float:
        """When the login of a client ends, in UTC seconds; infinite if it does not."""
        return min((each.expires for each in self._known.values() if each.client is client), default=_FOREVER)

    def tick(self) -> None:
        """Called every second: end what is over."""
        now = _now()
        for key, login in list(self._known.items()):
            if self._is_over(login, now):
                self.log_out(key)

    @staticmethod
    def _is_over(login: ConsoleLogin, now: float) -> bool:
        idle = not login.users and login.used_at + IDLE < now
        return idle or login.expires <= now or login.client.client.is_over

    async def close(self) -> None:
        """End all."""
        known, self._known = self._known, {}
        await asyncio.gather(*(each.holding.aclose() for each in known.values()))


def cookie_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The value of our cookie; empty if there is none."""
    found: SimpleCookie = SimpleCookie()
    for name, value in headers:
        if name == b"cookie":
            try:
                found.load(value.decode("latin-1"))
            except CookieError:
                return ""
    return found[COOKIE].value if COOKIE in found else ""


def cookie_header(key: str, secure: bool) -> str:
    """The header that sets the cookie, or removes it if the key is empty."""
    ends = "" if key else "; Max-Age=0"
    return f"{COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}{ends}"


def identity(client: PrincipalClient) -> dict[str, Any]:
    """Who is logged in, for pages."""
    return {"principal": client.principal, "anonymous": not client.principal}


def _now() -> float:
    return clock().utc / 1e6
