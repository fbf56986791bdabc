"""The two directions of a link: what was told and what was heard. An item keeps its id as long as it is told, and no
other item ever gets that id. An update that cannot be applied changes nothing.

A neighbour that restarts begins its ids anew, and may need several updates to tell everything. What it told before and
has not repeated is kept until the last of them. If a new item has the id of an old one, the old one gets another id,
which neighbours do not use.

A table names what it tells by keys of its own (a subscription, a normal form, a node), and tells each key to a link
once. Told and withdrawn keys accumulate until `flush` turns them into one update; a key that is told and withdrawn in
between leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import SubId
from weft.model.change import Change
from weft.model.paged_dict import PagedDict
from weft.model.split_dict import SplitDict
from weft.routing.dls.items import Note
from weft.routing.table import About, Item, ItemId, Items, Link, Role, Update

K = TypeVar("K", bound=Hashable)

_FIRST_MOVED = 1 << 62  # the ids of items whose own ids were given to others start here


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

    __slots__ = (
        "_add",
        "_drop",
        "_moved",
        "_numbers",
        "_partly_told",
        "_unrepeated",
        "about",
        "fresh",
        "heard",
        "highest",
        "ids",
        "notes",
        "partial",
    )

    def __init__(self, numbers: Iterator[int], about: About = About.SUBSCRIPTIONS) -> None:
        self.about = about
        self.ids: SplitDict[K, ItemId] = SplitDict()  # of what is told
        self.heard: PagedDict[ItemId, Item] = PagedDict()
        self.highest = -1  # highest id heard: ids ascend, so none is reused
        self.fresh = False  # whether the next update starts from scratch
        self.partial = False  # whether more must be told before the link knows everything that it should
        self.notes: tuple[Note, ...] = ()  # sent with the next update
        self._add: dict[K, None] = {}
        self._drop: dict[K, ItemId] = {}
        self._numbers = numbers
        self._moved = count(_FIRST_MOVED)
        self._partly_told = False  # the session has begun with a part, and is not told completely
        self._unrepeated: set[ItemId] | None = None  # items heard in earlier sessions, while this one is incomplete

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
        return bool(self._add or self._drop or self.fresh or self.notes or self.completing)

    @property
    def completing(self) -> bool:
        """Whether the next update completes a session that began with a part."""
        return self._partly_told and not self.partial

    def flush(self, item: Callable[[K], Item]) -> Update:
        """What has accumulated, as an update. A fresh update contains everything that is told, under the same ids."""
        drop = tuple(sorted(self._drop.values())) if self._drop and not self.fresh else ()
        add: dict[ItemId, Item] = {}
        if self.fresh:
            add = self.told(item)
        for key in self._add:
            self.ids[key] = item_id = ItemId(next(self._numbers))
            add[item_id] = item(key)
        self._partly_told = self.partial and (self.fresh or self._partly_told)
        update = Update(self.about, self.fresh, drop, add, self.notes, self._partly_told)
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
        if role is Role.PARENT and update.add:
            raise RemoteProtocolError(f"{link} is our parent and must not tell us what it wants")
        if update.add and min(update.add) < 0:
            raise RemoteProtocolError(f"{link} uses {min(update.add)} as an item id; ids must not be negative")
        unrepeated: Collection[ItemId] = () if self._unrepeated is None else self._unrepeated
        if update.fresh:
            return self._repeated(update, heard.keys())
        if update.partial and self._unrepeated is None:
            raise RemoteProtocolError(f"{link} continues a session that it has not begun; restart its session")
        drop: dict[ItemId, Item] = {}
        for item_id in update.drop:
            if item_id not in heard or item_id in drop or item_id in unrepeated:
                raise RemoteProtocolError(f"{link} drops item {item_id}, which it has not told; restart its session")
            drop[item_id] = heard[item_id]
        if update.add and min(update.add) <= self.highest:
            raise RemoteProtocolError(
                f"{link} adds item {min(update.add)} after item {self.highest}; ids must ascend; restart its session"
            )
        if self._unrepeated is None:
            return Change(drop, update.add)
        news = self._repeated(update, unrepeated)
        return Change({**drop, **news.drop}, news.add)

    def _repeated(self, update: Update, old: Collection[ItemId]) -> Change[Items, Items]:
        """What an update changes if it may repeat old items. The others are dropped; or kept, under another id if it
        has given theirs to a new item, as long as more may be repeated.
        """
        heard = self.heard
        same = {item_id for item_id, item in update.add.items() if item_id in old and heard[item_id] == item}
        add = {item_id: item for item_id, item in update.add.items() if item_id not in same}
        if not update.partial:
            return Change({item_id: heard[item_id] for item_id in old if item_id not in same}, add)
        drop = {item_id: heard[item_id] for item_id in add if item_id in old}
        for item in drop.values():
            add[next(ItemId(new) for new in self._moved if new not in heard and new not in add)] = item
        return Change(drop, add)

    def hear(self, update: Update, news: Change[Items, Items]) -> None:
        """Record as heard what `news` returned."""
        for item_id in news.drop:
            del self.heard[item_id]
        self.heard.update(news.add)
        highest = max(update.add, default=-1)
        self.highest = highest if update.fresh else max(self.highest, highest)
        if not update.partial:
            self._unrepeated = None
        elif update.fresh:
            self._unrepeated = self.heard.keys() - update.add.keys()
        elif self._unrepeated is not None:
            self._unrepeated |= news.add.keys()
            self._unrepeated -= update.add.keys()

    def completed_by(self, update: Update) -> bool:
        """Whether an update completes a session that began with a part."""
        return self._unrepeated is not None and not update.partial

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert not self.changed, "something was told and not sent"
        assert len(set(self.ids.values())) == len(self.ids), "two keys share an item"
        unrepeated = self._unrepeated or set()
        assert unrepeated <= self.heard.keys(), "an item is to be dropped that is not held"
        assert all(0 <= each <= self.highest for each in self.heard if each not in unrepeated), (
            "an item above the highest id"
        )


def check_change(known: Collection[int], add: Collection[SubId], drop: Collection[SubId]) -> None:
    """Raise LocalProtocolError unless what is dropped exists and occurs once, and what is added is new or dropped."""
    gone = set(drop)
    if len(gone) != len(drop):
        raise LocalProtocolError("a subscription is dropped twice in one change; drop it once")
    for sub in drop:
        if sub not in known:
            raise LocalProtocolError(f"there is no subscription {sub} to drop; drop only what was added")
    for sub in add:
        if sub in known and sub not in gone:
            raise LocalProtocolError(f"subscription {sub} already exists; drop it in the same change to replace it")
