"""What one neighbour tells us, frame by frame. Laws: a frame is acknowledged when what it says is stored; frames are
completed in order, each when it is stored and complete behind us; the table learns a few items at a time; it forgets an
advertisement when the events that came before are stored, because those that a full log refuses come again.

The hash of every item that was heard is kept beside the table, by wire id. It tells the neighbour what is here, and the
digest of all hashes is compared with the neighbour's from time to time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from weft.broker.link_items import Hashes, ItemDigest, item_hash
from weft.broker.link_messages import ABOUT, MOST_PAIRS, LinkDigest, LinkHave, LinkUpdate
from weft.errors import RemoteProtocolError
from weft.log.base import HeardRow, Put, Remove, SeatId, StateChange
from weft.model.paged_dict import PagedDict
from weft.routing.table import About, Item, ItemId, Link, RoutingTable, Tell, Update


class HeardFrame:
    """A frame of which something is left to do."""

    __slots__ = ("about", "bodies", "complete", "number", "parts", "resynced", "stored")

    def __init__(self, frame: LinkUpdate, parts: Iterable[Update]) -> None:
        self.number = frame.number
        self.about = ABOUT[frame.about]
        self.resynced = frame.resynced
        self.bodies = dict(zip(frame.ids, frame.items, strict=True))
        self.parts = deque(parts)
        self.stored = self.complete = False


class ControlReceiver:
    """The control frames of one neighbour. `piece` is how many items the table learns at once, `most` how many frames
    may wait.
    """

    def __init__(self, link: Link, seat: SeatId, table: RoutingTable, piece: int, most: int) -> None:
        self.link = link
        self._seat = seat
        self._table = table
        self._piece, self._most = piece, most
        self.hashes: tuple[Hashes, Hashes] = (PagedDict(), PagedDict())  # of what was heard, by kind
        self._digests = (ItemDigest(), ItemDigest())
        self._highest = 0
        self._rows: list[StateChange] = []
        self._inbox: deque[tuple[LinkUpdate | LinkDigest, int]] = deque()  # with the last event before each
        self._frame: HeardFrame | None = None  # the table learns it
        self._unstored: deque[HeardFrame] = deque()  # learnt, and not stored
        self._open: dict[About, deque[HeardFrame]] = {about: deque() for about in ABOUT}  # learnt, and not complete
        self._received = 0
        self.number = self.heard = 0
        self.completed = [0, 0]  # by kind
        self._audited = self._round()

    def restore(self, about: int, item: int, body: bytes) -> None:
        """An item was stored before a restart."""
        self._note(about, item, item_hash(body))

    def _note(self, about: int, wire: int, hashed: int) -> None:
        self.hashes[about][wire] = hashed
        self._digests[about].add(wire, hashed)
        self._highest = max(self._highest, wire)

    # -- sessions -----------------------------------------------------------------------------------

    def begin(self) -> Iterator[LinkHave]:
        """A session begins: what is here. Cost: O(items), some hundred nanoseconds each."""
        self.end()
        self._received = self.number = self.heard = 0
        self.completed = [0, 0]
        for about, hashes in enumerate(self.hashes):
            ids = np.fromiter(hashes.keys(), "<u8", len(hashes))
            values = np.fromiter(hashes.values(), "<u8", len(hashes))
            for start in range(0, max(1, len(ids)), MOST_PAIRS):
                some = slice(start, start + MOST_PAIRS)
                last = about == len(self.hashes) - 1 and start + MOST_PAIRS >= len(ids)
                yield LinkHave(about, ids[some].tobytes(), values[some].tobytes(), self._highest, last)

    def end(self) -> None:
        """There is no session: what has not been learnt is forgotten. What was learnt of a frame stays."""
        self._inbox.clear()
        self._frame = None
        self._unstored.clear()
        for frames in self._open.values():
            frames.clear()

    # -- frames ---------------------------------------------------------------------------------------

    def receive(self, message: LinkUpdate | LinkDigest, received: int) -> None:
        """A frame has come, behind the neighbour's events up to an offset; `work` applies it.

        Raises RemoteProtocolError.
        """
        if isinstance(message, LinkUpdate):
            self._received += 1
            if message.number != self._received:
                raise RemoteProtocolError(
                    f"{self.link} sends control frame {message.number} after {self._received - 1}"
                )
        if len(self._inbox) > self._most:
            raise RemoteProtocolError(f"{self.link} sends more control frames than may be unacknowledged")
        self._inbox.append((message, received))

    def busy(self, got: int) -> bool:
        """Whether there is something to learn, now that the neighbour's events up to an offset are stored."""
        if self._frame is not None or not self._inbox:
            return self._frame is not None
        message, received = self._inbox[0]
        return received <= got or not _withdraws(message)

    def work(self) -> tuple[list[Tell], HeardFrame | None]:
        """Learn a few items: what must be told because of them, and the frame if that was the last of it.

        Raises RemoteProtocolError; the table has not learnt them then.
        """
        if self._frame is None:
            message, _ = self._inbox.popleft()
            if isinstance(message, LinkDigest):
                self._compare(message)
                return [], None
            self._frame = self._opened(message)
        frame = self._frame
        tells: list[Tell] = []
        if frame.parts:
            part = frame.parts.popleft()
            tells = self._table.learn(self.link, part)
            self._learnt(part, frame)
        if frame.parts:
            return tells, None
        self._frame = None
        self.number = frame.number
        self._unstored.append(frame)
        self._open[frame.about].append(frame)
        return tells, frame

    def take_rows(self) -> list[StateChange]:
        """What is to be stored of everything that the table has learnt, also of a frame that was cut off."""
        rows, self._rows = self._rows, []
        return rows

    def _learnt(self, part: Update, frame: HeardFrame) -> None:
        """Note what the table has learnt."""
        about, rows = ABOUT.index(part.about), self._rows
        for wire in part.add:
            body = frame.bodies.get(wire)
            if body is not None:  # else it was heard before
                self._note(about, wire, item_hash(body))
                rows.append(Put(HeardRow(self._seat, about, wire, body)))
        for wire in part.drop:
            self._digests[about].drop(wire, self.hashes[about].pop(wire))
            rows.append(Remove(HeardRow, (self._seat, about, wire)))

    def _opened(self, message: LinkUpdate) -> HeardFrame:
        if len(message.ids) != len(message.items):
            raise RemoteProtocolError(f"{self.link} adds {len(message.ids)} ids with {len(message.items)} items")
        decode, kind, known = self._table.codec.decode_item, ABOUT[message.about], self.hashes[message.about]
        add: dict[ItemId, Item] = {}
        highest = self._highest
        for wire, body in zip(message.ids, message.items, strict=True):
            if wire <= highest:
                raise RemoteProtocolError(f"{self.link} adds item {wire} after item {highest}; ids must ascend")
            highest = wire
            add[ItemId(wire)] = decode(kind, body)
        if len({*message.drop} & known.keys()) != len(message.drop):
            raise RemoteProtocolError(f"{self.link} drops items that it has not told")
        return HeardFrame(message, self._parts(message, add))

    def _parts(self, message: LinkUpdate, add: Mapping[ItemId, Item]) -> Iterator[Update]:
        """The update of a frame, in pieces: additions first, removals last. What has notes is one piece."""
        kind, drop = ABOUT[message.about], tuple(map(ItemId, message.drop))
        if message.fresh and drop:
            raise RemoteProtocolError(f"{self.link} drops items in a frame that begins anew")
        if message.fresh:
            yield Update(kind, fresh=True, add={**self._table.heard(self.link, kind), **add}, notes=message.notes)
            return
        if message.notes or len(add) + len(drop) <= self._piece:
            if add or drop or message.notes:
                yield Update(kind, drop=drop, add=dict(add), notes=message.notes)
            return
        ids = [*add]
        for start in range(0, len(ids), self._piece):
            yield Update(kind, add={item_id: add[item_id] for item_id in ids[start : start + self._piece]})
        for start in range(0, len(drop), self._piece):
            yield Update(kind, drop=drop[start : start + self._piece])

    def _compare(self, message: LinkDigest) -> None:
        mine = self._digests[0].value, self._digests[1].value
        if message.number != self.number or (message.subscriptions, message.advertisements) != mine:
            raise RemoteProtocolError(
                f"{self.link} has told other items than were heard from it; they are compared anew"
            )

    # -- how far it is --------------------------------------------------------------------------------

    def advance(self) -> None:
        """Some frames are stored or complete now."""
        while self._unstored and self._unstored[0].stored:
            self.heard = self._unstored.popleft().number
        for kind, frames in enumerate(self._open.values()):
            while frames and frames[0].stored and frames[0].complete:
                self.completed[kind] = frames.popleft().number

    # -- contents -------------------------------------------------------------------------------------

    def audit(self, most: int) -> bool:
        """Compare some items of the table with their hashes, the next ones each time; False if one is another.

        Such an item is then reported as what it is, so that the neighbour replaces it. Cost: that of encoding them.
        """
        good = True
        for about, wire in islice(self._audited, most):
            if wire not in self.hashes[about] or self._frame is not None:
                continue
            item = self._table.heard(self.link, ABOUT[about]).get(ItemId(wire))
            actual = None if item is None else item_hash(self._table.codec.encode_item(ABOUT[about], item))
            if actual == self.hashes[about][wire]:
                continue
            good = False
            self._digests[about].drop(wire, self.hashes[about].pop(wire))
            if actual is not None:
                self._note(about, wire, actual)
        return good

    def _round(self) -> Iterator[tuple[int, int]]:
        """Every item that was heard, over and over."""
        while True:
            for about, hashes in enumerate(self.hashes):
                for page in hashes.pages():
                    yield from ((about, wire) for wire in page)
            yield 0, -1

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        if self._frame is None:
            for about, kind in enumerate(ABOUT):
                assert self.hashes[about].keys() == self._table.heard(self.link, kind).keys(), (
                    "heard is not what it was"
                )


def _withdraws(message: LinkUpdate | LinkDigest) -> bool:
    return isinstance(message, LinkUpdate) and ABOUT[message.about] is About.ADVERTISEMENTS and bool(message.drop)
