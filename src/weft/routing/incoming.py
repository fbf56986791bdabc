"""Which links want an event, by the filters that they told: one index over the items of all links. Law: exactly as the
items mean.

One index for all links is three times as fast as one for each, although it finds more: the cost of a small batch is
that of starting a search. Items added or removed one by one are stored beside the index and moved into it together, so
that it seldom changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count, islice

import numpy as np

from weft.algebra.box import NormalForm
from weft.index.base import AnyEvent, Ids, MatchIndex
from weft.index.events import conformed
from weft.index.events_in_turn import match_events
from weft.index.tree import TreeIndex
from weft.model.event import attributes_of
from weft.model.paged_dict import PagedDict
from weft.model.schema import Schema
from weft.model.value import Value
from weft.routing.table import ItemId, Link, Routes

MakeIndex = Callable[[Schema | None], MatchIndex]
EventValues = Mapping[str, Value | None]

_MOST_LINKS = 1 << 16
_FEW = 64
_CHUNK = 8  # items of a removed link that are discarded together as one piece of work
_MOST_BESIDE = 256  # while no event comes: moving many together takes less time for each, but more at once
BESIDE = 24  # while events come: each item costs an event about half a microsecond, and moving them some milliseconds


def without_tail(schema: Schema | None = None) -> MatchIndex:
    """The index of tables. New items are stored here, so the index need not keep a tail."""
    return TreeIndex(schema, tail=0, fan=4)


class LinkMatcher:
    """Items by link, and the links of events.

    An entry of the index is named `serial * _MOST_LINKS + number of its link`, so that found names map to links without
    a look-up. `beside` is how many items may be stored beside the index, and how many dead ones in it.
    """

    def __init__(self, schema: Schema | None = None, make: MakeIndex = without_tail, beside: int = BESIDE) -> None:
        self._schema = schema
        self._index = make(schema)
        self._beside = beside
        self._young: dict[int, NormalForm] = {}
        self._dead: set[int] = set()  # dropped, but still in the index
        self._names: dict[Link, PagedDict[ItemId, int]] = {}
        self._numbers: dict[Link, int] = {}
        self._links: list[Link | None] = []  # by number; None: unused, or of a removed link
        self._free: list[int] = []
        self._gone = 0  # entries of removed links
        self._serial = count()

    # -- changes --------------------------------------------------------------------------------

    def attach(self, link: Link) -> None:
        """Make room for a link."""
        number = self._free.pop() if self._free else len(self._links)
        self._links[number : number + 1] = [link]
        self._numbers[link], self._names[link] = number, PagedDict()

    def detach(self, link: Link) -> Iterator[None]:
        """Remove a link at once, and its items step by step. Its number is reused only when no item has it."""
        names, number = self._names.pop(link), self._numbers.pop(link)
        self._links[number] = None
        self._gone += len(names)
        return self._clear(iter(names.values()), number)

    def _clear(self, names: Iterator[int], number: int) -> Iterator[None]:
        while chunk := [*islice(names, _CHUNK)]:
            self._drop(chunk)
            self._pour()
            self._gone -= len(chunk)
            yield
        self._free.append(number)

    def change(self, link: Link, drop: Collection[ItemId], add: Mapping[ItemId, NormalForm]) -> None:
        """Remove items, if they exist, and add others. Cost: about a logarithm of all items for each."""
        names, number = self._names[link], self._numbers[link]
        self._drop([names.pop(item_id) for item_id in drop if item_id in names])
        for item_id, form in add.items():
            names[item_id] = name = next(self._serial) * _MOST_LINKS + number
            self._young[name] = form
        if len(self._young) + len(self._dead) > max(self._beside, _MOST_BESIDE):
            self._pour()

    def _drop(self, names: Collection[int]) -> None:
        for name in names:
            if self._young.pop(name, None) is None:
                self._dead.add(name)

    def _make_ready(self) -> None:
        """Move items into the index if there are too many to test for each event."""
        if len(self._young) + len(self._dead) > self._beside:
            self._pour()

    def _pour(self) -> None:
        """Update the index."""
        if self._dead:
            self._index.discard_many(self._dead)
            self._dead.clear()
        if self._young:
            self._index.add_forms(self._young, list(self._young.values()))
            self._young.clear()

    # -- events ---------------------------------------------------------------------------------

    def wanting(self, event: AnyEvent) -> set[Link]:
        """The links that want an event."""
        self._make_ready()
        found = self._living(self._index.match(event)) & (_MOST_LINKS - 1)
        numbers = set(found.tolist() if len(found) < _FEW else np.unique(found).tolist())
        if self._young:
            numbers |= self._young_wanting(self._values(event), numbers)
        return {link for number in numbers if (link := self._links[number]) is not None}

    def items(self, event: AnyEvent, link: Link) -> Iterator[ItemId]:
        """The items of a link that admit an event, in the order in which they were told."""
        self._make_ready()
        found = {*self._living(self._index.match(event)).tolist()}
        values = self._values(event)
        found |= {name for name, form in self._young.items() if form.admits(values)}
        return (item_id for item_id, name in self._names[link].items() if name in found)

    def wanting_batch(self, events: Sequence[AnyEvent]) -> Routes:
        """The positions of the events that each link wants."""
        self._make_ready()
        found = match_events(self._index, events)
        if len(self._links) == len(self._numbers) == 1 and not (self._dead or self._young or self._gone):
            (link,) = self._numbers  # whatever was found is its
            at = (found.offsets[1:] != found.offsets[:-1]).nonzero()[0]
            return {link: at} if len(at) else {}
        whose = np.repeat(np.arange(len(events)), found.counts)
        if self._dead:
            alive = ~np.isin(found.ids, list(self._dead))
            whose, names = whose[alive], found.ids[alive]
        else:
            names = found.ids
        wanted = np.zeros((len(self._links), len(events)), bool)
        wanted[names & (_MOST_LINKS - 1), whose] = True
        if self._young:
            for at, event in enumerate(events):
                for number in self._young_wanting(self._values(event), ()):
                    wanted[number, at] = True
        places = {link: wanted[number].nonzero()[0] for link, number in self._numbers.items()}
        return {link: at for link, at in places.items() if len(at)}

    def _living(self, names: Ids) -> Ids:
        if not self._dead or not len(names):
            return names
        if len(names) < _FEW:
            return np.array([name for name in names.tolist() if name not in self._dead], np.int64)
        return names[~np.isin(names, list(self._dead))]

    def _young_wanting(self, values: EventValues, known: Collection[int]) -> set[int]:
        """The links, by number, that want an event because of an item beside the index."""
        found: set[int] = set()
        for name, young in self._young.items():
            number = name & (_MOST_LINKS - 1)
            if number not in found and number not in known and young.admits(values):
                found.add(number)
        return found

    def _values(self, event: AnyEvent) -> EventValues:
        return attributes_of(event if self._schema is None else conformed(event, self._schema))

    def check(self, items: Mapping[Link, Collection[ItemId]]) -> None:
        """Raise AssertionError unless it has exactly these items."""
        self._index.check()
        assert {link: set(names) for link, names in self._names.items()} == {k: set(v) for k, v in items.items()}
        names = {name for names in self._names.values() for name in names.values()}
        assert len(self._index) == len(names) + self._gone - len(self._young) + len(self._dead)
        assert names.isdisjoint(self._dead)
        assert all((name in self._index) != (name in self._young) for name in names)
        assert all(self._links[number] == link for link, number in self._numbers.items())
        assert all(self._links[number] is None for number in self._free)
