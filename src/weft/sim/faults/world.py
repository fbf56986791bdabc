"""Brokers and their clients in simulated time. Law: a plan gives one run, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from traceback import format_tb

from weft.broker.identity import Identity
from weft.errors import AccessError, WeftError
from weft.log.base import NEVER, State
from weft.log.memory import MemoryLog
from weft.sim.engine import Engine
from weft.sim.faults.access_book import AccessBook
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.client import SimClient
from weft.sim.faults.client_state import ClientTerms
from weft.sim.faults.client_steps import FILTERS, Act
from weft.sim.faults.consumer import SHARE
from weft.sim.faults.core_parts import CoreParts, MakeWorldCore, draw_limits, draw_link_limits, plain_core
from weft.sim.faults.final_laws import check_rows
from weft.sim.faults.healing import mend, unfinished
from weft.sim.faults.network_oracle import NetworkOracle
from weft.sim.faults.oracle import Oracle
from weft.sim.faults.plan import Plan, Step
from weft.sim.faults.rate_law import RateLaw
from weft.sim.faults.shape import CONVERSE
from weft.sim.faults.steps import STEPS
from weft.sim.faults.terms import GRANTS, PRINCIPALS
from weft.sim.faults.trace import RunTrace
from weft.sim.faults.trunk import Trunk
from weft.sim.faults.violation import Violation, require

_AGAIN = 10_000  # microseconds until a link that is not yet gone is attached again
_HEAL = 600_000_000  # simulated microseconds within which everything must be drained
_HEAL_NETWORK = 120_000_000  # the same for networks


@dataclass(slots=True)
class RunOutcome:
    """How a run ended."""

    plan: Plan
    trace: RunTrace
    failure: str = ""
    events: int = 0
    deliveries: int = 0
    notes: list[str] = field(default_factory=list)


class World:
    """Brokers, clients and what happens to them."""

    def __init__(self, plan: Plan, make_core: MakeWorldCore = plain_core) -> None:
        self.plan = plan
        self.engine = Engine()
        self.trace = RunTrace()
        self.numbers = 0  # of subscriptions and advertisements
        self.uids = 0  # of events
        self._make_core = make_core
        self._ids = Random(plan.seed ^ 0x1D5)
        shape, rng = plan.shape, Random(plan.seed ^ 0x5EED)
        self.limits = draw_limits(rng)
        self.book = AccessBook()
        if plan.terms.guarded:
            self.draw_rules(Random(plan.seed ^ 0xACCE55))
        if shape.brokers > 1:
            self.limits = draw_link_limits(rng, self.limits)
            self.brokers = [self._broker(name, Random(rng.getrandbits(64))) for name in shape.names]
            for broker in self.brokers:
                broker.commits.sync_within = rng.choice((1_500, 1_500, 20_000))  # a link may be back before it is over
        else:
            self.limits = plan.terms.limits(self.limits)
            self.brokers = [self._broker(shape.names[0], rng)]
            self.brokers[0].full = plan.terms.full
            self.brokers[0].oracle.rate = RateLaw(self.limits.rate, self.limits.burst) if self.limits.rate else None
            self.brokers[0].oracle.may_read, self.brokers[0].oracle.withheld = self.book.may_read, self.book.withheld
        self.trunks = [
            Trunk(self.brokers[near], self.brokers[far], self.engine, Random(rng.getrandbits(64)), self.trace)
            for near, far, _ in shape.links
        ]
        for link in shape.links:
            near, far = self.brokers[link.near], self.brokers[link.far]
            far.neighbours[near.name], near.neighbours[far.name] = link.role, CONVERSE[link.role]
        self.roles = {trunk.name: link.role for trunk, link in zip(self.trunks, shape.links, strict=True)}
        for broker in self.brokers:
            broker.start()
        self.clients = self._clients(rng)
        if shape.brokers > 1:
            self.trace.count(f"model: {shape.model}{' with advertisements' if shape.advertised else ''}")
        by_name = {broker.name: broker for broker in self.brokers}
        self.network = NetworkOracle(by_name, self.clients, self.trace, advertised=shape.advertised)

    def _broker(self, name: str, rng: Random) -> BrokerProcess:
        def made(log: MemoryLog, state: State) -> object:
            parts = CoreParts(self.plan.shape, name, log, state, self.limits, self._ids)
            if self.plan.terms.guarded:
                parts = parts._replace(rules=self.book.rules, authenticate=self._authenticate)
            return self._make_core(parts)

        oracle = Oracle()
        oracle.window = self.limits.window_events
        log_id = f"log-{self.plan.seed}" if self.plan.shape.brokers == 1 else f"log-{self.plan.seed}-{name}"
        return BrokerProcess(name, self.engine, rng, self.trace, oracle, MemoryLog(log_id), made)  # type: ignore[arg-type]

    def draw_rules(self, rng: Random) -> None:
        """Other access rules; the broker learns them at once, or when it starts."""
        following = self.brokers[0].oracle.next if hasattr(self, "brokers") else 1
        self.book.change({principal: rng.choice(GRANTS) for principal in PRINCIPALS}, following)

    def _authenticate(self, credentials: bytes) -> Identity:
        """Who shows these credentials, for a while."""
        if credentials.decode() not in PRINCIPALS:
            raise AccessError("nobody has such credentials")
        login = self.plan.terms.login
        until = self.brokers[0].now.utc + login if login else NEVER
        return Identity(credentials.decode(), until, f"key of {credentials.decode()}")

    def _clients(self, rng: Random) -> list[SimClient]:
        homes = [self.brokers[home] for home in self.plan.shape.homes]
        owners = PRINCIPALS if self.plan.terms.guarded else ("",)
        # what all consumers of a shared name have seen
        shared = {(home.name, owner): home.oracle.view() for home in homes for owner in owners}
        clients = []
        for number in range(self.plan.clients):
            home = homes[number % len(homes)]
            draws = Random(rng.getrandbits(64))
            principal = PRINCIPALS[number % len(PRINCIPALS)] if self.plan.terms.guarded else ""
            terms = ClientTerms(self.book, self.plan.terms, self.limits, principal)
            clients.append(SimClient(f"client{number}", home, self.engine, draws, self.trace, terms))
            clients[-1].requests.shares[SHARE] = shared[home.name, principal]
        if self.plan.shape.advertised:
            for client in clients:  # most publishers say at once what they will publish
                self.numbers += 1
                if rng.random() < 0.8:
                    client.requests.advertise(self.numbers, rng.choice(FILTERS))
        clients[-1].anonymous = self.plan.seed % 3 == 0 and not self.plan.shape.advertised
        return clients

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        """Everything that was planned, then mending, then the final checks."""
        outcome = RunOutcome(self.plan, self.trace)
        try:
            for step in self.plan.steps:
                self.engine.at(step.time, lambda step=step: self._do(step))  # type: ignore[misc]
            self.engine.run(until=max((step.time for step in self.plan.steps), default=0) + 1)
            self._heal()
            self._final()
        except Violation as violation:
            outcome.failure = str(violation)
        except (AssertionError, WeftError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
            outcome.notes.append(_where(error))
        if outcome.failure:
            self.trace.say(self.engine.now, "VIOLATION", outcome.failure)
        for broker in self.brokers:
            broker.count_core()
        outcome.events = self.network.events
        outcome.deliveries = self.trace.counts["delivered"]
        return outcome

    def _do(self, step: Step) -> None:
        client = self.clients[step.client % len(self.clients)]
        act = Act(self, client, Random(step.draw), step.draw)
        self.trace.count(f"step: {step.what}")
        self.trace.say(self.engine.now, "world", f"{client.name}: {step.what}")
        STEPS[step.what](act)
        for broker in {act.broker.name: act.broker, client.broker.name: client.broker}.values():
            if broker.core is not None:
                broker.core.check()
        self.network.look(step.draw)

    def _heal(self) -> None:
        """No more faults: everything must drain within a bound."""
        self.trace.say(self.engine.now, "world", "faults end")
        mend(self)
        end = self.engine.now + (_HEAL_NETWORK if self.trunks else _HEAL)
        while self.engine.now < end and unfinished(self):
            self.engine.run(until=self.engine.now + (100_000 if self.trunks else 1_000_000))
            self.network.resume()
        left = unfinished(self)
        require(not left, f"after healing something is not done: {left}")

    def _final(self) -> None:
        for broker in self.brokers:
            assert broker.core is not None
            broker.core.check()
            needed, following = broker.core.needed, broker.oracle.next
            self.trace.say(self.engine.now, "world", f"drained: needed {needed}, next {following}")
            check_rows(broker.log)

    # -- changes of the tree ---------------------------------------------------------------------------

    def detach(self, trunk: Trunk) -> None:
        """Two brokers are no longer neighbours."""
        self.network.cut_off(trunk.near.name, trunk.far.name)
        trunk.attached = False
        trunk.near.detach(trunk.far.name)
        trunk.far.detach(trunk.near.name)

    def attach(self, trunk: Trunk) -> None:
        """Two brokers are neighbours again."""
        if trunk.attached:
            return
        if not trunk.is_detached:
            self.engine.after(_AGAIN, lambda: self.attach(trunk))
        else:
            role = self.roles[trunk.name]
            trunk.near.attach(trunk.far.name, CONVERSE[role])
            trunk.far.attach(trunk.near.name, role)
            trunk.attach()
            self.network.joined(trunk.near.name, trunk.far.name)

    def rewind(self, broker: BrokerProcess, log: MemoryLog) -> None:
        """A broker without clients goes on with a copy of its log from earlier."""
        if broker.core is None:
            return
        self.trace.count("fault: backup restored")
        self.network.rewound(broker.name)
        for other in self.brokers:
            other.oracle.repeats |= self.network.published_so_far
        broker.rewind(log)

    def has_clients(self, broker: BrokerProcess) -> bool:
        """Whether clients connect to a broker."""
        return any(client.broker is broker for client in self.clients)


def _where(error: BaseException) -> str:
    """The last frames of an unexpected error."""
    return "".join(format_tb(error.__traceback__)[-4:])
