"""`weft sim overlay`: tables for people, JSON for machines, a user's own files, failures as sentences."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from weft.cli.app import app
from weft.sim.overlay import MODELS, NEED_BOUNDS

SMALL = ("--brokers", "3", "--tree", "chain", "--subscriptions", "30", "--events", "20", "--models", "simple,covering")


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["sim", "overlay", *arguments], input=stdin)


def answer(*arguments: str, stdin: str | None = None):
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def files(tmp_path):
    filters, events = tmp_path / "mine.csv", tmp_path / "happened.jsonl"
    filters.write_text("filter,interface\nx > 0,west\nx > 5,west\nx => 1,west\nplace = 'here',b2\n", encoding="utf-8")
    events.write_text('{"x": 3}\n\n# a comment\n{"x": 9, "place": "here"}\n', encoding="utf-8")
    return "--filters", str(filters), "--events-file", str(events)


def test_models_side_by_side():
    result = run(*SMALL, "--churn", "0.2", "--check")
    assert result.exit_code == 0, result.output
    assert "3 brokers (chain), 30 subscriptions, 20 events" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("simple", "covering"))]
    assert [row[0] for row in rows] == ["simple", "covering"] * 2
    assert "6 of the subscriptions left" in result.stdout
    assert "…" not in result.stdout, "it fits a terminal"


def test_the_same_as_json():
    facts = answer(*SMALL, "--tree", "star", "--hierarchy")
    assert facts["brokers"] == ["b1", "b2", "b3"]
    assert facts["links"] == [["b1", "b2"], ["b1", "b3"]]
    simple, covering = facts["models"]
    assert (simple["model"], covering["model"]) == ("simple", "covering")
    assert simple["deliveries"] == covering["deliveries"] == facts["deliveries"]
    assert simple["missed"] == covering["missed"] == 0
    assert simple["heard"] >= covering["heard"]
    assert simple["subscribing"]["told"] >= covering["subscribing"]["told"]


def test_all_models_unless_told():
    facts = answer("--brokers", "2", "--subscriptions", "5", "--events", "3", "--workload", "W3")
    assert [each["model"] for each in facts["models"]] == [name for name in MODELS if name not in NEED_BOUNDS]


def test_own_files(files):
    facts = answer("--brokers", "3", "--tree", "chain", "--models", "simple,covering", *files)
    assert (facts["subscriptions"], facts["events"], facts["deliveries"]) == (3, 2, 4)
    assert facts["scanned"] == 2
    assert len(facts["notes"]) == 1
    assert "line 4 is left out" in facts["notes"][0]
    simple, covering = facts["models"]
    assert simple["subscribing"]["told"] == 6  # three filters, each over two links
    assert covering["subscribing"]["told"] == 4  # x > 5 is covered at the same broker


def test_filters_from_a_pipe_and_events_of_a_workload():
    facts = answer(*SMALL, "--filters", "-", "--publishers", "1", "--advertised", stdin="x > 3\ny < 9\nTRUE\n")
    assert facts["subscriptions"] == 3
    assert facts["notes"] == ["only one of filters and events is your own: the other is of the workload zipf"]


def test_a_chart(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "bars.png"
    result = run(*SMALL, "--plot", str(path))
    assert result.exit_code == 0, result.output
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "chart:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--models", "covring"), "mics-exact"),
        (("--tree", "ring"), "chain, star"),
        (("--workload", "W9"), "zipf"),
        (("--publishers", "4"), "fewer --publishers"),
        (("--churn", "2"), "churn"),
    ],
)
def test_wrong_usage(arguments, said):
    result = run(*SMALL, *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_files_that_cannot_be_used(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"x": 1}\n[1]\n', encoding="utf-8")
    result = run(*SMALL, "--events-file", str(bad))
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    bad.write_text("\n", encoding="utf-8")
    assert "has no event" in run(*SMALL, "--events-file", str(bad)).stderr
    bad.write_bytes(b"\xff\xfe\x00")
    assert "no UTF-8" in run(*SMALL, "--events-file", str(bad)).stderr
    result = run(*SMALL, "--filters", "-", stdin="x => 1\n" * 7)
    assert result.exit_code == 1
    assert "no filter that can be used" in result.stderr
    result = run(*SMALL, "--plot", str(tmp_path / "bars.txt"), "--json")
    assert result.exit_code == 1
    assert "not a chart file" in json.loads(result.stdout)["error"]["message"]
