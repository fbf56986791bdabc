"""The limits of events, for whole Arrow batches. Law: a row is refused if it would be refused as an event.

A batch that is smaller as a whole than one event may be is not examined further. In a larger one the lengths of strings
are added up, column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import EventError
from weft.model.event import too_large
from weft.model.limits import LIMITS, MAX_DEPTH

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class SchemaSize(NamedTuple):
    """What a schema alone tells of the size of its rows."""

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
    if size.names + sum([rows.column(at).nbytes for at in size.varying]) <= LIMITS.event or not len(rows):
        return {}
    return dict.fromkeys((_sizes(rows) > LIMITS.event).nonzero()[0].tolist(), too_large(many=False))


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
        for part, child in zip(array.type, array.flatten(), strict=True):
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
        return _lengths(pc.call_function("run_end_decode", [array]))
    if is_a.is_dictionary(kind):
        words = _lengths(array.dictionary)
        if words is None or not len(words):
            return None
        present = array.is_valid().to_numpy(zero_copy_only=False)
        return np.where(present, words[array.indices.fill_null(0).to_numpy()], 0)
    if is_a.is_string_view(kind):
        array = array.cast(pa.large_string())
    elif not is_a.is_string(kind) and not is_a.is_large_string(kind):
        return None
    lengths: npt.NDArray[np.int64] = pc.call_function("binary_length", [array]).fill_null(0).to_numpy().astype(np.int64)
    return lengths
