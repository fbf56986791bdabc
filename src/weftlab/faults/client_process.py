"""A process that uses the client library: one session, the application that publishes and consumes, and its laws.

- Every request is answered once: granted, refused, or over with its subscription.
- Every published event is confirmed or refused once; what is confirmed is stored, and what is refused is not.
- Nothing that the application has acknowledged is shown to it again.
- An ordered queue is shown in order; only what failed or was not acknowledged on a lost connection comes again.
- A subscription ends only if the application ended it, or the broker did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.client import effects
from weft.client.effects import QueryMessage, Replied, SessionEffect
from weft.client.publisher import NotStored, UnconfirmedEvent
from weft.client.session import ClientSession
from weft.client.subscription import LOG_SPAN, SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.client.subscription_handle import Inbox
from weft.errors import WeftError
from weft.log.base import Offset
from weft.protocol import messages as protocol
from weft.protocol.messages import Advertise, DeadDone, DeadLetters, Deliver, QueueNumber, SubNumber, Unadvertise
from weft.protocol.questions import AskWhy, SearchEvents, encode_body
from weftlab.faults.client_connection import ClientConnection, policy_of
from weftlab.faults.client_watch import FINAL
from weftlab.faults.trace import shown
from weftlab.faults.views import QueueView
from weftlab.faults.violation import require

if TYPE_CHECKING:
    from weftlab.faults.client import SimClient

_NONE = SubNumber(0)  # no subscription of this session
_THINK = 6_000  # microseconds between a delivery and its acknowledgement, at most
_SETTLE = 5_000  # that acknowledgements wait for others, at most
_LOOK = 2_000  # until the application looks into its inbox, at most
_AGAIN = 20_000  # until a request that failed is made again, at most
_PATIENCE = 50_000  # that a session which is closed waits for answers
_MOST = 1 << 40  # events or bytes that an inbox holds
_WINDOW = 1  # so small that acknowledgements wait until others are stored


class WantedSubscription(msgspec.Struct):
    """A subscription that the application wants, over all its processes."""

    filter: str
    options: SubscriptionOptions
    queue: QueueNumber
    ending: bool = False  # the application has asked for its end


class SubscriptionWaiter(NamedTuple):
    """Waits for the answer to a request about a subscription."""

    id: int
    number: SubNumber
    about: str
    filter: str


class DeadLetterQuery(NamedTuple):
    """Asks for the dead letters of a queue; says what is to be done with them."""

    queue: QueueNumber
    session: str
    share: str
    view: QueueView
    action: str  # list, retry or drop


class PublishedHere(msgspec.Struct, frozen=True):
    """An event that the application has published, and the access rules of that time."""

    uid: str
    attributes: dict[str, object]
    rules: int
    granted: frozenset[int] = frozenset()  # the advertisements that promised it
    ttl: int = 0
    durable: bool = True
    odd: bool = False  # no broker accepts it


class ClientProcess:
    """One session of a client and the application that uses it."""

    is_leaving = False  # the application has closed the session
    was_ready = False

    def __init__(self, client: SimClient) -> None:
        name = "" if client.anonymous else client.name
        self.session = ClientSession(
            name, policy_of(client), draw=client.rng.random, expires=client.terms.keep, map_events=client.maps
        )
        self.consumers: dict[SubNumber, Consumer] = {}
        self.unconfirmed: dict[int, PublishedHere] = {}  # events without an answer, by the id of their receipt
        self.waiting: dict[int, SubscriptionWaiter] = {}  # requests about subscriptions without an answer
        self.queries: dict[int, tuple[str, Callable[[Replied], None]]] = {}  # other requests, and who takes the answers
        self._ids = count(1)
        self._client = client
        self.connection = ClientConnection(client, self)

    # -- what the application does ---------------------------------------------------------------------

    def publish(self, events: Sequence[PublishedHere]) -> None:
        """Publish events together."""
        made = []
        for event in events:
            receipt = next(self._ids)
            self.unconfirmed[receipt] = event
            attributes = msgspec.Raw(msgspec.msgpack.encode(event.attributes))
            made.append(UnconfirmedEvent(attributes, event.uid.encode(), ttl=event.ttl, receipt=receipt))
        if events[0].durable:
            self.session.publisher.add(made)
        else:
            self.session.publish_transient(made)
        self.connection.flush()

    def subscribe(self, number: SubNumber, wanted: WantedSubscription) -> None:
        """Subscribe, or go on with a subscription that the broker may have."""
        queue, token = wanted.queue, self.session.token
        state = SubscriptionState(number, wanted.options, window=_WINDOW, token=token, queue=queue)
        if queue == QueueNumber(number):
            self.consumers[number] = Consumer(self._client, self, state)
        self.session.subscribe(state, self._request(number, "subscribe", wanted.filter))
        self.connection.flush()
        if wanted.ending:
            self.ask(number, "unsubscribe")

    def ask(self, number: SubNumber, about: str, filter: str = "") -> None:
        """Replace a filter, or end a subscription."""
        if number in self.session.subscriptions:
            self.session.ask(number, self._request(number, about, filter))
            self.connection.flush()

    def _request(self, number: SubNumber, about: str, filter: str) -> SubscriptionRequest:
        waiter = SubscriptionWaiter(next(self._ids), number, about, filter)
        self.waiting[waiter.id] = waiter
        return SubscriptionRequest(about, filter, waiter)

    def ask_dead(self, query: DeadLetterQuery, offsets: tuple[Offset, ...] = ()) -> None:
        """List dead letters, or retry or drop these."""
        queue, session, share = query.queue, query.session, query.share

        def message_of(request: int) -> QueryMessage:
            if not offsets:
                return protocol.ListDead(request, queue, session=session, share=share)
            do = protocol.RetryDead if query.action == "retry" else protocol.DropDead
            return do(request, queue, offsets, session, share)

        self._query(message_of, partial(self._dead, query), _NONE if session else SubNumber(queue))

    def explain(self, event: dict[str, object]) -> None:
        """Ask where an event would go."""
        raw = msgspec.Raw(msgspec.msgpack.encode(event))
        self._query(lambda request: protocol.Explain(request, raw), partial(self._client.explained, event))

    def ask_status(self) -> None:
        """Ask for the broker's status, and why the subscriptions of this session get what they get."""
        self._query(lambda request: protocol.AskStatus(request, 5), self._client.check_right)
        why = encode_body(AskWhy(self.session.name))
        self._query(lambda request: protocol.Question(request, why), self._client.told_why)

    def ask_history(self, first: int, filter: str) -> None:
        """Ask for past events, in both ways."""
        then = partial(self._client.past, first, filter)
        self._query(lambda request: protocol.ReadHistory(request, Offset(first), filter=filter), then)
        search = encode_body(SearchEvents(filter, Offset(first)))
        self._query(lambda request: protocol.Question(request, search), then)

    def advertise(self, message: Advertise | Unadvertise, then: Callable[[Replied], None]) -> None:
        """Advertise, or take that back."""
        self._query(lambda _: message, then)

    def _query(
        self, message_of: Callable[[int], QueryMessage], then: Callable[[Replied], None], number: SubNumber = _NONE
    ) -> None:
        """Make a request that one message answers."""
        receipt = next(self._ids)
        self.queries[receipt] = shown(message_of(0)), then
        self.session.request(message_of, receipt, number)
        self.connection.flush()

    def close(self, *, forget: bool) -> None:
        """Leave in order."""
        self.is_leaving = True
        self.connection.perform(self.session.close(self._client.engine.now, _PATIENCE, forget))

    # -- what the session reports ----------------------------------------------------------------------

    def noticed(self, notice: SessionEffect) -> None:
        """Hold the session to its promises, and let the application act."""
        client = self._client
        match notice:
            case effects.Ready():
                self._ready(notice)
            case effects.Lost():
                for consumer in self.consumers.values():
                    consumer.lost()
            case effects.Stored(events):
                for event in map(self._settled, events):
                    known = not event.durable or event.uid in client.oracle.offsets
                    require(known, f"{client.name}: {event.uid} is confirmed, not stored")
            case NotStored(events):
                for event in map(self._settled, events):
                    client.refused(event, notice.code)
            case effects.Arrived(number, messages):
                if number in self.consumers:  # otherwise the subscriptions that share this queue are about to end
                    self.consumers[number].arrived(messages)
            case effects.Answered():
                self._answered(notice)
            case effects.Ended(number):
                client.watch.owed.discard(("its end", number))
                self._drop(number)
                if not self.connection.is_retired:
                    sub = client.views.subs.get(number)
                    right = sub is None or sub.ended or sub.doubtful
                    require(
                        right, f"{client.name}: subscription {number} is over ({notice.code}), and the broker has it"
                    )
                    client.ended(number)
            case effects.Missed(number, first, end):
                client.watch.owed.discard((f"that events {first} to {end} are lost to it", number))
                client.trace.count("missed" if end or notice.count else "missed: nobody knows what")
            case Replied():
                receipt, message = notice.request.waiter, notice.request.message
                require(receipt in self.queries, f"{client.name}: {message} is answered twice")
                self.queries.pop(receipt)[1](notice)  # type: ignore[call-overload]
            case effects.Closed():
                self.connection.is_sent_away |= notice.final

    def _ready(self, notice: effects.Ready) -> None:
        client, self.was_ready = self._client, True
        if self.connection.is_retired:
            client.name_lost = True  # it has stolen the name back
            client.soon(1, lambda: self.connection.perform(self.session.stop()))
            return
        if not notice.kept:  # nobody knows which of them are stored: they are sent again
            client.oracle.repeats |= {each.uid for each in self.unconfirmed.values() if each.durable}

    def _settled(self, event: UnconfirmedEvent) -> PublishedHere:
        assert isinstance(event.receipt, int)
        known = event.receipt in self.unconfirmed
        require(known, f"{self._client.name}: event {event.payload.decode()} is answered twice")
        return self.unconfirmed.pop(event.receipt)

    def _done(self, waiter: SubscriptionWaiter) -> None:
        known = self.waiting.pop(waiter.id, None)
        require(known is not None, f"{self._client.name}: {waiter.about} {waiter.number} is answered twice")

    def _answered(self, notice: effects.Answered) -> None:
        if notice.about == "complete":
            return
        waiter, number, client = notice.waiter, notice.number, self._client
        assert isinstance(waiter, SubscriptionWaiter)
        self._done(waiter)
        if not notice.code:
            if waiter.about == "replace":
                client.wanted[number].filter = waiter.filter
            return
        if waiter.about == "subscribe":
            self._drop(number)
            if notice.code in FINAL and not self.connection.is_retired:  # otherwise the process that follows asks again
                client.ended(number)
        if notice.code not in FINAL:
            client.soon(_AGAIN, lambda: self._again(waiter))

    def _again(self, waiter: SubscriptionWaiter) -> None:
        """Make a request again that the broker could not grant at the time."""
        wanted = self._client.wanted.get(waiter.number)
        if wanted is None or self._client.process is not self:
            return
        if waiter.about != "subscribe":
            self.ask(waiter.number, waiter.about, waiter.filter)
        elif waiter.number not in self.session.subscriptions:
            self.subscribe(waiter.number, wanted)

    def _drop(self, number: SubNumber) -> None:
        """A subscription is over, and with it all that was asked for after that."""
        consumer = self.consumers.pop(number, None)
        if consumer is not None:
            consumer.is_over = True
        for waiter in [each for each in self.waiting.values() if each.number == number]:
            self._done(waiter)

    def _dead(self, query: DeadLetterQuery, notice: Replied) -> None:
        """Dead letters come, to be retried or dropped as was planned; or they have been."""
        answer, client, view = notice.answer, self._client, query.view
        if isinstance(answer, DeadDone) and query.action == "drop":
            view.dropped |= set(answer.offsets)
        if not isinstance(answer, DeadLetters):
            return
        offsets = tuple(letter.offset for letter in answer.letters)
        client.trace.count("dead letters", len(offsets))
        for offset in offsets:
            require(offset in view.refused, f"{client.name}: dead letter {offset} never failed")
            require(offset not in view.dropped, f"{client.name}: dead letter {offset} is seen after it was removed")
        view.excused |= set(offsets)
        if offsets and query.action != "list" and client.process is self:
            client.trace.count(f"op: {query.action} dead")
            if query.action == "retry" and query.session:
                view.lent |= set(offsets)
            self.ask_dead(query, offsets)

    def over(self, error: WeftError) -> None:
        """The session has ended: what became of the rest is not known."""
        left = {event.receipt for event in self.session.abandon()}
        lost = {receipt: event.uid for receipt, event in self.unconfirmed.items() if receipt not in left}
        require(not lost, f"{self._client.name}: events {[*lost.values()]} have no answer, and are not given up")
        self.unconfirmed.clear()
        self.waiting.clear()
        self.queries.clear()
        self._client.over(self, error)


class Consumer:
    """What the application does with the events of one queue.

    The session gives offsets of one log after another, LOG_SPAN apart; the oracle knows the log's own.
    """

    def __init__(self, client: SimClient, process: ClientProcess, state: SubscriptionState) -> None:
        self.is_over = False
        self._client, self._process, self._state = client, process, state
        self._acked: set[int] = set()
        self._failed: dict[int, int] = {}  # when the last one that failed was shown
        self._count = 0  # of events that were shown
        self._last = 0  # the last event that was shown, in order
        self._settling = False
        self._ordered = ordered = state.options.ordered and not state.share
        self._inbox = Inbox(durable=state.durable, ordered=ordered, most=_MOST, most_bytes=_MOST, decided=self._decided)

    def arrived(self, messages: Sequence[Deliver]) -> None:
        """Events for the application."""
        self._inbox.put(messages)
        if self._client.rng.random() < 0.5:
            self._look()
        else:
            self._client.soon(_LOOK, self._look)

    def _look(self) -> None:
        """The application takes what is there."""
        while (message := self._inbox.pop()) is not None:
            if self._state.durable and message.offset:
                self._shown(message)

    def _shown(self, message: Deliver) -> None:
        offset, client = message.offset, self._client
        what = f"{client.name}: event {bytes(message.payload).decode()} at {offset % LOG_SPAN}"
        require(offset not in self._acked, f"{what} is shown after the application acknowledged it")
        if self._ordered and offset % LOG_SPAN not in client.oracle.dead:
            require(offset > self._last, f"{what} is shown after {self._last}")
            self._last = offset
        view = self._view
        if view is not None:
            self._count += 1
            at = self._count
            client.soon(_THINK, lambda: self._decide(message, at, view))

    @property
    def _view(self) -> QueueView | None:
        """What the oracle knows of the queue."""
        return self._client.views.queues.get(self._state.queue)

    def _decide(self, message: Deliver, at: int, view: QueueView) -> None:
        """The application acknowledges an event, or cannot handle it."""
        client, offset = self._client, message.offset
        if self.is_over or client.process is not self._process or offset in self._acked:
            return
        if at < self._failed.get(offset, 0):
            return  # it was shown again meanwhile, and has failed
        if not client.acking:
            client.engine.after(_THINK, lambda: self._decide(message, at, view))
        elif client.rng.random() < client.nacks:
            client.trace.count("op: nack")
            view.refused.add(offset % LOG_SPAN)
            self._failed[offset] = at
            self._last = min(self._last, offset - 1)
            self._inbox.nack(offset, message.attempt, "cannot handle it")
        else:
            view.acked.add(offset % LOG_SPAN)
            self._acked.add(offset)
            self._inbox.ack(offset)

    def _decided(self, urgent: bool) -> None:
        if urgent:
            self._settle()
        elif not self._settling:
            self._settling = True
            self._client.soon(_SETTLE, self._settle_later)

    def _settle_later(self) -> None:
        self._settling = False
        self._settle()

    def _settle(self) -> None:
        reader = self._process.session.readers.get(self._state.queue)
        self._inbox.settle(None if reader is None else reader.book)
        self._process.connection.flush()
        self._look()

    def lost(self) -> None:
        """The connection is gone: what was not acknowledged comes again."""
        self._inbox.lost()
        self._last = 0
