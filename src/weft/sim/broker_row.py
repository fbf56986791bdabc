"""Three brokers in a row, `west - here - east`, with tables of one model. Laws: an update arrives before anything else
happens; only the work of the table of `here` is timed, in processor time, so other processes do not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import process_time

import msgspec
import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.to_filter import to_filter
from weft.index.base import AnyEvent, SubId
from weft.kernels.arrays import Mask
from weft.language.ast import Filter
from weft.routing.table import Item, Link, RoutingTable, Source, Tell
from weft.space.cell_space import CellItem

WEST, HERE, EAST = Link("west"), Link("here"), Link("east")

_PIECES = 64  # of pending work per step


class BrokerRow:
    """The tables; counts what goes east, and the seconds of the table of `here`.

    >>> from weft import parse
    >>> from weft.routing.covering.table import CoveringTable
    >>> row = BrokerRow(CoveringTable)
    >>> row.change(False, {SubId(1): parse("x > 0")}, [])
    >>> row.change(True, {SubId(2): parse("x > 5")}, [])
    >>> row.updates, row.sent, row.items(), row.arriving([{"x": 3}, {"x": 0}]).tolist()
    (1, 1, 3, [True, False])
    """

    def __init__(self, make: Callable[[], RoutingTable]) -> None:
        self._make = make
        self.tables = {link: make() for link in (WEST, HERE, EAST)}
        self.seconds = 0.0
        self.updates = self.sent = self.dropped = 0
        ends = (HERE, WEST), (HERE, EAST), (WEST, HERE), (EAST, HERE)
        for near, tells in [(near, self.tables[near].attach(far)) for near, far in ends]:
            self._deliver(near, tells)
        self.updates, self.seconds = 0, 0.0

    def change(self, western: bool, add: Mapping[SubId, Filter], drop: Sequence[SubId]) -> None:
        """Add and remove subscriptions of clients in the west or here."""
        at = WEST if western else HERE
        self._deliver(at, self._timed(at, partial(self.tables[at].change, add, drop)))

    def tidy(self, budget: int) -> None:
        """Tidy the table of `here`."""
        self._deliver(HERE, self._timed(HERE, partial(self.tables[HERE].step, budget)))

    def _deliver(self, sender: Link, tells: Iterable[Tell]) -> None:
        flying = deque((sender, tell) for tell in tells)
        while flying:
            source, tell = flying.popleft()
            if tell.link == EAST:
                self._count(tell)
            learned = self._timed(tell.link, partial(self.tables[tell.link].learn, source, tell.update))
            flying.extend((tell.link, more) for more in learned)
            for link, table in self.tables.items() if not flying else ():
                while table.pending:
                    flying.extend((link, more) for more in self._timed(link, partial(table.step, _PIECES)))

    def _count(self, tell: Tell) -> None:
        self.updates += 1
        self.sent += sum(map(units, tell.update.add.values()))
        self.dropped += len(tell.update.drop)

    def _timed(self, where: Link, work: Callable[[], list[Tell]]) -> list[Tell]:
        if where != HERE:
            return work()
        start = process_time()
        tells = work()
        self.seconds += process_time() - start
        return tells

    def reconnect(self) -> None:
        """Put a new table in the east, which hears everything in one update; that is not counted."""
        counts = self.updates, self.sent, self.dropped
        self.tables[EAST] = self._make()
        self.tables[EAST].attach(HERE)
        self._deliver(HERE, self.tables[HERE].attach(EAST))
        self.updates, self.sent, self.dropped = counts

    def items(self) -> int:
        """The number of items that the table of `here` has heard and told."""
        here = self.tables[HERE]
        every = [items for link in (WEST, EAST) for items in (here.heard(link), here.told(link))]
        return sum(units(item) for items in every for item in items.values())

    def arriving(self, events: Sequence[AnyEvent]) -> Mask:
        """Which events of the east arrive here."""
        return _sent(self.tables[EAST], events, None, HERE)

    def onward(self, events: Sequence[AnyEvent]) -> Mask:
        """Which events that came from the east are forwarded to the west."""
        return _sent(self.tables[HERE], events, EAST, WEST)


def units(item: Item) -> int:
    """How many items an item counts for: labels are told in bundles, but counted one by one."""
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
