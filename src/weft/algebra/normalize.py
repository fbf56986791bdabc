"""Filters to unions of boxes. Law: a normal form holds exactly the events that the filter matches.

Every test splits the values of its attribute into those that make it TRUE, FALSE and NULL. So the region of "this
filter comes out as one of these truths" is computed from the leaves up, and NOT and IS only change what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TypeVar

from weft.algebra import interval
from weft.algebra.box import EVERYTHING, Box, NormalForm, universe
from weft.algebra.interval import NUMBERS, STRINGS, Line
from weft.algebra.residual import Called, Outcomes, Subject, relation
from weft.algebra.strings import like
from weft.algebra.valueset import ABSENT, NOTHING, PRESENT, ValueSet, of_type, on_line
from weft.errors import FilterTooComplexError
from weft.language.ast import And, Attribute, Between, Call, Compare, Filter, In, Is, Like, Not, Operator, Or, Truth
from weft.language.constant import Constant
from weft.language.meaning import negation
from weft.model.schema import Schema
from weft.model.value import Type

MAX_BOXES = 256
_MAX_WORK = 100_000  # value sets touched while boxes are combined

T = TypeVar("T")
Truths = frozenset[bool | None]
Split = tuple[ValueSet, ValueSet]  # where a test is TRUE, and where it is FALSE

_ALL: Truths = frozenset((True, False, None))


def normalize(filter: Filter, schema: Schema | None = None) -> NormalForm:
    """The union of boxes that a filter is; without a schema all numbers are one real line.

    Raises FilterTooComplexError past 256 boxes.
    """
    boxes = _Normalizer(schema).regions(filter, frozenset((True,)))
    return NormalForm(tuple(_absorb(boxes)), schema)


def simplify(boxes: Iterable[Box], schema: Schema | None = None) -> NormalForm:
    """The union of boxes with as few of them as joining neighbours and dropping covered ones gives."""
    return NormalForm(tuple(_absorb(_Normalizer(schema).join(list(boxes)))), schema)


class _Normalizer:
    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema
        self.work = 0
        self.known: dict[tuple[int, Truths], list[Box]] = {}

    def regions(self, node: Filter, wanted: Truths) -> list[Box]:
        """The events for which the node comes out as wanted."""
        key = (id(node), wanted)
        if key not in self.known:  # IS NULL asks its operand twice: remember, or depth costs double each time
            self.known[key] = self.region(node, wanted)
        return self.known[key]

    def region(self, node: Filter, wanted: Truths) -> list[Box]:
        if not wanted or wanted == _ALL:
            return [EVERYTHING] if wanted else []
        match node:
            case Truth(value):
                return [EVERYTHING] if value in wanted else []
            case Not(operand):
                return self.regions(operand, frozenset(map(negation, wanted)))
            case Is(Attribute(name), None):
                return self.test(name, (ABSENT, PRESENT), wanted)
            case Is(operand, value):
                said = frozenset((value,)) if True in wanted else frozenset()
                return self.regions(operand, said | (_ALL - {value} if False in wanted else frozenset()))
            case And(operands):
                return self.combine(node, operands, wanted, True)
            case Or(operands):
                return self.combine(node, operands, wanted, False)
            case Compare(left, operator, Attribute(right)):
                return self.related(left.name, operator, right, wanted)
            case Call():
                return self.called(node, wanted)
        name, split = _split(node)
        return self.test(name, split, wanted)

    def combine(self, node: Filter, operands: Sequence[Filter], wanted: Truths, neutral: bool) -> list[Box]:
        """AND (neutral: TRUE) and OR (neutral: FALSE): all operands neutral, or any of them the contrary."""
        if wanted == {None}:  # not one and not the other
            both = [self.regions(node, frozenset((truth, None))) for truth in (True, False)]
            return self.all_of(both)
        if None not in wanted and len(wanted) == 2:
            return self.any_of([self.regions(node, frozenset((truth,))) for truth in (True, False)])
        parts = [self.regions(operand, wanted) for operand in operands]
        return self.all_of(parts) if neutral in wanted else self.any_of(parts)

    def test(self, name: str, split: Split, wanted: Truths) -> list[Box]:
        true, false = split
        values = NOTHING
        if True in wanted:
            values = values.union(true)
        if False in wanted:
            values = values.union(false)
        if None in wanted:
            values = values.union(true.union(false).complement())
        box = Box.of({name: self.conform(name, values)}, schema=self.schema)
        return [] if box is None else [box]

    def conform(self, name: str, values: ValueSet) -> ValueSet:
        """What the schema leaves of the values: those of the attribute's type, integers on an integer line."""
        declared = None if self.schema is None else self.schema.get(name)
        if declared is None:
            return values
        left = values.intersect(universe(name, self.schema))
        if declared.type is Type.INT:
            return ValueSet(numbers=interval.whole_numbers(left.numbers), absent=left.absent)
        return left

    def related(self, left: str, operator: Operator, right: str, wanted: Truths) -> list[Box]:
        if left == right:  # a value compares with itself, unless it is absent
            equal = operator in (Operator.EQ, Operator.LE, Operator.GE)
            return self.test(left, (PRESENT, NOTHING) if equal else (NOTHING, PRESENT), wanted)
        subject, true = relation(left, operator, right)
        return self.residual(subject, true, wanted)

    def called(self, node: Call, wanted: Truths) -> list[Box]:
        if (True in wanted) == (False in wanted):  # only whether it is NULL
            known = frozenset((None,)) if None in wanted else frozenset((True,))
            return self.test(node.left.name, (of_type(node.predicate.type), NOTHING), known)
        return self.residual(Called(node), frozenset((True,)), wanted)

    def residual(self, subject: Subject, true: Outcomes, wanted: Truths) -> list[Box]:
        allowed: Outcomes = frozenset()
        if True in wanted:
            allowed |= true
        if False in wanted:
            allowed |= subject.outcomes - true - {None}
        if None in wanted:
            allowed |= {None}
        box = Box.of({}, {subject: allowed}, self.schema)
        return [] if box is None else [self.within_schema(box)]

    def within_schema(self, box: Box) -> Box:
        return Box({name: self.conform(name, values) for name, values in box.sets.items()}, box.residuals)

    # -- unions and intersections of boxes ------------------------------------------------------

    def any_of(self, parts: Sequence[list[Box]]) -> list[Box]:
        return self.join([box for part in parts for box in part])

    def all_of(self, parts: Sequence[list[Box]]) -> list[Box]:
        return _balanced(self.product, parts) if parts else [EVERYTHING]

    def product(self, one: list[Box], other: list[Box]) -> list[Box]:
        self.charge(sum(len(box.sets) + 1 for box in one) * len(other) + sum(len(box.sets) for box in other) * len(one))
        both = [a.intersect(b) for a in one for b in other]
        return self.join([box for box in both if box is not None])

    def join(self, boxes: list[Box]) -> list[Box]:
        """Join boxes that differ in one attribute only, over and over; what is left must be within the limit."""
        boxes = [EVERYTHING] if EVERYTHING in boxes else list(dict.fromkeys(boxes))
        while len(boxes) > 1:
            groups: dict[tuple[str, int], list[Box]] = {}
            for box in boxes:
                self.charge(len(box.sets) + 1)
                hashes = {name: hash((name, values)) for name, values in box.sets.items()}
                whole = reduce(int.__xor__, hashes.values(), hash(frozenset(box.residuals.items())))
                for name, own in hashes.items():
                    groups.setdefault((name, whole ^ own), []).append(box)
            joined = self.join_groups(boxes, groups)
            if len(joined) == len(boxes):
                break
            boxes = joined
        if len(boxes) > MAX_BOXES:
            raise FilterTooComplexError(f"the filter is a union of more than {MAX_BOXES} boxes: split it")
        return boxes

    def join_groups(self, boxes: list[Box], groups: dict[tuple[str, int], list[Box]]) -> list[Box]:
        """One round of joins; a box takes part in one join at most."""
        left: dict[int, Box] = {id(box): box for box in boxes}
        result: list[Box] = []
        for (name, _), group in groups.items():
            free = [box for box in group if id(box) in left]
            alike = [box for box in free if _rest(box, name) == _rest(free[0], name)] if len(free) > 1 else []
            if len(alike) > 1:
                for box in alike:
                    del left[id(box)]
                values = _balanced(ValueSet.union, [box.sets[name] for box in alike])
                whole = Box.of({**alike[0].sets, name: values}, alike[0].residuals, self.schema)
                if whole is not None:
                    result.append(whole)
        return list(dict.fromkeys([*left.values(), *result]))

    def charge(self, work: int) -> None:
        self.work += work
        if self.work > _MAX_WORK:
            raise FilterTooComplexError("the filter multiplies out to too many boxes: split it")


def _rest(box: Box, name: str) -> tuple[dict[str, ValueSet], object]:
    return {other: values for other, values in box.sets.items() if other != name}, box.residuals


def _absorb(boxes: list[Box]) -> list[Box]:
    """Without the boxes that another one covers."""
    kept: list[Box] = []
    for box in boxes:
        if not any(other.covers(box) for other in kept):
            kept = [other for other in kept if not box.covers(other)]
            kept.append(box)
    return kept


def _balanced(combine: Callable[[T, T], T], items: Sequence[T]) -> T:
    """Combine neighbours, round by round: sizes stay alike, which keeps the total cost low."""
    row = list(items)
    while len(row) > 1:
        pairs = [combine(row[at], row[at + 1]) for at in range(0, len(row) - 1, 2)]
        row = pairs + row[len(pairs) * 2 :]
    return row[0]


# -- tests as value sets -----------------------------------------------------------------------------


def _split(node: Filter) -> tuple[str, Split]:
    match node:
        case Attribute(name):
            return name, (ValueSet(bools=frozenset((True,))), ValueSet(bools=frozenset((False,))))
        case Compare(left, operator, Constant() as right):
            return left.name, comparison(operator, right)
        case Between(left, low, high):
            above, below = comparison(Operator.GE, low), comparison(Operator.LE, high)
            return left.name, (above[0].intersect(below[0]), above[1].union(below[1]))
        case In(left, values):
            splits = [comparison(Operator.EQ, value) for value in dict.fromkeys(values)]
            true = _balanced(ValueSet.union, [split[0] for split in splits])
            return left.name, (true, _balanced(ValueSet.intersect, [split[1] for split in splits]))
        case Like(left):
            matching = like(node.compiled)
            return left.name, (ValueSet(strings=matching), ValueSet(strings=matching.complement()))
    raise TypeError(f"{node!r} is no test of an attribute")


def comparison(operator: Operator, constant: Constant) -> Split:
    """Where a value of the constant's type compares so, and where it does not."""
    value = constant.value
    below, above = (value, 0), (value, 1)
    line: Line
    match operator:
        case Operator.EQ | Operator.NE:
            line = (below, above)
        case Operator.LT | Operator.GE:
            line = (below,)
        case _:
            line = (above,)
    other = interval.complement(line, _WHOLE.get(constant.type, NUMBERS))
    if operator in (Operator.NE, Operator.LT, Operator.LE):
        line, other = other, line
    return on_line(constant.type, line), on_line(constant.type, other)


_WHOLE: dict[Type, Line] = {Type.STRING: STRINGS, Type.BOOL: ((False, 0),)}
