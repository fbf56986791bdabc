"""Matching by plain Spark SQL finds what `meaning` finds, once for each pair, list or count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from strategies import KINDS
from weft import parse
from weft.errors import FilterError, PipelineError
from weft.language.ast import AttributeRef, Call, Filter
from weft.language.constant import Constant
from weft.language.meaning import matches
from weft.model.event import Event
from weft.spark.sql import MOST_FILTERS, match_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXTS = (
    "x > 1",
    "x BETWEEN 0 AND 2",
    "NOT x = 1",
    "y LIKE 'a%'",
    "y ILIKE 'A%'",
    "y NOT ILIKE '%B'",
    "x > 1 OR y = 'b'",
    "z IS NULL",
    "FALSE",
    "z > 0",
    "x",
)
FILTERS: list[tuple[int | str, Filter]] = [(100 - n, parse(text)) for n, text in enumerate(TEXTS)]
NAMED: list[tuple[int | str, Filter]] = [(f"s{its}", wanted) for its, wanted in FILTERS]
ROWS = [
    {"n": n, "x": x, "y": y, "list": [n]}
    for n, (x, y) in enumerate((x, y) for x in (None, 0, 1, 2, 3) for y in (None, "ab", "b"))
]


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist([*ROWS, {"n": 99, "x": None, "y": None, "list": None}]))


def expected(n: int, filters: list[tuple[int | str, Filter]]) -> list[int | str]:
    row = next((row for row in ROWS if row["n"] == n), {})
    event = Event.of({name: row.get(name) for name in ("x", "y")})
    return sorted(its for its, wanted in filters if matches(wanted, event))


@pytest.mark.parametrize(("filters", "kind"), [(FILTERS, "bigint"), (NAMED, "string")])
def test_every_output_finds_what_meaning_finds(
    events: DataFrame, filters: list[tuple[int | str, Filter]], kind: str
) -> None:
    lists = match_sql(events, filters, "lists")
    assert dict(lists.dtypes)["subscriptions"] == f"array<{kind}>"
    found = {row.n: row.subscriptions for row in lists.collect()}
    assert found == {n: expected(n, filters) for n in (*range(len(ROWS)), 99)}
    assert len(set(map(len, found.values()))) > 3

    counts = match_sql(events, filters, "counts")
    assert dict(counts.dtypes)["matches"] == "bigint"
    assert {row.n: row.matches for row in counts.collect()} == {n: len(ids) for n, ids in found.items()}

    pairs = match_sql(events, filters, "pairs")
    assert pairs.columns == [*events.columns, "subscription"]
    assert dict(pairs.dtypes)["subscription"] == kind
    listed = sorted((row.n, row.x, row.list, row.subscription) for row in pairs.where("x IS NOT NULL").collect())
    assert listed == [(r["n"], r["x"], r["list"], its) for r in ROWS if r["x"] is not None for its in found[r["n"]]]
    assert pairs.count() == sum(map(len, found.values()))


def test_an_event_that_nobody_wants_is_in_lists_and_counts_alone(events: DataFrame) -> None:
    nobody = [(1, parse("x > 1000")), (2, parse("z > 0"))]
    assert match_sql(events, nobody).count() == 0
    assert {tuple(row.ids) for row in match_sql(events, nobody, "lists", "ids").collect()} == {()}
    assert {row.many for row in match_sql(events, nobody, "counts", "many").collect()} == {0}


def test_no_filters_at_all(events: DataFrame) -> None:
    assert match_sql(events, []).count() == 0
    assert dict(match_sql(events, [], "lists").dtypes)["subscriptions"] == "array<bigint>"
    assert {row.matches for row in match_sql(events, [], "counts").collect()} == {0}


def test_events_pass_once_without_a_shuffle(events: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    match_sql(events, FILTERS).explain()
    plan = capsys.readouterr().out
    assert "Exchange" not in plan
    assert "Join" not in plan
    assert plan.count("Scan") == 1


@pytest.mark.slow
def test_the_largest_set_that_is_taken(events: DataFrame) -> None:
    many = [(n, parse(f"x = {n % 5}")) for n in range(MOST_FILTERS)]
    found = {row.x: row.matches for row in match_sql(events, many, "counts").collect()}
    assert found == {None: 0} | dict.fromkeys((0, 1, 2, 3), MOST_FILTERS // 5)
    with pytest.raises(PipelineError, match=rf"{MOST_FILTERS + 1} filters are too many .* {MOST_FILTERS} at most"):
        match_sql(events, [*many, (MOST_FILTERS, parse("TRUE"))])


@pytest.mark.parametrize("ids", [(1, "1"), (1, True), (1, 2**63), (1, 1.5), (None, None), (1, 1), ("a", "a")])
def test_ids_are_all_bigints_or_all_strings_and_each_once(events: DataFrame, ids: tuple[object, ...]) -> None:
    with pytest.raises(PipelineError, match="id"):
        match_sql(events, [(its, parse("TRUE")) for its in ids])  # type: ignore[misc]


def test_names_that_clash_are_refused(events: DataFrame, spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="already have a column 'X'"):
        match_sql(events, FILTERS, name="X")
    twins = spark.sql("SELECT 1 AS a, 2 AS b, 3 AS A")
    with pytest.raises(PipelineError, match="only in case: set spark.sql.caseSensitive"):  # noqa: RUF043
        match_sql(twins, [(1, parse("a = 1"))])
    assert match_sql(twins, [(1, parse("b = 2 AND B IS NULL"))]).count() == 1
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert match_sql(twins, [(1, parse("a = 1 AND A = 3"))], name="B").columns == ["a", "b", "A", "B"]
        assert match_sql(twins, [(1, parse("a = 1 AND A = 3"))]).count() == 1
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


def test_what_else_is_refused(events: DataFrame) -> None:
    with pytest.raises(PipelineError, match="no output 'sets'"):
        match_sql(events, FILTERS, "sets")  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="is a predicate"):
        match_sql(events, [(1, Call(KINDS, AttributeRef("y"), (Constant.of("car"),)))])
