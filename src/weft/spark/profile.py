"""The demand of a set of subscriptions. Every filter is counted, and so is text that is not a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.language.predicate import NO_PREDICATES, Predicates
from weft.spark.demand_report import Demand
from weft.spark.statistics import EVENTS, statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def profile(
    subscriptions: DataFrame,
    events: DataFrame | None = None,
    *,
    sample: int = EVENTS,
    seed: int = 1,
    predicates: Predicates = NO_PREDICATES,
) -> Demand:
    """Describe subscriptions (`id`, `filter`) and, if events are given, compare them with the events.

    `sample` is the number of events that are sampled to see which pass. Raises PipelineError if a column is missing.
    """
    return Demand(statistics(subscriptions, events, sample=sample, seed=seed, predicates=predicates))
