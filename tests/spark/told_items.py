"""What a neighbour would be told of an aggregation, made of its rows: an oracle for brokers that load one."""

from __future__ import annotations

import numpy as np

from weft.algebra.relate import as_form
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing.dls.items import LabelSet
from weft.routing.mics.items import CurveRange
from weft.routing.table import Item, ItemId, Update
from weft.spark.aggregate import Aggregated, AggregationModel

_BUNDLE = 64  # labels of an item


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
