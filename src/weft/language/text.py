"""Filter text, parsed fast. `parse` gives the tree of the grammar; a cached shape never changes a tree.

Filters that differ only in constants share one parsed shape. The shape of a text is everything that is not a constant,
with the type of each constant; signs, the length of an IN and LIKE patterns are part of it. Two texts of one shape
have the same tokens, because a constant always has a character on each side that cannot belong to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from threading import Lock
from typing import NamedTuple

from weft.errors import FilterError, FilterSyntaxError
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
    Operator,
    Or,
    walk,
)
from weft.language.constant import Constant
from weft.language.format import least_written
from weft.language.grammar import Parsed, parse_text
from weft.language.lexer import NUMBER, QUOTED, STRING, check_size, is_longer
from weft.language.long_text import parse_long
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.limits import LIMITS, WRITTEN

_CONSTANT = re.compile(rf"({STRING}|(?<![\w.]){NUMBER}|{QUOTED})")
_KINDS = {"'": "s", '"': '"'}
_LONGEST_SHAPE = 2048  # longer texts are not cached: they rarely come twice

ShapeKey = tuple[str | tuple[str, ...], ...]


class TextShape(NamedTuple):
    """A parsed shape: the readers of its constants, and a function that builds a tree from them."""

    tree: Filter
    readers: tuple[Callable[[str], Constant], ...]
    slots: dict[int, int]  # id of a constant in `tree` -> its position
    build: Callable[[list[Constant]], Filter]


_shapes: dict[ShapeKey, TextShape] = {}
_pins: dict[ShapeKey, tuple[int, ...]] = {}  # the constants that the form depends on: they are part of the key
_sizes: dict[ShapeKey, int] = {}  # roughly the bytes of each shape, in the order in which they were added
_held = 0  # bytes of all shapes
_learning = Lock()


def parse(text: str, predicates: Predicates = NO_PREDICATES, *, limit: int | None = None) -> Filter:
    """The filter of a text. Raises FilterSyntaxError, with the place and a hint.

    A text can have at most 64 KiB (`LIMITS.text`). The text of a filter, as Weft writes it, may be longer than what the
    user wrote, and is read as well. The text of a normal form may be longer still; pass `limit=LIMITS.stored_text`.

    Cost: O(characters). Texts that differ only in constants share most of the work.

    >>> print(parse("magnitude>=5 and depth<70"))
    magnitude >= 5 AND depth < 70
    """
    if isinstance(text, str) and len(text) > _LONGEST_SHAPE:
        if limit is None and is_longer(text, LIMITS.text):
            return _read_written(text, predicates)
        check_size(text, limit)
        return _read_long(text, predicates, limit is not None)
    try:
        found = shape_of(text)
        if found is not None:
            shape, constants = found
            return shape.build([read(piece) for read, piece in zip(shape.readers, constants, strict=True)])
    except FilterSyntaxError:
        raise
    except (FilterError, RecursionError):
        pass  # a constant out of range, or no room on the stack: let the grammar say so
    check_size(text)
    return parse_text(text, predicates).tree


def _read_long(text: str, predicates: Predicates, stored: bool = False) -> Filter:
    tree = parse_long(text, stored)
    return parse_text(text, predicates, stored).tree if tree is None else tree


def _read_written(text: str, predicates: Predicates) -> Filter:
    """A text beyond the limit, if Weft wrote it for a filter that a user can write within the limit."""
    if not is_longer(text, WRITTEN * LIMITS.text):
        try:
            tree = _read_long(text, predicates)
            if least_written(tree) <= LIMITS.text and str(tree) == text:
                return tree
        except FilterError:
            pass  # whatever it is, it is too long
    check_size(text)
    raise AssertionError


def parse_many(texts: Iterable[str], predicates: Predicates = NO_PREDICATES) -> list[Filter]:
    """The filters of many texts; the `position` of an error is that of its text. Cost: that of `parse` for each text.

    >>> [str(each) for each in parse_many(["x>5", "y=3"])]
    ['x > 5', 'y = 3']
    """
    filters = []
    for number, text in enumerate(texts):
        try:
            filters.append(parse(text, predicates))
        except FilterError as error:
            raise error.at(number) from None
    return filters


def shape_of(text: str) -> tuple[TextShape, list[str]] | None:
    """The shape of a text and its constants as written; None if it has no shape, is too long, or is not a filter."""
    found = key_of(text)
    if found is None:
        return None
    key, constants = found
    shape = known_shape(key, constants) or _learn(text, key, constants)
    return None if shape is None else (shape, constants)


def key_of(text: str) -> tuple[ShapeKey, list[str]] | None:
    """What texts of one shape have in common, and the constants as written; None if the text is too long."""
    check_size(text)
    if len(text) > _LONGEST_SHAPE:
        return None
    pieces = _CONSTANT.split(text)
    constants = pieces[1::2]
    kinds = [_KINDS.get(piece[0]) or ("i" if piece.isdigit() else "f") for piece in constants]
    if '"' in kinds:  # quoted names are not constants: their text is part of the shape
        kinds = [piece if kind == '"' else kind for piece, kind in zip(constants, kinds, strict=True)]
        constants = [piece for piece in constants if piece[0] != '"']
    return (*pieces[::2], *kinds), constants


def known_shape(key: ShapeKey, constants: list[str]) -> TextShape | None:
    """The shape of a key, if a text of it was parsed before."""
    shape = _shapes.get(key)
    if shape is None and (pins := _pins.get(key)) is not None:
        shape = _shapes.get(_pinned(key, pins, constants))
    return shape


def _learn(text: str, key: ShapeKey, constants: list[str]) -> TextShape | None:
    """Parse the text and remember its shape; None if the grammar refuses it or the shape cannot be cached."""
    try:
        parsed = parse_text(text, NO_PREDICATES)
    except FilterSyntaxError:
        return None
    written = [found.span() for found in _CONSTANT.finditer(text) if found[0][0] != '"']
    if [(slot.start, slot.end) for slot in parsed.slots] != written:  # a comment may contain what looks like a constant
        return None
    tests = (each.test if isinstance(each, HasElement) else each for each in walk(parsed.tree))
    if any(isinstance(node, Call) for test in tests for node in walk(test)):
        return None
    shape = _shape(parsed)
    pins = tuple(sorted(parsed.pinned)) if parsed.pinned and not isinstance(key[-1], tuple) else None
    with _learning:
        if pins is not None:
            _remember(key, len(text))
            _pins[key] = pins
            key = _pinned(key, pins, constants)
        _remember(key, len(text))
        _shapes[key] = shape
    return shape


def _remember(key: ShapeKey, length: int) -> None:
    """Count a shape of a text of that length, and forget the oldest shapes to make room."""
    global _held  # noqa: PLW0603 - under the lock
    _held -= _sizes.pop(key, 0)
    size = 2_000 + 100 * length  # measured: 75 bytes for each character of a long text, more for a short one
    while _sizes and _held + size > LIMITS.shapes:
        oldest = next(iter(_sizes))
        _held -= _sizes.pop(oldest)
        _shapes.pop(oldest, None)
        _pins.pop(oldest, None)
    _sizes[key] = size
    _held += size


def _pinned(key: ShapeKey, pins: tuple[int, ...], constants: list[str]) -> ShapeKey:
    return (*key, tuple(constants[place] for place in pins))


def _shape(parsed: Parsed) -> TextShape:
    slots = {id(slot.constant): place for place, slot in enumerate(parsed.slots)}
    readers = tuple(slot.read for slot in parsed.slots)
    return TextShape(parsed.tree, readers, slots, _builder(parsed.tree, slots))


def _builder(node: Filter, slots: dict[int, int]) -> Callable[[list[Constant]], Filter]:
    """A function that rebuilds the tree with other constants in its slots."""
    match node:
        case Compare(left, operator, Constant() as right) if id(right) in slots:
            return _compare_builder(left, operator, slots[id(right)])
        case Between(left, low, high):
            at, to = slots.get(id(low)), slots.get(id(high))
            return lambda constants: Between(
                left, low if at is None else constants[at], high if to is None else constants[to]
            )
        case In(left, values):
            places = [slots.get(id(value)) for value in values]
            return lambda constants: In(
                left,
                tuple(v if p is None else constants[p] for v, p in zip(values, places, strict=True)),
            )
        case Has(left, values, every):
            places = [slots.get(id(value)) for value in values]
            return lambda constants: Has(
                left, tuple(v if p is None else constants[p] for v, p in zip(values, places, strict=True)), every
            )
        case HasElement(left, test):
            inner = _builder(test, slots)
            return lambda constants: HasElement(left, inner(constants))
        case Not(operand):
            inner = _builder(operand, slots)
            return lambda constants: Not(inner(constants))
        case Is(operand, value):
            inner = _builder(operand, slots)
            return lambda constants: Is(inner(constants), value)
        case And(operands) | Or(operands):
            return _nary_builder(node, [_builder(operand, slots) for operand in operands])
    return lambda _: node


# Nodes of a known shape are valid. They are made without the usual checks, since there are very many.

_new = object.__new__
_set_left, _set_operator, _set_right = (Compare.__dict__[name].__set__ for name in ("left", "operator", "right"))


def _compare_builder(left: AttributeRef, operator: Operator, place: int) -> Callable[[list[Constant]], Filter]:
    def build(constants: list[Constant]) -> Filter:
        made = _new(Compare)
        _set_left(made, left)
        _set_operator(made, operator)
        _set_right(made, constants[place])
        return made

    return build


def _nary_builder(
    node: And | Or, parts: list[Callable[[list[Constant]], Filter]]
) -> Callable[[list[Constant]], Filter]:
    kind, levels = type(node), node.levels
    set_operands, set_levels = (kind.__dict__[name].__set__ for name in ("operands", "levels"))

    def build(constants: list[Constant]) -> Filter:
        made = _new(kind)
        set_operands(made, tuple([part(constants) for part in parts]))
        set_levels(made, levels)
        return made

    return build


def _after_fork() -> None:
    """In the child of a fork, the thread that held the lock does not exist."""
    global _learning  # noqa: PLW0603
    _learning = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
