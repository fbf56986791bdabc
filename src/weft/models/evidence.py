"""Evidence about routing models on a user's own subscriptions and events. Every model sees the same data. A lost event
is an error. The same seed gives the same figures, except for the times.

Three brokers stand in a row, `west - here - east`. Half of the subscriptions, drawn by the seed, are clients of `here`;
the others come from the neighbour in the west. The neighbour in the east publishes all events.

| figure | how |
|---|---|
| inserting | time of the table of `here`, for its own clients and what the west tells, per subscription |
| batched | the same in a fresh row, with 1,000 subscriptions at a time |
| forwarded | what `here` has told the east when all subscriptions are present, after one `tidy` |
| removing | the same time, for a tenth of the subscriptions, drawn by the seed |
| matching | the table in the east, a new one that has heard everything in one update: the best of several rounds |
| unwanted | events that the east sends here although no subscription wants them |
| memory | the footprint of the table of `here`, without the subscriptions themselves |

Times are processor times. Every model first runs on some of the data, unmeasured, so that all code is compiled. An
index without any table determines which events are wanted, and for the first events a scan of all filters confirms it.
The results are compared on both links, after insertion one by one, after removal and after insertion in batches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import process_time

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.algebra.to_filter import to_filter
from weft.errors import FilterError, LabelError, ProtocolError, RangeError, SchemaError
from weft.index.base import AnyEvent, SubId
from weft.index.events import conformed
from weft.index.scan import ScanIndex
from weft.index.tree import TreeIndex
from weft.kernels.arrays import Mask
from weft.language.ast import Filter, attributes
from weft.model.progress import RunProgress
from weft.model.schema import Schema
from weft.models.candidates import CANDIDATES, MakeCandidate, TableTerms
from weft.models.figures import ModelFigures, NotRun
from weft.models.footprint import footprint
from weft.models.resident import resident
from weft.network.tables import BrokerId, Direction, TableNetwork
from weft.routing.table import Item, Link, RoutingTable, Source, Tell, Update
from weft.space.cell_space import CellItem

WEST, HERE, EAST = BrokerId("west"), BrokerId("here"), BrokerId("east")

PATIENCE = 80.0  # seconds of processor time for all models together
ROOM = 1 << 30  # bytes that a model may use

_BATCH = 1_000  # subscriptions, and events
_ALONE = 500  # events that are routed one by one
_ROUNDS = 5
_WARM = 200
_SCANNED = 50_000  # filters evaluated one by one
_LOOKED = 10  # items that `tidy` may examine per subscription
_REPORT = 10  # steps between two progress reports
_PIECES = 64  # of pending work in one step


class _TooMuchError(Exception):
    """A model takes too long, or too much memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """Subscriptions and events to compare models on, where each subscription is, and which of them are removed."""

    filters: Sequence[Filter]
    events: Sequence[AnyEvent]
    schema: Schema | None
    western: Mask  # for each subscription, whether it comes from the neighbour
    leaving: NDArray[np.int64]

    @staticmethod
    def of(filters: Sequence[Filter], events: Sequence[AnyEvent], schema: Schema | None, seed: int = 1) -> Data:
        """The same seed gives the same places. Events are conformed to the schema.

        Only the attributes of the schema that a filter uses are kept: conforming the others would only cost every table
        time.
        """
        rng = np.random.default_rng(seed)
        western = rng.random(len(filters)) < 0.5
        leaving = rng.permutation(len(filters))[: max(1, len(filters) // 10)]
        happened = list(events) if schema is None else [conformed(event, schema) for event in events]
        used = frozenset[str]().union(*map(attributes, filters))
        known = None if schema is None else Schema(tuple(each for each in schema.attributes if each.name in used))
        return Data(filters, happened, known, western, leaving)

    def first(self, number: int) -> Data:
        """The first `number` subscriptions and events."""
        leaving = np.arange(0, min(number, len(self.filters)), 10)
        return Data(self.filters[:number], self.events[:number], self.schema, self.western[:number], leaving)


class BrokerRow:
    """Three brokers in a row, `west - here - east`, with tables of one model.

    Every update arrives before anything else happens. Only the work of the table of `here` is timed, in processor time,
    so other processes do not count.

    >>> from weft import parse
    >>> from weft.routing.covering.table import CoveringTable
    >>> row = BrokerRow(CoveringTable)
    >>> row.change(False, {SubId(1): parse("x > 0")}, [])
    >>> row.change(True, {SubId(2): parse("x > 5")}, [])
    >>> row.updates, row.sent, row.items(), row.arriving([{"x": 3}, {"x": 0}]).tolist()
    (1, 1, 3, [True, False])
    """

    def __init__(self, make: Callable[[], RoutingTable]) -> None:
        self.seconds = 0.0
        self.updates = self.sent = self.dropped = 0  # eastwards
        self._network = TableNetwork(
            (WEST, HERE, EAST), make, matcher=None, pieces=_PIECES, run=self._timed, send=self._counted
        )
        self._network.attach(HERE, WEST)
        self._network.attach(HERE, EAST)
        self._network.settle()
        self.updates, self.seconds = 0, 0.0

    def table(self, broker: BrokerId) -> RoutingTable:
        """The table of one of the three."""
        return self._network.table(broker)

    def change(self, western: bool, add: Mapping[SubId, Filter], drop: Sequence[SubId]) -> None:
        """Add and remove subscriptions of clients in the west or here."""
        self._network.change(WEST if western else HERE, add, drop)
        self._network.settle()

    def tidy(self, budget: int) -> None:
        """Tidy the table of `here`."""
        self._network.work(HERE, budget)
        self._network.settle()

    def reconnect(self) -> None:
        """Put a new table in the east, which is sent everything in one update; that is not counted."""
        counts = self.updates, self.sent, self.dropped
        self._network.renew(EAST)
        self._network.settle()
        self.updates, self.sent, self.dropped = counts

    def _timed(self, broker: BrokerId, work: Callable[[], list[Tell]]) -> list[Tell]:
        if broker != HERE:
            return work()
        start = process_time()
        tells = work()
        self.seconds += process_time() - start
        return tells

    def _counted(self, direction: Direction, update: Update) -> Update:
        if direction == (HERE, EAST):
            self.updates += 1
            self.sent += sum(map(units, update.add.values()))
            self.dropped += len(update.drop)
        return update

    def items(self) -> int:
        """The number of items that the table of `here` has received and sent."""
        here = self.table(HERE)
        every = [items for link in (Link(WEST), Link(EAST)) for items in (here.heard(link), here.told(link))]
        return sum(units(item) for items in every for item in items.values())

    def arriving(self, events: Sequence[AnyEvent]) -> Mask:
        """Which events of the east arrive here."""
        return _sent(self.table(EAST), events, None, Link(HERE))

    def onward(self, events: Sequence[AnyEvent]) -> Mask:
        """Which events that came from the east are forwarded to the west."""
        return _sent(self.table(HERE), events, Link(EAST), Link(WEST))


def units(item: Item) -> int:
    """How many items an item counts for: labels are sent in bundles, but counted one by one."""
    return item.units if isinstance(item, CellItem) else 1


def weight(item: Item) -> int:
    """The approximate size of an item on the wire, in bytes."""
    if isinstance(item, CellItem):
        return len(msgspec.msgpack.encode(item.numbers))
    return len(str(to_filter(item) if isinstance(item, NormalForm) else item).encode())


def _sent(table: RoutingTable, events: Sequence[AnyEvent], source: Source, to: Link) -> Mask:
    """Which of the events a table sends to a neighbour."""
    sent = np.zeros(len(events), bool)
    if len(events):
        sent[table.route_batch(events, source).get(to, np.zeros(0, np.intp))] = True
    return sent


class GroundTruth:
    """The events that are wanted, without any table: as an index decides and, for the first events, every filter too.

    >>> from weft import parse
    >>> truth = GroundTruth(Data.of([parse("x > 5"), parse("x > 8")], [{"x": 6}, {"x": 9}, {"x": 1}], None))
    >>> truth.wanted(np.array([True, True])).tolist(), truth.wanted(np.array([False, True])).tolist()
    ([True, True, False], [False, True, False])
    """

    def __init__(self, data: Data, most: int = _SCANNED) -> None:
        index, scan = TreeIndex(data.schema), ScanIndex(data.schema)
        index.add_forms(range(len(data.filters)), [as_form(wanted, data.schema) for wanted in data.filters])
        for sub, wanted in enumerate(data.filters):
            scan.add(SubId(sub), wanted)
        found = index.match_batch(data.events).checked()
        self.scanned = min(len(data.events), -(-most // max(1, len(data.filters))))
        for number in range(self.scanned):
            if sorted(found[number].tolist()) != sorted(scan.match(data.events[number]).tolist()):
                raise ProtocolError(f"the index and a scan differ on event {number}; this is a bug, please report it")
        self._size = len(data.events)
        self._subs, self._events = found.ids, np.repeat(np.arange(self._size), found.counts)

    def wanted(self, among: Mask) -> Mask:
        """The events that at least one of these subscriptions wants."""
        wanted = np.zeros(self._size, bool)
        wanted[self._events[among[self._subs]]] = True
        return wanted


@dataclass(frozen=True, slots=True)
class Evidence:
    """The results: the models in the order of `CANDIDATES`, with figures or without."""

    figures: list[ModelFigures] = field(default_factory=list)
    not_run: list[NotRun] = field(default_factory=list)
    wanted: int = 0  # events that a subscription wants
    scanned: int = 0  # events for which every filter was evaluated


def compare(  # noqa: PLR0913 - all but the data have defaults
    data: Data,
    models: Iterable[str] = tuple(CANDIDATES),
    *,
    cells: int | None = None,
    patience: float = PATIENCE,
    room: int = ROOM,
    warm: int = _WARM,
    progress: RunProgress = lambda *_: None,
    candidates: Mapping[str, MakeCandidate] = CANDIDATES,
) -> Evidence:
    """Run models on the data. Raises ProtocolError if one loses an event.

    A model that cannot run on this data is in `not_run`, and so is one that takes more than its share of `patience`, in
    seconds of processor time for all models, or more than `room` bytes. Time that a fast model leaves is available to
    those after it. `warm` subscriptions and events are run before, unmeasured.

    >>> from weft import parse
    >>> texts, events = ["x > 5", "x > 8", "x BETWEEN 1 AND 2"], [{"x": 9}, {"x": 4}]
    >>> found = compare(Data.of([parse(text) for text in texts], events, None), ["identity", "covering", "mics"])
    >>> [(each.model, each.forwarded, each.unwanted) for each in found.figures]
    [('identity', 3, 0), ('covering', 2, 0)]
    >>> [(each.model, each.reason) for each in found.not_run]
    [('mics', 'it needs bounds or categories of an attribute that filters use; add them to the schema')]
    """
    chosen = set(models)
    progress("what every event should reach", 0, 0)
    truth, terms, few = GroundTruth(data), TableTerms.of(data.schema, data.filters, cells), data.first(warm)
    some = GroundTruth(few, 0)
    found = Evidence(wanted=int(truth.wanted(np.ones(len(data.filters), bool)).sum()), scanned=truth.scanned)
    waiting = [(model, make) for model, make in candidates.items() if model in chosen]
    end = process_time() + patience
    for left, (model, make) in zip(range(len(waiting), 0, -1), waiting, strict=True):
        gc.collect()
        limits = _Limits((end - process_time()) / left, room)
        try:
            if warm:
                progress(f"{model}: loading compiled code", 0, 0)
                _Trial(model, make, terms, few, some, limits, lambda *_: None).figures()
                gc.collect()
            found.figures.append(_Trial(model, make, terms, data, truth, limits, progress).figures())
        except (SchemaError, LabelError, RangeError, FilterError) as error:
            found.not_run.append(NotRun(model, str(error)))
        except _TooMuchError as error:
            found.not_run.append(NotRun(model, str(error)))
    return found


class _Limits:
    """What one model may use from now on."""

    def __init__(self, seconds: float, room: int) -> None:
        self._seconds, self._end = seconds, process_time() + seconds
        self._room, self._before = room, resident()

    def check(self, what: str, done: int, of: int) -> None:
        """Raise _TooMuchError if it has used more."""
        if process_time() > self._end:
            raise _TooMuchError(
                f"{what} took more than {max(0, self._seconds):.3g} seconds for {done:,} of {of:,} subscriptions; "
                "use fewer, or raise the patience"
            )
        now = resident()
        if now is not None and self._before is not None and now - self._before > self._room:
            raise _TooMuchError(
                f"{what} took more than {self._room / 1e6:,.0f} MB for {done:,} of {of:,} subscriptions; use fewer"
            )


@dataclass(slots=True)
class _Trial:
    """One model on the data."""

    model: str
    make: MakeCandidate
    terms: TableTerms
    data: Data
    truth: GroundTruth
    limits: _Limits
    progress: RunProgress

    def figures(self) -> ModelFigures:
        data = self.data
        size, everybody = len(data.filters), np.ones(len(data.filters), bool)
        row = BrokerRow(lambda: self.make(self.terms))
        insert_us = self._one_by_one(row, "inserting", range(size), adding=True)
        before = row.seconds
        row.tidy(_LOOKED * size)
        tidy_ms = 1e3 * (row.seconds - before)
        told = list(row.table(HERE).told(Link(EAST)).values())
        counts = row.updates, row.sent, row.dropped, row.items()
        self.progress(f"{self.model}: matching", 0, 0)
        sent = self._routed(row, everybody)
        row.reconnect()
        match_us, route_us = self._matching(row)
        wanted = self.truth.wanted(everybody)
        self.progress(f"{self.model}: memory", 0, 0)
        memory = footprint(row.table(HERE), [data.filters, data.schema, self.terms])
        remove_us = self._one_by_one(row, "removing", data.leaving.tolist(), adding=False)
        staying = everybody.copy()
        staying[data.leaving] = False
        self._routed(row, staying)
        return ModelFigures(
            self.model,
            sum(map(units, told)),
            sum(map(weight, told)),
            sum(map(weight, data.filters)),
            *counts,
            memory,
            insert_us,
            self._in_batches(everybody),
            remove_us,
            tidy_ms,
            match_us,
            route_us,
            len(data.events),
            int(wanted.sum()),
            int((sent & ~wanted).sum()),
        )

    # -- subscriptions ----------------------------------------------------------------------------

    def _one_by_one(self, row: BrokerRow, what: str, subs: Sequence[int], *, adding: bool) -> float:
        """Microseconds per subscription."""
        before = row.seconds
        for done, sub in enumerate(subs):
            if done % _REPORT == 0:
                self.progress(f"{self.model}: {what}", done, len(subs))
            self.limits.check(what, done, len(subs))
            filters = {SubId(sub): self.data.filters[sub]} if adding else {}
            row.change(bool(self.data.western[sub]), filters, [] if adding else [SubId(sub)])
        return 1e6 * (row.seconds - before) / max(1, len(subs))

    def _in_batches(self, everybody: Mask) -> float:
        row, data = BrokerRow(lambda: self.make(self.terms)), self.data
        size = len(data.filters)
        for batch in (range(start, min(start + _BATCH, size)) for start in range(0, size, _BATCH)):
            self.progress(f"{self.model}: inserting in batches", batch[0], size)
            self.limits.check("inserting in batches", batch[0], size)
            for western in (False, True):
                chosen = {SubId(sub): data.filters[sub] for sub in batch if data.western[sub] == western}
                if chosen:
                    row.change(western, chosen, [])
        self._routed(row, everybody)
        return 1e6 * row.seconds / max(1, size)

    # -- events -----------------------------------------------------------------------------------

    def _routed(self, row: BrokerRow, staying: Mask) -> Mask:
        """The events that arrive here from the east. Raises ProtocolError if one is lost on either link."""
        events = self.data.events
        arriving = row.arriving(events)
        self._complain(self.truth.wanted(staying) & ~arriving, "east", "here")
        come = arriving.nonzero()[0]
        onward = np.zeros(len(events), bool)
        onward[come[row.onward([events[at] for at in come.tolist()])]] = True
        self._complain(self.truth.wanted(staying & self.data.western) & ~onward, "here", "west")
        return arriving

    def _complain(self, lost: Mask, near: str, far: str) -> None:
        if lost.any():
            raise ProtocolError(
                f"{self.model} loses {lost.sum():,} of {len(lost):,} events between {near} and {far}, the first is "
                f"{self.data.events[int(lost.argmax())]!r}; this is a bug, please report it"
            )

    def _matching(self, row: BrokerRow) -> tuple[float, float]:
        """Microseconds per event, in batches and alone. Raises ProtocolError if the two ways differ."""
        events = self.data.events
        batches = [events[start : start + _BATCH] for start in range(0, len(events), _BATCH)]
        alone, table = events[:_ALONE], row.table(EAST)
        start = process_time()
        singly = [table.route(event, None) for event in alone]
        alone_us = 1e6 * (process_time() - start) / max(1, len(alone))
        for event, links, together in zip(alone, singly, row.arriving(alone), strict=True):
            if (Link(HERE) in links) != together:
                raise ProtocolError(
                    f"{self.model} routes {event!r} differently alone and in a batch; this is a bug, please report it"
                )
        times = []
        for _ in range(_ROUNDS):
            start = process_time()
            for batch in batches:
                table.route_batch(batch, None)
            times.append(process_time() - start)
        return 1e6 * min(times) / max(1, len(events)), alone_us
