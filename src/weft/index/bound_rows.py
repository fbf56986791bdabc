"""Rows of bounds as boxes: one filter per row, its bounds in columns. Every row is read, or named with the reason why
it cannot be.

An attribute x is bounded by `x_low` and `x_high` (both inclusive, either may be missing), or by `x` itself for
equality; NULL and NaN mean no bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.errors import FilterError
from weft.language.ast import AttributeRef, Compare, Filter, Operator, conjunction
from weft.language.constant import Constant
from weft.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Ends(NamedTuple):
    """The columns that bound an attribute: below and above, or by the value to equal."""

    low: str | None = None
    high: str | None = None
    equal: str | None = None


def bounds_of(columns: Iterable[tuple[str, str]]) -> dict[str, Ends]:
    """Which columns bound which attribute, by the names of the columns, each with what it is called in the batch.

    >>> bounds_of([("x_low", "c1"), ("x_high", "c2"), ("kind", "c3")])
    {'x': Ends(low='c1', high='c2', equal=None), 'kind': Ends(low=None, high=None, equal='c3')}
    """
    found: dict[str, Ends] = {}
    for name, column in columns:
        for side in ("low", "high"):
            attribute = name.removesuffix(f"_{side}")
            if attribute != name and attribute:
                found[attribute] = found.get(attribute, Ends())._replace(**{side: column})
                break
        else:
            found[name] = found.get(name, Ends())._replace(equal=column)
    return found


def boxes_of_bounds(
    batch: pa.RecordBatch, bounds: Mapping[str, Ends], schema: Schema | None, refused: dict[int, str]
) -> BoxColumns:
    """The boxes of the rows, owned by the numbers of the rows. Rows that cannot be read are entered in `refused`.

    Cost: some microseconds for each row of numbers and texts; more where a column has other types.
    """
    import pyarrow as pa

    side = {name: batch.column(name) for ends in bounds.values() for name in ends if name is not None}
    each: dict[str, Any] = {
        name: side[ends.equal] if ends.equal else (side.get(ends.low or ""), side.get(ends.high or ""))
        for name, ends in bounds.items()
    }
    both = any(ends.equal and (ends.low or ends.high) for ends in bounds.values())
    slow = (pa.types.is_boolean, pa.types.is_decimal, pa.types.is_date)
    if not both and not any(test(column.type) for column in side.values() for test in slow):
        try:
            return BoxColumns.from_bounds(each)
        except (FilterError, UnicodeDecodeError):
            pass  # row by row it can be held exactly, or be said what is wrong
    lists: list[list[Any]] = []
    for column in side.values():
        values, unread = listed(column)
        lists.append(values)
        for row, reason in unread.items():
            refused.setdefault(row, reason)
    rows = zip(*lists, strict=True) if side else [()] * batch.num_rows
    boxes: list[Box] = []
    owners: list[int] = []
    for row, each_of in enumerate(rows):
        try:
            made = _conjunction(bounds, dict(zip(side, each_of, strict=True)))
            found = normalize(made, schema).boxes
            boxes += found
            owners += [row] * len(found)
        except (FilterError, TypeError, ValueError, OverflowError) as error:
            refused.setdefault(row, str(error))
    return BoxColumns.of(boxes, owners)


def _conjunction(bounds: Mapping[str, Ends], values: Mapping[str, Any]) -> Filter:
    """The filter of a row of bounds; NULL and NaN are no bound."""
    tests: list[Filter] = []
    operators = (Operator.GE, Operator.LE, Operator.EQ)
    for name, ends in bounds.items():
        for operator, column in zip(operators, ends, strict=True):
            value = None if column is None else values[column]
            if value is not None and not (isinstance(value, float) and isnan(value)):
                tests.append(Compare(AttributeRef(name), operator, Constant.of(_plain(value))))
    return conjunction(*tests)


def listed(column: Any) -> tuple[list[Any], dict[int, str]]:
    """The values of a column, None for those that Python has no value for, and the reasons why by their rows."""
    try:
        return column.to_pylist(), {}
    except (ValueError, OverflowError):  # UnicodeDecodeError is the former
        pass
    values: list[Any] = []
    unread: dict[int, str] = {}
    for row, value in enumerate(column):
        try:
            values.append(value.as_py())
        except UnicodeDecodeError:
            values.append(None)
            unread[row] = "its text is not valid UTF-8"
        except (ValueError, OverflowError) as error:
            values.append(None)
            unread[row] = f"no filter has such a value: {error}"
    return values, unread


def _plain(value: Any) -> Any:
    """A bound as filters have it: decimals are floats, and dates their midnights."""
    if isinstance(value, Decimal):
        return float(value)
    return datetime(value.year, value.month, value.day) if type(value) is date else value
