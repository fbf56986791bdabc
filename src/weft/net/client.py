"""The client. Laws: `publish` returns when the event is on the broker's disk; a subscription with a name gets every
event that matches it until the application has acknowledged it; leaving the block closes everything.

The client talks to its broker in a thread of its own, and reconnects by itself after every loss.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from weft.broker.explanation import Explanation
from weft.errors import ClientClosedError, EventError
from weft.language.any_filter import AnyFilter
from weft.model.event import Event
from weft.net.client_engine import ClientEngine
from weft.net.client_options import check_name, filter_text, link_options, seconds, subscription_options
from weft.net.client_subscription import SubscriptionOptions
from weft.net.dead_letter import DeadLetter, check_letters, dead_letters, letter_parts
from weft.net.outgoing import outgoing
from weft.net.received import ReceivedEvent
from weft.net.subscription_handle import SubscriptionHandle
from weft.net.waiters import Receipt, Waiter

_FAIR = 64  # events after which other tasks get a turn

AnyEvent = Event | Mapping[str, Any]


def connect(  # noqa: PLR0913 - the options of a client
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
) -> Client:
    """A client of the broker at an address, to be used in `async with`.

    - `address`: `weft://host:port`, `weft+tls://host:port` or `weft+unix:///path`; several addresses of one broker are
      tried in turn.
    - `name` makes the publisher known to the broker: an event that is sent again after a reconnection is stored once.
    - `token`: the token that the broker's operator gave you, or a function that returns one for each connection.
    - `tls`, `ca`, `certificate`: for `weft+tls`, a context of your own, or a file of authorities to trust and a pair of
      files (certificate, key) to present.
    - `timeout`: seconds to wait for a connection.
    - `heartbeat`: seconds between heartbeats; a broker that is silent for three times as long is considered lost.
    - `retry_for`: seconds to keep trying after a connection is lost; None means forever.
    - `expires`: seconds that the broker keeps named sessions of this client while nobody uses them; None means as long
      as the broker allows.
    """
    options = link_options(address, token, tls, ca, certificate, timeout, heartbeat, retry_for)
    return Client(ClientEngine(options, check_name(name), expires=seconds(expires)))


class Client:
    """A connected client; see `connect`. It belongs to one event loop."""

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        waiter = Waiter(self._loop)
        self._engine.open(waiter)
        try:
            await _result(waiter)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send everything that waits, say goodbye, and close. This takes a few seconds at most."""
        waiter = Waiter(asyncio.get_running_loop())
        self._engine.close(waiter)
        try:
            await asyncio.shield(_future(waiter))
        finally:
            self._engine.finish()

    @property
    def address(self) -> str:
        """The address of the broker."""
        return self._engine.address

    # -- publishing ------------------------------------------------------------------------------------------

    async def publish(
        self,
        event: AnyEvent,
        *,
        payload: Any = None,
        datacontenttype: str = "",
        durable: bool = True,
        ttl: float | timedelta | None = None,
    ) -> None:
        """Publish an event. Returns when it is on the broker's disk. Raises EventError and PublishError.

        The payload is bytes, text, or anything that JSON can express. After `ttl` seconds the event expires, and is no
        longer delivered. An event that is not durable is not stored: it reaches the connected subscribers, at most
        once, and `publish` returns when it is sent. If this call is cancelled, the event may be stored or not.
        """
        sent = outgoing(event, payload, datacontenttype, ttl)
        await self._room()
        receipt = Receipt(self._loop)
        self._engine.publish(sent, receipt, durable=durable)
        await _future(receipt)

    async def publish_many(
        self, events: Iterable[AnyEvent], *, durable: bool = True, ttl: float | timedelta | None = None
    ) -> int:
        """Publish many events, in their order. Returns how many there were, when all of them are stored.

        Raises PublishError if the broker refused some; all others are stored then. An invalid event raises EventError
        with its position; the events before it are published. `events` may be endless: a bounded number of them waits
        to be confirmed.
        """
        receipt, position = Receipt(self._loop, None), 0
        try:
            for event in events:
                if not position % _FAIR:
                    await asyncio.sleep(0)
                if not position or not self._engine.has_room():
                    await self._room()
                self._engine.publish(outgoing(event, None, "", ttl), receipt, position, durable)
                position += 1
        except EventError as error:
            self._engine.publish_end(receipt, position)
            await _future(receipt)
            raise error.at(position) from None
        self._engine.publish_end(receipt, position)
        stored: int = await _future(receipt)
        return stored

    async def _room(self) -> None:
        if self._loop is None:
            raise ClientClosedError("the client is not connected; use it in `async with`")
        while not self._engine.has_room():
            waiter = Waiter(self._loop)
            self._engine.wait_for_room(waiter)
            await _result(waiter)

    # -- subscriptions ---------------------------------------------------------------------------------------

    def subscribe(  # noqa: PLR0913 - the options of a subscription
        self,
        filter: AnyFilter,
        *,
        name: str = "",
        shared: bool = False,
        since: int | datetime | None = None,
        ordered: bool = True,
        lag: int = 0,
    ) -> Subscription:
        """Subscribe to the events that match a filter: `async for event in client.subscribe("magnitude >= 5")`.

        - `name` makes the subscription durable. The broker keeps its events until they are acknowledged, even while
          nobody is connected, and the next client that subscribes with this name continues there.
        - `shared`: all subscriptions with this name share its events; each event goes to one of them.
        - `since`: begin with older events of this broker's log, from an offset or a time. It applies when the
          subscription is created, not when it is resumed.
        - `ordered`: whether an event that failed (`nack`) holds back those behind it.
        - `lag`: how many events the subscription may be behind before the oldest are dropped.

        It begins when it is awaited, entered with `async with`, or iterated. Leaving `async with` ends it here; one
        with a name stays at the broker, see `unsubscribe`.
        """
        options = subscription_options(name, shared, since, ordered, lag)
        return Subscription(self, filter_text(filter), name, options)

    # -- where an event goes ---------------------------------------------------------------------------------

    async def explain(self, event: AnyEvent) -> Explanation:
        """Where an event would go if it were published here, and why. Raises EventError, AccessError or RequestError.

        Broker by broker, it says which subscriptions match, and which neighbours get the event because of what they
        told. Nothing is published. It needs the right `status`. A broker that does not answer within two seconds is
        named in the answer.
        """
        sent = outgoing(event)
        waiter = Waiter(asyncio.get_running_loop())
        self._engine.explain(sent, waiter)
        found: Explanation = await _result(waiter)
        return found

    # -- dead letters ----------------------------------------------------------------------------------------

    async def dead(self, name: str, *, shared: bool = False, limit: int = 100, after: int = 0) -> list[DeadLetter]:
        """The events that a named subscription failed to handle, in order, after an offset.

        The subscription may belong to another client of the same principal; its consumers are not disturbed.
        """
        check_letters(limit, after)
        found: list[DeadLetter] = []
        while len(found) < limit:
            answer = await self._dead("list", name, shared, after=after, limit=limit - len(found))
            found += dead_letters(answer)
            if not answer.more or not answer.letters:
                break
            after = found[-1].offset
        return found

    async def retry_dead(self, name: str, *offsets: int, shared: bool = False) -> list[int]:
        """Deliver dead letters once more, to the current consumer. Returns the offsets of those that are delivered.

        Nothing is delivered if nobody is connected. Acknowledging a letter removes it.
        """
        answers = [await self._dead("retry", name, shared, offsets=part) for part in letter_parts(offsets)]
        return [int(offset) for answer in answers for offset in answer.offsets]

    async def drop_dead(self, name: str, *offsets: int, shared: bool = False) -> list[int]:
        """Remove dead letters. Returns the offsets of those that existed."""
        answers = [await self._dead("drop", name, shared, offsets=part) for part in letter_parts(offsets)]
        return [int(offset) for answer in answers for offset in answer.offsets]

    async def _dead(self, what: str, name: str, shared: bool, **options: Any) -> Any:
        waiter = Waiter(asyncio.get_running_loop())
        self._engine.dead(what, name, shared, waiter, **options)
        return await _result(waiter)


class Subscription:
    """Events that match a filter; see `Client.subscribe`."""

    def __init__(self, client: Client, filter: str, name: str, options: SubscriptionOptions) -> None:
        self._client, self._filter, self._name, self._options = client, filter, name, options
        self._handle: SubscriptionHandle | None = None
        self._begun: asyncio.Future[None] | None = None
        self._taken = 0
        self._auto = options.durable and not name  # events of a temporary subscription need no acknowledgement

    # -- life ------------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begin(self) -> Self:
        """Subscribe, unless that is done. Raises FilterError, AccessError, RequestError or ConnectError."""
        if self._begun is None:
            loop = asyncio.get_running_loop()
            self._handle = self._client._engine.subscribe(self._filter, self._name, self._options)
            waiter = Waiter(loop)
            self._begun = _future(waiter)
            self._handle.begin(waiter)
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End the subscription here. One with a name stays at the broker, which keeps its events."""
        if self._handle is not None:
            self._handle.leave()

    async def unsubscribe(self) -> None:
        """End the subscription for good: the broker forgets it, and every event that waits for it."""
        await self._ask(SubscriptionHandle.unsubscribe)

    # -- events ----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        return self

    async def __anext__(self) -> ReceivedEvent:
        if self._handle is None or self._begun is None or not self._begun.done():
            await self._begin()
        assert self._handle is not None
        inbox = self._handle.inbox
        self._taken += 1
        if not self._taken % _FAIR:
            await asyncio.sleep(0)
        while True:
            try:
                message = inbox.pop()
            except StopIteration:
                raise StopAsyncIteration from None
            if message is not None:
                event = ReceivedEvent(message, inbox)
                if self._auto:
                    event._ack()
                return event
            waiter = Waiter(asyncio.get_running_loop())
            if inbox.wait(waiter):
                try:
                    await _future(waiter)
                finally:
                    inbox.forget_waiter(waiter)

    @property
    def dropped(self) -> int:
        """How many events were dropped because they were not taken in time; always 0 for a subscription with a name."""
        return 0 if self._handle is None else self._handle.inbox.dropped

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of offsets that the broker dropped, because the subscription was too far behind."""
        return [] if self._handle is None else list(self._handle.inbox.gaps)

    # -- changes ---------------------------------------------------------------------------------------------

    async def complete(self) -> None:
        """Wait until the subscription is active at every broker: no event published from then on is missed."""
        await self._ask(SubscriptionHandle.complete)

    async def replace(self, filter: AnyFilter) -> None:
        """Change the filter, from the next event on. What matched before is still delivered."""
        await self._ask(partial(SubscriptionHandle.replace, filter=filter_text(filter)))

    async def _ask(self, what: Callable[[SubscriptionHandle, Waiter], None]) -> Any:
        await self._begin()
        assert self._handle is not None
        waiter = Waiter(asyncio.get_running_loop())
        what(self._handle, waiter)
        return await _result(waiter)

    # -- dead letters ----------------------------------------------------------------------------------------

    async def dead(self, *, limit: int = 100, after: int = 0) -> list[DeadLetter]:
        """The events that failed too often, in order, after an offset."""
        check_letters(limit, after)
        found: list[DeadLetter] = []
        while len(found) < limit:
            answer = await self._ask(partial(SubscriptionHandle.list_dead, after=after, limit=limit - len(found)))
            found += dead_letters(answer)
            if not answer.more or not answer.letters:
                break
            after = found[-1].offset
        return found

    async def retry_dead(self, *offsets: int) -> list[int]:
        """Deliver dead letters once more. Returns those that are delivered; acknowledging one removes it."""
        asks = [partial(SubscriptionHandle.retry_dead, offsets=part) for part in letter_parts(offsets)]
        return [int(offset) for ask in asks for offset in (await self._ask(ask)).offsets]

    async def drop_dead(self, *offsets: int) -> list[int]:
        """Remove dead letters. Returns the offsets of those that existed."""
        asks = [partial(SubscriptionHandle.drop_dead, offsets=part) for part in letter_parts(offsets)]
        return [int(offset) for ask in asks for offset in (await self._ask(ask)).offsets]


# -- waiting -------------------------------------------------------------------------------------------------


def _future(waiter: Waiter) -> asyncio.Future[Any]:
    assert waiter.future is not None
    return waiter.future


async def _result(waiter: Waiter) -> Any:
    return await _future(waiter)
