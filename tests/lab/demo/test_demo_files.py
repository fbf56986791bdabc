"""`weft demo --files`: what the README's commands are tried on."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import weft
from weft.cli.app import app
from weftlab.demo.live import WATCHERS, _watchers

README = Path(__file__).parent.parent.parent.parent / "README.md"
QUICK = ("match", "filter", "order")  # the others take longer, or start Spark


def test_the_commands_of_the_readme_run_on_the_files(tmp_path, monkeypatch):
    runner = CliRunner()
    assert runner.invoke(app, ["demo", "--files", str(tmp_path / "quakes")]).exit_code == 0
    monkeypatch.chdir(tmp_path / "quakes")
    text = README.read_text(encoding="utf-8")
    lines = re.findall(r"^    (weft .*?)(?: {2,}#.*)?$", text[text.index("**On the command line.**") :], re.MULTILINE)
    run = [line for line in lines if line.split()[1] in QUICK]
    assert len(run) > 4
    for line in run:
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)][1:]
        done = runner.invoke(app, words)
        assert done.exit_code in (0, 1 if "lint" in words else 0), (line, done.output)
    index = weft.Index("rules.parquet")
    found = index.match_batch("events.parquet")
    pairs = pq.read_table("matches.parquet")
    assert len(pairs) == found.counts().sum() > 1_000
    assert [sorted(ids) for ids in index.match_batch("events.jsonl").lists()] == [sorted(ids) for ids in found.lists()]


def test_files_are_not_overwritten_unless_asked(tmp_path):
    runner = CliRunner()
    assert runner.invoke(app, ["demo", "--files", str(tmp_path), "--json"]).exit_code == 0
    again = runner.invoke(app, ["demo", "--files", str(tmp_path)])
    assert again.exit_code == 1
    assert "already exists; pass --overwrite" in again.stderr
    done = runner.invoke(app, ["demo", "--files", str(tmp_path), "--overwrite", "--json"])
    assert len(json.loads(done.stdout)["files"]) == 6


@pytest.mark.parametrize(("events", "number"), [([{"source": "usgs"}], 3), ([{"source": "nycflights"}], len(WATCHERS))])
def test_nobody_waits_for_flights_that_are_not_installed(events, number):
    assert len(_watchers(events)) == number
