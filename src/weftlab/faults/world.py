"""Brokers and their clients in simulated time, from a plan. A plan gives one run, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from traceback import format_tb
from typing import Any

from weft.broker.broker import Core
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits
from weft.broker.queue import SHARED
from weft.errors import AccessError, WeftError
from weft.log.base import NEVER, State
from weft.log.memory import MemoryLog
from weftlab.engine import Engine
from weftlab.faults.access_book import AccessBook
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.client import SimClient
from weftlab.faults.network_oracle import NetworkOracle, disagreement
from weftlab.faults.oracle import Oracle, RateLaw
from weftlab.faults.plan import GRANTS, PRINCIPALS, Plan, Step
from weftlab.faults.shape import EVEN
from weftlab.faults.steps import FILTERS, Act, do_step
from weftlab.faults.trace import RunTrace
from weftlab.faults.trunk import Trunk
from weftlab.faults.views import QueueView
from weftlab.faults.violation import Violation, require

_AGAIN = 10_000  # microseconds until a link that is not yet gone is attached again
_HEAL = 600_000_000  # simulated microseconds within which everything must be drained
_HEAL_NETWORK = 120_000_000  # the same for networks


QUEUE_LIMITS = {  # of a broker's clients and queues
    "window_events": (2, 5, 1_000),
    "window_bytes": (200, 1 << 20),
    "lag": (25, 1 << 40, 1 << 40, 1 << 40),
    "held": (2, 10_000),
    "failures": (2, 5),
    "backoff": (1_000, 50_000),
    "tail": (0, 4_000, 64 << 20),
    "ack_delay": (0, 5_000, 50_000),
    "turn": (3, 2_000),
    "idle": (0, 1_500_000),
}
LINK_LIMITS = {
    "heartbeat": (40_000, 200_000),
    "link_events": (1, 5, 4_096),
    "link_bytes": (300, 4 << 20),
    "link_frames": (1, 3, 16),
    "link_control": (3, 20_000),
    "digests": (1, 6),
    "audit": (1, 4),
    "slice": (1, 8),
}


@dataclass(slots=True)
class RunOutcome:
    """How a run ended."""

    plan: Plan
    trace: RunTrace
    failure: str = ""
    events: int = 0
    deliveries: int = 0
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def judged(self, engine: Engine) -> Iterator[None]:
        """Whatever goes wrong inside is how the run failed."""
        try:
            yield
        except Violation as violation:
            self.failure = str(violation)
        except (AssertionError, WeftError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            self.failure = f"{type(error).__name__}: {error}"
            self.notes.append("".join(format_tb(error.__traceback__)[-4:]))
        if self.failure:
            self.trace.say(engine.now, "VIOLATION", self.failure)


class World:
    """Brokers, clients and what happens to them. Limits that are given are not drawn."""

    def __init__(self, plan: Plan, **limits: int) -> None:
        self.plan = plan
        self.engine = Engine()
        self.trace = RunTrace()
        self.numbers = 0  # of subscriptions and advertisements
        self.uids = 0  # of events
        self._ids = Random(plan.seed ^ 0x1D5)
        shape, rng = plan.shape, Random(plan.seed ^ 0x5EED)
        drawn: dict[str, Any] = {name: rng.choice(choices) for name, choices in QUEUE_LIMITS.items()}
        self.limits = ClientLimits(run=2, run_behind=2, **drawn)
        self.book = AccessBook()
        if plan.terms.guarded:
            self.draw_rules(Random(plan.seed ^ 0xACCE55))
        if shape.brokers > 1:
            drawn = {name: rng.choice(choices) for name, choices in LINK_LIMITS.items()}
            drawn["link_silence"], drawn["changes"] = 4 * drawn["heartbeat"], drawn["slice"]
            # a queue never falls behind too far, nor does a link
            self.limits = replace(self.limits, **{**drawn, "lag": 1 << 40, **limits})
            self.brokers = [self._broker(name, Random(rng.getrandbits(64))) for name in shape.names]
            for broker in self.brokers:
                broker.sync_within = rng.choice((1_500, 1_500, 20_000))  # a link may be back before it is over
        else:
            self.limits = replace(plan.terms.limits(self.limits), **limits)
            self.brokers = [self._broker(shape.names[0], rng)]
            self.brokers[0].full = plan.terms.full
            self.brokers[0].oracle.rate = RateLaw(self.limits.rate, self.limits.burst) if self.limits.rate else None
        ends = [(self.brokers[near], self.brokers[far], role) for near, far, role in shape.links]
        self.trunks = [Trunk(*each, self.engine, Random(rng.getrandbits(64)), self.trace) for each in ends]
        repeats: set[str] = set()  # events that may be stored twice, at every broker that they come to
        for broker in self.brokers:
            broker.oracle.repeats = repeats
            broker.start()
        self.clients = self._clients(rng)
        if shape.brokers > 1:
            self.trace.count(f"model: {shape.model}{' with advertisements' if shape.advertised else ''}")
        by_name = {broker.name: broker for broker in self.brokers}
        self.network = NetworkOracle(by_name, self.clients, self.trace, advertised=shape.advertised)

    def _broker(self, name: str, rng: Random) -> BrokerProcess:
        shape, guarded = self.plan.shape, self.plan.terms.guarded

        def make(log: MemoryLog, state: State) -> Core:
            further: dict[str, Any] = {"rules": self.book.rules, "authenticate": self._authenticate} if guarded else {}
            return Core(
                log,
                state,
                shape.make_table(),
                draw=lambda: self._ids.getrandbits(63),
                schema=shape.schema,
                limits=self.limits,
                advertised=shape.advertised,
                name=name,
                predicates=EVEN,
                **further,
            )

        oracle = Oracle(self.book)
        oracle.window = self.limits.window_events
        log = MemoryLog(f"log-{self.plan.seed}" if shape.brokers == 1 else f"log-{self.plan.seed}-{name}")
        return BrokerProcess(name, self.engine, rng, self.trace, oracle, log, make)

    def draw_rules(self, rng: Random) -> None:
        """Other access rules; the broker learns them at once, or when it starts."""
        following = self.brokers[0].oracle.next if hasattr(self, "brokers") else 1
        self.book.change({principal: rng.choice(GRANTS) for principal in PRINCIPALS}, following)

    def _authenticate(self, credentials: bytes) -> Identity:
        """The identity with these credentials, valid for a while."""
        if credentials.decode() not in PRINCIPALS:
            raise AccessError("nobody has such credentials")
        login = self.plan.terms.login
        until = self.brokers[0].now.utc + login if login else NEVER
        return Identity(credentials.decode(), until, f"key of {credentials.decode()}")

    def _clients(self, rng: Random) -> list[SimClient]:
        plan, clients = self.plan, list[SimClient]()
        shared: dict[tuple[str, str], QueueView] = {}  # by broker and principal
        for number in range(plan.clients):
            home = self.brokers[plan.shape.homes[number % len(plan.shape.homes)]]
            draws = Random(rng.getrandbits(64))
            principal = PRINCIPALS[number % len(PRINCIPALS)] if plan.terms.guarded else ""
            nameless = number == plan.clients - 1 and plan.seed % 3 == 0
            view = shared.setdefault((home.name, principal), home.oracle.view())
            place = (f"client{number}", self.engine, draws, self.trace, home, view)
            maps = bool(plan.shape.make_table().place_limits) and Random(f"maps {plan.seed} {number}").random() < 0.5
            clients.append(SimClient(*place, self.book, plan.terms, self.limits, principal, nameless, maps))
        if self.plan.shape.advertised:
            for client in clients:  # most publishers say at once what they will publish
                self.numbers += 1
                if rng.random() < 0.8:
                    client.adverts.advertise(self.numbers, rng.choice(FILTERS))
        return clients

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        """Everything that was planned, then mending, then the final checks."""
        outcome = RunOutcome(self.plan, self.trace)
        with outcome.judged(self.engine):
            for step in self.plan.steps:
                self.engine.at(step.time, lambda step=step: self._do(step))  # type: ignore[misc]
            self.engine.run(until=max((step.time for step in self.plan.steps), default=0) + 1)
            self._heal()
            self._final()
        for broker in self.brokers:
            broker.count_core()
        outcome.events = self.network.events
        outcome.deliveries = self.trace.counts["delivered"]
        return outcome

    def _do(self, step: Step) -> None:
        client = self.clients[step.client % len(self.clients)]
        broker = self.brokers[step.draw % len(self.brokers)]
        self.trace.count(f"step: {step.what}")
        self.trace.say(self.engine.now, "world", f"{client.name}: {step.what}")
        do_step(step.what, Act(self, client, broker, Random(step.draw), step.draw))
        for each in {broker.name: broker, client.broker.name: client.broker}.values():
            if each.core is not None:
                each.core.check()
        self.network.look(step.draw)

    def _heal(self) -> None:
        """No more faults: brokers run, disks have room, clients behave, and everything must drain within a bound."""
        self.trace.say(self.engine.now, "world", "faults end")
        for broker in self.brokers:
            broker.log.quota = None
            broker.skew = max(broker.skew, 0)
            broker.start()
        for trunk in self.trunks:
            trunk.separated, trunk.fragile = 0, False
            self.attach(trunk)
            trunk.resume()
        for client in self.clients:
            client.mend()
        end = self.engine.now + (_HEAL_NETWORK if self.trunks else _HEAL)
        while self.engine.now < end and self.unfinished():
            self.engine.run(until=self.engine.now + (100_000 if self.trunks else 1_000_000))
            self.network.resume()
        left = self.unfinished()
        require(not left, f"after healing something is not done: {left}")

    def _final(self) -> None:
        for broker in self.brokers:
            assert broker.core is not None
            broker.core.check()
            needed, following = broker.core.needed, broker.oracle.next
            self.trace.say(self.engine.now, "world", f"drained: needed {needed}, next {following}")
            _check_rows(broker.log)

    def unfinished(self) -> str:
        """What is not done yet, in a sentence; empty when all is."""
        return next(filter(None, self._open_ends()), "")

    def _open_ends(self) -> Iterator[str]:
        for broker in self.brokers:
            if broker.core is None:
                yield f"{broker.name} is down"
        for client in self.clients:
            yield from client.unfinished(network=bool(self.trunks))
        for trunk in self.trunks:
            near, far = trunk.near, trunk.far
            for one, other in ((near, far), (far, near)):
                if one.table.pending:
                    yield f"{one.name} has more to tell"
                yield one.behind(other.name)
            yield disagreement(near, far)
        yield self.network.lacking()

    # -- changes of the tree ---------------------------------------------------------------------------

    def detach(self, trunk: Trunk) -> None:
        """Two brokers are no longer neighbours."""
        self.network.cut_off(trunk.near.name, trunk.far.name)
        trunk.detach()

    def attach(self, trunk: Trunk) -> None:
        """Two brokers are neighbours again."""
        if trunk.attached:
            return
        if not trunk.is_detached:
            self.engine.after(_AGAIN, lambda: self.attach(trunk))
        else:
            trunk.attach()
            self.network.joined(trunk.near.name, trunk.far.name)

    def rewind(self, broker: BrokerProcess, log: MemoryLog) -> None:
        """A broker without clients goes on with a copy of its log from earlier."""
        if broker.core is None:
            return
        self.trace.count("fault: backup restored")
        self.network.rewound(broker.name)
        broker.oracle.repeats.update(self.network.known)  # all brokers share them
        broker.rewind(log)


def _check_rows(log: MemoryLog) -> None:
    """Every queue, subscription and advertisement has its session, and every dead letter its queue."""
    state = log.restore()
    sessions = {*state.sessions, SHARED}
    for sub in state.subs.values():
        require(sub.session in sessions, f"consumer {sub.seat} in the log belongs to a session that is gone")
    for advert in state.adverts.values():
        require(advert.session in sessions, f"advertisement {advert.id} in the log belongs to a session that is gone")
    for consumer in state.dead:
        require(consumer in state.subs, f"dead letters in the log belong to consumer {consumer}, which is gone")
