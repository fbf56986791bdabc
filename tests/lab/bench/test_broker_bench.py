"""weft bench broker, tiny: every broker that starts quickly is measured once, and protocols are read piece by piece."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from struct import pack

import msgspec
import pytest

from weft.errors import RemoteProtocolError
from weftlab.bench import broker_contest
from weftlab.bench.broker import _broker
from weftlab.bench.broker_chain import chain
from weftlab.bench.broker_contest import CheckedRunner, Peers, compete
from weftlab.bench.broker_load import Flood, Measured, flood, open_wire
from weftlab.bench.broker_memory import connections, soak_results
from weftlab.bench.broker_mosquitto import MqttReader, _mqtt
from weftlab.bench.broker_nats import (
    FilteringReader,
    JetStreamReader,
    LineReader,
    NatsReader,
    filtering_load,
    jetstream_load,
    nats,
    nats_load,
)
from weftlab.bench.broker_peers import INSTALL, PeerServer, free_port, installed
from weftlab.bench.broker_rabbitmq import AmqpReader, _method
from weftlab.bench.broker_stall import stalled
from weftlab.bench.broker_workload import BrokerWorkload


def silent(_: str) -> None:
    """No progress."""


def test_weft_is_measured_durable_and_not(tmp_path, monkeypatch):
    monkeypatch.setattr(broker_contest, "contests", lambda _: [])

    async def body():
        async with Peers(tmp_path, silent) as peers:
            return await _broker(BrokerWorkload(100, 300), tmp_path, peers, 1, 0.5, 0.001, True, silent, silent)

    found = {each.name: each.value for each in asyncio.run(body())}
    for kind in ("loose", "durable"):
        assert found[f"broker/100/{kind}/cpu"] > 0
        assert found[f"broker/100/{kind}/half_p50"] > 0
        assert found[f"broker/100/{kind}/steady_p50"] > 0
    assert found["broker/100/durable/half_acknowledged_p99"] > 0
    assert found["broker/100/decoding/cpu"] > found["broker/100/matcher"]


@pytest.mark.slow
def test_a_chain_is_measured(tmp_path):
    results = asyncio.run(chain(BrokerWorkload(100, 300), tmp_path, 1, 0.5, 0.001, silent))
    assert all(each.value > 0 for each in results)
    assert {each.name.split("/")[2] for each in results} == {"rate", "cpu", "p50", "p50_in_windows", "p99"}


@pytest.mark.slow
def test_memory_is_measured(tmp_path):
    (memory,) = asyncio.run(connections(200))
    assert memory.value > 0
    grown = asyncio.run(soak_results(BrokerWorkload(100, 300), tmp_path, 4.0, silent))
    assert all(each.value is not None for each in grown)


@pytest.mark.slow
def test_a_stalled_consumer_is_measured(tmp_path):
    results = asyncio.run(stalled(BrokerWorkload(200, 300, 100), tmp_path, False, 1, silent))
    assert [each.name.split("/")[-1] for each in results] == ["cpu_ratio", "p50_ratio_of_others", "memory_more"]
    assert all(each.value is not None for each in results)


@pytest.mark.slow
def test_every_peer_that_is_installed_is_measured(tmp_path):
    notes: list[str] = []

    async def body():
        work = BrokerWorkload(100, 300)
        ours = dict.fromkeys(("loose", "durable", "decoding"), _Still())
        async with Peers(tmp_path, notes.append) as peers:
            return await compete(work, ours, peers, 1, True, silent, notes.append)

    done, results = asyncio.run(body())
    found = {each.name: each.value for each in results if "/vs_" in each.name}
    missing = [peer for peer in INSTALL if installed(peer) is None]
    assert len(notes) == len(missing), notes
    of = {contest.name: contest.peer for contest in broker_contest.contests(True)}
    assert {name for name, value in found.items() if value is None} == {
        f"broker/100/vs_{name}" for name, peer in of.items() if peer in missing
    }
    assert done["loose"][0].events == 1


class _Still:
    """A broker that costs a microsecond."""

    async def run(self):
        return Measured(1, 1, 1e-6, 1e-6, 1e-6)

    def close(self):
        """Nothing is open."""


def test_a_peer_that_does_not_start_is_named_and_costs_only_its_own_figures(tmp_path, monkeypatch):
    notes: list[str] = []
    words = f"import sys; sys.exit('no room at {tmp_path}')"
    broken = {name: lambda *_: PeerServer([sys.executable, "-c", words], free_port(), {}) for name in INSTALL}
    monkeypatch.setattr(broker_contest, "_SERVERS", broken)
    monkeypatch.setattr(broker_contest, "installed", lambda _: "there")

    async def body():
        ours = dict.fromkeys(("loose", "durable", "decoding"), _Still())
        async with Peers(tmp_path, notes.append) as peers:
            return await compete(BrokerWorkload(50, 100), ours, peers, 2, True, silent, notes.append)

    done, results = asyncio.run(body())
    assert sorted(notes) == [
        f"{name} was not measured: it does not start: no room at {tmp_path}" for name in sorted(INSTALL)
    ]
    assert all(each.value is None for each in results)
    assert len(done["loose"]) == 2


def test_consumers_that_find_other_matches_than_the_index_are_noticed():
    matches = iter([0, 6])
    runner = CheckedRunner(_Still(), lambda: next(matches), 7)
    with pytest.raises(RemoteProtocolError, match=r"consumers found 6 matches, and the index finds 7"):
        asyncio.run(runner.run())


@pytest.mark.slow
def test_whoever_ends_the_bench_leaves_no_broker_behind():
    bench = subprocess.Popen(
        [sys.executable, "-m", "weft", "bench", "broker", "--quick"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not (children := _children(bench.pid)):
        assert bench.poll() is None
        signal.sigtimedwait([signal.SIGUSR2], 0.1)
    bench.send_signal(signal.SIGTERM)
    assert bench.wait(120) == 128 + signal.SIGTERM
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(each) for each in file.read().split()]


needs_nats = pytest.mark.skipif(installed("nats") is None, reason=INSTALL["nats"])


async def _flooded(flood: Flood) -> Measured:
    try:
        return await flood.run()
    finally:
        flood.close()


@needs_nats
def test_nats_delivers_to_each_subscription_or_connection_of_a_symbol_and_consumers_filter(tmp_path):
    async def body():
        work = BrokerWorkload(200, 300)
        async with nats(installed("nats"), tmp_path) as server:
            each = await _flooded(await nats_load(server, work, work.events, each=True))
            wide = await _flooded(await nats_load(server, work, work.events, each=False))
            flood, matches = await filtering_load(server, work, work.events)
            filtered = await _flooded(flood)
            stored = await _flooded(await jetstream_load(server, work, work.events[:100]))
        assert each.deliveries == work.due_by_symbol(work.events, each=True) > wide.deliveries
        assert filtered.deliveries == wide.deliveries == work.due_by_symbol(work.events)
        assert matches() == work.matches(work.events) > 0
        assert stored.deliveries == work.due_by_symbol(work.events[:100])

    asyncio.run(body())


def test_a_load_whose_broker_goes_away_says_so():
    async def body():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        wire = await open_wire("127.0.0.1", server.sockets[0].getsockname()[1], NatsReader())
        with pytest.raises(ConnectionError, match="the broker closed a connection"):
            await flood(wire, [wire], [(1, b"x" * 1_000)] * 5, 1, [])
        server.close()
        await server.wait_closed()

    asyncio.run(body())


def in_pieces(reader, data: bytes, size: int) -> bytes:
    return b"".join(reader.feed(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_deliveries_are_counted_however_the_bytes_are_cut(size):
    nats = NatsReader()
    answers = in_pieces(nats, b"INFO {}\r\nMSG S1 1 3\r\nxxx\r\nPING\r\nMSG S12 2 3\r\nxxx\r\nPONG\r\n", size)
    assert (nats.deliveries, nats.pongs, answers) == (2, 1, b"PONG\r\n")
    mqtt = MqttReader()
    in_pieces(mqtt, b"\x20\x02\0\0" + _mqtt(0x30, b"\0\x02S1" + b"x" * 200) * 3, size)
    assert (mqtt.deliveries, mqtt.others) == (3, 1)
    amqp = AmqpReader(acking=True)
    delivery = _method(60, 60, b"\x01c" + pack(">Q", 7) + b"\0\x01x\x01k")
    said = in_pieces(amqp, _method(20, 11, b"\0\0\0\0") + delivery + _method(60, 80, pack(">QB", 5, 1)), size)
    assert (amqp.deliveries, amqp.confirmed, amqp.methods) == (1, 5, [(20, 11)])
    assert said == _method(60, 80, pack(">QB", 7, 1))


def test_confirmations_of_rabbitmq_are_counted_in_any_order():
    amqp = AmqpReader()
    seen = []
    for tag, multiple in ((2, 0), (1, 0), (5, 0), (4, 1), (3, 0), (8, 0), (7, 1)):
        amqp.feed(_method(60, 80, pack(">QB", tag, multiple)))
        seen.append(amqp.confirmed)
    assert seen == [0, 2, 2, 5, 5, 5, 8]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_whole_messages_are_read_however_the_bytes_are_cut(size):
    data = (
        b'INFO {}\r\nMSG S1 1 6\r\n\x81\xa5p\r\nx\r\nPING\r\nMSG _INBOX.answers 1 4\r\n{"a"\r\n'
        b"MSG S2 2 $JS.ACK.7 2\r\nxy\r\nPONG\r\n"
    )
    plain = LineReader()
    assert in_pieces(plain, data, size) == b"PONG\r\n"
    assert (plain.deliveries, plain.pongs, plain.replies) == (2, 1, [b'{"a"'])
    acknowledging = JetStreamReader()
    assert in_pieces(acknowledging, b"MSG S2 2 $JS.ACK.7 2\r\nxy\r\n", size) == b"PUB $JS.ACK.7 4\r\n+ACK\r\n"
    filtering = FilteringReader({"S1": [(1.0, 2.0), (1.5, 3.0), (2.0, 4.0)], "S2": [(n, n + 3) for n in range(20)]})
    for symbol, price in (("S1", 1.5), ("S2", 10.5), ("S2", 0.0), ("S1", 9.0)):
        body = msgspec.msgpack.encode({"symbol": symbol, "price": price})
        in_pieces(filtering, f"MSG {symbol} 1 {len(body)}\r\n".encode() + body + b"\r\n", size)
    assert (filtering.deliveries, filtering.matches) == (4, 2 + 3 + 1)
    with pytest.raises(RemoteProtocolError, match="Unknown Subject"):
        in_pieces(LineReader(), b"-ERR 'Unknown Subject'\r\n", size)
