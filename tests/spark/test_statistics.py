"""Statistics on Spark are those that one machine counts, row by row."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from weft.demand.demand_counts import Fact
from weft.demand.event_sample import EventSample
from weft.demand.filter_demand import demand_of
from weft.errors import PipelineError
from weft.spark.event_statistics import event_statistics, rank_correlations
from weft.spark.frames import attribute_types, flat
from weft.spark.statistics import asked_of, refused, statistics
from weft.workloads import mixed
from weftlab.demo import earthquakes
from weftlab.demo.filters import SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BAD = ["price >", None, " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(12))]
TEXTS = [*mixed(200, 1).texts, *mixed(60, 1).texts, "price > 5 AND price < 2", "TRUE", *BAD]


def subscriptions(spark: SparkSession) -> DataFrame:
    rows = pa.table({"id": list(range(len(TEXTS))), "filter": pa.array(TEXTS, pa.string())})
    return spark.createDataFrame(rows).repartition(4, "id")


def test_what_is_asked_is_what_one_machine_counts(spark: SparkSession) -> None:
    sample = EventSample.of(mixed(1, 300).table)
    whole = demand_of(range(len(TEXTS)), TEXTS, sample, 40)
    found = asked_of(subscriptions(spark), sample, top=10, ranges=40)
    assert found == whole.topped(10)
    assert (found.refused, found.distinct(Fact.FORM)) == (len(BAD), whole.distinct(Fact.FORM))


def test_what_is_no_filter_is_listed_and_fails_nothing(spark: SparkSession) -> None:
    named = subscriptions(spark).selectExpr("concat('s', id) AS id", "filter")
    rows = refused(named).collect()
    assert {(row["id"], row["filter"]) for row in rows} == {
        (f"s{number}", text) for number, text in enumerate(TEXTS) if text in BAD
    }
    assert all(row["reason"] for row in rows)


@pytest.mark.parametrize(
    ("columns", "said"),
    [("id AS number, filter", "'id'"), ("id, filter AS text", "'filter'"), ("id, id AS filter", "cast it to string")],
)
def test_a_frame_without_its_columns_is_refused_at_once(spark: SparkSession, columns: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        asked_of(subscriptions(spark).selectExpr(*columns.split(", ")))


def test_events_are_counted_exactly(spark: SparkSession) -> None:
    rows = earthquakes.table()
    found = event_statistics(
        spark.createDataFrame(rows), ["status", "magnitude", "tsunami", "felt", "time"], cells=4, top=1
    )
    assert found.events == rows.num_rows
    for name, seen in found.attributes.items():
        assert seen.present == sum(value is not None for value in rows[name].to_pylist())
    status = Counter(rows["status"].to_pylist())
    assert dict(found.attributes["status"].top) == dict(status.most_common(1))
    assert dict(found.attributes["tsunami"].top) == {"FALSE": 1703, "TRUE": 4}
    magnitudes = sorted(rows["magnitude"].to_pylist())
    for share, boundary in enumerate(found.attributes["magnitude"].boundaries):
        assert abs(sum(each <= boundary for each in magnitudes) / len(magnitudes) - share / 4) < 0.03
    assert found.attributes["time"].boundaries[0] == min(rows["time"].to_pylist()).timestamp() * 1_000_000


def test_boundaries_of_strings_hold_as_many_events_each(spark: SparkSession) -> None:
    words = ["a"] * 5 + ["b"] * 1 + ["c"] * 1 + ["d"] * 3 + [None] * 7
    frame = spark.createDataFrame([(word,) for word in words], "word string").repartition(3)
    found = event_statistics(frame, cells=5, top=2).attributes["word"]
    assert found.boundaries == ("a", "b", "c")  # 5, 1 and 4 events, of which "a" cannot be divided
    assert found.top == {"a": 5, "d": 3}


def test_odd_columns_nested_ones_and_every_kind_of_time(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT named_struct('b.c', 1, 'd', 'x') AS a, array(1) AS list, DOUBLE('NaN') AS nan, "
        "DATE'1970-01-02' AS day, TIMESTAMP_NTZ'1970-01-01 00:00:01' AS naive, "
        "TIMESTAMP'1970-01-01 00:00:02Z' AS zoned, CAST(1.5 AS DECIMAL(9, 2)) AS money"
    )
    assert list(attribute_types(frame)) == ["a.b.c", "a.d", "nan", "day", "naive", "zoned", "money"]
    assert flat(frame).columns == ["a.b.c", "a.d", "nan", "day", "naive", "zoned", "money"]
    found = event_statistics(frame, cells=1).attributes
    firsts = {name: seen.boundaries[0] for name, seen in found.items() if seen.boundaries}
    assert firsts == {
        "a.b.c": 1,
        "a.d": "x",
        "day": 86_400_000_000,
        "naive": 1_000_000,
        "zoned": 2_000_000,
        "money": 1.5,
    }
    assert found["nan"].present == 0


def test_real_filters_against_real_events(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(s.name, s.text) for s in SUBSCRIPTIONS], "id string, filter string")
    rows = earthquakes.table()
    found = statistics(frame, spark.createDataFrame(rows))
    assert found.asked.read == len(SUBSCRIPTIONS)
    assert found.asked.share("tsunami") == 4 / rows.num_rows
    assert found.asked.share("depth") == sum(depth < 70 for depth in rows["depth"].to_pylist()) / rows.num_rows
    assert "rms" in found.unasked
    assert found.correlations["latitude", "longitude"] < -0.5


def test_nothing_has_statistics_too(spark: SparkSession) -> None:
    found = statistics(spark.createDataFrame([], "id string, filter string"), spark.createDataFrame([], "x double"))
    assert (found.asked.read, found.occurring.events if found.occurring else None, found.unasked) == (0, 0, ("x",))


def test_ranks_of_equal_values_are_shared() -> None:
    times = pa.array([datetime(2020, 1, day, tzinfo=UTC) for day in (1, 1, 2, 3)], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"t": times, "x": [5, 5, 4, 3], "s": ["a", "b", "c", "d"], "same": [1, 1, 1, 1]})
    assert rank_correlations(rows, rows.schema.names) == {("t", "x"): -1.0}
