"""Explaining where an event goes: each broker on its way is asked what it would do. Laws: nothing is published and
nothing changes; a broker that does not answer in time is named; work and answers are bounded.

The broker that a client asks leads. It asks the neighbours to which the event goes, then those to which they say that
it goes, and so on, by messages that are relayed behind whatever was told before. The others remember nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.broker.effects import Now
from weft.broker.explanation import BrokerHop, Explanation, LinkChoice, MatchedSubscription
from weft.broker.link import Neighbour
from weft.broker.link_messages import LinkRelay, RelayKind
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import Explain, Explained, Publish, SubNumber
from weft.broker.reach import Reach
from weft.broker.requests import RefusalError
from weft.broker.sessions import AnyQueue, ClientSubscription, Connection
from weft.broker.state import BrokerState
from weft.errors import EventError
from weft.routing.item_text import item_text, shortened
from weft.routing.table import Exactness, Link, Role

MOST_BYTES = 900_000  # of an answer; a frame has room for more
MOST_EVENT = 1 << 16  # bytes of the attributes of an event
_MOST_BROKERS = 256
_MOST_OPEN = 16  # questions of clients at a time
_MOST_SUBSCRIPTIONS = 10  # listed of one broker
_MOST_LINKS = 32
_MOST_ITEMS = 2  # listed of one neighbour
_TEXT = 200  # characters of an item or a filter

Relay = Callable[[LinkRelay, Now], bool]
_encode = msgspec.msgpack.Encoder().encode


class HopQuestion(msgspec.Struct, frozen=True, array_like=True):
    """What would you do with an event that comes from this neighbour?"""

    number: int
    source: str
    head: bytes


class HopAnswer(msgspec.Struct, frozen=True, array_like=True):
    """This."""

    number: int
    hop: BrokerHop


_question = msgspec.msgpack.Decoder(HopQuestion).decode
_answer = msgspec.msgpack.Decoder(HopAnswer).decode


class _Inquiry:
    """A client's question that is not answered yet."""

    def __init__(self, connection: Connection, request: int, head: bytes) -> None:
        self.connection = connection
        self.request = request
        self.head = head
        self.hops: list[BrokerHop] = []
        self.size = 0
        self.asked: set[str] = set()
        self.pending: dict[str, str] = {}  # brokers that have not answered, and from where the event comes to each
        self.unasked = 0

    def add(self, hop: BrokerHop) -> bool:
        """Note what a broker would do; whether there is room for it."""
        self.size += len(_encode(hop))
        if self.size > MOST_BYTES:
            self.unasked += 1
            return False
        self.hops.append(hop)
        return True


class Explaining:
    """The part of a broker that explains."""

    def __init__(self, state: BrokerState, reach: Reach, relay: Relay) -> None:
        self._state = state
        self._reach = reach
        self._relay = relay
        self._open: dict[int, _Inquiry] = {}
        self._numbers = 0

    # -- for a client -----------------------------------------------------------------------------------

    def ask(self, connection: Connection, message: Explain, now: Now) -> None:
        """Explain where an event would go, when everybody has answered. Raises RequestError or AccessError."""
        state = self._state
        state.rules.of(connection.principal).check("status")
        if len(message.attributes) > MOST_EVENT:
            raise RefusalError("event", f"an event to be explained has at most {MOST_EVENT:,} bytes")
        if len(self._open) >= _MOST_OPEN:
            raise RefusalError("busy", f"{_MOST_OPEN} events are being explained already; ask later")
        try:
            attributes, head, _ = state.door.admit(Publish(0, message.attributes), now.utc)
        except EventError as error:
            raise RefusalError("event", str(error)) from None
        self._numbers += 1
        inquiry = self._open[self._numbers] = _Inquiry(connection, message.request, head)
        inquiry.asked.add(self._reach.name)
        self._take(self._numbers, self._hop(attributes, None), now)

    def _take(self, number: int, hop: BrokerHop, now: Now) -> None:
        """A broker has said what it would do: ask those to which it sends the event."""
        inquiry = self._open[number]
        if inquiry.add(hop):
            for link in hop.links:
                if link.sent and link.state == "warm" and link.peer not in inquiry.asked:
                    self._pass_on(number, inquiry, link.peer, hop.broker, now)
        if not inquiry.pending:
            self._finish(number)

    def _pass_on(self, number: int, inquiry: _Inquiry, broker: str, source: str, now: Now) -> None:
        if len(inquiry.asked) >= _MOST_BROKERS:
            inquiry.unasked += 1
            return
        inquiry.asked.add(broker)
        body = _encode(HopQuestion(number, source, inquiry.head))
        if not self._relay(LinkRelay(broker, self._reach.name, body, kind=RelayKind.QUESTION), now):
            way = self._reach.path(broker)
            first = f"the link to {way[1]} is down, or not ready yet" if way else "no route leads to it"
            inquiry.add(BrokerHop(broker, source, problem=f"it cannot be asked now: {first}"))
            return
        inquiry.pending[broker] = source
        due = now.monotonic + self._state.limits.explain
        self._state.timers.add(due, lambda later: self._late(number, broker, later))

    def _late(self, number: int, broker: str, now: Now) -> None:
        inquiry = self._open.get(number)
        if inquiry is None or broker not in inquiry.pending:
            return
        way = " - ".join(self._reach.path(broker))
        seconds = self._state.limits.explain / 1e6
        problem = f"no answer within {seconds:g} s" + (
            f" by way of {way}" if way else "; no route leads to it any longer"
        )
        self._take(number, BrokerHop(broker, inquiry.pending.pop(broker), problem=problem), now)

    def _finish(self, number: int) -> None:
        inquiry = self._open.pop(number)
        connection = inquiry.connection
        if self._state.connections.get(connection.id) is connection:
            explanation = Explanation(tuple(_ordered(inquiry.hops)), inquiry.unasked)
            self._state.out.send(connection.id, Explained(inquiry.request, msgspec.Raw(_encode(explanation))))

    # -- among brokers ----------------------------------------------------------------------------------

    def receive(self, message: LinkRelay, now: Now) -> None:
        """A question or an answer of another broker. What cannot be read is dropped: whoever asked gives up in time."""
        try:
            if message.kind is RelayKind.QUESTION:
                self._reply(message, _question(message.body), now)
            else:
                self._answered(message.source, _answer(message.body), now)
        except (ValueError, RecursionError, EventError):  # msgspec's errors are ValueErrors
            self._state.counts["explanations not read"] += 1

    def _reply(self, message: LinkRelay, question: HopQuestion, now: Now) -> None:
        attributes, _, _ = self._state.door.relayed(question.head)
        body = _encode(HopAnswer(question.number, self._hop(attributes, Link(question.source))))
        self._relay(LinkRelay(message.source, self._reach.name, body, kind=RelayKind.ANSWER), now)

    def _answered(self, broker: str, answer: HopAnswer, now: Now) -> None:
        inquiry = self._open.get(answer.number)
        if inquiry is None or broker not in inquiry.pending:
            return  # it came too late
        source = inquiry.pending.pop(broker)
        self._take(answer.number, msgspec.structs.replace(answer.hop, broker=broker, source=source), now)

    # -- what this broker would do ------------------------------------------------------------------------

    def _hop(self, attributes: dict[str, object], source: Link | None) -> BrokerHop:
        """Cost: that of routing and matching an event, and O(heard) for each neighbour that wants it."""
        state = self._state
        routes = state.seats.table.route(attributes, source)
        others = [each for peer, each in sorted(state.neighbours.items()) if peer != source and not each.leaving]
        links = [self._choice(each, attributes, each.peer in routes) for each in others]
        links.sort(key=lambda each: not each.sent)
        found = state.seats.matching(attributes)
        return BrokerHop(
            self._reach.name,
            source or "",
            len(found),
            tuple(self._matched(*each) for each in found[:_MOST_SUBSCRIPTIONS]),
            tuple(links[:_MOST_LINKS]),
            len(links[_MOST_LINKS:]),
        )

    def _choice(self, neighbour: Neighbour, attributes: dict[str, object], wanted: bool) -> LinkChoice:
        table = self._state.seats.table
        down = neighbour.connection is None
        condition = "down" if down else "warm" if neighbour.warm else "cold"
        items: tuple[str, ...] = ()
        if not neighbour.warm:
            why = "cold"
        elif not wanted:
            why = "unwanted"
        elif neighbour.role is Role.MASTER:
            why = "master"
        elif table.exactness is Exactness.FLOOD:
            why = "flooding"
        else:
            found = table.reasons(attributes, neighbour.peer, _MOST_ITEMS)
            items = tuple(item_text(item, table.codec, _TEXT) for item in found)
            why = "wanted" if items else "hashed"
        sent = why != "unwanted"
        heard = len(neighbour.receiver.hashes[0])
        return LinkChoice(neighbour.peer, neighbour.role.value, condition, sent, why, items, heard)

    def _matched(self, queue: AnyQueue, number: SubNumber) -> MatchedSubscription:
        state = self._state
        sub: ClientSubscription | None
        if isinstance(queue, LossyQueue):
            session = queue.connection.session
            sub = None if session is None else session.subs.get(number)
            name = "" if session is None else session.name
            text = "" if sub is None else sub.text
            return MatchedSubscription(name, number, shortened(text, _TEXT), durable=False, connected=True)
        if queue.session is None:
            sub, name = state.shared_members.get(queue), ""
        else:
            owner = state.sessions[queue.session]
            sub, name = owner.subs.get(number), owner.name
        text = "" if sub is None else shortened(sub.text, _TEXT)
        return MatchedSubscription(name, number, text, queue.share, connected=bool(queue.flights))


def _ordered(hops: list[BrokerHop]) -> list[BrokerHop]:
    """Each broker behind the one from which the event comes to it, whatever the order of their answers."""
    behind: dict[str, list[BrokerHop]] = {}
    for hop in hops[1:]:
        behind.setdefault(hop.source, []).append(hop)
    found, todo = [], [hops[0]]
    while todo:
        hop = todo.pop()
        found.append(hop)
        todo += sorted(behind.pop(hop.broker, []), key=lambda each: each.broker, reverse=True)
    return found
