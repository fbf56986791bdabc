"""The demo's covering order is what comparing each with each says."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from weft import covers, matches
from weftlab.demo import earthquakes
from weftlab.demo.order import ALERTS, WIDER, in_order


@pytest.fixture(scope="module")
def events():
    return earthquakes.events()


@pytest.fixture(scope="module")
def facts(events):
    return json.loads(json.dumps(in_order(Console(quiet=True), events)))


def covered(alert, others) -> bool:
    return any(other is not alert and covers(other.filter, alert.filter) for other in others)


def test_the_alerts_have_names_of_their_own_and_each_gets_something_or_may(events):
    assert len({alert.name for alert in (*ALERTS, WIDER)}) == len(ALERTS) + 1
    assert any(matches(alert.filter, event) for alert in ALERTS for event in events)


def test_the_roots_are_the_alerts_that_no_other_covers(facts):
    assert facts["roots"] == sorted(alert.name for alert in ALERTS if not covered(alert, ALERTS))
    wider = (*ALERTS, WIDER)
    assert facts["roots_with_newspaper"] == sorted(alert.name for alert in wider if not covered(alert, wider))
    assert facts["roots_after"] == facts["roots"]
    assert len(facts["roots_with_newspaper"]) == len(facts["roots"]) - 2


def test_the_roots_bring_every_event_that_somebody_wants(facts, events):
    wanted = sum(any(matches(alert.filter, event) for alert in (*ALERTS, WIDER)) for event in events)
    assert facts["events_wanted"] == facts["events_of_roots"] == wanted


def test_each_alert_hangs_below_one_that_covers_it(facts):
    named = {alert.name: alert.filter for alert in ALERTS}
    assert facts["below"].keys() == named.keys()
    for name, above in facts["below"].items():
        assert (above is None) == (name in facts["roots"])
        assert above is None or covers(named[above], named[name])
    assert facts["depth"] >= 3


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_chapter_fits_its_console(width, events):
    console = Console(file=io.StringIO(), width=width)
    in_order(console, events)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert all(alert.name in " ".join(shown.split()) for alert in ALERTS)
    assert "…" not in shown
