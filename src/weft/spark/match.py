"""Matching on Spark: which subscriptions each event of a DataFrame matches. Law: every strategy and every form of
results gives the matches that `meaning` defines, row by row.

`index`: one index of all subscriptions, shipped to every executor. `partitioned`: both sides meet in groups, for more
subscriptions than one machine can hold. `sql`: Spark evaluates the filters itself, for a few hundred of them, and as a
check of the other strategies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import PipelineError
from weft.model.schema import Schema, did_you_mean
from weft.pipeline.boxes import is_numbered
from weft.pipeline.match_job import Strategy
from weft.pipeline.output import ResultForm
from weft.spark.events import by_place, check_frame, event_errors, may_be_left_out, quoted, readable_events
from weft.spark.executor_lookup import match_shipped
from weft.spark.frames import plan_bytes, result_schema
from weft.spark.group_join import match_partitioned
from weft.spark.left_out import LeftOut
from weft.spark.session import session
from weft.spark.shipped_index import Shipped, ship, ship_boxes
from weft.spark.spreading import spread
from weft.spark.sql import MOST_FILTERS, match_sql
from weft.spark.subscriptions import ERRORS, IdCensus, Subscriptions, subscriptions
from weft.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_INDEXED = 5_000_000  # subscriptions in one index, unless told otherwise
GROUP = 250_000  # subscriptions of a group, about
_TASKS = 2  # groups for each core at least
_LEAST = 2  # bytes of a subscription in a file, at the very least


@dataclass(frozen=True, slots=True)
class Prepared:
    """Prepared subscriptions: any number of DataFrames of events can be matched with them."""

    strategy: Strategy
    spark: SparkSession
    numbered: bool  # ids are integers
    given: Subscriptions | None  # None: a snapshot
    shipped: Shipped | None  # of the strategy `index`
    groups: int = 1  # of the strategy `partitioned`
    refused: int | None = None  # rows of subscriptions that were left out, where it is known
    census: IdCensus | None = None  # of the strategy `partitioned`

    def match(self, events: DataFrame, output: str = "pairs", carry: Sequence[str] | None = None) -> DataFrame:
        """The events with the subscriptions that each matches; see `match`."""
        return self._match(events, output, carry, LeftOut())

    def match_counting(self, events: DataFrame, output: str = "pairs") -> tuple[DataFrame, LeftOut]:
        """The same, and what counts the rows that are left out while the result is made, if there can be any."""
        from pyspark.sql import Observation

        unread: Observation | int | None = 0
        if self.given is not None:
            unread = Observation() if self.strategy is Strategy.PARTITIONED else self.refused
            if self.census is not None and self.census.repeated:
                unread = self.census.repeated
        counts = LeftOut(Observation() if may_be_left_out(events) else None, -1 if unread is None else unread)
        return self._match(events, output, None, counts), counts

    def _match(self, events: DataFrame, output: str, carry: Sequence[str] | None, counts: LeftOut) -> DataFrame:
        good = readable_events(events, counts.events)
        wanted = ResultForm.of(output, good.columns, carry)
        results = result_schema(wanted, good.schema, self.numbered)
        if self.shipped is not None:
            return by_place(spread(good)).mapInArrow(partial(match_shipped, self.shipped, wanted), results)
        assert self.given is not None
        if self.strategy is Strategy.PARTITIONED:
            if events.isStreaming:
                raise PipelineError("the strategy partitioned needs all events at once: use the strategy index")
            assert self.census is not None
            refused = None if isinstance(counts.subscriptions, int) else counts.subscriptions
            once, size = self.given.once(self.census), self.census.rows
            return match_partitioned(good, once, size, self.groups, wanted, results, refused)
        from pyspark.sql import functions as sf

        name = "__weft_found"
        while name in good.columns:
            name += "_"
        found = match_sql(good, self.given.filters(MOST_FILTERS), wanted.output.value, name)
        kept = [sf.col(quoted(each)) for each in results.fieldNames()[:-1]]
        return found.select(*kept, sf.col(name).cast(results[-1].dataType.simpleString()).alias(wanted.output.column))

    def errors(self, events: DataFrame | None = None, sides: Sequence[str] = ("subscription", "event")) -> DataFrame:
        """The rows that matching leaves out, of both sides or one: `side`, `row` (JSON) and `reason`."""
        from pyspark.sql import functions as sf

        frames = {}
        if self.given is not None and self.refused != 0 and "subscription" in sides:
            frames["subscription"] = self.given.errors()
        if events is not None and "event" in sides:
            frames["event"] = event_errors(events)
        found = [frame.select(sf.lit(side).alias("side"), "row", "reason") for side, frame in frames.items()]
        if not found:
            return self.spark.createDataFrame([], f"side string, {ERRORS}")
        return reduce(lambda a, b: a.unionByName(b), found)


def prepare(
    source: DataFrame | Subscriptions | str | Path,
    schema: Schema | None = None,
    *,
    strategy: str = "auto",
    groups: int | None = None,
    spark: SparkSession | None = None,
) -> Prepared:
    """Prepare subscriptions for matching: the executors parse the texts, then an index is built and shipped.

    `groups` is the number of groups for the strategy `partitioned`, by default chosen by the number of subscriptions. A
    session is only needed for a snapshot.
    """
    return _prepared(source, schema, strategy, groups, spark, wait=True)


def _prepared(  # noqa: PLR0913, PLR0917
    source: DataFrame | Subscriptions | str | Path,
    schema: Schema | None,
    strategy: str,
    groups: int | None,
    spark: SparkSession | None,
    wait: bool,
) -> Prepared:
    """Prepare subscriptions; without `wait` the index may still be being built."""
    try:
        wanted = Strategy(strategy)
    except ValueError:
        hint = did_you_mean(strategy, Strategy) or f": use one of {', '.join(Strategy)}"
        raise PipelineError(f"there is no strategy {strategy!r}{hint}") from None
    given = subscriptions(source, schema)
    if isinstance(given, Path):
        if wanted not in (Strategy.AUTO, Strategy.INDEX):
            raise PipelineError(f"a snapshot is already an index: the strategy cannot be {wanted}")
        running = spark or session()
        check_workers(running)
        shipped = ship(running, given)
        return Prepared(Strategy.INDEX, running, is_numbered(given), None, shipped, refused=0)
    running = given.frame.sparkSession
    if wanted is not Strategy.SQL:
        check_workers(running)
    numbered = given.reading.numbered
    if wanted is Strategy.SQL:
        if given.reading.schema is not None:
            raise PipelineError("the strategy sql takes events as they are: omit the schema")
        return Prepared(wanted, running, numbered, given, None)
    if wanted is Strategy.PARTITIONED or (wanted is Strategy.AUTO and _is_large(given)):
        census = given.census()
        many = groups or max(_TASKS * _cores(running), -(-census.rows // GROUP))
        return Prepared(Strategy.PARTITIONED, running, numbered, given, None, many, census=census)
    boxes, refused = given.gathered()
    shipped = ship_boxes(running, boxes, given.reading.schema, wait=wait)
    return Prepared(Strategy.INDEX, running, numbered, given, shipped, refused=refused)


def _is_large(given: Subscriptions) -> bool:
    """Whether there are more subscriptions than one index should have. Cost: a job, unless they are plainly few."""
    if (least := plan_bytes(given.frame)) is not None and least < MOST_INDEXED * _LEAST:
        return False
    return given.frame.count() > MOST_INDEXED


def _cores(spark: SparkSession) -> int:
    """How many tasks run at a time; a guess where Spark does not tell."""
    return int(spark.sparkContext.defaultParallelism) if hasattr(spark, "_jsparkSession") else 4


def match(  # noqa: PLR0913 - each has a default that serves
    events: DataFrame,
    subscriptions: DataFrame | Subscriptions | str | Path,
    *,
    schema: Schema | None = None,
    output: str = "pairs",
    carry: Sequence[str] | None = None,
    strategy: str = "auto",
    groups: int | None = None,
    strict: bool = False,
) -> DataFrame:
    """Return the events with the subscriptions that each of them matches.

    The output `pairs` has one row per match, with the column `subscription`; `lists` has one row per event, with
    `subscriptions`; `counts` has one row per event, with `matches`. Rows of either side that cannot be read are left
    out, and `Prepared.errors` returns them; with `strict` they raise PipelineError instead. The results have all
    columns of the events, or only those named by `carry`, which is quicker.

    The events may be a stream; the subscriptions are then those of this moment. `match_stream` lets them change.
    """
    check_frame(events, "events")
    ready = _prepared(subscriptions, schema, strategy, groups, events.sparkSession, wait=False)
    if strict and events.isStreaming:
        raise PipelineError("a stream cannot be strict, because its rows are not known before it runs: omit strict")
    if strict and (wrong := ready.errors(events).head()) is not None:
        raise PipelineError(f"{wrong.side} {wrong.row}: {wrong.reason}")
    return ready.match(events, output, carry)
