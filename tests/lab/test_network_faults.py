"""Networks of brokers under simulated faults: every seed keeps every promise, and everything that can happen does."""

from __future__ import annotations

from random import Random
from xml.etree import ElementTree

import pytest

from lab.link_traffic import compare_traffic
from strategies import EXAMPLES
from weft.routing.registry import MODELS
from weft.routing.table import Role
from weftlab.faults.campaign import MANY_BROKERS, Setting, run_seed, run_seeds
from weftlab.faults.plan import FAULTS, LINK_FAULTS, NETWORK_OPERATIONS, draw_network_plan
from weftlab.faults.shape import EVENTS, Shape, draw_shape
from weftlab.faults.trace import InterestUpdate
from weftlab.faults.update_picture import update_picture

# A few seeds in which everything occurs, or many.
SEEDS = [*range(6), 9, 10, 11, 21, 26, 28, 30, 31, 33, 35, 55] if EXAMPLES == 1 else range(40 * EXAMPLES)
SMALL = Setting(steps=30, network=True)

OCCUR = {
    "turns of several reads",
    "fault: link cut",
    "fault: link cut in use",
    "fault: link half-open",
    "fault: link dialled twice",
    "fault: link reads slowly",
    "fault: resync cut midway",
    "fault: partition",
    "fault: detach",
    "fault: stale hello",
    "fault: backup restored",
    "link: items added",
    "link: items dropped",
    "link: events",
    "received: AskSpace",
    "received: PublishPlaced",
    "sent: Complete",
    "sent: Incomplete",
    "sent: LinkLoose",
    "sent: LinkPing",
    "sent: OfferedSpace",
    "walked: complete",
    "walked: still complete",
    "core: control queues overflown",
    "core: link duplicates",
    "core: links refused",
    "core: links taken over",
    "promise: withdrawn",
    "promise: renewed",
}


def test_every_promise_is_kept_by_networks_and_everything_occurs() -> None:
    found = run_seeds(SEEDS, SMALL)
    assert found.failures == {}
    planned = (*FAULTS, *LINK_FAULTS, *NETWORK_OPERATIONS)
    assert {f"step: {what}" for what in planned} <= set(found.counts)
    assert set(found.counts) >= OCCUR
    run = {what.removesuffix(" with advertisements") for what in found.counts}
    assert {f"model: {name}" for name in MODELS} <= run
    assert any(what.endswith(" with advertisements") for what in found.counts)


@pytest.mark.parametrize(
    "seed",
    [18, 339, 801046, 900566, *(pytest.param(each, marks=pytest.mark.slow) for each in (60005, 60075, 60282, 800141))],
)
def test_seeds_that_once_failed(seed: int) -> None:
    assert not run_seed(seed, MANY_BROKERS).failure


@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_keeps_every_promise(model: str, advertised: bool) -> None:
    seed = list(MODELS).index(model)
    found = run_seeds([seed], Setting(30, network=True, brokers=3, model=model, advertised=advertised))
    assert found.failures == {}


def test_a_network_of_label_sets_is_retuned_while_it_runs() -> None:
    found = run_seeds((4, 13), Setting(40, network=True, brokers=3, model="dls"))
    assert found.failures == {}
    assert found.counts["op: re-tuned"]


@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_links_carry_what_tables_exchange(model: str, advertised: bool) -> None:
    shape = draw_shape(Random(5), clients=4, brokers=4, model=model, advertised=advertised)
    over_links, alone = compare_traffic(5, shape)
    assert over_links == alone
    assert alone.events
    assert bool(alone.added) == (advertised or model != "flooding")


def test_other_tables_would_exchange_something_else() -> None:
    shape = draw_shape(Random(5), clients=4, brokers=4, model="covering", advertised=False)
    covering, alone = compare_traffic(5, shape)
    simple, _ = compare_traffic(5, shape._replace(model="simple"))
    assert simple.added > covering.added == alone.added
    flooding, _ = compare_traffic(5, shape._replace(model="flooding"))
    assert flooding.events > covering.events == alone.events


def test_a_choice_changes_no_other_draw() -> None:
    plain, chosen = draw_network_plan(9), draw_network_plan(9, model="simple")
    assert plain.steps == chosen.steps
    assert plain.shape._replace(model="simple") == chosen.shape


def test_a_tree_is_connected() -> None:
    for seed in range(50):
        shape = draw_network_plan(seed).shape
        assert 3 <= shape.brokers <= 12
        assert all(near < far for near, far, _ in shape.links)
        assert len(list(shape.links)) == shape.brokers - 1
        assert max(shape.homes) < shape.brokers


def test_the_walk_samples_every_event_once() -> None:
    assert len(EVENTS) == len({tuple(event.items()) for event in EVENTS}) == 24


def test_the_picture_shows_who_told_whom() -> None:
    shape = Shape((0, 0, 1), (Role.PEER,) * 3)
    updates = [
        InterestUpdate(1000, "b4", "b2", "+1 x < 4 AND y = 'a & b'"),
        InterestUpdate(2000, "b2", "b1", "+1 x < 4"),
        InterestUpdate(3000, "b1", "b3", "-1"),
        InterestUpdate(4000, "b1", "b3", "that is all"),
    ]
    root = ElementTree.fromstring(update_picture(shape, updates, "Seed <1>"))
    names = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text") if each.get("class") == "name"]
    arrows = [each for each in root.iter("{http://www.w3.org/2000/svg}line") if each.get("marker-end")]
    assert names == ["b4", "b2", "b1", "b3"]
    assert [each.get("class") for each in arrows] == ["add", "add", "drop", "done"]
    place = {name: 96 + 210 * (at + 0.5) for at, name in enumerate(names)}
    assert [(float(each.get("x1", 0)), float(each.get("x2", 0))) for each in arrows] == [
        (place[one.sender], place[one.receiver]) for one in updates
    ]
    assert any("y = 'a & b'" in (each.text or "") for each in root.iter("{http://www.w3.org/2000/svg}title"))
