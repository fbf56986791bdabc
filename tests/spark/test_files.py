"""Files by name: every line is a row or an error, whatever a query asks for; every refusal is one sentence."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.pipeline.attributes import CORRUPT
from weft.pipeline.file_names import files_without_bytes, format_of
from weft.pipeline.match_job import number_note
from weft.pipeline.preflight import check_output
from weft.spark.failures import failures
from weft.spark.files import doubtful_texts, read_frame, write_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def put(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def rows(frame: DataFrame) -> list[tuple]:
    """The rows in some order, CORRUPT last."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.parquet", "parquet"),
        ("/x/a.CSV", "csv"),
        ("a.csv.gz", "csv"),
        ("a.json", "json"),
        ("day.1/a.jsonl.bz2", "json"),
        ("a.ndjson", "json"),
        ("s3a://bucket/events.parquet/", "parquet"),
        ("hdfs:///logs/2024-*.jsonl", "json"),
    ],
)
def test_a_name_says_the_format(name, kind):
    assert format_of(name) == kind


def test_a_folder_says_it_by_its_files(tmp_path):
    put(tmp_path / "day=1" / "part.csv", "a\n1\n")
    put(tmp_path / "_SUCCESS", "")
    assert format_of(str(tmp_path)) == format_of(f"{tmp_path}/*") == format_of(f"file:{tmp_path}") == "csv"
    put(tmp_path / "more.json", "{}")
    with pytest.raises(PipelineError, match="not clear from its name"):
        format_of(str(tmp_path))
    assert format_of(str(tmp_path), "json") == "json"


def test_a_name_that_says_nothing_is_refused(tmp_path):
    for name in ("a", "a.txt", str(tmp_path), "a.gz"):
        with pytest.raises(PipelineError, match=r"end it in \.parquet"):
            format_of(name)
    with pytest.raises(PipelineError, match="did you mean 'parquet'"):
        format_of("a", "parqet")


# -- lines -------------------------------------------------------------------------------------------


def test_lines_of_json_are_rows_or_errors(spark: SparkSession, tmp_path):
    text = '{"x":1,"s":"a"}\n\nnonsense\n{"x":2.5,"s":"b"}\n{"x":\n[7]\n{"s":"\\u00e9"}\n'
    frame = read_frame(spark, put(tmp_path / "a.jsonl", text))
    assert types(frame) == {"s": "string", "x": "double", CORRUPT: "string"}
    wanted = [("a", 1.0, None), ("b", 2.5, None), ("é", None, None)]
    assert rows(frame) == sorted([*wanted, *((None, None, line) for line in ("nonsense", '{"x":', "[7]"))], key=repr)


def test_lines_of_csv_are_rows_or_errors(spark: SparkSession, tmp_path):
    text = 'id,filter\n1,"s = \'a\' AND t = ""b"""\n2,x > 1, or so\n3\n4,"x IN (1, 2)"\n'
    frame = read_frame(spark, put(tmp_path / "a.csv", text))
    assert types(frame) == {"id": "int", "filter": "string", CORRUPT: "string"}
    fine = [(1, "s = 'a' AND t = \"b\"", None), (4, "x IN (1, 2)", None)]
    assert rows(frame) == sorted([*fine, (None, None, "2,x > 1, or so"), (None, None, "3")], key=repr)


def test_which_lines_are_errors_does_not_depend_on_the_query(spark: SparkSession, tmp_path):
    schema = Schema.of(x="int", y="int")
    json_file = put(tmp_path / "a.jsonl", '{"x":1,"y":1}\n{"x":2,"y":"odd"}\n')
    csv_file = put(tmp_path / "a.csv", "x,y\n1,1\n2,odd\n")
    for path, line in ((json_file, '{"x":2,"y":"odd"}'), (csv_file, "2,odd")):
        frame = read_frame(spark, path, schema=schema)
        assert types(frame) == {"x": "bigint", "y": "bigint", CORRUPT: "string"}
        assert [row.x for row in frame.select("x").orderBy("x").collect()] == [None, 1]
        assert rows(frame.select(CORRUPT)) == [(line,), (None,)] or rows(frame.select(CORRUPT)) == [(None,), (line,)]
        assert frame.where(f"{CORRUPT} IS NOT NULL").count() == 1
        assert frame.count() == 2
        assert frame.where("x = 2").count() == 0


VALUES = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, "a", "é", "1", "10:30", True, None]))
LINES = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3).map(json.dumps),
        st.sampled_from(["{", "nope", '{"a": 1', "[1]", '"text"', '{"a" 1}']),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES)
def test_every_line_is_a_row_with_its_values_or_an_error(spark: SparkSession, tmp_path, lines):
    path = put(tmp_path / "lines.jsonl", "\n".join(lines) + "\n")
    objects = [each for line in lines if (each := json_or_none(line)) is not None]
    wrong = [line for line in lines if json_or_none(line) is None]
    if not any(objects):
        with pytest.raises(PipelineError, match="has no"):
            read_frame(spark, path)
        return
    found = [row.asDict() for row in read_frame(spark, path).collect()]
    assert sorted(row[CORRUPT] for row in found if row[CORRUPT] is not None) == sorted(wrong)
    for name in {key for each in objects for key in each}:
        wanted = [each.get(name) for each in objects]
        got = [row[name] for row in found if row[CORRUPT] is None]
        kinds = {"number" if type(value) in (int, float) else type(value) for value in wanted if value is not None}
        text = str in kinds or len(kinds) > 1
        shown = [as_text(value) if text else value for value in wanted]
        assert sorted(map(repr, map(plain, got))) == sorted(map(repr, map(plain, shown)))


def json_or_none(line: str) -> dict | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def as_text(value) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def plain(value):
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


# -- types -------------------------------------------------------------------------------------------


def test_moments_are_found_and_nothing_else_is_one(spark: SparkSession, tmp_path):
    moment = datetime(2018, 2, 1, 8, tzinfo=UTC)
    values = {"z": "2018-02-01T10:00:00+02:00", "n": "2018-02-01 08:00:00", "d": "2018-02-01", "h": "10:30"}
    values |= {"m": "2018-02", "w": "12", "f": "2018-02-01T08:00:00.123456789Z", "k": "2018-02-30"}
    json_file = put(tmp_path / "a.jsonl", json.dumps(values) + "\n")
    csv_file = put(tmp_path / "a.csv", ",".join(values) + "\n" + ",".join(values.values()) + "\n")
    for path, number in ((json_file, "string"), (csv_file, "int")):
        frame = read_frame(spark, path)
        kinds = types(frame)
        assert [kinds[name] for name in "zndf"] == ["timestamp"] * 4
        assert [kinds[name] for name in "hmk"] == ["string"] * 3
        assert kinds["w"] == number
        row = frame.selectExpr("unix_micros(z) z", "unix_micros(n) n", "unix_micros(f) f").head()
        micros = int(moment.timestamp()) * 1_000_000
        assert (row.z, row.n, row.f) == (micros, micros, micros + 123456)


def test_a_schema_has_the_last_word(spark: SparkSession, tmp_path):
    text = '{"n":1,"d":"2018-02-01","in":{"x":1},"f":{"exact":{"s":"a"}}}\n{"n":"two","in":{"x":2}}\n'
    path = put(tmp_path / "a.jsonl", text)
    schema = Schema.from_dict({"attributes": {"n": "int", "d": "string", "in.x": "float", "f": "string", "no": "int"}})
    frame = read_frame(spark, path, schema=schema)
    assert types(frame) == {"d": "string", "f": "string", "in": "struct<x:double>", "n": "bigint", CORRUPT: "string"}
    good = frame.where(f"{CORRUPT} IS NULL").head()
    assert (good.n, good.d, good["in"].x, json.loads(good.f)) == (1, "2018-02-01", 1.0, {"exact": {"s": "a"}})
    assert frame.where(f"{CORRUPT} IS NOT NULL").count() == 1


def test_texts_that_are_mostly_numbers_are_named(spark: SparkSession, tmp_path):
    path = put(tmp_path / "a.csv", "x,s,t\n1,a,1\n2,b,x\n3,1,y\nNA,c,z\n")
    frame = read_frame(spark, path)
    assert doubtful_texts(frame) == [number_note("x")]
    assert doubtful_texts(frame, Schema.of(x="string")) == []
    assert doubtful_texts(frame.select("s")) == []
    assert doubtful_texts(spark.range(3)) == []


def test_a_key_twice_in_a_line_fails_nothing(spark: SparkSession, tmp_path):
    path = put(tmp_path / "a.jsonl", '{"x":1,"x":2}\n{"x":3,"in":{"y":1,"y":"a"}}\n')
    assert [row.x for row in read_frame(spark, path).orderBy("x").collect()] == [2, 3]


def test_names_that_differ_in_case_are_two(spark: SparkSession, tmp_path):
    path = put(tmp_path / "a.jsonl", '{"x":1}\n{"X":2}\n')
    with pytest.raises(PipelineError, match=r"columns 'X' and 'x': set spark\.sql\.caseSensitive"):
        read_frame(spark, path)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert rows(read_frame(spark, path)) == [(2, None, None), (None, 1, None)]
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


# -- folders, patterns, archives ---------------------------------------------------------------------


def test_folders_patterns_and_archives(spark: SparkSession, tmp_path):
    put(tmp_path / "d" / "1.jsonl", '{"x":1}\n')
    put(tmp_path / "d" / "2.jsonl.gz", gzip.compress(b'{"x":2,"y":1}\n'))
    put(tmp_path / "e" / "day=7" / "a.csv", "\ufeffx\n1\n")
    assert rows(read_frame(spark, str(tmp_path / "d"))) == [(1, None, None), (2, 1, None)]
    assert rows(read_frame(spark, str(tmp_path / "d" / "*.jsonl"))) == [(1, None)]
    assert rows(read_frame(spark, str(tmp_path / "e")).select("x", "day")) == [(1, 7)]


def test_every_parquet_file_of_a_folder_has_a_say(spark: SparkSession, tmp_path):
    write_frame(spark.range(1), str(tmp_path / "d" / "a.parquet"))
    write_frame(spark.range(1).selectExpr("id", "'s' AS more"), str(tmp_path / "d" / "b.parquet"))
    assert set(read_frame(spark, str(tmp_path / "d" / "*.parquet")).columns) == {"id", "more"}


# -- writing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.jsonl"])
def test_what_is_written_is_read_back(spark: SparkSession, tmp_path, name):
    text = (
        "SELECT 1L AS id, 'a, \"b\" \\\\ c' AS s, timestamp'2018-02-01 08:00:00.5' AS t UNION ALL SELECT 2L, NULL, NULL"
    )
    frame = spark.sql(text)
    path = str(tmp_path / name)
    write_frame(frame, path)
    back = read_frame(spark, path).select("id", "s", "t")
    assert rows(back) == rows(frame)
    with pytest.raises(PipelineError, match="already exists"):
        write_frame(frame, path)
    write_frame(frame.limit(1), path, overwrite=True)
    assert read_frame(spark, path).count() == 1


def test_lists_are_not_written_as_csv(spark: SparkSession, tmp_path):
    with pytest.raises(PipelineError, match="cannot hold lists"):
        write_frame(spark.sql("SELECT array(1) AS a"), str(tmp_path / "a.csv"))


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("no.jsonl", None, "there is no file"),
        ("no*.csv", None, "there is no file"),
        ("no.parquet", None, "there is no file"),
        ("e.jsonl", "", "has no rows"),
        ("e.csv", "", "has no rows"),
        ("e.parquet", "", "has no rows"),
        ("b.parquet", "hello", "is not a Parquet file"),
        ("b.jsonl", "x\ny\n", "has no readable line"),
        ("b.jsonl.gz", "hello", "cannot be read: "),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(spark: SparkSession, tmp_path, name, content, said):
    if content is not None:
        put(tmp_path / name, content)
    with pytest.raises(PipelineError, match=said) as raised:
        read_frame(spark, str(tmp_path / name))
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_without_files_is_said_in_a_sentence(spark: SparkSession, tmp_path):
    (tmp_path / "d.json").mkdir()
    with pytest.raises(PipelineError, match="has no rows"):
        read_frame(spark, str(tmp_path / "d.json"))


def test_csv_files_in_another_order_are_refused_not_mixed_up(spark: SparkSession, tmp_path):
    put(tmp_path / "d" / "1.csv", "a,b\n1,x\n")
    put(tmp_path / "d" / "2.csv", "b,a\ny,2\n")
    with pytest.raises(PipelineError, match="CSV header does not conform"), failures():
        read_frame(spark, str(tmp_path / "d")).collect()


def test_what_a_worker_raises_is_its_sentence(spark: SparkSession):
    def broken(batches):
        raise PipelineError("the thing is\nbroken")
        yield from batches

    with pytest.raises(PipelineError, match=r"^it failed: the thing is broken$"), failures("it failed"):
        spark.range(1).mapInArrow(broken, "id long").collect()


def test_a_corrupt_page_is_blamed_on_its_file_not_on_the_output(spark: SparkSession, tmp_path):
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": list(range(5_000))}), tmp_path / f"{name}.parquet")
    raw = bytearray((tmp_path / "b.parquet").read_bytes())
    raw[4:64] = b"\xff" * 60  # the header of the first page
    (tmp_path / "b.parquet").write_bytes(raw)
    frame = spark.read.parquet(str(tmp_path / "*.parquet"))
    with pytest.raises(PipelineError) as raised:
        write_frame(frame.where("x > 7"), str(tmp_path / "out.parquet"))
    assert str(raised.value).startswith(f"{tmp_path}/b.parquet cannot be read: ")


FULL = """org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: java.io.IOException: {}
\tat java.base/sun.nio.ch.FileChannelImpl.transferTo(FileChannelImpl.java:699)
\tat {}"""


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "org.apache.spark.shuffle.sort.UnsafeShuffleWriter.mergeSpills",
            "no space is left for Spark's temporary files",
        ),
        ("org.apache.spark.util.collection.unsafe.sort.UnsafeSorterSpillWriter.write", "Spark's temporary files"),
        ("org.apache.parquet.hadoop.ParquetRecordWriter.write", "^out cannot be written: "),
    ],
)
def test_a_full_disk_is_told_from_another(where, said):
    from pyspark.errors import PySparkException

    with pytest.raises(PipelineError, match=said), failures("out cannot be written"):
        raise PySparkException(FULL.format("No space left on device", where))


def test_an_empty_folder_blocks_nothing_and_an_unfinished_one_is_named(spark: SparkSession, tmp_path):
    for name in ("empty", "unfinished", "full"):
        (tmp_path / f"{name}.parquet").mkdir()
    (tmp_path / "unfinished.parquet" / "_temporary").mkdir()
    (tmp_path / "full.parquet" / "part").write_text("here")
    write_frame(spark.range(3), str(tmp_path / "empty.parquet"))
    assert read_frame(spark, str(tmp_path / "empty.parquet")).count() == 3
    for name, said in (("unfinished", "unfinished output of another run"), ("full", "already exists")):
        path = tmp_path / f"{name}.parquet"
        for refuse in (lambda: write_frame(spark.range(3), str(path)), lambda: check_output(str(path), path, False)):  # noqa: B023
            with pytest.raises(PipelineError, match=said):
                refuse()
    check_output("empty", tmp_path / "new", False)


def test_files_without_bytes_are_named(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("d/a.parquet", "d/b.parquet", "d/_c.parquet", "e.csv"):
        (tmp_path / name).touch()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "d" / "b.parquet")
    assert files_without_bytes(str(tmp_path / "d")) == [str(tmp_path / "d" / "a.parquet")]
    assert files_without_bytes(str(tmp_path / "d" / "*.parquet")) == [str(tmp_path / "d" / "a.parquet")]
    assert files_without_bytes(str(tmp_path / "e.csv")) == []
    assert files_without_bytes("hdfs://host/x.parquet") == []
