"""Topics by an attribute: what matches has a topic in common."""

from __future__ import annotations

import pytest
from hypothesis import given

from strategies import EVENTS, filters, thorough
from weft.errors import FilterTooComplexError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.ring.topics import EVERY, TopicAttribute


@given(filters())
@thorough(150)
def test_an_event_and_a_filter_that_match_have_a_topic_in_common(wanted: Filter) -> None:
    for topics in (TopicAttribute("a"), TopicAttribute("b"), TopicAttribute()):
        try:
            subscribed = set(topics.of_filter(wanted))
        except FilterTooComplexError:
            return
        for event in EVENTS:
            if matches(wanted, event):
                assert subscribed & set(topics.of_event(event)), event


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("kind = 'a'", ("a",)),
        ("kind = 'a' AND x > 1 OR kind = 'b' AND x < 1", ("a", "b")),
        ("kind = 'a' OR x > 1", (EVERY,)),
        ("kind != 'a'", (EVERY,)),
        ("kind IS NULL OR kind = 'a'", (EVERY,)),
        ("kind = 'a' OR kind = 3", (EVERY,)),
        ("kind LIKE 'a%'", (EVERY,)),
        ("kind = 'a' AND kind = 'b'", ()),
    ],
)
def test_a_filter_belongs_to_the_strings_that_it_allows(text: str, topics: tuple[str, ...]) -> None:
    assert TopicAttribute("kind").of_filter(parse(text)) == topics
    assert TopicAttribute().of_filter(parse(text)) == (EVERY,)


def test_an_event_without_a_topic_belongs_to_every() -> None:
    kind = TopicAttribute("kind")
    assert kind.of_event({"x": 1}) == kind.of_event({"kind": 3}) == kind.of_event({"kind": ""}) == (EVERY,)
    assert kind.of_event({"kind": "a"}) == (EVERY, "a")
