"""Predicates of the environment: the same for a command as for a broker, and one sentence without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.errors import OptionError
from weft.language.predicate_modules import agreed_predicates, filter_predicates
from weft.pipeline.predicate_settings import environment_predicates

MODULE = """
from weft.model.value import Type

class Even:
    name, type = "even", Type.INT
    def check(self, arguments): pass
    def matches(self, value, arguments): return value % 2 == 0
    def covers(self, wide, narrow): return True
    def overlaps(self, one, other): return True

EVEN = Even()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "even_predicate.py").write_text(MODULE)
    (tmp_path / "kinds.toml").write_text('car = ["vehicle"]')
    (tmp_path / "events.jsonl").write_text('{"n": 2, "kind": "car"}\n{"n": 5, "kind": "house"}\n')
    (tmp_path / "subscriptions.csv").write_text("id,filter\n1,even(n)\n2,\"is_a(kind, 'vehicle')\"\n3,n > 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown() -> str:
    given = ["match", "events.jsonl", "subscriptions.csv", "--engine", "local"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.usefixtures("folder")
def test_match_calls_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PREDICATES", "even_predicate")
    monkeypatch.setenv("WEFT_TAXONOMY", "kinds.toml")
    assert "matches 3 " in shown()
    assert "subscriptions left out 0" in shown()
    assert [*environment_predicates()] == ["even", "is_a"]


@pytest.mark.usefixtures("folder")
def test_without_them_a_filter_is_left_out_with_a_sentence() -> None:
    assert "matches 1 " in shown()
    assert "unknown predicate 'even'" in shown()


def test_a_module_that_has_none_is_refused(folder: Path) -> None:
    (folder / "empty_predicates.py").write_text("x = 1")
    with pytest.raises(OptionError, match="has no predicates; list them as PREDICATES"):
        filter_predicates(["empty_predicates"])
    with pytest.raises(OptionError, match="cannot be imported: ModuleNotFoundError"):
        filter_predicates(["nowhere_to_be_found"])


def test_programs_with_other_taxonomies_do_not_agree(folder: Path) -> None:
    (folder / "other.toml").write_text('car = ["thing"]')
    one, other = (agreed_predicates(filter_predicates([], [name])) for name in ("kinds.toml", "other.toml"))
    assert one != other
    assert one == agreed_predicates(filter_predicates([], [str(folder / "kinds.toml")]))
