"""The pages of the console, in the order of its navigation."""

from __future__ import annotations

from weft.console.page import ConsolePage
from weft.console.pages import filters, overview

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    filters.PAGE,
)
