"""Filters that plainly match something. The answer is True only if some event matches.

To normalize a filter shows the same of every filter, in ten times the time; a broker that starts has very many.
"""

from __future__ import annotations

from math import inf
from typing import Any

from weft.language.ast import And, Between, Compare, Filter, Operator
from weft.language.constant import Constant
from weft.model.value import Type

_MOST = 16  # tests
_NUMERIC = (Type.INT, Type.FLOAT)
_FROM = (Operator.EQ, Operator.GE, Operator.GT)  # the operators that set a low end
_UPTO = (Operator.EQ, Operator.LE, Operator.LT)


def plainly_satisfiable(filter: Filter) -> bool:
    """Whether a filter is a short conjunction that compares attributes with numbers, or with one string each, and
    some event passes all of its tests; False for any other filter. All numbers are one real line, as without a schema.

    >>> from weft import parse
    >>> plainly_satisfiable(parse("s = 'a' AND x >= 1 AND x < 2")), plainly_satisfiable(parse("x > 2 AND x < 2"))
    (True, False)
    """
    parts = filter.operands if type(filter) is And else (filter,)
    if len(parts) > _MOST:
        return False
    ends: dict[str, tuple[Any, Any]] = {}  # the numbers between which an attribute is
    for part in parts:
        kind = type(part)
        low: Any = -inf
        high: Any = inf
        if kind is Compare:
            operator, constant = part.operator, part.right  # type: ignore[attr-defined]
            if type(constant) is not Constant:
                return False
            if constant.type in _NUMERIC:
                if operator in _FROM:
                    low = constant.value
                if operator in _UPTO:
                    high = constant.value
                elif low == -inf:
                    return False
            elif constant.type is not Type.STRING or operator is not Operator.EQ:
                return False
            else:
                low = high = inf  # with any other test of the attribute, nothing is plain
        elif kind is Between and part.low.type in _NUMERIC and part.high.type in _NUMERIC:  # type: ignore[attr-defined]
            low, high = part.low.value, part.high.value  # type: ignore[attr-defined]
            if low > high:
                return False
        else:
            return False
        name: str = part.left.name  # type: ignore[attr-defined]
        if name in ends:
            low, high = max(low, ends[name][0]), min(high, ends[name][1])
            if low >= high:
                return False
        ends[name] = low, high
    return True
