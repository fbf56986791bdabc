"""What a broker holds: for a connection, and after a long load. Law: a soak reports growth from when the broker was
warm, not from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from weft.bench.broker_load import open_wire, rss_of
from weft.bench.broker_weft import WeftBroker, WeftLoad, WeftReader
from weft.bench.report import Result
from weft.broker.codec import encode
from weft.broker.messages import Hello


async def connections(count: int) -> Result:
    """Bytes for each connection that has said hello and does nothing."""
    with WeftBroker(None) as broker:
        first = await open_wire(broker.address.host, broker.address.port, WeftReader())
        first.transport.write(encode([Hello()]))
        before, wires = rss_of(broker.pids), [first]
        for _ in range(count):
            reader = WeftReader()
            wire = await open_wire(broker.address.host, broker.address.port, reader)
            wire.transport.write(encode([Hello()]))
            await wire.until(lambda reader=reader: reader.welcome)  # type: ignore[misc]
            wires.append(wire)
        used = rss_of(broker.pids) - before
        for wire in wires:
            wire.transport.abort()
    return Result("broker/memory", used / count, "bytes a connection")


async def soak(  # noqa: PLR0913, PLR0917 - the parts of a load
    texts: Sequence[str],
    events: Sequence[dict[str, object]],
    due: int,
    place: Path,
    seconds: float,
    progress: Callable[[str], None],
) -> Result:
    """How much more memory a broker holds at the end of a long durable load than when it was warm."""
    with WeftBroker(place / "soak", "--set", "log.keep_age=1 min", "--set", "log.trim_every=5 s") as broker:
        load = WeftLoad(durable=True)
        await load.open(texts, broker.address)
        start = perf_counter()
        warm: int | None = None
        while (passed := perf_counter() - start) < seconds:
            progress(f"a soak: {passed:.0f} of {seconds:.0f} s")
            await load.run(events, due, broker.pids)
            if warm is None and passed > seconds / 4:
                warm = rss_of(broker.pids)
        end = rss_of(broker.pids)
        load.close()
    grown = 100 * (end - warm) / warm if warm else None
    return Result(f"broker/soak of {seconds:.0f} s/growth", grown, "% of memory", 5.0, "lower")
