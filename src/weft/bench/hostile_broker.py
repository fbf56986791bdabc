"""What a hostile filter costs a whole broker, from its frame to the answer. Law: processor time and bytes, no clock.

A client subscribes at a broker with two neighbours. `home` is everything that its broker does: frames read and written,
parsing, access rules, normal form, routing table, log, and the index, which an event makes it join. `neighbour` is what
the busier of the two neighbours does until it has learnt the filter. Every filter meets a broker that already holds
some, of the same kind and others.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from weft.broker.codec import client_messages, encode, encode_all
from weft.broker.core import Core
from weft.broker.effects import ConnectionId, Effect, Now, Persist, Send, SetTimer
from weft.broker.limits import ClientLimits
from weft.broker.messages import Accepted, Failed, Hello, Publish, Subscribe, Unsubscribe
from weft.broker.rules import Rights, Rules
from weft.log.opening import LogOptions, open_log
from weft.model.schema import Schema
from weft.routing.registry import MODELS, make_table
from weft.routing.table import Role

_LIMITS = ClientLimits(heartbeat=1 << 50, link_silence=1 << 60, idle=0)
_CLIENT = ConnectionId("client")
_EVENTS = 65  # of which a batch makes young subscriptions join the index
NEIGHBOURS = ("north", "south")


def bounded_schema() -> Schema:
    """Attributes that models on cells divide: three floats, an int and a string."""
    attributes: dict[str, Any] = {name: {"type": "float", "bounds": [0, 1000]} for name in ("x", "y", "z")}
    attributes["n"] = {"type": "int", "bounds": [0, 1000]}
    attributes["s"] = {"type": "string", "categories": [f"w{n}" for n in range(20)]}
    return Schema.from_dict({"attributes": attributes})


class Admission(NamedTuple):
    """Milliseconds of CPU and bytes that an admission took; `refused` is the reason why there was none."""

    home: float
    neighbour: float
    peak: float  # bytes at home, at their highest
    refused: str


class MeasuredBroker:
    """A core with its log on disk; what it sends to its neighbours waits in `wires` as bytes."""

    def __init__(self, name: str, model: str, folder: Path, wires: deque[tuple[str, ConnectionId, bytes]]) -> None:
        schema = bounded_schema() if MODELS[model].bounded else None
        self.name = name
        self.spent = 0.0  # seconds
        self.due = False
        self.answers: list[Any] = []
        self.neighbours: dict[ConnectionId, str] = {}
        self.readers: dict[ConnectionId, Any] = {}
        self.log = open_log(folder / name, LogOptions(schema=schema)).log
        self._now = Now(0, 1_700_000_000_000_000)
        self._wires = wires
        ids = count(1)
        rules = Rules(default=Rights(subscribe=RULES), schema=schema)
        self.core = Core(
            self.log,
            self.log.restore(),
            make_table(model, schema),
            draw=lambda: next(ids),
            name=name,
            schema=schema,
            rules=rules,
            limits=_LIMITS,
        )

    def hear(self, connection: ConnectionId, data: bytes) -> None:
        """Read bytes that a client or neighbour has sent, and act on them."""
        start = process_time()
        messages = self.readers.setdefault(connection, client_messages()).feed(data)
        self.spent += process_time() - start
        self.call(self.core.receive, connection, messages)

    def call(self, method: Callable[..., list[Effect]], *args: object) -> None:
        """Call the core, and do what it asks for: store, and write frames."""
        start = process_time()
        effects = deque(method(*args, self._now))
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Persist):
                self.log.commit([effect.group])
                effects += self.core.committed(effect.ticket, self._now)
            elif isinstance(effect, SetTimer):
                self.due = effect.at <= self._now.monotonic
            elif isinstance(effect, Send):
                data = encode_all(effect.messages)
                if effect.connection in self.neighbours:
                    self._wires.append((self.neighbours[effect.connection], effect.connection, data))
                else:
                    self.answers += effect.messages
        self.spent += process_time() - start


class HostileNetwork:
    """A broker, its two neighbours, and a client."""

    def __init__(self, model: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weft-hostile-"))
        self._wires: deque[tuple[str, ConnectionId, bytes]] = deque()
        self._numbers = count(1)
        self.home = MeasuredBroker("home", model, self._folder, self._wires)
        others = [MeasuredBroker(name, model, self._folder, self._wires) for name in NEIGHBOURS]
        self.brokers = {broker.name: broker for broker in (self.home, *others)}
        for other in others:
            self.home.call(self.home.core.attach, other.name, Role.PEER)
            other.call(other.core.attach, "home", Role.PEER)
            wire = ConnectionId(f"link to {other.name}")
            self.home.neighbours[wire], other.neighbours[wire] = other.name, "home"
            other.call(other.core.connected, wire)
            self.home.call(self.home.core.dialled, wire, other.name)
        self.home.call(self.home.core.connected, _CLIENT)
        self.home.hear(_CLIENT, encode([Hello(session="client")]))
        self._settle()

    def close(self) -> None:
        """Close the logs and remove them."""
        for broker in self.brokers.values():
            broker.log.close()
        shutil.rmtree(self._folder)

    def admit(self, text: str, memory: bool = False) -> Admission:
        """Subscribe, publish events that make the subscription join the index, and unsubscribe, which is not counted.

        With `memory`, bytes are measured in place of time.
        """
        number = next(self._numbers)
        frames = encode([Subscribe(number, text)])  # type: ignore[arg-type]
        events = encode([Publish.of(_EVENTS * number + n, {"other": n}) for n in range(_EVENTS)])
        self.home.answers.clear()
        gc.collect()
        for broker in self.brokers.values():
            broker.spent = 0.0
        peak = 0.0
        if memory:
            tracemalloc.start()
        self.home.hear(_CLIENT, frames)
        self.home.hear(_CLIENT, events)
        if memory:
            peak = float(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        self._settle()
        took = {name: 1e3 * broker.spent for name, broker in self.brokers.items()}
        refused = [each.reason for each in self.home.answers if isinstance(each, Failed)]
        assert refused or any(isinstance(each, Accepted) for each in self.home.answers), self.home.answers
        if not refused:
            self.home.hear(_CLIENT, encode([Unsubscribe(number)]))  # type: ignore[arg-type]
            self._settle()
        return Admission(took["home"], max(took[name] for name in NEIGHBOURS), peak, "".join(refused))

    def keep(self, texts: Sequence[str]) -> None:
        """Subscribe to filters that stay."""
        for text in texts:
            self.home.hear(_CLIENT, encode([Subscribe(next(self._numbers), text)]))  # type: ignore[arg-type]
            self._settle()

    def _settle(self) -> None:
        busy = True
        while busy:
            busy = bool(self._wires)
            for _ in range(len(self._wires)):
                name, wire, data = self._wires.popleft()
                self.brokers[name].hear(wire, data)
            for broker in self.brokers.values():
                if broker.due:
                    busy, broker.due = True, False
                    broker.call(broker.core.tick)


RULES = ("x < 500 AND y < 500", "s LIKE 'w%'", "x >= 500 OR y >= 500", "TRUE")
