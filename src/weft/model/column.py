"""Arrow columns converted to attributes. A column means what `as_value` makes of its values, one by one.

A column is converted whole: int64, float64, bool, microseconds or str objects, and where a value is absent. Values that
are no attribute's are set aside by row, with the reason; whoever reads the column decides what becomes of these rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import EventError
from weft.model.door import (
    WELL_KNOWN,
    beyond_int,
    broken_column,
    check_path,
    not_unicode,
    out_of_time,
    time_of_text,
    too_long,
    untestable,
    wrong_type,
)
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.lists import AttributeValue
from weft.model.value import INT_MAX, MICROS_MAX, MICROS_MIN, Type

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1, "D": 86_400_000_000}

FREE = {b"weft": b"free types"}  # metadata of a schema

Reasons = Mapping[int, EventError]


class TypedColumn(NamedTuple):
    """A column as numpy has it: int64, float64, bool, microseconds or str objects. No type: all absent, or lists.

    `bad` has the rows whose value cannot be an attribute's, with the reason; these are absent too. Of `lists`, which no
    ordinary test sees, the values are lists.
    """

    type: Type | None
    values: npt.NDArray[Any]
    absent: npt.NDArray[np.bool_]
    bad: Reasons = MappingProxyType({})
    lists: bool = False
    ignored: int = 0  # lists of mappings or of lists, which are absent


def as_column(name: str, array: pa.Array[Any]) -> TypedColumn:
    """The column of attribute `name`, as `as_value` has its values. Cost: O(rows).

    >>> import pyarrow as pa
    >>> column = as_column("time", pa.array(["1970-01-01T00:00:01Z", None, "soon"]))
    >>> column.type, column.values.tolist(), column.absent.tolist(), list(column.bad)
    (<Type.TIMESTAMP: 'timestamp'>, [1000000, 0, 0], [False, True, True], [2])
    """
    column = _read(name, array)
    fixed = WELL_KNOWN.get(name)
    if column.lists and fixed is not None:
        return _without(column._replace(lists=False), ~column.absent, wrong_type(name, "a list"))
    if fixed is None or column.type is None or column.type is fixed:
        return column
    if name == "time" and column.type is Type.STRING:
        return _times(column)
    return _without(column, ~column.absent, wrong_type(name, f"a {column.type}"))


def columns_of(rows: pa.RecordBatch, wanted: Collection[str] | None = None) -> Iterator[tuple[str, TypedColumn]]:
    """The columns in order, structs flattened; with `wanted` only these attributes, and no other column is read.

    Raises EventError for names that cannot be attributes, and for two columns of one name. In a batch that is marked
    with `FREE`, `id`, `source`, `type` and `time` may have any type: it came through a door of its own.
    """
    read = _read if is_free(rows) else as_column
    seen: set[str] = set()
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        if wanted is None or name in wanted or any(each.startswith(name + ".") for each in wanted):
            for leaf, part in _leaves(name, array, 1):
                if not leaf:
                    raise EventError("a column has an empty name; rename it")
                if leaf in seen:
                    raise EventError(f"there are two columns named {leaf!r}; rename one", leaf)
                seen.add(leaf)
                if wanted is None or leaf in wanted:
                    yield leaf, read(leaf, part)


def is_free(rows: pa.RecordBatch) -> bool:
    """Whether a batch is marked with `FREE`."""
    return (rows.schema.metadata or {}).items() >= FREE.items()


def typed_columns(
    rows: pa.RecordBatch, wanted: Collection[str], aside: dict[int, EventError] | None = None
) -> dict[str, TypedColumn]:
    """The wanted attributes among the columns; others are not read.

    A row with a value that cannot be an attribute's raises EventError; or, where `aside` is given, goes there.

    >>> import pyarrow as pa
    >>> rows = pa.record_batch({"x": [1.5, None], "y": [[1], [2]]})
    >>> {name: column.absent.tolist() for name, column in typed_columns(rows, {"x", "z"}).items()}
    {'x': [False, True]}
    """
    found: dict[str, TypedColumn] = {}
    for name, column in columns_of(rows, wanted):
        found[name] = column
        set_aside(column.bad, aside)
    return found


def check_columns(rows: pa.Table) -> None:
    """Raise EventError if any value of the table cannot be an attribute's."""
    for batch in rows.to_batches():
        for _, column in columns_of(batch):
            set_aside(column.bad, None)


def set_aside(bad: Reasons, aside: dict[int, EventError] | None) -> None:
    """Put bad rows with the others; without a place for them, raise the first."""
    for row, error in bad.items():
        if aside is None:
            raise error.at(row)
        aside.setdefault(row, error)


def listed(column: TypedColumn) -> list[AttributeValue | None]:
    """The values of a column as Python has them; None where there is none."""
    import numpy as np

    if column.type is Type.TIMESTAMP:
        listed: list[AttributeValue | None] = [_EPOCH + since for since in column.values.view("m8[us]").tolist()]
    else:
        listed = column.values.tolist()
    for i in np.flatnonzero(column.absent).tolist():
        listed[i] = None
    return listed


def value_of_scalar(name: str, scalar: Any) -> AttributeValue | None:
    """The value of an Arrow scalar. Raises EventError."""
    import pyarrow as pa

    if is_uuid(scalar.type):
        scalar = pa.scalar(None if not scalar.is_valid else str(scalar.as_py()), pa.string())
    try:
        column = as_column(name, pa.repeat(scalar, 1))
    except (TypeError, pa.ArrowNotImplementedError):  # Arrow cannot repeat it, such as a map
        raise untestable(name, str(scalar.type)) from None
    for error in column.bad.values():
        raise error
    return listed(column)[0]


def _leaves(name: str, array: Any, depth: int) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    check_path(name)
    if not pa.types.is_struct(array.type):
        yield name, array
        return
    if depth > MAX_DEPTH:
        raise EventError(f"column {name[:40]!r} is nested deeper than {MAX_DEPTH} levels; use the payload", name)
    for part, child in parts_of(array):
        yield from _leaves(f"{name}.{part.name}" if name and part.name else "", child, depth + 1)


def parts_of(array: Any) -> Iterator[tuple[Any, Any]]:
    """The fields of a struct column, and their columns. Where a struct is NULL, its fields are.

    Runs have no place for the struct's own NULLs, and Arrow forgets these: such a part becomes a dictionary.
    """
    import pyarrow as pa

    for part, child in zip(array.type, array.flatten(), strict=True):
        if array.null_count and pa.types.is_run_end_encoded(part.type):
            numbers: Any = pa.array(run_numbers(child), mask=_nulls(array))
            yield part, pa.DictionaryArray.from_arrays(numbers, child.values, safe=False)
        else:
            yield part, child


def is_text(kind: Any) -> bool:
    """Whether the values of an Arrow type are strings, however they are stored, or always NULL."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_dictionary(kind) or is_a.is_run_end_encoded(kind):
        return is_text(kind.value_type)
    return is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind) or is_a.is_null(kind)


def run_numbers(array: Any) -> npt.NDArray[np.int64]:
    """For each row of a run-end encoded column, the position of its value among `array.values`."""
    import numpy as np

    ends = array.run_ends.to_numpy()
    return np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), side="right")


def _read(name: str, array: Any) -> TypedColumn:
    """The column by its Arrow type alone. A type that Arrow itself cannot read is refused by its name."""
    import numpy as np
    import pyarrow as pa

    try:
        return _read_by_type(name, array)
    except pa.ArrowNotImplementedError:
        nothing = TypedColumn(None, np.zeros(len(array), np.object_), np.zeros(len(array), np.bool_))
        return _without(nothing, ~nothing.absent, untestable(name, str(array.type)))


def _read_by_type(name: str, array: Any) -> TypedColumn:
    import numpy as np
    import pyarrow as pa

    kind, is_a = array.type, pa.types
    if is_uuid(kind):
        array = pa.array([None if each is None else str(each) for each in array.to_pylist()], pa.string())
        kind = array.type
    if is_a.is_float64(kind) and not array.null_count:  # the most frequent one, without copies
        numbers = array.to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
        return TypedColumn(Type.FLOAT, numbers, np.isnan(numbers))
    if is_a.is_dictionary(kind):
        return _of_dictionary(name, array)
    if is_a.is_run_end_encoded(kind):
        words, at, none = _read(name, array.values), run_numbers(array), np.zeros(len(array), np.bool_)
        if len(at) and at.max() >= len(words.values):  # there are fewer runs than it says
            return _without(TypedColumn(None, np.zeros(len(array), np.object_), none), ~none, broken_column(name))
        return _repeated(words, at, none)
    absent = _nulls(array)
    if is_a.is_null(kind):
        return TypedColumn(None, np.zeros(len(array), np.object_), absent)
    if is_a.is_boolean(kind):
        return TypedColumn(Type.BOOL, array.fill_null(False).to_numpy(zero_copy_only=False), absent)
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return _texts(name, array, absent)
    if is_a.is_integer(kind):
        return _whole(name, array, absent)
    if is_a.is_decimal(kind):
        array = array.cast(pa.string())  # by way of text: Arrow's own cast is often off by one bit
    if is_a.is_floating(kind) or is_a.is_decimal(kind):
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0
        return TypedColumn(Type.FLOAT, numbers, absent | np.isnan(numbers))
    if is_a.is_timestamp(kind):
        return _moments(name, array, kind.unit, absent)
    if is_a.is_date(kind):
        return _moments(name, array, "D" if is_a.is_date32(kind) else "ms", absent)
    if is_list_type(kind):
        return _lists(name, array)
    nothing = TypedColumn(None, np.zeros(len(array), np.object_), absent)
    return _without(nothing, ~absent, untestable(name, str(kind)))


def is_uuid(kind: Any) -> bool:
    """Whether the values of an Arrow type are UUIDs, which become text."""
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def is_list_type(kind: Any) -> bool:
    """Whether the values of an Arrow type are lists; a map is none."""
    import pyarrow as pa

    is_a = pa.types
    return bool(
        is_a.is_list(kind)
        or is_a.is_large_list(kind)
        or is_a.is_fixed_size_list(kind)
        or is_a.is_list_view(kind)
        or is_a.is_large_list_view(kind)
    )


def _lists(name: str, array: Any) -> TypedColumn:
    """Lists, each as `as_value` has it: elements are converted as columns are. A list of structs or of lists is absent,
    unless all its elements are NULL.
    """
    import numpy as np
    import pyarrow as pa

    kind, is_a = array.type.value_type, pa.types
    deep = is_a.is_nested(kind)
    values: npt.NDArray[Any] = np.full(len(array), None, np.object_)
    absent, bad = _nulls(array), dict[int, EventError]()
    if deep:
        for row, some in enumerate(array.is_valid().to_pylist()):
            if some and not len(found := array[row].values.drop_null()):
                values[row] = []
            elif some and len(found) and len(array[row]) > LIMITS.elements:
                bad[row] = too_long(name)
            else:
                absent[row] = True
        ignored = int((absent & ~_nulls(array)).sum())
        return TypedColumn(None, values, absent | _rows_of(bad, len(array)), bad, lists=True, ignored=ignored)
    try:
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    except (AttributeError, pa.ArrowNotImplementedError):  # of a fixed size, or a view
        lengths = np.array([0 if each is None else len(each) for each in array.to_pylist()], np.int64)
    flat = array.flatten()
    elements = _read(name, flat)
    if len(flat) != int(lengths.sum()):
        return _without(TypedColumn(None, values, absent), ~absent, broken_column(name))
    every, gone = listed(elements), elements.absent
    some_gone = bool(gone.any())
    end = 0
    for row, length in enumerate(lengths.tolist()):
        begin, end = end, end + length
        if absent[row]:
            continue
        if length > LIMITS.elements:
            bad[row] = too_long(name)
        elif some_gone:
            wrong = next((each for each in range(begin, end) if each in elements.bad), None)
            if wrong is not None:
                bad[row] = elements.bad[wrong]
            values[row] = [value for value in every[begin:end] if value is not None]
        else:
            values[row] = every[begin:end]
    return TypedColumn(None, values, absent | _rows_of(bad, len(array)), bad, lists=True)


def elements_of_column(name: str, column: TypedColumn) -> TypedColumn:
    """The elements of all lists of a column, one after another."""
    import pyarrow as pa

    return as_column(name, pa.array([each for value in column.values[~column.absent] for each in value]))


def _rows_of(bad: Reasons, size: int) -> npt.NDArray[np.bool_]:
    import numpy as np

    found = np.zeros(size, np.bool_)
    found[list(bad)] = True
    return found


def _of_dictionary(name: str, array: Any) -> TypedColumn:
    import numpy as np

    words, absent = _read(name, array.dictionary), _nulls(array.indices)
    at = np.where(absent, 0, array.indices.fill_null(0).to_numpy(zero_copy_only=False))
    outside = ~absent & ((at < 0) | (at >= len(array.dictionary)))
    if not len(array.dictionary) or outside.any():  # every index is NULL, or some are broken
        nothing = TypedColumn(None, np.zeros(len(array), np.object_), absent)
        return _without(nothing, ~absent, broken_column(name))
    return _repeated(words, at, absent)


def _repeated(words: TypedColumn, at: npt.NDArray[Any], absent: npt.NDArray[np.bool_]) -> TypedColumn:
    """The column whose rows are entries of another, except where they are absent."""
    import numpy as np

    bad = {}
    if words.bad:
        bad = {row: words.bad[int(at[row])] for row in np.flatnonzero(~absent).tolist() if int(at[row]) in words.bad}
    return TypedColumn(words.type, words.values[at], words.absent[at] | absent, bad, words.lists)


def _nulls(array: Any) -> npt.NDArray[np.bool_]:
    import numpy as np

    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _without(column: TypedColumn, bad: npt.NDArray[np.bool_], error: EventError) -> TypedColumn:
    """The column with some rows set aside, all for one reason."""
    import numpy as np

    rows = np.flatnonzero(bad).tolist()
    return column._replace(absent=column.absent | bad, bad={**column.bad, **dict.fromkeys(rows, error)})


def _texts(name: str, array: Any, absent: npt.NDArray[np.bool_]) -> TypedColumn:
    import pyarrow as pa

    try:
        array.validate(full=True)  # an offset beyond the buffer would be followed
        return TypedColumn(Type.STRING, array.to_numpy(zero_copy_only=False), absent)
    except (pa.ArrowException, UnicodeDecodeError):
        return _readable(name, array, absent)


def _readable(name: str, array: Any, absent: npt.NDArray[np.bool_]) -> TypedColumn:
    """The texts that are UTF-8, where not all of them are; none if they do not lie in their buffer."""
    import numpy as np
    import pyarrow as pa

    texts, bad = np.full(len(array), None, np.object_), np.zeros(len(array), np.bool_)
    is_a, kind = pa.types, array.type
    raw_kind = (
        pa.binary_view()
        if is_a.is_string_view(kind)
        else pa.large_binary()
        if is_a.is_large_string(kind)
        else pa.binary()
    )
    raw = pa.Array.from_buffers(raw_kind, len(array), array.buffers(), offset=array.offset)
    try:
        raw.validate(full=True)
    except pa.ArrowException:
        return _without(TypedColumn(Type.STRING, texts, absent), ~absent, broken_column(name))
    for row, data in enumerate(raw.to_pylist()):
        try:
            texts[row] = None if data is None else data.decode()
        except UnicodeDecodeError:
            bad[row] = True
    return _without(TypedColumn(Type.STRING, texts, absent), bad, not_unicode(name))


def _whole(name: str, array: Any, absent: npt.NDArray[np.bool_]) -> TypedColumn:
    import numpy as np
    import pyarrow as pa

    try:
        return TypedColumn(Type.INT, array.cast(pa.int64()).fill_null(0).to_numpy(), absent)
    except pa.ArrowInvalid:  # unsigned, and some are too large
        numbers = array.fill_null(0).to_numpy()
        bad = numbers > np.uint64(INT_MAX)
        fine = np.where(bad, 0, numbers).astype(np.int64)
        return _without(TypedColumn(Type.INT, fine, absent), bad, beyond_int(name))


def _moments(name: str, array: Any, unit: str, absent: npt.NDArray[np.bool_]) -> TypedColumn:
    """Microseconds since 1970 of a column that counts in `unit`; nanoseconds are floored."""
    import numpy as np
    import pyarrow as pa

    whole = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
    counts: npt.NDArray[np.int64] = whole.cast(pa.int64()).fill_null(0).to_numpy()
    if unit == "ns":
        return TypedColumn(Type.TIMESTAMP, counts // 1_000, absent)  # 64 bits of nanoseconds end in 2262
    step = _MICROS_PER[unit]
    first, last = -(-MICROS_MIN // step), MICROS_MAX // step
    if not len(counts) or (first <= counts.min() and counts.max() <= last):
        return TypedColumn(Type.TIMESTAMP, counts * step, absent)
    bad = (counts < first) | (counts > last)
    return _without(TypedColumn(Type.TIMESTAMP, np.where(bad, 0, counts) * step, absent), bad, out_of_time(name))


def _times(column: TypedColumn) -> TypedColumn:
    """The column `time` of texts as timestamps."""
    import numpy as np

    micros, bad = np.zeros(len(column.values), np.int64), dict(column.bad)
    absent = column.absent.copy()
    for row in np.flatnonzero(~absent).tolist():
        try:
            micros[row] = time_of_text(column.values[row])
        except EventError as error:
            bad[row], absent[row] = error, True
    return TypedColumn(Type.TIMESTAMP, micros, absent, bad)


def unreadable(array: Any) -> bool:
    """Whether a plain Arrow column of strings has any that is not UTF-8."""
    import pyarrow as pa

    try:
        array.validate()
        if not _is_ascii(array):
            array.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _is_ascii(array: Any) -> bool:
    """Whether all bytes of a plain Arrow column of strings are ASCII, and it can be read: that is quick to see."""
    import numpy as np
    import pyarrow as pa

    _, ends, letters = array.buffers()
    if ends is None or letters is None or not len(array):
        return False
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    places: npt.NDArray[Any] = np.frombuffer(ends, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)
    if places[0] < 0 or places[-1] > letters.size or (places[1:] < places[:-1]).any():
        return False
    here = np.frombuffer(letters, np.uint8)[places[0] : places[-1]]
    return not len(here) or int(here.max()) < 128
