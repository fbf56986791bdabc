"""Unions of boxes as filters. Normalising the filter gives the same set again.

The language has no test "is a number"; it is written `x < 0 OR x >= 0`, and likewise for timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.algebra import interval
from weft.algebra.box import Box, NormalForm
from weft.algebra.element_sets import ElementSet, element_test
from weft.algebra.interval import NUMBERS, STRINGS, Cut, Line
from weft.algebra.string_terms import Term, starting_with
from weft.algebra.strings import Strings
from weft.algebra.valueset import ABSENT, PRESENT, ValueSet, of_type
from weft.errors import FilterTooComplexError
from weft.language.ast import (
    ELEMENT,
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
    conjunction,
    disjunction,
)
from weft.language.builder import literal_like
from weft.language.constant import Constant
from weft.language.format import format_filter, format_name, most_written
from weft.language.membership import ELEMENT_NAME, is_membership, member_values, membership
from weft.language.pattern import Pattern
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.model.value import MICROS_MAX, Type, type_of

_FEW = 4  # numbers of a set that are not read one by one to bound the length of their text


def to_filter(form: NormalForm | Box) -> Filter:
    """A filter that matches exactly the events of the form. Cost: O(size of the form).

    >>> from weft import normalize, parse
    >>> print(to_filter(normalize(parse("NOT (x < 5 OR x > 9) AND x != 7"))))
    x >= 5 AND x < 7 OR x > 7 AND x <= 9
    """
    boxes, schema = ((form,), None) if isinstance(form, Box) else (form.boxes, form.schema)
    return disjunction(*(_box(box, schema) for box in boxes))


def check_written(filter: Filter, boxes: Iterable[Box]) -> None:
    """Raise FilterTooComplexError if the text of a filter, or of its normal form, could be too long to be read back."""
    size, some = most_written(filter), list(boxes)
    longest = max([len(name) for box in some for name in box.sets], default=0)
    if size * (4 + 4 * len(some)) * (1 + longest // 16) < LIMITS.stored_text:
        return  # each constant is in a box once, between two tests of its attribute at most
    known: dict[tuple[str, int], int] = {}
    if size > LIMITS.stored_text or sum([_most_written_box(box, known) for box in some]) > LIMITS.stored_text:
        raise FilterTooComplexError(
            f"written out, the filter takes more than {LIMITS.stored_text:,} bytes; use shorter names, or split it"
        )


def _most_written_box(box: Box, known: dict[tuple[str, int], int]) -> int:
    """An upper bound of the bytes of the text of a box; sets that boxes share are measured once."""
    total = 0
    for name, values in box.sets.items():
        size = known.get((name, id(values)))
        if size is None:
            size = known[name, id(values)] = _most_written_set(name, values)
        total += size
    for subject, allowed in box.residuals.items():
        total += most_written(subject.to_filter(allowed)) + 8
    return total


def _most_written_set(name: str, values: ValueSet) -> int:
    if is_membership(name):
        return 64 + 8 * len(name)
    test = len(format_name(name).encode()) + 16  # with operator, connective and parentheses
    total = test * (2 + values.absent)
    numbers = len(values.numbers)
    if numbers <= _FEW and not (values.strings.line or values.strings.terms or values.timestamps):
        return total + 2 * test + numbers * (32 + 2 * test)
    for line, whole in ((values.numbers, NUMBERS), (values.strings.line, STRINGS), (values.timestamps, NUMBERS)):
        if line:
            total += _most_written_line(line, whole, test)
    for term in values.strings.terms:
        total += sum([2 * test + 8 * pattern.size for pattern in (*term.musts, *term.nots)])
        total += _most_written_line(term.line, STRINGS, test)
    return total


def _most_written_line(line: Line, whole: Line, test: int) -> int:
    """Single values are written in one list; everything else is a test for each end."""
    if len(line) & 1 and interval.points(interval.complement(line, whole)) is not None:
        return 2 * test + sum([_most_written_value(value) for value, _ in line])
    total = 2 * test
    for low, high in interval.intervals(line):
        total += _most_written_value(low[0])
        if high is None or high[0] != low[0]:
            total += 2 * test + (0 if high is None else _most_written_value(high[0]))
    return total


def _most_written_value(value: object) -> int:
    return 8 + 8 * len(value) if isinstance(value, str) else 32


def _box(box: Box, schema: Schema | None) -> Filter:
    tests = [values_to_filter(name, values, schema) for name, values in box.sets.items()]
    tests += [subject.to_filter(allowed) for subject, allowed in box.residuals.items()]
    return conjunction(*tests)


def values_to_filter(name: str, values: ValueSet, schema: Schema | None = None) -> Filter:
    """The filter on one attribute, or on one membership."""
    if is_membership(name):
        return _membership(name, values)
    left = ELEMENT if name == ELEMENT_NAME else AttributeRef(name)
    missing = Is(left, None)
    if values == ABSENT:
        return missing
    declared = None if schema is None else schema.get(name)
    if values == (PRESENT if declared is None else of_type(declared.type)):
        return Not(missing)
    parts: list[Filter] = [missing] if values.absent else []
    if values.numbers:
        parts += _line(left, Type.FLOAT, values.numbers, NUMBERS, Constant(Type.INT, 0))
    if values.strings:
        parts += _strings(left, values.strings)
    if len(values.bools) == 1:
        bare = True in values.bools and left != ELEMENT
        parts += [left if bare else Compare(left, Operator.EQ, Constant(Type.BOOL, True in values.bools))]
    elif values.bools:
        parts += [In(left, (Constant(Type.BOOL, False), Constant(Type.BOOL, True)))]
    if values.timestamps:
        parts += _line(left, Type.TIMESTAMP, values.timestamps, NUMBERS, Constant(Type.TIMESTAMP, 0))
    return disjunction(*parts)


def _membership(name: str, values: ValueSet) -> Filter:
    """The test whether a list has a value, for some of its three truths."""
    said = membership(name)
    left = AttributeRef(said.attribute)
    test = HasElement(left, element_test(name)) if said.test else Has(left, member_values(name), said.every)
    truths = {*values.bools, *((None,) if values.absent else ())}
    if truths == {True}:
        return test
    if truths == {False}:
        return Not(test)
    if len(truths) == 1:
        return Is(test, None)
    (other,) = {True, False, None} - truths  # a box has no set of all three
    return Not(Is(test, other))


def element_text(elements: ElementSet) -> str:
    """A test of elements as text; that of equal value sets is equal."""
    if elements.values is None:
        return format_filter(disjunction(*(_box(box, None) for box in elements.boxes)))
    return format_filter(values_to_filter(ELEMENT_NAME, elements.values) if elements.values else Is(ELEMENT, None))


def _line(left: AttributeRef, kind: Type, line: Line, whole: Line, middle: Constant) -> list[Filter]:
    if line == whole:
        return [Compare(left, Operator.LT, middle), Compare(left, Operator.GE, middle)]
    return _tests(left, kind, line, whole)


def _strings(left: AttributeRef, strings: Strings) -> list[Filter]:
    line = strings.line
    if line == STRINGS:
        return [Like(left, "%")]
    tests = _tests(left, Type.STRING, line, STRINGS)
    return tests + [_term(left, term) for term in sorted(strings.terms, key=_order)]


def _order(term: Term) -> tuple[object, ...]:
    """A key that is the same in every process, unlike the order of a set."""
    return sorted(map(repr, term.musts)), sorted(map(repr, term.nots)), repr(term.line)


def _term(left: AttributeRef, term: Term) -> Filter:
    tests: list[Filter] = [_like(left, pattern) for pattern in sorted(term.musts, key=repr)]
    tests += [Not(_like(left, pattern)) for pattern in sorted(term.nots, key=repr)]
    heads: Line = STRINGS
    for pattern in term.musts:
        heads = interval.intersect(heads, starting_with(pattern.head))
    if term.line != heads:
        tests.append(disjunction(*_tests(left, Type.STRING, term.line, STRINGS)))
    return conjunction(*tests)


def _like(left: AttributeRef, pattern: Pattern) -> Like:
    if not any(sign in chunk for segment in pattern.segments for chunk in segment for sign in "%_"):
        return Like(left, "%".join("_".join(segment) for segment in pattern.segments), None, pattern.ignore_case)
    chunks = [[literal_like(left, "", chunk + "%", "").pattern[:-2] for chunk in s] for s in pattern.segments]
    return Like(left, "%".join("_".join(segment) for segment in chunks), "\\", pattern.ignore_case)


def _tests(left: AttributeRef, kind: Type, line: Line, whole: Line) -> list[Filter]:
    """One test for each interval; single values are collected in one IN, and single holes are !=."""
    holes = interval.points(interval.complement(line, whole))
    if holes and kind is not Type.TIMESTAMP:
        return [_equal(left, kind, holes, negated=True)]
    values: list[object] = []
    tests: list[Filter] = []
    for low, high in interval.intervals(line):
        if high is not None and _single(kind, low, high):
            values.append(low[0])
            continue
        prefix = low[0] if kind is Type.STRING and low[0] else None
        if prefix and starting_with(prefix) == (low, high):
            tests.append(literal_like(left, "", prefix, "%"))
        else:
            tests.append(_interval(left, kind, low, high, whole))
    return ([_equal(left, kind, values)] if values else []) + tests


def _single(kind: Type, low: Cut, high: Cut) -> bool:
    return bool(high[0] - low[0] == 1) if kind is Type.TIMESTAMP else bool(low[0] == high[0])


def _interval(left: AttributeRef, kind: Type, low: Cut, high: Cut | None, whole: Line) -> Filter:
    """The tests of the ends; this is never called for a whole line, which has none."""
    tests: list[Filter] = []
    low = _named(kind, low)
    high = None if high is None else _named(kind, high)
    if low != whole[0]:
        tests.append(Compare(left, Operator.GT if low[1] else Operator.GE, _constant(kind, low[0])))
    if high is not None:
        tests.append(Compare(left, Operator.LE if high[1] else Operator.LT, _constant(kind, high[0])))
    if len(tests) == 2 and high is not None and not low[1] and high[1]:
        return Between(left, _constant(kind, low[0]), _constant(kind, high[0]))
    return conjunction(*tests)


def _equal(left: AttributeRef, kind: Type, values: list[object], negated: bool = False) -> Filter:
    constants = tuple(_constant(kind, value) for value in values)
    if len(constants) == 1:
        return Compare(left, Operator.NE if negated else Operator.EQ, constants[0])
    return Not(In(left, constants)) if negated else In(left, constants)


def _constant(kind: Type, value: object) -> Constant:
    if kind is Type.TIMESTAMP:
        return Constant(kind, value)  # type: ignore[arg-type]
    return Constant(type_of(value) or kind, value)  # type: ignore[arg-type]


def _named(kind: Type, cut: Cut) -> Cut:
    """The same cut at a timestamp that can be written: there is none after the year 9999."""
    return (MICROS_MAX, 1) if kind is Type.TIMESTAMP and cut[0] > MICROS_MAX else cut
