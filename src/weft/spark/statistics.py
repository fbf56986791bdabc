"""Statistics of subscriptions and events, on Spark. Text that is not a filter is counted and listed, and fails no job.
The executors read every filter, in one pass. The counts are those that one machine would find.

`asked_of` reads all filters, counts what they ask for in each batch, and lets Spark sum the counts by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.algebra.filter_texts import readable
from weft.demand.demand_counts import SAMPLE, TOP, DemandCounts
from weft.demand.event_sample import EventSample
from weft.demand.filter_demand import demand_of
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.spark.event_statistics import EventStatistics, event_statistics, rank_correlations
from weft.spark.frames import attribute_types, drawn, flat, one_batch, subscriptions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

EVENTS = 20_000  # that are drawn
_ROWS = "what string, name string, value string, count bigint, text string, keys bigint"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is asked for, what occurs, and how events' attributes go together; without events only the first."""

    asked: DemandCounts
    occurring: EventStatistics | None
    correlations: Mapping[tuple[str, str], float]
    unasked: tuple[str, ...] = ()  # attributes of the events that no filter looks at

    def to_dict(self) -> dict[str, Any]:
        """Of JSON's types."""
        return {
            "asked": self.asked.to_dict(),
            "occurring": None if self.occurring is None else self.occurring.to_dict(),
            "correlations": [[*names, value] for names, value in self.correlations.items()],
            "unasked": list(self.unasked),
        }


def statistics(
    subscriptions: DataFrame,
    events: DataFrame | None = None,
    *,
    sample: int = EVENTS,
    seed: int = 1,
    predicates: Predicates = NO_PREDICATES,
) -> Statistics:
    """Statistics of subscriptions (`id`, `filter`) and of events with any columns. Raises PipelineError.

    How many events pass a predicate, and correlations, are estimated from a sample of the events; all other figures are
    exact.
    """
    if events is None:
        return Statistics(asked_of(subscriptions, predicates=predicates), None, {})
    return statistics_with(subscriptions, events, one_batch(drawn(flat(events), sample, seed)), predicates)


def statistics_with(
    subscriptions: DataFrame, events: DataFrame, sample: pa.RecordBatch, predicates: Predicates = NO_PREDICATES
) -> Statistics:
    """The same, with a sample of the events that was already drawn."""
    found = asked_of(subscriptions, EventSample.of(sample), predicates=predicates)
    names = [name for name in attribute_types(events) if name in found.uses]
    unasked = tuple(sorted(set(attribute_types(events)) - set(names)))
    return Statistics(found, event_statistics(events, names), rank_correlations(sample, names), unasked)


def asked_of(
    subscriptions: DataFrame,
    sample: EventSample | None = None,
    *,
    top: int = TOP,
    ranges: int = SAMPLE,
    predicates: Predicates = NO_PREDICATES,
) -> DemandCounts:
    """What all subscriptions ask for; one pass, and a shuffle of the different constants and forms."""
    from pyspark.sql import functions as F  # noqa: N812

    count = partial(demand_of, sample=sample, ranges=ranges, predicates=predicates)
    counted = subscriptions_of(subscriptions).mapInArrow(partial(_count, count=count), _ROWS)
    summed = counted.groupBy("what", "name", "value").agg(
        F.sum("count").alias("count"), F.min("text").alias("text"), F.lit(1).cast("bigint").alias("keys")
    )
    rows = summed.mapInArrow(partial(_top, top=top, ranges=ranges), _ROWS).toArrow()
    return DemandCounts.from_batch(rows).sampled(ranges).topped(top)


def refused(subscriptions: DataFrame, predicates: Predicates = NO_PREDICATES) -> DataFrame:
    """The texts that are not valid filters, and why: id, filter, reason."""
    frame = subscriptions_of(subscriptions)
    id_type = frame.schema["id"].dataType.simpleString()
    return frame.mapInArrow(partial(_refuse, predicates=predicates), f"id {id_type}, filter string, reason string")


def _count(batches: Iterator[pa.RecordBatch], count: Callable[..., DemandCounts]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids, texts = (batch.column(at).to_pylist() for at in range(2))
        yield count(ids, texts).to_batch()


def _top(batches: Iterator[pa.RecordBatch], top: int, ranges: int) -> Iterator[pa.RecordBatch]:
    """The most frequent of a partition; keys are in one partition each, so those of all are among them."""
    found = DemandCounts()
    for batch in batches:
        found = found.merge(DemandCounts.from_batch(batch)).sampled(ranges).topped(top)
    yield found.to_batch()


def _refuse(batches: Iterator[pa.RecordBatch], predicates: Predicates) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        reasons = readable(batch.column(1).to_pylist(), None, predicates).refused
        rows = sorted(reasons)
        kept: Any = batch.take(pa.array(rows, pa.int64()))
        yield kept.append_column("reason", pa.array([reasons[row] for row in rows], pa.string()))
