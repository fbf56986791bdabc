"""`weft sim ... --record`: every simulator writes a recording that a player reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.recording import Recording

RUNS = {
    "overlay": ("overlay", "--brokers", "4", "--models", "covering", "--subscriptions", "12", "--events", "5"),
    "faults": ("faults", "--brokers", "3", "--steps", "5", "--seed", "2"),
    "moves": ("faults", "--moves", "--steps", "5", "--seed", "2"),
    "ring under faults": ("faults", "--ring", "--mode", "direct", "--steps", "2"),
    "ring": ("ring", "--designs", "topic groups", "--nodes", "16", "--subscriptions", "20", "--events", "5"),
}


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_is_recorded(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.weftrun"
    result = CliRunner().invoke(app, ["sim", *RUNS[name], "--record", str(path)])
    assert result.exit_code == 0, result.output
    assert "written: " in result.output
    recording = Recording(path)
    *_, last = recording.steps()
    assert all(last.body["assertions"].values())
    assert recording.state(recording.size) != recording.state(0)
    again = CliRunner().invoke(app, ["sim", *RUNS[name], "--record", str(path)])
    assert again.exit_code != 0, "a file is replaced only with --overwrite"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("overlay", "--models", "simple,covering"), "one model"),
        (("faults", "--seeds", "2"), "one seed"),
        (("ring",), "one design and one seed"),
    ],
)
def test_a_recording_is_of_one_run(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = CliRunner().invoke(app, ["sim", *arguments, "--record", str(tmp_path / "run.weftrun")])
    assert result.exit_code == 2
    assert sentence in result.output.replace("│", " ").replace("\n", " ").replace("  ", " ")
