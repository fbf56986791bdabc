"""Names of memberships. For the algebra, each (attribute, values) that a HAS tests is an attribute of its own: a bool,
or absent where the list is. Everything that holds for attributes then holds for memberships.

The name begins with a character that no attribute's name begins with, so the two never meet. Memberships of the same
attribute are related, and `possible_truths` says how; whoever does not ask takes the safe side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from weft.language.constant import Constant
from weft.model.lists import element_key, elements_of
from weft.model.value import Type, from_micros

MARK = "\ufdd0"  # Unicode has set it aside: it is no character, and can be written in UTF-8
_ANY, _ALL = "*", "&"  # before several values: whether a list has any of them, or all
_SHORT = 256  # characters of a name that is parsed once

Truths = frozenset[bool | None]


class Membership(NamedTuple):
    """What a membership's name says: whether a list has any, or with `every` all, of the elements with these keys."""

    attribute: str
    keys: frozenset[str]
    every: bool = False


def membership_name(attribute: str, constants: Iterable[Constant], every: bool = False) -> str:
    """The name of a membership; equal sets of constants have equal names.

    >>> membership_name("tags", [Constant.of(1)]) == membership_name("tags", [Constant.of(1.0), Constant.of(1)])
    True
    """
    keys = sorted({str(element_key(constant.python)) for constant in constants})
    if len(keys) == 1:
        return f"{MARK}{len(attribute)}:{attribute}{keys[0]}"
    several = "".join([f"{len(key)}:{key}" for key in keys])
    return f"{MARK}{len(attribute)}:{attribute}{_ALL if every else _ANY}{several}"


def is_membership(name: str) -> bool:
    """Whether a name is that of a membership."""
    return name[:1] == MARK


def is_several(name: str) -> bool:
    """Whether a membership is about several values."""
    return len(membership(name).keys) > 1


def membership(name: str) -> Membership:
    """What a membership's name says. Raises ValueError for a name that is none.

    >>> membership(membership_name("tags", [Constant.of("rock")]))
    Membership(attribute='tags', keys=frozenset({'srock'}), every=False)
    """
    return _parsed(name) if len(name) <= _SHORT else _long(name)


def _parse(name: str) -> Membership:
    attribute, said = _cut(name[1:])
    if name[:1] != MARK or not attribute or not said:
        raise ValueError(f"{name!r} does not name a membership")
    if said[0] not in (_ANY, _ALL):
        return Membership(attribute, frozenset((_checked(said),)))
    keys: list[str] = []
    rest = said[1:]
    while rest:
        key, rest = _cut(rest)
        keys.append(_checked(key))
    if len(keys) < 2 or sorted({*keys}) != keys:
        raise ValueError(f"{name!r} does not name a membership")
    return Membership(attribute, frozenset(keys), said[0] == _ALL)


_parsed, _long = lru_cache(maxsize=65_536)(_parse), lru_cache(maxsize=256)(_parse)


def _cut(text: str) -> tuple[str, str]:
    """The text that begins with its length, and what follows. Raises ValueError."""
    length, colon, _ = text[:12].partition(":")
    if not colon or not (length.isascii() and length.isdigit()):
        raise ValueError(f"{text[:40]!r} does not begin with a length")
    begin = len(length) + 1
    end = begin + int(length)
    if end > len(text):
        raise ValueError(f"{text[:40]!r} is shorter than it says")
    return text[begin:end], text[end:]


def _checked(key: str) -> str:
    if element_key(_value(key)) != key:
        raise ValueError(f"{key!r} is not an element")
    return key


def attribute_of(name: str) -> str:
    """The attribute that a name in a box tests: itself, or that of its membership."""
    return membership(name).attribute if name[:1] == MARK else name


def member_values(name: str) -> tuple[Constant, ...]:
    """The values that a membership tests."""
    return tuple(
        Constant(Type.TIMESTAMP, int(key[1:])) if key[0] == "t" else Constant.of(_value(key))
        for key in sorted(membership(name).keys)
    )


def is_member(name: str, values: Mapping[str, Any]) -> bool | None:
    """The truth of a membership for an event's attributes. Cost: O(elements of the list, and values for all)."""
    attribute, keys, every = membership(name)
    elements = elements_of(values.get(attribute))
    if elements is None:
        return None
    if every:
        return keys <= {element_key(each) for each in elements}
    return any(element_key(each) in keys for each in elements)


def possible_truths(name: str, others: Mapping[str, Truths]) -> Truths:
    """What a membership can be where others have some truths. Cost: O(others, and the values of all).

    >>> a, ab = (membership_name("x", map(Constant.of, values)) for values in ("a", "ab"))
    >>> possible_truths(ab, {a: frozenset((True,))}), possible_truths(a, {ab: frozenset((False,))})
    (frozenset({True}), frozenset({False}))
    """
    attribute, wanted, every = membership(name)
    absent = present = True  # may the attribute be so?
    has: set[str] = set()  # elements that the list has, if it is there
    lacks: set[str] = set()  # and those that it has not
    some: list[frozenset[str]] = []  # of each it has one
    not_all: list[frozenset[str]] = []  # of each it lacks one
    for other, truths in others.items():
        if other[:1] != MARK or (said := membership(other)).attribute != attribute:
            continue
        absent = absent and None in truths
        present = present and truths != {None}
        if False not in truths:
            if said.every or len(said.keys) == 1:
                has |= said.keys
            else:
                some.append(said.keys)
        if True not in truths:
            if said.every:
                not_all.append(said.keys)
            else:
                lacks |= said.keys
    truths_there: set[bool | None] = {True, False}
    if every:
        if wanted <= has:
            truths_there = {True}
        elif wanted & lacks or any(keys <= wanted for keys in not_all):
            truths_there = {False}
    elif wanted & has or any(keys - lacks <= wanted for keys in some):
        truths_there = {True}
    elif wanted <= lacks:
        truths_there = {False}
    return frozenset((truths_there if present else set()) | ({None} if absent else set()))


def _value(key: str) -> Any:
    kind, text = key[:1], key[1:]
    match kind:
        case "s":
            return text
        case "b":
            return text == "1"
        case "n":
            return int(text) if text.lstrip("-").isdigit() else float(text)
        case "t":
            return from_micros(int(text))
    raise ValueError(f"{key!r} is not an element")
