"""A simulated client: it publishes, subscribes and acknowledges, reconnects when it is cut off, and forgets nothing.

What it asked for is asked again after a reconnection until it is answered, and what it published is sent again until it
is confirmed, as the client library does. Each of its parts is a module of its own.
"""

from __future__ import annotations

from random import Random

from weft.broker.messages import (
    Accepted,
    Bye,
    DeadLetters,
    Deliver,
    Dropped,
    Failed,
    Gap,
    Hello,
    Published,
    Refused,
    Welcome,
)
from weft.sim.engine import Engine
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.client_state import ClientState, ClientWorld
from weft.sim.faults.connection import ClientConnection
from weft.sim.faults.consumer import Consumer
from weft.sim.faults.oracle import Oracle
from weft.sim.faults.publisher import Publisher
from weft.sim.faults.requests import Requests
from weft.sim.faults.trace import Trace


class SimClient:
    """A client of one broker, with a name."""

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self, name: str, broker: BrokerProcess, engine: Engine, rng: Random, trace: Trace, oracle: Oracle
    ) -> None:
        self.name = name
        self.broker = broker
        self.state = ClientState()
        self.anonymous = False  # a session without a name ends with its connection
        self._world = ClientWorld(name, broker, engine, rng, trace, oracle)
        self.connection = ClientConnection(self._world, self.state, self._handle, self._hello)
        self.publisher = Publisher(self._world, self.state, self.connection)
        self.requests = Requests(self._world, self.state, self.connection)
        self.consumer = Consumer(self._world, self.state, self.connection)

    @property
    def is_waiting(self) -> str:
        """What it waits for: answers or confirmations."""
        if self.state.asked or self.requests.is_retrying:
            return f"{self.name} waits for answers to {self.state.asked}"
        if self.state.unconfirmed:
            return f"{self.name} waits for {len(self.state.unconfirmed)} confirmations"
        return ""

    def mend(self) -> None:
        """No more trouble: acknowledge, read and stay connected."""
        self.consumer.nacks, self.consumer.acking, self.connection.wanted = 0.0, True, True
        self.connection.resume()

    def _hello(self) -> Hello:
        """The first message of a connection."""
        if self.anonymous:
            self.publisher.forget()
        return Hello(session="" if self.anonymous else self.name, pub_epoch=self.state.pub_epoch)

    def _handle(self, message: object) -> None:
        trace = self._world.trace
        match message:
            case Welcome():
                self.connection.welcomed = True
                self.publisher.welcome(message.pub_epoch, message.pub_seq)
                self.requests.welcome(message)
                self.publisher.send_again()
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
            case Dropped():
                trace.count("dropped")
            case DeadLetters():
                self.consumer.dead_letters(message)
            case Bye(code):
                trace.count(f"bye: {code}")
            case _:  # what needs no answer
                pass
