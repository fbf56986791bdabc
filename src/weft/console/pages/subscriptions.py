"""Subscriptions: what they match, how often, and how far behind they are; an operator may change or end them."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.client.options import filter_text
from weft.console.page import ConsoleCall, ConsolePage, get, post
from weft.console.pages.listing import listed
from weft.protocol.questions import AskSubscriptions


async def subscriptions(call: ConsoleCall) -> dict[str, Any]:
    """Subscriptions whose filters contain a text, of one session or of all."""
    return await listed(call, AskSubscriptions(call.query.get("session", ""), call.query.get("text", "")))


class ChangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Another filter for a subscription; without one, the subscription ends."""

    session: str
    number: int
    filter: str | None
    broker: str = ""


async def change(call: ConsoleCall) -> dict[str, Any]:
    """Give a subscription another filter from the next event on, or end it."""
    given: ChangeRequest = await call.body(ChangeRequest)
    client = call.client.client
    before = ""
    async for each in client.subscriptions(given.session, broker=given.broker):
        if each.number == given.number:
            before = each.filter
    after = None if given.filter is None else filter_text(given.filter)
    await client.change(given.session, given.number, after, broker=given.broker)
    what = "subscription ended" if after is None else "subscription changed"
    call.audit(what, session=given.session, number=given.number, before=before, after=after or "", broker=given.broker)
    return {"done": True, "filter": after}


PAGE = ConsolePage(
    "subscriptions",
    "Subscriptions",
    "Operate",
    "All subscriptions: search, matches, lag; change or end one",
    (
        get("/subscriptions", subscriptions, "session", "text", "broker", "page"),
        post("/subscriptions/change", change),
    ),
)
