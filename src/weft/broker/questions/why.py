"""Why a subscription gets nothing, or less than expected: a finding for each cause, with fact, evidence and advice.

The broker of the subscription leads. It checks, in this order: whether the session is known and connected; whether any
event can match the filter, by itself and by the attributes that recent events have; the access rules; advertisements;
whether every neighbour knows the subscription, and can be reached; whether an event has matched in the last hour, here
or at another broker; and the state of its queue. Other brokers say what their recent events have in common with the
filter. A finding that another one explains is left out: without any, nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from weft.algebra.relate import is_empty, overlaps
from weft.broker.admission import read_head
from weft.broker.effects import Now
from weft.broker.ingest import Ingest
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.questions.contents import Contents
from weft.broker.queue import Queue
from weft.broker.sessions import ClientSubscription, Session
from weft.broker.transient_queue import TransientQueue
from weft.errors import AccessError, FilterError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.lint.filter_lint import lint_filters
from weft.lint.lint_report import LintKind
from weft.lint.seen_attributes import SeenAttributes
from weft.log.base import Offset
from weft.model.event import Event
from weft.model.value import Type, from_micros, type_of
from weft.protocol.messages import SubNumber
from weft.protocol.questions import AskMatches, AskWhy, Finding, MatchCount, RecentMatches, SubscriptionFacts, WhyReport
from weft.routing.table import About

HOUR = 3_600  # seconds
_MOST_SUBSCRIPTIONS = 8  # of a session, without a number
_MOST_WORK = 2_000  # of testing recent events; about microseconds
_MOST_EVENTS = 200  # that are tested
_MOST_SEARCHED = 20_000  # sessions or shared names
_MOST_NAMES = 200  # attributes that are told of
_MOST_ADVERTS = 200  # that are compared with a filter
_MOST_PROFILES = 200  # the same
_EVENT = 5  # work of reading an event; a test adds some for each piece of a filter
_PIECE = 50  # characters
_MOST_TEXT = 8_192  # characters of a filter that other brokers are sent
_MOST_LISTED = 10  # names in a sentence
_SHOWN = 100  # characters of a filter in a sentence
_EARLIER = frozenset(  # causes that explain why nothing matches
    {"never-true", "unknown-attribute", "unlike-types", "rules", "no-advertiser", "incomplete", "unreachable"}
)


@dataclass(slots=True)
class WhyDraft:
    """What one broker has found; the others are asked for `matches`, if that is not None."""

    name: str
    number: int | None
    rows: list[tuple[SubscriptionFacts, Filter | None]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # their filters
    findings: list[Finding] = field(default_factory=list)
    quiet: list[int] = field(default_factory=list)  # positions of rows that have matched nothing in the last hour
    matches: AskMatches | None = None
    own: RecentMatches = field(default_factory=lambda: RecentMatches(0))
    known: bool = True


class WhyFindings:
    """Finds causes in the parts of a broker; it changes nothing."""

    def __init__(self, parts: BrokerParts, links: Links, contents: Contents, ingest: Ingest) -> None:
        self._sessions, self._queues, self._matcher = parts.sessions, parts.queues, parts.matcher
        self._access, self._journal, self._recent, self._parse = parts.access, parts.journal, parts.recent, parts.parse
        self._completion, self._neighbours = parts.completion, parts.neighbours
        self._links, self._contents, self._advertised = links, contents, ingest.is_advertised

    # -- this broker ----------------------------------------------------------------------------------------

    def draft(self, principal: str, question: AskWhy, now: Now) -> WhyDraft:
        """What this broker knows. Cost: O(1) for a subscription, and that of testing a bounded number of events."""
        draft = WhyDraft(question.session, question.number)
        session = self._sessions.by_name.get(question.session)
        if session is not None and not (session.owner == principal or self._contents.sees_all(principal)):
            session = None
        subs: list[tuple[Session | None, ClientSubscription]] = []
        if session is not None:
            subs = [(session, sub) for sub in islice(session.subs.values(), _MOST_SUBSCRIPTIONS)]
            if question.number is not None:
                one = session.subs.get(SubNumber(question.number))
                subs = [] if one is None else [(session, one)]
            self._ended(draft, session, bool(subs))
        else:
            subs = [(None, member) for member in self._shared(principal, question.session)]
            draft.known = bool(subs)
        for each in subs:
            self._subscription(draft, *each, now)
        filters = [draft.texts[at] for at in draft.quiet]
        if draft.quiet or not draft.known:
            since = max(0, self._journal.at - HOUR * 1_000_000)
            draft.matches = AskMatches(tuple(filters), since, "" if draft.known else draft.name)
            draft.own = self.recent_matches(principal, draft.matches)
        return draft

    def _shared(self, principal: str, name: str) -> Iterator[ClientSubscription]:
        own = self._queues.shared.get((principal, name))
        if own is not None or not self._contents.sees_all(principal):
            return iter(() if own is None else (self._queues.shared_members[own],))
        every = islice(self._queues.shared.items(), _MOST_SEARCHED)
        return (self._queues.shared_members[queue] for (_, share), queue in every if share == name)

    def _ended(self, draft: WhyDraft, session: Session, has_any: bool) -> None:
        """Subscriptions that are not there any more, or never were."""
        ended = {**session.revoked, **session.ended}
        numbers = ended if draft.number is None else [SubNumber(draft.number)]
        gone = [number for number in numbers if number in ended and number not in session.subs]
        for number in gone:
            fact, advice = f"subscription {number} was ended by the broker", "subscribe to what your access rules allow"
            draft.findings.append(Finding("rules", fact, _short(ended[number], 500), advice, number, session.name))
        if not gone and not has_any:
            which = "no subscription" if draft.number is None else f"no subscription {draft.number}"
            known = ", ".join(map(str, islice(session.subs, 10))) or "none"
            advice = "subscribe, or check the number"
            fact = f"the session {session.name!r} has {which}"
            draft.findings.append(
                Finding("no-subscription", fact, f"its subscriptions: {known}", advice, 0, session.name)
            )

    def _subscription(self, draft: WhyDraft, session: Session | None, sub: ClientSubscription, now: Now) -> None:
        facts = self._contents.subscription(session, sub)
        about = draft.findings, facts
        wanted: Filter | None
        try:
            wanted = self._parse(sub.text)
        except FilterError:  # a predicate that is no longer there
            wanted = None
        draft.rows.append((facts, wanted))
        draft.texts.append(sub.text)
        if not facts.connected:
            fact = "nobody is connected who would receive its events"
            evidence = f"{facts.behind:,} of its events wait" if facts.durable else "it is not durable"
            _add(*about, "away", fact, evidence, f"start the client that subscribes as {draft.name!r}")
        if wanted is not None:
            if is_empty(wanted, self._matcher.table.schema):
                fact, evidence = "no event can match its filter", _short(facts.filter)
                _add(*about, "never-true", fact, evidence, "correct the filter; `weft filter lint` shows why")
            try:
                self._access.of(facts.owner).check_subscribe(wanted)
            except AccessError as error:
                advice = "ask the broker's operator for a rule, or subscribe to less"
                _add(*about, "rules", "its access rules do not allow its filter", str(error), advice)
            self._no_advertiser(*about, wanted)
        if session is not None:
            self._incomplete(*about, session, sub)
        self._queue(*about, sub, now)
        shown = self._shown_profiles(*about, sub)
        is_quiet = self._journal.at // 1_000_000 - facts.matched_at > HOUR and not shown
        if is_quiet and wanted is not None and len(sub.text) <= _MOST_TEXT:
            draft.quiet.append(len(draft.rows) - 1)

    def _no_advertiser(self, findings: list[Finding], facts: SubscriptionFacts, wanted: Filter) -> None:
        if not self._advertised:
            return
        table, schema = self._matcher.table, self._matcher.table.schema
        sessions = islice(self._sessions.by_id.values(), _MOST_SEARCHED)
        texts = (text for session in sessions if session.adverts for _, text in session.adverts.values())
        promised = [self._parse(text) for text in islice(texts, _MOST_ADVERTS)]
        for peer in self._neighbours:
            promised += islice(table.heard(peer, About.ADVERTISEMENTS).values(), _MOST_ADVERTS)  # type: ignore[arg-type]
        unsure = len(promised) >= _MOST_ADVERTS or len(self._sessions.by_id) > _MOST_SEARCHED
        if unsure or any(overlaps(wanted, each, schema) for each in promised):
            return
        fact = "no publisher advertises anything that its filter matches"
        evidence = f"{len(promised):,} advertisements are known here, and none overlaps {_short(facts.filter)}"
        _add(findings, facts, "no-advertiser", fact, evidence, "let a publisher advertise it, or correct the filter")

    def _incomplete(
        self, findings: list[Finding], facts: SubscriptionFacts, session: Session, sub: ClientSubscription
    ) -> None:
        awaited = self._completion.awaited(session, sub.number)
        if not awaited:
            return
        states = []
        for peer in awaited:
            neighbour = self._neighbours.get(peer)  # type: ignore[call-overload]
            if neighbour is not None and neighbour.connection is None:
                states.append(
                    f"the link to {peer} is down{f' ({_short(neighbour.reason)})' if neighbour.reason else ''}"
                )
            else:
                states.append(f"{peer} has not confirmed it yet")
        fact = f"not every broker knows the subscription: it waits for {', '.join(awaited[:_MOST_LISTED])}"
        advice = f"start {awaited[0]}, or repair the link to it; if it is gone for good, detach it"
        _add(findings, facts, "incomplete", fact, "; ".join(states[:_MOST_LISTED]), advice)

    def _shown_profiles(self, findings: list[Finding], facts: SubscriptionFacts, sub: ClientSubscription) -> int:
        """How many profiles a subscription is shown, and why it is shown none."""
        known = self._contents.profiles.facts(sub, _MOST_PROFILES)
        if known is None:
            return 0
        if self._links.without_profiles:
            fact = "profiles do not pass to every neighbour"
            advice = "update that broker"
            _add(findings, facts, "older-neighbour", fact, _short(self._links.without_profiles), advice)
        if not known.shown and known.complete:
            fact = f"it is shown profiles by {sub.profiles}, and meets no living profile"
            evidence = f"{known.living:,} living profiles are known here"
            advice = "publish one, or look at those that there are: `weft profiles list`"
            if known.near:
                evidence += f", and {known.near:,} of them overlap its filter without lying within it"
                advice = 'subscribe with profiles="overlap", or with a wider filter'
            _add(findings, facts, "no-profile", fact, evidence, advice)
        return known.shown

    def _queue(self, findings: list[Finding], facts: SubscriptionFacts, sub: ClientSubscription, now: Now) -> None:
        """The state of the queue: the first of the causes that stop it, and dead letters and other consumers."""
        queue, about = sub.queue, (findings, facts)
        if isinstance(queue, TransientQueue):
            if queue.connection.paused:
                fact = "its client does not read what it is sent"
                evidence = f"{len(queue.held):,} events are held for it, and {queue.dropped:,} were dropped"
                _add(*about, "not-reading", fact, evidence, "let the client take its events, or take more at a time")
            return
        assert isinstance(queue, Queue)
        connections = [self._sessions.connections[each.connection] for each in queue.windows]
        full = [each for each in queue.windows if not each.has_room]
        waiting = queue.unsent + len(queue.returned)
        if queue.gap is not None:
            first, end = queue.gap
            fact = "its queue was too far behind, and its oldest events were dropped"
            evidence = (
                f"events from offset {first:,} to {end - 1:,} are lost to it; it may be {queue.lag:,} events behind"
            )
            _add(*about, "queue-full", fact, evidence, "let the client keep up, or subscribe with a larger lag=")
        elif connections and all(each.paused for each in connections):
            evidence = f"{waiting:,} events wait for its connection to have room"
            advice = "let the client take its events, or take more at a time"
            _add(*about, "not-reading", "its client does not read what it is sent", evidence, advice)
        elif full and len(full) == len(queue.windows) and waiting:
            count = sum(each.count for each in full)
            fact = "its client has not acknowledged what it was sent, and gets no more before it does"
            evidence = f"{count:,} deliveries are not acknowledged, and {waiting:,} more events wait"
            _add(*about, "window-full", fact, evidence, "acknowledge events when they are handled: `await event.ack()`")
        elif queue.is_held(now.monotonic):
            failed = ", ".join(str(each) for each in sorted(queue.held_by)[:5])
            fact = "an event that the client could not handle holds back those behind it"
            evidence = f"offset {failed} failed, and is delivered again soon; {waiting:,} events wait"
            _add(*about, "held", fact, evidence, "handle the event, or subscribe with ordered=False")
        elif connections and waiting:
            fact, evidence = "its queue is behind, and is being delivered", f"{waiting:,} events wait"
            _add(*about, "behind", fact, evidence, "wait, or add consumers with shared=True")
        dead = self._journal.log.dead(queue.consumer_id, Offset(0), 100)
        if dead:
            many = f"{len(dead)}{' or more' if len(dead) == 100 else ''}"
            fact = f"{many} of its events failed too often, and are dead letters"
            evidence = f"the first is offset {dead[0].offset:,}: {_short(dead[0].reason) or 'no reason was given'}"
            advice = f"`weft dead list {facts.share or facts.session}`"
            _add(*about, "dead-letters", fact, evidence, advice)
        if queue.share and len(connections) > 1:
            sessions = [each.session for each in connections]
            every = sorted({each.name or "one without a name" for each in sessions if each is not None})
            names = ", ".join(map(_short, every[:_MOST_LISTED])) + ("" if len(every) <= _MOST_LISTED else " and others")
            fact = f"{len(connections)} consumers share it, and each event goes to one of them"
            _add(*about, "shared", fact, f"consumers: {names}", "use a name of your own to get every event")

    # -- recent events --------------------------------------------------------------------------------------

    def recent_matches(self, principal: str, question: AskMatches) -> RecentMatches:
        """What the last events of this broker say about filters, and those that may be read about attributes.

        Cost: bounded.
        """
        grant = self._access.of(principal)
        filters: list[Filter | None] = []
        for text in question.filters:
            try:
                filters.append(self._parse(text))
            except FilterError:
                filters.append(None)
        each = _EVENT + sum(_EVENT + len(text) // _PIECE * _EVENT for text in question.filters)
        most = min(_MOST_EVENTS, max(1, _MOST_WORK // each))
        tested, types = 0, dict[str, set[str]]()
        counts = [MatchCount() for _ in filters]
        for at, head in self._last(most):
            if at < question.since:
                continue
            tested += 1
            attributes = read_head(head).attributes
            for name, value in attributes.items() if grant.may_read(attributes) else ():
                kind = type_of(value)
                if kind is not None and (name in types or len(types) < _MOST_NAMES):
                    types.setdefault(name, set()).add(kind.value)
            event = Event(attributes)
            for place, wanted in enumerate(filters):
                if wanted is not None and matches(wanted, event):
                    counts[place] = MatchCount(counts[place].matched + 1, max(counts[place].newest, at))
        kinds = {name: tuple(sorted(each)) for name, each in types.items()}
        has_session = bool(question.session) and question.session in self._sessions.by_name
        return RecentMatches(tested, tuple(counts), kinds, has_session)

    def _last(self, most: int) -> Iterator[tuple[int, bytes]]:
        """The times and heads of the last events: from memory, or from the log after a restart."""
        journal = self._journal
        first = Offset(max(journal.first, journal.end - most))
        if first >= self._recent.first:
            for batch in self._recent.since(first):
                for place in range(max(0, first - batch.first), len(batch)):
                    yield batch.at, batch.heads[place]
            return
        for group in journal.log.read(first, most):
            for head in group.events.heads:
                yield group.at, head

    # -- all brokers ----------------------------------------------------------------------------------------

    def report(self, draft: WhyDraft, others: Mapping[str, RecentMatches | str]) -> WhyReport:
        """The findings, with what other brokers have said; a text is why one has said nothing."""
        findings = draft.findings
        told = {name: each for name, each in others.items() if isinstance(each, RecentMatches)}
        silent = sorted(each for each in others.values() if isinstance(each, str))
        if not draft.known:
            having = sorted(name for name, each in told.items() if each.session)
            fact = f"there is no session or shared subscription {draft.name!r} here"
            elsewhere = f"nor at the {len(told):,} other brokers that answered" if told else "no other broker was asked"
            evidence = f"{', '.join(having)} has one" if having else elsewhere
            advice = f"ask that broker: --at {having[0]}" if having else "check the name; `weft sessions` lists them"
            return WhyReport((), (Finding("unknown-session", fact, evidence, advice, 0, draft.name),))
        every = {self._links.reach.name or "this broker": draft.own, **told}
        for place, at in enumerate(draft.quiet):
            facts, wanted = draft.rows[at]
            counted = {name: (each, _at(each, place)) for name, each in every.items()}
            assert wanted is not None
            self._quiet(findings, facts, wanted, counted, silent)
        return WhyReport(tuple(facts for facts, _ in draft.rows), tuple(findings))

    def _quiet(
        self,
        findings: list[Finding],
        facts: SubscriptionFacts,
        wanted: Filter,
        every: Mapping[str, tuple[RecentMatches, MatchCount]],
        silent: list[str],
    ) -> None:
        """Nothing has matched in the last hour: why?"""
        causes = {each.cause for each in findings if (each.session, each.number) == _key(facts)}
        matched = {name: count for name, (_, count) in every.items() if count.matched}
        if matched:
            newest = max(matched.items(), key=lambda each: each[1].newest)
            parts = [f"{name} has {count.matched:,}" for name, count in sorted(matched.items())]
            fact = "events that match were stored, but none since the subscription began"
            evidence = f"{', '.join(parts[:_MOST_LISTED])}; the newest is of {_time(newest[1].newest)}"
            _add(findings, facts, "too-early", fact, evidence, "subscribe with since=, or use `weft search`")
            return
        if "never-true" not in causes:
            causes |= self._lint(findings, facts, wanted, [each for each, _ in every.values()])
        if silent and "incomplete" not in causes:
            fact = "not every broker can be reached; events that are published there wait"
            evidence = "; ".join(map(_short, silent[:_MOST_LISTED]))
            _add(findings, facts, "unreachable", fact, evidence, "start the broker, or repair the link to it")
            return
        if not causes & _EARLIER:
            tested = sum(each.tested for each, _ in every.values())
            fact = "no event of the last hour matches its filter"
            evidence = f"{tested:,} recent events of {len(every):,} brokers were tested with {_short(facts.filter)}"
            advice = "publish one, or try the filter with `weft explain EVENT --for NAME`"
            _add(findings, facts, "unmatched", fact, evidence, advice)

    def _lint(
        self, findings: list[Finding], facts: SubscriptionFacts, wanted: Filter, recent: list[RecentMatches]
    ) -> set[str]:
        """Names and types that no recent event has, and the schema does not have either."""
        schema, tested = self._matcher.table.schema, sum(each.tested for each in recent)
        types: dict[str, frozenset[Type]] = {}
        for each in recent:
            for name, kinds in each.types.items():
                types[name] = types.get(name, frozenset()) | frozenset(Type(kind) for kind in kinds if kind in _TYPES)
        if schema is None and not types:
            return set()
        report = lint_filters([(facts.session, wanted)], schema, SeenAttributes(types) if types else None)
        causes = set()
        for kind, cause in ((LintKind.UNKNOWN_ATTRIBUTE, "unknown-attribute"), (LintKind.UNLIKE_TYPES, "unlike-types")):
            for found in report.of(kind):
                name = _short(found.attribute or "")
                fact = f"its filter tests {name!r}, which no recent event has"
                if cause == "unlike-types":
                    fact = f"its filter compares {name!r} with another type than events have"
                evidence = f"{_short(found.message, 500)}; {tested:,} recent events were looked at"
                _add(findings, facts, cause, fact, evidence, "correct the filter, or the publisher")
                causes.add(cause)
        return causes


_TYPES = frozenset(kind.value for kind in Type)


def _key(facts: SubscriptionFacts) -> tuple[str, int]:
    return facts.session or facts.share, facts.number


def _add(  # noqa: PLR0913, PLR0917 - the fields of a finding
    findings: list[Finding], facts: SubscriptionFacts, cause: str, fact: str, evidence: str, advice: str
) -> None:
    session, number = _key(facts)
    findings.append(Finding(cause, fact, evidence, advice, number, session))


def _at(recent: RecentMatches, place: int) -> MatchCount:
    return recent.counts[place] if place < len(recent.counts) else MatchCount()


def _short(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _time(micros: int) -> str:
    at: datetime = from_micros(micros)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
