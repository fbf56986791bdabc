"""MICS as a hybrid (MICS 5): filters are told, and the curve finds the candidates. The laws of `table` hold, EXACT: an
event never goes to a neighbour that does not want it.

What is told is a minimal cover of what all others want, as in covering-based routing. What neighbours told is indexed
by the curve: one look-up finds the filters whose ranges contain the event's point, and these are evaluated exactly. An
event that its publisher has mapped is not mapped again. Under a schema, the point of an event is that of the values
that conform to it, because these are what filters are evaluated on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.errors import LocalProtocolError
from weft.index.base import AnyEvent, SubId
from weft.index.events import conformed
from weft.kernels.arrays import Ints
from weft.model.event import attributes_of
from weft.model.schema import Schema
from weft.routing.covering.table import CoveringTable
from weft.routing.mics.space import CurveSpaces
from weft.routing.mics.subscription_index import SubscriptionIndex
from weft.routing.table import ItemId, Link, Places, Routes
from weft.space.content import ContentSpace
from weft.space.range_sets import RangeSets

_CHUNK = 8  # items of a removed link that are discarded together as one piece of work


class CurveMatcher:
    """Items by link behind a curve, and the links of events; an item's entry on the curve is identified by a number."""

    def __init__(self, space: ContentSpace, schema: Schema | None = None) -> None:
        self.space = space
        self.compared = 0  # candidates that were evaluated exactly
        self._schema = schema
        self._curve = SubscriptionIndex()
        self._entries: dict[int, tuple[Link, NormalForm]] = {}
        self._names: dict[Link, dict[ItemId, int]] = {}
        self._serial = count()

    def attach(self, link: Link) -> None:
        """Make room for a link."""
        self._names[link] = {}

    def detach(self, link: Link) -> Iterator[None]:
        """Remove a link at once, and its ranges step by step."""
        names = [*self._names.pop(link).values()]
        for name in names:
            del self._entries[name]
        return self._clear(iter(names))

    def _clear(self, names: Iterator[int]) -> Iterator[None]:
        while chunk := [*islice(names, _CHUNK)]:
            self._curve.discard_batch(np.array(chunk, np.int64))
            yield

    def change(self, link: Link, drop: Collection[ItemId], add: Mapping[ItemId, NormalForm]) -> None:
        """Remove items, if they exist, and add others. Cost: about a logarithm of all items for each."""
        names = self._names[link]
        gone = [names.pop(item_id) for item_id in drop if item_id in names]
        for name in gone:
            del self._entries[name]
        self._curve.discard_batch(np.array(gone, np.int64))
        new = [next(self._serial) for _ in add]
        self._curve.add_batch(np.array(new, np.int64), RangeSets.of([self.space.ranges(form) for form in add.values()]))
        for name, (item_id, form) in zip(new, add.items(), strict=True):
            names[item_id] = name
            self._entries[name] = link, form

    def rest(self) -> bool:
        """Nothing is buffered."""
        return False

    def settle(self) -> None:
        """Nothing is done in the background."""

    def wanting(self, event: AnyEvent) -> set[Link]:
        """The links that want an event. Cost: O(log n + candidates)."""
        values = self._values(event)
        return self._wanting(values, self._curve.at(self.space.index(values)).tolist())

    def items(self, event: AnyEvent, link: Link) -> Iterator[ItemId]:
        """The items of a link that admit an event, in the order in which they were told."""
        values = self._values(event)
        names = {*self._curve.at(self.space.index(values)).tolist()}
        return (
            item_id for item_id, name in self._names[link].items() if name in names and values in self._entries[name][1]
        )

    def wanting_batch(self, events: Sequence[AnyEvent], points: Ints | None = None) -> Routes:
        """The positions of the events that each link wants; `points` are their positions on the curve, if known."""
        found = self._curve.at_batch(self.space.indexes(events, self._schema) if points is None else points)
        places: dict[Link, list[int]] = {}
        for at, (event, names) in enumerate(zip(events, found, strict=True)):
            for link in self._wanting(self._values(event), names.tolist()):
                places.setdefault(link, []).append(at)
        return {link: np.array(places[link], np.intp) for link in self._names if link in places}

    def _values(self, event: AnyEvent) -> Mapping[str, Any]:
        return attributes_of(event if self._schema is None else conformed(event, self._schema))

    def _wanting(self, values: Mapping[str, Any], names: Sequence[int]) -> set[Link]:
        links: set[Link] = set()
        for name in names:
            entry = self._entries.get(name)
            if entry is not None and entry[0] not in links:
                self.compared += 1
                if values in entry[1]:
                    links.add(entry[0])
        return links

    def check(self, items: Mapping[Link, Collection[ItemId]]) -> None:
        """Raise AssertionError unless it has exactly these items."""
        self._curve.check()
        assert {link: set(names) for link, names in self._names.items()} == {k: set(v) for k, v in items.items()}
        names = [name for names in self._names.values() for name in names.values()]
        assert set(names) == self._entries.keys()
        assert all(SubId(name) in self._curve for name in names)


class MicsExactTable(CoveringTable):
    """The exact MICS table: filters are told, and events are looked up behind the curve of one content space.

    >>> from weft import parse, Schema
    >>> from weft.routing import Update
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north = MicsExactTable(CurveSpaces.of(schema)), Link("north")
    >>> _ = table.attach(north), table.learn(north, Update(add={1: parse("x BETWEEN 10 AND 10.1 AND y > 50")}))
    >>> table.route({"x": 10.05, "y": 60}, None), table.route({"x": 10.15, "y": 60}, None)
    ({'north'}, set())
    """

    model = "mics-exact"

    def __init__(self, spaces: Sequence[ContentSpace], schema: Schema | None = None, **options: Any) -> None:
        if len(spaces) != 1:
            raise LocalProtocolError(
                f"an exact table of ranges needs one curve, not {len(spaces)}; choose the attributes that matter most"
            )
        super().__init__(schema, **options)
        self.spaces = CurveSpaces(spaces)
        self._matcher: CurveMatcher = CurveMatcher(self.spaces[0], schema)  # type: ignore[assignment]

    @property
    def agreed(self) -> Mapping[str, object]:
        """The space, so that events mapped once are understood everywhere."""
        return {"spaces": self.spaces.parameters}

    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:
        """By the curve, then exactly."""
        return self._matcher.wanting_batch(events, None if places is None else places.keys[:, 0])

    def place(self, events: Sequence[AnyEvent]) -> Places:
        """The points of events on the curve."""
        return Places(self.fingerprint, self.spaces.points(events, self.schema))
