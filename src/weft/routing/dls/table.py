"""The table of label sets, and its items compared with advertisements.

Label sets compared with advertisements, by cells. The answer is False only when disproved: they share no cell. A
comparison is bounded, whatever is compared.

Routing by label sets (DLS). The laws of `table` hold: CELLS with exact labels, HASHED with a counting filter.

Exact reference counts for each link decide what is told. An optional filter only makes `route` small and fast; both
ends have it, and switch its size at the same update (`label_twin`). Exact filtering happens in the local index, at the
client's end. A network can change its label space while it runs: see `retuning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError, WeftError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints
from weft.language.ast import Filter
from weft.model.change import Change
from weft.model.schema import Schema
from weft.routing.cell_table import Cells
from weft.routing.dls.incoming import HeardLabels
from weft.routing.dls.items import LabelSet
from weft.routing.dls.label_sides import Corners, LabelSides, cells_of, is_sound, labels_in, labels_of
from weft.routing.dls.outgoing import LabelsTold, joined
from weft.routing.dls.retuning import LabelInterface, RetunedTable
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import CountingFilter, FilterShape
from weft.routing.item_codec import LabelItems
from weft.routing.jobs import Job
from weft.routing.table import Exactness, Item, ItemId, Items, Link, Placed, Places, Routes, Update, WantedItem
from weft.space.grid import CellBoxes

_MOST_LABELS = 4_096  # of a set that is compared; a larger one meets every advertisement
_MOST_COMPARED = 1 << 22  # labels times boxes times attributes
_AT_ONCE = 1 << 16  # of these


class _Advertisement:
    """An advertisement's boxes of cells in each space in which labels are compared, computed on demand."""

    def __init__(self, form: NormalForm) -> None:
        self._form = form
        self._boxes: dict[int, tuple[LabelSpace, tuple[CellBoxes, ...]]] = {}

    def boxes(self, side: int, sides: LabelSides) -> tuple[CellBoxes, ...]:
        """The boxes in each application of a space."""
        space = sides.spaces[side]
        assert space is not None
        if side not in self._boxes or self._boxes[side][0] is not space:
            self._boxes[side] = space, tuple(grid.boxes(self._form) for grid in space.grids)
        for other, old in enumerate(sides.spaces):
            if old is None:
                self._boxes.pop(other, None)  # that space is gone, and so is what was computed for it
        return self._boxes[side][1]

    def meets(self, corners: Corners, sides: LabelSides) -> bool:
        """Whether it has a cell in the given boxes."""
        if not self._form:
            return False
        boxes = self.boxes(corners.side, sides)[corners.application]
        if len(corners.lows) * boxes.lows.size > _MOST_COMPARED:
            return True  # not disproved
        together = max(1, _AT_ONCE // boxes.lows.size)
        for at in range(0, len(corners.lows), together):
            lows, highs = (each[at : at + together, None] for each in (corners.lows, corners.highs))
            if ((lows <= boxes.highs) & (highs >= boxes.lows)).all(axis=2).any():
                return True
        return False


class LabelOverlap:
    """Whether a label set and an advertisement share a cell. `sides` returns the current spaces."""

    def __init__(self, sides: Callable[[], LabelSides]) -> None:
        self._sides = sides

    def see(self, item: Item) -> list[Corners] | None:
        """The boxes of cells of labels."""
        try:
            if isinstance(item, LabelSet) and len(item.labels) <= _MOST_LABELS:
                return self._sides().corners(item.labels)
            return None
        except WeftError:
            return None

    def promise(self, advertisement: Item) -> _Advertisement | None:
        """An advertisement's cells; None if it is too complex to compare."""
        try:
            if isinstance(advertisement, Filter | NormalForm):
                schema = advertisement.schema if isinstance(advertisement, NormalForm) else None
                return _Advertisement(as_form(advertisement, schema))
        except WeftError:
            pass
        return None

    def meets(self, item: object, advertisement: object) -> bool:
        """Whether a cell may be in both."""
        if not isinstance(item, list) or not isinstance(advertisement, _Advertisement):
            return True
        return any(advertisement.meets(corners, self._sides()) for corners in item)


_RATE = 0.01


class DlsTable(RetunedTable):
    """Label sets over a label space; with `shape`, events are looked up in counting filters.

    A filter grows when more than `rate` of the unwanted events would pass; at most `bundle` labels form one item.
    `side` is 1 in a network that was re-tuned an odd number of times.

    >>> from weft import parse, Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north, south = DlsTable.of(schema), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> tells = table.change({1: parse("x BETWEEN 10 AND 20 AND y > 50")}, ())
    >>> len(tells), table.change({2: parse("x BETWEEN 12 AND 18 AND y > 60")}, ())
    (2, [])
    """

    model = "dls"

    def __init__(
        self,
        space: LabelSpace,
        *,
        shape: FilterShape | None = None,
        rate: float = _RATE,
        bundle: int = 64,
        side: int = 0,
        **options: Any,
    ) -> None:
        if not 0 < rate <= 1:
            raise LocalProtocolError(f"the rate of false positives is {rate}; give more than 0 and at most 1")
        if bundle < 1:
            raise LocalProtocolError(f"bundle is {bundle}; give at least one label per item")
        super().__init__(space, side, **options)
        self.shape = shape
        self._rate = rate
        self._bundle = bundle

    @staticmethod
    def of(schema: Schema, **options: Any) -> DlsTable:
        """A table over all attributes of a schema, which must have bounds. Raises SchemaError."""
        return DlsTable(LabelSpace.of(schema), **options)

    @property
    def exactness(self) -> Exactness:
        """Cells, or hashed cells."""
        return Exactness.CELLS if self.shape is None else Exactness.HASHED

    @property
    def agreed(self) -> Mapping[str, object]:
        """The space, because labels of other grids have other meanings, and the filter, including hashes and seed.

        During a re-tuning, these are still those of the old space.
        """
        shape = None if self.shape is None else [*self.shape.parameters, self._rate]
        return {"space": self.space.parameters, "side": self.sides.side, "filter": shape}

    @property
    def overlap(self) -> LabelOverlap:
        """By cells, in the current spaces."""
        return LabelOverlap(lambda: self.sides)

    # -- hooks of the engine ------------------------------------------------------------------------

    def cell_items(self) -> LabelItems:
        """Labels encoded as the gaps between them."""
        return LabelItems()

    def make_outgoing(self) -> LabelsTold:
        """Nothing told yet."""
        return LabelsTold(self._bundle, self.shape, self._rate)

    def prepare(self, wanted: WantedItem | NormalForm) -> Cells[Ints] | None:
        """The labels of a filter, or those that its client mapped for a table with this fingerprint."""
        if isinstance(wanted, Placed):
            if wanted.fingerprint == self.fingerprint and not self.retuning:
                for item in wanted.items:
                    if not is_sound(item, self.sides):
                        raise LocalProtocolError(
                            f"a subscription was mapped to {item!r}, which is not a set of labels of this table; "
                            "map it with this table's fingerprint"
                        )
                return Cells(labels_in(wanted.items), wanted.filter) if wanted.items else None
            wanted = wanted.filter
        labels = labels_of(wanted, self.sides)
        return None if labels is None else Cells(labels, wanted)

    def prepare_update(
        self, interface: LabelInterface, update: Update, news: Change[Items, Items]
    ) -> Mapping[ItemId, Any]:
        """The label sets of an update, and its notes."""
        self.understand(interface, update, news)
        return {item_id: Cells(labels_in([item])) for item_id, item in news.add.items()}

    def link_added(self, interface: LabelInterface) -> None:
        """Create a filter, or exact labels, for what the link will tell."""
        assert interface.link is not None
        self.incoming[interface.link] = HeardLabels(self.sides, self.shape, self._rate)
        super().link_added(interface)

    def before_flush(self, interface: LabelInterface) -> None:
        """Add the switch of a filter to the update that needs it."""
        told = self.outgoing.get(interface)
        if told is not None:
            assert isinstance(told, LabelsTold)
            ledger = interface.ledger
            if ledger.changed or told.labels.renewing:
                ledger.notes += told.labels.notes(fresh=ledger.fresh or ledger.completing)

    def link_removed(self, interface: LabelInterface) -> Job:
        """Forget what the link was told and what it told."""
        assert interface.link is not None
        del self.incoming[interface.link]
        return super().link_removed(interface)

    # -- events -------------------------------------------------------------------------------------

    def wanting(self, event: AnyEvent) -> set[Link]:
        """The links that want one of the event's labels. Cost: O(1) per link and level in use."""
        return self.incoming.wanting(event, self.sides)

    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:
        """The same for many events. Cost: below a microsecond per event, link and level in use."""
        return self.incoming.wanting_batch(events, self.sides, None if self.retuning else places)

    def admitting(self, interface: LabelInterface, event: AnyEvent) -> Iterator[Item]:
        """The label sets that have a label of the event; none if a filter passes it by chance."""
        assert interface.link is not None
        labels = {*self.sides.of_event(event, self.incoming[interface.link].levels)}
        for item in interface.ledger.heard.values():
            if isinstance(item, LabelSet) and not labels.isdisjoint(item.labels):
                yield item

    def place(self, events: Sequence[AnyEvent]) -> Places:
        """The cells of events, which determine their labels at any level."""
        return Places(self.fingerprint, cells_of(events, self.space))

    @property
    def place_limits(self) -> tuple[int, ...]:
        """The last cell of each attribute; none during a re-tuning, when labels of two spaces are looked up."""
        return () if self.retuning else self.space.limits

    # -- contents -----------------------------------------------------------------------------------

    def filter_told(self, link: Link) -> tuple[int, CountingFilter] | None:
        """The number of the last switch, and the filter that a link has of us once everything told has arrived.

        With advertisements, it is the filter of everything that could be told.
        """
        told = self.outgoing.get(self._interface(link))
        twin = told.labels.twin if isinstance(told, LabelsTold) else None
        return None if twin is None else (twin.number, twin.held)

    def filter_heard(self, link: Link) -> tuple[int, CountingFilter] | None:
        """The number of the last switch, and the filter in which a link's events are looked up."""
        twin = self.incoming[link].twin
        return None if twin is None else (twin.number, twin.held)

    def saturated(self, link: Link) -> int:
        """How many counters of a link's filter are full; the neighbour's `step` frees them."""
        return self.incoming[link].saturated

    def memory(self, link: Link) -> tuple[int, int]:
        """The bytes of the structure in which a link's events are looked up, and of the counts that decide what it is
        told.
        """
        told = self.outgoing.get(self._interface(link))
        return self.incoming[link].held.nbytes, told.labels.nbytes if isinstance(told, LabelsTold) else 0

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for link, interface in self.links.items():
            labels = labels_in(interface.ledger.heard.values())
            self.incoming[link].check(labels)
            assert self.sides.sound(labels).all(), f"{link} told labels of no space"
        for interface, told in self.outgoing.items():
            assert isinstance(told, LabelsTold)
            if not self.pending:
                told.labels.check(joined(each.cells for each in self.holding(interface)))
            assert set(interface.ledger.ids) == {*told.labels.bundles.bundles()}, f"{interface.link} knows other labels"
        for cells in self.here.held.values() if not self.pending else ():
            if cells is not None:
                mapped = labels_of(cells.wanted, self.sides)
                assert mapped is not None
                assert np.array_equal(cells.cells, mapped), "it has other labels"
