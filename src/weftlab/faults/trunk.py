"""The wire between two neighbouring brokers. While both run and nothing separates them, one of them dials until they
are connected.

It is the same wire as a client's: bytes come late and in pieces, a cut may come within a frame, and each end notices it
at a time of its own, or never. There may be several connections at once, dialled by either side.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import NamedTuple

from weft.broker.effects import ConnectionId
from weft.protocol.codec import encode
from weft.routing.table import Role
from weftlab.engine import Engine
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.trace import Actor, RunTrace
from weftlab.faults.wire import Pipe

_RETRY = 20_000  # microseconds between attempts to connect, at most
_AT_ONCE = 200  # the same for one that is in a hurry
_NOTICED = 5_000  # microseconds until an end notices a cut, at most
_STALE = 5_000  # that a connection with an old hello lasts, at most


class TrunkConnection(NamedTuple):
    """One connection: who dialled, and both directions."""

    id: ConnectionId
    dialler: BrokerProcess
    acceptor: BrokerProcess
    there: Pipe  # from the dialler
    back: Pipe


class Trunk(Actor):
    """The wire between two brokers; `far` dials."""

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self, near: BrokerProcess, far: BrokerProcess, role: Role, engine: Engine, rng: Random, trace: RunTrace
    ) -> None:
        super().__init__(f"{near.name}-{far.name}", engine, rng, trace)
        self.near, self.far, self._role = near, far, role  # what `near` is to `far`
        self.attached = False  # whether the brokers are neighbours
        self.fragile = False  # it is cut as soon as events have come over it
        self.separated = 0  # how many partitions run through it
        self.connections: dict[ConnectionId, TrunkConnection] = {}
        self._silent: set[ConnectionId] = set()  # cut, and an end will never notice
        self._opened = 0
        self.attach()

    @property
    def is_resyncing(self) -> bool:
        """Whether one of the ends has not yet received all interest of the other."""
        return any(end.is_resyncing(connection) for connection in self.connections for end in (self.near, self.far))

    # -- connections -----------------------------------------------------------------------------------

    def _dial(self) -> None:
        is_up = any(each.dialler is self.far for each in self.connections.values())
        if not self.attached or is_up:
            return
        if self._can_dial:
            self._connect(self.far, self.near)
        else:
            self.soon(_RETRY, self._dial)

    def _connect(self, dialler: BrokerProcess, acceptor: BrokerProcess) -> None:
        connection = self._new_connection(dialler, acceptor)

        def closed_here() -> None:  # by the dialler
            self.connections.pop(connection, None)
            back.cut()
            if connection not in self._silent:
                there.close(lambda: acceptor.noticed_cut(connection))
            self.soon(self.rng.choice((_AT_ONCE, _RETRY)), self._dial)

        def closed_there() -> None:
            there.cut()
            if connection not in self._silent:
                back.close(lambda: dialler.noticed_cut(connection))

        there = Pipe(self, partial(self._pass, dialler, acceptor, connection))
        back = Pipe(self, partial(self._pass, acceptor, dialler, connection))
        self.connections[connection] = TrunkConnection(connection, dialler, acceptor, there, back)
        acceptor.accept(connection, back, closed_there)
        dialler.accept(connection, there, closed_here, acceptor.name)

    def _new_connection(self, dialler: BrokerProcess, acceptor: BrokerProcess) -> ConnectionId:
        self._opened += 1
        return ConnectionId(f"{dialler.name}>{acceptor.name}-{self._opened}")

    def _pass(self, sender: BrokerProcess, receiver: BrokerProcess, connection: ConnectionId, data: bytes) -> None:
        """Bytes arrive. If the wire is to be cut in use, it is cut while what came is being stored."""
        before = self.trace.counts["link: events"]
        receiver.receive(connection, data)
        if self.fragile and self.trace.counts["link: events"] > before:
            self.fragile = False
            self.trace.count("fault: link cut in use")
            self.soon(_AT_ONCE, self.cut)
        sender.drained(connection)

    # -- faults ----------------------------------------------------------------------------------------

    def cut(self, half_open: bool = False) -> None:
        """Every connection breaks. Each end notices soon; with `half_open`, one of them, or none, ever does."""
        for each in list(self.connections.values()):
            was_open = each.there.open
            each.there.cut()
            each.back.cut()
            if not was_open:
                continue
            ends = [each.dialler, each.acceptor]
            if half_open:
                self._silent.add(each.id)
                ends = self.rng.choice(([each.dialler], [each.acceptor], []))
            within = self.rng.choice((_AT_ONCE, _NOTICED))
            for end in ends:
                self.soon(within, partial(end.noticed_cut, each.id))

    def dial_twice(self) -> bool:
        """Another connection is opened while the first lasts, by either side."""
        if not self._can_dial or not self.connections:
            return False
        ends = [self.near, self.far]
        self.rng.shuffle(ends)
        self._connect(*ends)
        return True

    def say_stale_hello(self, draw: int) -> bool:
        """A hello of an earlier time arrives late, on a connection of its own that soon ends."""
        sender, receiver = (self.near, self.far) if draw & 1 else (self.far, self.near)
        hellos = [hello for hello in sender.hellos if hello.to == receiver.name]
        if not self._can_dial or not hellos:
            return False
        hello = hellos[(draw >> 1) % len(hellos)]
        connection = ConnectionId(f"{self._new_connection(sender, receiver)}-stale")
        there = Pipe(self, partial(receiver.receive, connection))
        receiver.accept(connection, Pipe(self, lambda _: None), there.cut)
        there.send(encode([hello]))
        self.soon(_STALE, partial(receiver.noticed_cut, connection))
        return True

    @property
    def _can_dial(self) -> bool:
        if not self.attached or self.separated:
            return False
        return bool(self.near.has_link(self.far.name)) and bool(self.far.has_link(self.near.name))

    @property
    def is_detached(self) -> bool:
        """Whether neither broker has the other as its neighbour any more."""
        return self.near.has_link(self.far.name) is False and self.far.has_link(self.near.name) is False

    def pause(self) -> None:
        """One end reads nothing for a while."""
        for each in self.connections.values():
            self.rng.choice((each.there, each.back)).pause()

    def resume(self) -> None:
        """Both ends read again."""
        for each in list(self.connections.values()):
            each.there.resume()
            each.back.resume()
            each.dialler.drained(each.id)
            each.acceptor.drained(each.id)

    def attach(self) -> None:
        """The brokers are neighbours from now on; one that is down learns it when it starts."""
        self.attached = True
        for here, there, role in ((self.near, self.far, self._role.converse), (self.far, self.near, self._role)):
            here.neighbours[there.name] = role
            here.resynced.discard(there.name)
            here.match_neighbours()
        self.soon(3000, self._dial)

    def detach(self) -> None:
        """The brokers are no longer neighbours."""
        self.attached = False
        for here, there in ((self.near, self.far), (self.far, self.near)):
            del here.neighbours[there.name]
            here.match_neighbours()
