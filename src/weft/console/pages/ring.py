"""A ring: nodes, fingers, load and groups."""

from __future__ import annotations

from weft.console.page import ConsolePage, get, post
from weft.console.pages.runs import live, ring

PAGE = ConsolePage(
    "ring",
    "Ring",
    "Understand",
    "Nodes on a circle, whom they know, what they store, and the groups of topics",
    (post("/ring", ring), get("/ring/live", live, "node")),
)
