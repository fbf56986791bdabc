"""Rounds of reduction on Spark. Every round is stored before the next begins, because a task that runs again must not
find otherwise what was found to be covered. What is passive in the end is covered by what is active in the end.

Chunks are reduced as they come, then placed so that similar filters meet, and finally in one task if few are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pyarrow as pa

from weft.spark.chunks import ChunkStep, Reduce, in_chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ACTIVE = "(coverers IS NULL AND reason IS NULL)"
_FEW = 5_000  # rows that one task reduces at once
_TURNS = 2  # placements that are tried before the last round
MOST_ROUNDS = _TURNS + 1  # of one step


class RoundLimits(NamedTuple):
    """How many rows are reduced together in a round, and at most how many in the last, by one task."""

    chunk: int
    last: int


LIMITS = {
    ChunkStep.COVERING: RoundLimits(50_000, 1_000_000),
    ChunkStep.SUBSUMPTION: RoundLimits(2_000, 10_000),
    ChunkStep.MERGING: RoundLimits(20_000, 100_000),
    ChunkStep.RANGES: RoundLimits(20_000, 200_000),
}


@dataclass(frozen=True, slots=True)
class Round:
    """How many rows a round was given, and how many it left active; `together` if all were in one task."""

    step: ChunkStep
    given: int
    active: int
    together: bool = False


class Rounds:
    """The rounds of one aggregation, by some ways to reduce, one after another.

    Frames are kept by the executors, and the job fails when one is lost; in a `directory` they outlive that.
    """

    def __init__(self, limits: RoundLimits | None = None, directory: str | None = None) -> None:
        self.rounds: list[Round] = []
        self.complete = True  # all were at last reduced together
        self.errors = 0
        self._limits = limits
        # a folder of its own, for what an earlier run left is still somebody's
        self._directory = None if directory is None else f"{directory.rstrip('/')}/{uuid4().hex}"
        self._found: list[tuple[DataFrame, bool]] = []  # what each round made passive; whether by several together

    def limits(self, step: ChunkStep) -> RoundLimits:
        """Those of a step."""
        return self._limits or LIMITS[step]

    def keep(self, frame: DataFrame, name: str) -> DataFrame:
        """The frame as it is now, whatever runs again later."""
        if self._directory is None:
            return frame.localCheckpoint()
        path = f"{self._directory}/{name}"
        frame.write.mode("overwrite").parquet(path)
        return frame.sparkSession.read.schema(frame.schema).parquet(path)

    def run(self, given: DataFrame, total: int, ways: Sequence[Reduce]) -> tuple[DataFrame, DataFrame]:
        """Reduce the rows (id, filter, times): all of them with the errors marked, and what is active in the end."""
        chunk = self.limits(ways[0].step).chunk
        few = total <= min(chunk, _FEW)
        if few:  # one task and one round: to start others takes longer than the work
            given = given.coalesce(1).sortWithinPartitions("id", "filter")
        first = self._round(given, ways[0].step, ways[0].first, None if few else chunk, total)
        rows = _active(first)
        for way in ways[1:] if few else ways:
            rows = self._reduce(rows, way)
        return first, rows

    def _reduce(self, rows: DataFrame, way: Reduce) -> DataFrame:
        chunk, last = self.limits(way.step)
        for turn in range(_TURNS):
            left = self.rounds[-1].active
            if left <= chunk:
                break
            placed = rows.repartitionByRange(-(-left // chunk), "place").sortWithinPartitions("place")
            rows = _active(self._round(placed, way.step, replace(way, middle=turn % 2 == 1), chunk, left))
        left = self.rounds[-1].active
        if left > last:
            self.complete = False
            return rows
        together = rows.repartition(1).sortWithinPartitions("place", "id")
        return _active(self._round(together, way.step, way, None, left))

    def _round(
        self, rows: DataFrame, step: ChunkStep, work: Callable[[pa.Table], pa.Table], chunk: int | None, given: int
    ) -> DataFrame:
        kind = dict(rows.dtypes)["id"]
        shape = f"id {kind}, filter string, components array<{kind}>, coverers array<{kind}>, "
        shape += "reason string, place bigint, unsure bigint"
        body = partial(in_chunks, work, given + 1 if chunk is None else chunk)
        done = self.keep(rows.mapInArrow(body, shape), f"round-{len(self.rounds)}")
        active, errors, unsure = sums(done, f"cast({_ACTIVE} AS int)", "cast(reason IS NOT NULL AS int)", "unsure")
        self.rounds.append(Round(step, given, active, chunk is None))
        self.errors += errors
        if chunk is None and unsure:
            self.complete = False
        self._found.append((done.where("coverers IS NOT NULL"), step is ChunkStep.SUBSUMPTION))
        return done

    def passive(self) -> DataFrame:
        """All that is passive, with the active ones that stand for it: chains are followed, the last round first."""
        import pyspark.sql.functions as F  # noqa: N812 - everybody calls it so

        later: DataFrame | None = None
        every: DataFrame | None = None
        for frame, several in reversed(self._found):
            own = F.expr("coverers[0] = id").alias("own")  # a merger bears the id of one that it is made of
            found = frame.select("id", "filter", "components", "coverers", own)
            if later is not None:
                found = _followed(found, later, several)
            links = found.where("NOT own")
            links = links.select(F.col("id").alias("link"), F.col("coverers").alias("further"))
            later = links if later is None else later.unionByName(links)
            given = found.where("components IS NULL").select("id", "filter", "coverers")
            every = given if every is None else every.unionByName(given)
        assert every is not None
        return self.keep(every, "passive")


def _followed(found: DataFrame, later: DataFrame, several: bool) -> DataFrame:
    """Passive rows whose coverers became passive later, with what stands for those."""
    import pyspark.sql.functions as F  # noqa: N812

    if not several:
        joined = found.join(later, F.expr("coverers[0] = link"), "left")
        return joined.select(
            "id", "filter", "components", F.expr("coalesce(further, coverers)").alias("coverers"), "own"
        )
    one = found.select("id", F.explode("coverers").alias("one")).join(later, F.expr("one = link"), "left")
    some = one.select("id", F.expr("coalesce(further, array(one))").alias("some"))
    sets = some.groupBy("id").agg(F.expr("array_sort(array_distinct(flatten(collect_list(some))))").alias("coverers"))
    return found.drop("coverers").join(sets, "id").select("id", "filter", "components", "coverers", "own")


def _active(done: DataFrame) -> DataFrame:
    return done.where(_ACTIVE)


def sums(frame: DataFrame, *expressions: str) -> list[int]:
    """The sums of expressions over all rows, 0 of none."""
    import pyspark.sql.functions as F  # noqa: N812

    totals = [F.expr(f"coalesce(sum({each}), 0)").alias(f"t{at}") for at, each in enumerate(expressions)]
    (row,) = frame.agg(*totals).toArrow().to_pylist()
    return list(map(int, row.values()))
