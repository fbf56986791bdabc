"""Routing by label sets (DLS). Laws: those of `table`, CELLS with exact labels, HASHED with a counting filter: what is
told to a link is the labels of all others' filters; only new labels are told, and only what nobody else wants is
withdrawn.

Exact reference counts for each link, without what came from it, decide what is told (errata, DLS 3 and 5). A filter,
where there is one, only makes `route` small and fast; both ends have it, and switch its size at the same update
(`label_twin`). Exact filtering is the local index's, at the client's end.

A network changes its label space while it runs (DLS 5.1). The new space goes with the update in which a broker tells
its clients' interest in new labels instead of old ones, so nothing falls through between them, and nobody hears of a
label before its space. Both are understood until every neighbour has said that no old ones come from it (`wave`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import AnyEvent, SubId
from weft.interest.heard_labels import HeardLabels
from weft.interest.label_filter import CountingFilter, FilterShape
from weft.interest.label_set import LabelSet, Note, Retuning, Stage
from weft.interest.told_labels import Change, ToldLabels
from weft.language.ast import Filter
from weft.model.schema import Schema
from weft.routing.label_notes import understood
from weft.routing.label_overlap import LabelOverlap
from weft.routing.ledger import Ledger, Ledgered, News, Revision
from weft.routing.local import check_change
from weft.routing.table import Exactness, Filters, Link, Role, Routes, Source, Tell, Update, noted
from weft.routing.wave import Wave
from weft.space.dimension import Ints
from weft.space.label_sides import LabelSides
from weft.space.label_space import LabelSpace

_NONE: Ints = np.zeros(0, np.int64)
_RATE = 0.01


class _Sub(NamedTuple):
    filter: Filter
    labels: Ints  # none, if it matches nothing


class DlsTable(Ledgered[int]):
    """Label sets over a label space; with `shape`, events are looked up in counting filters.

    A filter grows when more than `rate` of strangers would be let pass; `bundle` labels at most are one item. `side` is
    1 in a network that was re-tuned an odd number of times: `parameters` say so.

    >>> from weft import parse, Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y")}})
    >>> table, north, south = DlsTable.of(schema), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> tells = table.change({SubId(1): parse("x BETWEEN 10 AND 20 AND y > 50")}, ())
    >>> len(tells), table.change({SubId(2): parse("x BETWEEN 12 AND 18 AND y > 60")}, ())
    (2, [])
    """

    model = "dls"

    def __init__(  # noqa: PLR0913
        self,
        space: LabelSpace,
        *,
        shape: FilterShape | None = None,
        rate: float = _RATE,
        bundle: int = 64,
        refresh: bool = False,
        side: int = 0,
    ) -> None:
        if not 0 < rate <= 1:
            raise LocalProtocolError(f"a rate of false positives is above 0 and at most 1, not {rate}")
        if bundle < 1:
            raise LocalProtocolError(f"an item has a label at least, not {bundle}")
        self.sides = LabelSides.of(space, side)
        self.shape = shape
        self.ledger: Ledger[int] = Ledger()
        self._rate = rate
        self._bundle = bundle
        self._refresh = refresh
        self._subs: dict[SubId, _Sub] = {}
        self._heard: dict[Link, HeardLabels] = {}
        self._told: dict[Link, ToldLabels] = {}
        self._wave: Wave | None = None  # while there are two spaces

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
        """The space, for labels of other grids mean something else; and the filter, hashes and seed included.

        While the space is re-tuned they are still those of the old one.
        """
        spaces = {"spaces": (*self.space.parameters, self.sides.side)}
        return spaces if self.shape is None else {**spaces, "filter": (*self.shape.parameters, self._rate)}

    @property
    def space(self) -> LabelSpace:
        """The label space in use; the old one, while it is re-tuned."""
        return self.sides.space

    @property
    def overlap(self) -> LabelOverlap:
        """How its items compare with advertisements, in whatever spaces there are."""
        return LabelOverlap(lambda: self.sides)

    # -- links ------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """All that the neighbour should know, fresh; what it told us holds until it tells us anew.

        Raises LocalProtocolError for a new neighbour while the network is re-tuned: it would bring old labels to those
        who have forgotten them.
        """
        if link not in self._heard and self._wave is not None:
            raise LocalProtocolError(f"{link} cannot be attached while the label space is re-tuned: try again later")
        self.ledger.attach(link, role)
        if link not in self._heard:
            self._heard[link] = HeardLabels(self.sides, self.shape, self._rate)
            if role is not Role.SLAVE:
                self._listen(link)
        return noted([], link, self._stage(link)) if role is Role.SLAVE else [self._retell(link)]

    def _listen(self, link: Link) -> None:
        told = ToldLabels(self._bundle, self.shape, self._rate)
        told.change(_NONE, _joined([*self._local(), *self._labels_of_others(link)]))
        self._told[link] = told

    def _retell(self, link: Link) -> Tell:
        told = self._told[link]
        notes = told.afresh() + self._stage(link)
        return noted([self.ledger.retell(link, told.bundles.items())], link, notes)[0]

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants."""
        gone = self._labels_heard(link)
        self.ledger.detach(link)
        del self._heard[link]
        self._told.pop(link, None)
        if self._wave is not None:
            self._wave.forget(link)
        return self._revise(link, gone, _NONE) + self._advance()

    # -- changes ----------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions. Raises LocalProtocolError or FilterTooComplexError, then nothing has changed."""
        check_change(self._subs, add, drop)
        new = {sub: self._mapped(wanted, self.sides) for sub, wanted in add.items()}
        old = [self._subs.pop(sub).labels for sub in drop]
        self._subs.update(new)
        return self._revise(None, _joined(old), _joined(sub.labels for sub in new.values()))

    @staticmethod
    def _mapped(wanted: Filter, sides: LabelSides) -> _Sub:
        """A subscription in the newest space that there is."""
        form = as_form(wanted)
        side = sides.side if sides.coming is None else 1 - sides.side
        return _Sub(wanted, sides.labels(form, side) if form else _NONE)

    def _local(self) -> list[Ints]:
        return [sub.labels for sub in self._subs.values()]

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Take over what a neighbour told."""
        self.ledger.role(link)
        notes = understood(link, update, self._heard[link].twin, self.sides)
        sides = self.sides if notes.space is None else self.sides.beside(notes.space)
        for item in update.add.values():
            self._check(link, item, sides)
        news = self.ledger.news(link, update)
        if notes.stage is Stage.DONE or (self._wave is not None and self._wave.heard[link] is Stage.DONE):
            self._check_done(link, news, sides)
        tells = [] if notes.space is None else self._begin(sides)
        self.ledger.hear(link, news)
        drop, add = _labels(news.drop.values()), _labels(news.add.values())
        heard = self._heard[link]
        heard.change(drop, add)
        if update.fresh or notes.switch is not None:
            heard.switch(notes.switch, self._labels_heard(link))
        tells += self._revise(link, drop, add)
        if notes.late:
            tells += noted([], link, (Retuning(self.space.to_json(), Stage.DONE),))
        if self._wave is not None:
            self._wave.hear(link, notes.stage)
        return tells + self._advance()

    def _check(self, link: Link, item: object, sides: LabelSides) -> None:
        if isinstance(item, LabelSet) and item.labels and 0 <= min(item.labels) <= max(item.labels) < 1 << 63:
            labels = np.array(item.labels, np.int64)
            if (labels[1:] > labels[:-1]).all() and sides.sound(labels).all():
                return
        raise RemoteProtocolError(f"{link} tells an item that is no set of our labels: {item!r}")

    def _check_done(self, link: Link, news: News, sides: LabelSides) -> None:
        """Who has done with the old labels has none left, ever after."""
        kept = [item for item_id, item in self.ledger.heard(link).items() if item_id not in news.drop]
        if (sides.sides(_labels([*kept, *news.add.values()])) == sides.side).any():
            raise RemoteProtocolError(f"{link} tells labels of the old space, with which it has done: start it anew")

    def _revise(self, source: Source, drop: Ints, add: Ints) -> list[Tell]:
        return [
            tell
            for link, told in self._told.items()
            if link != source
            for tell in self._noted(link, told.change(drop, add))
        ]

    def _noted(self, link: Link, change: Change) -> list[Tell]:
        return noted(self.ledger.tell(link, Revision(change.drop, change.add)), link, change.notes)

    def tidy(self, budget: int) -> list[Tell]:
        """Unite small bundles where that saves half of them, and free filters of counters that are full for ever."""
        tells: list[Tell] = []
        for link, told in self._told.items():
            if len(told.bundles) <= budget:
                tells += self._noted(link, told.tidied())
        master = self.ledger.master
        if self._refresh and master:
            tells.append(self._retell(master))
        return tells

    # -- another label space ------------------------------------------------------------------------

    def retune(self, space: LabelSpace) -> list[Tell]:
        """Put another label space in the place of the one in use, here and in the whole network (DLS 5.1).

        One broker is enough: neighbours pass it on. Both spaces are understood until each neighbour has said that
        nothing comes from it in the old one; then that is forgotten. Raises LocalProtocolError if another is under way.
        """
        known = self.space if self.sides.coming is None else self.sides.coming
        if space.parameters == known.parameters:
            return []
        if self._wave is not None:
            raise LocalProtocolError("a label space is on its way already: wait until it is there (`retuning`)")
        return self._begin(self.sides.beside(space)) + self._advance()

    @property
    def retuning(self) -> bool:
        """Whether there are two spaces, old and new."""
        return self._wave is not None

    def _begin(self, sides: LabelSides) -> list[Tell]:
        """Tell everybody of the new space, and what is wanted here in its labels."""
        new = {sub: self._mapped(held.filter, sides) for sub, held in self._subs.items()}
        old, self._subs = _joined(self._local()), new
        self._wave = Wave(self._heard)
        self._move(sides)
        tells = self._revise(None, old, _joined(self._local()))
        return [
            tell
            for link in self._heard
            for tell in noted([tell for tell in tells if tell.link == link], link, self._stage(link))
        ]

    def _advance(self) -> list[Tell]:
        """Tell neighbours that we have done with old labels; forget their space when nobody has any."""
        if self._wave is None:
            return []
        tells = [tell for link in self._wave.due() for tell in noted([], link, self._stage(link))]
        if self._wave.over:
            self._wave = None
            self._move(self.sides.moved())
        return tells

    def _move(self, sides: LabelSides) -> None:
        self.sides = sides
        for heard in self._heard.values():
            heard.space = sides

    def _stage(self, link: Link) -> tuple[Note, ...]:
        if self._wave is None or self.sides.coming is None:
            return ()
        return (Retuning(self.sides.coming.to_json(), self._wave.told[link]),)

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
        labels = self.sides.of_events(events, levels)
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

    # -- what is in it ----------------------------------------------------------------------------

    def filter_told(self, link: Link) -> tuple[int, CountingFilter] | None:
        """The number of the last switch and the filter that a link has of us, once all that was told has arrived.

        With advertisements it is that of all that could be told.
        """
        twin = self._told[link].twin if link in self._told else None
        return None if twin is None else (twin.number, twin.held)

    def filter_heard(self, link: Link) -> tuple[int, CountingFilter] | None:
        """The number of the last switch and the filter that a link's events are looked up in."""
        twin = self._heard[link].twin
        return None if twin is None else (twin.number, twin.held)

    def saturated(self, link: Link) -> int:
        """How many counters of a link's filter are full: the neighbour's `tidy` frees it of them."""
        return self._heard[link].saturated

    def memory(self, link: Link) -> tuple[int, int]:
        """The bytes of what a link's events are looked up in, and of what decides what it is told."""
        return self._heard[link].held.nbytes, self._told[link].nbytes if link in self._told else 0

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.ledger.check()
        assert self.retuning == (self.sides.coming is not None), "two spaces without a re-tuning, or the other way"
        for link, heard in self._heard.items():
            heard.check(self._labels_heard(link))
            assert self.sides.sound(self._labels_heard(link)).all(), f"{link} told labels of no space"
        for sub in self._subs.values():
            assert np.array_equal(sub.labels, self._mapped(sub.filter, self.sides).labels), "it has other labels"
        for link, told in self._told.items():
            told.check(_joined([*self._local(), *self._labels_of_others(link)]))
            bundles = {bundle.labels for bundle in told.bundles.items().values()}
            known = {self.ledger.told(link)[item_id].labels for item_id in self.ledger.told(link)}  # type: ignore[union-attr]
            assert known == bundles, f"{link} knows other labels"

    def _labels_of_others(self, link: Link) -> list[Ints]:
        return [self._labels_heard(other) for other in self._heard if other != link]

    def _labels_heard(self, link: Link) -> Ints:
        """All labels that a link told, as often as it did."""
        return _labels(self.ledger.heard(link).values())


def _joined(several: Iterable[Ints]) -> Ints:
    return np.concatenate([_NONE, *several])


def _labels(items: Iterable[object]) -> Ints:
    return np.array([label for item in items if isinstance(item, LabelSet) for label in item.labels], np.int64)
