"""Items of one kind that a neighbour is told. Law: an item keeps its wire id for as long as the neighbour holds it, and
a wire id is never given to another item.

The table names items by its own ids, which begin anew after a restart; the neighbour knows them by wire ids. While both
are compared, an item that the neighbour holds already is claimed by its hash, and need not be sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.broker.link_items import Hashes, ItemDigest, Unclaimed, item_hash
from weft.model.paged_dict import PagedDict
from weft.routing.table import About, Item, ItemId, Update, UpdateCodec


class ToldItems:
    """What the table has told of one kind, and what the neighbour holds of it."""

    __slots__ = ("_codec", "_hashes", "_kind", "_wires", "digest", "sent", "told", "unclaimed")

    def __init__(self, kind: About, codec: UpdateCodec) -> None:
        self._kind = kind
        self._codec = codec
        self.told: PagedDict[ItemId, Item] = PagedDict()  # by the table
        self._wires: PagedDict[ItemId, int] = PagedDict()  # of what is sent, or was held already
        self._hashes: PagedDict[ItemId, int] = PagedDict()  # also from earlier sessions
        self.sent: Hashes = PagedDict()  # what the neighbour holds once every frame has arrived
        self.digest = ItemDigest()  # of that
        self.unclaimed: Unclaimed | None = None  # of that; None: nothing is compared

    def tell(self, update: Update) -> None:
        """The table tells something, which may be sent later."""
        if update.fresh:
            self.told.clear()
        for item_id in update.drop:
            self.told.pop(item_id, None)
        self.told.update(update.add)

    # -- comparing ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A session begins: the neighbour will say what it holds."""
        self.sent, self.digest, self.unclaimed = PagedDict(), ItemDigest(), None

    def have(self, wires: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        """The neighbour holds these items, of these hashes."""
        ids, hashes = wires.tolist(), values.tolist()
        self.sent.update(zip(ids, hashes, strict=True))
        self.digest.add_many(wires, values)
        if self.unclaimed is None:
            self.unclaimed = Unclaimed()
        self.unclaimed.add_many(ids, hashes)

    def compare(self, *, listed: bool = False) -> None:
        """Everything will be added anew; `listed` if the neighbour has just said what it holds.

        Cost: O(items held), some ten nanoseconds each.
        """
        self._wires.clear()
        if self.unclaimed is None or not listed:
            self.unclaimed = Unclaimed()
            self.unclaimed.add_many([*self.sent.keys()], [*self.sent.values()])

    def end(self) -> None:
        """The comparison is over, or cut off."""
        self.unclaimed = None

    def forget_withdrawn(self) -> None:
        """After a comparison: forget the hashes of what was withdrawn while there was no session."""
        if len(self._hashes) > len(self._wires):  # every item with a wire id has a hash
            for item_id in [each for each in self._hashes if each not in self._wires]:
                del self._hashes[item_id]

    # -- sending --------------------------------------------------------------------------------------

    def add(self, item_id: ItemId, item: Item, wire: int) -> bytes | None:
        """The bytes of an item, which is to be sent under a new wire id; None if the neighbour holds it already."""
        body = None
        hashed = self._hashes.get(item_id)
        if hashed is None:
            body = self._codec.encode_item(self._kind, item)
            hashed = self._hashes[item_id] = item_hash(body)
        claimed = None if self.unclaimed is None else self.unclaimed.claim(hashed)
        if claimed is not None:
            self._wires[item_id] = claimed
            return None
        self._wires[item_id] = wire
        self.sent[wire] = hashed
        self.digest.add(wire, hashed)
        return self._codec.encode_item(self._kind, item) if body is None else body

    def withdraw(self, item_id: ItemId) -> int:
        """The table has withdrawn an item: the wire id that is to be dropped."""
        self._hashes.pop(item_id, None)
        return self._wires.pop(item_id)

    def drop(self, wire: int) -> None:
        """The neighbour is told that an item is gone."""
        self.digest.drop(wire, self.sent.pop(wire))

    def check(self, told: int, held: set[int], *, all_sent: bool) -> None:
        """Raise AssertionError if an invariant is broken. `told` is how many items the table has told, `held` are wire
        ids whose drop is put off, `all_sent` if nothing else waits.
        """
        assert len(self.told) == told
        wires = {*self._wires.values()}
        assert len(wires) == len(self._wires), "two items have one wire id"
        if all_sent:
            assert wires | held == self.sent.keys(), "what was sent is not what the table told"
            assert len(wires) == told
            assert held.isdisjoint(wires)
