"""Filters as JSON, in the dialects of the CloudEvents Subscriptions specification.

    {"exact": {"type": "order.new"}}    {"prefix": {...}}    {"suffix": {...}}    {"sql": "price < 95"}
    {"all": [...]}    {"any": [...]}    {"not": {...}}       a list: all of them

Laws: `from_json(to_json(f))` means what f means; whatever is no filter raises FilterSyntaxError, with the place when
it was given as text. `not` is two-valued, as the specification has it: `IS NOT TRUE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from weft.errors import FilterError, FilterSyntaxError
from weft.language.ast import (
    TRUE,
    And,
    AttributeRef,
    Compare,
    Filter,
    Is,
    Like,
    Not,
    Operator,
    Or,
    conjunction,
    disjunction,
)
from weft.language.builder import literal_like
from weft.language.constant import Constant
from weft.language.format import format_filter
from weft.language.lexer import check_size
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.value import Type

Path = tuple[str | int, ...]

_DIALECTS = ("exact", "prefix", "suffix", "all", "any", "not", "sql")


def is_json(text: str) -> bool:
    """Whether a filter's text is meant as JSON: it starts with a bracket, as no text of the language does.

    >>> is_json(' {"exact": {"type": "a"}}'), is_json("(x > 5)")
    (True, False)
    """
    return text.lstrip()[:1] in ("{", "[")


def from_json(
    source: str | Mapping[str, Any] | list[Any],
    predicates: Predicates = NO_PREDICATES,
    *,
    limit: int | None = None,
) -> Filter:
    """The filter of a JSON text, or of what it decodes to; `limit` is that of `parse`, for what `to_json` wrote.

    >>> print(from_json('{"all": [{"prefix": {"type": "order."}}, {"not": {"exact": {"source": "test"}}}]}'))
    type LIKE 'order.%' AND (source = 'test') IS NOT TRUE
    """
    text = source if isinstance(source, str) else ""
    tree = _decode(text, limit) if isinstance(source, str) else source
    try:
        return _read(tree, (), _Reading(predicates, limit))
    except _Wrong as wrong:
        start, end = _locate(text, wrong.path)
        where = "" if text else f" (in {_show(wrong.path)})" if wrong.path else ""
        raise FilterSyntaxError(wrong.message + where, text, start, end, wrong.hint) from None
    except RecursionError:
        raise FilterSyntaxError("the filter is nested too deep for the stack that is left", text) from None


def to_json(filter: Filter) -> dict[str, Any]:
    """The filter in the dialects: natively where they can say it, else as `sql`.

    >>> from weft import parse
    >>> to_json(parse("type LIKE 'order.%' AND price < 95"))
    {'all': [{'prefix': {'type': 'order.'}}, {'sql': 'price < 95'}]}
    """
    match filter:
        case And(operands):
            return {"all": [to_json(operand) for operand in operands]}
        case Or(operands):
            return {"any": [to_json(operand) for operand in operands]}
        case Not(Is(operand, True)):
            return {"not": to_json(operand)}
        case Compare(left, Operator.EQ, Constant(Type.STRING, value)) if value:  # the specification has no empty ones
            return {"exact": {left.name: value}}
        case Like(left) if not filter.compiled.ignore_case:
            for dialect, text in (("prefix", filter.compiled.prefix), ("suffix", filter.compiled.suffix)):
                if text:
                    return {dialect: {left.name: text}}
    return {"sql": format_filter(filter)}


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, message: str, path: Path, hint: str = "") -> None:
        self.message, self.path, self.hint = message, path, hint


class _Reading:
    """What a reader knows, and how many more characters it takes: what is decoded already has no text to measure."""

    def __init__(self, predicates: Predicates, limit: int | None) -> None:
        self.predicates = predicates
        self.limit = limit
        self.room = LIMITS.text if limit is None else limit

    def take(self, size: int, path: Path) -> None:
        self.room -= size
        if self.room < 0:
            raise _Wrong(f"the filter is longer than {LIMITS.text if self.limit is None else self.limit} bytes", path)


def _read(tree: Any, path: Path, reading: _Reading) -> Filter:
    if len(path) > 2 * MAX_DEPTH:
        raise _Wrong(f"a filter may be nested {MAX_DEPTH} deep at most", path)
    if isinstance(tree, list):
        return _combine("all", tree, path, reading) if tree or path else TRUE
    if not isinstance(tree, Mapping):
        raise _Wrong("a filter must be an object or a list of them", path)
    reading.take(4, path)
    if len(tree) != 1:
        raise _Wrong(f"a filter object has one dialect, not {len(tree)}", path, 'combine them in {"all": [...]}')
    dialect, body = next(iter(tree.items()))
    path = (*path, dialect)
    match dialect:
        case "all" | "any":
            if not isinstance(body, list):
                raise _Wrong(f"'{dialect}' takes a list of filters", path)
            return _combine(dialect, body, path, reading)
        case "not":
            return _checked(lambda: Not(Is(_read(body, path, reading), True)), path)
        case "sql":
            if not isinstance(body, str):
                raise _Wrong("'sql' takes a filter's text", path)
            reading.take(len(body), path)
            try:
                return parse(body, reading.predicates, limit=reading.limit)
            except FilterSyntaxError as error:
                error.add_note(f"in {_show(path)}")
                raise
        case "exact" | "prefix" | "suffix":
            if not isinstance(body, Mapping) or not body:
                raise _Wrong(f"'{dialect}' takes an object of attributes and values", path)
            for name, value in body.items():
                reading.take(4 + len(str(name)) + (len(value) if isinstance(value, str) else 0), path)
            return conjunction(*(_test(dialect, name, value, (*path, name)) for name, value in body.items()))
    close = get_close_matches(str(dialect), _DIALECTS, 1)
    known = f"did you mean '{close[0]}'?" if close else "known dialects: " + ", ".join(_DIALECTS)
    raise _Wrong(f"unknown dialect {dialect!r}", path, known)


def _combine(dialect: str, trees: list[Any], path: Path, reading: _Reading) -> Filter:
    if not trees:
        raise _Wrong("a list of filters must not be empty", path)
    filters = [_read(tree, (*path, number), reading) for number, tree in enumerate(trees)]
    return _checked(lambda: (conjunction if dialect == "all" else disjunction)(*filters), path)


def _test(dialect: str, name: Any, value: Any, path: Path) -> Filter:
    def build() -> Filter:
        if not isinstance(name, str):
            raise FilterError("an attribute's name must be a string")
        left = AttributeRef(name)
        if dialect == "exact":
            if not isinstance(value, str | bool | int | float):
                raise FilterError("'exact' compares with a string, a number or a bool")
            return Compare(left, Operator.EQ, Constant.of(value))
        if not isinstance(value, str) or not value:
            raise FilterError(f"'{dialect}' takes a text of one character or more")
        ends = ("", "%") if dialect == "prefix" else ("%", "")
        return literal_like(left, ends[0], value, ends[1])

    return _checked(build, path)


def _checked(build: Any, path: Path) -> Filter:
    try:
        return build()  # type: ignore[no-any-return]
    except FilterSyntaxError:
        raise
    except FilterError as error:
        raise _Wrong(str(error), path) from error


# -- JSON text and places in it ------------------------------------------------------------------


def _decode(text: str, limit: int | None) -> Any:
    check_size(text, limit)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise FilterSyntaxError(f"malformed JSON: {error.msg}", text, error.pos) from None
    except RecursionError:
        raise FilterSyntaxError(f"a filter may be nested {MAX_DEPTH} deep at most", text) from None
    except (_Wrong, ValueError) as error:  # ValueError: a number of thousands of digits
        message = error.message if isinstance(error, _Wrong) else "a number does not fit in 64 bits"
        raise FilterSyntaxError(message, text, *_fault(text, getattr(error, "hint", ""))) from None


_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def _fault(text: str, sought: str) -> tuple[int, int]:
    """Where a JSON text has what we refuse though a decoder reads it: a repeated key, NaN, an endless number."""
    keys: list[set[str]] = [set()]
    pieces = list(_PIECES.finditer(text))
    for piece, after in zip(pieces, [*pieces[1:], None], strict=True):
        sign = piece[0]
        if sign == "{":
            keys.append(set())
        elif sign == "}" and len(keys) > 1:
            keys.pop()
        elif sign[0] == '"' and after is not None and after[0] == ":":
            if sign in keys[-1] and sign == sought:
                return piece.span()
            keys[-1].add(sign)
        elif sign == sought or (not sought and sign.lstrip("-").isdigit() and len(sign) > 4000):
            return piece.span()
    return 0, 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise _Wrong(f"an object repeats the key {key!r}", (), json.dumps(key, ensure_ascii=False))
        tree[key] = value
    return tree


def _no_constant(name: str) -> Any:
    raise _Wrong(f"{name} is no JSON", (), name)


def _show(path: Path) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _locate(text: str, path: Path) -> tuple[int, int]:
    """Where the last step of a path stands in a valid JSON text: a key, or the start of an item."""
    decoder, at, end = json.JSONDecoder(), 0, 0
    for step in path if text else ():
        at = _next(text, at, "") + 1  # past the bracket
        number = 0
        while True:
            at = end = _next(text, at, ",")
            if isinstance(step, str):
                key, end = decoder.raw_decode(text, at)
                value = _next(text, end, ":")
                if key == step:
                    start, at = at, value
                    break
                at = decoder.raw_decode(text, value)[1]
            elif number == step:
                start, end = at, at + 1
                break
            else:
                at = decoder.raw_decode(text, at)[1]
                number += 1
    return (start, end) if path and text else (0, 0)


def _next(text: str, at: int, skip: str) -> int:
    while text[at].isspace() or text[at] in skip:
        at += 1
    return at
