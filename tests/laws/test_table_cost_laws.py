"""The cost fuzzer of routing tables: it searches each model for the filters
that take most work, and fails above the budget.

Cells, curves and labels are made when a filter is added, so that they are part of it. What is counted is steps and
lines of Python, as in `test_cost_laws`, for every operation of a table and of a neighbour that learns from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, target
from hypothesis import strategies as st

from hostile_texts import BOUNDED, filter_texts, searching
from measured_work import measured
from table_work import ALLOWED, table_work
from weft import parse
from weft.errors import WeftError
from weft.language.ast import Filter
from weft.routing.dls.space import LabelSpace
from weft.routing.registry import MODELS
from weft.space.content import ContentSpace
from weft.space.curve import Order
from weft.space.curve_groups import CurveGroups
from weft.space.grid import Grid
from weft.tuning.budget import CostBudget, LinkFigures
from weft.tuning.parameters import Tuned
from weftlab.bench.hostile_broker import bounded_schema, hostile_filters

LINES_A_CELL = 200  # further ones where a tuning file allows a filter that many ranges or labels

several = st.lists(filter_texts(BOUNDED), min_size=1, max_size=3)


def admitted(texts: Sequence[str]) -> list[Filter]:
    """The filters that can be parsed."""
    trees = []
    for text in texts:
        try:
            trees.append(parse(text))
        except WeftError:
            continue
    return trees


def check(model: str, filters: Sequence[Filter], more: int = 0, **options: Any) -> dict[str, tuple[int, int]]:
    """The most steps and lines of each operation; fails if they are above the budget."""
    most: dict[str, tuple[int, int]] = {}
    for name, work in table_work(model, filters, **options):
        steps, lines = ALLOWED[name]
        assert work.steps <= steps, f"{model}, {name}: {work.steps} steps"
        assert work.lines <= lines + more, f"{model}, {name}: {work.lines} lines for {work.steps} steps"
        known = most.get(name, (0, 0))
        most[name] = max(known[0], work.steps), max(known[1], work.lines)
    return most


def aim(model: str, most: dict[str, tuple[int, int]]) -> None:
    """Draw more of what takes many steps and lines."""
    for name, (steps, lines) in most.items():
        target(float(steps), label=f"steps, {model}, {name}")
        target(float(lines), label=f"lines, {model}, {name}")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["boxes", "cells"])
def test_the_most_expensive_filters_that_are_known_are_within_the_budget(model: str, kind: str) -> None:
    text = hostile_filters()[kind]
    most = check(model, admitted([text(0), text(1)]))
    assert model == "flooding" or most["add"][0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_all_filters_that_are_known_are_within_the_budget(model: str) -> None:
    for text in hostile_filters().values():
        check(model, admitted([text(0), text(1), text(0)]))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@given(several)
@searching
def test_no_operation_of_a_table_takes_more_than_the_budget(model: str, texts: list[str]) -> None:
    aim(model, check(model, admitted(texts)))


@st.composite
def tuning_files(draw: st.DrawFn) -> tuple[str, int]:
    """A tuning file for the bounded schema, and how many ranges or labels a filter may have in it."""
    schema = bounded_schema()
    names = draw(st.permutations([attribute.name for attribute in schema.attributes]))
    cells = draw(st.sampled_from((2, 8, 64, 256, 4096)))
    cap = draw(st.sampled_from((1, 16, 256, 4096)))
    many = draw(st.integers(1, len(names)))
    order = draw(st.sampled_from(Order))
    space: Any
    try:
        if draw(st.booleans()):
            space = LabelSpace([Grid.uniform(schema, cells, names[:many])], cap)
            model = "dls"
        else:
            groups = [names[at : at + many] for at in range(0, len(names), many)]
            space = CurveGroups([ContentSpace(Grid.uniform(schema, cells, group), order, cap) for group in groups])
            model = "mics"
    except WeftError:  # such cells do not fit: the file has those of a table without one
        space, model = LabelSpace.of(schema), "dls"
    figures = LinkFigures(0.1, 10, 100)
    return Tuned(model, space, None, 1.0, figures, 10, CostBudget(), 3).to_json(), cap * len(names)


@pytest.mark.slow
@given(tuning_files(), several)
@searching
def test_no_table_of_a_tuning_file_takes_more_than_the_file_allows(given: tuple[str, int], texts: list[str]) -> None:
    text, cells = given
    found, _, lines = measured(lambda: Tuned.from_json(text))
    assert not isinstance(found, Exception)
    assert lines <= 50_000 + 10 * len(text)
    options = {"spaces": found.space.groups} if found.model == "mics" else {"space": found.space}
    aim(found.model, check(found.model, admitted(texts), more=LINES_A_CELL * cells, **options))
