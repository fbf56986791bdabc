"""What one neighbour is told, in numbered frames. Laws: it holds, once all frames have arrived, what the table told it;
whatever it held before is dropped last; a frame is never larger than the protocol allows.

The table names what it tells by its own ids, which begin anew after a restart. The neighbour knows items by wire ids,
which this side chooses. A session begins with what the neighbour says that it holds, as wire ids and hashes. An item
that the table tells and the neighbour holds already keeps its wire id, and is not sent. When the table has told
everything, whatever nobody claimed is dropped: that is the resynchronisation, and it may be cut off at any point.

It also begins anew, from what was sent, when more waits to be sent than the bound allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import numpy as np

from weft.broker.completion import Change
from weft.broker.link_messages import MOST_ITEMS, LinkHave, LinkUpdate
from weft.errors import RemoteProtocolError
from weft.interest.label_set import Note, Retuning, Stage, Switch
from weft.routing.digest import Digest
from weft.routing.table import About, ItemId, Link, Update, UpdateCodec

ABOUT = (About.SUBSCRIPTIONS, About.ADVERTISEMENTS)
MOST_BYTES = 1 << 19  # of the items of one frame, besides the last

Hashes = dict[int, int]  # of items, by wire id


def item_hash(body: bytes) -> int:
    """The hash of an item, 64 bits, by its bytes; the same on every machine."""
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "little")


class _Waiting:
    """An update that is being sent."""

    __slots__ = ("about", "adds", "drop", "fresh", "notes", "offered", "size")

    def __init__(self, update: Update) -> None:
        self.about = ABOUT.index(update.about)
        self.fresh = update.fresh
        self.adds = deque(sorted(update.add.items()))
        self.drop = deque(sorted(update.drop))
        self.notes = update.notes
        self.offered = False  # a part of it has announced the label space
        self.size = 0 if update.fresh else len(update.add) + len(update.drop)


class ControlSender:
    """The control frames to one neighbour. `most` is how many items may wait to be sent, `window` how many frames may
    be unacknowledged.
    """

    def __init__(self, link: Link, codec: UpdateCodec, most: int, window: int) -> None:
        self.link = link
        self._codec = codec
        self._most, self._window = most, window
        self._next_wire = 1
        self._wires: tuple[dict[ItemId, int], ...] = ({}, {})  # of what the table has told, by kind
        self.sent: tuple[Hashes, Hashes] = ({}, {})  # what the neighbour holds once every frame has arrived, by kind
        self._digests = (Digest(), Digest())
        self._pool: dict[int, dict[int, list[int]]] = {}  # during a resync, by kind: unclaimed wire ids, by hash
        self._queue: deque[_Waiting | Change] = deque()
        self._queued = 0  # items in the queue
        self._later: list[Change] = []  # marks that wait for the end of a resync
        self._notes: dict[type, Note] = {}  # that the end of a resync will carry
        self._marks: deque[tuple[int, Change]] = deque()  # by the number of the frame that they stand behind
        self.listing = False  # the neighbour is saying what it holds
        self.is_open = False  # frames may be sent
        self.number = self.heard = self.completed = 0
        self.overflown = False

    # -- sessions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A session begins: the neighbour will say what it holds."""
        self.end()
        self.listing = True
        self.sent, self._digests = ({}, {}), (Digest(), Digest())
        self.number = self.heard = self.completed = 0

    def end(self) -> None:
        """There is no session: what is told is forgotten, and marks wait for the next session's resync."""
        self._put_off()
        self._later = [mark for _, mark in self._marks] + self._later
        self._marks.clear()
        self.listing = self.is_open = self.overflown = False
        self._pool = {}

    def _put_off(self) -> None:
        """Forget what is queued; its marks wait for a resync."""
        self._later += [entry for entry in self._queue if isinstance(entry, Change)]
        self._queue.clear()
        self._queued = 0

    def have(self, message: LinkHave) -> bool:
        """The neighbour holds these; whether that was all. Raises RemoteProtocolError."""
        if not self.listing or len(message.ids) != len(message.hashes) or len(message.ids) % 8:
            raise RemoteProtocolError(f"{self.link} lists what it has heard out of turn, or wrongly")
        ids = np.frombuffer(message.ids, "<u8").tolist()
        hashes = np.frombuffer(message.hashes, "<u8").tolist()
        self.sent[message.about].update(zip(ids, hashes, strict=True))
        self._next_wire = max(self._next_wire, message.highest + 1, max(ids, default=0) + 1)
        return message.last

    def resync(self) -> None:
        """Everything that the table tells from here on is compared with what the neighbour holds; the table must now be
        asked for all of it.
        """
        self._put_off()
        if self.listing:
            self.listing, self.is_open = False, True
            for about, digest in enumerate(self._digests):
                for wire, hashed in self.sent[about].items():
                    digest.add(ItemId(wire), hashed)
        self.overflown = False
        self._later = [mark for _, mark in self._marks] + self._later
        self._marks.clear()
        for about in range(len(ABOUT)):
            self._refill(about)

    def _refill(self, about: int) -> None:
        self._wires[about].clear()
        pool = self._pool[about] = {}
        for wire, hashed in self.sent[about].items():
            pool.setdefault(hashed, []).append(wire)

    @property
    def resyncing(self) -> bool:
        """Whether the neighbour may not yet hold all that it should."""
        return not self.is_open or bool(self._pool)

    # -- telling --------------------------------------------------------------------------------------

    def tell(self, update: Update) -> None:
        """The table tells something. Without a session nothing happens: the next resync finds it."""
        if not self.is_open or self.overflown:
            return
        waiting = _Waiting(update)
        if update.fresh and waiting.about not in self._pool:  # the table begins anew by itself
            kept = [entry for entry in self._queue if isinstance(entry, Change) or entry.about != waiting.about]
            self._queue = deque(kept)
            self._queued = sum(entry.size for entry in kept if isinstance(entry, _Waiting))
            self._refill(waiting.about)
        self._queue.append(waiting)
        self._queued += waiting.size
        self.overflown = self._queued > self._most

    def mark(self, change: Change) -> None:
        """Complete a change when the neighbour has completed everything that it is told before this."""
        if self.is_open and not self.overflown:
            self._queue.append(change)
        else:
            self._later.append(change)

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
        return len(self._marks) + len(self._later) + sum(isinstance(entry, Change) for entry in self._queue)

    # -- frames ---------------------------------------------------------------------------------------

    def frames(self, settled: bool, most: int) -> Iterator[LinkUpdate]:
        """The next frames, at most so many, as far as the window allows. `settled` if the table has nothing pending."""
        while self.is_open and not self.overflown and most > 0 and self.number - self.heard < self._window:
            frame = self._next(settled)
            if frame is None:
                return
            most -= 1
            yield frame

    def _next(self, settled: bool) -> LinkUpdate | None:
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Change):
                self._queue.popleft()
                if self._pool:
                    self._later.append(head)
                else:
                    self._await(head)
                continue
            frame = self._part(head)
            if not head.adds and not head.drop:
                self._queue.popleft()
                self._queued -= head.size
            if frame is not None:
                return frame
        return self._rest() if self._pool and settled else None

    def _await(self, mark: Change) -> None:
        if self.number <= self.completed:
            mark.completed(self.link)
        else:
            self._marks.append((self.number, mark))

    def _part(self, waiting: _Waiting) -> LinkUpdate | None:
        """The next frame of an update; None if the neighbour has all of it. Additions come first."""
        about, size = waiting.about, 0
        wires, pool, sent = self._wires[about], self._pool.get(about), self.sent[about]
        kind, digest = ABOUT[about], self._digests[about]
        ids: list[int] = []
        items: list[bytes] = []
        while waiting.adds and len(ids) < MOST_ITEMS and size < MOST_BYTES:
            item_id, item = waiting.adds.popleft()
            body = self._codec.encode_item(kind, item)
            hashed = item_hash(body)
            claimed = pool.get(hashed) if pool else None
            if claimed:
                wires[item_id] = claimed.pop()
                continue
            wire = wires[item_id] = self._next_wire
            self._next_wire += 1
            sent[wire] = hashed
            digest.add(ItemId(wire), hashed)
            ids.append(wire)
            items.append(body)
            size += len(body)
        drop: list[int] = []
        if not waiting.adds:
            while waiting.drop and len(drop) < MOST_ITEMS:
                drop.append(self._dropped(about, wires.pop(waiting.drop.popleft())))
        notes = self._notes_now(waiting, last=not waiting.adds and not waiting.drop)
        if not (ids or drop or notes):
            return None
        return self._numbered(LinkUpdate(0, about, tuple(sorted(drop)), tuple(ids), tuple(items), notes))

    def _dropped(self, about: int, wire: int) -> int:
        self._digests[about].drop(ItemId(wire), self.sent[about].pop(wire))
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
            unclaimed: list[int] = []
            while pool and len(unclaimed) < MOST_ITEMS:
                hashed, wires = next(iter(pool.items()))
                while wires and len(unclaimed) < MOST_ITEMS:
                    unclaimed.append(self._dropped(about, wires.pop()))
                if not wires:
                    del pool[hashed]
            if unclaimed:
                return self._numbered(LinkUpdate(0, about, tuple(sorted(unclaimed))))
        self._pool = {}
        notes = tuple(self._notes.values())
        self._notes = {}
        frame = self._numbered(LinkUpdate(0, notes=notes, fresh=self._codec.noted, resynced=True))
        later, self._later = self._later, []
        for mark in later:
            self._await(mark)
        return frame

    def _numbered(self, frame: LinkUpdate) -> LinkUpdate:
        self.number += 1
        return msgspec.structs.replace(frame, number=self.number)

    # -- answers --------------------------------------------------------------------------------------

    def progress(self, heard: int, completed: int) -> None:
        """The neighbour has stored and completed these frames. Raises RemoteProtocolError."""
        if not self.heard <= heard <= self.number or not self.completed <= completed <= heard:
            raise RemoteProtocolError(f"{self.link} acknowledges control frames that it was not sent")
        self.heard, self.completed = heard, completed
        while self._marks and self._marks[0][0] <= completed:
            self._marks.popleft()[1].completed(self.link)

    def digest(self) -> tuple[int, int]:
        """One number for each kind of what the neighbour holds once it has every frame."""
        return self._digests[0].value, self._digests[1].value

    def check(self, told: tuple[int, int]) -> None:
        """Raise AssertionError if an invariant is broken; `told` is how many items of each kind the table has told."""
        assert self._queued == sum(e.size for e in self._queue if isinstance(e, _Waiting))
        for about, wires in enumerate(self._wires):
            assert len(set(wires.values())) == len(wires), "two items have one wire id"
            if self.is_open and not self._queue and not self.overflown and about not in self._pool:
                assert set(wires.values()) == self.sent[about].keys(), "something was sent that the table has not told"
                assert len(wires) == told[about]
