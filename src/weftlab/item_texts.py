"""The texts of items in recordings, each made once: a simulator looks at its tables after every step."""

from __future__ import annotations

from weft.routing.item_text import item_text
from weft.routing.table import About, Item, UpdateCodec

_LONGEST = 400  # characters


class ItemTexts:
    """Texts of items, by their identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Item, str]] = {}

    def of(self, item: Item, codec: UpdateCodec, about: About) -> str:
        """The text of an item. The item is kept, so that no other one gets its identity."""
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = item, item_text(item, codec, _LONGEST, about)
        return known[1]
