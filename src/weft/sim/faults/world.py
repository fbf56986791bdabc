"""One broker and its clients in simulated time. Law: a plan gives one run, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from traceback import format_tb

from weft.broker.core import Core
from weft.broker.limits import ClientLimits
from weft.errors import WeftError
from weft.log.base import State
from weft.log.memory import MemoryLog
from weft.routing.registry import make_table
from weft.sim.engine import Engine
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.client import SimClient
from weft.sim.faults.oracle import Oracle
from weft.sim.faults.plan import Plan, Step
from weft.sim.faults.steps import SHARE, STEPS, Act
from weft.sim.faults.trace import Trace
from weft.sim.faults.violation import Violation, require

_LONG = 1 << 30  # a lag that no queue reaches
_HEAL = 600_000_000  # simulated microseconds within which everything must be drained


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    plan: Plan
    trace: Trace
    failure: str = ""
    events: int = 0
    deliveries: int = 0
    notes: list[str] = field(default_factory=list)


MakeWorldCore = Callable[[MemoryLog, State, ClientLimits, Random], Core]


def draw_limits(rng: Random) -> ClientLimits:
    """Small limits now and then, so that a short run reaches them."""
    return ClientLimits(
        window_events=rng.choice((2, 5, 1_000)),
        window_bytes=rng.choice((200, 1 << 20)),
        lag=rng.choice((25, 1 << 40, 1 << 40, 1 << 40)),
        held=rng.choice((2, 10_000)),
        failures=rng.choice((2, 5)),
        backoff=rng.choice((1_000, 50_000)),
        tail=rng.choice((0, 4_000, 64 << 20)),
        floors=rng.choice((0, 5_000, 50_000)),
        turn=rng.choice((3, 2_000)),
        idle=rng.choice((0, 1_500_000)),
    )


def plain_core(log: MemoryLog, state: State, limits: ClientLimits, rng: Random) -> Core:
    """A broker with a covering table."""
    return Core(log, state, make_table("covering"), draw=lambda: rng.getrandbits(63), limits=limits)


class World:
    """A broker, clients and what happens to them."""

    def __init__(self, plan: Plan, make_core: MakeWorldCore = plain_core) -> None:
        self.plan = plan
        self.engine = Engine()
        self.trace = Trace()
        self.oracle = Oracle()
        rng = Random(plan.seed ^ 0x5EED)
        ids = Random(plan.seed ^ 0x1D5)
        self.limits = draw_limits(rng)

        def made(log: MemoryLog, state: State) -> Core:
            return make_core(log, state, self.limits, ids)

        log = MemoryLog(f"log-{plan.seed}")
        self.broker = BrokerProcess("broker", self.engine, rng, self.trace, self.oracle, log, made)
        self.oracle.window = self.limits.window_events
        self.oracle.lossless = self.limits.lag > _LONG
        self.broker.start()
        shared = self.oracle.view()  # what all consumers of the shared name have seen together
        self.clients = [
            SimClient(f"client{i}", self.broker, self.engine, Random(rng.getrandbits(64)), self.trace, self.oracle)
            for i in range(plan.clients)
        ]
        for client in self.clients:
            client.requests.shares[SHARE] = shared
        self.clients[-1].anonymous = plan.seed % 3 == 0
        self.numbers = 0  # of subscriptions and advertisements
        self.uids = 0  # of events

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Everything that was planned, then mending, then the final checks."""
        outcome = Outcome(self.plan, self.trace)
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
        self.broker.count_core()
        outcome.events = len(self.oracle.history)
        outcome.deliveries = self.trace.counts["delivered"]
        return outcome

    def _heal(self) -> None:
        """No more faults: everything must drain within a bound."""
        self.trace.say(self.engine.now, "world", "faults end")
        self.broker.log.quota = None
        self.broker.skew = max(self.broker.skew, 0)
        self.broker.restart()
        for client in self.clients:
            client.mend()
        end = self.engine.now + _HEAL
        while self.engine.now < end and self._unfinished():
            self.engine.run(until=self.engine.now + 1_000_000)
        left = self._unfinished()
        require(not left, f"after healing something is not done: {left}")

    def _unfinished(self) -> str:
        """What is not drained yet."""
        if self.broker.core is None:
            return "the broker is down"
        utc = max(self.broker.now.utc, self.broker.latest)  # what has expired once is not required
        for client in self.clients:
            state = client.state
            if client.is_waiting:
                return client.is_waiting
            for queue, view in state.queues.items():
                subs = [sub for sub in state.subs.values() if sub.queue == queue and sub.durable]
                missing = self.oracle.missing(subs, view, utc)
                if missing:
                    uid = self.oracle.history[missing[0]].uid
                    return f"{client.name} queue {queue} lacks {len(missing)} events, first {uid} at {missing[0]}"
        return ""

    def _final(self) -> None:
        assert self.broker.core is not None
        self.broker.core.check()
        needed, following = self.broker.core.needed, self.oracle.next
        self.trace.say(self.engine.now, "world", f"drained: needed {needed}, next {following}")

    def _do(self, step: Step) -> None:
        client = self.clients[step.client % len(self.clients)]
        self.trace.count(f"step: {step.what}")
        self.trace.say(self.engine.now, "world", f"{client.name}: {step.what}")
        STEPS[step.what](Act(self, client, Random(step.draw)))
        if self.broker.core is not None:
            self.broker.core.check()


def _where(error: BaseException) -> str:
    """The last frames of an unexpected error."""
    return "".join(format_tb(error.__traceback__)[-4:])
