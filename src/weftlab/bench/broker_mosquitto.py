"""Mosquitto under the load: bare MQTT 3.1.1, a topic for each symbol, at most once (QoS 0)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack

from weftlab.bench.broker_load import Flood, LoadWire, in_parts, open_wire
from weftlab.bench.broker_peers import PAYLOAD, PeerServer, free_port
from weftlab.bench.broker_workload import BrokerWorkload, PlainEvent, symbol_of


def mosquitto(program: str, directory: Path) -> PeerServer:
    """A Mosquitto server."""
    port = free_port()
    settings = directory / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n"
        f"log_type none\nset_tcp_nodelay true\n",
        encoding="ascii",
    )
    return PeerServer([program, "-c", str(settings)], port, {})


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


async def _mqtt_wire(port: int, name: str) -> tuple[LoadWire, MqttReader]:
    reader = MqttReader()
    wire = await open_wire("127.0.0.1", port, reader)
    wire.transport.write(_mqtt(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(name)))
    await wire.until(lambda: reader.others)
    return wire, reader


async def mosquitto_load(peer: PeerServer, work: BrokerWorkload, events: Sequence[PlainEvent]) -> Flood:
    """A topic for each symbol, at most once."""
    wires = []
    for number, mine in enumerate(work.symbols):
        wire, reader = await _mqtt_wire(peer.port, f"c{number}")
        wanted = sorted(set(mine))
        for at in range(0, len(wanted), 100):
            body = b"".join(_text(symbol) + b"\0" for symbol in wanted[at : at + 100])
            wire.transport.write(_mqtt(0x82, pack(">H", at // 100 + 1) + body))
        needed = 1 + -(-len(wanted) // 100)
        await wire.until(lambda reader=reader, needed=needed: reader.others >= needed)  # type: ignore[misc]
        wires.append(wire)
    publisher, _ = await _mqtt_wire(peer.port, "publisher")
    made = [_mqtt(0x30, _text(symbol_of(event)) + PAYLOAD) for event in events]
    return Flood(publisher, wires, in_parts(made), work.due_by_symbol(events), peer.pids)
