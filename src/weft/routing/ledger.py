"""The ledger of a table: what was told to and heard from each link. Laws: an item keeps its id as long as it is told,
and no other item gets that id ever after; an update that cannot be applied changes nothing.

Tables name what they tell by keys of their own (a subscription, a normal form, a node); a key is told to a link once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import SubId
from weft.routing.table import About, Filters, Item, ItemId, Items, Link, Role, Tell, Update

Key = TypeVar("Key", bound=Hashable)


class Revision(NamedTuple, Generic[Key]):
    """How what a link should know changes: the drops first, then the adds; a key may be in both."""

    drop: Collection[Key] = ()
    add: Mapping[Key, Item] = MappingProxyType({})


class News(NamedTuple):
    """What an update changes of what was heard."""

    drop: Items
    add: Items


NOTHING_NEW = News({}, {})


@dataclass(slots=True)
class _Page(Generic[Key]):
    """One link's."""

    role: Role
    ids: dict[Key, ItemId] = field(default_factory=dict)
    told: dict[ItemId, Item] = field(default_factory=dict)
    heard: dict[ItemId, Item] = field(default_factory=dict)


class Ledger(Generic[Key]):
    """Links, and the items on both directions of each.

    >>> ledger: Ledger[str] = Ledger()
    >>> ledger.attach(Link("north"), Role.PEER)
    >>> from weft import parse
    >>> [list(tell.update.add) for tell in ledger.tell(Link("north"), Revision(add={"mine": parse("x > 5")}))]
    [[1]]
    >>> [tell.update.drop for tell in ledger.tell(Link("north"), Revision(drop=["mine"]))]
    [(1,)]
    """

    def __init__(self, about: About = About.SUBSCRIPTIONS) -> None:
        self.about = about
        self._pages: dict[Link, _Page[Key]] = {}
        self._next = count(1)  # one for all links: then no id comes twice, even if a link comes back

    # -- links ----------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role) -> None:
        """Open a page for a link; a known one keeps its page. Raises LocalProtocolError."""
        page = self._pages.get(link)
        if page is None:
            if not link:
                raise LocalProtocolError("a link needs a name")
            self._check_role(link, role)
            self._pages[link] = _Page(role)
        elif page.role is not role:
            raise LocalProtocolError(
                f"{link} is attached as {page.role.value}: detach it before it becomes {role.value}"
            )

    def _check_role(self, link: Link, role: Role) -> None:
        """A broker does not know what is wanted above its master: a peer, or a second master, would miss that."""
        roles = {page.role for page in self._pages.values()}
        above = Role.MASTER in roles and role is not Role.SLAVE
        if above or (role is Role.MASTER and Role.PEER in roles):
            raise LocalProtocolError(
                f"{link} cannot be a {role.value}: a broker with a master has slaves and nobody else"
            )

    def detach(self, link: Link) -> None:
        """Close a link's page."""
        self._page(link)
        del self._pages[link]

    @property
    def links(self) -> Collection[Link]:
        """All links, in the order of their attachment."""
        return self._pages.keys()

    @property
    def listening(self) -> Iterator[Link]:
        """The links that are told anything."""
        return (link for link, page in self._pages.items() if page.role is not Role.SLAVE)

    @property
    def master(self) -> Link | None:
        """The link that every event goes to, if there is one."""
        return next((link for link, page in self._pages.items() if page.role is Role.MASTER), None)

    def role(self, link: Link) -> Role:
        """What the neighbour is."""
        return self._page(link).role

    # -- telling --------------------------------------------------------------------------------

    def tell(self, link: Link, revision: Revision[Key]) -> list[Tell]:
        """The revision as an update to send, noted as told; none if it changes nothing. Raises LocalProtocolError."""
        page = self._page(link)
        for key in revision.drop:
            if key not in page.ids:
                raise LocalProtocolError(f"{link} does not know {key!r}: there is nothing to drop")
        gone = set(revision.drop)
        for key in revision.add:
            if key in page.ids and key not in gone:
                raise LocalProtocolError(f"{link} knows {key!r} already: drop it first")
        drop = tuple(sorted(page.ids.pop(key) for key in revision.drop))
        for item_id in drop:
            del page.told[item_id]
        add = {}
        for key, item in revision.add.items():
            page.ids[key] = item_id = ItemId(next(self._next))
            page.told[item_id] = add[item_id] = item
        return [Tell(link, Update(self.about, False, drop, add))] if drop or add else []

    def retell(self, link: Link, wanted: Mapping[Key, Item]) -> Tell:
        """All that the link should know, fresh; what was told before keeps its id."""
        self.tell(link, self.revision(link, wanted))
        return Tell(link, Update(self.about, True, (), dict(self._page(link).told)))

    def revision(self, link: Link, wanted: Mapping[Key, Item]) -> Revision[Key]:
        """The difference between what is told and what should be. Cost: O(both)."""
        ids = self._page(link).ids
        return Revision([key for key in ids if key not in wanted], {k: i for k, i in wanted.items() if k not in ids})

    def keys(self, link: Link) -> Collection[Key]:
        """The keys of what is told to a link."""
        return self._page(link).ids.keys()

    def told(self, link: Link) -> Items:
        """What is told to a link."""
        return MappingProxyType(self._page(link).told)

    # -- hearing --------------------------------------------------------------------------------

    def news(self, link: Link, update: Update) -> News:
        """What the update would change, without changing it. Raises RemoteProtocolError."""
        page = self._page(link)
        heard = page.heard
        if update.about is not self.about:
            raise RemoteProtocolError(f"{link} tells {update.about.value}, and there are none in this network")
        if page.role is Role.MASTER and update.add:
            raise RemoteProtocolError(f"{link} is our master and yet tells us what it wants: it must send nothing")
        if update.fresh:
            same = {item_id for item_id, item in update.add.items() if heard.get(item_id) == item}
            return News(
                {item_id: item for item_id, item in heard.items() if item_id not in same},
                {item_id: item for item_id, item in update.add.items() if item_id not in same},
            )
        drop: dict[ItemId, Item] = {}
        for item_id in update.drop:
            if item_id not in heard or item_id in drop:
                raise RemoteProtocolError(
                    f"{link} drops item {item_id}, which it has not told: its session must start anew"
                )
            drop[item_id] = heard[item_id]
        for item_id in update.add:
            if item_id in heard:
                raise RemoteProtocolError(f"{link} adds item {item_id} twice: its session must start anew")
        return News(drop, update.add)

    def hear(self, link: Link, news: News) -> None:
        """Note as heard what `news` found."""
        heard = self._page(link).heard
        for item_id in news.drop:
            del heard[item_id]
        heard.update(news.add)

    def heard(self, link: Link) -> Items:
        """What was heard from a link."""
        return MappingProxyType(self._page(link).heard)

    # -------------------------------------------------------------------------------------------

    def _page(self, link: Link) -> _Page[Key]:
        try:
            return self._pages[link]
        except KeyError:
            raise LocalProtocolError(f"there is no link {link}: attach it first") from None

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for page in self._pages.values():
            assert set(page.ids.values()) == set(page.told), "told without a key"
            assert len(page.ids) == len(page.told), "two keys share an item"
            assert page.role is not Role.SLAVE or not page.told, "a slave was told something"


class Ledgered(Generic[Key]):
    """What every table with a ledger answers by it alone; advertisements are `adverts.Advertised`'s to add."""

    ledger: Ledger[Key]

    def advertise(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:  # noqa: ARG002
        """Refused: see `adverts.Advertised`."""
        raise LocalProtocolError("this network has no advertisements: publish without, or wrap the table in Advertised")

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour knows from us."""
        return self.ledger.told(link) if about is self.ledger.about else {}

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us."""
        return self.ledger.heard(link) if about is self.ledger.about else {}
