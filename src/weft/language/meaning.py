"""The meaning of filters: the one definition of truth, simple and slow. Law: everything else agrees with it.

The logic is SQL's, with three values: an absent attribute and NaN are NULL, a comparison of different types is NULL,
and a filter matches an event only if it is TRUE. A list is NULL for every test but HAS, which is NULL only if the
attribute is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

from weft.errors import FilterTypeError
from weft.language.ast import (
    And,
    AttributeRef,
    Between,
    Call,
    Compare,
    Filter,
    Has,
    HasElement,
    In,
    Is,
    Like,
    Not,
    Operator,
    Or,
    Truth,
)
from weft.language.membership import ELEMENT_NAME
from weft.model.event import Event, attributes_of
from weft.model.lists import AttributeValue, elements_of
from weft.model.value import Type, to_micros, type_of

if TYPE_CHECKING:
    from weft.language.any_filter import AnyFilter

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}

Values = Mapping[str, AttributeValue | None]


def matches(filter: AnyFilter, event: Event | Values) -> bool:
    """Whether the event matches the filter. Raises EventError for what is not an event.

    Cost: O(size of the filter), and that of `parse` for a text. For many filters or events, use `Index`.

    >>> matches("magnitude >= 5 AND depth < 70", {"magnitude": 6.1, "depth": 12})
    True
    >>> matches("NOT magnitude >= 5", {"depth": 12})
    False
    """
    return truth(filter, event) is True


def truth(filter: AnyFilter, event: Event | Values) -> bool | None:
    """TRUE, FALSE or NULL (None). Raises EventError for what is not an event."""
    return evaluate(filter if isinstance(filter, Filter) else _read(filter), attributes_of(event))


def _read(filter: AnyFilter) -> Filter:
    from weft.language.any_filter import as_filter  # which imports the grammar, and that imports this module

    return as_filter(filter)


def compare(operator: Operator, left: AttributeValue | None, right: AttributeValue | None) -> bool | None:
    """The comparison of two values; NULL if either is NULL or their types do not compare."""
    one, other = _comparable(left), _comparable(right)
    if one is None or other is None or not one[0].compares_with(other[0]):
        return None
    return _COMPARE[operator](one[1], other[1])


def all_of(*truths: bool | None) -> bool | None:
    """AND: FALSE if any is FALSE, else NULL if any is NULL."""
    return False if False in truths else None if None in truths else True


def any_of(*truths: bool | None) -> bool | None:
    """OR: TRUE if any is TRUE, else NULL if any is NULL."""
    return True if True in truths else None if None in truths else False


def negation(known: bool | None) -> bool | None:
    """NOT: NULL stays NULL."""
    return None if known is None else not known


def evaluate(node: Filter, event: Values) -> bool | None:
    """The truth for attributes that came through the door before, as `attributes_of` gives them."""
    match node:
        case Truth(known):
            return known
        case AttributeRef(name):
            value = event.get(name)
            return value if isinstance(value, bool) else None
        case Compare(left, operator, right):
            other = event.get(right.name) if isinstance(right, AttributeRef) else right.python
            return compare(operator, event.get(left.name), other)
        case Between(left, low, high):
            value = event.get(left.name)
            return all_of(compare(Operator.GE, value, low.python), compare(Operator.LE, value, high.python))
        case In(left, constants):
            value = event.get(left.name)
            return any_of(*(compare(Operator.EQ, value, constant.python) for constant in constants))
        case Like(left):
            value = event.get(left.name)
            return node.compiled.matches(value) if isinstance(value, str) else None
        case Has(left, constants):
            elements = elements_of(event.get(left.name))
            if elements is None:
                return None
            found = [any(compare(Operator.EQ, each, value.python) for each in elements) for value in constants]
            return all(found) if node.every else any(found)
        case HasElement(left, test):
            elements = elements_of(event.get(left.name))
            if elements is None:
                return None
            present = (each for each in elements if type_of(each) is not None)
            return any(evaluate(test, {ELEMENT_NAME: each}) is True for each in present)
        case Call(predicate, left):
            value = event.get(left.name)
            kind = type_of(value)
            if value is None or kind is None or isinstance(value, list) or not kind.compares_with(predicate.type):
                return None
            return bool(predicate.matches(value, node.values))
        case Is(AttributeRef(name), None):
            return type_of(event.get(name)) is None
        case Is(operand, wanted):
            return evaluate(operand, event) is wanted
        case Not(operand):
            return negation(evaluate(operand, event))
        case And(operands):
            return all_of(*(evaluate(operand, event) for operand in operands))
        case Or(operands):
            return any_of(*(evaluate(operand, event) for operand in operands))
    raise FilterTypeError(f"{node!r} is not a filter")


def _comparable(value: AttributeValue | None) -> tuple[Type, Any] | None:
    """The type of a value and what is compared: the microseconds of a timestamp, else the value itself."""
    kind = type_of(value)
    if kind is None:
        return None
    return kind, to_micros(value) if isinstance(value, datetime) else value
