"""Matching streams on Spark against Spark's own floor, in one run on local[2].

The floor is the same source written to nowhere: what a micro-batch costs before anybody matches anything. Both are what
Spark reports as the time of a micro-batch (triggerExecution), medians over as many micro-batches, the first ones left
out. Ours writes parquet, and commits it, while a second query replaces subscriptions all the time.

Memory is what the JVM holds after a collection, and what the Python processes of driver and workers take. In a long run
it is measured after a fifth of the micro-batches, and at the end: once where the driver matches all but the first of
them itself, as it does with small ones, and once where workers match all. Subscriptions are few there, and all of them
are replaced several times, so that versions are compacted.

The log is read through the source, by two tasks into nowhere, and directly, by one process into the same columns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from weft.broker.admission import Admission
from weft.log.base import Events, Group, Offset
from weft.log.opening import open_log
from weft.protocol.messages import Publish
from weft.spark import match_stream, register, session
from weft.spark.log_columns import LogColumns
from weft.spark.log_source import LogFile
from weft.spark.stream_batches import DRIVER_ROWS
from weft.workloads import WORKLOADS
from weftlab.bench.report import Progress, Result, timed
from weftlab.bench.spark import _family, _memory

AXES = ("x", "y", "z")
_WARM = 5  # micro-batches that are not counted
_GROWTH = 50  # MB that a long run may add
_PATIENCE = 600.0  # seconds for one measurement


@dataclass(frozen=True, slots=True)
class StreamSizes:
    """Subscriptions with their changes a second, events of a micro-batch, micro-batches, and events of the log."""

    subscriptions: tuple[tuple[int, int], ...] = ((10_000, 100), (100_000, 100), (1_000_000, 10))
    events: int = 1_000
    many: int = 100_000  # events of a micro-batch, for the rate
    batches: int = 50
    log: int = 500_000
    long: int = 1_000  # micro-batches of the long run
    long_subscriptions: tuple[int, int] = (2_000, 200)


QUICK = StreamSizes(subscriptions=((10_000, 100),), many=20_000, batches=12, log=50_000, long=40)


def run(quick: bool, progress: Progress, size: int | None = None, sizes: StreamSizes | None = None) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    sizes = sizes or (QUICK if quick else StreamSizes())
    chosen = [each for each in sizes.subscriptions if size in (None, each[0])] or [(size or 0, 100)]
    place = Path(tempfile.mkdtemp(prefix="weft-bench-"))
    try:
        spark = session("local[2]")
        results = []
        for number, changes in chosen:
            results += _latency(spark, place, number, changes, sizes, progress)
        if size is None:
            results += _long(spark, place, sizes, progress)
        return results + _log(spark, place, sizes.log, progress)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _latency(  # noqa: PLR0913, PLR0917
    spark: Any, place: Path, size: int, changes: int, sizes: StreamSizes, progress: Progress
) -> list[Result]:
    name = f"W1/{size}"
    progress(f"{size:,} subscriptions: the floor")
    floor = _floor(spark, place / f"floor-{size}", sizes.events, sizes.batches)
    progress(f"{size:,} subscriptions, {changes} changes a second: latency")
    ours = _ours(spark, place / f"ours-{size}", size, changes, sizes.events, sizes.batches)
    progress(f"{size:,} subscriptions: events a second")
    rate = _ours(spark, place / f"rate-{size}", size, changes, sizes.many, max(5, sizes.batches // 5))
    return [
        Result(f"{name}/floor", 1000 * floor, "ms"),
        Result(f"{name}/latency", 1000 * ours.seconds, "ms"),
        Result(f"{name}/over_floor", 1000 * (ours.seconds - floor), "ms", 150 if size <= 100_000 else None, "lower"),
        Result(f"{name}/commands", ours.commands, "read in the meantime"),
        Result(f"{name}/versions", ours.disk / 2**20, "MB on disk"),
        Result(f"{name}/rate", sizes.many / rate.seconds, "events/s"),
    ]


def _long(spark: Any, place: Path, sizes: StreamSizes, progress: Progress) -> list[Result]:
    """Whether a stream that runs for long holds more and more, with the driver matching and with workers."""
    (size, changes), batches = sizes.long_subscriptions, sizes.long
    results = []
    for who, driver_rows in (("driver", DRIVER_ROWS), ("workers", 0)):
        name = f"W1/{size}/{batches}_batches/{who}"
        said = f"{size:,} subscriptions, {batches:,} micro-batches, {who}"
        progress(said)
        tell = partial(_tell, progress, said)
        there = place / f"long-{who}"
        ours = _ours(spark, there, size, changes, sizes.events, batches, tell=tell, driver_rows=driver_rows)
        results += [
            Result(f"{name}/memory", ours.memory / 2**20, "MB, driver and workers"),
            Result(f"{name}/memory_growth", ours.growth / 2**20, "MB", _GROWTH, "lower"),
            Result(f"{name}/commands", ours.commands, "read in the meantime"),
            Result(f"{name}/bases", ours.bases, "on disk", 2, "lower"),
            Result(f"{name}/versions", ours.disk / 2**20, "MB on disk"),
        ]
    return results


def _tell(progress: Progress, said: str, done: int) -> None:
    progress(f"{said}: {done:,} done")


@dataclass(frozen=True, slots=True)
class _Measured:
    """A stream: seconds of a micro-batch, commands read, bytes and bases of versions, memory and its growth."""

    seconds: float
    commands: int
    disk: int
    bases: int
    memory: float
    growth: float


def _events(spark: Any, rows: int) -> Any:
    """A number of events in each micro-batch, as W1 has them, always the same for the same micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    axes = [f"CAST(pmod(xxhash64(value, {at}), 256) AS DOUBLE) AS {axis}" for at, axis in enumerate(AXES)]
    return source.selectExpr("value AS event", *axes)


def _commands(spark: Any, size: int, changes: int) -> Any:
    """A number of replacements per second, of subscriptions as W1 has them."""
    source = spark.readStream.format("rate").option("rowsPerSecond", changes).option("numPartitions", 1).load()
    lows = [f"pmod(xxhash64(value, {at + 7}), 256)" for at in range(3)]
    tests = [f"'{axis} BETWEEN ', {low}, ' AND ', {low} + 3" for axis, low in zip(AXES, lows, strict=True)]
    text = "concat(" + ", ' AND ', ".join(tests) + ")"
    key = f"pmod(xxhash64(value, 99), {size})"
    return source.selectExpr("'replace' AS action", f"{key} AS id", f"{text} AS filter", "value AS nr")


def _floor(spark: Any, place: Path, rows: int, batches: int) -> float:
    writer = _events(spark, rows).writeStream.format("noop").option("checkpointLocation", str(place))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        last = batches + _WARM
        _until(lambda: query.lastProgress is not None and query.lastProgress.batchId >= last, query.exception)
        times = {each.batchId: each.durationMs["triggerExecution"] for each in query.recentProgress}
    finally:
        query.stop()
    return float(statistics.median(ms for batch, ms in times.items() if batch >= _WARM)) / 1000


def _ours(  # noqa: PLR0913, PLR0917
    spark: Any,
    place: Path,
    size: int,
    changes: int,
    rows: int,
    batches: int,
    *,
    tell: Callable[[int], None] = lambda _: None,
    driver_rows: int = DRIVER_ROWS,
) -> _Measured:
    made = WORKLOADS["W1"](size, 1, 1)
    ends = ("low", "high")
    sides = {f"{axis}_{end}": column[at] for axis, column in made.bounds.items() for at, end in enumerate(ends)}
    initial = spark.createDataFrame(pa.table({"id": np.arange(size), **sides}))
    stream = match_stream(
        _events(spark, rows),
        _commands(spark, size, changes),
        place / "state",
        place / "out",
        initial=initial,
        carry=["event"],
        order="nr",
        driver_rows=driver_rows,
    )
    try:
        marks = {_WARM + batches // 5: 0.0, _WARM + batches: 0.0}  # memory after so many micro-batches
        for mark in sorted({*marks, *range(100, batches, 100)}):
            _until(partial(_is_past, stream, mark), partial(stream.wait, 0.001))
            tell(mark)
            if mark in marks:
                marks[mark] = _held(spark)
        found, commands = stream.metrics(), stream.version
    finally:
        stream.stop()
    times = [row.trigger_seconds for row in found[_WARM:] if row.trigger_seconds is not None]
    versions = place / "state" / "versions"
    disk = sum(file.stat().st_size for file in versions.rglob("*") if file.is_file())
    bases, (before, after) = len(list(versions.iterdir())), marks.values()
    shutil.rmtree(place, ignore_errors=True)  # a micro-batch that was interrupted may still write
    return _Measured(statistics.median(times), commands, disk, bases, after, after - before)


def _is_past(stream: Any, mark: int) -> bool:
    return len(stream.metrics()) > mark


def _held(spark: Any) -> float:
    """Bytes that the JVM holds after a collection, and that the Python processes of driver and workers take."""
    runtime = spark.sparkContext._jvm.Runtime.getRuntime()
    runtime.gc()
    java = spark.sparkContext._gateway.proc.pid
    python = [each for each in _family(os.getpid()) if each != java]
    return float(runtime.totalMemory() - runtime.freeMemory()) + sum(map(_memory, python))


def _until(holds: Callable[[], bool], failure: Callable[[], Any]) -> None:
    """Wait; `failure` raises or returns what ended the query before that."""
    end = time.monotonic() + _PATIENCE
    while not holds():
        if (ended := failure()) or time.monotonic() > end:
            raise TimeoutError(f"the query has ended: {ended}" if ended else f"no end after {_PATIENCE:.0f} s")
        time.sleep(0.2)


# -- the log --------------------------------------------------------------------------------------------


def _log(spark: Any, place: Path, size: int, progress: Progress) -> list[Result]:
    progress(f"a log of {size:,} events")
    data = place / "data"
    _write_log(data, size)
    register(spark)
    columns = [("event", "bigint"), *((axis, "double") for axis in AXES)]
    text = ", ".join(f"{name} {kind}" for name, kind in columns)
    table = spark.read.format("weft").schema(text).option("rowsPerPartition", size // 2 + 1).load(str(data))
    table.write.format("noop").mode("overwrite").save()  # starts the workers
    through, _ = timed(lambda: table.write.format("noop").mode("overwrite").save())
    wanted, log = LogColumns.of(columns), LogFile(str(data))
    direct, rows = timed(lambda: sum(batch.num_rows for batch in wanted.batches(log.read(1, size + 1))))
    assert rows == size == table.count()
    return [
        Result(f"log/{size}/source", size / through, "events/s"),
        Result(f"log/{size}/direct", size / direct, "events/s"),
        Result(f"log/{size}/vs_direct", direct / through, "x"),
    ]


def _write_log(place: Path, size: int) -> None:
    log, door, group = open_log(place).log, Admission(), 1_000
    points = np.random.default_rng(1).integers(0, 256, (size, 3))
    for first in range(0, size, group):
        rows = points[first : first + group].tolist()
        heads = [
            door.admit(Publish.of(1, {"event": first + at, "x": x / 1, "y": y / 1, "z": z / 1}), 0)[1]
            for at, (x, y, z) in enumerate(rows)
        ]
        origins = np.array([(1, 1, first + at + 1) for at in range(len(rows))], np.int64)
        starts, seats = np.zeros(len(rows) + 1, np.uint32), np.zeros(0, np.uint32)
        log.commit([Group(first, Events(Offset(first + 1), origins, heads, [b""] * len(rows), starts, seats))])
    log.close()
