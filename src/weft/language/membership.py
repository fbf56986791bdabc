"""Names of memberships. For the algebra, each (attribute, values) and each (attribute, test of elements) that a HAS
evaluates is an attribute of its own: a bool, or absent where the list is. Everything that holds for attributes then
holds for memberships.

The name begins with a character that no attribute's name begins with, so the two never meet. Memberships of the same
attribute are related; `weft.algebra.element_sets` has the relations, and whoever does not use them takes the safe side.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from weft.language.constant import Constant
from weft.model.lists import element_key
from weft.model.value import Type, from_micros

MARK = "\ufdd0"  # Unicode has set it aside: it is no character, and can be written in UTF-8
ELEMENT_NAME = "\ufdd1"  # set aside as well: in a test of elements, the name of the element
_ANY, _ALL = "*", "&"  # before several values: whether a list has any of them, or all
_TEST = "?"  # before the text of a test of elements
_SHORT = 256  # characters of a name that is parsed once

Truths = frozenset[bool | None]


class Membership(NamedTuple):
    """What a membership's name says: whether a list has any, or with `every` all, of the elements with these keys; or,
    without keys, whether it has an element for which a test, written as inside HAS (...), is TRUE.
    """

    attribute: str
    keys: frozenset[str]
    every: bool = False
    test: str = ""


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


def element_test_name(attribute: str, test: str) -> str:
    """The name of the membership of elements that pass a test, given as text.

    >>> membership(element_test_name("tags", "LIKE 'a%'"))
    Membership(attribute='tags', keys=frozenset(), every=False, test="LIKE 'a%'")
    """
    return f"{MARK}{len(attribute)}:{attribute}{_TEST}{test}"


def is_membership(name: str) -> bool:
    """Whether a name is that of a membership."""
    return name[:1] == MARK


def membership(name: str) -> Membership:
    """What a membership's name says. Raises ValueError for a name that is none.

    >>> membership(membership_name("tags", [Constant.of("rock")]))
    Membership(attribute='tags', keys=frozenset({'srock'}), every=False, test='')
    """
    return _parsed(name) if len(name) <= _SHORT else _long(name)


def _parse(name: str) -> Membership:
    attribute, said = _cut(name[1:])
    if name[:1] != MARK or not attribute or not said:
        raise ValueError(f"{name!r} does not name a membership")
    if said[0] == _TEST:
        if len(said) == 1:
            raise ValueError(f"{name!r} does not name a membership")
        return Membership(attribute, frozenset(), test=said[1:])
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
    if element_key(element_value(key)) != key:
        raise ValueError(f"{key!r} is not an element")
    return key


def attribute_of(name: str) -> str:
    """The attribute that a name in a box tests: itself, or that of its membership."""
    return membership(name).attribute if name[:1] == MARK else name


def member_values(name: str) -> tuple[Constant, ...]:
    """The values that a membership tests; none for a test of elements."""
    return tuple(
        Constant(Type.TIMESTAMP, int(key[1:])) if key[0] == "t" else Constant.of(element_value(key))
        for key in sorted(membership(name).keys)
    )


def element_value(key: str) -> Any:
    """The element of a key, as `element_key` gives it. Raises ValueError for any other text."""
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
