"""Tables that the driver reads itself: the rows that Spark reads, or none where the two might differ."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from weft.spark.local_tables import read_local

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
