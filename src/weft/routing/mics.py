"""Routing by curve ranges (MICS). Laws: those of `table`, CELLS: what is told to a link is what the filters of all
others cover on the curve, cell by cell; only new parts are told, and only what nobody else needs is withdrawn.

Attributes may be parted into groups, each with a curve of its own; an event goes where all of its groups are wanted
(MICS 8). State is kept for each neighbour, with counts, so that unsubscription is exact (errata, MICS 3 and 4).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError, RemoteProtocolError, WeftError
from weft.index.base import AnyEvent, SubId
from weft.interest.curve_range import CurveRange
from weft.interest.label_set import LabelSet
from weft.interest.range_table import RangeTable
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.adverts import Overlap, Seen
from weft.routing.ledger import Ledger, Ledgered, Revision
from weft.routing.local import check_change
from weft.routing.table import Exactness, Filters, Item, Link, Role, Routes, Source, Tell, Update
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets

Wanted = tuple[RangeSet, ...]  # a range set for each group

_GROUP = 3  # attributes on one curve, unless a caller parts them
_CELLS = 256  # of each attribute


class MicsTable(Ledgered[CurveRange]):
    """Curve ranges; `spaces` are the groups, and by default the schema's attributes by threes.

    Gaps of up to `gap` cells between ranges are told as well: fewer ranges, more events that nobody wants.

    >>> from weft import parse, Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north, south = MicsTable.of(schema), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> tells = table.change({SubId(1): parse("x BETWEEN 10 AND 20 AND y > 50")}, ())
    >>> len(tells), table.change({SubId(2): parse("x BETWEEN 12 AND 18 AND y > 60")}, ())
    (2, [])
    """

    model = "mics"
    exactness = Exactness.CELLS

    def __init__(self, spaces: Sequence[ContentSpace], *, gap: int = 0, refresh: bool = False) -> None:
        if not spaces:
            raise LocalProtocolError("a table of curve ranges needs a content space")
        self.spaces = tuple(spaces)
        self.ledger: Ledger[CurveRange] = Ledger()
        self._gap = gap
        self._refresh = refresh
        self._subs: dict[SubId, Wanted | None] = {}  # None: matches nothing
        self._heard: dict[Link, list[RangeTable]] = {}
        self._needs: dict[Link, list[RangeTable]] = {}  # of all others
        self._pieces: dict[Link, list[_Pieces]] = {}

    @staticmethod
    def of(schema: Schema, *, gap: int = 0, refresh: bool = False) -> MicsTable:
        """A table over all attributes of a schema, which must have bounds. Raises SchemaError."""
        names = [attribute.name for attribute in schema.attributes]
        groups = [names[start : start + _GROUP] for start in range(0, len(names), _GROUP)]
        spaces = [ContentSpace(Grid.uniform(schema, _CELLS, group)) for group in groups]
        return MicsTable(spaces, gap=gap, refresh=refresh)

    @property
    def parameters(self) -> Mapping[str, object]:
        """The spaces: ranges on other curves mean something else."""
        return {"spaces": tuple(space.parameters for space in self.spaces)}

    # -- links ------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """All that the neighbour should know, fresh; what it told us holds until it tells us anew."""
        self.ledger.attach(link, role)
        if link not in self._heard:
            self._heard[link] = [RangeTable() for _ in self.spaces]
            if role is not Role.SLAVE:
                self._listen(link)
        return [] if role is Role.SLAVE else [self.ledger.retell(link, self._wanted(link))]

    def _listen(self, link: Link) -> None:
        self._needs[link] = [RangeTable(gap=self._gap) for _ in self.spaces]
        self._pieces[link] = [_Pieces(group) for group in range(len(self.spaces))]
        others = [each for other in self._heard if other != link for each in self.ledger.heard(other).values()]
        for group in range(len(self.spaces)):
            local = [wanted[group] for wanted in self._subs.values() if wanted is not None]
            added = self._needs[link][group].insert_batch(RangeSets.of([*local, *_ranges(others, group)])).add
            self._pieces[link][group].revise(RangeSet.of(), added)

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants."""
        gone = list(self.ledger.heard(link).values())
        self.ledger.detach(link)
        del self._heard[link]
        self._needs.pop(link, None)
        self._pieces.pop(link, None)
        return self._revise(link, self._by_group(gone), self._by_group(()))

    # -- changes ----------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions. Raises LocalProtocolError or FilterTooComplexError, then nothing has changed."""
        check_change(self._subs, add, drop)
        new = {sub: self._map(wanted) for sub, wanted in add.items()}
        old = [self._subs.pop(sub) for sub in drop]
        self._subs.update(new)
        return self._revise(None, self._sets(old), self._sets(new.values()))

    def _map(self, wanted: Filter) -> Wanted | None:
        form = as_form(wanted)
        return tuple(space.ranges(form) for space in self.spaces) if form else None

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Take over what a neighbour told."""
        for item in update.add.values():
            self._check(link, item)
        news = self.ledger.news(link, update)
        self.ledger.hear(link, news)
        drop, add = self._by_group(news.drop.values()), self._by_group(news.add.values())
        for table, gone, new in zip(self._heard[link], drop, add, strict=True):
            table.change(gone, new)
        return self._revise(link, drop, add)

    def _check(self, link: Link, item: object) -> None:
        if (
            not isinstance(item, CurveRange)
            or not 0 <= item.group < len(self.spaces)
            or not 0 <= item.start <= item.end <= self.spaces[item.group].curve.last
        ):
            raise RemoteProtocolError(f"{link} tells an item that is no range of our curves: {item!r}")

    def _revise(self, source: Source, drop: list[RangeSets], add: list[RangeSets]) -> list[Tell]:
        tells = []
        for link, tables in self._needs.items():
            if link == source:
                continue
            gone: list[CurveRange] = []
            new: list[CurveRange] = []
            for table, pieces, old, more in zip(tables, self._pieces[link], drop, add, strict=True):
                change = table.change(old, more)
                lost, gained = pieces.revise(change.drop, change.add)
                gone += lost
                new += gained
            tells += self.ledger.tell(link, _revision(gone, new))
        return tells

    def tidy(self, budget: int) -> list[Tell]:
        """Unite the pieces of ranges that grew bit by bit, where that saves half of them."""
        tells: list[Tell] = []
        for link, tables in self._needs.items():
            for table, pieces in zip(tables, self._pieces[link], strict=True):
                if len(pieces) > 2 and len(pieces) <= budget:
                    told = table.told()
                    if len(pieces) > 2 * len(told):
                        tells += self.ledger.tell(link, _revision(*pieces.renew(told)))
        master = self.ledger.master
        return [*tells, self.ledger.retell(master, self._wanted(master))] if self._refresh and master else tells

    # -- routing ----------------------------------------------------------------------------------

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """The neighbours that want the event's cells, and the master. Cost: O(log n) a link and group."""
        points = [space.index(event) for space in self.spaces]
        return {
            link
            for link, tables in self._heard.items()
            if link != source
            and (
                self.ledger.role(link) is Role.MASTER
                or all(table.matches(point) for table, point in zip(tables, points, strict=True))
            )
        }

    def route_batch(self, events: Sequence[AnyEvent], source: Source) -> Routes:
        """`route` for many events at once. Cost: below a microsecond an event, link and group."""
        routes: Routes = {}
        if not len(events):
            return routes
        points = [space.indexes(events) for space in self.spaces]
        for link, tables in self._heard.items():
            if link == source:
                continue
            wanted = np.ones(len(events), bool)
            if self.ledger.role(link) is not Role.MASTER:
                for table, each in zip(tables, points, strict=True):
                    wanted &= table.match_batch(each)
            if wanted.any():
                routes[link] = wanted.nonzero()[0]
        return routes

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.ledger.check()
        for link, tables in self._heard.items():
            heard = self._by_group(self.ledger.heard(link).values())
            for table, sets in zip(tables, heard, strict=True):
                table.check()
                assert table.needed() == RangeSet.union_of(sets.starts, sets.ends), "another range than was heard"
        for link, tables in self._needs.items():
            others = [i for other in self._heard if other != link for i in self.ledger.heard(other).values()]
            local = self._sets(self._subs.values())
            for group, (table, sets) in enumerate(zip(tables, self._by_group(others), strict=True)):
                table.check()
                starts = np.concatenate((sets.starts, local[group].starts))
                ends = np.concatenate((sets.ends, local[group].ends))
                assert table.needed() == RangeSet.union_of(starts, ends), "others need something else"
                pieces = self._pieces[link][group]
                pieces.check()
                assert RangeSet.of(*((each.start, each.end) for each in pieces)) == table.told()
            assert set(self.ledger.keys(link)) == set(self._wanted(link)), f"{link} knows other ranges than it should"

    # ---------------------------------------------------------------------------------------------

    def _wanted(self, link: Link) -> dict[CurveRange, CurveRange]:
        return {each: each for pieces in self._pieces[link] for each in pieces}

    def _sets(self, several: Iterable[Wanted | None]) -> list[RangeSets]:
        wanted = [each for each in several if each is not None]
        return [RangeSets.of([each[group] for each in wanted]) for group in range(len(self.spaces))]

    def _by_group(self, items: Iterable[object]) -> list[RangeSets]:
        several = list(items)
        return [RangeSets.of(_ranges(several, group)) for group in range(len(self.spaces))]


@dataclass(slots=True)
class _Pieces:
    """The ranges of one group as they were told, disjoint and in order."""

    group: int
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def revise(self, drop: RangeSet, add: RangeSet) -> tuple[list[CurveRange], list[CurveRange]]:
        """Take ranges out and in; the pieces that went and that came: one that loses a part is told anew.

        Cost: O(log pieces + pieces touched) a range, and a memory move.
        """
        gone: dict[CurveRange, None] = {}
        new: dict[CurveRange, None] = {}
        for start, end in drop:
            first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
            left = [(a, b) for a, b in ((self.starts[first], start - 1), (end + 1, self.ends[last - 1])) if a <= b]
            for piece in map(self._piece, self.starts[first:last], self.ends[first:last]):
                if piece in new:
                    del new[piece]
                else:
                    gone[piece] = None
            self.starts[first:last], self.ends[first:last] = [a for a, _ in left], [b for _, b in left]
            new |= dict.fromkeys(self._piece(a, b) for a, b in left)
        for start, end in add:
            insort(self.starts, start)
            insort(self.ends, end)
            new[self._piece(start, end)] = None
        return [piece for piece in gone if piece not in new], [piece for piece in new if piece not in gone]

    def renew(self, told: RangeSet) -> tuple[list[CurveRange], list[CurveRange]]:
        """The same points in as few pieces as there can be; the pieces that went and that came."""
        old = dict.fromkeys(self)
        self.starts, self.ends = told.starts.tolist(), told.ends.tolist()
        new = dict.fromkeys(self)
        return [piece for piece in old if piece not in new], [piece for piece in new if piece not in old]

    def _piece(self, start: int, end: int) -> CurveRange:
        return CurveRange(self.group, start, end)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[CurveRange]:
        return map(self._piece, self.starts, self.ends)

    def check(self) -> None:
        """Raise AssertionError unless the pieces are disjoint and in order."""
        assert all(a <= b for a, b in zip(self.starts, self.ends, strict=True))
        assert all(b < a for b, a in zip(self.ends, self.starts[1:], strict=False))


class CurveOverlap(Overlap):
    """Whether a range and an advertisement share a cell: for tables of curve ranges that wear `Advertised`."""

    def __init__(self, spaces: Sequence[ContentSpace]) -> None:
        super().__init__()
        self._spaces = tuple(spaces)

    def see(self, item: Item) -> Seen:
        """A range as it is; of an advertisement the ranges on each curve, or none if it promises nothing."""
        if isinstance(item, CurveRange):
            return item
        try:
            form = None if isinstance(item, LabelSet) else as_form(item)
            return None if form is None else tuple(space.ranges(form) for space in self._spaces) if form else ()
        except (WeftError, TypeError):
            return None

    def meets(self, item: Seen, advertisement: Seen) -> bool:
        """Whether a cell may be in both."""
        if item is None or advertisement is None:
            return True
        return bool(advertisement) and advertisement[item.group].overlaps(RangeSet.of((item.start, item.end)))


def _revision(gone: list[CurveRange], new: list[CurveRange]) -> Revision[CurveRange]:
    return Revision(gone, {piece: piece for piece in new})


def _ranges(items: Iterable[object], group: int) -> list[RangeSet]:
    return [RangeSet.of((i.start, i.end)) for i in items if isinstance(i, CurveRange) and i.group == group]
