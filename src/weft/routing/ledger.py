"""The two directions of a link: what was told and what was heard. Laws: an item keeps its id as long as it is told, and
no other item ever gets that id; an update that cannot be applied changes nothing.

A table names what it tells by keys of its own (a subscription, a normal form, a node), and tells each key to a link
once. Told and withdrawn keys accumulate until `flush` turns them into one update; a key that is told and withdrawn in
between leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from weft.errors import RemoteProtocolError
from weft.interest.label_set import Note
from weft.model.change import Change
from weft.model.paged_dict import PagedDict
from weft.model.split_dict import SplitDict
from weft.routing.table import About, Item, ItemId, Items, Link, Role, Update

K = TypeVar("K", bound=Hashable)


class Ledger(Generic[K]):
    """The ledger of one link. `numbers` provides ascending ids and may be shared by the ledgers of a table.

    >>> from itertools import count
    >>> from weft import parse
    >>> ledger: Ledger[str] = Ledger(count(1))
    >>> ledger.tell("mine")
    >>> ledger.flush(lambda key: parse("x > 5")).add.keys()
    dict_keys([1])
    >>> ledger.withdraw("mine")
    >>> ledger.flush(lambda key: parse("x > 5")).drop
    (1,)
    """

    __slots__ = ("_add", "_drop", "_numbers", "about", "fresh", "heard", "highest", "ids", "notes")

    def __init__(self, numbers: Iterator[int], about: About = About.SUBSCRIPTIONS) -> None:
        self.about = about
        self.ids: SplitDict[K, ItemId] = SplitDict()  # of what is told
        self.heard: PagedDict[ItemId, Item] = PagedDict()
        self.highest = -1  # highest id heard: ids ascend, so none is reused
        self.fresh = False  # whether the next update starts from scratch
        self.notes: tuple[Note, ...] = ()  # sent with the next update
        self._add: dict[K, None] = {}
        self._drop: dict[K, ItemId] = {}
        self._numbers = numbers

    # -- telling --------------------------------------------------------------------------------

    def tell(self, key: K) -> None:
        """Tell a key. A key that is about to be withdrawn stays."""
        if key in self._drop:
            self.ids[key] = self._drop.pop(key)
        else:
            assert key not in self.ids, "a key is told once"
            self._add[key] = None

    def withdraw(self, key: K) -> None:
        """Withdraw a key."""
        if key in self._add:
            del self._add[key]
        else:
            self._drop[key] = self.ids.pop(key)

    def knows(self, key: K) -> bool:
        """Whether the link knows a key, or will with the next update."""
        return key in self.ids or key in self._add

    def keys(self) -> Iterator[K]:
        """Everything that the link knows, or will with the next update."""
        yield from sorted(self.ids, key=self.ids.__getitem__)
        yield from self._add

    @property
    def changed(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._add or self._drop or self.fresh or self.notes)

    def flush(self, item: Callable[[K], Item]) -> Update:
        """What has accumulated, as an update. A fresh update contains everything that is told, under the same ids."""
        drop = tuple(sorted(self._drop.values())) if self._drop and not self.fresh else ()
        add: dict[ItemId, Item] = {}
        if self.fresh:
            add = self.told(item)
        for key in self._add:
            self.ids[key] = item_id = ItemId(next(self._numbers))
            add[item_id] = item(key)
        update = Update(self.about, self.fresh, drop, add, self.notes)
        self._add, self._drop, self.fresh, self.notes = {}, {}, False, ()
        return update

    def told(self, item: Callable[[K], Item]) -> dict[ItemId, Item]:
        """Everything that the link knows, in the order of the ids."""
        return {item_id: item(key) for key, item_id in sorted(self.ids.items(), key=lambda pair: pair[1])}

    # -- hearing --------------------------------------------------------------------------------

    def news(self, link: Link, role: Role, update: Update) -> Change[Items, Items]:
        """What the update would change of what was heard, without changing it. Raises RemoteProtocolError."""
        heard = self.heard
        if update.about is not self.about:
            raise RemoteProtocolError(
                f"{link} sent {update.about.value}, but this network has none; use the same model at both ends"
            )
        if role is Role.MASTER and update.add:
            raise RemoteProtocolError(f"{link} is our master and must not tell us what it wants")
        if update.add and min(update.add) < 0:
            raise RemoteProtocolError(f"{link} uses {min(update.add)} as an item id; ids must not be negative")
        if update.fresh:
            same = {item_id for item_id, item in update.add.items() if heard.get(item_id) == item}
            return Change(
                {item_id: item for item_id, item in heard.items() if item_id not in same},
                {item_id: item for item_id, item in update.add.items() if item_id not in same},
            )
        drop: dict[ItemId, Item] = {}
        for item_id in update.drop:
            if item_id not in heard or item_id in drop:
                raise RemoteProtocolError(f"{link} drops item {item_id}, which it has not told; restart its session")
            drop[item_id] = heard[item_id]
        if update.add and min(update.add) <= self.highest:
            raise RemoteProtocolError(
                f"{link} adds item {min(update.add)} after item {self.highest}; ids must ascend; restart its session"
            )
        return Change(drop, update.add)

    def hear(self, update: Update, news: Change[Items, Items]) -> None:
        """Record as heard what `news` returned."""
        for item_id in news.drop:
            del self.heard[item_id]
        self.heard.update(news.add)
        highest = max(update.add, default=-1)
        self.highest = highest if update.fresh else max(self.highest, highest)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert not self.changed, "something was told and not sent"
        assert len(set(self.ids.values())) == len(self.ids), "two keys share an item"
        assert all(0 <= item_id <= self.highest for item_id in self.heard), "an item above the highest id"
