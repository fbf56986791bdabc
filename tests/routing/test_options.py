"""Options of models: each is checked, each changes something, and neighbours that differ are refused by its name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from weft.broker.links.handshake import check_agreement
from weft.errors import AccessError, OptionError, SchemaError
from weft.index.base import SubId
from weft.language.text import parse
from weft.model.schema import Schema
from weft.protocol.link_messages import LinkHello
from weft.routing import Link, Role, RoutingTable, Update
from weft.routing.options import OPTIONS, ModelOptions, table_with
from weft.routing.registry import MODELS, engine_of

SCHEMA = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in ("x", "y", "z", "w")}})
NORTH, SOUTH, WEST = Link("north"), Link("south"), Link("west")

VARIANTS: list[dict[str, Any]] = [  # every option, in every way
    *({"name": name, "local": local} for name in MODELS if name != "flooding" for local in ("forest", "merged")),
    *({"name": name, "structure": "poset"} for name in ("covering", "merging", "mics-exact")),
    {"name": "covering", "tests": 3},
    {"name": "merging", "scope": "local"},
    {"name": "merging", "scope": "aggregate"},
    {"name": "merging", "added_volume": 0.1},
    {"name": "merging", "added_volume": 0.1, "saturation": 20},
    {"name": "merging", "lazy": True},
    {"name": "negative", "k": 2},
    {"name": "negative", "k": 2, "zeta": True},
    {"name": "negative", "k": 2, "selection": "benefit"},
    {"name": "negative", "k": 2, "selection": "cost"},
    {"name": "negative", "boxes": 8},
    {"name": "negative", "rebuild": False},
    {"name": "mics", "attributes": ("y", "x")},
    {"name": "mics", "dimensions": 2},
    {"name": "mics", "cells": 16},
    {"name": "mics", "cuts": ("x 10 20 80",)},
    {"name": "mics", "gap": 4},
    {"name": "mics", "cap": 4},
    {"name": "mics-exact", "attributes": ("x",)},
    {"name": "mics-exact", "cells": 8, "cap": 4},
    {"name": "dls", "attributes": ("x", "y"), "cuts": ("y 5 50",)},
    {"name": "dls", "cells": 8},
    {"name": "dls", "cap": 8},
    {"name": "dls", "counters": 64},
    {"name": "dls", "counters": 64, "hashes": 2, "growth": 0.5},
    {"name": "dls", "bundle": 4},
]


def table(**options: Any) -> RoutingTable:
    return table_with(ModelOptions(**options), SCHEMA)


def shown(options: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


def test_every_option_is_described_and_every_description_is_an_option() -> None:
    assert {each.name for each in fields(ModelOptions)} - {"name"} == {*OPTIONS}
    assert {name for option in OPTIONS.values() for name in option.models} <= {*MODELS}
    tried = {option for each in VARIANTS for option in each} - {"name"}
    assert tried == {*OPTIONS}


def test_the_guide_has_every_option_as_it_is() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "models.md").read_text(encoding="utf-8")
    for name, option in OPTIONS.items():
        default = getattr(ModelOptions(), name)
        written = str(default).lower() if isinstance(default, bool) else "empty" if default == () else str(default)
        cells = (f"`{name}`", ", ".join(option.models), written, option.summary, option.when, option.paper)
        assert f"| {' | '.join(cells)} |" in guide


@pytest.mark.parametrize("options", VARIANTS, ids=shown)
def test_a_table_with_an_option_loses_nothing(options: dict[str, Any]) -> None:
    one, other = table(**options), table(**options)
    told = one.attach(NORTH) + one.attach(WEST)
    other.attach(SOUTH)
    filters = {SubId(n): parse(f"x BETWEEN {n} AND {n + 3} AND y < {40 + n % 5}") for n in range(24)}
    for sub, wanted in filters.items():
        told += one.change({sub: wanted}, ())
    told += one.change({}, [SubId(n) for n in range(0, 24, 2)])
    while one.pending:
        told += one.step(100)
    told += one.step(1000)
    for tell in told:
        if tell.link == NORTH:
            other.learn(SOUTH, tell.update)
    for n in range(1, 24, 2):
        assert other.route({"x": n + 1.5, "y": 39.0}, None) == {SOUTH}
        assert other.route({"x": n + 1.5, "y": 39.0}, SOUTH) == set()
    one.check()
    other.check()


@pytest.mark.parametrize("options", VARIANTS, ids=shown)
def test_neighbours_that_differ_in_an_option_are_refused_with_its_name(options: dict[str, Any]) -> None:
    mine, plain = table(**options), table(name=options["name"])
    assert mine.fingerprint != plain.fingerprint
    theirs = LinkHello(name="b", to="a", role="peer", fingerprint=plain.fingerprint, settings=plain.settings)
    named = "|".join(rf"model\.{name} is" for name in options if name != "name")
    with pytest.raises(AccessError, match=rf"a and b differ: ({named}) .* at a and .* at b; configure both"):
        check_agreement("a", mine, (), Role.PEER, theirs)
    same = LinkHello(name="b", to="a", role="peer", fingerprint=mine.fingerprint, settings=mine.settings)
    check_agreement("a", table(**options), (), Role.PEER, same)


@pytest.mark.parametrize("name", MODELS)
def test_without_options_nothing_is_added_to_the_fingerprint(name: str) -> None:
    assert "options" not in table(name=name).fingerprint
    assert engine_of(table(name=name)).chosen == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "covring"}, "model.name is 'covring', which is not a model: did you mean 'covering'"),
        ({"name": "covering", "gap": 2}, "model.gap is an option of mics, not of covering"),
        ({"name": "simple", "structure": "poset"}, "model.structure is an option of covering, merging and mics-exact"),
        ({"name": "merging", "added_volume": 1.5}, "model.added_volume is 1.5; give a share from 0 to 1"),
        ({"name": "merging", "saturation": 9}, "model.saturation needs model.added_volume"),
        ({"name": "negative", "zeta": True}, "model.zeta needs model.k"),
        ({"name": "negative", "selection": "cost"}, "model.selection needs model.k"),
        ({"name": "dls", "hashes": 2}, "model.hashes needs model.counters"),
        ({"name": "dls", "growth": 0.0}, "model.growth is 0.0; give a share above 0"),
        ({"name": "mics", "cells": 1}, "model.cells is 1; give at least 2"),
        ({"name": "mics", "attributes": ("q",)}, "the schema has no attribute 'q'"),
        ({"name": "mics", "cuts": ("x 5 4",)}, "must ascend"),
        ({"name": "mics", "cuts": ("x five",)}, "is not an attribute and its boundaries"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as error:
        table(**options)
    assert sentence in str(error.value)


def test_cells_need_a_schema() -> None:
    with pytest.raises(SchemaError, match="give a schema"):
        table_with(ModelOptions("mics", cells=8))


# -- what an option changes ---------------------------------------------------------------------------


def told_after(texts: list[str], **options: Any) -> list[str]:
    made = table(**options)
    made.attach(NORTH)
    made.change({SubId(number): parse(text) for number, text in enumerate(texts)}, ())
    while made.pending:
        made.step(1000)
    return [str(item) for item in made.told(NORTH).values()]


def test_a_forest_of_local_clients_hides_covered_subscriptions_from_any_model() -> None:
    texts = ["x > 5", "x > 7", "x > 9"]
    assert len(told_after(texts, name="simple")) == 3
    assert told_after(texts, name="simple", local="forest") == ["x > 5"]


def test_merged_local_clients_are_fewer_still() -> None:
    texts = ["x < 5 AND y = 1", "x >= 5 AND y = 1"]
    assert len(told_after(texts, name="simple", local="forest")) == 2
    assert len(told_after(texts, name="simple", local="merged")) == 1


@pytest.mark.parametrize(("structure", "searches"), [("forest", True), ("poset", False)])
def test_a_poset_searches_nothing_when_another_root_covers_what_was_below_the_removed_one(
    structure: str, searches: bool
) -> None:
    placed = 0
    for gone in (1, 2):  # a forest has everything below one of the two
        made = table(name="covering", structure=structure)
        made.attach(NORTH)
        made.change({SubId(1): parse("x > 0"), SubId(2): parse("x < 90")}, ())
        made.change({SubId(n): parse(f"x BETWEEN 10 AND {n}") for n in range(11, 80)}, ())
        covers = engine_of(made).covers  # type: ignore[attr-defined]
        before = covers.compared
        found: list[int] = []
        covers._place = lambda node, mask, place=covers._place, found=found: (found.append(mask), place(node, mask))[1]
        made.change({}, [SubId(gone)])
        while made.pending:
            made.step(1000)
        made.check()
        assert len(made.told(NORTH)) == 1
        assert covers.compared >= before
        placed += sum(map(bool, found))
    assert (placed > 0) == searches


def test_the_tests_of_an_event_are_bounded_and_what_is_assumed_is_counted() -> None:
    made = table(name="covering", tests=2)
    for link, low in ((NORTH, 0), (SOUTH, 50)):
        made.attach(link)
        items = {n: parse(f"x BETWEEN {low + n} AND {low + n + 0.5}") for n in range(20)}
        made.learn(link, Update(fresh=True, add=items))  # type: ignore[arg-type]
    assert made.route({"x": 999.0}, None) == {NORTH, SOUTH}, "nobody wants it, and that takes forty tests"
    assert engine_of(made).assumed == 1
    assert table(name="covering").route({"x": 999.0}, None) == set()


def test_mergers_stay_within_their_sources() -> None:
    for scope, items in (("root-set", 1), ("local", 2), ("aggregate", 2)):
        made = table(name="merging", scope=scope)
        for link in (NORTH, SOUTH):
            made.attach(link)
        made.change({SubId(1): parse("x < 10 AND y = 1")}, ())
        made.learn(SOUTH, Update(fresh=True, add={1: parse("x >= 10 AND y = 1")}))  # type: ignore[dict-item]
        assert len(made.told(NORTH)) == items, scope


def test_fewer_items_for_more_volume_or_larger_gaps() -> None:
    texts = [f"x BETWEEN {n} AND {n + 0.5} AND y < {n + 5}" for n in range(0, 90, 3)]
    assert len(told_after(texts, name="merging", added_volume=0.5)) < len(told_after(texts, name="merging"))
    assert len(told_after(texts, name="mics", gap=50)) < len(told_after(texts, name="mics"))
    assert len(told_after(texts, name="dls", bundle=4)) > len(told_after(texts, name="dls"))
