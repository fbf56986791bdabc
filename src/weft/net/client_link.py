"""The connection of one client session, again and again. Laws: it runs in the network thread; it comes back after
every loss, with growing pauses, until the client is closed or the broker does not want it; everything that the
application did since the last turn is sent together.

A redirect is followed to where the session lives, but never from an encrypted address to a plain one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from weft.errors import ClientClosedError, ConnectError, RemoteProtocolError, SessionTakenError, WeftError
from weft.net.addresses import Address
from weft.net.client_notices import Arrived, Closed, Notice, Ready, Redirected, Stored
from weft.net.client_session import ClientSession
from weft.net.client_wire import Wire, open_wire
from weft.net.network_thread import NetworkThread

_SOME = 2_000  # events that are encoded at once
_HOPS = 5  # redirects in a row
ACK_DELAY = 0.005  # seconds that acknowledgements wait for others
_TICK = 0.25  # seconds after which what the broker had no room for is tried again

Credentials = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Where a client connects, and how. Times are in seconds."""

    addresses: tuple[Address, ...]
    credentials: Credentials = field(default=lambda: b"")
    tls: ssl.SSLContext | None = None
    timeout: float = 10.0  # for a connection and its welcome
    heartbeat: float = 10.0  # between signs of life; three of the broker's missing ones end the connection
    shortest_pause: float = 0.05  # before the second attempt to come back
    longest_pause: float = 5.0
    retry_for: float | None = None  # how long to try to come back; None is for ever


class ClientLink:
    """Drives one session. `handle` is told what happens, in the network thread; `ended` that it is over, and why."""

    def __init__(
        self,
        session: ClientSession,
        network: NetworkThread,
        options: LinkOptions,
        handle: Callable[[list[Notice]], None],
        ended: Callable[[WeftError], None],
    ) -> None:
        self.session = session
        self.address: Address | None = None  # where it is, or was last
        self._network, self._options = network, options
        self._handle, self._ended = handle, ended
        self._commands: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False
        self._wire: Wire | None = None
        self._ready = False
        self._was_ready = False
        self._was_useful = False  # whether this connection brought anything
        self._redirect: Address | None = None
        self._fatal: WeftError | None = None
        self._closing = False
        self._forget = False
        self.is_forgotten = False  # the broker has removed the session
        self._left = False  # goodbye is said
        self._bye = ""  # the broker's last words
        self._task: asyncio.Task[WeftError | None] | None = None
        self._over: WeftError | None = None  # why it is over
        self.after: ClientLink | None = None  # another one of the same name, which is about to end
        self._successors: list[ClientLink] = []
        self._later: dict[Callable[[], object], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._rng = Random()

    # -- from the application's threads --------------------------------------------------------------------

    def post(self, what: Callable[..., object], *args: Any) -> None:
        """Do something in the network thread, and then send what there is to send."""
        self._commands.append((what, args))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._network.call(self._drain)
            except RuntimeError:  # the loop is closed
                self._is_woken = False
                raise ClientClosedError("the client is closed") from None

    # -- in the network thread -----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and stay connected; once `after` is over, if it is given."""
        if self.after is not None and self.after._over is None:
            self.after._successors.append(self)
        elif self._task is None and self._over is None:
            self._task = self._network.loop.create_task(self._connections())
            self._task.add_done_callback(self._finished)

    def _drain(self) -> None:
        self._is_woken = False
        commands = self._commands
        while commands:
            what, args = commands.popleft()
            self._guarded(what, *args)
        if self._over is not None:
            self._ended(self._over)  # so that nobody waits for what was asked too late
        self.flush()

    def _guarded(self, what: Callable[..., object], *args: Any) -> None:
        """Do something. Whatever it raises ends the link, because nobody knows what the session then holds."""
        try:
            what(*args)
        except Exception as failure:
            self._fail(failure)

    def _fail(self, failure: Exception) -> None:
        self._fatal = ConnectError(f"the client failed: {type(failure).__name__}: {failure}")
        self._fatal.__cause__ = failure
        if self._task is not None:
            self._task.cancel()

    def later(self, what: Callable[[], object]) -> None:
        """Do something in a moment, with what is asked for until then, and send what there is to send."""
        self._later[what] = None
        if self._timer is None:
            self._timer = self._network.loop.call_later(ACK_DELAY, self._do_later)

    def _do_later(self) -> None:
        self._timer = None
        later, self._later = self._later, {}
        for what in later:
            self._guarded(what)
        self.flush()

    def flush(self) -> None:
        """Send what there is to send."""
        wire = self._wire
        if wire is not None and self._ready:
            self._guarded(self._flush, wire)

    def _flush(self, wire: Wire) -> None:
        while not wire.is_full:
            said = self.session.take(_SOME)
            if not said:
                break
            wire.write(said)
            if self.session.handed:
                handed, self.session.handed = self.session.handed, []
                self._handle([Stored(handed)])
        if self._closing and self.session.is_settled and not wire.is_full:
            self._leave(wire)

    def received(self, wire: Wire, feed: Callable[[bytes], list[Any]], data: bytes) -> None:
        """What one read brought."""
        if wire is not self._wire:
            return
        wire.heard = self._network.loop.time()
        try:
            notices = self.session.receive(feed(data))
        except RemoteProtocolError as error:
            self._fatal = ConnectError(f"{self.address} does not speak Weft's protocol: {error}")
            wire.close(now=True)
            return
        except Exception as failure:
            self._fail(failure)
            return
        self._guarded(self._noticed, notices)
        self.flush()
        if self.session.publisher.throttled and self._ticking is None:
            self.tick_later()

    def _noticed(self, notices: list[Notice]) -> None:
        for notice in notices:
            if type(notice) is Ready:
                self._welcomed(notice)
            elif type(notice) is Redirected:
                self._follow(notice.address)
            elif type(notice) is Closed:
                self._bye = notice.reason
                if notice.final:
                    self._fatal = self._reason(notice)
            elif type(notice) is Arrived or type(notice) is Stored:
                self._was_useful = True
        if notices:
            self._handle(notices)

    def tick_later(self) -> None:
        """Try again in a while."""
        if self._ticking is None:
            self._ticking = self._network.loop.call_later(_TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        self.session.tick()
        self.flush()

    def _welcomed(self, notice: Ready) -> None:
        self._ready = self._was_ready = True
        idle = notice.welcome.idle / 1e6
        every = min(self._options.heartbeat, idle / 3) if idle else self._options.heartbeat
        self._heartbeat(every)

    def _heartbeat(self, every: float) -> None:
        wire, loop = self._wire, self._network.loop
        if wire is None:
            return
        if loop.time() - wire.heard > 3 * every:
            wire.close(now=True)  # nobody is there, or nothing gets through
            return
        self.session.ping()
        self.session.tick()
        self.flush()
        self._beat = loop.call_later(every, self._heartbeat, every)

    def _follow(self, address: str) -> None:
        try:
            target = Address.parse(address)
        except WeftError as error:
            self._fatal = ConnectError(f"{self.address} names another broker that cannot be reached: {error}")
            return
        if self.address is not None and self.address.tls and not target.tls:
            self._fatal = ConnectError(
                f"{self.address} redirects to {target}, which is not encrypted; connect to {target} if you trust it"
            )
            return
        self._redirect = target

    def _reason(self, notice: Closed) -> WeftError:
        name = self.session.name
        if notice.code == "taken over":
            return SessionTakenError(
                f"a newer connection uses the name {name!r}, so this one has ended; choose another name, or consume "
                f"together with shared=True"
            )
        if notice.code == "forgotten":
            self.is_forgotten = True
            return ClientClosedError(f"the session {name!r} was removed")
        back = "no longer accepts this client" if self._was_ready else "refuses this client"
        return ConnectError(f"{self.address} {back}: {notice.reason}")

    # -- connections -----------------------------------------------------------------------------------------

    def _finished(self, task: asyncio.Task[WeftError | None]) -> None:
        """Connecting is over; also if it was cancelled before it began."""
        for timer in (self._timer, self._beat, self._ticking):
            if timer is not None:
                timer.cancel()
        if self._wire is not None:
            self._wire.close(now=True)
        self._wire, self._ready = None, False
        closed = ClientClosedError("the client is closed")
        if task.cancelled():
            self._end(self._fatal or closed)
        elif (failure := task.exception()) is not None:
            error = ConnectError(f"the client failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
            self._end(error)
        else:
            self._end(task.result() or closed)

    def _end(self, error: WeftError) -> None:
        self._over = error
        self._drain()
        successors, self._successors = self._successors, []
        for link in successors:
            link.start()

    async def _connections(self) -> WeftError | None:
        """Connect until it is over. Returns why."""
        loop, options = self._network.loop, self._options
        turn = hops = 0
        pause, since = 0.0, loop.time()
        while True:
            redirected, self._redirect = self._redirect, None
            hops = hops + 1 if redirected is not None else 0
            if hops > _HOPS:
                return ConnectError(f"{hops} redirects in a row, the last one to {redirected}: check the brokers")
            addresses = options.addresses
            self.address = redirected or addresses[turn % len(addresses)]
            began, self._was_useful = loop.time(), False
            failure = await self._connection(self.address)
            if self._fatal is not None or self._closing:
                return self._fatal
            if self._redirect is not None:
                continue
            if failure is None:  # it was welcome, and is lost
                turn, since = 0, loop.time()
                if self._was_useful or since - began > options.longest_pause:
                    pause = 0.0
            else:
                turn += redirected is None
                if not self._was_ready and (turn >= len(addresses) or redirected is not None):
                    return failure
                if options.retry_for is not None and loop.time() - since > options.retry_for:
                    return failure
                if turn % len(addresses):
                    continue
            await asyncio.sleep(pause * self._rng.uniform(0.5, 1.0))
            pause = min(max(options.shortest_pause, 2 * pause), options.longest_pause)

    async def _connection(self, address: Address) -> WeftError | None:
        """One connection, from its begin to its end. Returns an error if it was not welcome."""
        loop, options = self._network.loop, self._options
        wire = await open_wire(self, address, options.tls, options.timeout)
        if isinstance(wire, ConnectError):
            return wire
        self._wire, wire.heard, self._bye = wire, loop.time(), ""
        try:
            credentials = options.credentials()
        except Exception as error:  # the application's own function
            wire.close(now=True)
            self._fatal = ConnectError(f"the function given as token= failed: {type(error).__name__}: {error}")
            self._fatal.__cause__ = error
            return self._fatal
        wire.write([self.session.hello(credentials)])
        patience = loop.call_later(options.timeout, self._give_up, wire)
        try:
            await wire.gone
        finally:
            patience.cancel()
            if self._beat is not None:
                self._beat.cancel()
            welcome, self._ready, self._wire = self._ready, False, None
            wire.close(now=True)
            lost = self.session.lost()
            if lost:
                self._handle(lost)
        if welcome:
            return None
        return ConnectError(f"{address} closed the connection: {self._bye or 'it gave no reason'}")

    def _give_up(self, wire: Wire) -> None:
        if wire is self._wire and not self._ready:
            wire.close(now=True)

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self, patience: float, forget: bool = False) -> None:
        """Say what is left to say, and goodbye; after `patience` seconds without."""
        self._closing, self._forget = True, forget
        if self._over is not None or self._left:
            return
        if self._task is None:
            self._end(ClientClosedError("the client is closed"))
            return
        if self._wire is None or not self._ready:
            self._task.cancel()
            return
        self._network.loop.call_later(patience, self._task.cancel)
        self.flush()

    def _leave(self, wire: Wire) -> None:
        """Say goodbye. The broker closes the connection when it has read everything."""
        if not self._left:
            self._left = True
            self.session.goodbye(self._forget)
            wire.write(self.session.take())
