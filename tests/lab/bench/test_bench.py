"""Every benchmark runs, tiny, and says what it must."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from weftlab.bench import language
from weftlab.bench.report import Result, as_json, show, write


def test_the_language_benchmark_measures_every_figure() -> None:
    told: list[str] = []
    results = language.run(quick=True, progress=told.append, size=400)
    names = {result.name.split("/")[0] + "/" + result.name.split("/")[2] for result in results}
    assert names == {
        "parse/new_shapes",
        "parse/repeated_shapes",
        "parse/vs_grammar",
        "columns/repeated_shapes",
        "columns/vs_one_by_one",
        "covers/objects",
        "covers/objects_all_true",
        "covers/batch",
        "covers/batch_vs_objects",
        "start/first_filter",
    }
    assert all(result.value is not None and result.value > 0 for result in results)
    assert len(told) == 5


def test_a_report_says_whether_goals_are_reached(tmp_path: Path) -> None:
    results = [
        Result("a/1/up", 5, "x", 4),
        Result("a/1/down", 5, "ms", 4, "lower"),
        Result("a/1/none", None, "x", 4),
    ]
    assert [result.ok for result in results] == [True, False, None]
    write(tmp_path / "out.json", "a", results)
    said = json.loads((tmp_path / "out.json").read_text())
    assert said.keys() == {"bench", "date", "machine", "results"}
    assert said["results"][1] == {
        "name": "a/1/down",
        "value": 5,
        "unit": "ms",
        "goal": 4,
        "better": "lower",
        "ok": False,
    }
    assert as_json("a", results)["bench"] == "a"
    page = io.StringIO()
    show("a", results, Console(file=page, width=100))
    assert "reached" in page.getvalue()
    assert "MISSED" in page.getvalue()
    assert "not measured" in page.getvalue()
