"""The attributes of rows of events, as filters see them: structs are flattened, and columns of types that no filter
knows are absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from weft.model.column import FREE, is_list_type
from weft.model.limits import MAX_DEPTH

CORRUPT = "_corrupt_record"  # the column with a line that cannot be read
UNREADABLE = "it cannot be read"


def attributes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that filters see, structs flattened. Well-known names have the types that they have, as in Spark."""
    found = [leaf for field, array in zip(batch.schema, batch.columns, strict=True) for leaf in _leaves(field, array)]
    if not found:
        return pa.record_batch([pa.nulls(batch.num_rows)], names=[""])  # or the number of rows were lost
    made = pa.record_batch([array for _, array in found], names=[name for name, _ in found])
    return made.replace_schema_metadata(FREE)


def _leaves(field: Any, array: Any, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    name = prefix + field.name
    if pa.types.is_struct(field.type):
        if depth < MAX_DEPTH:
            for part, child in zip(field.type, array.flatten(), strict=True):
                yield from _leaves(part, child, f"{name}.", depth + 1)
    elif any(test(field.type) for test in _SEEN) or _is_seen_list(field.type):
        yield name, array


def _is_seen_list(kind: Any) -> bool:
    """Whether HAS can test the lists of a column: all that have no binary elements."""
    if not is_list_type(kind):
        return False
    return pa.types.is_nested(kind.value_type) or any(test(kind.value_type) for test in _SEEN)


_SEEN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_timestamp,
    pa.types.is_date,
)
