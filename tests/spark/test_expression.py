"""A filter as a Column says what `meaning` says: TRUE, FALSE or NULL, for columns of every type Spark has."""

from __future__ import annotations

import math
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from strategies import EXAMPLES, FOLDED_PATTERNS, FOLDED_STRINGS, KINDS, SMILE
from weft import parse
from weft.errors import EventError, FilterError
from weft.language.ast import (
    ELEMENT,
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
    Like,
    Not,
    Operator,
    Or,
    Truth,
    conjunction,
    disjunction,
    walk,
)
from weft.language.constant import Constant
from weft.language.meaning import truth
from weft.model.event import Event
from weft.model.value import Type, Value
from weft.spark.casefold import casefold
from weft.spark.expression import column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
INTS = (-(2**63), -(2**53) - 1, -1, 0, 1, 2, 5, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 513, 2**63 - 512, 2**63 - 1)
FLOATS = (-1e308, -float(2**63), -1.0, -0.0, 0.0, 5e-324, 0.1, 0.5, 1.0, 1.5, 5.0, float(2**53), float(2**53 + 2))
BIG_FLOATS = (9223372036854774784.0, float(2**63), 1e19, 1.7976931348623157e308)
STRINGS = ("", " ", "A", "a", "aa", "ab", "aB", "ba", "abab", "a%b", "a_b", "\\", "%", "_", "'", "\0", "a\nb", "1")
ODD_STRINGS = ("\u00e9", "e\u0301", "\ufffd", "\U00010000", SMILE, f"a{SMILE}b", "\N{LATIN SMALL LETTER SHARP S}")
MOMENTS = (
    datetime(1, 1, 1, tzinfo=UTC),
    LAST,
    *(EPOCH + timedelta(microseconds=n) for n in (-1, 0, 1)),
    *(datetime(2018, 3, 11, 2, 30, tzinfo=UTC) + timedelta(hours=n, microseconds=n) for n in (-1, 0, 1, 4, 5)),
    datetime(2018, 2, 1, tzinfo=UTC),
)  # in New York there was no half past two on 11 March 2018
CONSTANTS: dict[Type, tuple[Value, ...]] = {
    Type.INT: INTS,
    Type.FLOAT: (*FLOATS, *BIG_FLOATS),
    Type.STRING: (*STRINGS, *ODD_STRINGS),
    Type.BOOL: (True, False),
    Type.TIMESTAMP: MOMENTS,
}


def singles(values: Sequence[float]) -> list[float]:
    return [struct.unpack("f", struct.pack("f", value))[0] for value in values if abs(value) < 1e38]


# name: Arrow's type, the type of the attribute, and what is in the column
COLUMNS: dict[str, tuple[Any, Type | None, Sequence[Any]]] = {
    "flag": (pa.bool_(), Type.BOOL, (True, False)),
    "also": (pa.bool_(), Type.BOOL, (True, False)),
    "byte": (pa.int8(), Type.INT, (-128, -1, 0, 1, 5, 127)),
    "short": (pa.int16(), Type.INT, (-(2**15), 0, 1, 2)),
    "int": (pa.int32(), Type.INT, (-(2**31), -1, 0, 1, 2**31 - 1)),
    "long": (pa.int64(), Type.INT, INTS),
    "Long": (pa.float64(), Type.FLOAT, (*FLOATS, *BIG_FLOATS, math.nan, math.inf, -math.inf)),
    "real": (pa.float32(), Type.FLOAT, (*singles(FLOATS), math.nan, math.inf)),
    "price": (pa.decimal128(20, 2), Type.FLOAT, tuple(map(Decimal, ("0.10", "-1.00", "1.50", "5.00", "0.00")))),
    "tiny.": (pa.decimal128(38, 30), Type.FLOAT, tuple(Decimal(n).scaleb(-30) for n in (10**29, 1, 10**29 + 1))),
    "text": (pa.string(), Type.STRING, (*STRINGS, *ODD_STRINGS)),
    "a.b": (pa.string(), Type.STRING, ("a", "b", "ab")),
    "moment": (pa.timestamp("us", "UTC"), Type.TIMESTAMP, MOMENTS),
    "naive": (pa.timestamp("us"), Type.TIMESTAMP, tuple(moment.replace(tzinfo=None) for moment in MOMENTS)),
    "day": (pa.date32(), Type.TIMESTAMP, (date(1, 1, 1), date(1970, 1, 1), date(2018, 2, 1), date(9999, 12, 31))),
    "od`d *": (pa.int64(), Type.INT, (0, 1, 2)),
    "list": (pa.list_(pa.int64()), None, ([1], [], [None, 2**53 + 1], [0, 5, 2**63 - 1])),
    "texts": (pa.list_(pa.string()), None, (["a", "ab"], [], [None], ["", SMILE, "%"], ["1", "a\nb"])),
    "reals": (pa.list_(pa.float64()), None, ([1.0, math.nan], [-0.0], [float(2**53), 0.5], [1e19])),
    "moments": (pa.list_(pa.timestamp("us", "UTC")), None, ([MOMENTS[0], MOMENTS[-1]], [LAST], [])),
    "structs": (pa.list_(pa.struct({"n": pa.int64()})), None, ([], [None], [{"n": 1}])),
    "bytes": (pa.binary(), None, (b"a", b"")),
}
ELEMENTS = {"list": Type.INT, "texts": Type.STRING, "reals": Type.FLOAT, "moments": Type.TIMESTAMP, "structs": Type.INT}
NESTED = {"place.n": "long", "place.in.text": "text", "place.in.real": "real"}  # columns that are there in a struct too
KINDS_OF: dict[str, Type | None] = {name: kind for name, (_, kind, _) in COLUMNS.items()}
KINDS_OF |= {name: COLUMNS[like][1] for name, like in NESTED.items()} | {"LONG": None, "place": None, "none": None}

Row = dict[str, Any]


def some_row(random: Random) -> Row:
    row = {name: random.choice((None, *values, *values)) for name, (_, _, values) in COLUMNS.items()}
    inner = {name: random.choice((None, *COLUMNS[like][2])) for name, like in NESTED.items()}
    deep = {"text": inner["place.in.text"], "real": inner["place.in.real"]}
    row["place"] = random.choice((None, {"n": inner["place.n"], "in": None}, {"n": inner["place.n"], "in": deep}))
    return row


def event_of(row: Row) -> Event:
    """What the model makes of a row, with the columns left out that no filter sees."""
    return Event.of({name: value for name, value in row.items() if name != "bytes"})


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    inside = pa.struct({"text": pa.string(), "real": pa.float32()})
    fields = {name: kind for name, (kind, _, _) in COLUMNS.items()}
    schema = pa.schema({**fields, "place": pa.struct({"n": pa.int64(), "in": inside})})
    return spark.createDataFrame(
        pa.Table.from_pylist(rows, schema), from_arrow_schema(schema, prefer_timestamp_ntz=True)
    )


@contextmanager
def setting(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Spark's settings, dots written as `__`, for the time of a test."""
    names = {f"spark.sql.{name.replace('__', '.')}": value for name, value in settings.items()}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            spark.conf.set(name, kept)


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which names differ by case, and whose days are not those of UTC."""
    with setting(spark, caseSensitive="true", session__timeZone="America/New_York", ansi__enabled="true"):
        yield spark


def said_by_spark(events: DataFrame, filters: Sequence[Filter]) -> list[tuple[bool | None, ...]]:
    """For each row what Spark makes of each filter, in one job."""
    columns = [column_of(each, events.schema).alias(f"f{number}") for number, each in enumerate(filters)]
    return [tuple(row) for row in events.coalesce(1).select(*columns).collect()]


# -- random filters ---------------------------------------------------------------------------------


def some_constant(random: Random, kind: Type | None) -> Constant:
    """A constant that compares with the attribute, nearly always."""
    if kind is None or random.random() < 0.05:
        kind = random.choice(list(Type))
    elif kind.is_number:
        kind = random.choice((Type.INT, Type.FLOAT))
    return Constant.of(random.choice(CONSTANTS[kind]))


def some_pattern(random: Random) -> tuple[str, str | None]:
    escape = random.choice((None, None, "\\", "!", "%", "_", "a", SMILE))
    signs = [sign for sign in random.choices(f"aabA%%%__\\'.{SMILE}", k=random.randrange(6)) if sign != escape]
    if escape is not None:
        for _ in range(random.randrange(3)):
            signs.insert(random.randrange(len(signs) + 1), escape + random.choice(("%", "_", escape)))
    return "".join(signs), escape


def some_test(random: Random) -> Filter:
    name, kind = random.choice(list(KINDS_OF.items()))
    left = AttributeRef(name)
    pick = random.randrange(16)
    if pick == 0:
        return Truth(random.choice((True, False, None)))
    if pick == 1:
        return AttributeRef(random.choice(("flag", "also", name)))
    if pick <= 4:
        return Compare(left, random.choice(list(Operator)), some_constant(random, kind))
    if pick <= 6:
        alike = [other for other, its in KINDS_OF.items() if its and kind and its.compares_with(kind)]
        return Compare(left, random.choice(list(Operator)), AttributeRef(random.choice([*alike, *alike, *KINDS_OF])))
    if pick == 7:
        return Between(left, some_constant(random, kind), some_constant(random, kind))
    if pick <= 9:
        return In(left, tuple(some_constant(random, kind) for _ in range(random.choice((1, 2, 3, 15)))))
    if pick == 10:
        return Is(left, random.choice((None, True, False)))
    if pick <= 12:
        name, kind = random.choice([(name, kind), *ELEMENTS.items()])
        constants = tuple(some_constant(random, kind) for _ in range(random.choice((1, 1, 2, 4))))
        return Has(AttributeRef(name), constants, random.random() < 0.3)
    if pick <= 14:
        name, kind = random.choice([(name, kind), *ELEMENTS.items()])
        return HasElement(AttributeRef(name), some_element_test(random, kind, 2))
    left = AttributeRef(random.choice(("text", "a.b", "place.in.text", name)))
    return Like(left, *some_pattern(random), random.random() < 0.5)


def some_element_test(random: Random, kind: Type | None, depth: int) -> Filter:
    pick = random.randrange(9 if depth else 6)
    if pick <= 1:
        return Compare(ELEMENT, random.choice(list(Operator)), some_constant(random, kind))
    if pick == 2:
        return Between(ELEMENT, some_constant(random, kind), some_constant(random, kind))
    if pick == 3:
        return In(ELEMENT, tuple(some_constant(random, kind) for _ in range(random.choice((1, 2, 3)))))
    if pick == 4:
        return Is(ELEMENT, None)
    if pick == 5:
        return Like(ELEMENT, *some_pattern(random), random.random() < 0.5)
    if pick == 6:
        return Not(some_element_test(random, kind, depth - 1))
    if pick == 7:
        return Is(some_element_test(random, kind, depth - 1), random.choice((True, False, None)))
    parts = [some_element_test(random, kind, depth - 1) for _ in range(2)]
    return random.choice((conjunction, disjunction))(*parts)


def some_filter(random: Random, depth: int) -> Filter:
    if depth == 0 or random.random() < 0.1:
        return some_test(random)
    pick = random.randrange(6)
    if pick == 0:
        return Not(some_filter(random, depth - 1))
    if pick == 1:
        return Is(some_filter(random, depth - 1), random.choice((True, False, None)))
    parts = [some_filter(random, depth - 1) for _ in range(random.randrange(2, 4))]
    return conjunction(*parts) if pick <= 3 else disjunction(*parts)


@pytest.mark.parametrize("seed", range(2 * EXAMPLES if EXAMPLES > 1 else 1))
def test_spark_and_weft_agree_on_every_truth(elsewhere: SparkSession, seed: int) -> None:
    random = Random(seed)
    filters = [some_filter(random, depth) for depth in (0, 0, 1, 2) for _ in range(60 if EXAMPLES > 1 else 40)]
    rows = [some_row(random) for _ in range(60)]
    truths: Counter[bool | None] = Counter()
    for row, said in zip(rows, said_by_spark(frame(elsewhere, rows), filters), strict=True):
        event = event_of(row)
        for tree, answer in zip(filters, said, strict=True):
            assert truth(tree, event) is answer, (str(tree), event)
            truths[answer] += 1
    # The test may not weaken: each truth often, each kind of node.
    assert min(truths[known] for known in (True, False, None)) > truths.total() // 20
    kinds = Counter(type(node) for tree in filters for node in walk(tree))
    assert all(
        kinds[kind] > 5 for kind in (Truth, AttributeRef, Compare, Between, In, Like, Has, HasElement, Is, Not, And, Or)
    ), kinds


# -- each trap, one by one --------------------------------------------------------------------------


def test_every_two_numbers_compare_exactly(elsewhere: SparkSession) -> None:
    """Every int against every float, as columns and as constants, from either side."""
    floats = (*FLOATS, *BIG_FLOATS, math.inf, -math.inf, math.nan)
    rows = [{"i": i, "d": d} for i in (None, *INTS) for d in (None, *floats)]
    events = elsewhere.createDataFrame(pa.Table.from_pylist(rows, pa.schema({"i": pa.int64(), "d": pa.float64()})))
    i, d = AttributeRef("i"), AttributeRef("d")
    tests: list[Filter] = [Compare(one, op, other) for op in Operator for one, other in ((i, d), (d, i))]
    tests += [Compare(i, op, Constant.of(f)) for op in Operator for f in (*FLOATS, *BIG_FLOATS)]
    tests += [Compare(d, op, Constant.of(n)) for op in Operator for n in INTS]
    tests += [In(i, (Constant.of(f), Constant.of(7))) for f in BIG_FLOATS] + [In(i, (Constant.of(0.5),))]
    tests += [In(d, tuple(map(Constant.of, INTS)))]  # long enough for Spark's hash set
    for row, said in zip(rows, said_by_spark(events, tests), strict=True):
        assert [truth(test, row) for test in tests] == list(said), row


TRAPS: dict[str, str] = {
    "unlike types": "text > 5 OR long = 'a' OR flag = 1 OR moment < 5 OR day = '1970-01-01' OR bytes = 'a'",
    "unlike types of attributes": "text = long OR flag = long OR moment = long OR moment = text OR list = list",
    "a bool is no number": "flag IN (1, 0) OR long",
    "names have case": "LONG IS NULL AND Long IS NOT NULL",
    "a struct is no attribute": "place IS NULL",
    "no type of attributes": "list IS NULL AND bytes IS NULL",
    "NaN is NULL": "Long IS NULL OR real IS NULL OR place.in.real IS NULL",
    "NaN is no number": "NOT Long > 0",
    "zero has no sign": "Long = 0 AND Long IN (0.0, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5)",
    "decimals become floats": 'price = 0.1 OR "tiny." = 0.1',
    "floats stay floats": "real = 0.1",
    "moments of every kind": "moment = naive OR moment > day OR naive <= day OR day != moment",
    "moments are in UTC": "day >= TIMESTAMP '2018-02-01' AND naive < TIMESTAMP '2018-03-11T02:30:00Z'",
    "strings by code point": f"text > '\ufffd' AND text <= '{SMILE}'",
    "no default escape": r"text LIKE '\%' OR text LIKE '\'",
    "one code point": "text LIKE '_' AND text LIKE '%_' AND NOT text LIKE '__'",
    "case of LIKE": "text LIKE 'A%' OR text LIKE '%B'",
    "escape": "text LIKE 'a!%b' ESCAPE '!' OR text LIKE 'a%_b' ESCAPE '%'",
    "IN with an unlike constant": "long IN (1, 'a') OR NOT long IN (1, 'a')",
    "BETWEEN with an unlike end": "long BETWEEN 1 AND 'a' OR NOT long BETWEEN 1 AND 'a'",
    "odd names": '"od`d *" = 1 AND "a.b" = \'a\'',
    "constants": "TRUE AND (NULL OR FALSE) IS NULL AND 1 < 2",
}


def test_each_trap(elsewhere: SparkSession) -> None:
    random = Random(0)
    rows = [some_row(random) for _ in range(300)]
    filters = [parse(text) for text in TRAPS.values()]
    answers: dict[str, set[bool | None]] = {name: set() for name in TRAPS}
    for row, said in zip(rows, said_by_spark(frame(elsewhere, rows), filters), strict=True):
        for (name, text), tree, answer in zip(TRAPS.items(), filters, said, strict=True):
            assert truth(tree, event_of(row)) is answer, (text, row)
            answers[name].add(answer)
    assert all(answers[name] == {None} for name in TRAPS if name.startswith("unlike types"))
    assert answers["a struct is no attribute"] == answers["no type of attributes"] == {True}
    assert answers["names have case"] == {True, False}


def test_sparks_own_like_agrees(elsewhere: SparkSession) -> None:
    """The pattern's own text, given to Spark's LIKE: a second opinion that shares nothing with ours."""
    from pyspark.sql import functions as sf

    random = Random(1)
    patterns = {some_pattern(random) for _ in range(150)}
    tests = [
        Like(AttributeRef("text"), *each) for each in patterns if each[1] != SMILE
    ]  # Spark's escape is one UTF-16 unit
    texts = [*STRINGS, *ODD_STRINGS, *("".join(random.choices(f"aabA%_\\'.{SMILE}", k=4)) for _ in range(100))]
    events = elsewhere.createDataFrame(pa.table({"text": texts})).coalesce(1)
    theirs = events.select(
        *(
            sf.like(sf.col("text"), sf.lit(t.pattern), sf.lit(t.escape or "\x7f")).alias(f"f{n}")
            for n, t in enumerate(tests)
        )
    )
    asked = [tuple(row) for row in theirs.collect()]
    assert asked == said_by_spark(events, tests)
    assert asked == [tuple(truth(test, {"text": text}) for test in tests) for text in texts]
    assert {True, False} == {answer for row in asked for answer in row}


def test_spark_folds_every_character_as_python_does(elsewhere: SparkSession) -> None:
    """Blocks of all of Unicode, forward and backward, so that what stands next to a letter changes nothing."""
    from pyspark.sql import functions as sf

    codes = [code for code in range(sys.maxunicode + 1) if code not in range(0xD800, 0xE000)]
    texts = ["".join(map(chr, codes[at : at + 512])) for at in range(0, len(codes), 512)]
    texts += [text[::-1] for text in texts[:300]] + ["ΑΣ ΑΣ", "", "Straße", "\u212a"]
    events = elsewhere.createDataFrame(pa.table({"text": [*texts, None]})).coalesce(1)
    folded = [row[0] for row in events.select(casefold(sf.col("text"))).collect()]
    assert folded == [*(text.casefold() for text in texts), None]


def test_ilike_on_spark_ignores_case_as_python_does(elsewhere: SparkSession) -> None:
    patterns = FOLDED_PATTERNS if EXAMPLES > 1 else FOLDED_PATTERNS[::2]  # a column for each, all of them long to plan
    tests = [Like(AttributeRef("text"), pattern, None, True) for pattern in (*patterns, "Straße", "%\u017f_%")]
    events = elsewhere.createDataFrame(pa.table({"text": FOLDED_STRINGS})).coalesce(1)
    said = said_by_spark(events, tests)
    assert said == [tuple(truth(test, {"text": text}) for test in tests) for text in FOLDED_STRINGS]
    assert {True, False} == {answer for row in said for answer in row}


def test_a_pattern_takes_no_more_than_linear_time(spark: SparkSession) -> None:
    """A matcher that tries every place of every % would not end in a lifetime."""
    events = spark.createDataFrame(pa.table({"x": ["a" * 5000, "a" * 5000 + "b"]})).coalesce(1)
    tests = [
        Like(AttributeRef("x"), "%a_" * 30 + "%c"),
        Like(AttributeRef("x"), "%a_" * 30 + "%b"),
        Like(AttributeRef("x"), "%a%aa%ab%c%"),
    ]
    assert said_by_spark(events, tests) == [(False, False, False), (False, True, False)]


def test_long_lists_and_deep_filters(spark: SparkSession) -> None:
    x = AttributeRef("x")
    deep: Filter = Compare(x, Operator.EQ, Constant.of(0))
    for n in range(98):
        deep = Not(deep) if n % 2 else conjunction(deep, Compare(x, Operator.NE, Constant.of(-n)))
    agree_on_numbers(spark, [In(x, tuple(map(Constant.of, range(3000)))), deep])


@pytest.mark.slow
def test_long_disjunctions(spark: SparkSession) -> None:
    parts = [Compare(AttributeRef("x"), Operator.EQ, Constant.of(n)) for n in range(3000)]
    agree_on_numbers(spark, [disjunction(*parts), conjunction(*map(Not, parts))])


def agree_on_numbers(spark: SparkSession, tests: list[Filter]) -> None:
    numbers = (0, 2999, 5000)
    events = spark.createDataFrame(pa.table({"x": numbers})).coalesce(1)
    assert said_by_spark(events, tests) == [tuple(truth(test, {"x": n}) for test in tests) for n in numbers]


def test_an_alias_hides_no_struct(spark: SparkSession) -> None:
    events = spark.sql("SELECT named_struct('n', 1) AS place, 2 AS n").alias("place")
    assert said_by_spark(events, [parse("place.n = 1")]) == [(True,)]


def test_a_collation_has_no_say(spark: SparkSession) -> None:
    events = spark.sql("SELECT 'aB' COLLATE UTF8_LCASE AS x, 'ab' COLLATE UNICODE_CI AS y")
    tests = list(
        map(parse, ("x = 'ab'", "x = 'aB'", "x LIKE 'ab'", "x LIKE '%b'", "x = y", "x IN ('ab', 'c')", "x < 'aa'"))
    )
    assert said_by_spark(events, tests) == [tuple(truth(test, {"x": "aB", "y": "ab"}) for test in tests)]


def test_dates_that_no_event_has_are_no_error(spark: SparkSession) -> None:
    events = spark.sql("SELECT date_from_unix_date(2147483647) AS day")
    assert said_by_spark(events, [parse("day > TIMESTAMP '2018-01-01'"), parse("day IS NULL")]) == [(None, True)]


def test_what_cannot_be_said_is_refused(spark: SparkSession) -> None:
    call = Call(KINDS, AttributeRef("x"), (Constant.of("car"),))
    with pytest.raises(FilterError, match=r"is_a\(\) is a predicate"):
        column_of(parse("x = 1") & ~call, spark.sql("SELECT 'car' AS x").schema)


def test_two_columns_of_one_name_are_refused_when_asked_for(spark: SparkSession) -> None:
    events = spark.sql("SELECT named_struct('n', 1) AS a, 2 AS `a.n`, 3 AS b")
    with pytest.raises(EventError, match=r"two columns 'a\.n'"):
        column_of(parse("a.n = 1"), events.schema)
    assert said_by_spark(events, [parse("b = 3")]) == [(True,)]
