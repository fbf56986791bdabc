"""Tuning on Spark: what is measured is what all subscriptions cost, no event is lost, and tables read the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import weft
from weft.demand.event_sample import EventSample
from weft.demand.filter_demand import demand_of
from weft.errors import TuningError
from weft.index.tree import TreeIndex
from weft.model.schema import Schema
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.spark.frames import drawn
from weft.spark.java import java_home
from weft.spark.link_costs import measure_link
from weft.spark.statistics import Statistics
from weft.spark.tune import Samples, Tuning, most_telling, tune
from weft.tuning.budget import CostBudget
from weft.tuning.choices import Options
from weft.tuning.parameters import Tuned
from weft.workloads import mixed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKET = mixed(150, 1_500)
FEW = Options(cells=(8, 32), caps=(16, 64))


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    rows = [*enumerate(MARKET.texts), (-1, "price >")]
    subscriptions = spark.createDataFrame(rows, "id bigint, filter string").repartition(3, "id")
    return subscriptions, spark.createDataFrame(pa.Table.from_batches([MARKET.table]))


def spaces() -> list[Any]:
    grid = Grid.equi_depth(Schema.infer(MARKET.table), MARKET.table, 16)
    return [ContentSpace(grid, most=8), LabelSpace([grid], most=16)]


@pytest.mark.parametrize("space", spaces(), ids=["mics", "dls"])
def test_what_is_measured_is_what_one_table_does(frames: tuple[DataFrame, DataFrame], space: Any) -> None:
    found = measure_link(frames[0], MARKET.table, space, FilterShape(1 << 20, 7))
    index = TreeIndex()
    index.add_texts(range(len(MARKET.texts)), MARKET.texts)
    wanted = index.any_batch(MARKET.table)
    if isinstance(space, ContentSpace):
        ranges = [space.ranges(text) for text in MARKET.texts]
        passed = np.any([each.contains(space.indexes(MARKET.table)) for each in ranges], axis=0)
    else:
        labels = np.unique(np.concatenate([space.labels(text) for text in MARKET.texts]))
        passed = np.isin(space.of_events(MARKET.table, space.levels(labels)), labels).any(axis=1)
        assert found.figures.forwarded == len(labels)
    assert (found.wanted, found.passed, found.lost) == (wanted.sum(), passed.sum(), 0)
    assert found.figures.false_positives == passed[~wanted].mean()


def test_filters_in_json_are_measured_too(spark: SparkSession) -> None:
    texts = spark.createDataFrame([(1, '{"exact": {"type": "a"}}'), (2, "x > 50")], "id long, filter string")
    held = pa.record_batch({"x": [10.0, 60.0], "type": ["a", "b"]})
    schema = Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 100]}}})
    assert measure_link(texts, held, ContentSpace(Grid.uniform(schema, 8))).wanted == 2


def test_a_filter_grows_until_it_keeps_its_rate(frames: tuple[DataFrame, DataFrame]) -> None:
    found = measure_link(frames[0], MARKET.table, spaces()[1], FilterShape(8, 2), rate=0.05)
    assert found.shape is not None
    assert found.shape.rate(found.figures.forwarded) <= 0.05 < found.shape.rate(2 * found.figures.forwarded)
    assert found.lost == 0


@pytest.mark.parametrize(
    ("model", "budget"), [("mics", CostBudget(forwarded=120)), ("dls", CostBudget(memory=1 << 11))]
)
def test_a_tuning_keeps_its_budget_on_all_subscriptions(
    frames: tuple[DataFrame, DataFrame], tmp_path: Path, model: Any, budget: CostBudget
) -> None:
    samples = Samples(subscriptions=60, events=600, held=900)
    found = tune(*frames, budget, model=model, options=FEW, samples=samples)
    assert found.kept
    assert found.measured.lost == 0
    assert found.sampled in (59, 60)  # one text is no filter, and may be drawn
    assert found.measured.events == 900
    assert [row[0] for row in found.rows] == ["false positives", "forwarded", "memory"]
    found.save(tmp_path / "tuning.json")
    assert Tuning.load(tmp_path / "tuning.json") == found
    read = Tuned.load(tmp_path / "tuning.json")
    assert (read, read.budget) == (found.tuned, budget)
    again = measure_link(frames[0], MARKET.table, read.space, read.shape, read.rate)
    assert again.lost == 0
    assert again.figures.forwarded == found.measured.figures.forwarded


def test_events_to_measure_on_are_none_of_those_to_choose_by(spark: SparkSession) -> None:
    frame = spark.range(1_000).repartition(3)
    one, other = (drawn(frame, 300, seed)["id"].to_pylist() for seed in (1, 2))
    assert len(set(one)) == 300
    assert one == drawn(frame, 300, 1)["id"].to_pylist() != other


def test_the_most_telling_attributes_are_asked_for_often_and_passed_seldom() -> None:
    counted = demand_of(range(len(MARKET.texts)), MARKET.texts, EventSample.of(MARKET.table))
    found = Statistics(counted, None, {})
    assert most_telling(found, Schema.infer(MARKET.table), 2) == ["symbol", "price"]
    assert most_telling(found, Schema(()), 2) == []


def test_what_cannot_be_tuned_is_said(frames: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="choose one of mics, dls"):
        tune(*frames, model="flood")  # type: ignore[arg-type]
    with pytest.raises(TuningError, match=r"none\.json"):
        Tuning.load(tmp_path / "none.json")


@pytest.mark.slow
def test_events_of_other_attributes_are_refused(frames: tuple[DataFrame, DataFrame]) -> None:
    with pytest.raises(TuningError, match="no subscription constrains"):
        tune(frames[0], frames[1].selectExpr("price AS other"), samples=Samples(50, 50, 50))
    with pytest.raises(TuningError, match="at least two events"):
        tune(frames[0], frames[1].limit(1))


def test_a_sample_of_which_every_event_matches_is_refused_before_all_subscriptions_are_read(
    spark: SparkSession,
) -> None:
    subscriptions = spark.createDataFrame([(1, "x >= 0"), (2, "x < 5")], "id int, filter string")
    steps: list[str] = []
    with pytest.raises(TuningError, match="every event of the sample matches"):
        tune(subscriptions, spark.range(20).selectExpr("id AS x"), progress=lambda what, *_: steps.append(what))
    assert "counting what subscriptions ask for" not in steps


@pytest.mark.slow
def test_all_of_it_runs_on_connect() -> None:
    code = """
import pyarrow as pa
from pyspark.sql import SparkSession
from weft.spark.profile import profile
from weft.spark.statistics import refused
from weft.spark.tune import CostBudget, Options, Samples, tune
from weft.workloads import mixed

spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
market = mixed(150, 900)
subscriptions = spark.createDataFrame([*enumerate(market.texts), (-1, "price >")], "id bigint, filter string")
events = spark.createDataFrame(pa.Table.from_batches([market.table]))
few = Options((8, 32), (16,))
tuning = tune(subscriptions, events, CostBudget(forwarded=200), options=few, samples=Samples(100, 500, 300))
print("found", profile(subscriptions, events).asked.read, refused(subscriptions).count(), tuning.measured.lost)
"""
    source = Path(weft.__file__).parent.parent
    settings = {"PYTHONPATH": str(source), "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home())}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert "found 150 1 0" in done.stdout, done.stderr[-2000:]
