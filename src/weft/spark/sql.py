"""Matching by plain Spark SQL, one pass over the events. The matches are those that `meaning` finds TRUE.

Every filter is one expression of one projection: nothing is installed on the executors, no Python runs there, and the
cost is events times filters. Meant for some hundreds of filters; an index is for more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from weft.errors import PipelineError
from weft.language.ast import Filter, Like, attributes, walk
from weft.model.value import INT_MAX, INT_MIN
from weft.pipeline.output import Output
from weft.spark.expression import FrameAttributes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_FILTERS: Final = 1000  # all are one expression, planned and compiled as a whole; tested up to here


def match_sql(
    events: DataFrame, filters: Sequence[tuple[int | str, Filter]], output: str = "pairs", name: str | None = None
) -> DataFrame:
    """The events with the ids of the filters that they match, in one more column.

    `pairs`: one row for each match, its id in `subscription`. `lists`: every event once, its ids ascending in
    `subscriptions`. `counts`: every event once, how many match in `matches`. `name` is another name for the column.
    Ids are all bigints or all strings. Raises PipelineError past MOST_FILTERS filters, or for ids and names that clash.
    """
    from pyspark.sql import functions as sf

    form = Output.named(output)
    if len(filters) > MOST_FILTERS:
        raise PipelineError(
            f"{len(filters)} filters are too many for one Spark SQL expression, which takes at most {MOST_FILTERS}: "
            "match with an index"
        )
    name = form.column if name is None else name
    kind = _kind_of([each for each, _ in filters])
    _check_names(events, filters, name)
    unused = _unused([*events.columns, name])
    held, columns = FrameAttributes(events.schema).read_first(_wanted(filters), _folded(filters), unused)
    found = _matched(columns, filters, kind)
    if form is Output.COUNTS:
        found = sf.size(found).cast("bigint")
    elif output == "pairs":
        found = sf.explode(found)
    else:
        found = sf.sort_array(found)
    first = events.select("*", *(column.alias(each) for each, column in held.items()))
    return first.select("*", found.alias(name)).drop(*held)


def _kind_of(ids: Sequence[int | str]) -> str:
    """The one type of all ids, as Spark names it; of none bigint."""
    if len(set(ids)) < len(ids):
        twice = next(each for each, count in Counter(ids).items() if count > 1)
        raise PipelineError(f"duplicate id {twice!r}: every filter needs its own")
    if all(type(each) is str for each in ids) and ids:
        return "string"
    if all(type(each) is int and INT_MIN <= each <= INT_MAX for each in ids):
        return "bigint"
    raise PipelineError("the ids of filters must be all 64-bit integers or all strings")


def _check_names(events: DataFrame, filters: Sequence[tuple[int | str, Filter]], name: str) -> None:
    """Names that Spark could not tell apart are refused here, in words that help."""
    fold: Callable[[str], str] = str.lower
    if events.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        fold = str
    if fold(name) in map(fold, events.columns):
        raise PipelineError(f"the events already have a column {name!r}: give the new one another name")
    spelled = Counter(map(fold, FrameAttributes(events.schema)))  # each spelling once
    for wanted in sorted(_wanted(filters)):
        if spelled[fold(wanted)] > 1:
            raise PipelineError(
                f"columns differ from {wanted!r} only in case: set spark.sql.caseSensitive to true, or rename them"
            )


def _unused(names: Sequence[str]) -> str:
    """What none of the names starts with."""
    prefix = "weft_"
    while any(each.lower().startswith(prefix) for each in names):
        prefix += "_"
    return prefix


def _wanted(filters: Sequence[tuple[int | str, Filter]]) -> frozenset[str]:
    return frozenset().union(*(attributes(each) for _, each in filters))


def _folded(filters: Sequence[tuple[int | str, Filter]]) -> frozenset[str]:
    """The attributes that are tested with ILIKE."""
    nodes = (node for _, each in filters for node in walk(each))
    return frozenset(node.left.name for node in nodes if isinstance(node, Like) and node.compiled.ignore_case)


def _matched(columns: FrameAttributes, filters: Sequence[tuple[int | str, Filter]], kind: str) -> Column:
    """The ids of the filters that an event matches, as an array."""
    from pyspark.sql import functions as sf

    ids = [sf.when(columns.column(each), sf.lit(its).cast(kind)) for its, each in filters]
    # Not array_compact: it is a lambda, and whatever a lambda is given Spark interprets instead of compiling it.
    return sf.array_except(sf.array(*ids).cast(f"array<{kind}>"), sf.array(sf.lit(None).cast(kind)))
