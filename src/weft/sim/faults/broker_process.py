"""A simulated broker process: it drives the core as a node on a network does, and can crash at any instant.

Groups are committed as on a real machine: written, then synced, then the core is told, with time between the three.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from weft.broker.codec import MessageReader, client_messages, encode
from weft.broker.core import Core
from weft.broker.effects import Close, ConnectionId, Effect, Now, Persist, Send, SetTimer
from weft.broker.link_messages import IncomingMessage
from weft.broker.messages import Ack, Nack
from weft.errors import LogFailedError, LogFullError, RemoteProtocolError
from weft.log.base import State
from weft.log.memory import MemoryLog
from weft.sim.engine import Engine, Scheduled
from weft.sim.faults.trace import Trace
from weft.sim.faults.wire import Lane

if TYPE_CHECKING:
    from weft.sim.faults.oracle import Oracle

MakeCore = Callable[[MemoryLog, State], Core]

UTC = 1_700_000_000_000_000  # when a simulation begins
_FULL = 20_000  # bytes that wait on a lane before the core hears of it
_LAZY = 40_000  # microseconds that a group which is not urgent waits at most


class BrokerProcess:
    """One broker, its log, and its side of every connection."""

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self, name: str, engine: Engine, rng: Random, trace: Trace, oracle: Oracle, log: MemoryLog, make_core: MakeCore
    ) -> None:
        self.name = name
        self.log = log
        self.skew = 0  # of the UTC clock
        self.latest = 0  # that this clock has ever shown
        self.core: Core | None = None
        self._engine, self._rng, self._trace, self._oracle, self._make = engine, rng, trace, oracle, make_core
        self._lanes: dict[ConnectionId, Lane] = {}  # to the client
        self._closing: dict[ConnectionId, Callable[[], None]] = {}
        self._readers: dict[ConnectionId, MessageReader[IncomingMessage]] = {}
        self._full: set[ConnectionId] = set()
        self._waiting: list[Persist] = []
        self._commit: Scheduled | None = None
        self._timer: Scheduled | None = None
        self._committing = False

    # -- life ------------------------------------------------------------------------------------------

    @property
    def now(self) -> Now:
        """The time as this process sees it."""
        utc = UTC + self._engine.now + self.skew
        self.latest = max(self.latest, utc)
        self._oracle.utc = utc
        return Now(self._engine.now, utc)

    def start(self) -> None:
        """Recover from the log."""
        state = self.log.restore()
        self._oracle.restored(self.log, state)
        self.core = self._make(self.log, state)
        self._say(f"starts, incarnation {state.incarnation}, next offset {state.next}")

    def crash(self, *, why: str) -> None:
        """End at once; what was not synced may be lost, and every connection is."""
        if self.core is None:
            return
        self._say(f"CRASH: {why}")
        self.count_core()
        self.core = None
        for timer in (self._commit, self._timer):
            if timer is not None:
                timer.cancel()
        self._commit, self._timer, self._committing = None, None, False
        self._waiting.clear()
        self.log = self.log.crash(_Draws(self._rng))  # type: ignore[arg-type] # draws as a generator does
        for connection in sorted(self._lanes):
            self._drop(connection)
        self._oracle.crashed()

    def count_core(self) -> None:
        """Add what the core has counted to the trace; it begins anew with each start."""
        if self.core is not None:
            for what, times in self.core.counts.items():
                self._trace.count(f"core: {what}", times)

    def trim(self) -> None:
        """Retention: remove what nobody needs any more, then store how far the queues are for the next time."""
        if self.core is None or self._committing:
            return
        self.perform(self.core.store_floors(self.now))
        if self.log.trim(self.core.needed):
            self._trace.count("op: trimmed")
            self.perform(self.core.trimmed(self.log.restore().first, self.now))

    # -- connections -----------------------------------------------------------------------------------

    def accept(self, connection: ConnectionId, lane: Lane, closing: Callable[[], None]) -> None:
        """A connection came; `lane` leads to the client, `closing` is called when this side closes it."""
        assert self.core is not None
        self._lanes[connection], self._closing[connection] = lane, closing
        self._readers[connection] = client_messages()
        self.perform(self.core.connected(connection, self.now))

    def receive(self, connection: ConnectionId, data: bytes) -> None:
        """Bytes came from a client."""
        if self.core is None or connection not in self._readers:
            return
        try:
            messages = self._readers[connection].feed(data)
        except RemoteProtocolError as error:  # a simulated client sends nothing that cannot be read
            raise AssertionError(f"{connection} sent garbage: {error}") from None
        if messages:
            for message in messages:
                self._trace.count(f"received: {type(message).__name__}")
                if type(message) is Ack:
                    self._oracle.ack_received(connection, message)
                elif type(message) is Nack:
                    self._oracle.nack_received(connection, message)
            self.perform(self.core.receive(connection, messages, self.now))

    def noticed_cut(self, connection: ConnectionId) -> None:
        """This side notices that a connection is gone."""
        if self.core is not None and connection in self._lanes:
            self._drop(connection)
            self.perform(self.core.closed(connection, self.now))

    def drained(self, connection: ConnectionId) -> None:
        """The client has read; there may be room again."""
        if self.core is not None and connection in self._full and self._lanes[connection].backlog < _FULL // 2:
            self._full.discard(connection)
            self.perform(self.core.resumed(connection, self.now))

    def _drop(self, connection: ConnectionId) -> None:
        self._lanes.pop(connection, None)
        self._readers.pop(connection, None)
        self._full.discard(connection)
        closing = self._closing.pop(connection, None)
        if closing is not None:
            closing()

    # -- effects ---------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Carry effects out, in order."""
        for effect in effects:
            match effect:
                case Send(connection, messages):
                    self._send(connection, messages)
                case Persist():
                    self._waiting.append(effect)
                    self._plan_commit()
                case SetTimer(at):
                    self._set_timer(at)
                case Close(connection):
                    self._say(f"closes {connection}")
                    self._drop(connection)

    def _send(self, connection: ConnectionId, messages: list) -> None:  # type: ignore[type-arg]
        for message in messages:
            self._trace.count(f"sent: {type(message).__name__}")
            self._oracle.sent(connection, message)
        lane = self._lanes.get(connection)
        if lane is None or self.core is None:
            return
        lane.send(encode(messages))
        if lane.backlog > _FULL and connection not in self._full:
            self._full.add(connection)
            self._trace.count("fault: slow reader noticed")
            self.core.paused(connection)

    def _set_timer(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.at(max(at, self._engine.now + 1), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.core is not None:
            self.perform(self.core.tick(self.now))

    # -- the log ---------------------------------------------------------------------------------------

    def _plan_commit(self) -> None:
        """Commit soon if somebody waits for it, else later; a commit that is under way comes first."""
        if self._committing or not self._waiting:
            return
        urgent = any(waiting.urgent for waiting in self._waiting)
        due = self._engine.now + (1 + self._rng.randrange(800) if urgent else _LAZY)
        if self._commit is None or due < self._commit.time:
            if self._commit is not None:
                self._commit.cancel()
            self._commit = self._engine.at(due, self._write)

    def _write(self) -> None:
        taken, self._waiting = self._waiting, []
        self._commit = None
        try:
            self.log.write([persist.group for persist in taken])
        except LogFullError as error:
            self._trace.count("fault: commit refused")
            self._say(f"log full: {error}")
            assert self.core is not None
            self.perform(self.core.rejected(taken[0].ticket, str(error), self.now))
            return
        self._committing = True
        self._commit = self._engine.after(1 + self._rng.randrange(1500), lambda: self._sync(taken))

    def _sync(self, taken: list[Persist]) -> None:
        try:
            self.log.sync()
        except LogFailedError:
            self._trace.count("fault: sync failed")
            self.crash(why="a sync failed")
            self._engine.after(3000, self.restart)
            return
        self._oracle.committed([persist.group for persist in taken])
        self._commit = self._engine.after(1 + self._rng.randrange(200), lambda: self._told(taken))

    def _told(self, taken: list[Persist]) -> None:
        self._commit, self._committing = None, False
        for persist in taken:
            if self.core is not None:
                self.perform(self.core.committed(persist.ticket, self.now))
        self._plan_commit()

    def restart(self) -> None:
        """Start, unless it runs."""
        if self.core is None:
            self.start()

    def _say(self, what: str) -> None:
        self._trace.say(self._engine.now, self.name, what)


class _Draws:
    """The one draw that `MemoryLog.crash` makes of a generator."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def integers(self, high: int) -> int:
        return self._rng.randrange(high)
