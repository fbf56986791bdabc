"""Matching on Spark finds what `meaning` finds, by every strategy and in every form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.test_expression import event_of, frame, setting, some_filter, some_row
from strategies import EXAMPLES
from weft import Schema, TreeIndex, matches
from weft.errors import PipelineError, SnapshotError
from weft.language.ast import Filter
from weft.spark import Output, Prepared, Strategy, match, prepare, subscriptions
from weft.spark.spreading import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STRATEGIES = [strategy.value for strategy in Strategy if strategy is not Strategy.AUTO]
OUTPUTS = [output.value for output in Output]
SLOW_LAST = [  # partitioned runs have most jobs
    pytest.param(strategy, marks=[pytest.mark.slow] * (strategy == "partitioned")) for strategy in STRATEGIES
]
FEW = 10  # filters
OF_A_DEPTH = 25 if EXAMPLES > 1 else 10
Answer = dict[int, list[Any]]


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    with setting(spark, caseSensitive="true", session__timeZone="America/New_York"):
        yield spark


def numbered(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    return rows.withColumn("number", sf.monotonically_increasing_id())


def answers(found: DataFrame, output: str) -> Answer:
    """The ids of each event by its number, or how many there are."""
    return all_answers({"": (found, output)})[""]


def all_answers(found: dict[str, tuple[DataFrame, str]]) -> dict[str, Answer]:
    """The answers of several matches, by their names; one job for all."""
    from pyspark.sql import functions as sf

    parts, texts = [], set()
    for name, (results, output) in found.items():
        column = sf.col(Output(output).column)
        ids = column if output == "lists" else sf.array(column)
        parts.append(results.select(sf.lit(name).alias("name"), "number", ids.cast("array<string>").alias("ids")))
        if "string" in dict(results.dtypes)[Output(output).column]:
            texts.add(name)
    every: dict[str, Answer] = {name: {} for name in found}
    for name, number, ids in reduce(lambda a, b: a.unionByName(b), parts).collect():
        if found[name][1] != "counts" or ids != ["0"]:
            every[name].setdefault(number, []).extend(ids if name in texts else map(int, ids))
    return {name: {number: sorted(ids) for number, ids in each.items() if ids} for name, each in every.items()}


def as_asked(truth: Answer, output: str) -> Answer:
    return {number: [len(ids)] for number, ids in truth.items()} if output == "counts" else truth


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_every_strategy_and_form_says_what_the_filters_mean(elsewhere: SparkSession, seed: int) -> None:
    random = Random(seed)
    filters: list[Filter] = [some_filter(random, depth) for depth in (0, 0, 1, 2) for _ in range(OF_A_DEPTH)]
    rows = [some_row(random) for _ in range(60)]
    truth: Answer = {}
    for number, row in enumerate(rows):
        event = event_of(row)
        truth[number] = [sub for sub, each in enumerate(filters) if matches(each, event)]
    truth = {number: subs for number, subs in truth.items() if subs}
    events = numbered(frame(elsewhere, rows).coalesce(1)).repartition(2)
    texts = elsewhere.createDataFrame([(sub, str(each)) for sub, each in enumerate(filters)], "id int, filter string")
    named = texts.selectExpr("concat('s', lpad(id, 4, '0')) AS id", "filter")
    some = {number: [sub for sub in subs if sub < FEW] for number, subs in truth.items()}
    found: dict[str, tuple[DataFrame, str]] = {}
    asked: dict[str, Answer] = {}
    for strategy in STRATEGIES:
        ready = prepare(texts.repartition(2), strategy=strategy, groups=5)
        fewer = prepare(texts.where(f"id < {FEW}"), strategy=strategy) if strategy == "sql" else ready
        for output in OUTPUTS:  # of sql one form is of all filters: Spark plans each of them anew for every form
            by, wanted = (ready, truth) if output == "lists" or fewer is ready else (fewer, some)
            found[f"{strategy} {output}"] = by.match(events, output), output
            asked[f"{strategy} {output}"] = as_asked({key: subs for key, subs in wanted.items() if subs}, output)
        called = named.where(f"id < 's{FEW:04}'") if strategy == "sql" else named
        found[f"{strategy} named"] = match(events, called, strategy=strategy, groups=3, output="lists"), "lists"
        names = {
            number: [f"s{sub:04}" for sub in subs] for number, subs in (some if called is not named else truth).items()
        }
        asked[f"{strategy} named"] = {number: subs for number, subs in names.items() if subs}
    assert all_answers(found) == asked
    assert set(found["sql counts"][0].columns) == {*events.columns, "matches"}


@pytest.mark.parametrize("strategy", ["index", "partitioned"])
def test_patterns_of_eventbridge_and_built_in_predicates_match(spark: SparkSession, strategy: str) -> None:
    rows = [(0, "10.1.2.3", "Straße"), (1, "11.1.2.3", "STRASSE"), (2, None, None)]
    events = spark.createDataFrame(rows, "number long, ip string, street string")
    filters = {
        1: "cidr(ip, '10.0.0.0/8')",
        2: '{"ip": [{"anything-but": {"prefix": "10."}}], "street": [{"equals-ignore-case": "strasse"}]}',
        3: '{"street": [{"exists": false}]}',
    }
    texts = spark.createDataFrame(list(filters.items()), "id long, filter string")
    found = match(events, texts, strategy=strategy, groups=2)
    assert answers(found, "pairs") == {0: [1], 1: [2], 2: [3]}


@pytest.mark.parametrize("strategy", ["index", "partitioned", "sql"])
def test_lists_are_tested_by_every_strategy(spark: SparkSession, strategy: str) -> None:
    rows = [
        {"number": 0, "x": 1.0, "tags": ["rock", "live"], "in": {"codes": [1, 2]}},
        {"number": 1, "x": 2.0, "tags": ["pop", None], "in": {"codes": []}},
        {"number": 2, "x": 3.0, "tags": [], "in": {"codes": None}},
        {"number": 3, "x": 4.0, "tags": None, "in": None},
    ]
    events = spark.createDataFrame(pa.Table.from_pylist(rows))
    texts = {
        1: "tags HAS 'rock'",
        2: "tags HAS ANY ('pop', 'live') AND x < 5",
        3: "NOT tags HAS 'pop'",
        4: "tags HAS ALL ('rock', 'live') OR in.codes HAS 2.0",
        5: "tags IS NULL AND x > 2",
        6: "(tags HAS 'rock') IS NULL",
        7: "tags = 'rock' OR in.codes > 0",
    }
    wanted = {row["number"]: [key for key, text in texts.items() if matches(text, row)] for row in rows}
    filters = spark.createDataFrame(list(texts.items()), "id long, filter string")
    found = match(events, filters, strategy=strategy, groups=2)
    assert answers(found, "pairs") == {number: keys for number, keys in wanted.items() if keys}


# -- what is given -------------------------------------------------------------------------------------


EVENTS: list[dict[str, Any]] = [{"number": n, "x": n / 2, "kind": ("a", "b", None)[n % 3]} for n in range(40)]
TEXTS = {1: "x BETWEEN 3 AND 5", 2: "x >= 12 AND kind = 'a'", 3: "kind = 'b'", 4: "TRUE"}
MEANT: Answer = {event["number"]: [key for key, text in TEXTS.items() if matches(text, event)] for event in EVENTS}


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(EVENTS))


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(TEXTS.items()), "id long, filter string")


@pytest.mark.parametrize("strategy", ["index", "partitioned"])
def test_bounds_mean_the_same_as_texts(spark: SparkSession, events: DataFrame, strategy: str) -> None:
    bounds = pa.table(
        {
            "id": [1, 2, 3, 4],
            "x_low": [3.0, 12.0, None, None],
            "x_high": pa.array([5, None, None, None], pa.int32()),
            "kind": [None, "a", "b", None],
        }
    )
    found = match(events, spark.createDataFrame(bounds), output="lists", strategy=strategy)
    assert answers(found, "lists") == MEANT


def test_a_snapshot_is_taken_where_it_is(events: DataFrame, tmp_path: Path) -> None:
    index = TreeIndex()
    index.add_texts(TEXTS, TEXTS.values())
    index.snapshot(tmp_path / "subs")
    found = match(events, tmp_path / "subs", output="lists")
    assert answers(found, "lists") == MEANT
    with pytest.raises(PipelineError, match="already an index"):
        prepare(str(tmp_path / "subs"), strategy="sql")
    with pytest.raises(SnapshotError, match="not a snapshot"):
        prepare(tmp_path)


def test_events_conform_to_a_schema(spark: SparkSession) -> None:
    schema = Schema.of(x="int")
    rows = spark.createDataFrame([(n, n / 2) for n in range(10)], "number int, x double")
    wanted = spark.createDataFrame([(1, "x IS NULL"), (2, "x > 2")], "id int, filter string")
    truth = {n: [1] for n in (1, 3, 5, 7, 9)} | {6: [2], 8: [2]}
    for strategy in ("index", "partitioned"):
        assert answers(match(rows, wanted, schema=schema, strategy=strategy, output="lists"), "lists") == truth
    with pytest.raises(PipelineError, match="omit the schema"):
        prepare(wanted, schema, strategy="sql")


def test_what_is_prepared_serves_any_events(events: DataFrame, texts: DataFrame) -> None:
    ready: Prepared = prepare(texts)
    assert ready.refused == 0
    assert ready.strategy is Strategy.INDEX
    first = ready.match(events.where("number < 7"), "counts")
    other = ready.match(events.where("number >= 7").withColumnRenamed("kind", "sort"), "counts")
    assert first.count() == 7
    assert other.columns == ["number", "x", "sort", "matches"]


@pytest.mark.parametrize("strategy", SLOW_LAST)
def test_no_events_and_no_subscriptions(events: DataFrame, texts: DataFrame, strategy: str) -> None:
    ready, nobody = (prepare(some, strategy=strategy, groups=3) for some in (texts, texts.limit(0)))
    found: dict[str, DataFrame] = {}
    for output in OUTPUTS:
        found[f"none {output}"] = ready.match(events.limit(0), output)
        found[f"unwanted {output}"] = nobody.match(events, output)
        assert found[f"none {output}"].columns == [*events.columns, Output(output).column]
        assert found[f"unwanted {output}"].columns == [*events.columns, Output(output).column]
    parts = []
    for name, results in found.items():
        amount = {"pairs": "1", "lists": "size(subscriptions)", "counts": "matches"}[name.split()[1]]
        parts.append(results.selectExpr(f"'{name}' AS name", f"CAST({amount} AS bigint) AS amount"))
    rows = reduce(lambda a, b: a.unionAll(b), parts).groupBy("name").agg({"amount": "sum", "*": "count"}).collect()
    assert {row.name: (row["count(1)"], row["sum(amount)"]) for row in rows} == {
        "unwanted lists": (40, 0),
        "unwanted counts": (40, 0),
    }


@pytest.mark.parametrize("strategy", SLOW_LAST)
def test_only_what_is_asked_for_is_carried_along(events: DataFrame, texts: DataFrame, strategy: str) -> None:
    found = match(events, texts, strategy=strategy, carry=["number"])
    assert found.columns == ["number", "subscription"]
    assert answers(found, "pairs") == MEANT
    assert match(events, texts, strategy=strategy, carry=[]).count() == sum(map(len, MEANT.values()))
    with pytest.raises(PipelineError, match="did you mean 'number'"):
        match(events, texts, strategy=strategy, carry=["nunber"])


# -- what cannot be read -------------------------------------------------------------------------------


def test_bad_rows_are_set_aside_whole_and_with_the_reason(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT id AS number, x, timestamp_micros(IF(id = 1, 9000000000000000000, 0)) AS t,"
        " IF(id = 2, CAST(X'ff' AS STRING), 'fine') AS s FROM VALUES (0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0) AS v(id, x)"
    )
    wanted = (
        spark.createDataFrame(
            [
                *((1, "x >= 1"), (2, "x >"), (3, "t IS NOT NULL"), (3, "s = 'fine'"), (None, "TRUE"), (5, None)),
                *((6, "x > 0"), (6, "x >"), (7, "x > 2")),  # of two with one id neither is taken, readable or not
            ],
            "id int, filter string",
        )
        .repartition(3)
        .unionAll(spark.sql("SELECT 8, CAST(X'fffe' AS STRING)"))
    )
    for strategy in STRATEGIES:
        ready = prepare(wanted, strategy=strategy)
        assert answers(ready.match(rows, "lists"), "lists") == {0: [1], 3: [1, 7]}
        wrong = ready.errors(rows).collect()
        assert len(wrong) == 10
        reasons = {(row.side, row.row): row.reason for row in wrong}
        assert reasons["subscription", '{"id":3,"filter":"t IS NOT NULL"}'] == "duplicate id"
        assert reasons["subscription", '{"id":null,"filter":"TRUE"}'] == "it has no id"
        assert reasons["subscription", '{"id":5,"filter":null}'] == "there is no filter; the text is NULL"
        assert reasons["subscription", '{"id":6,"filter":"x > 0"}'] == "duplicate id"
        assert "its text is not valid UTF-8" in reasons.values()
        assert ("subscription", '{"id":6,"filter":"x >"}') in reasons
        assert "the text ends at column 4" in reasons["subscription", '{"id":2,"filter":"x >"}']
        events = sorted(reason for (side, _), reason in reasons.items() if side == "event")
        assert events == ["'t' is outside the years 1 to 9999", "the text of 's' is not valid UTF-8"]
    assert prepare(wanted).refused == 8


def test_too_many_rows_for_sql_are_refused_whatever_is_in_them(spark: SparkSession) -> None:
    rows = [(0, "x >"), *((n, "x > 100") for n in range(1, 1001)), (2000, "x > 5")]
    wanted = spark.createDataFrame(rows, "id int, filter string").coalesce(1)
    with pytest.raises(PipelineError, match="strategy sql takes at most"):
        match(spark.sql("SELECT 7.0 AS x"), wanted, strategy="sql").count()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_names_that_we_use_ourselves_are_free(events: DataFrame, texts: DataFrame, strategy: str) -> None:
    odd = events.selectExpr(
        "number", "x", "kind", "1 AS `__weft_group`", "2 AS c0", "3 AS `__weft_salt`", "4 AS subscription"
    )
    given = texts.selectExpr("id", "filter", "7 AS `__weft_id`")
    found = match(odd, given, strategy=strategy, output="lists", carry=["number", "__weft_group", "c0"])
    assert found.columns == ["number", "__weft_group", "c0", "subscriptions"]
    assert answers(found, "lists") == MEANT


def test_strict_raises_instead(events: DataFrame, texts: DataFrame) -> None:
    assert match(events, texts, strict=True).count() > 0
    bad = texts.selectExpr("id", "'x >' AS filter")
    with pytest.raises(PipelineError, match="the text ends"):
        match(events, bad, strict=True)


def test_what_a_stream_cannot_have_is_said_in_a_sentence(spark: SparkSession, texts: DataFrame) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS number", "value / 2 AS x")
    with pytest.raises(PipelineError, match="use the strategy index"):
        match(stream, texts, strategy="partitioned", groups=2)
    with pytest.raises(PipelineError, match="a stream cannot be strict"):
        match(stream, texts, strict=True)
    assert match(stream, texts, strategy="index").isStreaming


@pytest.mark.parametrize("strategy", ["index", pytest.param("partitioned", marks=pytest.mark.slow)])
def test_rows_that_are_left_out_are_counted_on_the_way(events: DataFrame, texts: DataFrame, strategy: str) -> None:
    bad = texts.unionAll(texts.selectExpr("id + 10", "concat(filter, ' oops')"))
    broken = events.withColumn("kind", sf_when_broken())
    cases = [
        (texts, events, []),
        (bad, broken, ["event", "subscription"]),
        (texts.unionAll(texts), events, ["subscription"]),
    ]
    for given, happening, sides in cases:
        ready = prepare(given, strategy=strategy, groups=2)
        found, left_out = ready.match_counting(happening, "counts")
        found.collect()
        assert left_out.sides() == sides
    assert {row.side for row in ready.errors(events, ["subscription"]).collect()} == {"subscription"}
    assert ready.errors(broken, ["event"]).count() == 1


@pytest.mark.parametrize("indexed", [True, False])
def test_subscriptions_that_no_cut_divides_are_indexed_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    if not indexed:
        monkeypatch.setattr("weft.spark.group_join._WHOLE", 2.0)
    rows = spark.range(200).selectExpr("id AS number", "IF(id % 10 = 0, id / 2, NULL) AS x", "id % 7 AS y")
    wide = [(1, "x > 20"), (2, "x <= 80"), (3, "y >= 0"), (4, "x IS NULL AND y = 3"), (5, "oops (")] + [
        (n, f"y <= {n}") for n in range(10, 20)
    ]
    ready = prepare(spark.createDataFrame(wide, "id long, filter string"), strategy="partitioned", groups=2)
    found, left_out = ready.match_counting(rows, "lists")
    assert ("Repartition" in found._jdf.queryExecution().optimizedPlan().toString()) is not indexed
    meant: Answer = {}
    for row in rows.collect():
        event = {"x": row.x, "y": row.y}
        meant[row.number] = [key for key, text in wide if key != 5 and matches(text, event)]
    assert answers(found, "lists") == meant
    assert left_out.sides() == ["subscription"]


def test_an_index_that_cannot_be_built_is_said_by_the_job(
    events: DataFrame, texts: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("weft.spark.shipped_index.write_matcher", full)
    with pytest.raises(OSError, match="no space left"):
        prepare(texts)
    found = match(events, texts)
    with pytest.raises(Exception, match="could not be built: no space left on device"):
        found.collect()


def sf_when_broken() -> Any:
    from pyspark.sql import functions as sf

    return sf.when(sf.col("number") == 3, sf.expr("CAST(X'ff' AS STRING)")).otherwise(sf.col("kind"))


def test_small_files_are_spread_over_the_cores(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"x": [float(n % 977) / 3 for n in range(120_000)], "n": list(range(120_000))})
    pq.write_table(table, tmp_path / "one.parquet")
    pq.write_table(table, tmp_path / "four.parquet", row_group_size=30_000)
    pq.write_table(table.slice(0, 10), tmp_path / "few.parquet")
    one, four, few = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("one", "four", "few"))
    assert spread(four) is four
    assert spread(few) is few
    assert spread(spread(one)).rdd.getNumPartitions() == 2
    assert spread(one).agg({"n": "sum"}).head() == four.agg({"n": "sum"}).head()


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("1 AS sub, 'x' AS filter", "no column 'id'"),
        ("1 AS ids, 'x' AS filter", "did you mean 'ids'"),
        ("1.5 AS id, 'x' AS filter", "make them bigint or string"),
        ("1 AS id, 7 AS filter", "is not text"),
        ("1 AS id", "neither a column 'filter'"),
        ("1 AS id, 'x > 5' AS filters", "did you mean 'filters'"),
        ("1 AS id, array(1) AS x_low", "cannot be a bound"),
        ("1 AS id, 'x' AS filter, 'y' AS FILTER", "two columns 'filter'"),
    ],
)
def test_columns_that_are_missing_or_wrong_are_named(spark: SparkSession, form: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        subscriptions(spark.sql(f"SELECT {form}"))


def test_names_that_clash_or_are_unknown_are_named(events: DataFrame, texts: DataFrame) -> None:
    with pytest.raises(PipelineError, match="column 'subscription', which the results need"):
        match(events.withColumnRenamed("kind", "subscription"), texts)
    with pytest.raises(PipelineError, match="did you mean 'pairs'"):
        match(events, texts, output="pair")
    with pytest.raises(PipelineError, match="did you mean 'index'"):
        match(events, texts, strategy="idnex")
    with pytest.raises(PipelineError, match="two columns 'x'"):
        match(events.selectExpr("x", "number AS X"), texts)
    with pytest.raises(PipelineError, match=r"two columns 'p\.x'"):
        match(events.selectExpr("struct(x) AS p", "x AS `p.x`"), texts)
