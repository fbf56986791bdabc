"""The owners of a broker's state, which most of its other parts need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from weft.broker.admission import Admission
from weft.broker.backlog import BacklogCounter
from weft.broker.completion import Completion
from weft.broker.effects import Outbox, Timers
from weft.broker.event_places import EventPlaces
from weft.broker.journal import Journal
from weft.broker.limits import ClientLimits
from weft.broker.matcher import LocalMatcher
from weft.broker.profiles.profile_table import ProfileTable
from weft.broker.recent import EventReader, RecentEvents
from weft.broker.rules import Access, Rules
from weft.broker.sessions import Queues, Sessions
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.log.base import Log, State
from weft.model.rate import split_rate
from weft.model.schema import Schema
from weft.routing.table import Link, RoutingTable

if TYPE_CHECKING:
    from weft.broker.links.neighbour import Neighbour


class BrokerParts:
    """Makes the owners and names them; it has no state of its own, and nothing here is ever replaced."""

    def __init__(  # noqa: PLR0913, PLR0917 - as for `Core`
        self,
        log: Log,
        state: State,
        table: RoutingTable,
        draw: Callable[[], int],
        schema: Schema | None,
        predicates: Predicates,
        rules: Rules | None,
        limits: ClientLimits | None,
        executor: Executor | None,
    ) -> None:
        self.out, self.timers, self.counts = Outbox(), Timers(), Counter[str]()
        self.limits = limits or ClientLimits()
        self.journal = Journal(log, state)
        self.sessions = Sessions(draw, self.limits, self.out, self.timers, self.counts)
        self.recent = RecentEvents(self.limits.tail, state.next)
        self.reader = EventReader(log, self.recent)
        self.queues = Queues(self.journal, self.sessions, self.reader)
        self.backlog = BacklogCounter(log)
        self.matcher = LocalMatcher(table, executor)
        self.access = Access(rules or Rules())
        self.decoder = Admission(schema)
        self.neighbours: dict[Link, Neighbour] = {}
        self.due: dict[Link, None] = {}  # neighbours to whom something may have to be sent
        self.predicates, self.profile_table = predicates, ProfileTable(schema or table.schema, predicates)
        self.tables: tuple[RoutingTable, ...] = (table, self.profile_table)  # of a link, by number
        self.places = EventPlaces(table, schema, self.neighbours, self.sessions, self.out, self.counts, draw)
        self.completion = Completion(self.tables, self.neighbours, self.due, self.sessions, self.out)
        self.parse = partial(_parse, predicates=predicates)  # the filter of a subscription's text; raises FilterError


def _parse(text: str, predicates: Predicates) -> Filter:
    """The filter of a subscription, without its rate."""
    return parse(split_rate(text)[0], predicates)
