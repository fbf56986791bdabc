"""The cost fuzzer: it searches for the most expensive legal filter, pair and text, and fails above the budget.

Hypothesis is told the number of steps, and draws more of what takes many (`target`). Steps are counted by the budget
itself, and beside it in lines of Python: what forgets to spend is found, too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, target
from hypothesis import strategies as st

import weft.algebra.columns  # noqa: F401 - with numpy: importing it is no work of a filter
from hostile_texts import filter_texts, searching
from measured_work import measured
from weft import covers, normalize, overlaps, parse
from weft.algebra.budget import Budget
from weft.algebra.merge import merge
from weft.algebra.stored import from_stored, to_stored
from weft.errors import FilterError, FilterTooComplexError
from weft.language.meaning import matches
from weft.language.pattern import Pattern
from weft.model.limits import LIMITS

# A step may take so many lines at most, over a whole operation; and so many are free, for small things add up.
LINES_A_STEP = 25
FREE_LINES = 400_000


def admitted(text: str) -> Any:
    """The normal form of a text, whose admission is within the limits; or None if it is refused."""
    budget = Budget()
    tree, _, lines = measured(lambda: parse(text))
    assert lines <= 2 * FREE_LINES, "parsing takes too long"
    if isinstance(tree, FilterError):
        return None
    form, _, lines = measured(lambda: normalize(tree, budget=budget))
    target(float(min(budget.used, 10 * LIMITS.steps)), label="steps of admission")
    target(float(lines), label="lines of admission")
    assert lines <= FREE_LINES + LINES_A_STEP * LIMITS.steps, f"{lines} lines for {budget.used} steps"
    return None if isinstance(form, FilterError) else (tree, form)


@pytest.mark.slow
@given(filter_texts())
@searching
def test_no_admission_takes_more_than_the_budget(text: str) -> None:
    found = admitted(text)
    if found is not None:
        tree, form = found
        again = from_stored(to_stored(form))
        for event in ({}, {"a": 1, "b": 2.5, "s": "a1b"}, {"x1": 3, "a1": "ab1", "s": "zz"}):
            assert (event in form) == matches(tree, event) == (event in again)


@pytest.mark.slow
@given(filter_texts(), filter_texts())
@searching
def test_no_relation_takes_more_than_the_budget(one: str, other: str) -> None:
    forms = []
    for text in (one, other):
        try:
            forms.append(normalize(parse(text)))
        except FilterError:
            return
    for relate in (covers, overlaps):
        budget = Budget()
        said, _, lines = measured(lambda relate=relate, budget=budget: relate(*forms, budget=budget))
        target(float(min(budget.used, 10 * LIMITS.steps)), label=f"steps of {relate.__name__}")
        target(float(lines), label=f"lines of {relate.__name__}")
        assert said in (True, False)
        assert lines <= FREE_LINES + LINES_A_STEP * LIMITS.steps, f"{lines} lines for {budget.used} steps"
    merger, _, lines = measured(lambda: merge(forms))
    target(float(lines), label="lines of merge")
    assert not isinstance(merger, FilterTooComplexError)
    assert lines <= 4 * (FREE_LINES + LINES_A_STEP * LIMITS.steps)


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(("a", "_", "%", "ab", "a_", "%a_b", "a_" * 40, "a_" * 400, "b")), min_size=1, max_size=30),
    st.lists(st.sampled_from(("a", "b", "a" * 50, "ab" * 30, "c")), min_size=1, max_size=10),
    st.integers(1, 2_000),
)
@searching
def test_no_match_takes_more_than_its_text(pieces: list[str], parts: list[str], times: int) -> None:
    pattern, text = Pattern.of("".join(pieces)), ("".join(parts) * times)[:100_000]
    lines = measured(lambda: pattern.matches(text)).lines
    target(float(lines), label="lines of a match")
    assert lines <= 20_000 + 3 * (len(text) + pattern.size) // 10 + 200 * len(pattern.segments)
