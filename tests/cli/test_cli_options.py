"""The options of all commands: one name has one meaning; former names and orders of arguments still work."""

import json
import logging
import re
from collections import defaultdict
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from weft.cli.app import app
from weft.cli.connection import BrokerOptions, connected
from weft.cli.former_options import FORMER_OPTIONS, current_options
from weft.cli.table_order import in_order

# What has a second meaning, and why. A simulator counts things with their plural names: `--events 200`.
SIMULATED = {"--away", "--claims", "--events", "--interval", "--moves", "--ring"}
TWO_MEANINGS = {
    "--id": "the id of a profile or key; for tables, the column with the ids",
    "--gateway": "where a broker runs one; for `weft console`, the URL of one",
    "--listen": "a broker listens at addresses of its protocol, a gateway at one of HTTP",
}


def commands():
    """Each command with its path; what is hidden is a former name."""

    def walk(command, path):
        for name, each in getattr(command, "commands", {}).items():
            if not each.hidden:
                yield from walk(each, [*path, name])
        if not getattr(command, "commands", {}):
            yield " ".join(path), command

    return list(walk(typer.main.get_command(app), []))


def options():
    """For each name of an option, the commands that have it, by what it takes and, where it is a flag, no value."""
    found = defaultdict(lambda: defaultdict(list))
    for path, command in commands():
        for each in command.params:
            if each.param_type_name == "option" and not each.hidden:
                takes = "flag" if each.is_flag else f"{each.metavar}{'...' if each.multiple else ''}"
                for name in each.opts:
                    found[name][takes].append(path)
    return found


def test_an_option_takes_the_same_in_every_command():
    two = {}
    for name, kinds in options().items():
        simulated = {kind for kind, paths in kinds.items() if all(each.startswith("sim ") for each in paths)}
        if len({*kinds} - (simulated if name in SIMULATED else set())) > 1 and name not in TWO_MEANINGS:
            two[name] = dict(kinds)
    assert two == {}


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "--json": "Print JSON.",
        "--taxonomy": "A taxonomy,",
        "--overwrite": "Replace output files",
        "--limit": "Show at most N",
        "--since": "Begin at an offset, a time",
        "--first": "For a log: begin at this offset.",
        "--memory": "Store nothing on disk",
        "--seed": "The",
        "--quiet": "Print only the answer",
    }.items(),
)
def test_a_shared_option_is_described_in_the_same_words(name, words):
    for path, command in commands():
        for each in command.params:
            if name in each.opts and not each.hidden:
                assert each.help.startswith(words), path


def test_what_is_excepted_is_needed():
    found = options()
    assert {name for name in {*TWO_MEANINGS, *SIMULATED} if len(found[name]) < 2} == set()


def test_what_a_command_writes_is_named_by_out_or_o():
    for path, command in commands():
        for each in command.params:
            assert ("-o" in each.opts) == ("--out" in each.opts), path


def test_events_come_before_rules_in_every_command():
    for path, command in commands():
        names = " ".join(each.metavar or "" for each in command.params if each.param_type_name == "argument")
        assert "SUBSCRIPTIONS" not in names, path
        if "EVENTS" in names and "RULES" in names:
            assert names.index("EVENTS") < names.index("RULES"), path


@pytest.mark.parametrize(("command", "former"), FORMER_OPTIONS)
def test_a_former_option_is_another_one_now(command, former):
    now = FORMER_OPTIONS[command, former]
    params = dict(commands())[command].params
    assert any(now in each.opts for each in params)
    assert not any(former in each.opts for each in params)
    given, (note,) = current_options([*command.split(), former, "1"])
    assert given == [*command.split(), now, "1"]
    assert now in note


def test_values_and_what_follows_two_dashes_are_left_alone():
    assert current_options(["filter", "check", "--memory"]) == (["filter", "check", "--memory"], [])
    assert current_options(["tune", "--", "--memory"]) == (["tune", "--", "--memory"], [])
    assert current_options([]) == ([], [])


def test_a_file_of_figures_was_named_with_json():
    assert current_options(["bench", "match", "--json", "match.json"])[0] == ["bench", "match", "--out", "match.json"]
    assert current_options(["bench", "--json", "match"]) == (["bench", "--json", "match"], [])


def test_a_former_option_works_and_says_what_to_write(tmp_path):
    rules = tmp_path / "rules.txt"
    rules.write_text("x > 1\nx > 2\nx > 3\n")
    found = CliRunner().invoke(app, ["order", "show", str(rules), "--first", "1"])
    assert found.exit_code == 0, found.output
    assert "1 of 3 shown" in found.stdout
    assert "is now --limit" in found.stderr
    quiet = CliRunner().invoke(app, ["order", "show", str(rules), "--first", "1", "-q"])
    assert quiet.stdout == found.stdout
    assert "--limit" not in quiet.stderr


RULES = {
    "rules.csv": "id,filter\n1,x > 1\n",
    "bounds.csv": "id,x_low,x_high\n1,2,3\n",
    "rules.jsonl": '{"id": 1, "filter": "x > 1"}\n',
    "rules.txt": "# of users\nx > 1\n",
}
EVENTS = {"events.csv": "x,filtered\n1,2\n", "events.jsonl": '{"x": 2}\n', "events.json": '[{"x": 2}]', "empty.csv": ""}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("events", EVENTS)
def test_files_in_the_other_order_are_told_apart(tmp_path, rules, events):
    for name, text in (RULES | EVENTS).items():
        (tmp_path / name).write_text(text)
    right = str(tmp_path / events), str(tmp_path / rules)
    assert in_order(*right) == right
    assert in_order(*reversed(right)) == right


def test_what_cannot_be_told_apart_stays_in_its_order(tmp_path):
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    for path in ("-", "s3://bucket/rules.csv", str(tmp_path / "none.csv"), str(tmp_path / "damaged.parquet")):
        assert in_order(path, "events.csv") == (path, "events.csv")


def test_match_takes_the_other_order_with_a_note(tmp_path):
    events, rules = tmp_path / "events.jsonl", tmp_path / "rules.csv"
    events.write_text('{"x": 2}\n')
    rules.write_text("id,filter\n1,x > 1\n")
    found = CliRunner().invoke(app, ["match", str(rules), str(events), "--json"])
    assert json.loads(found.stdout)["matches"] == 1, found.output
    assert "the order of arguments is EVENTS RULES" in found.stderr


@pytest.fixture
def _logging_as_before():
    logger, level, disabled = logging.getLogger("weft"), logging.getLogger("weft").level, logging.root.manager.disable
    yield
    logger.setLevel(level)
    logging.disable(disabled)


@pytest.mark.usefixtures("_logging_as_before")
def test_verbose_shows_where_a_failure_comes_from(tmp_path):
    missing = str(tmp_path / "none.csv")
    found = CliRunner().invoke(app, ["filter", "lint", missing, "-v"])
    assert found.exit_code == 1
    assert "Traceback" in found.stderr
    assert "Traceback" not in CliRunner().invoke(app, ["filter", "lint", missing]).output


def test_the_options_of_a_connection_reach_the_command():
    page, seen = typer.Typer(), []

    @page.command()
    @connected
    def ask(name: str, connection: BrokerOptions) -> None:
        """Ask."""
        seen.append((name, connection))

    found = CliRunner().invoke(page, ["x", "--broker", "weft://one", "--broker", "weft://two", "--ca", "ca.pem"])
    assert found.exit_code == 0, found.output
    ((name, connection),) = seen
    assert (name, connection.brokers, str(connection.authority)) == ("x", ["weft://one", "weft://two"], "ca.pem")
    assert connection.token_file is connection.certificate is None


@pytest.mark.parametrize(
    ("command", "usage"),
    {
        "match": "weft match [OPTIONS] EVENTS RULES",
        "demand": "weft demand [OPTIONS] [EVENTS] RULES",
        "sessions move": "weft sessions move [OPTIONS] [NAME]... ADDRESS",
        "pub": "weft pub [OPTIONS] [FILE...]",
        "filter check": "weft filter check [OPTIONS] TEXT...",
    }.items(),
)
def test_a_line_of_usage_names_arguments_as_manuals_do(command, usage):
    shown = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="weft").stdout
    assert usage in " ".join(shown.split())


ROOT = Path(__file__).parent.parent.parent
TEXTS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "Makefile", *(ROOT / "src").rglob("*.py")]


def test_texts_name_only_options_that_commands_have():
    """Former names are for those who know them; no page or message teaches them."""
    known = {
        path: {name for each in command.params for name in (*each.opts, *each.secondary_opts) if not each.hidden}
        for path, command in commands()
    }
    known["sessions"] = known["sessions list"]
    every = {"--help", "--version", "-q", "-v", "--install-completion"}
    unknown = []
    for text in TEXTS:
        for line in re.findall(r"(?:^|[\s$`(])weft ([a-z][^`\n]*)", text.read_text(encoding="utf-8"), re.MULTILINE):
            words = re.split(r"\s#\s|\s\|", line)[0].split()
            path = next((each for each in (" ".join(words[:2]), " ".join(words[:1])) if each in known), None)
            named = {each.partition("=")[0].rstrip(".,;:)'\"") for each in words if re.match(r"--[a-z]", each)}
            if path and (odd := named - known[path] - every):
                unknown.append((text.name, path, odd))
    assert unknown == []
