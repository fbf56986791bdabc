"""The memory of a broker: for a connection, for a subscription, and after a long load. A soak reports growth from when
the broker was warm, not from its start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from weft.protocol.addresses import Address
from weft.protocol.codec import encode
from weft.protocol.messages import Hello, QueueNumber, SubNumber, Subscribe
from weftlab.bench.broker_load import LoadWire, open_wire, rss_of
from weftlab.bench.broker_weft import WeftBroker, WeftLoad, WeftReader, subscribe
from weftlab.bench.broker_workload import BrokerWorkload
from weftlab.bench.report import Result

_FIRST = 100  # connections after which memory is measured: what is allocated once is there then
_GUESTS = 20  # connections that come, subscribe and go in each round of a soak


async def connections(count: int) -> list[Result]:
    """Bytes for each connection that has said hello and does nothing."""
    with WeftBroker(None, "--set", f"limits.connections={_FIRST + count}") as broker:
        wires = [await _greeted(broker.address) for _ in range(_FIRST)]
        before = rss_of(broker.pids)
        wires += [await _greeted(broker.address) for _ in range(count)]
        used = rss_of(broker.pids) - before
        for wire in wires:
            wire.transport.abort()
    return [Result("memory/connection", used / count / 1e3, "kB")]


async def _greeted(address: Address) -> LoadWire:
    reader = WeftReader()
    wire = await open_wire(address.host, address.port, reader)
    wire.transport.write(encode([Hello()]))
    await wire.until(lambda: reader.welcome)
    return wire


async def soak_results(
    work: BrokerWorkload, place: Path, seconds: float, progress: Callable[[str], None]
) -> list[Result]:
    """A long durable load, with clients that come and go: how much more a broker holds at its end than when warm.

    Memory, open files and the log are noted after each round. The medians of the second and the last quarter of the
    time are compared.
    """
    due, data = work.due(work.events), place / "soak"
    keep = f"{max(1, seconds / 10):.0f} s"
    notes: list[tuple[float, int, int, int]] = []
    with WeftBroker(data, "--set", f"log.keep_age={keep}", "--set", "log.trim_every=1 s") as broker:
        load = WeftLoad(durable=True)
        await load.open(work.texts, broker.address)
        start, events = perf_counter(), 0
        while (passed := perf_counter() - start) < seconds:
            progress(f"a soak: {passed:.0f} of {seconds:.0f} s, {events:,} events")
            await load.run(work.events, due, broker.pids)
            events += len(work.events)
            await _guests(broker.address, len(notes))
            files = len(os.listdir(f"/proc/{broker.pids[0]}/fd"))
            notes.append((perf_counter() - start, rss_of(broker.pids), files, _size(data)))
        load.close()
    name = f"soak/{seconds:.0f}_s"
    warm = [note for note in notes if seconds / 4 <= note[0] < seconds / 2]
    end = [note for note in notes if note[0] >= seconds * 3 / 4]
    grown = [
        100 * (median(each[n] for each in end) / median(each[n] for each in warm) - 1) if warm and end else None
        for n in (1, 2, 3)
    ]
    return [
        Result(f"{name}/events", events, "events"),
        Result(f"{name}/memory", notes[-1][1] / (1 << 20), "MiB"),
        Result(f"{name}/memory_growth", grown[0], "%", 5.0, "lower"),
        Result(f"{name}/open_files_growth", grown[1], "%", 5.0, "lower"),
        Result(f"{name}/log_growth", grown[2], "%"),
    ]


async def _guests(address: Address, number: int) -> None:
    """Clients that come, subscribe and are cut off."""
    wires = [await _greeted(address) for _ in range(_GUESTS)]
    for at, wire in enumerate(wires):
        reader = wire.reader
        assert isinstance(reader, WeftReader)
        text = f"symbol = 'G{number}.{at}' OR price < {-number - at}"
        await subscribe(wire, reader, [Subscribe(SubNumber(1), text, QueueNumber(0))])
    for wire in wires:
        wire.transport.abort()


def _size(data: Path) -> int:
    total = 0
    for file in data.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # it has been removed meanwhile
            continue
    return max(1, total)
