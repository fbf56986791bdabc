"""Routing tables that start with an aggregation. A loaded table tells its neighbours what a table with every
subscription would tell them. What a neighbour is told admits every event that matches a subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft.algebra.relate import as_form
from weft.errors import PipelineError
from weft.index.base import SubId
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing.dls.items import LabelSet
from weft.routing.dls.structure import CountingFilter, FilterShape
from weft.routing.elided import Elided, Passive
from weft.routing.filter_table import FilterTable
from weft.routing.local import Local
from weft.routing.mics.items import CurveRange
from weft.routing.table import Item, ItemId, Update
from weft.spark.aggregate import Aggregated, AggregationModel

T = TypeVar("T", bound=FilterTable[Any, Any])

_BUNDLE = 64  # labels of an item
_FULL = 255  # what no counter of a filter goes beyond


def load(aggregated: Aggregated, make: Callable[[Local], T]) -> T:
    """A table whose local part is what was aggregated: the active set as one change, the passive elided.

    `make` makes a table of filters with a local part: `lambda local: CoveringTable(schema, local=local)`. Subscriptions
    come and go as in any other; what was passive is read when what stood for it goes. Raises PipelineError.
    """
    if aggregated.model in (AggregationModel.MICS, AggregationModel.DLS):
        raise PipelineError(f"a table of filters cannot be loaded from {aggregated.model}: send its update instead")
    if dict(aggregated.active.dtypes)["id"] != "bigint":
        raise PipelineError("a broker needs integer ids: aggregate subscriptions with ids of type bigint")
    rows = aggregated.active.toArrow().to_pylist()
    hidden = aggregated.passive.toArrow().to_pylist()
    passive = {SubId(row["id"]): Passive(row["filter"], tuple(map(SubId, row["coverers"]))) for row in hidden}
    components = {SubId(row["id"]): row["components"] for row in rows if len(row.get("components", ())) > 1}
    active = {SubId(row["id"]): parse(row["filter"]) for row in rows}
    table = make(Elided(passive, active, components))
    table.change(active, ())
    return table


def update(aggregated: Aggregated, schema: Schema | None = None) -> Update:
    """All that a neighbour is told of it, fresh: filters, normal forms of mergers, ranges, or label sets."""
    rows = aggregated.active.toArrow()
    items: list[Item]
    match aggregated.model:
        case AggregationModel.MICS:
            groups = rows["group"].to_pylist() if "group" in rows.column_names else [0] * len(rows)
            ends = zip(groups, rows["start"].to_pylist(), rows["end"].to_pylist(), strict=True)
            items = [CurveRange(int(group or 0), int(start or 0), int(end or 0)) for group, start, end in ends]
        case AggregationModel.DLS:
            labels = np.sort(rows["label"].to_numpy()).tolist()
            items = [LabelSet(tuple(labels[at : at + _BUNDLE])) for at in range(0, len(labels), _BUNDLE)]
        case AggregationModel.MERGING:
            items = [as_form(parse(str(text)), schema) for text in rows["filter"].to_pylist()]
        case _:
            items = [parse(str(text)) for text in rows["filter"].to_pylist()]
    return Update(fresh=True, add={ItemId(number): item for number, item in enumerate(items)})


def counting_filter(aggregated: Aggregated, shape: FilterShape | None = None) -> CountingFilter:
    """The labels of dls in a counting filter, each as often as it is wanted; `to_bytes` sends it. Raises PipelineError.

    Without a shape, one for a false positive in a hundred.
    """
    if aggregated.model is not AggregationModel.DLS:
        raise PipelineError(f"{aggregated.model} has no labels: aggregate with dls")
    rows = aggregated.active.toArrow()
    held = CountingFilter(FilterShape.fitting(len(rows)) if shape is None else shape)
    held.add(np.repeat(rows["label"].to_numpy(), np.minimum(rows["count"].to_numpy(), _FULL)))
    return held
