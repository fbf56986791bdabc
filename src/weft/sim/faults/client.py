"""A simulated client: it publishes, subscribes and acknowledges, reconnects when it is cut off, and forgets nothing.

What it asked for is asked again after a reconnection until it is answered, and what it published is sent again until it
is confirmed, as the client library does. Each of its parts is a module of its own.
"""

from __future__ import annotations

from random import Random

import msgspec

from weft.broker.messages import (
    VERSION,
    Accepted,
    Bye,
    DeadDone,
    DeadLetters,
    Deliver,
    Dropped,
    Explained,
    Failed,
    Gap,
    Hello,
    NewEpoch,
    Published,
    Refused,
    Revoked,
    StatusReport,
    Welcome,
)
from weft.sim.engine import Engine
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.client_state import ClientState, ClientTerms, ClientWorld
from weft.sim.faults.connection import ClientConnection
from weft.sim.faults.consumer import Consumer
from weft.sim.faults.publisher import SimulatedPublisher
from weft.sim.faults.requests import SimulatedRequests
from weft.sim.faults.trace import RunTrace
from weft.sim.faults.views import LossyView
from weft.sim.faults.violation import require


class SimClient:
    """A client of one broker, with a name."""

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self, name: str, broker: BrokerProcess, engine: Engine, rng: Random, trace: RunTrace, terms: ClientTerms
    ) -> None:
        self.name = name
        self.broker = broker
        self.state = ClientState()
        self.anonymous = False  # a session without a name ends with its connection
        self.lie = ""  # what is wrong with its next hello
        self._lied = ""  # with which the present connection began
        self._session = 0  # with its name, as far as it knows
        self._forgetting = False  # it has asked that the session be removed
        self._gone = False  # it knows that the session is removed
        self._world = ClientWorld(name, broker, engine, rng, trace, broker.oracle, *terms)
        self.book, self.principal, self.limits = terms.book, terms.principal, terms.limits
        self.connection = ClientConnection(self._world, self.state, self._handle, self._hello)
        self.publisher = SimulatedPublisher(self._world, self.state, self.connection)
        self.requests = SimulatedRequests(self._world, self.state, self.connection)
        self.consumer = Consumer(self._world, self.state, self.connection)

    @property
    def is_waiting(self) -> str:
        """What it waits for: answers or confirmations."""
        if self.state.asked or self.requests.is_retrying:
            return f"{self.name} waits for answers to {self.state.asked}"
        if self.state.trials:
            return f"{self.name} waits for refusals of {[*self.state.trials]}"
        if not self.connection.wanted:
            return f"{self.name} is away"
        if self.state.unconfirmed:
            return f"{self.name} waits for {len(self.state.unconfirmed)} confirmations"
        return ""

    @property
    def first_refusals(self) -> tuple[str, ...]:
        """Codes by which anything may be refused, before it is looked at."""
        world = self._world
        limited = "limit" if world.terms.subscriptions or world.terms.queues or world.terms.adverts else "leaving"
        return ("access", limited) if world.terms.guarded else (limited,)

    def mend(self) -> None:
        """No more trouble: acknowledge, read and stay connected."""
        self.consumer.nacks, self.consumer.acking, self.lie = 0.0, True, ""
        self.connection.resume()

    def _hello(self) -> Hello:
        """The first message of a connection."""
        if self.anonymous:
            self.publisher.forget()
        lie, self.lie = self.lie, ""
        self._lied = lie
        hello = Hello(
            session="" if self.anonymous else self.name,
            pub_epoch=self.state.pub_epoch,
            credentials=self._world.principal.encode(),
            expires=self._world.terms.keep,
        )
        match lie:
            case "version":
                return msgspec.structs.replace(hello, versions=(VERSION + 1, VERSION + 7))
            case "schema":
                return msgspec.structs.replace(hello, fingerprint="of nothing")
            case "name":
                return msgspec.structs.replace(hello, session="n" * (self._world.limits.name + 1))
            case "credentials":
                return msgspec.structs.replace(hello, credentials=b"of nobody")
            case "epoch":
                return msgspec.structs.replace(hello, epoch=1)
        return hello

    def forget(self) -> None:
        """Have the session removed, with everything in it."""
        if not self.anonymous and self.connection.leave(forget=True):
            self._forgetting = True

    def misbehave(self, how: str) -> None:
        """Break the protocol: the broker must close the connection, or refuse what was sent."""
        match how:
            case "garbage":
                self.connection.send_garbage()
            case "hello again":
                self.connection.tell(Hello(session=self.name))
            case "old publisher epoch":
                self.connection.tell(NewEpoch(self.state.pub_epoch))
            case "skipped number":
                self.publisher.skip(f"{self.name}:skipped")
            case "stranger":
                self.connection.open_stranger()

    def _welcomed(self, message: Welcome) -> None:
        fresh = message.session != self._session
        old = self._lied == "epoch" and fresh  # the epoch of a session that is gone says nothing about a new one
        require(not self._lied or old, f"{self.name}: welcomed with a wrong {self._lied}")
        if not self.anonymous:
            require(fresh or not self._gone, f"{self.name}: the session is there after it was removed")
            if self._session and fresh:
                right = self._forgetting or self._may_have_expired
                require(right, f"{self.name}: the session is gone, and nobody removed it")
                self._world.trace.count("op: session begun anew" if self._forgetting else "op: session has expired")
                self.publisher.begin_anew()
                self.requests.begin_anew()
            self._session, self._forgetting, self._gone = message.session, False, False
        self.connection.welcomed = True
        self.publisher.welcome(message.pub_epoch, message.pub_seq)
        self.requests.welcome(message)
        self.publisher.send_again()

    @property
    def _may_have_expired(self) -> bool:
        """Whether it was away for as long as its session is kept: by a clock that may jump, but at least a second."""
        world, limits = self._world, self._world.limits
        keep = min(world.terms.keep * 1_000_000 or limits.expires, limits.expires or 1 << 62)
        away = world.engine.now - self.connection.left_at
        return bool(keep) and away >= (1_000_000 if world.broker.jumped else keep)

    def _handle(self, message: object) -> None:
        trace = self._world.trace
        match message:
            case Welcome():
                self._welcomed(message)
            case Published(pub_epoch, upto) if pub_epoch == self.state.pub_epoch:
                self.publisher.confirmed(upto)
            case Refused():
                self.publisher.refused(message)
            case Accepted():
                self.requests.accepted(message)
            case Failed():
                self.requests.failed(message)
            case Deliver():
                self.consumer.delivered(message)
            case Gap(queue, first, end):
                trace.count("gap")
                self._world.oracle.gap(self.name, self.state.queues[queue], first, end)
            case Dropped(queue, count):
                trace.count("dropped", count)
                require(count > 0, f"{self.name}: nothing was dropped from queue {queue}")
                self.state.lossy.setdefault(queue, LossyView()).dropped += count
            case Revoked():
                self.requests.revoked(message)
            case DeadDone():
                self.consumer.dead_done(message)
            case StatusReport():
                self.state.trials.pop(("status", message.request), None)
            case Explained():
                self.requests.explained(message)
            case DeadLetters():
                self.consumer.dead_letters(message)
            case Bye(code):
                trace.count(f"bye: {code}")
                self._gone = code == "forgotten"
            case _:  # what needs no answer
                pass
