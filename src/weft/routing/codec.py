"""Updates as bytes. `decode(encode(update))` is the update, except that normal forms come back as filters of the same
meaning. Equal updates have equal bytes. Any other bytes raise RemoteProtocolError and nothing else.

An update is one MessagePack array: about (0 subscriptions, 1 advertisements), fresh, the dropped ids, the added ids,
the items of the latter, and the notes. A partial update has `true` as its seventh element. Ids ascend. The link that
sends it adds a length prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.routing.dls.items import Note
from weft.routing.item_codec import MAX_INT, FilterItems, ItemCodec, LabelItems, RangeItems
from weft.routing.table import About, Item, ItemId, Update

MAX_FRAME = 1 << 20  # bytes per update

_ABOUT = (About.SUBSCRIPTIONS, About.ADVERTISEMENTS)


class _Frame(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A received update before its items are decoded; their kind depends on what it is about."""

    about: Literal[0, 1]
    fresh: bool
    drop: list[int]
    ids: list[int]
    items: msgspec.Raw
    notes: tuple[Note, ...]
    partial: bool = False


_values = msgspec.msgpack.Decoder()
_frames = msgspec.msgpack.Decoder(_Frame)
_encoder = msgspec.msgpack.Encoder()


class Codec:
    """Updates whose items are `filters`; with `cells`, those about subscriptions have ranges or labels instead.

    >>> from weft import parse
    >>> codec = Codec(FilterItems())
    >>> sent = codec.encode(Update(drop=(ItemId(3),), add={ItemId(7): parse("x > 5")}))
    >>> len(sent), codec.decode(sent).drop, str(codec.decode(sent).add[7])
    (15, (3,), 'x > 5')
    """

    def __init__(self, filters: FilterItems, cells: RangeItems | LabelItems | None = None) -> None:
        self.kinds: dict[About, ItemCodec] = {
            About.SUBSCRIPTIONS: filters if cells is None else cells,
            About.ADVERTISEMENTS: filters,
        }
        self._items: dict[About, msgspec.msgpack.Decoder[list[Any]]] = {
            about: msgspec.msgpack.Decoder(kind.wire) for about, kind in self.kinds.items()
        }

    def encode(self, update: Update) -> bytes:
        """The bytes of an update. Raises FilterTooComplexError, or LocalProtocolError for an invalid update.

        An update larger than a frame is rejected as well; the sender must split it.
        """
        kind = self.kinds[update.about]
        drop, ids = sorted(update.drop), sorted(update.add)
        if not _ascending(drop) or not _ascending(ids):
            raise LocalProtocolError("the ids of an update are invalid; use different integers from 0 to 2**63 - 1")
        items = [kind.encode(update.add[item_id]) for item_id in ids]
        parts = [_ABOUT.index(update.about), update.fresh, drop, ids, items, update.notes]
        data = _encoder.encode([*parts, True] if update.partial else parts)
        if len(data) > MAX_FRAME:
            raise LocalProtocolError(f"an update of {len(data)} bytes does not fit in a frame of {MAX_FRAME}; split it")
        return data

    def decode(self, data: bytes) -> Update:
        """The update in some bytes. Raises RemoteProtocolError."""
        if len(data) > MAX_FRAME:
            raise RemoteProtocolError(
                f"a frame of {len(data)} bytes exceeds the limit of {MAX_FRAME}; split the update"
            )
        try:
            frame = _frames.decode(data)
            about = _ABOUT[frame.about]
            values = self._items[about].decode(frame.items)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, as is bad UTF-8
            raise RemoteProtocolError(f"these bytes are not an update: {error}") from None
        if not _ascending(frame.drop) or not _ascending(frame.ids):
            raise RemoteProtocolError("the ids of an update must ascend, and none may be negative")
        if len(values) != len(frame.ids):
            raise RemoteProtocolError(f"an update has {len(frame.ids)} ids but {len(values)} items")
        decode = self.kinds[about].decode
        add = {ItemId(item_id): decode(value) for item_id, value in zip(frame.ids, values, strict=True)}
        return Update(about, frame.fresh, tuple(map(ItemId, frame.drop)), add, frame.notes, frame.partial)

    def encode_item(self, about: About, item: Item) -> bytes:
        """One item alone. Raises FilterTooComplexError, or LocalProtocolError for an item of another kind."""
        return _encoder.encode(self.kinds[about].encode(item))

    def decode_item(self, about: About, data: bytes) -> Item:
        """The item in some bytes. Raises RemoteProtocolError."""
        try:
            value = _values.decode(data)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"these bytes are not an item: {error}") from None
        return self.kinds[about].decode(value)

    @property
    def noted(self) -> bool:
        """Whether updates about subscriptions may have notes."""
        return isinstance(self.kinds[About.SUBSCRIPTIONS], LabelItems)


def _ascending(ids: Sequence[int]) -> bool:
    """Whether ids are valid: each is greater than the previous one."""
    if not ids:
        return True
    return ids[0] >= 0 and ids[-1] <= MAX_INT and all(one < other for one, other in pairwise(ids))
