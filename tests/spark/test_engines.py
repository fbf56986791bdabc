"""Both engines, side by side: the same rows, the same rows left out, the same report, whatever the files are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from random_files import FORMATS, LIST_FORMATS, random_files, random_lists
from weft import matches, parse
from weft.errors import PipelineError
from weft.pipeline.attributes import CORRUPT
from weft.pipeline.local_match import match_locally
from weft.pipeline.match_job import MatchJob, MatchReport
from weft.pipeline.preflight import check_files
from weft.pipeline.tables import open_table
from weft.spark.events import quoted
from weft.spark.failures import failures
from weft.spark.files import read_frame
from weft.spark.report import match_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _names_are_told_apart(spark: SparkSession):
    """As in a session that a command starts."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.set("spark.sql.caseSensitive", "false")


def written(path: str) -> list[str]:
    return sorted(json.dumps(row, default=str) for rows, _ in open_table(path) for row in rows.to_pylist())


def facts(report: MatchReport) -> dict[str, Any]:
    """What does not depend on the machine and on the order of rows."""
    said = report.to_dict()
    return {
        name: said[name] for name in ("strategy", "events", "subscriptions", "matches", "matched", "errors", "notes")
    }


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
@pytest.mark.parametrize("kind", FORMATS)
def test_both_engines_write_the_same(spark: SparkSession, tmp_path, kind, seed):
    forms = {"pairs": "csv", "lists": "jsonl", "counts": "parquet"}
    seed = 100 * (seed + 1) + FORMATS.index(kind)
    given = random_files(tmp_path / "in", seed, kind)
    form = list(forms)[seed % 3]
    places = [tmp_path / name for name in ("spark", "local")]
    jobs = [
        MatchJob(
            given.events,
            given.subscriptions,
            out=str(place / f"out.{forms[form]}"),
            errors=str(place / "errors.jsonl"),
            output=form,
        )
        for place in places
    ]
    one, other = match_files(spark, jobs[0], perf_counter), match_locally(jobs[1], perf_counter)
    assert facts(one) == facts(other)
    assert open_table(str(jobs[0].out)).columns == open_table(str(jobs[1].out)).columns
    assert written(str(jobs[0].out)) == written(str(jobs[1].out))
    assert written(str(jobs[0].errors)) == written(str(jobs[1].errors))


def refusal_or_facts(run: Callable[..., MatchReport], *arguments: Any) -> Any:
    try:
        check_files([arguments[-1].events, arguments[-1].subscriptions])  # as the command does, whatever the engine
        return facts(run(*arguments, perf_counter))
    except PipelineError as error:
        return str(error)


EMPTY: dict[str, Any] = {
    "bytes.csv": b"",
    "header.csv": b"x,s\n",
    "lines.csv": b"\n\n",
    "bytes.jsonl": b"",
    "lines.jsonl": b"\n \n",
    "objects.jsonl": b"{}\n{}\n",
    "bytes.parquet": b"",
    "rows.parquet": pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
    "nulls.parquet": pa.table({"x": pa.array([None, None], pa.int64()), "s": pa.nulls(2, pa.string())}),
    "untyped.parquet": pa.table({"x": pa.nulls(2)}),
    "packed.csv.gz": gzip.compress(b""),
}


@pytest.mark.parametrize("name", EMPTY)
def test_both_engines_agree_on_files_without_rows_and_values(spark: SparkSession, tmp_path, name):
    path, content = tmp_path / name, EMPTY[name]
    pq.write_table(content, path) if isinstance(content, pa.Table) else path.write_bytes(content)
    (tmp_path / "good.csv").write_text("id,filter\n1,x > 1\n2,x IS NULL\n")
    (tmp_path / "good.jsonl").write_text('{"x":1,"s":"a"}\n')
    for given in ((path, tmp_path / "good.csv"), (tmp_path / "good.jsonl", path)):
        jobs = [MatchJob(*map(str, given), out=str(tmp_path / f"{given[0].name}-{at}.parquet")) for at in range(2)]
        one = refusal_or_facts(match_files, spark, jobs[0])
        assert one == refusal_or_facts(match_locally, jobs[1])
        if isinstance(one, dict):
            assert written(str(jobs[0].out)) == written(str(jobs[1].out))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_both_engines_write_structs_alike(spark: SparkSession, tmp_path, form, seed):
    rng = Random(seed)

    def struct() -> Any:
        inner = rng.choice([None, {"w": rng.choice([None, "a", "é"])}])
        return rng.choice([None, {"y": rng.choice([None, 1, 5, 2**60 + 1]), "z": inner}])

    rows = [{"n": n, "in": struct(), "l": rng.choice([None, [], [1, None]])} for n in range(rng.randint(1, 30))]
    inner = pa.struct([("y", pa.int64()), ("z", pa.struct([("w", pa.string())]))])
    events = tmp_path / f"events.{form}"
    if form == "parquet":
        kinds = pa.schema([("n", pa.int64()), ("in", inner), ("l", pa.list_(pa.int64()))])
        pq.write_table(pa.Table.from_pylist(rows, kinds), events)
    else:
        events.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    texts = ['"in.y" > 3', "\"in.z.w\" = 'a'", '"in.y" = 1152921504606846977', '"in.z.w" IS NULL']
    (tmp_path / "subs.jsonl").write_text(
        "".join(json.dumps({"id": n, "filter": text}) + "\n" for n, text in enumerate(texts))
    )
    outs = [tmp_path / f"{name}.{form}" for name in ("spark", "local")]
    jobs = [MatchJob(str(events), str(tmp_path / "subs.jsonl"), out=str(out)) for out in outs]
    assert facts(match_files(spark, jobs[0], perf_counter)) == facts(match_locally(jobs[1], perf_counter))
    assert written(str(outs[0])) == written(str(outs[1]))
    flat = [{"in.y": (row["in"] or {}).get("y"), "in.z.w": ((row["in"] or {}).get("z") or {}).get("w")} for row in rows]
    wanted = sorted((n, key) for n, row in enumerate(flat) for key, text in enumerate(texts) if matches(text, row))
    found = [row for some, _ in open_table(str(outs[1])) for row in some.to_pylist()]
    assert sorted((row["n"], row["subscription"]) for row in found) == wanted


PARQUET: dict[str, Any] = {
    "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
    "small": pa.array([255, None], pa.uint8()),
    "no_value": pa.nulls(2),
    "no_value_below": pa.array([{"y": None, "z": 1}, None]),
    "lists_without_values": pa.array([[None], []]),
    "seconds": pa.array([1_500_000_000, None], pa.timestamp("s", "Europe/Berlin")),
    "zoneless": pa.array([1_500_000_000_000, None], pa.timestamp("ms")),
    "date": pa.array([86_400_000, None], pa.date64()),
    "duration": pa.array([7, None], pa.duration("us")),
    "decimal": pa.array([Decimal("123456789012345678901234567890.12345"), None]),
    "binary": pa.array([b"ab", None], pa.binary(2)),
    "long_text": pa.array(["a", None], pa.large_string()),
    "codes": pa.array(["a", None]).dictionary_encode(),
    "long_lists": pa.array([[1, 2], None], pa.large_list(pa.uint16())),
    "pairs": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
    "structs": pa.array([[{"y": 1}], None], pa.list_(pa.struct([("y", pa.uint8())]))),
    "times": pa.array([[1_500_000_000_123], None], pa.list_(pa.timestamp("ms", "UTC"))),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
}


def test_both_engines_know_the_types_of_parquet(spark: SparkSession, tmp_path):
    path = tmp_path / "types.parquet"
    pq.write_table(pa.table(PARQUET), path)
    texts = [f"{name} IS NOT NULL" for name in PARQUET if name != "date"] + [
        *("unsigned > 5", "small = 255", "duration > 3", "decimal > 1", "codes = 'a'", "long_text = 'a'"),
        *("seconds > TIMESTAMP '2000-01-01 00:00:00'", '"no_value_below.z" = 1', '"date" IS NOT NULL'),
    ]
    (tmp_path / "subs.jsonl").write_text("".join(json.dumps({"id": text, "filter": text}) + "\n" for text in texts))
    jobs = [
        MatchJob(str(path), str(tmp_path / "subs.jsonl"), out=str(tmp_path / f"{name}.parquet"), output="lists")
        for name in ("spark", "local")
    ]
    assert facts(match_files(spark, jobs[0], perf_counter)) == facts(match_locally(jobs[1], perf_counter))
    one, other = (open_table(str(job.out)) for job in jobs)
    assert dict(zip(one.columns.names, one.columns.types, strict=True)) == dict(
        zip(other.columns.names, other.columns.types, strict=True)
    )
    assert written(str(jobs[0].out)) == written(str(jobs[1].out))


@pytest.mark.parametrize("kind", LIST_FORMATS)
def test_both_engines_match_lists_alike(spark: SparkSession, tmp_path, kind):
    given = random_lists(tmp_path / "in", 7, kind)
    parsed = {key: parse(text) for key, text in given.filters.items()}
    wanted = sorted((row["n"], key) for row in given.rows for key, each in parsed.items() if matches(each, row))
    places = [tmp_path / name for name in ("spark", "local")]
    jobs = [
        MatchJob(given.events, given.subscriptions, out=str(place / "out.jsonl"), errors=str(place / "errors.jsonl"))
        for place in places
    ]
    one, other = match_files(spark, jobs[0], perf_counter), match_locally(jobs[1], perf_counter)
    assert facts(one) == facts(other)
    assert one.errors == given.bad
    assert written(str(jobs[0].out)) == written(str(jobs[1].out))
    assert written(str(jobs[0].errors)) == written(str(jobs[1].errors))
    found = [row for rows, _ in open_table(str(jobs[1].out)) for row in rows.select(["n", "subscription"]).to_pylist()]
    assert sorted((row["n"], row["subscription"]) for row in found) == wanted


# -- lines -----------------------------------------------------------------------------------------------

CELLS = (
    *("1", "-2", "007", "+5", "3000000000", "99999999999999999999", "1.5", "1e5", "1e400", "1.", "NaN", "-Inf", "true"),
    *(
        "FALSE",
        "a",
        "b c",
        "é",
        "",
        "",
        "2018-02-01",
        "2018-02-01 10:00:00.25Z",
        "2018-02-30",
        "2018-02-01T10:00+02:00",
    ),
    *("+12345-01-01", "10:30", " 1 ", " ", "0x1p3", "1d", "null"),
)
VALUES = (
    *(
        1,
        -2,
        3000000000,
        10**19,
        10**40,
        1.5,
        1e300,
        True,
        None,
        "a",
        "é",
        "",
        "2018-02-01",
        "10:30",
        [1, 2],
        [],
        ["a", 1],
    ),
    *([None], {"y": 1}, {"y": "s"}, {"y": None}, {}, {"z": [1]}, "NaN", [{"y": 1}], [1.5], [""], '"\\', "\0"),
)
ODD = (
    "null",
    "",
    "  ",
    "5",
    '{"a":NaN}',
    '{"a":-INF}',
    '{"a":1,"a":"x"}',
    '{"a":"x","a":1}',
    '{"a":"\\ud800"}',
    '["a"]',
)


def csv_text(rng: Random) -> str:
    names = rng.sample(["a", "b", "c", "d e", "X"], rng.randint(1, 4))
    pools = [rng.sample(CELLS, rng.randint(1, 5)) for _ in names]
    lines = [",".join(names)]
    for _ in range(rng.randint(0, 8)):
        cells = [rng.choice(pool) for pool in pools]
        cells = [f'"{cell}"' if rng.random() < 0.2 else cell for cell in cells]
        chance = rng.random()
        if chance < 0.15:
            cells = ["".join(rng.choice('",ab 1') for _ in range(rng.randint(0, 9)))]
        elif chance < 0.25:
            cells = [*cells, "more"] if chance < 0.2 else cells[:-1]
        elif chance < 0.3:
            cells[0] = f'"{cells[0]}"' + rng.choice(["x", " ", '"', ' "y'])
        lines.append(",".join(cells))
    return rng.choice(["\n", "\r\n"]).join(lines)


def json_text(rng: Random) -> str:
    names = rng.sample(["a", "b", "d e", "X", "x", ""], rng.randint(1, 4))
    pools = [rng.sample(VALUES, rng.randint(1, 4)) for _ in names]
    lines = []
    for _ in range(rng.randint(1, 8)):
        line = json.dumps(
            {name: rng.choice(pool) for name, pool in zip(names, pools, strict=True) if rng.random() < 0.8}
        )
        chance = rng.random()
        if chance < 0.1:
            line = line[: rng.randint(0, len(line))]
        elif chance < 0.2:
            line = rng.choice([line + " x", line + "}", line.replace('"', "'"), f"[{line},{{}}]"])
        elif chance < 0.3:
            line = rng.choice(ODD)
        lines.append(line)
    return rng.choice(["\n", "\r\n", "\r"]).join(lines)


def of_spark(spark: SparkSession, path: str) -> Any:
    from pyspark.sql import functions as sf

    try:
        with failures():
            frame = read_frame(spark, path)
            columns = [sf.col(quoted(name)) for name in frame.columns]
            moments = [field.dataType.simpleString() == "timestamp" for field in frame.schema.fields]
            read = [sf.unix_micros(each) if moment else each for each, moment in zip(columns, moments, strict=True)]
            rows = [tuple(row) for row in frame.select(*read).collect()]
    except PipelineError:
        return "refused"
    kinds = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields if field.name != CORRUPT]
    fine = sorted(repr([shown(value) for value in row[:-1]]) for row in rows if row[-1] is None)
    return kinds, fine, sorted({row[-1] for row in rows if row[-1] is not None})


def of_weft(spark: SparkSession, path: str) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        table = open_table(path)
        read = list(table)
    except PipelineError:
        return "refused"
    kinds = [(field.name, from_arrow_type(field.type).simpleString()) for field in table.columns]
    fine = []
    for rows, _ in read:
        columns = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
        fine += [
            repr([shown(value) for value in row]) for row in zip(*(each.to_pylist() for each in columns), strict=True)
        ]
    return kinds, sorted(fine), sorted({line for _, corrupt in read for line in corrupt})


def shown(value: Any) -> Any:
    """Rows and dictionaries alike."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    return [shown(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 300))])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_both_engines_read_lines_alike(spark: SparkSession, tmp_path: Path, form: str, seed: int):
    path = tmp_path / f"lines.{form}"
    text = (csv_text if form == "csv" else json_text)(Random(seed))
    path.write_bytes(text.encode())
    assert of_weft(spark, str(path)) == of_spark(spark, str(path)), text
