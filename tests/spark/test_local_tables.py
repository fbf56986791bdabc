"""Tables that the driver reads itself: the rows that Spark reads, or none where the two might differ."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from weft.spark.join_samples import sampled_events, sampled_subscriptions
from weft.spark.local_tables import draw_local, read_local
from weft.spark.subscriptions import subscriptions

BOUNDS = pa.table(
    {
        "id": pa.array([3, 1, None], pa.int64()),
        "x_low": pa.array([0.5, None, -1.0]),
        "n_high": pa.array([7, 8, None], pa.int32()),
        "s": pa.array(["a", None, "é"]),
        "t_low": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    }
)
PLAIN = ["s", "id", "x_low", "n_high"]


def test_plain_files_are_read_as_spark_reads_them(spark, tmp_path):
    for name in ("a", "b c%20"):
        pq.write_table(BOUNDS, tmp_path / f"{name}.parquet")
    frame = spark.read.parquet(str(tmp_path))
    found = read_local(frame, PLAIN)
    assert found.num_rows == 6
    by_spark = frame.select(*PLAIN).toArrow()
    assert found.schema.types == by_spark.schema.types
    order = [("s", "ascending"), ("x_low", "ascending")]
    assert found.sort_by(order).to_pylist() == by_spark.sort_by(order).to_pylist()


def test_anything_else_is_left_to_spark(spark, tmp_path):
    file = str(tmp_path / "a.parquet")
    pq.write_table(BOUNDS, file)
    whole = spark.read.parquet(file)
    assert read_local(whole, PLAIN) is not None
    others = {
        "rows are left out": whole.where("id > 1"),
        "another type is declared": spark.read.schema("id bigint, n_high bigint").parquet(file),
        "a column is declared that no file has": spark.read.schema("id bigint, n_high int, y int").parquet(file),
        "options": spark.read.option("mergeSchema", "true").parquet(file),
        "no files": spark.range(3).selectExpr("id", "cast(id AS int) AS n_high"),
    }
    for why, frame in others.items():
        assert read_local(frame, ["id", "n_high", *(["y"] if "y" in frame.columns else [])]) is None, why
    assert read_local(whole, ["id", "t_low"]) is None  # timestamps have several forms in files
    whole.write.partitionBy("n_high").parquet(str(tmp_path / "parts"))
    assert read_local(spark.read.parquet(str(tmp_path / "parts")), ["id", "n_high"]) is None
    (tmp_path / "mixed").mkdir()
    pq.write_table(BOUNDS, tmp_path / "mixed" / "a.parquet")
    (tmp_path / "mixed" / "b.parquet").touch()  # Spark skips it
    mixed = spark.read.parquet(str(tmp_path / "mixed"))
    assert read_local(mixed, PLAIN) is None
    assert draw_local(mixed, PLAIN, 5, 1) is None
    assert draw_local(whole.where("id > 1"), PLAIN, 5, 1) is None


def test_rows_are_drawn_from_all_files_each_once(spark, tmp_path):
    for number in range(3):
        rows = range(100 * number, 100 * number + 100)
        pq.write_table(
            pa.table({"id": rows, "x_low": map(float, rows)}), tmp_path / f"{number}.parquet", row_group_size=30
        )
    frame = spark.read.parquet(str(tmp_path))
    some, many = draw_local(frame, ["x_low", "id"], 150, 1)
    assert many == 300
    assert some.column_names == ["x_low", "id"]
    assert len(set(some["id"].to_pylist())) == 150
    assert {number // 100 for number in some["id"].to_pylist()} == {0, 1, 2}
    assert some["x_low"].to_pylist() == some["id"].to_pylist()
    assert draw_local(frame, ["x_low", "id"], 150, 1)[0] == some
    assert draw_local(frame, ["id"], 1000, 1)[0]["id"].to_pylist() == list(range(300))
    none = tmp_path / "none.parquet"
    pq.write_table(BOUNDS.slice(0, 0), none)
    assert draw_local(spark.read.parquet(str(none)), ["id"], 5, 1)[0].num_rows == 0


def test_the_driver_counts_and_draws_as_spark_does(spark, tmp_path):
    rows = {"id": [3, 1, None, 3, 7, None, 3, 7], "x_low": [1.0, None, 2.0, 0.0, -0.0, 1.0, 5.0, float("nan")]}
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table(rows), file)
    here = spark.read.parquet(file)
    there = here.where("true OR id > rand()")  # no longer plain files
    ours, sparks = subscriptions(here), subscriptions(there)
    assert ours.census() == sparks.census() == (8, 5)
    drawn = (sorted(map(str, sampled_subscriptions(each, 9).to_pylist())) for each in (ours, sparks))
    assert next(drawn) == next(drawn)
    paths = {"x_low": "x_low"}
    mine, other = (sampled_events(each, each.columns, each, ["x_low"], paths, 9) for each in (here, there))
    assert mine.many == other.many == 8
    assert sorted(mine.hashes) == sorted(other.hashes)
    assert sorted(map(str, mine.attributes.to_pylist())) == sorted(map(str, other.attributes.to_pylist()))
