"""What the page of contexts shows: both forests, mappings, what a step costs, and how a collection changes."""

from __future__ import annotations

from typing import Any

import pytest

from weft.algebra.profile import Meeting
from weft.console.views import context as module
from weft.console.views.context import ContextRequest, context_steps, context_view
from weft.console.views.filter_steps import Generator
from weft.errors import OptionError
from weft.profiles import DoubleForest


def view(**options: Any) -> dict[str, Any]:
    return context_view(ContextRequest(**options))


def red(found: dict[str, Any]) -> list[str]:
    return [check["name"] for check in found["checks"] if not check["holds"]]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("preload", ["none", "right", "wrong"])
@pytest.mark.parametrize("bounds", [False, True])
def test_mappings_are_those_of_the_set_based_algorithm(overlap: bool, preload: str, bounds: bool) -> None:
    edits = ("-P3", "=P4 a < 50", "+Q a < 90 AND b < 90", "+P a = 5 AND b = 5", "-Q1")
    for step in (0, 1, 7, 32, 33, 34, 38):
        found = view(overlap=overlap, preload=preload, bounds=bounds, edits=edits, step=step)
        assert red(found) == []
        assert found["step"] == step
        assert found["pairs"] == sum(len(row["matches"]) for row in found["by_query"])
        assert found["pairs"] == sum(len(row["matches"]) for row in found["by_profile"])
    assert found["steps"] == 38


def test_what_was_preloaded_costs_nothing_later_and_a_wrong_guess_costs() -> None:
    none, right, wrong = (view(preload=preload)["cost"] for preload in ("none", "right", "wrong"))
    assert none["preloading"] == 0 < none["steps"]
    assert right["preloading"] > 0 == right["steps"] == right["last"]
    assert wrong["steps"] > none["steps"]
    assert none["naive"] == 20 * 12


def test_a_collection_says_why_it_changes() -> None:
    edits = ("+Q a BETWEEN 0 AND 50", "+P a BETWEEN 1 AND 5", "=P2 a BETWEEN 60 AND 70", "-P2")
    options: dict[str, Any] = {"profiles": 1, "queries": 0, "edits": edits, "query": "Q1", "overlap": False}
    base = ContextRequest(**options)
    assert [step.text.split(":")[0] for step in context_steps(base)] == [
        "add profile P1",
        "add query Q1",
        "add profile P2",
        "remove profile P2",
        "add profile P2",
        "remove profile P2",
    ]
    joined = view(**options, step=3)["collection"]
    assert (joined["joined"], joined["why"]) == (["P2"], "Q1 covers P2")
    moved = view(**options, step=4)["collection"]
    assert (moved["left"], moved["members"], moved["why"]) == (["P2"], [], "P2 was removed")
    assert view(**options, step=5)["collection"]["joined"] == []


def test_a_fault_turns_the_badge_red(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(DoubleForest[Any]):
        def pairs(self) -> Any:
            return set(list(super().pairs())[1:])

    def blind(meeting: Meeting, **options: Any) -> Any:
        forest = DoubleForest.of_filters(meeting=meeting, **options)
        forest.__class__ = Blind
        return forest

    class Made:
        of_filters = staticmethod(blind)

    monkeypatch.setattr(module, "DoubleForest", Made)
    assert red(view()) == ["mappings"]


@pytest.mark.parametrize("edit", ["x", "+R a < 5", "-P99", "=P1", "+P"])
def test_an_edit_that_cannot_be_read_is_refused(edit: str) -> None:
    with pytest.raises(OptionError, match="is not an edit"):
        view(edits=(edit,))


def test_the_panels_are_both_forests() -> None:
    found = view(generator=Generator(filters=0, seed=3), preload="wrong")
    assert len(found["queries"]["nodes"]) == found["queries"]["total"]
    assert any("preloaded" in node["kind"] for node in found["profiles"]["nodes"])
    assert {number for node in found["profiles"]["nodes"] for number in node["numbers"]} == set(range(1, 21))
