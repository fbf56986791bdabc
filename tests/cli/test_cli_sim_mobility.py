"""`weft sim mobility`: tables for people, JSON for machines, scripts, recordings, charts, failures as sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from weft.cli.app import app
from weft.recording import Recording

SMALL = ("--busy", "--areas", "2", "--routers", "5", "--moves", "8")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", "mobility", *arguments], env={"COLUMNS": "100"})


def test_protocols_side_by_side(tmp_path: Path) -> None:
    result = run(*SMALL, "--plot", str(tmp_path), "--details")
    assert "synchronise: ping" in result.stdout
    assert result.exit_code == 0, result.output
    for word in ("ping-pong-rp", "home-broker", "weft-make", "safe", "loses", "latency"):
        assert word in result.stdout
    assert "tear-down" not in result.stdout, "it moves no subscribers"
    assert (tmp_path / "protocols.svg").is_file()


def test_the_same_seed_gives_the_same_json(tmp_path: Path) -> None:
    arguments = (*SMALL, "--protocols", "acyclic,weft", "--movers", "both", "--seeds", "2", "--json")
    one, other = run(*arguments), run(*arguments)
    assert one.exit_code == 0, one.output
    assert one.stdout == other.stdout
    facts = json.loads(one.stdout)
    assert [each["protocol"] for each in facts["protocols"]] == ["acyclic", "weft"]
    assert all(each["total"]["property_5_1"] and each["total"]["property_5_2"] for each in facts["protocols"])
    assert facts["failures"] == []
    assert facts["protocols"][0]["total"]["due"] == facts["protocols"][1]["total"]["due"] > 0


def test_a_script_is_saved_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "moves.jsonl"
    saved = run(*SMALL, "--protocols", "weft", "--movers", "publishers", "--save-script", str(path), "--json")
    replayed = run(*SMALL, "--protocols", "weft", "--script", str(path), "--json")
    assert json.loads(saved.stdout)["protocols"] == json.loads(replayed.stdout)["protocols"]
    everything = run(*SMALL, "--script", str(path))
    assert everything.exit_code == 0, everything.output
    assert "tear-down" in everything.stdout
    assert "device" not in everything.stdout


def test_a_run_is_recorded_and_a_topology_read(tmp_path: Path) -> None:
    path = tmp_path / "run.weftrun"
    arguments = ("--topology", "campus", "--busy", "--moves", "3", "--protocols", "acyclic", "--record", str(path))
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert Recording(path).meta["topology"] == "campus.brite"
    assert "already exists" in run(*arguments).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--protocols", "teleport"), 2, "there is no protocol 'teleport'"),
        (("--movers", "nobody"), 2, "--movers cannot be 'nobody'"),
        (("--where", "sea"), 2, "--where cannot be 'sea'"),
        (("--topology", "nowhere"), 1, "name a BRITE file, or one of campus, regions"),
        (("--protocols", "proxy"), 1, "proxy does not move subscribers"),
        (("--claims", "5.99"), 1, "no claims of '5.99'"),
        (("--record", "x.weftrun"), 2, "one protocol and one seed"),
        (("--plot", "no/such/folder"), 2, "there is no directory"),
        (("--root", "99"), 1, "there is no router 99"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_sentence(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = run(*SMALL, *arguments)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.stderr.replace("│", " ").split())
