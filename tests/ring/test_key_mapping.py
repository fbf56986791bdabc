"""The intersection rule: an event and a subscription that match always share a key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, one_of, thorough
from weft.algebra.normalize import normalize
from weft.algebra.profile import Meeting, Profile
from weft.errors import FilterTooComplexError, RingError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.schema import Attribute
from weft.model.value import Type
from weft.ring.filter_semantics import partial_filter
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping, Selection, Semantics, partially_matches

SPACE = IdSpace(1 << 40)  # so large that two keys are equal only on purpose
CUTS = {"a": Intervals("a", 0, 2, 4), "b": Intervals("b", 0.5, 1.5, 1)}


def mappings(semantics: Semantics) -> st.SearchStrategy[KeyMapping]:
    cut = st.sets(st.sampled_from(("a", "b"))).map(lambda names: {name: CUTS[name] for name in names})
    return st.builds(KeyMapping, st.just(SPACE), cut, st.just(semantics), st.sampled_from(Selection))


@given(filters(), mappings(Semantics.EXACT), st.integers(0, 9))
@thorough(150)
def test_what_matches_exactly_shares_a_key(wanted: Filter, mapping: KeyMapping, seed: int) -> None:
    try:
        form = normalize(wanted)
    except FilterTooComplexError:
        return
    stored = mapping.of_subscription("t", form, np.random.default_rng(seed))
    for event in EVENTS:
        if matches(wanted, event):
            assert stored & mapping.of_event("t", event), event


@given(filters(), mappings(Semantics.PARTIAL))
@thorough(150)
def test_what_matches_partially_shares_a_key(wanted: Filter, mapping: KeyMapping) -> None:
    try:
        form = normalize(wanted)
    except FilterTooComplexError:
        return
    stored = mapping.of_subscription("t", form, np.random.default_rng(1))
    for event in EVENTS:
        if matches(wanted, event):
            assert partially_matches(form, event)
        if partially_matches(form, event):
            assert stored & mapping.of_event("t", event), event


@given(filters(4), filters(4), mappings(Semantics.EXACT), st.sampled_from(Meeting))
@thorough(250)
def test_what_a_profile_meets_shares_a_key(
    wanted: Filter, region: Filter, mapping: KeyMapping, meeting: Meeting
) -> None:
    try:
        form, profile = normalize(wanted), Profile("s", "1", region)
    except FilterTooComplexError:
        return
    stored = mapping.of_subscription("t", form, np.random.default_rng(1), meeting)
    meets = profile.meets(form, meeting)
    if meets and meeting is Meeting.OVERLAP:  # a wrong overlap is allowed; an event in both is proof
        meets = any(matches(wanted, event) and matches(region, event) for event in EVENTS)
    if meets:
        assert stored & mapping.of_profile("t", profile)


@given(one_of([0, 1, 1.5, 2, -3, 1e300, 2**62, "a", True, False]), one_of(["t", "u"]))
def test_equal_values_have_one_key_whatever_their_type(value: object, topic: str) -> None:
    for mapping in (KeyMapping(SPACE), KeyMapping(SPACE, CUTS)):
        same = float(value) if type(value) is int else value
        assert mapping.of_value(topic, "a", value) == mapping.of_value(topic, "a", same)
    assert KeyMapping(SPACE).of_value("t", "a", value) != KeyMapping(SPACE).of_value("t", "b", value)
    assert KeyMapping(SPACE).of_value("t", "a", True) != KeyMapping(SPACE).of_value("t", "a", 1)


def test_an_end_that_is_excluded_needs_no_interval_of_its_own() -> None:
    mapping = KeyMapping(SPACE, {"a": Intervals("a", 0, 100, 10)})
    rng = np.random.default_rng(1)
    assert len(mapping.of_subscription("t", normalize(parse("a >= 10 AND a < 20")), rng)) == 1
    assert len(mapping.of_subscription("t", normalize(parse("a >= 10 AND a <= 20")), rng)) == 2


DAYS = Intervals.of_attribute(Attribute("at", Type.TIMESTAMP, low=datetime(2026, 1, 1), high=datetime(2026, 1, 11)), 10)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("at >= TIMESTAMP '2026-01-02' AND at < TIMESTAMP '2026-01-04'", 2),
        ("at BETWEEN TIMESTAMP '2026-01-02' AND TIMESTAMP '2026-01-04'", 3),
        ("at > TIMESTAMP '2026-01-09T12:00:00Z'", 2),
        ("at = TIMESTAMP '2026-01-05'", 1),
        ("at < TIMESTAMP '2025-01-01'", 1),
        ("at IN (TIMESTAMP '2026-01-05', TIMESTAMP '2026-01-07T23:59:59.999999Z')", 2),
        ("at > 3", 1),  # of another type: the "any" key
        ("at = 3 OR at = 'x'", 2),
    ],
)
def test_timestamps_are_placed_by_intervals_and_what_matches_shares_a_key(text: str, stored: int) -> None:
    mapping = KeyMapping(SPACE, {"at": DAYS})
    keys = mapping.of_subscription("t", normalize(parse(text)), np.random.default_rng(1))
    assert len(keys) == stored
    moments = [datetime(2025, 12, 30) + timedelta(hours=6 * n, microseconds=n % 2) for n in range(60)]
    for value in (
        *moments,
        *(each.replace(tzinfo=UTC) for each in moments),
        datetime(2026, 1, 7, 23, 59, 59, 999999),
        3,
        4.5,
        "x",
    ):
        visited = mapping.of_event("t", {"at": value})
        if matches(parse(text), {"at": value}):
            assert keys & visited, value
    share = mapping.share("at", normalize(parse("at < TIMESTAMP '2026-01-04'")).boxes[0].sets["at"])
    assert share == pytest.approx(0.3)


def test_proportional_selection_prefers_narrow_ranges() -> None:
    cuts = {name: Intervals(name, 0, 100, 10) for name in ("a", "b")}
    form = normalize(parse("a BETWEEN 0 AND 80 AND b BETWEEN 41 AND 49"))
    rng = np.random.default_rng(1)
    narrow = {}
    for selection in Selection:
        mapping = KeyMapping(SPACE, cuts, selection=selection)
        narrow[selection] = sum(len(mapping.of_subscription("t", form, rng)) == 1 for _ in range(300))
    assert 110 < narrow[Selection.RANDOM] < 190  # one half
    assert 250 < narrow[Selection.PROPORTIONAL] < 290  # ten of eleven


def test_without_an_any_key_a_filter_that_needs_it_is_refused() -> None:
    mapping = KeyMapping(SPACE, any_key=False)
    with pytest.raises(RingError, match="name has values that can be hashed"):
        mapping.of_subscription("t", normalize(parse("name LIKE 'a%'")), np.random.default_rng(1))
    assert len(mapping.of_event("t", {"name": "abc"})) == 1


def test_the_partial_match_of_the_paper() -> None:
    form = normalize(parse("a1 < 20 AND a2 > 5"))
    assert partially_matches(form, {"a1": 10})
    assert not partially_matches(form, {"a1": 10, "a2": 1})
    assert not partially_matches(form, {"b": 10}), "it has none of the attributes"


@pytest.mark.parametrize(
    "text",
    [
        "a < 20 AND b > 5",
        "a < 20 OR b > 5 AND c = 'x'",
        "a > b",
        "a > b AND c = 'x'",
        "a IS NULL AND b = 1",
        "NOT (a < 3)",
        "c LIKE 'x%' AND a IN (1, 2)",
        "TRUE",
        "a > 5 AND a < 3",
    ],
)
def test_the_partial_filter_matches_what_matches_partially(text: str) -> None:
    wanted = parse(text)
    values = {"a": (None, 1, 10, 30), "b": (None, 1, 9, 40), "c": (None, "x", "y")}
    for chosen in product(*values.values()):
        event = {name: value for name, value in zip(values, chosen, strict=True) if value is not None}
        assert matches(partial_filter(wanted), event) == partially_matches(normalize(wanted), event), event
