"""The workbench: what a filter means, what it covers, what it matches, and what it would cost."""

from __future__ import annotations

from typing import Any

from weft.algebra.normalize import normalize
from weft.console.page import ConsoleCall, ConsolePage, post
from weft.gateway.resources import FilterQuery
from weft.language.any_filter import as_filter
from weft.language.ast import attributes


async def check(call: ConsoleCall) -> dict[str, Any]:
    """A filter as Weft reads it. Raises FilterSyntaxError with the place."""
    given: FilterQuery = await call.body(FilterQuery)
    known = as_filter(given.filter)
    return {
        "filter": str(known),
        "empty": not normalize(known, call.schema),
        "attributes": sorted(attributes(known)),
    }


PAGE = ConsolePage(
    "filters",
    "Workbench",
    "Operate",
    "Try a filter: errors, meaning, covering, matches, and what an edit changes",
    (post("/filters/check", check),),
)
