"""LIKE patterns, by example."""

from __future__ import annotations

import pickle

import pytest

from strategies import SMILE
from weft.errors import FilterError
from weft.language.pattern import Pattern


@pytest.mark.parametrize(
    ("same", "as_"),
    [
        ("%%", "%"),
        ("a%%%b", "a%b"),
        ("%_", "_%"),
        ("a%_%b", "a_%b"),
        ("%_%_%", "__%"),
        ("_%_", "__%"),
        ("%__a", "__%a"),
    ],
)
def test_patterns_that_match_the_same_are_equal(same: str, as_: str) -> None:
    assert Pattern.of(same) == Pattern.of(as_)
    assert hash(Pattern.of(same)) == hash(Pattern.of(as_))
    assert Pattern.of(same) != Pattern.of(as_ + "a")


@pytest.mark.parametrize(
    ("pattern", "literal", "prefix", "head", "tail", "shortest", "is_fixed"),
    [
        ("", "", None, "", "", 0, True),
        ("abc", "abc", None, "abc", "abc", 3, True),
        ("abc%", None, "abc", "abc", "", 3, False),
        ("%", None, "", "", "", 0, False),
        ("%abc", None, None, "", "abc", 3, False),
        ("a_c", None, None, "a", "c", 3, True),
        ("_", None, None, "", "", 1, True),
        ("ab%c_d", None, None, "ab", "d", 5, False),
        ("%_", None, None, "", "", 1, False),
        ("a_%", None, None, "a", "", 2, False),
    ],
)
def test_what_a_pattern_knows_of_its_matches(  # noqa: PLR0917
    pattern: str, literal: str | None, prefix: str | None, head: str, tail: str, shortest: int, is_fixed: bool
) -> None:
    compiled = Pattern.of(pattern)
    assert (compiled.literal, compiled.prefix, compiled.head, compiled.tail) == (literal, prefix, head, tail)
    assert (compiled.shortest, compiled.is_fixed) == (shortest, is_fixed)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("%a%a%", "a", False),
        ("%a%a%", "aa", True),
        ("%ab%ba%", "aba", False),
        ("%ab%ba%", "abba", True),
        ("%ab%ab%", "abab", True),
        ("%ab%ab%", "aba", False),
        ("ab%ab", "ab", False),
        ("ab%ab", "abab", True),
        ("a%a", "a", False),
        ("%aab", "aaab", True),
        ("%a_b%", "aaxb", True),
        ("%a_b%", "aab", True),
        ("%a_b%", "axxb", False),
        ("%a_a_b", "aaaaaxb", True),
        ("_%_", "a", False),
        ("_%_", "ab", True),
        ("%_%_%_%", "ab", False),
        (f"%{SMILE}_", f"a{SMILE}{SMILE}", True),
        ("%x_y%x_y%", "x1yx2y", True),
        ("%x_y%x_y%", "x1yx2", False),
        ("%xy%_z", "xyz", False),
        ("%xy%_z", "xyaz", True),
    ],
)
def test_matching(pattern: str, text: str, found: bool) -> None:
    assert Pattern.of(pattern).matches(text) is found


@pytest.mark.parametrize("escape", ["\\", "!", "%", "_", "a", SMILE])
def test_an_escape_makes_the_next_sign_literal(escape: str) -> None:
    assert Pattern.of(f"{escape}%", escape).literal == "%"
    assert Pattern.of(f"{escape}_", escape).literal == "_"
    assert Pattern.of(f"{escape}{escape}", escape).literal == escape
    assert Pattern.of(f"{escape}%b", escape).literal == "%b"


@pytest.mark.parametrize(
    ("pattern", "escape"), [("a!", "!"), ("!a", "!"), ("!", "!"), ("!!!", "!"), ("%a", "%"), ("a_", "_")]
)
def test_an_escape_escapes_only_the_signs_and_itself(pattern: str, escape: str) -> None:
    with pytest.raises(FilterError, match=f"in a pattern of LIKE, '{escape}' can only escape '%', '_' and itself"):
        Pattern.of(pattern, escape)


@pytest.mark.parametrize("escape", ["", "ab", "!!"])
def test_an_escape_is_one_character(escape: str) -> None:
    with pytest.raises(FilterError, match="the ESCAPE of LIKE must be a single character"):
        Pattern.of("a", escape)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("%", ""),
        ("%", "abc"),
        ("%", "%a%"),
        ("a%", "ab%"),
        ("a%", "a"),
        ("%b%", "abc"),
        ("%bc%", "%abc"),
        ("_", "a"),
        ("_%", "a%"),
        ("a%c", "ab%bc"),
        ("%a%b%", "%ab%"),
        ("_%b", "ab"),
        ("%a%", "%a_b%"),
        ("%aab%", "%aaab%"),
    ],
)
def test_a_wider_pattern_covers(wide: str, narrow: str) -> None:
    assert Pattern.of(wide).covers(Pattern.of(narrow))
    assert not Pattern.of(narrow).covers(Pattern.of(wide))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a%", "b%"), ("%a", "%b"), ("abc", "abd"), ("a_", "abc"), ("abc", "%d%"), ("_", "__%"), ("__", "a%bcd")],
)
def test_patterns_without_a_common_match_are_disjoint(one: str, other: str) -> None:
    assert Pattern.of(one).disjoint(Pattern.of(other))
    assert Pattern.of(other).disjoint(Pattern.of(one))


@pytest.mark.parametrize(("one", "other"), [("a%", "%b"), ("%a%", "%b%"), ("a_c", "ab_"), ("%", ""), ("ab%", "a%c")])
def test_patterns_with_a_common_match_are_not_disjoint(one: str, other: str) -> None:
    assert not Pattern.of(one).disjoint(Pattern.of(other))
    assert not Pattern.of(other).disjoint(Pattern.of(one))


def test_patterns_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(Pattern.of("a%_b"))) == Pattern.of("a_%b")


class _CountedText(str):
    """A text that counts how often it is folded."""

    __slots__ = ("folded",)
    folded: int

    def casefold(self) -> str:
        self.folded += 1
        return super().casefold()


def test_a_long_text_is_folded_once_for_many_patterns() -> None:
    text = _CountedText("ΐ" * 5_000 + "00007")
    text.folded = 0
    found = [Pattern.of(f"%ΐΐΐ{n:05d}%", ignore_case=True).matches(text) for n in range(250)]
    assert found == [n == 7 for n in range(250)]
    assert text.folded == 1
    other = "Ü" * 5_000
    assert Pattern.of("%ü", ignore_case=True).matches(other)
    assert not Pattern.of("%ü", ignore_case=True).matches(text)
