"""Light brokers in simulated time: routing tables on a tree, driven by a clock, with clients that move.

The brokers are the network of tables (`weft.network.tables`). A message takes the delay of its link and the time that
the receiving broker needs; queueing is not modelled. Messages of protocols travel as notes on the links, behind what is
on its way there, or beside the tree through the network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
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
from weftlab.mobility.script import InterestStep, Script
from weftlab.mobility.topology import BrokerTree, broker
from weftlab.mobility.trace import MobileEvent
from weftlab.mobility.world import (
    BEYOND,
    FILTERS,
    NODE_DELAY,
    Cause,
    ClientHandover,
    Mobile,
    Phase,
    ScriptedWorld,
    Watch,
)

if TYPE_CHECKING:
    from weftlab.mobility.protocol import Protocol


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


class LightWorld(ScriptedWorld):
    """A run of a script with a protocol."""

    def __init__(
        self, tree: BrokerTree, script: Script, make: Callable[[LightWorld], Protocol], watch: Watch | None = None
    ) -> None:
        super().__init__(tree, script, watch)
        self.useless_hops = 0  # events that arrived at a broker for nobody
        self.forwarded = 0  # events beside the tree
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

    @property
    def trees(self) -> list[BrokerTree]:
        """The trees on which events travel."""
        return [plane.tree for plane in self.planes]

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

    def depart(self, handover: ClientHandover) -> None:
        """Leave it to the protocol."""
        self.protocol.depart(handover)

    def arrive(self, handover: ClientHandover) -> None:
        """Leave it to the protocol."""
        self.protocol.arrive(handover)

    def disconnect(self, handover: ClientHandover) -> None:
        """The client leaves its broker, and arrives at the other one when the script says."""
        client = handover.client
        client.connected = False
        client.send = None
        if client.mailbox is not None:
            client.mailbox.live = False
        self.schedule_arrival(handover)

    # -- messages on links ------------------------------------------------------------------------------

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

    def change_interest(self, step: InterestStep) -> None:
        """A client that does not move subscribes or unsubscribes."""
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
