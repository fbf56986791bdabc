"""Topics: general ones stand for their leaves, and which groups are alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RingError
from weft.ring.topics import SuperTopics, TopicTree, super_topic

NEWS = TopicTree({"news": ["sports", "politics"], "sports": ["tennis", "chess"], "games": ["chess", "go"]})


def test_a_general_topic_stands_for_its_leaves() -> None:
    assert NEWS.leaves("news") == ("chess", "politics", "tennis")
    assert NEWS.leaves("go") == ("go",)


def test_a_circle_of_topics_is_refused() -> None:
    with pytest.raises(RingError, match="a > b > c > a"):
        TopicTree({"a": ["b"], "b": ["c"], "c": ["a"]})


def test_a_super_topic_is_the_topic_above_its_parts_or_a_virtual_one() -> None:
    assert super_topic(["tennis", "chess"], NEWS) == "sports"
    assert super_topic(["politics", "go"], NEWS) == "go+politics"
    assert super_topic(["chess", "tennis", "politics", "chess"], NEWS) == "news"
    assert super_topic(["tennis", "chess"]) == "chess+tennis"


def test_topics_are_merged_by_two_thresholds_and_each_two_must_be_alike() -> None:
    rule = SuperTopics(2, 1)
    assert rule.keeps({"a": {1, 2}, "b": {1, 2, 3}})
    assert not rule.keeps({"a": {1, 2}, "b": {2, 3}}), "one in common"
    assert not rule.keeps({"a": {1, 2}, "b": {1, 2, 3, 4}}), "two different ones"
    assert rule.keeps({"b": {1, 2, 3}, "c": {1, 2, 3, 4}})
    assert not rule.keeps({"a": {1, 2}, "b": {1, 2, 3}, "c": {1, 2, 3, 4}})
    assert not rule.keeps({"a": {1, 2}}), "one topic is no super topic"


@given(st.dictionaries(st.sampled_from("abc"), st.frozensets(st.integers(0, 3)), max_size=3))
def test_part_of_what_is_merged_would_be_merged_as_well(parts: dict[str, frozenset[int]]) -> None:
    rule = SuperTopics(1, 2)
    if rule.keeps(parts) and len(parts) > 2:
        for gone in parts:
            assert rule.keeps({topic: members for topic, members in parts.items() if topic != gone})


def test_thresholds_make_sense() -> None:
    with pytest.raises(RingError, match="one common member"):
        SuperTopics(0, 1)
    with pytest.raises(RingError, match="one common member"):
        SuperTopics(1, -1)
    with pytest.raises(RingError, match="period of merging"):
        SuperTopics(1, 1, period=0)
