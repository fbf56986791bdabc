"""The network thread of a process, and what drives a session over its connections.

All clients of a process share one thread with an event loop. Heartbeats, acknowledgements and reconnections thus go on
while the application computes or blocks, as long as it lets other threads run. The application hands commands over
(`post`), and what it waits for comes back in a `Waiter`.

A `SessionDriver` decides nothing: `weft.client.session` says when to dial, hang up and wake, and what to send. The
driver obeys, and sends everything that the application did since the last turn of the loop together.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from weft.client.effects import Dial, Greet, HangUp, Notice, Over, SessionEffect, Stored, WakeAt
from weft.client.session import ClientSession
from weft.errors import ClientClosedError, ConnectError, RemoteProtocolError, WeftError
from weft.protocol.addresses import Address
from weft.protocol.codec import broker_messages, encode

ACK_DELAY = 0.005  # seconds that acknowledgements wait for others
_SOME = 2_000  # events that are encoded at once
_HIGH = 1 << 20  # bytes that wait to be written above which nothing more is encoded
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")  # in different versions of OpenSSL
_TLS_ALERT = b"\x15\x03"  # how the answer of a TLS server to plain text begins

Reply = TypeVar("Reply")


# -- waiting -------------------------------------------------------------------------------------------------


class Waiter:
    """One result that the network thread hands over. `loop` is where it is awaited; None for a thread that blocks.

    It is finished once, with a value or an error. `wake` must follow: it wakes each loop once for many waiters.
    A coroutine that awaits nothing but waiters runs in a loop, or without one (`run`).
    """

    __slots__ = ("_event", "error", "future", "is_done", "loop", "value")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self._event = threading.Event() if loop is None else None
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None

    def finish(self, value: Any = None, error: Exception | None = None) -> bool:
        """Set the result; returns whether this was the first one."""
        if self.is_done:
            return False
        self.value, self.error, self.is_done = value, error, True
        return True

    def wait(self, timeout: float | None = None) -> Any:
        """Block until it is finished. Raises its error, or TimeoutError."""
        assert self._event is not None
        if not self._event.wait(timeout):
            raise TimeoutError(f"nothing arrived within {timeout:g} s")
        if self.error is not None:
            raise self.error
        return self.value

    def __await__(self) -> Generator[Any, Any, Any]:
        if self.future is not None:
            return (yield from self.future)
        return (yield self) if not self.is_done else self.wait()

    async def shielded(self) -> None:
        """Await it, so that others may go on to do so when the call is cancelled."""
        await (self if self.future is None else asyncio.shield(self.future))


def run(coroutine: Coroutine[Any, Any, Reply], timeout: float | None = None) -> Reply:
    """Run a coroutine without a loop, blocking at each waiter that it awaits. Raises TimeoutError."""
    try:
        waiter = coroutine.send(None)
        while True:
            try:
                value = None if waiter is None else waiter.wait(timeout)
            except BaseException as error:
                waiter = coroutine.throw(error)
            else:
                waiter = coroutine.send(value)
    except StopIteration as done:
        result: Reply = done.value
        return result


def finish_all(waiters: Iterable[Waiter], value: Any = None, error: Exception | None = None) -> None:
    """Finish those that are not finished, and wake whoever waits for them."""
    wake([waiter for waiter in waiters if waiter.finish(value, error)])


def wake(finished: Iterable[Waiter]) -> None:
    """Wake whoever waits for these."""
    loops: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in finished:
        if waiter.loop is None:
            assert waiter._event is not None
            waiter._event.set()
        else:
            loops.setdefault(waiter.loop, []).append(waiter)
    for loop, waiters in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(_resolve, waiters)


def _resolve(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        future = waiter.future
        if future is not None and not future.done():
            if waiter.error is None:
                future.set_result(waiter.value)
            else:
                future.set_exception(waiter.error)


# -- the thread ----------------------------------------------------------------------------------------------

_lock = threading.Lock()
_current: NetworkThread | None = None


class NetworkThread:
    """An event loop in a thread of its own, which runs while the process has a client."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.users = 0
        self.pid = os.getpid()
        self.drivers: dict[ClientSession, SessionDriver] = {}  # of sessions that are not over
        self.thread = threading.Thread(target=self._run, name="weft-network", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self._finish())
            self.loop.close()

    async def _finish(self) -> None:
        """End what still runs (a client that was cancelled while it closed), and answer what was asked last."""
        for driver in list(self.drivers.values()):
            driver.stop()
        tasks = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def acquire() -> NetworkThread:
    """The thread of this process; `release` must follow."""
    global _current  # noqa: PLW0603 - one for the process
    with _lock:
        if _current is None or _current.pid != os.getpid():  # a child of a fork has no threads
            _current = NetworkThread()
        _current.users += 1
        return _current


def release(network: NetworkThread) -> None:
    """A client is gone; the last one ends the thread."""
    global _current  # noqa: PLW0603
    with _lock:
        network.users -= 1
        if network.users or network.pid != os.getpid():
            return
        if _current is network:
            _current = None
    network.loop.call_soon_threadsafe(network.loop.stop)
    network.thread.join()


# -- sessions ------------------------------------------------------------------------------------------------


class SessionDriver:
    """Drives one session. In the network thread, `handle` gets its notices, `failed` the reason why an address was not
    reached, and `ended` the error when it is over.
    """

    def __init__(
        self,
        session: ClientSession,
        network: NetworkThread,
        handle: Callable[[SessionDriver, list[Notice]], None],
        ended: Callable[[SessionDriver, WeftError], None],
        failed: Callable[[SessionDriver, Address, ConnectError], None],
    ) -> None:
        self.session = session
        self.after: ClientSession | None = None  # another one of the same name, which is about to end
        self._network, self._loop = network, network.loop
        self._handle, self._ended, self._failed = handle, ended, failed
        self._commands: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False
        self._wires: dict[int, _Wire] = {}  # open connections: one, or two while the session moves
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._later: dict[Callable[[], object], None] = {}
        self._later_timer: asyncio.TimerHandle | None = None
        network.drivers[session] = self

    # -- from the application's threads ------------------------------------------------------------------------

    def post(self, what: Callable[..., object], *args: Any) -> None:
        """Do something in the network thread, and then send what there is to send."""
        self._commands.append((what, args))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed
                self._is_woken = False
                raise ClientClosedError("the client is closed") from None

    # -- in the network thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and stay connected; once `after` is over, if it is given."""
        self._obey(self.session.start(self._now(), self.after))

    def close(self, forget: bool = False) -> None:
        """Send what is left, and Goodbye."""
        self._obey(self.session.close(self._now(), round(self.session.policy.patience * 1e6), forget))
        self.flush()

    def move(self, address: Address, patience: float | None, abandon: float | None) -> None:
        """Go on at another broker; if that does not have the session after `patience` seconds, stay at this one.

        With `abandon`, go on without this one when it has been silent for so many seconds.
        """
        micros = [None if each is None else round(each * 1e6) for each in (patience, abandon)]
        self._obey(self.session.move(address, self._now(), micros[0], abandon=micros[1]))
        self.flush()

    def stop(self) -> None:
        """End at once."""
        self._obey(self.session.stop())

    def later(self, what: Callable[[], object]) -> None:
        """Do something in a moment, with what is asked for until then, and send what there is to send."""
        self._later[what] = None
        if self._later_timer is None:
            self._later_timer = self._loop.call_later(ACK_DELAY, self._do_later)

    def flush(self) -> None:
        """Send what there is to send."""
        session = self.session
        wire = self._wires.get(session.connection)
        if session.publisher.too_late:
            late, session.publisher.too_late = session.publisher.too_late, []
            self._handle(self, [*late])
        if wire is None:
            return
        try:
            while not wire.is_full:
                messages = session.take(_SOME)
                if not messages:
                    break
                wire.write(encode(messages))
                if session.handed:
                    handed, session.handed = session.handed, []
                    self._handle(self, [Stored(handed)])
        except Exception as failure:
            self._obey(session.fail(failure))

    def _now(self) -> int:
        return int(self._loop.time() * 1_000_000)

    def _drain(self) -> None:
        self._is_woken = False
        commands = self._commands
        while commands:
            what, args = commands.popleft()
            try:
                what(*args)
            except Exception as failure:  # nobody knows what the session then holds
                self._obey(self.session.fail(failure))
        if self.session.error is not None:
            self._ended(self, self.session.error)  # so that nobody waits for what was asked too late
        self.flush()

    def _do_later(self) -> None:
        self._later_timer = None
        later, self._later = self._later, {}
        for what in later:
            self._commands.append((what, ()))
        self._drain()

    def _obey(self, effects: list[SessionEffect]) -> None:
        notices: list[Notice] = []
        over: Over | None = None
        for effect in effects:
            kind = type(effect)
            if kind is WakeAt:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(effect.at / 1_000_000, self._tick)  # type: ignore[union-attr]
            elif isinstance(effect, Dial):
                task = self._loop.create_task(self._dial(effect.connection, effect.address))
                self._dialling[effect.connection] = task
            elif isinstance(effect, Greet):
                self._wires[effect.connection].write(encode(effect.messages))
            elif isinstance(effect, HangUp):
                self._hang_up(effect.connection)
            elif isinstance(effect, Over):
                over = effect
            else:
                notices.append(effect)  # type: ignore[arg-type]
        if notices:
            try:
                self._handle(self, notices)
            except Exception as failure:
                self._obey(self.session.fail(failure))
        if over is not None:
            self._finish(over)

    def _tick(self) -> None:
        self._timer = None
        self._obey(self.session.tick(self._now()))
        self.flush()

    def _hang_up(self, connection: int) -> None:
        dialling, wire = self._dialling.pop(connection, None), self._wires.pop(connection, None)
        if dialling is not None:
            dialling.cancel()
        if wire is not None:
            wire.abort()

    def _finish(self, over: Over) -> None:
        for timer in (self._timer, self._later_timer):
            if timer is not None:
                timer.cancel()
        self._network.drivers.pop(self.session, None)
        self._drain()
        for session in over.successors:
            driver = self._network.drivers.get(session)
            if driver is not None:
                driver.start()

    # -- one connection ----------------------------------------------------------------------------------------

    async def _dial(self, connection: int, address: Address) -> None:
        make, where = partial(_Wire, self, connection), (address.host, address.port)
        try:
            if address.unix:
                await self._loop.create_unix_connection(make, address.path)
            elif not address.tls:
                await self._loop.create_connection(make, *where)
            else:
                tls = self.session.policy.tls or ssl.create_default_context()
                await self._loop.create_connection(make, *where, ssl=tls, server_hostname=address.host)
        except ssl.SSLError as error:
            failure = ConnectError(f"{address} cannot be trusted: {error.reason or error}; pass tls= or ca=")
            if error.reason in _NOT_TLS:
                plain = replace(address, scheme="weft")
                why = f"{address} does not use TLS; check the port, or connect to {plain} without encryption"
                failure = ConnectError(why)
        except (OSError, UnicodeError) as error:
            known = isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0
            reason = os.strerror(error.errno) if known else error  # type: ignore[union-attr, arg-type]
            failure = ConnectError(f"no broker at {address}: {reason}; start one with `weft serve`")
        else:
            return
        self._dialling.pop(connection, None)
        self._failed(self, address, failure)
        self._obey(self.session.dial_failed(connection, failure, self._now()))

    def opened(self, wire: _Wire) -> None:
        """A connection is open."""
        if wire.connection not in self._dialling:
            wire.abort()
            return
        self._wires[wire.connection] = wire
        self._obey(self.session.opened(wire.connection, self._now()))
        self.flush()

    def received(self, wire: _Wire, data: bytes) -> None:
        """What one read brought."""
        if self._wires.get(wire.connection) is not wire:
            return
        session, now = self.session, int(self._loop.time() * 1_000_000)
        try:
            effects = session.received(wire.connection, wire.messages(data), now)
        except RemoteProtocolError as error:
            wrong = error
            if data.startswith(_TLS_ALERT) and session.address is not None:
                wrong = RemoteProtocolError(f"it uses TLS; connect to {replace(session.address, scheme='weft+tls')}")
            effects = session.broken(wire.connection, wrong, now)
        except Exception as failure:
            effects = session.fail(failure)
        self._obey(effects)
        self.flush()

    def closed(self, wire: _Wire) -> None:
        """A connection is gone."""
        if self._wires.get(wire.connection) is wire:
            del self._wires[wire.connection]
            self._dialling.pop(wire.connection, None)
            self._obey(self.session.closed(wire.connection, self._now()))


class _Wire(asyncio.Protocol):
    """One connection to a broker."""

    def __init__(self, driver: SessionDriver, connection: int) -> None:
        self.connection = connection
        self.messages = broker_messages().feed
        self.is_full = False
        self._driver = driver
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_HIGH)
        self._driver.opened(self)

    def data_received(self, data: bytes) -> None:
        self._driver.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._driver.closed(self)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._driver.flush()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
