"""Lines of CSV and JSON, and Parquet files, as rows: the rules of Spark's readers, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.pipeline import tables as tables_module
from weft.pipeline.row_text import double_text, json_rows
from weft.pipeline.tables import open_table
from weft.pipeline.text_values import kind_of, moment


def read(path: Path, text: str | bytes, schema: Schema | None = None) -> tuple[dict[str, str], list[Any], list[str]]:
    """The types, the rows and the lines that cannot be read of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    table = open_table(str(path), schema)
    parts = list(table)
    rows = [tuple(row.values()) for part, _ in parts for row in part.to_pylist()]
    kinds = {field.name: str(field.type).partition("[")[0] for field in table.columns}
    return kinds, rows, [line for _, lines in parts for line in lines]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((text, "int32") for text in ("1", "+5", "-0", "007", "-2147483648")),
        *((text, "int64") for text in ("2147483648", "-9223372036854775808")),
        *((text, "decimal128(19, 0)") for text in ("9223372036854775808",)),
        *((text, "decimal128(1, 0)") for text in ("1.", "5e0")),
        *(
            (text, "double")
            for text in ("1e5", ".5", "1.5d", "2f", "0x1p3", "NaN", "Inf", "-Infinity", " 1 ", "1" * 39)
        ),
        *((text, "bool") for text in ("true", "FALSE")),
        *((text, "string") for text in ("0x10", "+Inf", "inf", "nan", "t", "1_000", "10:30", "2018-02", "2018-02-29")),
        *((text, "string") for text in ("2018-02-01T24:00", "2018-02-01T10:00+0200", "12345-01-01", " 2018-02-01")),
        *((text, "timestamp[us, tz=UTC]") for text in ("2018-02-01", "2018-02-01 10:00", "2018-02-01t10:00z")),
        *((text, "timestamp[us, tz=UTC]") for text in ("+12345-01-01", "0000-01-01", "2018-02-01T10:00:00+18:00")),
        ("", "null"),
    ],
)
def test_the_type_of_a_cell(text, kind):
    assert str(kind_of(text)) == kind


@pytest.mark.parametrize("text", ["0001-01-01", "1969-12-31T23:59:59.999999", "2000-02-29T01:02:03", "9999-12-31"])
def test_timestamps_are_those_of_the_calendar(text):
    wanted = datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert moment(text) == (wanted.days * 86_400 + wanted.seconds) * 1_000_000 + wanted.microseconds


def test_lines_of_csv_are_rows_or_errors(tmp_path):
    text = '\ufeffid,filter\r\n1,"s = \'a\' AND t = ""b"""\r\n2,x > 1, or so\r\n\r\n  \r\n3\r\n4,"x IN (1, 2)"'
    kinds, rows, wrong = read(tmp_path / "a.csv", text)
    assert kinds == {"id": "int32", "filter": "string"}
    assert rows == [(1, "s = 'a' AND t = \"b\""), (4, "x IN (1, 2)")]
    assert wrong == ["2,x > 1, or so", "3"]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ('"x""y",1', ('x"y', 1)),
        ('"x"y,1', ('"x"y', 1)),
        ('x"y,1', ('x"y', 1)),
        ('"x" ,1', ("x", 1)),
        (' "x",1', (' "x"', 1)),
        ('"a""b"c,1', ('"a"b"c', 1)),
        ('"x,y"z,1', ('"x,y"z', 1)),
        ('"",1', (None, 1)),
        (" x ,1", (" x ", 1)),
    ],
)
def test_quotes_in_csv(tmp_path, line, row):
    assert read(tmp_path / "a.csv", f"a,b\n{line}\n")[1] == [row]


def test_what_is_wrong_with_a_line_has_a_say_in_types_but_a_second_header_has_not(tmp_path):
    kinds, rows, wrong = read(tmp_path / "a.csv", "a,b\n1,2\nx,1,2\na,b\n")
    assert (kinds["a"], kinds["b"]) == ("string", "int32")
    assert (rows, wrong) == ([("1", 2)], ["x,1,2", "a,b"])


def test_lines_of_json_are_rows_or_errors(tmp_path):
    text = '{"x":1,"s":"a"}\n\nnonsense\n{"x":2.5,"s":"b"}\n{"x":\n[7]\n{"s":"\\u00e9"}\n[{"x":7},{"x":8}]\n'
    text += "{'x':9} and more\n" + '{"x":NaN}\n'
    kinds, rows, wrong = read(tmp_path / "a.jsonl", text)
    assert kinds == {"s": "string", "x": "double"}
    assert [row[0] for row in rows] == ["a", "b", "é", None, None, None, None]
    assert [row[1] for row in rows[:6]] == [1.0, 2.5, None, 7.0, 8.0, 9.0]
    assert wrong == ["nonsense", '{"x":', "[7]"]


def test_what_has_two_types_is_text_as_it_is_written(tmp_path):
    text = '{"x":1.50}\n{"x":{"a": [1, 2]}}\n{"x":true}\n{"x":"s"}\n{"x":null,"y":""}\n{"y":3}\n{"x":"a","x":7}\n'
    kinds, rows, wrong = read(tmp_path / "a.jsonl", text)
    assert kinds == {"x": "string", "y": "int64"}
    assert [row[0] for row in rows] == ["1.50", '{"a": [1, 2]}', "true", "s", None, "7"]
    assert wrong == ['{"x":null,"y":""}']  # an empty text is no number


def test_types_grow_from_block_to_block(tmp_path, monkeypatch):
    monkeypatch.setattr(tables_module, "_BLOCK", 16)
    lines = [
        '{"n":1}',
        '{"n":2}',
        '{"n":2.5}',
        '{"m":"2018-02-01"}',
        '{"m":"2018-02-02","n":3}',
        "{",
        '{"m":"x","o":{"p":1}}',
    ]
    kinds, rows, wrong = read(tmp_path / "a.jsonl", "\r\n".join(lines))
    assert kinds["m"] == "string"
    assert (len(rows), wrong) == (6, ["{"])
    text = "a,b\r\n1,x\r\n2,y\r\n3.5,\r\n,2018-01-01\r\n" + "4,z\r\n" * 5
    kinds, rows, wrong = read(tmp_path / "a.csv", text)
    assert (kinds, len(rows), wrong) == ({"a": "double", "b": "string"}, 9, [])


def test_a_schema_has_the_last_word(tmp_path):
    schema = Schema.from_dict({"attributes": {"n": "int", "d": "string", "in.x": "float", "f": "string"}})
    text = '{"n":1,"d":"2018-02-01","in":{"x":1},"f":{"exact":{"s":"a"}}}\n{"n":"two","in":{"x":2}}\n'
    kinds, rows, wrong = read(tmp_path / "a.jsonl", text, schema)
    assert kinds == {"d": "string", "f": "string", "in": "struct<x: double>", "n": "int64"}
    assert rows == [("2018-02-01", '{"exact":{"s":"a"}}', {"x": 1.0}, 1)]
    assert len(wrong) == 1
    _, rows, wrong = read(tmp_path / "a.csv", "x,y\n1,1\n2,odd\n", Schema.of(x="int", y="int"))
    assert (rows, wrong) == ([(1, 1)], ["2,odd"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.jsonl", "", "has no rows"),
        ("e.csv", "", "has no rows"),
        ("e.parquet", "", "has no rows"),
        ("b.parquet", "hello", "is not a Parquet file"),
        ("b.jsonl", "x\ny\n", "has no readable line"),
        ("b.jsonl.gz", "hello", "cannot be read: "),
        ("b.csv", "a,a\n1,2\n", "a name twice"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path, name, content, said):
    with pytest.raises(PipelineError, match=said) as raised:
        read(tmp_path / name, content)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_csv_files_in_another_order_are_refused_not_mixed_up(tmp_path):
    for name, text in (("1", "a,b\n1,x\n"), ("2", "b,a\ny,2\n")):
        (tmp_path / f"{name}.csv").write_text(text)
    with pytest.raises(PipelineError, match="CSV header does not conform"):
        list(open_table(str(tmp_path)))


def test_a_very_long_line_is_one_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tables_module, "_BLOCK", 64)
    long = "x" * 5_000
    assert read(tmp_path / "a.jsonl", json.dumps({"a": long}) + "\r\n" + '{"a":"b"}\r')[1] == [(long,), ("b",)]


def test_hostile_lines_cost_no_more_than_others(tmp_path):
    digits, deep = "1" * 100_000, '{"a":' + "[" * 50_000
    texts = ["1", digits, digits + "x", "0x1p99999", "1e999999999", '"' * 50_001, "a,b"]
    kinds, rows, wrong = read(tmp_path / "a.csv", "a\n" + "\n".join(texts) + "\n")
    assert (kinds, len(rows), wrong) == ({"a": "string"}, 6, ["a,b"])
    lines = [
        '{"a":[1]}',
        deep,
        deep + "]" * 50_000 + "}",
        f'{{"b":{digits}}}',
        "[" * 50_000,
        '{"b":1e999999999}',
        "null",
    ]
    kinds, rows, wrong = read(tmp_path / "a.jsonl", "\n".join(lines))
    assert kinds["b"] == "double"
    assert (len(rows), len(wrong)) == (3, 4)


def test_timestamps_of_spark_are_utc_and_do_not_end_in_2262(tmp_path):
    moments = pa.array([datetime(9000, 1, 1), datetime(2018, 2, 1), None], pa.timestamp("us"))
    pq.write_table(pa.table({"t": moments}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    table = open_table(str(tmp_path / "a.parquet"))
    assert table.columns.field("t").type == pa.timestamp("us", "UTC")
    (part,) = table
    assert part.rows.column("t").to_pylist()[0] == datetime(9000, 1, 1, tzinfo=UTC)


def test_floats_are_written_as_java_does():
    texts = [double_text(value) for value in (1e7, 9_999_999.0, 0.001, 0.00099, 1.5e-10, -2.0, 1e300, 0.1 + 0.2)]
    assert texts == ["1.0E7", "9999999.0", "0.001", "9.9E-4", "1.5E-10", "-2.0", "1.0E300", "0.30000000000000004"]
    batch = pa.record_batch({"x": [1e10, 2.0, None], "s": ['a"b', "\n", None], "l": [[1], None, []]})
    assert json_rows(batch) == [
        '{"x":1.0E10,"s":"a\\"b","l":[1]}',
        '{"x":2.0,"s":"\\n","l":null}',
        '{"x":null,"s":null,"l":[]}',
    ]
