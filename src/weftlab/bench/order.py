"""The covering order: forests against the poset as in the thesis, and far beyond its sizes. Structures process the same
changes and must have the same roots. Calls of `covers` are counted by the relation itself.

The thesis's figures (4.2 to 4.4) are measured on the generic path, filter against filter; the larger ones with the
index of boxes, on normal forms made before, as a router holds them, unless a name says `from_filters`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.order import BalancedForest, FilterRelation, Forest, NonRedundantForest, Poset, Relation, Structure
from weft.workloads.thesis import SCHEMAS, FilterSchema, in_turn
from weftlab.bench.order_sets import merged, pairs
from weftlab.bench.report import Result, timed

STRUCTURES: dict[str, Callable[[Relation[Any]], Structure[Any]]] = {
    "forest": Forest,
    "balanced": BalancedForest,
    "nonredundant": NonRedundantForest,
    "poset": Poset,
}
LEAN = ("nonredundant", "poset")
NARROW = replace(SCHEMAS["3d"], width=0.01)
GOALS = {
    **{
        f"local-{name}/500/poset_vs_{kind}_{phase}": 1.0
        for name in SCHEMAS
        for kind in ("forest", "nonredundant")
        for phase in ("add", "change")
    },
    "narrow/100000/adds_per_s": 5_000,
    "narrow/100000/changes_per_s": 2_000,
    "thesis-2d/100000/adds_per_s": 50_000,
    "thesis-3d/100000/adds_per_s": 50_000,
}
LOWER = {"covers", "ms"}  # units in which less is better

OrderStep = tuple[bool, NormalForm, Hashable]  # added or not, the filter, who wants it


@dataclass(frozen=True, slots=True)
class OrderEffort:
    """The extent of a measurement, and the receiver of its notes."""

    local: int  # filters
    distributed: int
    interfaces: tuple[int, ...]
    replications: int
    sizes: tuple[int, ...]  # beyond the thesis's
    pairs: tuple[int, ...]  # queries, and as many profiles
    merged: int
    progress: Callable[[str], None]


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures; with a size, tiny ones of that many filters."""
    if size is not None:
        effort = OrderEffort(size, size, (3,), 1, (size,), (size,), size, progress)
    elif quick:
        effort = OrderEffort(500, 1_000, (3, 15), 1, (10_000, 100_000), (1_000,), 10_000, progress)
    else:
        effort = OrderEffort(
            500, 1_000, (3, 6, 9, 12, 15), 5, (10_000, 100_000, 300_000), (1_000, 10_000), 10_000, progress
        )
    progress("getting ready")
    _warm()
    results: list[Result] = []
    for name, schema in SCHEMAS.items():
        results += _local(effort, name, schema)
    for name, schema in SCHEMAS.items():
        for interfaces in effort.interfaces:
            results += _distributed(effort, name, schema, interfaces)
    results += _beyond(effort)
    for each in effort.pairs:
        results += pairs(each, progress)
    return results + merged(effort.merged, progress)


def _figure(place: str, figure: str, value: float, unit: str) -> Result:
    name = f"{place}/{figure}"
    return Result(name, value, unit, GOALS.get(name), "lower" if unit in LOWER else "higher")


# -- the thesis ----------------------------------------------------------------------------------------------


def _local(effort: OrderEffort, name: str, schema: FilterSchema) -> list[Result]:
    """Local clients (4.3): each filter has its own interface; all are added, then one by one replaced."""
    size = effort.local
    runs = []
    for seed in range(effort.replications):
        effort.progress(f"local clients, {name}, run {seed + 1} of {effort.replications}")
        rng = np.random.default_rng(seed)
        old, new = (_forms(schema, size, rng) for _ in range(2))
        added = [(True, form, client) for client, form in enumerate(old)]
        replaced = [
            change
            for client in rng.permutation(size).tolist()
            for change in ((False, old[client], client), (True, new[client], client))
        ]
        runs.append(_run(STRUCTURES, added, replaced))
    return _figures(f"local-{name}/{size}", runs)


def _distributed(effort: OrderEffort, name: str, schema: FilterSchema, interfaces: int) -> list[Result]:
    """Neighbours (4.4): each sends only what no other filter of its own covers, and with a removal the uncovered."""
    size = effort.distributed
    runs = []
    for seed in range(effort.replications):
        effort.progress(f"{interfaces} neighbours, {name}, run {seed + 1} of {effort.replications}")
        rng = np.random.default_rng(seed)
        tables: list[Forest[Any]] = [Forest(FilterRelation()) for _ in range(interfaces)]
        neighbours = range(interfaces)
        added = [
            (True, sent, who)
            for form, who in in_turn(_forms(schema, size, rng), neighbours)
            for sent in tables[who].add(form).add
        ]
        replaced: list[OrderStep] = []
        for form, who in in_turn(_forms(schema, size // 10, rng), neighbours):
            roots = list(tables[who].roots)
            gone: Any = roots[int(rng.integers(len(roots)))].thing
            replaced.append((False, gone, who))
            replaced += [(True, sent, who) for sent in tables[who].discard(gone).add]
            replaced += [(True, sent, who) for sent in tables[who].add(form).add]
        runs.append(_run({kind: STRUCTURES[kind] for kind in LEAN}, added, replaced))
    return _figures(f"distributed-{name}-{interfaces}/{size}", runs)


Costs = dict[str, dict[str, tuple[int, float]]]  # of each structure, comparisons and seconds of each phase


def _run(kinds: dict[str, Callable[[Relation[Any]], Structure[Any]]], *phases: Sequence[OrderStep]) -> Costs:
    """The same changes to each structure, which must agree on the roots after each phase."""
    costs: Costs = {}
    roots: dict[str, set[Hashable]] = {}
    for kind, make in kinds.items():
        relation = FilterRelation(indexed=False)
        structure = make(relation)
        costs[kind] = {}
        for phase, changes in zip(("add", "change"), phases, strict=True):
            before = relation.comparisons
            seconds, _ = timed(lambda: _apply(structure, changes))  # noqa: B023 - called here and now
            costs[kind][phase] = relation.comparisons - before, seconds
            found = {relation.key(node.made) for node in structure.roots}
            assert roots.setdefault(phase, found) == found, f"{kind}: the same filters must have the same roots"
    return costs


def _apply(structure: Structure[Any], changes: Iterable[OrderStep]) -> None:
    for added, form, who in changes:
        if added:
            structure.add(form, who)
        else:
            structure.discard(form, who)


def _figures(place: str, runs: Sequence[Costs]) -> list[Result]:
    """Means over the runs; and what the poset costs in parts of each forest."""
    results = []
    kinds = list(runs[0])
    for phase in ("add", "change"):
        means = {kind: np.mean([each[kind][phase] for each in runs], axis=0).tolist() for kind in kinds}
        for kind, (compared, seconds) in means.items():
            results.append(_figure(place, f"{kind}_{phase}", compared, "covers"))
            results.append(_figure(place, f"{kind}_{phase}_ms", 1e3 * seconds, "ms"))
        for kind in kinds:
            if kind not in ("balanced", "poset"):
                fewer, faster = (theirs / ours for theirs, ours in zip(means["poset"], means[kind], strict=True))
                results.append(_figure(place, f"poset_vs_{kind}_{phase}", fewer, "x"))
                results.append(_figure(place, f"poset_vs_{kind}_{phase}_ms", faster, "x"))
    return results


# -- beyond ----------------------------------------------------------------------------------------------------


def _beyond(effort: OrderEffort) -> list[Result]:
    """Very many filters of ten neighbours into the non-redundant forest."""
    results = []
    for size in effort.sizes:
        results += _many(effort, "narrow", NARROW, size)
    for name in ("2d", "3d"):
        results += _many(effort, f"thesis-{name}", SCHEMAS[name], min(effort.sizes[-1], 100_000))
    return results


def _many(effort: OrderEffort, name: str, schema: FilterSchema, size: int) -> list[Result]:
    effort.progress(f"{size:,} {name} filters")
    place, rng = f"{name}/{size}", np.random.default_rng(1)
    drawn = schema.draw(size, rng)
    prepare, forms = timed(lambda: [normalize(each) for each in drawn])
    some = min(size, 10_000)
    more = _forms(schema, some, rng)
    forest = NonRedundantForest[Any](FilterRelation())
    added = [(True, *pair) for pair in in_turn(forms, range(10))]
    seconds, _ = timed(lambda: _apply(forest, added))
    nodes = len(forest)
    held = [(node.thing, who) for node in forest for who in node.interfaces]
    gone = [held[at] for at in rng.permutation(len(held))[:some].tolist()]
    changes = [
        change for (old, who), new in zip(gone, more, strict=False) for change in ((False, old, who), (True, new, who))
    ]
    change_seconds, _ = timed(lambda: _apply(forest, changes))
    _check_roots(forest)
    return [
        _figure(place, "adds_per_s", size / seconds, "filters/s"),
        _figure(place, "adds_per_s_from_filters", size / (seconds + prepare), "filters/s"),
        _figure(place, "changes_per_s", len(changes) / 2 / change_seconds, "replacements/s"),
        _figure(place, "nodes", nodes, "nodes"),
    ]


def _check_roots(forest: Structure[Any]) -> None:
    """Whether some nodes are roots exactly if no other covers them, by comparing each with all."""
    nodes = list(forest)
    columns = BoxColumns.of([node.made.form.boxes[0] for node in nodes])
    for at in range(0, len(nodes), max(len(nodes) // 200, 1)):
        covering = int(columns.covering(nodes[at].made.form.boxes[0]).sum())
        assert (covering == 1) == (forest.top in nodes[at].parents), "a root is what no other covers"


def _forms(schema: FilterSchema, size: int, rng: np.random.Generator) -> list[NormalForm]:
    return [normalize(each) for each in schema.draw(size, rng)]


def _warm() -> None:
    """Compile everything: trees of boxes, searches both ways."""
    forest = NonRedundantForest[Any](FilterRelation())
    forms = _forms(SCHEMAS["3d"], 600, np.random.default_rng(0))
    for client, form in enumerate(forms):
        forest.add(form, client)
    for client, form in enumerate(forms):
        forest.discard(form, client)
