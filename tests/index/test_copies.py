"""Copies, pickles and children of fork: each goes its own way from the moment it was made."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from typing import Any

import pytest

from strategies import KINDS
from weft.index import CountingIndex, ScanIndex, TreeIndex
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.model.schema import Schema

KNOWN = Predicates([KINDS])
TEXTS = ["x > 5", "s LIKE '%b' OR s LIKE 'a%b'", "x > y", "is_a(k, 'vehicle')", f"x = {2**53 + 1}", "x IN (1, 7)"]
EVENTS: list[dict[str, Any]] = [{"x": 7, "y": 1}, {"s": "ab"}, {"k": "car"}, {"x": 2**53 + 1}, {}]


def filled(kind: type[Any]) -> Any:
    index = kind(Schema.of(s="string"), predicates=KNOWN)
    for sub, text in enumerate(TEXTS):
        index.add(sub, text)
    return index


def answers(index: Any) -> list[list[int]]:
    return [sorted(index.match(event).tolist()) for event in EVENTS]


@pytest.mark.parametrize("kind", [TreeIndex, CountingIndex, ScanIndex])
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))])
def test_a_copy_goes_its_own_way(kind: type[Any], make: Any) -> None:
    index = filled(kind)
    before = answers(index)
    other = make(index)
    other.check()
    assert answers(other) == before
    assert other.schema == index.schema
    index.discard(0)
    other.add(50, "x IS NULL")
    assert answers(other)[4] == [*before[4], 50]
    assert answers(index)[0] == [sub for sub in before[0] if sub != 0]
    assert 0 in other
    assert 50 not in index


def test_a_pickle_has_what_lives_and_leaves_the_rest() -> None:
    index = TreeIndex(tail=2, fan=2, large=10)
    for sub in range(40):
        index.add(sub, f"x > {sub} OR s LIKE '%{sub}%'")
    index.discard_many(range(0, 40, 2))
    other = pickle.loads(pickle.dumps(index))
    assert len(other) == 20
    assert [str(other.filter(sub)) for sub in range(1, 40, 2)] == [str(index.filter(sub)) for sub in range(1, 40, 2)]
    assert other._current.joining == index._current.joining


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_may_match_and_change() -> None:
    """At the fork another thread holds the lock of changes, and a rebuild waits for a thread that the child has not."""
    index = TreeIndex(tail=2, fan=2, large=4)
    for sub in range(30):
        index.add(sub, parse(f"x >= {sub}"))
    index.settle()
    index.match({"x": 5})
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with index.changing:
            index._current.busy = frozenset(id(view.segment) for view in index._version.views)
            held.set()
            done.wait()
            index._current.busy = frozenset()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for sub in range(100, 140):
                index.add(sub, parse(f"x >= {sub}"))
            index.discard(0)
            index.settle()
            index.check()
            code = 0 if sorted(index.match({"x": 101}).tolist()) == [*range(1, 30), 100, 101] else 2
        finally:
            os._exit(code)
    done.set()
    other.join()
    assert os.waitpid(child, 0)[1] == 0
    assert len(index) == 30
