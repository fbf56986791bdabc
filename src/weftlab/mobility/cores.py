"""Real brokers in simulated time: the network of cores, with the sessions of real clients that move.

The brokers are `weft.network.cores`: cores, their drivers, logs in memory and the codec. The clients are the sessions
of the client library. A frame between brokers takes the delay of its link and the time that the receiving broker needs,
as on light brokers; a client is beside its broker, and storing takes no time. A client that moves loses its connection
when it leaves, or keeps it until the cut, and asks for its session at the target when it arrives there
(`ClientSession.move`).

What a hand-over costs is counted as on light brokers: messages about the move, and updates of interest that they cause.
Frames that say how far a broker is (`LinkProgress`) are not signals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import msgspec

from weft.broker.delivery_run import encode_all, one_by_one
from weft.broker.effects import ConnectionId, Now, Outgoing
from weft.broker.limits import ClientLimits
from weft.client import effects
from weft.client.publisher import NotStored, UnconfirmedEvent
from weft.client.session import ClientSession, ConnectionPolicy
from weft.client.subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.client.subscription_handle import MOST_HELD, MOST_HELD_BYTES, Inbox
from weft.errors import ProtocolError
from weft.network.cores import START, BrokerNetwork, LinkEnd, MemoryBroker
from weft.protocol.addresses import Address
from weft.protocol.codec import broker_messages, encode
from weft.protocol.link_messages import ABOUT, LinkEvents, LinkRelay, LinkUpdate, RelayKind
from weft.protocol.messages import Advertise, ClientMessage, Deliver, SubNumber
from weft.protocol.move_messages import (
    MoveChunk,
    MoveDone,
    MovedSession,
    MoveElsewhere,
    MoveEnd,
    MoveFinish,
    MoveFlush,
    MoveMessage,
    MovePull,
    MoveRefused,
    MoveRequest,
    decode_move,
)
from weft.routing.item_text import item_text
from weft.routing.table import About
from weftlab.engine import Scheduled
from weftlab.mobility.script import ClientSpec, InterestStep, PublishStep, Script
from weftlab.mobility.topology import BrokerTree, broker
from weftlab.mobility.trace import MobileEvent, PubId
from weftlab.mobility.world import NODE_DELAY, Cause, ClientHandover, Mobile, Phase, ScriptedWorld, Watch

_DAY = 86_400_000_000  # microseconds; nothing is lost here, so heartbeats would only cost time
_LIMITS = ClientLimits(heartbeat=365 * _DAY, link_silence=2 * 365 * _DAY)
_HEARTBEAT = 365 * 86_400.0  # seconds, of clients
_SLICE, _SLICES = 1_000_000, 600  # microseconds that a world waits for its end, and how often
_ONE = SubNumber(1)
_MOST_TEXT = 1 << 16  # characters of an item in a recording
_MOVES: dict[type[MoveMessage], tuple[Phase, str, str]] = {  # phase, kind, and the group in which brokers are counted
    MoveRequest: (Phase.SYNCHRONISE, "ask", ""),
    MovedSession: (Phase.SYNCHRONISE, "state", ""),
    MoveFlush: (Phase.SYNCHRONISE, "flush", "update"),
    MoveEnd: (Phase.SYNCHRONISE, "end", "reply"),
    MoveElsewhere: (Phase.SYNCHRONISE, "elsewhere", ""),
    MoveRefused: (Phase.SYNCHRONISE, "refused", ""),
    MovePull: (Phase.TRANSFER, "pull", ""),
    MoveChunk: (Phase.TRANSFER, "chunk", ""),
    MoveFinish: (Phase.TRANSFER, "finish", ""),
    MoveDone: (Phase.TRANSFER, "done", ""),
}


class OpenConnection(NamedTuple):
    """A connection of a client, as its broker knows it."""

    broker: str
    id: ConnectionId


class CoreLine:
    """Drives a client session: it only obeys the session's effects. `noticed` gets everything else."""

    def __init__(self, world: CoreWorld, name: str, at: int, noticed: Callable[[Any], None]) -> None:
        self._world, self._noticed = world, noticed
        policy = ConnectionPolicy((_address(at),), heartbeat=_HEARTBEAT)
        self.session = ClientSession(name, policy, draw=lambda: 0.5)
        self._dialling: set[int] = set()
        self._open: dict[int, OpenConnection] = {}  # by the numbers of the session
        self._broken: int | None = None  # a connection of which the client does not know yet that it is gone
        self._timer: Scheduled | None = None

    def start(self) -> None:
        """Connect."""
        self.perform(self.session.start(self._world.engine.now))

    def move(self, at: int) -> None:
        """Go on at another broker. A client that has lost its connection notices it now."""
        now = self._world.engine.now
        self.perform(self.session.move(_address(at), now))
        if self._broken is not None:
            self.perform(self.session.closed(self._broken, now))
            self._broken = None

    def leave(self) -> None:
        """End the session, with what it has at its broker."""
        self.perform(self.session.close(self._world.engine.now, _DAY))

    def cut(self) -> None:
        """The connection is lost. The broker notices it at once; the client, when it moves."""
        self._broken = self.session.connection
        self._hang_up(self._broken)

    def perform(self, some: list[effects.SessionEffect]) -> None:
        """Carry effects out, in order, and send what there is to send."""
        engine = self._world.engine
        for effect in some:
            match effect:
                case effects.Dial(number, address):
                    self._dialling.add(number)
                    engine.after(0, partial(self._dialled, number, address))
                case effects.Greet(number, messages):
                    self._send(number, messages)
                case effects.HangUp(number):
                    self._dialling.discard(number)
                    self._hang_up(number)
                case effects.WakeAt(at):
                    if self._timer is not None:
                        self._timer.cancel()
                    self._timer = engine.at(max(at, engine.now), self._wake)
                case _:
                    self._noticed(effect)
        self.flush()

    def flush(self) -> None:
        """Send what there is to send."""
        if self.session.connection in self._open and (messages := self.session.take()):
            self._send(self.session.connection, messages)

    def _send(self, number: int, messages: Sequence[ClientMessage]) -> None:
        there = self._open[number]
        self._world.touch(there.broker, lambda at: at.read(there.id, encode(messages)))

    def _hang_up(self, number: int) -> None:
        there = self._open.pop(number, None)
        if there is not None:
            self._world.touch(there.broker, lambda at: at.cut(there.id))

    def _wake(self) -> None:
        self._timer = None
        self.perform(self.session.tick(self._world.engine.now))

    def _dialled(self, number: int, address: Address) -> None:
        if number not in self._dialling:
            return
        self._dialling.discard(number)
        there = OpenConnection(address.host, ConnectionId(f"{self.session.name}-{next(self._world.connections)}"))
        self._open[number] = there
        reader = broker_messages()

        def receive(messages: list[Outgoing] | None) -> None:
            data = None if messages is None else encode_all(messages)
            self._world.engine.after(0, lambda: arrived(data))

        def arrived(data: bytes | None) -> None:
            if self._open.get(number) is not there:
                return
            now = self._world.engine.now
            if data is None:
                del self._open[number]
                self.perform(self.session.closed(number, now))
            else:
                self.perform(self.session.received(number, reader.feed(data), now))

        self._world.touch(there.broker, lambda at: at.connect(there.id, receiver=receive))
        self.perform(self.session.opened(number, self._world.engine.now))


class CoreClient(Mobile):
    """A client of the script: a session of the client library, and an application that reads and publishes."""

    def __init__(self, spec: ClientSpec, world: CoreWorld) -> None:
        super().__init__(spec, world)
        self._core_world = world
        self.line = CoreLine(world, spec.name, spec.at, self._noticed)
        session = self.line.session
        if spec.publishes:
            session.request(lambda _: Advertise(1, spec.filter), None)
        else:
            self._state, self._inbox = _subscribe(session, spec.filter, durable=True)

    @property
    def is_complete(self) -> bool:
        """Whether every broker knows its subscription or advertisement."""
        session = self.line.session
        states = session.adverts if self.spec.publishes else session.subscriptions
        return session.welcome is not None and all(each.is_complete for each in states.values())

    def publish(self, step: PublishStep) -> None:
        """Publish through the session, which keeps the event until the client may publish."""
        self._sequence += 1
        event = MobileEvent(self._world.engine.now, PubId(self.name, self._sequence), step.x, step.kind)
        self._world.trace.published.append(event)
        attributes = msgspec.Raw(msgspec.msgpack.encode({"x": step.x}))
        payload = msgspec.msgpack.encode(event)
        self.line.session.publisher.add([UnconfirmedEvent(attributes, payload)])
        self.line.flush()

    def _noticed(self, notice: effects.SessionEffect) -> None:
        match notice:
            case effects.Ready(welcome):
                self._core_world.sessions[welcome.session] = self
            case effects.Lost():
                if not self.spec.publishes:
                    self._inbox.lost()
            case effects.Arrived(_, messages):
                self._arrived(messages)
            case effects.Stored() | effects.Replied(code="") | effects.Answered(code="") | effects.MoveEnded(None):
                pass
            case NotStored() | effects.Replied() | effects.Answered() | effects.Missed() | effects.Ended():
                raise ProtocolError(f"{self.name}: nothing should go wrong here, but {notice}")
            case effects.MoveEnded() | effects.Closed() | effects.Over():
                raise ProtocolError(f"{self.name}: the session does not go on: {notice}")

    def _arrived(self, messages: list[Deliver]) -> None:
        """Show events to the application, which acknowledges each at once."""
        self._inbox.put(messages)
        while (message := self._next()) is not None:
            self.receive(msgspec.msgpack.decode(message.payload, type=MobileEvent))
            self._inbox.ack(message.offset)

    def _next(self) -> Deliver | None:
        """The next event; decisions are entered into the book when there is none, or as soon as one waits for that."""
        message = self._inbox.pop()
        if message is None:
            self._inbox.settle(self._state.book)
            message = self._inbox.pop()
        return message


class CoreWorld(ScriptedWorld):
    """A run of a script on real brokers, with Weft's own protocol.

    With `make_first`, a client keeps its connection to the source until the target has its session.
    """

    def __init__(
        self, tree: BrokerTree, script: Script, watch: Watch | None = None, *, make_first: bool = False
    ) -> None:
        super().__init__(tree, script, watch)
        self._make_first = make_first
        ids, names = count(1), [broker(at) for at in range(tree.size)]
        self.network = BrokerNetwork(
            *names, carry=self._carry, recorded=False, draw=lambda: next(ids), limits=_LIMITS, advertised=True
        )
        self._number: dict[str, int] = {name: at for at, name in enumerate(names)}
        self.connections = count(1)
        self._timers: dict[str, tuple[int, Scheduled]] = {}
        self._causes: dict[str, Cause | None] = {}  # of what a broker has done last
        self._moves: dict[tuple[int, int], ClientHandover] = {}  # by session and epoch
        self.sessions: dict[int, CoreClient] = {}
        self._others: dict[str, CoreLine] = {}
        self.other_updates = 0  # that no hand-over has caused, since the warm-up
        self.clients = {each.name: CoreClient(each, self) for each in script.clients}

    # -- a run ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Warm up until everything is complete, then play the script until every hand-over has ended."""
        self.warm_up()
        began = self.engine.now
        for step in self.script.steps:
            self.engine.at(began + step.at, partial(self._play, step))
        self.engine.run(until=began + max((step.at for step in self.script.steps), default=0))
        self._until(lambda: all(each.moving is None and not each.waiting for each in self.clients.values()))
        for _ in range(3):  # what is left to be delivered and forgotten
            self.engine.run(until=self.engine.now + _SLICE)

    def warm_up(self) -> None:
        """Links first, then advertisements and subscriptions, until each is complete."""
        for near, far in self.tree.links():
            self.network.link(broker(near), broker(far))
            for at in (near, far):
                self._watch_timer(broker(at))
        brokers = self.network.brokers.values()
        is_ready = self._until(lambda: all(link.warm for each in brokers for link in each.core.links()))
        for client in self.clients.values():
            client.line.start()
            if not client.spec.publishes:
                self.trace.subscriptions[client.name] = client.spec.filter
        if not self._until(lambda: all(each.is_complete for each in self.clients.values())) or not is_ready:
            raise ProtocolError("the warm-up does not end: a link or a subscription is not complete")
        self.engine.run(until=self.engine.now + _SLICE)
        self.event_hops = self.other_updates = 0

    def _until(self, done: Callable[[], bool]) -> bool:
        """Let time pass until something is done; False if that takes too long."""
        for _ in range(_SLICES):
            if done():
                return True
            self.engine.run(until=self.engine.now + _SLICE)
        return done()

    def depart(self, handover: ClientHandover) -> None:
        """The client loses its connection, or keeps it, and arrives when the script says."""
        if not self._make_first:
            self.clients[handover.client.name].line.cut()
        self.schedule_arrival(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """The client asks for its session at the target."""
        self.clients[handover.client.name].line.move(handover.target)

    def change_interest(self, step: InterestStep) -> None:
        """A client that does not move subscribes, or leaves."""
        line = self._others.pop(step.client, None)
        if line is None:
            line = self._others[step.client] = CoreLine(self, "", step.broker, lambda _: None)
            _subscribe(line.session, step.filter, durable=False)
            line.start()
        else:
            line.leave()

    # -- brokers ----------------------------------------------------------------------------------------

    def touch(self, name: str, what: Callable[[MemoryBroker], None]) -> None:
        """Let something happen at a broker, at this time."""
        there = self.network[name]
        there.time = Now(self.engine.now, START.utc + self.engine.now)
        if self.cause is not None:
            self._causes[name] = self.cause
        what(there)
        self._watch_timer(name)

    def _watch_timer(self, name: str) -> None:
        due, known = self.network[name].driver.due, self._timers.get(name)
        if due is None or (known is not None and known[0] == due and known[1].action is not None):
            return
        if known is not None:
            known[1].cancel()
        self._timers[name] = due, self.engine.at(max(due, self.engine.now), partial(self._tick, name, self.engine.now))

    def _tick(self, name: str, since: int) -> None:
        """What is put off until the next turn has the cause of the turn that put it off."""
        self.cause = self._causes.get(name) if since == self.engine.now else None
        self.touch(name, MemoryBroker.tick)
        self.cause = None

    # -- messages on links ------------------------------------------------------------------------------

    def _carry(self, end: LinkEnd, messages: list[Outgoing] | None) -> None:
        near = self.network.wires.get(end)
        if messages is None or near is None:
            raise ProtocolError(f"{end.broker} has lost a link; nothing should go wrong here")
        here, there = self._number[near.broker], self._number[end.broker]
        delay = self.tree.link_delay(here, there) + NODE_DELAY
        for message in one_by_one(messages):
            cause, kind = self._explained(here, message)
            if cause is not None and kind:
                cause.handover.hops[cause.phase, kind] += 1
            if isinstance(message, LinkEvents):
                self.event_hops += len(message.events)
            if kind or isinstance(message, LinkEvents):
                self.saw("send", **{"from": here, "to": there, "kind": kind or "event"})
            self.engine.after(delay, partial(self._arrived, end, here, message, cause))

    def _explained(self, here: int, message: object) -> tuple[Cause | None, str]:
        """The hand-over that has caused a message, and what it is; nothing for one that no hand-over is about."""
        if isinstance(message, LinkRelay) and message.kind is RelayKind.MOVE:
            move = decode_move(message.body)
            if not isinstance(move, MoveMessage):
                return None, ""
            phase, kind, group = _described(type(move))
            handover = self._handover(move)
            if isinstance(move, MoveEnd) and not handover.client.spec.publishes:
                group = ""
            if isinstance(move, MoveEnd) and here == handover.source and self._make_first and handover.cut < 0:
                handover.cut = self.engine.now
            if isinstance(move, MoveChunk) and here == handover.source:
                handover.transferred += len(move.events)
            elif isinstance(move, MoveFinish) and here == handover.target and handover.finished < 0:
                handover.finished = self.engine.now  # the session is here, whole; its client reads, and may leave
                self.engine.after(NODE_DELAY, partial(self.finish, handover))
            return Cause(handover, phase, group), kind
        if isinstance(message, LinkUpdate) and (message.ids or message.drop):
            if self.cause is None:
                self.other_updates += 1
                return None, ""
            undone = "un" if self.cause.phase is Phase.TEAR_DOWN else ""
            return self.cause, undone + ("subscribe" if ABOUT[message.about] is About.SUBSCRIPTIONS else "advertise")
        return None, ""

    def _handover(self, move: MoveMessage) -> ClientHandover:
        key = move.session, move.epoch
        found = self._moves.get(key)
        if found is None:
            client = self.sessions[move.session]
            assert client.moving is not None, f"{move} while nobody moves"
            found = self._moves[key] = client.moving
        return found

    def _arrived(self, end: LinkEnd, source: int, message: Any, cause: Cause | None) -> None:
        here = self._number[end.broker]
        if cause is not None and cause.group and cause.phase in (Phase.SET_UP, Phase.SYNCHRONISE):
            handover = cause.handover
            if here not in (handover.source, handover.target):
                about = isinstance(message, LinkUpdate) and ABOUT[message.about]
                replied = handover.client.spec.publishes and about is About.SUBSCRIPTIONS
                handover.updated["reply" if replied else cause.group].add((0, here))
        self.cause = self._consequence(end.broker, message, cause)
        if self.watch is not None and isinstance(message, LinkUpdate):
            self._watch_table(here, source, message)
        self.touch(end.broker, lambda _: self.network.arrive(end, encode([message])))
        self.cause = None

    @staticmethod
    def _consequence(here: str, message: object, cause: Cause | None) -> Cause | None:
        """What the interest that a broker sends now is about: the target sets up, the source tears down."""
        if cause is None or not isinstance(message, LinkRelay):
            return cause
        if message.destination != here:
            return None
        if isinstance(decode_move(message.body), MovedSession):
            return Cause(cause.handover, Phase.SET_UP, "update")
        return Cause(cause.handover, Phase.TEAR_DOWN)

    def _watch_table(self, here: int, source: int, message: LinkUpdate) -> None:
        about, codec = ABOUT[message.about], self.network[broker(here)].core.table.codec
        texts = [item_text(codec.decode_item(about, each), codec, _MOST_TEXT) for each in message.items]
        facts = {
            "plane": 0,
            "broker": here,
            "link": source,
            "about": about.value,
            "drop": list(message.drop),
            "add": dict(zip(map(int, message.ids), texts, strict=True)),
        }
        self.saw("learn", **facts)


def _described(kind: type[MoveMessage]) -> tuple[Phase, str, str]:
    """What a message about a move is; others than the usual ones have their own names."""
    known = next((_MOVES[each] for each in kind.__mro__ if each in _MOVES), None)
    return known or (Phase.SYNCHRONISE, kind.__name__.removeprefix("Move").lower(), "")


def _address(at: int) -> Address:
    return Address.parse(f"weft://{broker(at)}:9338")


def _subscribe(session: ClientSession, filter: str, *, durable: bool) -> tuple[SubscriptionState, Inbox]:
    """Subscribe when the session connects."""
    window = session.policy.window_events
    state = SubscriptionState(_ONE, SubscriptionOptions(durable=durable), window=window, token=session.token)
    session.subscribe(state, SubscriptionRequest("subscribe", filter, None))
    inbox = Inbox(durable=durable, ordered=True, most=MOST_HELD, most_bytes=MOST_HELD_BYTES, decided=lambda _: None)
    return state, inbox
