"""A user's filters in their covering order, as JSON-able facts: the answers of `weft order`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Any

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.cli.filter_answers import Facts
from weft.cli.filter_files import RefusedFilter, WantedFilter
from weft.drawing.order_view import OrderView, label
from weft.errors import FilterError
from weft.merging.mergeability import FilterMerging, MergeBudget
from weft.merging.root_merging import RootMerging
from weft.model.schema import Schema
from weft.order import BalancedForest, FilterRelation, Forest, NonRedundantForest, Poset, Relation, Structure

_WARM = 600
_TOLD = 1_000  # filters between two words of progress


class StructureKind(StrEnum):
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


_CLASSES: dict[StructureKind, Callable[[Relation[Any]], Structure[Any]]] = {
    StructureKind.FOREST: Forest,
    StructureKind.BALANCED: BalancedForest,
    StructureKind.NONREDUNDANT: NonRedundantForest,
    StructureKind.POSET: Poset,
}
_NAMES = {
    StructureKind.FOREST: "poset-derived forest",
    StructureKind.BALANCED: "balanced forest",
    StructureKind.NONREDUNDANT: "non-redundant forest",
    StructureKind.POSET: "filters poset",
}


@dataclass(frozen=True, slots=True)
class Usable:
    """The filters that can match something, their normal forms, and those that cannot be ordered."""

    wishes: list[WantedFilter] = field(default_factory=list)
    forms: list[NormalForm] = field(default_factory=list)
    left_out: list[RefusedFilter] = field(default_factory=list)


def usable(wishes: Iterable[WantedFilter], schema: Schema | None) -> Usable:
    """Separate the filters that can be ordered from the others."""
    found = Usable()
    for wish in wishes:
        try:
            form = normalize(wish.filter, schema)
            if not form.boxes:
                raise FilterError("it matches nothing, so it cannot be ordered")
        except FilterError as error:
            found.left_out.append(RefusedFilter(wish.place, str(wish.filter), error))
            continue
        found.wishes.append(wish)
        found.forms.append(form)
    return found


def ordered(
    kind: StructureKind, found: Usable, schema: Schema | None, progress: Callable[[str], None] = lambda _: None
) -> Structure[Any]:
    """The filters in a structure, as they were written."""
    structure = kind.make(FilterRelation(schema))
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
    >>> found = usable([WantedFilter(parse(text), text, "") for text in texts], None)
    >>> [(facts["structure"], facts["roots"], facts["depth"]) for facts in compared(found, None)]
    [('forest', 1, 3), ('balanced', 1, 3), ('nonredundant', 1, 3), ('poset', 1, 3)]
    """
    if indexed:
        # compiles, or loads it
        _build(StructureKind.FOREST, found.forms[:_WARM], found.wishes[:_WARM], FilterRelation(schema))
    facts = []
    for kind in StructureKind:
        progress(kind.named)
        relation = FilterRelation(schema, indexed)
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
    """How many filters the roots merge into: perfectly, and within a budget of waste.

    The second is None where the schema does not measure the filters' volume.

    >>> from weft import parse
    >>> found = usable([WantedFilter(parse(text), text, "") for text in ("x < 5", "x >= 5 AND x < 9", "y = 1")], None)
    >>> merged(found, None, 0.1)
    {'perfect': 2, 'imperfect': None, 'budget': 0.1}
    """
    exactly = _merged_roots(found, schema, FilterMerging(schema))
    wasteful = FilterMerging(schema, MergeBudget(budget))
    measured = wasteful.share(FilterRelation(schema).make(found.forms[0])) is not None
    about = len(_merged_roots(found, schema, wasteful).merged) if measured else None
    return {"perfect": len(exactly.merged), "imperfect": about, "budget": budget}


def listed(shown: OrderView[Any]) -> list[Facts]:
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
    roots: RootMerging[Any] = RootMerging(Forest(FilterRelation(schema)), merging)
    for form, wish in zip(found.forms, found.wishes, strict=True):
        roots.add(form, wish.interface)
    return roots


def _build(
    kind: StructureKind, forms: Sequence[NormalForm], wishes: Sequence[WantedFilter], relation: FilterRelation
) -> Structure[Any]:
    structure = kind.make(relation)
    for form, wish in zip(forms, wishes, strict=True):
        structure.add(form, wish.interface)
    return structure
