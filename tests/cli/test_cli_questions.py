"""weft sessions, why, search, relate, explain --for and status --network, against a real broker."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.testing import broker


@pytest.fixture(scope="module")
def local():
    """A broker with ten events, a durable subscription that has them, and one that can never match."""
    with (
        broker() as local,
        local.connect_sync(name="sensor-7") as client,
        client.subscribe("magnitude >= 5", name="alerts") as alerts,
        client.subscribe("magnitude > 5 AND magnitude < 3", name="never"),
    ):
        client.publish_many({"magnitude": float(n), "place": f"\x1b[31mp{n}"} for n in range(10))
        for _ in range(5):
            next(alerts).ack()
        yield local


def weft(local, *words: str, code: int = 0):
    done = CliRunner().invoke(app, list(words), env={"WEFT_BROKER": local.address, "WEFT_TOKEN": "", "COLUMNS": "200"})
    assert done.exit_code == code, (done.output, done.stderr)
    assert "\x1b" not in done.stdout
    return done


def test_sessions_are_listed_with_their_subscriptions(local):
    table = weft(local, "sessions", "--with-subscriptions").stdout
    assert re.search(r"alerts\s+-\s+yes\s+1\s+\d\s+0\s+0", table)
    assert "magnitude > 5 AND magnitude < 3" in table
    found = json.loads(weft(local, "sessions", "lert", "--with-subscriptions", "--json").stdout)
    assert [row["name"] for row in found["sessions"]] == ["alerts"]
    assert [row["matched"] for row in found["sessions"][0]["subscriptions"]] == [5]
    assert found["more"] is False
    assert json.loads(weft(local, "sessions", "--limit", "1", "--json").stdout)["more"] is True
    assert "--limit 10" in weft(local, "sessions", "--limit", "1").stdout
    assert weft(local, "sessions", "nobody").stdout.strip() == "no session has 'nobody' in its name"
    assert weft(local, "sessions", "--away").stdout.strip() == "there are no sessions"


def test_why_a_subscription_gets_nothing_is_said(local):
    done = weft(local, "why", "never", code=1)
    assert "no event can match its filter (never-true)" in done.stdout
    assert "> correct the filter" in done.stdout
    found = json.loads(weft(local, "why", "never", "--json", code=1).stdout)
    assert ([each["cause"] for each in found["findings"]], found["healthy"]) == (["never-true"], False)
    assert "nothing is wrong" in weft(local, "why", "alerts").stdout
    assert "there is no session or shared subscription 'nobody' here" in weft(local, "why", "nobody", code=1).stdout


def test_stored_events_are_searched(local):
    done = weft(local, "search", "magnitude >= 7")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["offset", "8", "9", "10"]
    assert done.stderr.strip() == "3 found in 10 of 10 events"
    done = weft(local, "search", "magnitude >= 3", "--since", "3", "--until", "9", "--limit", "2", "--json")
    assert [json.loads(line)["attributes"]["magnitude"] for line in done.stdout.splitlines()] == [3.0, 4.0]
    assert done.stderr.strip() == "2 found in 6 of 6 events"
    assert weft(local, "search", "--since", "1h", "--limit", "1").stdout.count("\n") == 2
    assert weft(local, "search", "--since", "2100-01-01").stderr.strip() == "0 found in 0 of 0 events"
    assert "an age such as 30m" in weft(local, "search", "--since", "soon", code=2).stderr
    wrong = weft(local, "search", "magnitude >=", code=1)
    assert "magnitude >=" in wrong.stderr


def test_an_event_is_explained_for_a_subscription(local):
    done = weft(local, "explain", '{"magnitude": 4}', "--for", "alerts")
    assert "subscription 1 of alerts does not match:" in done.stdout
    assert "-  magnitude >= 5   (magnitude is 4)" in done.stdout
    found = json.loads(weft(local, "explain", '{"magnitude": 6}', "--for", "alerts", "--json").stdout)
    assert (found["trace"]["matches"], found["trace"]["trace"]["truth"]) == (True, True)
    assert "there is no session 'nobody' here" in weft(local, "explain", "{}", "--for", "nobody", code=1).stderr


def test_a_filter_is_related_to_the_subscriptions(local):
    done = weft(local, "relate", "magnitude >= 6").stdout
    assert done.startswith("of 2 subscriptions, 1 cover it")
    assert re.search(r"covered by\s+alerts\s+1\s+magnitude >= 5", done)
    found = json.loads(weft(local, "relate", "magnitude >= 5", "--json").stdout)
    assert found["counts"] == {"equal": 1, "covers": 0, "covered": 0, "overlaps": 0}
    assert "none has an event in common" in weft(local, "relate", "magnitude < 3").stdout


def test_the_network_is_shown(local):
    assert re.search(r"sessions\s+connected\s+subscriptions", weft(local, "status", "--network").stdout)
    (row,) = json.loads(weft(local, "status", "--network", "--json").stdout)
    assert (row["subscriptions"], row["end"] - row["first"]) == (2, 10)


@pytest.mark.parametrize("words", [["sessions"], ["why", "alerts"], ["search"], ["relate", "x > 5"]])
def test_another_broker_that_is_not_there_is_one_sentence(local, words):
    done = weft(local, *words, "--at", "north", code=1)
    assert done.stderr.strip() == "weft: north cannot be asked now: no route leads to it"
    assert json.loads(weft(local, *words, "--at", "north", "--json", code=1).stdout)["error"]["kind"] == "RequestError"


def test_the_busiest_roots_are_shown(local):
    answer = json.loads(weft(local, "status", "--roots", "5", "--json").stdout)
    (root,) = answer["roots"]
    assert (root["filter"], root["holders"], root["size"]) == ("magnitude >= 5", 1, 1)
    assert 0 < root["rate"] <= 5
    assert re.search(r"\d\.\d\d\s+1\s+0\s+magnitude >= 5", weft(local, "status", "--roots", "1").stdout)
    assert "leave out --live" in weft(local, "status", "--roots", "1", "--live", code=1).stderr
