"""Tables whose items are filters. The laws of `table` hold, EXACT. Events are looked up in an index of all items
received.

A model may leave out items that need not be told, but `heard` and `held` keep every item, so that it can be told when
what made it redundant is removed. A filter that certainly never matches is not held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.algebra.box import NormalForm
from weft.algebra.normalize import MAX_BOXES
from weft.algebra.relate import as_form, overlaps
from weft.errors import FilterTooComplexError, RemoteProtocolError, WeftError
from weft.index.base import AnyEvent
from weft.language.ast import Filter
from weft.model.change import Change
from weft.model.schema import Schema
from weft.routing.engine import TableEngine
from weft.routing.incoming import LinkMatcher, MakeIndex, table_index
from weft.routing.interface import H, K, TableInterface
from weft.routing.jobs import Job
from weft.routing.routed_filter import RoutedFilter
from weft.routing.table import Exactness, Item, ItemId, Items, Link, Placed, Places, Routes, Update, WantedItem


class FilterTable(TableEngine[K, H]):
    """What tables of filters have in common. `index` creates the index that routes."""

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        index: MakeIndex = table_index,
        **options: Any,
    ) -> None:
        super().__init__(schema, **options)
        self._matcher = LinkMatcher(schema, index)
        self._overlap = FilterOverlap(schema)

    @property
    def exactness(self) -> Exactness:
        """The filters, and nothing else."""
        return Exactness.EXACT

    @property
    def agreed(self) -> Mapping[str, object]:
        """Nothing but the schema: normal forms under another one do not compare."""
        return {}

    @property
    def overlap(self) -> FilterOverlap:
        """By what filters mean."""
        return self._overlap

    def prepare(self, wanted: WantedItem | NormalForm) -> Any:
        """A filter and its normal form."""
        item = wanted.filter if isinstance(wanted, Placed) else wanted
        form = as_form(item, self.schema)
        return RoutedFilter(item, form) if form else None

    def prepare_update(
        self, interface: TableInterface[K, H], update: Update, news: Change[Items, Items]
    ) -> Mapping[ItemId, RoutedFilter]:
        """The filters of an update that can match."""
        if update.notes:
            raise RemoteProtocolError(f"{interface.link} sent notes, which a table of filters does not support")
        held = {item_id: self._received(interface.link, item) for item_id, item in news.add.items()}
        return {item_id: each for item_id, each in held.items() if each.form}

    def _received(self, link: Link | None, item: Item) -> RoutedFilter:
        try:
            if not isinstance(item, Filter | NormalForm):
                raise TypeError(f"it is a {type(item).__name__}")
            form = as_form(item, self.schema)
            if len(form.boxes) > MAX_BOXES:
                raise FilterTooComplexError(f"it has more than {MAX_BOXES} boxes")
            return RoutedFilter(item, form)
        except (WeftError, TypeError) as error:
            raise RemoteProtocolError(f"{link} sent an item that is not a filter here: {error}") from error

    def link_added(self, interface: TableInterface[K, H]) -> None:
        """Make room in the index."""
        assert interface.link is not None
        self._matcher.attach(interface.link)

    def apply_update(
        self,
        interface: TableInterface[K, H],
        update: Update,  # noqa: ARG002 - `news` and `new` suffice
        news: Change[Items, Items],
        new: Mapping[ItemId, RoutedFilter],
    ) -> None:
        """Update the index."""
        assert interface.link is not None
        self._matcher.change(
            interface.link, news.drop.keys(), {item_id: each.normal_form for item_id, each in new.items()}
        )

    def link_removed(self, interface: TableInterface[K, H]) -> Job:
        """Remove the link's items from the index."""
        assert interface.link is not None
        return self._matcher.detach(interface.link)

    def rest(self) -> bool:
        """Flush what the index has buffered."""
        return self._matcher.rest()

    def settle(self) -> None:
        """Wait until no part of the index is being joined in the background."""
        self._matcher.settle()

    def wanting(self, event: AnyEvent) -> set[Link]:
        """By the index. Cost: that of a match, about 10 us."""
        return self._matcher.wanting(event)

    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:  # noqa: ARG002
        """By the index. Cost: a few us per event."""
        return self._matcher.wanting_batch(events)

    def admitting(self, interface: TableInterface[K, H], event: AnyEvent) -> Iterator[Item]:
        """By the index."""
        assert interface.link is not None
        return (interface.ledger.heard[item_id] for item_id in self._matcher.items(event, interface.link))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for interface in self.links.values():
            heard = {item_id: as_form(item, self.schema) for item_id, item in interface.ledger.heard.items()}  # type: ignore[arg-type]
            assert interface.held.keys() == {item_id for item_id, form in heard.items() if form}
        self._matcher.check({link: each.held.keys() for link, each in self.links.items()})  # type: ignore[misc]
        if self._local is not None:
            roots = {root: as_form(item, self.schema) for root, item in self._local.roots().items()}
            assert {each for each, held in self.here.held.items() if held is not None} == {
                r for r, f in roots.items() if f
            }


class FilterOverlap:
    """Filters compared with advertisements, by what both mean. The answer is False only when disproved."""

    def __init__(self, schema: Schema | None = None) -> None:
        self._schema = schema

    def see(self, item: Item) -> NormalForm | None:
        """The normal form; None if it is too complex to compare."""
        try:
            return as_form(item, self._schema) if isinstance(item, Filter | NormalForm) else None
        except WeftError:
            return None

    promise = see

    def meets(self, item: object, advertisement: object) -> bool:
        """Whether an event may be in both."""
        if not isinstance(item, NormalForm) or not isinstance(advertisement, NormalForm):
            return True
        return overlaps(item, advertisement, self._schema)
