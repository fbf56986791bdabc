"""Filters from Amazon EventBridge event patterns and Amazon SNS filter policies.

    {"source": ["aws.ec2"], "detail": {"state": [{"anything-but": "running"}], "c-count": [{"numeric": [">", 5]}]}}

The filter matches an event if and only if the pattern does, by the published rules, for events whose values are
strings, numbers, bools and lists of these. As in EventBridge, every test sees the elements of a list, and one must
pass: each test is a HAS, except for those of `id`, `source`, `type` and `time`, which are never lists. What the
language cannot express is refused, with the path of the key.

All keys of an object must match; of the values in a list, one. Nested keys become dotted names. A missing key matches
nothing except `{"exists": false}`, so that a negative test also requires a value. Weft does not distinguish null from
absent: a pattern with null is refused. What EventBridge refuses is refused here, too, except where its reason is a
limit of size: numbers beyond 5e9, costly wildcards, many combinations of `$or`.

In a pattern that names the same key twice, inside and outside of a `$or`, the last one replaces the others in
EventBridge, which is hardly what its author meant. Such a pattern is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from weft.errors import FilterError
from weft.language.ast import (
    ELEMENT,
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
    Operator,
    conjunction,
    disjunction,
)
from weft.language.builder import literal_like
from weft.language.cidr import CIDR, is_network
from weft.language.constant import Constant
from weft.language.json_source import JsonFault, JsonPath, JsonRoom, checked, read_json
from weft.language.time_text import TimeText, time_matching, time_test
from weft.model.door import WELL_KNOWN
from weft.model.limits import MAX_DEPTH
from weft.model.value import Type

_OR = "$or"
_LOWER, _UPPER = (">", ">="), ("<", "<=")
_KNOWN = ("anything-but", "cidr", "equals-ignore-case", "exists", "numeric", "prefix", "suffix", "wildcard")
_TEXTS = ("prefix", "suffix", "equals-ignore-case", "wildcard")
_RESERVED_IN_OR = frozenset(  # a `$or` in which one of them is a key is an ordinary key itself
    (
        *_KNOWN,
        *("exactly", "html", "=", "<", "<=", ">", ">=", "regex", "not-wildcard", "not-equals-ignore-case"),
        *("date-after", "date-on-or-after", "date-before", "date-on-or-before", "in-date-range"),
        *("ip-address-in-range", "ip-address-not-in-range"),
    )
)
_CIDR = re.compile(r"(?:[0-9.]+/(?:[0-9]|[12][0-9]|3[01])|[0-9a-fA-F:]+/(?:[0-9]{1,2}|1[01][0-9]|12[0-7]))\Z")


def from_eventbridge(pattern: str | Mapping[str, Any], *, limit: int | None = None) -> Filter:
    """The filter of an event pattern or filter policy, given as JSON text or decoded. Raises FilterSyntaxError.

    Cost: O(characters).

    >>> print(from_eventbridge('{"source": ["aws.ec2"], "detail": {"count": [{"numeric": [">", 0, "<=", 5]}]}}'))
    source = 'aws.ec2' AND detail.count HAS (> 0 AND <= 5)
    >>> print(from_eventbridge({"state": [{"anything-but": ["stopped", "stopping"]}]}))
    state HAS ((IN ('stopped', 'stopping')) IS NOT TRUE)
    """
    return read_json(pattern, limit, lambda tree: _Reader(limit).all_of(tree, "", ()))


def is_eventbridge(tree: Any, dialects: tuple[str, ...]) -> bool:
    """Whether a decoded JSON object looks like an event pattern: a list under its keys, none of which is a dialect.

    >>> is_eventbridge({"source": ["a"]}, ("exact",)), is_eventbridge({"exact": {"source": "a"}}, ("exact",))
    (True, False)
    """
    if not isinstance(tree, Mapping) or not tree or any(key in dialects for key in tree):
        return False
    return any(_has_list(value, 0) for value in tree.values())


def _has_list(tree: Any, depth: int) -> bool:
    if isinstance(tree, list):
        return True
    return isinstance(tree, Mapping) and depth < MAX_DEPTH and any(_has_list(each, depth + 1) for each in tree.values())


class _Reader:
    def __init__(self, limit: int | None) -> None:
        self.room = JsonRoom(limit)
        self.names: set[str] = set()  # of the attributes that are tested in the object being read, and so far

    def all_of(self, tree: Any, prefix: str, path: JsonPath, *, in_or: bool = False) -> Filter:
        """An object: all its keys."""
        if not isinstance(tree, Mapping):
            raise JsonFault("an event pattern must be an object", path)
        if not tree:
            raise JsonFault("an object in an event pattern must not be empty", path)
        if len(path) > 2 * MAX_DEPTH:
            raise JsonFault(f"a filter can be nested at most {MAX_DEPTH} levels deep", path)
        parts: list[Filter] = []
        for key, value in tree.items():
            here = (*path, key)
            if not isinstance(key, str) or not key:
                raise JsonFault("the name of an attribute must be a string of one character or more", here)
            self.room.take(4 + len(key), here)
            if in_or and key in _RESERVED_IN_OR:
                raise JsonFault(f"{key!r} cannot be the name of an attribute inside '$or'", here)
            if key == _OR:
                parts.append(self.or_(value, prefix, here))
            elif isinstance(value, Mapping):
                parts.append(self.all_of(value, f"{prefix}{key}.", here, in_or=in_or))
            elif isinstance(value, list):
                parts.append(self.any_of(prefix + key, value, here))
            else:
                raise JsonFault("a key takes a list of values or an object", here, f'write {{"{key}": [...]}}')
        return checked(lambda: conjunction(*parts), path)

    def or_(self, trees: Any, prefix: str, path: JsonPath) -> Filter:
        if not isinstance(trees, list) or len(trees) < 2 or not all(isinstance(tree, Mapping) for tree in trees):
            raise JsonFault("'$or' takes a list of two or more objects", path)
        parts, outside, inside = [], self.names, set[str]()
        for number, tree in enumerate(trees):
            self.names = set(outside)
            parts.append(self.all_of(tree, prefix, (*path, number), in_or=True))
            inside |= self.names
        self.names = inside
        return checked(lambda: disjunction(*parts), path)

    def any_of(self, name: str, values: list[Any], path: JsonPath) -> Filter:
        """A list: one of its values. Plain values of one type stand in one IN."""
        if not values:
            raise JsonFault("a list of values must not be empty", path)
        if name in self.names:
            hint = "EventBridge would use only one of the lists; write one list, or one '$or' around all"
            raise JsonFault(f"{name!r} is tested twice", path, hint)
        self.names.add(name)
        left = _attribute(name, path)
        parts: list[Filter] = []
        plain: dict[Type, list[Constant]] = {}
        for number, value in enumerate(values):
            here = (*path, number)
            self.room.take(2 + len(name) + (len(value) if isinstance(value, str) else 16), here)
            if isinstance(value, Mapping):
                parts.append(self.test(left, value, here))
            elif isinstance(value, str) and name == "time":
                parts.append(checked(lambda text=value: time_test(left, TimeText.EXACT, text), here))  # type: ignore[misc]
            else:
                constant = _constant(value, here)
                plain.setdefault(Type.FLOAT if constant.type.is_number else constant.type, []).append(constant)
        tests = [
            _among(left, constants) if name in WELL_KNOWN else Has(left, tuple(constants))
            for constants in plain.values()
        ]
        return checked(lambda: disjunction(*tests, *parts), path)

    def test(self, left: AttributeRef, tree: Mapping[str, Any], path: JsonPath) -> Filter:
        """An object in a list: a test by its name."""
        if len(tree) != 1:
            raise JsonFault(f"a test has one name, not {len(tree)}", path)
        ((name, body),) = tree.items()
        path = (*path, name)
        match name:
            case "exists":
                if not isinstance(body, bool):
                    raise JsonFault("'exists' takes true or false", path)
                if left.name in WELL_KNOWN:
                    return Not(Is(left, None)) if body else Is(left, None)
                there = HasElement(left, Not(Is(ELEMENT, None)))  # an empty list is as good as none
                return there if body else Not(Is(there, True))
            case "numeric" | "anything-but" | "cidr" | "prefix" | "suffix" | "equals-ignore-case" | "wildcard":
                if left.name in WELL_KNOWN:
                    return self.test_of_value(left, name, body, path)
                tested = self.test_of_value(ELEMENT, name, body, path)
                if isinstance(tested, Compare) and tested.operator is Operator.EQ:
                    assert isinstance(tested.right, Constant)
                    return Has(left, (tested.right,))
                return checked(lambda: HasElement(left, tested), path)
        raise JsonFault(f"unknown test {name!r}", path, "known tests: " + ", ".join(_KNOWN))

    def test_of_value(self, left: AttributeRef, name: str, body: Any, path: JsonPath) -> Filter:
        """The test of an attribute that is never a list, or of an element."""
        match name:
            case "numeric":
                return _numeric(left, body, path)
            case "anything-but":
                return self.anything_but(left, body, path)
            case "cidr":
                return _cidr(left, self.text(name, body, path), path)
        return self.of_text(left, name, body, path)

    def anything_but(self, left: AttributeRef, body: Any, path: JsonPath) -> Filter:
        """The attribute has a value, and it is none of these."""
        if isinstance(body, Mapping):
            if len(body) != 1:
                raise JsonFault(f"a test has one name, not {len(body)}", path)
            ((name, texts),) = body.items()
            path = (*path, name)
            if name not in _TEXTS:
                raise JsonFault(f"'anything-but' does not take {name!r}", path, "it takes: " + ", ".join(_TEXTS))
            several = texts if isinstance(texts, list) else [texts]
            if not several:
                raise JsonFault("a list of values must not be empty", path)
            for text in several:
                if not isinstance(text, str) or (not text and name in ("prefix", "suffix")):
                    texts_only = "strings of one character or more" if name in ("prefix", "suffix") else "strings"
                    raise JsonFault(f"'{name}' in 'anything-but' takes {texts_only}", path)
            excluded = checked(lambda: disjunction(*(self.of_text(left, name, text, path) for text in several)), path)
        else:
            several = body if isinstance(body, list) else [body]
            self.room.take(sum(len(each) + 2 if isinstance(each, str) else 16 for each in several), path)
            plain = all(isinstance(each, str) for each in several) or all(
                isinstance(each, int | float) and not isinstance(each, bool) for each in several
            )
            if not several or not plain:
                raise JsonFault("'anything-but' takes strings or numbers, and not both", path)
            if left.name == "time" and isinstance(several[0], str):
                parts = [checked(lambda text=each: time_test(left, TimeText.EXACT, text), path) for each in several]  # type: ignore[misc]
                excluded = disjunction(*parts)
            else:
                excluded = _among(left, [_constant(each, path) for each in several])
        present = () if left == ELEMENT else (Not(Is(left, None)),)  # an element is never absent
        return checked(lambda: conjunction(*present, Not(Is(excluded, True))), path)

    def of_text(self, left: AttributeRef, name: str, body: Any, path: JsonPath) -> Filter:
        """A test of strings; `prefix` and `suffix` may ignore case."""
        ignore_case = name == "equals-ignore-case"
        if name in ("prefix", "suffix") and isinstance(body, Mapping):
            if set(body) != {"equals-ignore-case"}:
                raise JsonFault(f"'{name}' takes a string, or an object with 'equals-ignore-case'", path)
            body, ignore_case, path = body["equals-ignore-case"], True, (*path, "equals-ignore-case")
        text = self.text(name, body, path)
        if not text and name in ("prefix", "suffix"):
            raise JsonFault(f"'{name}' takes a string of one character or more", path)
        build: Callable[[], Filter]
        if name == "wildcard":
            like = _wildcard(left, text, path)
            return time_matching(left, like) if left.name == "time" else like
        if left.name == "time":
            how = TimeText(name) if name in ("prefix", "suffix") else TimeText.EXACT
            build = lambda: time_test(left, how, text.upper() if ignore_case else text)  # noqa: E731
        else:
            before, after = "%" if name == "suffix" else "", "%" if name == "prefix" else ""
            build = lambda: literal_like(left, before, text, after, ignore_case)  # noqa: E731
        return checked(build, path)

    def text(self, name: str, body: Any, path: JsonPath) -> str:
        if not isinstance(body, str):
            raise JsonFault(f"'{name}' takes a string", path)
        self.room.take(len(body), path)
        return body


def _attribute(name: str, path: JsonPath) -> AttributeRef:
    try:
        return AttributeRef(name)
    except FilterError as error:
        raise JsonFault(str(error), path) from error


def _constant(value: Any, path: JsonPath) -> Constant:
    if value is None:
        hint = 'for an attribute that is absent or null, write {"exists": false}'
        raise JsonFault("null cannot be distinguished from an absent attribute", path, hint)
    if not isinstance(value, str | bool | int | float):
        raise JsonFault("a value must be a string, a number, true or false", path)
    try:
        return Constant.of(value)
    except FilterError as error:
        raise JsonFault(str(error), path) from error


def _among(left: AttributeRef, constants: list[Constant]) -> Filter:
    return Compare(left, Operator.EQ, constants[0]) if len(constants) == 1 else In(left, tuple(constants))


def _numeric(left: AttributeRef, body: Any, path: JsonPath) -> Filter:
    """`["=", 5]`, one bound, or a lower bound and then an upper one."""
    hint = 'write ["=", 5], [">", 0] or [">", 0, "<=", 5]'
    if not isinstance(body, list) or len(body) not in (2, 4):
        raise JsonFault("'numeric' takes a list of one or two operators, each with a number", path, hint)
    signs, numbers = body[::2], body[1::2]
    for number in numbers:
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise JsonFault("'numeric' compares with numbers", path, hint)
    single = len(signs) == 1 and signs[0] in ("=", *_LOWER, *_UPPER)
    if not single and not (len(signs) == 2 and signs[0] in _LOWER and signs[1] in _UPPER):
        raise JsonFault("'numeric' takes =, <, <=, > or >=, or a lower and then an upper bound", path, hint)
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise JsonFault("the lower bound of 'numeric' must be less than the upper one", path)
    bounds = [_constant(number, path) for number in numbers]
    if signs == [">=", "<="]:
        return Between(left, *bounds)
    return conjunction(*(Compare(left, Operator(s), bound) for s, bound in zip(signs, bounds, strict=True)))


def _cidr(left: AttributeRef, text: str, path: JsonPath) -> Filter:
    """A network as EventBridge writes it; one whose address is not its first is another set of addresses there."""
    found = checked(lambda: Call(CIDR, left, (Constant.of(text),)), path)
    if not _CIDR.match(text):
        hint = "write '10.0.0.0/24'; a single address is a value, not a test"
        raise JsonFault("'cidr' takes an address, a slash and fewer bits than the address has", path, hint)
    if not is_network(text):
        raise JsonFault(f"the address of the network {text!r} must be its first", path)
    return found


def _wildcard(left: AttributeRef, text: str, path: JsonPath) -> Like:
    r"""`*` is any text; `\*` and `\\` are the characters themselves."""
    if "**" in text.replace("\\\\", "\0").replace("\\*", "\0"):
        raise JsonFault("'wildcard' does not take two '*' in a row", path)
    literals: list[str] = [""]
    signs = iter(text)
    for sign in signs:
        if sign == "\\":
            escaped = next(signs, "")
            if escaped not in ("*", "\\") or not escaped:
                raise JsonFault("in 'wildcard', a backslash can only escape '*' and itself", path)
            literals[-1] += escaped
        elif sign == "*":
            literals.append("")
        else:
            literals[-1] += sign
    if not any(sign in literal for literal in literals for sign in "%_"):
        return Like(left, "%".join(literals))
    for sign in "\\%_":
        literals = [literal.replace(sign, "\\" + sign) for literal in literals]
    return Like(left, "%".join(literals), "\\")
