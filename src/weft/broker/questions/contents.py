"""What is in a broker, row by row: sessions, subscriptions, items of links, and what is related to a filter.

Each list is a generator of small pieces of work (`ListStep`), so that a page may end anywhere. Whoever asks sees what
belongs to it, and everything with the right `status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from weft.algebra.box import NormalForm
from weft.algebra.bulk import columns_of_texts
from weft.algebra.relate import Region, as_form, covers, is_empty, overlaps
from weft.broker.explain import MOST_EVENT
from weft.broker.limits import RefusalError
from weft.broker.links.item_digest import item_hash
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.questions.listings import ListProgress, ListStep, MakePage
from weft.broker.queue import Queue
from weft.broker.sessions import ClientSubscription, Session
from weft.broker.transient_queue import TransientQueue
from weft.errors import AccessError, EventError, FilterError
from weft.language.ast import Filter
from weft.language.lexer import is_longer
from weft.language.trace import trace
from weft.model.schema import Schema
from weft.order import FilterRelation, Forest
from weft.order.node import Node
from weft.protocol.messages import Publish, SubNumber
from weft.protocol.questions import (
    MOST_ROWS,
    AskItems,
    AskOrder,
    AskProfiles,
    AskRelated,
    AskRules,
    AskSessions,
    AskSubscriptions,
    AskTrace,
    BrokerSummary,
    FilterTrace,
    ItemFacts,
    LinkFacts,
    OrderNode,
    ProfileFacts,
    RelatedList,
    RelatedSubscription,
    Relationship,
    RulesReport,
    SessionFacts,
    SubscriptionFacts,
    WouldSend,
    trace_part,
)
from weft.routing.item_text import item_text, shortened
from weft.routing.table import About, Exactness, Item, Link, Role

MOST_TEXT = 2_000  # characters of a filter or an item in a list
_MOST_LINKS = 64  # of a summary

# work, in about microseconds
_PASSED = 1  # a row that is not wanted
_ROW = 12  # one that is
_AWAITED = 500  # one, and for whom it waits
_ITEM = 40  # an item of a link
_COMPARED, _COLUMN = 64, 12  # subscriptions that are compared with a filter together, and each of them
_PAIR = 90  # a subscription that is compared with a filter alone
_WITNESS = 500  # what a neighbour would be sent
_PLACED = 120  # one that is put into an order
_COPIED = 40  # sessions that are listed in a microsecond
_TOGETHER = 500  # sessions that are passed over in one piece of work
_LISTED = 25  # subscriptions of a session that are listed in a microsecond
_MOST_ORDERED = 20_000  # subscriptions in an order
_MOST_ORDERS = 4  # that are kept, so that several people can look at them
_SHOWN = 200  # characters of an item in a sentence
_MOST_TRACED = 1 << 14  # characters of a filter


class LocalOrder:
    """The covering order of the local subscriptions at some time; its nodes have numbers of no other order."""

    def __init__(self, forest: Forest[Region], serial: int, rates: Sequence[float]) -> None:
        self.forest = forest
        self._rates = rates  # of subscriptions, by the numbers of interfaces
        self._first = serial << 32
        self._nodes: list[Node[Region]] = []
        self._numbers: dict[Node[Region], int] = {}

    def number(self, node: Node[Region]) -> int:
        """The number of a node."""
        known = self._numbers.get(node)
        if known is None:
            known = self._numbers[node] = self._first + len(self._nodes)
            self._nodes.append(node)
        return known

    def rate(self, node: Node[Region]) -> float:
        """The events per second that a filter matches, by its subscription that has matched most."""
        return max(self._rates[number] for number in node.interfaces if isinstance(number, int))

    def get(self, number: int) -> Node[Region] | None:
        """The node of a number that was given out."""
        place = number - self._first
        return self._nodes[place] if 0 <= place < len(self._nodes) else None


class Contents:
    """Reads the parts of a broker, and changes nothing."""

    def __init__(self, parts: BrokerParts, links: Links, profiles: ProfileNotices) -> None:
        self.profiles = profiles
        self._sessions, self._queues, self._matcher = parts.sessions, parts.queues, parts.matcher
        self._access, self._journal, self._parse = parts.access, parts.journal, parts.parse
        self._links, self._decoder, self._completion = links, parts.decoder, parts.completion
        self._kept_orders: dict[int, LocalOrder] = {}  # that were asked for last
        self._orders = 0

    def sees_all(self, principal: str) -> bool:
        """Whether a principal may see what belongs to others."""
        return "status" in self._access.of(principal).rights.further

    # -- sessions and subscriptions -----------------------------------------------------------------------

    def sessions(self, principal: str, question: AskSessions, progress: ListProgress) -> Iterator[ListStep]:
        """The sessions that were there when the list began."""
        named = self._sessions.by_name.get(question.text) if question.exact else None
        everyone = [*self._sessions.by_id.values()] if not question.exact else [named] if named is not None else []
        progress.total, seen_all = len(everyone), self.sees_all(principal)
        yield ListStep(len(everyone) // _COPIED)
        for session in everyone:
            progress.seen += 1
            connected = session.connection is not None
            if (
                (seen_all or session.owner == principal)
                and question.text in session.name
                and question.connected in (None, connected)
                and self._sessions.by_id.get(session.id) is session
            ):
                yield ListStep(_ROW + len(session.queues), self._session(session))
            else:
                yield ListStep(_PASSED)

    @staticmethod
    def _session(session: Session) -> SessionFacts:
        return SessionFacts(
            session.name,
            session.owner,
            session.connection is not None,
            len(session.subs),
            len(session.queues),
            len(session.adverts),
            sum(queue.behind for queue in session.queues.values() if isinstance(queue, Queue)),
            session.pub_received,
        )

    def living_profiles(self, principal: str, question: AskProfiles, progress: ListProgress) -> Iterator[ListStep]:
        """The profiles that were known when the list began, by source and id."""
        known = sorted(self.profiles.living)
        progress.total, seen_all = len(known), self.sees_all(principal)
        yield ListStep(len(known) // _COPIED)
        for identity in known:
            progress.seen += 1
            profile, session = self.profiles.living.get(identity), self._sessions.by_name.get(identity[0])
            mine = session is not None and session.owner == principal
            if profile is None or question.session not in ("", identity[0]) or not (seen_all or mine):
                yield ListStep(_PASSED)
                continue
            facts = ProfileFacts(
                *identity,
                profile.version,
                profile.expires,
                str(profile.region),
                len(profile.payload),
                self.profiles.is_here(identity),
                self.profiles.shown_to(identity),
            )
            yield ListStep(_ROW, facts)

    def subscriptions(self, principal: str, question: AskSubscriptions, progress: ListProgress) -> Iterator[ListStep]:
        """The subscriptions of the sessions that were there when the list began, then the shared ones."""
        seen_all, rated = self.sees_all(principal), question.rated is True
        if question.session:
            known = self._sessions.by_name.get(question.session)
            everyone = [] if known is None else [known]
        else:
            everyone = [*self._sessions.by_id.values()]
        progress.total = len(everyone)
        yield ListStep(len(everyone) // _COPIED)
        for session in everyone:
            progress.seen += 1
            if not seen_all and session.owner != principal:
                yield ListStep(_PASSED)
                continue
            subs = [*session.subs.values()]
            yield ListStep(_PASSED + len(subs) // _LISTED)
            for sub in subs:
                if sub.queue.share or question.text not in sub.text or session.subs.get(sub.number) is not sub:
                    yield ListStep(_PASSED)
                elif question.session and self._completion.is_waiting:
                    facts, awaited = (
                        self.subscription(session, sub, rated=rated),
                        self._completion.awaited(session, sub.number),
                    )
                    yield ListStep(_AWAITED, msgspec.structs.replace(facts, waiting_for=awaited))
                else:
                    yield ListStep(_ROW, self.subscription(session, sub, rated=rated))
        if question.session:
            return
        for queue, member in [*self._queues.shared_members.items()]:
            if (seen_all or queue.owner == principal) and question.text in member.text:
                yield ListStep(_ROW, self.subscription(None, member, rated=rated))
            else:
                yield ListStep(_PASSED)

    def subscription(
        self, session: Session | None, sub: ClientSubscription, *, rated: bool = False
    ) -> SubscriptionFacts:
        """A subscription; without a session, the one member of a shared queue."""
        queue = sub.queue
        matched, at = self._matcher.matched(sub.slot)
        if isinstance(queue, TransientQueue):
            durable, connected, behind = False, True, len(queue.held)
        else:
            durable, connected, behind = True, bool(queue.windows), queue.behind
        owner = session.owner if session is not None else queue.owner if isinstance(queue, Queue) else ""
        return SubscriptionFacts(
            "" if session is None else session.name,
            sub.number,
            shortened(sub.text, MOST_TEXT),
            owner,
            queue.share,
            durable,
            connected,
            behind,
            matched,
            at,
            self._matcher.rate(sub.slot, self._journal.at) if rated else msgspec.UNSET,
        )

    def found(self, principal: str, name: str) -> Session:
        """A session by its name. Raises RefusalError for one that is not there, or that the principal may not see."""
        known = self._sessions.by_name.get(name)
        if known is None or not (known.owner == principal or self.sees_all(principal)):
            raise RefusalError("unknown", f"there is no session {name!r} here; `weft sessions` lists all")
        return known

    def trace(self, principal: str, question: AskTrace) -> FilterTrace:
        """The truth of each part of a subscription's filter for an event. Raises RefusalError."""
        session = self.found(principal, question.session)
        number = next(iter(session.subs), None) if question.number is None else SubNumber(question.number)
        sub = None if number is None else session.subs.get(number)
        if sub is None:
            which = "" if question.number is None else f" {question.number}"
            raise RefusalError("unknown", f"the session {session.name!r} has no subscription{which}")
        if len(question.event) > MOST_EVENT or len(sub.text) > _MOST_TRACED:
            raise RefusalError("event", f"an event has at most {MOST_EVENT:,} bytes here, a filter {_MOST_TRACED:,}")
        attributes = self._event(question.event)
        found = trace(self._parse(sub.text), attributes).to_dict()
        return FilterTrace(session.name, sub.number, trace_part(found, [MOST_ROWS]))

    def rules(self, principal: str, question: AskRules) -> RulesReport:
        """What a principal may do. Raises RefusalError, FilterError, or AccessError for another one's rules."""
        whose, sees_all = question.principal or principal, self.sees_all(principal)
        if whose != principal:
            self._access.of(principal).check("status")
        grant, rules = self._access.of(whose), self._access.rules
        rights = grant.rights
        problem, nearest, unpublished, read = "", "", "", None
        if question.filter:
            if is_longer(question.filter, _MOST_TRACED):
                raise RefusalError("filter", f"a filter that is compared has at most {_MOST_TRACED:,} bytes")
            try:
                grant.check_subscribe(self._parse(question.filter))
            except AccessError as error:
                problem, _, nearest = str(error).partition("; the nearest rule is ")
        if question.event:
            attributes = self._event(msgspec.Raw(question.event))
            read = grant.may_read(attributes)
            try:
                grant.check_publish(attributes)
            except AccessError as error:
                unpublished = str(error)
        return RulesReport(
            whose,
            None if rights.subscribe is None else rights.subscribe[:MOST_ROWS],
            None if rights.publish is None else rights.publish[:MOST_ROWS],
            tuple(sorted(rights.further)),
            whose in rules.grants,
            tuple(rules.principals())[:MOST_ROWS] if sees_all else (),
            problem,
            unpublished,
            nearest,
            read,
        )

    def _event(self, event: msgspec.Raw) -> Mapping[str, Any]:
        """The attributes of an event that somebody asks about. Raises RefusalError."""
        if len(event) > MOST_EVENT:
            raise RefusalError("event", f"an event has at most {MOST_EVENT:,} bytes here")
        try:
            attributes, _, _ = self._decoder.admit(Publish(0, event), self._journal.at)
        except EventError as error:
            raise RefusalError("event", str(error)) from None
        return attributes

    # -- items of links -----------------------------------------------------------------------------------

    def items(self, question: AskItems, progress: ListProgress) -> Iterator[ListStep]:
        """What a link was sent, or what was received from it. Raises RefusalError at once."""
        neighbour = self._links.neighbours.get(Link(question.link))
        if neighbour is None:
            known = ", ".join(sorted(self._links.neighbours)) or "none"
            raise RefusalError("unknown", f"there is no link to {question.link!r} here; links: {known}")
        about = About.ADVERTISEMENTS if question.advertisements else About.SUBSCRIPTIONS
        table = self._matcher.table
        sent = question.direction == "sent"
        items = neighbour.sender.intended(about) if sent else table.heard(neighbour.peer, about)
        return self._items([*items.values()], about, sent, progress)

    def _items(self, items: list[Item], about: About, sent: bool, progress: ListProgress) -> Iterator[ListStep]:
        table = self._matcher.table
        progress.total = len(items)
        for item in items:
            progress.seen += 1
            body = table.codec.encode_item(about, item)
            reason = self._reason(item) if sent and about is About.SUBSCRIPTIONS else ""
            text = item_text(item, table.codec, MOST_TEXT, about)
            yield ListStep(_ITEM, ItemFacts(text, f"{item_hash(body):016x}", reason))

    def _reason(self, item: Item) -> str:
        """Why an item is sent: who wants it."""
        table = self._matcher.table
        holders = table.holders(item)
        parts = [_counted(holders[None], "local subscription")] if None in holders else []
        named = sorted((str(link), number) for link, number in holders.items() if link is not None)
        parts += [f"{_counted(number, 'item')} of {link}" for link, number in named]
        return f"wanted by {' and '.join(parts)}" if parts else f"made by the model {table.model} of what is wanted"

    # -- relations ----------------------------------------------------------------------------------------

    def related(
        self, principal: str, question: AskRelated, progress: ListProgress
    ) -> tuple[Iterator[ListStep], MakePage]:
        """The subscriptions that have events in common with a filter. Raises RefusalError or FilterError."""
        if is_longer(question.filter, _MOST_TRACED):
            raise RefusalError("filter", f"a filter that is compared has at most {_MOST_TRACED:,} bytes")
        wanted = self._parse(question.filter)
        form = as_form(wanted, self._matcher.table.schema)
        sends: list[WouldSend] = []
        steps = self._related(principal, wanted, form, sends, progress)
        return steps, lambda rows, made: RelatedList(rows, made.seen, made.total, tuple(sends))

    def _related(
        self, principal: str, wanted: Filter, form: NormalForm, sends: list[WouldSend], progress: ListProgress
    ) -> Iterator[ListStep]:
        progress.total = len(self._matcher)
        for peer in sorted(self._links.neighbours)[:_MOST_LINKS]:
            if peer in self._links.neighbours:
                sends.append(self._would_send(peer, wanted))
                yield ListStep(_WITNESS)
        some: list[tuple[Session | None, ClientSubscription]] = []
        for each in self._visible(principal):
            if isinstance(each, int):
                yield ListStep(each)
                continue
            some.append(each)
            if len(some) == _COMPARED:
                yield from self._compare(some, form, progress)
                some = []
        yield from self._compare(some, form, progress)

    def _compare(
        self, some: list[tuple[Session | None, ClientSubscription]], form: NormalForm, progress: ListProgress
    ) -> Iterator[ListStep]:
        """Most subscriptions are found to be disjoint in columns, all at a time; others are compared one by one."""
        progress.seen += len(some)
        refused: dict[int, FilterError] = {}
        schema = self._matcher.table.schema
        rows = columns_of_texts([sub.text for _, sub in some], schema, refused=refused)
        near = {*refused}  # those that call predicates
        for box in form.boxes:
            near.update(rows.owners[rows.overlapping(box)].tolist())
        yield ListStep(_COLUMN * len(some))
        for place in sorted(near):
            session, sub = some[place]
            found = _relationship(form, as_form(self._parse(sub.text), schema), schema)
            facts = None if found is None else RelatedSubscription(found, self.subscription(session, sub))
            yield ListStep(_PAIR, facts)

    def _visible(self, principal: str) -> Iterator[tuple[Session | None, ClientSubscription] | int]:
        """The subscriptions that a principal may see, a shared one once; and the work of finding them, as numbers."""
        seen_all, passed, everyone = self.sees_all(principal), 0, [*self._sessions.by_id.values()]
        yield len(everyone) // _COPIED
        for session in everyone:
            passed += 1
            if passed == _TOGETHER:
                yield passed
                passed = 0
            if session.subs and (seen_all or session.owner == principal):
                subs = [*session.subs.values()]
                yield len(subs) // _LISTED
                yield from ((session, sub) for sub in subs if not sub.queue.share)
        for queue, member in [*self._queues.shared_members.items()]:
            if seen_all or queue.owner == principal:
                yield None, member

    def _would_send(self, peer: Link, wanted: Filter) -> WouldSend:
        table, neighbour = self._matcher.table, self._links.neighbours[peer]
        if neighbour.role is Role.CHILD:
            return WouldSend(peer, False, "nothing is sent to a child, because it sends every event")
        if table.exactness is Exactness.FLOOD:
            return WouldSend(peer, False, "events are flooded, so that nothing needs to be told")
        if is_empty(wanted, table.schema):
            return WouldSend(peer, False, "no event can match it")
        covering = table.witness(peer, wanted)
        if covering is not None:
            return WouldSend(peer, False, f"it has {item_text(covering, table.codec, _SHOWN)}, which covers it")
        return WouldSend(peer, True, "nothing that it was told covers it")

    # -- the order ----------------------------------------------------------------------------------------

    def order(self, principal: str, question: AskOrder, progress: ListProgress) -> Iterator[ListStep]:
        """One level of the covering order of the local subscriptions, which is made when it is asked for.

        Raises RefusalError at once.
        """
        if question.node is not None:
            kept = self._kept_orders.get(question.node >> 32)
            node = None if kept is None else kept.get(question.node)
            if kept is None or node is None:
                raise RefusalError("unknown", f"there is no node {question.node} any longer; begin with the roots")
            return self._level(kept, node.children, progress)
        if len(self._matcher) > _MOST_ORDERED:
            raise RefusalError(
                "limit", f"an order has at most {_MOST_ORDERED:,} subscriptions; relate a filter to them instead"
            )
        return self._new_order(principal, progress)

    def _new_order(self, principal: str, progress: ListProgress) -> Iterator[ListStep]:
        schema = self._matcher.table.schema
        forest: Forest[Region] = Forest(FilterRelation(schema))
        subs: list[ClientSubscription] = []
        for each in self._visible(principal):
            if isinstance(each, int):
                yield ListStep(each)
            else:
                subs.append(each[1])
        progress.total = len(subs)
        rates: list[float] = []
        for number, sub in enumerate(subs):
            progress.seen += 1
            rates.append(self._matcher.rate(sub.slot, self._journal.at))
            wanted = self._parse(sub.text)
            if not is_empty(wanted, schema):
                forest.add(wanted, number)
            yield ListStep(_PLACED)
        self._orders += 1
        order = self._kept_orders[self._orders] = LocalOrder(forest, self._orders, rates)
        if len(self._kept_orders) > _MOST_ORDERS:
            del self._kept_orders[next(iter(self._kept_orders))]
        yield from self._level(order, forest.roots, ListProgress())

    @staticmethod
    def _level(order: LocalOrder, nodes: Iterable[Node[Region]], progress: ListProgress) -> Iterator[ListStep]:
        level = [*nodes]
        progress.total = len(level)
        for node in level:
            progress.seen += 1
            text, below = shortened(str(node.thing), MOST_TEXT), len(node.children)
            holders, rate = len(node.interfaces), order.rate(node)
            yield ListStep(_ROW, OrderNode(order.number(node), text, holders, below, node.size, rate))

    # -- the broker ---------------------------------------------------------------------------------------

    def summary(self) -> BrokerSummary:
        """This broker in short. Cost: O(links)."""
        end = self._journal.end
        links = [each.status(end) for _, each in sorted(self._links.neighbours.items())[:_MOST_LINKS]]
        facts = [
            LinkFacts(each.peer, each.role, each.connected, each.warm, each.lag, shortened(each.reason, _SHOWN))
            for each in links
        ]
        sessions = self._sessions
        return BrokerSummary(
            self._links.reach.name,
            "",
            len(sessions.by_id),
            sum(sessions.logins.values()),
            len(self._matcher),
            self._journal.first,
            end,
            self._matcher.table.model,
            tuple(facts),
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _relationship(form: NormalForm, other: NormalForm, schema: Schema | None) -> Relationship | None:
    """What a subscription's form (`other`) is to a filter's; None if they have no event in common."""
    wider, narrower = covers(other, form, schema), covers(form, other, schema)
    if wider and narrower:
        return "equal"
    if wider:
        return "covers"
    if narrower:
        return "covered"
    return "overlaps" if overlaps(form, other, schema) else None
