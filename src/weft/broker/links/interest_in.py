"""The interest that one neighbour sends: control frames, applied to the routing table some items at a time.

A frame is acknowledged when its rows are stored. Frames of one kind are completed in order, each when it is stored and
the neighbours behind this broker have completed what followed from it. A frame that withdraws advertisements is applied
only when the events that came before it are stored, because events that a full log refuses come again.

A relayed message is a marker: it is handed on when everything that came before it on the link is applied and stored,
and the table has passed on what followed from that. Otherwise it could arrive before subscriptions sent earlier.

The hash of every received item is kept next to the table, by wire id. At the start of a session the neighbour gets the
list of these hashes; their digest is compared with the neighbour's from time to time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

import numpy as np

from weft.broker.links.item_digest import ItemDigest, ItemHashes, item_hash
from weft.errors import RemoteProtocolError
from weft.log.base import HeardRow, Put, Remove, SeatId, StateChange
from weft.model.paged_dict import PagedDict
from weft.protocol.link_messages import ABOUT, MOST_PAIRS, LinkDigest, LinkHave, LinkRelay, LinkUpdate
from weft.routing.table import About, Item, ItemId, Link, RoutingTable, Tell, Update

_MOST_RELAYS = 10_000  # that wait; more are lost, as any may be


@dataclass(slots=True, eq=False)
class ReceivedFrame:
    """A control frame that is not yet applied, stored and complete."""

    message: LinkUpdate
    about: About
    parts: deque[Update]  # not yet applied
    bodies: dict[int, bytes]
    stored: bool = False
    complete: bool = False


class InterestReceiver:
    """The control frames of one neighbour. The table learns at most `piece` items at once; at most `most` frames wait.

    Frames go through these stages in order: waiting, being applied, applied, stored; and then, by kind, complete.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all are numbers or names of its owner
        self, link: Link, link_id: SeatId, table: RoutingTable, piece: int, most: int, number: int = 0
    ) -> None:
        self._number = number  # of the table
        self.link, self._link_id, self._table, self._piece, self._most = link, link_id, table, piece, most
        self.hashes: tuple[ItemHashes, ItemHashes] = (PagedDict(), PagedDict())  # of what was received, by kind
        self._digests = (ItemDigest(), ItemDigest())  # of `hashes`
        self._highest = 0  # wire id that was ever received
        self._rows: list[StateChange] = []  # of what was applied
        # each with the last event before it
        self._waiting: deque[tuple[LinkUpdate | LinkDigest | LinkRelay, int]] = deque()
        self._relays = 0  # of those that wait
        self._frame: ReceivedFrame | None = None  # being applied
        self._unstored: deque[ReceivedFrame] = deque()  # applied, and not stored
        self._incomplete: dict[About, deque[ReceivedFrame]] = {about: deque() for about in ABOUT}
        self._received = 0  # the number of the last frame that was received
        self.applied = self.stored = 0  # the numbers of the last frames that were
        self.completed = [0, 0]  # the same, by kind
        self._audited = self._round()

    def restore(self, about: int, item: int, body: bytes) -> None:
        """Take over an item that was stored before a restart."""
        self._add_hash(about, item, item_hash(body))

    def _add_hash(self, about: int, wire: int, hashed: int) -> None:
        self.hashes[about][wire] = hashed
        self._digests[about].add(wire, hashed)
        self._highest = max(self._highest, wire)

    def _drop_hash(self, about: int, wire: int) -> None:
        self._digests[about].drop(wire, self.hashes[about].pop(wire))

    # -- sessions -----------------------------------------------------------------------------------

    def begin(self) -> Iterator[LinkHave]:
        """Begin a session: yields the list of what was received. Cost: O(items), some hundred nanoseconds each."""
        self.end()
        self._received = self.applied = self.stored = 0
        self.completed = [0, 0]
        for about, hashes in enumerate(self.hashes):
            ids = np.fromiter(hashes.keys(), "<u8", len(hashes))
            values = np.fromiter(hashes.values(), "<u8", len(hashes))
            for start in range(0, max(1, len(ids)), MOST_PAIRS):
                some = slice(start, start + MOST_PAIRS)
                last = about == len(self.hashes) - 1 and start + MOST_PAIRS >= len(ids)
                yield LinkHave(about, ids[some].tobytes(), values[some].tobytes(), self._highest, last)

    def end(self) -> None:
        """End the session: frames that were not applied are dropped. Parts of a frame that were applied stay."""
        self._waiting.clear()
        self._relays = 0
        self._frame = None
        self._unstored.clear()
        for frames in self._incomplete.values():
            frames.clear()

    # -- frames ---------------------------------------------------------------------------------------

    def receive(self, message: LinkUpdate | LinkDigest | LinkRelay, received: int) -> bool:
        """Queue a frame that came behind the neighbour's events up to an offset; False for a relay that is dropped.

        Raises RemoteProtocolError.
        """
        if isinstance(message, LinkRelay):
            if self._relays >= _MOST_RELAYS:
                return False
            self._relays += 1
            self._waiting.append((message, received))
            return True
        if isinstance(message, LinkUpdate):
            self._received += 1
            if message.number != self._received:
                last = self._received - 1
                raise RemoteProtocolError(f"{self.link} sends control frame {message.number} after {last}")
        if len(self._waiting) - self._relays > self._most:
            raise RemoteProtocolError(f"{self.link} sends more control frames than may be unacknowledged")
        self._waiting.append((message, received))
        return True

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits to be applied."""
        return self._frame is None and not self._waiting

    def has_work(self, got: int) -> bool:
        """Whether `apply_next` may be called, now that the neighbour's events up to an offset are stored."""
        if self._frame is not None or not self._waiting:
            return self._frame is not None
        message, received = self._waiting[0]
        if isinstance(message, LinkRelay):
            return received <= got and self.stored >= self.applied and not self._table.pending
        withdraws = isinstance(message, LinkUpdate) and ABOUT[message.about] is About.ADVERTISEMENTS and message.drop
        return received <= got or not withdraws

    def take_relay(self) -> LinkRelay | None:
        """Remove and return the relayed message whose turn it is, if it is one's; `has_work` must have said so."""
        if self._frame is not None or not self._waiting or not isinstance(self._waiting[0][0], LinkRelay):
            return None
        self._relays -= 1
        return cast("LinkRelay", self._waiting.popleft()[0])

    def apply_next(self) -> tuple[list[Tell], ReceivedFrame | None]:
        """Apply a few items; returns what neighbours must be sent because of them, and the frame if they were its last.

        Raises RemoteProtocolError; the items are not applied then.
        """
        if self._frame is None:
            message, _ = self._waiting.popleft()
            assert not isinstance(message, LinkRelay)
            if isinstance(message, LinkDigest):
                mine = self.applied, self._digests[0].value, self._digests[1].value
                if (message.number, message.subscriptions, message.advertisements) != mine:
                    raise RemoteProtocolError(
                        f"{self.link} has told other items than were heard from it; they are compared anew"
                    )
                return [], None
            parts = deque(self._parts(message))
            bodies = dict(zip(message.ids, message.items, strict=True))
            self._frame = ReceivedFrame(message, ABOUT[message.about], parts, bodies)
        frame = self._frame
        tells: list[Tell] = []
        if frame.parts:
            part = frame.parts.popleft()
            tells = self._table.learn(self.link, part)
            self._record(part, frame)
        if frame.parts:
            return tells, None
        self._frame = None
        self.applied = frame.message.number
        self._unstored.append(frame)
        self._incomplete[frame.about].append(frame)
        return tells, frame

    def take_rows(self) -> list[StateChange]:
        """Remove and return the rows of everything that was applied, also of a frame that was cut off."""
        rows, self._rows = self._rows, []
        return rows

    def _record(self, part: Update, frame: ReceivedFrame) -> None:
        """Record the hashes and rows of a part that was applied."""
        about, rows = frame.message.about, self._rows
        for wire in part.add:
            body = frame.bodies.get(wire)
            if body is not None:  # else it was received before
                self._add_hash(about, wire, item_hash(body))
                rows.append(Put(HeardRow(self._link_id, about, wire, body, self._number)))
        for wire in part.drop:
            self._drop_hash(about, wire)
            rows.append(Remove(HeardRow, (self._link_id, about, wire, self._number)))

    def _parts(self, message: LinkUpdate) -> Iterator[Update]:
        """Check and decode a frame, in pieces: additions first, withdrawals last. With notes it is one piece."""
        kind, drop, decode = ABOUT[message.about], tuple(map(ItemId, message.drop)), self._table.codec.decode_item
        if len(message.ids) != len(message.items):
            raise RemoteProtocolError(f"{self.link} adds {len(message.ids)} ids with {len(message.items)} items")
        add: dict[ItemId, Item] = {}
        highest = self._highest
        for wire, body in zip(message.ids, message.items, strict=True):
            if wire <= highest:
                raise RemoteProtocolError(f"{self.link} adds item {wire} after item {highest}; ids must ascend")
            highest = wire
            add[ItemId(wire)] = decode(kind, body)
        if len({*drop} & self.hashes[message.about].keys()) != len(drop):
            raise RemoteProtocolError(f"{self.link} drops items that it has not told")
        if message.fresh and drop:
            raise RemoteProtocolError(f"{self.link} drops items in a frame that begins anew")
        if message.fresh:
            yield Update(kind, fresh=True, add={**self._table.heard(self.link, kind), **add}, notes=message.notes)
        elif message.notes or len(add) + len(drop) <= self._piece:
            if add or drop or message.notes:
                yield Update(kind, drop=drop, add=add, notes=message.notes)
        else:
            ids = [*add]
            for start in range(0, len(ids), self._piece):
                yield Update(kind, add={item_id: add[item_id] for item_id in ids[start : start + self._piece]})
            for start in range(0, len(drop), self._piece):
                yield Update(kind, drop=drop[start : start + self._piece])

    def advance(self) -> None:
        """Update `stored` and `completed`, after frames were marked as such."""
        while self._unstored and self._unstored[0].stored:
            self.stored = self._unstored.popleft().message.number
        for kind, frames in enumerate(self._incomplete.values()):
            while frames and frames[0].stored and frames[0].complete:
                self.completed[kind] = frames.popleft().message.number

    # -- contents -------------------------------------------------------------------------------------

    def audit(self, most: int) -> bool:
        """Compare some items of the table with their hashes, the next ones each time; False if any is different.

        Such an item is listed in the next session as what it is now, so that the neighbour replaces it. Cost: encoding.
        """
        good = True
        for about, wire in islice(self._audited, most):
            if wire not in self.hashes[about] or self._frame is not None:
                continue
            item = self._table.heard(self.link, ABOUT[about]).get(ItemId(wire))
            actual = None if item is None else item_hash(self._table.codec.encode_item(ABOUT[about], item))
            if actual != self.hashes[about][wire]:
                good = False
                self._drop_hash(about, wire)
                if actual is not None:
                    self._add_hash(about, wire, actual)
        return good

    def _round(self) -> Iterator[tuple[int, int]]:
        """Every item that was received, over and over."""
        while True:
            for about, hashes in enumerate(self.hashes):
                for page in hashes.pages():
                    yield from ((about, wire) for wire in page)
            yield 0, -1

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        if self._frame is None:
            for hashes, kind in zip(self.hashes, ABOUT, strict=True):
                received = self._table.heard(self.link, kind).keys()
                assert hashes.keys() == received, "the table does not hold what was received"
