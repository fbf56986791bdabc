"""The pipeline on Spark against what Spark does itself, and against the library without Spark, in one run on local[2].

Everything reads parquet and writes parquet, pairs of an event and a subscription, and is checked to write as many. Time
counts from the files to the files: parsing, building and shipping the index included, the start of the session not.
The grid join is the respectable peer: tuned over its cells and over its join, and the best
of all is timed in turns with ours: medians count. The plain
join would take minutes: it is measured on two shares of the events, and the difference is scaled, without its set-up.
The engines of `weft match` are compared as commands, with their starts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weft.errors import PipelineError
from weft.spark import match, prepare, session
from weft.workloads import WORKLOADS
from weftlab.bench import spark_scale
from weftlab.bench.report import Progress, Result, timed
from weftlab.bench.spark_scale import QUICK as QUICK_SCALE
from weftlab.bench.spark_scale import ScaleSizes

AXES = ("x", "y", "z")
_TOP = 1_000.0
_PER_EVENT = 9.7  # matches of an event among the cubes
_GROUP = 20_000  # rows of a parquet row group: files that both cores can read


@dataclass(frozen=True, slots=True)
class BenchSizes:
    """How many: cubes for the joins, events for the plain join, the large sets, and the one by partitioning."""

    cubes: tuple[int, ...] = (100_000, 400_000)  # the smallest also against the plain join
    plain: tuple[int, int] = (2_000, 8_000)
    many: int = 1_000_000
    partitioned: int = 10_000_000
    cells: tuple[int, ...] = (8, 16, 24, 32)  # of an axis, that the grid join is tried with
    turns: int = 5
    job: tuple[int, int] = (3_000_000, 100_000)  # events and subscriptions that both engines match, from files to files
    job_turns: int = 3
    scale: ScaleSizes = field(default_factory=ScaleSizes)


QUICK = BenchSizes(
    cubes=(50_000,),
    plain=(1_000, 3_000),
    many=200_000,
    partitioned=500_000,
    cells=(16, 32),
    turns=3,
    job=(300_000, 10_000),
    job_turns=1,
    scale=QUICK_SCALE,
)


def run(quick: bool, progress: Progress, note: Progress = print, sizes: BenchSizes | None = None) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    sizes = sizes or (QUICK if quick else BenchSizes())
    place = Path(tempfile.mkdtemp(prefix="weft-bench-"))
    try:
        engines = _engines(place, sizes, progress)  # first, while no session takes memory
        spark = session("local[2]")
        _warm(spark, place)
        results = engines
        for size in sizes.cubes:
            results += _joins(spark, place, size, sizes, progress, note)
        results += _large(spark, place, sizes.many, progress)
        results += _partitioned(spark, place, sizes, progress)
        results += spark_scale.run(spark, place, sizes.scale, progress)
        large = _workload(place, sizes.scale.subscriptions, sizes.scale.events)
        results += spark_scale.run_large(place, sizes.scale, _cubes_beside(large[0]), large, progress)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return results


# -- data -----------------------------------------------------------------------------------------------


def _cubes(place: Path, size: int, seed: int = 1) -> tuple[Path, Path]:
    """Cubes of equal size in a cube, and as many events, uniform."""
    rng = np.random.default_rng(seed)
    width = _TOP * (_PER_EVENT / size) ** (1 / 3)
    lows = {axis: rng.uniform(0, _TOP - width, size) for axis in AXES}
    bounds = {axis: (low, low + width) for axis, low in lows.items()}
    table = pa.table({axis: rng.uniform(0, _TOP, size) for axis in AXES})
    return _written(place / f"cubes-{size}", bounds, table)


def _workload(place: Path, subscriptions: int, events: int) -> tuple[Path, Path]:
    made = WORKLOADS["W1"](subscriptions, events, 1)
    return _written(place / f"w1-{subscriptions}-{events}", dict(made.bounds), pa.Table.from_batches([made.table]))


def _written(place: Path, bounds: dict[str, Any], events: pa.Table) -> tuple[Path, Path]:
    place.mkdir()
    sides = {f"{axis}_{side}": ends[at] for axis, ends in bounds.items() for at, side in enumerate(("low", "high"))}
    size = len(next(iter(sides.values())))
    wanted = pa.table({"id": np.arange(size), **sides})
    numbers: Any = pa.array(np.arange(events.num_rows))
    numbered = events.add_column(0, "event", numbers)
    pq.write_table(numbered, place / "events.parquet", row_group_size=_GROUP)
    pq.write_table(wanted, place / "subscriptions.parquet", row_group_size=_GROUP)
    return place / "events.parquet", place / "subscriptions.parquet"


def _rows(path: Path) -> int:
    return sum(
        pq.ParquetFile(file).metadata.num_rows for file in ([path] if path.is_file() else path.glob("*.parquet"))
    )


def _warm(spark: Any, place: Path) -> None:
    """Load the compiled kernels and Spark's own classes, and start the Python workers."""
    events, wanted = _cubes(place, 1_000)
    for strategy in ("index", "partitioned"):
        found = match(spark.read.parquet(str(events)), spark.read.parquet(str(wanted)), strategy=strategy, groups=4)
        found.write.mode("overwrite").parquet(str(place / "warm"))
    _grid_join(spark, events, wanted, 8, "", place / "warm")


# -- joins ----------------------------------------------------------------------------------------------


def _joins(  # noqa: PLR0913, PLR0917
    spark: Any, place: Path, size: int, sizes: BenchSizes, progress: Progress, note: Progress
) -> list[Result]:
    events, wanted = _cubes(place, size)
    said = f"{size:,} events x {size:,} subscriptions"
    progress(f"{said}: Weft")
    count = _ours(spark, events, wanted, place / "ours")
    best_join, best_plan = _best_grid_join(
        spark, place, (events, wanted), count, sizes, lambda what: progress(f"{said}: {what}")
    )
    note(f"the best grid join, {size:,} x {size:,}: {best_plan}")
    times: list[tuple[float, float]] = []
    for turn in range(sizes.turns):  # in turns, for the machine and Spark's compiler change as they go
        progress(f"{said}: turn {turn + 1} of {sizes.turns}")
        mine = timed(lambda: _ours(spark, events, wanted, place / "ours"))[0]
        times.append((mine, timed(lambda: _grid_join(spark, events, wanted, *best_join, place / "grid"))[0]))
    ours, grid = (float(np.median(side)) for side in zip(*times, strict=True))
    name = f"cubes/{size}"
    results = [
        Result(f"{name}/seconds", ours, "s"),
        Result(f"{name}/matches", count / size, "an event"),
        Result(f"{name}/grid_join_seconds", grid, "s"),
        Result(f"{name}/vs_grid_join", grid / ours, "x", 2),
    ]
    if size != min(sizes.cubes):
        return results
    progress(f"{said}: plain join of a share")
    few, more = (timed(lambda: _plain_join(spark, events, wanted, share, place / "plain"))[0] for share in sizes.plain)  # noqa: B023
    plain = (more - few) / (sizes.plain[1] - sizes.plain[0]) * size
    results.append(Result(f"{name}/plain_join_seconds", plain, "s, scaled"))
    return [*results, Result(f"{name}/vs_plain_join", plain / ours, "x", 100)]


def _best_grid_join(  # noqa: PLR0913, PLR0917
    spark: Any, place: Path, data: tuple[Path, Path], count: int, sizes: BenchSizes, progress: Progress
) -> tuple[tuple[int, str], str]:
    """The cells and the hint of the quickest, and its plan."""
    best, best_join, best_plan = float("inf"), (0, ""), ""
    for cells in sizes.cells:
        for hint in ("", "/*+ BROADCAST(s) */"):
            progress(f"grid join, {cells} cells {hint}")
            out = place / "grid"
            seconds, plan = timed(lambda: _grid_join(spark, *data, cells, hint, out))  # noqa: B023
            assert _rows(out) == count, "the grid join finds other pairs"
            if seconds < best:
                best, best_join = seconds, (cells, hint)
                best_plan = f"{cells} cells an axis{' ' + hint if hint else ''}\n{plan}"
    return best_join, best_plan


def _ours(spark: Any, events: Path, wanted: Path, out: Path, strategy: str = "index") -> int:
    happening, subscriptions = (spark.read.parquet(str(path)) for path in (events, wanted))
    found = match(happening, subscriptions, strategy=strategy, carry=["event"])
    found.write.mode("overwrite").parquet(str(out))
    return _rows(out)


def _grid_join(  # noqa: PLR0913, PLR0917
    spark: Any, events: Path, wanted: Path, cells: int, hint: str, out: Path
) -> str:
    """Both sides in cells, an equi-join on the cell, and the bounds: as one who knows Spark would write it."""
    width = _TOP / cells
    spark.read.parquet(str(events)).createOrReplaceTempView("happening")
    spark.read.parquet(str(wanted)).createOrReplaceTempView("wanted")
    cell = ", ".join(f"CAST({axis} / {width} AS INT) AS c{axis}" for axis in AXES)
    views = " ".join(
        f"LATERAL VIEW explode(sequence(CAST({axis}_low / {width} AS INT), CAST({axis}_high / {width} AS INT)))"
        f" t{axis} AS c{axis}"
        for axis in AXES
    )
    same = " AND ".join(f"e.c{axis} = s.c{axis}" for axis in AXES)
    inside = " AND ".join(f"e.{axis} BETWEEN s.{axis}_low AND s.{axis}_high" for axis in AXES)
    joined = spark.sql(
        f"SELECT {hint} e.event, s.id AS subscription FROM (SELECT *, {cell} FROM happening) e"
        f" JOIN (SELECT * FROM wanted {views}) s ON {same} AND {inside}"
    )
    joined.write.mode("overwrite").parquet(str(out))
    return _plan(joined)


def _plain_join(spark: Any, events: Path, wanted: Path, share: int, out: Path) -> None:
    spark.read.parquet(str(events)).where(f"event < {share}").repartition(2).createOrReplaceTempView("happening")
    spark.read.parquet(str(wanted)).createOrReplaceTempView("wanted")
    inside = " AND ".join(f"e.{axis} BETWEEN s.{axis}_low AND s.{axis}_high" for axis in AXES)
    joined = spark.sql(f"SELECT e.event, s.id AS subscription FROM happening e JOIN wanted s ON {inside}")
    joined.write.mode("overwrite").parquet(str(out))


def _plan(frame: Any) -> str:
    """The joins and exchanges of a plan, in a line each."""
    text = frame._jdf.queryExecution().optimizedPlan().toString() if hasattr(frame, "_jdf") else ""
    return "\n".join(line.strip()[:110] for line in text.splitlines() if "Join" in line or "Generate" in line)


# -- the large set --------------------------------------------------------------------------------------


def _large(spark: Any, place: Path, size: int, progress: Progress) -> list[Result]:
    events, wanted = _workload(place, size, size)
    name = f"W1/{size}"
    progress(f"{size:,} events x {size:,} subscriptions: Weft on Spark")
    whole, count = timed(lambda: _ours(spark, events, wanted, place / "ours"))
    progress(f"{size:,} events x {size:,} subscriptions: the library alone")
    bare = _bare(events, wanted, place / "bare.parquet", count)
    results = [
        Result(f"{name}/seconds", whole, "s", 60, "lower"),
        Result(f"{name}/bare_seconds", bare, "s"),
        Result(f"{name}/vs_bare", whole / bare, "x slower", 2.5, "lower"),
    ]
    progress(f"{size:,} subscriptions: ready for matching")
    ready_in, ready = timed(lambda: prepare(spark.read.parquet(str(wanted)), strategy="index"))
    results.append(Result(f"{name}/prepare_seconds", ready_in, "s"))
    assert ready.shipped is not None
    bytes_each = sum(file.stat().st_size for file in Path(ready.shipped.path).iterdir()) / size
    results.append(Result(f"{name}/snapshot_bytes", bytes_each, "a subscription"))
    times: dict[int, float] = {}
    for share in (4, 2, 1):
        progress(f"{size // share:,} events x {size:,} subscriptions")
        happening = spark.read.parquet(str(events)).where(f"event < {size // share}")
        out = place / "share"
        times[share] = timed(lambda: ready.match(happening).write.mode("overwrite").parquet(str(out)))[0]  # noqa: B023
        results.append(Result(f"{name}/events_{size // share}_seconds", times[share], "s"))
    results.append(Result(f"{name}/growth", times[1] / (2 * times[2]), "of linear", 1.2, "lower"))
    return results


_BARE = """
import sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from weft import TreeIndex
def work(events, wanted, out, axes=("x", "y", "z")):
    table = pq.read_table(wanted)
    index = TreeIndex()
    index.add_columns(table["id"].to_numpy(), {a: (table[f"{a}_low"], table[f"{a}_high"]) for a in axes})
    writer = None
    for batch in pq.ParquetFile(events).iter_batches(50_000):
        found = index.match_batch(batch)
        rows = np.repeat(batch.column("event").to_numpy(), found.counts)
        pairs = pa.table({"event": rows, "subscription": found.ids})
        writer = writer or pq.ParquetWriter(out, pairs.schema)
        writer.write_table(pairs)
    writer.close()
work(*sys.argv[1:4])  # loads the compiled kernels
start = time.perf_counter()
work(*sys.argv[4:7])
print(time.perf_counter() - start)
"""


def _bare(events: Path, wanted: Path, out: Path, count: int) -> float:
    """Seconds of the library alone, in a process of its own, after a small run that loads its compiled kernels."""
    few = [str(place) for place in _cubes_beside(events)]
    call = [sys.executable, "-c", _BARE, *few, str(out), str(events), str(wanted), str(out)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    seconds = float(subprocess.run(call, capture_output=True, text=True, check=True, env=env).stdout)
    assert _rows(out) == count, "the library alone finds other pairs"
    return seconds


def _cubes_beside(events: Path) -> tuple[Path, Path]:
    small = events.parent.parent / "cubes-1000"
    return small / "events.parquet", small / "subscriptions.parquet"


# -- the engines ----------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """A command from its start to its end: what it reports, seconds by the clock and of all processors, and memory."""

    facts: dict[str, Any]
    seconds: float
    processor: float
    peak: float


def _engines(place: Path, sizes: BenchSizes, progress: Progress) -> list[Result]:
    """`weft match` on this machine against the same command on local[2], in turns: medians count."""
    many, few = sizes.job
    files = _workload(place, few, many)
    engines = {"local": ["--engine", "local"], "spark": ["--engine", "spark", "--master", "local[2]"]}
    runs: dict[str, list[_Run]] = {name: [] for name in engines}
    for turn in range(sizes.job_turns):
        for name, options in engines.items():
            progress(f"{many:,} events x {few:,} subscriptions: engine {name}, turn {turn + 1} of {sizes.job_turns}")
            out = place / f"engine-{name}.parquet"
            runs[name].append(_command("match", *map(str, files), "--out", str(out), "--overwrite", "--json", *options))
    names = ("events", "subscriptions", "matches", "matched", "errors", "notes")
    found = [{name: each.facts[name] for name in names} for some in runs.values() for each in some]
    assert all(each == found[0] for each in found), "the engines report different things"
    (local, local_cpu), (spark, spark_cpu) = (
        tuple(float(np.median([getattr(each, name) for each in some])) for name in ("seconds", "processor"))
        for some in runs.values()
    )
    start = f"engines/{many}x{few}"
    return [
        Result(f"{start}/local_seconds", local, "s"),
        Result(f"{start}/spark_seconds", spark, "s"),
        Result(f"{start}/vs_spark", spark / local, "x", 5),
        Result(f"{start}/vs_spark_cpu", spark_cpu / local_cpu, "x", 5),
        Result(f"{start}/local_peak", max(each.peak for each in runs["local"]), "GB", 1.5, "lower"),
    ]


def _command(*arguments: str) -> _Run:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    start = perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "weft", *arguments], stdout=said, stderr=subprocess.DEVNULL, env=env
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = perf_counter() - start
        said.seek(0)
        facts: dict[str, Any] = json.loads(said.read())
    if child.returncode:
        raise PipelineError(facts["error"]["message"])
    return _Run(facts, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


# -- partitioning ---------------------------------------------------------------------------------------


def _partitioned(spark: Any, place: Path, sizes: BenchSizes, progress: Progress) -> list[Result]:
    name = f"W1/{sizes.partitioned}"
    events, wanted = _workload(place, sizes.partitioned, sizes.many)
    progress(f"{sizes.many:,} events x {sizes.partitioned:,} subscriptions by partitioning")
    with peak_memory() as peak:
        seconds, count = timed(lambda: _ours(spark, events, wanted, place / "parts", "partitioned"))
    return [
        Result(f"{name}/partitioned_seconds", seconds, "s"),
        Result(f"{name}/partitioned_matches", count / sizes.many, "an event"),
        Result(f"{name}/partitioned_peak", peak[0] / 2**30, "GB", 16, "lower"),
    ]


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The most memory that this process and its children have, looked at again and again; shared pages once."""
    most, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            most[0] = max(most[0], sum(map(_memory, _family(os.getpid()))))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()
        most[0] = max(most[0], sum(map(_memory, _family(os.getpid()))))


def _family(first: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(status.read_text().rpartition(")")[2].split()[1]), []).append(
                int(status.parent.name)
            )
        except OSError:
            continue
    found = [first]
    for process in found:
        found += parents.get(process, [])
    return found


def _memory(process: int) -> float:
    """Bytes of a process, its share of what it shares with others; 0 where that is unknown."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0.0)
