"""Filters to unions of boxes. Law: a normal form holds exactly the events that the filter matches.

Every test splits the values of its attribute into those that make it TRUE, FALSE and NULL. So the region of "this
filter comes out as one of these truths" is computed from the leaves up, and NOT and IS only change what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeVar

from weft.algebra import interval
from weft.algebra.box import EVERYTHING, Box, NormalForm, universe
from weft.algebra.interval import EMPTY, NUMBERS, STRINGS, Line
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
_FEW = 32
_MAX_WORK = 100_000  # value sets touched while boxes are combined

T = TypeVar("T")
Truths = frozenset[bool | None]
Split = tuple[ValueSet, ValueSet]  # where a test is TRUE, and where it is FALSE

_ALL: Truths = frozenset((True, False, None))
_TRUE: Truths = frozenset((True,))


def normalize(filter: Filter, schema: Schema | None = None) -> NormalForm:
    """The union of boxes that a filter is; without a schema all numbers are one real line.

    Raises FilterTooComplexError past 256 boxes.
    """
    boxes = _one_box(filter) if schema is None else None
    if boxes is None:
        boxes = _Normalizer(schema).regions(filter, _TRUE)
    return NormalForm(tuple(boxes if len(boxes) < 2 else _absorb(boxes)), schema)


def simplify(boxes: Iterable[Box], schema: Schema | None = None) -> NormalForm:
    """The union of boxes with as few of them as joining neighbours and dropping covered ones gives."""
    return NormalForm(tuple(_absorb(_Normalizer(schema).join(list(boxes)))), schema)


def _one_box(filter: Filter) -> list[Box] | None:
    """The box of a conjunction of tests with constants, none if it is empty; None for any other filter."""
    sets: dict[str, ValueSet] = {}
    for node in filter.operands if isinstance(filter, And) else (filter,):
        if not isinstance(node, _TESTS) or (isinstance(node, Compare) and isinstance(node.right, Attribute)):
            return None
        name, values = _where_true(node)
        if name in sets:
            values = sets[name].intersect(values)
        if not values:
            return []
        sets[name] = values
    return [Box(sets)]


_TESTS = (Compare, Between, In, Like)


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
        if wanted == _TRUE:  # by far the most common
            name, values = _where_true(node)
            kept = self.conform(name, values)
            return [Box({name: kept})] if kept else []
        return self.test(*_split(node), wanted)

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
        if box is None:
            return []
        sets = {name: self.conform(name, values) for name, values in box.sets.items()}
        return [Box(sets, box.residuals)] if all(sets.values()) else []

    # -- unions and intersections of boxes ------------------------------------------------------

    def any_of(self, parts: Sequence[list[Box]]) -> list[Box]:
        return self.join([box for part in parts for box in part])

    def all_of(self, parts: Sequence[list[Box]]) -> list[Box]:
        return _balanced(self.product, parts) if parts else [EVERYTHING]

    def product(self, one: list[Box], other: list[Box]) -> list[Box]:
        self.charge(sum(len(box.sets) + 1 for box in one) * len(other) + sum(len(box.sets) for box in other) * len(one))
        both = [box for a in one for b in other if (box := a.intersect(b)) is not None]
        return both if len(both) < 2 else self.join(both)

    def join(self, boxes: list[Box]) -> list[Box]:
        """Join boxes that differ in one attribute or residual only, over and over, to no more than the limit."""
        boxes = [EVERYTHING] if EVERYTHING in boxes else list(dict.fromkeys(boxes))
        while len(boxes) > 1:
            groups: dict[tuple[str | Subject, int], list[Box]] = {}
            for box in boxes:
                self.charge(len(box.sets) + 1)
                hashes = {part: hash((part, held)) for part, held in (*box.sets.items(), *box.residuals.items())}
                whole = reduce(int.__xor__, hashes.values(), 0)
                for part, own in hashes.items():
                    groups.setdefault((part, whole ^ own), []).append(box)
            joined = self.join_groups(boxes, groups)
            if len(joined) == len(boxes):
                break
            boxes = joined
        if len(boxes) > MAX_BOXES:
            raise FilterTooComplexError(f"the filter is a union of more than {MAX_BOXES} boxes: split it")
        return boxes

    def join_groups(self, boxes: list[Box], groups: dict[tuple[str | Subject, int], list[Box]]) -> list[Box]:
        """One round of joins; a box takes part in one join at most."""
        left: dict[int, Box] = {id(box): box for box in boxes}
        result: list[Box] = []
        for (part, _), group in groups.items():
            free = [box for box in group if id(box) in left]
            alike = [box for box in free if _rest(box, part) == _rest(free[0], part)] if len(free) > 1 else []
            if len(alike) > 1:
                for box in alike:
                    del left[id(box)]
                sets, residuals = dict(alike[0].sets), dict(alike[0].residuals)
                if isinstance(part, str):
                    sets[part] = _balanced(ValueSet.union, [box.sets[part] for box in alike])
                else:
                    residuals[part] = frozenset[Any]().union(*(box.residuals[part] for box in alike))
                whole = Box.of(sets, residuals, self.schema)
                if whole is not None:
                    result.append(whole)
        return list(dict.fromkeys([*left.values(), *result]))

    def charge(self, work: int) -> None:
        self.work += work
        if self.work > _MAX_WORK:
            raise FilterTooComplexError("the filter multiplies out to too many boxes: split it")


def _rest(box: Box, part: str | Subject) -> tuple[object, object]:
    """All of a box but one attribute or residual."""
    return (
        {name: values for name, values in box.sets.items() if name != part},
        {subject: allowed for subject, allowed in box.residuals.items() if subject != part},
    )


def _absorb(boxes: list[Box]) -> list[Box]:
    """Without the boxes that another one covers; many with patterns stay as they are, for comparing them takes long."""
    if len(boxes) > _FEW and any(values.strings.terms for box in boxes for values in box.sets.values()):
        return boxes
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


def _where_true(node: Filter) -> tuple[str, ValueSet]:
    """Where a test is TRUE, without the work for where it is FALSE."""
    match node:
        case Compare(left, operator, Constant() as right):
            return left.name, on_line(right.type, _line(operator, right))
        case Between(left, low, high) if low.type.compares_with(high.type):
            line = ((low.value, 0), (high.value, 1)) if low.value <= high.value else EMPTY  # type: ignore[operator]
            return left.name, on_line(low.type, line)
    name, split = _split(node)
    return name, split[0]


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
    line = _line(operator, constant)
    other = interval.complement(line, _WHOLE.get(constant.type, NUMBERS))
    return on_line(constant.type, line), on_line(constant.type, other)


def _line(operator: Operator, constant: Constant) -> Line:
    value, whole = constant.value, _WHOLE.get(constant.type, NUMBERS)
    match operator:
        case Operator.EQ:
            return (value, 0), (value, 1)
        case Operator.GE:
            return ((value, 0),)
        case Operator.GT:
            return ((value, 1),)
        case Operator.LT:
            return interval.complement(((value, 0),), whole)
        case Operator.LE:
            return interval.complement(((value, 1),), whole)
    return interval.complement(((value, 0), (value, 1)), whole)


_WHOLE: dict[Type, Line] = {Type.STRING: STRINGS, Type.BOOL: ((False, 0),)}
