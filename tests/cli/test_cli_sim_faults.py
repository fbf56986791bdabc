"""`weft sim faults`: one broker or a network, a trace and a picture for people, JSON for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from weft.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", "faults", *arguments])


def test_a_network_is_traced_and_drawn(tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.txt", tmp_path / "told.svg"
    result = run(
        "--brokers", "3", "--model", "simple", "--no-adverts", "--seed", "4", "--steps", "20",
        "--trace", str(trace), "--plot", str(picture),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "3 brokers, simple" in result.output
    assert "every promise was kept" in result.output
    assert "hello from b2" in trace.read_text(encoding="utf-8")
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    for option, file in (("--trace", trace), ("--plot", picture)):
        again = run("--steps", "5", option, str(file))
        assert again.exit_code == 1
        assert "already exists" in again.stderr
    assert run("--steps", "5", "--trace", str(trace), "--overwrite").exit_code == 0


def test_a_network_answers_in_json() -> None:
    result = run("--model", "identity", "--adverts", "--brokers", "3", "--steps", "5", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["brokers"], answer["model"], answer["advertisements"], answer["failure"]) == (
        3,
        "identity",
        True,
        None,
    )


def test_one_broker_is_the_default() -> None:
    answer = json.loads(run("--steps", "5", "--json").stdout)
    assert (answer["brokers"], answer["failure"]) == (1, None)


def test_several_seeds_are_counted() -> None:
    answer = json.loads(run("--network", "--steps", "5", "--seeds", "2", "--json").stdout)
    assert (answer["seeds"], answer["failures"]) == (2, {})


def test_a_ring_is_run_in_one_mode() -> None:
    result = run("--ring", "--mode", "direct", "--seed", "4", "--steps", "3")
    assert result.exit_code == 0, result.output
    assert "(direct)" in result.output
    assert "every promise was kept" in result.output
    answer = json.loads(run("--ring", "--mode", "topics", "--steps", "3", "--seeds", "2", "--json").stdout)
    assert (answer["seeds"], answer["failures"]) == (2, {})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ring", "--mode", "round"], "no mode 'round'"),
        (["--ring", "--brokers", "3"], "no tree of brokers"),
        (("--model", "coverin"), "covering"),
        (("--brokers", "1", "--model", "simple"), "at least 2 brokers"),
        (("--seeds", "2", "--plot", "x.svg"), "leave out"),
    ],
)
def test_wrong_usage_is_said(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output
