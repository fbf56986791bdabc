"""Matching where executors are other processes, and over Connect: the index travels, and the results are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json
import sys
from pyspark.sql import SparkSession
from weft import TreeIndex
from weft.spark import match, prepare, session
from weft.spark.shipped_index import Shipped

if sys.argv[1] == "connect":
    SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark = session()
else:
    spark = session(sys.argv[1], memory="1g", options={"spark.sql.shuffle.partitions": "2"})
rows = [(n, float(n % 37), ("a", "b", None)[n % 3]) for n in range(300)]
events = spark.createDataFrame(rows, "number int, x double, kind string").repartition(4)
texts = {n: f"x BETWEEN {n % 30} AND {n % 30 + 2}" + (" AND kind = 'a'" if n % 2 else "") for n in range(60)}
texts |= {60: "kind IS NULL", 61: "kind LIKE 'b%' OR x > 35"}
index = TreeIndex()
index.add_texts(texts, texts.values())
truth = {n: sorted(index.match({"x": x, "kind": kind}).tolist()) for n, x, kind in rows}
wanted = spark.createDataFrame(list(texts.items()), "id int, filter string").repartition(3)
for strategy in ("index", "partitioned"):
    ready = prepare(wanted, strategy=strategy, groups=6)
    if ready.shipped is not None:
        assert ready.shipped.archive is not None, "executors here must not be thought to see our files"
    found = {row.number: sorted(row.subscriptions) for row in ready.match(events, "lists").collect()}
    assert found == truth, strategy
index.snapshot("snapshot")
taken = {row.number: sorted(row.subscriptions) for row in match(events, "snapshot", output="lists").collect()}
assert taken == truth
assert ready.errors(events).count() == 0
named = match(events, wanted.selectExpr("concat('s', id) AS id", "filter"), output="pairs")
assert named.count() == sum(map(len, truth.values()))
from pathlib import Path
from time import perf_counter
from weft.spark.report import MatchJob, match_files
lines = [json.dumps({"number": n, "x": x, "kind": kind}) for n, x, kind in rows]
Path("events.jsonl").write_text("\\n".join([*lines[:200], "{not JSON", *lines[200:]]))
Path("wanted.jsonl").write_text("\\n".join(json.dumps({"id": n, "filter": text}) for n, text in texts.items()))
report = match_files(spark, MatchJob("events.jsonl", "wanted.jsonl"), perf_counter)  # it also shows a sample
assert (report.events, report.matches) == (len(rows), sum(map(len, truth.values()))), report
assert report.errors == {"event": 1, "subscription": 0}, report
assert len(report.sample) == 8
spark.stop()
print("the same")
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local-cluster[2,1,1024]", "connect"])
def test_results_are_the_same(where: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    source = str(Path(__file__).parent.parent.parent / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    apart = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}  # or Connect has one port only
    done = subprocess.run(
        [sys.executable, str(script), where],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, **apart},
        cwd=tmp_path,
    )
    assert done.stdout.strip().endswith("the same"), done.stderr[-3000:]
