"""weft bench broker, tiny: every broker that starts quickly is measured once, and protocols are read piece by piece."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest

from weft.bench import broker_peers as peers
from weft.bench.broker import Workload, _chain, _peers, _weft
from weft.bench.broker_memory import connections, soak
from weft.bench.report import Result


def test_weft_is_measured_durable_and_not(tmp_path):
    results = asyncio.run(_weft(Workload(100, 300), tmp_path, True, lambda _: None, 0.001))
    found = {each.name: each.value for each in results}
    for kind in ("loose", "durable"):
        assert found[f"broker/100/{kind}/cpu"] > 0
        assert found[f"broker/100/{kind}/delivery p50"] > 0
    assert found["broker/100/durable/acknowledgement p99"] > 0


@pytest.mark.slow
def test_a_chain_is_measured(tmp_path):
    (rate, cpu) = asyncio.run(_chain(Workload(100, 300), tmp_path, lambda _: None))
    assert rate.value > 0
    assert cpu.value > 0


@pytest.mark.slow
def test_memory_is_measured(tmp_path):
    work = Workload(100, 300)
    assert asyncio.run(connections(20)).value > 0
    grown = asyncio.run(soak(work.texts, work.events, work.due(work.events), tmp_path, 3.0, lambda _: None))
    assert grown.value is not None


@pytest.mark.slow
def test_every_peer_that_is_installed_is_measured(tmp_path):
    notes: list[str] = []
    known = [Result("broker/100/loose/cpu", 10.0, ""), Result("broker/100/durable/cpu", 20.0, "")]
    results = asyncio.run(_peers(Workload(100, 300), tmp_path, True, lambda _: None, notes.append, known))
    found = {each.name: each.value for each in results if "/vs " in each.name}
    missing = [peer for peer in peers.INSTALL if peers.installed(peer) is None]
    assert len(notes) == len(missing)
    assert all((value is None) == any(peer in name for peer in missing) for name, value in found.items())


@pytest.mark.skipif(peers.installed("nats") is None, reason=peers.INSTALL["nats"])
def test_nats_delivers_each_event_to_each_subscription_of_its_symbol(tmp_path):
    async def body():
        async with peers.nats(peers.installed("nats"), tmp_path) as server:
            symbols = [["S1", "S1"], ["S2"]]
            done = await peers.nats_load(server, symbols, ["S1", "S2", "S3"] * 50, 150, True)
            assert (done.events, done.deliveries) == (150, 150)

    asyncio.run(body())


def in_pieces(reader, data: bytes, size: int) -> bytes:
    return b"".join(reader.feed(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_deliveries_are_counted_however_the_bytes_are_cut(size):
    nats = peers.NatsReader()
    answers = in_pieces(nats, b"INFO {}\r\nMSG S1 1 3\r\nxxx\r\nPING\r\nMSG S12 2 3\r\nxxx\r\nPONG\r\n", size)
    assert (nats.deliveries, nats.pongs, answers) == (2, 1, b"PONG\r\n")
    mqtt = peers.MqttReader()
    in_pieces(mqtt, b"\x20\x02\0\0" + peers._mqtt(0x30, b"\0\x02S1" + b"x" * 200) * 3, size)
    assert (mqtt.deliveries, mqtt.others) == (3, 1)
    amqp = peers.AmqpReader(acking=True)
    delivery = peers._method(60, 60, b"\x01c" + pack(">Q", 7) + b"\0\x01x\x01k")
    said = in_pieces(
        amqp, peers._method(20, 11, b"\0\0\0\0") + delivery + peers._method(60, 80, pack(">QB", 5, 1)), size
    )
    assert (amqp.deliveries, amqp.confirmed, amqp.methods) == (1, 5, [(20, 11)])
    assert said == peers._method(60, 80, pack(">QB", 7, 1))
