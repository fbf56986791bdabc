"""Why a subscription gets nothing, or less than expected."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, get
from weft.console.pages.listing import number_of


async def why(call: ConsoleCall) -> dict[str, Any]:
    """What keeps events from a subscription: facts, evidence, and what to do."""
    query = call.query
    number = number_of(query.get("number", ""), "number")
    found = await call.client.client.why(query.get("session", ""), number, broker=query.get("broker", ""))
    return {
        "healthy": found.is_healthy,
        "subscriptions": msgspec.to_builtins(found.subscriptions),
        "findings": msgspec.to_builtins(found.findings),
    }


PAGE = ConsolePage(
    "why",
    "Why",
    "Operate",
    "Why a subscription gets nothing: facts, evidence, what to do",
    (get("/why", why, "session", "number", "broker"),),
)
