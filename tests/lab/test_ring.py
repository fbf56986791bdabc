"""The simulated ring: routes are Chord's, every match is found in every design, costs add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import log2

import numpy as np
import pytest

from ring.network import Network
from weft.errors import OptionError
from weft.ring.chord import quiet_ring
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import Selection
from weft.ring.load_sharing import Sharing
from weftlab.ring.ring_claims import RingStudy
from weftlab.ring.ring_comparison import RingOptions, compare, designs, figures_of
from weftlab.ring.ring_design import RingDesign
from weftlab.ring.ring_model import RingModel
from weftlab.ring.ring_peers import compare_schemes
from weftlab.ring.ring_routes import RingRoutes
from weftlab.ring.ring_workload import RingWorkload, RingWorkloadSettings, ring_workload

SMALL = RingWorkloadSettings(nodes=40, ring=512, subscriptions=150, events=60, topics=3, schema=8, attributes=4)
WORKLOAD = ring_workload(SMALL, 1)


def test_routes_are_those_of_chord_nodes() -> None:
    network = Network(512, 1)
    nodes = quiet_ring(network.space, WORKLOAD.node_ids, 1)  # more successors would be short cuts
    network.nodes = {node.me.address: node for node in nodes}
    routes = RingRoutes(network.space, WORKLOAD.node_ids)
    for start in range(0, 40, 7):
        for key in range(0, 512, 13):
            route = routes.route(start, key)
            for recursive in (False, True):
                found = network.lookup(nodes[start], key, recursive=recursive)
                assert routes.owner(key) == nodes.index(network.nodes[found.owner.address])
                assert found.hops == len(route)
            assert (route[-1] if route else start) == routes.owner(key)
            assert len(route) == len(set(route)) <= 2 * 9
    assert routes.route(0, WORKLOAD.node_ids[0]) == ()


@pytest.mark.parametrize("nodes", [1, 2, 40])
def test_hops_of_many_routes_are_their_lengths(nodes: int) -> None:
    routes = RingRoutes(IdSpace(512), WORKLOAD.node_ids[:nodes])
    starts, keys = (each.ravel() for each in np.meshgrid(np.arange(nodes), np.arange(512)))
    lengths = [len(routes.route(start, key)) for start, key in zip(starts.tolist(), keys.tolist(), strict=True)]
    assert routes.hops(starts, keys).tolist() == lengths


@pytest.mark.parametrize("nodes", [100, 1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_look_ups_take_log2_n_hops_at_most_on_average(nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    space = IdSpace(1 << 32)
    routes = RingRoutes(space, sorted(rng.choice(space.size, nodes, replace=False).tolist()))
    hops = [len(routes.route(int(rng.integers(nodes)), int(rng.integers(space.size)))) for _ in range(2_000)]
    assert 0.4 * log2(nodes) < np.mean(hops) <= log2(nodes)


def test_the_workload_has_the_papers_means() -> None:
    workload = ring_workload(RingWorkloadSettings(), 3)
    given = workload.low >= 0
    sizes = (workload.high - workload.low + 1)[given]
    assert given.sum(axis=1).mean() == pytest.approx(3, abs=0.1)
    assert given.sum(axis=1).var() == pytest.approx(1.1, abs=0.15)
    assert sizes.mean() == pytest.approx(20, abs=0.2)
    assert sizes.var() == pytest.approx(5, abs=0.5)
    assert (workload.low[given] >= 0).all()
    assert (workload.high <= 99).all()
    counts = Counter(workload.topics.tolist())
    assert counts[0] / counts[9] == pytest.approx(10**0.6, rel=0.3)
    assert all(len(workload.matches(event)) for event in range(0, 9000, 500))


@pytest.mark.parametrize("sharing", Sharing)
@pytest.mark.parametrize("clusters", [False, True])
def test_every_match_is_found_whatever_the_design(sharing: Sharing, clusters: bool) -> None:
    for environment in ("busy", "free"):
        design = RingDesign(environment, clusters, depth=3, rotation=20, sharing=sharing, sharers=3, threshold=5)
        outcome = RingModel(WORKLOAD, design, 1).run()
        assert outcome.missed == 0
        assert outcome.matches == sum(len(WORKLOAD.matches(event)) for event in range(60))
        assert outcome.latency > 0
        assert (outcome.registration > 0) == clusters


def test_costs_and_latencies_by_hand() -> None:
    """One subscription at the other node; two events at the same time, the second of which waits twice."""
    space = IdSpace(16)
    owner = Intervals("a0", 0, 99, 1).key(0, space, "t0")
    other = (owner + 8) % 16
    ids = tuple(sorted((owner, other)))
    home = np.array([ids.index(other)])
    settings = RingWorkloadSettings(2, 16, 1, 2, topics=1, schema=1, attributes=1, intervals=1)
    zero, zeros = np.zeros((1, 1), np.int64), np.zeros((2, 1), np.int64)
    workload = RingWorkload(
        settings, ids, zero, zero[0], home, zero, zero + 9, zeros[:, 0], home.repeat(2), zeros + 5, np.array([1.0, 0.0])
    )
    outcome = RingModel(workload, RingDesign("free"), 1).run()
    assert outcome.storing == pytest.approx(0.001 + 0.001), "one hop, one subscription"
    assert outcome.delivery == pytest.approx(2 * 2 * 0.001), "two events at two nodes"
    assert outcome.matching == pytest.approx(2 * 0.001)
    assert outcome.cost == pytest.approx(0.008)
    assert outcome.elapsed == pytest.approx(0.008 + 3 * 2.0)
    assert outcome.latency == pytest.approx((2.003 + 2.005) / 2)


def test_a_run_is_the_same_for_a_seed() -> None:
    runs = [RingModel(WORKLOAD, RingDesign(selection=Selection.RANDOM), 5).run().to_dict() for _ in range(2)]
    assert runs[0] == runs[1]


def test_partition_divides_what_a_node_examines_and_replication_copies_it() -> None:
    plain, copied, parted = (
        RingModel(WORKLOAD, RingDesign(sharing=sharing, threshold=8, sharers=4), 1).run() for sharing in Sharing
    )
    assert parted.largest < plain.largest
    assert sum(parted.loads) == sum(plain.loads) < sum(copied.loads)
    assert copied.storing > plain.storing
    assert parted.hops > plain.hops


def test_a_group_shares_its_load_among_its_members() -> None:
    design = RingDesign(clusters=True, depth=3, rotation=20, sharing=Sharing.PARTITION, sharers=3, threshold=5)
    model = RingModel(WORKLOAD, design, 1)
    model.run()
    assert model._holders
    for owner, holders in model._holders.items():
        groups = [set(view.members) for view in model.places.views.values()]
        ids = {model.places.routes.ids[each] for each in (owner, *holders)}
        assert not holders or any(ids <= group for group in groups)


def test_a_busy_node_makes_events_wait() -> None:
    slow, fast = (RingModel(WORKLOAD, RingDesign(name), 1).run() for name in ("busy", "free"))
    assert slow.latency > fast.latency
    assert slow.cost > fast.cost


def test_schemes_of_the_paper_keep_the_intersection_rule_and_its_counts() -> None:
    rows = {row.scheme: row for row in compare_schemes(WORKLOAD, 1)}
    assert all(row.missed == 0 for row in rows.values())
    assert rows["Ferry"].per_subscription == rows["eFerry"].per_subscription == 1
    assert rows["Ferry"].per_event == rows["Ferry"].rendezvous <= SMALL.schema
    assert rows["eFerry"].per_event <= 2**SMALL.attributes
    assert 10 < rows["Baldoni et al."].per_subscription <= 20, "one for each value of the range, less collisions"
    assert rows["Baldoni et al."].per_event <= SMALL.attributes
    assert rows["Meghdoot"].rendezvous < SMALL.nodes
    assert rows["intervals"].per_subscription < rows["Baldoni et al."].per_subscription


def test_a_comparison_searches_the_best_and_tells_progress() -> None:
    told: list[str] = []
    options = RingOptions(rotation=20, search=True, sharers=3)
    found = compare(SMALL, options, [1, 2], peers=True, report=lambda what, _, __: told.append(what))
    assert [row.name for row in found.rows] == list(designs(options))
    assert {"one cluster", "topic groups, searching", "the paper's peers"} <= set(told)
    assert len(found.to_dict()["designs"][0]["runs"]) == 2
    best = found.rows[3].design
    costs = {depth: RingModel(WORKLOAD, replace(best, depth=depth), 1).run().cost for depth in (0, 2, 4, 6, 8)}
    assert costs[best.depth] == min(costs.values())
    shared = found.rows[2].design
    costs = {each: RingModel(WORKLOAD, replace(shared, threshold=each), 1).run().cost for each in (25, 50, 100, 200)}
    assert costs[shared.threshold] == min(costs.values())


def test_claims_are_decided_by_runs() -> None:
    study = RingStudy(replace(SMALL, nodes=20), [1, 2])
    claims = study.claims([4])
    assert [claim.figure for claim in claims] == [4, 4]
    assert all(0 <= claim.holds <= claim.seeds == 2 for claim in claims)
    assert "saved at variance 120" in claims[0].evidence


@pytest.mark.slow
def test_the_papers_claims_that_hold() -> None:
    study = RingStudy(RingWorkloadSettings(events=1500), [1, 2])
    verdicts = {claim.text: claim.verdict for claim in study.claims([4, 8])}
    assert verdicts["it saves more the more the sizes of ranges vary"] == "holds"
    assert verdicts["a single cluster has the lower latency"] == "holds"


@pytest.mark.parametrize(
    "wrong",
    [{"nodes": 0}, {"nodes": 600}, {"intervals": 0}, {"attributes": 9}, {"theta": -1}, {"size_variance": 1e6}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        replace(SMALL, **wrong)
    with pytest.raises(OptionError, match="4 to 9"):
        figures_of("3")
    with pytest.raises(OptionError, match="busy or free"):
        RingDesign("lazy")
    assert figures_of("all") == [4, 5, 6, 7, 8, 9]


def test_a_study_by_topic_examines_less_and_finds_the_same() -> None:
    every, few = (RingStudy(SMALL, [1], by_topic=by_topic).outcomes(RingDesign())[0] for by_topic in (False, True))
    assert few.examined < every.examined
    assert (few.matches, few.missed) == (every.matches, 0)
