"""Sessions: who is connected, how far behind, with which subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from weft.client.client import Client
from weft.client.questions import rows_of
from weft.console.page import ConsoleCall, ConsolePage, TopicWatch, get, post
from weft.console.pages.listing import listed
from weft.gateway.problems import UNKNOWN, ProblemError
from weft.protocol.questions import AskSessions, AskSubscriptions

EVERY = 2.0  # seconds between two looks at one session


async def sessions(call: ConsoleCall) -> dict[str, Any]:
    """Sessions whose names contain a text."""
    chosen = {"yes": True, "no": False}.get(call.query.get("connected", ""))
    return await listed(call, AskSessions(call.query.get("text", ""), chosen))


async def session(call: ConsoleCall) -> dict[str, Any]:
    """One session, by its name."""
    return await _session(call.client.client, call.query.get("name", ""), call.query.get("broker", ""))


async def _session(client: Client, name: str, broker: str) -> dict[str, Any]:
    for each in rows_of((await client.ask(AskSessions(name, exact=True), broker=broker)).answer):
        if each.name == name:  # a broker of an older version lists all whose names contain it
            return {"session": msgspec.to_builtins(each)}
    raise ProblemError(UNKNOWN, f"there is no session {name[:100]!r} at this broker, or it is not yours")


async def session_topic(watch: TopicWatch) -> AsyncIterator[dict[str, Any]]:
    """One session and its subscriptions, every two seconds."""
    client = watch.client.client
    while True:
        found = await _session(client, watch.argument, "")
        rows = rows_of((await client.ask(AskSubscriptions(watch.argument))).answer)
        yield found | {"subscriptions": msgspec.to_builtins(rows)}
        await asyncio.sleep(EVERY)


class DisconnectRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A session whose connection is to be closed."""

    session: str
    broker: str = ""


async def disconnect(call: ConsoleCall) -> dict[str, Any]:
    """Close the connection of a session; the client may come back."""
    given: DisconnectRequest = await call.body(DisconnectRequest)
    await call.client.client.disconnect(given.session, reason="by an operator", broker=given.broker)
    call.audit("session disconnected", session=given.session, broker=given.broker)
    return {"done": True}


PAGE = ConsolePage(
    "sessions",
    "Sessions",
    "Operate",
    "Who is connected, how far behind, and with which subscriptions",
    (
        get("/sessions", sessions, "text", "connected", "broker", "page"),
        get("/sessions/one", session, "name", "broker"),
        post("/sessions/disconnect", disconnect),
    ),
    {"session": session_topic},
)
