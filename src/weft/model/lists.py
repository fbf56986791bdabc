"""Lists as attributes of events. An ordinary test sees a list as NULL; HAS tests its elements, and a value that is not
a list is a list of one.

Elements are values of the five types. NULL and NaN in a list are left out. A list with a mapping or a list in it is
ignored: the attribute is absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from weft.model.value import Value, to_micros

ListValue = list[Value]
AttributeValue = Value | ListValue


def element_key(value: object) -> str | None:
    """A text that two values share if and only if they are equal; None for NULL and whatever is not a value.

    >>> element_key(1) == element_key(1.0), element_key(1) == element_key(True), element_key(float("nan"))
    (True, False, None)
    """
    if isinstance(value, str):
        return "s" + value
    if isinstance(value, bool):
        return "b1" if value else "b0"
    if isinstance(value, int):
        return f"n{value}"
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 - NaN
            return None
        whole = -(2.0**63) <= value < 2.0**63 and value.is_integer()
        return f"n{int(value)}" if whole else f"n{value!r}"
    return f"t{to_micros(value)}" if isinstance(value, datetime) else None


def elements_of(value: Any) -> Iterable[Any] | None:
    """The elements of an attribute's value, a scalar being a list of one; None if the attribute is absent.

    >>> elements_of(["a", "b"]), elements_of("a"), elements_of(None)
    (['a', 'b'], ('a',), None)
    """
    if isinstance(value, list):
        return value
    return None if value is None or value != value else (value,)  # noqa: PLR0124 - NaN is NULL


def has_element(value: Any, key: str) -> bool | None:
    """Whether an attribute's value has the element of a key; NULL if the attribute is absent.

    >>> has_element(["a", 2], "n2"), has_element("a", "sb"), has_element(None, "sa")
    (True, False, None)
    """
    elements = elements_of(value)
    return None if elements is None else any(element_key(each) == key for each in elements)
