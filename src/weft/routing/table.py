"""The contract of routing tables: what neighbours tell each other, and where an event goes. Laws, on one table:

1. what A has told B is what B has heard from A, when nothing is in flight;
2. whatever a local subscription or heard(M), M != L, admits, told(L) admits: a mistake here loses events;
3. EXACT: and nothing else; CELLS: nothing else, cell by cell;
4. when nothing is wanted, told(L) is empty at once.

An update is atomic: held = (nothing if fresh else held - drop) + add, then one recomputation. A table is a plain value
machine: it neither sends nor waits, but returns what is to be told; links are FIFO and lose nothing while they last.
What ends must agree on while they run goes along as notes, which hold from their update on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NewType, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.index.base import AnyEvent, SubId
from weft.interest.curve_range import CurveRange
from weft.interest.label_set import LabelSet, Note
from weft.language.ast import Filter

Link = NewType("Link", str)  # a neighbour; local clients are never links
ItemId = NewType("ItemId", int)  # chosen by the teller, per direction of a link, never given to another item

Source = Link | None  # where something comes from: a neighbour, or here
Wanted = Filter | NormalForm  # the items of tables that are exact
Item = Wanted | CurveRange | LabelSet  # what an id stands for, by the table's model
Items = Mapping[ItemId, Item]
Filters = Mapping[SubId, Filter]
Routes = dict[
    Link, NDArray[np.intp]
]  # the positions of the events that go to each neighbour; one that gets none is not


class About(Enum):
    """What an update is about."""

    SUBSCRIPTIONS = "subscriptions"
    ADVERTISEMENTS = "advertisements"


class Exactness(Enum):
    """How near a table's items come to what is wanted; neighbours must agree on it."""

    EXACT = "exact"  # the union of the filters
    CELLS = "cells"  # the cells that they touch
    HASHED = "hashed"  # the cells, and some more by chance
    FLOOD = "flood"  # everything: nothing is told


class Role(Enum):
    """What a neighbour is to this broker (thesis 2.2)."""

    PEER = "peer"  # told what is wanted here, sent what it wants
    MASTER = "master"  # told what is wanted here, sent every event; tells nothing
    SLAVE = "slave"  # told nothing, for it sends every event; sent what it wants


class Update(msgspec.Struct, frozen=True):
    """What a neighbour holds of us becomes (nothing if fresh else held - drop) + add."""

    about: About = About.SUBSCRIPTIONS
    fresh: bool = False
    drop: tuple[ItemId, ...] = ()
    add: dict[ItemId, Item] = {}
    notes: tuple[Note, ...] = ()  # of tables of labels; a fresh update has all that still hold


class Tell(msgspec.Struct, frozen=True):
    """An update that must be sent to a neighbour, after those told to it before."""

    link: Link
    update: Update


def noted(tells: list[Tell], link: Link, notes: tuple[Note, ...]) -> list[Tell]:
    """The tells to a link, the last of them with notes more; if there is none, an update of notes alone."""
    if not notes:
        return tells
    *before, last = tells or [Tell(link, Update())]
    return [*before, Tell(link, msgspec.structs.replace(last.update, notes=last.update.notes + notes))]


class RoutingTable(Protocol):
    """What is wanted behind each link; see the laws above. Tells come in the order in which they must be sent."""

    @property
    def model(self) -> str:
        """The table's name; neighbours must agree on it, on the parameters and on the exactness."""
        ...

    @property
    def parameters(self) -> Mapping[str, object]:
        """What else neighbours must agree on."""
        ...

    @property
    def exactness(self) -> Exactness:
        """Which of the laws hold."""
        ...

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """A neighbour is there, or its session could not be resumed: all that it should know, fresh."""
        ...

    def detach(self, link: Link) -> list[Tell]:
        """A neighbour is gone for good, and what it wanted with it."""
        ...

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions at once; to replace one, drop it and add it. Raises LocalProtocolError."""
        ...

    def advertise(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local advertisements at once. Raises LocalProtocolError where the table has none."""
        ...

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """A neighbour told us. Raises RemoteProtocolError, then nothing has changed."""
        ...

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """The neighbours that an event from `source` goes to, never the source itself."""
        ...

    def route_batch(self, events: Sequence[AnyEvent], source: Source) -> Routes:
        """`route` for the events of one read, neighbour by neighbour."""
        ...

    def tidy(self, budget: int) -> list[Tell]:
        """Make the told sets better without being asked to, looking at about `budget` items; a timer calls it."""
        ...

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour knows from us, once everything told has arrived."""
        ...

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us, every item of it."""
        ...

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: that of building the table anew, or more."""
        ...
