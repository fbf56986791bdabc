"""A broker on a network: it drives a core, and nothing else does. Laws: whatever the core raises that is not expected
ends the node, because nobody knows what the core then holds; effects are carried out in order (`LoopTurn`).

A node reads from publishers only while little waits for the log, and delivers to a connection only while little waits
to be written on it. `stop` confirms and stores whatever has arrived, says goodbye to every client, and closes the log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Self

from weft.broker.codec import encode
from weft.broker.core import Core
from weft.broker.effects import ConnectionId, Effect
from weft.broker.greeting import BUSY
from weft.broker.messages import Bye
from weft.broker.rules import Rules
from weft.errors import BrokerError, LogError, OptionError, RemoteProtocolError, WeftError
from weft.log.base import Log, Offset
from weft.log.memory import MemoryLog
from weft.net.addresses import Address
from weft.net.clock import clock
from weft.net.committer import Committer, Outcome
from weft.net.facts import facts_of
from weft.net.gate import Gate
from weft.net.hearing import Hearing
from weft.net.listener import Listener, listen
from weft.net.log_backlog import LogBacklog
from weft.net.log_lines import LogLines
from weft.net.loop_turn import LoopTurn
from weft.net.server_connection import Door, ServerConnection
from weft.routing.table import Role

_COUNTS = (
    "connections",
    "refused connections",
    "garbled connections",
    "events received",
    "events delivered",
    "turns",
)
_STOPPING = "the broker is stopping; connect again, here or elsewhere"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Who a node is, and how it treats its machine."""

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
        self.gate: Gate | None = None  # None: everybody is welcome, and nobody has a name
        self.name = self.options.name
        self.when_full: Callable[[], None] = _nothing  # called when the log has refused something
        self.listeners: list[Listener] = []
        self.connections: dict[ConnectionId, ServerConnection] = {}
        self.counts = dict.fromkeys(_COUNTS, 0)
        self._received = self._sent = 0  # bytes of connections that are gone
        self._leaving: set[ServerConnection] = set()  # closed by us, and not yet gone
        self.backlog = LogBacklog(self.options.backlog)
        self.stopping = False
        self._numbers = 0
        self._changed = asyncio.Event()  # a commit has ended, or a connection is gone

    # -- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()  # how it ended; an error if it failed
        self.started = clock()
        self.core.driver = lambda: facts_of(self)
        self.committer = Committer(self.log, self, threaded=not isinstance(self.log, MemoryLog))
        self._turn = LoopTurn(self, self._tick)
        self.hearing = Hearing(self)
        self._tick()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(
        self, address: Address, tls: ssl.SSLContext | None = None, *, shared: bool = False, trusted: bool = False
    ) -> Address:
        """Accept connections at an address. Returns it with the port that was taken. Raises OptionError.

        Other processes may listen at a `shared` address, too. Nobody is asked for credentials at a `trusted` one.
        """
        door = Door(address, trusted)
        listener = await listen(lambda: self.new_connection("", door), address, tls, shared=shared)
        self.listeners.append(listener)
        return listener.address

    @property
    def addresses(self) -> list[Address]:
        """Where it listens."""
        return [listener.address for listener in self.listeners]

    async def stop(self) -> None:
        """Stop accepting, store and confirm what has arrived, say goodbye, and close the log."""
        if self.stopping or self.ended.done():
            await self._wait_for_end()
            return
        self.stopping = True
        for listener in self.listeners:
            await listener.close()
        for connection in self.connections.values():
            connection.hold("stop")
        self.hearing.take()
        while self.hearing.is_behind and not self.ended.done():
            self._tick()
        await self._stored()
        for connection in list(self.connections.values()):
            self.dismiss(connection, Bye("stopping", _STOPPING))
        self.do(self.core.store_floors)
        await self._stored()
        await self._gone()
        self._finish(None)

    def hurry(self) -> None:
        """Stop without waiting for clients that do not read."""
        for connection in list(self._leaving):
            connection.cut()

    async def _wait_for_end(self) -> None:
        try:
            await asyncio.shield(self.ended)
        except WeftError:
            return  # whoever waits for `ended` is told

    async def _stored(self) -> None:
        """Wait until everything is stored."""
        while not self.ended.done():
            self._turn.end()
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
            for connection in list(self._leaving):
                connection.cut()

    def _finish(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        self._turn.stop_timer()
        self.hearing.close()
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
            self.ended.exception()  # no complaint if nobody asks
        self._changed.set()

    def failed(self, error: Exception) -> None:
        """End at once: nothing is confirmed any more. The next start finds out what is stored."""
        self.lines.error("failed", error=f"{type(error).__name__}: {error}", at=_place(error))
        for listener in self.listeners:
            listener.stop()
        if not isinstance(error, WeftError):
            cause, error = error, BrokerError(f"the broker has failed ({error!r}); it recovers when it starts again")
            error.__cause__ = cause
        self._finish(error)

    # -- connections -----------------------------------------------------------------------------------

    def new_connection(self, neighbour: str = "", door: Door | None = None) -> ServerConnection:
        """A connection that is about to be opened, to a neighbour if it is dialled."""
        self._numbers += 1
        return ServerConnection(self, ConnectionId(f"c{self._numbers}"), neighbour, door)

    def opened(self, connection: ServerConnection) -> None:
        """A connection is there."""
        self.counts["connections"] += 1
        if self.ended.done():
            connection.cut()
            return
        if self.stopping or len(self.connections) >= self.options.connections:
            self.counts["refused connections"] += 1
            self._leaving.add(connection)
            reason = _STOPPING if self.stopping else "the broker has too many connections; try again later"
            connection.send(encode([Bye("busy", reason)]))
            connection.close()
            return
        gate = None if connection.door is None or connection.door.trusted else self.gate
        if gate is not None and not gate.may_try(connection.peer):
            self._leaving.add(connection)
            connection.send(encode([BUSY]))
            connection.close()
            return
        self.connections[connection.id] = connection
        if connection.neighbour:
            answered = None if self.gate is None else self.gate.authenticate_answer(connection.peer)
            self.do(lambda now: self.core.dialled(connection.id, connection.neighbour, now, answered))
            return
        authenticate = None if gate is None else gate.authenticate(connection.peer)
        self.do(lambda now: self.core.connected(connection.id, now, authenticate))

    def link(self, peer: str, role: Role) -> None:
        """Make a neighbour, if it is not one already. Raises OptionError if it has another role."""
        known = {each.peer: each.role for each in self.core.links()}
        if peer not in known:
            self.do(self.core.attach, peer, role)
        elif known[peer] != role.value:
            raise OptionError(
                f"links.{peer}.role is {role.value}, but was {known[peer]}: remove the link, start, and add it again"
            )

    def unlink_others(self, peers: Collection[str]) -> None:
        """End every neighbour that is not one of these: what waits for it is given up."""
        for each in self.core.links():
            if each.peer not in peers:
                self.lines.warning("detached", peer=each.peer, behind=each.lag)
                self.do(self.core.detach, each.peer)

    @property
    def bytes_received(self) -> int:
        """So far, from clients."""
        return self._received + sum(connection.received for connection in self.connections.values())

    @property
    def bytes_sent(self) -> int:
        """So far, to clients."""
        return self._sent + sum(connection.sent for connection in self.connections.values())

    def garbled(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """What a peer sent cannot be read."""
        self.hearing.take()
        self.counts["garbled connections"] += 1
        self.lines.warning("garbled", connection=connection.id, peer=connection.peer.address, reason=error)
        if self.gate is not None and self.core.is_stranger(connection.id):
            self.gate.failed(connection.peer, str(error))
        self.do(lambda now: self.core.dismiss(connection.id, "protocol", str(error), now))

    def lost(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self.hearing.take()
        self._received += connection.received
        self._sent += connection.sent
        self._leaving.discard(connection)
        self.backlog.forget(connection)
        self._turn.forget(connection)
        self.hearing.forget(connection)
        self._changed.set()
        if self.connections.pop(connection.id, None) is not None:
            self.do(self.core.closed, connection.id)

    def paused(self, connection: ServerConnection) -> None:
        """Much waits to be written on a connection."""
        if not connection.ended:
            self.core.paused(connection.id)

    def resumed(self, connection: ServerConnection) -> None:
        """Little waits to be written on a connection."""
        if not connection.ended:
            self.do(self.core.resumed, connection.id)

    def dismiss(self, connection: ServerConnection, message: Bye) -> None:
        """End a connection, and say why."""
        self.hearing.take()
        connection.send(encode([message]))
        self.close_connection(connection)
        self.do(self.core.closed, connection.id)

    def close_connection(self, connection: ServerConnection) -> None:
        """End a connection when what was sent is written."""
        if self.connections.pop(connection.id, None) is not None:
            self._leaving.add(connection)
            self.backlog.forget(connection)
            connection.close()

    # -- effects ---------------------------------------------------------------------------------------

    def do(self, call: Callable[..., list[Effect]], *args: Any, sources: Sequence[ServerConnection] = ()) -> None:
        """Call the core, and carry out what it wants; `sources` publish."""
        if self.ended.done():
            return
        try:
            self._turn.perform(call(*args, clock()), sources)
        except Exception as error:
            self.failed(error)

    def _tick(self) -> None:
        self._turn.timer_over()
        self.do(self.core.tick)
        self.hearing.go_on()

    # -- the log ---------------------------------------------------------------------------------------

    def stored(self, outcome: Outcome) -> None:
        """A commit has ended."""
        for persist in outcome.persists[: outcome.stored]:
            self.do(self.core.committed, persist.ticket)
        if outcome.full:
            self.lines.error("log full", reason=outcome.full)
            ticket = outcome.persists[outcome.stored].ticket
            self.committer.forget()  # also what the core has just asked for: it takes that back
            self.do(lambda now: self.core.rejected(ticket, outcome.full, now))
            self.when_full()
        self.backlog.watch(self.committer.bytes)
        self._changed.set()

    def worked(self) -> None:
        """The log has been trimmed, or read: whoever waits for it to be idle looks again."""
        self._changed.set()

    async def store_floors(self) -> None:
        """Store how far every queue is, and wait for it."""
        self.do(self.core.store_floors)
        await self.settled()

    async def settled(self) -> None:
        """Wait until everything that was to be stored when this was called is stored, or was refused."""
        self._turn.end()
        self.committer.hurry()
        target = self.committer.added
        while self.committer.settled < target and not self.ended.done():
            self._changed.clear()
            await self._changed.wait()

    def distrust(self, keys: Collection[str]) -> None:
        """Whoever was let in by one of these keys must log in again."""
        self.do(lambda now: self.core.distrust(keys, now))

    def set_rules(self, rules: Rules) -> None:
        """These access rules hold from now on."""
        self.do(lambda now: self.core.set_rules(rules, now))

    def trimmed(self, first: Offset) -> None:
        """The log's oldest event now has this offset."""
        self.do(lambda now: self.core.trimmed(first, now))


def _nothing() -> None:
    pass


def _place(error: BaseException) -> str:
    """Where an error was raised."""
    frames = extract_tb(error.__traceback__)
    return "; ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-4:])
