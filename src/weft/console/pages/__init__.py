"""The pages of the console, in the order of its navigation."""

from __future__ import annotations

from weft.console.page import ConsolePage
from weft.console.pages import (
    brokers,
    context,
    dead,
    events,
    filters,
    orders,
    overview,
    publish,
    ring,
    rules,
    runs,
    sessions,
    space,
    subscriptions,
    why,
)

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    brokers.PAGE,
    sessions.PAGE,
    subscriptions.PAGE,
    filters.PAGE,
    events.PAGE,
    publish.PAGE,
    why.PAGE,
    dead.PAGE,
    rules.PAGE,
    orders.PAGE,
    space.PAGE,
    context.PAGE,
    runs.PAGE,
    ring.PAGE,
)
