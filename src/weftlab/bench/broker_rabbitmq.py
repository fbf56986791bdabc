"""RabbitMQ under the load: AMQP 0-9-1, bare. A durable event is confirmed by the broker and acknowledged by every
consumer, to the last delivery of each read.

Each connection has one queue. It is bound by symbol to a direct exchange, or once for each subscription to a headers
exchange, which then compares the symbol; the price is left to the consumer in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import pack, unpack_from

from weftlab.bench.broker_load import Flood, LoadWire, in_parts, open_wire
from weftlab.bench.broker_peers import PAYLOAD, PeerServer, free_port
from weftlab.bench.broker_workload import BrokerWorkload, PlainEvent, symbol_of


def rabbitmq(program: str, directory: Path) -> PeerServer:
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
    return PeerServer([program], port, environment, f"ERL_EPMD_PORT={mapper}")


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
        self._early: set[int] = set()  # confirmed, but something before them is not
        self._acking = acking
        self._part = b""

    def _confirm(self, tag: int, multiple: int) -> None:
        """An event is confirmed, or all up to it. Confirmations come in any order."""
        if multiple:
            self.confirmed = max(self.confirmed, tag)
            self._early = {each for each in self._early if each > tag}
        elif tag > self.confirmed:
            self._early.add(tag)
        while self.confirmed + 1 in self._early:
            self.confirmed += 1
            self._early.remove(self.confirmed)

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
                    self._confirm(*unpack_from(">QB", data, at + 11))
                else:
                    self.methods.append((of, method))
            at += 8 + size
        self._part = data[at:]
        return _method(60, 80, pack(">QB", last, 1)) if last and self._acking else b""


async def _amqp_wire(port: int, acking: bool = False) -> tuple[LoadWire, AmqpReader]:
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


async def rabbitmq_load(
    peer: PeerServer, work: BrokerWorkload, events: Sequence[PlainEvent], exchange: str, *, durable: bool = False
) -> Flood:
    """A queue for each connection, bound by symbol: through a direct exchange, or each subscription through headers."""
    wires: list[LoadWire] = []
    name = f"x-{work.size}-{exchange}-{durable}"
    bits = 2 if durable else 0
    for number, mine in enumerate(work.symbols):
        wire, reader = await _amqp_wire(peer.port, acking=durable)
        queue = f"q-{name}-{number}"
        out = _method(40, 10, b"\0\0" + _short(name) + _short(exchange) + bytes([bits]) + _table({}))
        out += _method(50, 10, b"\0\0" + _short(queue) + bytes([bits]) + _table({}))
        out += _direct(queue, name, mine) if exchange == "direct" else _headers(queue, name, mine)
        out += _method(60, 20, b"\0\0" + _short(queue) + _short("") + bytes([0 if durable else 2]) + _table({}))
        wire.transport.write(out)
        await wire.until(lambda reader=reader: (60, 21) in reader.methods, 300)  # type: ignore[misc]
        wires.append(wire)
    publisher, said = await _amqp_wire(peer.port)
    confirmed: Callable[[], int] | None = None
    if durable:
        publisher.transport.write(_method(85, 10, b"\0"))
        await publisher.until(lambda: (85, 11) in said.methods)
        confirmed = lambda: said.confirmed  # noqa: E731 - what a flood asks for
    made = [_published(name, symbol_of(event), durable) for event in events]
    return Flood(publisher, wires, in_parts(made), work.due_by_symbol(events), peer.pids, confirmed)


def _direct(queue: str, exchange: str, symbols: Sequence[str]) -> bytes:
    start = b"\0\0" + _short(queue) + _short(exchange)
    return b"".join(_method(50, 20, start + _short(symbol) + b"\1" + _table({})) for symbol in sorted(set(symbols)))


def _headers(queue: str, exchange: str, symbols: Sequence[str]) -> bytes:
    """One binding for each subscription: `x-id` tells apart those of one symbol, and is not compared."""
    start = b"\0\0" + _short(queue) + _short(exchange) + _short("") + b"\1"
    wanted = [{"x-match": "all", "symbol": symbol, "x-id": str(at)} for at, symbol in enumerate(symbols)]
    return b"".join(_method(50, 20, start + _table(each)) for each in wanted)


def _published(exchange: str, symbol: str, durable: bool) -> bytes:
    method = _method(60, 40, b"\0\0" + _short(exchange) + _short(symbol) + b"\0")
    properties = pack(">H", 0x3000) + _table({"symbol": symbol}) + bytes([2 if durable else 1])
    header = _frame(2, 1, pack(">HHQ", 60, 0, len(PAYLOAD)) + properties)
    return method + header + _frame(3, 1, PAYLOAD)
