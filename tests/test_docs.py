"""The documentation keeps its promises: examples run, pictures are current, figures are the measured ones."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

import offline
import pytest
from pictures import flows
from pictures.draw import PICTURES

import weft
import weft.errors
from weft.broker import broker
from weft.broker.after_commit import AfterCommit
from weft.broker.links.neighbour import NEXT_STATE, LinkInput, LinkState
from weft.client.session import TRANSITIONS, SessionState

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


# -- the architecture ---------------------------------------------------------------------------------

ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
MESSAGING = ["protocol", "broker", "log", "client", "server", "ring", "network"]


def layers() -> list[str]:
    """The packages of weft as import-linter has them, the lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return [name.strip("()") for name in reversed(contract["layers"])]


def test_the_table_of_packages_is_in_the_order_of_the_layers():
    table = ARCHITECTURE.partition("| package |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == layers()


def test_the_layers_in_the_package_are_those_that_are_checked():
    comment = Path(weft.__file__).read_text(encoding="utf-8").partition("# The layers")[2].partition("\n\n")[0]
    assert re.findall(r"^#   (\w+) ", comment, re.MULTILINE) == layers()


def steps(text: str) -> list[str]:
    """The numbered steps of a turn, with their lines as they are."""
    (found,) = re.findall(r"^1\. Match.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    return re.split(r"\n(?=\d\. )", found)


def test_the_steps_of_a_turn_are_those_of_the_code():
    stated = steps(broker.__doc__ or "")
    assert steps(ARCHITECTURE) == stated
    numbers = [step.partition(".")[0] for step in stated]
    assert numbers == ["1", "2", "3", "4", "5", "6", "7"]
    assert re.findall(r"# (\d)$", inspect.getsource(broker.Core._finish), re.MULTILINE) == numbers


def test_everything_that_waits_for_a_commit_is_in_the_architecture():
    table = ARCHITECTURE.partition("| value |")[2].partition("\n\n")[0]
    first = "".join(row.split("|")[1] for row in table.splitlines()[2:])
    assert set(re.findall(r"`(\w+)`", first)) == {value.__name__ for value in get_args(AfterCommit)}


def test_the_states_of_a_link_are_those_of_the_code():
    table = ARCHITECTURE.partition("| state of a link |")[2].partition("\n\n")[0]
    header, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    columns = [LinkInput(title) for title in header]
    stated = {
        (LinkState(row[0].strip("`")), column): LinkState(cell.strip("`"))
        for row in rows
        for column, cell in zip(columns, row[1:], strict=True)
        if cell
    }
    assert stated == NEXT_STATE


def test_the_states_of_a_client_are_those_of_the_code():
    table = ARCHITECTURE.partition("| state of a session |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    stated = {
        SessionState(state.strip("`")): {SessionState(name) for name in re.findall(r"`(\w+)`", following)}
        for state, _, following in rows
    }
    assert stated == TRANSITIONS


@pytest.mark.parametrize("package", MESSAGING)
def test_every_module_of_messaging_is_in_the_architecture(package):
    source = ROOT / "src" / "weft"
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE))
    modules = {path.relative_to(source).as_posix() for path in (source / package).rglob("[a-z]*.py")}
    assert modules <= named


SOURCES = [f"/{path.relative_to(ROOT / 'src').as_posix()}" for path in (ROOT / "src").rglob("*.py")]


def is_module(path: str) -> bool:
    """Whether a path is one of a file in the project, whole or from some package on."""
    return (ROOT / path).exists() or any(source.endswith(f"/{path}") for source in SOURCES)


def is_name(name: str) -> bool:
    """Whether a dotted name can be imported: a module, or what is in one."""
    module, rest = name, []
    while True:
        try:
            found: object = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"], ids=shown)
def test_every_module_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    assert [path for path in re.findall(r"`([\w/.-]+\.py)`", text) if not is_module(path)] == []
    assert [name for name in re.findall(r"`(weft(?:lab)?(?:\.\w+)+)", text) if not is_name(name)] == []


def test_a_module_that_does_not_exist_is_noticed():
    assert is_module("broker/links/links.py")
    assert is_module("docs/pictures/draw.py")
    assert not is_module("broker/nothing.py")
    assert not is_module("roker/broker.py")
    assert is_name("weft.broker.broker.Core.receive")
    assert not is_name("weft.broker.nothing")
    assert not is_name("weft.nothing.broker")
