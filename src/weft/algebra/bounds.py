"""Columns of bounds from the user: numpy arrays, Arrow arrays or lists. No integer loses a digit as a float."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import FilterError
from weft.kernels.arrays import Floats

_MICROS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EXACT = 2**53  # floats hold all integers up to it


def bounds_size(bounds: Mapping[str, Any]) -> int:
    """How many rows the columns of bounds have."""
    sides = (side for each in bounds.values() for side in (each if isinstance(each, tuple) else (each,)))
    return max((len(side) for side in sides if side is not None), default=0)


def floats(name: str, values: Any, size: int) -> Floats:
    """A column of bounds as floats, NaN where there is none. Raises FilterError for what floats cannot represent."""
    if values is None:
        return np.full(size, np.nan)
    absent: Any = False
    if hasattr(values, "null_count"):  # Arrow: its own conversion of integers with NULLs is inexact
        absent = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else False
        values = _arrow_numbers(values)
    array = np.asarray(values)
    if array.dtype.kind in "bMm" or (
        array.dtype.kind in "OUST" and any(isinstance(each, str | bytes | bool) for each in array)
    ):
        raise FilterError(f"the bounds of {name!r} are not numbers; give a pair (low, high), or one array of strings")
    if array.dtype.kind in "iu" and len(array) and max(int(array.max()), -int(array.min())) > _EXACT:
        raise FilterError(f"the bounds of {name!r} are integers beyond 53 bits; give these filters as text")
    try:
        return np.where(absent, np.nan, array.astype(np.float64) + 0.0)
    except (TypeError, ValueError):
        raise FilterError(
            f"the bounds of {name!r} are not numbers; give a pair (low, high), or one array of strings"
        ) from None


def are_moments(values: Any) -> bool:
    """Whether a column holds timestamps."""
    return str(getattr(values, "type", "")).startswith("timestamp[")  # Arrow's; numpy's arrays have no type


def _arrow_numbers(values: Any) -> NDArray[Any]:
    """An Arrow array as a numpy array, timestamps in microseconds; the values at NULLs are arbitrary."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_timestamp(kind):
        counts = values.cast(pa.int64()).fill_null(0).to_numpy()
        micros: NDArray[Any] = counts // 1_000 if kind.unit == "ns" else counts * _MICROS_PER[kind.unit]
        return micros
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = values.fill_null(0)
    elif pa.types.is_null(kind):
        return np.full(len(values), np.nan)
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    return array


def string_numbers(values: Any, strings: dict[str, int]) -> Floats | None:
    """The numbers of strings, NaN for NULL; new strings are added. None if the values are not strings."""
    import pyarrow as pa

    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except pa.ArrowException:
        return None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return None
    coded = array.dictionary_encode()
    numbers = [strings.setdefault(text, len(strings)) for text in map(str, coded.dictionary.to_pylist())]
    places = coded.indices.to_numpy(zero_copy_only=False).astype(np.float64)  # NaN for NULL
    known = ~np.isnan(places)
    places[known] = np.array(numbers, np.float64)[places[known].astype(np.int64)]
    return places
