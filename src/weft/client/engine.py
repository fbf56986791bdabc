"""What the two faces of a client share: its sessions, its subscriptions, and what waits for them.

The engine is called from the application's threads, and does its work in the network thread. Whatever waits when the
client ends is told so, and what waits to be confirmed is bounded.

A client has one session for everything without a name of its own. A subscription with a name is a session itself, with
its own connection: it may live at another broker, and whoever uses the name next takes it over.

A call that waits more than once is a coroutine. The blocking and the asynchronous client run the same ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count, islice
from random import random
from typing import Any, cast
from uuid import uuid4

from weft.client.connection import NetworkThread, SessionDriver, Waiter, acquire, finish_all, release, wake
from weft.client.connection_state import ConnectionStates
from weft.client.effects import Answered, Arrived, Ended, Lost, Missed, MoveEnded, Notice, Ready, Replied, Stored
from weft.client.event_mapping import warm_up
from weft.client.events import Publishable, Receipt, outgoing
from weft.client.publisher import NotStored, UnconfirmedEvent
from weft.client.session import MOVED, ClientSession, ConnectionPolicy
from weft.client.subscription import SubscriptionOptions
from weft.client.subscription_handle import (
    NAMED,
    Label,
    LabelledFilter,
    MessageOf,
    SubscriptionHandle,
    labelled_numbers,
    refusal,
)
from weft.errors import (
    BrokerError,
    ClientClosedError,
    ConnectError,
    EventError,
    OptionError,
    PublishError,
    RequestError,
    WeftError,
)
from weft.protocol.addresses import Address
from weft.protocol.messages import SubNumber

MOST_UNCONFIRMED = 20_000  # events that may wait to be confirmed
MOST_UNCONFIRMED_BYTES = 32 << 20
_TEMPORARY = 60  # seconds that the broker keeps the session of a subscription without a name
_FAIR = 64  # events after which other tasks get a turn


class Confirmation(Waiter):
    """The outcome of events that were published together. `total` is how many; None while there may be more."""

    __slots__ = ("codes", "log", "offset", "refused", "stored", "total")

    def __init__(self, loop: asyncio.AbstractEventLoop | None, total: int | None = 1) -> None:
        super().__init__(loop)
        self.total = total
        self.stored = self.offset = 0  # how many, and where the last one is in the log
        self.log = ""  # the id of that log, if that is known
        self.refused: dict[int, str] = {}  # the reason, by position
        self.codes: dict[int, str] = {}

    @property
    def receipt(self) -> Receipt:
        """Where a single event is stored."""
        return Receipt(self.log, self.offset)


class ClientEngine:
    """One client, whatever its face. `loop` is where the application waits; None for threads that block."""

    def __init__(  # noqa: PLR0913 - the options of a client
        self,
        policy: ConnectionPolicy,
        name: str = "",
        *,
        expires: int = 0,
        map_events: bool = False,
        most_events: int = MOST_UNCONFIRMED,
        most_bytes: int = MOST_UNCONFIRMED_BYTES,
    ) -> None:
        self.name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self._most_events, self._most_bytes = most_events, most_bytes
        self._policy, self._expires, self._map_events = policy, expires, map_events
        self._network: NetworkThread | None = None
        self._main: SessionDriver | None = None
        self._drivers: set[SessionDriver] = set()
        self._handles: dict[SessionDriver, dict[SubNumber, SubscriptionHandle]] = {}  # by the number of their queue
        self._filters: dict[SessionDriver, dict[SubNumber, SubscriptionHandle]] = {}  # by the numbers of their filters
        self._numbers = count(NAMED + 1)
        self._lock = threading.Lock()
        self._waiting = self._waiting_bytes = 0
        self._room: list[Waiter] = []
        self._opening: list[Waiter] = []
        self._asked: dict[Waiter, None] = {}  # requests that one message answers
        self._closing: list[Waiter] = []
        self._moving: dict[SessionDriver, Waiter] = {}
        self._is_numbered: bool | None = None  # whether the application numbers its events; None before the first
        self._error: WeftError | None = None  # why it is over
        self.states = ConnectionStates(name)
        self.log_id, self.connections = "", 0  # of the main session: the broker's log, and how often it was ready

    # -- life ------------------------------------------------------------------------------------------------

    def open(self, loop: asyncio.AbstractEventLoop | None = None) -> Waiter:
        """Connect; the waiter is finished when the client is welcome."""
        if self._main is not None or self._error is not None:
            raise ClientClosedError("a client can connect only once; create a new one")
        self.loop = loop
        if self._map_events:
            warm_up()
        self._network = acquire()
        waiter = Waiter(loop)
        self._opening.append(waiter)
        self._main = self._driver(self.name)
        self._network.loop.call_soon_threadsafe(self._main.start)
        return waiter

    def _driver(self, name: str, expires: int | None = None) -> SessionDriver:
        assert self._network is not None
        expires = self._expires if expires is None else expires
        maps = self._map_events and self._main is None  # the main session publishes
        session = ClientSession(name, self._policy, draw=random, expires=expires, map_events=maps)
        driver = SessionDriver(session, self._network, self._handle, self._ended, self._failed)
        with self._lock:
            self._drivers.add(driver)
            self._handles[driver], self._filters[driver] = {}, {}
        return driver

    def close(self) -> Waiter:
        """Send Goodbye; the waiter is finished when everything is gone, and `finish` must follow."""
        waiter = Waiter(self.loop)
        with self._lock:
            network = self._network
            over = network is None or not self._drivers
            if not over:
                self._closing.append(waiter)
            self._error = self._error or ClientClosedError("the client is closed")
        if network is None or over:
            finish_all([waiter])
        else:
            network.loop.call_soon_threadsafe(self._close_all)
        return waiter

    def _close_all(self) -> None:
        for driver in list(self._drivers):
            handles = self._handles.get(driver, {})
            for handle in list(handles.values()):
                handle.settle()
            forget = any(each.temporary for each in handles.values())
            driver.close(forget)

    def finish(self) -> None:
        """Let the network thread go."""
        with self._lock:
            network, self._network = self._network, None
        if network is not None:
            release(network)

    @property
    def address(self) -> str:
        """The address of the broker."""
        return "" if self._main is None or self._main.session.address is None else str(self._main.session.address)

    @property
    def shown(self) -> str:
        """Its name and state, for `repr`."""
        return f" {self.name!r}: {self.states.current}" if self.name else f": {self.states.current}"

    def late(self, what: str, timeout: float | None) -> str:
        """What has not happened in time, and what the client is doing meanwhile."""
        return f"{what} within {timeout:g} s; the client is {self.states.current}"

    @property
    def broker(self) -> str:
        """The name of the broker; empty if it has none."""
        return "" if self._main is None else self._main.session.home

    async def name_at(self, address: Address) -> str:
        """The name of the broker at another address, to which it connects for a moment. Raises ConnectError."""
        async with self._visit(address) as other:
            return other.broker

    @asynccontextmanager
    async def _visit(self, address: Address) -> AsyncIterator[ClientEngine]:
        """A client of the broker at another address, for a moment. Raises ConnectError."""
        self._open_main()
        other = ClientEngine(replace(self._policy, addresses=(address,)))
        try:
            await other.open(self.loop)
            yield other
        finally:
            await other.close()
            other.finish()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._error is not None

    def _open_main(self) -> SessionDriver:
        """The driver of the main session. Raises why there is none."""
        if self._error is not None or self._main is None:
            raise self._error or ClientClosedError("the client is not connected; use it in a with block")
        return self._main

    # -- publishing ------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether more may be published now."""
        return self._waiting < self._most_events and self._waiting_bytes < self._most_bytes

    def wait_for_room(self) -> Waiter:
        """Finished when there is room."""
        waiter = Waiter(self.loop)
        with self._lock:
            if not self.has_room() and self._error is None:
                self._room.append(waiter)
                return waiter
        finish_all([waiter], error=self._error)
        return waiter

    def publish(self, event: UnconfirmedEvent, outcome: Confirmation, position: int = 0, durable: bool = True) -> None:
        """Publish an event, after all others. Its outcome is known when each of the outcome's events is."""
        main = self._main
        if self._error is not None or main is None:
            main = self._open_main()
        event.receipt, event.position = outcome, position
        with self._lock:
            self._waiting += 1
            self._waiting_bytes += len(event.attributes) + len(event.payload)
        session = main.session
        main.post(session.publisher.add if durable else session.publish_transient, (event,))

    def publish_one(self, event: UnconfirmedEvent, durable: bool) -> Confirmation:
        """Publish an event; there must be room."""
        if durable and self._is_numbered is not False:
            self._numbered(False)
        outcome = Confirmation(self.loop)
        self.publish(event, outcome, 0, durable)
        return outcome

    async def publish_many(self, events: Iterable[Publishable], durable: bool, ttl: float | timedelta | None) -> int:
        """Publish many events, in their order; returns how many are stored."""
        if durable:
            self._numbered(False)
        return await self._publish_from(0, events, durable, ttl)

    async def publish_epoch(self, epoch: int, events: Iterable[Publishable]) -> int:
        """Publish the events of an epoch of the application's; returns how many are new to the broker."""
        main = self._open_main()
        if not self.name:
            raise OptionError("only a client with a name publishes epochs; pass name= to connect")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 < epoch < 1 << 63:
            raise OptionError(f"an epoch is an integer above 0, not {epoch!r}")
        self._numbered(True)
        waiter = Waiter(self.loop)
        main.post(self._begin_epoch, epoch, waiter)
        stored = await waiter
        if stored is None:
            return 0
        return await self._publish_from(stored, islice(events, stored, None), True, None)

    def _begin_epoch(self, epoch: int, waiter: Waiter) -> None:
        assert self._main is not None
        try:
            stored = None if self._error is not None else self._main.session.publisher.begin(epoch)
        except LookupError as error:
            finish_all([waiter], error=OptionError(f"epoch {epoch} cannot be published now: {error}"))
        else:
            finish_all([waiter], stored, self._error)

    def _numbered(self, numbered: bool) -> None:
        if self._is_numbered is None:
            self._is_numbered = numbered
        elif self._is_numbered is not numbered:
            raise OptionError("a client publishes either epochs or single events; use two clients with two names")

    async def _publish_from(
        self, position: int, events: Iterable[Publishable], durable: bool, ttl: float | timedelta | None
    ) -> int:
        main, invalid = self._open_main(), None
        outcome, first = Confirmation(self.loop, None), position
        try:
            for event in events:
                if not position % _FAIR:
                    await asyncio.sleep(0)
                while not self.has_room():
                    await self.wait_for_room()
                self.publish(outgoing(event, None, "", ttl), outcome, position, durable)
                position += 1
        except EventError as error:
            invalid = error.at(position)
        main.post(self._no_more, outcome, position - first)
        stored: int = await outcome
        if invalid is not None:
            raise invalid
        return stored

    def _no_more(self, outcome: Confirmation, total: int) -> None:
        outcome.total = total
        self._settle({outcome: None}, [])

    def _settle(self, outcomes: dict[Confirmation, None], events: list[UnconfirmedEvent]) -> None:
        """Some events have their answers: finish outcomes that have all of theirs, and make room."""
        done: list[Waiter] = []
        size = 0
        for outcome in outcomes:
            settled = outcome.stored + len(outcome.refused) == outcome.total
            if settled and outcome.finish(outcome.stored, _refusal(outcome) if outcome.refused else None):
                done.append(outcome)
        for event in events:
            size += len(event.attributes) + len(event.payload)
        with self._lock:
            self._waiting -= len(events)
            self._waiting_bytes -= size
            if self._room and self.has_room():
                room, self._room = self._room, []
                done += [waiter for waiter in room if waiter.finish()]
        wake(done)

    # -- moving ----------------------------------------------------------------------------------------------

    async def move(self, address: Address, patience: float | None, abandon: float | None) -> None:
        """Move every session of this client to another broker. Raises why one of them could not be moved."""
        self._open_main()
        with self._lock:
            drivers = [each for each, handles in self._handles.items() if not _is_shared(handles)]
            waiters = {each: Waiter(self.loop) for each in drivers}
            if self._moving:
                raise OptionError("this client is moving already; wait until it has")
            self._moving.update(waiters)
        self._policy = replace(self._policy, addresses=(address, *self._policy.addresses))
        for driver in drivers:
            driver.post(self._move, driver, address, patience, abandon)
        failures: list[WeftError] = []
        for waiter in waiters.values():
            try:
                await waiter
            except WeftError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _move(self, driver: SessionDriver, address: Address, patience: float | None, abandon: float | None) -> None:
        """Without a name, everything is confirmed first: another broker would not know what is stored."""
        session = driver.session
        if not session.name and not session.is_settled and session.error is None:
            driver.later(partial(self._move, driver, address, patience, abandon))
        else:
            driver.move(address, patience, abandon)

    def _moved(self, driver: SessionDriver, error: WeftError | None) -> None:
        with self._lock:
            waiter = self._moving.pop(driver, None)
            if error is not None and driver is self._main:
                self._policy = replace(self._policy, addresses=self._policy.addresses[1:])
        if waiter is not None:
            finish_all([waiter], error=error)

    # -- requests --------------------------------------------------------------------------------------------

    def request(self, message_of: MessageOf) -> Waiter:
        """Make a request that one message answers."""
        waiter = Waiter(self.loop)
        self._open_main().post(self._request, message_of, waiter)
        return waiter

    async def request_at_home(self, message_of: MessageOf) -> Any:
        """Make a request about a name; if another worker of the broker has that, ask that worker."""
        try:
            return await self.request(message_of)
        except RequestError as error:
            if error.code != MOVED:
                raise
            address = Address.parse(error.message.rpartition(" ")[2])
        here = self._open_main().session.address
        if here is not None and here.tls and not address.tls:
            raise ConnectError(f"{here} redirects to {address}, which is not encrypted")
        async with self._visit(address) as other:
            return await other.request(message_of)

    @staticmethod
    def request_token() -> int:
        """A number that no other request has: the broker knows by it that one is repeated."""
        return (uuid4().int >> 65) | 1

    def _request(self, message_of: MessageOf, waiter: Waiter) -> None:
        assert self._main is not None
        self._asked[waiter] = None
        self._main.session.request(message_of, waiter)

    # -- subscriptions ---------------------------------------------------------------------------------------

    def subscribe(self, name: str, options: SubscriptionOptions, *, is_many: bool = False) -> SubscriptionHandle:
        """A subscription, of one filter or of several; it begins when it holds them."""
        driver, number = self._open_main(), NAMED
        if not options.durable:
            number = SubNumber(next(self._numbers))
        elif options.share:
            driver = self._driver("")
        elif not name:
            driver = self._driver(f"temporary-{uuid4().hex}", expires=_TEMPORARY)
        else:
            driver = self._named(name, options.expires or None)
        handle = SubscriptionHandle(driver, number, name, options, self.loop, self._filters[driver], is_many)
        with self._lock:
            self._handles[driver][number] = handle
        return handle

    def hold(self, handle: SubscriptionHandle, texts: Mapping[Label, str]) -> Waiter:
        """Let a subscription have these filters and no others; finished when the broker has answered."""
        with self._lock:
            if not handle.is_many:
                numbers = dict.fromkeys(texts, handle.number)
            elif handle.own:
                numbers = labelled_numbers(texts, handle.numbers)
            else:
                numbers = {label: handle.numbers.get(label) or SubNumber(next(self._numbers)) for label in texts}
            handle.numbers = numbers
        some = enumerate(texts.items())
        return handle.hold({numbers[label]: LabelledFilter(at, label, text) for at, (label, text) in some})

    def _named(self, name: str, expires: int | None) -> SessionDriver:
        """The driver of a session of this name. Raises OptionError if the client uses the name."""
        with self._lock:
            every = [each for handles in self._handles.values() for each in handles.values()]
        same = [each for each in every if each.name == name and not each.options.share]
        if not all(each.is_leaving for each in same):
            raise OptionError(f"this client is already subscribed as {name!r}; use that subscription, or another name")
        if name == self.name:
            raise OptionError(f"the client itself is known as {name!r}; give the subscription another name")
        driver = self._driver(name, expires)
        driver.after = same[-1].driver.session if same else None
        return driver

    # -- in the network thread -------------------------------------------------------------------------------

    def _handle(self, driver: SessionDriver, notices: list[Notice]) -> None:
        outcomes: dict[Confirmation, None] = {}
        settled: list[UnconfirmedEvent] = []
        handles = self._handles.get(driver, {})
        for notice in notices:
            kind = type(notice)
            if kind is Arrived:
                handle = handles.get(notice.number)  # type: ignore[union-attr]
                if handle is not None:
                    handle.inbox.put(notice.messages)  # type: ignore[union-attr]
            elif kind is Stored:
                _confirm(notice.events, outcomes, self.log_id)  # type: ignore[union-attr]
                settled += notice.events  # type: ignore[union-attr]
            elif isinstance(notice, NotStored):
                self._refuse(notice, outcomes)
                settled += notice.events
            elif isinstance(notice, Ready):
                if driver is self._main:
                    self.log_id = notice.welcome.log_id
                    self.connections += 1
                    self.states.connected(self.address)
                    finish_all(self._opening)
            elif isinstance(notice, MoveEnded):
                self._moved(driver, notice.error)
            elif isinstance(notice, Lost):
                if driver is self._main and self._error is None:
                    self.states.lost(self.address)
                for each in handles.values():
                    each.inbox.lost()
            elif isinstance(notice, Replied):
                self._replied(notice, handles)
            elif isinstance(notice, (Answered, Ended, Missed)):
                handle = (handles if kind is Missed else self._filters.get(driver, {})).get(notice.number)
                if handle is not None:
                    handle.handle(notice)
                    if handle.is_over:
                        self._drop(driver, handle)
        if outcomes:
            self._settle(outcomes, settled)

    def _replied(self, notice: Replied, handles: dict[SubNumber, SubscriptionHandle]) -> None:
        waiter = notice.request.waiter
        assert isinstance(waiter, Waiter)
        self._asked.pop(waiter, None)
        if notice.request.number in handles:
            handles[notice.request.number].replied(waiter)
        finish_all([waiter], notice.answer, refusal(notice.code, notice.reason))

    def _refuse(self, notice: NotStored, outcomes: dict[Confirmation, None]) -> None:
        for event in notice.events:
            outcome = event.receipt
            assert isinstance(outcome, Confirmation)
            outcome.refused[event.position] = notice.reason
            outcome.codes[event.position] = notice.code
            outcomes[outcome] = None

    def _drop(self, driver: SessionDriver, handle: SubscriptionHandle) -> None:
        with self._lock:
            self._handles.get(driver, {}).pop(handle.number, None)
        if handle.own:
            driver.close()

    def _ended(self, driver: SessionDriver, error: WeftError) -> None:
        """A session is over. This may be called again, for what was asked too late."""
        with self._lock:
            self._drivers.discard(driver)
            handles, _ = self._handles.pop(driver, {}), self._filters.pop(driver, None)
            main = driver is self._main
            if main:
                self._error = self._error or error
        for handle in handles.values():
            handle.over(error)
        self._moved(driver, error)
        if main:
            self.states.over(error, isinstance(error, ClientClosedError))
            self._abandon(driver, error)
            for other in list(self._drivers):
                other.close()
        with self._lock:
            closing = [] if self._drivers else self._closing
        finish_all(closing)

    def _failed(self, driver: SessionDriver, address: Address, error: WeftError) -> None:
        """An address was not reached."""
        if driver is self._main:
            self.states.failed(str(address), error)

    def _abandon(self, driver: SessionDriver, error: WeftError) -> None:
        """Finish everything that waits for the main session."""
        outcomes = cast("list[Confirmation]", [event.receipt for event in driver.session.abandon()])
        finish_all(outcomes, error=BrokerError(f"it is unknown whether the event is stored: {error}"))
        waiting, self._asked, self._room = [*self._asked, *self._room, *self._opening], {}, []
        finish_all(waiting, error=error)


def _is_shared(handles: dict[SubNumber, SubscriptionHandle]) -> bool:
    """Whether a session consumes a shared queue, which belongs to its broker."""
    return any(each.options.share for each in handles.values())


def _confirm(events: Sequence[UnconfirmedEvent], outcomes: dict[Confirmation, None], log: str) -> None:
    last: Confirmation | None = None
    for event in events:
        outcome: Confirmation = event.receipt  # type: ignore[assignment]
        outcome.stored += 1
        if event.offset:
            outcome.log, outcome.offset = log, event.offset
        if outcome is not last:
            outcomes[outcome] = None
            last = outcome


def _refusal(outcome: Confirmation) -> PublishError:
    first = min(outcome.refused)
    position = None if outcome.total == 1 else first  # one event needs no "event 0" in the sentence
    return PublishError(outcome.refused[first], outcome.codes[first], position, outcome.refused)
