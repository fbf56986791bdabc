"""The law of access: whatever is delivered matches a rule of its subscriber at that time, whatever happens.

Rules and filters are of the whole language. The broker is driven at random: rules change, filters are replaced, groups
wait for the log or are lost, connections pause and break, deliveries fail and become dead letters, the broker restarts.
Holes that are planted into the broker are found.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access_mutants import MUTANTS
from broker.access_run import Run
from strategies import EXAMPLES, A, B, all_tests, filters, number_filters, number_tests, related_tests, thorough
from weft.broker import revocation
from weft.language.ast import Filter, Not, conjunction, disjunction
from weft.language.text import parse


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """New rules are applied to two subscriptions a turn, so that much happens before the last one."""
    monkeypatch.setattr(revocation, "_TURN", 2)


def is_text(filter: Filter) -> bool:
    """Without the tests' own predicate, which a broker does not know."""
    return "is_a(" not in str(filter)


@thorough(80, routine=12)
@given(st.lists(filters(4).filter(is_text), min_size=3, max_size=6), st.integers(0, 1 << 32))
def test_whatever_is_delivered_matches_a_rule_of_its_subscriber(pool: list[Filter], seed: int) -> None:
    Run(pool, seed).all(60)


@thorough(40, routine=10)
@given(st.lists(number_filters(4), min_size=3, max_size=6), st.integers(0, 1 << 32))
def test_with_numbers_alone_whatever_the_rules_cover_together_is_allowed(pool: list[Filter], seed: int) -> None:
    Run(pool, seed, numbers=True).all(60)


POOL = ("a < 1", "a >= 0", "a LIKE 'a%'", "b = 1 OR a = 2", "a IS NULL", "NOT (a > 1)", "a < b", "TRUE")


def test_the_runs_deliver_withhold_and_revoke() -> None:
    seen: Counter[str] = Counter()
    number = 3 if EXAMPLES == 1 else 6
    for seed in range(number):
        on = Run([*map(parse, POOL)], seed).all(400)
        seen.update(on.counted)
        seen["delivered"] += on.delivered
    assert min(seen["delivered"], seen["revoked subscriptions"], seen["refused"]) > 8 * number, seen
    assert min(seen["told"], seen["withheld by rules"], seen["rejected groups"], seen["in doubt"]) > number, seen
    assert min(seen["dead letters"], seen["allowed by several rules"]) > 0, seen


# -- planted holes ------------------------------------------------------------------------------------------

SEEDS = 60
WIDE = [each for each in [*all_tests(A), *all_tests(B), *related_tests()] if is_text(each)]
NUMBERS = [*number_tests(A), *number_tests(B)]


def run_seed(seed: int, steps: int = 80) -> None:
    """One run over filters that are drawn from the seed; every second one over numbers alone."""
    rng = np.random.default_rng(seed)
    tests, numbers = (NUMBERS, True) if seed % 2 else (WIDE, False)

    def drawn() -> Filter:
        one, other = (tests[int(rng.integers(len(tests)))] for _ in range(2))
        return (one, one, Not(one), conjunction(one, other), disjunction(one, other))[int(rng.integers(5))]

    Run([drawn() for _ in range(4)], seed, numbers).all(steps)


ROUTINE = (
    "the union of the rules is ignored",
    "a rule that overlaps is enough",
    "new rules do not end anything",
    "a replaced filter is not checked",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in ROUTINE)) for name in MUTANTS]
)
def test_a_planted_hole_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(SEEDS):
        try:
            run_seed(seed)
        except AssertionError:
            return
    pytest.fail(f"nobody noticed: {name}")


def test_without_a_hole_nothing_is_found() -> None:
    for seed in range(6):
        run_seed(seed)
