"""The interest that one neighbour is sent: subscriptions and advertisements, in numbered control frames.

The routing table identifies items by its own ids, which start again after a restart. The neighbour identifies them by
wire ids, which this side assigns; a wire id is never assigned to a second item. A session begins with a list of what
the neighbour holds, as wire ids and hashes of items. An item that the table sends and the neighbour already holds keeps
its wire id and is not sent again. After the table has sent everything, items that nothing has claimed are withdrawn.
That is a resync. It adds before it withdraws, so a connection may be cut at any point of it. A resync from what was
sent also replaces the queue when more items wait in it than the limit allows.

A withdrawn advertisement is sent behind every event that came in before the withdrawal. A neighbour without the
advertisement may stop asking others for its events, and would route events published under it no further. Nothing else
waits for such withdrawals, unless very many are withheld.

A change is complete when the neighbour has completed all frames that were numbered before the mark of the change left
the queue, no earlier; after a resync if some of these frames were lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.broker.completion import PendingChange
from weft.broker.links.item_digest import ItemDigest, ItemHashes, Unclaimed, item_hash
from weft.errors import RemoteProtocolError
from weft.log.base import Offset
from weft.model.paged_dict import PagedDict
from weft.protocol.link_messages import ABOUT, MOST_ITEMS, LinkHave, LinkRelay, LinkUpdate
from weft.routing.dls.items import Note, Retuning, Stage, Switch
from weft.routing.table import About, Item, ItemId, Link, Update, UpdateCodec

_FRAME_BYTES = 1 << 19  # of the items of one frame, not counting the last item
_ADVERTS = ABOUT.index(About.ADVERTISEMENTS)
_FRAME_COST = 16  # of a frame, in items


class SenderState(Enum):
    """The state of a neighbour's control frames.

    | state      | on      | next       | because                                |
    |------------|---------|------------|----------------------------------------|
    | CLOSED     | begin   | LISTING    | a session begins                       |
    | LISTING    | resync  | OPEN       | the neighbour has listed what it holds |
    | OPEN       | enqueue | OVERFLOWED | more items wait than the limit allows  |
    | OVERFLOWED | resync  | OPEN       | a comparison replaces the queue        |
    | any        | end     | CLOSED     | the session is over                    |
    """

    CLOSED = 0
    LISTING = 1
    OPEN = 2
    OVERFLOWED = 3


_UNLISTED = (SenderState.CLOSED, SenderState.LISTING)  # it is not known what the neighbour holds


class InterestSender:
    """The control frames to one neighbour. At most `most` items wait, and `window` frames are unacknowledged.

    A `staged` comparison ends with the advertisements, and then with the rest, each when the broker knows enough to
    withdraw what nothing has claimed: subscribers must not see what disappears for a moment only.
    """

    def __init__(self, link: Link, codec: UpdateCodec, most: int, window: int, *, staged: bool = False) -> None:
        self._staged = staged
        self._ready = True, True  # of a staged one: whether its comparison may withdraw advertisements, and the rest
        self.link, self.marks = link, FrameMarks(link)
        self._codec, self._most, self._window = codec, most, window
        self._state = SenderState.CLOSED
        self._items = tuple(SentItems(about, codec) for about in ABOUT)
        self._next_wire = 1
        self._queue: deque[QueuedUpdate | PendingChange | QueuedRelay] = deque()
        self._relays: deque[QueuedRelay] = deque()  # those in the queue
        self._queued = (
            0  # items of updates in the queue; one that adds everything again is a comparison, and not counted
        )
        self._withheld: deque[tuple[Offset, int]] = deque()  # wires to withdraw behind events; offsets never decrease
        self._sent_below = Offset(0)  # the events below are sent
        self._budget = 0  # items that may still be examined in this turn
        self.more = False  # `frames` stopped before it had examined everything that it may send
        self.idle = True  # there is nothing to send, whatever happens elsewhere
        # a resync
        self._started: set[int] = set()  # kinds of which the table has sent everything in it
        self._resync_offset = Offset(0)  # its withdrawals may have to wait for the events below
        self._notes: dict[type, Note] = {}  # sent with its last frame
        self._ending = False  # the first of its two last frames is sent

    # -- sessions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a session: the neighbour will list what it holds."""
        self.end()
        self._state, self._notes = SenderState.LISTING, {}  # in a new session both sides report their stages again
        for items in self._items:
            items.sent, items.digest = PagedDict(), ItemDigest()
        self.marks.begin()

    def end(self) -> None:
        """End the session: drop what is queued; changes wait for the resync of the next session."""
        self._clear_queue()
        self.marks.defer_all()
        self._state = SenderState.CLOSED
        self._end_comparison()
        self._withheld.clear()

    def _end_comparison(self) -> None:
        self._ending = False
        for items in self._items:
            items.unclaimed = None

    def _clear_queue(self) -> None:
        """Drop queued updates, and the relays behind them. Changes wait for a resync, and so do stages of a re-tuning.

        A relay that stayed would overtake what is compared again; whoever waits for it sends it again.
        """
        self.marks.defer(each for each in self._queue if isinstance(each, PendingChange))
        self._keep_stages(self._updates())
        self._queue.clear()
        self._relays.clear()
        self._queued = 0

    @staticmethod
    def _stays(entry: QueuedUpdate | PendingChange | QueuedRelay, about: int) -> bool:
        """Whether an entry stays queued when everything of a kind is sent again."""
        return isinstance(entry, PendingChange) or (isinstance(entry, QueuedUpdate) and entry.about != about)

    def _keep_stages(self, updates: Iterable[QueuedUpdate]) -> None:
        """Keep the stages of a re-tuning until the end of a resync: each is sent once."""
        self._notes.update((Retuning, note) for each in updates for note in each.notes if isinstance(note, Retuning))

    def receive_have(self, message: LinkHave) -> bool:
        """Record items that the neighbour holds; True if that was the last of them. Raises RemoteProtocolError."""
        if self._state is not SenderState.LISTING or len(message.ids) != len(message.hashes) or len(message.ids) % 8:
            raise RemoteProtocolError(f"{self.link} lists what it has heard out of turn, or wrongly")
        wires, items = np.frombuffer(message.ids, "<u8"), self._items[message.about]
        before = len(items.sent)
        items.add_listed(wires, np.frombuffer(message.hashes, "<u8"))
        if len(items.sent) != before + len(wires) or wires.max(initial=0) > message.highest:
            raise RemoteProtocolError(f"{self.link} lists an item twice, or one above the highest")
        self._next_wire = max(self._next_wire, message.highest + 1)
        return message.last

    def resync(self, offset: Offset) -> None:
        """Compare everything that the table has sent with what the neighbour holds; `offset` as in `enqueue`.

        A table whose updates have notes must now send everything again, because only it knows which notes are still
        valid. Cost: O(items), some ten nanoseconds each; the comparison itself is made by `frames`.
        """
        self._clear_queue()
        self._withheld.clear()
        self._resync_offset = offset
        self._ending = False
        self._started = set() if self._codec.noted else {*range(len(ABOUT))}
        for items in self._items:
            items.compare(listed=self._state is SenderState.LISTING)
        self._state, self.idle = SenderState.OPEN, False
        if not self._codec.noted:
            for kind, items in zip(ABOUT, self._items, strict=True):
                self._put(QueuedUpdate(Update(kind, fresh=True, add=items.intended.copy()), offset))

    @property
    def _comparing(self) -> bool:
        return self._items[0].unclaimed is not None or self._items[1].unclaimed is not None

    @property
    def resyncing(self) -> bool:
        """Whether the neighbour may not yet hold everything that it should."""
        return self._state in _UNLISTED or self._comparing

    @property
    def listed(self) -> bool:
        """Whether the neighbour has listed what it holds, in this session."""
        return self._state not in _UNLISTED

    @property
    def acked(self) -> bool:
        """Whether the neighbour has stored every frame that was sent."""
        return not self.marks.unacked

    @property
    def overflowed(self) -> bool:
        """Whether more items wait than the limit allows, so that a resync is due."""
        return self._state is SenderState.OVERFLOWED

    # -- queueing -------------------------------------------------------------------------------------

    def enqueue(self, update: Update, offset: Offset) -> None:
        """Queue an update of the table; withdrawals of advertisements are sent behind the events below `offset`.

        Without a session it is only recorded: the next resync finds it.
        """
        items = self._items[ABOUT.index(update.about)]
        items.record(update)
        if self._state in _UNLISTED:
            return
        self.idle = False
        queued = QueuedUpdate(update, offset)
        if self._state is SenderState.OVERFLOWED:
            self._keep_stages([queued])
            return
        if update.fresh:
            if items.unclaimed is None or queued.about in self._started:  # the table itself sends all of a kind again
                self._keep_stages(self._updates())
                self._queue = deque(each for each in self._queue if self._stays(each, queued.about))
                self._relays.clear()
                self._queued = sum(each.size for each in self._updates())
                items.compare()
                self._ending = False
                if queued.about == _ADVERTS:
                    self._withheld.clear()
            self._started.add(queued.about)
            self._resync_offset = max(self._resync_offset, offset)
        self._put(queued)
        if self._queued > self._most:
            self._state = SenderState.OVERFLOWED

    def mark(self, change: PendingChange) -> None:
        """Complete a change when the neighbour has completed everything that is queued before it."""
        if self._state is SenderState.OPEN:
            self._put(change)
        else:
            self.marks.defer([change])

    def relay(self, offset: Offset, message: LinkRelay) -> None:
        """Send a message behind the events below an offset, and behind everything that is queued now."""
        self._put(QueuedRelay(offset, message))

    def _put(self, entry: QueuedUpdate | PendingChange | QueuedRelay) -> None:
        self.idle = False
        self._queue.append(entry)
        if isinstance(entry, QueuedUpdate):
            self._queued += entry.size
        elif isinstance(entry, QueuedRelay):
            self._relays.append(entry)

    def _pop(self) -> None:
        entry = self._queue.popleft()
        if isinstance(entry, QueuedUpdate):
            self._queued -= entry.size
        elif isinstance(entry, QueuedRelay):
            self._relays.popleft()

    def _updates(self) -> Iterator[QueuedUpdate]:
        return (each for each in self._queue if isinstance(each, QueuedUpdate))

    @property
    def barrier(self) -> Offset | None:
        """Events from this offset on must wait for a relayed message."""
        return self._relays[0].offset if self._relays else None

    @property
    def waiting(self) -> int:
        """How many items wait to be examined."""
        return sum(each.adding + len(each.drop) for each in self._updates())

    @property
    def waiting_changes(self) -> int:
        """How many changes wait for this neighbour."""
        return len(self.marks) + sum(isinstance(each, PendingChange) for each in self._queue)

    # -- frames ---------------------------------------------------------------------------------------

    def frames(
        self, settled: bool, sent_below: Offset, most: int, ready: tuple[bool, bool] = (True, True)
    ) -> Iterator[LinkUpdate | LinkRelay]:
        """The next frames that the window allows. Examines about `most` items; `more` tells whether to continue.

        `settled` if the table has nothing pending; the events below `sent_below` are sent. `ready` is for a staged one.
        """
        self._ready = ready
        self._budget, self._sent_below, self.more = most, sent_below, False
        while self._state is SenderState.OPEN and self.marks.unacked < self._window:
            if self._budget <= 0:
                self.more = True
                return
            self._budget -= _FRAME_COST
            frame = self._next_frame(settled)
            if frame is not None:
                yield frame
            elif self._budget > 0:
                self.idle = not self._queue and not self._withheld and not self._comparing
                return

    def _next_frame(self, settled: bool) -> LinkUpdate | LinkRelay | None:
        """The next frame; None if there is nothing to send, or if the budget ran out before there was.

        1. Send withdrawals that waited for events which are sent now.
        2. If very many are still withheld, send nothing else.
        3. Send queued updates, merged into one frame. Changes that are marked behind them wait for this frame, or
           during a resync for its end.
        4. If the queue is empty and the table is settled, send the next frame that ends a resync.
        5. If a relayed message is first in the queue, send it once the events before it are sent.
        """
        released: list[int] = []
        while self._withheld and self._withheld[0][0] <= self._sent_below and len(released) < MOST_ITEMS:
            released.append(self._withheld.popleft()[1])
        if released:
            self._budget -= len(released)
            return self._withdrawals(_ADVERTS, released)
        if len(self._withheld) >= self._most:
            return None
        comparing = self._comparing
        frame, changes = self._queued_updates()
        if comparing:
            self.marks.defer(changes)
        else:
            for change in changes:
                self.marks.add(change)
        if frame is not None or self._budget <= 0:
            return frame
        if not self._queue:
            return self._resync_end() if comparing and settled else None
        head = self._queue[0]
        if not isinstance(head, QueuedRelay) or self._sent_below < head.offset:
            return None
        self._pop()
        return head.message

    def _queued_updates(self) -> tuple[LinkUpdate | None, list[PendingChange]]:
        """A frame of queued updates, if the neighbour needs one, and the changes that are marked behind it.

        Consecutive updates of one kind become one frame, unless they have notes. Additions come first; an item that is
        added and withdrawn in one frame is not sent.
        """
        new: dict[int, bytes] = {}
        drop: list[int] = []
        notes: tuple[Note, ...] = ()
        changes: list[PendingChange] = []
        about, size = -1, 0
        while self._queue:
            head = self._queue[0]
            if isinstance(head, PendingChange):
                changes.append(head)
                self._pop()
                continue
            if isinstance(head, QueuedRelay) or (about >= 0 and (head.about != about or head.notes)):
                break
            about = head.about
            size += self._add(head, new, _FRAME_BYTES - size)
            if not head.adding:
                self._drop(head, new, drop)
            notes = self._notes_of(head)
            if head.done:
                self._pop()
            if not head.done or notes or len(new) >= MOST_ITEMS or size >= _FRAME_BYTES or self._budget <= 0:
                break
        if not (new or drop or notes):
            return None, changes
        ids, items = tuple(new.keys()), tuple(new.values())
        return LinkUpdate(self.marks.next_number(about), about, tuple(sorted(drop)), ids, items, notes), changes

    def _add(self, queued: QueuedUpdate, new: dict[int, bytes], most: int) -> int:
        """Move additions of an update into a frame, as many as fit; returns their bytes."""
        add, size = self._items[queued.about].add, 0
        while queued.adding and len(new) < MOST_ITEMS and size < most and self._budget > 0:
            self._budget -= 1
            queued.adding -= 1
            body = add(*next(queued.adds), self._next_wire)
            if body is not None:
                new[self._next_wire] = body
                self._next_wire += 1
                size += len(body)
        return size

    def _drop(self, queued: QueuedUpdate, new: dict[int, bytes], drop: list[int]) -> None:
        """Move withdrawals of an update into a frame, as many as fit, or withhold them."""
        items = self._items[queued.about]
        withhold = queued.about == _ADVERTS and self._sent_below < queued.offset
        while queued.drop and len(drop) < MOST_ITEMS:
            self._budget -= 1
            wire = items.withdraw(queued.drop.popleft())
            if withhold and wire not in new:
                self._withhold(wire, queued.offset)
                continue
            items.drop(wire)
            if new.pop(wire, None) is None:
                drop.append(wire)

    def _withhold(self, wire: int, offset: Offset) -> None:
        """Withdraw an item when the events below an offset are sent."""
        self._withheld.append((max(offset, self._withheld[-1][0]) if self._withheld else offset, wire))

    def _notes_of(self, queued: QueuedUpdate) -> tuple[Note, ...]:
        """The notes that go with a part of an update. A label space goes before its labels; what ends an older one
        comes last. During a resync the rest goes to its end, where the notes are those of a neighbour without any.
        """
        notes = queued.notes
        stages = (each for each in notes if isinstance(each, Retuning) and each.stage < Stage.MOVED)
        offered = tuple(Retuning(each.space, Stage.OFFERED) for each in stages)
        if self._comparing:
            self._notes.update((type(note), note) for note in notes)
            queued.notes = ()
            return offered
        if queued.done or not notes:
            queued.notes = ()
            return notes
        if queued.offered:
            return ()
        queued.offered = True
        queued.notes = tuple(each for each in notes if isinstance(each, Switch) or each.stage > Stage.OFFERED)
        return offered

    def _resync_end(self) -> LinkUpdate | None:
        """The next of the frames that end a resync.

        1. Withdraw the items that nothing has claimed, some in each frame; withhold those that must wait for events.
        2. Send an empty frame about advertisements: each kind ends with a frame, so that nothing is complete before the
           neighbour has confirmed it.
        3. Send the notes that were kept, in a frame about subscriptions that says that the resync is over.
        """
        if self._staged:
            return self._staged_end()
        for about, items in enumerate(self._items):
            while items.unclaimed is not None and (wires := items.unclaimed.take(MOST_ITEMS)):
                if about != _ADVERTS or self._sent_below >= self._resync_offset:
                    return self._withdrawals(about, wires)
                for wire in wires:
                    self._withhold(wire, self._resync_offset)
                self._budget -= len(wires)
                if self._budget <= 0:
                    return None
        if not self._ending:
            self._ending = True
            return LinkUpdate(self.marks.next_number(_ADVERTS), _ADVERTS)
        self._end_comparison()
        for items in self._items:
            items.forget_withdrawn()
        notes, self._notes = tuple(self._notes.values()), {}
        number = self.marks.next_number(0)
        self.marks.resynced()
        return LinkUpdate(number, notes=notes, fresh=self._codec.noted, resynced=True)

    def _staged_end(self) -> LinkUpdate | None:
        """The same for a staged comparison: both kinds end with a frame that says so."""
        for about, ready in zip((_ADVERTS, 1 - _ADVERTS), self._ready, strict=True):
            if about == _ADVERTS and self._ending:
                continue
            if not ready:
                return None
            unclaimed = self._items[about].unclaimed
            if unclaimed is not None and (wires := unclaimed.take(MOST_ITEMS)):
                return self._withdrawals(about, wires)
            number = self.marks.next_number(about)
            if about == _ADVERTS:
                self._ending = True
                return LinkUpdate(number, about, resynced=True)
            self._end_comparison()
            for items in self._items:
                items.forget_withdrawn()
            self.marks.resynced()
            return LinkUpdate(number, resynced=True)
        return None

    def _withdrawals(self, about: int, wires: list[int]) -> LinkUpdate:
        for wire in wires:
            self._items[about].drop(wire)
        return LinkUpdate(self.marks.next_number(about), about, tuple(sorted(wires)))

    # -- contents -------------------------------------------------------------------------------------

    def intended(self, about: About) -> PagedDict[ItemId, Item]:
        """The items of a kind that the table wants the neighbour to hold; only the sender changes them."""
        return self._items[ABOUT.index(about)].intended

    def digest(self) -> tuple[int, int]:
        """For each kind, the digest of what the neighbour holds once it has every frame."""
        return self._items[0].digest.value, self._items[1].digest.value

    def check(self, intended: tuple[int, int]) -> None:
        """Raise AssertionError if an invariant is broken; the table wants `intended` items of each kind to be held."""
        assert self._queued == sum(each.size for each in self._updates())
        assert [*self._relays] == [each for each in self._queue if isinstance(each, QueuedRelay)]
        for about, items in enumerate(self._items):
            nothing_waits = self._state is SenderState.OPEN and not self._queue and items.unclaimed is None
            withheld = {wire for _, wire in self._withheld} if about == _ADVERTS else set()
            items.check(intended[about], withheld, all_sent=nothing_waits)


@dataclass(slots=True, eq=False)
class SentItems:
    """The items of one kind that the table wants a neighbour to hold, and those that it is sent."""

    _kind: About
    _codec: UpdateCodec
    intended: PagedDict[ItemId, Item] = field(default_factory=PagedDict)  # by the table
    _wires: PagedDict[ItemId, int] = field(default_factory=PagedDict)  # of items that are sent, or were held already
    _hashes: PagedDict[ItemId, int] = field(default_factory=PagedDict)  # also from earlier sessions
    sent: ItemHashes = field(default_factory=PagedDict)  # what the neighbour holds once every frame has arrived
    digest: ItemDigest = field(default_factory=ItemDigest)  # of `sent`
    unclaimed: Unclaimed | None = None  # of `sent`; None: no comparison is under way

    def record(self, update: Update) -> None:
        """Record an update of the table, which may be sent later."""
        if update.fresh:
            self.intended.clear()
        for item_id in update.drop:
            self.intended.pop(item_id, None)
        self.intended.update(update.add)

    # -- comparing ------------------------------------------------------------------------------------

    def add_listed(self, wires: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        """Record items that the neighbour holds, by wire id and hash."""
        ids, hashes = wires.tolist(), values.tolist()
        self.sent.update(zip(ids, hashes, strict=True))
        self.digest.add_many(wires, values)
        self.unclaimed = self.unclaimed or Unclaimed()
        self.unclaimed.add_many(ids, hashes)

    def compare(self, *, listed: bool = False) -> None:
        """Begin a comparison: every item will be added again. `listed` if the neighbour has just listed what it has."""
        self._wires.clear()
        if self.unclaimed is None or not listed:
            self.unclaimed = Unclaimed()
            self.unclaimed.add_many([*self.sent.keys()], [*self.sent.values()])

    def forget_withdrawn(self) -> None:
        """After a comparison: forget the hashes of items that were withdrawn while there was no session."""
        if len(self._hashes) > len(self._wires):  # every item with a wire id has a hash
            for item_id in [each for each in self._hashes if each not in self._wires]:
                del self._hashes[item_id]

    # -- sending --------------------------------------------------------------------------------------

    def add(self, item_id: ItemId, item: Item, wire: int) -> bytes | None:
        """The bytes of an item, to be sent under a new wire id; None if the neighbour holds the item already."""
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
        """Forget an item that the table has withdrawn; returns the wire id that the neighbour has to drop."""
        self._hashes.pop(item_id, None)
        return self._wires.pop(item_id)

    def drop(self, wire: int) -> None:
        """Record that a withdrawal is sent."""
        self.digest.drop(wire, self.sent.pop(wire))

    def check(self, intended: int, withheld: set[int], *, all_sent: bool) -> None:
        """Raise AssertionError if an invariant is broken; `all_sent` if nothing waits but withheld withdrawals."""
        wires = {*self._wires.values()}
        assert len(self.intended) == intended
        assert len(wires) == len(self._wires), "two items have one wire id"
        if all_sent:
            assert wires | withheld == self.sent.keys(), "what was sent is not what the table wants to be held"
            assert len(wires) == intended
            assert withheld.isdisjoint(wires)


class QueuedUpdate:
    """An update that is being sent; the items that it adds must not change in the meantime."""

    __slots__ = ("about", "adding", "adds", "drop", "notes", "offered", "offset", "size")

    def __init__(self, update: Update, offset: Offset) -> None:
        self.about = ABOUT.index(update.about)
        self.adds = iter(update.add.items())
        self.adding = len(update.add)  # items that it has still to add
        self.drop = deque(update.drop)
        self.notes = update.notes
        self.offset = offset  # its withdrawals may have to wait for the events below
        self.offered = False  # a part of it has announced the label space
        self.size = 0 if update.fresh else len(update.add) + len(update.drop)

    @property
    def done(self) -> bool:
        """Whether all of its items were examined."""
        return not self.adding and not self.drop


class QueuedRelay(NamedTuple):
    """A relayed message, to be sent behind the events below an offset and before all later ones."""

    offset: Offset
    message: LinkRelay


class FrameMarks:
    """The numbers of the control frames to one neighbour, and the changes that wait for them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._deferred: list[PendingChange] = []  # until the end of a resync
        # the others, by kind, with the number of the frame that they wait for
        self._marks: dict[About, deque[tuple[int, PendingChange]]] = {about: deque() for about in ABOUT}
        self.begin()

    def __len__(self) -> int:
        return len(self._deferred) + sum(map(len, self._marks.values()))

    def begin(self) -> None:
        """Begin a session: frames are numbered from 1 again."""
        self.number = self.acked = 0  # of the last frame that was sent, and that the neighbour has stored
        self._last = dict.fromkeys(ABOUT, 0)  # of each kind
        self._completed = dict.fromkeys(ABOUT, 0)

    def next_number(self, about: int) -> int:
        """Number the next frame, which is of this kind."""
        self.number += 1
        self._last[ABOUT[about]] = self.number
        return self.number

    @property
    def unacked(self) -> int:
        """How many frames the neighbour has not acknowledged."""
        return self.number - self.acked

    def add(self, change: PendingChange) -> None:
        """Complete a change when the neighbour has completed the frames that were sent so far."""
        kind = change.awaits(self._link)
        if self._last[kind] > self._completed[kind]:
            self._marks[kind].append((self._last[kind], change))
        else:
            change.completed(self._link)

    def defer(self, changes: Iterable[PendingChange]) -> None:
        """Complete changes when the next resync is complete."""
        self._deferred += changes

    def defer_all(self) -> None:
        """The session is over: every change waits for the resync of the next."""
        for marks in self._marks.values():
            self.defer(change for _, change in marks)
            marks.clear()

    def resynced(self) -> None:
        """The last frame of a resync is numbered: deferred changes wait for it."""
        deferred, self._deferred = self._deferred, []
        for change in deferred:
            self.add(change)

    def give_up(self) -> list[PendingChange]:
        """Remove and return the changes that wait, because the neighbour is gone for good."""
        gone, self._deferred = self._deferred, []
        return gone

    def progress(self, acked: int, completed: tuple[int, int]) -> None:
        """The neighbour has stored and completed these frames. Raises RemoteProtocolError."""
        if not self.acked <= acked <= self.number:
            raise RemoteProtocolError(f"{self._link} acknowledges control frames that it was not sent")
        self.acked = acked
        for kind, number in zip(ABOUT, completed, strict=True):
            if not self._completed[kind] <= number <= acked:
                raise RemoteProtocolError(f"{self._link} completes control frames that it has not acknowledged")
            self._completed[kind] = number
            marks = self._marks[kind]
            while marks and marks[0][0] <= number:
                marks.popleft()[1].completed(self._link)
