"""The demo: its events are the file's, its numbers agree with plain Python over the file."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest
from rich.console import Console

from weft import covers, matches, parse
from weft.language.ast import AttributeRef, Between, Compare, In, Is, Like, Not, Or, walk
from weft.model.value import Type
from weftlab.demo import earthquakes
from weftlab.demo.filters import SUBSCRIPTIONS, NamedFilter
from weftlab.demo.mistakes import MISTAKES, what_lint_finds
from weftlab.demo.tour import CHAPTERS, Alerts, Chapter, covered_by, tour

QUICK = [chapter for chapter in CHAPTERS if chapter.name not in ("live", "pipeline")]  # these have their own tests
FOUR_FEBRUARY = 1_517_702_400_000  # 2018-02-04T00:00:00Z in milliseconds


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with (files("weftlab.demo") / "data" / "earthquakes.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def events():
    return earthquakes.events()


def number(cell: str) -> float:
    """NaN for an empty cell: it compares to nothing, as NULL does."""
    return float(cell or "nan")


BY_HAND = {
    "strong": lambda row: number(row["magnitude"]) >= 4.5,
    "damaging": lambda row: number(row["magnitude"]) >= 5 and number(row["depth"]) < 70,
    "alarm": lambda row: number(row["magnitude"]) >= 6 or row["tsunami"] == "1",
    "tsunami": lambda row: row["tsunami"] == "1",
    "Hualien": lambda row: (
        row["place"].endswith(", Taiwan") and int(row["time"]) >= FOUR_FEBRUARY and number(row["magnitude"]) >= 4.5
    ),
    "California": lambda row: row["place"].endswith((", CA", ", California")),
    "felt in CA": lambda row: row["place"].endswith(", CA") and number(row["felt"]) >= 1,
    "Alaska": lambda row: 51 <= number(row["latitude"]) <= 72 and -180 <= number(row["longitude"]) <= -130,
    "man-made": lambda row: row["type"] in ("explosion", "quarry blast"),
    "unchecked": lambda row: row["status"] != "reviewed" and number(row["magnitude"]) >= 2.5,
    "uncertain": lambda row: number(row["gap"]) > 180 or row["nst"] == "",
    "well seen": lambda row: number(row["gap"]) < number(row["nst"]),
}


def test_there_are_a_dozen_subscriptions_with_names_of_their_own():
    assert [subscription.name for subscription in SUBSCRIPTIONS] == list(BY_HAND)
    assert len(BY_HAND) == 12
    assert all(subscription.purpose and "\n" not in subscription.purpose for subscription in SUBSCRIPTIONS)


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS, ids=lambda subscription: subscription.name)
def test_a_subscription_gets_what_plain_python_finds_in_the_file(subscription, rows, events):
    expected = {row["id"] for row in rows if BY_HAND[subscription.name](row)}
    assert {event["id"] for event in events if matches(subscription.filter, event)} == expected
    assert 0 < len(expected) < len(rows)


def test_the_subscriptions_show_the_language():
    nodes = [node for subscription in SUBSCRIPTIONS for node in walk(subscription.filter)]
    assert {Between, In, Is, Like, Not, Or} <= set(map(type, nodes))
    assert any(isinstance(subscription.filter, AttributeRef) for subscription in SUBSCRIPTIONS)
    compared = [node.right for node in nodes if isinstance(node, Compare)]
    assert any(isinstance(right, AttributeRef) for right in compared)
    assert any(not isinstance(right, AttributeRef) and right.type is Type.TIMESTAMP for right in compared)
    assert all(
        subscription.text == str(subscription.filter) or "TIMESTAMP" in subscription.text
        for subscription in SUBSCRIPTIONS
    )


def test_the_events_are_the_rows_of_the_file(rows, events):
    assert [event["id"] for event in events] == [row["id"] for row in rows]
    assert len({event.identity for event in events}) == len(rows) == 1707
    for row, event in zip(rows, events, strict=True):
        assert event["source"] == "usgs"
        assert event["tsunami"] is (row["tsunami"] == "1")
        for name in ("time", "updated"):
            assert event[name].timestamp() * 1000 == pytest.approx(int(row[name]), abs=1e-3)
        for name in ("latitude", "longitude", "depth", "magnitude", "nst", "gap", "dmin", "rms", "sig", "felt"):
            assert event[name] == (float(row[name]) if row[name] else None)
        for name in ("place", "mag_type", "type", "status", "net"):
            assert event[name] == row[name]


def test_the_events_are_as_the_schema_promises(events):
    schema = earthquakes.schema()
    assert all(schema.conform(event) is event for event in events)
    assert set().union(*events) == set(schema)
    for attribute in schema.attributes:
        values = {event[attribute.name] for event in events} - {None}
        if attribute.low is not None:
            assert attribute.low <= min(values) <= max(values) <= attribute.high
        if attribute.categories:
            assert values == set(attribute.categories)


def test_covering_is_what_the_pairs_say(events):
    covered = covered_by(SUBSCRIPTIONS)
    pairs = {(wide, narrow) for narrow, wides in covered.items() for wide in wides}
    for one, other in combinations(SUBSCRIPTIONS, 2):
        for wide, narrow in ((one, other), (other, one)):
            assert ((wide.name, narrow.name) in pairs) == covers(wide.filter, narrow.filter)
            if (wide.name, narrow.name) in pairs:
                assert all(matches(wide.filter, event) for event in events if matches(narrow.filter, event))


def test_of_equivalent_subscriptions_one_is_forwarded():
    same = [NamedFilter(name, "", text) for name, text in (("a", "x > 1"), ("b", "NOT x <= 1"), ("c", "x > 1.0"))]
    assert covered_by(same) == {"b": ["a"], "c": ["a", "b"]}


def wanted_by(alerts: Alerts, rows: list[dict[str, str]]) -> list[int]:
    """How many of the alerts want each row, every alert asked."""
    counts = []
    for row in rows:
        latitude, longitude, magnitude = (number(row[name]) for name in ("latitude", "longitude", "magnitude"))
        inside = (alerts.south <= latitude) & (latitude <= alerts.north)
        inside &= (alerts.west <= longitude) & (longitude <= alerts.east)
        counts.append(int((inside & (magnitude >= alerts.magnitude)).sum()))
    return counts


def test_the_same_seed_draws_the_same_alerts_and_all_are_regions():
    one, other = (Alerts.drawn(np.random.default_rng(7), 50) for _ in range(2))
    assert [str(one.filter(row)) for row in range(50)] == [str(other.filter(row)) for row in range(50)]
    assert (one.south < one.north).all()
    assert (one.west < one.east).all()


def test_the_facts_are_json_and_agree_with_the_file(rows):
    facts = json.loads(json.dumps(tour(Console(quiet=True), QUICK)))
    assert "United States Geological Survey" in facts["source"]
    assert "public domain" in facts["source"]
    assert facts["events"]["count"] == len(rows)
    assert sum(facts["events"]["days"].values()) == len(rows)
    counts = Counter(name for row in rows for name, wanted in BY_HAND.items() if wanted(row))
    assert {name: found["matches"] for name, found in facts["matches"].items()} == counts
    covering = facts["covering"]
    assert sorted([*covering["forwarded"], *covering["covered"]]) == sorted(BY_HAND)
    assert covering["covered"] == {
        "damaging": ["strong"],
        "tsunami": ["alarm"],
        "Hualien": ["strong"],
        "felt in CA": ["California"],
    }
    wanted = sum(any(by_hand(row) for by_hand in BY_HAND.values()) for row in rows)
    assert covering["events_wanted"] == covering["events_of_forwarded"] == wanted
    many = facts["many"]
    assert (many["subscriptions"], many["events"]) == (100_000, len(rows))
    counts = wanted_by(Alerts.drawn(np.random.default_rng(2018), 100_000), rows)
    assert (many["matches"], many["events_wanted"]) == (sum(counts), sum(count > 0 for count in counts))
    assert many["equal"] == many["checked"] == 200
    assert many["seconds_to_build"] > 0
    assert many["microseconds_per_event"] > 0


@pytest.fixture
def _fewer(monkeypatch):
    monkeypatch.setattr("weftlab.demo.tour._MANY", 5_000)


@pytest.mark.usefixtures("_fewer")
@pytest.mark.parametrize("width", [60, 100])
def test_the_tour_fits_its_console(width):
    console = Console(file=io.StringIO(), width=width)
    tour(console, QUICK)
    shown = console.file.getvalue()
    assert "200 of 200 pairs are equal" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for number_, chapter in enumerate(QUICK, 1):
        assert f"{number_}  {chapter.title}" in shown


@pytest.mark.usefixtures("_fewer")
def test_a_plain_console_gets_plain_characters():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    tour(Console(file=file, width=80), QUICK)
    file.seek(0)
    assert "####" in file.read()


def test_chapters_can_be_chosen():
    console = Console(file=io.StringIO(), width=80)
    assert tour(console, [Chapter("mine", "My own", lambda _, events: {"n": len(events)})])["mine"] == {"n": 1707}
    assert "1  My own" in console.file.getvalue()


def test_lint_finds_the_mistakes_of_the_demo_and_no_others(events):
    facts = json.loads(json.dumps(what_lint_finds(Console(quiet=True), events)))
    assert facts["filters"] == len(SUBSCRIPTIONS) + len(MISTAKES)
    assert facts["counts"] == {"unknown_attribute": 1, "unlike_types": 2, "never_true": 1, "duplicate": 1}
    named = {example["id"] for finding in facts["findings"] for example in finding["examples"]}
    assert named == {name for name, _ in MISTAKES} | {"tsunami"}  # which one of them repeats
    dead = [text for _, text in MISTAKES if not any(matches(parse(text), event) for event in events)]
    assert facts["dead"] == len(dead) == 4


def test_what_users_want_comes_before_what_brokers_do():
    assert [chapter.name for chapter in CHAPTERS] == [
        "events",
        "matches",
        "lint",
        "many",
        "live",
        "pipeline",
        "covering",
        "order",
    ]
