"""The limits of events, for whole Arrow batches. A row is refused if it would be refused as an event.

A batch that is smaller as a whole than one event may be is not examined further. In a larger one the lengths of strings
are added up, column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import EventError
from weft.model.column import parts_of, run_numbers
from weft.model.event import too_large
from weft.model.limits import LIMITS, MAX_DEPTH

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class SchemaSize(NamedTuple):
    """The bound that a schema alone gives for the size of its rows."""

    attributes: int
    names: int  # bytes
    varying: tuple[int, ...]  # the places of the columns that may have strings

    @staticmethod
    def of(schema: pa.Schema) -> SchemaSize:
        """The size of a schema. Raises EventError for structs that are nested too deeply."""
        import pyarrow as pa

        names = [name for field in schema for name in _leaf_names(field.name, field.type, 1)]
        varying = tuple(at for at, field in enumerate(schema) if not pa.types.is_primitive(field.type))
        return SchemaSize(len(names), sum(len(name.encode()) for name in names), varying)


def oversized(rows: pa.RecordBatch, size: SchemaSize | None = None) -> Mapping[int, EventError]:
    """The rows with too many attributes, or with names and strings that are too long. Cost: O(string columns).

    `size` is that of the schema, if it is known. Raises EventError for structs that are nested too deeply.

    >>> import pyarrow as pa
    >>> oversized(pa.record_batch({"s": ["x" * 1_000_000] * 3}))
    {}
    >>> list(oversized(pa.record_batch({"s": ["x", "x" * 2_000_000]})))
    [1]
    """
    size = size or SchemaSize.of(rows.schema)
    if size.attributes > LIMITS.attributes:
        return dict.fromkeys(range(len(rows)), too_large(many=True))
    if not len(rows) or size.names + sum([_most_bytes(rows.column(at)) for at in size.varying]) <= LIMITS.event:
        return {}
    return dict.fromkeys((_sizes(rows) > LIMITS.event).nonzero()[0].tolist(), too_large(many=False))


def _most_bytes(array: Any) -> int:
    """At least as many bytes as the strings of any row of a column have."""
    import pyarrow as pa

    try:
        return int(array.nbytes)
    except pa.ArrowNotImplementedError:
        return LIMITS.event + 1


def _leaf_names(name: str, kind: Any, depth: int) -> Iterator[str]:
    import pyarrow as pa

    if not pa.types.is_struct(kind):
        yield name
        return
    if depth > MAX_DEPTH:
        raise EventError(f"column {name[:40]!r} is nested deeper than {MAX_DEPTH}; name it as the payload")
    for part in kind:
        yield from _leaf_names(f"{name}.{part.name}", part.type, depth + 1)


def _sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of the names and strings of each row."""
    import numpy as np

    total = np.zeros(len(rows), np.int64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        _add(name, column, total)
    return total


def _add(name: str, array: Any, total: npt.NDArray[np.int64]) -> None:
    """Add the bytes of a column to each row: its name where there is a value, and its text."""
    import pyarrow as pa

    if pa.types.is_struct(array.type):
        for part, child in parts_of(array):
            _add(f"{name}.{part.name}", child, total)
        return
    size = len(name.encode())
    total += array.is_valid().to_numpy(zero_copy_only=False) * size if array.null_count else size
    lengths = _lengths(array)
    if lengths is not None:
        total += lengths


def _lengths(array: Any) -> npt.NDArray[np.int64] | None:
    """The bytes of each string of a column; None if it has none."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, is_a = array.type, pa.types
    if is_a.is_run_end_encoded(kind):
        words = _lengths(array.values)
        return None if words is None or not len(words) else words[np.minimum(run_numbers(array), len(words) - 1)]
    if is_a.is_dictionary(kind):
        words = _lengths(array.dictionary)
        if words is None or not len(words):
            return None
        present = array.is_valid().to_numpy(zero_copy_only=False)
        return np.where(present, words[array.indices.fill_null(0).to_numpy()], 0)
    if is_a.is_string_view(kind):
        try:
            array = array.cast(pa.large_string())
        except pa.ArrowException:  # an older Arrow cannot, or it is not UTF-8, which is found out elsewhere
            return np.array([0 if text is None else len(text) for text in array.cast(pa.binary_view()).to_pylist()])
    elif not is_a.is_string(kind) and not is_a.is_large_string(kind):
        return None
    lengths: npt.NDArray[np.int64] = pc.call_function("binary_length", [array]).fill_null(0).to_numpy().astype(np.int64)
    return lengths
