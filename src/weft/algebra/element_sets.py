"""Sets of elements that memberships test, and how memberships of one attribute are related.

`x HAS S` says that some element of a list is in the set S: the values of a HAS ANY, or the elements that pass a test.
So a list that has an element of a set has one of every larger set, and a list without an element of a set has none of
any smaller one. A relation is claimed only when it is proven; otherwise every truth stays possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.algebra.budget import Budget
from weft.algebra.valueset import ANYTHING, PRESENT, ValueSet
from weft.language.ast import Filter
from weft.language.membership import (
    ELEMENT_NAME,
    MARK,
    Membership,
    Truths,
    element_value,
    membership,
)
from weft.model.lists import element_key, elements_of
from weft.model.value import type_of

if TYPE_CHECKING:
    from weft.algebra.box import Box

_SHORT = 256  # characters of a name whose set is computed once


class ElementSet(NamedTuple):
    """The elements that pass a test: a value set, or boxes of one attribute if a predicate is called."""

    values: ValueSet | None
    boxes: tuple[Box, ...]

    @staticmethod
    def of(boxes: Sequence[Box], budget: Budget | None = None) -> ElementSet:
        """The set of the elements in boxes whose only attribute is the element; no element is absent."""
        if any(box.residuals for box in boxes):
            return ElementSet(None, tuple(boxes))
        sets = [box.sets.get(ELEMENT_NAME, ANYTHING).intersect(PRESENT, budget) for box in boxes]
        return ElementSet(ValueSet.union_of(sets, budget) if sets else ValueSet(), ())

    def __bool__(self) -> bool:
        """Whether an element may pass: False only if none does."""
        return bool(self.values or self.boxes)

    def __contains__(self, element: object) -> bool:
        if self.values is not None:
            return element in self.values  # type: ignore[operator]
        if type_of(element) is None:
            return False
        attributes: Any = {ELEMENT_NAME: element}
        return any(box.admits(attributes) for box in self.boxes)

    def covers(self, other: ElementSet, budget: Budget) -> bool:
        """True only if every element of the other is in this."""
        budget.spend(2)
        if self.values is not None and other.values is not None:
            return self.values.covers(other.values, budget)
        return bool(other.boxes) and all(
            any(mine.covers(box, budget) for mine in self.boxes) for box in other.boxes
        )  # a value set and a predicate are not compared


def element_test(name: str) -> Filter:
    """The test of elements of a membership that has one. Raises FilterSyntaxError if it is not one."""
    from weft.language.grammar import parse_element_test

    return parse_element_test(membership(name).test, stored=True)


def element_set(name: str) -> ElementSet:
    """The elements that a membership tests for, if it has a test."""
    return _known_set(name) if len(name) <= _SHORT else _long_set(name)


def _made(name: str) -> ElementSet:
    from weft.algebra.normalize import normalize  # which imports boxes, and these ask for sets

    return ElementSet.of(normalize(element_test(name), stored=True).boxes)


_known_set, _long_set = lru_cache(maxsize=65_536)(_made), lru_cache(maxsize=256)(_made)


def is_member(name: str, values: Mapping[str, Any]) -> bool | None:
    """The truth of a membership for an event's attributes. Cost: O(elements of the list, and values for all)."""
    attribute, keys, every, test = membership(name)
    elements = elements_of(values.get(attribute))
    if elements is None:
        return None
    if test:
        wanted = element_set(name)
        return any(each in wanted for each in elements)
    if every:
        return keys <= {element_key(each) for each in elements}
    return any(element_key(each) in keys for each in elements)


def possible_truths(name: str, others: Mapping[str, Truths], budget: Budget | None = None) -> Truths:
    """What a membership can be where others have some truths. Cost: O(others, and the values of all), and steps of
    the budget for tests of elements. Raises FilterTooComplexError when it is used up.

    >>> from weft.language.constant import Constant
    >>> from weft.language.membership import element_test_name, membership_name
    >>> a, ab = (membership_name("x", map(Constant.of, values)) for values in ("a", "ab"))
    >>> possible_truths(ab, {a: frozenset((True,))}), possible_truths(a, {ab: frozenset((False,))})
    (frozenset({True}), frozenset({False}))
    >>> possible_truths(element_test_name("x", "LIKE 'a%'"), {a: frozenset((True,))})
    frozenset({True})
    """
    wanted = membership(name)
    known = _Known(wanted.attribute, budget or Budget())
    for other, truths in others.items():
        if other[:1] == MARK and (said := membership(other)).attribute == wanted.attribute:
            known.add(other, said, truths)
    there = known.truths(name, wanted) if known.present else frozenset()
    return there | {None} if known.absent else there


class _Known:
    """What is known of a list."""

    def __init__(self, attribute: str, budget: Budget) -> None:
        self.attribute = attribute
        self.budget = budget
        self.absent = self.present = True  # may the attribute be so?
        self.has: set[str] = set()  # elements that the list has, if it is there
        self.lacks: set[str] = set()  # and those that it has not
        self.some: list[frozenset[str]] = []  # of each it has one
        self.not_all: list[frozenset[str]] = []  # of each it lacks one
        self.some_of: list[str] = []  # memberships with tests that an element passes
        self.none_of: list[str] = []  # and with tests that no element passes

    def add(self, name: str, said: Membership, truths: Truths) -> None:
        self.absent = self.absent and None in truths
        self.present = self.present and truths != {None}
        if False not in truths:
            if said.test:
                self.some_of.append(name)
            elif said.every or len(said.keys) == 1:
                self.has |= said.keys
            else:
                self.some.append(said.keys)
        if True not in truths:
            if said.test:
                self.none_of.append(name)
            elif said.every:
                self.not_all.append(said.keys)
            else:
                self.lacks |= said.keys

    def truths(self, name: str, wanted: Membership) -> Truths:
        """What a membership can be if the attribute is there."""
        if wanted.test:
            return self._of_test(name)
        keys = wanted.keys
        if wanted.every:
            if keys <= self.has:
                return _TRUE
            lacking = any(self._lacks(key) for key in keys) or any(some <= keys for some in self.not_all)
            return _FALSE if lacking else _BOTH
        if keys & self.has or any({key for key in some if not self._lacks(key)} <= keys for some in self.some):
            return _TRUE
        return _FALSE if all(self._lacks(key) for key in keys) else _BOTH

    def _of_test(self, name: str) -> Truths:
        wanted, spend = element_set(name), self.budget.spend
        spend(len(self.has) + sum(map(len, self.some)) + len(self.some_of) + len(self.none_of))
        if any(element_value(key) in wanted for key in self.has):
            return _TRUE
        if any(all(element_value(key) in wanted or self._lacks(key) for key in some) for some in self.some):
            return _TRUE
        if any(wanted.covers(element_set(other), self.budget) for other in self.some_of):
            return _TRUE
        if any(element_set(other).covers(wanted, self.budget) for other in self.none_of):
            return _FALSE
        return _BOTH if wanted else _FALSE

    def _lacks(self, key: str) -> bool:
        if key in self.lacks:
            return True
        self.budget.spend(1 + len(self.none_of))
        return any(element_value(key) in element_set(other) for other in self.none_of)


_TRUE: Truths = frozenset((True,))
_FALSE: Truths = frozenset((False,))
_BOTH: Truths = frozenset((True, False))
