"""The driver of a client session on simulated wires: it only obeys the session's effects.

Dials take time, fail while the broker is down or the client is cut off, or lead to a host that is not the broker. A
broken connection may be noticed by both ends, by one of them, or by none. What arrives on an old connection is not
handled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.broker.effects import ConnectionId
from weft.client.effects import Dial, HangUp, Over, SessionEffect, Stored, WakeAt
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


class ClientConnection:
    """Drives one session over all its connections."""

    is_over = False
    is_retired = False  # a newer process has taken the session over: this one hangs
    trap = ""  # what the next dial leads to
    is_sent_away = False  # the broker does not want this session any more
    was_moved = False  # it was redirected to where it must not go
    away_until = 0  # dials fail until then
    is_cut = False  # whatever the client thinks
    _was_welcome = _was_paused = False  # on this connection
    _received_at = 0  # when something arrived

    def __init__(self, client: SimClient, process: ClientProcess) -> None:
        self.id: ConnectionId | None = None  # of an open connection, as the client sees it
        self._client, self._process, self._session = client, process, process.session
        self._there: Pipe | None = None  # to the broker
        self._back: Pipe | None = None  # from the broker
        self._timer: Scheduled | None = None
        self._late: list[Nack] = []  # raw messages, which the library does not send
        client.soon(3000, lambda: self.perform(self._session.start(client.engine.now)))

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
                case HangUp():
                    self._client.say("hangs up")
                    self._check_hang_up()
                    self._drop(notice=True)
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

    def _check_hang_up(self) -> None:
        """A running broker answers heartbeats, so a client never closes a working connection as silent."""
        silent = self._client.engine.now - self._received_at > _SILENCE
        works = self.id is not None and self._was_welcome and not self.is_cut
        works = works and not self._was_paused and not self.is_retired
        require(not (silent and works), f"{self._client.name} receives nothing on a connection that works")

    def flush(self) -> None:
        """Send what there is to send."""
        session = self._session
        if self._there is None or (self.is_retired and self.is_welcome):
            return
        messages = session.take()
        if self.is_welcome:
            messages += self._late
            self._late.clear()
            for message in messages:
                self._client.watch.sent(message)
        if messages:
            for message in messages:
                self._client.say(f"-> {shown(message)}")
            self._there.send(encode(messages))
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
        self._drop(notice=True)
        if trap != "moved in circles":
            self.trap = ""
        if trap:
            client.trace.count(f"trap: {trap}")
        if trap != "no answer":
            client.soon(_OPENING, lambda: self._dialled(dial, trap))

    def _dialled(self, dial: Dial, trap: str) -> None:
        client, session = self._client, self._session
        now = client.engine.now
        if dial.connection != session.connection or self.is_over:
            return
        client.reach(dial.address)
        if client.broker.core is None or now < self.away_until:
            self.perform(session.dial_failed(dial.connection, ConnectError("nobody is there"), now))
            return
        self._open(dial.connection, trap)
        self.perform(session.opened(dial.connection, now))

    def _open(self, number: int, trap: str) -> None:
        client = self._client
        connection = ConnectionId(f"{client.name}-{next(client.connections)}")
        reader = broker_messages()

        def receive(data: bytes) -> None:
            messages = reader.feed(data)
            if connection == self.id and messages:
                self._received_at = client.engine.now
                for message in messages:
                    client.say(f"<- {shown(message)}")
                    if not self.is_retired:
                        client.watch.received(connection, message)
                        # now and then, answer to an attempt after which the broker has delivered the event again
                        if isinstance(message, Deliver) and message.attempt > 1 and client.rng.random() < 0.1:
                            late = ((message.offset, message.attempt - 1),)
                            self._late.append(Nack(message.queue, late, "late"))
                self.perform(self._session.received(number, messages, client.engine.now))
                self._was_welcome |= connection == self.id and self.is_welcome
                owed = sorted(client.watch.owed)
                require(not owed, f"{client.name}: the application does not learn {owed}")

        def closed() -> None:
            if connection == self.id:
                self._drop(notice=False)
                self.perform(self._session.closed(number, client.engine.now))

        self.id, self.is_cut, self._was_welcome, self._was_paused = connection, False, False, False
        if trap:
            self._back = back = Pipe(client, receive)
            self._there = Pipe(client, lambda _: self._spring(back, trap, closed))
            return
        client.oracle.clients[connection] = client.views
        self._there, self._back = client.broker.open(connection, client, receive, closed)

    def _spring(self, back: Pipe, trap: str, closed: Callable[[], None]) -> None:
        """Something other than the broker answers the hello, or nothing does."""
        port = {"moved": "weft+tls://elsewhere:1", "moved in circles": "weft+tls://elsewhere:2"}
        if trap.startswith("moved"):
            self.was_moved = trap != "moved"
            back.send(encode([Bye("moved", port.get(trap, "weft://elsewhere:3"))]))
            back.close(closed)

    # -- the end of a connection -----------------------------------------------------------------------

    def _left(self) -> None:
        if self.is_welcome and not self.is_retired and not self.is_cut:
            self._client.watch.left_at = self._client.engine.now

    def _drop(self, *, notice: bool) -> None:
        """The client's end is gone; the broker notices soon, unless the connection was cut before."""
        connection, there, back, client = self.id, self._there, self._back, self._client
        if connection is None or there is None or back is None:
            return
        self._left()
        self.id = self._there = self._back = None
        self._late.clear()
        if notice and not self.is_cut:
            client.soon(_NOTICED, lambda: client.broker.noticed_cut(connection))
        there.cut()
        back.cut()

    def cut(self, *, half_open: bool = False) -> None:
        """The connection breaks. Both ends notice soon; with `half_open`, one of them or none does."""
        connection, there, back, client = self.id, self._there, self._back, self._client
        if connection is None or there is None or back is None or self.is_cut:
            return
        notices = client.rng.choice(("client", "client", "broker", "nobody")) if half_open else "both"
        client.trace.count("fault: half-open" if half_open else "fault: cut")
        client.say("is cut off" + (f", noticed by {notices}" if half_open else ""))
        self._left()
        self.is_cut = True
        there.cut()
        back.cut()
        if notices in ("broker", "both"):
            client.soon(_NOTICED, lambda: client.broker.noticed_cut(connection))
        if notices in ("client", "both"):
            number = self._session.connection
            self._drop(notice=False)
            self.perform(self._session.closed(number, client.engine.now))

    def stay_away(self, time: int) -> None:
        """Be cut off, and come back after a while."""
        self._client.say(f"stays away for {time / 1000:.0f} ms")
        self.away_until = self._client.engine.now + time
        self.cut()

    def pause(self) -> None:
        """Read nothing for a while."""
        if self._back is not None:
            self._client.trace.count("fault: slow reader")
            self._was_paused = True
            self._back.pause()

    def resume(self) -> None:
        """Read again."""
        if self._back is not None:
            self._back.resume()
            if self.id is not None:
                self._client.broker.drained(self.id)
