"""What an interpreter and a notebook show of each value: short, and with the text of users escaped."""

from __future__ import annotations

import pytest

import weft
from weft.index.counting import CountingIndex
from weft.index.scan import ScanIndex
from weft.language.trace import trace
from weft.protocol.questions import FilterTrace, TracePart
from weft.testing import broker

TAG = "place = '<b>'"
ESCAPED = "place = &#x27;&lt;b&gt;&#x27;"


@pytest.mark.parametrize(
    "value",
    [
        weft.parse(TAG),
        weft.merge([TAG]),
        trace(TAG, {"place": "<b>"}),
        FilterTrace("s", 1, TracePart(TAG, True, {"place": "<b>"})),
        weft.connect().subscribe_many({"tag": TAG}),
        weft.connect_sync()._twin.subscribe_many([TAG]),
        weft.Index({"tag": TAG}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_notebook_shows_the_text_of_a_filter_escaped(value):
    shown = value._repr_html_()
    assert ESCAPED in shown
    assert "<b>" not in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (weft.TreeIndex(), "<weft.TreeIndex: 0 filters>"),
        (ScanIndex(), "<weft.ScanIndex: 0 filters>"),
        (CountingIndex(), "<weft.CountingIndex: 0 filters>"),
        (weft.merge(["x < 5 AND a", "x >= 3 AND a"]), "<weft.Merger, perfect: (x < 0 OR x >= 0) AND a>"),
        (weft.connect(), "<weft.Client: not connected: it has not connected yet>"),
        (weft.connect_sync(name="p"), "<weft.SyncClient 'p': not connected: it has not connected yet>"),
        (weft.connect().subscribe("x > 1"), "<weft.Subscription: x > 1, not begun>"),
        (weft.connect().subscribe_many(["x > 1"], name="q"), "<weft.SubscriptionSet 'q': 1 filter, not begun>"),
        (weft.connect().dead_letters, "<weft.DeadLetterQueue of this client; list() has them>"),
        (weft.connect_sync().dead_letters, "<weft.DeadLetterQueue of this client; list() has them>"),
        (broker(), "<weft.LocalBroker: not running>"),
        (str(trace("x > 1 OR y", {"x": 0})), "?  x > 1 OR y\n  -  x > 1   (x is 0)\n  ?  y   (y is absent)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_interpreter_shows(value, shown):
    assert (value if isinstance(value, str) else repr(value)) == shown


def test_a_notebook_does_not_take_its_own_names_for_attributes_of_events():
    for field in (weft.F, weft.F.x):
        assert not hasattr(field, "_repr_html_")
        assert not hasattr(field, "_ipython_display_")
    assert str(weft.F._x == 1) == "_x = 1"
