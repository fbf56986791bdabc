"""What a simulated client remembers. Law: nothing is forgotten because a connection was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from weft.broker.limits import ClientLimits
from weft.broker.messages import ClientMessage, QueueNumber, SubNumber
from weft.language.ast import Filter
from weft.log.base import Offset
from weft.sim.engine import Engine
from weft.sim.faults.access_book import AccessBook
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.oracle import Oracle
from weft.sim.faults.terms import Terms
from weft.sim.faults.trace import RunTrace
from weft.sim.faults.views import AdvertView, LossyView, QueueView, SubView


@dataclass(slots=True)
class Unconfirmed:
    """An event that was published and not yet confirmed."""

    uid: str
    attributes: dict[str, object]
    ttl: int
    rules: int = 0  # the access rules when it was published


@dataclass(slots=True)
class ClientState:
    """What a client remembers over its connections."""

    pub_epoch: int = 1
    sequence: int = 0  # of the last event of the epoch
    unconfirmed: dict[int, Unconfirmed] = field(default_factory=dict)  # by sequence
    subs: dict[SubNumber, SubView] = field(default_factory=dict)
    adverts: dict[int, AdvertView] = field(default_factory=dict)
    promises: list[Filter] = field(default_factory=list)  # what it has ever advertised
    asked: list[ClientMessage] = field(default_factory=list)  # requests without an answer
    queues: dict[QueueNumber, QueueView] = field(default_factory=dict)
    ordered: dict[QueueNumber, bool] = field(default_factory=dict)
    open: dict[QueueNumber, dict[Offset, int]] = field(default_factory=dict)  # not answered: attempts
    lossy: dict[QueueNumber, LossyView] = field(default_factory=dict)  # queues that are not durable
    trials: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)  # what must fail, and by which codes
    once: set[tuple[QueueNumber, str]] = field(default_factory=set)  # what queues that are not durable have had


class ClientTerms(NamedTuple):
    """What a client may do."""

    book: AccessBook
    terms: Terms
    limits: ClientLimits
    principal: str


class ClientWorld(NamedTuple):
    """Where a client lives: its broker, and the parts of the world that it uses."""

    name: str
    broker: BrokerProcess
    engine: Engine
    rng: Random
    trace: RunTrace
    oracle: Oracle  # of its broker
    book: AccessBook
    terms: Terms
    limits: ClientLimits
    principal: str

    def say(self, what: str) -> None:
        """Write a line of the trace."""
        self.trace.say(self.engine.now, self.name, what)

    def soon(self, within: int, action: Callable[[], None]) -> None:
        """Run an action at a random time within so many microseconds."""
        self.engine.after(1 + self.rng.randrange(within), action)
