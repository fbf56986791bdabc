"""The brokers of a network as a client sees them: what it asks them, and what it has them do.

Questions are about sessions, subscriptions, links, stored events and access rules. Each says which right it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Literal

from weft.client.engine import ClientEngine
from weft.client.events import Publishable, outgoing
from weft.client.history import HistoricEvent, HistoryPages, history_request
from weft.client.options import (
    filter_text,
)
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
from weft.errors import OptionError, RequestError
from weft.language.any_filter import AnyFilter
from weft.protocol.addresses import Address
from weft.protocol.explanation import Explanation, explanation_of
from weft.protocol.messages import (
    AskStatus,
    Explain,
    History,
    SubNumber,
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


class BrokerView:
    """What one asks the broker that an engine is connected to, and through it the others; a `Client` is one.

    >>> import asyncio
    >>> from weft.testing import broker
    >>> async def main():
    ...     async with broker() as local, local.connect() as client:
    ...         return (await client.status()).connections
    >>> asyncio.run(main())
    1
    """

    def __init__(self, engine: ClientEngine) -> None:
        self._engine = engine

    # -- questions -------------------------------------------------------------------------------------------

    async def explain(self, event: Publishable) -> Explanation:
        """Where an event would go if it were published here, and why. Raises EventError, AccessError or RequestError.

        Broker by broker, it says which subscriptions match, and which neighbours get the event because of what they
        told. Nothing is published. It needs the right `status`. A broker that does not answer within two seconds is
        named in the answer.

        Cost: one round trip, and one to each broker that the event would reach.

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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
        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect() as client, client.subscribe("magnitude >= 5"):
        ...         await client.publish({"magnitude": 6.1})
        ...         return [(each.filter, each.matched) async for each in client.subscriptions()]
        >>> asyncio.run(main())
        [('magnitude >= 5', 1)]
        """
        return listed(self._ask, AskSubscriptions(session, text, rated=True), broker)

    def items(
        self, link: str, *, direction: ItemDirection = "sent", advertisements: bool = False, broker: str = ""
    ) -> AsyncIterator[ItemFacts]:
        """What a broker has sent to a neighbour, and why, or received from it. Needs the right `status`.

        Raises AccessError, or RequestError if there is no such link.

        Cost: one round trip for some dozens of items.

        >>> from weft.errors import RequestError
        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

        >>> import asyncio
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

    def profiles(self, session: str = "", *, broker: str = "") -> AsyncIterator[ProfileFacts]:
        """The living profiles that the broker knows, of a session or of all: `async for profile in client.profiles()`.

        Without the right `status`, they are those of one's own principal. Raises AccessError or RequestError.

        Cost: one round trip for each 200 profiles.

        >>> import asyncio
        >>> from weft.testing import broker
        >>> async def main():
        ...     async with broker() as local, local.connect(name="station") as client:
        ...         await client.publish_profile("storm", "lat BETWEEN 40 AND 45", 7_200)
        ...         return [(profile.source, profile.id) async for profile in client.profiles()]
        >>> asyncio.run(main())
        [('station', 'storm')]
        """
        return listed(self._ask, AskProfiles(session), broker)

    # -- operation -------------------------------------------------------------------------------------------

    async def disconnect(self, session: str, *, reason: str = "", broker: str = "") -> None:
        """Close the connection of a session; its client may come back. Needs the right `operate`.

        Raises AccessError, or RequestError if there is no such connection.

        Cost: one round trip.

        >>> import asyncio
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
        >>> import asyncio
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

        >>> import asyncio
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
        >>> import asyncio
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
        >>> import asyncio
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

        >>> import asyncio
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

    async def preload_profiles(
        self, filters: Iterable[AnyFilter], meeting: Literal["covering", "overlap"] = "overlap", *, broker: str = ""
    ) -> int:
        """Have a broker compare filters that are expected of subscriptions to profiles, before they come.

        Such a subscription costs no comparison when it comes; a wrong guess costs its look-up only (thesis 7.1). It
        needs the right `operate`. Returns how many there were. Raises FilterError, AccessError or RequestError.

        Cost: one round trip for each 64 filters.

        >>> import asyncio
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

    async def retune(self, space: str) -> str:
        """Give the network another label space while it runs; needs the model dls, and the right `operate`.

        `space` is what `LabelSpace.to_json` returns. The broker that begins re-tunings in the network is asked. Returns
        what it says when that is stored. Raises AccessError, or RequestError while another re-tuning is in progress.

        Cost: one round trip or two, and one commit.

        >>> from weft.errors import RequestError
        >>> import asyncio
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
        >>> import asyncio
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
