"""The driver of a client session on simulated wires: it only obeys the session's effects.

Dials take time, fail while the broker is down or the client is cut off, or lead to a host that is not the broker. A
broken connection may be noticed by both ends, by one of them, or by none. What arrives on a connection that the client
has dropped is not handled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.broker.effects import ConnectionId
from weft.client.effects import Dial, Greet, HangUp, Over, SessionEffect, Stored, WakeAt
from weft.client.session import ConnectionPolicy
from weft.errors import ConnectError
from weft.protocol.addresses import Address
from weft.protocol.codec import broker_messages, encode
from weft.protocol.messages import Bye, Deliver, Nack
from weftlab.engine import Scheduled
from weftlab.faults.trace import shown
from weftlab.faults.violation import require
from weftlab.faults.wire import Pipe

if TYPE_CHECKING:
    from weftlab.faults.broker_process import BrokerProcess
    from weftlab.faults.client import SimClient
    from weftlab.faults.client_process import ClientProcess

TRAPS = ("silent", "no answer", "moved", "moved to plain text", "moved in circles")  # what a dial may lead to
_TIMEOUT = 0.3  # seconds for a dial, and for a welcome
_HEARTBEAT = 0.25
_PAUSES = 0.004, 0.04  # between attempts to come back, at least and at most
_SILENCE = 700_000  # microseconds; a client gives up after three heartbeats
_OPENING = 1000  # microseconds that a dial takes, at most
_NOTICED = 5000  # until the broker notices that a connection is gone, at most


def policy_of(client: SimClient) -> ConnectionPolicy:
    """How a client connects: its broker has two addresses, both encrypted."""
    addresses = tuple(Address.parse(f"weft+tls://{client.broker.name}:{port}") for port in (9338, 9339))
    return ConnectionPolicy(addresses, client.principal.encode, None, _TIMEOUT, _HEARTBEAT, *_PAUSES)


@dataclass(eq=False)
class _Line:
    """One open connection, as the client sees it."""

    id: ConnectionId
    broker: BrokerProcess
    there: Pipe = field(init=False)  # to the broker
    back: Pipe = field(init=False)  # from the broker
    is_cut: bool = False  # whatever the client thinks
    was_welcome: bool = False
    was_paused: bool = False
    received_at: int = 0  # when something arrived


class ClientConnection:
    """Drives one session over all its connections: one at a time, or two while it moves."""

    is_over = False
    is_retired = False  # a newer process has taken the session over: this one hangs
    trap = ""  # what the next dial leads to
    is_sent_away = False  # the broker does not want this session any more
    was_moved = False  # it was redirected to where it must not go
    away_until = 0  # dials fail until then

    def __init__(self, client: SimClient, process: ClientProcess) -> None:
        self._client, self._process, self._session = client, process, process.session
        self._lines: dict[int, _Line] = {}  # open connections, by the numbers that the session gave them
        self._dialling: set[int] = set()
        self._timer: Scheduled | None = None
        self._late: list[Nack] = []  # raw messages, which the library does not send
        client.soon(3000, lambda: self.perform(self._session.start(client.engine.now)))

    @property
    def _line(self) -> _Line | None:
        """The present connection."""
        return self._lines.get(self._session.connection)

    @property
    def id(self) -> ConnectionId | None:
        """The id of the present connection, as the client sees it."""
        return None if self._line is None else self._line.id

    @property
    def is_cut(self) -> bool:
        """Whether the present connection is cut, whatever the client thinks."""
        return self._line is not None and self._line.is_cut

    @property
    def is_welcome(self) -> bool:
        """Whether the broker has welcomed the session on the present connection."""
        return self._session.welcome is not None

    # -- obeying the session ---------------------------------------------------------------------------

    def perform(self, effects: list[SessionEffect]) -> None:
        """Carry effects out, in order, and send what there is to send."""
        for effect in effects:
            match effect:
                case Dial():
                    self._dial(effect)
                case Greet(number, messages):
                    self._client.say(f"-> {' '.join(map(shown, messages))}, on a second connection")
                    self._lines[number].there.send(encode(messages))
                case HangUp(number):
                    self._client.say("hangs up")
                    self._check_hang_up(number)
                    self._drop(number, notice=True)
                case WakeAt(at):
                    if self._timer is not None:
                        self._timer.cancel()
                    engine = self._client.engine
                    self._timer = engine.at(max(at, engine.now + 1), self._wake)
                case Over(error):
                    self._client.say(f"is over: {error}")
                    self.is_over = True
                    if self._timer is not None:
                        self._timer.cancel()
                    self._process.over(error)
                case _:
                    self._process.noticed(effect)
        self.flush()

    def _check_hang_up(self, number: int) -> None:
        """A running broker answers heartbeats, so a client never closes a working connection as silent."""
        line = self._lines.get(number)
        if line is None:
            return
        silent = self._client.engine.now - line.received_at > _SILENCE
        works = line.was_welcome and not line.is_cut and not line.was_paused and not self.is_retired
        require(not (silent and works), f"{self._client.name} receives nothing on a connection that works")

    def flush(self) -> None:
        """Send what there is to send."""
        session, line = self._session, self._line
        if line is None or (self.is_retired and self.is_welcome):
            return
        self._client.broker = line.broker
        messages = session.take()
        if self.is_welcome:
            messages += self._late
            self._late.clear()
            for message in messages:
                self._client.watch.sent(message)
        if messages:
            for message in messages:
                self._client.say(f"-> {shown(message)}")
            line.there.send(encode(messages))
        handed, session.handed = session.handed, []
        if handed:
            self._process.noticed(Stored(handed))

    def _wake(self) -> None:
        self._timer = None
        self.perform(self._session.tick(self._client.engine.now))

    # -- dialling --------------------------------------------------------------------------------------

    def _dial(self, dial: Dial) -> None:
        client, trap = self._client, self.trap
        require(dial.address.tls, f"{client.name} dials {dial.address}, which is not encrypted, after one that is")
        require(not self.is_sent_away, f"{client.name} dials again, and the broker has sent it away for good")
        self._dialling.add(dial.connection)
        if trap != "moved in circles":
            self.trap = ""
        if trap:
            client.trace.count(f"trap: {trap}")
        if trap != "no answer":
            client.soon(_OPENING, lambda: self._dialled(dial, trap))

    def _dialled(self, dial: Dial, trap: str) -> None:
        client, session = self._client, self._session
        now = client.engine.now
        if dial.connection not in self._dialling or self.is_over:
            return
        self._dialling.discard(dial.connection)
        broker = client.reach(dial.address)
        if broker.core is None or now < self.away_until:
            self.perform(session.dial_failed(dial.connection, ConnectError("nobody is there"), now))
            return
        self._open(dial.connection, broker, trap)
        self.perform(session.opened(dial.connection, now))

    def _open(self, number: int, broker: BrokerProcess, trap: str) -> None:
        client = self._client
        connection = ConnectionId(f"{client.name}-{next(client.connections)}")
        reader, line = broker_messages(), _Line(connection, broker)

        def receive(data: bytes) -> None:
            messages = reader.feed(data)
            if self._lines.get(number) is line and messages:
                line.received_at = client.engine.now
                for message in messages:
                    client.say(f"<- {shown(message)}")
                    if not self.is_retired:
                        client.watch.received(connection, message)
                        # now and then, answer to an attempt after which the broker has delivered the event again
                        if isinstance(message, Deliver) and message.attempt > 1 and client.rng.random() < 0.1:
                            late = ((message.offset, message.attempt - 1),)
                            self._late.append(Nack(message.queue, late, "late"))
                self.perform(self._session.received(number, messages, client.engine.now))
                line.was_welcome |= connection == self.id and self.is_welcome
                owed = sorted(client.watch.owed)
                require(not owed, f"{client.name}: the application does not learn {owed}")

        def closed() -> None:
            if self._lines.get(number) is line:
                self._drop(number, notice=False)
                self.perform(self._session.closed(number, client.engine.now))

        self._lines[number] = line
        if trap:
            line.back = back = Pipe(client, receive)
            line.there = Pipe(client, lambda _: self._spring(back, trap, closed))
            return
        broker.oracle.clients[connection] = client.views
        line.there, line.back = broker.open(connection, client, receive, closed)

    def _spring(self, back: Pipe, trap: str, closed: Callable[[], None]) -> None:
        """Something other than the broker answers the hello, or nothing does."""
        port = {"moved": "weft+tls://elsewhere:1", "moved in circles": "weft+tls://elsewhere:2"}
        if trap.startswith("moved"):
            self.was_moved = trap != "moved"
            back.send(encode([Bye("moved", port.get(trap, "weft://elsewhere:3"))]))
            back.close(closed)

    # -- the end of a connection -----------------------------------------------------------------------

    def _left(self, line: _Line) -> None:
        if self._line is line and self.is_welcome and not self.is_retired and not line.is_cut:
            self._client.watch.left_at = self._client.engine.now

    def _drop(self, number: int, *, notice: bool) -> None:
        """The client's end is gone; the broker notices soon, unless the connection was cut before."""
        client, line = self._client, self._lines.get(number)
        self._dialling.discard(number)
        if line is None:
            return
        self._left(line)
        del self._lines[number]
        self._late.clear()
        if notice and not line.is_cut:
            client.soon(_NOTICED, lambda: line.broker.noticed_cut(line.id))
        line.there.cut()
        line.back.cut()

    def cut(self, *, half_open: bool = False) -> None:
        """The connection breaks, both if there are two. Both ends notice soon; with `half_open`, one or none does."""
        for number in list(self._lines):
            self._cut(number, half_open)

    def _cut(self, number: int, half_open: bool) -> None:
        client, line = self._client, self._lines.get(number)
        if line is None or line.is_cut:
            return
        notices = client.rng.choice(("client", "client", "broker", "nobody")) if half_open else "both"
        client.trace.count("fault: half-open" if half_open else "fault: cut")
        client.say("is cut off" + (f", noticed by {notices}" if half_open else ""))
        self._left(line)
        line.is_cut = True
        line.there.cut()
        line.back.cut()
        if notices in ("broker", "both"):
            client.soon(_NOTICED, lambda: line.broker.noticed_cut(line.id))
        if notices in ("client", "both"):
            self._drop(number, notice=False)
            self.perform(self._session.closed(number, client.engine.now))

    def stay_away(self, time: int) -> None:
        """Be cut off, and come back after a while."""
        self._client.say(f"stays away for {time / 1000:.0f} ms")
        self.away_until = self._client.engine.now + time
        self.cut()

    def pause(self) -> None:
        """Read nothing for a while."""
        for line in self._lines.values():
            self._client.trace.count("fault: slow reader")
            line.was_paused = True
            line.back.pause()

    def resume(self) -> None:
        """Read again."""
        for line in list(self._lines.values()):
            line.back.resume()
            line.broker.drained(line.id)
