"""The result of an aggregation, as a folder that a broker or another job can read. The folder is complete: it has
`active`, `passive` and `errors` as tables, `subscriptions` with all that a broker needs to know of each, and `facts`
with the model, the parameters of its space and the statistics.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.server.initial_load import FACTS, NUMBER, SUBSCRIPTIONS
from weft.spark.events import quoted
from weft.spark.files import check_free, write_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weft.spark.aggregate import Aggregated
    from weft.spark.subscriptions import Subscriptions

PARTS = ("active.parquet", "passive.parquet", "errors.jsonl", SUBSCRIPTIONS, FACTS)
_NAMES = {"session": "string", "subscription": "bigint", "owner": "string"}  # columns that name a subscription


def check_folder(spark: SparkSession, folder: str, overwrite: bool) -> None:
    """Raise PipelineError if one of the parts exists and must not be overwritten."""
    for part in PARTS:
        check_free(spark, f"{folder}/{part}", overwrite)


def session_names(given: Subscriptions) -> DataFrame | None:
    """The names that a table has for its subscriptions besides their ids, by `id`; None if it has none.

    Raises PipelineError if a name is of the wrong type.
    """
    from pyspark.sql import functions as sf

    if given.reading.bounds is not None:
        return None  # there a column `session` is an attribute
    found = [name for name in _NAMES if name in given.frame.columns]
    if not found:
        return None
    for name in found:
        kind = given.frame.schema[name].dataType.simpleString()
        if name == "subscription" and kind not in ("tinyint", "smallint", "int", "bigint"):
            raise PipelineError(f"the column 'subscription' is of type {kind}: make it the number that its client uses")
    key = sf.col(quoted(given.names[0])).cast(given.id_type).alias("id")
    return given.frame.select(key, *(sf.col(name).cast(_NAMES[name]) for name in found))


def named(aggregated: Aggregated, names: DataFrame | None = None) -> DataFrame:
    """Every subscription that can be read, with the session and the number under which a broker has it.

    What has no other name is the only subscription of a session that is named by its id.
    """
    from pyspark.sql import functions as sf

    rows = aggregated.readable if names is None else aggregated.readable.join(names, "id", "left")
    known = {name: sf.col(name) if name in rows.columns else sf.lit(None).cast(kind) for name, kind in _NAMES.items()}
    session = sf.coalesce(known["session"], sf.col("id").cast("string"))
    number = sf.coalesce(known["subscription"], sf.lit(int(NUMBER)).cast("bigint"))
    columns = (session.alias("session"), number.alias("subscription"), known["owner"].alias("owner"))
    return rows.select(*columns, "id", "filter").sort("session", "subscription")


def save(aggregated: Aggregated, folder: str, overwrite: bool = False, names: DataFrame | None = None) -> None:
    """Write the parts; `names` are those of `session_names`. Raises PipelineError."""
    frames = (aggregated.active, aggregated.passive, aggregated.errors, named(aggregated, names))
    for part, frame in zip(PARTS, frames, strict=False):
        write_frame(frame, f"{folder}/{part}", overwrite=overwrite)
    spark = aggregated.active.sparkSession
    facts = facts_of(aggregated)
    line = spark.createDataFrame(
        [(name, json.dumps(value)) for name, value in facts.items()], "name string, json string"
    )
    write_frame(line.coalesce(1), f"{folder}/{PARTS[-1]}", overwrite=overwrite)


def facts_of(aggregated: Aggregated) -> dict[str, Any]:
    """The model, its parameters and the statistics, of JSON's types."""
    numbers = asdict(aggregated.statistics)
    checked = aggregated.statistics.checked
    if checked is not None:
        numbers["checked"]["false_positives"] = checked.false_positives
    return {"model": str(aggregated.model), "parameters": json.loads(aggregated.parameters), **numbers}
