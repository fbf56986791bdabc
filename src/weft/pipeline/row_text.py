"""Rows as text: cells of JSON and CSV, column by column. The spelling is that of Spark's writers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from math import isinf, isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.errors import PipelineError

_DAY = 86_400_000_000
_DIGITS = 3  # of a second, in rows that are left out
_ODD_IN_JSON = r'[\x00-\x1f"\\]'
_ODD_IN_CSV = '[",\n\r]'
_ESCAPE = re.compile(r'[\x00-\x1f"\\]')
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


# -- values ----------------------------------------------------------------------------------------------


def double_text(value: float, single: bool = False) -> str:
    """A float as Java writes it.

    >>> double_text(1e10), double_text(3.0), double_text(0.0001)
    ('1.0E10', '3.0', '1.0E-4')
    """
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    shown = str(np.float32(value)) if single else repr(float(value))
    if value == 0:
        return shown
    sign, digits, exponent = Decimal(shown).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent  # digits before it
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            made = f"0.{'0' * -point}{text}"
        else:
            padded = text.ljust(point, "0")
            made = f"{padded[:point]}.{padded[point:] or '0'}"
    else:
        made = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return f"-{made}" if sign else made


def moment_text(micros: int, digits: int, zone: str) -> str:
    """A timestamp, with so many digits of the second's fraction."""
    days, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{day_text(days)}T{clock}.{f'{fraction:06}'[:digits]}{zone}"


def day_text(days: int) -> str:
    """A day of the calendar without beginning, by its number since 1970."""
    days += 719_468
    era, of_era = divmod(days, 146_097)
    of_era_year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * of_era_year + of_era_year // 4 - of_era_year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    year = of_era_year + era * 400 + (month <= 2)
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{shown}-{month:02}-{day:02}"


def string_text(text: str) -> str:
    """A text in JSON."""
    return '"' + _ESCAPE.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'


def value_text(value: Any, kind: Any, digits: int) -> str:
    """A value in JSON."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        parts = (f"{string_text(field.name)}:{value_text(value[field.name], field.type, digits)}" for field in kind)
        return "{" + ",".join(parts) + "}"
    if pa.types.is_map(kind):
        parts = (f"{string_text(str(key))}:{value_text(each, kind.item_type, digits)}" for key, each in value)
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ",".join(value_text(each, kind.value_type, digits) for each in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        shown = double_text(value, bool(pa.types.is_float32(kind)))
        return shown if shown[-1].isdigit() else f'"{shown}"'
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if pa.types.is_timestamp(kind):
        micros: Any = pa.scalar(value, kind).value
        return f'"{moment_text(micros, digits, "" if kind.tz is None else "Z")}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    return string_text(value) if isinstance(value, str) else json.dumps(value, default=str)


# -- columns ---------------------------------------------------------------------------------------------


def _texts(array: Any, digits: int) -> Any | None:
    """A column of plain values as text, NULL where it is; None for columns that need a look at each value."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _doubles(array)
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return _each(array.cast(pa.int64()), lambda micros: moment_text(micros, digits, zone))
    if pa.types.is_date(kind):
        return _each(array.cast(pa.int32()), day_text)
    if pa.types.is_decimal(kind):
        return _each(array, str)
    return None


def _each(array: Any, text: Callable[[Any], str]) -> Any:
    """The texts of values, each made once."""
    coded = array.dictionary_encode()
    return pa.array([text(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _doubles(array: Any) -> Any:
    """Floats as Java writes them: most of them as Arrow does, with a digit behind the point."""
    numbers = np.abs(array.to_numpy(zero_copy_only=False))
    with np.errstate(invalid="ignore"):
        usual = (numbers >= 1e-3) & (numbers < 1e7)
    known = array.is_valid().to_numpy(zero_copy_only=False)
    texts = array.cast(pa.string())
    whole = pc.invert(pc.match_substring(texts, "."))
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if (usual | ~known).all():
        return texts
    single = bool(pa.types.is_float32(array.type))
    odd = pc.if_else(pa.array(usual), pa.scalar(None, array.type), array)
    return pc.coalesce(_each(odd, lambda value: double_text(value, single)), texts)


def json_column(array: Any, digits: int = 6) -> Any:
    """A column as JSON, `null` where it is NULL."""
    kind = array.type
    if pa.types.is_string(kind):
        odd = pc.match_substring_regex(array, _ODD_IN_JSON)
        if pc.any(odd).as_py():
            return pc.fill_null(_each(array, string_text), "null")
        return pc.fill_null(pc.binary_join_element_wise('"', array, '"', ""), "null")
    texts = _texts(array, digits)
    if texts is None:
        return pa.array([value_text(value, kind, digits) for value in _values(array)], pa.string())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    elif pa.types.is_floating(kind):
        named = pc.match_substring_regex(texts, "[yN]$")
        texts = pc.if_else(named, pc.binary_join_element_wise('"', texts, '"', ""), texts)
    return pc.fill_null(texts, "null")


def _values(array: Any) -> list[Any]:
    """The values of a column, text that is not valid UTF-8 mended."""
    try:
        return list(array.to_pylist())
    except (UnicodeDecodeError, ValueError, OverflowError):
        return [_mended(value) for value in array]


def _mended(value: Any) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode("utf-8", "replace") if hasattr(value, "as_buffer") else None
    except (ValueError, OverflowError):
        return None


def csv_column(array: Any) -> Any:
    """A column as cells of CSV, empty where it is NULL. Raises PipelineError for lists and structs."""
    kind = array.type
    if pa.types.is_string(kind):
        odd = pc.match_substring_regex(array, _ODD_IN_CSV)
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(array, '"', '""'), '"', "")
        texts = pc.if_else(pc.or_(odd, pc.equal(array, pa.scalar(""))), quoted, array)
    else:
        texts = _texts(array, 6)
    if texts is None:
        raise PipelineError("a CSV file cannot hold lists or structs: write .parquet or .json")
    return pc.fill_null(texts, "")


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """Whole rows as JSON, as Spark shows rows that are left out."""
    if not batch.num_columns:
        return ["{}"] * batch.num_rows
    parts = [
        [f"{string_text(name)}:{text}" for text in _safe_column(array)]
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return ["{" + ",".join(row) + "}" for row in zip(*parts, strict=True)]


def _safe_column(array: Any) -> list[str]:
    if pa.types.is_string(array.type):
        return [value_text(value, array.type, _DIGITS) for value in _values(array)]
    return list(json_column(array, _DIGITS).to_pylist())
