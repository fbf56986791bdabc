"""Many patterns on a long text: the same answers as one by one, without looking for each of them."""

from __future__ import annotations

import random

import pytest

from weft import normalize, parse
from weft.algebra.term_search import LONG, pattern_search
from weft.index import TreeIndex
from weft.language.meaning import matches
from weft.language.pattern import Pattern

PATTERNS = ("%ab%", "%a_b%", "ab%ba", "%b", "_a%", "%", "%abc%ab%", "%ß%", "%é%", "", "%zz%", "%a%b%c%")


@pytest.mark.parametrize("seed", range(8))
def test_each_pattern_has_its_own_answer(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices("abcéß", k=rng.choice((3, 40, 2 * LONG))))
    patterns = [Pattern.of(each, ignore_case=case) for each in PATTERNS for case in (False, True)]
    fits = pattern_search(text, patterns)
    for pattern in patterns:
        assert fits(pattern) is pattern.matches(text)


@pytest.mark.parametrize("text", ["a" * 2 * LONG, "ab" * LONG, "x" * LONG + "a" * 7 + "b" + "x" * LONG])
def test_a_long_text_meets_a_filter_of_many_patterns_or_not(text: str) -> None:
    some = [f"s LIKE '%{'a' * n}b%'" for n in range(5, 100)]
    for wanted in (" OR ".join(some), " AND ".join(f"NOT {each}" for each in some), " AND ".join(some[:9])):
        index = TreeIndex(tail=0)
        index.add_texts([1], [wanted])
        truth = matches(parse(wanted), {"s": text})
        assert ({"s": text} in normalize(wanted)) is truth
        assert index.match({"s": text}).tolist() == [1] * truth


def test_patterns_whose_texts_do_not_occur_are_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    real = Pattern.fits
    monkeypatch.setattr(Pattern, "fits", lambda self, text: evaluated.append(text) or real(self, text))
    form = normalize(" OR ".join(f"s LIKE '%{'a' * n}b%'" for n in range(1, 200)))
    assert {"s": "a" * 2 * LONG} not in form
    assert {"s": "a" * 2 * LONG + "b"} in form
    assert not evaluated
