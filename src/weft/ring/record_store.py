"""Subscriptions by key, with an index for each key. Law: matching at a key finds just the records stored under it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.algebra.profile import Profile
from weft.index.base import MatchIndex, SubId
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.ring.identifiers import IdSpace, Key
from weft.ring.key_mapping import Semantics, partially_matches
from weft.ring.rendezvous_messages import ANY_VERSION, Publication, Record, RingSub, Slot


class _Shelf:
    """What is stored under one key for one topic."""

    def __init__(self, index: MatchIndex) -> None:
        self.index = index
        self.numbers: dict[RingSub, SubId] = {}
        self.records: dict[SubId, Record] = {}
        self.forms: dict[SubId, NormalForm] = {}  # where the index does not do
        self.next = 0


class RecordStore:
    """Records by key.

    >>> from weft.index.scan import ScanIndex
    >>> store = RecordStore(IdSpace(8), ScanIndex)
    >>> store.add(Record(3, RingSub("n1", 1), "t", "x > 5"))
    >>> [record.sub.number for record in store.match(3, Publication(("n2", 1), "t", {"x": 7}))]
    [1]
    """

    def __init__(
        self,
        space: IdSpace,
        index: Callable[[], MatchIndex],
        semantics: Semantics = Semantics.EXACT,
        predicates: Predicates = NO_PREDICATES,
    ) -> None:
        self._space = space
        self._index = index
        self._partial = semantics is Semantics.PARTIAL
        self._predicates = predicates
        self._shelves: dict[tuple[Key, str], _Shelf] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        return (record for shelf in self._shelves.values() for record in shelf.records.values())

    def __contains__(self, record: Record | Slot) -> bool:
        shelf = self._shelves.get((record.key, record.topic))
        return shelf is not None and record.sub in shelf.numbers

    def add(self, record: Record) -> None:
        """Store a record, in place of one of the same subscription under the same key."""
        place = record.key, record.topic
        shelf = self._shelves.get(place)
        if shelf is None:
            shelf = self._shelves[place] = _Shelf(self._index())
        number = shelf.numbers.get(record.sub)
        if number is not None:
            known = shelf.records[number]
            if (known.filter, known.meeting) == (record.filter, record.meeting):
                if known.version < record.version:  # what was stored for a later view stays so
                    shelf.records[number] = record
                return
            self._drop(shelf, number)
        wanted = parse(record.filter, self._predicates)
        number = SubId(shelf.next)
        shelf.next += 1
        shelf.index.add(number, wanted)
        shelf.numbers[record.sub], shelf.records[number] = number, record
        self._count += 1

    def discard(self, slot: Slot, version: int = ANY_VERSION) -> None:
        """Forget a record, unless it was stored for a later version."""
        place = slot.key, slot.topic
        shelf = self._shelves.get(place)
        number = None if shelf is None else shelf.numbers.get(slot.sub)
        if shelf is not None and number is not None and shelf.records[number].version <= version:
            self._drop(shelf, number)
            if not shelf.records:
                del self._shelves[place]

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

    def match(self, key: Key, event: Publication, without: Collection[Slot] = ()) -> list[Record]:
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
