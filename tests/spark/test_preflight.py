"""What can be known before Spark starts is said before it starts: none of these tests starts it."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.errors import PipelineError
from weft.pipeline.preflight import check_files
from weft.spark import aggregate, match, prepare, profile, statistics


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def files(tmp_path) -> Path:
    (tmp_path / "events.csv").write_text("\ufeffx,näme\n1,a\n")
    (tmp_path / "random.csv").write_bytes(bytes(range(200, 256)) * 30)
    (tmp_path / "control.csv").write_bytes(b"a,\x00b\x01\n1,2\n")
    (tmp_path / "events.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "text.parquet").write_text("no columns here")
    (tmp_path / "broken.csv.gz").write_bytes(b"not compressed")
    with gzip.open(tmp_path / "fine.csv.gz", "wt") as file:
        file.write("x,y\n1,2\n")
    (tmp_path / "out.parquet").mkdir()
    (tmp_path / "out.parquet" / "part-0.parquet").write_bytes(b"not empty")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["events.csv", "events.jsonl", "fine.csv.gz", "*.jsonl", "out.parquet", "file:events.csv"]
)
def test_what_may_be_read_is_let_pass(files, monkeypatch, name):
    monkeypatch.chdir(files)
    check_files([name])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.csv", "there is no file nowhere.csv"),
        ("no*.jsonl", "there is no file no*.jsonl"),
        ("random.csv", "random.csv is not a CSV file: its first line is not valid UTF-8"),
        ("control.csv", "control.csv is not a CSV file: its first line has control characters"),
        ("text.parquet", "text.parquet is not a Parquet file"),
        ("broken.csv.gz", "broken.csv.gz cannot be uncompressed"),
    ],
)
def test_what_cannot_be_read_is_refused(files, monkeypatch, name, said):
    monkeypatch.chdir(files)
    with pytest.raises(PipelineError) as caught:
        check_files(["events.csv", name])
    assert str(caught.value) == said


def test_outputs_that_exist_or_cannot_be_written_are_refused(files):
    check_files([], [str(files / "new" / "deep" / "out.csv")])
    assert not (files / "new").exists()
    with pytest.raises(PipelineError, match="already exists"):
        check_files([], [str(files / "out.parquet")])
    check_files([], [str(files / "out.parquet")], overwrite=True)
    with pytest.raises(PipelineError, match="cannot be written"):
        check_files([], [str(files / "events.csv" / "out.csv")])
    assert sorted(path.name for path in files.iterdir() if path.name.startswith(".")) == []


def test_paths_of_other_machines_are_left_to_spark(files, monkeypatch):
    check_files(["s3a://bucket/nowhere.csv"], ["hdfs://host/out.csv"])
    check_files(["nowhere.csv"], master="sc://host")
    check_files(["nowhere.csv"], master="spark://host:7077")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")  # then a path without a scheme may be on HDFS
    check_files(["nowhere.csv"])
    with pytest.raises(PipelineError, match="there is no file"):
        check_files(["nowhere.csv"], master="local[2]")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("match", "nowhere.csv", "events.csv"), "there is no file nowhere.csv"),
        (("match", "random.csv", "events.csv"), "is not a CSV file"),
        (("match", "events.csv", "events.csv", "--out", "out.parquet"), "out.parquet already exists"),
        (("aggregate", "nowhere.csv"), "there is no file nowhere.csv"),
        (("tune", "events.csv", "events.jsonl", "--out", "events.jsonl"), "events.jsonl already exists"),
        (("tune", "nowhere.jsonl", "events.csv"), "there is no file nowhere.jsonl"),
        (("demand", "events.csv", "--out", "page.txt"), "name it .html or .json"),
        (("demand", "events.csv", "--out", "no/page.html"), "there is no folder"),
    ],
)
def test_commands_say_so_before_spark_starts(files, monkeypatch, arguments, said):
    monkeypatch.chdir(files)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)  # whoever starts Spark fails otherwise
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("use", [match, aggregate, prepare, statistics, profile])
def test_pandas_frames_are_refused_clearly(use):
    frame = pd.DataFrame({"id": [1], "filter": ["x > 1"]})
    with pytest.raises(PipelineError) as caught:
        use(frame, frame) if use is match else use(frame)
    assert "must be a Spark DataFrame, not a pandas DataFrame: convert it with spark.createDataFrame" in str(
        caught.value
    )


def test_running_as_root_or_not_an_unreadable_file_is_refused(files, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PipelineError, match="permission denied"):
        check_files([str(files / "events.csv")])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "events.csv"], "there is no file nowhere"),
        (["in", "nowhere.csv"], "there is no file nowhere.csv"),
        (["in", "events.csv", "--commands", "nowhere"], "there is no file nowhere"),
        (["in", "events.csv", "--out", "events.csv"], "events.csv is a file, not a folder"),
        (["in", "events.csv", "--once"], "in has no files, so the columns"),
    ],
)
def test_a_stream_that_cannot_run_says_so_before_spark_starts(files, monkeypatch, arguments, said):
    monkeypatch.chdir(files)
    monkeypatch.setattr("weft.cli.stream.at_work", lambda *_: pytest.fail("Spark was started"))
    Path("in").mkdir()
    told = CliRunner().invoke(app, ["stream", "--out", "out", "--checkpoint", "state", *arguments])
    assert told.exit_code == 1, told.output
    assert said in told.output.replace("\n", " ")
