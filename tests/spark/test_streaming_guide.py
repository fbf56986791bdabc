"""The guide's program prints what the guide says, with the files that it shows."""

from __future__ import annotations

import re
from pathlib import Path

from weft.spark.subscription_versions import LEAST_CHANGES, MOST_VERSIONS

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "streaming.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_guide_says(spark, tmp_path, capsys):
    (program,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    shown, printed = re.findall(r"^```text\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[1:3]
    head, *rows = shown.splitlines()
    second = head.index("changes/")
    for name, lines in (
        ("incoming/a.json", [row[:second].rstrip() for row in rows]),
        ("changes/a.json", [row[second:] for row in rows]),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines if line))
    for name in ("incoming", "changes", "state", "matches"):
        program = program.replace(f'"{name}"', repr(str(tmp_path / name)))
    exec(compile(program, "docs/guides/streaming.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_figures_of_the_guide_are_those_of_the_code():
    assert f"at least {LEAST_CHANGES:,}, or {MOST_VERSIONS} versions" in GUIDE
