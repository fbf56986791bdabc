"""The contract of routing tables: what neighbours tell each other, and where an event goes. Laws, on one table:

1. what A has told B is what B has heard from A, when nothing is in flight and A has told B everything;
2. whatever a local subscription or heard(M), M != L, admits, told(L) admits: a mistake here loses events;
3. EXACT: and nothing else; CELLS: nothing else, cell by cell;
4. when nothing is wanted, told(L) is empty;
5. told(L, subscriptions) does not depend on heard(L, subscriptions), nor advertisements on advertisements: an update
   about subscriptions is never answered to its source, or merging tables would exchange updates forever.

Law 2 holds after every update. Laws 3 and 4 hold when nothing is pending: a large consequence is told over several
updates, the additions first and the removal in the last, and `step` continues it. A new neighbour is told everything
gradually; law 2 holds for it when nothing is pending.

An update is atomic: held = (nothing if fresh else held - drop) + add, then one recomputation. A session begins with a
fresh update. If there is much to tell, the fresh update and those after it are partial, up to the last one. What was
heard in earlier sessions and is not repeated stays until that one, which drops it: whatever a neighbour wanted before
it restarted, it is sent until it has said everything that it wants now.

A table neither sends nor waits; it returns what must be told. Links are FIFO and lose nothing while they last. What
both ends must agree on while they run is sent as notes, which take effect with their update.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, NewType, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.index.base import AnyEvent, SubId
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.dls.items import LabelSet, Note
from weft.routing.mics.items import CurveRange

Link = NewType("Link", str)  # a neighbour; local clients are never links
ItemId = NewType("ItemId", int)  # chosen by the sender, ascending per direction of a link, never reused
ClientId = NewType("ClientId", str)  # a local client

Source = Link | None  # where an event comes from: a neighbour, or here
Item = Filter | NormalForm | CurveRange | LabelSet  # what an id stands for, depending on the table's model
Items = Mapping[ItemId, Item]
Routes = dict[Link, NDArray[np.intp]]  # the positions of the events that go to each neighbour that receives any


class Placed(NamedTuple):
    """A subscription that its client has mapped to the items of a table (MICS 6.1): ranges of curves, or labels."""

    filter: Filter
    fingerprint: str  # of the table that the items are for
    items: tuple[CurveRange | LabelSet, ...]


class Places(NamedTuple):
    """Events that their publisher has mapped: one row of keys per event, the same for every table with the fingerprint.

    A table with another fingerprint maps the events itself.
    """

    fingerprint: str
    keys: Ints


WantedItem = Filter | Placed
Filters = Mapping[SubId, WantedItem]


class About(Enum):
    """What an update is about."""

    SUBSCRIPTIONS = "subscriptions"
    ADVERTISEMENTS = "advertisements"


class Exactness(Enum):
    """How closely a table's items match what is wanted; neighbours must agree on it."""

    EXACT = "exact"  # the union of the filters
    CELLS = "cells"  # the cells that they touch
    HASHED = "hashed"  # the cells, and some more by chance
    WIDER = "wider"  # the filters or cells, and some more on purpose
    FLOOD = "flood"  # everything: nothing is told


class Role(Enum):
    """What a neighbour is to this broker (thesis 2.2, where a parent is called a master and a child a slave; links and
    logs still have these values).

    >>> Role("parent"), Role("master"), str(Role.PARENT)
    (<Role.PARENT: 'master'>, <Role.PARENT: 'master'>, 'parent')
    """

    PEER = "peer"  # told what is wanted here, sent what it wants
    PARENT = "master"  # told what is wanted here, sent every event; tells nothing
    CHILD = "slave"  # told nothing, because it sends every event; sent what it wants

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        return next((each for each in cls if str(each) == value), None)

    @property
    def converse(self) -> Role:
        """What this broker is to the neighbour."""
        return _CONVERSE[self]


_CONVERSE = {Role.PEER: Role.PEER, Role.PARENT: Role.CHILD, Role.CHILD: Role.PARENT}


class Update(msgspec.Struct, frozen=True):
    """What a neighbour holds of us becomes (nothing if fresh else held - drop) + add.

    A session that begins with a partial update is told completely with the first one that is not partial. Until then
    the neighbour also holds what it heard in earlier sessions.
    """

    about: About = About.SUBSCRIPTIONS
    fresh: bool = False
    drop: tuple[ItemId, ...] = ()
    add: Items = {}
    notes: tuple[Note, ...] = ()  # of tables of labels; a fresh update has all that are still valid
    partial: bool = False  # the session has begun, and more follows before everything is told


class Tell(msgspec.Struct, frozen=True):
    """An update that must be sent to a neighbour, after those told to it before."""

    link: Link
    update: Update


class Heard(NamedTuple):
    """What a broker stored of a neighbour through a restart."""

    role: Role
    subscriptions: Items = MappingProxyType({})
    advertisements: Items = MappingProxyType({})


class Kept(NamedTuple):
    """What a broker stored of a table through a restart; `settings` is the last value of `RoutingTable.settings`."""

    subscriptions: Filters = MappingProxyType({})
    advertisements: Mapping[ClientId, Filters] = MappingProxyType({})
    links: Mapping[Link, Heard] = MappingProxyType({})
    settings: str = ""


class Overlap(Protocol):
    """Whether an item and an advertisement have an event in common. The answer is False only when disproved.

    `meets` compares what `see` and `promise` return; None meets everything.
    """

    def see(self, item: Item) -> object:
        """The part of a table's item that is compared."""
        ...

    def promise(self, advertisement: Item) -> object:
        """The part of an advertisement that is compared."""
        ...

    def meets(self, item: object, advertisement: object) -> bool:
        """Whether an event may be in both."""
        ...


class UpdateCodec(Protocol):
    """Updates as bytes, and back."""

    def encode(self, update: Update) -> bytes:
        """The bytes of an update. Raises LocalProtocolError for one that is too large."""
        ...

    def decode(self, data: bytes) -> Update:
        """The update in some bytes. Raises RemoteProtocolError."""
        ...

    def encode_item(self, about: About, item: Item) -> bytes:
        """The bytes of one item; equal items have equal bytes, on every machine."""
        ...

    def decode_item(self, about: About, data: bytes) -> Item:
        """The item in some bytes. Raises RemoteProtocolError."""
        ...

    @property
    def noted(self) -> bool:
        """Whether updates about subscriptions may have notes."""
        ...


class RoutingTable(Protocol):
    """What is wanted behind each link; see the laws above. Tells are returned in the order in which they must
    be sent.
    """

    @property
    def model(self) -> str:
        """The table's name."""
        ...

    @property
    def exactness(self) -> Exactness:
        """Which of the laws hold."""
        ...

    @property
    def schema(self) -> Schema | None:
        """The schema under which it normalizes subscriptions, if any."""
        ...

    @property
    def fingerprint(self) -> str:
        """Model, exactness and everything that neighbours must agree on, as one canonical text. It must be equal at
        both ends.
        """
        ...

    @property
    def overlap(self) -> Overlap:
        """How the table's items compare with advertisements, whatever the table becomes while it runs."""
        ...

    # -- links ----------------------------------------------------------------------------------

    def restore(self, kept: Kept) -> None:
        """Restore what a broker stored, before any link is attached. Nothing is told until `attach`."""
        ...

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """Attach a neighbour, or restart its session: returns everything that it should know, or a part of it, as fresh
        updates; `step` returns the rest.
        """
        ...

    def detach(self, link: Link) -> list[Tell]:
        """Remove a neighbour for good, with everything that it wanted."""
        ...

    # -- changes --------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions at once; to replace one, drop it and add it.

        Raises LocalProtocolError or FilterTooComplexError; nothing has changed in that case.
        """
        ...

    def advertise(self, client: ClientId, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change a client's advertisements at once. Raises LocalProtocolError if the table has none."""
        ...

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Apply an update of a neighbour. Raises RemoteProtocolError; nothing has changed in that case."""
        ...

    def step(self, budget: int) -> list[Tell]:
        """Continue pending work, examining about `budget` items; if nothing is pending, improve what is told."""
        ...

    @property
    def pending(self) -> bool:
        """Whether a change has consequences that have not been told yet."""
        ...

    def rest(self) -> bool:
        """Use quiet time: flush what indexes have buffered, if nothing has changed since the last call.

        Returns whether something is still buffered.
        """
        ...

    def settle(self) -> None:
        """Wait until no part of the table's indexes is being joined in the background."""
        ...

    # -- events ---------------------------------------------------------------------------------

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """The neighbours to which an event from `source` goes, never the source itself."""
        ...

    def route_batch(self, events: Sequence[AnyEvent], source: Source, places: Places | None = None) -> Routes:
        """`route` for the events of one read, neighbour by neighbour."""
        ...

    def place(self, events: Sequence[AnyEvent]) -> Places | None:
        """The events mapped once, for every table with this fingerprint; None if the model does not map."""
        ...

    @property
    def place_limits(self) -> tuple[int, ...]:
        """The greatest value of each key of a place; empty if publishers and neighbours cannot send places."""
        ...

    def reasons(self, event: AnyEvent, link: Link, most: int) -> list[Item]:
        """Items because of which a neighbour wants an event, `most` at most; none where the model tells none.

        Cost: that of `route`, and O(heard): 60 to 90 ns for a filter or a range, and 1 us for a label set.
        """
        ...

    def holders(self, item: Item) -> Mapping[Source, int]:
        """Who wants a filter: how many local subscriptions (None), and how many items of each neighbour, are equal to
        it; none where the model does not know.

        Cost: that of reading the filter's hull, some 30 us.
        """
        ...

    def witness(self, link: Link, item: Item) -> Item | None:
        """An item that the neighbour is told and that covers a filter; None if there is none, or the model does not
        know. Cost: that of a search for what covers it.
        """
        ...

    def admitted(self, events: Sequence[AnyEvent], client: ClientId) -> NDArray[np.bool_]:
        """Which events lie within a client's advertisements; all, if the table has none."""
        ...

    # -- contents -------------------------------------------------------------------------------

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour knows from us, once everything told has arrived. Cost: O(told)."""
        ...

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """Every item that the neighbour has told us, including those of earlier sessions that still count.

        Their ids may have changed, because the neighbour has given the old ones to other items.
        """
        ...

    @property
    def codec(self) -> UpdateCodec:
        """How updates of this table are encoded and decoded."""
        ...

    def digest(self, link: Link, about: About = About.SUBSCRIPTIONS) -> tuple[int, int]:
        """One number for what the neighbour was told, and one for what it has told us; equal at both ends if they
        agree.
        """
        ...

    @property
    def settings(self) -> str:
        """What must be stored in addition to subscriptions and items heard, for `restore`; usually empty."""
        ...

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: at least that of rebuilding the table."""
        ...
