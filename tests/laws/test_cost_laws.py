"""The cost fuzzer: it searches for the dearest legal filter, pair and text, and fails above the budget.

Hypothesis is told the number of steps, and draws more of what takes many (`target`). Steps are counted by the budget
itself, and beside it in lines of Python: what forgets to spend is found, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st

import weft.algebra.columns  # noqa: F401 - with numpy: importing it is no work of a filter
from strategies import EXAMPLES
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

searching = settings(
    max_examples=15 * EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES == 1,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],  # shrinking what is slow takes for ever
)

names = st.sampled_from(["a", "b", "s", "x{n}", "a{m}"])
numbers = st.sampled_from(["{n}", "{m}", "1", "{n}.5"])
words = st.sampled_from(
    [
        "a{n}",
        "%{n}%",
        "%a%{n}%",
        "a%{n}",
        "%{n}_z%",
        "_{n}%",
        "%ab%ab%{n}%",
        "{n}",
        "%{m}b%{n}a%",
        "%a_%",
        "%{n}" + "a_%" * 600,
    ]
)
tests = st.one_of(
    st.builds("{} {} {}".format, names, st.sampled_from(["=", "!=", "<", ">=", ">"]), numbers),
    st.builds("{} LIKE '{}'".format, names, words),
    st.builds("{} NOT LIKE '{}'".format, names, words),
    st.builds("{} ILIKE '{}'".format, names, words),
    st.builds("{} NOT ILIKE '{}'".format, names, words),
    st.builds("{} BETWEEN {} AND {}".format, names, numbers, numbers),
    st.builds("{} IN ({}, {}, 7)".format, names, numbers, numbers),
    st.builds("{} NOT IN ({}, {})".format, names, numbers, numbers),
    st.builds("{} < {}".format, names, names),
    st.builds("{} IS NULL".format, names),
    st.builds("cidr({}, '10.{{m}}.0.0/{}')".format, names, st.integers(8, 16)),
    st.builds("NOT cidr({}, '10.{{m}}.0.0/{}')".format, names, st.integers(8, 16)),
    st.builds("time_like({}, '{}')".format, names, words),
    st.builds("NOT time_like({}, '{}')".format, names, words),
)


@st.composite
def filter_texts(draw: st.DrawFn) -> str:
    """A legal text that repeats a few tests very often: with other constants and other names each time."""
    connectives = st.sampled_from((" AND ", " OR "))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        unit = draw(st.lists(tests, min_size=1, max_size=4))
        inner, outer = draw(connectives), draw(connectives)
        group = inner.join(unit)
        times = draw(st.sampled_from((1, 2, 5, 8, 20, 60, 200, 1000)))
        wrap = draw(st.sampled_from(("({})", "NOT ({})", "({}) IS NULL", "(({}) IS NOT TRUE)")))
        repeated = outer.join(f"({group.format(n=n, m=n % 7)})" for n in range(times))
        parts.append(wrap.format(repeated))
    text = draw(connectives).join(parts)
    while len(text) > LIMITS.text:  # the longest that is legal
        text = text[: LIMITS.text].rpartition(")")[0]
        text = text + ")" * max(0, text.count("(") - text.count(")"))
    return text


def work(operation: Callable[[], Any]) -> tuple[Any, int]:
    """What an operation gives, a FilterError included, and the lines of Python it takes."""
    lines = 0

    def within(_: FrameType, __: str, ___: object) -> Any:
        nonlocal lines
        lines += 1
        return within

    before = sys.gettrace()
    sys.settrace(within)
    try:
        return operation(), lines
    except FilterError as error:
        return error, lines
    finally:
        sys.settrace(before)


def admitted(text: str) -> Any:
    """The normal form of a text, whose admission is within the limits; or None if it is refused."""
    budget = Budget()
    tree, lines = work(lambda: parse(text))
    assert lines <= 2 * FREE_LINES, "parsing takes too long"
    if isinstance(tree, FilterError):
        return None
    form, lines = work(lambda: normalize(tree, budget=budget))
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
        said, lines = work(lambda relate=relate, budget=budget: relate(*forms, budget=budget))
        target(float(min(budget.used, 10 * LIMITS.steps)), label=f"steps of {relate.__name__}")
        target(float(lines), label=f"lines of {relate.__name__}")
        assert said in (True, False)
        assert lines <= FREE_LINES + LINES_A_STEP * LIMITS.steps, f"{lines} lines for {budget.used} steps"
    merger, lines = work(lambda: merge(forms))
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
    _, lines = work(lambda: pattern.matches(text))
    target(float(lines), label="lines of a match")
    assert lines <= 20_000 + 3 * (len(text) + pattern.size) // 10 + 200 * len(pattern.segments)
