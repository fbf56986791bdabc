"""A directory of profiles that last: who is told what, and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.algebra.profile import Meeting, Profile
from weft.errors import EventError, FilterError, SchemaError
from weft.language.text import parse
from weft.model.schema import Schema
from weft.profiles.directory import Directory, Notification

REGIONS = [
    parse(text)
    for text in (
        *("x BETWEEN 0 AND 9", "x BETWEEN 2 AND 5", "x BETWEEN 4 AND 8", "x = 4", "x > 3", "x IN (1, 4)", "TRUE"),
        *("x BETWEEN 2 AND 5 AND y = 'a'", "y LIKE 'a%'", "type = 'A'", "type = 'A' AND x > 3", "type = 'B' OR x < 2"),
    )
]
region = st.integers(0, len(REGIONS) - 1)
name = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("query"), name, region, st.sampled_from(Meeting)),
        st.tuples(st.just("profile"), name, region, st.integers(0, 12), st.none() | st.integers(1, 6)),
        st.tuples(st.just("no query"), name),
        st.tuples(st.just("no profile"), name),
        st.tuples(st.just("time"), st.integers(0, 3)),
    ),
    max_size=30,
)


class Known:
    """What a directory should hold, compared one by one."""

    def __init__(self) -> None:
        self.queries: dict[str, tuple[Any, Meeting]] = {}
        self.profiles: dict[str, Profile] = {}
        self.clock = 0

    def pairs(self) -> set[tuple[Any, Any]]:
        return {
            (query, profile.identity)
            for query, (wanted, meeting) in self.queries.items()
            for profile in self.profiles.values()
            if profile.lasts_at(self.clock) and profile.meets(wanted, meeting)
        }


def take(directory: Directory, known: Known, step: tuple[Any, ...]) -> list[Notification]:
    match step:
        case "query", who, number, meeting:
            known.queries[who] = REGIONS[number], meeting
            return directory.add_query(who, REGIONS[number], meeting)
        case "profile", who, number, start, duration:
            known.profiles[who] = Profile("here", who, REGIONS[number], start, duration)
            return directory.add_profile(known.profiles[who])
        case "no query", who:
            known.queries.pop(who, None)
            return directory.discard_query(who)
        case "no profile", who:
            known.profiles.pop(who, None)
            return directory.discard_profile(("here", who))
    known.clock += step[1]
    return directory.expire(known.clock)


@pytest.mark.parametrize("indexed", [True, False])
@given(steps=STEPS)
@thorough(120)
def test_exactly_the_changes_are_told(indexed: bool, steps: list[tuple[Any, ...]]) -> None:
    """Section 6.7: the difference of what matched before and after, whatever changes; nothing is told twice."""
    directory, known = Directory(indexed=indexed), Known()
    before: set[tuple[Any, Any]] = set()
    for step in steps:
        changes = take(directory, known, step)
        after = known.pairs()
        assert {(c.query, c.profile) for c in changes if c.appeared} == after - before
        assert {(c.query, c.profile) for c in changes if not c.appeared} == before - after
        assert len(changes) == len(after ^ before)
        assert directory.pairs() == after
        before = after
    directory.check()
    for query in known.queries:
        assert directory.profiles_of(query) == {profile for one, profile in before if one == query}
    for profile in known.profiles.values():
        assert directory.queries_of(profile.identity) == {one for one, its in before if its == profile.identity}
    assert len(directory) == sum(profile.lasts_at(known.clock) for profile in known.profiles.values())


def test_a_profile_is_there_from_its_start_until_its_end() -> None:
    directory = Directory()
    directory.add_query("q", parse("x > 0"))
    assert directory.add_profile(Profile("s", "1", parse("x > 5"), start=10_000, duration=5_000)) == []
    assert directory.expire(9_999) == []
    assert directory.expire(10_000) == [Notification("q", ("s", "1"), appeared=True)]
    assert directory.expire(14_999) == []
    assert directory.expire(15_000) == [Notification("q", ("s", "1"), appeared=False, expired=True)]
    assert directory.expire(15_000) == []
    assert len(directory) == 0


def test_what_came_and_went_between_two_times_is_not_told() -> None:
    directory = Directory()
    directory.add_query("q", parse("x > 0"))
    directory.add_profile(Profile("s", "1", parse("x > 5"), start=1, duration=1))
    assert directory.expire(3) == []
    assert directory.add_profile(Profile("s", "2", parse("x > 5"), start=1, duration=2)) == []
    directory.check()
    assert directory.queries_of(("s", "2")) == set()


def test_a_new_version_of_a_profile_tells_the_difference() -> None:
    directory = Directory()
    directory.add_query("low", parse("x < 10"))
    directory.add_query("mid", parse("x BETWEEN 5 AND 15"))
    directory.add_query("high", parse("x > 10"))
    directory.add_profile(Profile("car", "1", parse("x BETWEEN 6 AND 8"), duration=2))
    assert directory.add_profile(Profile("car", "1", parse("x BETWEEN 11 AND 12"), duration=9)) == [
        Notification("low", ("car", "1"), appeared=False),
        Notification("high", ("car", "1"), appeared=True),
    ]
    assert directory.expire(2) == []  # the end of the old version
    assert [change.query for change in directory.expire(9)] == ["high", "mid"]


def test_what_is_preloaded_is_told_without_comparing() -> None:
    """Theorem 7.1, at the directory."""
    directory = Directory()
    directory.preload(REGIONS, REGIONS, Meeting.COVERING)
    directory.check()
    before = directory.comparisons
    told = [change for n, some in enumerate(REGIONS) for change in directory.add_query(str(n), some)]
    assert told == []
    for number, some in enumerate(REGIONS):
        told += directory.add_profile(Profile("s", str(number), some, duration=1))
    assert {(change.query, change.profile) for change in told} == directory.pairs() != set()
    assert len(directory.expire(1)) == len(told)
    assert directory.comparisons == before
    assert "x > 3" in directory.forest(Meeting.COVERING).queries.outline()


def test_directories_merge() -> None:
    one, other = Directory(), Directory()
    one.add_query("q", parse("x > 0"))
    one.add_profile(Profile("s", "1", parse("y = 'a'")))
    other.add_query("r", parse("y LIKE '%a%'"), Meeting.OVERLAP)
    other.add_query("q", parse("0 < x"))
    other.add_profile(Profile("s", "2", parse("x > 5"), duration=8))
    other.add_profile(Profile("s", "1", parse("y = 'a'")))
    assert {(c.query, c.profile[1], c.appeared) for c in one.merge(other)} == {
        ("q", "2", True),
        ("r", "1", True),
        ("r", "2", True),
    }
    assert one.merge(other) == []
    one.check()
    assert len(one.expire(8)) == 2


@pytest.mark.parametrize("meeting", Meeting)
def test_merging_refuses_a_name_of_two_things(meeting: Meeting) -> None:
    one, other = Directory(), Directory()
    one.add_query("q", parse("x > 0"))
    other.add_query("q", parse("x > 1"), meeting)
    other.add_profile(Profile("s", "1", parse("x > 5")))
    with pytest.raises(FilterError, match="'q' means two different things"):
        one.merge(other)
    assert len(one) == 0


def test_bad_input_changes_nothing() -> None:
    directory = Directory(clock=5)
    directory.add_query("q", parse("x > 0"))
    directory.add_profile(Profile("s", "1", parse("x > 5")))
    with pytest.raises(FilterError, match="never matches"):
        directory.add_query("q", parse("x > 0 AND x < 0"))
    with pytest.raises(FilterError, match="never matches"):
        directory.add_profile(Profile("s", "1", parse("x > 0 AND x < 0")))
    with pytest.raises(EventError, match="cannot go back"):
        directory.expire(4)
    with pytest.raises(EventError, match="integer number of microseconds"):
        directory.expire(6.5)  # type: ignore[arg-type]
    schema = Schema.of(x="int")
    with pytest.raises(SchemaError, match="profile and the directory have different schemas"):
        directory.add_profile(Profile("s", "1", parse("x > 5"), schema=schema))
    with pytest.raises(SchemaError, match="different schemas"):
        directory.merge(Directory(schema))
    directory.check()
    assert directory.pairs() == {("q", ("s", "1"))}


def test_a_schema_decides_more() -> None:
    directory = Directory(Schema.of(x="int"))
    directory.add_query("q", parse("x >= 6"))
    assert len(directory.add_profile(Profile("s", "1", parse("x > 5"), schema=Schema.of(x="int")))) == 1


def test_a_higher_version_is_a_change_and_a_lower_one_is_ignored() -> None:
    directory = Directory()
    directory.add_query("q", parse("x > 0"))
    directory.add_profile(Profile("s", "1", parse("x > 5"), version=3))
    assert directory.add_profile(Profile("s", "1", parse("x > 6"), version=4)) == [
        Notification("q", ("s", "1"), appeared=True, version=4, changed=True)
    ]
    assert directory.add_profile(Profile("s", "1", parse("x < 0"), version=3)) == []
    assert directory.discard_profile(("s", "1")) == [Notification("q", ("s", "1"), appeared=False, version=4)]


def test_a_directory_has_a_limit() -> None:
    directory = Directory(most=1)
    directory.add_query("q", parse("x > 0"))
    directory.add_query("q", parse("x > 1"))
    directory.add_profile(Profile("s", "1", parse("x > 5")))
    with pytest.raises(FilterError, match="at most 1 queries"):
        directory.add_query("r", parse("x > 0"))
    with pytest.raises(FilterError, match="at most 1 profiles"):
        directory.add_profile(Profile("s", "2", parse("x > 5")))
    directory.check()


def test_a_directory_is_saved_and_loaded(tmp_path) -> None:
    directory = Directory(clock=7)
    directory.add_query("q", parse("x > 0"))
    directory.add_query("r", parse("y LIKE '%a'"), Meeting.OVERLAP)
    directory.add_profile(Profile("s", "1", parse("x > 5"), start=3, duration=9, version=2))
    directory.save(tmp_path / "profiles.jsonl")
    loaded = Directory.load(tmp_path / "profiles.jsonl")
    loaded.check()
    assert (loaded.clock, loaded.pairs()) == (7, directory.pairs())
    assert loaded.expire(12) == directory.expire(12) != []
    (tmp_path / "bad").write_text("[1]\n")
    with pytest.raises(FilterError, match="not a saved directory"):
        Directory.load(tmp_path / "bad")


def test_regions_of_different_types_are_never_compared() -> None:
    """Section 6.3: patterns, which no index decides, are compared within their type only."""
    directory = Directory(partition="kind")
    for number in range(40):
        directory.add_profile(Profile("s", str(number), parse(f"kind = 'k{number % 20}' AND name LIKE '%{number}_'")))
    directory.add_query("all", parse("x > 0 OR x <= 0 OR x IS NULL"), Meeting.OVERLAP)
    before = directory.comparisons
    told = directory.add_query("one", parse("kind = 'k3' AND name LIKE '%3%'"), Meeting.OVERLAP)
    assert {change.profile[1] for change in told} == {"3", "23"}
    assert directory.comparisons - before <= 4
    assert len(directory.profiles_of("all")) == 40
    directory.check()
