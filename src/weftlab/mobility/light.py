"""Light brokers in simulated time: routing tables on a tree, driven by a clock, with clients that move.

The brokers are the network of tables (`weft.network.tables`). A message takes the delay of its link and the time that
the receiving broker needs; queueing is not modelled. Messages of protocols travel as notes on the links, behind what is
on its way there, or beside the tree through the network.

Every message knows the hand-over that caused it, so hops and updated brokers are counted for each hand-over, also when
several overlap. Whoever moves again before its hand-over has ended leaves when it has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import ProtocolError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse
from weft.network.tables import Carried, Direction, EventNumber, Posted, TableMessage, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.covering.table import CoveringTable
from weft.routing.table import About, ClientId, Update
from weftlab.engine import Engine
from weftlab.mobility.script import ClientSpec, InterestStep, PublishStep, RelocateStep, Script
from weftlab.mobility.topology import BrokerTree, broker
from weftlab.mobility.trace import MobileEvent, MobilityTrace, Notified, PubId

if TYPE_CHECKING:
    from weftlab.mobility.protocol import Protocol

NODE_DELAY = 2_000  # microseconds that a broker needs for a message (thesis 5.8)


class Phase(StrEnum):
    """The phases of a hand-over (thesis 5.3)."""

    SET_UP = "set up"  # the target subscribes or advertises
    SYNCHRONISE = "synchronise"
    TRANSFER = "transfer"  # what the source has buffered
    TEAR_DOWN = "tear down"  # the source unsubscribes or unadvertises


@dataclass(slots=True, eq=False)
class ClientHandover:
    """A move of a client from a source to a target, and what it costs."""

    number: int
    client: Mobile
    source: int
    target: int
    asked: int  # when the script says that it leaves
    away: int
    left: int = -1
    started: int = -1  # the first signal at the target
    finished: int = -1
    cut: int = -1  # when the source stopped serving a client that it had not lost
    hops: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    updated: defaultdict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    told: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # the links of its set-up
    way: set[tuple[int, int]] | None = None  # to the rendezvous points: brokers beyond it are counted apart
    rounds: int = 0  # repeated signals, the P of Tables 5.2 and 5.3
    transferred: int = 0  # events
    skipped: bool = False  # by the covering optimisation
    unlocated: bool = False  # content-based flooding knew no direction
    own: dict[str, Any] = field(default_factory=dict)  # what its protocol notes

    @property
    def signals(self) -> int:
        """Every hop of every message, as the figures of the thesis count."""
        return sum(self.hops.values())

    @property
    def updated_nodes(self) -> int:
        """Updated intermediate brokers, as Tables 5.2 and 5.3 count: without source, target, transfer and tear-down."""
        return sum(len(nodes) for group, nodes in self.updated.items() if group not in (FILTERS, BEYOND))


FILTERS = "filters"  # brokers that learn the client's filter, where the tables count only what finds the source
BEYOND = "beyond the rendezvous point"


class Cause(NamedTuple):
    """Why a message is sent: for which hand-over, in which phase, and in which group its brokers are counted."""

    handover: ClientHandover
    phase: Phase
    group: str = ""  # none: only its hops count


class LinkNote(NamedTuple):
    """A protocol's message on its way along the links; `onward` handles it at each broker."""

    kind: str
    onward: Callable[[int, int], None]  # the broker where it is, and the one from which it came


class Signal(NamedTuple):
    """An event that a protocol publishes: a ping or a pong."""

    kind: str
    handover: ClientHandover


class Plane(NamedTuple):
    """A tree of brokers and their tables. Rendezvous on cyclic graphs have one for each type; all others have one."""

    number: int
    tree: BrokerTree
    network: TableNetwork


class Mobile:
    """A client of the script."""

    def __init__(self, spec: ClientSpec, world: LightWorld) -> None:
        self.spec, self.name, self.filter, self.at = spec, spec.name, parse(spec.filter), spec.at
        self._world = world
        self.connected = True
        self.moving: ClientHandover | None = None
        self.waiting: deque[RelocateStep] = deque()
        self.seen: set[PubId] = set()
        self.duplicates = 0  # recognised by their identifiers
        self.mailbox: Mailbox | None = None  # a subscriber's, where it is served
        self.advert = SubId(0)  # a publisher's
        self.send: Callable[[MobileEvent], None] | None = None  # how a publisher publishes, unless it has to wait
        self._held: list[PublishStep] = []
        self._sequence = 0

    def receive(self, event: MobileEvent) -> None:
        """An event arrives at the application, which removes duplicates."""
        if event.event in self.seen:
            self.duplicates += 1
            return
        self.seen.add(event.event)
        self._world.trace.notified.append(Notified(self._world.engine.now, self.name, event.event))

    def publish(self, step: PublishStep) -> None:
        """Publish, or keep the event until the client may publish."""
        self._held.append(step)
        self._flush()

    def resume(self, send: Callable[[MobileEvent], None]) -> None:
        """Publish from now on in this way, beginning with what was kept."""
        self.send = send
        self._flush()

    def _flush(self) -> None:
        while self._held and self.send is not None:
            step = self._held.pop(0)
            self._sequence += 1
            event = MobileEvent(self._world.engine.now, PubId(self.name, self._sequence), step.x, step.kind)
            self._world.trace.published.append(event)
            self.send(event)


class Mailbox:
    """A subscription of a client at a broker: it buffers events, or hands them to the client."""

    def __init__(self, client: Mobile, at: int, sub: SubId) -> None:
        self.client, self.at, self.sub = client, at, sub
        self.live = False
        self.items: list[MobileEvent] = []
        self.seen: dict[str, int] | None = None  # the highest sequence of each publisher, once it is recorded

    def __call__(self, event: MobileEvent) -> None:
        """An event has come."""
        if self.seen is not None:
            self.seen[event.event.publisher] = max(event.event.sequence, self.seen.get(event.event.publisher, 0))
        if self.live:
            self.client.receive(event)
        else:
            self.items.append(event)

    def take(self) -> list[MobileEvent]:
        """Everything that is buffered."""
        items, self.items = self.items, []
        return items

    def open(self) -> None:
        """Hand everything to the client, now and from now on."""
        self.live = True
        for event in self.take():
            self.client.receive(event)


Watch = Callable[[int, str, dict[str, Any]], None]  # the time, what happened, and the facts


class LightWorld:
    """A run of a script with a protocol."""

    def __init__(
        self, tree: BrokerTree, script: Script, make: Callable[[LightWorld], Protocol], watch: Watch | None = None
    ) -> None:
        self.tree, self.script, self.watch = tree, script, watch
        self.engine = Engine()
        self.trace = MobilityTrace()
        self.handovers: list[ClientHandover] = []
        self.event_hops = 0
        self.useless_hops = 0  # events that arrived at a broker for nobody
        self.forwarded = 0  # events beside the tree
        self.cause: Cause | None = None
        self.updates = 0  # sent so far
        self.last_told: list[tuple[int, int]] = []  # links of the updates that the latest change caused
        self._numbers = count(1)
        self._carried: dict[tuple[int, EventNumber], MobileEvent | Signal] = {}
        self._receivers: dict[SubId, Callable[[Any], None]] = {}
        self._others: dict[str, SubId] = {}
        self.local: defaultdict[int, dict[int, str]] = defaultdict(dict)  # the filters of each broker's own clients
        self._publishing: MobileEvent | Signal | None = None  # until the network has given it a number
        self.protocol = make(self)
        kind = type(self.protocol)
        trees = [BrokerTree(tree.topology, root) for root in script.rendezvous] if kind.cyclic else [tree]
        self.planes = [Plane(number, each, self._network(number, each)) for number, each in enumerate(trees)]
        self.clients = {each.name: Mobile(each, self) for each in script.clients}
        self._number = {broker(at): at for at in range(tree.size)}
        self.began = 0

    def _network(self, plane: int, tree: BrokerTree) -> TableNetwork:
        return TableNetwork(
            [broker(at) for at in range(tree.size)],
            lambda: Advertised(CoveringTable(), CoveringTable()),
            clock=partial(self._sent, plane),
            read=self._read,
        )

    # -- a run ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Warm up until everything is complete, then play the script to its end."""
        self.warm_up()
        for step in self.script.steps:
            self.engine.at(self.began + step.at, partial(self._play, step))
        self.engine.run()
        self._check_quiet("the run")

    def warm_up(self) -> None:
        """Links, rendezvous points, advertisements and subscriptions, until nothing is in flight."""
        for plane in self.planes:
            for near, far in plane.tree.links():
                plane.network.attach(broker(far), broker(near))
        if type(self.protocol).rendezvous:
            for plane in self.planes:
                roots = [plane.tree.root] if type(self.protocol).cyclic else sorted(set(self.script.rendezvous))
                for root in roots:  # an advertisement of everything: the rendezvous point (thesis, Lemma 5.9)
                    plane.network.advertise(broker(root), self._fresh(), parse("TRUE"), ClientId("rendezvous"))
        self.engine.run()
        for client in self.clients.values():
            if client.spec.publishes:
                client.advert = self.advertise(client.name, client.at, client.filter)
                client.resume(partial(self.publish, client.name, client.at))
            else:
                client.mailbox = self.subscribe(client, client.at)
                client.mailbox.live = True
                self.trace.subscriptions[client.name] = client.spec.filter
        self.engine.run()
        self._check_quiet("the warm-up")
        self.began = self.engine.now
        self.event_hops = 0
        self.protocol.begin()

    def _check_quiet(self, what: str) -> None:
        if not all(plane.network.quiet for plane in self.planes):
            raise ProtocolError(f"{what} has ended, and tables still have work to do")

    def _play(self, step: RelocateStep | PublishStep | InterestStep) -> None:
        if isinstance(step, InterestStep):
            self._change_interest(step)
        elif isinstance(step, PublishStep):
            self.clients[step.client].publish(step)
        else:
            client = self.clients[step.client]
            client.waiting.append(step)
            self._depart(client)

    def _depart(self, client: Mobile) -> None:
        if client.moving is not None or not client.waiting:
            return
        step = client.waiting.popleft()
        if step.to == client.at:
            self._depart(client)
            return
        handover = ClientHandover(len(self.handovers), client, client.at, step.to, self.engine.now, step.away)
        client.moving = handover
        self.handovers.append(handover)
        self.saw("move", client=client.name, source=handover.source, target=handover.target)
        self.protocol.depart(handover)

    def disconnect(self, handover: ClientHandover) -> None:
        """The client leaves its broker, and arrives at the other one when the script says."""
        client = handover.client
        client.connected = False
        client.send = None
        if client.mailbox is not None:
            client.mailbox.live = False
        self.schedule_arrival(handover)

    def schedule_arrival(self, handover: ClientHandover) -> None:
        """Let the client arrive when the script says, or now if that has passed."""
        handover.left = self.engine.now
        self.engine.at(max(self.engine.now, handover.asked + handover.away), partial(self._arrive_client, handover))

    def _arrive_client(self, handover: ClientHandover) -> None:
        handover.started = self.engine.now
        handover.client.at = handover.target
        handover.client.connected = True
        self.saw("arrive", client=handover.client.name, at=handover.target)
        self.protocol.arrive(handover)

    def finish(self, handover: ClientHandover) -> None:
        """The hand-over is complete."""
        handover.finished = self.engine.now
        handover.client.moving = None
        self.saw("finish", client=handover.client.name, at=handover.target)
        self._depart(handover.client)

    def saw(self, what: str, **facts: Any) -> None:
        """Tell whoever records the run."""
        if self.watch is not None:
            self.watch(self.engine.now, what, facts)

    # -- messages on links ------------------------------------------------------------------------------

    @contextmanager
    def acting(self, handover: ClientHandover, phase: Phase, group: str = "") -> Iterator[None]:
        """Messages that are sent meanwhile are counted for the hand-over."""
        before, self.cause = self.cause, Cause(handover, phase, group)
        try:
            yield
        finally:
            self.cause = before

    def _sent(self, plane: int, direction: Direction, message: TableMessage) -> None:
        one, other = self._number[direction[0]], self._number[direction[1]]
        cause, kind = self.cause, ""
        if isinstance(message, Update):
            self.updates += 1
            self.last_told.append((one, other))
            if cause is not None:
                kind = _kind_of_update(message, cause.phase)
                if kind == ("advertise" if cause.handover.client.spec.publishes else "subscribe"):
                    cause.handover.told[one].add(other)
        elif isinstance(message, Posted):
            note = message.note
            assert isinstance(note, LinkNote)
            kind = note.kind
        else:
            carried = self._carried.get((plane, message.number), self._publishing)
            kind = carried.kind if isinstance(carried, Signal) else ""
            if not kind:
                self.event_hops += 1
        if cause is not None and kind:
            cause.handover.hops[cause.phase, kind] += 1
        if self.watch is not None:
            self.watch(self.engine.now, "send", {"from": one, "to": other, "kind": kind or _plain_kind(message)})
        delay = self.planes[plane].tree.link_delay(one, other) + NODE_DELAY
        self.engine.after(delay, partial(self._arrive, plane, direction, cause))

    def _arrive(self, plane: int, direction: Direction, cause: Cause | None) -> None:
        self.cause = cause
        network = self.planes[plane].network
        hops = self.event_hops
        message = network.arrive(direction)
        if cause is not None and cause.group and cause.phase in (Phase.SET_UP, Phase.SYNCHRONISE):
            here = self._number[direction[1]]
            if here not in (cause.handover.source, cause.handover.target):
                cause.handover.updated[_group(cause, message, (plane, here))].add((plane, here))
        delivered = self._deliver(plane)
        if isinstance(message, Carried):
            carried = self._carried[plane, message.number]
            if isinstance(carried, MobileEvent):
                self.useless_hops += not delivered and self.event_hops == hops
                if self.protocol.logs:
                    self.protocol.passed(self._number[direction[1]], carried)
        elif isinstance(message, Update) and self.watch is not None:
            self._watch_table(plane, direction, message)
        self.cause = None

    def _watch_table(self, plane: int, direction: Direction, message: Update) -> None:
        assert self.watch is not None
        facts = {
            "plane": plane,
            "broker": self._number[direction[1]],
            "link": self._number[direction[0]],
            "about": message.about.value,
            "drop": list(message.drop),
            "add": {int(number): str(item) for number, item in message.add.items()},
        }
        self.watch(self.engine.now, "learn", facts)

    def _deliver(self, plane: int) -> bool:
        """Hand out what has arrived; False if there was nothing."""
        deliveries = self.planes[plane].network.deliveries
        if not deliveries:
            return False
        found, deliveries[:] = list(deliveries), []
        for number, _, sub in found:
            receiver = self._receivers.get(sub)
            if receiver is not None:
                receiver(self._carried[plane, number])
        return True

    def _read(self, direction: Direction, note: object) -> None:
        assert isinstance(note, LinkNote)
        note.onward(self._number[direction[1]], self._number[direction[0]])

    def post(self, plane: Plane, here: int, there: int, note: LinkNote) -> None:
        """Put a note on a link."""
        plane.network.post((broker(here), broker(there)), note)

    def walk(self, plane: Plane, path: Sequence[int], kind: str, then: Callable[[], None]) -> None:
        """Send a note along a path, in order with everything else on its links."""
        if len(path) == 1:
            then()
            return

        def onward(place: int) -> None:
            if place == len(path) - 1:
                then()
            else:
                self.post(plane, path[place], path[place + 1], LinkNote(kind, lambda *_: onward(place + 1)))

        onward(0)

    def beside(self, one: int, other: int, kind: str, then: Callable[[], None]) -> None:
        """Send a message through the network, not in order with anything."""
        cause = self.cause
        if cause is not None:
            cause.handover.hops[cause.phase, kind] += 1
        self.saw("send", **{"from": one, "to": other, "kind": kind})

        def arrive() -> None:
            self.cause = cause
            then()
            self.cause = None

        self.engine.after(self.tree.beside(one, other), arrive)

    # -- what clients and protocols do ------------------------------------------------------------------

    def _fresh(self) -> SubId:
        return SubId(next(self._numbers))

    def _change(self, plane: Plane, at: int, add: dict[SubId, Filter], drop: Sequence[SubId] = ()) -> None:
        plane.network.change(broker(at), add, drop)
        self._finish_work(plane, at)

    def _finish_work(self, plane: Plane, at: int) -> None:
        table = plane.network.table(broker(at))
        while table.pending:
            plane.network.work(broker(at), 8)

    def listen(self, at: int, filter: Filter, receiver: Callable[[Any], None]) -> SubId:
        """Subscribe at a broker, in every plane."""
        sub = self._fresh()
        self._receivers[sub] = receiver
        self.last_told = []
        for plane in self.planes:
            self._change(plane, at, {sub: filter})
        self.local[at][int(sub)] = str(filter)
        self.saw("subscribe", at=at, sub=int(sub), filter=str(filter))
        return sub

    def unlisten(self, at: int, sub: SubId) -> None:
        """Take the subscription back."""
        del self._receivers[sub]
        for plane in self.planes:
            self._change(plane, at, {}, [sub])
        del self.local[at][int(sub)]
        self.saw("unsubscribe", at=at, sub=int(sub))

    def subscribe(self, client: Mobile, at: int) -> Mailbox:
        """Subscribe for a client at a broker. The mailbox buffers."""
        mailbox = Mailbox(client, at, SubId(0))
        mailbox.sub = self.listen(at, client.filter, mailbox)
        return mailbox

    def redirect(self, mailbox: Mailbox, receiver: Callable[[MobileEvent], None]) -> None:
        """Hand the events of a mailbox to another receiver."""
        self._receivers[mailbox.sub] = receiver

    def unsubscribe(self, mailbox: Mailbox) -> list[MobileEvent]:
        """Take a client's subscription at a broker back; returns what it had buffered."""
        self.unlisten(mailbox.at, mailbox.sub)
        return mailbox.take()

    def advertise(self, name: str, at: int, filter: Filter) -> SubId:
        """Advertise at a broker, in every plane."""
        advert = self._fresh()
        self.last_told = []
        for plane in self.planes:
            plane.network.advertise(broker(at), advert, filter, ClientId(name))
            self._finish_work(plane, at)
        self.saw("advertise", at=at, client=name, filter=str(filter))
        return advert

    def unadvertise(self, name: str, at: int, advert: SubId) -> None:
        """Take an advertisement back."""
        for plane in self.planes:
            plane.network.unadvertise(broker(at), advert, ClientId(name))
            self._finish_work(plane, at)
        self.saw("unadvertise", at=at, client=name)

    def publish(self, name: str, at: int, event: MobileEvent) -> None:
        """Publish a client's event at a broker."""
        plane = self.planes[event.kind - 1 if len(self.planes) > 1 else 0]
        cause, self.cause = self.cause, None
        self._send_event(plane, name, at, event, {"x": event.x})
        self.cause = cause
        if self.protocol.logs:
            self.protocol.passed(at, event)

    def signal(self, name: str, at: int, signal: Signal, attributes: dict[str, int]) -> None:
        """Publish an event of a protocol, in every plane."""
        for plane in self.planes:
            self._send_event(plane, name, at, signal, attributes)

    def _send_event(
        self, plane: Plane, name: str, at: int, carried: MobileEvent | Signal, attributes: dict[str, int]
    ) -> None:
        self._publishing = carried
        number = plane.network.publish(broker(at), attributes, ClientId(name))
        self._publishing = None
        self._carried[plane.number, number] = carried
        self._deliver(plane.number)

    def _change_interest(self, step: InterestStep) -> None:
        if step.filter:
            self._others[step.client] = self.listen(step.broker, parse(step.filter), lambda _: None)
        else:
            self.unlisten(step.broker, self._others.pop(step.client))


def _kind_of_update(message: Update, phase: Phase) -> str:
    """What an update does. One of a tear-down may also add: what the removed filter covered is told again."""
    undone = "un" if phase is Phase.TEAR_DOWN else ""
    return undone + ("subscribe" if message.about is About.SUBSCRIPTIONS else "advertise")


def _plain_kind(message: TableMessage) -> str:
    return message.about.value if isinstance(message, Update) else "event"


def _group(cause: Cause, message: TableMessage, place: tuple[int, int]) -> str:
    """Where a broker that a message has reached is counted."""
    if not isinstance(message, Update) or cause.group == FILTERS:
        return cause.group
    if cause.group in ("ping", "pong"):
        return f"{message.about.value} of {cause.group}"
    if cause.handover.client.spec.publishes and message.about is About.SUBSCRIPTIONS:
        return "reply"  # subscriptions that are told back to an advertisement
    if cause.handover.way is not None and place not in cause.handover.way:
        return BEYOND
    return cause.group
