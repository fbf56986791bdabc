"""What one neighbour is told, in numbered frames. Laws: it holds, once all frames have arrived, what the table told it;
whatever it held before is dropped last; a frame is never larger than the protocol allows.

The table names what it tells by its own ids, which begin anew after a restart. The neighbour knows items by wire ids,
which this side chooses. A session begins with what the neighbour says that it holds, as wire ids and hashes. An item
that the table tells and the neighbour holds already keeps its wire id, and is not sent. When the table has told
everything, whatever nobody claimed is dropped: that is the resynchronisation, and it may be cut off at any point.

It also begins anew, from what was sent, when more waits to be sent than the bound allows.

A withdrawn advertisement is dropped only behind the events that came in before (`HeldDrops`). Nothing else waits for
that, unless very many are held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from weft.broker.completion import Change
from weft.broker.held_drops import HeldDrops
from weft.broker.link_items import Hashes, ItemDigest, Unclaimed, item_hash
from weft.broker.link_messages import MOST_ITEMS, LinkHave, LinkRelay, LinkUpdate
from weft.errors import RemoteProtocolError
from weft.interest.label_set import Note, Retuning, Stage, Switch
from weft.log.base import Offset
from weft.routing.table import About, Item, ItemId, Link, Update, UpdateCodec

ABOUT = (About.SUBSCRIPTIONS, About.ADVERTISEMENTS)
_ADVERTS = ABOUT.index(About.ADVERTISEMENTS)
MOST_BYTES = 1 << 19  # of the items of one frame, besides the last
_FRAME_COST = 16  # of a frame, in items


class _Waiting:
    """An update that is being sent."""

    __slots__ = ("about", "adds", "drop", "fresh", "notes", "offered", "offset", "size")

    def __init__(self, update: Update, offset: Offset) -> None:
        self.about = ABOUT.index(update.about)
        self.fresh = update.fresh
        self.adds = deque(update.add.items())
        self.drop = deque(update.drop)
        self.notes = update.notes
        self.offset = offset  # its drops may have to wait for the events below
        self.offered = False  # a part of it has announced the label space
        self.size = 0 if update.fresh else len(update.add) + len(update.drop)


class _Letter(NamedTuple):
    """Something to be handed on behind the events below an offset, and before all others."""

    offset: Offset
    message: LinkRelay


class ControlSender:
    """The control frames to one neighbour. `most` is how many items may wait to be sent, `window` how many frames may
    be unacknowledged.
    """

    def __init__(self, link: Link, codec: UpdateCodec, most: int, window: int) -> None:
        self.link = link
        self._codec = codec
        self._most, self._window = most, window
        self._next_wire = 1
        self._told: tuple[dict[ItemId, Item], ...] = ({}, {})  # what the table has told, by kind
        self._wires: tuple[dict[ItemId, int], ...] = ({}, {})  # the wire ids of that
        self._known: tuple[dict[ItemId, int], ...] = ({}, {})  # hashes of that, also from earlier sessions
        self.sent: tuple[Hashes, Hashes] = ({}, {})  # what the neighbour holds once every frame has arrived, by kind
        self._digests = (ItemDigest(), ItemDigest())
        self._pool: dict[int, Unclaimed] = {}  # during a resync, by kind: what nothing has claimed
        self._begun: set[int] = set()  # kinds of which the table has told everything, in this resync
        self._queue: deque[_Waiting | Change | _Letter] = deque()
        self._letters: deque[_Letter] = deque()  # of the queue
        self._held = HeldDrops()  # advertisements
        self._compared = Offset(0)  # the resync's drops may have to wait for the events below
        self._reached = Offset(0)  # the events below are sent
        self._queued = 0  # items in the queue
        self._later: list[Change] = []  # marks that wait for the end of a resync
        self._notes: dict[type, Note] = {}  # that the end of a resync will carry
        self._ending = False  # the end of a resync is being sent
        # marks by kind, with the number of the frame that they stand behind
        self._marks: dict[About, deque[tuple[int, Change]]] = {about: deque() for about in ABOUT}
        self.listing = False  # the neighbour is saying what it holds
        self.is_open = False  # frames may be sent
        self.number = self.heard = 0
        self._last = dict.fromkeys(ABOUT, 0)  # the number of the last frame of each kind
        self._completed = dict.fromkeys(ABOUT, 0)
        self.overflown = False
        self._left = 0  # items that may be looked at in this turn

    # -- sessions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A session begins: the neighbour will say what it holds."""
        self.end()
        self.listing, self._notes = True, {}  # both ends of a new session say again how far they are
        self.sent, self._digests = ({}, {}), (ItemDigest(), ItemDigest())
        self.number = self.heard = 0
        self._last, self._completed = dict.fromkeys(ABOUT, 0), dict.fromkeys(ABOUT, 0)

    def end(self) -> None:
        """There is no session: what is told is forgotten, and marks wait for the next session's resync."""
        self._letters.clear()
        self._put_off()
        self._recall_marks()
        self.listing = self.is_open = self.overflown = False
        self._pool, self._ending = {}, False
        self._held.clear()

    def _put_off(self) -> None:
        """Forget what is queued. Its marks wait for a resync, and so do stages of a re-tuning, which are said once."""
        self._keep_stages(self._queue)
        self._later += [entry for entry in self._queue if isinstance(entry, Change)]
        self._queue = deque(self._letters)
        self._queued = 0

    def _keep_stages(self, queue: Iterable[_Waiting | Change | _Letter]) -> None:
        for entry in queue:
            if isinstance(entry, _Waiting):
                self._notes.update((Retuning, note) for note in entry.notes if isinstance(note, Retuning))

    def _recall_marks(self) -> None:
        """The changes that wait for frames wait for the next resync instead."""
        for marks in self._marks.values():
            self._later += [mark for _, mark in marks]
            marks.clear()

    def have(self, message: LinkHave) -> bool:
        """The neighbour holds these; whether that was all. Raises RemoteProtocolError."""
        if not self.listing or len(message.ids) != len(message.hashes) or len(message.ids) % 8:
            raise RemoteProtocolError(f"{self.link} lists what it has heard out of turn, or wrongly")
        wires, values = np.frombuffer(message.ids, "<u8"), np.frombuffer(message.hashes, "<u8")
        ids, hashes = wires.tolist(), values.tolist()
        self.sent[message.about].update(zip(ids, hashes, strict=True))
        self._digests[message.about].add_many(wires, values)
        self._pool.setdefault(message.about, Unclaimed()).add_many(ids, hashes)
        self._next_wire = max(self._next_wire, message.highest + 1, max(ids, default=0) + 1)
        return message.last

    def resync(self, offset: Offset) -> None:
        """Compare everything that the table has told with what the neighbour holds; `offset` as in `tell`.

        A table whose updates have notes must now tell everything anew, because only it knows which notes are still
        valid. Cost: O(items told), some ten nanoseconds each; the comparison itself is made by `frames`.
        """
        self._put_off()
        self._held.clear()
        self._compared = offset
        self.overflown = False
        self._begun = set() if self._codec.noted else {*range(len(ABOUT))}
        for about in range(len(ABOUT)):
            if self.listing and about in self._pool:
                self._wires[about].clear()
            else:
                self._refill(about)
        self.listing, self.is_open = False, True
        if not self._codec.noted:
            for kind, told in zip(ABOUT, self._told, strict=True):
                self._queue.append(_Waiting(Update(kind, fresh=True, add=told), offset))

    def _refill(self, about: int) -> None:
        self._ending = False
        if about == _ADVERTS:
            self._held.clear()
        self._wires[about].clear()
        self._pool[about] = Unclaimed()
        self._pool[about].add_many([*self.sent[about].keys()], [*self.sent[about].values()])

    @property
    def resyncing(self) -> bool:
        """Whether the neighbour may not yet hold all that it should."""
        return not self.is_open or bool(self._pool)

    # -- telling --------------------------------------------------------------------------------------

    def tell(self, update: Update, offset: Offset) -> None:
        """The table tells something. Without a session nothing is sent: the next resync finds it.

        Advertisements that it withdraws are dropped behind the events below `offset`.
        """
        told = self._told[ABOUT.index(update.about)]
        if update.fresh:
            told.clear()
        for item_id in update.drop:
            told.pop(item_id, None)
        told.update(update.add)
        if not self.is_open:
            return
        waiting = _Waiting(update, offset)
        if self.overflown:
            self._keep_stages([waiting])
            return
        again = waiting.about not in self._pool or waiting.about in self._begun
        if update.fresh and again:  # the table begins anew by itself
            kept = [entry for entry in self._queue if not isinstance(entry, _Waiting) or entry.about != waiting.about]
            self._keep_stages(self._queue)
            self._queue = deque(kept)
            self._queued = sum(entry.size for entry in kept if isinstance(entry, _Waiting))
            self._refill(waiting.about)
        if update.fresh:
            self._begun.add(waiting.about)
            self._compared = max(self._compared, offset)
        self._queue.append(waiting)
        self._queued += waiting.size
        self.overflown = self._queued > self._most

    def mark(self, change: Change) -> None:
        """Complete a change when the neighbour has completed everything that it is told before this."""
        if self.is_open and not self.overflown:
            self._queue.append(change)
        else:
            self._later.append(change)

    def relay(self, offset: Offset, message: LinkRelay) -> None:
        """Send a message behind the events below an offset, and behind everything that is told so far."""
        letter = _Letter(offset, message)
        self._letters.append(letter)
        self._queue.append(letter)

    @property
    def barrier(self) -> Offset | None:
        """Events from here on must wait for a message."""
        return self._letters[0].offset if self._letters else None

    def give_up(self) -> list[Change]:
        """The neighbour is gone for good: the changes that waited for it."""
        self.end()
        gone, self._later = self._later, []
        return gone

    @property
    def waiting(self) -> int:
        """How many items wait to be sent."""
        return sum(len(entry.adds) + len(entry.drop) for entry in self._queue if isinstance(entry, _Waiting))

    @property
    def marks(self) -> int:
        """How many changes wait for this neighbour."""
        numbered = sum(map(len, self._marks.values()))
        return numbered + len(self._later) + sum(isinstance(entry, Change) for entry in self._queue)

    # -- frames ---------------------------------------------------------------------------------------

    def frames(self, settled: bool, reached: Offset, most: int) -> Iterator[LinkUpdate | LinkRelay]:
        """The next frames, as far as the window allows, looking at some `most` items; `more` says whether to go on.

        `settled` if the table has nothing pending; the events below `reached` are sent.
        """
        self._left, self._reached = most, reached
        while self.is_open and not self.overflown and self._left > 0 and self.number - self.heard < self._window:
            self._left -= _FRAME_COST
            frame = self._next(settled)
            if frame is not None:
                yield frame
            elif self._left > 0:
                return

    @property
    def more(self) -> bool:
        """Whether `frames` has not looked at everything that it could send."""
        return self._left <= 0 and self.is_open and self.number - self.heard < self._window

    def _next(self, settled: bool) -> LinkUpdate | LinkRelay | None:
        released = self._held.take(self._reached, MOST_ITEMS)
        if released:
            self._left -= len(released)
            return self._dropping(_ADVERTS, released)
        if len(self._held) >= self._most:
            return None
        frame, marks = self._frame()
        later = self._later if self._pool else None
        for mark in marks:
            if later is None:
                self._await(mark)
            else:
                later.append(mark)
        if frame is not None or self._left <= 0:
            return frame
        if not self._queue:
            return self._rest() if self._pool and settled else None
        letter = self._queue[0]
        if not isinstance(letter, _Letter) or self._reached < letter.offset:
            return None
        self._queue.popleft()
        return self._letters.popleft().message

    def _await(self, mark: Change) -> None:
        kind = mark.awaits(self.link)
        if self._last[kind] <= self._completed[kind]:
            mark.completed(self.link)
        else:
            self._marks[kind].append((self._last[kind], mark))

    def _frame(self) -> tuple[LinkUpdate | None, list[Change]]:
        """The next frame, if the neighbour needs one, and the marks behind it. Updates that follow each other become
        one, unless they have notes. Additions come first; what is added and dropped in one frame leaves no trace.
        """
        new: dict[int, bytes] = {}
        drop: list[int] = []
        notes: tuple[Note, ...] = ()
        marks: list[Change] = []
        about, size = -1, 0
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Change):
                marks.append(head)
                self._queue.popleft()
                continue
            if isinstance(head, _Letter) or (about >= 0 and (head.about != about or head.notes)):
                break
            about = head.about
            size += self._add(head, new, MOST_BYTES - size)
            if not head.adds:
                self._drop(head, new, drop)
            done = not head.adds and not head.drop
            notes = self._notes_now(head, done)
            if done:
                self._queue.popleft()
                self._queued -= head.size
            if not done or notes or len(new) >= MOST_ITEMS or size >= MOST_BYTES or self._left <= 0:
                break
        if not (new or drop or notes):
            return None, marks
        ids, items = tuple(new.keys()), tuple(new.values())
        return self._numbered(LinkUpdate(0, about, tuple(sorted(drop)), ids, items, notes)), marks

    def _add(self, waiting: _Waiting, new: dict[int, bytes], most: int) -> int:
        """Additions of an update, as many as there is room for: their bytes."""
        about, size = waiting.about, 0
        wires, pool, sent = self._wires[about], self._pool.get(about), self.sent[about]
        kind, digest, known = ABOUT[about], self._digests[about], self._known[about]
        while waiting.adds and len(new) < MOST_ITEMS and size < most and self._left > 0:
            self._left -= 1
            item_id, item = waiting.adds.popleft()
            body = None
            hashed = known.get(item_id)
            if hashed is None:
                body = self._codec.encode_item(kind, item)
                hashed = known[item_id] = item_hash(body)
            claimed = None if pool is None else pool.claim(hashed)
            if claimed is not None:
                wires[item_id] = claimed
                continue
            if body is None:
                body = self._codec.encode_item(kind, item)
            wire = wires[item_id] = self._next_wire
            self._next_wire += 1
            sent[wire] = hashed
            digest.add(wire, hashed)
            new[wire] = body
            size += len(body)
        return size

    def _drop(self, waiting: _Waiting, new: dict[int, bytes], drop: list[int]) -> None:
        wires = self._wires[waiting.about]
        while waiting.drop and len(drop) < MOST_ITEMS:
            self._left -= 1
            item_id = waiting.drop.popleft()
            self._known[waiting.about].pop(item_id, None)
            wire = wires.pop(item_id)
            if wire in new:
                del new[self._dropped(waiting.about, wire)]
            elif waiting.about == _ADVERTS and self._reached < waiting.offset:
                self._held.add(waiting.offset, wire)
            else:
                drop.append(self._dropped(waiting.about, wire))

    def _dropping(self, about: int, wires: list[int]) -> LinkUpdate:
        return self._numbered(LinkUpdate(0, about, tuple(sorted(self._dropped(about, wire) for wire in wires))))

    def _dropped(self, about: int, wire: int) -> int:
        self._digests[about].drop(wire, self.sent[about].pop(wire))
        return wire

    def _notes_now(self, waiting: _Waiting, last: bool) -> tuple[Note, ...]:
        """The notes that go with a part of an update. A space goes before its labels; what ends an older one comes
        last. During a resync the rest is put off to its end, where the notes are those of a neighbour without any.
        """
        notes = waiting.notes
        offered = tuple(Retuning(each.space, Stage.OFFERED) for each in notes if isinstance(each, Retuning))
        if self._pool:
            self._notes.update((type(note), note) for note in notes)
            waiting.notes = ()
            return offered
        if last or not notes:
            waiting.notes = ()
            return notes
        if waiting.offered:
            return ()
        waiting.offered = True
        waiting.notes = tuple(each for each in notes if isinstance(each, Switch) or each.stage is Stage.DONE)
        return offered

    def _rest(self) -> LinkUpdate | None:
        """The end of a resync: drop what nobody claimed, some at a time; then say that it is over."""
        for about, pool in sorted(self._pool.items()):
            unclaimed = pool.take(MOST_ITEMS)
            if unclaimed and about == _ADVERTS and self._reached < self._compared:
                self._hold(pool, unclaimed)
                if self._left <= 0:
                    return None
            elif unclaimed:
                return self._dropping(about, unclaimed)
        if not self._ending:
            self._ending = True  # both kinds end with a frame, so that nothing is complete before the neighbour says so
            return self._numbered(LinkUpdate(0, _ADVERTS))
        self._pool, self._ending = {}, False
        for known, wires in zip(self._known, self._wires, strict=True):
            for item_id in known.keys() - wires.keys():  # withdrawn while there was no session
                del known[item_id]
        notes = tuple(self._notes.values())
        self._notes = {}
        frame = self._numbered(LinkUpdate(0, notes=notes, fresh=self._codec.noted, resynced=True))
        later, self._later = self._later, []
        for mark in later:
            self._await(mark)
        return frame

    def _hold(self, pool: Unclaimed, unclaimed: list[int]) -> None:
        """Unclaimed advertisements wait for the events that came in before the comparison."""
        while unclaimed:
            for wire in unclaimed:
                self._held.add(self._compared, wire)
            self._left -= len(unclaimed)
            unclaimed = pool.take(MOST_ITEMS) if self._left > 0 else []

    def _numbered(self, frame: LinkUpdate) -> LinkUpdate:
        self.number += 1
        self._last[ABOUT[frame.about]] = self.number
        return msgspec.structs.replace(frame, number=self.number)

    # -- answers --------------------------------------------------------------------------------------

    def progress(self, heard: int, completed: tuple[int, int]) -> None:
        """The neighbour has stored and completed these frames. Raises RemoteProtocolError."""
        if not self.heard <= heard <= self.number:
            raise RemoteProtocolError(f"{self.link} acknowledges control frames that it was not sent")
        self.heard = heard
        for kind, number in zip(ABOUT, completed, strict=True):
            if not self._completed[kind] <= number <= heard:
                raise RemoteProtocolError(f"{self.link} completes control frames that it has not acknowledged")
            self._completed[kind] = number
            marks = self._marks[kind]
            while marks and marks[0][0] <= number:
                marks.popleft()[1].completed(self.link)

    def digest(self) -> tuple[int, int]:
        """One number for each kind of what the neighbour holds once it has every frame."""
        return self._digests[0].value, self._digests[1].value

    def check(self, told: tuple[int, int]) -> None:
        """Raise AssertionError if an invariant is broken; `told` is how many items of each kind the table has told."""
        assert self._queued == sum(e.size for e in self._queue if isinstance(e, _Waiting))
        for about, wires in enumerate(self._wires):
            assert len(set(wires.values())) == len(wires), "two items have one wire id"
            if self.is_open and not self._queue and not self.overflown and about not in self._pool:
                held = self._held.wires() if about == _ADVERTS else set()
                assert {*wires.values()} | held == self.sent[about].keys(), "what was sent is not what the table told"
                assert len(wires) == told[about]
                assert held.isdisjoint(wires.values())
            assert len(self._told[about]) == told[about]
