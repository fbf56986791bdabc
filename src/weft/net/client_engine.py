"""What the two faces of a client share: sessions, publishing, subscriptions. Laws: it is called from the application's
threads, and does its work in the network thread; whatever waits when the client ends is told so; what waits to be
confirmed is bounded.

A client has one session for everything without a name of its own. A subscription with a name is a session itself, with
its own connection: it may live at another broker, and whoever uses the name next takes it over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import uuid4

from weft.broker.explanation import explanation_of
from weft.broker.messages import DropDead, Explain, ListDead, QueueNumber, RetryDead, SubNumber
from weft.errors import BrokerError, ClientClosedError, OptionError, PublishError, RemoteProtocolError, WeftError
from weft.net.client_link import ClientLink, LinkOptions
from weft.net.client_notices import Answered, Arrived, Ended, Letters, Lost, Missed, Notice, Ready, Shown, Stored
from weft.net.client_session import ClientSession
from weft.net.client_subscription import SubscriptionOptions
from weft.net.network_thread import NetworkThread, acquire, release
from weft.net.open_requests import DeadRequest, ExplainRequest
from weft.net.publisher import NotStored, UnconfirmedEvent
from weft.net.subscription_handle import SubscriptionHandle, refusal
from weft.net.waiters import Receipt, Waiter, wake

NAMED = SubNumber(1)  # the subscription of a session that has its name from it
MOST_EVENTS = 20_000  # that may wait to be confirmed
MOST_BYTES = 32 << 20
_TEMPORARY = 60  # seconds that the broker keeps the session of a subscription without a name

_DEAD: dict[str, Any] = {"list": ListDead, "retry": RetryDead, "drop": DropDead}


class ClientEngine:
    """One client, whatever its face."""

    def __init__(  # noqa: PLR0913 - its bounds
        self,
        options: LinkOptions,
        name: str = "",
        *,
        expires: int = 0,
        patience: float = 5.0,
        most_events: int = MOST_EVENTS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.name = name
        self._most_events, self._most_bytes = most_events, most_bytes
        self.refused_loose = 0  # events that are not durable and that the broker refused
        self._options, self._expires, self._patience = options, expires, patience
        self._network: NetworkThread | None = None
        self._main: ClientLink | None = None
        self._links: set[ClientLink] = set()
        self._handles: dict[ClientLink, dict[SubNumber, SubscriptionHandle]] = {}
        self._numbers = count(NAMED + 1)
        self._lock = threading.Lock()
        self._waiting = self._waiting_bytes = 0
        self._room: list[Waiter] = []
        self._opening: Waiter | None = None
        self._asked: dict[Waiter, None] = {}  # requests that one message answers
        self._closing: list[Waiter] = []
        self._error: WeftError | None = None  # why it is over

    # -- life ------------------------------------------------------------------------------------------------

    def open(self, waiter: Waiter) -> None:
        """Connect; the waiter is finished when the client is welcome."""
        if self._main is not None or self._error is not None:
            raise ClientClosedError("a client can connect only once; create a new one")
        self._network = acquire()
        self._opening = waiter
        self._main = self._link(self.name)
        self._network.call(self._main.start)

    def _link(self, name: str, expires: int | None = None) -> ClientLink:
        assert self._network is not None
        session = ClientSession(name, expires=self._expires if expires is None else expires)
        link: ClientLink

        def handle(notices: list[Notice]) -> None:
            self._handle(link, notices)

        def ended(error: WeftError) -> None:
            self._ended(link, error)

        link = ClientLink(session, self._network, self._options, handle, ended)
        with self._lock:
            self._links.add(link)
            self._handles[link] = {}
        return link

    def close(self, waiter: Waiter) -> None:
        """Say goodbye; the waiter is finished when everything is gone, and `finish` must follow."""
        with self._lock:
            network = self._network
            over = network is None or not self._links
            if not over:
                self._closing.append(waiter)
            self._error = self._error or ClientClosedError("the client is closed")
        if over:
            waiter.finish()
            wake([waiter])
            return
        assert network is not None
        network.call(self._close_all)

    def _close_all(self) -> None:
        for link in list(self._links):
            handles = self._handles.get(link, {})
            for handle in list(handles.values()):
                handle.settle()
            forget = any(each.temporary for each in handles.values())
            link.close(self._patience, forget)

    def finish(self) -> None:
        """Let the network thread go."""
        with self._lock:
            network, self._network = self._network, None
        if network is not None:
            release(network)

    @property
    def error(self) -> WeftError | None:
        """Why the client is over; None while it is not."""
        return self._error

    @property
    def address(self) -> str:
        """The address of the broker."""
        return "" if self._main is None or self._main.address is None else str(self._main.address)

    # -- publishing ------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether more may be published now."""
        return self._waiting < self._most_events and self._waiting_bytes < self._most_bytes

    def wait_for_room(self, waiter: Waiter) -> None:
        """Finish the waiter when there is room."""
        with self._lock:
            if not self.has_room() and self._error is None:
                self._room.append(waiter)
                return
        waiter.finish(error=self._error)
        wake([waiter])

    def publish(self, event: UnconfirmedEvent, receipt: Receipt, position: int = 0, durable: bool = True) -> None:
        """Publish an event, after all others. The receipt is finished when each of its events is stored or refused."""
        main = self._main
        if self._error is not None or main is None:
            raise self._error or ClientClosedError("the client is not connected; use it in a with block")
        event.receipt, event.position = receipt, position
        with self._lock:
            self._waiting += 1
            self._waiting_bytes += len(event.attributes) + len(event.payload)
        session = main.session
        main.post(session.publish if durable else session.publish_loose, (event,))

    def publish_end(self, receipt: Receipt, total: int) -> None:
        """No more events follow under this receipt."""
        assert self._main is not None
        self._main.post(self._no_more, receipt, total)

    def _no_more(self, receipt: Receipt, total: int) -> None:
        receipt.total = total
        done: list[Waiter] = []
        self._settle({receipt: None}, [], done)
        wake(done)

    def _settle(self, receipts: dict[Receipt, None], events: list[UnconfirmedEvent], done: list[Waiter]) -> None:
        """Some events have their answers: finish receipts that have all of theirs, and make room."""
        done += [each for each in receipts if each.is_settled and each.finish(each.stored, _refusal(each))]
        if not events:
            return
        size = sum([len(each.attributes) + len(each.payload) for each in events])
        with self._lock:
            self._waiting -= len(events)
            self._waiting_bytes -= size
            if self._room and self.has_room():
                room, self._room = self._room, []
                done += [waiter for waiter in room if waiter.finish()]

    # -- subscriptions ---------------------------------------------------------------------------------------

    def subscribe(self, filter: str, name: str, options: SubscriptionOptions) -> SubscriptionHandle:
        """A subscription; it begins with `begin`."""
        main = self._main
        if self._error is not None or main is None:
            raise self._error or ClientClosedError("the client is not connected; use it in a with block")
        if not options.durable:
            return self._handle_of(main, SubNumber(next(self._numbers)), filter, name, options)
        if options.share:
            return self._handle_of(self._link(""), NAMED, filter, name, options)
        if not name:
            link = self._link(f"temporary-{uuid4().hex}", expires=_TEMPORARY)
            return self._handle_of(link, NAMED, filter, name, options, temporary=True)
        with self._lock:
            every = [each for handles in self._handles.values() for each in handles.values()]
        same = [each for each in every if each.name == name and not each.options.share]
        if not all(each.is_leaving for each in same):
            raise OptionError(f"this client is already subscribed as {name!r}; use that subscription, or another name")
        if name == self.name:
            raise OptionError(f"the client itself is known as {name!r}; give the subscription another name")
        link = self._link(name)
        link.after = same[-1].link if same else None
        return self._handle_of(link, NAMED, filter, name, options)

    def _handle_of(  # noqa: PLR0913 - the parts of a subscription
        self,
        link: ClientLink,
        number: SubNumber,
        filter: str,
        name: str,
        options: SubscriptionOptions,
        *,
        temporary: bool = False,
    ) -> SubscriptionHandle:
        handle = SubscriptionHandle(
            link,
            number,
            filter,
            name,
            options,
            own=link is not self._main,
            temporary=temporary,
            patience=self._patience,
        )
        with self._lock:
            self._handles[link][number] = handle
        return handle

    # -- dead letters ----------------------------------------------------------------------------------------

    def dead(self, what: str, name: str, shared: bool, waiter: Waiter, **options: Any) -> None:
        """Ask about dead letters of a named subscription, which may be somebody else's: list, retry or drop."""
        if self._error is not None or self._main is None:
            raise self._error or ClientClosedError("the client is not connected; use it in a with block")
        self._main.post(self._dead, what, name, shared, waiter, options)

    def _dead(self, what: str, name: str, shared: bool, waiter: Waiter, options: dict[str, Any]) -> None:
        assert self._main is not None
        dead, kind = self._main.session.dead, _DEAD[what]
        number = dead.number()
        place = {"share": name} if shared else {"session": name}
        dead.add(DeadRequest(kind(number, QueueNumber(NAMED), **options, **place), SubNumber(0), waiter))
        self._asked[waiter] = None

    # -- where an event goes ---------------------------------------------------------------------------------

    def explain(self, event: UnconfirmedEvent, waiter: Waiter) -> None:
        """Ask where an event would go."""
        if self._error is not None or self._main is None:
            raise self._error or ClientClosedError("the client is not connected; use it in a with block")
        self._main.post(self._explain, event, waiter)

    def _explain(self, event: UnconfirmedEvent, waiter: Waiter) -> None:
        assert self._main is not None
        asked = self._main.session.explained
        asked.add(ExplainRequest(Explain(asked.number(), event.attributes), waiter))
        self._asked[waiter] = None

    # -- in the network thread -------------------------------------------------------------------------------

    def _handle(self, link: ClientLink, notices: list[Notice]) -> None:
        done: list[Waiter] = []
        receipts: dict[Receipt, None] = {}
        settled: list[UnconfirmedEvent] = []
        handles = self._handles.get(link, {})
        for notice in notices:
            kind = type(notice)
            if kind is Arrived:
                handle = handles.get(notice.number)  # type: ignore[union-attr]
                if handle is not None:
                    handle.inbox.put(notice.messages)  # type: ignore[union-attr]
            elif kind is Stored:
                _confirm(notice.events, receipts)  # type: ignore[union-attr]
                settled += notice.events  # type: ignore[union-attr]
            elif isinstance(notice, NotStored):
                self._refuse(notice, receipts)
                settled += notice.events
            elif isinstance(notice, Ready):
                if link is self._main and self._opening is not None:
                    opening, self._opening = self._opening, None
                    done += [opening] if opening.finish() else []
            elif isinstance(notice, Lost):
                for each in handles.values():
                    each.inbox.lost()
            elif isinstance(notice, Letters):
                handle = handles.get(notice.request.number)
                done += handle.letters(notice) if handle is not None else self._letters(notice)
            elif isinstance(notice, Shown):
                done += self._shown(notice)
            elif isinstance(notice, (Answered, Ended, Missed)):
                handle = handles.get(notice.number)
                if handle is not None:
                    done += handle.handle(notice)
                    if handle.is_over:
                        self._drop(link, handle)
        if receipts:
            self._settle(receipts, settled, done)
        wake(done)

    def _letters(self, notice: Letters) -> list[Waiter]:
        waiter = notice.request.waiter
        assert isinstance(waiter, Waiter)
        self._asked.pop(waiter, None)
        waiter.finish(notice.answer, refusal(notice.code, notice.reason) if notice.code else None)
        return [waiter]

    def _shown(self, notice: Shown) -> list[Waiter]:
        waiter = notice.request.waiter
        assert isinstance(waiter, Waiter)
        self._asked.pop(waiter, None)
        try:
            error = refusal(notice.code, notice.reason) if notice.code else None
            waiter.finish(None if error else explanation_of(notice.body), error)
        except RemoteProtocolError as unread:
            waiter.finish(error=unread)
        return [waiter]

    def _refuse(self, notice: NotStored, receipts: dict[Receipt, None]) -> None:
        if not notice.events:
            self.refused_loose += 1
        for event in notice.events:
            receipt = event.receipt
            assert isinstance(receipt, Receipt)
            receipt.refused[event.position] = notice.reason
            receipt.codes[event.position] = notice.code
            receipts[receipt] = None

    def _drop(self, link: ClientLink, handle: SubscriptionHandle) -> None:
        with self._lock:
            self._handles.get(link, {}).pop(handle.number, None)
        if handle.own:
            link.close(self._patience)

    def _ended(self, link: ClientLink, error: WeftError) -> None:
        """A link is over. It may be told again, for what was asked too late."""
        with self._lock:
            self._links.discard(link)
            handles = self._handles.pop(link, {})
            main, room = link is self._main, []
            if main:
                self._error = self._error or error
                room, self._room = self._room, []
        done: list[Waiter] = [waiter for waiter in room if waiter.finish(error=error)]
        for handle in handles.values():
            done += handle.over(error)
        if main:
            done += self._abandon(link, error)
            for other in list(self._links):
                other.close(self._patience)
        with self._lock:
            closed: list[Waiter] = []
            if not self._links:
                closed, self._closing = self._closing, []
        done += [waiter for waiter in closed if waiter.finish()]
        wake(done)

    def _abandon(self, link: ClientLink, error: WeftError) -> list[Waiter]:
        """Everything that waits for the main session."""
        asked, self._asked = self._asked, {}
        waiting: dict[Waiter, None] = {}
        for event in link.session.abandon():
            assert isinstance(event.receipt, Receipt)
            waiting[event.receipt] = None
        unknown = BrokerError(f"it is unknown whether the event is stored: {error}")
        done = [waiter for waiter in waiting if waiter.finish(error=unknown)]
        done += [waiter for waiter in asked if waiter.finish(error=error)]
        opening, self._opening = self._opening, None
        if opening is not None and opening.finish(error=error):
            done.append(opening)
        return done


def _confirm(events: Sequence[UnconfirmedEvent], receipts: dict[Receipt, None]) -> None:
    last: Receipt | None = None
    for event in events:
        receipt: Receipt = event.receipt  # type: ignore[assignment]
        receipt.stored += 1
        if receipt is not last:
            receipts[receipt] = None
            last = receipt


def _refusal(receipt: Receipt) -> PublishError | None:
    if not receipt.refused:
        return None
    first = min(receipt.refused)
    position = None if receipt.total == 1 else first  # one event needs no "event 0" in the sentence
    return PublishError(receipt.refused[first], receipt.codes[first], position, receipt.refused)
