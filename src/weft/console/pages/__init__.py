"""The pages of the console, in the order of its navigation."""

from __future__ import annotations

from weft.console.page import ConsolePage
from weft.console.pages import context, filters, orders, overview, ring, runs, space

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    filters.PAGE,
    orders.PAGE,
    space.PAGE,
    context.PAGE,
    runs.PAGE,
    ring.PAGE,
)
