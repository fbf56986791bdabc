"""Rules: what somebody may do, and whether a filter or an event is allowed."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, post
from weft.gateway.cloud_http import read_event


class RulesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A principal, by default oneself; and perhaps a filter and an event to test."""

    principal: str = ""
    filter: str = ""
    event: dict[str, Any] | None = None
    broker: str = ""


async def rules(call: ConsoleCall) -> dict[str, Any]:
    """What a principal may do."""
    given: RulesRequest = await call.body(RulesRequest)
    found = await call.client.client.rules(
        given.principal,
        filter=given.filter or None,
        event=None if given.event is None else read_event(given.event, call.schema),
        broker=given.broker,
    )
    return msgspec.to_builtins(found)  # type: ignore[no-any-return] # a mapping


PAGE = ConsolePage(
    "rules",
    "Rules",
    "Operate",
    "What somebody may do; test a filter or an event against the access rules",
    (post("/rules", rules),),
)
