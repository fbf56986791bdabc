"""Protocols on light brokers: the safe ones lose nothing with traffic during moves, the others are caught."""

from __future__ import annotations

import json
from functools import lru_cache, partial

import numpy as np
import pytest

from weft.errors import WeftError
from weft.language.meaning import matches
from weft.routing.table import About, Link
from weftlab.mobility.campaign import NetworkSettings, prepared
from weftlab.mobility.cores import CoreWorld
from weftlab.mobility.light import LightWorld
from weftlab.mobility.protocol import Protocol
from weftlab.mobility.protocols import PROTOCOLS, RUNNERS, MobilityOutcome, outcome_of, run_world
from weftlab.mobility.script import (
    ClientSpec,
    MobilityArea,
    Movers,
    PublishStep,
    RelocateStep,
    Script,
    ScriptSettings,
    busy,
    generate_script,
)
from weftlab.mobility.topology import BrokerTree, Topology, broker, generated
from weftlab.mobility.trace import MobileEvent, judge
from weftlab.mobility.weft_protocol import WeftMove
from weftlab.mobility.world import ClientHandover, Phase

SMALL = NetworkSettings(areas=3, routers=4)
SEEDS = range(3)
EVERY = [(name, movers) for name, info in PROTOCOLS.items() for movers in Movers if info.moves(movers)]


@lru_cache
def total(name: str, movers: Movers, seeds: range = SEEDS, moves: int = 24) -> MobilityOutcome:
    found = MobilityOutcome(name)
    for seed in seeds:
        found.add(RUNNERS[name](*prepared(SMALL, busy(moves=moves, movers=movers, kinds=2), seed), None))
    return found


@pytest.mark.parametrize(("name", "movers"), EVERY)
def test_every_move_ends_within_its_bounds_and_nobody_is_notified_wrongly(name: str, movers: Movers) -> None:
    outcome = total(name, movers)
    assert outcome.moves > 50
    assert outcome.due > 500
    assert outcome.unfinished == 0
    assert (outcome.above, outcome.below) == (0, 0)
    assert outcome.safe


@pytest.mark.parametrize(("name", "movers"), [each for each in EVERY if PROTOCOLS[each[0]].safe])
def test_a_safe_protocol_loses_nothing(name: str, movers: Movers) -> None:
    assert total(name, movers).lost == 0


@pytest.mark.parametrize("movers", Movers)
def test_all_safe_protocols_deliver_the_same(movers: Movers) -> None:
    safe = [name for name, kind in EVERY if kind is movers and PROTOCOLS[name].safe]
    assert len(safe) > 5
    assert len({tuple(total(name, movers).delivered) for name in safe}) == 1
    if movers is Movers.SUBSCRIBERS:
        assert total("device", movers).delivered != total("weft", movers).delivered


@pytest.mark.parametrize(
    "name",
    [
        "acyclic-complete",
        "rp-complete",
        "cyclic-rp-complete",
        "four-phases",
        "device",
        "logging",
        "prefetching",
    ],
)
def test_an_unsafe_protocol_of_subscribers_is_seen_to_lose(name: str) -> None:
    outcome = total(name, Movers.SUBSCRIBERS)
    assert outcome.lost > 0
    assert sum(outcome.losses.values()) == outcome.lost
    assert not outcome.live


@pytest.mark.parametrize("name", ["tear-down", "delayed"])
def test_an_unsafe_protocol_of_publishers_is_seen_to_lose(name: str) -> None:
    assert total(name, Movers.PUBLISHERS).lost > 0


def test_chained_rendezvous_points_differ_from_others_only_with_several_types() -> None:
    for kinds, same in ((1, True), (3, False)):
        scene = prepared(SMALL, busy(moves=20, kinds=kinds), 1)
        one, other = (RUNNERS[name](*scene, None).to_dict() for name in ("cyclic-rp", "cyclic-rp-chained"))
        assert (one["hops"] == other["hops"]) is same


@pytest.mark.parametrize("movers", Movers)
def test_ours_keeps_order_and_delivers_nothing_twice(movers: Movers) -> None:
    for name in ("weft", "weft-make"):
        outcome = total(name, movers)
        assert (outcome.duplicates, outcome.disordered) == (0, 0)


def test_make_before_break_interrupts_for_a_shorter_time() -> None:
    broken, made = (total(name, Movers.SUBSCRIBERS).mean("pauses") for name in ("weft", "weft-make"))
    assert 0 < made < broken / 2


def test_the_same_seed_gives_the_same_result_byte_for_byte() -> None:
    scene = prepared(SMALL, busy(moves=20, movers=Movers.BOTH), 3)
    for name in ("ping-pong", "acyclic", "weft"):
        one, other = (json.dumps(RUNNERS[name](*scene, None).to_dict(), sort_keys=True) for _ in range(2))
        assert one == other


def test_without_traffic_the_covering_optimisation_loses_nothing() -> None:
    """The thesis moves once an hour and publishes nothing meanwhile, which hides what its optimisation loses."""
    rng = np.random.default_rng(1)
    tree = BrokerTree(generated(3, 5, rng))
    settings = ScriptSettings(subscribers=8, moves=40, events=3, window=900_000_000, area=MobilityArea.FULL)
    for name in ("acyclic-complete", "rp-complete"):
        outcome = RUNNERS[name](tree, generate_script(tree, settings, np.random.default_rng(2)), None)
        assert outcome.skipped > 5
        assert outcome.lost == 0


# -- a line of brokers, step by step -------------------------------------------------------------------

LINE = BrokerTree(Topology("line", 5, tuple((at, at + 1, 1_000) for at in range(4))))  # 3 ms a hop


def on_line(
    name: str, *steps: RelocateStep | PublishStep, subscriber: int = 0, publisher: int = 4, point: int = 2
) -> LightWorld:
    clients = (ClientSpec("s1", False, subscriber, "x >= 0"), ClientSpec("p1", True, publisher, "x >= 0"))
    return run_world(name, LINE, Script(5, (point,), clients, steps))[1]


def test_the_latency_of_an_update_is_the_way_to_the_source_and_the_transfer_back() -> None:
    world = on_line("acyclic-overlay", RelocateStep(10_000, "s1", 3, 5_000))
    (handover,) = world.handovers
    assert handover.finished - handover.started == 3 * 3_000 + 3 * 1_000
    assert handover.left - world.began == 10_000
    assert handover.updated_nodes == 2
    assert handover.hops[Phase.SYNCHRONISE, "update"] == 3
    assert handover.hops[Phase.TRANSFER, "transfer"] == 1
    assert handover.signals == sum(handover.hops.values())


def test_flooding_knows_no_direction_if_nobody_advertises_what_the_client_wants() -> None:
    clients = (ClientSpec("s1", False, 0, "x < 0"), ClientSpec("p1", True, 4, "x >= 0"))
    _, world = run_world("acyclic", LINE, Script(5, (2,), clients, (RelocateStep(10_000, "s1", 3, 5_000),)))
    (handover,) = world.handovers
    assert handover.unlocated
    assert handover.finished - handover.started == 12_000


def test_ping_pong_floods_both_advertisements_and_takes_a_period() -> None:
    world = on_line("ping-pong", RelocateStep(10_000, "s1", 3, 500_000))
    (handover,) = world.handovers
    assert {group: len(nodes) for group, nodes in handover.updated.items() if group.startswith("adv")} == {
        "advertisements of ping": 3,
        "advertisements of pong": 3,
    }
    assert handover.rounds == 1
    assert handover.finished - handover.started > 100_000


def test_an_event_in_flight_is_lost_if_the_source_is_asked_beside_the_tree() -> None:
    """Gap G1 of the printed algorithm: the target has the subscription already, so it asks the source directly."""
    clients = (
        ClientSpec("s1", False, 0, "x >= 0"),
        ClientSpec("s2", False, 3, "x >= 0"),
        ClientSpec("p1", True, 4, "x >= 0"),
    )
    # at 40 ms the event leaves 4, at 43 ms it passes 3, at 52 ms it reaches 0; at 45 ms the client arrives at 3
    steps = (RelocateStep(35_000, "s1", 3, 10_000), PublishStep(40_000, "p1", 1))
    script = Script(5, (2,), clients, steps)
    lost = {
        name: RUNNERS[name](LINE, script, None).lost for name in ("acyclic-complete-overlay", "acyclic-overlay", "weft")
    }
    assert lost == {"acyclic-complete-overlay": 1, "acyclic-overlay": 0, "weft": 0}


def test_an_event_in_flight_is_lost_if_the_rendezvous_point_notifies_beside_the_tree() -> None:
    # the event passes 3 at 43 ms and 2, the point, at 46 ms; the update passes them half a millisecond later
    steps = (RelocateStep(20_000, "s1", 3, 23_500), PublishStep(40_000, "p1", 1))
    lost = {name: len(judge(on_line(name, *steps).trace).lost) for name in ("rp-beside", "rp", "cyclic-rp")}
    assert lost == {"rp-beside": 1, "rp": 0, "cyclic-rp": 0}


def test_a_publisher_that_publishes_at_once_is_not_heard() -> None:
    steps = (RelocateStep(10_000, "p1", 0, 5_000), PublishStep(15_001, "p1", 1))
    worlds = {
        name: on_line(name, *steps, subscriber=4, publisher=2) for name in ("delayed", "tear-down", "weft", "proxy")
    }
    lost = {name: len(judge(world.trace).lost) for name, world in worlds.items()}
    assert lost == {"delayed": 1, "tear-down": 1, "weft": 0, "proxy": 0}


def test_who_moves_again_at_once_waits_for_the_end_of_its_hand_over() -> None:
    world = on_line("weft", RelocateStep(10_000, "s1", 3, 0), RelocateStep(10_001, "s1", 1, 0))
    first, second = world.handovers
    assert second.left == first.finished
    assert world.clients["s1"].at == 1


@pytest.mark.parametrize("name", [name for name, info in PROTOCOLS.items() if info.kind.subscribers])
def test_moving_there_and_back_leaves_the_tables_as_they_were(name: str) -> None:
    moves = [RelocateStep(1_000_000 * at, "s1", to, 1000) for at, to in enumerate((3, 1, 4, 0), 1)]
    still, moved = on_line(name), on_line(name, *moves)
    assert len(moved.handovers) == 4
    assert _contents(moved) == _contents(still)


@pytest.mark.parametrize("name", [name for name, info in PROTOCOLS.items() if info.kind.publishers])
def test_a_publisher_that_moves_there_and_back_leaves_the_tables_as_they_were(name: str) -> None:
    moves = [RelocateStep(5_000_000 * at, "p1", to, 1000) for at, to in enumerate((3, 1, 0, 4), 1)]
    still, moved = on_line(name), on_line(name, *moves)
    assert len(moved.handovers) == 4
    assert _contents(moved) == _contents(still)


def _contents(world: LightWorld | CoreWorld) -> dict[tuple[int, int, str, About], set[str]]:
    found = {}
    if isinstance(world, CoreWorld):
        world.network.check()
        for at in range(world.tree.size):
            core = world.network[broker(at)].core
            for link in core.links():
                for about in About:
                    heard = core.table.heard(Link(link.peer), about).values()
                    found[0, at, link.peer, about] = {str(item) for item in heard}
        return found
    for plane in world.planes:
        for at in range(plane.tree.size):
            table = plane.network.table(broker(at))
            table.check()
            for link in plane.network.links(broker(at)):
                for about in About:
                    found[plane.number, at, str(link), about] = {
                        str(item) for item in table.heard(Link(link), about).values()
                    }
    return found


@pytest.mark.parametrize("name", PROTOCOLS)
def test_warm_up_is_complete_and_tables_are_whole_at_the_end(name: str) -> None:
    movers = Movers.SUBSCRIBERS if PROTOCOLS[name].kind.subscribers else Movers.PUBLISHERS
    tree, script = prepared(SMALL, busy(moves=6, movers=movers, kinds=2), 5)
    world = LightWorld(tree, script, PROTOCOLS[name].kind)
    world.warm_up()
    for client in world.clients.values():
        for plane in world.planes if client.spec.publishes else ():
            (reached,) = plane.network.arrivals([{"x": 50}], broker(client.at))
            wanted = [other for other in world.clients.values() if other.mailbox and matches(other.filter, {"x": 50})]
            assert {broker(other.at) for other in wanted} <= reached
    world = LightWorld(tree, script, PROTOCOLS[name].kind)
    world.run()
    assert len(world.handovers) >= 5
    for plane in world.planes:
        plane.network.check()


# -- what is refused -----------------------------------------------------------------------------------


def test_a_protocol_is_not_given_clients_that_it_cannot_move() -> None:
    with pytest.raises(WeftError, match="device does not move publishers"):
        on_line("device", RelocateStep(1, "p1", 0, 0))
    with pytest.raises(WeftError, match="proxy does not move subscribers"):
        on_line("proxy", RelocateStep(1, "s1", 3, 0))


def test_a_script_for_another_network_is_refused() -> None:
    script = Script(7, (2,), (ClientSpec("s1", False, 0, "x >= 0"),), ())
    with pytest.raises(WeftError, match="for 7 brokers, and the topology has 5"):
        RUNNERS["weft"](LINE, script, None)


# -- mutants of our protocol ---------------------------------------------------------------------------


class FlushBeside(WeftMove):
    """The marker overtakes events."""

    def _stated(self, handover: ClientHandover) -> None:
        self.set_up(handover)
        with self.world.acting(handover, Phase.SYNCHRONISE):
            self.world.beside(handover.target, handover.source, "flush", partial(self._flushed, handover))


class SeenIgnored(WeftMove):
    """The target keeps what the source had."""

    def _asked(self, handover: ClientHandover) -> None:
        self._to_target(handover, "state", self._stated)


class PublishesEarly(WeftMove):
    """The publisher does not wait for the end."""

    def _stated(self, handover: ClientHandover) -> None:
        super()._stated(handover)
        if handover.client.spec.publishes:
            self.publish_here(handover)


class CollectedFirst(WeftMove):
    """What the target has collected is delivered before what it inherits."""

    def take(self, handover: ClientHandover, items: list[MobileEvent]) -> None:  # type: ignore[override]
        self.new(handover).open()
        super().take(handover, items)


def _mutant(kind: type[Protocol], movers: Movers, seeds: range = range(5)) -> MobilityOutcome:
    found = MobilityOutcome("weft")
    for seed in seeds:
        tree, script = prepared(SMALL, busy(moves=30, movers=movers), seed)
        world = LightWorld(tree, script, kind)
        world.run()
        outcome = outcome_of("weft", world.trace, world.handovers)
        outcome.duplicates = sum(client.duplicates for client in world.clients.values())
        found.add(outcome)
    return found


@pytest.mark.parametrize(
    ("kind", "movers", "symptom"),
    [
        (FlushBeside, Movers.SUBSCRIBERS, "lost"),
        (SeenIgnored, Movers.SUBSCRIBERS, "duplicates"),
        (PublishesEarly, Movers.PUBLISHERS, "lost"),
        (CollectedFirst, Movers.SUBSCRIBERS, "disordered"),
    ],
)
def test_a_mutant_of_our_protocol_is_caught(kind: type[Protocol], movers: Movers, symptom: str) -> None:
    assert getattr(_mutant(kind, movers), symptom) > 0
