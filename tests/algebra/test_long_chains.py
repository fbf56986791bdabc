"""Long chains of one test are normalized as lists. Law: they mean what `meaning` says."""

from __future__ import annotations

from random import Random

import pytest

from weft import normalize, parse
from weft.language.meaning import matches
from weft.model.schema import Schema

CONSTANTS = ("1", "2", "2.0", "3.5", "'a'", "'b'", "TRUE", "TIMESTAMP '2018-01-01'")
EVENTS = [
    {"x": value, "y": other}
    for value in (1, 2, 2.0, 3.5, 4, "a", "b", "c", True, False, None)
    for other in (1, 7, "a", None)
]


@pytest.mark.parametrize("seed", range(12))
def test_a_chain_of_equal_and_unequal_means_what_its_tests_mean(seed: int) -> None:
    rng = Random(seed)
    kinds = rng.sample(CONSTANTS, rng.randint(1, 4))
    tests = [f"{rng.choice('xxxy')} {rng.choice(('=', '!='))} {rng.choice(kinds)}" for _ in range(20)]
    tests += rng.sample(["x > 1", "y IS NULL", "x < y"], 1)
    for word, sign in ((" AND ", "!="), (" AND ", ""), (" OR ", "="), (" OR ", "")):
        chain = word.join(test.replace("!=", sign).replace(" = ", f" {sign} ") if sign else test for test in tests)
        for whole in (chain, f"NOT ({chain})", f"({chain}) IS NULL", f"({chain}) IS NOT TRUE"):
            tree = parse(whole)
            form = normalize(tree)
            assert [event in form for event in EVENTS] == [matches(tree, event) for event in EVENTS], whole


def test_under_a_schema_a_chain_has_values_of_its_type() -> None:
    form = normalize(parse(" OR ".join(f"x = {n}.5 OR x = {n}" for n in range(20))), Schema.of(x="int"))
    assert form == normalize(parse("x BETWEEN 0 AND 19"), Schema.of(x="int"))
