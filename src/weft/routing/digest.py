"""One number for a set of items. Law: equal sets have equal digests, in whatever order they came to be; of different
sets one pair in 2**64 has, unless somebody looks for it.

The digest is the sum over all items of `mixed(id, hash)` modulo 2**64, where `mixed` is 64 bits of BLAKE2b over the
id and the item's hash, eight bytes each, the highest first. A sum changes with one addition when an item comes or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from weft.routing.item_codec import ItemCodec
from weft.routing.table import Item, ItemId

_MASK = (1 << 64) - 1


class Digest:
    """The digest of a set that changes: what one end was told, and what the other has heard.

    >>> told, heard = Digest(), Digest()
    >>> told.add(ItemId(1), 77), told.add(ItemId(2), 78), heard.add(ItemId(2), 78), told == heard
    (None, None, None, False)
    >>> told.drop(ItemId(1), 77), told == heard
    (None, True)
    """

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self, item: ItemId, hash: int) -> None:
        """An item comes, with the hash that its `ItemCodec` gives it. Cost: about a microsecond."""
        self.value = (self.value + _mixed(item, hash)) & _MASK

    def drop(self, item: ItemId, hash: int) -> None:
        """An item goes; the caller knows that it is in."""
        self.value = (self.value - _mixed(item, hash)) & _MASK

    def __eq__(self, other: object) -> bool:
        return self.value == other.value if isinstance(other, Digest) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes


class Digests(NamedTuple):
    """The digests of both directions of a link."""

    told: int
    heard: int


def digest(items: Mapping[ItemId, Item], kind: ItemCodec) -> int:
    """The digest of a whole set. Cost: O(items), a hash each."""
    whole = Digest()
    for item_id, item in items.items():
        whole.add(item_id, kind.hash(item))
    return whole.value


def _mixed(item: int, hash: int) -> int:
    data = item.to_bytes(8, "big") + hash.to_bytes(8, "big")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
