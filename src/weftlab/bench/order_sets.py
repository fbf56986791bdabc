"""Queries and profiles in two forests, and merged root sets (thesis, chapters 6 to 8). Pairs are those of plain sets. A
merged root set lets through what the roots do.

The set-based way compares every query with every profile, so its operations are their product: that is checked where
the sets are small enough to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.merging.mergeability import FilterMerging
from weft.merging.root_merging import RootMerging
from weft.order import FilterRelation, NonRedundantForest
from weft.profiles.double_forest import DoubleForest
from weft.profiles.two_sets import TwoSets
from weft.workloads.thesis import ANY_PREDICATE, SCHEMAS, TOP, FilterSchema
from weftlab.bench.report import Result, timed

CHECKED = 1_000  # queries, and profiles, that the set-based way is run for
GOALS = {"with_bounds": 0.5, "preloaded_covers": 0.0, "most_merged_roots": 50.0}


def pairs(size: int, progress: Callable[[str], None]) -> list[Result]:
    """As many queries as profiles, in turn, 2-d, by covering; operations in parts of the set-based way's."""
    place, rng = f"double-2d/{size}", np.random.default_rng(1)
    queries, profiles = (_forms(SCHEMAS["2d"], size, rng) for _ in range(2))
    results = []
    for figure, bounds in (("with_bounds", True), ("without_bounds", False)):
        if not bounds and size > CHECKED:
            continue  # hours, and nothing to learn
        progress(f"{size:,} queries and profiles, {figure.replace('_', ' ')}")
        forest = DoubleForest.of_filters(bounds=bounds, indexed=False)
        seconds, _ = timed(lambda: _meet(forest, queries, profiles))  # noqa: B023 - called here and now
        share = forest.comparisons / size**2
        results.append(Result(f"{place}/{figure}", share, "of sets", GOALS.get(figure), "lower"))
        results.append(Result(f"{place}/{figure}_s", seconds, "s", None, "lower"))
        if size <= CHECKED:
            sets = TwoSets[Any](FilterRelation(indexed=False))
            _meet(sets, queries, profiles)
            assert sets.comparisons == size**2, "sets compare each with each"
            assert sets.pairs() == forest.pairs(), "forests must find what sets find"
    if size <= CHECKED:
        progress("preloaded queries and profiles")
        loaded = DoubleForest.of_filters(indexed=False)
        loaded.preload(profiles, queries)
        before = loaded.comparisons
        _meet(loaded, queries, profiles)
        assert loaded.pairs() == sets.pairs(), "preloading must not change who matches whom"
        more = loaded.comparisons - before
        results.append(Result(f"{place}/preloaded_covers", more, "covers", GOALS["preloaded_covers"], "lower"))
    return results


def merged(size: int, progress: Callable[[str], None]) -> list[Result]:
    """Filters of one to three attributes, each with its own interface: roots, merged roots, and the most there were."""
    results = []
    any_predicate = replace(SCHEMAS["1-3"], predicates=ANY_PREDICATE)
    for name, schema in (("ranges", SCHEMAS["1-3"]), ("predicates", any_predicate)):
        place = f"merged-{name}/{size}"
        progress(f"merging {size:,} filters of {name}")
        forms = _forms(schema, size, np.random.default_rng(1))
        roots = RootMerging[Any](NonRedundantForest(FilterRelation()), FilterMerging())
        most = 0

        def add() -> None:
            nonlocal most
            for client, form in enumerate(forms):  # noqa: B023 - called here and now
                roots.add(form, client)  # noqa: B023
                most = max(most, len(roots.merged))  # noqa: B023

        seconds, _ = timed(add)
        _check_told(roots, np.random.default_rng(2))
        plain = sum(1 for _ in roots.structure.roots)
        results += [
            Result(f"{place}/roots", plain, "filters", None, "lower"),
            Result(f"{place}/merged_roots", len(roots.merged), "filters", None, "lower"),
            Result(f"{place}/most_merged_roots", most, "filters", GOALS["most_merged_roots"], "lower"),
            Result(f"{place}/adds_per_s", size / seconds, "filters/s"),
        ]
    return results


def _meet(table: Any, queries: Sequence[NormalForm], profiles: Sequence[NormalForm]) -> None:
    for name, (query, profile) in enumerate(zip(queries, profiles, strict=True)):
        table.add_query(query, name)
        table.add_profile(profile, name)


def _check_told(roots: RootMerging[Any], rng: np.random.Generator) -> None:
    """What is told lets through what the roots do, and with perfect mergers nothing else."""
    wanted = [box for node in roots.structure.roots for box in node.made.form.boxes]
    told = [box for item in roots.merged for box in roots.structure.relation.make(item.thing).form.boxes]
    for _ in range(300):
        names = rng.permutation(["a", "b", "c"])[: int(rng.integers(1, 4))].tolist()
        event = {name: int(rng.integers(-1, TOP + 2)) for name in names}
        assert any(event in box for box in wanted) == any(event in box for box in told), "mergers must be perfect"


def _forms(schema: FilterSchema, size: int, rng: np.random.Generator) -> list[NormalForm]:
    return [normalize(each) for each in schema.draw(size, rng)]
