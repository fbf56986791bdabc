"""The wire between two neighbouring brokers. Law: while both run and nothing separates them, one of them dials until
they are connected.

It is the same wire as a client's: bytes come late and in pieces, a cut may come within a frame, and each end notices it
at a time of its own, or never. There may be several connections at once, dialled by either side.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from weft.broker.codec import encode
from weft.broker.effects import ConnectionId
from weft.sim.engine import Engine
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.trace import RunTrace
from weft.sim.faults.wire import Lane

_RETRY = 20_000  # microseconds between attempts to connect, at most
_AT_ONCE = 200  # the same for one that is in a hurry
_DELAY = 1500  # of a piece on the wire, at most
_NOTICED = 5_000  # microseconds until an end notices a cut, at most
_STALE = 5_000  # that a connection with an old hello lasts, at most


class TrunkConnection(NamedTuple):
    """One connection: who dialled, and both directions."""

    id: ConnectionId
    dialler: BrokerProcess
    acceptor: BrokerProcess
    there: Lane  # from the dialler
    back: Lane


class Trunk:
    """The wire between two brokers; `far` dials."""

    def __init__(self, near: BrokerProcess, far: BrokerProcess, engine: Engine, rng: Random, trace: RunTrace) -> None:
        self.near, self.far = near, far
        self.attached = True  # whether the brokers are neighbours
        self.fragile = False  # it is cut as soon as events have come over it
        self.separated = 0  # how many partitions run through it
        self._engine, self._rng, self._trace = engine, rng, trace
        self._open: dict[ConnectionId, TrunkConnection] = {}
        self._silent: set[ConnectionId] = set()  # cut, and an end will never notice
        self._opened = 0
        self._dial_later(3000)

    @property
    def name(self) -> str:
        """Its two ends."""
        return f"{self.near.name}-{self.far.name}"

    @property
    def is_up(self) -> bool:
        """Whether there is a connection as far as the end that dials knows."""
        return any(each.dialler is self.far for each in self._open.values())

    @property
    def is_resyncing(self) -> bool:
        """Whether one of the ends has not yet heard all that the other tells."""
        return any(connection in end.resyncing for connection in self._open for end in (self.near, self.far))

    # -- connections -----------------------------------------------------------------------------------

    def _dial_later(self, within: int = _RETRY) -> None:
        self._engine.after(1 + self._rng.randrange(within), self._dial)

    def _dial(self) -> None:
        if self.is_up or not self.attached:
            return
        if not self._can_dial:
            self._dial_later()
            return
        self._connect(self.far, self.near)

    def _connect(self, dialler: BrokerProcess, acceptor: BrokerProcess) -> None:
        connection, there, back = self._lanes(dialler, acceptor)
        self._open[connection] = TrunkConnection(connection, dialler, acceptor, there, back)

        def closed_here() -> None:  # by the dialler
            self._open.pop(connection, None)
            back.cut()
            if connection not in self._silent:
                there.close(lambda: acceptor.noticed_cut(connection))
            self._dial_later(self._rng.choice((_AT_ONCE, _RETRY)))

        def closed_there() -> None:
            there.cut()
            if connection not in self._silent:
                back.close(lambda: dialler.noticed_cut(connection))

        acceptor.accept(connection, back, closed_there)
        dialler.dial(connection, acceptor.name, there, closed_here)

    def _lanes(self, dialler: BrokerProcess, acceptor: BrokerProcess) -> tuple[ConnectionId, Lane, Lane]:
        self._opened += 1
        connection = ConnectionId(f"{dialler.name}>{acceptor.name}-{self._opened}")

        def arrives(data: bytes) -> None:
            self._pass(acceptor, connection, data)
            dialler.drained(connection)

        def returns(data: bytes) -> None:
            self._pass(dialler, connection, data)
            acceptor.drained(connection)

        there = Lane(self._engine, self._rng, arrives, _DELAY)
        return connection, there, Lane(self._engine, self._rng, returns, _DELAY)

    def _pass(self, receiver: BrokerProcess, connection: ConnectionId, data: bytes) -> None:
        """Bytes arrive. If the wire is to be cut in use, it is cut while what came is being stored."""
        before = self._trace.counts["link: events"]
        receiver.receive(connection, data)
        if self.fragile and self._trace.counts["link: events"] > before:
            self.fragile = False
            self._trace.count("fault: link cut in use")
            self._engine.after(1 + self._rng.randrange(_AT_ONCE), lambda: self._break(half_open=False))

    # -- faults ----------------------------------------------------------------------------------------

    def cut(self, *, half_open: bool = False) -> bool:
        """Every connection breaks. Each end notices soon; with `half_open`, one of them, or none, ever does."""
        there = bool(self._open)
        self._break(half_open=half_open)
        return there

    def _break(self, *, half_open: bool) -> None:
        for each in list(self._open.values()):
            there = each.there.open
            each.there.cut()
            each.back.cut()
            if not there:
                continue
            ends = [each.dialler, each.acceptor]
            if half_open:
                self._silent.add(each.id)
                ends = self._rng.choice(([each.dialler], [each.acceptor], []))
            within = self._rng.choice((_AT_ONCE, _NOTICED))
            for end in ends:
                self._engine.after(1 + self._rng.randrange(within), lambda e=end, c=each.id: e.noticed_cut(c))  # type: ignore[misc]

    def dial_twice(self) -> bool:
        """Another connection is opened while the first lasts, by either side."""
        if not self._can_dial or not self._open:
            return False
        ends = [self.near, self.far]
        self._rng.shuffle(ends)
        self._connect(*ends)
        return True

    def say_stale_hello(self, draw: int) -> bool:
        """A hello of an earlier time arrives late, on a connection of its own that soon ends."""
        sender, receiver = (self.near, self.far) if draw & 1 else (self.far, self.near)
        hellos = [hello for hello in sender.hellos if hello.to == receiver.name]
        if not self._can_dial or not hellos:
            return False
        hello = hellos[(draw >> 1) % len(hellos)]
        self._opened += 1
        connection = ConnectionId(f"{sender.name}>{receiver.name}-{self._opened}-stale")
        back = Lane(self._engine, self._rng, lambda _: None, _DELAY)
        there = Lane(self._engine, self._rng, lambda data: receiver.receive(connection, data), _DELAY)
        receiver.accept(connection, back, there.cut)
        there.send(encode([hello]))
        self._engine.after(1 + self._rng.randrange(_STALE), lambda: receiver.noticed_cut(connection))
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

    def pause(self) -> bool:
        """One end reads nothing for a while."""
        for each in self._open.values():
            self._rng.choice((each.there, each.back)).pause()
        return bool(self._open)

    def resume(self) -> None:
        """Both ends read again."""
        for each in list(self._open.values()):
            each.there.resume()
            each.back.resume()
            each.dialler.drained(each.id)
            each.acceptor.drained(each.id)

    def attach(self) -> None:
        """The brokers are neighbours again."""
        if not self.attached:
            self.attached = True
            self._dial_later(3000)
