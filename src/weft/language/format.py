"""Trees as filter text. Laws: parse(format(f)) == f; equal trees have equal text."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import FilterTypeError
from weft.language.ast import (
    ELEMENT,
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
    Or,
    Truth,
)
from weft.language.constant import Constant
from weft.language.lexer import is_plain_name
from weft.model.value import Type, format_timestamp

_TRUTHS = {True: "TRUE", False: "FALSE", None: "NULL"}


def format_filter(node: Filter) -> str:
    """The text of a filter, with no more parentheses than needed to read it back.

    >>> from weft import parse
    >>> format_filter(parse("not ( 5<price or (symbol in ('X','Y') and active) )"))
    "NOT (price > 5 OR symbol IN ('X', 'Y') AND active)"
    """
    if type(node) is Compare:  # most nodes are: patterns would be tried one after the other
        return _comparison(node)
    match node:
        case Or(operands):
            return " OR ".join(map(format_filter, operands))
        case And(operands):
            return " AND ".join(_within(operand, Or) for operand in operands)
        case Not(Between() | In() | Like() | Has() | HasElement() | Is() as tested):
            return _test(tested, "NOT ")
        case Not(operand):
            return "NOT " + _within(operand, Or, And)
    return _test(node, "")


def most_written(root: Filter) -> int:
    """An upper bound of the bytes of a filter's text, without writing it. Cost: O(nodes)."""
    total = 0
    stack = [root]
    while stack:
        node = stack.pop()
        total += 16
        if isinstance(node, Compare):
            right = node.right
            total += _most(node.left.name) + (_most(right.name) if isinstance(right, AttributeRef) else _most_of(right))
        elif isinstance(node, And | Or):
            stack.extend(node.operands)
        elif isinstance(node, Not | Is):
            stack.append(node.operand)
        elif isinstance(node, HasElement):
            total += _most(node.left.name)
            stack.append(node.test)
        elif isinstance(node, AttributeRef):
            total += _most(node.name)
        elif isinstance(node, Like):
            total += _most(node.left.name) + _most(node.pattern) + 16
        elif isinstance(node, Between):
            total += _most(node.left.name) + _most_of(node.low) + _most_of(node.high)
        elif isinstance(node, In | Has | Call):
            constants = node.arguments if isinstance(node, Call) else node.values
            total += _most(node.left.name)
            for each in constants:  # most are small numbers, and lists of them are long
                total += 13 if each.type is Type.INT and -_SMALL < each.value < _SMALL else _most_of(each)  # type: ignore[operator]
    return total


def least_written(root: Filter) -> int:
    """A lower bound of the bytes in which a user can write a filter. Cost: O(nodes).

    Names and constants count once, because `5 IN (a, b)` is `a = 5 OR b = 5`; numbers with a point count as one byte,
    because 1e15 is short, and written long.
    """
    names: set[str] = set()
    values: set[object] = set()
    total, stack = 0, [root]
    while stack:
        node = stack.pop()
        if isinstance(node, And | Or):
            stack += node.operands
        elif isinstance(node, Not | Is):
            stack.append(node.operand)
        elif isinstance(node, HasElement):
            names.add(node.left.name)
            stack.append(node.test)
        elif isinstance(node, AttributeRef):
            names.add(node.name)
        elif isinstance(node, Compare | Between | In | Like | Has | Call):
            total += 1  # a sign, or a comma
            names.add(node.left.name)
            if isinstance(node, Like):
                values.add(node.pattern)
            elif isinstance(node, In | Has | Call):
                constants = node.arguments if isinstance(node, Call) else node.values
                total += len(constants)
                values.update([each.value for each in constants])
            elif isinstance(node, Between):
                values.update((node.low.value, node.high.value))
            elif isinstance(node.right, AttributeRef):
                names.add(node.right.name)
            else:
                values.add(node.right.value)
    whole = [value for value in values if type(value) is int]
    total += sum(map(len, map(str, whole))) - sum([value < 0 for value in whole])
    total += sum([_least(value) for value in values if type(value) is not int])
    names.discard(ELEMENT.name)  # which is not written
    return total + sum([len(name) if name.isascii() else len(name.encode()) for name in names])


def _least(value: object) -> int:
    if isinstance(value, str):
        return 2 + (len(value) if value.isascii() else len(value.encode())) + value.count("'")
    return 1


def _most(text: str) -> int:
    return 4 + 4 * len(text)


def _most_of(constant: Constant) -> int:
    value = constant.value
    if isinstance(value, str):
        return 4 + 4 * len(value)
    return _LONGEST[constant.type]


_SMALL = 10**9
_LONGEST = {Type.BOOL: 8, Type.INT: 24, Type.FLOAT: 28, Type.TIMESTAMP: 48}  # with a comma


def format_constant(constant: Constant) -> str:
    """The text of a constant."""
    kind = constant.type
    if kind is Type.INT or kind is Type.FLOAT:
        return repr(constant.value)
    if kind is Type.STRING:
        return _quoted(str(constant.value), "'")
    if kind is Type.TIMESTAMP:
        return f"TIMESTAMP '{format_timestamp(int(constant.value))}'"
    return _TRUTHS[bool(constant.value)]


def _written(constants: Iterable[Constant]) -> list[str]:
    """Many constants: most are numbers."""
    whole, real = Type.INT, Type.FLOAT
    return [
        repr(each.value) if (kind := each.type) is whole or kind is real else format_constant(each)
        for each in constants
    ]


def format_name(name: str) -> str:
    """The name of an attribute, in quotes if it needs them."""
    return name if is_plain_name(name) else _quoted(name, '"')


def _comparison(node: Compare) -> str:
    right = node.right
    other = format_constant(right) if type(right) is Constant else format_name(right.name)  # type: ignore[union-attr]
    return f"{_tested(node.left)}{node.operator.value} {other}"


def _tested(left: AttributeRef) -> str:
    """What a test begins with: a name, but nothing for an element."""
    return "" if left == ELEMENT else format_name(left.name) + " "


def _test(node: Filter, negation: str) -> str:
    match node:
        case Truth(value):
            return _TRUTHS[value]
        case AttributeRef(name):
            return format_name(name)
        case Compare():
            return _comparison(node)
        case Between(left, low, high):
            ends = f"{format_constant(low)} AND {format_constant(high)}"
            return f"{_tested(left)}{negation}BETWEEN {ends}"
        case In(left, values):
            return f"{_tested(left)}{negation}IN ({', '.join(_written(values))})"
        case Like(left, pattern, escape, ignore_case):
            word = "ILIKE" if ignore_case else "LIKE"
            end = "" if escape is None else f" ESCAPE {_quoted(escape, chr(39))}"
            return f"{_tested(left)}{negation}{word} {_quoted(pattern, chr(39))}{end}"
        case Has(left, (value,)):
            return f"{format_name(left.name)} {negation}HAS {format_constant(value)}"
        case Has(left, values, every):
            word = "ALL" if every else "ANY"
            return f"{format_name(left.name)} {negation}HAS {word} ({', '.join(_written(values))})"
        case HasElement(left, test):
            written = format_element_test(test)
            return f"{format_name(left.name)} {negation}HAS {written if _stands_alone(test) else f'({written})'}"
        case Call(predicate, left, arguments):
            first = [] if left == ELEMENT else [format_name(left.name)]
            return f"{predicate.name}({', '.join([*first, *map(format_constant, arguments)])})"
        case Is(AttributeRef() as left, value) if left == ELEMENT:
            return f"IS {negation}{_TRUTHS[value]}"
        case Is(operand, value):
            plain = isinstance(operand, AttributeRef | Truth | Call)
            return f"{format_filter(operand) if plain else f'({format_filter(operand)})'} IS {negation}{_TRUTHS[value]}"
    raise FilterTypeError(f"{node!r} is not a filter")


def format_element_test(test: Filter) -> str:
    """The text of a test of elements, as inside HAS (...).

    >>> from weft import F
    >>> format_element_test(F.tags.has(lambda tag: tag.startswith("a") & (tag != "ab")).test)
    "LIKE 'a%' AND != 'ab'"
    """
    return format_filter(test)


def _stands_alone(test: Filter) -> bool:
    """Whether a test of elements needs no parentheses after HAS."""
    if isinstance(test, Not):
        test = test.operand
        return isinstance(test, Between | In | Like) or (isinstance(test, Is) and test.operand == ELEMENT)
    return not isinstance(test, And | Or | Is) or (isinstance(test, Is) and test.operand == ELEMENT)


def _within(node: Filter, *looser: type[Filter]) -> str:
    if type(node) is Compare:
        return _comparison(node)
    text = format_filter(node)
    return f"({text})" if isinstance(node, looser) else text


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote
