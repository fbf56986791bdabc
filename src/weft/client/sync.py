"""The client for programs without an event loop: the same calls as `weft.connect`, which block.

It promises what the client for asyncio promises; only the waiting differs. It may be used from several threads.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import update_wrapper
from inspect import signature
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar

from weft.client.async_subscription import Subscription, _Subscribed
from weft.client.client import Client, connect
from weft.client.connection import Reply, Waiter, run
from weft.client.connection_state import ConnectionState
from weft.client.dead_letters import DeadLetterQueue
from weft.client.engine import ClientEngine
from weft.client.events import Publishable, Receipt, SyncReceivedEvent, outgoing
from weft.client.history import HistoricEvent, HistoryPages
from weft.client.options import check_name, connection_policy, filter_text, seconds
from weft.client.questions import SearchPage, SearchPages, rows_of
from weft.client.subscription_handle import Label
from weft.client.subscription_set import ManyFilters, SubscriptionSet
from weft.errors import ClientClosedError
from weft.language.any_filter import AnyFilter
from weft.model.rate import Rate
from weft.protocol.explanation import Explanation
from weft.protocol.questions import (
    AnyQuestion,
    AskItems,
    AskOrder,
    AskProfiles,
    AskSessions,
    AskSubscriptions,
    ItemDirection,
    ItemFacts,
    OrderNode,
    ProfileFacts,
    SessionFacts,
    SubscriptionFacts,
)
from weft.protocol.status import BrokerStatus

# -- blocking calls --------------------------------------------------------------------------------------------

_BLOCKING = {  # what documentation for asyncio becomes where calls block
    r">>> import asyncio\s*": "",
    r"asyncio\.run\((.*)\)": r"\1",
    r"\bconnect\(": "connect_sync(",
    r"async |await |a(?=next\()": "",
    r"It begins when it is awaited[^.]*\.": "It begins at once.",
}

Twin_co = TypeVar("Twin_co", covariant=True)
Parameters = ParamSpec("Parameters")
Documented = TypeVar("Documented", bound=Callable[..., Any])


def _documented(twin: object) -> Callable[[Documented], Documented]:
    """Gives a call the documentation of its twin, without `await` and with its own first lines after the twin's."""

    def document(call: Documented) -> Documented:
        text = twin.__doc__ or ""
        for pattern, blocking in _BLOCKING.items():
            text = re.sub(pattern, blocking, text)
        call.__doc__ = text.replace("\n\n", f" {call.__doc__}\n\n", 1) if call.__doc__ else text
        return call

    return document


class _Blocking(Generic[Twin_co]):
    """A face that runs the coroutines of its twin, which is made for asyncio."""

    _twin: Twin_co


def _blocking(
    method: Callable[Concatenate[Twin_co, Parameters], Coroutine[Any, Any, Reply]],
) -> Callable[Concatenate[_Blocking[Twin_co], Parameters], Reply]:
    """A method that blocks, with the signature of the twin's."""

    def call(self: _Blocking[Twin_co], /, *args: Parameters.args, **options: Parameters.kwargs) -> Reply:
        return run(method(self._twin, *args, **options))

    update_wrapper(call, method, ("__name__", "__qualname__"))
    vars(call)["__signature__"] = signature(vars(call).pop("__wrapped__"))  # or doctest would see only the twin's doc
    return _documented(method)(call)


# -- the client ------------------------------------------------------------------------------------------------


@_documented(connect)
def connect_sync(  # noqa: PLR0913 - the options of a client
    address: str | Sequence[str] = "weft://localhost",
    *,
    name: str = "",
    token: str | bytes | Callable[[], str | bytes] | None = None,
    tls: ssl.SSLContext | None = None,
    ca: str | None = None,
    certificate: tuple[str, str] | None = None,
    timeout: float = 10.0,
    heartbeat: float = 10.0,
    retry_for: float | None = None,
    expires: float | timedelta | None = None,
    map_events: bool = False,
) -> SyncClient:
    """Its calls block."""
    policy = connection_policy(address, token, tls, ca, certificate, timeout, heartbeat, retry_for)
    return SyncClient(ClientEngine(policy, check_name(name), expires=seconds(expires), map_events=map_events))


class SyncClient(_Blocking[Client]):
    """A connected client; see `connect_sync`.

    >>> from weft.testing import broker
    >>> with broker() as local, local.connect_sync() as client, client.subscribe("magnitude >= 5") as alerts:
    ...     _ = client.publish({"magnitude": 6.1, "place": "Chile"})
    ...     next(alerts)["place"]
    'Chile'
    """

    def __init__(self, engine: ClientEngine) -> None:
        self._engine, self._twin = engine, Client(engine)

    def __enter__(self) -> Self:
        run(self._twin._connect(None))
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<weft.SyncClient{self._engine.shown}>"

    close = _blocking(Client.close)
    move = _blocking(Client.move)

    @property
    def address(self) -> str:
        """The address of the broker. Cost: O(1).

        >>> connect_sync("weft://localhost").address  # not connected yet
        ''
        """
        return self._engine.address

    @property
    def log_id(self) -> str:
        """The identity of the broker's log, to which offsets belong; empty before the first connection. Cost: O(1).

        >>> connect_sync("weft://localhost").log_id  # not connected yet
        ''
        """
        return self._engine.log_id

    @property
    def connections(self) -> int:
        """How often the client has been connected. An event that no name keeps may be missed between two connections.

        Cost: O(1).

        >>> connect_sync("weft://localhost").connections
        0
        """
        return self._engine.connections

    @property
    def is_over(self) -> bool:
        """Whether the client has ended: it was closed, or the broker does not accept it any more. Cost: O(1).

        >>> connect_sync("weft://localhost").is_over
        False
        """
        return self._engine.is_over

    @property
    def connected(self) -> bool:
        """Whether the client is connected to its broker now. Cost: O(1).

        >>> connect_sync("weft://localhost").connected
        False
        """
        return self._twin.connected

    @_documented(Client.states)
    def states(self) -> Iterator[ConnectionState]:
        """It blocks until there is a change."""
        watch = self._engine.states.watch()
        try:
            while (state := run(watch.next())) is not None:
                yield state
        finally:
            self._engine.states.unwatch(watch)

    @_documented(Client.publish)
    def publish(  # noqa: PLR0913 - the options of an event
        self,
        event: Publishable,
        *,
        payload: Any = None,
        datacontenttype: str = "",
        durable: bool = True,
        ttl: float | timedelta | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Raises TimeoutError if it is not confirmed in time: it may be stored all the same."""
        sent = outgoing(event, payload, datacontenttype, ttl)
        try:
            while not self._engine.has_room():
                self._engine.wait_for_room().wait(timeout)
            outcome = self._engine.publish_one(sent, durable)
            outcome.wait(timeout)
        except TimeoutError:
            raise TimeoutError(self._engine.late("the broker has not confirmed the event", timeout)) from None
        return outcome.receipt

    publish_many = _blocking(Client.publish_many)
    publish_epoch = _blocking(Client.publish_epoch)

    @_documented(Client.advertise)
    def advertise(self, filter: AnyFilter, *, timeout: float | None = None) -> None:
        """Raises TimeoutError if that takes longer: the broker may have it all the same."""
        self._within(timeout, "the advertisement was not complete", self._twin.advertise(filter))

    unadvertise = _blocking(Client.unadvertise)
    publish_profile = _blocking(Client.publish_profile)
    withdraw_profile = _blocking(Client.withdraw_profile)
    preload_profiles = _blocking(Client.preload_profiles)

    @_documented(Client.subscribe)
    def subscribe(  # noqa: PLR0913 - the options of a subscription
        self,
        filter: AnyFilter,
        *,
        name: str = "",
        shared: bool = False,
        since: int | datetime | None = None,
        ordered: bool = True,
        lag: int = 0,
        expires: float | timedelta | None = None,
        rate: str | Rate | None = None,
        profiles: Literal["covering", "overlap"] | None = None,
    ) -> SyncSubscription:
        """The broker has accepted it when this returns; raises FilterError, AccessError, RequestError, ConnectError."""
        some: dict[str, Any] = {"ordered": ordered, "lag": lag, "expires": expires, "rate": rate, "profiles": profiles}
        twin = self._twin.subscribe(filter, name=name, shared=shared, since=since, **some)
        return SyncSubscription(twin)

    @_documented(Client.subscribe_many)
    def subscribe_many(  # noqa: PLR0913 - the options of a subscription
        self,
        filters: ManyFilters,
        *,
        name: str = "",
        ordered: bool = True,
        lag: int = 0,
        expires: float | timedelta | None = None,
        rate: str | Rate | None = None,
    ) -> SyncSubscriptionSet:
        """The broker has accepted all of them when this returns."""
        some: dict[str, Any] = {"name": name, "ordered": ordered, "lag": lag, "expires": expires, "rate": rate}
        return SyncSubscriptionSet(self._twin.subscribe_many(filters, **some))

    @_documented(Client.explain)
    def explain(self, event: Publishable, *, timeout: float | None = None) -> Explanation:
        """Raises TimeoutError if the answer does not arrive in time."""
        return self._within(timeout, "the broker has not answered", self._twin.explain(event))

    @_documented(Client.status)
    def status(self, *, queues: int = 20, timeout: float | None = None) -> BrokerStatus:
        """Raises TimeoutError if the answer does not arrive in time."""
        return self._within(timeout, "the broker has not answered", self._twin.status(queues=queues))

    read_history = _blocking(Client.read_history)

    @_documented(Client.history)
    def history(self, filter: AnyFilter = "TRUE", *, first: int = 0, end: int | None = None) -> Iterator[HistoricEvent]:
        """It blocks once for some hundreds of events."""
        pages, text = HistoryPages(first, end), filter_text(filter)
        while (request := pages.request(text)) is not None:
            yield from pages.events(self._engine.request(request).wait(None))

    ask = _blocking(Client.ask)

    @_documented(Client.profiles)
    def profiles(self, session: str = "", *, broker: str = "") -> Iterator[ProfileFacts]:
        """It blocks once for a page."""
        return self._listed(AskProfiles(session), broker)

    @_documented(Client.sessions)
    def sessions(self, text: str = "", *, connected: bool | None = None, broker: str = "") -> Iterator[SessionFacts]:
        """It blocks once for a page."""
        return self._listed(AskSessions(text, connected), broker)

    @_documented(Client.subscriptions)
    def subscriptions(self, session: str = "", *, text: str = "", broker: str = "") -> Iterator[SubscriptionFacts]:
        """It blocks once for a page."""
        return self._listed(AskSubscriptions(session, text, rated=True), broker)

    @_documented(Client.items)
    def items(
        self, link: str, *, direction: ItemDirection = "sent", advertisements: bool = False, broker: str = ""
    ) -> Iterator[ItemFacts]:
        """It blocks once for a page."""
        return self._listed(AskItems(link, direction, advertisements), broker)

    @_documented(Client.order)
    def order(self, node: int | None = None, *, broker: str = "") -> Iterator[OrderNode]:
        """It blocks once for a page."""
        return self._listed(AskOrder(node), broker)

    def _within(self, timeout: float | None, what: str, coroutine: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            return run(coroutine, timeout)
        except TimeoutError:
            raise TimeoutError(self._engine.late(what, timeout)) from None

    def _listed(self, question: AnyQuestion, broker: str) -> Iterator[Any]:
        page = b""
        while True:
            found = self.ask(question, broker=broker, page=page)
            yield from rows_of(found.answer)
            page = found.page
            if not page:
                return

    relate = _blocking(Client.relate)

    @_documented(Client.search)
    def search(
        self,
        filter: AnyFilter = "TRUE",
        *,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        broker: str = "",
    ) -> Iterator[SearchPage]:
        """It blocks once for a page."""
        pages = SearchPages(filter_text(filter), since, until)
        while not pages.is_done:
            yield pages.page(self.ask(pages.question, broker=broker).answer)

    overlay = _blocking(Client.overlay)
    trace = _blocking(Client.trace)
    why = _blocking(Client.why)
    rules = _blocking(Client.rules)
    disconnect = _blocking(Client.disconnect)
    move_session = _blocking(Client.move_session)
    balance = _blocking(Client.balance)
    set_balance = _blocking(Client.set_balance)
    detach = _blocking(Client.detach)
    change = _blocking(Client.change)
    retune = _blocking(Client.retune)
    label_space = _blocking(Client.label_space)

    @property
    @_documented(Client.dead_letters)
    def dead_letters(self) -> SyncDeadLetterQueue:
        """Calls about them block."""
        return SyncDeadLetterQueue(self._twin.dead_letters)


@_documented(DeadLetterQueue)
class SyncDeadLetterQueue(_Blocking[DeadLetterQueue]):
    """Its calls block."""

    def __init__(self, twin: DeadLetterQueue) -> None:
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin)

    list = _blocking(DeadLetterQueue.list)
    redeliver = _blocking(DeadLetterQueue.redeliver)
    discard = _blocking(DeadLetterQueue.discard)


@_documented(Subscription)
class SyncSubscription(_Blocking[Subscription], _Subscribed):
    """Its calls block."""

    def __init__(self, twin: Subscription) -> None:
        self._twin = twin
        self._handle = run(twin._open())
        self._inbox, self._is_temporary = self._handle.inbox, self._handle.temporary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<weft.SyncSubscription{self._twin._shown}>"

    close = _blocking(Subscription.close)
    unsubscribe = _blocking(Subscription.unsubscribe)
    replace = _blocking(Subscription.replace)

    def __iter__(self) -> Iterator[SyncReceivedEvent]:
        return self

    def __next__(self) -> SyncReceivedEvent:
        return self._next(None)

    def receive(self, timeout: float | None = None) -> SyncReceivedEvent:
        """The next event. Raises TimeoutError if none comes in time, ClientClosedError if the subscription is over.

        Cost: O(1) for an event that has arrived.

        >>> from weft.testing import broker
        >>> with broker() as local, local.connect_sync() as client, client.subscribe("magnitude >= 5") as alerts:
        ...     _ = client.publish({"magnitude": 6.1})
        ...     alerts.receive(timeout=10)["magnitude"]
        6.1
        """
        try:
            return self._next(timeout)
        except StopIteration:
            raise ClientClosedError("the subscription is closed") from None
        except TimeoutError:
            raise TimeoutError(self._twin._engine.late("no event came", timeout)) from None

    def _next(self, timeout: float | None) -> SyncReceivedEvent:
        inbox = self._inbox
        while True:
            message = inbox.pop()
            if message is not None:
                event = SyncReceivedEvent(message, inbox)
                if self._is_temporary:
                    event.ack()
                return event
            waiter = Waiter()
            if inbox.wait(waiter):
                try:
                    waiter.wait(timeout)
                except BaseException:
                    inbox.give_up(waiter)
                    raise

    @_documented(Subscription.complete)
    def complete(self, timeout: float | None = None) -> None:
        """Raises TimeoutError if that takes longer."""
        try:
            run(self._twin.complete(), timeout)
        except TimeoutError:
            raise TimeoutError(self._twin._engine.late("the subscription was not complete", timeout)) from None

    @property
    @_documented(Subscription.dead_letters)
    def dead_letters(self) -> SyncDeadLetterQueue:
        """Calls about them block."""
        return SyncDeadLetterQueue(self._twin.dead_letters)


@_documented(SubscriptionSet)
class SyncSubscriptionSet(SyncSubscription):
    """Its calls block."""

    _twin: SubscriptionSet

    def __init__(self, twin: SubscriptionSet) -> None:
        super().__init__(twin)

    def __repr__(self) -> str:
        return f"<weft.SyncSubscriptionSet{self._twin._shown}>"

    def _repr_html_(self) -> str:
        return self._twin._repr_html_()

    @property
    def filters(self) -> Mapping[Label, str]:
        """The filters, by their names, or by their positions if they were given as a list. Cost: O(1)."""
        return self._twin.filters

    @_documented(SubscriptionSet.replace)
    def replace(self, filters: ManyFilters, *, rate: str | Rate | None = None) -> None:  # type: ignore[override]
        """It blocks until the broker has answered."""
        run(self._twin.replace(filters, rate=rate))
