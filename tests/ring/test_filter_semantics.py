"""Partial match, ranges and general topics, written as filters, against their definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from weft.algebra.normalize import normalize
from weft.algebra.profile import Meeting
from weft.errors import EventError
from weft.language.meaning import matches
from weft.language.text import parse
from weft.ring.filter_semantics import general_filter, range_filter, ranged_event
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping
from weft.ring.topics import TopicAttribute, TopicTree

VALUES = range(7)
RANGES = [(low, high) for low in VALUES for high in VALUES if low <= high]
FILTERS = [
    "x < 3",
    "x BETWEEN 2 AND 4",
    "x != 3",
    "x = 5",
    "x > 1 AND x < 5 AND kind = 'a'",
    "x < 2 OR x > 5",
    "x IS NULL",
    "x IS NOT NULL",
    "kind = 'a'",
    "NOT (x > 3)",
    "x = 1 OR kind = 'b' AND x >= 4",
]


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("meeting", list(Meeting))
def test_a_range_meets_a_filter_that_all_or_some_of_its_values_match(text: str, meeting: Meeting) -> None:
    wanted = parse(text)
    made = range_filter(wanted, meeting)
    boxes = normalize(wanted).boxes
    for (low, high), kind in product(RANGES, ("a", "b")):
        values = [low + quarter / 4 for quarter in range(4 * (high - low) + 1)]  # filters change at whole numbers
        events = [{"x": value, "kind": kind} for value in values]
        if meeting is Meeting.OVERLAP:
            due = any(matches(wanted, event) for event in events)
        else:  # proven by one conjunction
            due = any(all(box.admits(event) for event in events) for box in boxes)
        event = ranged_event({"x": [low, high], "kind": kind}, ["x"])
        assert matches(made, event) == due, (low, high, kind)
    for value, kind in product(VALUES, ("a", "b", None)):
        plain = {"x": value, "kind": kind}
        assert matches(made, plain) == matches(wanted, plain), "events without ranges match as before"
    assert matches(made, {"kind": "a"}) == matches(wanted, {"kind": "a"})


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("meeting", list(Meeting))
def test_an_event_with_a_range_visits_a_key_of_every_filter_that_it_meets(text: str, meeting: Meeting) -> None:
    cuts = {name: Intervals(name, 0, 6, 3) for name in ("x", "x.low", "x.high")}
    mapping, made = KeyMapping(IdSpace(1 << 16), cuts), range_filter(parse(text), meeting)
    stored = mapping.of_subscription("", normalize(made), np.random.default_rng(1))
    for (low, high), kind in product(RANGES, ("a", "b")):
        event = ranged_event({"x": [low, high], "kind": kind}, ["x"])
        if matches(made, event):
            assert stored & mapping.of_event("", event), (low, high, kind)


@pytest.mark.parametrize("wrong", [[3, 1], [1], [1, 2, 3], ["a", "b"], [1, "b"], [True, False], []])
def test_what_is_not_a_range_is_refused(wrong: list[object]) -> None:
    with pytest.raises(EventError, match=r"is not a range; write \[low, high\]"):
        ranged_event({"x": wrong}, ["x"])
    assert ranged_event({"x": 3, "y": wrong}, ["x"]) == {"x": 3, "y": wrong}


TREE = TopicTree({"news": ["sport", "politics"], "sport": ["tennis", "chess"]})
TOPICS = ("news", "sport", "politics", "tennis", "chess", "golf", "")


def related(one: str, other: str) -> bool:
    return bool({*TREE.leaves(one)} & {*TREE.leaves(other)})


@pytest.mark.parametrize("topic", TOPICS)
def test_a_filter_for_a_topic_matches_what_is_above_and_below(topic: str) -> None:
    made = general_filter(parse(f"kind = '{topic}' AND x > 2"), "kind", TREE)
    for other, x in product(TOPICS, (1, 3)):
        assert matches(made, {"kind": other, "x": x}) == (related(topic, other) and x > 2), other
    several = general_filter(parse(f"kind IN ('{topic}', 'tennis') OR kind = 'golf'"), "kind", TREE)
    for other in TOPICS:
        due = related(topic, other) or related("tennis", other) or other == "golf"
        assert matches(several, {"kind": other}) == due
    for text in ("kind != 'sport'", "kind LIKE 's%'", "x > 3", "kind IS NULL"):
        for other in TOPICS:
            event = {"kind": other, "x": 4}
            assert matches(general_filter(parse(text), "kind", TREE), event) == matches(parse(text), event)


@pytest.mark.parametrize("topic", TOPICS)
def test_an_event_visits_a_topic_of_every_filter_that_it_matches(topic: str) -> None:
    attribute = TopicAttribute("kind", TREE)
    for text in (f"kind = '{topic}'", f"kind IN ('{topic}', 'chess')", "kind != 'sport'", "TRUE"):
        for wanted in (parse(text), general_filter(parse(text), "kind", TREE)):
            topics = set(attribute.of_filter(wanted))
            assert all(TREE.leaves(each) == (each,) for each in topics), "groups are those of leaf topics"
            for other in TOPICS:
                if matches(wanted, {"kind": other}):
                    assert topics & set(attribute.of_event({"kind": other})), (text, other)
    tennis = general_filter(parse("kind = 'tennis'"), "kind", TREE)
    assert attribute.of_filter(tennis) == ("tennis",), "no more groups than necessary"
