"""The records that a node stores, for itself and for others. A store is answered only when copies are made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.algebra.profile import Profile
from weft.index.base import MatchIndex, SubId
from weft.language.text import parse
from weft.ring.identifiers import Key
from weft.ring.key_mapping import Semantics, partially_matches
from weft.ring.messages import NodeAddress
from weft.ring.rendezvous_messages import ANY_STAMP, Publication, Record, RecordSlot, RingSub, first_stamp

if TYPE_CHECKING:
    from weft.ring.ring_settings import RingSettings

_REMOVED = 60_000_000  # microseconds for which a removal is remembered
_MOST_FORGOTTEN = 4_096  # nodes


class _Shelf:
    """What is stored under one key for one topic."""

    def __init__(self, index: MatchIndex) -> None:
        self.index = index
        self.numbers: dict[RingSub, SubId] = {}
        self.records: dict[SubId, Record] = {}
        self.forms: dict[SubId, NormalForm] = {}  # where the index does not do
        self.next = 0


class RecordStore:
    """Records by key, with an index for each key: matching at a key finds exactly the records stored under it.

    >>> from weft.index.scan import ScanIndex
    >>> from weft.ring import IdSpace, KeyMapping, RingSettings
    >>> store = RecordStore(RingSettings(KeyMapping(IdSpace(8)), index=ScanIndex))
    >>> store.add(Record(3, RingSub("n1", 1), "t", "x > 5"))
    >>> [record.sub.number for record in store.match(3, Publication(("n2", 1), "t", {"x": 7}))]
    [1]
    """

    def __init__(self, settings: RingSettings) -> None:
        self._space, self._index, self._predicates = settings.mapping.space, settings.index, settings.predicates
        self._partial = settings.mapping.semantics is Semantics.PARTIAL
        self._shelves: dict[tuple[Key, str], _Shelf] = {}
        self._count = 0
        self.renewed: dict[RecordSlot, int] = {}  # when a record was stored last
        self._removed: dict[RecordSlot, tuple[int, int]] = {}  # the stamp of one that was removed, and when
        self._forgotten: dict[NodeAddress, int] = {}  # nodes that are gone for good: records before these stamps

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        return (record for shelf in self._shelves.values() for record in shelf.records.values())

    def __contains__(self, record: Record | RecordSlot) -> bool:
        shelf = self._shelves.get((record.key, record.topic))
        return shelf is not None and record.sub in shelf.numbers

    def has(self, record: Record) -> bool:
        """Whether a record is here, with the same stamp and filter."""
        known = self.get(record.slot)
        return known is not None and (known.stamp, known.filter) == (record.stamp, record.filter)

    def add(self, record: Record) -> None:
        """Store a record, in place of an older one of the same subscription under the same key."""
        place = record.key, record.topic
        shelf = self._shelves.get(place)
        if shelf is None:
            shelf = self._shelves[place] = _Shelf(self._index())
        number = shelf.numbers.get(record.sub)
        if number is not None:
            known = shelf.records[number]
            if known.stamp > record.stamp:
                return
            if (known.filter, known.meeting) == (record.filter, record.meeting):
                if known.cells != record.cells:  # others are here as well, or on their way to another member
                    cells = tuple(sorted({*known.cells, *record.cells}))
                    record = msgspec.structs.replace(record, cells=cells)
                shelf.records[number] = record
                return
            self._drop(shelf, number)
        wanted = parse(record.filter, self._predicates)
        number = SubId(shelf.next)
        shelf.next += 1
        shelf.index.add(number, wanted)
        shelf.numbers[record.sub], shelf.records[number] = number, record
        self._count += 1

    def take(self, records: Iterable[Record], now: int) -> None:
        """Have these records, unless they were removed before."""
        for record in records:
            removed = self._removed.get(record.slot)
            gone = record.stamp < self._forgotten.get(record.sub.home, 0)
            if not gone and (removed is None or removed[0] < record.stamp):
                self.add(record)
                self.renewed[record.slot] = now

    def get(self, slot: RecordSlot) -> Record | None:
        """The record in a slot."""
        shelf = self._shelves.get((slot.key, slot.topic))
        number = None if shelf is None else shelf.numbers.get(slot.sub)
        return None if shelf is None or number is None else shelf.records[number]

    def put(self, record: Record) -> None:
        """Have a record as it is: with fewer cells than before."""
        shelf = self._shelves[record.key, record.topic]
        shelf.records[shelf.numbers[record.sub]] = record

    def forget(self, slot: RecordSlot, stamp: int = ANY_STAMP) -> None:
        """Do not have a record any more, unless it has a later stamp."""
        place = slot.key, slot.topic
        shelf = self._shelves.get(place)
        number = None if shelf is None else shelf.numbers.get(slot.sub)
        if shelf is not None and number is not None and shelf.records[number].stamp <= stamp:
            self._drop(shelf, number)
            if not shelf.records:
                del self._shelves[place]
        if slot not in self:
            self.renewed.pop(slot, None)

    def remove(self, slot: RecordSlot, stamp: int, now: int) -> None:
        """Forget a record for good: a copy that comes late does not bring it back."""
        self.forget(slot, stamp)
        if stamp != ANY_STAMP:
            self._removed[slot] = stamp, now
            while self._removed and next(iter(self._removed.values()))[1] < now - _REMOVED:
                del self._removed[next(iter(self._removed))]

    def forget_home(self, home: NodeAddress, life: int) -> None:
        """Forget all records of a node in its lives up to this one: those that come late, too."""
        found = [record for record in self if record.sub.home == home]
        self._forgotten[home] = max(first_stamp(life + 1), *(record.stamp + 1 for record in found), 0)
        for record in found:
            self.forget(record.slot)
        while len(self._forgotten) > _MOST_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def _drop(self, shelf: _Shelf, number: SubId) -> None:
        del shelf.numbers[shelf.records.pop(number).sub]
        shelf.forms.pop(number, None)
        shelf.index.discard(number)
        self._count -= 1

    def under(self, key: Key, topic: str) -> list[Record]:
        """The records of a topic under a key."""
        shelf = self._shelves.get((key, topic))
        return [] if shelf is None else list(shelf.records.values())

    def within(self, after: int, upto: int) -> list[Record]:
        """The records under the keys in (after, upto]."""
        between = self._space.between
        keys = {key for key, _ in self._shelves if between(key, after, upto)}
        return [record for record in self if record.key in keys]

    def match(self, key: Key, event: Publication, without: Collection[RecordSlot] = ()) -> list[Record]:
        """The records under a key that want an event."""
        shelf = self._shelves.get((key, event.topic))
        if shelf is None:
            return []
        if event.region is not None:
            profile = Profile("ring", "event", parse(event.region, self._predicates))
            found = [n for n, record in shelf.records.items() if profile.meets(self._form(shelf, n), record.meeting)]
        elif self._partial:
            found = [n for n in shelf.records if partially_matches(self._form(shelf, n), event.attributes)]
        else:
            found = [SubId(int(number)) for number in shelf.index.match(event.attributes)]
        records = [shelf.records[number] for number in found]
        return [record for record in records if record.slot not in without] if without else records

    def _form(self, shelf: _Shelf, number: SubId) -> NormalForm:
        form = shelf.forms.get(number)
        if form is None:
            form = shelf.forms[number] = normalize(parse(shelf.records[number].filter, self._predicates))
        return form
