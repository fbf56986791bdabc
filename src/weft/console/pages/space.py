"""The plane of two attributes: boxes, curve, ranges, labels, negative boxes."""

from __future__ import annotations

from weft.console.page import ConsolePage, post
from weft.console.pages.orders import space

PAGE = ConsolePage(
    "space",
    "Space",
    "Understand",
    "Filters as boxes, ranges of a curve, labels and negative space; who matches at a point, by which model",
    (post("/space", space),),
)
