"""Dictionaries in parts, against a dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.split_dict import SplitDict

keys = st.sampled_from([None, "a", "b", "ab", (1, 2), (), b"a", *range(12)])
changes = st.lists(st.tuples(st.sampled_from(("set", "del", "pop")) | st.just("set"), keys), max_size=60)


@given(changes)
def test_it_holds_what_a_dict_holds(drawn: list[tuple[str, object]]) -> None:
    split: SplitDict[object, int] = SplitDict(parts=4)
    plain: dict[object, int] = {}
    for number, (what, key) in enumerate(drawn):
        if what == "set":
            split[key] = plain[key] = number
        elif what == "pop":
            assert split.pop(key, None) == plain.pop(key, None)
        elif key in plain:
            del split[key], plain[key]
        assert len(split) == len(plain)
        assert bool(split) == bool(plain)
        assert (key in split) == (key in plain)
        assert split.get(key) == plain.get(key)
    assert split == plain
    assert split.keys() == plain.keys()
    assert sorted(split.values()) == sorted(plain.values())


def test_an_unknown_key_is_an_error() -> None:
    split: SplitDict[str, int] = SplitDict()
    with pytest.raises(KeyError):
        split["unknown"]
    with pytest.raises(KeyError):
        del split["unknown"]


def test_no_part_holds_a_large_share() -> None:
    split: SplitDict[int, None] = SplitDict()
    for key in range(50_000):
        split[key] = None
    assert max(len(part) for part in split._parts.values()) == 196
