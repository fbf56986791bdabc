"""Lines of JSON as rows. Every line is a row, several (an array of objects), nothing (a blank line) or an error.

The rules are those of Spark's reader: columns are sorted by name, types fit all lines, what has two types is text as it
is written, single quotes and NaN are allowed, and what follows an object in its line is ignored. Lines whose values
have the types that are already known are read in blocks by a decoder for these types; all others one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa

from weft.pipeline.text_values import (
    BOOL,
    DOUBLE,
    LONG,
    LONG_END,
    NULL,
    STRING,
    TIMESTAMP,
    ArrowKind,
    converted,
    decimal_of,
    in_order,
    moment,
    number_kind,
    struct_of,
    united,
)

_SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"NaN|[+-]?Infinity|[+-]INF")
_SPECIAL_TEXT = {
    "NaN": float("nan"),
    **dict.fromkeys(("INF", "+INF", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/", "'": "'"}
_DEPTH = 300  # objects and arrays in each other, at most


class JsonNumber(str):
    """A number as it is written."""

    __slots__ = ()


class JsonArray(list[Any]):
    """An array, and how it is written."""

    __slots__ = ("raw",)
    raw: str


class JsonObject(dict[str, Any]):
    """An object, how it is written, and the pairs whose keys come again."""

    __slots__ = ("before", "raw")
    before: list[tuple[str, Any]]
    raw: str


class NotJsonError(ValueError):
    """A line that is not JSON."""


class _AsWrittenError(Exception):
    """A text is needed as it is written."""


class UnfitValueError(ValueError):
    """A value that its column cannot hold."""


class JsonRows(NamedTuple):
    """The rows of some lines, and the lines that cannot be read."""

    rows: pa.RecordBatch
    corrupt: list[str]


# -- a line --------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _AsWrittenError
    return made


_QUICK = json.JSONDecoder(
    parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber, object_pairs_hook=_pairs
)


def read_line(line: bytes, exact: bool = False) -> list[Any] | None:
    """The objects of a line, None if it is blank. With `exact`, arrays and objects know how they are written.

    Raises NotJsonError.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJsonError from None
    text = text.removeprefix("\ufeff").strip(_SPACE)
    if not text:
        return None
    value = _value(text, exact)
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return value
    raise NotJsonError


def _value(text: str, exact: bool) -> Any:
    if not exact and text.count("[") + text.count("{") < _DEPTH:
        try:
            return _QUICK.raw_decode(text)[0]
        except (ValueError, RecursionError, _AsWrittenError):
            pass  # the scanner allows more, and knows more
    return JsonScanner(text).value(0, 0)[0]


class JsonScanner:
    """Reads the JSON that Spark reads, and keeps how it is written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        """The value at a place, and where it ends. Raises NotJsonError."""
        text = self._text
        at = self._skip(at)
        first = text[at : at + 1]
        if first == "{" and depth < _DEPTH:
            return self._object(at, depth)
        if first == "[" and depth < _DEPTH:
            return self._array(at, depth)
        if first and first in "\"'":
            return self._string(at)
        for word, meant in (("true", True), ("false", False), ("null", None)):
            if text.startswith(word, at):
                return meant, self._ended(at + len(word))
        found = _NUMBER.match(text, at) or _SPECIAL.match(text, at)
        if found is None:
            raise NotJsonError
        return JsonNumber(found[0]), self._ended(found.end())

    def _ended(self, at: int) -> int:
        """A place where a word or a number may end."""
        if at < len(self._text) and self._text[at] not in " \t\r\n,]}":
            raise NotJsonError
        return at

    def _skip(self, at: int) -> int:
        while at < len(self._text) and self._text[at] in _SPACE:
            at += 1
        return at

    def _object(self, start: int, depth: int) -> tuple[JsonObject, int]:
        made, at = JsonObject(), self._skip(start + 1)
        made.before = []
        if self._text[at : at + 1] == "}":
            made.raw = self._text[start : at + 1]
            return made, at + 1
        while True:
            at = self._skip(at)
            if self._text[at : at + 1] not in ('"', "'"):
                raise NotJsonError
            name, at = self._string(at)
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                raise NotJsonError
            value, at = self.value(at + 1, depth + 1)
            if name in made:
                made.before.append((name, made[name]))
            made[name] = value
            at = self._skip(at)
            sign = self._text[at : at + 1]
            if sign == "}":
                made.raw = self._text[start : at + 1]
                return made, at + 1
            if sign != ",":
                raise NotJsonError
            at += 1

    def _array(self, start: int, depth: int) -> tuple[JsonArray, int]:
        made, at = JsonArray(), self._skip(start + 1)
        if self._text[at : at + 1] == "]":
            made.raw = self._text[start : at + 1]
            return made, at + 1
        while True:
            value, at = self.value(at, depth + 1)
            made.append(value)
            at = self._skip(at)
            sign = self._text[at : at + 1]
            if sign == "]":
                made.raw = self._text[start : at + 1]
                return made, at + 1
            if sign != ",":
                raise NotJsonError
            at += 1

    def _string(self, start: int) -> tuple[str, int]:
        text, quote, at = self._text, self._text[start], start + 1
        parts: list[str] = []
        while at < len(text):
            char = text[at]
            if char == quote:
                return _paired("".join(parts)), at + 1
            if char < " ":
                raise NotJsonError
            if char != "\\":
                parts.append(char)
                at += 1
                continue
            code = text[at + 1 : at + 2]
            if code == "u":
                digits = text[at + 2 : at + 6]
                if len(digits) < 4 or any(each not in "0123456789abcdefABCDEF" for each in digits):
                    raise NotJsonError
                parts.append(chr(int(digits, 16)))
                at += 6
            elif code in _ESCAPES and code:
                parts.append(_ESCAPES[code])
                at += 2
            else:
                raise NotJsonError
        raise NotJsonError


def _paired(text: str) -> str:
    """Halves of surrogate pairs together."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


# -- types -----------------------------------------------------------------------------------------------


def value_kind(value: Any) -> ArrowKind:
    """The type of a value; that of an empty text is unknown."""
    if value is None:
        return NULL
    if isinstance(value, JsonNumber):
        return number_kind(value)
    if isinstance(value, str):
        if not value:
            return NULL
        return STRING if moment(value) is None else TIMESTAMP
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, list):
        kind = NULL
        for each in value:
            kind = united(kind, value_kind(each))
        return pa.list_(kind)
    fields: dict[str, ArrowKind] = {}
    widen(fields, value)
    return struct_of(fields)


def widen(fields: dict[str, ArrowKind], value: dict[str, Any]) -> None:
    """Make the types of columns fit one more object."""
    for name, each in value.items():
        known = fields.get(name, NULL)
        if known != STRING or name not in fields:
            fields[name] = united(known, value_kind(each))
    for name, each in getattr(value, "before", ()):
        fields[name] = united(fields[name], value_kind(each))


def canonical(kind: ArrowKind) -> ArrowKind | None:
    """A type as columns have it: what is never known is text; None for a struct without fields."""
    if pa.types.is_null(kind):
        return STRING
    if pa.types.is_list(kind):
        inner = canonical(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = {field.name: made for field in kind if field.name and (made := canonical(field.type)) is not None}
        return struct_of(fields) if fields else None
    return kind


# -- values ----------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode() if _is_broken(value) else str(value)
    raw = getattr(value, "raw", None)
    if raw is None:
        raise _AsWrittenError
    return str(raw)


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _long(value: Any) -> int:
    if isinstance(value, JsonNumber) and number_kind(value) == LONG:
        return int(value)
    raise UnfitValueError


def _double(value: Any) -> float:
    if isinstance(value, JsonNumber):
        return _SPECIAL_TEXT[value] if value in _SPECIAL_TEXT else float(value)
    if isinstance(value, str) and value in _SPECIAL_TEXT:
        return _SPECIAL_TEXT[value]
    raise UnfitValueError


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise UnfitValueError


def _timestamp(value: Any) -> int:
    if isinstance(value, JsonNumber):
        return _long(value) * 1_000_000  # seconds, as Spark takes them
    micros = moment(value) if isinstance(value, str) else None
    if micros is None:
        raise UnfitValueError
    return micros


def reader_of(kind: ArrowKind) -> Callable[[Any], Any]:
    """How a value becomes one of a type. What it returns raises UnfitValueError."""
    plain = {STRING: _text, LONG: _long, DOUBLE: _double, BOOL: _bool, TIMESTAMP: _timestamp}
    if kind in plain:
        return plain[kind]
    if pa.types.is_decimal(kind):
        decimal = decimal_of(kind.precision)

        def read_decimal(value: Any) -> Any:
            found = decimal(value) if isinstance(value, str) else None
            if found is None:
                raise UnfitValueError
            return found

        return read_decimal
    if pa.types.is_list(kind):
        inner = reader_of(kind.value_type)

        def read_list(value: Any) -> Any:
            if not isinstance(value, list):
                raise UnfitValueError
            return [None if each is None else inner(each) for each in value]

        return read_list
    readers = {field.name: reader_of(field.type) for field in kind}

    def read_struct(value: Any) -> Any:
        if not isinstance(value, dict):
            raise UnfitValueError
        return {name: None if (each := value.get(name)) is None else read(each) for name, read in readers.items()}

    return read_struct


# -- blocks ----------------------------------------------------------------------------------------------


class JsonLines:
    """Lines of JSON: their columns, as far as they are known, and their rows."""

    def __init__(self) -> None:
        self.fields: dict[str, ArrowKind] = {}
        self.corrupt = False  # whether a line cannot be read
        self._decoder: _BlockDecoder | None = None

    def learn(self, block: bytes) -> None:
        """Widen the columns by the lines of a block."""
        if self._decoder is not None and self._decoder.fits(block):
            return
        before = dict(self.fields)
        for line in block.split(b"\n"):
            try:
                objects = read_line(line)
            except NotJsonError:
                self.corrupt |= line.strip() != b"null"
                continue
            for each in objects or ():
                widen(self.fields, each)
        if self._decoder is None or self.fields != before:
            self._decoder = _BlockDecoder(self.fields)

    def columns(self) -> pa.Schema:
        """The columns that were found, sorted by name."""
        known = {name: canonical(kind) for name, kind in self.fields.items() if name}
        return pa.schema([(name, kind) for name in in_order(known) if (kind := known[name]) is not None])


class JsonReader:
    """Reads blocks of lines as rows of given columns."""

    def __init__(self, columns: pa.Schema, unused: Sequence[str] = ()) -> None:
        self._columns = columns
        self._readers = [(name, reader_of(kind)) for name, kind in zip(columns.names, columns.types, strict=True)]
        known = dict(zip(columns.names, columns.types, strict=True))
        self._decoder = _BlockDecoder({**dict.fromkeys(unused, NULL), **known})

    def read(self, block: bytes) -> JsonRows:
        """The rows of a block of whole lines."""
        decoded = self._decoder.decode(block)
        if decoded is not None:
            arrays = [decoded[name] for name in self._columns.names]
            return JsonRows(pa.RecordBatch.from_arrays(arrays, schema=self._columns), [])
        made: list[list[Any]] = [[] for _ in self._readers]
        corrupt: list[str] = []
        for line in block.split(b"\n"):
            try:
                rows = self._rows(line, exact=False)
            except _AsWrittenError:
                rows = self._rows(line, exact=True)
            if rows is None:
                corrupt.append(line.decode("utf-8", "replace"))
                continue
            for row in rows:
                for column, value in zip(made, row, strict=True):
                    column.append(value)
        arrays = [pa.array(column, kind) for column, kind in zip(made, self._columns.types, strict=True)]
        return JsonRows(pa.RecordBatch.from_arrays(arrays, schema=self._columns), corrupt)

    def _rows(self, line: bytes, exact: bool) -> list[list[Any]] | None:
        """The rows of a line, None if it cannot be read."""
        try:
            return [
                [None if (value := each.get(name)) is None else read(value) for name, read in self._readers]
                for each in read_line(line, exact) or ()
            ]
        except (NotJsonError, UnfitValueError, OverflowError):
            return None


class _BlockDecoder:
    """Decodes blocks in which every line is an object with values of known types, at once."""

    def __init__(self, fields: dict[str, ArrowKind]) -> None:
        self._fields = dict(fields)
        self._moments = [name for name, kind in fields.items() if _has_moments(kind)]
        self._decoder: msgspec.json.Decoder[Any] | None = None
        with suppress(TypeError, ValueError, _UnknownTypeError):  # then every line is looked at
            self._decoder = msgspec.json.Decoder(_struct_type(self._fields))

    def fits(self, block: bytes) -> bool:
        """Whether all lines have values of these types."""
        rows = self._objects(block)
        if rows is None:
            return False
        places = {name: place for place, name in enumerate(self._fields)}
        for name in self._moments:
            if not pa.types.is_timestamp(self._fields[name]):
                return False  # inside lists and structs they are looked at one by one
            texts = pa.array([getattr(row, f"f{places[name]}") for row in rows], STRING)
            if converted(texts.drop_null(), TIMESTAMP)[1] is not None or "" in set(texts.to_pylist()):
                return False
        return True

    def decode(self, block: bytes) -> dict[str, Any] | None:
        """The columns of a block, None if a line needs to be looked at."""
        rows = self._objects(block)
        if rows is None:
            return None
        try:
            return {
                name: _array([getattr(row, f"f{place}") for row in rows], kind)
                for place, (name, kind) in enumerate(self._fields.items())
            }
        except (UnfitValueError, pa.ArrowException):
            return None

    def _objects(self, block: bytes) -> list[Any] | None:
        if self._decoder is None:
            return None
        try:
            rows: list[Any] = self._decoder.decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        ends = block.count(b"}\n") + block.endswith(b"}")
        starts = block.count(b"\n{") + block.startswith(b"{")
        return rows if len(rows) == starts == ends else None


class _UnknownTypeError(Exception):
    """A type that no decoder checks."""


_BOUNDED = Annotated[int, msgspec.Meta(ge=-LONG_END, le=LONG_END - 1)]


def _decoded_type(kind: ArrowKind) -> Any:
    plain = {NULL: None, STRING: str, LONG: _BOUNDED, DOUBLE: float, BOOL: bool, TIMESTAMP: str}
    if kind in plain:
        return plain[kind]
    if pa.types.is_list(kind):
        return list[_decoded_type(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _struct_type({field.name: field.type for field in kind})
    raise _UnknownTypeError


def _struct_type(fields: dict[str, ArrowKind]) -> Any:
    made: list[Any] = []
    for place, kind in enumerate(fields.values()):
        each = _decoded_type(kind)
        made.append((f"f{place}", None if each is None else each | None, None))
    names = {f"f{place}": name for place, name in enumerate(fields)}
    return msgspec.defstruct("Row", made, rename=names, forbid_unknown_fields=True, gc=False)


def _has_moments(kind: ArrowKind) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_moments(field.type) for field in kind)
    return _has_moments(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_timestamp(kind))


def _array(values: list[Any], kind: ArrowKind) -> Any:
    """Decoded values as a column. Raises UnfitValueError for a text that is not a timestamp."""
    if pa.types.is_timestamp(kind):
        texts = pa.array(values, STRING)
        found, bad = converted(texts, kind)
        if bad is not None or found.null_count > texts.null_count:
            raise UnfitValueError
        return found
    if pa.types.is_struct(kind):
        missing = pa.array([value is None for value in values], BOOL)
        parts = [
            _array([None if value is None else getattr(value, f"f{place}") for value in values], field.type)
            for place, field in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        inner = _array([each for value in values if value is not None for each in value], kind.value_type)
        sizes = [0 if value is None else len(value) for value in values]
        offsets, total = [0], 0
        for size in sizes:
            total += size
            offsets.append(total)
        gone = pa.array([value is None for value in values], BOOL)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner, type=kind, mask=gone)
    return pa.array(values, kind)
