"""Brokers on a ring over real sockets: any client gets what is published anywhere, whoever joins, leaves or dies."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import weft
from free_ports import free_ports
from weft.errors import OptionError
from weft.protocol.addresses import Address
from weft.ring.bridge import RING
from weft.ring.intervals import Intervals
from weft.ring.topics import SuperTopics
from weft.server.config import BrokerConfig, LinkConfig
from weft.server.node import BrokerNode
from weft.server.ring_config import RingConfig, ring_config
from weft.server.ring_service import RingService
from weft.server.ring_status import NodeReport, ask, walk
from weft.server.serve import start

CUTS = (Intervals("x", 0, 100, 10),)
KEY = b"sixteen bytes or more"


async def node(
    stack: AsyncExitStack,
    name: str,
    *known: str,
    intervals: tuple[Intervals, ...] = CUTS,
    key: bytes = KEY,
    topic: str = "",
    merge: SuperTopics | None = None,
) -> tuple[BrokerNode, RingService]:
    config = BrokerConfig(
        name=name, listen=("weft://127.0.0.1:0",), memory=True, model="simple", links={RING: LinkConfig()}
    )
    broker = await stack.enter_async_context(start(config))
    ring = RingConfig(join=known, new_ring=not known, intervals=intervals, key=key, topic=topic, merge=merge)
    return broker, await stack.enter_async_context(RingService(broker, ring))


async def settled(address: str, nodes: int, key: bytes = b"") -> list[NodeReport]:
    """What the nodes say, once so many of them know each other."""
    async with asyncio.timeout(60):
        while len(reports := await walk(address, key)) != nodes:
            await asyncio.sleep(0.1)
        return reports


def test_a_client_of_any_node_gets_what_is_published_at_another() -> None:
    async def body() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            first, ring = await node(stack, "a")
            second, other = await node(stack, "b", ring.address)
            third, last = await node(stack, "c", ring.address)
            await asyncio.gather(other.joined, last.joined)
            async with weft.connect(str(first.addresses[0])) as there, weft.connect(str(third.addresses[0])) as here:
                wanted = there.subscribe("x > 50", name="high")
                await wanted.complete()
                await here.publish_many([{"x": 10}, {"x": 60}, {"y": 1}, {"x": 70}])
                got = []
                async for event in wanted:
                    got.append(event["x"])
                    await event.ack()
                    if len(got) == 2:
                        break
                assert sorted(got) == [60, 70]
            reports = await settled(other.address, 3, KEY)
            assert [each.broker for each in reports] == [
                each.name
                for _, each in sorted(
                    (s.bridge.node.me.id, n) for s, n in ((ring, first), (other, second), (last, third))
                )
            ]
            assert sum(each.published for each in reports) == 4
            assert sum(each.received for each in reports) == 2

    asyncio.run(body())


def test_topics_are_stored_at_the_nodes_that_subscribe_to_them() -> None:
    async def body() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            first, ring = await node(stack, "a", topic="kind")
            second, other = await node(stack, "b", ring.address, topic="kind")
            third, last = await node(stack, "c", ring.address, topic="kind")
            await asyncio.gather(other.joined, last.joined)
            clients = [await stack.enter_async_context(weft.connect(str(n.addresses[0]))) for n in (first, second)]
            tennis = clients[0].subscribe("kind = 'tennis' AND x > 50", name="tennis")
            both = clients[1].subscribe("kind IN ('tennis', 'chess')", name="both")
            high = clients[1].subscribe("x > 80", name="any topic")
            for wanted in (tennis, both, high):
                await wanted.complete()
            publisher = await stack.enter_async_context(weft.connect(str(third.addresses[0])))
            await publisher.publish_many(
                [{"kind": "tennis", "x": 60}, {"kind": "chess", "x": 70}, {"kind": "golf", "x": 90}, {"x": 95}]
            )
            for wanted, expected in ((tennis, [60]), (both, [60, 70]), (high, [90, 95])):
                got = []
                async for event in wanted:
                    got.append(event["x"])
                    await event.ack()
                    if len(got) == len(expected):
                        break
                assert sorted(got) == expected
            reports = await settled(other.address, 3, KEY)
            assert {each.broker: each.topics for each in reports} == {
                "a": ["tennis"],
                "b": ["", "chess", "tennis"],
                "c": [],
            }
            assert {each.broker for each in reports if each.load} <= {"a", "b"}, "nobody else stores them"

    asyncio.run(body())


def test_similar_topics_are_merged_while_events_flow() -> None:
    merge = SuperTopics(2, 0, period=300_000)

    async def body() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            first, ring = await node(stack, "a", topic="kind", merge=merge)
            second, other = await node(stack, "b", ring.address, topic="kind", merge=merge)
            third, last = await node(stack, "c", ring.address, topic="kind", merge=merge)
            await asyncio.gather(other.joined, last.joined)
            clients = [await stack.enter_async_context(weft.connect(str(n.addresses[0]))) for n in (first, second)]
            wanted = [client.subscribe("kind IN ('tennis', 'chess')", name="both") for client in clients]
            for each in wanted:
                await each.complete()
            publisher = await stack.enter_async_context(weft.connect(str(third.addresses[0])))
            hosts = last.bridge.node.groups
            assert hosts is not None
            sent = 0
            while {hosts.host("tennis"), hosts.host("chess")} != {"chess+tennis"}:
                await publisher.publish({"kind": ("tennis", "chess")[sent % 2], "x": sent})
                sent += 1
                await asyncio.sleep(0.02)
            for _ in range(4):
                await publisher.publish({"kind": ("tennis", "chess")[sent % 2], "x": sent})
                sent += 1
            for each in wanted:
                got = []
                async for event in each:
                    got.append(event["x"])
                    await event.ack()
                    if len(got) == sent:
                        break
                assert sorted(got) == list(range(sent))

    asyncio.run(body())


def test_a_node_that_differs_or_has_another_key_is_refused_with_the_reason() -> None:
    async def body() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            _, ring = await node(stack, "a")
            for name, options, reason in (
                ("b", {"intervals": ()}, "the nodes differ: this ring has 2 replicas and intervals of x from 0 to 100"),
                ("c", {"key": b"another key, as long"}, "the key is not that of this ring"),
            ):
                broker, other = await node(stack, name, ring.address, **options)  # type: ignore[arg-type]
                refused = asyncio.get_running_loop().create_future()
                other._transport.refused = lambda text, refused=refused: refused.done() or refused.set_result(text)
                assert reason in await refused
                assert not other.joined.done()
            with pytest.raises(OptionError, match="the key is not that of this ring"):
                await ask(ring.address, b"wrong")
            with pytest.raises(OptionError, match="is not a node of a ring"):
                await ask(str(broker.addresses[0]), KEY)

    asyncio.run(body())


def test_a_node_that_is_started_again_joins_the_members_that_it_knows(tmp_path: Path) -> None:
    """The first node of a ring, with the command that began it."""

    async def begin(stack: AsyncExitStack, name: str, ring: RingConfig) -> RingService:
        config = BrokerConfig(
            name=name, listen=("weft://127.0.0.1:0",), memory=True, model="simple", links={RING: LinkConfig()}
        )
        broker = await stack.enter_async_context(start(config))
        return await stack.enter_async_context(RingService(broker, ring))

    async def body() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            listen = Address.parse(f"127.0.0.1:{free_ports()}")
            config = RingConfig(listen, new_ring=True, data=tmp_path)
            async with AsyncExitStack() as first:
                ring = await begin(first, "a", config)
                other = await begin(stack, "b", RingConfig(join=(ring.address,)))
                await other.joined
                await settled(ring.address, 2)
                life = ring.bridge.node.me.life
            await settled(other.address, 1)
            again = await begin(stack, "a", config)
            await again.joined
            assert again.bridge.node.me.life > life
            assert {each.address for each in await settled(again.address, 2)} == {ring.address, other.address}
            with pytest.raises(OptionError, match="--new-ring"):
                await begin(stack, "c", RingConfig())

    asyncio.run(body())


def test_a_member_that_is_gone_is_named_until_it_is_forgotten() -> None:
    async def body() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            broker, ring = await node(stack, "a")
            lost = AsyncExitStack()
            _, other = await node(lost, "b", ring.address)
            await other.joined
            await settled(ring.address, 2, KEY)
            other._transport.close()  # as if it were killed
            while not (report := await ask(ring.address, KEY)).unreachable:
                await asyncio.sleep(0.1)
            assert list(report.unreachable) == [other.address]
            assert broker.more_health()["ring"]["unreachable"].keys() == {other.address}
            report = await ask(ring.address, KEY, forgets=other.address)
            assert not report.unreachable
            assert report.members == 0
            other.bridge.node.chord.successors.clear()  # nobody is there to leave to
            await lost.aclose()

    asyncio.run(body())


def test_a_node_is_known_by_another_address_than_the_one_at_which_it_listens() -> None:
    async def body() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            known, bound = (free_ports(2) + offset for offset in range(2))
            config = BrokerConfig(
                name="a", listen=("weft://127.0.0.1:0",), memory=True, model="simple", links={RING: LinkConfig()}
            )
            broker = await stack.enter_async_context(start(config))
            made = ring_config(f"127.0.0.1:{known}", (), (), None, bind=f"127.0.0.1:{bound}", new_ring=True)
            ring = await stack.enter_async_context(RingService(broker, made))
            assert (await ask(f"127.0.0.1:{bound}")).address == ring.address == f"weft://127.0.0.1:{known}"

    asyncio.run(body())
    with pytest.raises(OptionError, match="--ring HOST:PORT"):
        ring_config("127.0.0.1:0", (), (), None, bind="127.0.0.1:7000")
    with pytest.raises(OptionError, match="needs a key"):
        ring_config("127.0.0.1:7000", (), (), None, bind="192.0.2.1:7000")


def test_bad_settings_are_refused() -> None:
    with pytest.raises(OptionError, match="needs a key"):
        RingConfig(Address.parse("weft://192.0.2.1:7000"))
    with pytest.raises(OptionError, match="NAME=LOW:HIGH:COUNT"):
        ring_config("127.0.0.1:0", (), ["x=1:2"], None)
    with pytest.raises(weft.WeftError, match="at least one interval"):
        ring_config("127.0.0.1:0", (), ["x=1:2:0"], None)
    with pytest.raises(weft.WeftError, match="finite bounds"):
        ring_config("127.0.0.1:0", (), ["x=2:1:3"], None)
    with pytest.raises(OptionError, match=r"NAME=FIRST\.\.LAST:COUNT"):
        ring_config("127.0.0.1:0", (), ["time=2026-01-01..soon:3"], None)
    with pytest.raises(OptionError, match="--topic NAME"):
        ring_config("127.0.0.1:0", (), (), None, rotate=5)
    with pytest.raises(OptionError, match="--topic NAME"):
        ring_config("127.0.0.1:0", (), (), None, merge="2:1")
    with pytest.raises(OptionError, match="KIND:NODES:THRESHOLD, not 'half'"):
        ring_config("127.0.0.1:0", (), (), None, share="half")
    shared = ring_config("127.0.0.1:0", (), (), None, share="replication:3:20")
    assert "replication among 3 nodes above 20 subscriptions" in shared.agreement
    with pytest.raises(OptionError, match="EQUAL:UNEQUAL, not '2'"):
        ring_config("127.0.0.1:0", (), (), None, topic="kind", merge="2")
    with pytest.raises(weft.WeftError, match="one common member or more"):
        ring_config("127.0.0.1:0", (), (), None, topic="kind", merge="0:1")
    merging = ring_config("127.0.0.1:0", (), (), None, topic="kind", merge="2:1")
    assert "groups by kind of depth 4 merged with 2 equal and 1 unequal members" in merging.agreement
    with pytest.raises(OptionError, match="120 seconds or more, not 5"):
        ring_config("127.0.0.1:0", (), (), None, keep=5)
    assert ring_config("127.0.0.1:0", (), (), None, keep=200).agreement.endswith(
        "waits 200 s for brokers that are down"
    )
    with pytest.raises(weft.WeftError, match="depth of a group tree is 0 to 32"):
        ring_config("127.0.0.1:0", (), (), None, topic="kind", depth=40)
    made = ring_config("127.0.0.1:0", (), ["time=2026-01-01..2027-01-01:365"], None)
    assert "time from 2026-01-01T00:00:00Z to 2027-01-01T00:00:00Z in 365" in made.agreement


def test_a_connection_that_is_accepted_as_the_ring_ends_is_closed() -> None:
    async def body() -> socket.socket:
        async with AsyncExitStack() as stack:
            _, ring = await node(stack, "a")
            address = Address.parse(ring.address)
            client = socket.create_connection((address.host, address.port))  # connected before anybody accepts
            accepted = asyncio.Event()

            def close() -> None:  # timers come after sockets in a turn
                ring._transport.close()
                accepted.set()

            asyncio.get_running_loop().call_later(0, close)
            await accepted.wait()
        return client

    with asyncio.run(body()) as client:
        client.settimeout(60)
        while client.recv(100):
            pass
    gc.collect()  # a transport that was left open would warn, and warnings are errors


class RingProgram:
    """`weft ring serve` as a process."""

    def __init__(self, data: Path, join: str = "", *options: str) -> None:
        command = [sys.executable, "-m", "weft", "ring", "serve", "--data", str(data), "--name", data.name]
        command += ["--listen", "weft://127.0.0.1:0", "--intervals", "x=0:1000:20", "--replicas", "3"]
        self.process = subprocess.Popen(
            [*command, *(["--join", join] if join else ["--new-ring"]), *options],
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.clients = self.ring = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r" listening address=(\S+)", line):
                self.clients = found[1]
            if found := re.search(r" ring address=(\S+)", line):
                self.ring = found[1]
            if (" info ready " in line and not join) or " info joined " in line:
                return
        raise AssertionError("the node did not start")

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)
            self.process.communicate()


@pytest.mark.slow
def test_five_processes_one_killed_and_one_joining_under_load_lose_nothing(tmp_path: Path) -> None:
    first = RingProgram(tmp_path / "n0")
    nodes = [first, *(RingProgram(tmp_path / f"n{number}", first.ring) for number in range(1, 5))]
    total = 400

    async def body() -> list[int]:
        async with (
            asyncio.timeout(300),
            weft.connect(nodes[1].clients) as publisher,
            weft.connect(nodes[2].clients) as subscriber,
        ):
            wanted = subscriber.subscribe("x >= 0", name="all")
            await wanted.complete()

            async def publish() -> None:
                for number in range(total):
                    if number == total // 4:
                        nodes[3].end()  # it stores subscriptions, and has no clients
                    if number == total // 2:
                        nodes.append(await asyncio.to_thread(RingProgram, tmp_path / "n5", first.ring))
                    await publisher.publish({"x": number % 1000, "number": number})

            publishing = asyncio.create_task(publish())
            got = []
            async for event in wanted:
                got.append(event["number"])
                await event.ack()
                if len(got) == total:
                    break
            await publishing
            return got

    try:
        got = asyncio.run(body())
        assert sorted(got) == list(range(total)), "each acknowledged event came once"
        asyncio.run(settled(first.ring, 5))
        for program in (nodes[4], nodes[5]):
            program.end(signal.SIGTERM)  # they leave in order
        asyncio.run(settled(first.ring, 3))
    finally:
        for program in nodes:
            program.end()


@pytest.mark.slow
def test_topic_groups_of_five_processes_lose_nothing_while_nodes_die_join_and_leave(tmp_path: Path) -> None:
    options = ("--topic", "kind", "--depth", "3", "--rotate", "2")
    first = RingProgram(tmp_path / "n0", "", *options)
    nodes = [first, *(RingProgram(tmp_path / f"n{number}", first.ring, *options) for number in range(1, 5))]
    total = 300

    async def body() -> list[list[int]]:
        async with (
            asyncio.timeout(300),
            weft.connect(nodes[1].clients) as publisher,
            weft.connect(nodes[0].clients) as one,
            weft.connect(nodes[2].clients) as other,
        ):
            wanted = [
                one.subscribe("kind = 'a' AND x >= 0", name="a"),
                other.subscribe("kind IN ('a', 'b')", name="ab"),
                other.subscribe("x >= 0", name="all"),
            ]
            for each in wanted:
                await each.complete()

            async def publish() -> None:
                for number in range(total):
                    if number == total // 4:
                        nodes[3].end()  # it may be the root of a group, and has no clients
                    if number == total // 2:
                        nodes.append(await asyncio.to_thread(RingProgram, tmp_path / "n5", first.ring, *options))
                    if number == 3 * total // 4:
                        await asyncio.to_thread(nodes[4].end, signal.SIGTERM)  # it leaves in order
                    await publisher.publish({"x": number, "number": number, "kind": "abc"[number % 3]})

            async def take(at: int, count: int) -> list[int]:
                got = []
                async for event in wanted[at]:
                    got.append(event["number"])
                    await event.ack()
                    if len(got) == count:
                        break
                return got

            _, *got = await asyncio.gather(publish(), take(0, total // 3), take(1, 2 * total // 3), take(2, total))
            return got

    try:
        a, ab, every = asyncio.run(body())
        assert sorted(a) == list(range(0, total, 3))
        assert sorted(ab) == [number for number in range(total) if number % 3 < 2]
        assert sorted(every) == list(range(total))
        reports = asyncio.run(settled(first.ring, 4))
        assert {each.broker: each.topics for each in reports}["n2"] == ["", "a", "b"]
    finally:
        for program in nodes:
            program.end()


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_later_gets_what_was_published_meanwhile(tmp_path: Path) -> None:
    first = RingProgram(tmp_path / "n0")
    nodes = [first, *(RingProgram(tmp_path / f"n{number}", first.ring) for number in range(1, 5))]
    total = 300

    async def take(address: str, count: int) -> list[int]:
        async with weft.connect(address) as client:
            wanted = client.subscribe("x >= 0", name="all")
            await wanted.complete()
            got: list[int] = []
            while len(got) < count:
                event = await anext(wanted)
                got.append(event["number"])
                await event.ack()
            return got

    async def body() -> tuple[list[int], list[int]]:
        async with asyncio.timeout(300), weft.connect(nodes[1].clients) as publisher:
            for subscriber in nodes[2:4]:
                await take(subscriber.clients, 0)  # the subscription stays when its client goes
            address = Address.parse(nodes[2].ring)
            for number in range(total):
                if number == total // 4:
                    nodes[2].end()
                if number == total // 2:
                    await asyncio.sleep(5)  # so that it is down for longer than others wait for an answer
                    ring = f"{address.host}:{address.port}"
                    nodes[2] = await asyncio.to_thread(RingProgram, tmp_path / "n2", first.ring, "--ring", ring)
                await publisher.publish({"x": number, "number": number})
            return await take(nodes[2].clients, total), await take(nodes[3].clients, total)

    try:
        back, other = asyncio.run(body())
        assert sorted(back) == sorted(other) == list(range(total)), "each acknowledged event came once"
        assert all(each.given_up == 0 for each in asyncio.run(settled(first.ring, 5)))
    finally:
        for program in nodes:
            program.end()


@pytest.mark.slow
def test_a_node_joins_when_its_kernels_are_compiled_and_serves_its_clients_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    command = [
        sys.executable,
        "-m",
        "weft",
        "ring",
        "serve",
        "--memory",
        "--listen",
        "weft://127.0.0.1:0",
        "--new-ring",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stderr is not None
        steps = []
        for line in process.stderr:
            steps += [step for step in ("compiling", "listening", "compiled", "ring") if f" info {step}" in line]
            if address := re.search(r" info listening address=(\S+)", line):
                with weft.connect_sync(address[1], timeout=300) as client:
                    client.publish({"x": 7})
            if steps[-1:] == ["ring"]:
                break
        process.terminate()
        process.stderr.read()
    assert steps == ["compiling", "listening", "compiled", "ring"]
    assert process.returncode == 0
