"""Explanations of where an event would go: each broker on its way is asked what it would do.

Nothing is published and nothing changes. A broker that does not answer in time is named. Work and answers are bounded.

The broker that a client asks leads. It asks the neighbours to which the event goes, then those to which they say that
it goes, and so on, by messages that are relayed behind whatever was sent before. The others remember nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from weft.broker.effects import Now
from weft.broker.limits import RefusalError
from weft.broker.links.links import Links
from weft.broker.links.neighbour import Neighbour
from weft.broker.parts import BrokerParts
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.queue import Queue
from weft.broker.sessions import ClientQueue, Connection
from weft.broker.transient_queue import TransientQueue
from weft.errors import EventError
from weft.protocol.explanation import BrokerHop, Explanation, LinkChoice, MatchedSubscription
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Explain, Explained, Publish, SubNumber
from weft.routing.item_text import item_text, shortened
from weft.routing.table import Exactness, Link, Role

MOST_BYTES = 900_000  # of an answer; a frame has room for more
MOST_EVENT = 1 << 16  # bytes of the attributes of an event
_MOST_BROKERS = 256
_MOST_OPEN = 16  # questions of clients at a time
_MOST_SUBSCRIPTIONS = 10  # listed of one broker
_MOST_LINKS = 32
_MOST_PROFILES = 1_000  # that an event is compared with
_MOST_LISTED = 10  # of these
_MOST_ITEMS = 2  # listed of one neighbour
_TEXT = 200  # characters of an item or a filter

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


@dataclass(slots=True)
class _Inquiry:
    """A client's question that is not answered yet."""

    connection: Connection
    request: int
    head: bytes
    asked: set[str]
    pending: dict[str, str] = field(default_factory=dict)  # brokers that have not answered, and the one before each
    hops: list[BrokerHop] = field(default_factory=list)
    size: int = 0
    unasked: int = 0

    def add(self, hop: BrokerHop) -> bool:
        """Note what a broker would do; whether there is room for it."""
        self.size += len(_encode(hop))
        if self.size > MOST_BYTES:
            self.unasked += 1
            return False
        self.hops.append(hop)
        return True


class Explainer:
    """Answers the questions of clients and of other brokers."""

    def __init__(self, parts: BrokerParts, links: Links, profiles: ProfileNotices) -> None:
        self._profiles = profiles
        self._sessions, self._queues, self._matcher = parts.sessions, parts.queues, parts.matcher
        self._access, self._decoder, self._out, self._timers = parts.access, parts.decoder, parts.out, parts.timers
        self._limits, self._counts = parts.limits, parts.counts
        self._links, self._reach, self._numbers = links, links.reach, 0
        self._open: dict[int, _Inquiry] = {}
        self.probed: Callable[[str, int, Now], None] = lambda *_: None  # gets who has answered a negative number

    # -- for a client -----------------------------------------------------------------------------------

    def ask(self, connection: Connection, message: Explain, now: Now) -> None:
        """Explain where an event would go, when everybody has answered. Raises RefusalError or AccessError."""
        self._access.of(connection.principal).check("status")
        if len(message.attributes) > MOST_EVENT:
            raise RefusalError("event", f"an event to be explained has at most {MOST_EVENT:,} bytes")
        if len(self._open) >= _MOST_OPEN:
            raise RefusalError("busy", f"{_MOST_OPEN} events are being explained already; ask later")
        try:
            attributes, head, _ = self._decoder.admit(Publish(0, message.attributes), now.utc)
        except EventError as error:
            raise RefusalError("event", str(error)) from None
        self._numbers += 1
        self._open[self._numbers] = _Inquiry(connection, message.request, head, {self._reach.name})
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
        if not self._links.relay(LinkRelay(broker, self._reach.name, body, kind=RelayKind.QUESTION), now):
            way = self._reach.path(broker)
            first = f"the link to {way[1]} is down, or not ready yet" if way else "no route leads to it"
            inquiry.add(BrokerHop(broker, source, problem=f"it cannot be asked now: {first}"))
            return
        inquiry.pending[broker] = source
        due = now.monotonic + self._limits.explain
        self._timers.add(due, lambda later: self._late(number, broker, later))

    def _late(self, number: int, broker: str, now: Now) -> None:
        inquiry = self._open.get(number)
        if inquiry is None or broker not in inquiry.pending:
            return
        way = " - ".join(self._reach.path(broker))
        where = f" by way of {way}" if way else "; no route leads to it any longer"
        problem = f"no answer within {self._limits.explain / 1e6:g} s{where}"
        self._take(number, BrokerHop(broker, inquiry.pending.pop(broker), problem=problem), now)

    def _finish(self, number: int) -> None:
        inquiry = self._open.pop(number)
        if self._sessions.is_open(inquiry.connection):
            explanation = Explanation(tuple(_ordered(inquiry.hops)), inquiry.unasked)
            self._out.send(inquiry.connection.id, Explained(inquiry.request, msgspec.Raw(_encode(explanation))))

    # -- among brokers ----------------------------------------------------------------------------------

    def receive(self, message: LinkRelay, now: Now) -> None:
        """A question or an answer of another broker. What cannot be read is dropped: whoever asked gives up in time."""
        try:
            if message.kind is RelayKind.QUESTION:
                self._reply(message.source, _question(message.body), now)
            else:
                self._answered(message.source, _answer(message.body), now)
        except (ValueError, RecursionError, EventError):  # msgspec's errors are ValueErrors
            self._counts["explanations not read"] += 1

    def _reply(self, broker: str, question: HopQuestion, now: Now) -> None:
        attributes, _, _ = self._decoder.relayed(question.head)
        if question.number < 0:  # whether this broker is there: nobody reads the rest, and matching may build an index
            hop = BrokerHop(self._reach.name, question.source)
        else:
            hop = self._hop(attributes, Link(question.source))
        body = _encode(HopAnswer(question.number, hop))
        self._links.relay(LinkRelay(broker, self._reach.name, body, kind=RelayKind.ANSWER), now)

    def _answered(self, broker: str, answer: HopAnswer, now: Now) -> None:
        if answer.number < 0:
            self.probed(broker, -answer.number, now)
            return
        inquiry = self._open.get(answer.number)
        if inquiry is None or broker not in inquiry.pending:
            return  # it came too late
        source = inquiry.pending.pop(broker)
        self._take(answer.number, msgspec.structs.replace(answer.hop, broker=broker, source=source), now)

    # -- what this broker would do ------------------------------------------------------------------------

    def _hop(self, attributes: dict[str, object], source: Link | None) -> BrokerHop:
        """Cost: that of routing and matching an event, and O(received items) for each neighbour that wants it."""
        routes = self._matcher.table.route(attributes, source)
        neighbours = sorted(self._links.neighbours.items())
        others = [each for peer, each in neighbours if peer != source and not each.leaving]
        links = [self._choice(each, attributes, each.peer in routes) for each in others]
        links.sort(key=lambda each: not each.sent)
        found = self._matcher.matching(attributes)
        inside = self._profiles.including(attributes, _MOST_PROFILES)[:_MOST_LISTED]
        return BrokerHop(
            self._reach.name,
            source or "",
            len(found),
            tuple(self._matched(*each) for each in found[:_MOST_SUBSCRIPTIONS]),
            tuple(links[:_MOST_LINKS]),
            len(links[_MOST_LINKS:]),
            profiles=tuple(inside) or msgspec.UNSET,
        )

    def _choice(self, neighbour: Neighbour, attributes: dict[str, object], wanted: bool) -> LinkChoice:
        table = self._matcher.table
        condition = "down" if neighbour.connection is None else "warm" if neighbour.synced else "cold"
        items: tuple[str, ...] = ()
        if not neighbour.synced:
            why = "cold"
        elif not wanted:
            why = "unwanted"
        elif neighbour.role is Role.PARENT:
            why = "master"
        elif table.exactness is Exactness.FLOOD:
            why = "flooding"
        else:
            found = table.reasons(attributes, neighbour.peer, _MOST_ITEMS)
            items = tuple(item_text(item, table.codec, _TEXT) for item in found)
            why = "wanted" if items else "hashed"
        sent = why != "unwanted"
        received = len(neighbour.receiver.hashes[0])
        return LinkChoice(neighbour.peer, str(neighbour.role), condition, sent, why, items, received)

    def _matched(self, queue: ClientQueue, number: SubNumber) -> MatchedSubscription:
        if isinstance(queue, TransientQueue):
            session, durable, connected = queue.connection.session, False, True
        else:
            session = None if queue.session is None else self._sessions.by_id[queue.session]
            durable, connected = True, bool(queue.windows)
        if session is None:
            sub, name = self._queues.shared_members.get(queue) if isinstance(queue, Queue) else None, ""
        else:
            sub, name = session.subs.get(number), session.name
        text = "" if sub is None else shortened(sub.text, _TEXT)
        meets = msgspec.UNSET if sub is None or not sub.profiles else sub.profiles
        return MatchedSubscription(name, number, text, queue.share, durable, connected, meets)


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
