"""A simulated client's connection to its broker: opened again whenever it is lost. Law: what comes on an old connection
is not handled, and a broker may notice late, or never, that a connection is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.broker.codec import broker_messages, encode
from weft.broker.effects import ConnectionId
from weft.broker.messages import ClientMessage, Goodbye, Hello, Ping
from weft.sim.faults.client_state import ClientState, ClientWorld
from weft.sim.faults.message_text import shown
from weft.sim.faults.wire import Lane

_RETRY = 20_000  # microseconds between attempts to connect, at most
_BEAT = 400_000
_DELAY = 1500  # of a piece on the wire, at most


class ClientConnection:
    """The present connection of a client, if any. `handle` gets what the broker says; `begin` makes the Hello."""

    def __init__(
        self, world: ClientWorld, state: ClientState, handle: Callable[[object], None], begin: Callable[[], Hello]
    ) -> None:
        self.id: ConnectionId | None = None
        self.welcomed = False
        self.wanted = True  # whether it is to be opened again
        self._world, self._state, self._handle, self._begin = world, state, handle, begin
        self._lane: Lane | None = None  # to the broker
        self._back: Lane | None = None  # from the broker
        self._opened = 0
        self._gathered: list[ClientMessage] | None = None  # what is sent together
        self.left_at = 0  # when the last connection ended on which it was welcome
        world.engine.after(1 + world.rng.randrange(3000), self._connect)
        world.engine.after(_BEAT, self._beat)

    def _connect(self) -> None:
        if self.id is not None or not self.wanted:
            return
        if self._world.broker.core is None:
            self._world.soon(_RETRY, self._connect)
            return
        self._open()

    def _open(self) -> None:
        world, broker = self._world, self._world.broker
        self._opened += 1
        connection = ConnectionId(f"{world.name}-{self._opened}")
        reader = broker_messages()

        def receive(data: bytes) -> None:
            for message in reader.feed(data):
                if self.id == connection:
                    world.say(f"<- {shown(message)}")
                    self._handle(message)
            broker.drained(connection)

        self.id, self.welcomed = connection, False
        self._back = Lane(world.engine, world.rng, receive, _DELAY)
        self._lane = Lane(world.engine, world.rng, lambda data: broker.receive(connection, data), _DELAY)
        back, lane = self._back, self._lane

        def closing() -> None:
            lane.cut()
            back.close(lambda: self._gone(connection))

        state = self._state
        world.oracle.watch(connection, state.queues.get, state.subs.get, state.adverts.get, world.principal)
        broker.accept(connection, back, closing)
        self.tell(self._begin(), always=True)

    def take_over(self) -> None:
        """Connect again while the old connection lasts: the newer one takes the session over."""
        if self.id is not None and self._world.broker.core is not None:
            self._world.trace.count("fault: take-over")
            self._state.open.clear()
            self._open()

    def cut(self, *, half_open: bool) -> None:
        """The connection breaks; the broker notices soon, or not at all when it is half open."""
        connection, lane, back, world = self.id, self._lane, self._back, self._world
        if connection is None or lane is None or back is None:
            return
        world.trace.count("fault: half-open" if half_open else "fault: cut")
        world.say("is cut off" + (", unnoticed by the broker" if half_open else ""))
        lane.cut()
        back.cut()
        if not half_open:
            world.soon(5000, lambda: world.broker.noticed_cut(connection))
        self._gone(connection)

    def leave(self, *, forget: bool = False) -> bool:
        """Say goodbye, and come back later; whether it could be said. With `forget` the session is to go, too."""
        if self.id is None or not self.welcomed:
            return False
        self.tell(Goodbye(forget))
        self._world.trace.count("op: goodbye, forget" if forget else "op: goodbye")
        return True

    def stay_away(self, time: int) -> None:
        """Be cut off, and come back after a while."""
        self._world.say(f"stays away for {time / 1000:.0f} ms")
        self.wanted = False
        self.cut(half_open=False)
        self._world.engine.after(time, self._return)

    def _return(self) -> None:
        self.wanted = True
        self._connect()

    def open_stranger(self) -> None:
        """Open another connection, and say nothing on it."""
        world, broker = self._world, self._world.broker
        if broker.core is not None:
            self._opened += 1
            connection = ConnectionId(f"{world.name}-{self._opened}")
            broker.accept(connection, Lane(world.engine, world.rng, lambda _: None, _DELAY), lambda: None)

    def send_garbage(self) -> None:
        """Send what no broker can read."""
        if self._lane is not None and self.id is not None:
            self._world.broker.rude.add(self.id)
            self._world.say("-> garbage")
            self._lane.send(b"\0\0\0\3\x92\x63\x01")

    def _gone(self, connection: ConnectionId) -> None:
        if connection == self.id:
            if self.welcomed:
                self.left_at = self._world.engine.now
            self.id, self.welcomed, self._lane, self._back = None, False, None, None
            self._state.open.clear()
            self._world.soon(_RETRY, self._connect)

    def pause(self) -> None:
        """Read nothing for a while."""
        if self._back is not None:
            self._world.trace.count("fault: slow reader")
            self._back.pause()

    def resume(self) -> None:
        """Read again."""
        if self._back is not None:
            self._back.resume()
            if self.id is not None:
                self._world.broker.drained(self.id)

    def _beat(self) -> None:
        if self.welcomed:
            self.tell(Ping(1))
        self._world.engine.after(_BEAT, self._beat)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send everything that is told meanwhile as one piece."""
        self._gathered = []
        try:
            yield
        finally:
            gathered, self._gathered = self._gathered, None
            if self._lane is not None and gathered:
                self._lane.send(encode(gathered))

    def tell(self, *messages: ClientMessage, always: bool = False) -> None:
        """Send messages, unless the broker has not welcomed this connection yet."""
        if self._lane is not None and (self.welcomed or always):
            for message in messages:
                self._world.say(f"-> {shown(message)}")
            if self._gathered is None:
                self._lane.send(encode(messages))
            else:
                self._gathered += messages
