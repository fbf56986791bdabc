"""Statistics of events, attribute by attribute, counted on Spark. Counts are exact. Boundaries of numbers and
timestamps are approximate quantiles, those of strings exact ones by frequency. NULL and NaN are absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.model.column import typed_columns
from weft.model.schema import Schema
from weft.model.value import Type
from weft.spark.events import quoted
from weft.spark.frames import attribute_types, flat

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

CELLS = 64  # of equal depth
TOP = 20  # strings
_ACCURACY = 10_000  # of quantiles: one part in so many
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class AttributeSummary:
    """An attribute of events; timestamps are in microseconds.

    `boundaries` divide its values into cells that hold about as many events each, its least and greatest included.
    """

    type: Type
    present: int
    distinct: int  # about so many
    boundaries: tuple[Any, ...] = ()
    top: Mapping[str, int] = field(default_factory=dict)  # the most frequent strings or bools

    def to_dict(self) -> dict[str, Any]:
        """Of JSON's types."""
        bounds = [repr(each) if isinstance(each, float) and not np.isfinite(each) else each for each in self.boundaries]
        shape = {"type": str(self.type), "present": self.present, "distinct": self.distinct}
        return {**shape, "boundaries": bounds, "top": dict(self.top)}


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """Events: how many, and what each attribute is like."""

    events: int
    attributes: Mapping[str, AttributeSummary]

    def to_dict(self) -> dict[str, Any]:
        """Of JSON's types."""
        return {"events": self.events, "attributes": {name: seen.to_dict() for name, seen in self.attributes.items()}}


def event_statistics(
    events: DataFrame, names: Collection[str] | None = None, cells: int = CELLS, top: int = TOP
) -> EventStatistics:
    """What the events are like, in all attributes or the named ones that they have. Cost: two passes."""
    from pyspark.sql import functions as F  # noqa: N812

    kinds = {name: kind for name, kind in attribute_types(events).items() if names is None or name in names}
    frame = flat(events).select(*(_present(name, kind).alias(name) for name, kind in kinds.items()))
    shares = [at / cells for at in range(cells + 1)]
    wanted = [F.count(F.lit(1)).alias("events")]
    for at, (name, kind) in enumerate(kinds.items()):
        column = F.col(quoted(name))
        wanted += [F.count(column).alias(f"present{at}"), F.approx_count_distinct(column).alias(f"distinct{at}")]
        if kind is Type.BOOL:
            wanted.append(F.count_if(column).alias(f"true{at}"))
        elif kind is not Type.STRING:
            wanted.append(F.percentile_approx(column, shares, _ACCURACY).alias(f"boundaries{at}"))
    row = frame.agg(*wanted).collect()[0]
    strings = [name for name, kind in kinds.items() if kind is Type.STRING]
    tops, depths = _strings(frame, strings, cells, top) if strings else ({}, {})
    found = {}
    for at, (name, kind) in enumerate(kinds.items()):
        present = row[f"present{at}"]
        if kind is Type.BOOL:
            seen: dict[str, int] = {"FALSE": present - row[f"true{at}"], "TRUE": row[f"true{at}"]}
            found[name] = AttributeSummary(kind, present, row[f"distinct{at}"], (), seen)
        elif kind is Type.STRING:
            found[name] = AttributeSummary(
                kind, present, row[f"distinct{at}"], depths.get(name, ()), tops.get(name, {})
            )
        else:
            found[name] = AttributeSummary(kind, present, row[f"distinct{at}"], tuple(row[f"boundaries{at}"] or ()))
    return EventStatistics(row["events"], found)


def rank_correlations(sample: pa.RecordBatch, names: Collection[str]) -> dict[tuple[str, str], float]:
    """Spearman's correlation between the attributes that have an order, over the events that have both.

    >>> import pyarrow as pa
    >>> rank_correlations(pa.record_batch({"x": [1, 2, 3, 4], "y": [1.0, 8.0, 27.0, None]}), ["x", "y"])
    {('x', 'y'): 1.0}
    """
    visible = set(Schema.infer(sample, most_categories=0)) & set(names)
    columns = {
        name: column
        for name, column in typed_columns(sample, visible).items()
        if column.type is not None and column.type is not Type.STRING
    }
    found = {}
    for one, other in combinations(sorted(columns), 2):
        both = ~(columns[one].absent | columns[other].absent)
        ranks = [_ranks(columns[name].values[both].astype(np.float64)) for name in (one, other)]
        if both.sum() > 1 and all(each.std() > 0 for each in ranks):
            found[one, other] = round(float(np.corrcoef(*ranks)[0, 1]), 4)
    return found


def _ranks(values: Any) -> Any:
    """The ranks of values; equal ones share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _present(name: str, kind: Type) -> Column:
    """The column with absence for what filters take as absent, timestamps as microseconds."""
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quoted(name))
    if kind is Type.FLOAT:
        number = column.cast("double")
        return F.when(~F.isnan(number), number)
    if kind is Type.TIMESTAMP:
        epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        zoned = F.typeof(column) == "timestamp"
        naive = F.timestamp_diff("MICROSECOND", epoch, column.cast("timestamp_ntz"))
        return F.when(zoned, F.unix_micros(column.cast("timestamp"))).otherwise(naive)
    return column


def _strings(
    frame: DataFrame, names: list[str], cells: int, top: int
) -> tuple[dict[str, dict[str, int]], dict[str, tuple[str, ...]]]:
    """The most frequent strings of each attribute, and its boundaries."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    each = F.explode(
        F.array(*(F.struct(F.lit(name).alias("name"), F.col(quoted(name)).alias("value")) for name in names))
    )
    counted = (
        frame.select(each.alias("each")).select("each.*").where("value IS NOT NULL").groupBy("name", "value").count()
    )
    whole = Window.partitionBy("name")
    upward = whole.orderBy("value").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.sum("count").over(upward) - F.col("count")
    marked = (
        counted.withColumn("often", F.row_number().over(whole.orderBy(F.desc("count"), "value")))
        .withColumn("cell", F.floor(before * cells / F.sum("count").over(whole)))
        .withColumn("place", F.row_number().over(Window.partitionBy("name", "cell").orderBy("value")))
    )
    rows = marked.where((F.col("often") <= top) | (F.col("place") == 1)).collect()
    tops: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: row["often"]):
        if row["often"] <= top:
            tops.setdefault(row["name"], {})[row["value"]] = row["count"]
    depths: dict[str, tuple[str, ...]] = {}
    for row in sorted(rows, key=lambda row: row["cell"]):
        if row["place"] == 1:
            depths[row["name"]] = (*depths.get(row["name"], ()), row["value"])
    return tops, depths
