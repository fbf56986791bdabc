"""Problems of the leaves of a filter, given what events have. A leaf is reported only if no event can make it TRUE or
FALSE as it is written. A filter is called dead only if no event can make it TRUE.

Only names, types and the form of the tree are looked at, never the values of constants, so that one answer holds for
all filters of one shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import reduce
from typing import NamedTuple

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
    Not,
    Or,
    Truth,
    attributes,
)
from weft.language.constant import Constant
from weft.language.meaning import all_of, any_of, negation
from weft.language.membership import ELEMENT_NAME, Truths
from weft.lint.seen_attributes import SeenAttributes
from weft.model.value import Type

_ANY: Truths = frozenset([True, False, None])
_NULL: Truths = frozenset([None])
_LIST = "list"  # what a test is compared with that would have to be a HAS
_NOT_TRUE: Truths = frozenset([False, None])


class LintKind(StrEnum):
    """A kind of mistake, the worst first."""

    INVALID = "invalid"
    UNKNOWN_ATTRIBUTE = "unknown_attribute"
    UNLIKE_TYPES = "unlike_types"
    NEVER_TRUE = "never_true"
    ALWAYS_TRUE = "always_true"
    DUPLICATE = "duplicate"


class ProblemKey(NamedTuple):
    """What filters with the same mistake share: its kind, the attribute, and the type that it is compared with."""

    kind: LintKind
    attribute: str = ""
    wanted: str = ""


class TreeProblem(NamedTuple):
    """A mistake, and the leaf that has it."""

    key: ProblemKey
    leaf: Filter


class TreeProblems(NamedTuple):
    """All mistakes of a tree, each key once; `dead` if they keep it from ever being TRUE."""

    problems: tuple[TreeProblem, ...]
    dead: bool


def tree_problems(root: Filter, seen: SeenAttributes) -> TreeProblems:
    """The mistakes of a filter. Cost: O(nodes).

    >>> from weft import parse
    >>> seen = SeenAttributes.of_events([{"x": 1, "s": "a"}])
    >>> found = tree_problems(parse("s > 5 AND x > 1"), seen)
    >>> [problem.key.kind.value for problem in found.problems], found.dead
    (['unlike_types'], True)
    >>> tree_problems(parse("s > 5 OR x > 1"), seen).dead
    False
    """
    problems: dict[ProblemKey, TreeProblem] = {}
    truths = _truths(root, seen, problems)
    return TreeProblems(tuple(problems.values()), bool(problems) and True not in truths)


def _truths(node: Filter, seen: SeenAttributes, problems: dict[ProblemKey, TreeProblem]) -> Truths:
    """What a node can come out as; the mistakes of its leaves are added."""
    match node:
        case Truth(value):
            return frozenset([value])
        case And(operands):
            parts = [_truths(operand, seen, problems) for operand in operands]
            return reduce(lambda a, b: frozenset(all_of(x, y) for x in a for y in b), parts)
        case Or(operands):
            parts = [_truths(operand, seen, problems) for operand in operands]
            return reduce(lambda a, b: frozenset(any_of(x, y) for x in a for y in b), parts)
        case Not(operand):
            return frozenset(map(negation, _truths(operand, seen, problems)))
        case Is(AttributeRef(name), None):
            if name in seen.lists:
                _unlike(name, _LIST, node, problems)
                return frozenset([True])
            if name in seen:
                return frozenset([True, False])
            _unknown(name, node, problems)
            return frozenset([True])
        case Is(operand, wanted):
            return frozenset(each is wanted for each in _truths(operand, seen, problems))
    missing = [name for name in sorted(attributes(node)) if name not in seen]
    for name in missing:
        _unknown(name, node, problems)
    return _NULL if missing else _leaf_truths(node, seen, problems)


def _leaf_truths(node: Filter, seen: SeenAttributes, problems: dict[ProblemKey, TreeProblem]) -> Truths:
    """The same of a leaf whose attributes are known."""
    if isinstance(node, HasElement):
        return _element_truths(node, seen, problems)
    if not isinstance(node, Has) and (lists := sorted(attributes(node) & seen.lists)):
        for name in lists:
            _unlike(name, _LIST, node, problems)
        return _NULL
    if isinstance(node, Compare) and isinstance(node.right, AttributeRef):
        left, right = seen[node.left.name], seen[node.right.name]
        if any(one.compares_with(other) for one in left for other in right):
            return _ANY
        _unlike(node.left.name, node.right.name, node, problems)
        return _NULL
    for name, wanted in _tests(node):
        if any(kind.compares_with(other) for kind in seen[name] for other in wanted):
            continue
        _unlike(name, str(wanted[0]), node, problems)
        return _NOT_TRUE if isinstance(node, Between | Has) else _NULL
    return _ANY


def _element_truths(node: HasElement, seen: SeenAttributes, problems: dict[ProblemKey, TreeProblem]) -> Truths:
    """The same of a test of elements, which have the types that were seen in lists and outside."""
    inner: dict[ProblemKey, TreeProblem] = {}
    found = _truths(node.test, SeenAttributes({ELEMENT_NAME: seen[node.left.name]}), inner)
    for key in inner:
        _unlike(node.left.name, key.wanted, node, problems)
    return _ANY if True in found else _NOT_TRUE


def _tests(node: Filter) -> Iterator[tuple[str, tuple[Type, ...]]]:
    """The attribute of a leaf, with the types of which it must have one."""
    match node:
        case AttributeRef(name):
            yield name, (Type.BOOL,)
        case Compare(left, _, Constant() as right):
            yield left.name, (right.type,)
        case Between(left, low, high):
            yield left.name, (low.type,)
            yield left.name, (high.type,)
        case Has(left, values, every):
            if not every:
                yield left.name, tuple(value.type for value in values)
            else:
                yield from ((left.name, (value.type,)) for value in values)
        case In(left, values):  # of unlike constants one that compares will do
            yield left.name, tuple(value.type for value in values)
        case Call(predicate, left):
            yield left.name, (predicate.type,)
        case _:
            yield from ((name, (Type.STRING,)) for name in attributes(node))  # a pattern


def _unknown(name: str, leaf: Filter, problems: dict[ProblemKey, TreeProblem]) -> None:
    key = ProblemKey(LintKind.UNKNOWN_ATTRIBUTE, name)
    problems.setdefault(key, TreeProblem(key, leaf))


def _unlike(name: str, wanted: str, leaf: Filter, problems: dict[ProblemKey, TreeProblem]) -> None:
    key = ProblemKey(LintKind.UNLIKE_TYPES, name, "number" if wanted in ("int", "float") else wanted)
    problems.setdefault(key, TreeProblem(key, leaf))
