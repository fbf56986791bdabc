"""`weft order`: files of filters as trees, tables, pictures; what cannot be ordered is said and counted."""

from __future__ import annotations

import csv
import json
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from weft.cli.app import app
from weft.cli.order import order
from weft.workloads.thesis import SCHEMAS

TEXTS = """\
# alerts
magnitude >= 4.5
magnitude >= 5 AND depth < 70

magnitude >= 6 OR tsunami
tsunami
{"exact": {"net": "us"}}
"""
SHOWN = """\
magnitude >= 4.5  [2]
└─ magnitude >= 5 AND depth < 70  [3]
magnitude >= 6 OR tsunami  [5]
└─ tsunami  [6]
net = 'us'  [7]

5 filters, 5 nodes, 3 roots, 2 edges, depth 2
"""


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["order", *arguments], input=stdin)


def answer(*arguments: str, stdin: str | None = None):
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def file(tmp_path):
    def write(text: str | bytes, name: str = "filters.txt") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_filters_are_shown_below_those_that_cover_them(file):
    result = run("show", file(TEXTS))
    assert (result.exit_code, result.stdout, result.stderr) == (0, SHOWN, "")


def test_standard_input_is_a_file_too():
    assert run("show", "-", stdin=TEXTS).stdout == SHOWN


@pytest.mark.parametrize("command", ["show", "compare"])
def test_the_example_in_the_help_runs(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alerts.txt").write_text(TEXTS)
    (example,) = re.findall(r"\$ weft order (.+)", run(command, "--help").stdout)
    result = run(*shlex.split(example))
    assert (result.exit_code, result.stderr) == (0, "")


def test_both_commands_are_there():
    assert [info.name or info.callback.__name__ for info in order.registered_commands] == ["show", "compare"]


def test_csv_has_ids_and_interfaces(file):
    path = file('id,interface,filter\n7,north,x > 1\n8,south,"x > 1 AND y IN (1, 2)"\n9,,x > 1\n', "f.CSV")
    assert run("show", path).stdout.splitlines()[:2] == ["x > 1  [9, north]", "└─ x > 1 AND y IN (1, 2)  [south]"]


def test_csv_needs_a_column_of_filters(file):
    result = run("show", file("id,text\n1,x > 1\n", "f.csv"))
    assert result.exit_code == 1
    assert "no column 'filter', it has id, text" in result.stderr
    assert "it is empty" in run("show", file("", "f.csv")).stderr


def test_json_lines_have_records_or_filters(file):
    lines = [
        '{"id": "a", "filter": "x > 1"}',
        '{"interface": 5, "filter": {"exact": {"y": 2}}}',
        '{"exact": {"y": 2}}',
        '"x > 3"',
        "17",
        "{broken",
    ]
    result = run("show", file("\n".join(lines), "f.jsonl"))
    assert result.stdout.splitlines()[:3] == ["x > 1  [a]", "└─ x > 3  [4]", "y = 2  [3, 5]"]
    assert result.exit_code == 1
    assert "line 5: a filter must be text, or a JSON object or list" in result.stderr
    assert "line 6: it is not JSON" in result.stderr
    assert "2 filters cannot be read; the others are shown" in result.stderr


def test_what_matches_nothing_is_left_out_and_said(file):
    result = run("show", file("x > 1\nx > 5 AND x < 3\ny = 1 AND y = 2\n"))
    assert result.exit_code == 0
    assert "1 filter, 1 node, 1 root, 0 edges, depth 1" in result.stdout
    assert "note: line 2: x > 5 AND x < 3: it matches nothing" in result.stderr
    assert "note: 2 filters left out" in result.stderr


def test_wrong_filters_are_said_counted_and_the_exit_code_is_1(file):
    wrong = "\n".join(f"x => {n}" for n in range(20))
    result = run("show", file(f"x > 1\n{wrong}\n"))
    assert result.exit_code == 1
    assert result.stdout.startswith("x > 1  [1]")
    assert result.stderr.count("did you mean '>='?") == 5
    assert "20 filters cannot be read" in result.stderr


def test_with_json_what_was_refused_is_in_the_answer(file):
    result = run("show", file("x > 1\nx => 1\nx > 5 AND x < 3\n"), "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    said = json.loads(result.stdout)
    assert [(each["place"], each["filter"]) for each in said["wrong"]] == [("line 2", "x => 1")]
    assert [each["place"] for each in said["left_out"]] == ["line 3"]
    assert said["wrong"][0]["error"]["column"] == 3


@pytest.mark.parametrize("text", ["", "# nothing\n", "x > 5 AND x < 3\n", "x =>\n"])
def test_a_file_without_a_usable_filter_is_a_failure(file, text):
    result = run("show", file(text))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "has no filter that can be ordered" in result.stderr
    assert ("each has a fault\nline 1: " in result.stderr) == (text.startswith("x"))


def test_bad_files_are_said_in_a_sentence(file, tmp_path):
    assert "not valid UTF-8" in run("show", file(b"\xff\xfe")).stderr
    missing = run("compare", str(tmp_path / "nothing.txt"))
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "No such file" in missing.stderr
    assert run("show", file(TEXTS), "--structure", "bush").exit_code == 2


def test_a_poset_has_all_relations_and_json_lists_them(file):
    texts = "x < 10\nx > 0\nx BETWEEN 2 AND 3\n"
    said = answer("show", file(texts), "--structure", "poset")
    assert {name: said[name] for name in ("structure", "filters", "nodes", "roots", "edges", "depth", "shown")} == {
        "structure": "poset",
        "filters": 3,
        "nodes": 3,
        "roots": 2,
        "edges": 2,
        "depth": 2,
        "shown": 3,
    }
    (inner,) = [node for node in said["listed"] if node["parents"]]
    assert inner["filter"] == "x BETWEEN 2 AND 3"
    assert sorted(inner["parents"]) == sorted(node["id"] for node in said["listed"] if not node["parents"])


def test_interfaces_in_turn_make_filters_needless(file):
    path = file("x > 0\ny > 0\nx > 5\n")
    assert run("show", path, "--structure", "nonredundant", "--interfaces", "2").stdout == (
        "x > 0  [I1]\ny > 0  [I2]\n\n3 filters, 2 nodes, 2 roots, 0 edges, depth 1\n"
    )
    assert answer("show", path, "--structure", "nonredundant")["nodes"] == 3


def test_a_schema_says_what_is_a_whole_number(file, tmp_path):
    schema = tmp_path / "s.toml"
    schema.write_text('[attributes]\nn = "int"\n')
    path = file("n > 3\nn >= 4\n")
    assert answer("show", path)["nodes"] == 2
    assert answer("show", path, "--schema", str(schema))["nodes"] == 1


def test_very_many_filters_are_shown_in_part(file):
    texts = "\n".join(map(str, SCHEMAS["1-3"].draw(1_200, np.random.default_rng(1))))
    path = file(texts)
    result = run("show", path)
    said = result.stdout.splitlines()
    assert sum(not line.rpartition("─ ")[2].startswith(("...", "60 of")) and "[" in line for line in said) == 60
    assert len(said) < 200
    (nodes,) = re.findall(r"1,200 filters, (\S+) nodes", result.stdout)
    assert f"60 of {nodes} shown: --limit 0 shows all" in said[-1]
    assert re.search(r"\.\.\. [\d,]+ more", result.stdout)
    assert len(run("show", path, "--limit", "0").stdout.splitlines()) == int(nodes.replace(",", "")) + 2
    shallow = run("show", path, "--depth", "1", "--limit", "0").stdout
    assert "├─ a" not in shallow
    few = answer("show", path, "--limit", "7")
    assert (few["shown"], len(few["listed"])) == (7, 7)
    assert len(answer("show", path)["listed"]) == int(nodes.replace(",", ""))


def test_pictures_are_written_beside_the_answer(file, tmp_path):
    svg, dot = tmp_path / "o.svg", tmp_path / "o.dot"
    result = run("show", file(TEXTS), "--svg", str(svg), "--dot", str(dot))
    assert result.stdout == f"{SHOWN}written: {svg}\nwritten: {dot}\n"
    again = run("show", file(TEXTS), "--svg", str(svg))
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == f"weft: {svg} already exists: choose another name, or pass --overwrite\n"
    assert run("show", file(TEXTS), "--svg", str(svg), "--overwrite").exit_code == 0
    assert "there is no folder" in run("show", file(TEXTS), "--dot", str(tmp_path / "no" / "o.dot")).stderr
    texts = [text.text for text in ElementTree.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert "Poset-derived forest" in texts
    assert "5 filters, 5 nodes, 3 roots, 2 edges, depth 2" in texts
    assert "magnitude >= 5 AND depth < 70" in texts
    assert dot.read_text().count("->") == 2


def test_compare_builds_all_structures_of_the_same_filters(file):
    texts = "\n".join(map(str, SCHEMAS["2d"].draw(120, np.random.default_rng(1))))
    path = file(texts)
    said = answer("compare", path)
    rows = {row["structure"]: row for row in said["structures"]}
    assert list(rows) == ["forest", "balanced", "nonredundant", "poset"]
    assert len({row["roots"] for row in rows.values()}) == 1
    assert {row["nodes"] for row in rows.values()} == {rows["poset"]["nodes"]}
    assert rows["forest"]["edges"] == rows["forest"]["nodes"] - rows["forest"]["roots"]
    assert rows["poset"]["edges"] > rows["forest"]["edges"]
    assert all(row["seconds"] > 0 and row["comparisons"] > 0 for row in rows.values())
    plain = {row["structure"]: row for row in answer("compare", path, "--one-by-one")["structures"]}
    assert plain["poset"]["comparisons"] > plain["forest"]["comparisons"]
    assert all(plain[kind][name] == rows[kind][name] for kind in rows for name in ("nodes", "roots"))
    table = run("compare", path).stdout
    assert all(kind in table for kind in rows)
    assert "120 filters" in table


def test_compare_with_neighbours_shows_what_is_needless(file, tmp_path):
    path = tmp_path / "f.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["filter", "interface"])
        writer.writerows([f"x > {n}", "north"] for n in range(9))
    rows = {row["structure"]: row["nodes"] for row in answer("compare", str(path))["structures"]}
    assert rows == {"forest": 9, "balanced": 9, "nonredundant": 1, "poset": 1}


def test_compare_says_what_the_roots_merge_into(file, tmp_path):
    path = file("x BETWEEN 0 AND 4\nx BETWEEN 4 AND 9\nx BETWEEN 20 AND 29\ny > 3\n")
    assert answer("compare", path)["merged"] == {"perfect": 2, "imperfect": None, "budget": 0.1}
    assert "roots merged: 2 perfectly; imperfect mergers need a schema" in run("compare", path).stdout
    bounded = tmp_path / "s.toml"
    both = '{ type = "float", bounds = [0, 100] }'
    bounded.write_text(f"[attributes]\nx = {both}\ny = {both}\n")
    said = answer("compare", path, "--schema", str(bounded), "--waste", "0.5")["merged"]
    assert said["perfect"] >= said["imperfect"] >= 1
    assert "with 50% waste" in run("compare", path, "--schema", str(bounded), "--waste", "0.5").stdout
