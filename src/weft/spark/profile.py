"""What the users of a set of subscriptions ask for. Law: every filter is counted; what is none is counted too."""

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
    """The portrait of subscriptions (`id`, `filter`), against events of any columns if they are given.

    `sample` is how many events are drawn to see which pass. Raises PipelineError for a frame that lacks a column.
    """
    return Demand(statistics(subscriptions, events, sample=sample, seed=seed, predicates=predicates))
