"""Identity-based routing: of equal filters one is told (thesis 2.3). Law: a form is told to a link if and only if
another source than that link holds it.

Filters are equal when their normal forms are; the order of boxes does not matter. How many items of a source have a
form is counted, so that it goes with the last of them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.algebra.box import Box
from weft.routing.exact import ExactTable
from weft.routing.ledger import Revision
from weft.routing.local import Held
from weft.routing.table import Item, Link, Source

Form = frozenset[Box]


class IdentityTable(ExactTable[Form]):
    """A key is a normal form.

    >>> from weft import parse
    >>> table, north = IdentityTable(), Link("north")
    >>> _ = table.attach(north), table.change({1: parse("x > 5"), 2: parse("NOT x <= 5 AND x > 0")}, ())
    >>> [str(item) for item in table.told(north).values()]
    ['x > 5']
    """

    model = "identity"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.holders: dict[Form, dict[Source, int]] = {}
        self._items: dict[Form, Item] = {}

    def wanted(self, link: Link) -> Mapping[Form, Item]:
        """Every form that somebody else holds."""
        return {form: self._items[form] for form, holders in self.holders.items() if holders.keys() - {link}}

    def revise(
        self, source: Source, drop: Mapping[int, Held], add: Mapping[int, Held]
    ) -> Mapping[Link, Revision[Form]]:
        """What the change of holders makes of each form. Cost: O(changes + links x forms that change holders)."""
        gone, new = [*map(form_of, drop.values())], [*map(form_of, add.values())]
        before = {form: frozenset(self.holders.get(form, ())) for form in (*gone, *new)}
        for form in gone:
            self._release(source, form)
        for form, held in zip(new, add.values(), strict=True):
            self._hold(source, form, held.item)
        for form in before:
            if form not in self.holders:
                self._items.pop(form, None)
        changed = [form for form, holders in before.items() if holders != self.holders.get(form, {}).keys()]
        return {link: self._revision(link, before, changed) for link in self.listening(source)}

    def _hold(self, source: Source, form: Form, item: Item) -> None:
        holders = self.holders.setdefault(form, {})
        holders[source] = holders.get(source, 0) + 1
        self._items.setdefault(form, item)

    def _release(self, source: Source, form: Form) -> None:
        holders = self.holders[form]
        holders[source] -= 1
        if not holders[source]:
            del holders[source]
        if not holders:
            del self.holders[form]

    def _revision(
        self, link: Link, before: Mapping[Form, frozenset[Source]], changed: Iterable[Form]
    ) -> Revision[Form]:
        drop: list[Form] = []
        add: dict[Form, Item] = {}
        for form in changed:
            was, now = bool(before[form] - {link}), bool(self.holders.get(form, {}).keys() - {link})
            if was and not now:
                drop.append(form)
            elif now and not was:
                add[form] = self._items[form]
        return Revision(drop, add)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        counted: dict[Form, dict[Source, int]] = {}
        for source, held in self.held.items():
            for each in held.values():
                holders = counted.setdefault(form_of(each), {})
                holders[source] = holders.get(source, 0) + 1
        assert counted == self.holders
        assert self._items.keys() == self.holders.keys()


def form_of(held: Held) -> Form:
    """The form that equal filters share."""
    return frozenset(held.form.boxes)
