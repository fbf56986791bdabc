"""Partitioned matching of uneven data: equal events, absent values, many attributes, and more subscriptions than one
index should have. On the same files every strategy finds as many matches; what is compared is timed in one run.

`partitioned` cannot be as fast as `index` where one machine holds everything: a factor says what outgrowing it costs.
The largest task, in means of all tasks of its stage, says whether more machines would help.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weft.errors import PipelineError
from weft.index.tree import TreeIndex
from weft.spark import match
from weftlab.bench.report import Progress, Result, timed

_TOP = 1_000.0
_PER_EVENT = 9.7  # matches of an event among cubes
_EQUAL = 0.6  # of the events
_ABSENT = 0.9  # of the values
_SPARSE = 10  # attributes of which most are absent, two of them in a filter
_WIDTH = 20.0  # of a range on each of these
_ROWS = 20_000  # of a Parquet row group

_HEAP = "2g"  # of the JVM that matches the large set


@dataclass(frozen=True, slots=True)
class ScaleSizes:
    """How many: events and subscriptions of uneven data, filters of many attributes, and the large set."""

    uneven: int = 300_000
    wide: int = 20_000
    attributes: int = 1_000
    events: int = 2_000_000
    subscriptions: int = 5_000_000
    turns: int = 3


QUICK = ScaleSizes(uneven=30_000, wide=5_000, events=100_000, subscriptions=250_000, turns=1)


def run(spark: Any, place: Path, sizes: ScaleSizes, progress: Progress) -> list[Result]:
    """The figures of uneven data and of many attributes."""
    results = []
    for name, make, outputs in (("skew", _skewed, ("counts", "pairs")), ("nulls", _sparse, ("counts",))):
        files = _written(place / f"{name}-{sizes.uneven}", *make(sizes.uneven))
        for output in outputs:
            progress(f"{name}, {sizes.uneven:,} x {sizes.uneven:,}, {output}")
            results += _against_index(spark, place, files, f"{name}/{sizes.uneven}", output, sizes.turns)
    progress(f"{sizes.wide:,} filters over {sizes.attributes:,} attributes")
    results.append(_wide(spark, place, sizes))
    return results


def run_large(
    place: Path, sizes: ScaleSizes, few: tuple[Path, Path], large: tuple[Path, Path], progress: Progress
) -> list[Result]:
    """The large set in a process of its own, whose memory is that of this one job; `few` are for warming up."""
    name, said = f"W1/{sizes.subscriptions}", f"{sizes.events:,} events x {sizes.subscriptions:,} subscriptions, counts"
    progress(said)
    call = [sys.executable, "-c", _LARGE, *map(str, (*few, place / "warm", *large, place / "counts"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise PipelineError(f"{said}: {done.stderr.strip().rpartition(chr(10))[2]}")
    seconds, most, matches = map(float, done.stdout.split()[-3:])
    progress(f"{said}: the library alone")
    assert matches == _alone(*large), "the library alone finds other matches"
    return [
        Result(f"{name}/partitioned_counts_seconds", seconds, "s", 120, "lower"),
        Result(f"{name}/partitioned_counts_peak", most / 2**30, "GB", 4, "lower"),
        Result(f"{name}/partitioned_counts_matches", matches / sizes.events, "an event"),
    ]


_LARGE = f"""
import sys
from pathlib import Path
from weftlab.bench.report import timed
from weftlab.bench.spark import peak_memory
from weftlab.bench.spark_scale import matched
from weft.spark import session
few, warm, large, out = sys.argv[1:3], sys.argv[3], sys.argv[4:6], sys.argv[6]
spark = session("local[2]", memory="{_HEAP}")
matched(spark, few, Path(warm), "partitioned", "counts")
with peak_memory() as most:
    seconds, count = timed(lambda: matched(spark, large, Path(out), "partitioned", "counts"))
spark.stop()
print(seconds, most[0], count)
"""


# -- data -----------------------------------------------------------------------------------------------


def _skewed(size: int) -> tuple[pa.Table, pa.Table]:
    """Cubes, and points of which most are one point."""
    rng = np.random.default_rng(1)
    width = _TOP * (_PER_EVENT / size) ** (1 / 3)
    equal = rng.random(size) < _EQUAL
    events = {axis: np.where(equal, _TOP / 2, rng.uniform(0, _TOP, size)) for axis in "xyz"}
    bounds: dict[str, Any] = {"id": np.arange(size)}
    for axis in "xyz":
        low = rng.uniform(0, _TOP - width, size)
        bounds |= {f"{axis}_low": low, f"{axis}_high": low + width}
    return pa.table({"event": np.where(equal, -1, np.arange(size)), **events}), pa.table(bounds)


def _sparse(size: int) -> tuple[pa.Table, pa.Table]:
    """Events of which most values are absent, and ranges on two attributes."""
    rng = np.random.default_rng(2)
    chosen = rng.integers(0, _SPARSE, (size, 2))
    events: dict[str, Any] = {"event": np.arange(size)}
    bounds: dict[str, Any] = {"id": np.arange(size)}
    for at in range(_SPARSE):
        values = np.where(rng.random(size) < _ABSENT, np.nan, rng.uniform(0, _TOP, size))
        low = np.where((chosen == at).any(axis=1), rng.uniform(0, _TOP - _WIDTH, size), np.nan)
        events[f"a{at}"] = pa.array(values, from_pandas=True)
        bounds[f"a{at}_low"] = pa.array(low, from_pandas=True)
        bounds[f"a{at}_high"] = pa.array(low + _WIDTH, from_pandas=True)
    return pa.table(events), pa.table(bounds)


def _written(place: Path, events: pa.Table, subscriptions: pa.Table) -> tuple[Path, Path]:
    place.mkdir()
    for name, table in (("events", events), ("subscriptions", subscriptions)):
        pq.write_table(table, place / f"{name}.parquet", row_group_size=_ROWS)
    return place / "events.parquet", place / "subscriptions.parquet"


# -- measuring ------------------------------------------------------------------------------------------


def _against_index(  # noqa: PLR0913, PLR0917
    spark: Any, place: Path, files: tuple[Path, Path], name: str, output: str, turns: int
) -> list[Result]:
    times: list[tuple[float, float]] = []
    for _ in range(turns):
        alone, wanted = timed(lambda: matched(spark, files, place / "out", "index", output))
        before = _stages(spark)
        parted, found = timed(lambda: matched(spark, files, place / "out", "partitioned", output))
        assert found == wanted, "the strategies find other matches"
        times.append((alone, parted))
    index, partitioned = (float(np.median(side)) for side in zip(*times, strict=True))
    last = _stages(spark)[-1]
    assert last.number > before[-1].number
    form = "" if output == "counts" else f"_{output}"
    return [
        Result(f"{name}/index{form}_seconds", index, "s"),
        Result(f"{name}/partitioned{form}_seconds", partitioned, "s"),
        Result(f"{name}/partitioned_vs_index{form}", partitioned / index, "x the time", 2.5, "lower"),
        Result(f"{name}/largest_task{form}", max(last.times) / float(np.mean(last.times)), "x the mean", 1.5, "lower"),
    ]


def matched(spark: Any, files: Sequence[Path | str], out: Path, strategy: str, output: str) -> int:
    """Match from files to files, and return how many matches were written."""
    events, subscriptions = (spark.read.parquet(str(path)) for path in files)
    match(events, subscriptions, strategy=strategy, output=output, carry=["event"]).write.mode("overwrite").parquet(
        str(out)
    )
    total = 0
    for file in out.glob("*.parquet"):
        held = pq.ParquetFile(file)
        total += (
            int(held.read(["matches"])["matches"].to_numpy().sum()) if output == "counts" else held.metadata.num_rows
        )
    return total


def _alone(events: Path, subscriptions: Path) -> int:
    """How many matches one index of all subscriptions finds."""
    table, index = pq.read_table(subscriptions), TreeIndex()
    axes = [name.removesuffix("_low") for name in table.column_names if name.endswith("_low")]
    index.add_columns(table["id"].to_numpy(), {axis: (table[f"{axis}_low"], table[f"{axis}_high"]) for axis in axes})
    return sum(int(index.count_batch(batch).sum()) for batch in pq.ParquetFile(events).iter_batches(50_000))


def _wide(spark: Any, place: Path, sizes: ScaleSizes) -> Result:
    """The bytes that filters of one predicate take on their way between tasks or to the driver, all copies together."""
    rng = np.random.default_rng(3)
    texts = [
        f"a{rng.integers(sizes.attributes)} BETWEEN {low} AND {low + 9}" for low in rng.integers(0, 1_000, sizes.wide)
    ]
    values = {f"a{at}": rng.uniform(0, _TOP, 20) for at in range(sizes.attributes)}
    files = _written(
        place / "wide",
        pa.table({"event": np.arange(20), **values}),
        pa.table({"id": np.arange(sizes.wide), "filter": texts}),
    )
    first = len(_stages(spark))
    matched(spark, files, place / "out", "partitioned", "counts")
    moved = max(stage.moved for stage in _stages(spark)[first:])
    return Result(f"wide/{sizes.wide}/bytes_per_filter", moved / sizes.wide, "moved", 200, "lower")


class _Stage(NamedTuple):
    """A stage that ran: the milliseconds of its tasks, and the bytes that it gave to a shuffle and to the driver."""

    number: int
    times: list[int]
    moved: int


def _stages(spark: Any) -> list[_Stage]:
    """The stages of all jobs so far that ran, in order."""
    context = spark.sparkContext
    store = context._jsc.sc().statusStore()
    none = context._gateway.new_array(spark._jvm.double, 0)
    every = store.stageList(None, False, False, none, None)
    found = []
    for at in range(every.size()):
        stage = every.apply(at)
        if stage.numCompleteTasks():
            tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
            times = [int(tasks.apply(number).duration().get()) for number in range(tasks.size())]
            found.append(_Stage(stage.stageId(), times, stage.shuffleWriteBytes() + stage.resultSize()))
    return sorted(found)
