"""Millions of subscriptions reduced to a small active set, in parallel. The active set admits the same events as all
subscriptions (covering, subsumption, merging without a budget) or more (mics, dls, merging with a budget). Every
passive subscription is proven to be covered by active ones. A bad row goes to the errors, whole, and stops nothing.

`chunks` has what a task does, `rounds` how tasks follow each other. Nothing here needs a SparkContext: Connect will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from weft.algebra.columns import BoxColumns
from weft.algebra.filter_texts import readable
from weft.errors import PipelineError, SchemaError
from weft.index.base import AnyEvent
from weft.model.schema import Schema
from weft.pipeline.predicate_settings import environment_predicates
from weft.routing.dls.space import LabelSpace
from weft.space.cell_space import CellSpace
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.placement import Placement
from weft.spark.aggregate_check import AggregateCheck, check
from weft.spark.chunks import ChunkStep, Reduce, in_chunks, items_of, texts_of, united
from weft.spark.frames import subscriptions_of
from weft.spark.rounds import MOST_ROUNDS, Round, RoundLimits, Rounds, sums
from weft.spark.subscriptions import Subscriptions
from weft.workloads.corners import corner_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AggregationSpace = CellSpace | None

_SAMPLE = 10_000  # subscriptions that say where filters lie
_BITS = 63  # of an index on a curve
_ALL = 1 << 62  # rows in one chunk


class AggregationModel(StrEnum):
    """How subscriptions are reduced, and what the active set consists of."""

    COVERING = "covering"  # those that no other covers
    SUBSUMPTION = "subsumption"  # those that the others do not cover together
    MERGING = "merging"  # mergers
    MICS = "mics"  # ranges of a curve
    DLS = "dls"  # labels


_STEPS = {
    AggregationModel.COVERING: [ChunkStep.COVERING],
    AggregationModel.SUBSUMPTION: [ChunkStep.COVERING, ChunkStep.SUBSUMPTION],
    AggregationModel.MERGING: [ChunkStep.COVERING, ChunkStep.MERGING],
    AggregationModel.MICS: [ChunkStep.COVERING, ChunkStep.RANGES],
    AggregationModel.DLS: [ChunkStep.COVERING],
}
_IN_CELLS = (AggregationModel.MICS, AggregationModel.DLS)
_BYTES = 8  # of a field of an item


@dataclass(frozen=True, slots=True)
class AggregateStatistics:
    """How many subscriptions were given, kept, passive or wrong, and how many items are active.

    `complete` means that all of them were reduced together in the last round; otherwise the active set is sound, but
    could be smaller. Bytes are those of the texts, or 16 for a range and 8 for a label.
    """

    given: int
    kept: int
    active: int
    passive: int
    errors: int
    rounds: tuple[Round, ...]
    complete: bool
    bytes_given: int
    bytes_active: int
    checked: AggregateCheck | None


class Aggregated(NamedTuple):
    """The result, which a broker can load. The frames depend on the model:

    active: id, filter (covering, subsumption); id, filter, components (merging: a merger has the id of a component);
    start, end (mics; of several groups with `group`); label, count (dls). passive: id, filter, coverers, which are ids
    of active rows or, for mics, of subscriptions that are not passive. errors: id, filter, reason. `parameters` are
    those of the space, as JSON. readable: id, filter, every subscription that is not an error.
    """

    active: DataFrame
    passive: DataFrame
    errors: DataFrame
    statistics: AggregateStatistics
    model: AggregationModel
    parameters: str
    readable: DataFrame


def aggregate(  # noqa: PLR0913 - options
    subscriptions: DataFrame | Subscriptions,
    model: str = AggregationModel.COVERING,
    *,
    schema: Schema | None = None,
    space: AggregationSpace = None,
    budget: float = 0.0,
    events: Sequence[AnyEvent] = (),
    check_events: int = 500,
    seed: int = 0,
    limits: RoundLimits | None = None,
    directory: str | None = None,
) -> Aggregated:
    """Reduce subscriptions, given as texts or bounds; subsumption, mics and dls need a schema with bounds.

    `space` is the space of mics or dls, by default over all attributes of the schema. `budget` is the share of the
    domain that mergers may add. The result is checked with `events`, which must conform to the schema, and with
    `check_events` events at the corners of filters. Executors hold the intermediate rounds, and the job fails when one
    is lost; with a `directory`, the rounds are stored there instead. Raises SchemaError or PipelineError, the latter
    also if the active set does not admit an event that it must.
    """
    model, space = _checked_model(model, schema, space)
    if budget and (model is not AggregationModel.MERGING or schema is None or not 0 <= budget <= 1):
        raise SchemaError("a budget is a share from 0 to 1 for merging, and needs a schema with bounds")
    rounds = Rounds(limits, directory)
    given = rounds.keep(_numbered(subscriptions), "given")
    total, size = sums(given, "1", "octet_length(filter)")
    sample = _sample(given, total, schema, seed)
    way = Reduce(ChunkStep.COVERING, schema, Placement.learnt(sample), budget=budget / max(1, total) / MOST_ROUNDS)
    first, rows = rounds.run(given, total, _ways(way, model, space))
    readable = first.where("reason IS NULL").select("id", "filter")
    fine = readable.select("filter")
    active = rounds.keep(_told(rows, model, space, rounds.limits(ChunkStep.RANGES).chunk), "active")
    drawn = [*events, *corner_events(sample, check_events, np.random.default_rng(seed), schema)]
    checked = check(fine, active, drawn, space, exact=space is None and not budget) if drawn else None
    passive = rounds.passive()
    items, told = sums(active, "1", "octet_length(filter)" if space is None else str(_BYTES * len(space.fields)))
    statistics = AggregateStatistics(
        given=total,
        kept=rounds.rounds[-1].active,
        active=items,
        passive=passive.count(),
        errors=rounds.errors,
        rounds=tuple(rounds.rounds),
        complete=rounds.complete,
        bytes_given=size,
        bytes_active=told,
        checked=checked,
    )
    errors = first.where("reason IS NOT NULL").select("id", "filter", "reason")
    return Aggregated(active, passive, errors, statistics, model, "{}" if space is None else space.to_json(), readable)


def _checked_model(
    model: str, schema: Schema | None, space: AggregationSpace
) -> tuple[AggregationModel, AggregationSpace]:
    """The model and its space. Raises PipelineError or SchemaError if they do not fit together."""
    if model not in list(AggregationModel):
        raise PipelineError(f"there is no model {model!r}: choose one of {', '.join(AggregationModel)}")
    model = AggregationModel(model)
    if schema is None and (model is AggregationModel.SUBSUMPTION or (model in _IN_CELLS and space is None)):
        raise SchemaError(f"{model} needs a schema with bounds for every attribute")
    if space is not None and getattr(space, "model", None) != model:
        raise PipelineError(
            f"{model} does not take this space: mics takes a ContentSpace, dls a LabelSpace, other models none"
        )
    if space is None and schema is not None and model is AggregationModel.MICS:
        bits = max(2, min(8, _BITS // max(1, len(schema.attributes))))
        space = ContentSpace(Grid.uniform(schema, 1 << bits))
    elif space is None and schema is not None and model is AggregationModel.DLS:
        space = LabelSpace.of(schema)
    return model, space


def _ways(way: Reduce, model: AggregationModel, space: AggregationSpace) -> list[Reduce]:
    """The steps of a model. Ranges are compared on one curve: where there are several, only filters are."""
    found = []
    for step in _STEPS[model]:
        if step is not ChunkStep.RANGES:
            found.append(replace(way, step=step))
        elif space is not None and len(space.grids) == 1:
            # cells are those of filters as they are written, whatever integers a schema would make of them
            found.append(replace(way, step=step, space=cast("ContentSpace", space), schema=None))
    return found


def _numbered(subscriptions: DataFrame | Subscriptions) -> DataFrame:
    """The rows, each with the number of rows that have its id. Raises PipelineError if they are not subscriptions."""
    import pyspark.sql.functions as F  # noqa: N812
    from pyspark.sql import Window

    return subscriptions_of(subscriptions).withColumn("times", F.count(F.lit(1)).over(Window.partitionBy("id")))


def _sample(given: DataFrame, total: int, schema: Schema | None, seed: int) -> BoxColumns:
    """The boxes of some of the subscriptions that can be read."""
    some = given.where("filter IS NOT NULL").select("filter")
    if total > _SAMPLE:
        some = some.sample(fraction=_SAMPLE / total, seed=seed)
    texts = texts_of(some.limit(2 * _SAMPLE).toArrow())
    return readable(texts, schema, environment_predicates()).columns


def _told(rows: DataFrame, model: AggregationModel, space: AggregationSpace, chunk: int) -> DataFrame:
    """What stands for all, as the model has it."""
    import pyspark.sql.functions as F  # noqa: N812

    filters = rows.select("filter")
    if space is not None:
        names = space.fields + ("count",) * space.countable
        shape = ", ".join(f"{name} bigint" for name in names)
        parts = filters.mapInArrow(partial(in_chunks, partial(items_of, space), chunk), shape)
        if space.countable:
            return parts.groupBy(*space.fields).agg(F.sum("count").alias("count"))
        return parts.repartition(1).mapInArrow(partial(in_chunks, partial(united, space), _ALL), shape)
    if model is AggregationModel.MERGING:
        return rows.select("id", "filter", F.expr("coalesce(components, array(id))").alias("components"))
    return rows.select("id", "filter")
