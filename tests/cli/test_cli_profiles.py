"""`weft pub --region` and `weft profiles`, with a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.testing import broker


@pytest.fixture(scope="module")
def address():
    with broker() as local:
        yield local.address


def weft(address: str, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "160", "WEFT_BROKER": address})
    assert done.exit_code == code, done.output
    return done.output


def test_a_profile_from_its_publication_to_its_end(address: str, tmp_path: Path) -> None:
    place = "lat BETWEEN 40 AND 45"
    weft(
        address,
        "pub",
        "--region",
        place,
        "--expires",
        "2h",
        "--name",
        "station",
        "--id",
        "storm",
        "--payload",
        "inside",
    )
    weft(address, "pub", "--region", "lat BETWEEN 41 AND 42", "--expires", "30m", "--name", "station", "--id", "eye")
    assert "storm" in weft(address, "profiles", "list")
    found = json.loads(weft(address, "profiles", "list", "station", "--json"))["profiles"]
    assert [(each["id"], each["region"]) for each in found][1] == ("storm", place)
    assert weft(address, "profiles", "tree").splitlines()[1].startswith("  lat BETWEEN 41 AND 42")
    saved, other, both = (str(tmp_path / name) for name in ("one.jsonl", "other.jsonl", "both.jsonl"))
    weft(address, "profiles", "list", "--save", saved)
    weft(address, "profiles", "list", "station", "--limit", "1", "--save", other)
    assert "2 profiles" in weft(address, "profiles", "merge", saved, other, "--out", both)
    assert "lat BETWEEN 41" in weft(address, "profiles", "tree", both)
    (tmp_path / "routes.txt").write_text("lat > 44\nlat > 45\n")
    assert "2 filters" in weft(address, "profiles", "preload", str(tmp_path / "routes.txt"))
    watched = weft(address, "profiles", "watch", "lat > 44", "--count", "1", "--json")
    assert json.loads(watched)["payload"] == "inside"
    weft(address, "profiles", "withdraw", "storm", "--name", "station")
    assert "has no profile storm" in weft(address, "profiles", "withdraw", "storm", "--name", "station", code=1)
    weft(address, "profiles", "withdraw", "eye", "--name", "station")
    assert "there are no profiles" in weft(address, "profiles", "list")


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "--region", "lat > 1"),
        ("pub", "--region", "lat > 1", "--expires", "soon"),
        ("profiles", "watch", "lat > 1", "--meeting", "near"),
    ],
)
def test_wrong_usage_is_said(address: str, arguments: tuple[str, ...]) -> None:
    weft(address, *arguments, code=2)
