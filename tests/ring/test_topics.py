"""Topics: general ones stand for their leaves, and similar groups are merged and separated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RingError
from weft.ring.topics import SuperTopics, TopicTree

NEWS = TopicTree({"news": ["sports", "politics"], "sports": ["tennis", "chess"], "games": ["chess", "go"]})


def test_a_general_topic_stands_for_its_leaves() -> None:
    assert NEWS.leaves("news") == ("chess", "politics", "tennis")
    assert NEWS.leaves("go") == ("go",)


def test_a_circle_of_topics_is_refused() -> None:
    with pytest.raises(RingError, match="a > b > c > a"):
        TopicTree({"a": ["b"], "b": ["c"], "c": ["a"]})


def test_similar_groups_use_the_topic_above_them_or_a_virtual_one() -> None:
    merged = SuperTopics(2, 1, NEWS)
    assert merged.probe("tennis", {1, 2}, "chess", {1, 2, 3}) == "sports"
    assert merged.probe("politics", {1, 2}, "go", {5}) is None
    assert merged.probe("politics", {1, 2, 3}, "go", {1, 2}) == "go+politics"
    assert merged.groups("news") == ("go+politics", "sports")
    assert merged.probe("chess", {1, 2, 3}, "go", {1, 2, 3}) == "chess+go+politics+tennis"
    assert merged.groups("news") == ("chess+go+politics+tennis",)


def test_a_merger_ends_when_its_groups_are_no_longer_alike() -> None:
    merged = SuperTopics(2, 1, NEWS)
    merged.probe("tennis", {1, 2}, "chess", {1, 2, 3})
    assert merged.review("sports", {"tennis": {1, 2}, "chess": {1, 2}}) == ()
    assert merged.review("sports", {"tennis": {1, 2}, "chess": {1, 7, 8}}) == ("chess", "tennis")
    assert merged.groups("sports") == ("chess", "tennis")


@given(st.lists(st.tuples(*[st.sampled_from(("tennis", "chess", "politics", "go"))] * 2), max_size=6))
def test_topics_with_a_common_leaf_use_a_common_group(probes: list[tuple[str, str]]) -> None:
    merged = SuperTopics(1, 9, NEWS)
    for one, other in probes:
        merged.probe(one, {1}, other, {1})
        names = ("news", "sports", "games", "politics", "go", "tennis", "chess")
        for a in names:
            for b in names:
                if set(NEWS.leaves(a)) & set(NEWS.leaves(b)):
                    assert set(merged.groups(a)) & set(merged.groups(b))
        for leaf in NEWS.leaves("news"):
            assert leaf in merged.parts(merged.group(leaf))


def test_thresholds_make_sense() -> None:
    with pytest.raises(RingError, match="one common member"):
        SuperTopics(0, 1)
