"""Filters as JSON, in the dialects of the CloudEvents Subscriptions specification.

    {"exact": {"type": "order.new"}}    {"prefix": {...}}    {"suffix": {...}}    {"sql": "price < 95"}
    {"all": [...]}    {"any": [...]}    {"not": {...}}       a list: all of them
    {"has": {"tags": "rock"}}    {"has-any": {"tags": ["rock", "pop"]}}    {"has-all": {...}}
    {"has": {"tags": {"prefix": "ro"}}}    {"has": {"sizes": {"sql": "> 5 AND < 9"}}}

`from_json(to_json(f))` means what f means. Whatever is not a filter raises FilterSyntaxError, with the place when it
was given as text. `not` is two-valued, as in the specification: `IS NOT TRUE`. Strings are compared with the text of an
attribute, and `time` is a timestamp: see `time_text`. `has`, `has-any` and `has-all` test lists; the specification does
not have them, and allows for other dialects.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from weft.errors import FilterError, FilterSyntaxError
from weft.language.ast import (
    ELEMENT,
    TRUE,
    And,
    AttributeRef,
    Compare,
    Filter,
    Has,
    HasElement,
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
from weft.language.grammar import parse_element_test
from weft.language.json_source import JsonFault, JsonPath, JsonRoom, checked, read_json, show_path
from weft.language.lexer import check_size
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.language.time_text import TimeText, time_test
from weft.model.limits import MAX_DEPTH
from weft.model.value import Type

DIALECTS = ("exact", "prefix", "suffix", "all", "any", "not", "has", "has-any", "has-all", "sql")


def is_json(text: str) -> bool:
    """Whether a text is JSON rather than a filter's text: it starts with a bracket.

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
    """The filter of a JSON text, or of a decoded one; `limit` is that of `parse`, for what `to_json` wrote.

    Cost: O(characters).

    >>> print(from_json('{"all": [{"prefix": {"type": "order."}}, {"not": {"exact": {"source": "test"}}}]}'))
    type LIKE 'order.%' AND (source = 'test') IS NOT TRUE
    """
    return read_json(source, limit, lambda tree: _Reader(predicates, limit).read(tree, ()))


def to_json(filter: Filter) -> dict[str, Any]:
    """The filter as JSON: in the other dialects where they can express it, else as `sql`. Cost: O(size of the filter).

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
        case Has(left, values, every) if all(each.type is not Type.TIMESTAMP for each in values):
            if len(values) == 1:
                return {"has": {left.name: values[0].python}}
            return {"has-all" if every else "has-any": {left.name: [each.python for each in values]}}
        case HasElement(left, test):
            return {"has": {left.name: _element_json(test)}}
    return {"sql": format_filter(filter)}


def _element_json(test: Filter) -> dict[str, str]:
    if isinstance(test, Like) and not test.compiled.ignore_case:
        for dialect, text in (("prefix", test.compiled.prefix), ("suffix", test.compiled.suffix)):
            if text:
                return {dialect: text}
    return {"sql": format_filter(test)}


class _Reader:
    def __init__(self, predicates: Predicates, limit: int | None) -> None:
        self.predicates = predicates
        self.limit = limit
        self.room = JsonRoom(limit)

    def read(self, tree: Any, path: JsonPath) -> Filter:
        if len(path) > 2 * MAX_DEPTH:
            raise JsonFault(f"a filter can be nested at most {MAX_DEPTH} levels deep", path)
        if isinstance(tree, list):
            return self.combine("all", tree, path) if tree or path else TRUE
        if not isinstance(tree, Mapping):
            raise JsonFault("a filter must be an object or a list of objects", path)
        self.room.take(4, path)
        if len(tree) != 1:
            raise JsonFault(f"a filter object has one dialect, not {len(tree)}", path, 'combine them: {"all": [...]}')
        dialect, body = next(iter(tree.items()))
        path = (*path, dialect)
        match dialect:
            case "all" | "any":
                if not isinstance(body, list):
                    raise JsonFault(f"'{dialect}' takes a list of filters", path)
                return self.combine(dialect, body, path)
            case "not":
                return checked(lambda: Not(Is(self.read(body, path), True)), path)
            case "sql":
                return self.sql(body, path)
            case "exact" | "prefix" | "suffix":
                if not isinstance(body, Mapping) or not body:
                    raise JsonFault(f"'{dialect}' takes an object of attributes and values", path)
                for name, value in body.items():
                    self.room.take(4 + len(str(name)) + (len(value) if isinstance(value, str) else 0), path)
                return conjunction(*(_test(dialect, name, value, (*path, name)) for name, value in body.items()))
            case "has" | "has-any" | "has-all":
                if not isinstance(body, Mapping) or not body:
                    raise JsonFault(f"'{dialect}' takes an object of attributes and values", path)
                return conjunction(*(self.has(dialect, name, value, (*path, name)) for name, value in body.items()))
        close = get_close_matches(str(dialect), DIALECTS, 1)
        known = f"did you mean '{close[0]}'?" if close else "known dialects: " + ", ".join(DIALECTS)
        raise JsonFault(f"unknown dialect {dialect!r}", path, known)

    def sql(self, body: Any, path: JsonPath) -> Filter:
        if not isinstance(body, str):
            raise JsonFault("'sql' takes the text of a filter", path)
        self.room.take(len(body), path)
        try:
            return parse(body, self.predicates, limit=self.limit)
        except FilterSyntaxError as error:
            error.add_note(f"in {show_path(path)}")
            raise

    def has(self, dialect: str, name: Any, given: Any, path: JsonPath) -> Filter:
        if dialect != "has" and not isinstance(given, list):
            raise JsonFault(f"'{dialect}' takes a list of values", path)
        values = [given] if dialect == "has" else given
        if not values:
            raise JsonFault(f"'{dialect}' needs at least one value", path)
        if dialect == "has" and isinstance(given, Mapping):
            return self.has_element(name, given, path)
        self.room.take(4 + len(str(name)), path)
        for value in values:
            if not isinstance(value, str | bool | int | float):
                also = "" if dialect != "has" else ", or an object with a test"
                raise JsonFault(f"'{dialect}' takes strings, numbers and bools{also}", path)
            self.room.take(4 + (len(value) if isinstance(value, str) else 0), path)

        def build() -> Filter:
            if not isinstance(name, str):
                raise FilterError("the name of an attribute must be a string")
            return Has(AttributeRef(name), tuple(map(Constant.of, values)), every=dialect == "has-all")

        return checked(build, path)

    def has_element(self, name: Any, test: Mapping[str, Any], path: JsonPath) -> Filter:
        """`{"prefix": "a"}`, `{"suffix": "a"}` or `{"sql": "> 5 AND < 9"}`, for an element."""
        if len(test) != 1 or next(iter(test)) not in ("prefix", "suffix", "sql"):
            raise JsonFault("a test of elements is an object with 'prefix', 'suffix' or 'sql'", path)
        ((dialect, text),) = test.items()
        path = (*path, dialect)
        if not isinstance(text, str) or not text:
            raise JsonFault(f"'{dialect}' takes a string of one character or more", path)
        self.room.take(8 + len(str(name)) + len(text), path)

        def build() -> Filter:
            if not isinstance(name, str):
                raise FilterError("the name of an attribute must be a string")
            if dialect == "sql":
                check_size(text, self.limit)
                return HasElement(AttributeRef(name), parse_element_test(text, stored=self.limit is not None))
            ends = ("", "%") if dialect == "prefix" else ("%", "")
            return HasElement(AttributeRef(name), literal_like(ELEMENT, ends[0], text, ends[1]))

        try:
            return checked(build, path)
        except FilterSyntaxError as error:
            if dialect == "sql":
                error.add_note(f"in {show_path(path)}")
            raise

    def combine(self, dialect: str, trees: list[Any], path: JsonPath) -> Filter:
        if not trees:
            raise JsonFault("a list of filters must not be empty", path)
        filters = [self.read(tree, (*path, number)) for number, tree in enumerate(trees)]
        return checked(lambda: (conjunction if dialect == "all" else disjunction)(*filters), path)


def _test(dialect: str, name: Any, value: Any, path: JsonPath) -> Filter:
    def build() -> Filter:
        if not isinstance(name, str):
            raise FilterError("the name of an attribute must be a string")
        left = AttributeRef(name)
        if value == "" or (dialect != "exact" and not isinstance(value, str)):
            raise FilterError(f"'{dialect}' takes a string of one character or more")
        if name == "time" and isinstance(value, str):
            return time_test(left, TimeText(dialect), value)
        if dialect == "exact":
            if not isinstance(value, str | bool | int | float):
                raise FilterError("'exact' compares with a string, a number or a bool")
            return Compare(left, Operator.EQ, Constant.of(value))
        ends = ("", "%") if dialect == "prefix" else ("%", "")
        return literal_like(left, ends[0], value, ends[1])

    return checked(build, path)
