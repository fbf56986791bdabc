"""`weft serve` as a real process: it starts, drains, is killed, and has lost nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from random import Random

import msgspec
import pytest
from typer.testing import CliRunner

import weft
from server.broker_program import BrokerProgram
from server.wire import Wire, connect, run
from strategies import EXAMPLES
from weft.cli.app import app
from weft.errors import LogError
from weft.protocol.messages import Accepted, Ack, Bye, Deliver, Hello, Publish, Published, Subscribe, Welcome
from weft.server.config import BrokerConfig
from weft.server.serve import start


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A broker for several tests; the last one stops it."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProgram(data, "--http", "127.0.0.1:0", "--name", "north") as broker:
        yield broker


def test_metrics_health_and_status_of_a_process(program):
    broker = program

    async def body():
        wire = await connect(broker.address, Hello(session="s"))
        wire.send(Subscribe(1, "TRUE"), *(Publish.of(n, {"n": n}) for n in range(1, 11)))
        await wire.published(10)
        await wire.delivered(10)

    run(body())
    with urllib.request.urlopen(f"{broker.http}/health") as answer:
        assert json.load(answer)["ready"] is True
    with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
        figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    assert float(figures["weft_log_events_total"]) == 10
    assert float(figures["weft_events_delivered_total"]) == 10
    assert float(figures['weft_queue_behind{queue="0",session="s",share=""}']) == 10
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"{broker.http}/secret")
    caught.value.close()
    command = [sys.executable, "-m", "weft", "status", "--broker", broker.listen, "--json"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    status = json.loads(done.stdout)
    assert (status["end"], status["subscriptions"], status["driver"]["name"]) == (11, 1, "north")
    assert status["furthest"][0]["behind"] == 10
    shown = CliRunner().invoke(app, ["status", "--broker", broker.listen]).stdout
    assert "weft://127.0.0.1" in shown
    assert "durable" in shown


def test_a_second_broker_in_the_same_directory_is_refused(program):
    async def second():
        async with start(BrokerConfig(data=program.data, listen=("weft://127.0.0.1:0",))):
            pass

    with pytest.raises(LogError, match=f"is in use by process {program.pid}"):
        run(second())


def test_a_broker_drains_when_it_is_told_to_stop(program):
    broker = program

    async def body():
        wire = await connect(broker.address, Hello(session="drained"))
        wire.send(Subscribe(1, "TRUE"), *(Publish.of(n, {"n": n}) for n in range(1, 501)))
        await wire.published(1)
        stopped = asyncio.get_running_loop().run_in_executor(None, broker.stop)
        await wire.gone()
        assert [message.code for message in wire.all(Bye)] == ["stopping"]
        assert await stopped == 0
        return wire.all(Published)[-1].upto

    confirmed = run(body())
    assert [line.split()[2] for line in broker.lines][-2:] == ["stopping", "stopped"]
    broker.start()

    async def again():
        wire = await connect(broker.address, Hello(session="drained"))
        assert wire.all(Welcome)[0].pub_seq >= confirmed
        await wire.delivered(confirmed)

    run(again())


def test_a_broker_that_is_killed_under_load_has_lost_nothing_that_it_confirmed(tmp_path):
    run(_killed(BrokerProgram(tmp_path / "data"), times=1))


async def _killed(broker: BrokerProgram, times: int) -> None:
    """A publisher and a subscriber, resumed after each kill: everything arrives in order, nothing is wrong."""
    rng, seen, seen_offsets = Random(7), list[int](), set[int]()
    confirmed = sent = 0
    loop = asyncio.get_running_loop()
    for turn in range(times + 1):
        await loop.run_in_executor(None, broker.start)
        reader = await connect(broker.address, Hello(session="reader"))
        if turn == 0:
            reader.send(Subscribe(1, "n > 0"))
            await reader.get(Accepted)
        writer = await connect(broker.address, Hello(session="writer"))
        stored = writer.all(Welcome)[0].pub_seq
        assert confirmed <= stored <= sent, "an event that was confirmed is gone"
        sent = stored
        goal = sent + rng.randrange(300, 600 if EXAMPLES == 1 else 2_000)
        last = turn == times
        while writer.all(Published)[-1:] == [] or writer.all(Published)[-1].upto < goal:
            writer.send(*(Publish.of(n, {"n": n}, bytes(200)) for n in range(sent + 1, sent + 101)))
            sent += 100
            await writer.published(sent - 300)
            _read(reader, seen, seen_offsets)
        if last:
            await writer.published(sent)
            async with asyncio.timeout(60):
                while not seen or seen[-1] < sent:
                    _read(reader, seen, seen_offsets)
                    await asyncio.sleep(0.01)
        await loop.run_in_executor(None, broker.kill)
        await writer.gone()
        await reader.gone()
        confirmed = writer.all(Published)[-1].upto
        _read(reader, seen, seen_offsets, acknowledge=False)
    assert seen == list(range(1, sent + 1))


def _read(reader: Wire, seen: list[int], offsets: set[int], acknowledge: bool = True) -> None:
    """Take what was delivered: it is new and in order, or it may have been delivered before."""
    events = [message for message in reader.messages if isinstance(message, Deliver)]
    reader.messages.clear()
    for event in events:
        n = msgspec.msgpack.decode(event.head)[0]["n"]
        if n <= len(seen):
            assert event.attempt > 1
            continue
        assert n == len(seen) + 1, "an event is missing, or out of order"
        assert event.offset not in offsets
        offsets.add(event.offset)
        seen.append(n)
    if events and acknowledge:
        reader.send(Ack(0, events[-1].offset + 1))


@pytest.mark.slow
def test_the_first_broker_of_a_machine_serves_while_its_kernels_are_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    program = BrokerProgram(tmp_path / "data")
    program.start()
    try:
        assert any(" info compiling " in line for line in program.lines)
        assert not any(" info compiled" in line for line in program.lines)
        with weft.connect_sync(str(program.address)) as client, client.subscribe("x > 5", name="alerts") as alerts:
            client.publish({"x": 7})
            assert alerts.receive(timeout=300)["x"] == 7
    finally:
        program.stop()
