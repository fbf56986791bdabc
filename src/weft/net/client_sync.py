"""The client for programs without an event loop: the same calls as `weft.connect`, which block. Law: it promises what
the other face promises; only the waiting differs.

It may be used from several threads.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from weft.broker.explanation import Explanation
from weft.errors import ClientClosedError, EventError
from weft.language.any_filter import AnyFilter
from weft.net.client import AnyEvent
from weft.net.client_engine import ClientEngine
from weft.net.client_options import check_name, filter_text, link_options, seconds, subscription_options
from weft.net.client_subscription import SubscriptionOptions
from weft.net.dead_letter import DeadLetter, check_letters, dead_letters, letter_parts
from weft.net.outgoing import outgoing
from weft.net.received import SyncReceivedEvent
from weft.net.subscription_handle import SubscriptionHandle
from weft.net.waiters import Receipt, Waiter


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
) -> SyncClient:
    """A client whose calls block, to be used in `with`. The options are those of `weft.connect`."""
    options = link_options(address, token, tls, ca, certificate, timeout, heartbeat, retry_for)
    return SyncClient(ClientEngine(options, check_name(name), expires=seconds(expires)))


class SyncClient:
    """A connected client; see `connect_sync`."""

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine

    def __enter__(self) -> Self:
        waiter = Waiter()
        self._engine.open(waiter)
        try:
            waiter.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send everything that waits, say goodbye, and close. This takes a few seconds at most."""
        waiter = Waiter()
        self._engine.close(waiter)
        try:
            waiter.wait()
        finally:
            self._engine.finish()

    @property
    def address(self) -> str:
        """The address of the broker."""
        return self._engine.address

    def publish(  # noqa: PLR0913 - the options of an event
        self,
        event: AnyEvent,
        *,
        payload: Any = None,
        datacontenttype: str = "",
        durable: bool = True,
        ttl: float | timedelta | None = None,
        timeout: float | None = None,
    ) -> None:
        """Publish an event; see `Client.publish`. Raises TimeoutError if it is not confirmed in time: it may be stored
        all the same.
        """
        sent = outgoing(event, payload, datacontenttype, ttl)
        self._room(timeout)
        receipt = Receipt(None)
        self._engine.publish(sent, receipt, durable=durable)
        receipt.wait(timeout)

    def publish_many(
        self, events: Iterable[AnyEvent], *, durable: bool = True, ttl: float | timedelta | None = None
    ) -> int:
        """Publish many events, in their order; see `Client.publish_many`."""
        receipt, position = Receipt(None, None), 0
        try:
            for event in events:
                self._room(None)
                self._engine.publish(outgoing(event, None, "", ttl), receipt, position, durable)
                position += 1
        except EventError as error:
            self._engine.publish_end(receipt, position)
            receipt.wait()
            raise error.at(position) from None
        self._engine.publish_end(receipt, position)
        stored: int = receipt.wait()
        return stored

    def _room(self, timeout: float | None) -> None:
        while not self._engine.has_room():
            waiter = Waiter()
            self._engine.wait_for_room(waiter)
            waiter.wait(timeout)

    def subscribe(  # noqa: PLR0913 - the options of a subscription
        self,
        filter: AnyFilter,
        *,
        name: str = "",
        shared: bool = False,
        since: int | datetime | None = None,
        ordered: bool = True,
        lag: int = 0,
    ) -> SyncSubscription:
        """Subscribe: `for event in client.subscribe("magnitude >= 5")`; see `Client.subscribe`.

        It is accepted by the broker when this returns. Raises FilterError, AccessError, RequestError or ConnectError.
        """
        options = subscription_options(name, shared, since, ordered, lag)
        return SyncSubscription(self._engine, filter_text(filter), name, options)

    # -- where an event goes ---------------------------------------------------------------------------------

    def explain(self, event: AnyEvent, *, timeout: float | None = None) -> Explanation:
        """Where an event would go, and why; see `Client.explain`."""
        sent = outgoing(event)
        waiter = Waiter()
        self._engine.explain(sent, waiter)
        found: Explanation = waiter.wait(timeout)
        return found

    # -- dead letters ----------------------------------------------------------------------------------------

    def dead(self, name: str, *, shared: bool = False, limit: int = 100, after: int = 0) -> list[DeadLetter]:
        """The events that a named subscription failed to handle, in order, after an offset.

        The subscription may belong to another client of the same principal; its consumers are not disturbed.
        """
        check_letters(limit, after)
        found: list[DeadLetter] = []
        while len(found) < limit:
            answer = self._dead("list", name, shared, after=after, limit=limit - len(found))
            found += dead_letters(answer)
            if not answer.more or not answer.letters:
                break
            after = found[-1].offset
        return found

    def retry_dead(self, name: str, *offsets: int, shared: bool = False) -> list[int]:
        """Deliver dead letters once more, to the current consumer. Returns the offsets of those that are delivered.

        Nothing is delivered if nobody is connected. Acknowledging a letter removes it.
        """
        some = letter_parts(offsets)
        return [int(o) for part in some for o in self._dead("retry", name, shared, offsets=part).offsets]

    def drop_dead(self, name: str, *offsets: int, shared: bool = False) -> list[int]:
        """Remove dead letters. Returns the offsets of those that existed."""
        some = letter_parts(offsets)
        return [int(o) for part in some for o in self._dead("drop", name, shared, offsets=part).offsets]

    def _dead(self, what: str, name: str, shared: bool, **options: Any) -> Any:
        waiter = Waiter()
        self._engine.dead(what, name, shared, waiter, **options)
        return waiter.wait()


class SyncSubscription:
    """Events that match a filter; see `Client.subscribe`."""

    def __init__(self, engine: ClientEngine, filter: str, name: str, options: SubscriptionOptions) -> None:
        self._auto = options.durable and not name  # events of a temporary subscription need no acknowledgement
        self._handle = engine.subscribe(filter, name, options)
        try:
            self._ask(SubscriptionHandle.begin)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription here. One with a name stays at the broker, which keeps its events."""
        self._handle.leave()

    def unsubscribe(self) -> None:
        """End the subscription for good: the broker forgets it, and every event that waits for it."""
        self._ask(SubscriptionHandle.unsubscribe)

    def __iter__(self) -> Iterator[SyncReceivedEvent]:
        return self

    def __next__(self) -> SyncReceivedEvent:
        return self._next(None)

    def receive(self, timeout: float | None = None) -> SyncReceivedEvent:
        """The next event. Raises TimeoutError if none comes in time, ClientClosedError if the subscription is over."""
        try:
            return self._next(timeout)
        except StopIteration:
            raise ClientClosedError("the subscription is closed") from None

    def _next(self, timeout: float | None) -> SyncReceivedEvent:
        inbox = self._handle.inbox
        while True:
            message = inbox.pop()
            if message is not None:
                event = SyncReceivedEvent(message, inbox)
                if self._auto:
                    event.ack()
                return event
            waiter = Waiter()
            if inbox.wait(waiter):
                try:
                    waiter.wait(timeout)
                finally:
                    inbox.forget_waiter(waiter)

    @property
    def dropped(self) -> int:
        """How many events were dropped because they were not taken in time; always 0 for a subscription with a name."""
        return self._handle.inbox.dropped

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of offsets that the broker dropped, because the subscription was too far behind."""
        return list(self._handle.inbox.gaps)

    def complete(self, timeout: float | None = None) -> None:
        """Wait until the subscription is active at every broker: no event published from then on is missed."""
        self._ask(SubscriptionHandle.complete, timeout)

    def replace(self, filter: AnyFilter) -> None:
        """Change the filter, from the next event on. What matched before is still delivered."""
        self._ask(partial(SubscriptionHandle.replace, filter=filter_text(filter)))

    def _ask(self, what: Callable[[SubscriptionHandle, Waiter], None], timeout: float | None = None) -> Any:
        waiter = Waiter()
        what(self._handle, waiter)
        return waiter.wait(timeout)

    def dead(self, *, limit: int = 100, after: int = 0) -> list[DeadLetter]:
        """The events that failed too often, in order, after an offset."""
        check_letters(limit, after)
        found: list[DeadLetter] = []
        while len(found) < limit:
            answer = self._ask(partial(SubscriptionHandle.list_dead, after=after, limit=limit - len(found)))
            found += dead_letters(answer)
            if not answer.more or not answer.letters:
                break
            after = found[-1].offset
        return found

    def retry_dead(self, *offsets: int) -> list[int]:
        """Deliver dead letters once more. Returns those that are delivered; acknowledging one removes it."""
        asks = [partial(SubscriptionHandle.retry_dead, offsets=part) for part in letter_parts(offsets)]
        return [int(offset) for ask in asks for offset in self._ask(ask).offsets]

    def drop_dead(self, *offsets: int) -> list[int]:
        """Remove dead letters. Returns the offsets of those that existed."""
        asks = [partial(SubscriptionHandle.drop_dead, offsets=part) for part in letter_parts(offsets)]
        return [int(offset) for ask in asks for offset in self._ask(ask).offsets]
