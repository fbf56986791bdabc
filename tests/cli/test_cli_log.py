"""`weft log`: tables for people, JSON for machines, failures as sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from log.golden_log import GROUPS, SCHEMA, write
from weft.cli.app import app
from weft.client.sync import connect_sync
from weft.log.base import Offset
from weft.log.opening import LogOptions, open_log
from weft.log.schema import DATABASE
from weft.testing import broker


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["log", *map(str, arguments)])


def answer(*arguments: object):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_info_counts_events_rows_and_lags(data):
    facts = answer("info", data)
    assert (facts["events"], facts["groups"], facts["first"], facts["next"]) == (5, 3, 1, 12)
    assert facts["rows"]["subscriptions"] == 2
    lags = {
        each["seat"]: (each["kind"], each["owner"], each["floor"], each["lag"], each["dead"]) for each in facts["seats"]
    }
    assert lags == {
        1: ("subscription", "ops", 10, 1, 0),
        2: ("subscription", "ops", 1, 2, 1),
        3: ("link", "north", 1, 3, 0),
    }
    shown = run("info", data).stdout
    for part in (
        "5 in 3 groups",
        "1 is the first, 12 the next",
        "2 subscriptions",
        "magnitude >= 5",
        "north",
        "07" * 16,
    ):
        assert part in shown
    assert "1 more seats" not in run("info", data, "--limit", 3).stdout
    assert "2 more seats" in run("info", data, "--limit", 1).stdout


def test_the_log_of_a_durable_subscription_is_whole_and_its_queue_has_the_lag(tmp_path):
    with broker(data=tmp_path) as local, connect_sync(local.address) as client:
        client.subscribe("x >= 5", name="alerts").close()
        client.publish_many({"x": x} for x in range(8))
        client.subscribe("x < 2", name="work", shared=True).close()
        client.publish_many({"x": x} for x in range(8))
    assert answer("verify", tmp_path)["problems"] == []
    facts = answer("info", tmp_path)
    assert (facts["rows"]["queues"], facts["rows"]["subscriptions"]) == (2, 2)
    assert [(each["kind"], each["owner"], each["filter"], each["floor"], each["lag"]) for each in facts["seats"]] == [
        ("queue", "alerts", "", 6, 6),
        ("queue", "", "", 9, 2),
        ("subscription", "alerts", "x >= 5", None, 0),
        ("subscription", "", "x < 2", None, 0),
    ]
    assert "9,223" not in run("info", tmp_path).stdout


def test_info_and_status_count_the_same_events(tmp_path):
    with broker(data=tmp_path) as local, connect_sync(local.address) as client:
        client.subscribe("x < 0", name="idle").close()
        events = client.subscribe("x >= 5", name="work", ordered=False)
        client.publish_many({"x": x} for x in range(8))
        first, second, _ = (events.receive(timeout=10) for _ in range(3))
        second.ack()
        while (found := {each.session: each.behind for each in client.status().furthest}) != {"idle": 0, "work": 2}:
            assert found == {"idle": 0, "work": 3}, "the acknowledgement is on its way"
        assert first["x"] == 5
    queues = [each for each in answer("info", tmp_path)["seats"] if each["kind"] == "queue"]
    assert {each["owner"]: (each["floor"], each["lag"]) for each in queues} == {"idle": (9, 0), "work": (6, 2)}


def test_show_lists_events(data):
    found = answer("show", data)["events"]
    assert [each["offset"] for each in found] == [1, 2, 3, 10, 11]
    assert found[3] == {
        "offset": 10,
        "at": "1970-01-01 00:00:00.002",
        "session": 5,
        "epoch": 1,
        "sequence": 10,
        "seats": [1, 2, 3],
        "head_bytes": 7,
        "payload_bytes": 0,
    }
    assert [each["offset"] for each in answer("show", data, "--since", 3, "--limit", 2)["events"]] == [3, 10]
    assert [each["offset"] for each in answer("show", data, "--since", "1970-01-01T00:00:00.003Z")["events"]] == [11]
    shown = run("show", data).stdout
    assert "1970-01-01 00:00:00.002" in shown
    assert "5 events" in shown
    assert run("show", data, "--since", "yesterday").exit_code == 2


def test_verify_a_whole_and_a_damaged_log(data):
    assert answer("verify", data) == {
        "groups": 3,
        "events": 5,
        "rows": 12,
        "first": 1,
        "next": 12,
        "problems": [],
    }
    assert "is intact: 5 events in 3 groups" in run("verify", data).stdout
    log = open_log(data, LogOptions(schema=SCHEMA)).log
    log._connection.execute("UPDATE sub SET filter = 'FALSE' WHERE seat = 2")
    log.close()
    result = run("verify", data)
    assert result.exit_code == 1
    assert "a row of the table 'sub' is damaged" in result.stderr
    result = run("verify", data, "--json")
    assert (result.exit_code, len(json.loads(result.stdout)["problems"])) == (1, 1)


def test_a_back_up_and_a_restored_log(data, tmp_path):
    before = answer("info", data)
    assert answer("backup", data, tmp_path / "copy") == {"backup": str(tmp_path / "copy")}
    assert answer("verify", tmp_path / "copy")["problems"] == []
    restored = answer("restore", data)
    assert restored["log_id"] != before["log_id"]
    after = answer("info", data)
    assert (after["log_id"], after["schema"]) == (restored["log_id"], before["schema"])
    assert "already has a log" in run("backup", data, tmp_path / "copy").stderr


def test_migrate_lists_affected_filters(data, tmp_path):
    (tmp_path / "new.json").write_text('{"attributes": {"magnitude": "string", "place": "string"}}')
    result = run("migrate", data, "--schema", tmp_path / "new.json")
    assert result.exit_code == 0, result.output
    assert "subscription 1: magnitude >= 5" in result.stdout
    assert "'magnitude' was float and is string" in result.stdout
    assert "2 stored filters may mean something else" in result.stdout
    assert answer("migrate", data, "--schema", tmp_path / "new.json") == {"affected": []}
    assert "means the same" in run("migrate", data, "--schema", tmp_path / "new.json").stdout


@pytest.mark.parametrize("command", ["info", "verify", "restore", "migrate"])
def test_a_directory_without_a_log_is_said_in_one_sentence(command, tmp_path):
    result = run(command, tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.replace("\n", "") == f"weft: {tmp_path} has no log: there is no {DATABASE} in it"
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_running_broker_can_be_looked_at(data):
    log = open_log(data, LogOptions(schema=SCHEMA)).log
    assert answer("info", data)["incarnation"] == 2
    assert len(answer("show", data)["events"]) == sum(len(group.events or []) for group in GROUPS)
    assert not answer("verify", data)["problems"]
    result = run("restore", data)
    assert (result.exit_code, "in use by process" in result.stderr) == (1, True)
    assert log.trim(Offset(10)) == 3
    log.close()
