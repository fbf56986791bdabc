"""Every cell space keeps the protocol: what matches is admitted, more items admit no less, and files keep them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, thorough
from weft import Schema
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.routing.dls.space import LabelSpace
from weft.space.cell_space import boxes_of, cells_of, told_of
from weft.space.content import ContentSpace
from weft.space.curve_groups import CurveGroups
from weft.space.grid import Grid

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in ("a", "b")}})


def grid(*names: str) -> Grid:
    return Grid.uniform(SCHEMA, 6, names)


SPACES: list[Any] = [
    ContentSpace(grid("a", "b"), most=4),
    CurveGroups([ContentSpace(grid("a"), most=4), ContentSpace(grid("b"), most=4)]),
    LabelSpace([grid("a", "b")], most=8),
    LabelSpace([grid("a"), grid("b")], most=8),
]


def columns_of(some: list[Filter]) -> BoxColumns:
    owned = [(at, box) for at, each in enumerate(some) for box in normalize(each).boxes]
    return BoxColumns.of([box for _, box in owned], [at for at, _ in owned])


@pytest.mark.parametrize("space", SPACES, ids=["curve", "curves", "labels", "applications"])
@given(st.lists(filters(3), min_size=1, max_size=5))
@thorough(40)
def test_what_matches_is_admitted_and_items_are_those_of_each_filter(space: Any, some: list[Filter]) -> None:
    columns = columns_of(some)
    told, cells = told_of(space, columns), cells_of(space, EVENTS)
    assert told.shape[1] == len(space.fields)
    admitted = space.admits(told, cells)
    for event, passes in zip(EVENTS, admitted.tolist(), strict=True):
        assert passes or not any(matches(each, event) for each in some), event
    first = space.admits(told_of(space, columns_of(some[:1])), cells)
    assert not (first & ~admitted).any(), "more items admit less"
    items = space.items(boxes_of(space, columns), columns.owners)
    again = space.united(np.concatenate([items, items[::-1]]))
    assert np.array_equal(again, told)
    if space.model == "dls":
        every = [space.labels(each) for each in some if normalize(each).boxes]
        assert sorted(items[:, 0].tolist()) == sorted(label for labels in every for label in labels.tolist())
    else:
        for group, mine in zip(space.groups, space.by_group(told), strict=True):
            every = [group.ranges(each) for each in some if normalize(each).boxes]
            points = np.arange(group.curve.last + 1)
            inside = np.any([each.contains(points) for each in every] or [points < 0], axis=0)
            found = np.zeros(len(points), bool)
            for start, end in mine.tolist():
                found[start : end + 1] = True
            assert np.array_equal(found, inside)


@pytest.mark.parametrize("space", SPACES, ids=["curve", "curves", "labels", "applications"])
def test_a_space_survives_its_json(space: Any) -> None:
    assert type(space).from_json(space.to_json()) == space
    assert hash(space.parameters) == hash(type(space).from_json(space.to_json()).parameters)
