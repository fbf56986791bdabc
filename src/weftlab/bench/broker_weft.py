"""Weft under the load of `broker_load`: `weft serve` as a process, spoken to in bare frames."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

import msgspec

from weft.log.base import Offset
from weft.protocol.addresses import Address
from weft.protocol.codec import FrameReader, encode
from weft.protocol.messages import Ack, Deliver, Hello, Publish, Published, QueueNumber, SubNumber, Subscribe
from weftlab.bench.broker_load import LoadWire, Measured, flood, open_wire
from weftlab.bench.broker_workload import CONNECTIONS, PlainEvent, Quote

PAYLOAD = b"x" * 130  # with its attributes, an event has 216 bytes
_DELIVER, _PUBLISHED, _ACCEPTED, _COMPLETE, _WELCOME, _FAILED = 38, 33, 35, 36, 32, 37
_delivers = msgspec.msgpack.Decoder(Deliver)
_published = msgspec.msgpack.Decoder(Published)


class QuoteHead(msgspec.Struct, array_like=True):
    """The head of an event, as far as a consumer looks at it."""

    attributes: Quote


_head = msgspec.msgpack.Decoder(QuoteHead)


class WeftBroker:
    """`weft serve` as a process, with its log in a directory, or in memory."""

    def __init__(self, data: Path | None, *settings: str) -> None:
        where = ["--memory"] if data is None else ["--data", str(data)]
        # a load sends no heartbeats, and may take minutes to subscribe
        quiet = ["--set", "limits.idle=0"]
        self._command = [
            sys.executable,
            "-m",
            "weft",
            "serve",
            "--listen",
            "weft://127.0.0.1:0",
            *where,
            *quiet,
            *settings,
        ]
        self._said: deque[str] = deque(maxlen=20)

    def __enter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, encoding="utf-8", env=environment)
        try:
            self._await_ready()
        except BaseException:
            self._end()
            raise
        self._listener = Thread(target=self._listen, daemon=True)  # a pipe that nobody reads would stop the broker
        self._listener.start()
        return self

    def _await_ready(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if found := re.search(r" listening address=(\S+)", line):
                self.address = Address.parse(found[1])
            if " info ready " in line:
                return
        raise OSError(f"the broker did not start: {''.join(self._said)}")

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pids(self) -> list[int]:
        """The process."""
        return [self._process.pid]

    @property
    def last_words(self) -> str:
        """The last lines that it wrote."""
        return "".join(self._said)


class WeftReader:
    """Counts the messages of a broker; acknowledges the last delivery of each read if `acking`."""

    def __init__(self, acking: bool = False) -> None:
        self.deliveries = 0
        self.upto = 0
        self.accepted = self.complete = self.failed = self.welcome = 0
        self._acking = acking
        self._frames = FrameReader()

    def feed(self, data: bytes) -> bytes:
        """Read some bytes; returns the acknowledgement."""
        last = None
        for frame in self._frames.feed(data):
            tag = frame[1]
            if tag == _DELIVER:
                self.deliveries += 1
                last = frame
            elif tag == _PUBLISHED:
                self.upto = _published.decode(frame).upto
            elif tag == _ACCEPTED:
                self.accepted += 1
            elif tag == _COMPLETE:
                self.complete += 1
            elif tag == _WELCOME:
                self.welcome += 1
            elif tag == _FAILED:
                self.failed += 1
        if last is None or not self._acking:
            return b""
        message = _delivers.decode(last)
        return encode([Ack(message.queue, Offset(message.offset + 1))]) if message.offset else b""


class DecodingReader(WeftReader):
    """A consumer that looks at every event, and at which of its subscriptions each is for."""

    def __init__(self) -> None:
        super().__init__()
        self.matches = 0

    def feed(self, data: bytes) -> bytes:
        """Read some bytes."""
        for frame in self._frames.feed(data):
            if frame[1] == _DELIVER:
                self.deliveries += 1
                message = _delivers.decode(frame)
                if _head.decode(message.head).attributes.price >= 0:
                    self.matches += len(message.numbers)
            elif frame[1] == _ACCEPTED:
                self.accepted += 1
            elif frame[1] == _FAILED:
                self.failed += 1
        return b""


def _answered(reader: WeftReader, count: int, complete: bool) -> bool:
    return reader.accepted + reader.failed >= count and (not complete or reader.complete + reader.failed >= count)


class WeftLoad:
    """Consumers and a publisher of one broker, or of two."""

    def __init__(self, durable: bool, connections: int = CONNECTIONS) -> None:
        self.durable, self.connections = durable, connections
        self.consumers: list[LoadWire] = []
        self.sequence = 0
        self._opened: list[LoadWire] = []

    async def open(
        self,
        texts: Sequence[str],
        consume: Address,
        publish: Address | None = None,
        *,
        complete: bool = False,
        decoding: bool = False,
    ) -> None:
        """Connect and subscribe; wait until everything is active at every broker, if that is wanted."""
        for number in range(self.connections):
            reader = DecodingReader() if decoding else WeftReader(acking=self.durable)
            wire = await open_wire(consume.host, consume.port, reader)
            self._opened.append(wire)
            self.consumers.append(wire)
            name = f"consumer-{number}" if self.durable else ""
            mine = [
                Subscribe(SubNumber(n), text, QueueNumber(0))
                for n, text in enumerate(texts[number :: self.connections], 1)
            ]
            wire.transport.write(encode([Hello(session=name)]))
            await subscribe(wire, reader, mine, complete=complete)
        self.reader = WeftReader()
        publish = publish or consume
        self.publisher = await open_wire(publish.host, publish.port, self.reader)
        self._opened.append(self.publisher)
        self.publisher.transport.write(encode([Hello(session="publisher" if self.durable else "")]))
        await self.publisher.until(lambda: self.reader.welcome)

    def parts(self, events: Sequence[PlainEvent], size: int, payload: bytes = PAYLOAD) -> list[tuple[int, bytes]]:
        """Events as bytes, some at a time."""
        parts = []
        for at in range(0, len(events), size):
            some = events[at : at + size]
            messages = [
                Publish.of(self.sequence + n if self.durable else 0, each, payload) for n, each in enumerate(some, 1)
            ]
            self.sequence += len(some)
            parts.append((len(some), encode(messages)))
        return parts

    async def run(
        self, events: Sequence[PlainEvent], due: int, pids: Sequence[int], payload: bytes = PAYLOAD, size: int = 100
    ) -> Measured:
        """Publish events, and wait for their deliveries."""
        parts = self.parts(events, size, payload)
        confirmed = (lambda: self.reader.upto) if self.durable else None
        return await flood(self.publisher, self.consumers, parts, due, pids, confirmed)

    @property
    def matches(self) -> int:
        """Pairs of an event and a subscription that consumers have seen, if they look at every event."""
        return sum(wire.reader.matches for wire in self.consumers if isinstance(wire.reader, DecodingReader))

    def close(self) -> None:
        """Cut every connection, however far it has come."""
        for wire in self._opened:
            wire.transport.abort()


async def subscribe(wire: LoadWire, reader: WeftReader, wanted: Sequence[Subscribe], *, complete: bool = False) -> None:
    """Subscribe, some at a time. Raises OSError if any subscription is refused."""
    for at in range(0, len(wanted), 1_000):
        wire.transport.write(encode(wanted[at : at + 1_000]))
        await wire.until(partial(_answered, reader, min(at + 1_000, len(wanted)), complete), 600)
    if reader.failed:
        raise OSError(f"{reader.failed} subscriptions were refused")
