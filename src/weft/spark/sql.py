"""Matching by plain Spark SQL, one pass over the events. Law: the matches are those that `meaning` finds TRUE.

Every filter is one expression of one projection: nothing is installed on the executors, no Python runs there, and the
cost is events times filters. Meant for some hundreds of filters; an index is for more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, get_args

from weft.errors import PipelineError
from weft.language.ast import Filter, attributes
from weft.model.value import INT_MAX, INT_MIN
from weft.spark.expression import EventColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Output = Literal["pairs", "lists", "counts"]

MOST_FILTERS: Final = 1000  # past it Spark takes longer to plan and compile the projection than to run it
_NAMES: dict[Output, str] = {"pairs": "subscription", "lists": "subscriptions", "counts": "matches"}


def match_sql(
    events: DataFrame, filters: Sequence[tuple[int | str, Filter]], output: Output = "pairs", name: str | None = None
) -> DataFrame:
    """The events with the ids of the filters that they match, in one more column.

    `pairs`: one row for each match, its id in `subscription`. `lists`: every event once, its ids ascending in
    `subscriptions`. `counts`: every event once, how many match in `matches`. `name` is another name for the column.
    Ids are all bigints or all strings. Raises PipelineError past MOST_FILTERS filters, or for ids and names that clash.
    """
    from pyspark.sql import functions as sf

    if output not in get_args(Output):
        raise PipelineError(f"there is no output {output!r}: choose one of {', '.join(_NAMES)}")
    if len(filters) > MOST_FILTERS:
        raise PipelineError(
            f"{len(filters)} filters are too many for one Spark SQL expression, which takes {MOST_FILTERS} at most: "
            "match with an index"
        )
    name = _NAMES[output] if name is None else name
    kind = _kind_of([each for each, _ in filters])
    _check_names(events, filters, name)
    ids = _matched(EventColumns(events.schema), filters, kind)
    if output == "counts":
        return events.select("*", sf.size(ids).cast("bigint").alias(name))
    return events.select("*", (sf.explode(ids) if output == "pairs" else ids).alias(name))


def _kind_of(ids: Sequence[int | str]) -> str:
    """The one type of all ids, as Spark names it; of none bigint."""
    if len(set(ids)) < len(ids):
        twice = next(each for each, count in Counter(ids).items() if count > 1)
        raise PipelineError(f"the id {twice!r} is given to two filters: every filter needs its own")
    if all(type(each) is str for each in ids) and ids:
        return "string"
    if all(type(each) is int and INT_MIN <= each <= INT_MAX for each in ids):
        return "bigint"
    raise PipelineError("the ids of filters must be all ints of 64 bits or all strings: change the odd ones")


def _check_names(events: DataFrame, filters: Sequence[tuple[int | str, Filter]], name: str) -> None:
    """Names that Spark could not tell apart are refused here, in words that help."""
    fold: Callable[[str], str] = str.lower
    if events.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        fold = str
    if fold(name) in map(fold, events.columns):
        raise PipelineError(f"the events have a column {name!r} already: give the new one another name")
    spelled = Counter(map(fold, EventColumns(events.schema)))
    for wanted in sorted(frozenset().union(*(attributes(each) for _, each in filters))):
        if spelled[fold(wanted)] > 1:
            raise PipelineError(
                f"columns differ from {wanted!r} only in case: set spark.sql.caseSensitive to true, or rename them"
            )


def _matched(columns: EventColumns, filters: Sequence[tuple[int | str, Filter]], kind: str) -> Column:
    """The ids of the filters that an event matches, ascending."""
    from pyspark.sql import functions as sf

    ascending = sorted(filters, key=lambda pair: pair[0])
    found = [sf.when(columns.truth(each), sf.lit(its).cast(kind)) for its, each in ascending]
    return sf.array_compact(sf.array(*found).cast(f"array<{kind}>"))
