"""Dictionaries in pages, against a dict."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.paged_dict import PagedDict

keys = st.integers(0, 40)
changes = st.lists(st.tuples(st.sampled_from(("set", "del", "pop", "clear")) | st.just("set"), keys), max_size=60)


@given(changes)
def test_it_holds_what_a_dict_holds(drawn: list[tuple[str, int]]) -> None:
    paged: PagedDict[int, str] = PagedDict(bits=3)
    plain: dict[int, str] = {}
    for number, (what, key) in enumerate(drawn):
        if what == "set":
            paged[key] = plain[key] = str(number)
        elif what == "pop":
            assert paged.pop(key, None) == plain.pop(key, None)
        elif what == "clear" and key == 0:
            paged.clear()
            plain.clear()
        elif key in plain:
            del paged[key], plain[key]
        assert len(paged) == len(plain)
        assert bool(paged) == bool(plain)
        assert (key in paged) == (key in plain)
        assert paged.get(key) == plain.get(key)
        assert paged.get(key, "?") == plain.get(key, "?")
    assert paged == plain
    assert plain == paged
    assert paged.keys() == plain.keys()
    assert sorted(paged.items()) == sorted(plain.items())
    assert sorted(paged.values()) == sorted(plain.values())
    assert [*zip(paged, paged.values(), strict=True)] == [*paged.items()]
    copied = paged.copy()
    paged[100] = "later"
    assert copied == plain
    assert copied.pop(100, None) is None
    del paged[100]
    assert len(copied) == len(plain) == len(paged)
    assert sorted(key for page in paged.pages() for key in page) == sorted(plain)


def test_keys_that_ascend_stay_in_their_order() -> None:
    assert [*PagedDict(dict.fromkeys(range(100)), bits=3)] == [*range(100)]


def test_an_unknown_key_is_an_error() -> None:
    paged = PagedDict({1: "one"})
    for unknown in (2, 5_000):
        with pytest.raises(KeyError):
            paged[unknown]
        with pytest.raises(KeyError):
            del paged[unknown]


def test_nothing_larger_than_a_page_ever_grows() -> None:
    paged = PagedDict(dict.fromkeys(range(50_000)))
    sizes = [len(page) for page in paged.pages()]
    assert max(sizes) == 1_024
    assert len(sizes) == 49


def test_a_page_that_empties_gives_its_memory_back() -> None:
    paged = PagedDict(dict.fromkeys(range(1_024)))
    for key in range(1_000):
        del paged[key]
    (page,) = paged._pages.values()
    assert sys.getsizeof(page) < sys.getsizeof(dict.fromkeys(range(100)))
    for key in range(1_000, 1_024):
        del paged[key]
    assert not paged._pages


def test_pages_may_change_while_they_are_read() -> None:
    paged = PagedDict(dict.fromkeys(range(16)), bits=2)
    seen = []
    for page in paged.pages():
        seen += page
        paged.pop(8, None)
        paged[page[0] + 100] = None
    assert seen == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]
