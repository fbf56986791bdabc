"""A simulated client: an application that runs one process of the client library after another under one name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from weft.broker.limits import ClientLimits
from weft.broker.rules import Right
from weft.client.effects import Replied
from weft.client.subscription import SubscriptionOptions
from weft.errors import WeftError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.protocol.addresses import Address
from weft.protocol.explanation import explanation_of
from weft.protocol.messages import Advertise, Answer, History, QueueNumber, SubNumber, Unadvertise
from weft.protocol.questions import FoundEvents, WhyReport, read_answer
from weftlab.faults.access_book import AccessBook
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.client_process import ClientProcess, DeadLetterQuery, PublishedHere, WantedSubscription
from weftlab.faults.client_watch import FINAL, SHARE, SHARED, ClientWatch
from weftlab.faults.plan import Terms
from weftlab.faults.rude_peer import RudePeer
from weftlab.faults.shape import EVEN
from weftlab.faults.trace import Actor
from weftlab.faults.views import ClientViews, LossyView, QueueView
from weftlab.faults.violation import require

SHARED_QUEUE = QueueNumber(SHARED)
COMMON = SubNumber(901)  # the subscription whose queue others of the same client may use
_AGAIN = 20_000  # microseconds until a process that has ended is followed by another, at most


@dataclass(eq=False)
class SimClient(Actor):
    """A client of one broker, with a name; if it is anonymous, its session ends with its connection."""

    broker: BrokerProcess
    shared: QueueView  # what all consumers of its shared queue have seen
    book: AccessBook
    terms: Terms
    limits: ClientLimits
    principal: str
    anonymous: bool
    maps: bool  # it maps its events itself

    def __post_init__(self) -> None:
        self.oracle = self.broker.oracle
        self.views = ClientViews(self.principal)
        self.watch = ClientWatch(self)
        self.adverts = Advertisements(self)
        self.wanted: dict[SubNumber, WantedSubscription] = {}
        self.nacks = 0.0  # the part of the deliveries that the application cannot handle
        self.acking = True
        self.name_lost = False  # an older process has taken the session back
        self.rude = RudePeer(self)
        self.process = ClientProcess(self)
        self.connections = count(1)  # their numbers

    def reach(self, address: Address) -> BrokerProcess:  # noqa: ARG002
        """The broker at this address, which is one of its broker's."""
        return self.broker

    # -- what the application does ---------------------------------------------------------------------

    def publish(self, *events: tuple[str, dict[str, object]], durable: bool = True, **how: Any) -> None:
        """Publish events together; those that are not durable only if it is connected."""
        connection = self.process.connection
        if events and (not connection.is_over if durable else connection.is_welcome):
            now = self.book.now
            granting = self.adverts.granting if not how.get("odd") else lambda _: frozenset[int]()
            made = [PublishedHere(uid, event, now, granting(event), durable=durable, **how) for uid, event in events]
            self.process.publish(made)

    def subscribe(
        self, number: SubNumber, filter: str, options: SubscriptionOptions, queue: QueueNumber | None = None
    ) -> None:
        """Subscribe, in a queue of its own or that of another subscription."""
        wanted = WantedSubscription(filter, options, QueueNumber(number) if queue is None else queue)
        self.wanted[number] = wanted
        self.process.subscribe(number, wanted)

    def unsubscribe(self, number: SubNumber) -> None:
        """End a subscription, after those that use its queue."""
        wanted = self.wanted.get(number)
        if wanted is None or wanted.ending:
            return
        for guest, other in self.wanted.items():
            if other.queue == QueueNumber(number) and guest != number:
                self.unsubscribe(guest)
        wanted.ending = True
        self.process.ask(number, "unsubscribe")

    def look_for_dead(self, queue: QueueNumber, action: str, of: SimClient | None = None) -> None:
        """List dead letters of this session or another one; those that come are retried or dropped."""
        share = SHARE if queue == SHARED_QUEUE and of is None else ""
        view = (self if of is None else of).views.queues[queue]
        self.process.ask_dead(DeadLetterQuery(queue, "" if of is None else of.name, share, view, action))

    def leave(self, *, forget: bool = False) -> None:
        """Say goodbye and come back later. With `forget` the session is removed."""
        if self.process.connection.is_welcome and not (forget and self.anonymous):
            self.watch.forgetting = self.watch.forgetting or forget
            self.trace.count("op: goodbye, forget" if forget else "op: goodbye")
            self.process.close(forget=forget)

    def take_over(self) -> None:
        """Another process begins under the same name, while the first one hangs."""
        old = self.process
        if not self.anonymous and old.connection.id is not None and self.broker.core is not None:
            self.trace.count("fault: take-over")
            old.connection.is_retired = True
            self._begin_process()

    def _begin_process(self) -> None:
        """Go on with what the application wants."""
        self.process = ClientProcess(self)
        for number, wanted in self.wanted.items():
            self.process.subscribe(number, wanted)
        self.adverts.begin_process()

    def mend(self) -> None:
        """No more trouble: acknowledge, read and stay connected."""
        self.nacks, self.acking = 0.0, True
        self.process.connection.trap = ""
        self.process.connection.resume()

    def unfinished(self, *, network: bool) -> Iterator[str]:
        """What it waits for or lacks, and what should have ended, in a sentence each."""
        process, views = self.process, self.views
        if not process.connection.is_welcome or process.connection.is_cut:
            yield f"{self.name} is away"
        waiting = [*process.waiting.values(), *(what for what, _ in process.queries.values())]
        if waiting:
            yield f"{self.name} waits for answers to {waiting}"
        if process.unconfirmed or not process.session.is_settled:
            yield f"{self.name} waits for {len(process.unconfirmed)} confirmations"
        if self.rude.opened:
            yield f"{self.name} waits for refusals of {[*self.rude.opened.values()]}"
        states = process.session.subscriptions
        lacking = [number for number in self.wanted if number not in states]
        if lacking or len(states) > len(self.wanted):
            yield f"{self.name} wants subscriptions {[*self.wanted]}, and has {[*states]}"
        incomplete = [number for number, state in states.items() if not state.is_complete]
        if incomplete:
            yield f"{self.name} does not know that subscriptions {incomplete} are complete"
        connection = process.connection.id
        utc = max(self.broker.now.utc, self.broker.latest)  # what has expired once is not required
        for queue, view in views.queues.items():
            unanswered = {} if connection is None else view.unanswered.get(connection, {})
            if unanswered:
                yield f"{self.name} has not answered deliveries {sorted(unanswered)} of queue {queue}"
            missing = self.oracle.missing(views.subs_of(queue, durable=True), view, utc)
            if missing:
                first = f"first {self.oracle.history[missing[0]].uid} at {missing[0]}"
                yield f"{self.name} queue {queue} lacks {len(missing)} events, {first}"
        for queue in sorted({sub.queue for sub in views.subs.values() if not sub.durable}):
            view_once, subs = views.lossy.get(queue, LossyView()), views.subs_of(queue, durable=False)
            lost = self.oracle.lost_once(subs, view_once, self.principal)
            if lost:
                yield f"{self.name} queue {queue}, which is not durable, lacks {lost} events"
        live = {number: sub for number, sub in views.subs.items() if not sub.ended}
        for number, sub in live.items():
            filters = [str(version.filter) for version in sub.latest]
            if all(False in self.book.covers(self.principal, each) for each in filters):
                yield f"{self.name} has subscription {number}, and the rules do not allow {' or '.join(filters)}"
        for number, sub in live.items():
            if network and sub.completed < len(sub.versions) - 1:
                yield f"{self.name} does not know that subscription {number} is complete"

    # -- what becomes of it ----------------------------------------------------------------------------

    def refused(self, event: PublishedHere, code: str) -> None:
        """Check the refusal of an event. One for which there was no room is published again."""
        uid = event.uid
        what = f"{self.name}: {uid} was refused: {code}"
        require(uid not in self.oracle.offsets or uid in self.oracle.repeats, f"{what}, and it is stored")
        if code == "access":
            forbidden = False in self.book.allows(self.principal, event.attributes, event.rules)
            require(forbidden, f"{what}; the rules allow it")
        elif code == "advertisement":
            granted = event.granted & self.adverts.granted.keys()
            require(not granted and not self.views.may_publish(event.attributes), f"{what}; it was advertised")
        elif code == "full":
            self.soon(_AGAIN, lambda: self.publish((uid, event.attributes), ttl=event.ttl, odd=event.odd))
        else:
            require(code == "event" and event.odd, what)

    def ended(self, number: SubNumber) -> None:
        """A subscription is over; so are those that use its queue."""
        self.wanted.pop(number, None)
        for guest in [guest for guest, other in self.wanted.items() if other.queue == QueueNumber(number)]:
            self.unsubscribe(guest)

    def explained(self, event: dict[str, object], notice: Replied) -> None:
        """Where an event would go: here, and to subscriptions that match it."""
        self.check_right(notice)
        if notice.code:
            return
        assert isinstance(notice.answer, bytes)
        (hop,) = explanation_of(notice.answer).hops
        require(len(hop.subscriptions) <= hop.matched, f"{hop.matched} subscriptions match, and more are listed")
        for sub in hop.subscriptions:
            right = matches(parse(sub.filter, EVEN), event)  # type: ignore[arg-type]
            require(right, f"{self.name}: {sub.filter} is said to match {event}")

    def past(self, first: int, filter: str, notice: Replied) -> None:
        """Past events are those that are stored and match, in order."""
        self.check_right(notice, "history", filter)
        answer: object = notice.answer
        if isinstance(answer, Answer):
            answer = read_answer(answer.body)
        if isinstance(answer, History | FoundEvents):
            stored = (
                offset for offset in range(max(first, answer.oldest), answer.next) if offset in self.oracle.history
            )
            wanted, history = parse(filter, EVEN), self.oracle.history
            right = [each for each in stored if matches(wanted, history[each].attributes)]  # type: ignore[arg-type]
            found = [event.offset for event in answer.events]
            require(found == right, f"{self.name}: {filter} has matched {right} from {first} on, and {found} are sent")

    def told_why(self, notice: Replied) -> None:
        """Whoever asks about a session of its own is answered; every finding says what to do."""
        require(notice.code in ("", "leaving"), f"{self.name}: {notice.code}, {notice.reason}")
        if isinstance(notice.answer, Answer):
            report = read_answer(notice.answer.body)
            require(isinstance(report, WhyReport), f"{self.name}: {type(report).__name__} is no report")
            assert isinstance(report, WhyReport)
            for finding in report.findings:
                self.trace.count(f"why: {finding.cause}")
                require(bool(finding.evidence and finding.advice), f"{self.name}: {finding} says too little")

    def check_right(self, notice: Replied, right: Right = "status", filter: str = "FALSE") -> None:
        """A request that needs a right, or one to events, is refused only to clients without it."""
        lacks = self.book.lacks(self.principal, right, 0) or False in self.book.covers(self.principal, filter, 0)
        refused = notice.code == "access" and lacks
        excused = notice.code in ("", "leaving", "busy")  # an earlier answer may wait on a connection that is not read
        require(excused or refused, f"{self.name}: {notice.code}, {notice.reason}")

    def over(self, process: ClientProcess, error: WeftError) -> None:
        """Check the final end of a process. If no other has taken over, another one follows."""
        self.trace.count(f"op: process over, {type(error).__name__}")
        if process is not self.process:
            return
        old = "epoch" in str(error) and not self.name_lost
        require(not old, f"{self.name}: {error}, and nobody else uses the name")
        expected = process.is_leaving or not process.was_ready or process.connection.is_sent_away
        expected = expected or process.connection.was_moved
        require(expected, f"{self.name} gives up, and the broker wants it: {error}")
        if process.session.is_forgotten:
            self.wanted = {number: each for number, each in self.wanted.items() if number == SHARED}
        self.soon(_AGAIN, lambda: self._follow(process))

    def _follow(self, process: ClientProcess) -> None:
        if self.process is process:
            self._begin_process()


class Advertisements:
    """What the application of a client advertises, over all its processes."""

    def __init__(self, client: SimClient) -> None:
        self.granted: dict[int, Filter] = {}  # of this process, and not taken back: no event within them is refused
        self._wanted: dict[int, str] = {}
        self._client = client

    def granting(self, attributes: dict[str, object]) -> frozenset[int]:
        """Which of them promise an event."""
        return frozenset(number for number, each in self.granted.items() if matches(each, attributes))  # type: ignore[arg-type]

    def are_wanted(self, attributes: dict[str, object]) -> bool:
        """Whether the application has advertised an event, perhaps without the broker's knowing yet."""
        return any(matches(parse(text, EVEN), attributes) for text in self._wanted.values())  # type: ignore[arg-type]

    def advertise(self, number: int, text: str = "TRUE") -> None:
        """Promise to publish only what a filter matches."""
        self._client.views.promises.append(parse(text, EVEN))
        self._wanted[number] = text
        self._ask(Advertise(number, text))

    def unadvertise(self, number: int) -> None:
        """Take the promise back, unless an event that depends on it may be on its way."""
        advert, process = self._client.views.adverts.get(number), self._client.process
        if advert is not None and advert.in_force and not process.unconfirmed and process.connection.is_welcome:
            self._wanted.pop(number, None)
            self.granted.pop(number, None)
            self._ask(Unadvertise(number))

    def begin_process(self) -> None:
        """Another process of the application begins."""
        self.granted.clear()
        for number, text in self._wanted.items():
            self._ask(Advertise(number, text))

    def _ask(self, message: Advertise | Unadvertise) -> None:
        self._client.process.advertise(message, partial(self._answered, message))

    def _answered(self, message: Advertise | Unadvertise, notice: Replied) -> None:
        """The broker has answered a request. One that it could not grant at the time is made again."""
        if notice.code in (*FINAL, "table"):
            self._wanted.pop(message.number, None)
        elif notice.code:
            self._client.soon(_AGAIN, partial(self._again, message, self._client.process))
        elif isinstance(message, Advertise) and message.number in self._wanted:
            self.granted[message.number] = parse(message.filter, EVEN)

    def _again(self, message: Advertise | Unadvertise, process: ClientProcess) -> None:
        if self._client.process is process and (message.number in self._wanted) is isinstance(message, Advertise):
            self._ask(message)
