"""Profiles and queries in two forests."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from weft.console.page import ConsoleCall, ConsolePage, post
from weft.console.views.context import ContextRequest, context_view


@lru_cache(16)
def cached_context(request: ContextRequest) -> dict[str, Any]:
    """The answer to a request; the last ones are kept. Runs in the worker."""
    return context_view(request)


async def context(call: ConsoleCall) -> Any:
    """Both forests, and which profiles and queries match."""
    return await call.services.worker.run(cached_context, await call.body(ContextRequest))


PAGE = ConsolePage(
    "context",
    "Context",
    "Understand",
    "Profiles and queries that meet by covering or overlap, and what preloading saves",
    (post("/context", context),),
)
