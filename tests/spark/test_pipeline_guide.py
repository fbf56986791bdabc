"""The guide's program prints what the guide says, with the files that it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.app import app
from weft.pipeline.match_job import MOST_BYTES, MOST_SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "pipeline.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_program_prints_what_the_guide_says(spark: SparkSession, tmp_path, capsys):
    (program,), (shown, printed) = blocks("python"), blocks("text")
    head, *rows = shown.splitlines()
    second = head.index("subscriptions.csv")
    for name, lines in (
        ("events.jsonl", [row[:second].rstrip() for row in rows]),
        ("subscriptions.csv", [row[second:] for row in rows]),
    ):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines if line))
    for name in ("events.jsonl", "subscriptions.csv", "matched.parquet"):  # names are of the folder where Java started
        program = program.replace(f'"{name}"', repr(str(tmp_path / name)))
    exec(compile(program, "docs/guides/pipeline.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_every_command_of_the_guide_is_one():
    named = set(re.findall(r"^ {4}\$ weft (\w+)", GUIDE, re.MULTILINE))
    known = {info.name or info.callback.__name__ for info in app.registered_commands if info.callback is not None}
    assert named == {"match", "aggregate", "tune", "demand", "serve"} <= known


def test_the_sizes_of_local_jobs_are_those_of_the_code():
    assert f"have at most {MOST_BYTES >> 30} GiB, the subscriptions at most {MOST_SUBSCRIPTIONS >> 20} MiB" in GUIDE


def test_every_option_of_the_guide_is_one():
    from typer.main import get_command

    commands = get_command(app).commands
    options = {
        name
        for each in ("match", "aggregate", "tune", "demand", "serve")
        for p in commands[each].params
        for name in p.opts
    }
    sparks = {"--master", "--deploy-mode", "--archives", "--conf"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE)) - sparks <= options
