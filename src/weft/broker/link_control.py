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

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from weft.broker.completion import PendingChange
from weft.broker.held_drops import HeldDrops
from weft.broker.link_marks import FrameMarks
from weft.broker.link_messages import ABOUT, MOST_ITEMS, LinkHave, LinkRelay, LinkUpdate
from weft.broker.link_queue import ControlQueue, Letter, WaitingUpdate
from weft.broker.link_told import ToldItems
from weft.errors import RemoteProtocolError
from weft.interest.label_set import Note, Retuning, Stage, Switch
from weft.log.base import Offset
from weft.routing.table import About, Link, Update, UpdateCodec

MOST_BYTES = 1 << 19  # of the items of one frame, besides the last
_ADVERTS = ABOUT.index(About.ADVERTISEMENTS)
_FRAME_COST = 16  # of a frame, in items


class ControlSender:
    """The control frames to one neighbour. `most` is how many items may wait to be sent, `window` how many frames may
    be unacknowledged.
    """

    def __init__(self, link: Link, codec: UpdateCodec, most: int, window: int) -> None:
        self.link = link
        self.marks = FrameMarks(link)
        self._codec = codec
        self._most, self._window = most, window
        self._items = tuple(ToldItems(about, codec) for about in ABOUT)
        self._next_wire = 1
        self._begun: set[int] = set()  # kinds of which the table has told everything, in this resync
        self._queue = ControlQueue()
        self._held = HeldDrops()  # advertisements
        self._compared = Offset(0)  # the resync's drops may have to wait for the events below
        self._reached = Offset(0)  # the events below are sent
        self._notes: dict[type, Note] = {}  # that the end of a resync will carry
        self._ending = False  # the end of a resync is being sent
        self._left = 0  # items that may be looked at in this turn
        self.listing = False  # the neighbour is saying what it holds
        self.is_open = False  # frames may be sent
        self.overflown = False

    # -- sessions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A session begins: the neighbour will say what it holds."""
        self.end()
        self.listing, self._notes = True, {}  # both ends of a new session say again how far they are
        for items in self._items:
            items.begin()
        self.marks.begin()

    def end(self) -> None:
        """There is no session: what is told is forgotten, and marks wait for the next session's resync."""
        self._queue.forget_letters()
        self._put_off()
        self.marks.put_off_all()
        self.listing = self.is_open = self.overflown = False
        self._end_comparison()
        self._held.clear()

    def _end_comparison(self) -> None:
        self._ending = False
        for items in self._items:
            items.end()

    def _put_off(self) -> None:
        """Forget what is queued. Its marks wait for a resync, and so do stages of a re-tuning, which are said once."""
        changes, stages = self._queue.forget()
        self.marks.put_off(changes)
        self._keep(stages)

    def _keep(self, stages: Iterable[Retuning]) -> None:
        self._notes.update((Retuning, stage) for stage in stages)

    def have(self, message: LinkHave) -> bool:
        """The neighbour holds these; whether that was all. Raises RemoteProtocolError."""
        if not self.listing or len(message.ids) != len(message.hashes) or len(message.ids) % 8:
            raise RemoteProtocolError(f"{self.link} lists what it has heard out of turn, or wrongly")
        wires = np.frombuffer(message.ids, "<u8")
        self._items[message.about].have(wires, np.frombuffer(message.hashes, "<u8"))
        self._next_wire = max(self._next_wire, message.highest + 1, int(wires.max(initial=0)) + 1)
        return message.last

    def resync(self, offset: Offset) -> None:
        """Compare everything that the table has told with what the neighbour holds; `offset` as in `tell`.

        A table whose updates have notes must now tell everything anew, because only it knows which notes are still
        valid. Cost: O(items told), some ten nanoseconds each; the comparison itself is made by `frames`.
        """
        self._put_off()
        self._held.clear()
        self._compared = offset
        self._ending = self.overflown = False
        self._begun = set() if self._codec.noted else {*range(len(ABOUT))}
        for items in self._items:
            items.compare(listed=self.listing)
        self.listing, self.is_open = False, True
        if not self._codec.noted:
            for kind, items in zip(ABOUT, self._items, strict=True):
                self._queue.put(WaitingUpdate(Update(kind, fresh=True, add=items.told.copy()), offset))

    @property
    def _comparing(self) -> bool:
        return any(items.unclaimed is not None for items in self._items)

    @property
    def resyncing(self) -> bool:
        """Whether the neighbour may not yet hold all that it should."""
        return not self.is_open or self._comparing

    # -- telling --------------------------------------------------------------------------------------

    def tell(self, update: Update, offset: Offset) -> None:
        """The table tells something. Without a session nothing is sent: the next resync finds it.

        Advertisements that it withdraws are dropped behind the events below `offset`.
        """
        items = self._items[ABOUT.index(update.about)]
        items.tell(update)
        if not self.is_open:
            return
        waiting = WaitingUpdate(update, offset)
        if self.overflown:
            self._keep(waiting.stages)
            return
        if update.fresh:
            if items.unclaimed is None or waiting.about in self._begun:
                self._begin_anew(waiting.about)
            self._begun.add(waiting.about)
            self._compared = max(self._compared, offset)
        self._queue.put(waiting)
        self.overflown = self._queue.size > self._most

    def _begin_anew(self, about: int) -> None:
        """The table itself begins anew with one kind: forget what it has told of it."""
        self._keep(self._queue.forget_updates(about))
        self._items[about].compare()
        self._ending = False
        if about == _ADVERTS:
            self._held.clear()

    def mark(self, change: PendingChange) -> None:
        """Complete a change when the neighbour has completed everything that it is told before this."""
        if self.is_open and not self.overflown:
            self._queue.put(change)
        else:
            self.marks.put_off([change])

    def relay(self, offset: Offset, message: LinkRelay) -> None:
        """Send a message behind the events below an offset, and behind everything that is told so far."""
        self._queue.put(Letter(offset, message))

    @property
    def barrier(self) -> Offset | None:
        """Events from here on must wait for a message."""
        return self._queue.barrier

    def give_up(self) -> list[PendingChange]:
        """The neighbour is gone for good: the changes that waited for it."""
        self.end()
        return self.marks.give_up()

    @property
    def waiting(self) -> int:
        """How many items wait to be sent."""
        return self._queue.items

    @property
    def waiting_changes(self) -> int:
        """How many changes wait for this neighbour."""
        return len(self.marks) + self._queue.changes

    # -- frames ---------------------------------------------------------------------------------------

    def frames(self, settled: bool, reached: Offset, most: int) -> Iterator[LinkUpdate | LinkRelay]:
        """The next frames, as far as the window allows, looking at some `most` items; `more` says whether to go on.

        `settled` if the table has nothing pending; the events below `reached` are sent.
        """
        self._left, self._reached = most, reached
        while self._may_send and not self.overflown and self._left > 0:
            self._left -= _FRAME_COST
            frame = self._next(settled)
            if frame is not None:
                yield frame
            elif self._left > 0:
                return

    @property
    def _may_send(self) -> bool:
        return self.is_open and self.marks.unanswered < self._window

    @property
    def more(self) -> bool:
        """Whether `frames` has not looked at everything that it could send."""
        return self._left <= 0 and self._may_send

    def _next(self, settled: bool) -> LinkUpdate | LinkRelay | None:
        released = self._held.take(self._reached, MOST_ITEMS)
        if released:
            self._left -= len(released)
            return self._dropping(_ADVERTS, released)
        if len(self._held) >= self._most:
            return None
        frame, marks = self._frame()
        if self._comparing:
            self.marks.put_off(marks)
        else:
            for mark in marks:
                self.marks.put(mark)
        if frame is not None or self._left <= 0:
            return frame
        head = self._queue.head
        if head is None:
            return self._rest() if self._comparing and settled else None
        if not isinstance(head, Letter) or self._reached < head.offset:
            return None
        self._queue.pop()
        return head.message

    def _frame(self) -> tuple[LinkUpdate | None, list[PendingChange]]:
        """The next frame, if the neighbour needs one, and the marks behind it. Updates that follow each other become
        one, unless they have notes. Additions come first; what is added and dropped in one frame leaves no trace.
        """
        new: dict[int, bytes] = {}
        drop: list[int] = []
        notes: tuple[Note, ...] = ()
        marks: list[PendingChange] = []
        about, size = -1, 0
        while (head := self._queue.head) is not None:
            if isinstance(head, PendingChange):
                marks.append(head)
                self._queue.pop()
                continue
            if isinstance(head, Letter) or (about >= 0 and (head.about != about or head.notes)):
                break
            about = head.about
            size += self._add(head, new, MOST_BYTES - size)
            if not head.adding:
                self._drop(head, new, drop)
            notes = self._notes_now(head)
            if head.done:
                self._queue.pop()
            if not head.done or notes or len(new) >= MOST_ITEMS or size >= MOST_BYTES or self._left <= 0:
                break
        if not (new or drop or notes):
            return None, marks
        ids, items = tuple(new.keys()), tuple(new.values())
        return self._numbered(LinkUpdate(0, about, tuple(sorted(drop)), ids, items, notes)), marks

    def _add(self, waiting: WaitingUpdate, new: dict[int, bytes], most: int) -> int:
        """Additions of an update, as many as there is room for: their bytes."""
        add, size = self._items[waiting.about].add, 0
        while waiting.adding and len(new) < MOST_ITEMS and size < most and self._left > 0:
            self._left -= 1
            body = add(*waiting.take(), self._next_wire)
            if body is not None:
                new[self._next_wire] = body
                self._next_wire += 1
                size += len(body)
        return size

    def _drop(self, waiting: WaitingUpdate, new: dict[int, bytes], drop: list[int]) -> None:
        """Removals of an update, as many as there is room for; or they are put off."""
        items = self._items[waiting.about]
        held = waiting.about == _ADVERTS and self._reached < waiting.offset
        while waiting.drop and len(drop) < MOST_ITEMS:
            self._left -= 1
            wire = items.withdraw(waiting.drop.popleft())
            if held and wire not in new:
                self._held.add(waiting.offset, wire)
                continue
            items.drop(wire)
            if new.pop(wire, None) is None:
                drop.append(wire)

    def _notes_now(self, waiting: WaitingUpdate) -> tuple[Note, ...]:
        """The notes that go with a part of an update. A space goes before its labels; what ends an older one comes
        last. During a resync the rest is put off to its end, where the notes are those of a neighbour without any.
        """
        notes = waiting.notes
        stages = (each for each in notes if isinstance(each, Retuning) and each.stage < Stage.MOVED)
        offered = tuple(Retuning(each.space, Stage.OFFERED) for each in stages)
        if self._comparing:
            self._notes.update((type(note), note) for note in notes)
            waiting.notes = ()
            return offered
        if waiting.done or not notes:
            waiting.notes = ()
            return notes
        if waiting.offered:
            return ()
        waiting.offered = True
        waiting.notes = tuple(each for each in notes if isinstance(each, Switch) or each.stage > Stage.OFFERED)
        return offered

    def _rest(self) -> LinkUpdate | None:
        """The end of a resync: drop what nobody claimed, some at a time; then say that it is over."""
        for about, items in enumerate(self._items):
            while items.unclaimed is not None and (wires := items.unclaimed.take(MOST_ITEMS)):
                if about != _ADVERTS or self._reached >= self._compared:
                    return self._dropping(about, wires)
                for wire in wires:
                    self._held.add(self._compared, wire)
                self._left -= len(wires)
                if self._left <= 0:
                    return None
        if not self._ending:
            self._ending = True  # both kinds end with a frame, so that nothing is complete before the neighbour says so
            return self._numbered(LinkUpdate(0, _ADVERTS))
        self._end_comparison()
        for items in self._items:
            items.forget_withdrawn()
        notes, self._notes = tuple(self._notes.values()), {}
        frame = self._numbered(LinkUpdate(0, notes=notes, fresh=self._codec.noted, resynced=True))
        self.marks.resynced()
        return frame

    def _dropping(self, about: int, wires: list[int]) -> LinkUpdate:
        for wire in wires:
            self._items[about].drop(wire)
        return self._numbered(LinkUpdate(0, about, tuple(sorted(wires))))

    def _numbered(self, frame: LinkUpdate) -> LinkUpdate:
        return msgspec.structs.replace(frame, number=self.marks.numbered(frame.about))

    # -- contents -------------------------------------------------------------------------------------

    def digest(self) -> tuple[int, int]:
        """One number for each kind of what the neighbour holds once it has every frame."""
        subscriptions, advertisements = self._items
        return subscriptions.digest.value, advertisements.digest.value

    def check(self, told: tuple[int, int]) -> None:
        """Raise AssertionError if an invariant is broken; `told` is how many items of each kind the table has told."""
        self._queue.check()
        for about, items in enumerate(self._items):
            nothing_waits = self.is_open and self._queue.head is None and not self.overflown and items.unclaimed is None
            held = self._held.wires() if about == _ADVERTS else set()
            items.check(told[about], held, all_sent=nothing_waits)
