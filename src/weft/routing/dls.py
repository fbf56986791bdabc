"""Routing by label sets (DLS). Laws: those of `table`, CELLS with exact labels, HASHED with a counting filter: what is
told to a link is the labels of all others' filters; only new labels are told, and only what nobody else wants is
withdrawn.

Exact reference counts for each link, without what came from it, decide what is told (errata, DLS 3 and 5). A filter,
where there is one, only makes `route` small and fast. Exact filtering is the local index's, at the client's end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError, RemoteProtocolError, WeftError
from weft.index.base import AnyEvent, SubId
from weft.interest.curve_range import CurveRange
from weft.interest.heard_labels import HeardLabels
from weft.interest.label_bundles import LabelBundles
from weft.interest.label_counts import LabelCounts
from weft.interest.label_filter import FilterShape
from weft.interest.label_set import LabelSet
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.adverts import Overlap, Seen
from weft.routing.ledger import Ledger, Ledgered, Revision
from weft.routing.local import check_change
from weft.routing.table import Exactness, Filters, Item, Link, Role, Routes, Source, Tell, Update
from weft.space.dimension import Ints
from weft.space.grid import Grid
from weft.space.label_space import LabelSpace

_NONE: Ints = np.zeros(0, np.int64)
_RATE = 0.01


class _Sub(NamedTuple):
    filter: Filter
    labels: Ints  # none, if it matches nothing


class DlsTable(Ledgered[int]):
    """Label sets over a label space; with `shape`, events are looked up in counting filters.

    A filter grows when more than `rate` of strangers would be let pass; `bundle` labels at most are one item.

    >>> from weft import parse, Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north, south = DlsTable.of(schema), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> tells = table.change({SubId(1): parse("x BETWEEN 10 AND 20 AND y > 50")}, ())
    >>> len(tells), table.change({SubId(2): parse("x BETWEEN 12 AND 18 AND y > 60")}, ())
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
        refresh: bool = False,
    ) -> None:
        if not 0 < rate <= 1:
            raise LocalProtocolError(f"a rate of false positives is above 0 and at most 1, not {rate}")
        if bundle < 1:
            raise LocalProtocolError(f"an item has a label at least, not {bundle}")
        self.space = space
        self.shape = shape
        self.ledger: Ledger[int] = Ledger()
        self._rate = rate
        self._bundle = bundle
        self._refresh = refresh
        self._among = tuple(range(len(space.grids)))  # the applications that local subscriptions are mapped to
        self._subs: dict[SubId, _Sub] = {}
        self._heard: dict[Link, HeardLabels] = {}
        self._needs: dict[Link, LabelCounts] = {}  # of all others
        self._bundles: dict[Link, LabelBundles] = {}

    @staticmethod
    def of(schema: Schema, *, shape: FilterShape | None = None, refresh: bool = False) -> DlsTable:
        """A table over all attributes of a schema, which must have bounds. Raises SchemaError."""
        return DlsTable(LabelSpace.of(schema), shape=shape, refresh=refresh)

    @property
    def exactness(self) -> Exactness:
        """Cells, or hashed cells."""
        return Exactness.CELLS if self.shape is None else Exactness.HASHED

    @property
    def parameters(self) -> Mapping[str, object]:
        """The space, for labels of other grids mean something else; and the filter, hashes and seed included."""
        spaces = {"spaces": self.space.parameters}
        return spaces if self.shape is None else {**spaces, "filter": (*self.shape.parameters, self._rate)}

    # -- links ------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """All that the neighbour should know, fresh; what it told us holds until it tells us anew."""
        self.ledger.attach(link, role)
        if link not in self._heard:
            self._heard[link] = HeardLabels(self.space, self.shape, self._rate)
            if role is not Role.SLAVE:
                self._listen(link)
        return [] if role is Role.SLAVE else [self.ledger.retell(link, self._bundles[link].items())]

    def _listen(self, link: Link) -> None:
        self._needs[link], self._bundles[link] = LabelCounts(), LabelBundles(self._bundle)
        others = [self._labels_heard(other) for other in self._heard if other != link]
        new = self._needs[link].add(_joined([*self._local(), *others]))
        self._bundles[link].revise((), new.tolist())

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants."""
        gone = self._labels_heard(link)
        self.ledger.detach(link)
        del self._heard[link]
        self._needs.pop(link, None)
        self._bundles.pop(link, None)
        return self._revise(link, gone, _NONE)

    # -- changes ----------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions. Raises LocalProtocolError or FilterTooComplexError, then nothing has changed."""
        check_change(self._subs, add, drop)
        new = {sub: self._map(wanted, self._among) for sub, wanted in add.items()}
        old = [self._subs.pop(sub).labels for sub in drop]
        self._subs.update(new)
        return self._revise(None, _joined(old), _joined(sub.labels for sub in new.values()))

    def _map(self, wanted: Filter, among: Iterable[int]) -> _Sub:
        form = as_form(wanted)
        return _Sub(wanted, self.space.labels(form, *among) if form else _NONE)

    def _local(self) -> list[Ints]:
        return [sub.labels for sub in self._subs.values()]

    def accept(self, grid: Grid) -> int:
        """Understand the labels of one grid more from now on, beside the others (DLS 5.1); its application's number.

        Nothing is told in it before `retune` says so; call that when every broker has accepted the grid.
        """
        self.space = self.space.with_grid(grid)
        for heard in self._heard.values():
            heard.space = self.space
        return len(self.space.grids) - 1

    def retune(self, *among: int) -> list[Tell]:
        """Map local subscriptions to these applications from now on, those that are there as well.

        A neighbour hears of new labels and of old ones that go in one update, so no event falls through between them;
        brokers need not do it at the same time. Raises LocalProtocolError.
        """
        if not among or not set(among) <= set(range(len(self.space.grids))):
            raise LocalProtocolError(f"{among} are not some of the applications 0 to {len(self.space.grids) - 1}")
        new = {sub: self._map(held.filter, among) for sub, held in self._subs.items()}
        old, self._subs, self._among = self._local(), new, among
        return self._revise(None, _joined(old), _joined(self._local()))

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Take over what a neighbour told."""
        for item in update.add.values():
            self._check(link, item)
        news = self.ledger.news(link, update)
        self.ledger.hear(link, news)
        drop, add = _labels(news.drop.values()), _labels(news.add.values())
        heard = self._heard[link]
        heard.change(drop, add)
        if heard.crowded:
            heard.renew(self._labels_heard(link))
        return self._revise(link, drop, add)

    def _check(self, link: Link, item: object) -> None:
        if isinstance(item, LabelSet) and item.labels and 0 <= min(item.labels) <= max(item.labels) < 1 << 63:
            labels = np.array(item.labels, np.int64)
            if (labels[1:] > labels[:-1]).all() and self.space.sound(labels).all():
                return
        raise RemoteProtocolError(f"{link} tells an item that is no set of our labels: {item!r}")

    def _revise(self, source: Source, drop: Ints, add: Ints) -> list[Tell]:
        tells = []
        for link, needs in self._needs.items():
            if link != source:
                lost, gained = needs.change(drop, add)
                gone, new = self._bundles[link].revise(lost.tolist(), gained.tolist())
                tells += self.ledger.tell(link, Revision(gone, new))
        return tells

    def tidy(self, budget: int) -> list[Tell]:
        """Unite small bundles where that saves half of them, and free filters of counters that are full for ever."""
        tells: list[Tell] = []
        for link, bundles in self._bundles.items():
            if bundles.scattered and len(bundles) <= budget:
                tells += self.ledger.tell(link, Revision(*bundles.renew()))
        for link, heard in self._heard.items():
            if heard.saturated and len(self.ledger.heard(link)) <= budget:
                heard.renew(self._labels_heard(link))
        master = self.ledger.master
        if self._refresh and master:
            tells.append(self.ledger.retell(master, self._bundles[master].items()))
        return tells

    # -- routing ----------------------------------------------------------------------------------

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """The neighbours that want the event's labels, and the master. Cost: O(1) a link and level in use."""
        return {
            link
            for link, heard in self._heard.items()
            if link != source and (self.ledger.role(link) is Role.MASTER or heard.matches(event))
        }

    def route_batch(self, events: Sequence[AnyEvent], source: Source) -> Routes:
        """`route` for many events at once. Cost: below a microsecond an event, link and level in use."""
        routes: Routes = {}
        if not len(events):
            return routes
        levels = np.unique(_joined([heard.levels for heard in self._heard.values()]))
        labels = self.space.of_events(events, levels)
        for link, heard in self._heard.items():
            if link == source:
                continue
            if self.ledger.role(link) is Role.MASTER:
                routes[link] = np.arange(len(events))
                continue
            wanted = heard.match_labels(labels[:, np.searchsorted(levels, heard.levels)])
            if wanted.any():
                routes[link] = wanted.nonzero()[0]
        return routes

    def saturated(self, link: Link) -> int:
        """How many counters of a link's filter are full: `tidy` makes such a filter anew."""
        return self._heard[link].saturated

    def memory(self, link: Link) -> tuple[int, int]:
        """The bytes of what a link's events are looked up in, and of the exact counts of what it needs to know."""
        needs = self._needs.get(link)
        return self._heard[link].held.nbytes, 0 if needs is None else needs.nbytes

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.ledger.check()
        for link, heard in self._heard.items():
            heard.check(self._labels_heard(link))
        for link, needs in self._needs.items():
            others = [self._labels_heard(other) for other in self._heard if other != link]
            wanted, counts = np.unique(_joined([*self._local(), *others]), return_counts=True)
            needs.check()
            assert np.array_equal(needs.labels(), wanted), "others need something else"
            assert np.array_equal(needs.counts(wanted), counts), "others need something more or less often"
            bundles = self._bundles[link]
            bundles.check()
            assert sorted(bundles) == wanted.tolist(), "other labels are told than are needed"
            told = {self.ledger.told(link)[item_id].labels for item_id in self.ledger.told(link)}  # type: ignore[union-attr]
            assert told == {bundle.labels for bundle in bundles.items().values()}, f"{link} knows other labels"

    # ---------------------------------------------------------------------------------------------

    def _labels_heard(self, link: Link) -> Ints:
        """All labels that a link told, as often as it did."""
        return _labels(self.ledger.heard(link).values())


class LabelOverlap(Overlap):
    """Whether a label set and an advertisement share a cell: for tables of labels that wear `Advertised`."""

    def __init__(self, space: LabelSpace) -> None:
        super().__init__()
        self._space = space

    def see(self, item: Item) -> Seen:
        """The boxes of cells of labels, by application; of an advertisement its boxes in each, or none."""
        try:
            if isinstance(item, LabelSet):
                return self._space.boxes_of_labels(item.labels)
            form = None if isinstance(item, CurveRange) else as_form(item)
            return None if form is None else tuple(grid.boxes(form) for grid in self._space.grids) if form else ()
        except (WeftError, TypeError):
            return None

    def meets(self, item: Seen, advertisement: Seen) -> bool:
        """Whether a cell may be in both."""
        if item is None or advertisement is None:
            return True
        for application, lows, highs in item if advertisement else ():
            boxes = advertisement[application]
            meeting = (lows[:, None] <= boxes.highs[None]) & (highs[:, None] >= boxes.lows[None])
            if meeting.all(axis=2).any():
                return True
        return False


def _joined(several: Iterable[Ints]) -> Ints:
    return np.concatenate([_NONE, *several])


def _labels(items: Iterable[object]) -> Ints:
    return np.array([label for item in items if isinstance(item, LabelSet) for label in item.labels], np.int64)
