"""Events at the corners of filters."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strategies import filters, thorough
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.model.schema import Schema
from weft.workloads.corners import corner_events


def test_they_lie_inside_and_outside() -> None:
    texts = ["x BETWEEN 2 AND 9 AND s = 'a'", "t > TIMESTAMP '2020-01-01' AND y < 3", "b AND s LIKE 'ab%'"]
    events = corner_events(columns_of_texts(texts), 300, np.random.default_rng(1))
    for text in texts:
        found = [matches(parse(text), event) for event in events]
        assert any(found)
        assert not all(found)


def test_integers_are_whole_under_a_schema() -> None:
    schema = Schema.from_dict({"attributes": {"x": {"type": "int"}}})
    events = corner_events(columns_of_texts(["x > 1 AND x < 4"], schema), 50, np.random.default_rng(1), schema)
    assert all(isinstance(event.get("x", 0), int) for event in events)


@given(st.lists(filters(3), max_size=3))
@thorough(100)
def test_they_are_events_whatever_the_filters_are(some) -> None:
    columns = BoxColumns.of([box for each in some for box in normalize(each).boxes])
    for event in corner_events(columns, 5, np.random.default_rng(3)):
        Event(event)
