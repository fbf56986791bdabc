"""A broker on a network: a driver of a core, over sockets, the loop's timers and a committer.

What is sent and stored in one turn of the loop goes out together, once per connection and once to the log. An error
that the core raises ends the node, because nobody knows what the core then holds. `stop` stores and confirms whatever
has arrived, says goodbye to every client, and closes the log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Self

from weft.broker.broker import Core
from weft.broker.delivery_run import DeliveryRun, encode_all
from weft.broker.driver import CommitOutcome, Driver
from weft.broker.effects import ConnectionId, Outgoing, Persist, Relayed
from weft.broker.rules import Rules
from weft.broker.sessions import BUSY
from weft.errors import BrokerError, LocalProtocolError, LogError, OptionError, RemoteProtocolError, WeftError
from weft.log.base import Log
from weft.log.memory import MemoryLog
from weft.protocol.addresses import Address
from weft.protocol.codec import encode
from weft.protocol.messages import Bye, Deliver
from weft.routing.table import Role
from weft.server.clock import clock
from weft.server.committer import Committer
from weft.server.connection import ListenAddress, Listener, ServerConnection, listen
from weft.server.log_lines import LogLines
from weft.server.metrics import process_metrics
from weft.server.reads import Reads
from weft.server.security.authenticator import Authenticator

_COUNTS = ("connections", "refused connections", "garbled connections", "events received", "events delivered", "turns")
_STOPPING = "the broker is stopping; connect again, here or elsewhere"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The name of a node, and its limits."""

    name: str = ""  # among its neighbours
    backlog: int = 8 << 20  # bytes that may wait for the log before publishers are no longer read
    connections: int = 10_000  # at a time; any more are closed at once
    patience: float = 10.0  # seconds that clients have to read the last bytes when the node stops


class BrokerNode:
    """A running broker.

    `async with BrokerNode(core, log) as node: await node.listen(Address.parse("weft://127.0.0.1:0"))`
    """

    def __init__(self, core: Core, log: Log, options: NodeOptions | None = None, lines: LogLines | None = None) -> None:
        self.core = core
        self.log = log
        self.options = options or NodeOptions()
        self.lines = lines or LogLines(level="error")
        self.authenticator: Authenticator | None = None  # None: everybody is let in, without a name
        self.name = self.options.name
        self.when_full: Callable[[], None] | None = None  # called when the log is full
        self.more_health: Callable[[], dict[str, Any]] = dict  # what else is said of its health
        self.listeners: list[Listener] = []
        self.connections: dict[ConnectionId, ServerConnection] = {}
        self.counts = dict.fromkeys(_COUNTS, 0)
        self._received = self._sent = 0  # bytes of connections that are gone
        self._leaving: set[ServerConnection] = set()  # closed by us, and not yet gone
        self.stopping = False
        self._numbers = 0
        self._dirty: dict[ServerConnection, None] = {}  # that were sent something in this turn of the loop
        self._turning = False  # the turn's end is scheduled
        self._timer: asyncio.Handle | None = None
        self._changed = asyncio.Event()  # a commit has ended, or a connection is gone

    # -- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()  # an error if it failed
        self.started = clock()
        self.core.driver = lambda: process_metrics(self)
        self.core.clock_jumped = self._clock_jumped
        self.driver = Driver(
            self.core,
            clock,
            send=self._send,
            commit=self._commit,
            timer=self._set_timer,
            close=self._close,
            reading=self._set_reading,
            relayed=self._relayed,
            unsendable=self._unsendable,
            failed=self.failed,
        )
        self.committer = Committer(self.log, self.driver, self, threaded=not isinstance(self.log, MemoryLog))
        self.reads = Reads(self.driver, self.options.backlog)
        self.driver.tick()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(
        self, address: Address, tls: ssl.SSLContext | None = None, *, shared: bool = False, trusted: bool = False
    ) -> Address:
        """Accept connections at an address. Returns it with the port that was taken. Raises OptionError.

        Other processes may listen at a `shared` address too. Peers at a `trusted` one are not authenticated.
        """
        accepted = ListenAddress(address, trusted)
        listener = await listen(lambda: self.new_connection("", accepted), address, tls, shared=shared)
        self.listeners.append(listener)
        return listener.address

    @property
    def addresses(self) -> list[Address]:
        """The addresses where it listens."""
        return [listener.address for listener in self.listeners]

    async def stop(self) -> None:
        """Stop accepting, store and confirm what has arrived, say goodbye, and close the log."""
        if self.stopping or self.ended.done():
            with suppress(WeftError):  # `ended` has it
                await asyncio.shield(self.ended)
            return
        self.stopping = True
        for listener in self.listeners:
            await listener.close()
        for connection in self.connections.values():
            connection.hold("stop")
        self.driver.handle_all()
        while self.driver.behind and not self.ended.done():
            self.driver.tick()
        await self._stored()
        for each in list(self.connections):
            self.driver.dismiss(each, Bye("stopping", _STOPPING))
        self.driver.do(self.core.store_floors)
        await self._stored()
        await self._gone()
        self._finish(None)

    def hurry(self) -> None:
        """Stop without waiting for clients that do not read."""
        for connection in list(self._leaving):
            connection.cut()

    async def _stored(self) -> None:
        """Wait until everything is stored."""
        while not self.ended.done():
            self._end_turn()
            if self.committer.idle:
                return
            self.committer.hurry()
            self._changed.clear()
            await self._changed.wait()

    async def _gone(self) -> None:
        """Wait until every connection is gone; cut off those whose peers do not read."""
        try:
            async with asyncio.timeout(self.options.patience):
                while self._leaving and not self.ended.done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self.hurry()

    def _finish(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        self.driver.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.reads.close()
        for connection in [*self.connections.values(), *self._leaving]:
            connection.cut()
        self.connections.clear()
        self.committer.close()
        try:
            self.log.close()
        except LogError as failure:
            error = error or failure
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
            self.ended.exception()  # no warning if nobody asks
        self._changed.set()

    def failed(self, error: Exception) -> None:
        """End at once, after an error. Nothing more is confirmed; the next start recovers from the log."""
        self.lines.error("failed", error=f"{type(error).__name__}: {error}", at=_place(error))
        for listener in self.listeners:
            listener.stop()
        if not isinstance(error, WeftError):
            cause, error = error, BrokerError(f"the broker has failed ({error!r}); it recovers when it starts again")
            error.__cause__ = cause
        self._finish(error)

    # -- connections -----------------------------------------------------------------------------------

    def new_connection(self, neighbour: str = "", accepted: ListenAddress | None = None) -> ServerConnection:
        """A connection that is about to open: accepted, or dialled to a neighbour."""
        self._numbers += 1
        return ServerConnection(self, ConnectionId(f"c{self._numbers}"), neighbour, accepted)

    def opened(self, connection: ServerConnection) -> None:
        """A connection is open."""
        self.counts["connections"] += 1
        if self.ended.done():
            connection.cut()
            return
        accepted, refusal = connection.accepted, None
        authenticator = None if accepted is None or accepted.trusted else self.authenticator
        if self.stopping or len(self.connections) >= self.options.connections:
            self.counts["refused connections"] += 1
            reason = _STOPPING if self.stopping else "the broker has too many connections; try again later"
            refusal = Bye("busy", reason)
        elif authenticator is not None and not authenticator.may_try(connection.peer):
            refusal = BUSY
        elif connection.neighbour and not self.core.is_attached(connection.neighbour):
            refusal = Bye("detached", f"{connection.neighbour} is not a neighbour any longer")
        if refusal is not None:
            self._leaving.add(connection)
            connection.send(encode([refusal]))
            connection.close()
            return
        self.connections[connection.id] = connection
        if connection.neighbour:
            answered = None if self.authenticator is None else self.authenticator.authenticate_answer(connection.peer)
            self.driver.dialled(connection.id, connection.neighbour, authenticate=answered)
            return
        authenticate = None if authenticator is None else authenticator.authenticate(connection.peer)
        self.driver.connected(connection.id, authenticate=authenticate)

    def link(self, peer: str, role: Role) -> None:
        """Add a neighbour, unless there is one of this name. Raises OptionError if that has another role."""
        known = {each.peer: each.role for each in self.core.links()}
        if peer not in known:
            self.driver.do(self.core.attach, peer, role)
        elif known[peer] != str(role):
            raise OptionError(
                f"links.{peer}.role is {role}, but was {known[peer]}: remove the link, start, and add it again"
            )

    def unlink_others(self, peers: Collection[str]) -> None:
        """Remove every neighbour that is not one of these; what waits for it is given up."""
        for each in self.core.links():
            if each.peer not in peers:
                self.lines.warning("detached", peer=each.peer, behind=each.lag)
                self.driver.do(self.core.detach, each.peer)

    @property
    def bytes_received(self) -> int:
        """The bytes received so far, on all connections."""
        return self._received + sum(connection.received for connection in self.connections.values())

    @property
    def bytes_sent(self) -> int:
        """The bytes sent so far, on all connections."""
        return self._sent + sum(connection.sent for connection in self.connections.values())

    def garbled(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """A peer has sent something that cannot be decoded."""
        self.counts["garbled connections"] += 1
        self.lines.warning("garbled", connection=connection.id, peer=connection.peer.address, reason=error)
        self.driver.handle_all()
        if self.authenticator is not None and self.core.is_stranger(connection.id):
            self.authenticator.failed(connection.peer, str(error))
        self.driver.garbled(connection.id, str(error))

    def lost(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self.driver.lost(connection.id)
        self._received += connection.received
        self._sent += connection.sent
        self._leaving.discard(connection)
        self.connections.pop(connection.id, None)
        self.reads.forget(connection)
        self._dirty.pop(connection, None)
        self._changed.set()

    # -- effects ---------------------------------------------------------------------------------------

    def _send(self, id: ConnectionId, messages: list[Outgoing]) -> None:
        """Send at the end of the turn."""
        connection = self.connections.get(id)
        if connection is None:
            return
        connection.send(encode_all(messages))
        self._dirty[connection] = None
        for message in messages:
            kind = type(message)
            if kind is Deliver:
                self.counts["events delivered"] += 1
            elif kind is DeliveryRun:
                self.counts["events delivered"] += len(message)  # type: ignore[arg-type]
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._end_turn)

    def _commit(self, persist: Persist) -> None:
        """Begin at the end of the turn, if it is time."""
        self.committer.add(persist)
        if persist.group.events is not None and self.committer.bytes > self.options.backlog:
            self.reads.watch(self.committer.bytes)
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Write what was sent, and begin a commit if it is time."""
        self._turning = False
        if self.ended.done():
            return
        self.counts["turns"] += 1
        self.committer.go()
        dirty, self._dirty = self._dirty, {}
        for connection in dirty:
            connection.flush()

    def _close(self, id: ConnectionId) -> None:
        """End a connection when what was sent is written."""
        connection = self.connections.pop(id, None)
        if connection is not None:
            self._leaving.add(connection)
            self.reads.forget(connection)
            connection.close()

    def _set_timer(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait = (at - clock().monotonic) / 1e6
        tick = self.driver.tick
        self._timer = self._loop.call_soon(tick) if wait <= 0 else self._loop.call_later(wait, tick)

    def _set_reading(self, id: ConnectionId, on: bool) -> None:
        connection = self.connections[id]
        (connection.read_on if on else connection.hold)("requests")

    def _relayed(self, effect: Relayed) -> None:
        """Log what another broker has relayed; a node has no use for it."""
        self.lines.warning("relayed", source=effect.source, bytes=len(effect.body))

    def _unsendable(self, id: ConnectionId, error: LocalProtocolError) -> None:
        self.lines.error("not sent", connection=id, reason=error)

    # -- the log ---------------------------------------------------------------------------------------

    def _clock_jumped(self, micros: int) -> None:
        ahead = (self.core.time - clock().utc) / 1e6
        self.lines.warning("clock jumped", seconds=f"{micros / 1e6:+.1f}", log_ahead=f"{ahead:+.1f}")

    def stored(self, outcome: CommitOutcome) -> None:
        """A commit has ended, and the core knows it."""
        if outcome.full:
            self.lines.error("log full", reason=outcome.full)
            if self.when_full is not None:
                self.when_full()
        if self.reads.backlogged:
            self.reads.watch(self.committer.bytes)
        self._changed.set()

    def worked(self) -> None:
        """Other work on the log has ended, such as trimming."""
        self._changed.set()

    async def settled(self) -> None:
        """Wait until everything that was to be stored when this was called is stored, or was refused."""
        self._end_turn()
        self.committer.hurry()
        target = self.driver.added
        while self.driver.settled < target and not self.ended.done():
            self._changed.clear()
            await self._changed.wait()

    def set_rules(self, rules: Rules) -> None:
        """Apply other access rules."""
        self.driver.do(self.core.set_rules, rules)


def _place(error: BaseException) -> str:
    """The last frames of an error's traceback, in one line."""
    frames = extract_tb(error.__traceback__)
    return "; ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-4:])
