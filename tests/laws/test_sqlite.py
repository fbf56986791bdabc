"""The meaning of filters is SQL's: SQLite, asked in SQL that this test writes itself, gives every truth Weft gives.

Each attribute is four columns, one for each line of values (numbers, strings, bools, timestamps); a present value fills
one of them, so that unlike types meet as NULL by SQL's own rules and nothing here imitates the code under test.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from strategies import EXAMPLES, SMILE
from weft.language.ast import (
    ELEMENT,
    And,
    AttributeRef,
    Between,
    Compare,
    Filter,
    Has,
    HasElement,
    In,
    Is,
    Like,
    Not,
    Operator,
    Or,
    Truth,
    conjunction,
    disjunction,
)
from weft.language.constant import Constant
from weft.language.meaning import truth
from weft.model.value import Type, Value

NAMES = ("a", "b", "c")
LINES = ("num", "str", "bool", "ts")
LINE_OF = {Type.INT: "num", Type.FLOAT: "num", Type.STRING: "str", Type.BOOL: "bool", Type.TIMESTAMP: "ts"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

INTS = (-(2**63), -(2**63) + 1, -(2**53) - 1, -(2**53), -1, 0, 1, 2, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2)
MORE_INTS = (2**62, 2**63 - 513, 2**63 - 512, 2**63 - 2, 2**63 - 1)
FLOATS = (-1e308, -float(2**63), -float(2**53), -1.0, -0.0, 0.0, 5e-324, 0.1, 0.5, 1.0, 1.5, float(2**53))
MORE_FLOATS = (float(2**53 + 2), float(2**62), 9223372036854774784.0, float(2**63), 1e19, 1.7976931348623157e308)
STRINGS = ("", " ", "A", "B", "a", "aa", "ab", "aB", "b", "ba", "abab", "a%b", "a_b", "\\", "%", "_", "'", '"', "1")
ODD_STRINGS = ("\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}", "\ufffd", "\U00010000", SMILE)
ODDER_STRINGS = (f"a{SMILE}b", f"{SMILE}{SMILE}", "\U0010fffd", "\N{LATIN SMALL LETTER SHARP S}", "\n", "a\nb")
MICROS = tuple(timedelta(microseconds=n) for n in (-1, 0, 1))
MOMENTS = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    *(datetime(2018, 2, 1, tzinfo=UTC) + micro for micro in MICROS),
    *(EPOCH + micro for micro in MICROS),
)
CONSTANTS: tuple[Value, ...] = (
    *(*INTS, *MORE_INTS, *FLOATS, *MORE_FLOATS, *STRINGS, *ODD_STRINGS, *ODDER_STRINGS, *MOMENTS),
    *(True, False) * 4,
)
VALUES: tuple[Value | None, ...] = (*CONSTANTS, *(None, math.nan, math.inf, -math.inf) * 2)

# -- random filters and events, of a plain generator: the same on every run --------------------------------


def some_value(random: Random) -> Value | None:
    pick = random.random()
    if pick < 0.03:
        return random.choice(("ß", "SS", "\u017f", "\u212a", "K", "İ", "Σ", "ς"))
    if pick < 0.1:
        return random.choice((random.randrange(-(2**63), 2**63), random.uniform(-10, 10), random.randrange(-3, 4)))
    if pick < 0.2:
        return "".join(random.choices("abAB%_\\" + SMILE, k=random.randrange(6)))
    return random.choice(VALUES)


def some_list(random: Random) -> Any:
    """A list of values, or a value."""
    if random.random() < 0.8:
        return some_value(random)
    return [some_value(random) for _ in range(random.randrange(5))]


def some_constant(random: Random, like: Constant | None = None) -> Constant:
    """A constant, mostly of the same line of values as another one, so that comparisons are not all NULL."""
    while True:
        value = some_value(random)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        constant = Constant.of(value)
        if like is None or LINE_OF[constant.type] == LINE_OF[like.type] or random.random() < 0.05:
            return constant


def some_pattern(random: Random) -> tuple[str, str | None]:
    escape = random.choice((None, None, "\\", "!", "%", "_", "a"))
    signs = [sign for sign in random.choices(f"abAßk%%%__\\'{SMILE}", k=random.randrange(6)) if sign != escape]
    if escape is not None:
        for _ in range(random.randrange(3)):
            signs.insert(random.randrange(len(signs) + 1), escape + random.choice(("%", "_", escape)))
    return "".join(signs), escape


def some_test(random: Random) -> Filter:
    left = AttributeRef(random.choice(NAMES))
    first = some_constant(random)
    match random.randrange(16):
        case 0:
            return Truth(random.choice((True, False, None)))
        case 1:
            return left
        case 2 | 3 | 4:
            return Compare(left, random.choice(list(Operator)), first)
        case 5 | 6:
            return Compare(left, random.choice(list(Operator)), AttributeRef(random.choice(NAMES)))
        case 7:
            return Between(left, first, some_constant(random, first))
        case 8 | 9:
            return In(left, (first, *(some_constant(random, first) for _ in range(random.randrange(4)))))
        case 10:
            return Is(left, random.choice((None, True, False)))
        case 11 | 12:
            return Has(
                left, (first, *(some_constant(random) for _ in range(random.randrange(3)))), random.random() < 0.3
            )
        case 13 | 14:
            return HasElement(left, some_element_test(random, 2))
    return Like(left, *some_pattern(random), random.random() < 0.5)


def some_element_test(random: Random, depth: int) -> Filter:
    first = some_constant(random)
    match random.randrange(9 if depth else 6):
        case 0 | 1:
            return Compare(ELEMENT, random.choice(list(Operator)), first)
        case 2:
            return Between(ELEMENT, first, some_constant(random, first))
        case 3:
            return In(ELEMENT, (first, *(some_constant(random, first) for _ in range(random.randrange(4)))))
        case 4:
            return Is(ELEMENT, None)
        case 6:
            return Not(some_element_test(random, depth - 1))
        case 7:
            return Is(some_element_test(random, depth - 1), random.choice((True, False, None)))
        case 8:
            parts = [some_element_test(random, depth - 1) for _ in range(2)]
            return random.choice((conjunction, disjunction))(*parts)
    return Like(ELEMENT, *some_pattern(random), random.random() < 0.5)


def some_filter(random: Random, depth: int) -> Filter:
    if depth == 0 or random.random() < 0.1:
        return some_test(random)
    match random.randrange(6):
        case 0:
            return Not(some_filter(random, depth - 1))
        case 1:
            return Is(some_filter(random, depth - 1), random.choice((True, False, None)))
        case 2 | 3:
            return conjunction(*(some_filter(random, depth - 1) for _ in range(random.randrange(2, 4))))
    return disjunction(*(some_filter(random, depth - 1) for _ in range(random.randrange(2, 4))))


# -- SQL --------------------------------------------------------------------------------------------


def named(left: AttributeRef) -> str:
    """What the columns of an attribute begin with; those of an element are in a table of their own."""
    return "e" if left == ELEMENT else left.name


class Sql:
    """A filter as an SQL expression; its constants are parameters, in the order of the text."""

    def __init__(self) -> None:
        self.parameters: list[Any] = []

    def constant(self, constant: Constant) -> str:
        self.parameters.append(int(constant.value) if constant.type is Type.BOOL else constant.value)
        return "?"

    def compare(self, left: AttributeRef, operator: str, constant: Constant) -> str:
        return f"({named(left)}_{LINE_OF[constant.type]} {operator} {self.constant(constant)})"

    def element(self, name: str, constant: Constant) -> str:
        column = f"e_{LINE_OF[constant.type]}"
        same = f"{column} = {self.constant(constant)}"
        return f"EXISTS (SELECT 1 FROM element WHERE event = n AND name = '{name}' AND {same})"

    def render(self, node: Filter) -> str:
        match node:
            case Truth(value):
                return {True: "1", False: "0", None: "NULL"}[value]
            case AttributeRef(name):
                return f"{name}_bool"
            case Compare(left, operator, AttributeRef(right)):
                return f"COALESCE({', '.join(f'{named(left)}_{line} {operator} {right}_{line}' for line in LINES)})"
            case Compare(left, operator, Constant() as right):
                return self.compare(left, str(operator), right)
            case Between(left, low, high) if LINE_OF[low.type] == LINE_OF[high.type]:
                column = f"{named(left)}_{LINE_OF[low.type]}"
                return f"({column} BETWEEN {self.constant(low)} AND {self.constant(high)})"
            case Between(left, low, high):
                return f"({self.compare(left, '>=', low)} AND {self.compare(left, '<=', high)})"
            case In(left, values) if len({LINE_OF[value.type] for value in values}) == 1:
                column = f"{named(left)}_{LINE_OF[values[0].type]}"
                return f"({column} IN ({', '.join(map(self.constant, values))}))"
            case In(left, values):
                return f"({' OR '.join(self.compare(left, '=', value) for value in values)})"
            case Has(left, values, every):
                there = " AND ".join(f"{named(left)}_{line} IS NULL" for line in LINES)
                tests = (" AND " if every else " OR ").join(self.element(left.name, value) for value in values)
                return f"(CASE WHEN {there} AND {named(left)}_list IS NULL THEN NULL ELSE {tests} END)"
            case HasElement(left, test):
                there = " AND ".join(f"{named(left)}_{line} IS NULL" for line in LINES)
                passes = self.render(test)
                some = f"EXISTS (SELECT 1 FROM element WHERE event = n AND name = '{left.name}' AND {passes})"
                return f"(CASE WHEN {there} AND {named(left)}_list IS NULL THEN NULL ELSE {some} END)"
            case Like(left, pattern, escape, True):
                self.parameters.append(folded(pattern, escape))
                return f"(casefold({named(left)}_str) LIKE ? ESCAPE '{ESCAPE}')"
            case Like(left, pattern, escape):
                self.parameters.append(pattern)
                if escape is None:
                    return f"({named(left)}_str LIKE ?)"
                self.parameters.append(escape)
                return f"({named(left)}_str LIKE ? ESCAPE ?)"
            case Is(AttributeRef() as left, None):
                return f"({' AND '.join(f'{named(left)}_{line} IS NULL' for line in LINES)})"
            case Is(operand, value):
                return f"({self.render(operand)} IS {({True: 'TRUE', False: 'FALSE', None: 'NULL'})[value]})"
            case Not(operand):
                return f"(NOT {self.render(operand)})"
            case And(operands):
                return f"({' AND '.join(map(self.render, operands))})"
            case Or(operands):
                return f"({' OR '.join(map(self.render, operands))})"
        raise AssertionError(node)


ESCAPE = "\x1b"  # in no pattern of this test


def folded(pattern: str, escape: str | None) -> str:
    """A pattern with its literal characters folded, under an escape that no folding can make."""
    said, signs = "", iter(pattern)
    for sign in signs:
        if sign == escape:
            literal = next(signs)
            said += ESCAPE + literal if literal in "%_" else literal.casefold()
        else:
            said += sign if sign in "%_" else sign.casefold()
    return said


def cells(value: Value | None) -> dict[str, int | float | str | None]:
    """What a value puts in the columns of its attribute."""
    row: dict[str, int | float | str | None] = dict.fromkeys(LINES)
    if isinstance(value, bool):
        row["bool"] = int(value)
    elif isinstance(value, int | float):
        row["num"] = None if math.isnan(value) else value
    elif isinstance(value, str):
        row["str"] = value
    elif isinstance(value, datetime):
        row["ts"] = (value - EPOCH) // timedelta(microseconds=1)
    return row


def is_list(value: Any) -> int | None:
    return 1 if isinstance(value, list) else None


def table(events: list[dict[str, Any]]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.create_function("casefold", 1, lambda text: None if text is None else text.casefold(), deterministic=True)
    columns = [f"{name}_{line}" for name in NAMES for line in (*LINES, "list")]
    # The columns have no types, so that SQLite keeps every value as it is given.
    database.execute(f"CREATE TABLE event (n INTEGER PRIMARY KEY, {', '.join(columns)})")
    rows = [
        [number, *(value for name in NAMES for value in (*cells(event.get(name)).values(), is_list(event.get(name))))]
        for number, event in enumerate(events)
    ]
    database.execute(f"CREATE TABLE element (event, name, {', '.join(f'e_{line}' for line in LINES)})")
    database.execute("CREATE INDEX by_event ON element (event, name)")
    elements = [
        [number, name, *cells(each).values()]
        for number, event in enumerate(events)
        for name in NAMES
        for each in (event.get(name) if is_list(event.get(name)) else [event.get(name)])
        if any(cell is not None for cell in cells(each).values())  # NULL is not an element
    ]
    database.executemany(f"INSERT INTO element VALUES ({', '.join('?' * (2 + len(LINES)))})", elements)
    database.executemany(f"INSERT INTO event VALUES ({', '.join('?' * (len(columns) + 1))})", rows)
    return database


def said_by_sqlite(database: sqlite3.Connection, filters: list[Filter]) -> Iterator[tuple[int, ...]]:
    """For each event what SQLite makes of each filter: 1, 0 or None."""
    sql = Sql()
    expressions = list(map(sql.render, filters))
    return database.execute(f"SELECT {', '.join(expressions)} FROM event ORDER BY n", sql.parameters)


def nodes(root: Filter) -> Iterator[Filter]:
    yield root
    match root:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from nodes(operand)
        case Not(operand) | Is(operand):
            yield from nodes(operand)


# -- the law ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2 if EXAMPLES == 1 else 4 * EXAMPLES))
def test_sqlite_and_weft_agree_on_every_truth(seed: int) -> None:
    random = Random(seed)
    filters = [some_filter(random, depth) for depth in (0, 1, 2, 3) for _ in range(90)]
    events: list[dict[str, Any]] = [{name: some_list(random) for name in NAMES} for _ in range(80)]
    events += [{}, *({"a": value, "b": value, "c": some_value(random)} for value in VALUES)]
    pairs = 0
    truths: Counter[bool | None] = Counter()
    with closing(table(events)) as database:
        for at in range(0, len(filters), 40):
            some = filters[at : at + 40]
            for event, row in zip(events, said_by_sqlite(database, some), strict=True):
                for tree, said in zip(some, row, strict=True):
                    known = truth(tree, event)
                    assert known is (None if said is None else bool(said)), (str(tree), event)
                    truths[known] += 1
                    pairs += 1
    # The test may not weaken: so many pairs, each truth often, each kind of node, each type on each side.
    assert pairs >= 20_000
    assert min(truths[known] for known in (True, False, None)) > pairs // 20
    kinds = Counter(type(node) for tree in filters for node in nodes(tree))
    assert all(
        kinds[kind] > 10
        for kind in (Truth, AttributeRef, Compare, Between, In, Like, Has, HasElement, Is, Not, And, Or)
    ), kinds
    compared = Counter(
        node.right.type if isinstance(node.right, Constant) else AttributeRef
        for tree in filters
        for node in nodes(tree)
        if isinstance(node, Compare)
    )
    assert all(compared[kind] > 5 for kind in (*Type, AttributeRef)), compared


@pytest.mark.parametrize("operator", Operator)
def test_sqlite_and_weft_agree_on_every_two_values(operator: Operator) -> None:
    """Every value against every constant, and against every value of another attribute."""
    events: list[dict[str, Value | None]] = [{"a": one, "b": other} for one in VALUES for other in VALUES]
    related = Compare(AttributeRef("a"), operator, AttributeRef("b"))
    with closing(table(events)) as database:
        for event, (said,) in zip(events, said_by_sqlite(database, [related]), strict=True):
            assert truth(related, event) is (None if said is None else bool(said)), (str(related), event)
            if event["b"] in CONSTANTS:
                compared = Compare(AttributeRef("a"), operator, Constant.of(event["b"]))
                assert truth(compared, event) is truth(related, event), (str(compared), event)


def test_the_oracle_itself_keeps_types_apart_and_numbers_exact() -> None:
    with closing(
        table([{"a": 2**53 + 1, "b": float(2**53), "c": "1"}, {"a": True, "b": 1, "c": math.nan}])
    ) as database:
        rows = database.execute("SELECT a_num > b_num, a_bool = 1, c_num = 1, c_str = '1', c_num IS NULL FROM event")
        assert rows.fetchall() == [(1, None, None, 1, 1), (None, 1, None, None, 1)]
        assert database.execute("SELECT 'a' LIKE 'A', 'a' LIKE '_', ? LIKE '_'", [SMILE]).fetchall() == [(0, 1, 1)]
