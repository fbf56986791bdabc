"""A user's filters in their covering order, as JSON-able facts: the answers of `weft order`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Any

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.cli.filter_files import Refused, Wish
from weft.errors import FilterError
from weft.model.schema import Schema
from weft.order import BalancedForest, Filters, Forest, NonRedundantForest, Poset, Relation, Structure
from weft.order.drawing import View, label
from weft.order.mergeability import Budget, FilterMerging
from weft.order.root_merging import RootMerging

Facts = dict[str, Any]

_WARM = 600
_TOLD = 1_000  # filters between two words of progress


class Kind(StrEnum):
    """The structures that a user may choose."""

    FOREST = "forest"
    BALANCED = "balanced"
    NONREDUNDANT = "nonredundant"
    POSET = "poset"

    @property
    def make(self) -> Callable[[Relation[Any]], Structure[Any]]:
        """Its class."""
        return _CLASSES[self]

    @property
    def named(self) -> str:
        """Its name in a sentence."""
        return _NAMES[self]


_CLASSES: dict[Kind, Callable[[Relation[Any]], Structure[Any]]] = {
    Kind.FOREST: Forest,
    Kind.BALANCED: BalancedForest,
    Kind.NONREDUNDANT: NonRedundantForest,
    Kind.POSET: Poset,
}
_NAMES = {
    Kind.FOREST: "poset-derived forest",
    Kind.BALANCED: "balanced forest",
    Kind.NONREDUNDANT: "non-redundant forest",
    Kind.POSET: "filters poset",
}


@dataclass(frozen=True, slots=True)
class Usable:
    """The filters that can match something, their normal forms, and those that have no place in an order."""

    wishes: list[Wish] = field(default_factory=list)
    forms: list[NormalForm] = field(default_factory=list)
    left_out: list[Refused] = field(default_factory=list)


def usable(wishes: Iterable[Wish], schema: Schema | None) -> Usable:
    """Part the filters. Raises FilterError if none is left."""
    found = Usable()
    for wish in wishes:
        try:
            form = normalize(wish.filter, schema)
            if not form.boxes:
                raise FilterError("it matches nothing, so it has no place in the covering order")
        except FilterError as error:
            found.left_out.append(Refused(wish.place, str(wish.filter), error))
            continue
        found.wishes.append(wish)
        found.forms.append(form)
    return found


def ordered(
    kind: Kind, found: Usable, schema: Schema | None, progress: Callable[[str], None] = lambda _: None
) -> Structure[Any]:
    """The filters in a structure, as they were written."""
    structure = kind.make(Filters(schema))
    for done, wish in enumerate(found.wishes):
        if done % _TOLD == 0:
            progress(f"{done:,} of {len(found.wishes):,}")
        structure.add(wish.filter, wish.interface)
    return structure


def counted(structure: Structure[Any]) -> Facts:
    """How large and how deep a structure is."""
    return {
        "nodes": len(structure),
        "roots": sum(1 for _ in structure.roots),
        "depth": structure.depth,
        "edges": sum(len(node.parents) for node in structure if structure.top not in node.parents),
    }


def compared(
    found: Usable, schema: Schema | None, indexed: bool = True, progress: Callable[[str], None] = lambda _: None
) -> list[Facts]:
    """Each structure of the same filters: its size, the comparisons and the seconds that it took.

    >>> from weft import parse
    >>> texts = ("x > 0", "x > 5", "x > 7")
    >>> found = usable([Wish(parse(text), text, "") for text in texts], None)
    >>> [(facts["structure"], facts["roots"], facts["depth"]) for facts in compared(found, None)]
    [('forest', 1, 3), ('balanced', 1, 3), ('nonredundant', 1, 3), ('poset', 1, 3)]
    """
    if indexed:
        _build(Kind.FOREST, found.forms[:_WARM], found.wishes[:_WARM], Filters(schema))  # compiles, or loads it
    facts = []
    for kind in Kind:
        progress(kind.named)
        relation = Filters(schema, indexed)
        start = perf_counter()
        structure = _build(kind, found.forms, found.wishes, relation)
        seconds = perf_counter() - start
        facts.append(
            {
                "structure": str(kind),
                **counted(structure),
                "comparisons": relation.comparisons,
                "seconds": seconds,
            }
        )
    return facts


def merged(found: Usable, schema: Schema | None, budget: float) -> Facts:
    """How many filters a root set of the same filters is told as, merged perfectly, and within a budget of waste.

    The second is None where the schema does not measure the filters' volume.

    >>> from weft import parse
    >>> found = usable([Wish(parse(text), text, "") for text in ("x < 5", "x >= 5 AND x < 9", "y = 1")], None)
    >>> merged(found, None, 0.1)
    {'perfect': 2, 'imperfect': None, 'budget': 0.1}
    """
    exactly = _merged_roots(found, schema, FilterMerging(schema))
    wasteful = FilterMerging(schema, Budget(budget))
    measured = wasteful.share(Filters(schema).make(found.forms[0])) is not None
    about = len(_merged_roots(found, schema, wasteful).merged) if measured else None
    return {"perfect": len(exactly.merged), "imperfect": about, "budget": budget}


def listed(shown: View[Any]) -> list[Facts]:
    """The nodes of a view, each with the numbers of those directly above it."""
    numbers = {node: at for at, node in enumerate(shown.nodes)}
    return [
        {
            "id": number,
            "filter": label(node),
            "interfaces": sorted(map(str, node.interfaces)),
            "parents": sorted(numbers[parent] for parent in node.parents if parent in numbers),
        }
        for node, number in numbers.items()
    ]


def _merged_roots(found: Usable, schema: Schema | None, merging: FilterMerging) -> RootMerging[Any]:
    roots: RootMerging[Any] = RootMerging(Forest(Filters(schema)), merging)
    for form, wish in zip(found.forms, found.wishes, strict=True):
        roots.add(form, wish.interface)
    return roots


def _build(kind: Kind, forms: Sequence[NormalForm], wishes: Sequence[Wish], relation: Filters) -> Structure[Any]:
    structure = kind.make(relation)
    for form, wish in zip(forms, wishes, strict=True):
        structure.add(form, wish.interface)
    return structure
