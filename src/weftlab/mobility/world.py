"""A mobility script as it is played: the clock, the clients that move, their hand-overs, and what these cost.

`LightWorld` plays scripts on routing tables, `CoreWorld` on real brokers. Every message knows the hand-over that caused
it, so hops and updated brokers are counted for each hand-over, also when several overlap. Whoever moves again before
its hand-over has ended leaves when it has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.index.base import SubId
from weft.language.text import parse
from weftlab.engine import Engine
from weftlab.mobility.script import ClientSpec, InterestStep, PublishStep, RelocateStep, Script
from weftlab.mobility.topology import BrokerTree
from weftlab.mobility.trace import MobileEvent, MobilityTrace, Notified, PubId

if TYPE_CHECKING:
    from weftlab.mobility.light import Mailbox

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


class Mobile:
    """A client of the script."""

    def __init__(self, spec: ClientSpec, world: ScriptedWorld) -> None:
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


Watch = Callable[[int, str, dict[str, Any]], None]  # the time, what happened, and the facts


class ScriptedWorld:
    """A run of a script. What moves clients, and what else a script can do, is up to the kinds of brokers."""

    clients: dict[str, Any]

    def __init__(self, tree: BrokerTree, script: Script, watch: Watch | None = None) -> None:
        self.tree, self.script, self.watch = tree, script, watch
        self.engine = Engine()
        self.trace = MobilityTrace()
        self.handovers: list[ClientHandover] = []
        self.event_hops = 0
        self.cause: Cause | None = None

    @property
    def trees(self) -> list[BrokerTree]:
        """The trees on which events travel."""
        return [self.tree]

    def depart(self, handover: ClientHandover) -> None:
        """The client is about to leave the source."""
        raise NotImplementedError

    def arrive(self, handover: ClientHandover) -> None:
        """The client has arrived at the target."""
        raise NotImplementedError

    def change_interest(self, step: InterestStep) -> None:
        """A client that does not move subscribes or unsubscribes."""
        raise NotImplementedError

    def _play(self, step: RelocateStep | PublishStep | InterestStep) -> None:
        if isinstance(step, InterestStep):
            self.change_interest(step)
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
        self.depart(handover)

    def schedule_arrival(self, handover: ClientHandover) -> None:
        """Let the client arrive when the script says, or now if that has passed."""
        handover.left = self.engine.now
        self.engine.at(max(self.engine.now, handover.asked + handover.away), partial(self._arrive_client, handover))

    def _arrive_client(self, handover: ClientHandover) -> None:
        handover.started = self.engine.now
        handover.client.at = handover.target
        handover.client.connected = True
        self.saw("arrive", client=handover.client.name, at=handover.target)
        self.arrive(handover)

    def finish(self, handover: ClientHandover) -> None:
        """The hand-over is complete."""
        if handover.finished < 0:
            handover.finished = self.engine.now
        handover.client.moving = None
        self.saw("finish", client=handover.client.name, at=handover.target)
        self._depart(handover.client)

    def saw(self, what: str, **facts: Any) -> None:
        """Tell whoever records the run."""
        if self.watch is not None:
            self.watch(self.engine.now, what, facts)

    @contextmanager
    def acting(self, handover: ClientHandover, phase: Phase, group: str = "") -> Iterator[None]:
        """Messages that are sent meanwhile are counted for the hand-over."""
        before, self.cause = self.cause, Cause(handover, phase, group)
        try:
            yield
        finally:
            self.cause = before
