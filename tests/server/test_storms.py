"""Many clients that come and go together, and one that stalls: nobody else loses anything, and memory stays bounded."""

from __future__ import annotations

import asyncio

import pytest

from server.wire import Wire, a_node, connect, run
from weft.broker.limits import ClientLimits
from weft.protocol.messages import Accepted, Ack, Dropped, Hello, Publish, Subscribe
from weft.server.connection import HIGH


@pytest.mark.parametrize(
    ("storms", "clients"), [(3, 10), pytest.param(100, 50, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_clients_that_reconnect_all_at_once_again_and_again_get_everything(storms: int, clients: int) -> None:
    async def body() -> None:
        async with a_node(limits=ClientLimits(connections=10_000)) as node:
            place = node.addresses[0]
            writer = await connect(place, Hello(session="writer"))
            got: list[set[int]] = [set() for _ in range(clients)]
            wires: list[Wire] = []
            for storm in range(storms + 1):
                hellos = [Hello(session=f"reader {n}") for n in range(clients)]
                wires = list(await asyncio.gather(*(connect(place, hello) for hello in hellos)))
                if storm == 0:
                    for wire in wires:
                        wire.send(Subscribe(1, "x > 0"))
                        await wire.get(Accepted)
                first = storm * 5 + 1
                writer.send(*(Publish.of(n, {"x": n}) for n in range(first, first + 5)))
                await writer.published(first + 4)
                for n, wire in enumerate(wires):
                    missing = first + 4 - len(got[n])
                    if n % 2:  # the others are cut before they have answered, and must be sent the same again
                        offsets = [event.offset for event in await wire.delivered(missing)]
                        assert offsets == sorted(offsets)
                        got[n].update(offsets)
                        wire.send(Ack(0, first + 5))
                for n, wire in enumerate(wires):
                    wire.transport.abort() if n % 3 else wire.transport.close()
                for wire in wires:
                    await wire.gone()
            total = (storms + 1) * 5
            for n in range(clients):
                wire = await connect(place, Hello(session=f"reader {n}"))
                if n % 2 == 0:
                    got[n].update(event.offset for event in await wire.delivered(total))
                assert got[n] == set(range(1, total + 1))
                await wire.close()
            node.core.check()
            await writer.close()

    run(body())


def test_one_that_stalls_among_a_hundred_holds_up_nobody_and_takes_bounded_memory() -> None:
    async def body() -> None:
        limits = ClientLimits(held=50, held_bytes=200_000)
        async with a_node(limits=limits) as node:
            place = node.addresses[0]
            wires = [await connect(place) for _ in range(100)]
            stalled, *others = wires
            for wire in wires:
                wire.send(Subscribe(1, "x > 0" if wire is stalled else "x > 0 AND small"))
                await wire.get(Accepted)
            end = min(node.connections.values(), key=lambda each: int(each.id[1:]))
            stalled.transport.pause_reading()
            writer = await connect(place)
            most, sent = 0, 0
            while not node.core._sessions.connections[end.id].paused or sent < 600:  # until the wire is full
                large = [Publish.of(n, {"x": n, "small": False}, bytes(20_000)) for n in range(sent + 1, sent + 20)]
                sent += 20
                writer.send(*large, Publish.of(sent, {"x": sent, "small": True}))
                await writer.published(sent)
                most = max(most, end.unsent)
            for wire in others:
                assert len(await wire.delivered(sent // 20)) == sent // 20
            assert most < HIGH + 1_000_000
            (queue,) = node.core._sessions.connections[end.id].session.queues.values()  # type: ignore[union-attr]
            assert len(queue.held) <= 50  # type: ignore[union-attr]
            assert queue.size <= 200_000  # type: ignore[union-attr]
            stalled.transport.resume_reading()
            dropped = await stalled.get(Dropped)
            await stalled.until(lambda: len(stalled.messages) and stalled.messages[-1] is not dropped)
            assert dropped.count > 0
            node.core.check()

    run(body())
