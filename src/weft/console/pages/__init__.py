"""The pages of the console, in the order of its navigation."""

from __future__ import annotations

from weft.console.page import ConsolePage
from weft.console.pages import (
    brokers,
    dead,
    events,
    filters,
    overview,
    publish,
    rules,
    sessions,
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
)
