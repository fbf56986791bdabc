"""Routing by curve ranges (MICS). The laws of `table` hold, CELLS: what a link is told is what the filters of all
others cover on the curve, cell by cell. WIDER with gaps.

Attributes can be divided into groups, each with its own curve. An event goes to the links that want it in all groups
(MICS 8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError, RemoteProtocolError, WeftError
from weft.index.base import AnyEvent
from weft.kernels.steps import LAST
from weft.language.ast import Filter
from weft.model.change import Change
from weft.model.schema import Schema
from weft.routing.cell_table import Cells, CellTable
from weft.routing.interface import TableInterface
from weft.routing.item_codec import RangeItems
from weft.routing.jobs import Job
from weft.routing.mics.incoming import RangesHeard
from weft.routing.mics.items import CurveRange
from weft.routing.mics.outgoing import RangesTold
from weft.routing.mics.space import CurveSpaces, Ranges
from weft.routing.model_hooks import unexpected
from weft.routing.table import Exactness, Item, ItemId, Items, Link, Placed, Places, Routes, Update, WantedItem
from weft.space.content import ContentSpace
from weft.space.range_set import NOTHING, RangeSet


class MicsTable(CellTable[CurveRange, Ranges]):
    """Curve ranges; `spaces` are the groups, by default the schema's attributes in groups of three.

    Gaps of up to `gap` cells between ranges are told as well: fewer ranges, more unwanted events.

    >>> from weft import parse, Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north, south = MicsTable(CurveSpaces.of(schema)), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> tells = table.change({1: parse("x BETWEEN 10 AND 20 AND y > 50")}, ())
    >>> len(tells), table.change({2: parse("x BETWEEN 12 AND 18 AND y > 60")}, ())
    (2, [])
    """

    model = "mics"

    def __init__(self, spaces: Sequence[ContentSpace], *, gap: int = 0, **options: Any) -> None:
        super().__init__(**options)
        if not spaces:
            raise LocalProtocolError("a table of curve ranges needs a content space; give at least one")
        if not 0 <= gap <= LAST:
            raise LocalProtocolError(f"the gap is {gap}; give a number of cells from 0 to {LAST}")
        self.spaces = CurveSpaces(spaces)
        self._limits = self.spaces.limits
        self.gap = gap
        self.incoming: dict[Link, RangesHeard] = {}

    @staticmethod
    def of(schema: Schema, **options: Any) -> MicsTable:
        """A table over all attributes of a schema, which must have bounds. Raises SchemaError."""
        return MicsTable(CurveSpaces.of(schema), **options)

    @property
    def exactness(self) -> Exactness:
        """Cells, or wider with gaps."""
        return Exactness.WIDER if self.gap else Exactness.CELLS

    @property
    def agreed(self) -> Mapping[str, object]:
        """The spaces: ranges on other curves have other meanings."""
        return {"spaces": self.spaces.parameters, "gap": self.gap}

    @property
    def overlap(self) -> CurveOverlap:
        """By ranges on the curves."""
        return CurveOverlap(self.spaces)

    # -- hooks of the engine ------------------------------------------------------------------------

    def cell_items(self) -> RangeItems:
        """Ranges as three numbers."""
        return RangeItems()

    def make_outgoing(self) -> RangesTold:
        """Nothing told yet."""
        return RangesTold(len(self.spaces), self.gap)

    def prepare(self, wanted: WantedItem | NormalForm) -> Cells[Ranges] | None:
        """The ranges of a filter, or those that its client mapped for a table with this fingerprint."""
        if isinstance(wanted, Placed):
            if wanted.fingerprint == self.fingerprint:
                return Cells(self.spaces.of_items(wanted.items)) if wanted.items else None
            wanted = wanted.filter
        ranges = self.spaces.ranges(wanted)
        return None if ranges is None else Cells(ranges)

    def prepare_update(
        self, interface: TableInterface[CurveRange, Cells[Ranges]], update: Update, news: Change[Items, Items]
    ) -> Mapping[ItemId, Cells[Ranges]]:
        """The ranges of an update."""
        if update.notes:
            raise RemoteProtocolError(f"{interface.link} sent notes, which a table of ranges does not support")
        for item in update.add.values():
            if not self.spaces.admits(item):
                raise unexpected(interface.link, "a range of our curves", item)
        return {item_id: Cells(self._alone(item)) for item_id, item in news.add.items()}

    def _alone(self, item: Item) -> Ranges:
        assert isinstance(item, CurveRange)
        range_ = RangeSet.of((item.start, item.end))
        return tuple(range_ if group == item.group else NOTHING for group in range(len(self.spaces)))

    def link_added(self, interface: TableInterface[CurveRange, Cells[Ranges]]) -> None:
        """Create a table for what the link will tell."""
        assert interface.link is not None
        self.incoming[interface.link] = RangesHeard(len(self.spaces))

    def apply_update(
        self,
        interface: TableInterface[CurveRange, Cells[Ranges]],
        update: Update,  # noqa: ARG002 - `news` suffices
        news: Change[Items, Items],
        new: Mapping[ItemId, Cells[Ranges]],  # noqa: ARG002
    ) -> None:
        """Look events up in the new items."""
        assert interface.link is not None
        self.incoming[interface.link].change(news.drop.values(), news.add.values())

    def link_removed(self, interface: TableInterface[CurveRange, Cells[Ranges]]) -> Job:
        """Forget what the link was told and what it told."""
        assert interface.link is not None
        del self.incoming[interface.link]
        return super().link_removed(interface)

    # -- events -------------------------------------------------------------------------------------

    def wanting(self, event: AnyEvent) -> set[Link]:
        """The links that want the event's cells. Cost: O(log n) per link and group."""
        points = np.array([space.index(event) for space in self.spaces])
        return {link for link, heard in self.incoming.items() if heard.matches(points)}

    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:
        """The same for many events. Cost: below a microsecond per event, link and group."""
        points = self.spaces.points(events) if places is None else places.keys
        found = {link: heard.match_batch(points).nonzero()[0] for link, heard in self.incoming.items()}
        return {link: at for link, at in found.items() if len(at)}

    def admitting(self, interface: TableInterface[CurveRange, Cells[Ranges]], event: AnyEvent) -> Iterator[Item]:
        """The ranges that contain a point of the event."""
        points = [space.index(event) for space in self.spaces]
        for item in interface.ledger.heard.values():
            if isinstance(item, CurveRange) and item.start <= points[item.group] <= item.end:
                yield item

    def place(self, events: Sequence[AnyEvent]) -> Places:
        """The points of events on the curves."""
        return Places(self.fingerprint, self.spaces.points(events))

    @property
    def place_limits(self) -> tuple[int, ...]:
        """The last point of each curve."""
        return self._limits

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for link, interface in self.links.items():
            self.incoming[link].check(interface.ledger.heard.values())
        for interface, told in self.outgoing.items():
            assert isinstance(told, RangesTold)
            if not self.pending:
                told.check([each.cells for each in self.holding(interface)])
            assert set(interface.ledger.ids) == {*told}, f"{interface.link} knows other ranges than it should"


class CurveOverlap:
    """Ranges compared with advertisements: whether they share a cell on the range's curve. The answer is False only
    when disproved.
    """

    def __init__(self, spaces: CurveSpaces) -> None:
        self._spaces = spaces

    def see(self, item: Item) -> CurveRange | None:
        """The range itself."""
        return item if isinstance(item, CurveRange) else None

    def promise(self, advertisement: Item) -> Ranges | None:
        """The ranges on each curve; empty if it never matches, None if it is too complex to compare."""
        try:
            if isinstance(advertisement, Filter | NormalForm):
                form = as_form(advertisement, advertisement.schema if isinstance(advertisement, NormalForm) else None)
                return tuple(space.ranges(form) for space in self._spaces) if form else ()
        except WeftError:
            pass
        return None

    def meets(self, item: object, advertisement: object) -> bool:
        """Whether a cell may be in both."""
        if not isinstance(item, CurveRange) or not isinstance(advertisement, tuple):
            return True
        return bool(advertisement) and advertisement[item.group].overlaps(RangeSet.of((item.start, item.end)))
