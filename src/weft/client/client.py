"""The client for asyncio.

`publish` returns when the event is on the broker's disk. A subscription with a name gets every event that matches it
until the application has acknowledged it. Leaving the block closes everything.

The client talks to its broker in a thread of its own, and reconnects by itself after every loss.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, Self

from weft.client.advertisements import advert_number
from weft.client.async_subscription import Subscription
from weft.client.broker_view import BrokerView
from weft.client.connection import Waiter
from weft.client.connection_state import ConnectionState
from weft.client.dead_letters import DeadLetterQueue
from weft.client.engine import ClientEngine
from weft.client.events import Publishable, Receipt, outgoing
from weft.client.options import (
    check_name,
    connection_policy,
    filter_text,
    seconds,
    subscription_options,
    subscription_text,
)
from weft.client.profiles import PublishedProfile, publish_message, published
from weft.client.subscription_handle import NAMED
from weft.client.subscription_set import ManyFilters, SubscriptionSet, labelled_texts
from weft.errors import OptionError, RequestError
from weft.language.any_filter import AnyFilter
from weft.model.rate import Rate
from weft.protocol.addresses import Address
from weft.protocol.messages import (
    Advertise,
    DeadMessage,
    QueueNumber,
    Unadvertise,
    WithdrawProfile,
)

_SILENCE = 30.0  # seconds without a word from a broker after which it is abandoned, if nothing else is said


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
    map_events: bool = False,
) -> Client:
    """A client of the broker at an address, to be used in `async with`, or, in a notebook, as `await connect(...)`.

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
    - `map_events`: map events to curves or labels here, which saves brokers with the routing model mics or dls some
      work; it costs this client more than it saves one broker.

    Cost: nothing is sent before the block is entered; then one connection and one round trip.

    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, connect(local.address, name="sensor-7") as client:
    ...         await client.publish({"magnitude": 6.1})
    >>> asyncio.run(main())
    """
    policy = connection_policy(address, token, tls, ca, certificate, timeout, heartbeat, retry_for)
    return Client(ClientEngine(policy, check_name(name), expires=seconds(expires), map_events=map_events))


class Client(BrokerView):
    """A connected client; see `connect`. It belongs to one event loop.

    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5") as alerts:
    ...         await client.publish({"magnitude": 6.1, "place": "Chile"})
    ...         print((await anext(alerts))["place"])
    >>> asyncio.run(main())
    Chile
    """

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._connect(asyncio.get_running_loop())
        return self

    def __repr__(self) -> str:
        return f"<weft.Client{self._engine.shown}>"

    async def _connect(self, loop: asyncio.AbstractEventLoop | None) -> None:
        waiter = self._engine.open(loop)
        try:
            await waiter
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send everything that waits, say goodbye, and close. Leaving `async with` does it, too.

        Cost: one round trip; at most a few seconds.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.close()
        >>> asyncio.run(main())
        """
        try:
            await self._engine.close().shielded()
        finally:
            self._engine.finish()

    @property
    def address(self) -> str:
        """The address of the broker. Cost: O(1).

        >>> connect("weft://localhost").address  # not connected yet
        ''
        """
        return self._engine.address

    @property
    def log_id(self) -> str:
        """The identity of the broker's log, to which offsets belong; empty before the first connection. Cost: O(1).

        >>> connect("weft://localhost").log_id  # not connected yet
        ''
        """
        return self._engine.log_id

    @property
    def connections(self) -> int:
        """How often the client has been connected. An event that no name keeps may be missed between two connections.

        Cost: O(1).

        >>> connect("weft://localhost").connections
        0
        """
        return self._engine.connections

    @property
    def connected(self) -> bool:
        """Whether the client is connected to its broker now. Cost: O(1).

        >>> connect("weft://localhost").connected
        False
        """
        return self._engine.states.current.connected

    async def states(self) -> AsyncIterator[ConnectionState]:
        """The state of the connection, now and after each change, until the client has ended.

        A state says whether the client is connected, where, and if not, why. Changes are also logged, by the logger
        `weft.client`.

        Cost: O(1) for each change; a slow application finds the last hundred.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         async for state in client.states():
        ...             return state.connected
        >>> asyncio.run(main())
        True
        """
        watch = self._engine.states.watch(partial(Waiter, asyncio.get_running_loop()))
        try:
            while (state := await watch.next()) is not None:
                yield state
        finally:
            self._engine.states.unwatch(watch)

    @property
    def is_over(self) -> bool:
        """Whether the client has ended: it was closed, or the broker does not accept it any more. Cost: O(1).

        >>> connect("weft://localhost").is_over
        False
        """
        return self._engine.is_over

    async def move(self, address: str, *, patience: float | None = None, abandon: bool = False) -> None:
        """Go on at another broker of the same network, and lose nothing. Returns when everything is there.

        Named subscriptions take along what is not acknowledged: no event is lost, comes twice or out of order, and
        iterators just go on. A client with a name goes on publishing where it was. Subscriptions without a name begin
        anew, and shared ones stay where they are. The old connection goes on until the other broker has the session.
        Raises ConnectError if the broker does not take the client, or not within `patience` seconds; then the client is
        at its old broker.

        With `abandon`, the client goes on without its old broker when that has been silent for `patience` seconds, 30
        by default: `gaps` or `resets` of a subscription say that events may be missing. If the old broker comes back,
        what it has is delivered late, and perhaps a second time.

        Cost: a few round trips between the brokers and a few commits, and as long as what is not acknowledged travels.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.move(local.address)
        >>> asyncio.run(main())
        """
        if patience is not None and not patience > 0:
            raise OptionError(f"patience is a number of seconds above 0, not {patience!r}")
        target = Address.parse(address)
        if abandon:
            await self._engine.move(target, None, _SILENCE if patience is None else patience)
        else:
            await self._engine.move(target, patience, None)

    # -- publishing ------------------------------------------------------------------------------------------

    async def publish(
        self,
        event: Publishable,
        *,
        payload: Any = None,
        datacontenttype: str = "",
        durable: bool = True,
        ttl: float | timedelta | None = None,
    ) -> Receipt:
        """Publish an event. Returns when it is on the broker's disk, with a receipt: the log and the offset there.

        Raises EventError and PublishError.

        The payload is bytes, text, or anything that JSON can express. After `ttl` seconds the event expires, and is no
        longer delivered. An event that is not durable is not stored: it reaches the connected subscribers, at most
        once, and `publish` returns when it is sent. A call that is cancelled or interrupted may store the event or not.

        Cost: one round trip and one group commit, which calls at the same time share.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         receipt = await client.publish({"magnitude": 6.1, "place": "Chile"}, payload={"felt": 12})
        ...         return receipt.offset, receipt.log == client.log_id
        >>> asyncio.run(main())
        (1, True)
        """
        sent = outgoing(event, payload, datacontenttype, ttl)
        while not self._engine.has_room():
            await self._engine.wait_for_room()
        outcome = self._engine.publish_one(sent, durable)
        await outcome
        return outcome.receipt

    async def publish_many(
        self, events: Iterable[Publishable], *, durable: bool = True, ttl: float | timedelta | None = None
    ) -> int:
        """Publish many events, in their order. Returns how many there were, when all of them are stored.

        Raises PublishError if the broker refused some; all others are stored then. An invalid event raises EventError
        with its position; the events before it are published. `events` may be endless: a bounded number of them waits
        to be confirmed.

        Cost: O(events); they are sent and stored in large groups.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         return await client.publish_many({"n": n} for n in range(100))
        >>> asyncio.run(main())
        100
        """
        return await self._engine.publish_many(events, durable, ttl)

    async def publish_epoch(self, epoch: int, events: Iterable[Publishable]) -> int:
        """Store the events of an epoch once, however often this is called with them. Returns how many are new.

        A client with a name publishes epoch after epoch, in increasing order; within an epoch the position of an event
        identifies it. Call it again with the same epoch and the same events, from this process or another, after a
        failure: what is stored already is not sent again. An older epoch is complete, so nothing is sent. Raises
        PublishError if the broker refuses an event: it is stored up to there.

        Cost: one round trip, and as `publish_many` for the events that are new.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="job-3") as client:
        ...         some = [{"n": n} for n in range(3)]
        ...         return await client.publish_epoch(1, some), await client.publish_epoch(1, some)
        >>> asyncio.run(main())
        (3, 0)
        """
        return await self._engine.publish_epoch(epoch, events)

    async def advertise(self, filter: AnyFilter) -> None:
        """Promise to publish what a filter matches, at a broker with `advertised = true`. It refuses everything else.

        Returns when every broker knows it: no subscription misses what is published within it from then on. The
        client keeps it over reconnections, and the broker keeps it for a client with a name. Advertising the same
        filter again changes nothing. Raises FilterError, AccessError or RequestError.

        Cost: one round trip and one commit, and as long as it travels to the furthest broker.

        >>> from weft.server.config import BrokerConfig
        >>> from weft.testing import broker
        >>> async def main():
        ...     config = BrokerConfig(advertised=True)
        ...     async with broker(config=config) as local, local.connect(name="sensor-7") as client:
        ...         await client.advertise("magnitude >= 5")
        ...         await client.publish({"magnitude": 6.1})
        >>> asyncio.run(main())
        """
        text = filter_text(filter)
        await self._engine.request(lambda _: Advertise(advert_number(text), text))

    async def unadvertise(self, filter: AnyFilter) -> None:
        """Withdraw the advertisement of a filter, if there is one.

        Events that are not confirmed by then may be refused.

        Cost: one round trip and one commit.

        >>> from weft.server.config import BrokerConfig
        >>> from weft.testing import broker
        >>> async def main():
        ...     config = BrokerConfig(advertised=True)
        ...     async with broker(config=config) as local, local.connect(name="sensor-7") as client:
        ...         await client.advertise("magnitude >= 5")
        ...         await client.unadvertise("magnitude >= 5")
        >>> asyncio.run(main())
        """
        number = advert_number(filter_text(filter))
        await self._engine.request(lambda _: Unadvertise(number))

    async def publish_profile(
        self, id: str, region: AnyFilter, duration: float | timedelta, *, payload: Any = None
    ) -> PublishedProfile:
        """Publish an event that is a region and lasts for a while: a warning for an area, say, for the next two hours.

        While it lasts, it is shown to every subscription with `profiles=` whose filter covers or overlaps the region,
        also to those that come later. Publishing the same id again replaces it. It ends by itself, with
        `withdraw_profile`, or with the session of this client, which needs a name; `payload` is as in `publish`.
        Raises OptionError, FilterError, AccessError or RequestError.

        Cost: one round trip and one commit.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="station") as client:
        ...         await client.publish_profile("storm", "lat BETWEEN 40 AND 45", timedelta(hours=2), payload="wind")
        ...         async with client.subscribe("lat BETWEEN 44 AND 46", profiles="overlap") as driver:
        ...             event = await anext(driver)
        ...             return event.profile.change, event.profile.id, event.text
        >>> asyncio.run(main())
        ('appeared', 'storm', 'wind')
        """
        message = publish_message(id, region, duration, payload, self._engine.request_token())
        return published(id, await self._engine.request(message))

    async def withdraw_profile(self, id: str) -> bool:
        """End a profile of this client before its time. Returns whether there was one.

        Cost: one round trip and one commit.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="station") as client:
        ...         await client.publish_profile("storm", "lat BETWEEN 40 AND 45", 7_200)
        ...         return await client.withdraw_profile("storm"), await client.withdraw_profile("storm")
        >>> asyncio.run(main())
        (True, False)
        """
        try:
            await self._engine.request(lambda number: WithdrawProfile(number, id))
        except RequestError as error:
            if error.code != "unknown":
                raise
            return False
        return True

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
        expires: float | timedelta | None = None,
        rate: str | Rate | None = None,
        profiles: Literal["covering", "overlap"] | None = None,
    ) -> Subscription:
        """Subscribe to the events that match a filter: `async for event in client.subscribe("magnitude >= 5")`.

        - `name` makes the subscription durable. The broker keeps its events until they are acknowledged, even while
          nobody is connected, and the next client that subscribes with this name continues there.
        - `shared`: all subscriptions with this name share its events; each event goes to one of them.
        - `since`: begin with older events of this broker's log, from an offset or a time. It applies when the
          subscription is created, not when it is resumed.
        - `ordered`: whether an event that failed (`nack`) holds back those behind it.
        - `lag`: how many events the subscription may be behind before the oldest are dropped.
        - `expires`: seconds after which the broker forgets a subscription with a name that nobody reads; None means as
          long as it keeps the sessions of this client.
        - `rate`: at most so many events, such as "10/s" or "100/min". The broker suppresses the others, which are never
          delivered, and counts them: `suppressed` in `weft status`. Older events that `since` asks for are not limited.
        - `profiles`: also show the living profiles that the filter covers, or overlaps (see `publish_profile`). An
          event whose `profile` is not None says that one has appeared, changed or ended; `replace` shows the
          difference.

        It begins when it is awaited, entered with `async with`, or iterated. Leaving `async with` ends it here, and so
        does leaving a loop over it when nothing else refers to it; one with a name stays at the broker, see
        `unsubscribe`.

        Cost: one round trip and one commit when it begins; with a name or `since`, one more connection.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe("magnitude >= 5", name="alerts")
        ...         await client.publish({"magnitude": 6.1, "place": "Chile"})
        ...         async for event in alerts:
        ...             await event.ack()
        ...             return event["place"]
        >>> asyncio.run(main())
        'Chile'
        """
        options = subscription_options(name, shared, since, ordered, lag, expires, profiles)
        return Subscription(self._engine, subscription_text(filter, rate), name, options)

    def subscribe_many(  # noqa: PLR0913 - the options of a subscription
        self,
        filters: ManyFilters,
        *,
        name: str = "",
        ordered: bool = True,
        lag: int = 0,
        expires: float | timedelta | None = None,
        rate: str | Rate | None = None,
    ) -> SubscriptionSet:
        """Subscribe to many filters at once: a mapping from your names to filters, or a list of filters.

        Every event that matches some of them comes once, and `event.matched` has their names, or their positions in the
        list. The options are those of `subscribe`; `rate` applies to each filter by itself. With a `name`, all filters
        share what the broker keeps under this name: the next client that gives it filters with these names goes on
        there, filters that it leaves out end with what waits for them alone, and `subscribe` takes it over, too.

        All filters begin, or none: if the broker refuses some, the first of them is in the error, and the others are
        withdrawn. Under a name that had filters before, those that are refused or not given stay as they were.

        Cost: one round trip and one commit, whatever their number; O(filters). With a name, one more connection.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         alerts = await client.subscribe_many({"strong": "magnitude >= 6", "near": "distance < 50"})
        ...         await client.publish({"magnitude": 6.1, "distance": 20})
        ...         async for event in alerts:
        ...             return event.matched
        >>> asyncio.run(main())
        ('strong', 'near')
        """
        options = subscription_options(name, False, None, ordered, lag, expires)
        return SubscriptionSet(self._engine, labelled_texts(filters, rate), name, options)

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The dead letters of named subscriptions, which may belong to other clients of the same principal.

        Cost: O(1); see its methods.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("x > 0", name="alerts"):
        ...         return await client.dead_letters.list("alerts")
        >>> asyncio.run(main())
        []
        """

        async def ask(message_of: Callable[..., DeadMessage]) -> Any:
            return await self._engine.request_at_home(partial(message_of, queue=QueueNumber(NAMED)))

        return DeadLetterQueue(ask, is_named=True)
