"""What the page of covering orders shows: the structures themselves, checked against comparing each with each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from weft.algebra.relate import covers
from weft.console.views import orders as module
from weft.console.views.filter_steps import FilterSource, Generator, filter_steps
from weft.console.views.orders import OrdersRequest, orders_view
from weft.errors import FilterError, FilterSyntaxError, OptionError
from weft.language.text import parse
from weft.order import Forest, Forwarding

SMALL = Generator(filters=30, interfaces=4)


GENERATED = FilterSource(SMALL)


def view(source: FilterSource = GENERATED, **options: Any) -> dict[str, Any]:
    return orders_view(OrdersRequest(source, **options))


def red(found: dict[str, Any]) -> list[str]:
    return [check["name"] for check in found["checks"] if check["holds"] is False]


@pytest.mark.parametrize(("names", "least", "most"), [(2, 2, 2), (3, 3, 3), (3, 1, 3)], ids=["2d", "3d", "1-3"])
@pytest.mark.parametrize("predicates", [("[a,b]",), ("<", ">", "<=", ">=", "=", "!=", "[a,b]")], ids=["ranges", "any"])
def test_every_check_holds_at_every_step(names: int, least: int, most: int, predicates: tuple[str, ...]) -> None:
    generator = Generator(
        filters=14, names=names, least=least, most=most, predicates=predicates, top=9, interfaces=3, notifications=30
    )
    edits = ("+I1 a >= 0", "-3", "-15", "+I2 a < 5 AND b < 5", "-1")
    for step in range(20):
        found = view(FilterSource(generator, edits=edits, step=step))
        assert red(found) == [], step
        assert found["step"] == step
        assert all(check["holds"] for check in found["checks"])


def test_the_panels_are_the_structures() -> None:
    found = view()
    assert list(found["panels"]) == ["FP", "PF", "BF", "NRF"]
    present = filter_steps(FilterSource(SMALL)).present()
    for name, panel in found["panels"].items():
        nodes, picture = panel["nodes"], panel["picture"]
        assert len(nodes) == panel["total"]
        assert len(picture["at"]) == len(nodes)
        for a, b, _ in picture["lines"]:
            assert covers(parse(nodes[a]["text"]), parse(nodes[b]["text"])), name
        assert sorted(node["numbers"][0] for node in nodes if node["kind"] == "root") == found["cover"]
        for node in nodes:
            assert all(parse(node["text"]) == present[number].filter for number in node["numbers"][:1])


def test_a_panel_is_small_until_it_is_enlarged() -> None:
    many = FilterSource(Generator(filters=200))
    found = view(many)
    assert not any(panel["full"] for panel in found["panels"].values())
    assert all(node["w"] < 40 for node in found["panels"]["PF"]["nodes"])
    large = view(many, full="PF")["panels"]
    assert (large["PF"]["full"], large["FP"]["full"]) == (True, False)
    limited = view(many, first=50)["panels"]["PF"]
    assert (len(limited["nodes"]), limited["hidden"]) == (50, 150)
    assert any("more" in line for node in limited["nodes"] for line in node["lines"])
    assert len(msgspec.json.encode(found)) < 200_000


def test_forwards_sets_of_three_mechanisms_are_listed() -> None:
    rows = view()["forwards"]
    assert [row["neighbour"] for row in rows] == ["I1", "I2", "I3", "I4"]
    assert all(row["naive"] == row["poset"] == row["forest"] and row["equal"] for row in rows)


def test_rules_of_a_user_and_edits() -> None:
    rules = "north\tx < 10\nx < 5\n# nothing\n\nx > AND\ny LIKE 'a%'\nx > 5 AND x < 3\nsouth\tx >= 10"
    found = view(FilterSource(SMALL, rules=rules, edits=("+west x < 100",)))
    assert [(each["interface"], each["filter"]) for each in found["filters"]] == [
        ("north", "x < 10"),
        ("I2", "x < 5"),
        ("I3", "y LIKE 'a%'"),
        ("south", "x >= 10"),
        ("west", "x < 100"),
    ]
    assert [note.split(":")[0] for note in found["notes"]] == ["line 5 is left out", "line 7 is left out"]
    assert found["merging"]["imperfect"] is None, "patterns have no volume"
    assert red(found) == []
    spans = ((5, 0, 5), (5, 5, 6), (6, 6, 9))
    boxes = "\n".join(f"x >= 0 AND x < {right} AND y >= {low} AND y < {high}" for right, low, high in spans)
    numbers = view(FilterSource(SMALL, rules=boxes), budget=0.5)["merging"]
    assert (numbers["roots"], numbers["perfect"]["count"], numbers["imperfect"]["count"]) == (3, 2, 1)
    assert numbers["perfect"]["lets_through"] == 0
    assert numbers["imperfect"]["lets_through"] == pytest.approx(54 / 48 - 1)
    (whole,) = numbers["imperfect"]["items"]
    assert len(whole["parts"]) == 3
    for edit, error in (("+I1 x >", FilterSyntaxError), ("+I1 x > 5 AND x < 3", FilterError), ("x", OptionError)):
        with pytest.raises(error):
            view(FilterSource(SMALL, edits=(edit,)))


def test_an_interface_may_have_a_filter_twice() -> None:
    rules = "a\tx < 10\na\tx < 10\nb\tx < 5"
    before, after = (view(FilterSource(SMALL, rules=rules, edits=edits)) for edits in ((), ("-1",)))
    assert before["panels"]["PF"]["total"] == after["panels"]["PF"]["total"] == 2
    assert red(after) == []
    assert view(FilterSource(SMALL, rules=rules, edits=("-1", "-2")))["panels"]["PF"]["total"] == 1


# -- a fault makes a badge red ---------------------------------------------------------------------------------------


class Forgetful(Forest[Any]):
    """Loses every fifth filter."""

    def add(self, thing: Any, interface: Any = 0) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return super().add(thing, interface) if self.count % 5 else super().discard(thing, interface)


class Tangled(Forest[Any]):
    """Hangs a root below another one that does not cover it."""

    def _place(self, node: Any, standing: Any) -> None:
        super()._place(node, standing)
        roots = list(self.roots)
        if len(roots) > 3 and node in roots:
            self._unlink(self.top, node)
            self._link(next(other for other in roots if other is not node), node)


class Silent(Forwarding[Any]):
    """Does not tell the last neighbour anything."""

    def told(self, neighbour: Any) -> Any:
        return [] if neighbour == "I4" else super().told(neighbour)


def test_a_lost_filter_turns_badges_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.KINDS, "BF", Forgetful)
    assert {"minimal cover", "notifications"} <= set(red(view()))


def test_a_broken_order_turns_badges_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.KINDS, "BF", Tangled)
    assert {"invariants of BF", "minimal cover"} <= set(red(view()))


def test_a_silent_mechanism_turns_the_badge_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Forwarding", Silent)
    found = view()
    assert red(found) == ["forwards sets"]
    assert [row["neighbour"] for row in found["forwards"] if not row["equal"]] == ["I4"]


def test_beyond_a_size_each_is_not_compared_with_each_and_the_page_says_so() -> None:
    generator = Generator(filters=400, interfaces=40, names=3, least=3, most=3)
    checks = {check["name"]: check for check in view(FilterSource(generator))["checks"]}
    assert checks["minimal cover"]["holds"] is None
    assert "up to 250 filters" in checks["minimal cover"]["found"]
