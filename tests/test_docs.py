"""The documentation keeps its promises: examples run, pictures are current, figures are the measured ones."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import offline
import pytest
from pictures import flows
from pictures.draw import PICTURES

import weft
import weft.errors

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
RUN_ELSEWHERE = {"docs/guides/pipeline.md", "docs/guides/streaming.md"}  # tests/spark/test_*_guide.py run the programs


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_python_on_a_page_is_run(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert shown(page) in RUN_ELSEWHERE or all(block.startswith(">>> ") for block in blocks)
    assert shown(page) in RUN_ELSEWHERE or all(
        block.endswith("\n\n") for block in blocks
    )  # else ``` is expected output


def test_a_broken_example_fails_the_tests(tmp_path):
    page = "# A page\n\n```python\n>>> from weft import matches\n>>> matches('x > 5', {'x': 7})\nTrue\n\n```\n"
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "guides" / "sound.md").write_text(page, encoding="utf-8")
    (tmp_path / "docs" / "guides" / "broken.md").write_text(page.replace("True", "False"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path / "docs"]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_says_first_what_it_is_for(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(("# ", "```{include}"))
    assert "This page is tested" not in text


@pytest.mark.parametrize("name", PICTURES)
def test_a_stored_picture_is_what_is_drawn(name):
    stored = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert stored == PICTURES[name]().svg(), "run `make pictures`"
    assert offline.loaded_from_elsewhere(stored) == []


def test_the_picture_of_the_home_page_tells_the_truth():
    assert sorted(weft.Index(flows.RULES).match(flows.EVENT)) == flows.MATCHED


def test_every_picture_is_on_a_page():
    used = {name for page in PAGES for name in re.findall(r"pictures/(\w+)\.svg", page.read_text(encoding="utf-8"))}
    assert used == set(PICTURES) == {path.stem for path in (DOCS / "pictures").glob("*.svg")}


def test_a_site_that_loads_something_from_elsewhere_is_refused(tmp_path, capsys):
    assert offline.main(tmp_path) == 1  # no pages at all
    (tmp_path / "index.html").write_text('<link href="_static/a.css"><a href="https://example.org">elsewhere</a>')
    (tmp_path / "a.css").write_text("b { background: url(data:image/png;base64,AA==) }")
    assert offline.main(tmp_path) == 0
    (tmp_path / "a.css").write_text("@import url('https://example.org/font.css');")
    assert offline.main(tmp_path) == 1
    assert "https://example.org/font.css" in capsys.readouterr().err


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    documented = {name.rpartition(".")[2] for name in re.findall(r"^\.\. auto\w+:: (\S+)", pages, re.MULTILINE)}
    public = {name for name in weft.__all__ if name != "__version__" and not hasattr(weft.errors, name)}
    assert public <= documented
    assert "automodule:: weft.errors" in pages


def test_every_command_and_option_on_a_page_is_one():
    from typer.main import get_command

    from weft.cli.app import app

    lines = [
        (shown(page), line.strip().removeprefix("$ "))
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"(?: {4})?(?:\$ )?weft [a-z]", line)
    ]
    assert len(lines) > 20
    root = get_command(app)
    for page, line in lines:
        command, words = root, shlex.split(line, comments=True)[1:]
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, (page, line)
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known, (page, line)


def test_every_command_is_on_the_page_of_commands():
    from typer.main import get_command

    from weft.cli.app import app

    def names(command, path):
        found = getattr(command, "commands", None)
        return [name for key, each in found.items() for name in names(each, f"{path} {key}")] if found else [path]

    page = (DOCS / "guides" / "command-line.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(weft [a-z ]+)` \|", page, re.MULTILINE)) == sorted(names(get_command(app), "weft"))


def test_measured_figures_of_the_comparison_are_those_of_the_benchmarks():
    text = (DOCS / "compared.md").read_text(encoding="utf-8")
    ours = text.partition("## RabbitMQ")[0]
    benchmarks = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    rows = [line for line in ours.splitlines() if re.match(r"\| (W\d|Weft|the best|a plain)", line)]
    figures = [cell for row in rows for cell in re.findall(r"(?<=\| )[\d.,]+(?= \|)", row)]
    assert len(figures) == 17
    assert [figure for figure in figures if f" {figure} " not in benchmarks] == []


def test_every_package_is_in_the_table_of_the_architecture():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = {
        name for row in re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    source = ROOT / "src" / "weft"
    there = {path.parent.name for path in source.glob("*/__init__.py")} | {
        path.stem for path in source.glob("[a-z]*.py")
    }
    assert there <= named
