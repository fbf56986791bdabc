"""The places of events: those that publishers and neighbours have sent, examined by sample, and those mapped here.

A place decides which neighbours get an event, and nothing else. So a wrong one can only keep the event that it came
with from subscribers at other brokers, or send it there unwanted; local subscribers get every event that they match.

The first places of a publisher, and of a neighbour, are always examined, and later ones at random. The first wrong
place that is found shows that its publisher does not map as this broker does: from then on, its events are mapped here.
Places of another space than the current one are ignored, and so are those that are not places at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.broker.effects import Outbox
from weft.broker.sessions import Connection, Sessions
from weft.kernels.arrays import Ints
from weft.log.base import SessionId
from weft.model.door import PlainEvents
from weft.model.schema import Schema
from weft.protocol.messages import OfferedSpace, PublishPlaced
from weft.routing.place_format import PlaceFormat, pack_space
from weft.routing.registry import engine_of
from weft.routing.table import Link, Places, RoutingTable

if TYPE_CHECKING:
    from weft.broker.links.neighbour import Neighbour

_ONE_IN = 32  # runs of places that are examined
_REMEMBERED = 4_096  # publishers that map right, and that do not; a forgotten one is examined again

Sender = SessionId | Link  # a publisher, or a neighbour that hands on what publishers and brokers behind it have mapped


class PlaceRun(NamedTuple):
    """The places of consecutive events that wait to be matched: those from `first` to before `end`."""

    sender: Sender
    first: int
    end: int
    space: bytes  # its name
    places: bytes


class BatchPlaces(NamedTuple):
    """The places of a batch of events, as they are sent to neighbours."""

    space: bytes
    width: int
    data: bytes

    def of(self, event: int) -> bytes:
        """The place of one event."""
        at = event * self.width
        return self.data[at : at + self.width]


class EventPlaces:
    """The space of a broker, who may map in it, and the places of its events. `draw` returns 63 random bits."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it is about
        self,
        table: RoutingTable,
        schema: Schema | None,
        neighbours: Mapping[Link, Neighbour],
        sessions: Sessions,
        out: Outbox,
        counts: Counter[str],
        draw: Callable[[], int],
    ) -> None:
        self._engine, self._schema, self._neighbours = engine_of(table), schema, neighbours
        self._sessions, self._out, self._counts, self._draw = sessions, out, counts, draw
        self._format: PlaceFormat | None = None
        self._fingerprint, self._limits = "", tuple[int, ...]()  # of the format
        self._offer = OfferedSpace(0)  # what publishers are told
        self._offered: tuple[PlaceFormat | None, bool] = None, False  # what it was made of
        self._right: dict[Sender, None] = {}  # senders whose places were right when they were examined
        self._wrong: dict[Sender, None] = {}  # publishers that have sent a wrong one
        self._is_asked = False  # whether any client has asked for the space

    @property
    def format(self) -> PlaceFormat | None:
        """How places are written now; None if they do not travel. Cost: O(keys of a place)."""
        limits = self._engine.place_limits
        if not limits:
            return None
        fingerprint = self._engine.fingerprint
        if fingerprint is not self._fingerprint or limits is not self._limits:  # then they may differ
            if (fingerprint, limits) != (self._fingerprint, self._limits):
                self._format = PlaceFormat(fingerprint, limits)
                self._right.clear()
                self._wrong.clear()
            self._fingerprint, self._limits = fingerprint, limits
        return self._format

    # -- what publishers and neighbours are told --------------------------------------------------------

    def ask(self, connection: Connection) -> None:
        """A client is told the space, now and whenever it changes. To ask again has no effect."""
        if not connection.wants_space:
            self._is_asked = True
            self.tell()
            connection.wants_space = True
            self._out.send(connection.id, self._offer)

    def tell(self) -> None:
        """Tell the clients that have asked, if the space has changed."""
        if self._is_asked and self._renew():
            for connection in self._sessions.connections.values():
                if connection.wants_space:
                    self._out.send(connection.id, self._offer)

    def _renew(self) -> bool:
        offered = self.format, bool(self._neighbours)
        if offered == self._offered:
            return False
        self._offered = offered
        there, before = offered[0] is not None and offered[1], self._offer.packed
        packed = pack_space(self._fingerprint, self._schema) if there else b""
        if there and not packed:
            self._counts["spaces too large"] += 1
        self._offer = OfferedSpace(self._offer.number + 1, packed)
        return packed != before

    @property
    def wanted(self) -> bytes:
        """The space in which neighbours should send places; empty if this broker would have no use for them.

        A broker with one neighbour has none: what comes from it goes nowhere else.
        """
        made = self.format if len(self._neighbours) > 1 else None
        return b"" if made is None else made.space

    # -- places that come in ----------------------------------------------------------------------------

    def published(self, session: SessionId, messages: Sequence[PublishPlaced], first: int) -> list[PlaceRun]:
        """The places of events that a client has published, as a run; none if they are of no use."""
        made = self.format
        if made is None or made is not self._offered[0] or not self._neighbours:
            return []
        if {message.space for message in messages} != {self._offer.number}:
            self._counts["places of another space"] += len(messages)
            return []
        places = b"".join([message.place for message in messages])
        return [PlaceRun(session, first, first + len(messages), made.space, places)]

    def forget(self, peer: Link) -> None:
        """A session with a neighbour begins: it may run another program now."""
        self._right.pop(peer, None)

    def _remember(self, sender: Sender, right: bool) -> None:
        known = self._right if right else self._wrong
        known[sender] = None
        if not right:
            self._right.pop(sender, None)
        if len(known) > _REMEMBERED:
            del known[next(iter(known))]

    # -- places of a batch ------------------------------------------------------------------------------

    def of_batch(
        self, events: PlainEvents, runs: Sequence[PlaceRun], origins: NDArray[np.int64]
    ) -> tuple[Places | None, BatchPlaces | None]:
        """The places of events for the table, and for neighbours. The table maps events without places, if it can."""
        made = self.format
        if made is None:
            return None, None
        size = len(events)
        travel = any(each.places_wanted == made.space for each in self._neighbours.values())
        if not runs:
            self._counts["events mapped"] += size
            mapped = self._engine.place(events) if travel else None
            return (None, None) if mapped is None else (mapped, self._travelling(made, mapped.keys))
        given, examined = self._given(runs, made, origins)
        if not examined and len(given) == 1 and given[0][0].end - given[0][0].first == size:
            run, keys = given[0]
            return Places(made.fingerprint, keys), BatchPlaces(made.space, made.width, run.places) if travel else None
        keys = np.empty((size, len(made.limits)), np.int64)
        is_mapped = np.ones(size, np.bool_)  # here
        for run, theirs in given:
            keys[run.first : run.end] = theirs
            is_mapped[run.first : run.end] = run in examined
        rows = np.flatnonzero(is_mapped)
        if len(rows):
            some = events if len(rows) == size else PlainEvents(events[at] for at in rows.tolist())
            mapped = self._engine.place(some)
            assert mapped is not None
            self._counts["events mapped"] += len(rows)
            came, keys[rows] = keys[rows], mapped.keys
            if examined:
                is_mapped[rows] = (came != mapped.keys).any(axis=1)
                self._examine(examined, is_mapped, origins)
        return Places(made.fingerprint, keys), self._travelling(made, keys) if travel else None

    @staticmethod
    def _travelling(made: PlaceFormat, keys: Ints) -> BatchPlaces:
        return BatchPlaces(made.space, made.width, made.encode(keys))

    def _given(
        self, runs: Sequence[PlaceRun], made: PlaceFormat, origins: NDArray[np.int64]
    ) -> tuple[list[tuple[PlaceRun, Ints]], list[PlaceRun]]:
        """The runs whose places may be used, with their keys, and those of them that are examined."""
        given = [(run, keys) for run in runs if (keys := self._keys(run, made, origins)) is not None]
        return given, [run for run, _ in given if run.sender not in self._right or self._draw() % _ONE_IN == 0]

    def _keys(self, run: PlaceRun, made: PlaceFormat, origins: NDArray[np.int64]) -> Ints | None:
        """The keys of a run; None if they are not to be used."""
        count = run.end - run.first
        if run.space != made.space:
            self._counts["places of another space"] += count
            return None
        if self._wrong and not self._wrong.keys().isdisjoint(origins[run.first : run.end, 0].tolist()):
            return None
        keys = made.decode(run.places, count)
        if keys is None:
            self._counts["wrong places"] += count
            if not isinstance(run.sender, str):
                self._remember(run.sender, right=False)
        return keys

    def _examine(self, runs: Sequence[PlaceRun], differs: NDArray[np.bool_], origins: NDArray[np.int64]) -> None:
        """Draw the conclusions: which events of some runs were mapped otherwise here."""
        for run in runs:
            self._counts["places examined"] += run.end - run.first
            self._remember(run.sender, right=True)
            wrong = run.first + np.flatnonzero(differs[run.first : run.end])
            if len(wrong):
                self._counts["wrong places"] += len(wrong)
            for publisher in np.unique(origins[wrong, 0]).tolist():
                self._remember(SessionId(publisher), right=False)
