"""A week of real seismic events. The events have the attributes and types of the shipped schema.

Source: United States Geological Survey, public domain; data/README.md says more.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from weft.model.event import Event
from weft.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = (
    "United States Geological Survey, 2018-01-31 to 2018-02-07, U.S. public domain "
    "(by way of the npm package vega-datasets 3.2.1)"
)

_DATA = files("weftlab.demo") / "data"


def schema() -> Schema:
    """The shipped schema: types, bounds, precision and categories.

    >>> schema()["depth"].low, schema()["tsunami"].type
    (-10.0, <Type.BOOL: 'bool'>)
    """
    with as_file(_DATA / "earthquakes.toml") as path:
        return Schema.load(path)


def schema_text() -> str:
    """The shipped schema as the text of its file."""
    return (_DATA / "earthquakes.toml").read_text(encoding="utf-8")


def table() -> pa.Table:
    """The events as an Arrow table, a column for each attribute of the schema and in its order."""
    import pyarrow as pa
    from pyarrow import csv

    from weft.model.value import Type

    arrow: dict[Type, pa.DataType] = {
        Type.INT: pa.int64(),
        Type.FLOAT: pa.float64(),
        Type.STRING: pa.string(),
        Type.BOOL: pa.bool_(),  # pyarrow reads 0 and 1 as bools
        Type.TIMESTAMP: pa.int64(),  # milliseconds since 1970, until the cast below
    }
    declared = schema()
    kinds = {attribute.name: arrow[attribute.type] for attribute in declared.attributes}
    with as_file(_DATA / "earthquakes.csv") as path:
        rows = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=kinds, null_values=[""]))
    columns = {name: rows[name] for name in rows.column_names}
    columns["source"] = pa.chunked_array([pa.repeat("usgs", rows.num_rows)])
    for name in ("time", "updated"):
        columns[name] = columns[name].cast(pa.timestamp("ms", "UTC"))
    return pa.table({name: columns[name] for name in declared})


def events() -> list[Event]:
    """The 1,707 events, in the order of time.

    >>> first = events()[0]
    >>> first["place"], first["magnitude"], first["felt"]
    ('37km NNE of Amboy, Washington', 0.31, None)
    """
    from weft.model.batch import events_from_batch

    return events_from_batch(table())
