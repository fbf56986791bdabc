"""The links that want an event, found with a bounded number of tests (thesis 3.7).

The filters that links told are in a forest, which is searched from its roots. When the tests of an event are used up,
every link that is not found yet counts as interested: events may be sent that nobody wants, and none is lost. They are
counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.relate import Region
from weft.index.base import AnyEvent
from weft.index.events import conformed
from weft.model.event import attributes_of
from weft.model.schema import Schema
from weft.order import FilterRelation, Forest
from weft.order.event_search import in_form, match
from weft.routing.table import ItemId, Link, Routes

_CHUNK = 8  # items of a removed link that are discarded together as one piece of work


class BudgetMatcher:
    """Items by link in a forest, and the links of events, after at most `tests` comparisons per event."""

    def __init__(self, tests: int, schema: Schema | None = None) -> None:
        self.tests = tests
        self.assumed = 0  # events for which links were assumed to be interested
        self._schema = schema
        self._forest: Forest[Region] = Forest(FilterRelation(schema))
        self._forms: dict[Link, dict[ItemId, NormalForm]] = {}
        self._times: dict[tuple[Link, NormalForm], int] = {}

    def attach(self, link: Link) -> None:
        """Make room for a link."""
        self._forms[link] = {}

    def detach(self, link: Link) -> Iterator[None]:
        """Remove a link at once, and its items step by step."""
        forms = [*self._forms.pop(link).values()]
        return self._clear(link, forms)

    def _clear(self, link: Link, forms: list[NormalForm]) -> Iterator[None]:
        for number, form in enumerate(forms):
            self._drop(link, form)
            if number % _CHUNK == 0:
                yield

    def change(self, link: Link, drop: Collection[ItemId], add: Mapping[ItemId, NormalForm]) -> None:
        """Remove items, if they exist, and add others."""
        forms = self._forms[link]
        for item_id in drop:
            if item_id in forms:
                self._drop(link, forms.pop(item_id))
        for item_id, form in add.items():
            forms[item_id] = form
            times = self._times.get((link, form), 0)
            self._times[link, form] = times + 1
            if not times:
                self._forest.add(form, link)

    def _drop(self, link: Link, form: NormalForm) -> None:
        times = self._times.pop((link, form)) - 1
        if times:
            self._times[link, form] = times
        else:
            self._forest.discard(form, link)

    def rest(self) -> bool:
        """Nothing is buffered."""
        return False

    def settle(self) -> None:
        """Nothing is done in the background."""

    def wanting(self, event: AnyEvent) -> set[Link]:
        """The links that want an event, and those that may. Cost: at most `tests` comparisons."""
        left = self.tests

        def tested(made: Any, values: Any) -> bool:
            nonlocal left
            left -= 1
            return in_form(made, values)

        values = attributes_of(event if self._schema is None else conformed(event, self._schema))
        found = match(self._forest, values, matches=tested, interfaces=self._forms.keys(), stop=lambda: left <= 0)
        self.assumed += left <= 0 and len(found) > 0
        return {link for link in self._forms if link in found}

    def wanting_batch(self, events: Sequence[AnyEvent]) -> Routes:
        """The positions of the events that each link wants, or may want."""
        places: dict[Link, list[int]] = {}
        for at, event in enumerate(events):
            for link in self.wanting(event):
                places.setdefault(link, []).append(at)
        return {link: np.array(places[link], np.intp) for link in self._forms if link in places}

    def items(self, event: AnyEvent, link: Link) -> Iterator[ItemId]:
        """The items of a link that admit an event, in the order in which they were told."""
        values = attributes_of(event if self._schema is None else conformed(event, self._schema))
        return (item_id for item_id, form in self._forms[link].items() if values in form)

    def check(self, items: Mapping[Link, Collection[ItemId]]) -> None:
        """Raise AssertionError unless it has exactly these items."""
        self._forest.check()
        assert {link: set(forms) for link, forms in self._forms.items()} == {k: set(v) for k, v in items.items()}
