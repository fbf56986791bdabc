"""Filters to unions of boxes. Law: a normal form holds exactly the events that the filter matches.

Every test splits the values of its attribute into those that make it TRUE, FALSE and NULL. So the region in which a
filter has one of some truths is computed from the leaves up, and NOT and IS only change the wanted truths. Tests of one
attribute that AND or OR combines become one value set at once, in O(n log n); whatever multiplies spends a budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

from weft.algebra import interval
from weft.algebra.absorption import absorb
from weft.algebra.box import EVERYTHING, Box, NormalForm, too_many_residuals, universe
from weft.algebra.box_unions import BoxUnions
from weft.algebra.budget import Budget
from weft.algebra.element_sets import ElementSet
from weft.algebra.residual import Called, Outcomes, Subject, relation
from weft.algebra.to_filter import check_written, element_text
from weft.algebra.truth_split import TRUTH, Split, is_leaf, leaf_steps, split_of, where_false, where_true
from weft.algebra.valueset import ABSENT, NOTHING, PRESENT, TRULY, TRUTHS, ValueSet, of_type
from weft.errors import FilterTooComplexError
from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import (
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
)
from weft.language.constant import Constant
from weft.language.meaning import negation
from weft.language.membership import (
    MARK,
    Truths,
    element_test_name,
    member_values,
    membership,
    membership_name,
)
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.model.value import Type

MAX_BOXES = LIMITS.boxes
_SHORT = 16  # operands of a conjunction, and values of an IN, that need no budget

_ALL: Truths = frozenset((True, False, None))
_REGION = 22  # steps that a region takes besides those of its parts
_TRUE: Truths = frozenset((True,))
_FALSE: Truths = frozenset((False,))
_NEGATED: dict[Truths, Truths] = {
    truths: frozenset(map(negation, truths)) for size in range(4) for truths in map(frozenset, combinations(_ALL, size))
}


def normalize(
    filter: AnyFilter, schema: Schema | None = None, budget: Budget | None = None, *, stored: bool = False
) -> NormalForm:
    """A filter as a union of boxes; without a schema all numbers are one real line.

    Raises FilterTooComplexError for too many boxes or attributes in them, when the budget is used up, or when the text
    of the normal form would be too long to read back. A `stored` filter was admitted before, so its size is not checked
    again.

    Cost: O(n log n) for a conjunction of n tests; at most the steps of the budget for what multiplies.

    >>> form = normalize("NOT (x < 5 OR x > 9) AND x != 7")
    >>> len(form.boxes), {"x": 6} in form, {"x": 7} in form
    (1, True, False)
    """
    tree = as_filter(filter)
    boxes = _one_box(tree) if schema is None else None
    if boxes is None:
        budget = budget or Budget()
        boxes = _Normalizer(schema, budget).regions(tree, _TRUE)
        if len(boxes) > 1:
            boxes = absorb(boxes, budget)
        if not stored:
            sets = sum([len(box.sets) for box in boxes])
            if sets > LIMITS.sets:
                raise FilterTooComplexError(
                    f"the boxes of the filter test {sets:,} attributes in total, at most {LIMITS.sets:,} are allowed; "
                    "split the filter"
                )
            budget.spend(sets // 4)
            check_written(tree, boxes)
    return NormalForm(tuple(boxes), schema)


def simplify(boxes: Iterable[Box], schema: Schema | None = None, budget: Budget | None = None) -> NormalForm:
    """The union of boxes, with neighbours joined and covered boxes dropped."""
    budget = budget or Budget()
    return NormalForm(tuple(absorb(BoxUnions(schema, budget).join(list(boxes)), budget)), schema)


def conformed(form: NormalForm, schema: Schema) -> NormalForm:
    """A form that was made without a schema, under a schema: of the same events those that conform to it.

    Cost: O(attributes of its boxes), a small part of what `normalize` takes.
    """
    budget = Budget()
    sets = _Normalizer(schema, budget).conform
    boxes = (
        Box.of({name: sets(name, values) for name, values in box.sets.items()}, box.residuals, schema, budget)
        for box in form.boxes
    )
    return NormalForm(tuple(box for box in boxes if box is not None), schema)


def _one_box(filter: Filter) -> list[Box] | None:
    """The box of a short conjunction of tests with constants, no box if it is empty; None for any other filter."""
    sets: dict[str, ValueSet] = {}
    nodes = filter.operands if isinstance(filter, And) else (filter,)
    if len(nodes) > _SHORT:
        return None
    for node in nodes:
        kind = type(node)
        if kind is Compare:
            if type(node.right) is AttributeRef:  # type: ignore[attr-defined]
                return None
        elif kind is Has:
            if node.every or len(node.values) > _SHORT:  # type: ignore[attr-defined]
                return None
        elif kind not in _TESTS or (kind is In and len(node.values) > _SHORT):  # type: ignore[attr-defined]
            return None
        name, values = where_true(node)
        if name in sets:
            values = sets[name].intersect(values)
        if not values:
            return []
        sets[name] = values
    return [Box(sets)]


_TESTS = frozenset((Between, In, Like))


def united_memberships(tests: dict[str, list[ValueSet]]) -> dict[str, list[ValueSet]]:
    """Alternatives, with `x HAS 'a' OR x HAS 'b'` as `x HAS ANY ('a', 'b')`."""
    alike: dict[str, list[str]] = {}
    for name, some in tests.items():
        if name[0] != MARK or not all(values == TRULY for values in some):
            continue
        said = membership(name)
        if said.keys and not said.every:
            alike.setdefault(said.attribute, []).append(name)
    for attribute, names in alike.items():
        if len(names) > 1:
            whole = membership_name(attribute, [each for name in names for each in member_values(name)])
            tests = {**{name: some for name, some in tests.items() if name not in names}, whole: [TRULY]}
    return tests


class _Normalizer:
    def __init__(self, schema: Schema | None, budget: Budget) -> None:
        self.schema = schema
        self.budget = budget
        self.unions = BoxUnions(schema, budget)
        self.known: dict[tuple[int, Truths], list[Box]] = {}

    def regions(self, node: Filter, wanted: Truths) -> list[Box]:
        """The events for which the node has a wanted truth."""
        key = (id(node), wanted)
        if key not in self.known:  # IS NULL needs its operand twice: without a memo, each level would double the cost
            self.budget.spend(_REGION)
            self.known[key] = self.region(node, wanted)
        return self.known[key]

    def region(self, node: Filter, wanted: Truths) -> list[Box]:
        if not wanted or wanted == _ALL:
            return [EVERYTHING] if wanted else []
        match node:
            case Truth(value):
                return [EVERYTHING] if value in wanted else []
            case Not(operand):
                return self.regions(operand, _NEGATED[wanted])
            case Is(AttributeRef(name), None):
                return self.test(name, (ABSENT, PRESENT), wanted)
            case Is(operand, value):
                said = frozenset((value,)) if True in wanted else frozenset()
                return self.regions(operand, said | (_ALL - {value} if False in wanted else frozenset()))
            case And(operands):
                return self.combine(node, operands, wanted, True)
            case Or(operands):
                return self.combine(node, operands, wanted, False)
            case Compare(left, operator, AttributeRef(right)):
                return self.related(left.name, operator, right, wanted)
            case Call():
                return self.called(node, wanted)
            case Has(every=True) if wanted == _TRUE:
                return self.combine(node, node.tests, wanted, True)
        name, values = self.leaf(node, wanted)
        return self.one(name, values)

    def combine(self, node: Filter, operands: Sequence[Filter], wanted: Truths, neutral: bool) -> list[Box]:
        """AND (neutral: TRUE) and OR (neutral: FALSE): all operands are neutral, or any of them is the opposite."""
        if wanted == _TRUE and neutral and self.schema is None and len(operands) <= _SHORT:
            boxes = None if isinstance(node, Has) else _one_box(node)
            if boxes is not None:
                self.budget.spend(8 + 8 * len(operands))
                return boxes
        if wanted == {None}:  # not one and not the other
            both = [self.regions(node, frozenset((truth, None))) for truth in (True, False)]
            return self.unions.all_of(both)
        if None not in wanted and len(wanted) == 2:
            return self.unions.any_of([self.regions(node, frozenset((truth,))) for truth in (True, False)])
        self.budget.spend(16)
        every = neutral in wanted
        tests: dict[str, list[ValueSet]] = {}
        parts: list[list[Box]] = []
        first = 0  # the position of the tests among the other operands
        related: set[Subject] = set()
        for each in operands if len(operands) <= _SHORT else self.gathered(operands, wanted, neutral):
            operand, asked = each, wanted
            while isinstance(operand, Not):
                operand, asked = operand.operand, _NEGATED[asked]
            if not is_leaf(operand):
                if every and isinstance(operand, Compare) and isinstance(operand.right, AttributeRef):
                    related.add(relation(operand.left.name, operand.operator, operand.right.name)[0])
                    if len(related) > LIMITS.residuals:
                        raise too_many_residuals()
                parts.append(self.regions(operand, asked))
                continue
            name, values = self.leaf(operand, asked)
            if every and not values:
                return []
            if not tests:
                first = len(parts)
            if name in tests:
                tests[name].append(values)
            else:
                if len(tests) == LIMITS.names:
                    raise FilterTooComplexError(f"the filter tests more than {LIMITS.names:,} attributes; split it")
                tests[name] = [values]
        if not every:
            if wanted == _TRUE:
                tests = united_memberships(tests)
            parts[first:first] = [self.one(name, ValueSet.union_of(some, self.budget)) for name, some in tests.items()]
            return self.unions.any_of(parts)
        if tests:
            sets = {n: self.conform(n, ValueSet.intersection_of(some, self.budget)) for n, some in tests.items()}
            box = Box.of(sets, schema=self.schema, budget=self.budget)
            parts.insert(first, [] if box is None else [box])
        return self.unions.all_of(parts)

    def gathered(self, operands: Sequence[Filter], wanted: Truths, neutral: bool) -> Iterable[Filter]:
        """The different operands of a long chain, with all `x = 1 OR x = 2`, or `x != 1 AND x != 2`, as one IN."""
        if wanted not in (_TRUE, _FALSE):  # for NULL it matters which types come together
            return dict.fromkeys(operands)
        alike = Operator.NE if neutral else Operator.EQ
        alikes: dict[tuple[str, Type], list[Compare]] = {}
        rest: dict[Filter, None] = {}
        for each in operands:
            if type(each) is Compare and each.operator is alike and type(each.right) is Constant:
                kind = Type.FLOAT if each.right.type is Type.INT else each.right.type  # what compares with it
                alikes.setdefault((each.left.name, kind), []).append(each)
            else:
                rest[each] = None
        lists: list[Filter] = []
        for some in alikes.values():
            if len(some) == 1:
                rest[some[0]] = None
            else:
                self.budget.spend(len(some))
                one = In(some[0].left, tuple(each.right for each in some))  # type: ignore[misc]
                lists.append(Not(one) if neutral else one)
        return chain(lists, rest)

    def leaf(self, node: Filter, wanted: Truths) -> tuple[str, ValueSet]:
        """The attribute of a test, and the values for which it has a wanted truth."""
        self.budget.spend(leaf_steps(node))
        if isinstance(node, HasElement):
            return self.element_test(node, wanted)
        if wanted == _TRUE:  # by far the most common
            return where_true(node)
        self.budget.spend(10 if len(wanted) == 1 else 48)
        if wanted == _FALSE:
            return where_false(node)
        name, split = split_of(node)
        return name, self.choose(split, wanted)

    def element_test(self, node: HasElement, wanted: Truths) -> tuple[str, ValueSet]:
        """A test of elements as a membership; tests that the same elements pass have the same name."""
        self.budget.spend(32)
        found = ElementSet.of(_Normalizer(None, self.budget).regions(node.test, _TRUE), self.budget)
        values = None if found.values is None else found.values.finite()
        if values:
            self.budget.spend(len(values))
            name = membership_name(node.left.name, [Constant.of(each) for each in values if each is not None])
        else:
            name = element_test_name(node.left.name, element_text(found))
        true, false = TRUTH
        return name, self.choose((true if found else NOTHING, false), wanted)

    def choose(self, split: Split, wanted: Truths) -> ValueSet:
        true, false = split
        if len(wanted) == 1:
            if True in wanted:
                return true
            if False in wanted:
                return false
        values = NOTHING
        if True in wanted:
            values = values.union(true, self.budget)
        if False in wanted:
            values = values.union(false, self.budget)
        if None in wanted:
            values = values.union(true.union(false, self.budget).complement(self.budget), self.budget)
        return values

    def one(self, name: str, values: ValueSet) -> list[Box]:
        """The box of one attribute's values."""
        box = Box.of({name: self.conform(name, values)}, schema=self.schema, budget=self.budget)
        return [] if box is None else [box]

    def test(self, name: str, split: Split, wanted: Truths) -> list[Box]:
        return self.one(name, self.choose(split, wanted))

    def conform(self, name: str, values: ValueSet) -> ValueSet:
        """The values that the schema allows: those of the attribute's type, and integers on an integer line."""
        if name[0] == MARK:
            return values.intersect(TRUTHS)
        declared = None if self.schema is None else self.schema.get(name)
        if declared is None:
            return values
        if declared.type is Type.FLOAT and not (values.bools or values.timestamps or values.strings):
            return values  # the commonest
        left = values.intersect(universe(name, self.schema), self.budget)
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
        self.budget.spend(24)
        allowed: Outcomes = frozenset()
        if True in wanted:
            allowed |= true
        if False in wanted:
            allowed |= subject.outcomes - true - {None}
        if None in wanted:
            allowed |= {None}
        box = Box.of({}, {subject: allowed}, self.schema, self.budget)
        within = None if box is None else self.within_schema(box)
        return [] if within is None else [within]

    def within_schema(self, box: Box) -> Box | None:
        """The part of a box that the schema allows; None if it is empty."""
        sets = {name: self.conform(name, values) for name, values in box.sets.items()}
        return Box(sets, box.residuals) if all(sets.values()) else None
