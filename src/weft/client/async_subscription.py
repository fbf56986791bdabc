"""A subscription for asyncio: the events that match a filter, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, Self

from weft.client.connection import Waiter
from weft.client.dead_letters import DeadLetterQueue
from weft.client.engine import ClientEngine
from weft.client.events import ReceivedEvent
from weft.client.options import (
    filter_text,
    subscription_text,
)
from weft.client.subscription import SubscriptionOptions
from weft.client.subscription_handle import Label, SubscriptionHandle
from weft.errors import ClientClosedError
from weft.language.any_filter import AnyFilter
from weft.model.rate import Rate, split_rate, with_rate
from weft.protocol.messages import (
    DeadMessage,
)

_FAIR = 64  # events after which other tasks get a turn


class _Subscribed:
    """What a subscription tells of its events, whatever its face."""

    _handle: SubscriptionHandle | None = None  # None before it begins

    @property
    def dropped(self) -> int:
        """How many events were dropped because they were not taken in time; always 0 for a subscription with a name.

        Cost: O(1).

        >>> from weft import connect
        >>> connect().subscribe("x > 0", lag=10).dropped
        0
        """
        return 0 if self._handle is None else self._handle.inbox.dropped

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of offsets that the broker dropped, because the subscription was too far behind. Cost: O(gaps).

        >>> from weft import connect
        >>> connect().subscribe("x > 0", name="alerts").gaps
        []
        """
        return [] if self._handle is None else list(self._handle.inbox.gaps)

    @property
    def resets(self) -> int:
        """How often the broker had forgotten the subscription, so that events may be missing. Cost: O(1).

        >>> from weft import connect
        >>> connect().subscribe("x > 0", name="alerts").resets
        0
        """
        return 0 if self._handle is None else self._handle.resets

    @property
    def session(self) -> str:
        """The name of its session, as the broker's status shows it; empty before it begins. Cost: O(1).

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("x > 0", name="alerts")
        ...         return alerts.session, (await client.status()).furthest[0].session
        >>> asyncio.run(main())
        ('alerts', 'alerts')
        """
        return "" if self._handle is None else self._handle.driver.session.name


class Subscription(_Subscribed):
    """Events that match a filter; see `Client.subscribe`. It is iterated with `async for`.

    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, local.connect() as client, client.subscribe("n >= 2") as found:
    ...         await client.publish_many({"n": n} for n in range(4))
    ...         return [(await anext(found))["n"] for _ in range(2)]
    >>> asyncio.run(main())
    [2, 3]
    """

    _is_many = False

    def __init__(self, engine: ClientEngine, filter: str, name: str, options: SubscriptionOptions) -> None:
        self._engine, self._filter, self._name, self._options = engine, filter, name, options
        self._begun: Waiter | None = None
        self._taken = 0

    @property
    def _shown(self) -> str:
        """Its name, filter and what waits, for `repr`."""
        name = f" {self._name!r}" if self._name else ""
        if self._handle is None:
            return f"{name}: {self._filter}, not begun"
        state = "closed" if self._handle.is_leaving else f"{len(self._handle.inbox):,} waiting"
        return f"{name}: {self._filter}, {state}"

    def _texts(self) -> Mapping[Label, str]:
        """Its filters, by their labels."""
        return {self._name or self._filter: self._filter}

    # -- life ------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<weft.Subscription{self._shown}>"

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __del__(self) -> None:
        """Release it when nobody can iterate it any more: a loop over `client.subscribe()` was left."""
        if self._handle is not None:
            self._handle.abandon()

    async def _open(self) -> SubscriptionHandle:
        """Subscribe, unless that is done. Raises FilterError, AccessError, RequestError or ConnectError."""
        if self._handle is None or self._begun is None:
            self._handle = self._engine.subscribe(self._name, self._options, is_many=self._is_many)
            self._begun = self._engine.hold(self._handle, self._texts())
        try:
            await self._begun.shielded()
        except BaseException:
            await self.close()
            raise
        return self._handle

    async def close(self) -> None:
        """End the subscription here. One with a name stays at the broker, which keeps its events.

        Cost: O(1); nothing is waited for.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("magnitude >= 5")
        ...         await alerts.close()
        ...         return [event async for event in alerts]
        >>> asyncio.run(main())
        []
        """
        if self._handle is not None:
            self._handle.leave()

    async def unsubscribe(self) -> None:
        """End the subscription for good: the broker forgets it, and every event that waits for it.

        Raises RequestError if the broker's disk is too full to store that: then the subscription stays there.

        Cost: one round trip and one commit.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("magnitude >= 5", name="alerts")
        ...         await alerts.unsubscribe()
        ...         return (await client.status()).subscriptions
        >>> asyncio.run(main())
        0
        """
        await (await self._open()).unsubscribe()

    # -- events ----------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None) -> ReceivedEvent:
        """The next event. Raises TimeoutError if none comes in time, ClientClosedError if the subscription is over.

        Cost: O(1) for an event that has arrived.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5") as alerts:
        ...         await client.publish({"magnitude": 6.1})
        ...         return (await alerts.receive(timeout=10))["magnitude"]
        >>> asyncio.run(main())
        6.1
        """
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except StopAsyncIteration:
            raise ClientClosedError("the subscription is closed") from None
        except TimeoutError:
            raise TimeoutError(self._engine.late("no event came", timeout)) from None

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        return self

    async def __anext__(self) -> ReceivedEvent:
        handle = self._handle
        if handle is None or self._begun is None or not self._begun.is_done:
            handle = await self._open()
        inbox = handle.inbox
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
                if handle.temporary:
                    await event.ack()
                return event
            waiter = Waiter(asyncio.get_running_loop())
            if inbox.wait(waiter):
                try:
                    await waiter
                except BaseException:
                    inbox.give_up(waiter)
                    del self  # a task keeps the traceback, which would keep a subscription that nobody has any more
                    raise

    async def ack(self, offsets: Iterable[int]) -> None:
        """Acknowledge events by their offsets, also those that an earlier connection or process received.

        Cost: O(offsets), no round trip.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("x > 0", name="alerts")
        ...         await client.publish({"x": 1})
        ...         await alerts.ack([(await anext(alerts)).offset])
        >>> asyncio.run(main())
        """
        inbox = (await self._open()).inbox
        for offset in offsets:
            inbox.ack(offset)

    # -- changes ---------------------------------------------------------------------------------------------

    async def complete(self) -> None:
        """Wait until the subscription is active at every broker: no event published from then on is missed.

        Cost: as long as the subscription travels to the furthest broker.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5") as alerts:
        ...         await alerts.complete()
        >>> asyncio.run(main())
        """
        await (await self._open()).complete()

    async def replace(self, filter: AnyFilter | None = None, *, rate: str | Rate | None = "") -> None:
        """Change the filter, the rate, or both, from the next event on. What matched before is still delivered.

        Without a filter, or without a rate, it keeps the one that it has; with `rate=None` it has no rate any more.

        Cost: one round trip and one commit.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5") as alerts:
        ...         await alerts.replace("magnitude >= 6")
        ...         await client.publish_many([{"magnitude": 5.5}, {"magnitude": 6.5}])
        ...         return (await anext(alerts))["magnitude"]
        >>> asyncio.run(main())
        6.5
        """
        before, limit = split_rate(self._filter)
        text = before if filter is None else filter_text(filter)
        text = with_rate(text, limit) if rate == "" else subscription_text(text, rate)
        handle = await self._open()
        await self._engine.hold(handle, {self._name or text: text})
        self._filter = text

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The events that this subscription failed to handle too often. Cost: O(1); see its methods.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("x > 0", name="alerts")
        ...         return await alerts.dead_letters.list()
        >>> asyncio.run(main())
        []
        """

        async def ask(message_of: Callable[..., DeadMessage]) -> Any:
            handle = await self._open()
            return await handle.request(partial(message_of, queue=handle.queue))

        return DeadLetterQueue(ask, is_named=False)
