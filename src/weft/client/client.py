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
from weft.client.connection import Waiter
from weft.client.connection_state import ConnectionState
from weft.client.dead_letters import DeadLetterQueue
from weft.client.engine import ClientEngine
from weft.client.events import Publishable, ReceivedEvent, outgoing
from weft.client.history import HistoricEvent, HistoryPages, history_request
from weft.client.options import (
    check_name,
    connection_policy,
    filter_text,
    seconds,
    subscription_options,
    subscription_text,
)
from weft.client.profiles import PublishedProfile, publish_message, published
from weft.client.questions import (
    AnswerPage,
    RelationReport,
    SearchPage,
    SearchPages,
    answer_page,
    expected,
    listed,
    question_message,
    related,
)
from weft.client.subscription import SubscriptionOptions
from weft.client.subscription_handle import NAMED, SubscriptionHandle
from weft.errors import ClientClosedError, OptionError, RequestError
from weft.language.any_filter import AnyFilter
from weft.model.rate import Rate, split_rate, with_rate
from weft.protocol.addresses import Address
from weft.protocol.explanation import Explanation, explanation_of
from weft.protocol.messages import (
    Advertise,
    AskStatus,
    DeadMessage,
    Explain,
    History,
    QueueNumber,
    SubNumber,
    Unadvertise,
    WithdrawProfile,
)
from weft.protocol.questions import (
    AnyQuestion,
    AskBalance,
    AskItems,
    AskOrder,
    AskOverlay,
    AskProfiles,
    AskRules,
    AskSessions,
    AskSubscriptions,
    AskTrace,
    AskWhy,
    BalanceReport,
    BrokerSummary,
    ChangeSubscription,
    DetachLink,
    Disconnect,
    FilterTrace,
    ItemDirection,
    ItemFacts,
    MoveSession,
    OperationDone,
    OrderNode,
    OverlayList,
    PreloadQueries,
    ProfileFacts,
    Retune,
    RulesReport,
    SessionFacts,
    SetBalance,
    SubscriptionFacts,
    WhyReport,
)
from weft.protocol.status import BrokerStatus, broker_status

_SILENCE = 30.0  # seconds without a word from a broker after which it is abandoned, if nothing else is said
_FAIR = 64  # events after which other tasks get a turn


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

    Cost: nothing is sent before the block is entered; then one connection and one round trip.

    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, connect(local.address, name="sensor-7") as client:
    ...         await client.publish({"magnitude": 6.1})
    >>> asyncio.run(main())
    """
    policy = connection_policy(address, token, tls, ca, certificate, timeout, heartbeat, retry_for)
    return Client(ClientEngine(policy, check_name(name), expires=seconds(expires)))


class Client:
    """A connected client; see `connect`. It belongs to one event loop.

    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5") as alerts:
    ...         await client.publish({"magnitude": 6.1, "place": "Chile"})
    ...         print((await anext(alerts))["place"])
    >>> asyncio.run(main())
    Chile
    """

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine

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
    ) -> int:
        """Publish an event. Returns when it is on the broker's disk: its offset in the log, 0 if that is not known.

        Raises EventError and PublishError.

        The payload is bytes, text, or anything that JSON can express. After `ttl` seconds the event expires, and is no
        longer delivered. An event that is not durable is not stored: it reaches the connected subscribers, at most
        once, and `publish` returns when it is sent. A call that is cancelled or interrupted may store the event or not.

        Cost: one round trip and one group commit, which calls at the same time share.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.publish({"magnitude": 6.1, "place": "Chile"}, payload={"felt": 12})
        >>> asyncio.run(main())
        """
        sent = outgoing(event, payload, datacontenttype, ttl)
        while not self._engine.has_room():
            await self._engine.wait_for_room()
        receipt = self._engine.publish_one(sent, durable)
        await receipt
        return receipt.offset

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

    def profiles(self, session: str = "", *, broker: str = "") -> AsyncIterator[ProfileFacts]:
        """The living profiles that the broker knows, of a session or of all: `async for profile in client.profiles()`.

        Without the right `status`, they are those of one's own principal. Raises AccessError or RequestError.

        Cost: one round trip for each 200 profiles.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="station") as client:
        ...         await client.publish_profile("storm", "lat BETWEEN 40 AND 45", 7_200)
        ...         return [(profile.source, profile.id) async for profile in client.profiles()]
        >>> asyncio.run(main())
        [('station', 'storm')]
        """
        return listed(self._ask, AskProfiles(session), broker)

    async def preload_profiles(
        self, filters: Iterable[AnyFilter], meeting: Literal["covering", "overlap"] = "overlap", *, broker: str = ""
    ) -> int:
        """Have a broker compare filters that are expected of subscriptions to profiles, before they come.

        Such a subscription costs no comparison when it comes; a wrong guess costs its look-up only (thesis 7.1). It
        needs the right `operate`. Returns how many there were. Raises FilterError, AccessError or RequestError.

        Cost: one round trip for each 64 filters.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         return await client.preload_profiles(["lat > 40", "lat > 50"])
        >>> asyncio.run(main())
        2
        """
        texts = [filter_text(each) for each in filters]
        for start in range(0, len(texts), 64):
            await self.ask(PreloadQueries(tuple(texts[start : start + 64]), meeting), broker=broker)
        return len(texts)

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

    # -- questions -------------------------------------------------------------------------------------------

    async def explain(self, event: Publishable) -> Explanation:
        """Where an event would go if it were published here, and why. Raises EventError, AccessError or RequestError.

        Broker by broker, it says which subscriptions match, and which neighbours get the event because of what they
        told. Nothing is published. It needs the right `status`. A broker that does not answer within two seconds is
        named in the answer.

        Cost: one round trip, and one to each broker that the event would reach.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5"):
        ...         return (await client.explain({"magnitude": 6.1})).matched
        >>> asyncio.run(main())
        1
        """
        return explanation_of(await self._engine.request(partial(Explain, attributes=outgoing(event).attributes)))

    async def status(self, *, queues: int = 20) -> BrokerStatus:
        """The status of the broker, with the `queues` queues that are furthest behind. Raises AccessError.

        It needs the right `status`.

        Cost: one round trip; O(queues) at the broker.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.publish({"magnitude": 6.1})
        ...         status = await client.status()
        ...         return status.end - status.first, status.connections
        >>> asyncio.run(main())
        (1, 1)
        """
        if not 0 <= queues < 1 << 63:
            raise OptionError(f"queues is a number of queues, not {queues}")
        return broker_status(await self._engine.request(partial(AskStatus, queues=queues)))

    async def read_history(self, first: int, end: int | None = None, *, filter: AnyFilter = "TRUE") -> History:
        """Some events of the broker's log, from offset `first` to before `end`. Raises AccessError or RequestError.

        It has every stored event below its `next` that matches the filter, encoded; `history` is more convenient. It
        needs the right `history`, and the right to subscribe to the filter. Nothing changes at the broker: reading is
        not a subscription.

        Cost: one round trip, some 200 KB and a few milliseconds at the broker.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.publish_many({"magnitude": each} for each in range(10))
        ...         page = await client.read_history(4)
        ...         return page.oldest, page.next, page.end, len(page.events)
        >>> asyncio.run(main())
        (1, 11, 11, 7)
        """
        page: History = await self._engine.request(history_request(first, end, filter_text(filter)))
        return page

    async def history(
        self, filter: AnyFilter = "TRUE", *, first: int = 0, end: int | None = None
    ) -> AsyncIterator[HistoricEvent]:
        """The stored events that match a filter, in order: `async for event in client.history("magnitude >= 5")`.

        `first` and `end` are offsets of the broker's log: where to begin, and before which to stop; by default where
        the log ends now. Events that were removed from the log are skipped. It needs the right `history`, and the
        right to subscribe to the filter. Raises AccessError or RequestError.

        Cost: one round trip for some hundreds of events.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.publish_many({"magnitude": each} for each in range(10))
        ...         return [event.offset async for event in client.history("magnitude >= 7", end=10)]
        >>> asyncio.run(main())
        [8, 9]
        """
        pages, text = HistoryPages(first, end), filter_text(filter)
        while (request := pages.request(text)) is not None:
            for event in pages.events(await self._engine.request(request)):
                yield event

    async def ask(self, question: AnyQuestion, *, broker: str = "", page: bytes = b"") -> AnswerPage:
        """One answer to a question of `weft.protocol.questions`; the methods below ask the same more conveniently.

        `broker` is the name of the broker in the network that answers; by default the one that the client is connected
        to. A list comes in pages: repeat the question with the `page` of the last answer, until that is empty. Raises
        AccessError, FilterError or RequestError.

        Cost: one round trip, and a few milliseconds at the broker at most; one more to another broker.

        >>> from weft.protocol.questions import AskSessions
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="sensor-7") as client:
        ...         found = await client.ask(AskSessions())
        ...         return found.answer.rows[0].name, found.page
        >>> asyncio.run(main())
        ('sensor-7', b'')
        """
        return answer_page(await self._engine.request(question_message(question, broker, page)))

    async def _ask(self, question: AnyQuestion, broker: str, page: bytes) -> AnswerPage:
        return await self.ask(question, broker=broker, page=page)

    def sessions(
        self, text: str = "", *, connected: bool | None = None, broker: str = ""
    ) -> AsyncIterator[SessionFacts]:
        """The sessions whose names contain a text: `async for session in client.sessions("alert")`.

        Without the right `status`, they are those of one's own principal. Raises AccessError or RequestError.

        Cost: one round trip for each 200 sessions, or for some thousands that are passed over.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="sensor-7") as client:
        ...         return [session.name async for session in client.sessions()]
        >>> asyncio.run(main())
        ['sensor-7']
        """
        return listed(self._ask, AskSessions(text, connected), broker)

    def subscriptions(self, session: str = "", *, text: str = "", broker: str = "") -> AsyncIterator[SubscriptionFacts]:
        """The subscriptions of a session, or of all, whose filters contain a text, with how often each has matched.

        Without the right `status`, they are those of one's own principal. Raises AccessError or RequestError.

        Cost: one round trip for each 200 subscriptions, or for some thousands that are passed over.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5"):
        ...         await client.publish({"magnitude": 6.1})
        ...         return [(each.filter, each.matched) async for each in client.subscriptions()]
        >>> asyncio.run(main())
        [('magnitude >= 5', 1)]
        """
        return listed(self._ask, AskSubscriptions(session, text), broker)

    def items(
        self, link: str, *, direction: ItemDirection = "sent", advertisements: bool = False, broker: str = ""
    ) -> AsyncIterator[ItemFacts]:
        """What a broker has sent to a neighbour, and why, or received from it. Needs the right `status`.

        Raises AccessError, or RequestError if there is no such link.

        Cost: one round trip for some dozens of items.

        >>> from weft.errors import RequestError
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         try:
        ...             return [item.text async for item in client.items("north")]
        ...         except RequestError as error:
        ...             return str(error)
        >>> asyncio.run(main())
        "there is no link to 'north' here; links: none"
        """
        return listed(self._ask, AskItems(link, direction, advertisements), broker)

    def order(self, node: int | None = None, *, broker: str = "") -> AsyncIterator[OrderNode]:
        """The subscriptions of a broker in their covering order: its roots, or the children of a node.

        An order has at most 20,000 subscriptions. Needs the right `status`. Raises AccessError or RequestError.

        Cost: the roots take some 0.1 ms for each subscription, over many round trips; children one round trip.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         async with client.subscribe("x > 0"), client.subscribe("x > 5"):
        ...             roots = [root async for root in client.order()]
        ...             return [(root.filter, root.size) for root in roots], [
        ...                 each.filter async for each in client.order(roots[0].node)
        ...             ]
        >>> asyncio.run(main())
        ([('x > 0', 2)], ['x > 5'])
        """
        return listed(self._ask, AskOrder(node), broker)

    async def relate(
        self, filter: AnyFilter, *, broker: str = "", progress: Callable[[int, int], object] | None = None
    ) -> RelationReport:
        """The subscriptions of a broker that equal, cover, are covered by or overlap a filter.

        It also says what each neighbour would be sent if somebody subscribed to the filter there. Without the right
        `status`, one's own subscriptions are compared. `progress` gets how many of how many are compared. Raises
        FilterError, AccessError or RequestError.

        Cost: some 0.01 ms for each subscription, and 0.1 ms for each that overlaps; one round trip for some hundreds.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("x > 0"):
        ...         return (await client.relate("x > 5")).counts
        >>> asyncio.run(main())
        {'equal': 0, 'covers': 1, 'covered': 0, 'overlaps': 0}
        """
        return await related(self._ask, filter_text(filter), broker, progress)

    async def search(
        self,
        filter: AnyFilter = "TRUE",
        *,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        broker: str = "",
    ) -> AsyncIterator[SearchPage]:
        """Search the stored events by a filter: `async for page in client.search("magnitude >= 5")`.

        Each page has the events that were found, and how far the search is; a page may be without events. `since` and
        `until` are offsets of the broker's log, or times; by default everything that is stored now is searched. It
        needs the right `history`, and the right to subscribe to the filter. Raises FilterError, AccessError or
        RequestError.

        Cost: one round trip for some hundreds of events that are looked at.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         await client.publish_many({"magnitude": each} for each in range(10))
        ...         async for page in client.search("magnitude >= 7", since=5):
        ...             return [event.offset for event in page.events], page.scanned, page.total
        >>> asyncio.run(main())
        ([8, 9, 10], 6, 6)
        """
        pages = SearchPages(filter_text(filter), since, until)
        while not pages.is_done:
            yield pages.page((await self.ask(pages.question, broker=broker)).answer)

    async def overlay(self) -> tuple[BrokerSummary, ...]:
        """The brokers of the network, each after the one before it, with its links. Needs the right `status`.

        A broker that does not answer within two seconds has a `problem`. Raises AccessError or RequestError.

        Cost: one round trip, and one to each broker of the network.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         return [each.sessions for each in await client.overlay()]
        >>> asyncio.run(main())
        [1]
        """
        return expected((await self.ask(AskOverlay())).answer, OverlayList).rows

    async def trace(
        self, event: Publishable, session: str, number: int | None = None, *, broker: str = ""
    ) -> FilterTrace:
        """The truth of each part of a subscription's filter for an event, which is not published.

        The subscription is given by the name of its session and its number; by default it is the first one. Needs the
        right `status` for subscriptions of others. Raises EventError, AccessError or RequestError.

        Cost: one round trip.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("x > 5 AND y = 1", name="a"):
        ...         found = await client.trace({"x": 7, "y": 2}, "a")
        ...         return found.matches, [(part.filter, part.truth) for part in found.trace.parts]
        >>> asyncio.run(main())
        (False, [('x > 5', True), ('y = 1', False)])
        """
        question = AskTrace(session, outgoing(event).attributes, None if number is None else SubNumber(number))
        return expected((await self.ask(question, broker=broker)).answer, FilterTrace)

    async def why(self, session: str, number: int | None = None, *, broker: str = "") -> WhyReport:
        """Why a subscription gets nothing, or less than expected: a report with findings, none if nothing is wrong.

        `session` is the name of a durable subscription, of a session, or one under which a subscription is shared.
        Each finding has a fact, evidence and advice. All brokers of the network are asked. Needs the right `status` for
        subscriptions of others. Raises AccessError or RequestError.

        Cost: one round trip, and one to each broker of the network.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         async with client.subscribe("magnitude > 5 AND magnitude < 3", name="alerts"):
        ...             return [finding.fact for finding in (await client.why("alerts")).findings]
        >>> asyncio.run(main())
        ['no event can match its filter']
        """
        question = AskWhy(session, None if number is None else SubNumber(number))
        return expected((await self.ask(question, broker=broker)).answer, WhyReport)

    async def rules(
        self,
        principal: str = "",
        *,
        filter: AnyFilter | None = None,
        event: Publishable | None = None,
        broker: str = "",
    ) -> RulesReport:
        """What the access rules allow a principal, by default oneself.

        With a filter or an event, it also says whether the principal may subscribe to the filter, and publish or read
        the event. Needs the right `status` for the rules of others. Raises FilterError, AccessError or RequestError.

        Cost: one round trip.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         found = await client.rules(filter="magnitude >= 5")
        ...         return found.subscribe, found.subscribe_problem
        >>> asyncio.run(main())
        (None, '')
        """
        text = "" if filter is None else filter_text(filter)
        question = AskRules(principal, text, b"" if event is None else bytes(outgoing(event).attributes))
        return expected((await self.ask(question, broker=broker)).answer, RulesReport)

    # -- operation -------------------------------------------------------------------------------------------

    async def disconnect(self, session: str, *, reason: str = "", broker: str = "") -> None:
        """Close the connection of a session; its client may come back. Needs the right `operate`.

        Raises AccessError, or RequestError if there is no such connection.

        Cost: one round trip.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, local.connect(name="sensor-7"):
        ...         await client.disconnect("sensor-7", reason="maintenance")
        >>> asyncio.run(main())
        """
        await self.ask(Disconnect(session, reason), broker=broker)

    async def move_session(self, session: str, address: str, *, broker: str = "") -> None:
        """Let the broker at another address take a session over, with its client if it is connected. Needs `operate`.

        Returns when that broker is asked to; `sessions` shows where the session is. Access and limits are checked at
        that broker; if it does not take the session, nothing changes. Raises AccessError, ConnectError, or
        RequestError if there is no such session, or the broker is not in the network.

        Cost: two round trips, and one connection to the other broker.

        >>> from weft.errors import RequestError
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="sensor-7") as client:
        ...         try:
        ...             await client.move_session("sensor-7", local.address)
        ...         except RequestError as error:
        ...             return str(error)
        >>> asyncio.run(main())
        'this broker has no name, so no session can leave it; give it one'
        """
        target = Address.parse(address)
        to = await self._engine.name_at(target)
        await self.ask(MoveSession(session, to, str(target)), broker=broker)

    async def balance(self, *, broker: str = "") -> BalanceReport:
        """The loads of all brokers that balance them, as the broker knows them. Needs the right `status`.

        Cost: one round trip.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         return (await client.balance()).enabled
        >>> asyncio.run(main())
        False
        """
        return expected((await self.ask(AskBalance(), broker=broker)).answer, BalanceReport)

    async def set_balance(self, enabled: bool, *, broker: str = "") -> None:
        """Let a broker share its load, and move sessions to others when it has too much; or not. Needs `operate`.

        It holds until the broker is started again; `[balance]` in its settings is for good. Raises AccessError, or
        RequestError if the broker has no name.

        Cost: one round trip.

        >>> from weft.server.config import BrokerConfig
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker(config=BrokerConfig(name="north")) as local, local.connect() as client:
        ...         await client.set_balance(True)
        ...         return (await client.balance()).enabled
        >>> asyncio.run(main())
        True
        """
        await self.ask(SetBalance(enabled), broker=broker)

    async def detach(self, link: str, *, broker: str = "") -> None:
        """End a link, with everything that the neighbour wants; nobody waits for it any more. Needs `operate`.

        Returns when that is stored. Raises AccessError, or RequestError if there is no such link.

        Cost: one round trip and one commit.

        >>> from weft.errors import RequestError
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         try:
        ...             await client.detach("north")
        ...         except RequestError as error:
        ...             return str(error)
        >>> asyncio.run(main())
        'there is no neighbour north to detach'
        """
        await self.ask(DetachLink(link), broker=broker)

    async def change(self, session: str, number: int, filter: AnyFilter | None, *, broker: str = "") -> None:
        """Give a subscription of any session another filter, from the next event on; None ends it. Needs `operate`.

        The access rules of its owner must allow the filter. It holds until the client subscribes with its own filter
        again. Returns when it is stored. Raises FilterError, AccessError or RequestError.

        Cost: one round trip and one commit.

        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("x > 5", name="alerts"):
        ...         await client.change("alerts", 1, "x > 9")
        ...         return [each.filter async for each in client.subscriptions("alerts")]
        >>> asyncio.run(main())
        ['x > 9']
        """
        text = None if filter is None else filter_text(filter)
        await self.ask(ChangeSubscription(session, SubNumber(number), text), broker=broker)

    async def retune(self, space: str) -> str:
        """Give the network another label space while it runs; needs the model dls, and the right `operate`.

        `space` is what `LabelSpace.to_json` returns. The broker that begins re-tunings in the network is asked. Returns
        what it says when that is stored. Raises AccessError, or RequestError while another re-tuning is in progress.

        Cost: one round trip or two, and one commit.

        >>> from weft.errors import RequestError
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         try:
        ...             await client.retune("{}")
        ...         except RequestError as error:
        ...             return error.code
        >>> asyncio.run(main())
        'space'
        """
        try:
            done = await self.ask(Retune(space))
        except RequestError as error:
            if error.code != "leader":
                raise
            done = await self.ask(Retune(space), broker=error.message.split()[0])
        return expected(done.answer, OperationDone).text

    async def label_space(self) -> str:
        """The label space of the broker, as JSON. Needs the right `operate`. Raises AccessError or RequestError.

        Cost: one round trip.

        >>> from weft.errors import RequestError
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client:
        ...         try:
        ...             await client.label_space()
        ...         except RequestError as error:
        ...             return str(error)
        >>> asyncio.run(main())
        'a table of covering has no label space; there is nothing to re-tune'
        """
        return expected((await self.ask(Retune())).answer, OperationDone).text

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
            return await self._engine.request(partial(message_of, queue=QueueNumber(NAMED)))

        return DeadLetterQueue(ask, is_named=True)


class _Subscribed:
    """What a subscription tells of its events, whatever its face."""

    _handle: SubscriptionHandle | None = None  # None before it begins

    @property
    def dropped(self) -> int:
        """How many events were dropped because they were not taken in time; always 0 for a subscription with a name.

        Cost: O(1).

        >>> connect().subscribe("x > 0", lag=10).dropped
        0
        """
        return 0 if self._handle is None else self._handle.inbox.dropped

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of offsets that the broker dropped, because the subscription was too far behind. Cost: O(gaps).

        >>> connect().subscribe("x > 0", name="alerts").gaps
        []
        """
        return [] if self._handle is None else list(self._handle.inbox.gaps)

    @property
    def resets(self) -> int:
        """How often the broker had forgotten the subscription, so that events may be missing. Cost: O(1).

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
            self._handle = self._engine.subscribe(self._name, self._options)
            self._begun = self._handle.ask("subscribe", self._filter)
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
        await (await self._open()).ask("unsubscribe")

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
        await (await self._open()).ask("replace", text)
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
