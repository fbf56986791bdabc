"""Tuning: near the best, within the budget, told in a file, and never at the cost of an event."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.models import PREDICATES
from strategies import EVENTS, filters, thorough
from weft import Schema
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.errors import TuningError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.routing.dls.table import DlsTable
from weft.routing.mics.items import CurveRange
from weft.routing.mics.table import MicsTable
from weft.routing.table import ItemId, Link, RoutingTable, Update
from weft.space.cell_space import told_of
from weft.space.content import ContentSpace
from weft.space.curve_groups import CurveGroups
from weft.space.grid import Grid
from weft.tuning.budget import Cost, CostBudget, LinkFigures
from weft.tuning.cell_sample import CellSample
from weft.tuning.choices import Choices, Options
from weft.tuning.grid_costs import measure, shapes_for
from weft.tuning.parameters import Tuned
from weft.tuning.search import Search
from weft.tuning.tuner import exhaustive, tune_dls, tune_mics
from weftlab.bench.tune import FULL, TUNE, WORKLOADS

NORTH = Link("north")
SOME = Options((8, 32), (4, 64), groups=1)
BOUNDED_ABCD = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in "abcd"}})
BOUNDED = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}})


def held_out(name: str, size: int) -> tuple[Any, CellSample]:
    seen, unseen = WORKLOADS[name](size, 5 * size, 41), WORKLOADS[name](size, 10 * size, 42)
    return seen, CellSample(unseen.columns, unseen.events)


def ratio(name: str, model: str, budget: CostBudget, size: int, options: Options) -> float:
    """Of what the budget minimises, on draws that neither search has seen."""
    seen, held = held_out(name, size)
    mine, best = TUNE[model](*seen, budget, options), exhaustive(model, *seen, budget, options)
    assert budget.excess(mine.figures) == budget.excess(best.figures) == 0
    assert budget.rank(mine.figures) >= budget.rank(best.figures)
    assert mine.measured < best.measured
    got, peer = (measure(each.space, each.shape, held).of(budget.goal) for each in (mine, best))
    assert peer > 0
    return got / peer


@pytest.mark.parametrize(
    ("model", "name"),
    [  # four attributes have the most candidates, by far
        pytest.param(model, name, marks=[pytest.mark.slow] if name == "scattered" else [])
        for model in TUNE
        for name in WORKLOADS
    ],
)
def test_a_choice_is_near_that_of_an_exhaustive_search(name: str, model: str) -> None:
    assert ratio(name, model, CostBudget(forwarded=120), 60, SOME) <= 1.3


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("model", TUNE)
@pytest.mark.parametrize(
    "budget", [CostBudget(forwarded=600), CostBudget(memory=1 << 15), CostBudget(false_positives=0.9)]
)
def test_a_choice_is_near_that_of_a_long_search(name: str, model: str, budget: CostBudget) -> None:
    assert ratio(name, model, budget, 300, FULL) <= 1.3


# -- no event is lost ------------------------------------------------------------------------------


def tables(tuned: Tuned[Any]) -> tuple[RoutingTable, RoutingTable]:
    """Two tables of one tuning file, as two brokers would make them."""

    def table() -> RoutingTable:
        read = Tuned.from_json(tuned.to_json())
        made: RoutingTable = (
            MicsTable(read.space.groups, predicates=PREDICATES)
            if read.model == "mics"
            else DlsTable(read.space, shape=read.shape, rate=read.rate, predicates=PREDICATES)
        )
        made.attach(NORTH)
        return made

    return table(), table()


@pytest.mark.parametrize("model", TUNE)
@given(
    st.lists(filters(3), min_size=1, max_size=4), st.sampled_from([CostBudget(), CostBudget(forwarded=3)]), st.randoms()
)
@thorough(12)
def test_tables_of_a_tuning_file_lose_no_event(model: str, some: list[Filter], budget: CostBudget, random: Any) -> None:
    boxes = [box for each in some for box in normalize(each).boxes]
    sample = random.sample(EVENTS, 20)
    try:
        tuned = TUNE[model](BoxColumns.of(boxes), sample, BOUNDED, budget, Options((4, 8), (2, 8)))
    except TuningError:
        return  # nothing matches, everything does, or no attribute is asked for
    ours, theirs = tables(tuned)
    told = ours.change({SubId(number): each for number, each in enumerate(some)}, ())
    for tell in told:
        theirs.learn(NORTH, Update(add=tell.update.add))
    for event in EVENTS:
        if any(matches(each, event) for each in some):
            assert theirs.route(event, None) == {NORTH}, event


# -- what is chosen, and why -----------------------------------------------------------------------


def narrow(n: int = 40, seed: int = 1) -> tuple[BoxColumns, list[dict[str, float]], Schema]:
    """x is asked for narrowly, y so that all events have it, z not at all."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 90, n)
    columns = BoxColumns.from_bounds({"x": (low, low + 1), "y": (np.full(n, -9.0), np.full(n, 109.0))})
    events = [{"x": x, "y": y, "z": z} for x, y, z in rng.uniform(0, 100, (300, 3)).tolist()]
    bounds = {"type": "float", "bounds": [0, 100]}
    return columns, events, Schema.from_dict({"attributes": {"x": bounds, "y": bounds, "z": bounds}})


@pytest.mark.slow
def test_an_attribute_that_rules_out_nothing_is_not_a_dimension() -> None:
    assert tune_mics(*narrow(), CostBudget(forwarded=60), SOME).space.grid.names == ("x",)
    labels = tune_dls(*narrow(), CostBudget(forwarded=60), SOME).space.grids[0].names
    assert "x" in labels
    assert "z" not in labels


def test_rows_tell_what_was_tried_and_the_choice_last() -> None:
    tuned = tune_dls(*narrow(), CostBudget(memory=256), SOME)
    assert len(tuned.rows) == tuned.measured + 1
    choice = tuned.rows[-1]
    assert (choice.step, choice.figures, choice.kept) == ("choice", tuned.figures, True)
    assert "counters of 4 bits" in choice.tried
    assert any(not row.kept for row in tuned.rows)
    assert all(row.verdict for row in tuned.rows)


@pytest.mark.parametrize("model", TUNE)
def test_a_choice_is_the_same_every_time_and_survives_its_file(model: str, tmp_path: Path) -> None:
    first, again = (TUNE[model](*narrow(), CostBudget(forwarded=30), SOME) for _ in range(2))
    assert first == again
    first.save(tmp_path / "tuning.json")
    assert Tuned.load(tmp_path / "tuning.json") == first


def test_predicted_ranges_are_what_a_table_does() -> None:
    columns, events, schema = narrow()
    tuned = tune_mics(columns, events, schema, CostBudget(forwarded=30), SOME)
    assert measure(tuned.space, None, CellSample(columns, events)) == tuned.figures


def test_predicted_labels_are_near_what_a_table_does() -> None:
    columns, events, schema = narrow()
    tuned = tune_dls(columns, events, schema, CostBudget(memory=64), SOME)
    found = measure(tuned.space, tuned.shape, CellSample(columns, events))
    assert (found.forwarded, found.memory) == (tuned.figures.forwarded, tuned.figures.memory)
    assert found.memory <= 64
    assert abs(found.false_positives - tuned.figures.false_positives) < 0.1


def test_false_positives_are_counted_by_brute_force() -> None:
    columns, events, schema = narrow()
    space = tune_mics(columns, events, schema, CostBudget(forwarded=20), SOME).space
    wanted = [any(event in box for box in columns) for event in events]
    told = space.range_sets(columns)[1].union()
    passed = [space.index(event) in told for event in events]
    strangers = [here for here, want in zip(passed, wanted, strict=True) if not want]
    assert all(here for here, want in zip(passed, wanted, strict=True) if want)
    assert measure(space, None, CellSample(columns, events)).false_positives == sum(strangers) / len(strangers)


def test_a_filter_grows_only_past_the_labels_it_was_made_for() -> None:
    tuned = tune_dls(*narrow(), CostBudget(memory=256), SOME)
    assert tuned.shape is not None
    assert tuned.shape.rate(tuned.figures.forwarded) <= tuned.rate <= 1


def test_shapes_grow_until_nothing_is_seen_of_them() -> None:
    shapes = list(shapes_for(500, 1e-3))
    sizes = [shape.size for shape in shapes]
    assert sizes == sorted(set(sizes))
    assert shapes[-1].rate(500) <= 1e-3 < shapes[-2].rate(500)
    assert {shape.bits for shape in shapes} == {4, 8}
    assert shapes[-1].bits == 4


# -- groups ----------------------------------------------------------------------------------------


def pairs(n: int = 120, seed: int = 3) -> tuple[BoxColumns, list[dict[str, float]], Schema]:
    """Half of the subscriptions ask for a and b, the others for c and d."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 90, (4, n))
    first = np.arange(n) < n // 2
    bounds = {}
    for at, name in enumerate("abcd"):
        mine = first if name in "ab" else ~first
        bounds[name] = np.where(mine, low[at], np.nan), np.where(mine, low[at] + 4, np.nan)
    events = [dict(zip("abcd", values, strict=True)) for values in rng.uniform(0, 100, (300, 4)).tolist()]
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in "abcd"}})
    return BoxColumns.from_bounds(bounds), events, schema


def test_labels_of_unlike_subscriptions_go_to_applications_of_their_own() -> None:
    columns, events, schema = pairs()
    one, two = (
        tune_dls(columns, events, schema, CostBudget(forwarded=600), Options((16,), (16,), groups=groups))
        for groups in (1, 2)
    )
    assert sorted(grid.names for grid in two.space.grids) == [("a", "b"), ("c", "d")]
    assert len(one.space.grids) == 1
    assert two.figures.false_positives < one.figures.false_positives
    assert two.rows[-1].tried.count("|") == 1
    sample = CellSample(columns, events)
    found = measure(two.space, two.shape, sample)
    assert (found.forwarded, found.memory) == (two.figures.forwarded, two.figures.memory)


def test_curves_of_groups_are_measured_as_their_table_does() -> None:
    columns, events, _ = pairs()
    space = CurveGroups([ContentSpace(Grid.uniform(BOUNDED_ABCD, 16, names)) for names in ("ab", "cd")])
    tuned = Tuned("mics", space, None, 1.0, measure(space, None, CellSample(columns, events)), 1, CostBudget(), 1)
    assert Tuned.from_json(tuned.to_json()) == tuned
    table = MicsTable(tuned.space.groups)
    table.attach(NORTH)
    add = {ItemId(n): CurveRange(*row) for n, row in enumerate(told_of(space, columns).tolist())}
    table.learn(NORTH, Update(add=add))
    sent = np.zeros(len(events), bool)
    sent[table.route_batch(events, None)[NORTH]] = True
    assert tuned.figures.false_positives == CellSample(columns, events).share(sent)
    assert tuned.figures.forwarded == len(add)


def test_a_search_of_groups_is_near_an_exhaustive_one() -> None:
    columns, events, schema = narrow()
    options = Options((8, 32), (16,), groups=2)
    for model in TUNE:
        mine = TUNE[model](columns, events, schema, CostBudget(forwarded=60), options)
        best = exhaustive(model, columns, events, schema, CostBudget(forwarded=60), options)
        assert mine.budget.rank(mine.figures) >= best.budget.rank(best.figures)
        assert mine.figures.false_positives <= 1.3 * best.figures.false_positives


def test_groupings_have_one_form_and_none_is_missed() -> None:
    choices = Choices.of(BOUNDED_ABCD, set("abc"), [], Options((4,), (4,), groups=3))
    every = list(choices)
    assert len(every) == len(set(every)) == 3 + 3 * 2 + 5  # one attribute, two, and all: the partitions of each
    for candidate in every:
        assert all(other in every for other in choices.regroupings(candidate))
        assert candidate not in choices.regroupings(candidate)


# -- work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", TUNE)
def test_a_search_ends_when_its_steps_are_spent(model: str) -> None:
    columns, events, schema = pairs(40)
    least, little, all_ = (
        TUNE[model](columns, events, schema, CostBudget(), Options((8, 32), (4, 16), work=work))
        for work in (1, 20_000_000, 400_000_000)
    )
    assert least.measured < little.measured < all_.measured
    assert "ended after 1 steps" in least.rows[-1].verdict
    assert "ended" not in all_.rows[-1].verdict
    assert least.figures.false_positives >= little.figures.false_positives >= all_.figures.false_positives


def test_what_is_given_up_early_could_not_be_better() -> None:
    rng = np.random.default_rng(5)
    low = rng.uniform(0, 95, (2, 900))
    columns = BoxColumns.from_bounds({"x": (low[0], low[0] + 1), "y": (low[1], low[1] + 1)})
    events = [{"x": x, "y": y} for x, y in rng.uniform(0, 100, (500, 2)).tolist()]
    search = Search("mics", columns, events, narrow()[2], Options((8, 64), (4, 16), groups=1))
    tuned = search.tune(CostBudget(forwarded=900))
    given_up = [seen for seen in search.seen.values() if not seen.whole]
    assert given_up
    for seen in given_up:
        whole = measure(seen.space, None, search.sample)
        assert whole.false_positives >= seen.passed > tuned.figures.false_positives
    rows = [row for row in tuned.rows if "of the subscriptions" in row.verdict]
    assert len(rows) >= len(given_up)  # some are measured to the end later
    assert not any(row.kept for row in rows)
    before = len(search.seen)
    again = search.tune(CostBudget(forwarded=450))
    assert again.figures.forwarded <= 450
    assert search.tune(CostBudget(forwarded=900)).figures == tuned.figures
    assert len(search.seen) >= before


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[tuple[int, int]] = []
    columns, events, schema = narrow()
    tune_mics(columns, events, schema, options=SOME, progress=lambda what, done, of: told.append((done, of)))
    assert told == sorted(told)
    assert all(0 < done <= of for done, of in told)


@given(st.lists(filters(3), min_size=1, max_size=5), st.integers(2, 9))
@thorough(40)
def test_a_sample_has_the_boxes_of_a_grid(some: list[Filter], cells: int) -> None:
    forms = [normalize(each) for each in some]
    boxes = [box for form in forms for box in form.boxes]
    if not boxes:
        return
    columns, grid = BoxColumns.of(boxes), Grid.uniform(BOUNDED, cells)
    try:
        sample = CellSample(columns, EVENTS[::7])
    except TuningError:
        return
    for mine, peer in zip(sample.boxes(grid), grid.boxes_of_columns(columns), strict=True):
        assert np.array_equal(mine, peer)


# -- budgets ---------------------------------------------------------------------------------------


figures = st.builds(LinkFigures, st.sampled_from((0.0, 0.1, 0.5)), st.integers(1, 3), st.integers(1, 3))
budgets = st.builds(
    CostBudget,
    st.sampled_from((None, 1, 2)),
    st.sampled_from((None, 0, 0.1)),
    st.sampled_from((None, 1, 2)),
    st.sampled_from((None, *Cost)),
)


@given(budgets, figures, figures)
@thorough(200)
def test_what_keeps_the_limits_ranks_first(budget: CostBudget, one: LinkFigures, other: LinkFigures) -> None:
    keeps = [all(each.of(cost) <= limit for cost, limit in budget.limits.items()) for each in (one, other)]
    assert [budget.excess(each) == 0 for each in (one, other)] == keeps
    if keeps[0] and not keeps[1]:
        assert budget.rank(one) < budget.rank(other)
    if keeps[0] and keeps[1] and one.of(budget.goal) < other.of(budget.goal):
        assert budget.rank(one) < budget.rank(other)
    assert (budget.rank(one) == budget.rank(other)) == (one == other)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"memory": 0}, "memory"),
        ({"forwarded": True}, "forwarded"),
        ({"false_positives": 1.5}, "share from 0 to 1"),
        ({"false_positives": float("nan")}, "share from 0 to 1"),
        ({"minimise": "time"}, "cannot be minimised"),
    ],
)
def test_an_invalid_budget_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TuningError, match=said):
        CostBudget(**wrong)


@pytest.mark.parametrize("model", TUNE)
def test_a_limit_that_cannot_hold_is_named_with_what_would(model: str) -> None:
    with pytest.raises(TuningError, match="no choice has at most 0% false positives; the least found is") as refused:
        TUNE[model](*narrow(), CostBudget(false_positives=0), SOME)
    least = float(str(refused.value).split("found is ")[1].split("%")[0]) / 100
    TUNE[model](*narrow(), CostBudget(false_positives=1.01 * least), SOME)


def test_limits_that_cannot_hold_together_are_named() -> None:
    columns, events, schema = narrow()
    least = tune_mics(columns, events, schema, CostBudget(), SOME).figures.false_positives
    with pytest.raises(TuningError, match="together; allow"):
        tune_mics(columns, events, schema, CostBudget(false_positives=1.1 * least, forwarded=1), SOME)


# -- bad input -------------------------------------------------------------------------------------


def test_empty_samples_are_refused() -> None:
    columns, events, schema = narrow()
    with pytest.raises(TuningError, match="sample of subscriptions"):
        tune_mics(BoxColumns.of([]), events, schema)
    with pytest.raises(TuningError, match="sample of events"):
        tune_dls(columns, [], schema)
    everything = BoxColumns.from_bounds({"x": ([-1.0], [101.0])})
    with pytest.raises(TuningError, match="every event of the sample matches"):
        tune_mics(everything, events, schema)


def test_without_bounds_or_values_nothing_can_be_cut() -> None:
    columns, events, _ = narrow()
    with pytest.raises(TuningError, match=r"test \(x, y\)"):
        tune_mics(columns, [{"z": 1.0}], Schema.of(x="float", z="float"))
    with pytest.raises(TuningError, match="can be cut"):
        tune_dls(columns, events, Schema.of(z="float"))
    assert tune_mics(columns, events, Schema.of(x="float"), options=SOME).space.grid.names == ("x",)


def test_every_type_has_ways_and_none_twice() -> None:
    schema = Schema.of(a="int", b="bool", c="string", d="timestamp")
    events = [{"a": n, "b": n > 1, "c": f"s{n}", "d": datetime(2020, 1, 1 + n, tzinfo=UTC)} for n in range(5)]
    choices = Choices.of(schema, set(schema), events, Options((8, 16)))
    assert len(choices.ways) == 4
    for ways in choices.ways:
        assert len({way.dimension for way in ways}) == len(ways) > 1
    assert all(choices.possible(candidate) for candidate in choices)


@pytest.mark.parametrize("wrong", [{"cells": ()}, {"cells": (2,)}, {"caps": (0,)}, {"caps": (1 << 21,)}])
def test_invalid_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TuningError, match="to choose from"):
        Options(**wrong)


def test_other_models_and_endless_searches_are_refused() -> None:
    with pytest.raises(TuningError, match="there is no model"):
        exhaustive("flooding", *narrow())
    with pytest.raises(TuningError, match="is the limit"):
        exhaustive("mics", *narrow(), options=Options(tuple(range(3, 60)), tuple(range(1, 60))))


def test_an_invalid_tuning_file_is_refused(tmp_path: Path) -> None:
    text = tune_mics(*narrow(), CostBudget(forwarded=30), SOME).to_json()
    form = json.loads(text)
    wrong = [
        "",
        "[]",
        "7",
        text[:-5],
        *(json.dumps({k: v for k, v in form.items() if k != name}) for name in form),
        *(json.dumps({**form, name: value}) for name in form for value in ("?", {"?": 1}, -1)),
    ]
    for each in wrong:
        with pytest.raises(TuningError):
            Tuned.from_json(each)
    with pytest.raises(TuningError, match="cannot be read"):
        Tuned.load(tmp_path / "none.json")
