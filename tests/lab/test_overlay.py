"""The overlay simulator: figures worked out by hand, every model on every kind of network, no lost event."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from weft import parse
from weft.errors import ProtocolError, SchemaError, WeftError
from weft.index.base import SubId
from weft.language.text import parse_many
from weft.model.schema import Schema
from weft.network.tables import BrokerId
from weft.routing.simple.table import SimpleTable
from weftlab.overlay import chart
from weftlab.overlay.overlay import (
    MODELS,
    NEED_BOUNDS,
    Expected,
    ModelOutcome,
    OverlayTraffic,
    PlacedEvent,
    PlacedSubscription,
    Scenario,
    scenario,
    simulate,
)
from weftlab.overlay.range_workloads import WORKLOADS
from weftlab.overlay.trees import SHAPES, Paths, brokers, tree

B1, B2, B3 = brokers(3)
CHAIN = tree("chain", 3, np.random.default_rng(1))

FREE = [name for name in MODELS if name not in NEED_BOUNDS]


def by_hand(**options: object) -> Scenario:
    """At one end somebody wants x > 0 and somebody x > 5; events come from the other end and from the middle."""
    return Scenario(
        CHAIN,
        [PlacedSubscription(B1, parse("x > 0")), PlacedSubscription(B1, parse("x > 5"))],
        options.pop("leaving", []),
        [PlacedEvent(B3, {"x": 3}), PlacedEvent(B2, {"x": -1}), PlacedEvent(B2, {"x": 9})],
        **options,
    )


def played(given: Scenario, model: str) -> ModelOutcome:
    return simulate(given, model, Expected(given), check=True)


def traffic(phase: OverlayTraffic) -> tuple[int, int, int]:
    return phase.updates, phase.told, phase.dropped


def test_a_chain_worked_out_by_hand() -> None:
    simple, covering, flooding = (played(by_hand(), model) for model in ("simple", "covering", "flooding"))
    assert traffic(simple.subscribing) == (4, 4, 0)  # each over two links
    assert traffic(covering.subscribing) == (2, 2, 0)  # the second is covered where it comes in
    assert traffic(flooding.subscribing) == (0, 0, 0)
    assert (simple.heard, simple.told, simple.largest) == (4, 4, 2)
    assert (covering.heard, covering.told, covering.largest) == (2, 2, 1)
    for each in (simple, covering, flooding):
        assert each.deliveries == 3
        assert each.ideal == 3  # two links, none, one
        assert each.flooded == 6
    assert (simple.messages, simple.false_positives) == (3, 0)
    assert (flooding.messages, flooding.false_positives) == (6, 3)
    assert simple.to_dict()["of_flooding"] == 0.5
    assert flooding.to_dict()["of_ideal"] == 2
    assert simple.comparisons is None
    assert covering.comparisons is not None


def test_what_a_client_had_covered_is_told_when_it_leaves() -> None:
    outcome = played(by_hand(leaving=[SubId(0)]), "covering")
    assert traffic(outcome.leaving) == (2, 2, 2)  # on two links: x > 0 goes, x > 5 comes
    assert outcome.deliveries == 1


def test_what_two_had_covered_is_told_to_the_one_that_is_left() -> None:
    wide, other, narrow = (parse(f"x BETWEEN {low} AND {high}") for low, high in ((0, 20), (5, 30), (8, 12)))
    for model in FREE:
        given = Scenario(
            CHAIN,
            [PlacedSubscription(B1, wide), PlacedSubscription(B2, narrow), PlacedSubscription(B3, other)],
            [SubId(0)],
            [PlacedEvent(B3, {"x": 10})],
        )
        assert played(given, model).deliveries == 2


def test_a_master_gets_every_event_and_tells_nothing() -> None:
    outcome = played(by_hand(hierarchy=True), "simple")
    assert traffic(outcome.subscribing) == (0, 0, 0)  # the only clients are at the root
    assert (outcome.messages, outcome.ideal, outcome.false_positives) == (4, 3, 1)  # x = -1 goes up all the same


def test_nothing_is_told_towards_brokers_without_publishers() -> None:
    given = Scenario(CHAIN, [PlacedSubscription(B1, parse("x > 0"))], [], [PlacedEvent(B2, {"x": 1})], advertised=True)
    outcome = played(given, "simple")
    assert traffic(outcome.advertising) == (2, 2, 0)
    assert traffic(outcome.subscribing) == (1, 1, 0)
    assert outcome.deliveries == 1


NETWORKS = {
    "peers": {"churn": 0.4},
    "hierarchy": {"hierarchy": True, "churn": 0.2},
    "advertised": {"advertised": True, "publishers": 2},
}


@cache
def drawn(kind: str) -> tuple[Scenario, Expected]:
    """A network with a workload, and what is expected of every model."""
    rng = np.random.default_rng(5)
    workload = WORKLOADS["zipf"](40, 30, seed=3)
    filters, events = parse_many(workload.texts()), workload.table.to_pylist()
    given = scenario(tree("random", 5, rng), filters, events, rng, **NETWORKS[kind])
    return given, Expected(given)


@pytest.mark.parametrize("model", FREE)
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_model_delivers_everything(model: str, kind: str) -> None:
    given, expected = drawn(kind)
    outcome = simulate(given, model, expected, check=True)
    assert outcome.deliveries == len(expected.deliveries) > 0
    assert outcome.messages <= outcome.flooded
    assert bool(outcome.comparisons) == model.startswith(("covering", "merging"))
    if model != "flooding" and kind != "hierarchy":
        assert outcome.messages == outcome.ideal, "an exact table among peers sends no event in vain"


def test_the_same_seed_gives_the_same_figures() -> None:
    def figures() -> dict[str, object]:
        rng = np.random.default_rng(7)
        workload = WORKLOADS["uniform"](40, 20, seed=7)
        given = scenario(
            tree("random", 6, rng), parse_many(workload.texts()), workload.table.to_pylist(), rng, churn=0.5
        )
        facts = played(given, "covering").to_dict()
        return {
            name: traffic(OverlayTraffic(**value)) if isinstance(value, dict) else value
            for name, value in facts.items()
            if name != "publishing_seconds"
        }

    assert figures() == figures()


class Forgetful(SimpleTable):
    """Tells nobody anything."""

    def wanted(self, link):
        return {}

    def revise(self, source, drop, add):
        return {}


def test_a_model_that_loses_an_event_is_found_out() -> None:
    given = by_hand()
    with pytest.raises(ProtocolError, match="forgetful lost 3 deliveries"):
        simulate(given, "forgetful", Expected(given), models={"forgetful": Forgetful})


def test_a_schema_is_kept_by_tables_and_delivery() -> None:
    schema = Schema.of(x="int")
    given = Scenario(
        CHAIN,
        [PlacedSubscription(B1, parse("x >= 1"))],
        [],
        [PlacedEvent(B3, {"x": 1}), PlacedEvent(B3, {"x": "1"})],
        schema,
    )
    for model in FREE:
        assert played(given, model).deliveries == 1


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    given = by_hand()
    simulate(given, "simple", Expected(given), progress=lambda *what: told.append(what))
    assert told == [("simple: subscriptions", 0, 2), ("simple: events", 0, 3)]


# -- trees and workloads -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_tree_is_connected_without_a_circle(shape: str, size: int) -> None:
    links = tree(shape, size, np.random.default_rng(3))
    assert len(links) == size - 1
    reached = {brokers(size)[0]}
    for near, far in links:
        assert near in reached, "a link goes away from the root"
        assert far not in reached
        reached.add(far)
    assert reached == set(brokers(size))


def test_the_fewest_links_share_their_way() -> None:
    star = Paths(tree("star", 5, np.random.default_rng(1)))
    one, two, three, *_ = brokers(5)
    assert star.fewest(two, []) == 0
    assert star.fewest(two, [two]) == 0
    assert star.fewest(two, [one]) == 1
    assert star.fewest(two, [three, one, three]) == 2
    assert Paths([]).fewest(BrokerId("b1"), [BrokerId("b1")]) == 0


def test_ranges_are_within_bounds_and_cover_each_other() -> None:
    for name in ("uniform", "zipf"):
        workload = WORKLOADS[name](300, 100, seed=2)
        for low, high in workload.bounds.values():
            assert (low >= 0).all()
            assert (low <= high).all()
            assert (high <= 255).all()
        assert len({*zip(*(high - low for low, high in workload.bounds.values()), strict=True)}) > 20
        again = WORKLOADS[name](300, 10, seed=2)
        assert again.texts() == workload.texts(), "fewer events, the same subscriptions"
        assert workload.table.slice(0, 0).num_columns == 3
    crowd = WORKLOADS["zipf"](2000, 2000, seed=2)
    assert (crowd.table.column("x").to_numpy() == 0).mean() > 0.1, "a popular place"


# -- charts ------------------------------------------------------------------------------------------


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcomes = [played(by_hand(), model) for model in ("flooding", "simple", "covering")]
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"bars{suffix}"
        chart.draw(outcomes, "three brokers", path)
        assert path.read_bytes().startswith(start)


def test_a_chart_that_cannot_be_drawn_is_refused_before_the_run(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(WeftError, match=r"name it \.png"):
        chart.check_chart(tmp_path / "bars.txt")
    with pytest.raises(WeftError, match="create it first"):
        chart.check_chart(tmp_path / "none" / "bars.png")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(WeftError, match=r"weft\[lab\]"):
        chart.check_chart(tmp_path / "bars.png")


@pytest.mark.parametrize("model", sorted(NEED_BOUNDS))
def test_cells_need_bounds_and_send_a_little_more(model: str) -> None:
    rng = np.random.default_rng(5)
    workload = WORKLOADS["zipf"](30, 40, seed=3)
    links, filters, events = tree("random", 5, rng), parse_many(workload.texts()), workload.table.to_pylist()
    bounded = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 255]} for name in "xyz"}})
    given = scenario(links, filters, events, rng, schema=bounded, churn=0.3)
    expected = Expected(given)
    outcome = simulate(given, model, expected, check=True)
    assert outcome.deliveries == len(expected.deliveries) > 0
    assert outcome.ideal <= outcome.messages < outcome.flooded
    with pytest.raises(SchemaError, match="give a schema"):
        played(scenario(links, filters, events, rng), model)
