"""The tree of a filter. A tree is always valid. Equal trees have equal text. The depth is at most 100.

Constants carry their type, so that `x = 1`, `x = 1.0` and `x = TRUE` are three different trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from itertools import chain
from typing import NoReturn

from weft.errors import FilterError, FilterTooComplexError, FilterTypeError
from weft.language.constant import Constant, encodes
from weft.language.membership import ELEMENT_NAME, MARK
from weft.language.pattern import Pattern
from weft.language.predicate import BUILT_IN, Arguments, Predicate, Predicates
from weft.model.limits import LIMITS, MAX_DEPTH


class Operator(StrEnum):
    """A comparison."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def mirrored(self) -> Operator:
        """The comparison with its sides exchanged: `5 < x` is `x > 5`."""
        return _MIRRORED[self]


_MIRRORED = dict(zip(Operator, (Operator(o) for o in ("=", "!=", ">", ">=", "<", "<=")), strict=True))


class Filter:
    """A filter: any node of a tree. Combine filters with `&`, `|` and `~`; `str()` gives the text.

    >>> from weft import F, parse
    >>> both = parse("magnitude >= 5") & ~(F.depth > 70)
    >>> print(both)
    magnitude >= 5 AND NOT depth > 70
    >>> both == parse("magnitude>=5 and not depth>70")
    True
    """

    __slots__ = ()

    @property
    def depth(self) -> int:
        """How many levels the tree has. Cost: O(1).

        >>> from weft import parse
        >>> parse("x > 5").depth, parse("x > 5 AND NOT y").depth
        (1, 3)
        """
        return 1

    def __and__(self, other: Filter) -> Filter:
        return conjunction(self, as_filter(other)) if _combines(other) else NotImplemented

    def __or__(self, other: Filter) -> Filter:
        return disjunction(self, as_filter(other)) if _combines(other) else NotImplemented

    def __rand__(self, other: Filter) -> Filter:
        return conjunction(as_filter(other), self) if _combines(other) else NotImplemented

    def __ror__(self, other: Filter) -> Filter:
        return disjunction(as_filter(other), self) if _combines(other) else NotImplemented

    def __invert__(self) -> Filter:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise FilterTypeError(
            "a filter is not a bool; combine filters with & | ~ instead of and/or/not, "
            "put each comparison in parentheses, and write F.x.between(low, high) for low <= x <= high"
        )

    def __str__(self) -> str:
        from weft.language.format import format_filter

        return format_filter(self)

    def _repr_html_(self) -> str:
        return f"<code>{escape(str(self))}</code>"


class _Nested(Filter):
    """A filter made of filters; it knows its depth, so that no tree exceeds the limit."""

    __slots__ = ()
    levels: int

    @property
    def depth(self) -> int:
        """How many levels the tree has."""
        return self.levels

    def _check_depth(self, below: int) -> None:
        if below >= MAX_DEPTH:
            raise FilterTooComplexError(f"a filter can be nested at most {MAX_DEPTH} levels deep")
        object.__setattr__(self, "levels", below + 1)


@dataclass(frozen=True, slots=True)
class Truth(Filter):
    """TRUE, FALSE or NULL for every event."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class AttributeRef(Filter):
    """An attribute. As a filter it is a bare boolean attribute: NULL unless its value is a bool."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name[0] == MARK or not encodes(self.name):
            raise FilterError(f"{self.name!r} cannot name an attribute")
        if self.name == ELEMENT_NAME:
            raise FilterError(f"{self.name!r} cannot name an attribute")
        if len(self.name) > LIMITS.name:
            raise FilterTooComplexError(f"the name of an attribute can have at most {LIMITS.name} characters")


ELEMENT = object.__new__(AttributeRef)  # in a test of elements, the element; no text and no user names it
object.__setattr__(ELEMENT, "name", ELEMENT_NAME)


@dataclass(frozen=True, slots=True)
class Compare(Filter):
    """`x < 5`, or `x < y` between attributes; a constant is always on the right."""

    left: AttributeRef
    operator: Operator
    right: Constant | AttributeRef


@dataclass(frozen=True, slots=True)
class Between(Filter):
    """`x BETWEEN 1 AND 5`: both ends included, empty if they are out of order."""

    left: AttributeRef
    low: Constant
    high: Constant


@dataclass(frozen=True, slots=True)
class In(Filter):
    """`x IN (1, 2)`: equal to one of the values."""

    left: AttributeRef
    values: tuple[Constant, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise FilterError("IN needs at least one value")


@dataclass(frozen=True, slots=True)
class Like(Filter):
    """`x LIKE 'a%'`: `%` is any text, `_` one code point; no escape unless given. With `ignore_case` it is ILIKE:
    pattern and value are compared by `str.casefold`.
    """

    left: AttributeRef
    pattern: str
    escape: str | None = None
    ignore_case: bool = False
    compiled: Pattern = field(init=False, compare=False, repr=False)  # ready to match

    def __post_init__(self) -> None:
        for text in (self.pattern, "" if self.escape is None else self.escape):
            if not isinstance(text, str):
                raise FilterError(f"a pattern must be a string, not {text!r}")
            if not encodes(text):
                raise FilterError("a pattern must not contain lone surrogates")
        object.__setattr__(self, "compiled", Pattern.of(self.pattern, self.escape, self.ignore_case))


@dataclass(frozen=True, slots=True)
class Has(Filter):
    """`tags HAS 'rock'`: the list has the value, a value that is not a list being a list of one. With several values,
    `HAS ANY (...)`, or with `every` `HAS ALL (...)`. It is NULL only if the attribute is absent.
    """

    left: AttributeRef
    values: tuple[Constant, ...]
    every: bool = False

    def __post_init__(self) -> None:
        if not self.values:
            raise FilterError("HAS needs at least one value")
        if self.every and len(self.values) == 1:
            object.__setattr__(self, "every", False)  # one value is any of them and all

    @property
    def tests(self) -> tuple[Has, ...]:
        """One test for each value."""
        return (self,) if len(self.values) == 1 else tuple(Has(self.left, (value,)) for value in self.values)


@dataclass(frozen=True, slots=True)
class HasElement(_Nested):
    """`tags HAS LIKE 'a%'`, `sizes HAS (> 5 AND < 9)`: the list has an element for which the test is TRUE, a value
    that is not a list being a list of one. The test is a filter whose only attribute is ELEMENT. It is NULL only if the
    attribute is absent.
    """

    left: AttributeRef
    test: Filter
    levels: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for node in walk(self.test):
            if isinstance(node, Has | HasElement) or (
                not isinstance(node, And | Or | Not | Is) and attributes(node) != {ELEMENT_NAME}
            ):
                raise FilterError("a test inside HAS compares the elements of the list with constants")
            if isinstance(node, Call) and BUILT_IN.get(node.predicate.name) is not node.predicate:
                raise FilterError(
                    f"{node.predicate.name}() cannot be called inside HAS, only {' and '.join(sorted(BUILT_IN))}"
                )
            operands = node.operands if isinstance(node, And | Or) else (getattr(node, "operand", None),)
            if ELEMENT in operands and not (isinstance(node, Is) and node.value is None):
                raise FilterError("an element is not a condition; write = TRUE")
        if self.test == ELEMENT:
            raise FilterError("an element is not a condition; write = TRUE")
        self._check_depth(self.test.depth)


@dataclass(frozen=True, slots=True)
class Call(Filter):
    """A call of a predicate: `is_a(kind, 'vehicle')`."""

    predicate: Predicate
    left: AttributeRef
    arguments: tuple[Constant, ...]

    def __post_init__(self) -> None:
        try:
            self.predicate.check(self.values)
        except ValueError as error:
            raise FilterError(str(error)) from error

    @property
    def values(self) -> Arguments:
        """The arguments as the predicate takes them."""
        return tuple(constant.python for constant in self.arguments)


@dataclass(frozen=True, slots=True)
class Is(_Nested):
    """`f IS TRUE`, `IS FALSE` or, with None, `IS NULL`: never NULL itself.

    On an attribute, IS NULL tests whether it is absent.
    """

    operand: Filter
    value: bool | None
    levels: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_depth(self.operand.depth)


@dataclass(frozen=True, slots=True)
class Not(_Nested):
    """NOT of three-valued logic: NOT NULL is NULL."""

    operand: Filter
    levels: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_depth(self.operand.depth)


@dataclass(frozen=True, slots=True)
class And(_Nested):
    """All of two or more filters, none of them an And; `conjunction` flattens."""

    operands: tuple[Filter, ...]
    levels: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_operands(self)


@dataclass(frozen=True, slots=True)
class Or(_Nested):
    """Any of two or more filters, none of them an Or; `disjunction` flattens."""

    operands: tuple[Filter, ...]
    levels: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_operands(self)


TRUE, FALSE, NULL = Truth(True), Truth(False), Truth(None)


def conjunction(*filters: Filter) -> Filter:
    """All of the filters; TRUE if there are none.

    >>> print(conjunction(AttributeRef("a"), conjunction(AttributeRef("b"), AttributeRef("c"))))
    a AND b AND c
    """
    parts = _flattened(filters, And)
    return And(parts) if len(parts) > 1 else parts[0] if parts else TRUE


def disjunction(*filters: Filter) -> Filter:
    """Any of the filters; FALSE if there are none."""
    parts = _flattened(filters, Or)
    return Or(parts) if len(parts) > 1 else parts[0] if parts else FALSE


def conjunction_of_tests(tests: list[Filter]) -> And:
    """The conjunction of two or more tests, of which none is made of filters: without checks, for long texts."""
    made = _new(And)
    _set_operands(made, tuple(tests))
    _set_levels(made, 2)
    return made


def comparison(left: AttributeRef, operator: Operator, right: Constant | AttributeRef) -> Compare:
    """A comparison, made in half the time: long texts have very many."""
    made = _new(Compare)
    _set_left(made, left)
    _set_operator(made, operator)
    _set_right(made, right)
    return made


_new = object.__new__
_set_operands, _set_levels = (And.__dict__[name].__set__ for name in ("operands", "levels"))
_set_left, _set_operator, _set_right = (Compare.__dict__[name].__set__ for name in ("left", "operator", "right"))


def _flattened(filters: tuple[Filter, ...], kind: type[And] | type[Or]) -> tuple[Filter, ...]:
    if kind not in set(map(type, filters)):
        return filters
    return tuple(chain.from_iterable(f.operands if isinstance(f, kind) else (f,) for f in filters))


def as_filter(value: object) -> Filter:
    """The filter that a value stands for: itself, a builder's attribute, or a bool."""
    if isinstance(value, Filter):
        return value
    if isinstance(value, bool):
        return Truth(value)
    made = getattr(value, "__weft_filter__", None)
    if made is not None:
        return made()  # type: ignore[no-any-return]
    raise FilterTypeError(f"{value!r} is not a filter; write text, or build conditions from F.name")


def walk(root: Filter) -> Iterator[Filter]:
    """Every node, parents first. A test of elements is one node: what it tests are not attributes of the event."""
    yield root
    match root:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from walk(operand)
        case Not(operand) | Is(operand):
            yield from walk(operand)


def predicates_of(filters: Iterable[Filter]) -> Predicates:
    """The predicates that filters call."""
    called = {node.predicate.name: node.predicate for root in filters for node in walk(root) if isinstance(node, Call)}
    return Predicates([*called.values()])


def attributes(root: Filter) -> frozenset[str]:
    """The names of all attributes that the filter tests.

    >>> from weft import parse
    >>> sorted(attributes(parse("price < 95 AND (symbol = 'X' OR open > close)")))
    ['close', 'open', 'price', 'symbol']
    """
    names: set[str] = set()
    for node in walk(root):
        match node:
            case AttributeRef(name):
                names.add(name)
            case Compare(left, _, right):
                names.add(left.name)
                if isinstance(right, AttributeRef):
                    names.add(right.name)
            case Between(left) | In(left) | Like(left) | Has(left) | HasElement(left) | Call(left=left):
                names.add(left.name)
    return frozenset(names)


def _combines(value: object) -> bool:
    return isinstance(value, Filter | bool) or hasattr(value, "__weft_filter__")


def _check_operands(node: And | Or) -> None:
    kind, kinds = type(node), set(map(type, node.operands))
    if kind in kinds:
        raise FilterError(
            f"{kind.__name__} cannot contain another {kind.__name__}; conjunction() and disjunction() flatten"
        )
    if len(node.operands) < 2:
        raise FilterError(f"{kind.__name__} takes two or more filters")
    # most operands are tests, of depth 1: within parentheses, a long chain is made anew at each level
    deep = [each for each in node.operands if isinstance(each, _Nested)] if not kinds.isdisjoint(_INNER) else []
    node._check_depth(max([each.levels for each in deep], default=1))


_INNER = (And, Or, Not, Is, HasElement)
