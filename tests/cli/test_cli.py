"""The command line: answers for people and machines, errors as sentences, exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner, Result

import weft
from interruptible import INTERRUPTIBLE
from weft.cli.app import app, filters
from weft.cli.filter_files import read_filter_file
from weft.errors import FilterSyntaxError
from weft.language.predicate import Predicates
from weftlab.demo import tour

COMMANDS = ["check", "format", "explain", "covers", "equivalent", "overlaps", "merge"]
PAIRS = {"covers", "equivalent", "overlaps", "merge"}

SCHEMA = """
[attributes]
x = { type = "float", bounds = [0, 100] }
y = { type = "float", bounds = [0, 10] }
n = { type = "int", bounds = [0, 9] }
seen = { type = "timestamp" }
place = "string"
"""
TAXONOMY = 'car = ["vehicle"]\ntruck = ["vehicle"]\n'


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def _demo_without_spark(monkeypatch):
    without = [chapter for chapter in tour.CHAPTERS if chapter.name != "pipeline"]  # it has its own tests
    monkeypatch.setattr(tour, "CHAPTERS", without)


@pytest.fixture
def _demo_of_titles(monkeypatch):
    """Chapters with tests of their own that start processes are shown by their titles alone."""
    shown = [
        replace(chapter, play=lambda *_: {}) if chapter.name in ("live", "pipeline") else chapter
        for chapter in tour.CHAPTERS
    ]
    monkeypatch.setattr(tour, "CHAPTERS", shown)


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA, encoding="utf-8")
    return str(path)


@pytest.fixture
def taxonomy(tmp_path):
    path = tmp_path / "kinds.toml"
    path.write_text(TAXONOMY, encoding="utf-8")
    return str(path)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def answer(*arguments: str, stdin: str | None = None):
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def syntax_error(text: str) -> str:
    with pytest.raises(FilterSyntaxError) as caught:
        weft.parse(text)
    return str(caught.value)


# -- the program -------------------------------------------------------------------------------------


def test_version_is_that_of_the_package():
    assert run("--version").stdout == f"weft {weft.__version__}\n"


@pytest.mark.parametrize("module", ["weft.cli.app", "weftlab.commands", "weftlab.commands.sim"])
def test_commands_of_other_packages_can_be_imported_in_any_order(module: str) -> None:
    code = f"import {module}; from weft.cli.app import app; print(*(each.name for each in app.registered_groups))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sim" in done.stdout.split()


def test_python_m_weft_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "weft", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"weft {weft.__version__}\n"


def test_the_program_starts_without_anything_heavy():
    heavy = ["pyarrow", "numpy", "weft.algebra", "weft.language", "weftlab.demo.tour"]
    code = f"import sys, weft.cli.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("arguments", [[], ["filter"], ["demo"], *(["filter", command] for command in COMMANDS)])
def test_every_command_has_help(arguments):
    result = run(*arguments, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_the_help_of_every_command_is_free_of_marks_and_fills_its_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    root = typer.main.get_command(app)

    def leaves(command, path):
        for name, child in getattr(command, "commands", {}).items():
            yield from leaves(child, [*path, name]) if hasattr(child, "commands") else [[*path, name]]

    found = list(leaves(root, []))
    assert {("serve",), ("token", "new")} <= set(map(tuple, found))
    for path in found:
        shown = run(*path, "--help").stdout
        assert "\\b" not in shown, path
        assert "<bool>" not in shown, path  # a flag takes no value
    serve = " ".join(run("serve", "--help").stdout.split())
    assert "$ weft serve $ weft serve --config weft.toml --check" in serve
    (second,) = [line for line in run("match", "--help").stdout.splitlines() if "first are shown" in line]
    assert len(second.rstrip()) > 60  # a line break of the docstring would end it in the middle


def test_shell_completion_is_on():
    assert "--install-completion" in run("--help").stdout


def test_every_command_of_filter_is_tested_here():
    names = [info.name or info.callback.__name__ for info in filters.registered_commands]
    assert sorted(names) == sorted([*COMMANDS, "lint"])  # which takes a file, and has its own tests below


@pytest.mark.usefixtures("_demo_without_spark")
@pytest.mark.parametrize(
    "command", [*(f"filter {command}" for command in COMMANDS), pytest.param("demo", marks=pytest.mark.slow)]
)
def test_the_example_in_the_help_runs(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (example,) = re.findall(r"\$ weft (.+)", run(*command.split(), "--help").stdout)
    assert example.startswith(command)
    result = run(*shlex.split(example))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_in_the_help_fits_in_80_columns(command):
    (example,) = re.findall(r"\$ (weft .+)", run("filter", command, "--help").stdout)
    assert shlex.split(example)  # a wrapped one would lack its closing quote


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["filter", "check"],
        ["filter", "check", "x", "--no-such"],
        ["filter", "covers", "x"],
        ["filter", "merge", "x"],
    ],
)
def test_wrong_usage_ends_with_2(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_an_interrupt_is_a_sentence(monkeypatch):
    def interrupted(_console):
        raise KeyboardInterrupt

    monkeypatch.setattr("weftlab.demo.tour.tour", interrupted)
    result = run("demo")
    assert (result.exit_code, result.stderr) == (130, "weft: interrupted\n")


def test_a_reader_that_leaves_is_no_error():
    program = subprocess.Popen(
        [sys.executable, "-m", "weft", "filter", "format", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with program:
        program.stdout.close()
        program.stdin.write(b"x = 1\n" * 20_000)
        program.stdin.close()
        assert program.stderr.read() == b""


def test_an_output_that_is_no_utf8_is_no_error():
    done = subprocess.run(
        [sys.executable, "-m", "weft", "filter", "explain", "x = 'é' AND y", "--event", '{"x": "é"}'],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert rb"x = '\xe9' AND y" in done.stdout


# -- check and format --------------------------------------------------------------------------------


def test_check_says_ok_with_the_canonical_text():
    result = run("filter", "check", "5<x", "a AND b")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ok: x > 5\nok: a AND b\n", "")


def test_check_recognises_the_form_of_a_filter(tmp_path):
    forms = ["x = 'a' -- text", '{"exact": {"x": "a"}}', '{"x": ["a"]}']
    assert run("filter", "check", *forms).stdout == "ok: x = 'a'\n" * 2 + "ok: x HAS 'a'\n"
    result = run("filter", "check", '{"x": [{"prefx": "a"}]}')
    assert result.exit_code == 1
    assert "unknown test 'prefx' at column 9" in result.stdout
    result = run("filter", "check", '{"exat": {"x": "a"}}')
    assert "did you mean 'exact'?" in result.stdout
    file = tmp_path / "filters.jsonl"
    file.write_text('{"filter": {"x": ["a"]}, "id": "one"}\n{"x": [{"cidr": "10.0.0.0/8"}]}\n', encoding="utf-8")
    read = read_filter_file(str(file), bytes, Predicates())
    assert [str(each.filter) for each in read.read] == ["x HAS 'a'", "x HAS cidr('10.0.0.0/8')"]


def test_check_shows_the_caret_and_the_hint_as_they_are():
    result = run("filter", "check", "x < 5", "price => 95")
    assert result.exit_code == 1
    assert result.stdout == f"ok: x < 5\nwrong: {syntax_error('price => 95')}\n"
    assert result.stderr == "weft: 1 of 2 filters cannot be used\n"


def test_caret_lines_are_not_wrapped(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "an_attribute_with_a_name = 'and a long value' AND price => 95"
    assert syntax_error(text) in run("filter", "check", text).stdout


@pytest.mark.parametrize("text", ["x = '[bold]'", "x = '[/]'", "x LIKE '[red]%[/red]' AND y = ':smile:'"])
def test_what_looks_like_markup_is_shown_as_it_is(text):
    for command in ("check", "format", "explain"):
        result = run("filter", command, text)
        assert result.exit_code == 0
        assert text in result.stdout
    assert text in run("filter", "overlaps", text, "TRUE").stdout
    assert text in run("filter", "merge", text, "FALSE").stdout
    assert "x [bold] => 5" in run("filter", "check", "x [bold] => 5").stdout


def test_check_in_json_has_an_answer_for_each_text():
    result = run("filter", "check", "x<5", "price => 95", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["ok"] is False
    fine, wrong = told["filters"]
    assert fine == {"text": "x<5", "ok": True, "filter": "x < 5", "notes": []}
    assert not wrong["ok"]
    expected = {"message": "unknown operator '=>'", "line": 1, "column": 7, "hint": "did you mean '>='?"}
    assert expected.items() <= wrong["error"].items()


def test_check_refuses_what_is_too_complex_to_use():
    text = " AND ".join(f"(x{i} > 1 OR y{i} > 1)" for i in range(12))
    result = run("filter", "check", text)
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong: the filter")


def test_check_notes_what_is_odd(schema):
    result = run("filter", "check", "plase = 'here'", "x < 1 AND x > 2", "--schema", schema)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "note: 'plase' is not in the schema: did you mean 'place'?",
        "note: it matches no event",
    ]


def test_filters_come_from_standard_input_one_per_line():
    result = run("filter", "format", "a", "-", "b", stdin='# a comment\n\n  x<5\n{"prefix": {"type": "order."}}\n')
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["a", "x < 5", "type LIKE 'order.%'", "b"]


def test_an_error_in_standard_input_says_its_line():
    result = run("filter", "format", "-", stdin="x < 5\n\ny => 5\n")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"weft: {syntax_error('y => 5')}\nin line 3 of standard input\n"


def test_both_filters_of_a_pair_may_come_from_standard_input():
    assert answer("filter", "covers", "-", "-", stdin="x < 5\nx < 3\n")["covers"]
    assert not answer("filter", "covers", "x < 3", "-", stdin="x < 5\n")["covers"]


def test_empty_standard_input_is_wrong_usage():
    result = run("filter", "check", "-", stdin="# nothing\n")
    assert result.exit_code == 2
    assert "1 filter or more expected, 0 given" in result.stderr


def test_standard_input_that_is_no_text_is_said_so():
    result = run("filter", "check", "-", stdin=b"\xff\xfe\n")
    assert (result.exit_code, result.stderr) == (1, "weft: standard input is not valid UTF-8; convert it first\n")


def test_a_json_filter_is_read_as_one():
    assert run("filter", "format", '[{"exact": {"a": "b"}}, {"sql": "x<5"}]').stdout == "a = 'b' AND x < 5\n"
    result = run("filter", "format", '{"exakt": {"a": "b"}}')
    assert result.exit_code == 1
    assert "did you mean 'exact'?" in result.stderr


def test_format_keeps_every_character():
    text = "x = 'a\tb [i] \x1b[31m é 漢'"
    assert run("filter", "format", text).stdout == text + "\n"


def test_format_in_json():
    assert answer("filter", "format", "5<x", "y") == {"filters": ["x > 5", "y"], "notes": []}


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"check"}))
def test_a_filter_that_is_wrong_fails_every_command(command):
    texts = ["x < 1", "price => 95"] if command in PAIRS else ["price => 95"]
    result = run("filter", command, *texts)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"weft: {syntax_error('price => 95')}\n"
    result = run("filter", command, *texts, "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    error = json.loads(result.stdout)["error"]
    assert error["message"] == "unknown operator '=>'"
    assert (error["line"], error["column"], error["hint"]) == (1, 7, "did you mean '>='?")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--schema", "--taxonomy"])
def test_a_file_that_is_not_there_fails_every_command(command, option):
    texts = ["x", "y"] if command in PAIRS else ["x"]
    result = run("filter", command, *texts, option, "nowhere.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nowhere.toml" in result.stderr
    assert result.stderr.count("\n") == 1
    told = json.loads(run("filter", command, *texts, option, "nowhere.toml", "--json").stdout)
    assert told["error"]["line"] is None


def test_a_taxonomy_lets_filters_call_is_a(taxonomy):
    assert run("filter", "check", "is_a(kind, 'car')").exit_code == 1
    assert answer("filter", "covers", "is_a(kind, 'vehicle')", "is_a(kind, 'car')", "--taxonomy", taxonomy)["covers"]
    assert not answer("filter", "overlaps", "is_a(k, 'truck')", "is_a(k, 'car')", "--taxonomy", taxonomy)["overlaps"]


# -- explain -----------------------------------------------------------------------------------------


def test_explain_shows_the_normal_form_box_by_box():
    result = run("filter", "explain", "NOT x < 5 AND (y = 1 OR a > b)")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "NOT x < 5 AND (y = 1 OR a > b)"
    for line in ("attributes a, b, x, y", "matches some events", "normal form a union of 2 boxes"):
        assert line in lines
    first = lines.index("1 x x >= 5")
    assert lines[first + 1] == "y y = 1"
    assert "2 x x >= 5" in lines
    assert "a, b a > b" in lines


def test_explain_in_json():
    told = answer("filter", "explain", "type LIKE 'order.%' AND price<95")
    assert told["filter"] == "type LIKE 'order.%' AND price < 95"
    assert told["attributes"] == ["price", "type"]
    assert (told["empty"], told["everything"]) == (False, False)
    assert told["boxes"] == [
        [
            {"attributes": ["type"], "condition": "type LIKE 'order.%'"},
            {"attributes": ["price"], "condition": "price < 95"},
        ]
    ]
    assert told["json"] == {"all": [{"prefix": {"type": "order."}}, {"sql": "price < 95"}]}
    assert "event" not in told


@pytest.mark.parametrize(
    ("text", "empty", "everything", "said"),
    [
        ("x < 1 AND x > 2", True, False, "nothing"),
        ("x IS NULL OR x IS NOT NULL", False, True, "every event"),
        ("x < 1", False, False, "some events"),
    ],
)
def test_explain_says_whether_it_is_nothing_or_everything(text, empty, everything, said):
    told = answer("filter", "explain", text)
    assert (told["empty"], told["everything"]) == (empty, everything)
    assert re.search(rf"matches +{said}", run("filter", "explain", text).stdout)


def test_explain_under_a_schema_steps_by_whole_numbers(schema):
    (box,) = answer("filter", "explain", "n > 4.5", "--schema", schema)["boxes"]
    assert box == [{"attributes": ["n"], "condition": "n >= 5"}]


def test_explain_with_an_event_shows_the_truth_of_every_part():
    result = run("filter", "explain", "x > 5 AND NOT (y = 'a' OR z)", "--event", '{"x": 7, "y": "[b]"}')
    tree = result.stdout[result.stdout.rindex("NULL   x > 5 AND") :].splitlines()
    assert tree == [
        "NULL   x > 5 AND NOT (y = 'a' OR z)",
        "├── TRUE   x > 5   (x is 7)",
        "└── NULL   NOT (y = 'a' OR z)",
        "    └── NULL   y = 'a' OR z",
        "        ├── FALSE  y = 'a'   (y is '[b]')",
        "        └── NULL   z   (z is NULL)",
        "the event does not match",
    ]


def test_explain_with_an_event_in_json():
    told = answer("filter", "explain", "x > 5 OR y IS NULL", "--event", '{"x": 7}')
    assert told["event"] == {"x": 7}
    assert told["matches"] is True
    assert told["trace"] == {
        "filter": "x > 5 OR y IS NULL",
        "truth": True,
        "parts": [
            {"filter": "x > 5", "truth": True, "values": {"x": 7}},
            {"filter": "y IS NULL", "truth": True, "values": {"y": None}},
        ],
    }


def test_the_event_may_be_in_a_file(tmp_path):
    path = tmp_path / "event.json"
    path.write_text('{"place": {"country": "Chile"}}', encoding="utf-8")
    result = run("filter", "explain", "place.country = 'Chile'", "--event", f"@{path}")
    assert result.stdout.endswith("the event matches\n")


def test_the_event_may_be_a_cloudevent():
    event = '{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2018-02-04T00:00:00Z"}'
    told = answer("filter", "explain", "time > TIMESTAMP '2018-01-01'", "--event", event)
    assert told["matches"] is True
    assert told["event"]["time"] == "2018-02-04T00:00:00Z"


def test_a_schema_says_which_texts_of_the_event_are_timestamps(schema):
    arguments = ["filter", "explain", "seen > TIMESTAMP '2018-01-01'", "--event", '{"seen": "2018-02-04", "n": 2.0}']
    assert answer(*arguments)["trace"]["truth"] is None
    told = answer(*arguments, "--schema", schema)
    assert told["trace"]["truth"] is True
    assert told["event"] == {"seen": "2018-02-04T00:00:00Z", "n": 2}
    arguments[-1] = '{"seen": "some day"}'
    assert answer(*arguments, "--schema", schema)["event"] == {}


@pytest.mark.parametrize("event", ['{"x":', "[1]", '{"": [1]}', "@nowhere.json", '{"time": "noon"}'])
def test_an_event_that_is_none_is_a_sentence(event):
    result = run("filter", "explain", "x", "--event", event)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"weft: .+\n", result.stderr)


def test_tables_stay_readable_in_80_columns():
    names = ", ".join(f"'a rather long value number {i}'" for i in range(20))
    result = run("filter", "explain", f"some_attribute_of_an_event IN ({names})")
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80
    assert "…" not in result.stdout
    assert re.sub(r"\s+", "", result.stdout).count("number19") == 3  # text, JSON, table


# -- covers, overlaps, merge -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wide", "narrow", "covers", "covered", "said"),
    [
        ("x < 10", "x < 5", True, False, "yes: WIDE covers NARROW; they are not equivalent"),
        ("x < 10", "NOT x >= 10", True, True, "yes: WIDE covers NARROW; they are equivalent"),
        ("x < 5", "x < 10", False, True, "no: WIDE does not cover NARROW; it is the other way round"),
        ("x < 5", "x > 3", False, False, "no: WIDE does not cover NARROW; neither covers the other, but they overlap"),
        ("x < 5", "x > 7", False, False, "no: WIDE does not cover NARROW; no event matches both"),
    ],
)
def test_covers_answers_with_a_sentence(wide, narrow, covers, covered, said):
    result = run("filter", "covers", wide, narrow)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith(said)
    told = answer("filter", "covers", wide, narrow)
    assert (told["covers"], told["covered"], told["equivalent"]) == (covers, covered, covers and covered)


def test_covers_under_a_schema_steps_by_whole_numbers(schema):
    assert not answer("filter", "covers", "n <= 4", "n < 5")["covers"]
    assert answer("filter", "covers", "n <= 4", "n < 5", "--schema", schema)["covers"]


def test_overlaps_shows_the_intersection():
    result = run("filter", "overlaps", "x < 10", "x > 5 AND y = 1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2:] == ["yes: both match the events of", "x > 5 AND x < 10 AND y = 1"]
    assert answer("filter", "overlaps", "x < 10", "x > 5")["both"] == "x > 5 AND x < 10"


def test_overlaps_says_no():
    result = run("filter", "overlaps", "x < 5", "x > 10")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "no: no event matches both")
    told = answer("filter", "overlaps", "x < 5", "x > 10")
    assert (told["overlaps"], told["both"]) == (False, None)


def test_merge_shows_a_perfect_merger():
    told = answer("filter", "merge", "x < 5 AND y > 1", "x BETWEEN 5 AND 9 AND y > 1")
    assert (told["merged"], told["rule"], told["perfect"]) == ("x <= 9 AND y > 1", "perfect", True)
    assert (told["added"], told["share"], told["unknown"]) == (0, 0, None)
    assert answer("filter", "merge", "x < 5", "x < 3", "x < 1")["rule"] == "covering"
    result = run("filter", "merge", "x < 5", "x < 3")
    assert result.stdout.splitlines()[0] == "x < 5"
    assert re.search("perfect +yes", result.stdout)


def test_merge_without_a_schema_says_how_to_learn_the_cost():
    parts = ["x BETWEEN 0 AND 10 AND y BETWEEN 0 AND 1", "x BETWEEN 20 AND 30 AND y BETWEEN 0 AND 2"]
    told = answer("filter", "merge", *parts)
    assert (told["perfect"], told["added"], told["share"]) == (False, None, None)
    assert "--schema FILE" in told["unknown"]
    assert "--schema FILE" in run("filter", "merge", *parts).stdout


def test_merge_with_a_schema_measures_what_it_adds(schema):
    """The parts are 10 and 20 large, their union 20 x 2, all times 10 values of n; the rest needs no bounds."""
    parts = ["x BETWEEN 0 AND 10 AND y BETWEEN 0 AND 1", "x BETWEEN 20 AND 30 AND y BETWEEN 0 AND 2"]
    told = answer("filter", "merge", *parts, "--schema", schema)
    assert (told["rule"], told["added"], told["share"]) == ("attributes", 100, 0.25)
    assert "25.0% of its volume (100)" in run("filter", "merge", *parts, "--schema", schema).stdout


def test_merge_with_a_schema_that_cannot_measure_says_what_it_lacks(schema):
    parts = ["place > 'a' AND x < 1", "place < 'b' AND x > 2"]
    told = answer("filter", "merge", *parts, "--schema", schema)
    assert told["share"] is None
    assert "'place'" in told["unknown"]


# -- colours and the demo ----------------------------------------------------------------------------


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_pipe_gets_no_escape_codes(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for arguments in (
        ["filter", "explain", "x < 5 AND y", "--event", "{}"],
        ["filter", "check", "x", "=>"],
        ["filter", "merge", "x < 5", "y < 5"],
    ):
        result = run(*arguments)
        assert "\x1b" not in result.output


def test_a_terminal_gets_colours_unless_it_wants_none(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;36m" in run("filter", "explain", "x < 5").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", run("filter", "explain", "x < 5").stdout)


@pytest.mark.usefixtures("_demo_of_titles")
def test_demo_shows_every_chapter_and_ends():
    result = run("demo")
    assert result.exit_code == 0
    assert "\x1b" not in result.output, "a pipe gets no escape codes"
    titles = (chapter.title for chapter in tour.CHAPTERS)
    for said in ("1,707", "United States Geological Survey", "public domain", *titles):
        assert said in " ".join(result.stdout.split())


@pytest.mark.usefixtures("_demo_of_titles")
def test_demo_in_json_is_one_document():
    told = answer("demo")
    assert set(told) == {"source", *(chapter.name for chapter in tour.CHAPTERS)}
    assert told["events"]["count"] == 1707


def test_bench_shows_figures_and_writes_them(tmp_path) -> None:
    file = tmp_path / "figures.json"
    done = run("bench", "language", "--quick", "-o", str(file))
    assert done.exit_code == 0
    assert "start/1/first_filter" in done.output
    assert json.loads(file.read_text())["bench"] == "language"


def test_an_unknown_bench_is_wrong_usage() -> None:
    done = run("bench", "nothing")
    assert done.exit_code == 2
    assert "language" in done.output


# -- exit codes for scripts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("covers", "x > 1", "x > 2"), 0),
        (("covers", "x > 2", "x > 1"), 1),
        (("equivalent", "x > 2", "NOT x <= 2"), 0),
        (("equivalent", "x > 2", "x > 1"), 1),
        (("overlaps", "x > 2", "x > 1"), 0),
        (("overlaps", "x > 2", "x < 1"), 1),
        (("merge", "x < 5", "x >= 5 AND x < 9"), 0),
        (("merge", "x = 1", "x = 5 AND y = 3"), 1),
    ],
)
def test_the_exit_code_is_the_answer_if_asked_for(arguments, code):
    assert run("filter", *arguments).exit_code == 0
    assert run("filter", *arguments, "--exit-code").exit_code == code
    assert run("filter", *arguments, "--exit-code", "--json").exit_code == code


@pytest.mark.parametrize("command", sorted(PAIRS))
def test_a_failure_is_not_a_no(command):
    assert run("filter", command, "x > 1", "y => 2", "--exit-code").exit_code == 2
    assert run("filter", command, "x > 1", "y => 2").exit_code == 1


def test_ctrl_c_ends_quietly_with_130(tmp_path):
    command = [*INTERRUPTIBLE, "filter", "check", "-"]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with program:
        program.stdin.write(b"x > 1\n" * 50_000)  # more than a pipe holds: it reads, and waits for the end
        program.stdin.flush()
        program.send_signal(signal.SIGINT)
        _, said = program.communicate()  # ends the input: a signal just before a read does not interrupt it
    assert (program.returncode, said) == (130, b"weft: interrupted\n")


# -- lint --------------------------------------------------------------------------------------------

RULES = "id,filter\nr1,xx > 5\nr2,x > 5\nr3,s > 5\nr4,NOT x <= 5\nr5,time > '2018-02-01'\nr6,x > 5 AND x < 3\n"


@pytest.fixture
def rules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.csv").write_text(RULES)
    lines = [{"x": 3, "s": "a"}, {"x": 4.5, "time": "2018-02-01T00:00:00Z"}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "events.csv").write_text("x,s,time\n3,a,2018-02-01T00:00:00Z\n4.5,,\n")
    (tmp_path / "fine.txt").write_text("x > 5\ns = 'a'\n")
    return tmp_path


def test_the_example_of_lint_runs_and_finds_all_mistakes(rules, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (example,) = re.findall(r"\$ weft (.+)", run("filter", "lint", "--help").stdout)
    result = run(*shlex.split(example))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[-1] == "4 of 6 filters can never match"
    assert [line for line in lines[:-1] if not line.startswith(" ")] == [
        "1 filter names attributes that no event has",
        "2 filters compare unlike types",
        "1 filter can never be true",
        "1 filter duplicates another one",
    ]
    assert "  no event has 'xx'; did you mean 'x'?" in lines
    assert "write TIMESTAMP '2018-02-01'" in result.stdout


@pytest.mark.parametrize("events", ["events.jsonl", "events.csv"])
def test_lint_in_json(rules, events):
    result = run("filter", "lint", "rules.csv", "--events", events, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["counts"] == {"unknown_attribute": 1, "unlike_types": 2, "never_true": 1, "duplicate": 1}
    assert (told["filters"], told["dead"], told["clean"]) == (6, 4, False)
    assert told["findings"][0]["examples"] == [{"id": "r1", "filter": "xx > 5"}]


def test_lint_of_what_is_fine_ends_with_0(rules):
    result = run("filter", "lint", "fine.txt", "--events", "events.jsonl")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 filters checked\n", "")
    result = run("filter", "lint", "fine.txt")
    assert result.exit_code == 0
    assert "--events FILE or --schema FILE" in result.stderr


def test_lint_of_no_filters_says_so(rules):
    result = run("filter", "lint", "-", "--events", "events.jsonl", stdin="# nothing\n")
    assert (result.exit_code, result.stdout) == (1, "there are no filters\n")


def test_lint_with_a_schema(rules, schema):
    told = json.loads(run("filter", "lint", "rules.csv", "--schema", schema, "--json").stdout)
    assert told["counts"]["unknown_attribute"] == 2
    said = {finding["message"] for finding in told["findings"]}
    assert {"'s' is not in the schema", "'xx' is not in the schema; did you mean 'x'?"} <= said
