"""`weft sim ring`: a table for people, JSON for machines, a chart, failures as sentences."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from weft.cli.app import app

SMALL = ("--nodes", "30", "--ring", "512", "--rotation", "30", "--subscriptions", "80", "--events", "30")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", "ring", *arguments], env={"COLUMNS": "100"})


def test_designs_side_by_side(tmp_path: Path) -> None:
    chart = tmp_path / "designs.svg"
    result = run(*SMALL, "--peers", "--plot", str(chart))
    assert result.exit_code == 0, result.output
    for word in ("one cluster", "topic groups", "with partition", "none was missed", "Meghdoot", "written:"):
        assert word in result.stdout
    assert "one cluster" in "".join(ElementTree.fromstring(chart.read_text()).itertext())
    assert "<path" not in chart.read_text(), "one seed has no spread"
    assert "already exists" in run(*SMALL, "--plot", str(chart)).stderr


def test_the_same_as_json_and_a_chart_with_the_spread_of_seeds(tmp_path: Path) -> None:
    chart = tmp_path / "designs.svg"
    result = run(*SMALL, "--seeds", "2", "--plot", str(chart), "--json")
    assert chart.read_text().count("<path") > 6
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert [len(each["runs"]) for each in facts["designs"]] == [2] * 6
    assert all(each["mean"]["missed"] == 0 for each in facts["designs"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--claims", "3"), "4 to 9"),
        (("--ring", "1000"), "power of two"),
        (("--rotation", "200"), "rotation distance"),
        (("--nodes", "600"), "do not fit"),
        (("--environment", "lazy"), "busy or free"),
        (("--plot", "x.txt"), "name it .svg"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    result = run(*SMALL, *arguments)
    assert result.exit_code == 1, result.output
    assert said in " ".join(result.stderr.split())
