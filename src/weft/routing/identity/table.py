"""Identity-based routing: equal filters are told once (thesis 2.3). A form is told to a link if and only if a source
other than that link holds it.

Filters are equal if their normal forms are; the order of boxes does not matter. The items of a source with the same
form are counted, so that the form is removed only with the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.algebra.box import Box, NormalForm
from weft.algebra.relate import as_form
from weft.language.ast import Filter
from weft.routing.filter_table import FilterTable
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.routed_filter import RoutedFilter
from weft.routing.table import Item, Source

FormKey = frozenset[Box]

_TOLD_TOGETHER = 16  # to a new neighbour, as one piece of work


class Form:
    """A normal form, its holders with counts, and one of the filters that have it."""

    __slots__ = ("holders", "item", "key")

    def __init__(self, key: FormKey, item: Filter | NormalForm) -> None:
        self.key = key
        self.item = item
        self.holders: dict[TableInterface[Any, Any], int] = {}


class IdentityTable(FilterTable[Form, Form]):
    """The table for identity. A key is a normal form.

    >>> from weft import parse
    >>> from weft.routing import Link
    >>> table, north = IdentityTable(), Link("north")
    >>> _ = table.attach(north), table.change({1: parse("x > 5"), 2: parse("NOT x <= 5 AND x > 0")}, ())
    >>> [str(item) for item in table.told(north).values()]
    ['x > 5']
    """

    model = "identity"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.forms: dict[FormKey, Form] = {}

    def store(self, new: RoutedFilter) -> Form:
        """The form that equal filters share."""
        key = form_key(new.normal_form)
        form = self.forms.get(key)
        if form is None:
            form = self.forms[key] = Form(key, new.item)
        return form

    def holders(self, item: Item) -> Mapping[Source, int]:
        """Who holds the form of the filter."""
        form = self.forms.get(form_key(as_form(item, self.schema))) if isinstance(item, Filter | NormalForm) else None
        return {} if form is None else {source.link: count for source, count in form.holders.items()}

    def item(self, key: Form) -> Item:
        """The first filter with this form."""
        return key.item

    def revise(self, source: TableInterface[Form, Form], drop: Sequence[Form], add: Sequence[Form]) -> Job:
        """Update each form whose holders change. Cost: O(changes + links x forms that change holders)."""
        before = {form: frozenset(form.holders) for form in (*drop, *add)}
        for form in add:
            form.holders[source] = form.holders.get(source, 0) + 1
        for form in drop:
            form.holders[source] -= 1
            if not form.holders[source]:
                del form.holders[source]
        for form, old in before.items():
            if form.holders.keys() != old:
                for interface in self.listening(source):
                    was, wanted = bool(old - {interface}), _wanted(form, interface)
                    if wanted and not was:
                        self.tell(interface, form)
                    elif was and not wanted:
                        self.withdraw(interface, form)
            if not form.holders:
                self.forms.pop(form.key, None)
        return iter(())

    def tell_everything(self, interface: TableInterface[Form, Form]) -> Job:
        """Every form that another source holds."""
        for number, form in enumerate([*self.forms.values()]):
            if _wanted(form, interface) and not interface.ledger.knows(form):
                self.tell(interface, form)
            if number % _TOLD_TOGETHER == 0:
                yield

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        if self.pending:
            return
        counted: dict[Form, dict[TableInterface[Form, Form], int]] = {}
        for source in (self.here, *self.links.values()):
            for form in source.held.values():
                if form is not None:
                    holders = counted.setdefault(form, {})
                    holders[source] = holders.get(source, 0) + 1
        assert counted == {form: form.holders for form in self.forms.values()}
        for interface in self.listening():
            assert set(interface.ledger.ids) == {form for form in self.forms.values() if _wanted(form, interface)}


def form_key(form: NormalForm) -> FormKey:
    """What equal filters have in common."""
    return frozenset(form.boxes)


def _wanted(form: Form, interface: TableInterface[Form, Form]) -> bool:
    """Whether another source holds the form."""
    return bool(form.holders.keys() - {interface})
