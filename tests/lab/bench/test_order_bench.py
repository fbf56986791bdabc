"""The benchmark of the covering order runs, tiny, and its goals are on figures that it has."""

from __future__ import annotations

import pytest

from weft.order import Forest
from weft.workloads.thesis import SCHEMAS
from weftlab.bench import order, order_sets
from weftlab.bench.order import GOALS, STRUCTURES


@pytest.fixture(scope="module")
def results():
    told: list[str] = []
    found = order.run(quick=True, progress=told.append, size=60)
    assert len(told) == len(set(told)) > 10
    return {result.name: result for result in found}


def test_every_figure_is_measured(results):
    assert all(result.value is not None and result.value >= 0 for result in results.values())
    for name in SCHEMAS:
        for phase in ("add", "change"):
            assert all(f"local-{name}/60/{kind}_{phase}" in results for kind in STRUCTURES)
            assert f"distributed-{name}-3/60/poset_vs_nonredundant_{phase}" in results
    assert {name.split("/")[0] for name in results} >= {
        "narrow",
        "thesis-2d",
        "thesis-3d",
        "double-2d",
        "merged-ranges",
    }


def test_goals_are_on_figures_that_there_are(results):
    shapes = {name.replace("/60/", "/") for name in results}
    assert {f"{place}/{figure}" for place, _, figure in (name.split("/") for name in GOALS)} <= shapes
    assert {name.split("/")[2] for name in results} >= set(order_sets.GOALS)


def test_ratios_are_of_the_figures_shown(results):
    for phase in ("add", "change"):
        poset, forest = (results[f"local-2d/60/{kind}_{phase}"].value for kind in ("poset", "forest"))
        assert results[f"local-2d/60/poset_vs_forest_{phase}"].value == pytest.approx(poset / forest)


def test_preloaded_forests_compare_nothing_and_few_mergers_are_told(results):
    assert results["double-2d/60/preloaded_covers"].ok is True
    assert results["merged-ranges/60/most_merged_roots"].ok is True


def test_a_structure_with_other_roots_is_found_out(monkeypatch):
    class Forgetful(Forest):
        def add(self, thing, interface=0):
            return super().add(thing, interface) if interface % 7 else None

    monkeypatch.setitem(order.STRUCTURES, "balanced", Forgetful)
    with pytest.raises(AssertionError, match="balanced: the same filters must have the same roots"):
        order.run(quick=True, progress=lambda _: None, size=30)
