"""Constants of filters, and how they are read. A constant has one type, is finite, and fits in 64 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.errors import FilterError
from weft.model.value import (
    INT_MAX,
    INT_MIN,
    MICROS_MAX,
    MICROS_MIN,
    Type,
    Value,
    from_micros,
    parse_timestamp,
    to_micros,
    type_of,
)

_PLAIN: dict[Type, Callable[[Any], Any]] = {
    Type.BOOL: bool,
    Type.INT: int,
    Type.FLOAT: float,
    Type.STRING: str,
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A typed constant; a timestamp is stored in microseconds.

    >>> Constant.of(5) == Constant.of(5.0)
    False
    """

    type: Type
    value: bool | int | float | str

    def __post_init__(self) -> None:
        if self.type is Type.FLOAT:
            if not math.isfinite(self.value):  # type: ignore[arg-type]
                raise FilterError("the numbers of a filter must be finite; leave the bound out, or test with IS NULL")
            if self.value == 0:
                object.__setattr__(self, "value", 0.0)  # -0.0 equals 0.0
        elif self.type is Type.INT:
            if not INT_MIN <= self.value <= INT_MAX:  # type: ignore[operator]
                raise FilterError(
                    f"{self.value} does not fit in 64 bits; write it as a float, with a decimal point or an exponent"
                )
        elif self.type is Type.STRING:
            if not encodes(self.value):  # type: ignore[arg-type]
                raise FilterError("a string must not contain lone surrogates")
        elif self.type is Type.TIMESTAMP and not MICROS_MIN <= self.value <= MICROS_MAX:  # type: ignore[operator]
            raise FilterError("a timestamp must be in the years 1 to 9999")

    @staticmethod
    def of(value: Value) -> Constant:
        """The constant of a Python value; NaN, infinities, None and other types raise FilterError."""
        kind = type_of(value)
        if isinstance(value, datetime):
            return Constant(Type.TIMESTAMP, to_micros(value))
        if kind is None:
            what = "NaN equals nothing" if isinstance(value, float) else f"{value!r} cannot be a constant"
            raise FilterError(f"{what}; use a bool, int, float, str or datetime, or test with IS NULL")
        return Constant(kind, _PLAIN[kind](value))  # a subclass, such as numpy's, may be written differently

    @property
    def python(self) -> Value:
        """The value as it is in events."""
        return from_micros(self.value) if self.type is Type.TIMESTAMP else self.value  # type: ignore[arg-type]


def encodes(text: str) -> bool:
    """Whether a text is valid Unicode, without lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _trusted(kind: Type, value: bool | int | float | str) -> Constant:
    """A constant that is known to be valid, made without checks: readers make very many."""
    made = _new(Constant)
    _set_type(made, kind)
    _set_value(made, value)
    return made


_SURELY_FITS = 18  # digits
_new = object.__new__
_set_type, _set_value = (Constant.__dict__[name].__set__ for name in ("type", "value"))


def read_int(text: str) -> Constant:
    """A whole number."""
    return _trusted(Type.INT, int(text)) if len(text) <= _SURELY_FITS else Constant(Type.INT, _whole(text))


def read_ints(texts: Sequence[str]) -> list[Constant]:
    """Whole numbers, with or without space around them: lists of them are long."""
    if len(max(texts, key=len)) > _SURELY_FITS:
        return [read_int(text.strip()) for text in texts]
    found: list[Constant] = []
    kind = Type.INT
    for value in map(int, texts):  # as `_trusted` does, without a call for each
        made = _new(Constant)
        _set_type(made, kind)
        _set_value(made, value)
        found.append(made)
    return found


def read_negative_int(text: str) -> Constant:
    """A whole number after a minus sign."""
    return Constant(Type.INT, -_whole(text))


def read_float(text: str) -> Constant:
    """A number with a decimal point or an exponent."""
    return _trusted(Type.FLOAT, _real(text))


def read_negative_float(text: str) -> Constant:
    """A number with a decimal point or an exponent, after a minus sign."""
    return Constant(Type.FLOAT, -_real(text))


def read_string(text: str) -> Constant:
    """A string in its quotes."""
    value = text[1:-1].replace("''", "'") if "''" in text[1:-1] else text[1:-1]
    return _trusted(Type.STRING, value) if value.isascii() else Constant(Type.STRING, value)


def read_timestamp(text: str) -> Constant:
    """The string after TIMESTAMP."""
    try:
        return Constant(Type.TIMESTAMP, parse_timestamp(text[1:-1].replace("''", "'")))
    except ValueError as error:
        raise FilterError(f"invalid timestamp: {error}") from None


def _whole(digits: str) -> int:
    if len(digits) > 19:  # before int() sees them: it may be slow, or refuse
        digits = digits.lstrip("0") or "0"
        if len(digits) > 19:
            raise FilterError(
                "the number does not fit in 64 bits; write it as a float, with a decimal point or an exponent"
            )
    return int(digits)


def _real(text: str) -> float:
    value = float(text)
    if value == math.inf or (value == 0 and text.lower().partition("e")[0].strip("0.")):
        raise FilterError("the number does not fit in a 64-bit float")
    return value
