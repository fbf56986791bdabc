"""Filter text to tree, by recursive descent. A text gives a tree, or a FilterSyntaxError with the place.

    or     := and { OR and }
    and    := not { AND not }
    not    := NOT not | is
    is     := test { IS [NOT] (TRUE | FALSE | NULL) }
    test   := term [ op term | [NOT] BETWEEN term AND term | [NOT] IN ( term, ... )
                     | [NOT] (LIKE | ILIKE) text [ESCAPE text] | [NOT] HAS (constant | (ANY | ALL) ( constant, ... )
                     | element) ]
    term   := ( or ) | name | constant | predicate ( name, constant, ... )
    element:= ( or ) | op term | [NOT] BETWEEN ... | [NOT] IN ... | [NOT] LIKE ... | IS [NOT] NULL
              | predicate ( constant, ... )

Inside an element, no test has a left side: it is the element of the list.

It is written by hand: there is no grammar to compile at start-up, and at each place it is known what the writer may
have meant.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

from weft.errors import FilterError, FilterSyntaxError
from weft.language.ast import (
    ELEMENT,
    FALSE,
    NULL,
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
    Truth,
    conjunction,
    disjunction,
)
from weft.language.constant import (
    Constant,
    read_float,
    read_int,
    read_negative_float,
    read_negative_int,
    read_string,
    read_timestamp,
)
from weft.language.format import format_constant
from weft.language.lexer import NO_ARITHMETIC, ONLY_THE_CONDITION, RESERVED, TextToken, is_word, tokenize
from weft.language.meaning import compare
from weft.language.predicate import BUILT_IN, NO_PREDICATES, Predicate, Predicates
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.value import Type

Operand = Filter | Constant

_OPERATORS = {str(op): op for op in Operator} | {"<>": Operator.NE}

_INSTEAD = {
    "CONTAINS": "did you mean LIKE '%text%', or HAS 'value' for a list?",
    "STARTSWITH": "did you mean LIKE 'text%'?",
    "ENDSWITH": "did you mean LIKE '%text'?",
    "EXISTS": "did you mean IS NOT NULL?",
    "NOTNULL": "did you mean IS NOT NULL?",
    "ISNULL": "did you mean IS NULL?",
    "STARTS": "did you mean LIKE 'text%'?",
    "ENDS": "did you mean LIKE '%text'?",
    "SELECT": ONLY_THE_CONDITION,
    "REGEXP": "filters have no regular expressions; LIKE has % and _",
    "RLIKE": "filters have no regular expressions; LIKE has % and _",
    "XOR": "write (a AND NOT b) OR (b AND NOT a)",
}


_SOFT = ("ILIKE", "HAS")  # words that are not reserved
_ELEMENT_TESTS = ("op", "BETWEEN", "IN", "LIKE", "IS")  # what a test of an element begins with, besides ILIKE


_TYPES = {  # of SQL, before a string
    "DATE": "a date is a timestamp: write TIMESTAMP {}",
    "DATETIME": "write TIMESTAMP {}",
    "TIMESTAMPTZ": "write TIMESTAMP {}",
    "TIME": "filters have no times of day; compare with TIMESTAMP '2018-02-01T09:30:00Z'",
    "INTERVAL": "filters have no durations; compare with TIMESTAMP '2018-02-01T09:30:00Z'",
}


class ConstantSlot(NamedTuple):
    """A constant in the text: its place, its reader, and its value."""

    start: int
    end: int
    read: Callable[[str], Constant]
    constant: Constant


class Parsed(NamedTuple):
    """A tree, its constants in the order of the text, and the positions of those that its form depends on."""

    tree: Filter
    slots: list[ConstantSlot]
    pinned: frozenset[int]


def parse_text(text: str, predicates: Predicates, stored: bool = False) -> Parsed:
    """Parse one filter, whose size was checked; the limits of users do not hold for one that Weft has `stored`."""
    parser = _Parser(text, predicates, stored)
    return Parsed(parser.read(parser.whole), parser.slots, frozenset(parser.pinned))


def parse_element_test(text: str, stored: bool = False) -> Filter:
    """Parse what may stand inside HAS (...).

    >>> print(parse_element_test("> 5 AND < 9"))
    > 5 AND < 9
    """
    parser = _Parser(text, NO_PREDICATES, stored)
    return parser.read(parser.whole_element_test)


class _Parser:
    def __init__(self, text: str, predicates: Predicates, stored: bool) -> None:
        self.text = text
        self.predicates = predicates
        self.tokens = tokenize(text, stored)
        self.at = 0
        self.depth = 0
        self.slots: list[ConstantSlot] = []
        self.places: dict[int, int] = {}  # id of a constant -> its position in `slots`
        self.pinned: set[int] = set()
        self.stored = stored
        self.calls = 0  # of predicates
        self.likes = 0
        self.tests = 0
        self.repeated = 0  # characters that the text of the tree will have more than once
        self.in_element = False  # whether tests have no left side

    # -- tokens ---------------------------------------------------------------------------------

    @property
    def next(self) -> TextToken:
        return self.tokens[self.at]

    def take(self) -> TextToken:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, *kinds: str) -> TextToken | None:
        token = self.tokens[self.at]
        if token.kind in kinds or (token.kind == "mark" and token.text in kinds):
            self.at += 1
            return token
        return None

    def expect(self, sign: str, after: str) -> TextToken:
        return self.accept(sign) or self.fail(f"expected '{sign}' {after}")

    def fail(self, message: str, token: TextToken | None = None, hint: str = "") -> TextToken:
        token = token or self.next
        if token.kind == "end" and message.startswith("expected"):
            message += ", but the text ends"
        raise FilterSyntaxError(message, self.text, token.start, token.end, hint)

    def deeper(self, token: TextToken) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"a filter can be nested at most {MAX_DEPTH} levels deep", token)

    # -- conditions -----------------------------------------------------------------------------

    def read(self, whole: Callable[[], Filter]) -> Filter:
        """The tree of the whole text. Raises FilterSyntaxError."""
        try:
            return whole()
        except FilterSyntaxError:
            raise
        except RecursionError:  # not nested deeply, but the caller has used up the stack
            raise FilterSyntaxError("the filter is nested too deeply for the remaining stack", self.text) from None
        except FilterError as error:  # a node refused its parts: say where
            token = self.tokens[max(0, self.at - 1)]
            raise FilterSyntaxError(str(error), self.text, token.start, token.end) from error

    def whole(self) -> Filter:
        if self.next.kind == "end":
            self.fail("an empty text is not a filter", hint="the filter that matches everything is TRUE")
        if is_word(self.next.text, ("WHERE", "HAVING")) and self.begins_a_condition(self.at + 1):
            self.fail(f"unexpected {self.next.text}", hint=ONLY_THE_CONDITION)
        tree = self.condition(self.next, self.or_())
        if self.next.kind != "end":
            self.unexpected()
        return tree

    def whole_element_test(self) -> Filter:
        """The whole text is what may stand inside HAS (...)."""
        self.in_element = True
        tree = self.condition(self.next, self.or_())
        if self.next.kind != "end":
            self.unexpected()
        return tree

    def begins_a_condition(self, at: int) -> bool:
        """Whether a token can only be the first of a condition, if a name is before it."""
        token = self.tokens[at]
        if token.kind == "NOT":
            after = self.tokens[at + 1]
            return after.kind not in ("BETWEEN", "IN", "LIKE") and not is_word(after.text, _SOFT)
        if token.kind == "name":
            return not is_word(token.text, _SOFT)
        return token.kind in ("quoted", "number", "string", "TRUE", "FALSE") or token.text == "("

    def unexpected(self) -> None:
        token = self.next
        if token.text == ")":
            self.fail("unbalanced ')'")
        hint = ""
        if token.kind == "name":
            word, before = token.text.upper(), self.tokens[self.at - 1].text.upper()
            close = get_close_matches(word, sorted({*RESERVED, *_SOFT}), 1)
            hint = _INSTEAD.get(word) or _INSTEAD.get(before) or (f"did you mean {close[0]}?" if close else "")
        if token.kind == "op":
            hint = "comparisons do not chain; write a < x AND x < b, or x BETWEEN a AND b; test conditions with IS TRUE"
        if token.text in ("+", "-"):
            hint = self.hyphenated() or NO_ARITHMETIC
        self.fail(f"expected AND, OR or the end, not {token.text!r}", token, hint)

    def hyphenated(self) -> str:
        """The hint for a name with hyphens; none if the hyphen stands alone."""
        first, last = self.at - 1, self.at + 1
        if not (self.joined(first) and self.joined(self.at)):
            return ""
        while self.joined(first - 1) and self.joined(first - 2):
            first -= 2
        while last + 1 < len(self.tokens) and self.joined(last) and self.joined(last + 1):
            last += 2
        name = self.text[self.tokens[first].start : self.tokens[last].end]
        return f"names with '-' go in double quotes: \"{name}\"; there is no arithmetic" if name[0].isalpha() else ""

    def joined(self, at: int) -> bool:
        """Whether a word and the hyphen after it, or a hyphen and the word after it, have no space between them."""
        if at < 0 or at + 1 >= len(self.tokens):
            return False
        one, other = self.tokens[at], self.tokens[at + 1]
        word = other if one.text == "-" else one
        return one.end == other.start and "-" in (one.text, other.text) and word.text[:1].isalnum()

    def condition(self, token: TextToken, term: Operand, end: int = 0) -> Filter:
        """The term as a filter; of the constants, only TRUE and FALSE are filters.

        The term reaches from the token to the one before `end`, or to the last token read.
        """
        if isinstance(term, Filter):
            return term
        if term.type is Type.BOOL:
            return Truth(bool(term.value))
        written = format_constant(term)
        last = self.tokens[(end or self.at) - 1]
        place = TextToken(token.kind, "", token.start, max(last.end, token.end))
        self.fail(f"{written} is not a condition", place, "compare it with something: x = " + written)
        raise AssertionError

    def or_(self) -> Operand:
        first = self.next
        term = self.and_()
        if self.next.kind != "OR":
            return term
        parts = [self.condition(first, term)]
        while self.accept("OR"):
            parts.append(self.condition(self.next, self.and_()))
        return disjunction(*parts)

    def and_(self) -> Operand:
        first = self.next
        term = self.not_()
        if self.next.kind != "AND":
            return term
        parts = [self.condition(first, term)]
        while self.accept("AND"):
            parts.append(self.condition(self.next, self.not_()))
        return conjunction(*parts)

    def not_(self) -> Operand:
        token = self.accept("NOT")
        if token is None:
            return self.is_()
        self.deeper(token)
        operand = self.condition(self.next, self.not_())
        self.depth -= 1
        return Not(operand)

    def is_(self) -> Operand:
        first = self.next
        term = self.test()
        end = self.at
        while self.accept("IS"):
            negated = self.accept("NOT")
            word = self.accept("NULL", "TRUE", "FALSE") or self.fail("expected NULL, TRUE or FALSE after IS")
            if isinstance(term, Constant) and term.type is not Type.BOOL and word.kind == "NULL":
                term = FALSE  # a constant is never NULL
            else:
                value = {"NULL": None, "TRUE": True, "FALSE": False}[word.kind]
                term = Is(self.condition(first, term, end), value)
            if negated:
                term = Not(term)
        return term

    # -- tests ----------------------------------------------------------------------------------

    def test(self) -> Operand:
        if self.in_element and (self.next.kind in _ELEMENT_TESTS or self.is_next("ILIKE")):
            self.count_test()
            return ELEMENT if self.next.kind == "IS" else self.test_of(ELEMENT)
        left = self.term()
        if isinstance(left, AttributeRef | Constant) and self.tokens[self.at - 1].text != ")":
            self.count_test()
        return self.test_of(left)

    def test_of(self, left: Operand) -> Operand:
        token = self.next
        if token.kind not in ("op", "NOT", "BETWEEN", "IN", "LIKE") and not self.is_next(*_SOFT):
            return left
        if isinstance(left, Filter) and not isinstance(left, AttributeRef):
            self.fail("a condition cannot be compared", token, "test it with IS TRUE, IS FALSE or IS NULL")
        assert isinstance(left, AttributeRef | Constant)
        if token.kind == "op":
            operator = _OPERATORS[self.take().text]
            return self.compare(left, operator, self.operand())
        negated = self.accept("NOT")
        if self.is_next("ILIKE"):
            self.take()
            tested = self.like(left, ignore_case=True)
        elif self.is_next("HAS"):
            tested = self.has(left, self.take())
        else:
            hint = "did you mean IS NOT NULL?" if self.next.kind == "NULL" else ""
            word = self.accept("BETWEEN", "IN", "LIKE") or self.fail(
                "expected BETWEEN, IN, LIKE, ILIKE or HAS after NOT", hint=hint
            )
            tested = {"BETWEEN": self.between, "IN": self.in_, "LIKE": self.like}[word.kind](left)
        return Not(tested) if negated else tested

    def count_test(self, tests: int = 1) -> None:
        self.tests += tests
        if self.tests > LIMITS.tests and not self.stored:
            self.fail(
                f"the filter has more than {LIMITS.tests:,} tests", self.tokens[self.at - 1], "split it, or use IN"
            )

    def is_next(self, *words: str) -> bool:
        """Whether ILIKE or HAS comes next. They are not reserved: after a term, no other name can follow."""
        return self.next.kind == "name" and is_word(self.next.text, words)

    def compare(self, left: AttributeRef | Constant, operator: Operator, right: AttributeRef | Constant) -> Filter:
        if isinstance(left, AttributeRef):
            return Compare(left, operator, right)
        if isinstance(right, AttributeRef):
            return Compare(right, operator.mirrored, left)
        self.pin(left, right)
        return Truth(compare(operator, left.python, right.python))

    def between(self, left: AttributeRef | Constant) -> Filter:
        low = self.operand()
        if not self.accept("AND"):
            self.fail("expected AND in x BETWEEN low AND high")
        high = self.operand()
        if isinstance(left, AttributeRef) and isinstance(low, Constant) and isinstance(high, Constant):
            return Between(left, low, high)
        return conjunction(self.compare(left, Operator.GE, low), self.compare(left, Operator.LE, high))

    def in_(self, left: AttributeRef | Constant) -> Filter:
        self.expect("(", "after IN")
        if self.next.text == ")":
            self.fail("IN needs at least one value")
        values = [self.operand()]
        while self.accept(","):
            values.append(self.operand())
        self.expect(")", "or ',' in the list of IN")
        constants = tuple(value for value in values if isinstance(value, Constant))
        if isinstance(left, AttributeRef) and len(constants) == len(values):
            return In(left, constants)
        self.tests += len(values)
        self.repeated += len(values) * len(str(left.name if isinstance(left, AttributeRef) else left.value))
        if (self.tests > LIMITS.tests or self.repeated > LIMITS.text) and not self.stored:
            self.fail("the list of IN is too long for one that has attributes", hint="split it")
        return disjunction(*(self.compare(left, Operator.EQ, value) for value in values))

    def has(self, left: AttributeRef | Constant, word: TextToken) -> Filter:
        if not isinstance(left, AttributeRef):
            self.fail("HAS tests an attribute, not a constant", word, "write tags HAS 'rock'")
            raise AssertionError
        if self.in_element:
            self.fail("the elements of a list are not lists", word)
        several = self.take() if self.is_next("ANY", "ALL") else None
        if several is None:
            if self.tests_elements():
                return HasElement(left, self.element_test())
            return Has(left, (self.element(),))
        what = several.text.upper()
        self.expect("(", f"after HAS {what}")
        if self.next.text == ")":
            self.fail(f"HAS {what} needs at least one value")
        values = [self.element()]
        while self.accept(","):
            values.append(self.element())
        self.expect(")", f"or ',' in the list of HAS {what}")
        self.count_test(len(values) - 1)  # each is a test of its own
        return Has(left, tuple(values), what == "ALL")

    def tests_elements(self) -> bool:
        """Whether a test comes next, and not a constant."""
        if self.next.text == "(" and self.next.kind == "mark":
            after = self.tokens[self.at + 1]
            if after.kind in ("string", "number", "TRUE", "FALSE", "NULL") or after.text in ("+", "-", ")"):
                hint = "several values: HAS ANY ('a', 'b') or HAS ALL ('a', 'b'); several tests: HAS (> 5 AND < 9)"
                self.fail("expected a value, a test, ANY or ALL after HAS", hint=hint)
            return True
        called = self.next.kind == "name" and self.tokens[self.at + 1].text == "("
        return self.next.kind in _ELEMENT_TESTS or self.is_next("ILIKE") or self.next.kind == "NOT" or called

    def element_test(self) -> Filter:
        self.in_element = True
        first = self.next
        if first.text == "(" and first.kind == "mark":
            tested = self.condition(first, self.term())
        elif first.kind == "IS":
            self.count_test()
            self.take()
            negated = self.accept("NOT")
            if not self.accept("NULL"):
                self.fail("expected NULL or NOT NULL after HAS IS", hint="for bools write HAS TRUE or HAS FALSE")
            tested = Is(ELEMENT, None)
            tested = Not(tested) if negated else tested
        elif first.kind == "NOT":
            after = self.tokens[self.at + 1]
            if after.kind not in ("BETWEEN", "IN", "LIKE") and not is_word(after.text, ("ILIKE",)):
                self.fail(
                    "expected BETWEEN, IN, LIKE or ILIKE after NOT",
                    after,
                    "put other conditions in parentheses: HAS (NOT > 5); or write x NOT HAS ...",
                )
            self.count_test()
            tested = self.condition(first, self.test_of(ELEMENT))
        else:
            tested = self.condition(first, self.test())
        self.in_element = False
        return tested

    def element(self) -> Constant:
        token = self.next
        value = self.operand()
        if not isinstance(value, Constant):
            hint = f"strings go in single quotes: '{token.text.strip(chr(34))}'" if token.kind != "mark" else ""
            self.fail("HAS takes constants", token, hint)
            raise AssertionError
        return value

    def like(self, left: AttributeRef | Constant, ignore_case: bool = False) -> Filter:
        word = "ILIKE" if ignore_case else "LIKE"
        pattern, escape = self.pattern(word), None
        if self.next.kind == "name" and is_word(self.next.text, ("ESCAPE",)):
            self.take()
            escape = self.pattern("ESCAPE")
        self.likes += 1
        if self.likes > LIMITS.likes and not self.stored:
            self.fail(f"the filter has more than {LIMITS.likes:,} LIKE tests", self.tokens[self.at - 1], "split it")
        if isinstance(left, AttributeRef):
            return Like(left, pattern, escape, ignore_case)
        self.pin(left)
        tested = Like(AttributeRef("constant"), pattern, escape, ignore_case)
        return Truth(tested.compiled.matches(str(left.value))) if left.type is Type.STRING else NULL

    def pattern(self, after: str) -> str:
        if self.next.kind != "string":
            self.fail(f"expected a string after {after}", hint=self.pattern_hint())
        constant = self.constant(self.take(), read_string)
        self.pin(constant)
        return str(constant.value)

    def pattern_hint(self) -> str:
        if self.next.kind == "quoted":
            return f"strings go in single quotes, names in double quotes: '{self.next.text[1:-1]}'"
        return "a pattern is a string constant: x LIKE 'a%'"

    # -- terms ----------------------------------------------------------------------------------

    def operand(self) -> AttributeRef | Constant:
        token = self.next
        term = self.term()
        if term is NULL:
            self.fail("a comparison with NULL is never true", token, "did you mean IS NULL?")
        if not isinstance(term, AttributeRef | Constant):
            self.fail("a condition cannot be compared", token, "test it with IS TRUE, IS FALSE or IS NULL")
            raise AssertionError
        return term

    def term(self) -> Operand:
        token = self.take()
        kind = token.kind
        if kind == "name":
            if self.next.kind == "string" and is_word(token.text, ("TIMESTAMP",)):
                return self.constant(self.take(), read_timestamp)
            if self.next.kind == "string" and is_word(token.text, _TYPES):
                self.fail(f"unknown type {token.text}", token, _TYPES[token.text.upper()].format(self.next.text))
            if self.next.text == "(" and self.next.kind == "mark":
                return self.call(token)
            self.no_attribute(token)
            return AttributeRef(token.text)
        if kind == "number":
            return self.constant(token, read_int if token.text.isdigit() else read_float)
        if kind == "string":
            return self.constant(token, read_string)
        if kind == "quoted":
            self.no_attribute(token)
            return AttributeRef(token.text[1:-1].replace('""', '"'))
        if kind in ("TRUE", "FALSE"):
            return Constant(Type.BOOL, kind == "TRUE")
        if kind == "mark" and token.text in "+-":
            return self.signed(token)
        if kind == "mark" and token.text == "(":
            self.deeper(token)
            inner = self.or_()
            self.expect(")", "to close the parenthesis")
            self.depth -= 1
            return inner
        if kind == "NULL":
            return self.null(token)
        self.fail(
            "expected an attribute, a value or '('" + ("" if kind == "end" else f", not {token.text!r}"),
            token,
        )
        raise AssertionError

    def no_attribute(self, token: TextToken) -> None:
        if self.in_element:
            hint = "tests inside HAS begin with an operator: HAS (> 5 AND < 9), HAS LIKE 'a%'"
            self.fail("inside HAS, the elements are compared with constants", token, hint)

    def signed(self, sign: TextToken) -> Constant:
        number = self.take()
        if number.kind != "number":
            self.fail("expected a number after the sign", number)
        whole = number.text.isdigit()
        if sign.text == "+":
            return self.constant(number, read_int if whole else read_float)
        return self.constant(number, read_negative_int if whole else read_negative_float)

    def null(self, token: TextToken) -> Filter:
        if self.next.kind in ("op", "BETWEEN", "IN", "LIKE") or self.is_next(*_SOFT):
            self.fail("a comparison with NULL is never true", token, "did you mean IS NULL?")
        return NULL

    def call(self, name: TextToken) -> Filter:
        predicate = self.predicates.get(name.text)
        if predicate is None:
            hint = "there are no functions, only predicates: " + ", ".join(sorted({*self.predicates, *BUILT_IN}))
            self.fail(f"unknown predicate {name.text!r}", name, hint)
            raise AssertionError
        self.calls += 1
        if self.calls > LIMITS.calls and not self.stored:
            self.fail(f"the filter calls predicates more than {LIMITS.calls} times", name, "split it")
        self.deeper(self.take())
        if self.in_element:
            return self.call_on_element(predicate, name)
        attribute = self.operand()
        if not isinstance(attribute, AttributeRef):
            self.fail(f"the first argument of {name.text} must be an attribute", self.tokens[self.at - 1])
            raise AssertionError
        arguments: list[Constant] = []
        while self.accept(","):
            argument = self.operand()
            if not isinstance(argument, Constant):
                self.fail(f"{name.text} takes one attribute, then constants", self.tokens[self.at - 1])
                raise AssertionError
            arguments.append(argument)
        self.expect(")", f"or ',' in the arguments of {name.text}")
        self.depth -= 1
        return Call(predicate, attribute, tuple(arguments))

    def call_on_element(self, predicate: Predicate, name: TextToken) -> Filter:
        if BUILT_IN.get(name.text) is not predicate:
            self.fail(f"{name.text} cannot be called inside HAS", name, f"only {', '.join(sorted(BUILT_IN))} can")
        arguments: list[Constant] = []
        while self.next.text != ")":
            if arguments:
                self.expect(",", f"or ')' in the arguments of {name.text}")
            argument = self.operand()
            assert isinstance(argument, Constant), "there are no attributes inside HAS"
            arguments.append(argument)
        self.take()
        self.depth -= 1
        self.count_test()
        return Call(predicate, ELEMENT, tuple(arguments))

    def constant(self, token: TextToken, read: Callable[[str], Constant]) -> Constant:
        try:
            constant = read(token.text)
        except FilterError as error:
            raise FilterSyntaxError(str(error), self.text, token.start, token.end) from None
        self.places[id(constant)] = len(self.slots)
        self.slots.append(ConstantSlot(token.start, token.end, read, constant))
        return constant

    def pin(self, *constants: Constant) -> None:
        """The form of the tree depends on these constants, so they are part of the shape."""
        self.pinned.update(self.places[id(constant)] for constant in constants if id(constant) in self.places)
