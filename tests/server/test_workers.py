"""Several workers that look like one broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import weft
from free_ports import free_ports
from server.broker_program import BrokerProgram
from server.wire import PATIENCE, connect, run, until
from weft.broker.limits import ClientLimits
from weft.errors import OptionError, RequestError
from weft.protocol.addresses import Address
from weft.protocol.messages import Bye, Complete, Failed, Hello, Publish, Subscribe, Welcome
from weft.server import workers
from weft.server.config import AuthConfig, BrokerConfig
from weft.server.serve import start
from weft.server.workers import WorkerPlace, WorkerPool, check_count, home_of, worker_config


@asynccontextmanager
async def two_workers(tmp_path, **settings):
    """Two workers in this loop, and the address that clients know."""
    config = BrokerConfig(data=tmp_path / "data", workers=2, listen=(f"weft://127.0.0.1:{free_ports(3)}",), **settings)
    hub = Address("weft+unix", "", 0, f"{tmp_path}/hub")
    async with AsyncExitStack() as stack:
        nodes = []
        for worker in range(2):
            place = WorkerPlace(worker, 2, tuple(config.addresses), hub)
            started = start(worker_config(config, worker, tmp_path), place=place)
            nodes.append(await stack.enter_async_context(started))
        yield nodes, config.addresses[0]


async def at_home(address, name):
    """A connection of a session where it lives: redirects are followed."""
    for _ in range(3):
        wire = await connect(address, None)
        wire.send(Hello(session=name))
        await wire.until(lambda wire=wire: wire.all(Welcome) or wire.all(Bye))
        if wire.all(Welcome):
            return wire
        (bye,) = wire.all(Bye)
        assert bye.code == "moved"
        address = Address.parse(bye.reason)
    raise AssertionError("redirected too often")


def test_two_workers_in_one_loop(tmp_path):
    port = free_ports(3)
    config = BrokerConfig(data=tmp_path / "data", workers=2, listen=(f"weft://127.0.0.1:{port}",))
    hub = Address("weft+unix", "", 0, f"{tmp_path}/hub")

    async def body():
        nodes = []
        async with AsyncExitStack() as stack:
            for worker in range(2):
                place = WorkerPlace(worker, 2, tuple(config.addresses), hub)
                started = start(worker_config(config, worker, tmp_path), place=place)
                nodes.append(await stack.enter_async_context(started))
            names = ["session-0", "session-1", "session-2", "session-3"]
            assert {home_of(name, 2) for name in names} == {0, 1}
            readers = {name: await at_home(config.addresses[0], name) for name in names}
            for name, wire in readers.items():
                assert wire.transport.get_extra_info("peername")[1] in (port, port + 1 + home_of(name, 2))
                wire.send(Subscribe(1, f"to = '{name}' OR to = 'all'"))
                await wire.get(Complete)
            writer = await at_home(config.addresses[0], "writer")
            writer.send(Publish.of(1, {"to": "all"}), *(Publish.of(n, {"to": to}) for n, to in enumerate(names, 2)))
            for wire in readers.values():
                await wire.delivered(2)
            async with weft.connect(str(config.addresses[0]), name="client") as client:  # follows redirects by itself
                subs = [await client.subscribe("to = 'clients'", name=name) for name in ("work-0", "work-1", "work-2")]
                for sub in subs:
                    await sub.complete()
                await client.publish({"to": "clients"})
                for sub in subs:
                    async for event in sub:
                        await event.ack()
                        break
            assert sum(node.core.counts.get("redirected", 0) for node in nodes) > 0
            away = readers[next(name for name in names if home_of(name, 2) != home_of("work", 2))]
            away.send(Subscribe(2, "TRUE", share="work", queue=3))
            assert "'work' is at weft://" in (await away.get(Failed)).reason

    run(body())


def test_a_shared_name_is_one_queue_whichever_worker_its_consumers_reach(tmp_path):
    names = ("work", "builds")
    assert {home_of(name, 2) for name in names} == {0, 1}

    async def consume(sub, seen):
        async for event in sub:
            seen.append((event["to"], event["n"]))
            await event.ack()

    async def body():
        async with two_workers(tmp_path) as (nodes, address), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(weft.connect(str(address))) for _ in range(6)]
            seen, tasks, many = {}, [], 60
            for name in names:
                for number, client in enumerate(clients):
                    sub = await client.subscribe(f"to = '{name}'", name=name, shared=True)
                    await sub.complete()
                    tasks.append(asyncio.create_task(consume(sub, seen.setdefault((name, number), []))))
            for n in range(many):
                await clients[n % 6].publish_many({"to": name, "n": n} for name in names)
            await until(lambda: sum(map(len, seen.values())) >= 2 * many)
            for name in names:
                got = [each for (asked, _), some in seen.items() if asked == name for each in some]
                assert sorted(got) == [(name, n) for n in range(many)], "each event goes to one consumer, once"
            for node, (name,) in zip(
                nodes, ([n for n in names if home_of(n, 2) == at] for at in range(2)), strict=True
            ):
                assert [share for _, share in node.core._queues.shared] == [name]
            for task in tasks:
                task.cancel()

    run(body())


def test_dead_letters_of_a_name_are_found_at_its_worker(tmp_path):
    async def body():
        some = two_workers(tmp_path, limits=ClientLimits(failures=1))
        async with some as (_, address), weft.connect(str(address)) as client:
            for name, shared in [("work", True), ("builds", True), ("session-0", False), ("session-1", False)]:
                sub = await client.subscribe("x = 1", name=name, shared=shared)
                await sub.complete()
                await client.publish({"x": 1})
                await (await sub.receive(PATIENCE)).nack("no")
                letters = []
                async with asyncio.timeout(PATIENCE):
                    while not letters:
                        letters = await client.dead_letters.list(name, shared=shared)
                assert await client.dead_letters.discard(letters[0].offset, name=name, shared=shared)
                await sub.unsubscribe()
            with pytest.raises(RequestError, match="there is no shared subscription 'nothing'"):
                await client.dead_letters.list("nothing", shared=True)

    run(body())


@pytest.mark.slow
def test_consumers_of_a_shared_name_come_back_to_its_worker_when_it_was_killed(tmp_path):
    port = free_ports(3)
    with BrokerProgram(tmp_path / "data", "--workers", "2", listen=f"weft://127.0.0.1:{port}") as broker:
        assert home_of("orders", 2) == 1

        async def body():
            async with weft.connect(f"weft://127.0.0.1:{port}") as client, AsyncExitStack() as stack:
                some = [await stack.enter_async_context(weft.connect(client.address)) for _ in range(2)]
                subs = [await each.subscribe("n >= 0", name="orders", shared=True) for each in some]
                for sub in subs:
                    await sub.complete()
                seen = set()

                async def consume(sub):
                    async for event in sub:
                        await event.ack()
                        seen.add(event["n"])

                tasks = [asyncio.create_task(consume(sub)) for sub in subs]
                await client.publish_many({"n": n} for n in range(50))
                await until(lambda: len(seen) == 50)
                victim = next(line for line in broker.lines if "worker=1" in line and "ready" in line)
                os.kill(int(victim.rpartition("process=")[2]), signal.SIGKILL)
                await client.publish_many({"n": n} for n in range(50, 100))
                await until(lambda: len(seen) == 100)
                for task in tasks:
                    task.cancel()

        run(body())
        assert broker.stop() == 0


@pytest.mark.slow
def test_sessions_live_where_their_names_say_and_a_worker_that_is_killed_comes_back(tmp_path):
    port = free_ports(4)
    with BrokerProgram(tmp_path / "data", "--workers", "3", listen=f"weft://127.0.0.1:{port}") as broker:
        names = ["a", "b", "c", "h", "i", "j"]
        assert {home_of(name, 3) for name in names} == {0, 1, 2}

        async def body():
            base = Address("weft", "127.0.0.1", port)
            readers = {name: await at_home(base, name) for name in names}
            for name, wire in readers.items():
                assert wire.transport.get_extra_info("peername")[1] in (port, port + 1 + home_of(name, 3))
                wire.send(Subscribe(1, f"to = '{name}' OR to = 'all'"))
            for wire in readers.values():
                await wire.get(Complete)  # at every worker
            writer = await at_home(base, "writer")
            writer.send(Publish.of(1, {"to": "all"}), *(Publish.of(n, {"to": to}) for n, to in enumerate(names, 2)))
            await writer.published(7)
            for wire in readers.values():
                await wire.delivered(2)
            victim = next(line for line in broker.lines if f"worker={home_of('b', 3)}" in line and "ready" in line)
            os.kill(int(victim.rpartition("process=")[2]), signal.SIGKILL)
            await readers["b"].gone()
            writer = await at_home(base, "writer") if writer.closed else writer
            writer.send(Publish.of(8, {"to": "all"}))
            await writer.published(8)
            again = await _until_there(base, "b")
            assert len(await again.delivered(3)) == 3  # two were not acknowledged

        run(body())
        assert broker.stop() == 0
        command = [sys.executable, "-m", "weft", "serve", "--data", str(broker.data), "--workers", "2"]
        done = subprocess.run([*command, "--listen", broker.listen], capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 1
        assert "was made with 3 workers" in done.stderr


async def _until_there(base, name):
    """Connect as soon as the worker is back."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await at_home(base, name)
            except (OSError, AssertionError):
                await asyncio.sleep(0.1)


class Lines:
    """Notes what a pool logs."""

    def __init__(self, on_ready):
        self.seen = []
        self._on_ready = on_ready

    def info(self, message, **_):
        self.seen.append(message)
        if message == "ready":
            self._on_ready(self.seen.count("ready"))

    def error(self, message, **fields):
        self.seen.append((message, fields.get("code")))


# a worker that does what the first line of a file says, which it removes
ACTOR = """
import os, signal, sys
path = {path!r}
with open(path) as file:
    now, *later = file.read().split()
with open(path, "w") as file:
    file.write(" ".join(later))
if now == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if now == "fails":
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("ready", flush=True)
if now == "ends":
    sys.exit(1)
while True:
    signal.pause()
"""


def run_actors(tmp_path, monkeypatch, *acts, ready):
    """Run one worker that does this in turn; the pool is stopped when it has been ready so often."""
    file = tmp_path / "acts"
    file.write_text(" ".join(acts))
    monkeypatch.setattr(workers, "_PROGRAM", ACTOR.format(path=str(file)))
    monkeypatch.setattr(workers, "_AGAIN", 0.001)

    async def body():
        lines = Lines(lambda times: pool.stop() if times == ready else None)
        pool = WorkerPool(BrokerConfig(data=tmp_path / "data", listen=("weft://127.0.0.1:9338",)), tmp_path, lines)
        async with asyncio.timeout(60):
            await pool.run()
        return pool.failed, lines.seen, file.read_text().split()

    return asyncio.run(body())


def test_a_worker_that_is_killed_while_it_starts_again_is_started_again(tmp_path, monkeypatch):
    failed, seen, left = run_actors(tmp_path, monkeypatch, "ends", "killed", "fails", "killed", "stays", ready=2)
    codes = [1, -signal.SIGKILL, 1, -signal.SIGKILL]
    assert seen == ["ready", *(("worker ended", code) for code in codes), "ready"]
    assert not failed
    assert left == []


def test_its_twin_one_that_cannot_start_again_ends_them_all_after_some_attempts(tmp_path, monkeypatch):
    acts = ["ends", *["fails"] * (workers.MOST_STARTS - 1), "ends", *["fails"] * (workers.MOST_STARTS + 1), "stays"]
    failed, seen, left = run_actors(tmp_path, monkeypatch, *acts, ready=3)
    assert failed
    assert seen.count("ready") == 2, "a start that succeeds counts from the beginning"
    assert left == ["fails", "stays"]


def test_a_worker_that_cannot_start_at_all_ends_them_all_at_once(tmp_path, monkeypatch):
    failed, seen, left = run_actors(tmp_path, monkeypatch, "fails", "stays", ready=1)
    assert failed
    assert seen == [("worker ended", 1)]
    assert left == ["stays"]


def test_the_number_of_workers_belongs_to_the_data(tmp_path):
    check_count(tmp_path / "new", 4)
    check_count(tmp_path / "new", 4)
    with pytest.raises(OptionError, match="was made with 4 workers"):
        check_count(tmp_path / "new", 1)
    check_count(tmp_path / "single", 1)
    assert not (tmp_path / "single").exists()
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "log.sqlite").touch()
    with pytest.raises(OptionError, match="was made with 1 worker,"):
        check_count(tmp_path / "single", 2)


def test_workers_need_a_port_that_is_known(tmp_path):
    config = BrokerConfig(data=tmp_path, workers=2, listen=("weft://127.0.0.1:0",))
    with pytest.raises(OptionError, match="fixed port"):
        worker_config(config, 0, tmp_path)


def test_settings_are_shared_out(tmp_path):
    config = BrokerConfig(name="north", data=tmp_path, workers=3, listen=("weft://127.0.0.1:7000",), http="7100")
    one, two = (worker_config(config, worker, tmp_path) for worker in (0, 2))
    assert (one.name, two.name) == ("north", "north-2")
    assert one.listen == ("weft://127.0.0.1:7000", "weft://127.0.0.1:7001")
    assert two.listen == ("weft://127.0.0.1:7000", "weft://127.0.0.1:7003")
    assert (sorted(one.links), list(two.links)) == (["north-1", "north-2"], ["north"])
    assert (one.http, two.http) == ("[127.0.0.1]:7100", "[127.0.0.1]:7102")


def test_workers_are_linked_where_clients_need_tokens(tmp_path):
    port = free_ports(3)
    key = {"kty": "oct", "k": "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE", "kid": "1", "alg": "HS256"}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [key]}), encoding="utf-8")
    auth = AuthConfig(keys=tmp_path / "keys.json")
    listen = (f"weft://127.0.0.1:{port}",)
    config = BrokerConfig(data=tmp_path / "data", workers=2, listen=listen, auth=auth)
    hub = Address("weft+unix", "", 0, f"{tmp_path}/hub")

    async def body():
        async with AsyncExitStack() as stack:
            nodes = []
            for worker in range(2):
                place = WorkerPlace(worker, 2, tuple(config.addresses), hub)
                started = start(worker_config(config, worker, tmp_path), place=place)
                nodes.append(await stack.enter_async_context(started))
            await until(lambda: all(link.warm and link.connected for node in nodes for link in node.core.links()))
            stranger = await connect(config.addresses[0], None)
            stranger.send(Hello(session="anybody"))
            await stranger.gone()
            assert [bye.code for bye in stranger.all(Bye)] == ["refused"]  # and not where the session lives

    run(body())
