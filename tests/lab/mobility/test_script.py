"""Scripts: drawn from a seed, stored in files, refused if they cannot be played."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from weft.errors import WeftError
from weftlab.mobility.script import (
    HOUR,
    ClientSpec,
    InterestStep,
    MobilityArea,
    Movers,
    PublishStep,
    RelocateStep,
    Script,
    ScriptSettings,
    busy,
    generate_script,
)
from weftlab.mobility.topology import BrokerTree, find_topology

TREE = BrokerTree(find_topology("regions"))


def script(settings: ScriptSettings, seed: int = 1) -> Script:
    return generate_script(TREE, settings, np.random.default_rng(seed))


def test_the_defaults_are_those_of_the_thesis() -> None:
    made = script(ScriptSettings())
    moves = [step for step in made.steps if isinstance(step, RelocateStep)]
    assert len(moves) == len(made.steps) == 100
    assert {b.at - a.at for a, b in pairwise(moves)} == {HOUR}
    assert {step.away for step in moves} == {HOUR // 2}
    assert sum(not each.publishes for each in made.clients) == 50


def test_border_mobility_stays_at_edge_brokers_and_rendezvous_points_do_not() -> None:
    made = script(ScriptSettings(kinds=3))
    edge = set(TREE.leaves)
    assert {each.at for each in made.clients} <= edge
    assert {step.to for step in made.steps if isinstance(step, RelocateStep)} <= edge
    assert len(made.rendezvous) == 3
    assert not edge & set(made.rendezvous)
    everywhere = script(ScriptSettings(area=MobilityArea.FULL, moves=300))
    assert {step.to for step in everywhere.steps if isinstance(step, RelocateStep)} - edge


def test_nobody_moves_to_where_it_is() -> None:
    made = script(busy(movers=Movers.BOTH, moves=200))
    at = {each.name: each.at for each in made.clients}
    for step in made.steps:
        if isinstance(step, RelocateStep):
            assert step.to != at[step.client]
            at[step.client] = step.to


def test_events_are_published_around_moves_and_other_subscriptions_come_and_go() -> None:
    made = script(busy(moves=50))
    assert sum(isinstance(step, PublishStep) for step in made.steps) == 400
    interests = [step for step in made.steps if isinstance(step, InterestStep)]
    assert sum(bool(step.filter) for step in interests) == sum(not step.filter for step in interests) == 100


def test_a_file_holds_the_same_script_byte_for_byte(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    script(busy(moves=20, kinds=2)).save(one)
    script(busy(moves=20, kinds=2)).save(other)
    assert one.read_bytes() == other.read_bytes()
    assert Script.load(one) == script(busy(moves=20, kinds=2))
    assert script(busy(moves=20), 2) != script(busy(moves=20), 3)


def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.jsonl"
    script(busy(moves=2)).save(path)
    path.write_bytes(path.read_bytes().replace(b'"do":"move"', b'"do":"fly"', 1))
    with pytest.raises(WeftError, match=r"line [0-9]+, is not part of a mobility script"):
        Script.load(path)
    path.write_bytes(b"")
    with pytest.raises(WeftError, match="line 1"):
        Script.load(path)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([RelocateStep(5, "s1", 9, 0)], "there is no broker 9"),
        ([RelocateStep(5, "s2", 1, 0)], "there is no client 's2'"),
        ([RelocateStep(5, "s1", 1, 0), RelocateStep(4, "s1", 0, 0)], "not in the order of time"),
        ([RelocateStep(5, "s1", 1, -1)], "arrives before it leaves"),
        ([PublishStep(5, "s1", 3)], "it is a subscriber"),
        ([PublishStep(5, "p1", 3, 2)], "there is no type 2"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused(steps: list[RelocateStep], said: str) -> None:
    clients = (ClientSpec("s1", False, 0, "x > 1"), ClientSpec("p1", True, 0, "x > 1"))
    with pytest.raises(WeftError, match=said):
        Script(3, (1,), clients, tuple(steps))
