"""NATS under the load: its own protocol, bare. With JetStream, an event is confirmed when it is synced (`sync_interval:
always`). A consumer that filters finds exactly the subscriptions that the index finds.

Core NATS is asked with one subject for each subscription, and with one for each symbol and connection, where the price
is left to the consumer. JetStream has one stream, and one push consumer for each connection, which acknowledges as
Weft's clients do: everything up to the last message of a read. Loads share a server, and no subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from weft.errors import RemoteProtocolError
from weftlab.bench.broker_load import Flood, LoadWire, in_parts, open_wire
from weftlab.bench.broker_peers import PAYLOAD, PeerServer, free_port
from weftlab.bench.broker_workload import BrokerWorkload, PlainEvent, Quote, symbol_of

_FEW = 16  # ranges that are compared one by one
_encode = msgspec.msgpack.Encoder().encode
_quote = msgspec.msgpack.Decoder(Quote)


def nats(program: str, directory: Path) -> PeerServer:
    """A NATS server with JetStream, which syncs whatever it confirms."""
    port = free_port()
    settings = directory / "nats.conf"
    settings.write_text(
        "max_pending: 256MB\nwrite_deadline: 60s\nmax_payload: 1MB\nmax_control_line: 4KB\n"
        f'jetstream {{ store_dir: "{directory / "jetstream"}", sync_interval: always }}\n',
        encoding="ascii",
    )
    return PeerServer([program, "-a", "127.0.0.1", "-p", str(port), "-c", str(settings)], port, {})


class NatsReader:
    """Counts messages of NATS; payloads never contain what is counted."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.pongs = 0
        self._mark = b"MSG S"
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns the answer to a ping."""
        data = self._tail + data
        self._tail = data[-5:]
        self.deliveries += data.count(self._mark) - self._tail.count(self._mark)
        self.pongs += data.count(b"PONG\r") - self._tail.count(b"PONG\r")
        return b"PONG\r\n" if b"PING\r" in data and b"PING\r" not in self._tail else b""


class LineReader:
    """Reads whole messages of NATS."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.pongs = 0
        self.replies: list[bytes] = []  # bodies of what came to an inbox
        self._part = b""

    def message(self, words: Sequence[bytes], body: bytes) -> None:
        """A message: its subject, the number of the subscription, a subject for replies if there is one, its size."""

    def answer(self) -> bytes:
        """What is sent at the end of a read."""
        return b""

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns what is to be sent back."""
        data, at, said = self._part + data, 0, b""
        while (end := data.find(b"\r\n", at)) >= 0:
            if data.startswith(b"MSG ", at):
                words = data[at + 4 : end].split(b" ")
                begin = end + 2
                end = begin + int(words[-1])
                if end + 2 > len(data):
                    break
                if words[0].startswith(b"_INBOX"):
                    self.replies.append(data[begin:end])
                    if b'"error"' in data[begin:end]:
                        raise RemoteProtocolError(f"JetStream says {data[begin:end].decode()}")
                else:
                    self.deliveries += 1
                    self.message(words, data[begin:end])
            elif data.startswith(b"PING", at):
                said += b"PONG\r\n"
            elif data.startswith(b"PONG", at):
                self.pongs += 1
            elif data.startswith(b"-ERR", at):
                raise RemoteProtocolError(f"NATS says {data[at:end].decode()}")
            at = end + 2
        self._part = data[at:]
        return said + self.answer()


class FilteringReader(LineReader):
    """A consumer of symbols that filters prices: it finds which of its subscriptions each event matches."""

    def __init__(self, ranges: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        super().__init__()
        self.matches = 0
        self._few: dict[bytes, Sequence[tuple[float, float]]] = {}
        self._many: dict[bytes, tuple[Any, Any]] = {}
        for symbol, mine in ranges.items():
            if len(mine) <= _FEW:
                self._few[symbol.encode()] = mine
            else:
                lows, highs = np.array(mine).T
                self._many[symbol.encode()] = lows.copy(), highs.copy()

    def message(self, words: Sequence[bytes], body: bytes) -> None:
        """An event of a symbol that some subscription wants."""
        price = _quote.decode(body).price
        few = self._few.get(words[0])
        if few is not None:
            self.matches += len([1 for low, high in few if low <= price < high])
        else:
            lows, highs = self._many[words[0]]
            self.matches += int(np.count_nonzero((lows <= price) & (price < highs)))


class JetStreamReader(LineReader):
    """A push consumer; it acknowledges the last message of each read."""

    def __init__(self) -> None:
        super().__init__()
        self._last = b""

    def message(self, words: Sequence[bytes], body: bytes) -> None:  # noqa: ARG002
        """An event, with the subject at which it is acknowledged."""
        self._last = words[2]

    def answer(self) -> bytes:
        """Everything so far is done."""
        last, self._last = self._last, b""
        return b"PUB %s 4\r\n+ACK\r\n" % last if last else b""


async def _wire(port: int, reader: NatsReader | LineReader, subscribe: bytes = b"") -> LoadWire:
    wire = await open_wire("127.0.0.1", port, reader)
    wire.transport.write(b'CONNECT {"verbose":false}\r\n' + subscribe + b"PING\r\n")
    await wire.until(lambda: reader.pongs)
    return wire


def _subscribed(prefix: str, symbols: Iterable[str]) -> bytes:
    return b"".join(b"SUB %s.%s %d\r\n" % (prefix.encode(), each.encode(), n) for n, each in enumerate(symbols, 1))


def _published(subject: str, body: bytes, reply: str = "") -> bytes:
    return b"PUB %s %d\r\n%s\r\n" % (" ".join(filter(None, [subject, reply])).encode(), len(body), body)


async def nats_load(peer: PeerServer, work: BrokerWorkload, events: Sequence[PlainEvent], *, each: bool) -> Flood:
    """`each` subscription is a subscription of NATS; otherwise each symbol of a connection."""
    prefix = f"S{work.size}-{'each' if each else 'wide'}"
    wires = [
        await _wire(peer.port, NatsReader(), _subscribed(prefix, mine if each else sorted(set(mine))))
        for mine in work.symbols
    ]
    publisher = await _wire(peer.port, NatsReader())
    made = [_published(f"{prefix}.{symbol_of(event)}", PAYLOAD) for event in events]
    return Flood(publisher, wires, in_parts(made), work.due_by_symbol(events, each=each), peer.pids)


async def filtering_load(
    peer: PeerServer, work: BrokerWorkload, events: Sequence[PlainEvent]
) -> tuple[Flood, Callable[[], int]]:
    """A subject for each symbol and connection, and consumers that filter; also, how many matches they have found."""
    prefix, wires, readers = f"S{work.size}-filtered", [], []
    for number in range(work.connections):
        ranges = work.ranges(number)
        readers.append(FilteringReader({f"{prefix}.{symbol}": mine for symbol, mine in ranges.items()}))
        wires.append(await _wire(peer.port, readers[-1], _subscribed(prefix, ranges)))
    publisher = await _wire(peer.port, NatsReader())
    made = [_published(f"{prefix}.{symbol_of(event)}", _encode({**event, "payload": b"x" * 130})) for event in events]
    flood = Flood(publisher, wires, in_parts(made), work.due_by_symbol(events), peer.pids)
    return flood, lambda: sum(reader.matches for reader in readers)


async def jetstream_load(peer: PeerServer, work: BrokerWorkload, events: Sequence[PlainEvent]) -> Flood:
    """A stream of all events on disk; every event is confirmed, every delivery acknowledged."""
    reader = LineReader()
    publisher = await _wire(peer.port, reader, b"SUB _INBOX.answers 1\r\n")
    prefix = f"events{work.size}"
    stream = {"name": prefix, "subjects": [f"{prefix}.>"], "storage": "file", "retention": "limits", "num_replicas": 1}
    await _ask(publisher, reader, f"STREAM.CREATE.{prefix}", stream)
    wires = []
    for number, mine in enumerate(work.symbols):
        wires.append(await _wire(peer.port, JetStreamReader(), f"SUB deliver.{prefix}.{number} 1\r\n".encode()))
        consumer = {
            "durable_name": f"c{number}",
            "deliver_subject": f"deliver.{prefix}.{number}",
            "ack_policy": "all",
            "ack_wait": 600_000_000_000,
            "max_ack_pending": 100_000,
            "filter_subjects": [f"{prefix}.{symbol}" for symbol in sorted(set(mine))],
        }
        body = {"stream_name": prefix, "config": consumer, "action": "create"}
        await _ask(publisher, reader, f"CONSUMER.CREATE.{prefix}.c{number}", body)
    reader.replies.clear()
    made = [_published(f"{prefix}.{symbol_of(event)}", PAYLOAD, "_INBOX.answers") for event in events]
    due = work.due_by_symbol(events)
    return Flood(publisher, wires, in_parts(made), due, peer.pids, lambda: len(reader.replies))


async def _ask(wire: LoadWire, reader: LineReader, what: str, body: Mapping[str, object]) -> None:
    """A request to JetStream; a refusal ends the connection."""
    reader.replies.clear()
    wire.transport.write(_published(f"$JS.API.{what}", msgspec.json.encode(body), "_INBOX.answers"))
    await wire.until(lambda: reader.replies)
