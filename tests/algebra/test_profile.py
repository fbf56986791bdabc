"""Profiles: regions with an identity and a time span."""

from __future__ import annotations

import pytest

from weft import Profile, Schema, normalize, parse
from weft.algebra.profile import Meeting
from weft.errors import EventError


def figure_6_4(text: str) -> Profile:
    low, high = text.split("-")
    return Profile("thesis", text, parse(f"x BETWEEN {low} AND {high}"))


QUERIES = {"Q1": "0-10", "Q2": "12-20", "Q3": "2-10", "Q4": "15-22", "Q5": "12-14"}
PROFILES = {"P1": "1-5", "P2": "5-10", "P3": "5-25", "P4": "17-20", "P5": "7-9"}
COVERING = {"Q1": "P1 P2 P5", "Q2": "P4", "Q3": "P2 P5", "Q4": "P4", "Q5": ""}
OVERLAP = {"Q1": "P1 P2 P3 P5", "Q2": "P3 P4", "Q3": "P1 P2 P3 P5", "Q4": "P3 P4", "Q5": "P3"}


@pytest.mark.parametrize(("meeting", "expected"), [(Meeting.COVERING, COVERING), (Meeting.OVERLAP, OVERLAP)])
def test_figure_6_4(meeting: Meeting, expected: dict[str, str]) -> None:
    profiles = {name: figure_6_4(span) for name, span in PROFILES.items()}
    for query, span in QUERIES.items():
        wanted = figure_6_4(span).form
        met = [name for name, profile in profiles.items() if profile.meets(wanted, meeting)]
        assert met == expected[query].split(), query


def test_a_profile_lasts_from_its_start_to_its_end() -> None:
    storm = Profile("a", "1", parse("wind > 30"), start=100, duration=10)
    assert [storm.lasts_at(now) for now in (99, 100, 109, 110)] == [False, True, True, False]
    forever = Profile("a", "2", parse("wind > 30"), start=100)
    assert forever.lasts_at(10**12)
    assert forever.end is None


def test_a_profile_is_valid_from_birth() -> None:
    with pytest.raises(EventError, match="source and an id"):
        Profile("", "1", parse("x > 1"))
    with pytest.raises(EventError, match="more than 0"):
        Profile("a", "1", parse("x > 1"), duration=0)


def test_an_empty_profile_meets_nobody() -> None:
    nothing = Profile("a", "1", parse("x > 1 AND x < 0"))
    assert not nothing.meets(parse("x > 1"), Meeting.COVERING)
    assert not nothing.meets(parse("TRUE"), Meeting.OVERLAP)


def test_a_profile_meets_under_its_schema() -> None:
    whole = Schema.of(x="int")
    profile = Profile("a", "1", parse("x > 4 AND x < 6"), schema=whole)
    assert profile.meets(parse("x = 5"), Meeting.COVERING)
    assert profile.meets(normalize(parse("x = 5"), whole), Meeting.COVERING)
    assert profile.identity == ("a", "1")
