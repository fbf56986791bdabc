"""Tests of one attribute as value sets. A split has exactly the values that make a test TRUE, and those that make it
FALSE; all others make it NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.algebra import interval
from weft.algebra.interval import EMPTY, NUMBERS, STRINGS, Line
from weft.algebra.strings import like
from weft.algebra.valueset import ABSENT, NOTHING, PRESENT, ValueSet, on_line
from weft.errors import FilterTypeError
from weft.language.ast import AttributeRef, Between, Compare, Filter, Has, HasElement, In, Is, Like, Operator
from weft.language.constant import Constant
from weft.language.membership import membership_name
from weft.model.value import Type

Split = tuple[ValueSet, ValueSet]  # where a test is TRUE, and where it is FALSE


def is_leaf(node: Filter) -> bool:
    """Whether it is a test of a single attribute."""
    if isinstance(node, Is):
        return node.value is None and isinstance(node.operand, AttributeRef)
    if isinstance(node, Has):
        return not node.every
    return isinstance(node, (AttributeRef, Between, In, Like, HasElement)) or (
        isinstance(node, Compare) and isinstance(node.right, Constant)
    )


def leaf_steps(node: Filter) -> int:
    """The steps of making a value set of a test."""
    if isinstance(node, In | Has):
        return 16 + len(node.values)
    if isinstance(node, Compare):
        return 7  # the longest chain of comparisons that a text can hold is admitted
    return 14 if isinstance(node, Between) else 11


def where_true(node: Filter) -> tuple[str, ValueSet]:
    """Where a test is TRUE, without computing where it is FALSE."""
    match node:
        case Compare(left, operator, Constant() as right):
            return left.name, on_line(right.type, _line(operator, right))
        case Between(left, low, high) if low.type.compares_with(high.type):
            line = ((low.value, 0), (high.value, 1)) if low.value <= high.value else EMPTY  # type: ignore[operator]
            return left.name, on_line(low.type, line)
        case Like(left):
            return left.name, ValueSet(strings=like(node.compiled))
        case In(left, values):
            return left.name, ValueSet.union_of([on_line(kind, line) for kind, line in _lines(values).items()])
    name, split = split_of(node)
    return name, split[0]


def where_false(node: Filter) -> tuple[str, ValueSet]:
    """Where a test is FALSE, without computing where it is TRUE."""
    match node:
        case Compare(left, operator, Constant() as right):
            line = interval.complement(_line(operator, right), _WHOLE.get(right.type, NUMBERS))
            return left.name, on_line(right.type, line)
        case Like(left):
            return left.name, ValueSet(strings=like(node.compiled).complement())
        case In(left, values):
            return left.name, _among_none(_lines(values))
    name, split = split_of(node)
    return name, split[1]


def split_of(node: Filter) -> tuple[str, Split]:
    """The attribute of a test, with the values that make it TRUE and those that make it FALSE."""
    match node:
        case Is(AttributeRef(name), None):
            return name, (ABSENT, PRESENT)
        case Has(left, values):
            return membership_name(left.name, values, node.every), TRUTH
        case AttributeRef(name):
            return name, TRUTH
        case Compare(left, operator, Constant() as right):
            return left.name, comparison(operator, right)
        case Between(left, low, high):
            above, below = comparison(Operator.GE, low), comparison(Operator.LE, high)
            return left.name, (above[0].intersect(below[0]), above[1].union(below[1]))
        case In(left, values):
            return left.name, _among(values)
        case Like(left):
            matching = like(node.compiled)
            return left.name, (ValueSet(strings=matching), ValueSet(strings=matching.complement()))
    raise FilterTypeError(f"{node!r} is not a test of an attribute")


def _among(constants: Sequence[Constant]) -> Split:
    """Where a value equals one of the constants, and where it differs from all of them. Cost: O(n log n)."""
    lines = _lines(constants)
    return ValueSet.union_of([on_line(kind, line) for kind, line in lines.items()]), _among_none(lines)


def _among_none(lines: dict[Type, Line]) -> ValueSet:
    if len(lines) > 1:  # a value of one type and a constant of another compare to NULL
        return NOTHING
    ((kind, line),) = lines.items()
    return on_line(kind, interval.complement(line, _WHOLE.get(kind, NUMBERS)))


def _lines(constants: Sequence[Constant]) -> dict[Type, Line]:
    """The points of constants, on the line of each type."""
    kinds = {constant.type for constant in constants}
    if kinds <= _NUMERIC:  # most are, and long lists of one type
        return {Type.FLOAT: interval.points_line([constant.value for constant in constants])}
    by_line: dict[Type, list[Any]] = {}
    for constant in constants:
        number = constant.type is Type.INT
        by_line.setdefault(Type.FLOAT if number else constant.type, []).append(constant.value)
    return {kind: interval.points_line(values) for kind, values in by_line.items()}


def comparison(operator: Operator, constant: Constant) -> Split:
    """Where a value of the constant's type compares so, and where it does not."""
    line = _line(operator, constant)
    other = interval.complement(line, _WHOLE.get(constant.type, NUMBERS))
    return on_line(constant.type, line), on_line(constant.type, other)


def _line(operator: Operator, constant: Constant) -> Line:
    value, whole = constant.value, _WHOLE.get(constant.type, NUMBERS)
    match operator:
        case Operator.EQ:
            return (value, 0), (value, 1)
        case Operator.GE:
            return ((value, 0),)
        case Operator.GT:
            return ((value, 1),)
        case Operator.LT:
            return interval.complement(((value, 0),), whole)
        case Operator.LE:
            return interval.complement(((value, 1),), whole)
    return interval.complement(((value, 0), (value, 1)), whole)


_NUMERIC = frozenset((Type.INT, Type.FLOAT))
_WHOLE: dict[Type, Line] = {Type.STRING: STRINGS, Type.BOOL: ((False, 0),)}
TRUTH: Split = ValueSet(bools=frozenset((True,))), ValueSet(bools=frozenset((False,)))
