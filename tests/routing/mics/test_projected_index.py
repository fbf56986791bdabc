"""Subscriptions found by a few attributes: exact answers from few comparisons; and no event lost to cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, thorough
from weft.algebra.relate import covers, is_empty
from weft.errors import FilterError
from weft.index import TreeIndex
from weft.index.base import SubId
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing.mics.projected_index import ProjectedIndex
from weft.space.content import ContentSpace
from weft.space.grid import Grid

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}})
WIDE = Schema.from_dict({"attributes": {f"a{n}": {"type": "float", "bounds": [0, 100]} for n in range(7)}})


@given(data=st.data())
@thorough(60)
def test_answers_are_exact(data: st.DataObject) -> None:
    """Filters of the whole language, one attribute of two on the curve, subscriptions coming and going."""
    index = ProjectedIndex(ContentSpace(Grid.uniform(SCHEMA, 8, [data.draw(st.sampled_from("ab"))])))
    held = {}
    for number, wanted in enumerate(data.draw(st.lists(filters(3), max_size=10))):
        if is_empty(wanted):
            with pytest.raises(FilterError):
                index.add(SubId(number), wanted)
            continue
        index.add(SubId(number), wanted)
        held[number] = wanted
    for gone in [number for number in held if data.draw(st.booleans())]:
        index.discard(SubId(gone))
        del held[gone]
    assert len(index) == len(held)
    for event in EVENTS[::5]:
        assert index.match(event) == [number for number, wanted in held.items() if matches(wanted, event)]
    asked = data.draw(filters(3))
    if not is_empty(asked):
        assert index.covering(asked) == [number for number, wanted in held.items() if covers(wanted, asked)]
        assert index.covered(asked) == [number for number, wanted in held.items() if covers(asked, wanted)]
        for event in EVENTS[::5]:
            if index.subsumes(asked) and matches(asked, event):
                assert any(matches(wanted, event) for wanted in held.values())


def test_few_candidates_are_asked() -> None:
    """Three attributes of seven leave few of 1,000 subscriptions to compare."""
    rng = np.random.default_rng(3)
    lows = rng.uniform(0, 90, (1_000, 7))
    subscriptions = {
        SubId(n): parse(" AND ".join(f"a{d} BETWEEN {low:.2f} AND {low + 10:.2f}" for d, low in enumerate(row)))
        for n, row in enumerate(lows.tolist())
    }
    events = [{f"a{d}": value for d, value in enumerate(row)} for row in rng.uniform(0, 100, (50, 7)).tolist()]
    index = ProjectedIndex.of(WIDE, subscriptions, events)
    scan = TreeIndex()
    for sub, wanted in subscriptions.items():
        scan.add(sub, wanted)
    for event in events:
        assert index.match(event) == sorted(scan.match(event).tolist())
    assert index.asked < 0.02 * len(subscriptions) * len(events)
    assert index.subsumes(subscriptions[SubId(7)])


def test_a_choice_needs_a_sample() -> None:
    with pytest.raises(FilterError, match="sample"):
        ProjectedIndex.of(WIDE, {}, [{}])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_no_event_is_lost_in_a_million_trials(dims: int) -> None:
    """400 filters against 1,000 events, three times, with missing, NULL, odd-typed and out-of-bounds values."""
    rng = np.random.default_rng(dims)
    names = [f"a{n}" for n in range(dims)]
    space = ContentSpace(Grid.uniform(WIDE, 16, names), most=24)
    edges = [-5.0, 0.0, 100.0, 105.0, 50.0]

    def test(name: str) -> str:
        a, b = sorted(np.where(rng.random(2) < 0.2, rng.choice(edges, 2), rng.uniform(-10, 110, 2)).round(1).tolist())
        kinds = [
            f"{name} BETWEEN {a} AND {b}",
            f"({name} < {a} OR {name} > {b})",
            f"{name} != {a}",
            f"{name} IS NULL",
            f"{name} >= {b}",
            f"{name} = 'odd'",
            f"NOT {name} <= {a}",
        ]
        return kinds[int(rng.integers(len(kinds)))]

    def value() -> Any:
        kind = int(rng.integers(8))
        odd = [None, "odd", True, float("inf"), float(rng.choice(edges))]
        return odd[kind] if kind < len(odd) else round(float(rng.uniform(-10, 110)), 1)

    joins = [" AND ", " OR "]
    wanted = [parse(joins[int(rng.integers(2))].join(test(name) for name in names)) for _ in range(400)]
    wanted = [each for each in wanted if not is_empty(each)]
    events = [{name: value() for name in names if rng.random() < 0.9} for _ in range(1_000)]
    exact = TreeIndex()
    for number, each in enumerate(wanted):
        exact.add(SubId(number), each)
    found = exact.match_batch(events)
    points = space.indexes(events)
    admitted = np.stack([space.ranges(each).contains(points) for each in wanted])
    places = np.repeat(np.arange(len(events)), found.counts)
    lost = np.flatnonzero(~admitted[found.ids, places])
    assert not lost.size, (str(wanted[found.ids[lost[0]]]), events[places[lost[0]]])
    assert len(found.ids) > 10_000
    assert space.index(events[0]) == points[0]
