"""Long filter texts, read in one pass over their tests. The reader returns the tree of the grammar, or None.

Long texts are mostly lists: chains of AND and OR, and IN with many values. One regular expression reads a whole test
and what follows it, so that a test costs one step where the grammar passes four tokens through seven functions.
Everything else, and every error, is left to the grammar, which can say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NoReturn

from weft.errors import FilterError, FilterSyntaxError, FilterTooComplexError
from weft.language.ast import (
    AttributeRef,
    Between,
    Filter,
    In,
    Is,
    Like,
    Not,
    Operator,
    comparison,
    conjunction,
    conjunction_of_tests,
    disjunction,
)
from weft.language.constant import (
    Constant,
    read_float,
    read_int,
    read_ints,
    read_negative_float,
    read_negative_int,
    read_string,
    read_timestamp,
)
from weft.language.lexer import NUMBER, RESERVED, STRING, is_word
from weft.model.limits import LIMITS, MAX_DEPTH

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_VALUE = rf"[+-]?\s*{NUMBER}(?![\w.])|{STRING}|(?i:TIMESTAMP)\s*{STRING}"
_AFTER = re.compile(r"\s*(?P<next>\)|(?i:AND)\b(?!\.)|(?i:OR)\b(?!\.)|\Z)")
_IS = re.compile(r"\s*(?i:IS)\s+(?P<negated>(?i:NOT)\s+)?(?P<truth>(?i:NULL|TRUE|FALSE)\b(?!\.))")
_TRUTHS = {"NULL": None, "TRUE": True, "FALSE": False}
_VALUES = re.compile(_VALUE)
_PLAIN_INTS = re.compile(r"[0-9,\s]*")
_OPERATORS = {str(op): op for op in Operator} | {"<>": Operator.NE}


@cache
def _step() -> re.Pattern[str]:
    """What reads a test. Compiling it takes 7 ms, which is done when it is first used."""
    return re.compile(
        rf"""\s*(?:
          (?P<open>\()
        | (?P<not>(?i:NOT)\b(?!\.))
        | (?:
            (?P<left>(?>{_NAME}))\s*(?:
              (?P<op><=|>=|<>|!=|=|<|>)\s*(?:(?P<value>{_VALUE})|(?P<right>(?>{_NAME})))
            | (?P<negated>\b(?i:NOT)\s+)?(?:
                \b(?i:IN)\s*\((?P<list>\s*(?>{_VALUE})\s*(?:,\s*(?>{_VALUE})\s*)*+)\)
              | \b(?P<like>(?i:I?LIKE))\s*(?P<pattern>{STRING})
              | \b(?i:BETWEEN)\b\s*(?P<low>(?>{_VALUE}))\s*\b(?i:AND)\b\s*(?P<high>(?>{_VALUE}))
              )
            | \b(?i:IS)\s+(?P<absent>(?i:NOT)\s+)?(?P<null>(?i:NULL)\b)
            )?
            \s*(?P<next>\)|(?i:AND)\b(?!\.)|(?i:OR)\b(?!\.)|\Z)
          )
        )""",
        re.VERBOSE,
    )


def parse_long(text: str, stored: bool = False) -> Filter | None:
    """The filter of a text; None if the grammar must read it.

    Raises FilterSyntaxError past the limits on tests and constants and FilterTooComplexError past that on attributes,
    unless the text was `stored` by Weft itself.
    """
    reader = _Reader(text, stored)
    try:
        return reader.read()
    except FilterError as error:
        if error is reader.refusal:
            raise
        return None


def plain_comparisons(text: str) -> list[tuple[str, str, str]] | None:
    """The comparisons of attributes with constants that a text is a conjunction of, as (attribute, operator, constant
    as written); None if it is anything else. BETWEEN is two comparisons.

    >>> plain_comparisons("x >= 5 AND y BETWEEN 1 AND 2.5")
    [('x', '>=', '5'), ('y', '>=', '1'), ('y', '<=', '2.5')]
    >>> plain_comparisons("x >= 5 OR y = 1")
    """
    tests: list[tuple[str, str, str]] = []
    at, step = 0, _step().match
    while True:
        found = step(text, at)
        if found is None or found.lastgroup != "next":
            return None
        left, operator, value, low, high, negated, following = found.group(
            "left", "op", "value", "low", "high", "negated", "next"
        )
        if _is_reserved(left):
            return None
        if value:
            tests.append((left, operator, value))
        elif low and not negated:
            tests += ((left, ">=", low), (left, "<=", high))
        else:
            return None
        if not following:
            return tests
        if following == ")" or len(following) == len("OR"):
            return None
        at = found.end()


@lru_cache(4096)
def _is_reserved(name: str) -> bool:
    return is_word(name, RESERVED)


class _Reader:
    def __init__(self, text: str, stored: bool) -> None:
        self.text = text
        self.most_steps = len(text) if stored else LIMITS.tokens  # of the loop: tests, signs and words around them
        self.most_tests = len(text) if stored else LIMITS.tests
        self.most_names = len(text) if stored else LIMITS.names
        self.most_constants = len(text) if stored else LIMITS.text // 2  # as many as fit into a text, with commas
        self.most_likes = len(text) if stored else LIMITS.likes
        self.likes = 0
        self.constants = 0  # of IN
        self.refusal: FilterError | None = None
        self.names: dict[str, AttributeRef] = {}
        self.ors: list[Filter] = []  # of the group that is being read
        self.ands: list[Filter] = []
        self.nots = 0
        self.plain = True  # whether `ands` are tests only, none of them negated
        self.outer: list[tuple[list[Filter], list[Filter], int, bool]] = []  # the groups around it

    def read(self) -> Filter | None:
        text, step = self.text, _step().match
        at = depth = tests = 0
        for _ in range(self.most_steps):
            found = step(text, at)
            if found is None:
                return None
            at = found.end()
            kind = found.lastgroup
            if kind == "next":
                node = self.test(found)
                if node is None:
                    return None
                tests += 1
                if tests > self.most_tests:
                    self.refuse(f"the filter has more than {self.most_tests:,} tests", *found.span("left"))
                if len(self.names) > self.most_names:
                    self.refusal = FilterTooComplexError(
                        f"the filter tests more than {self.most_names:,} attributes; split it"
                    )
                    raise self.refusal
                if self.nots:
                    depth -= self.nots
                    self.take(node)
                else:
                    self.ands.append(node)
                following = found["next"]
                while following == ")":
                    if not self.outer:
                        return None
                    node = self.group()
                    self.ors, self.ands, self.nots, self.plain = self.outer.pop()
                    self.plain = False
                    depth -= 1 + self.nots
                    while (tested := _IS.match(text, at)) is not None:
                        at = tested.end()
                        node = Is(node, _TRUTHS[tested["truth"].upper()])
                        node = Not(node) if tested["negated"] else node
                    self.take(node)
                    after = _AFTER.match(text, at)
                    if after is None:
                        return None
                    at, following = after.end(), after["next"]
                if not following:
                    return None if self.outer else self.group()
                if len(following) == len("OR"):
                    self.ors.append(self.all_of())
                    self.ands, self.plain = [], True
                continue
            depth += 1
            if depth > MAX_DEPTH:
                return None
            if kind == "not":
                self.nots += 1
                self.plain = False
            else:
                self.outer.append((self.ors, self.ands, self.nots, self.plain))
                self.ors, self.ands, self.nots, self.plain = [], [], 0, True
        return None

    def refuse(self, reason: str, start: int, end: int, hint: str = "split it, or use IN") -> NoReturn:
        self.refusal = FilterSyntaxError(reason, self.text, start, end, hint)
        raise self.refusal

    def take(self, node: Filter) -> None:
        for _ in range(self.nots):
            node = Not(node)
        self.nots = 0
        self.ands.append(node)

    def all_of(self) -> Filter:
        if len(self.ands) == 1:
            return self.ands[0]
        return conjunction_of_tests(self.ands) if self.plain else conjunction(*self.ands)

    def group(self) -> Filter:
        last = self.all_of()
        return disjunction(*self.ors, last) if self.ors else last

    def test(self, found: re.Match[str]) -> Filter | None:
        name, operator, value = found.group("left", "op", "value")
        left = self.name(name)
        if left is None:
            return None
        if value:
            return comparison(left, _OPERATORS[operator], read_int(value) if value.isdigit() else _constant(value))
        if operator:
            right = self.name(found["right"])
            return None if right is None else comparison(left, _OPERATORS[operator], right)
        node: Filter
        if found["list"]:
            node = In(left, self.values(found))
        elif found["pattern"]:
            self.likes += 1
            if self.likes > self.most_likes:
                self.refuse(f"the filter has more than {self.most_likes:,} LIKE tests", *found.span("left"), "split it")
            pattern = str(read_string(found["pattern"]).value)
            node = Like(left, pattern, ignore_case=len(found["like"]) == len("ILIKE"))
        elif found["low"]:
            node = Between(left, _constant(found["low"]), _constant(found["high"]))
        elif found["null"]:
            self.plain = False
            return Not(Is(left, None)) if found["absent"] else Is(left, None)
        else:
            return left
        if found["negated"]:
            self.plain = False
            return Not(node)
        return node

    def values(self, found: re.Match[str]) -> tuple[Constant, ...]:
        text = found["list"]
        plain = _PLAIN_INTS.fullmatch(text)
        pieces = text.split(",") if plain else _VALUES.findall(text)
        self.constants += len(pieces)
        if self.constants > self.most_constants:
            self.refuse(f"the lists of IN have more than {self.most_constants:,} values", *found.span("left"))
        return tuple(read_ints(pieces) if plain else [_constant(piece.strip()) for piece in pieces])

    def name(self, name: str) -> AttributeRef | None:
        known = self.names.get(name)
        if known is None and not is_word(name, RESERVED):
            known = self.names[name] = AttributeRef(name)
        return known


def _constant(text: str) -> Constant:
    sign = text[0]
    if sign == "'":
        return read_string(text)
    if sign in "Tt":
        return read_timestamp(text[text.index("'") :])
    read: Callable[[str], Constant]
    if sign in "+-":
        text = text[1:].lstrip()
        whole = text.isdigit()
        if sign == "-":
            read = read_negative_int if whole else read_negative_float
        else:
            read = read_int if whole else read_float
        return read(text)
    return read_int(text) if text.isdigit() else read_float(text)
