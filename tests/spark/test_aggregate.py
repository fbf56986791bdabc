"""Aggregation on Spark, against the filters themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spark.told_items import update
from weft.algebra.bulk import columns_of_texts
from weft.algebra.relate import covers
from weft.errors import PipelineError, SchemaError
from weft.index.tree import TreeIndex
from weft.language.text import parse
from weft.model.schema import Schema
from weft.order.minimal_cover import minimal_cover
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.table import DlsTable
from weft.routing.mics.table import MicsTable
from weft.routing.table import Link
from weft.space.content import ContentSpace
from weft.spark.aggregate import Aggregated, RoundLimits, aggregate
from weft.spark.aggregate_check import check
from weft.spark.subscriptions import Subscriptions
from weft.spark.subscriptions import subscriptions as subscriptions_of
from weft.workloads.corners import corner_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in "xy"}})
NORTH, SOUTH = Link("north"), Link("south")


def drawn(count: int) -> list[str]:
    """Boxes of all sizes, some equal, and a few filters that are none."""
    rng = np.random.default_rng(5)
    low, wide = rng.integers(0, 60, (count, 2)), rng.integers(1, 30, (count, 2))
    texts = [
        f"x BETWEEN {a} AND {a + c} AND y BETWEEN {b} AND {b + d}"
        for (a, b), (c, d) in zip(low.tolist(), wide.tolist(), strict=True)
    ]
    return [*texts[:-3], "x < 5 OR x > 95", "s LIKE '%a%' AND x > 3", "x > y AND y > 90"]


TEXTS = drawn(200)


@pytest.fixture(scope="module")
def subscriptions(spark: SparkSession) -> DataFrame:
    return frame(spark, list(enumerate(TEXTS))).repartition(3)


def frame(spark: SparkSession, rows: list[tuple[Any, str | None]], kind: str = "bigint") -> DataFrame:
    return spark.createDataFrame(rows, f"id {kind}, filter string")


def collected(found: DataFrame) -> list[dict[str, Any]]:
    return found.toArrow().to_pylist()


@pytest.fixture(scope="module")
def done(subscriptions: DataFrame) -> Callable[[str], Aggregated]:
    """Aggregated by a model, once; for covering in small chunks, so that filters meet over several rounds."""

    @cache
    def by(model: str) -> Aggregated:
        limits = RoundLimits(60 if model == "covering" else 300, 10_000)
        return aggregate(subscriptions, model, schema=SCHEMA, check_events=100, limits=limits)

    return by


def test_covering_gives_the_minimal_cover(done: Callable[[str], Aggregated]) -> None:
    kept = minimal_cover(columns_of_texts(TEXTS, SCHEMA), len(TEXTS), SCHEMA).kept
    active = {row["id"]: row["filter"] for row in collected(done("covering").active)}
    assert {TEXTS[each] for each in active} == {TEXTS[each] for each in kept}
    assert len(active) == len(kept)
    statistics = done("covering").statistics
    assert statistics.complete
    assert (statistics.given, statistics.errors) == (len(TEXTS), 0)
    assert statistics.active + statistics.passive == len(TEXTS)
    assert statistics.rounds[-1].together
    assert len(statistics.rounds) > 2
    assert statistics.checked is not None
    assert statistics.checked.wanted == statistics.checked.admitted > 0


def test_what_is_passive_is_covered_by_what_is_active_at_last(done: Callable[[str], Aggregated]) -> None:
    for model in ("covering", "merging", "subsumption"):
        active = {row["id"]: row["filter"] for row in collected(done(model).active)}
        rows = collected(done(model).passive)
        assert rows
        for row in rows:
            assert row["filter"] == TEXTS[row["id"]]
            together = parse(" OR ".join(f"({active[each]})" for each in row["coverers"]))
            assert covers(together, parse(row["filter"]), None)
        if model != "merging":
            assert sorted([*active, *(row["id"] for row in rows)]) == list(range(len(TEXTS)))


@pytest.mark.slow
def test_together_they_cover_more_than_one_by_one(done: Callable[[str], Aggregated]) -> None:
    several = [row for row in collected(done("subsumption").passive) if len(row["coverers"]) > 1]
    assert several
    assert done("subsumption").statistics.active < done("covering").statistics.active


def test_a_merger_has_all_its_components_and_they_are_passive(done: Callable[[str], Aggregated]) -> None:
    rows = collected(done("merging").active)
    passive = {row["id"]: row["coverers"] for row in collected(done("merging").passive)}
    mergers = [row for row in rows if len(row["components"]) > 1]
    assert mergers
    for row in mergers:
        assert row["id"] in row["components"]
        assert all(passive[part] == [row["id"]] for part in row["components"])
    alone = {row["id"] for row in rows if len(row["components"]) == 1}
    assert sorted([*alone, *passive]) == list(range(len(TEXTS)))


def test_ranges_and_labels_admit_what_is_wanted(done: Callable[[str], Aggregated]) -> None:
    events = corner_events(columns_of_texts(TEXTS), 300, np.random.default_rng(9))
    oracle = TreeIndex()
    oracle.add_texts(range(len(TEXTS)), TEXTS)
    wanted = oracle.any_batch(events)
    space = ContentSpace.from_json(done("mics").parameters)
    rows = collected(done("mics").active)
    points = space.indexes(events)
    assert all(any(row["start"] <= point <= row["end"] for row in rows) for point in points[wanted].tolist())
    labels = LabelSpace.from_json(done("dls").parameters)
    held = {row["label"]: row["count"] for row in collected(done("dls").active)}
    levels = labels.levels(np.array(list(held)))
    assert np.isin(labels.of_events(events, levels), list(held)).any(axis=1)[wanted].all()
    kept = {row["id"] for row in collected(done("mics").passive)}
    assert all(set(row["coverers"]).isdisjoint(kept) for row in collected(done("mics").passive))


@pytest.mark.parametrize("model", ["mics", "dls"])
def test_a_neighbour_understands_what_it_is_told(done: Callable[[str], Aggregated], model: str) -> None:
    parameters = done(model).parameters
    neighbour = (
        MicsTable([ContentSpace.from_json(parameters)])
        if model == "mics"
        else DlsTable(LabelSpace.from_json(parameters))
    )
    neighbour.attach(NORTH)
    neighbour.learn(NORTH, update(done(model)))
    oracle = TreeIndex()
    oracle.add_texts(range(len(TEXTS)), TEXTS)
    events = corner_events(columns_of_texts(TEXTS), 200, np.random.default_rng(4))
    for event, wanted in zip(events, oracle.any_batch(events).tolist(), strict=True):
        assert not wanted or neighbour.route(event, None) == {NORTH}


def test_what_is_wrong_goes_to_the_errors_and_stops_nothing(spark: SparkSession) -> None:
    rows = [("a", "x > 1"), ("b", "x >"), ("c", "x > 2"), ("c", "x > 3"), ("d", "x > 2 AND x < 1"), ("e", None)]
    found = aggregate(frame(spark, rows, "string"))
    assert [row["id"] for row in collected(found.active)] == ["a"]
    wrong = collected(found.errors)
    assert sorted(row["id"] for row in wrong) == ["b", "c", "c", "d", "e"]
    assert found.statistics.errors == 5
    assert {row["reason"] for row in wrong if row["id"] == "d"} == {"matches nothing"}


def test_of_nothing_comes_nothing(spark: SparkSession) -> None:
    found = aggregate(frame(spark, []), "mics", schema=SCHEMA)
    assert (found.statistics.given, found.statistics.active, found.statistics.passive) == (0, 0, 0)
    assert found.statistics.checked is None


@pytest.mark.slow
@pytest.mark.parametrize("model", ["subsumption", "merging", "mics"])
def test_chains_are_followed_over_many_rounds(subscriptions: DataFrame, model: str) -> None:
    found = aggregate(subscriptions, model, schema=SCHEMA, check_events=100, limits=RoundLimits(40, 10_000))
    assert len(found.statistics.rounds) > 4
    rows = collected(found.passive)
    active = {row["id"]: row["filter"] for row in collected(found.active)} if model != "mics" else {}
    behind = {row["id"] for row in rows}
    space = ContentSpace.from_json(found.parameters) if model == "mics" else None
    for row in rows:
        if space is not None:
            assert behind.isdisjoint(row["coverers"])
            (wide,) = row["coverers"]
            assert covers(parse(TEXTS[wide]), parse(row["filter"]), None) or space.ranges(TEXTS[wide]).covers(
                space.ranges(row["filter"])
            )
        else:
            together = parse(" OR ".join(f"({active[each]})" for each in row["coverers"]))
            assert covers(together, parse(row["filter"]), None)


@pytest.mark.slow
def test_too_many_for_one_task_are_sound_but_perhaps_not_minimal(subscriptions: DataFrame, tmp_path: Path) -> None:
    found = aggregate(subscriptions, check_events=100, limits=RoundLimits(20, 0), directory=str(tmp_path))
    assert not found.statistics.complete
    assert not any(each.together for each in found.statistics.rounds)
    assert (tmp_path / "round-0").is_dir()
    active = {row["id"]: row["filter"] for row in collected(found.active)}
    for row in collected(found.passive):
        assert covers(parse(active[row["coverers"][0]]), parse(row["filter"]))


def test_a_difference_is_an_error(spark: SparkSession) -> None:
    every, less = frame(spark, [(1, "x > 1"), (2, "y > 1")]), frame(spark, [(1, "x > 1")])
    assert check(every.select("filter"), every, [{"x": 2}]).admitted == 1
    with pytest.raises(PipelineError, match="lost"):
        check(every.select("filter"), less, [{"x": 2}, {"y": 2}])
    with pytest.raises(PipelineError, match="matches no subscription"):
        check(less.select("filter"), every, [{"x": 2}, {"y": 2}])
    assert check(less.select("filter"), every, [{"x": 2}, {"y": 2}], exact=False).false_positives == 0.5


@pytest.mark.slow
def test_a_budget_admits_more_with_fewer(spark: SparkSession) -> None:
    rows = [(n, f"x BETWEEN {10 * n} AND {10 * n + 8} AND y < {50 + n}") for n in range(4)]
    exact = aggregate(frame(spark, rows), "merging", schema=SCHEMA)
    wide = aggregate(frame(spark, rows), "merging", schema=SCHEMA, budget=0.9)
    assert wide.statistics.active < exact.statistics.active
    assert wide.statistics.checked is not None


def test_what_does_not_go_together_is_refused(spark: SparkSession) -> None:
    some = frame(spark, [(1, "x > 1")])
    for model in ("subsumption", "mics", "dls"):
        with pytest.raises(SchemaError, match="bounds"):
            aggregate(some, model)
    with pytest.raises(PipelineError, match="no model"):
        aggregate(some, "magic")
    with pytest.raises(PipelineError, match="'filter'"):
        aggregate(some.withColumnRenamed("filter", "text"))
    with pytest.raises(SchemaError, match="share"):
        aggregate(some, "merging", budget=0.5)
    with pytest.raises(PipelineError, match="does not take this space"):
        aggregate(some, "covering", schema=SCHEMA, space=LabelSpace.of(SCHEMA))


def test_parameters_are_json(done: Callable[[str], Aggregated]) -> None:
    assert json.loads(done("covering").parameters) == {}
    assert ContentSpace.from_json(done("mics").parameters).to_json() == done("mics").parameters


CONNECT = """
from pyspark.sql import SparkSession
from weft.spark.aggregate import RoundLimits, aggregate
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
rows = [(n, f"x BETWEEN {n % 7} AND {n % 5 + 8}") for n in range(40)] + [(99, "x >")]
found = aggregate(spark.createDataFrame(rows, "id bigint, filter string"), limits=RoundLimits(10, 100), check_events=50)
print(found.statistics.active, found.statistics.passive, found.statistics.errors, found.statistics.complete)
del found  # frames that are kept must go before the session that keeps them
spark.stop()
"""


@pytest.mark.slow
def test_it_runs_on_connect() -> None:
    from weft.spark.java import java_home

    source = str(Path(__file__).parents[2] / "src")  # as it is, for tasks run elsewhere
    settings = {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": source}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-c", CONNECT]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=900)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["1", "39", "1", "True"]


@pytest.mark.slow  # a round for every pair
def test_nobody_is_passive_twice(spark: SparkSession) -> None:
    texts = ["x >= 0 AND x < 1", "x >= 1 AND x < 2", "x >= 2 AND x < 3", "x >= 3 AND x < 4"]
    rows = [(n, text) for n, text in enumerate([*texts, "x >= 0.2 AND x < 0.3", "x >= 2.2 AND x < 2.3"], 1)]
    found = aggregate(frame(spark, rows).coalesce(1), "merging", limits=RoundLimits(2, 1000))
    ids = [row["id"] for row in collected(found.passive)]
    assert sorted(ids) == sorted(set(ids))
    assert found.statistics.passive == len(ids) == 6


def test_text_that_is_no_utf_8_and_bounds_without_an_id_are_errors(spark: SparkSession) -> None:
    wrong = spark.sql("SELECT 1L AS id, 'x > 1' AS filter UNION ALL SELECT 2L, CAST(X'fffe' AS STRING)")
    assert [row["id"] for row in collected(aggregate(wrong).errors)] == [2]
    bounds = spark.sql("SELECT * FROM VALUES (1L, 1.0D), (NULL, 2.0D), (3L, 9.0D) AS v(id, x_low)")
    given = subscriptions_of(bounds)
    assert isinstance(given, Subscriptions)
    found = aggregate(given.texts())
    assert (found.statistics.given, found.statistics.errors) == (3, 1)
