"""The protocols of the laboratory, by name, and a run of one of them.

A runner takes a tree and a script and returns an outcome. Those of light brokers differ in their protocol; `weft-cores`
plays the same scripts on real brokers. Each fills a trace with what its clients published and received, and
`outcome_of` judges it. Runs of one script that lose nothing have the same digest of what was delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from weft.errors import WeftError
from weftlab.mobility.bounds import CostBounds, CostRow, Measures, cost_bounds, generic_phases
from weftlab.mobility.cores import CoreWorld
from weftlab.mobility.light import LightWorld
from weftlab.mobility.other_protocols import (
    Delayed,
    Device,
    ForwardingHome,
    FourPhases,
    Logging,
    LoggingSynchronised,
    Prefetching,
    Proxy,
    TearDown,
)
from weftlab.mobility.protocol import Protocol, check_role
from weftlab.mobility.script import Movers, RelocateStep, Script
from weftlab.mobility.thesis_protocols import (
    Acyclic,
    AcyclicComplete,
    AcyclicCompleteOverlay,
    AcyclicOverlay,
    CyclicRendezvous,
    CyclicRendezvousChained,
    CyclicRendezvousComplete,
    PingPong,
    PingPongRendezvous,
    Rendezvous,
    RendezvousBeside,
    RendezvousComplete,
)
from weftlab.mobility.topology import BrokerTree
from weftlab.mobility.trace import MobileEvent, MobilityTrace, delivered, judge
from weftlab.mobility.weft_protocol import WeftMove, WeftMoveMake
from weftlab.mobility.world import BEYOND, FILTERS, ClientHandover, ScriptedWorld, Watch


@dataclass(frozen=True, slots=True)
class ProtocolInfo:
    """A protocol, what it is, and the rows of Tables 5.2 and 5.3 that bound its cost."""

    kind: type[Protocol]
    text: str
    safe: bool  # what we expect of the runs
    row: CostRow | None = None
    complete: bool = False
    real: bool = False  # on real brokers

    def moves(self, movers: Movers) -> bool:
        """Whether it can move these clients."""
        wanted = {
            Movers.SUBSCRIBERS: self.kind.subscribers,
            Movers.PUBLISHERS: self.kind.publishers,
            Movers.BOTH: self.kind.subscribers and self.kind.publishers,
        }
        return wanted[movers]


PROTOCOLS: dict[str, ProtocolInfo] = {
    "ping-pong": ProtocolInfo(PingPong, "generic: pings until a pong comes", True, CostRow.GENERIC),
    "ping-pong-rp": ProtocolInfo(PingPongRendezvous, "the same with a rendezvous point", True, CostRow.GENERIC_RP),
    "acyclic": ProtocolInfo(Acyclic, "update to the source, by flooding", True, CostRow.ACYCLIC),
    "acyclic-overlay": ProtocolInfo(AcyclicOverlay, "update to the source, by address", True, CostRow.ACYCLIC),
    "acyclic-complete": ProtocolInfo(
        AcyclicComplete, "flooding, with the covering optimisation", False, CostRow.ACYCLIC, True
    ),
    "acyclic-complete-overlay": ProtocolInfo(
        AcyclicCompleteOverlay, "by address, with the covering optimisation", False, CostRow.ACYCLIC, True
    ),
    "rp": ProtocolInfo(Rendezvous, "update to the rendezvous point, checked before", True, CostRow.ACYCLIC_RP),
    "rp-complete": ProtocolInfo(
        RendezvousComplete, "the same with the covering optimisation", False, CostRow.ACYCLIC_RP, True
    ),
    "rp-beside": ProtocolInfo(
        RendezvousBeside, "the point notifies the source beside the tree", False, CostRow.ACYCLIC_RP
    ),
    "cyclic-rp": ProtocolInfo(CyclicRendezvous, "a tree and a rendezvous point per type", True, CostRow.CYCLIC_RP),
    "cyclic-rp-complete": ProtocolInfo(
        CyclicRendezvousComplete, "the same with the covering optimisation", False, CostRow.CYCLIC_RP, True
    ),
    "cyclic-rp-chained": ProtocolInfo(
        CyclicRendezvousChained, "only the supertype's point notifies the source", False, CostRow.CYCLIC_RP
    ),
    "four-phases": ProtocolInfo(FourPhases, "subscribe, ask, transfer, unsubscribe", False),
    "device": ProtocolInfo(Device, "subscriptions on the device", False),
    "home-broker": ProtocolInfo(ForwardingHome, "the first broker forwards everything", True),
    "logging": ProtocolInfo(Logging, "replay from the target's log, ask for the rest", False),
    "logging-synchronised": ProtocolInfo(LoggingSynchronised, "the same, asked along the tree", True, CostRow.ACYCLIC),
    "prefetching": ProtocolInfo(Prefetching, "make-before-break: update from source to target", False, CostRow.ACYCLIC),
    "tear-down": ProtocolInfo(TearDown, "publisher: unadvertise, then advertise", False),
    "delayed": ProtocolInfo(Delayed, "publisher: unadvertise later", False),
    "proxy": ProtocolInfo(Proxy, "publisher: the first broker publishes", True),
    "weft": ProtocolInfo(WeftMove, "Weft's own, break-before-make", True, CostRow.ACYCLIC),
    "weft-make": ProtocolInfo(WeftMoveMake, "Weft's own, make-before-break", True, CostRow.ACYCLIC),
    "weft-cores": ProtocolInfo(WeftMove, "weft, on real brokers", True, CostRow.ACYCLIC, real=True),
    "weft-make-cores": ProtocolInfo(WeftMoveMake, "weft-make, on real brokers", True, CostRow.ACYCLIC, real=True),
}

THESIS = tuple(
    f"{name}"
    for name in (
        *("ping-pong", "ping-pong-rp", "acyclic", "acyclic-overlay", "acyclic-complete", "acyclic-complete-overlay"),
        *("rp", "rp-complete"),
    )
)  # the eight variants of its simulator


@dataclass(slots=True)
class MobilityOutcome:
    """A run of a protocol: what clients saw, and what the hand-overs cost."""

    protocol: str
    moves: int = 0
    unfinished: int = 0
    due: int = 0
    lost: int = 0
    duplicates: int = 0  # removed by their identifiers
    disordered: int = 0
    unsafe_notices: int = 0  # violations of Property 5.2
    false_positives: int = 0  # events that matched no filter of their client
    useless_hops: int = 0
    event_hops: int = 0
    forwarded: int = 0
    transferred: int = 0
    skipped: int = 0
    unlocated: int = 0
    beyond: int = 0  # brokers updated beyond the rendezvous point, which Tables 5.2 and 5.3 leave out
    above_with_beyond: int = 0  # hand-overs that would cost more than the upper bound with these
    above: int = 0  # hand-overs that cost more than the upper bound
    below: int = 0  # or less than the lower one
    signals: list[int] = field(default_factory=list)  # of each hand-over
    updated: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    paths: list[int] = field(default_factory=list)  # links between source and target
    latencies: list[int] = field(default_factory=list)  # microseconds
    pauses: list[int] = field(default_factory=list)  # microseconds in which the client was not served
    hops: Counter[str] = field(default_factory=Counter)  # by phase and kind
    losses: Counter[str] = field(default_factory=Counter)  # by the moment of publication
    delivered: list[str] = field(default_factory=list)  # of each run, a digest of who was notified of what

    @property
    def live(self) -> bool:
        """Whether Property 5.1 holds."""
        return not self.lost and not self.unfinished

    @property
    def safe(self) -> bool:
        """Whether Property 5.2 holds."""
        return not self.unsafe_notices

    def add(self, other: MobilityOutcome) -> None:
        """Add another run of the same protocol."""
        for name in self.__dataclass_fields__:
            if name == "protocol":
                continue
            mine, its = getattr(self, name), getattr(other, name)
            if isinstance(mine, list):
                mine += its
            elif isinstance(mine, Counter):
                mine.update(its)
            else:
                setattr(self, name, mine + its)

    def mean(self, name: str) -> float:
        """The mean of a list of figures; 0 without any."""
        values = getattr(self, name)
        return float(np.mean(values)) if values else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON: counts, means, and hops and losses by kind."""
        facts = {name: value for name, value in asdict(self).items() if not isinstance(value, list)}
        facts |= {"hops": dict(sorted(self.hops.items())), "losses": dict(sorted(self.losses.items()))}
        lists = ("signals", "updated", "upper", "paths", "latencies", "pauses")
        facts |= {f"mean_{name}": round(self.mean(name), 3) for name in lists}
        digest = sha256("".join(self.delivered).encode()).hexdigest()
        return {**facts, "property_5_1": self.live, "property_5_2": self.safe, "delivered": digest}


MobilityRunner = Callable[[BrokerTree, Script, Watch | None], MobilityOutcome]


def run_protocol(name: str, tree: BrokerTree, script: Script, watch: Watch | None = None) -> MobilityOutcome:
    """Play a script with a protocol. Raises WeftError if they do not fit."""
    return run_world(name, tree, script, watch)[0]


def run_world(
    name: str, tree: BrokerTree, script: Script, watch: Watch | None = None
) -> tuple[MobilityOutcome, LightWorld | CoreWorld]:
    """The same, and the world at its end."""
    info = PROTOCOLS[name]
    check_fit(info.kind, name, tree, script)
    world: LightWorld | CoreWorld
    if info.real:
        world = CoreWorld(tree, script, watch, make_first=info.kind is WeftMoveMake)
    else:
        world = LightWorld(tree, script, info.kind, watch)
    world.run()
    outcome = outcome_of(name, world.trace, world.handovers, by_kind=info.kind.cyclic)
    outcome.duplicates = sum(client.duplicates for client in world.clients.values())
    outcome.event_hops = world.event_hops
    if isinstance(world, LightWorld):
        outcome.useless_hops, outcome.forwarded = world.useless_hops, world.forwarded
    if info.row is not None:
        _check_bounds(outcome, info, info.row, world)
    return outcome, world


def check_fit(kind: type[Protocol], name: str, tree: BrokerTree, script: Script) -> None:
    """Raise WeftError if the script is not for this tree, or moves clients that the protocol cannot move."""
    if script.brokers != tree.size:
        raise WeftError(
            f"the script is for {script.brokers} brokers, and the topology has {tree.size}; use the one it was made for"
        )
    publishes = {each.name: each.publishes for each in script.clients}
    moved = {publishes[step.client] for step in script.steps if isinstance(step, RelocateStep)}
    check_role(kind, name, False in moved, True in moved)


def outcome_of(
    name: str, trace: MobilityTrace, handovers: Sequence[ClientHandover], *, by_kind: bool = False
) -> MobilityOutcome:
    """Judge a trace, and add up what the hand-overs cost. With `by_kind`, order is judged within each type."""
    judged = judge(trace, by_kind=by_kind)
    digest = delivered(trace)
    outcome = MobilityOutcome(name, moves=len(handovers), due=judged.due, lost=len(judged.lost), delivered=[digest])
    outcome.disordered, outcome.false_positives = judged.disordered, judged.unmatched
    outcome.unsafe_notices = judged.twice + judged.unpublished + judged.unmatched
    for client, event in judged.lost:
        outcome.losses[_moment(client, event, handovers)] += 1
    for each in handovers:
        if each.finished < 0:
            outcome.unfinished += 1
            continue
        outcome.signals.append(each.signals)
        outcome.latencies.append(each.finished - each.started)
        outcome.pauses.append(each.finished - (each.cut if each.cut >= 0 else each.left))
        outcome.transferred += each.transferred
        outcome.skipped += each.skipped
        outcome.unlocated += each.unlocated
        for (phase, kind), hops in each.hops.items():
            outcome.hops[f"{phase}: {kind}"] += hops
    return outcome


def _moment(client: str, event: MobileEvent, handovers: Iterable[ClientHandover]) -> str:
    """When a lost event was published, in the hand-over of its subscriber or publisher that was nearest in time."""
    best, answer = None, "far from any move"
    for each in handovers:
        if each.client.name not in (client, event.event.publisher):
            continue
        end = each.finished if each.finished >= 0 else max(each.started, each.left)
        distance = max(0, each.left - event.at, event.at - end)
        if best is None or distance < best:
            best = distance
            if event.at < each.left:
                answer = "in flight when the client left"
            elif each.started < 0 or event.at < each.started:
                answer = "published while the client was away"
            elif event.at <= end:
                answer = "published during the hand-over"
            else:
                answer = "published after the hand-over"
    return answer


# -- bounds ------------------------------------------------------------------------------------------


def _check_bounds(outcome: MobilityOutcome, info: ProtocolInfo, row: CostRow, world: ScriptedWorld) -> None:
    points = world.script.rendezvous
    trees = world.trees
    farthest = 0
    if info.kind.rendezvous:
        farthest = max(trees[at % len(trees)].farthest(point) for at, point in enumerate(points))
    between = {here for point in points for here in world.tree.path(points[0], point)}  # where advertisements end
    for each in world.handovers:
        if each.finished < 0:
            continue
        ends = each.source, each.target
        way = len(world.tree.path(*ends)) - 1
        near = sum(
            next(at for at, here in enumerate(world.tree.path(end, points[0])) if here in between) for end in ends
        )
        given = Measures(world.tree.size, way - 1, each.rounds, len(points), farthest, near)
        bounds: CostBounds = cost_bounds(row, info.complete, each.client.spec.publishes, given)
        outcome.paths.append(way)
        outcome.updated.append(each.updated_nodes)
        outcome.upper.append(bounds.upper)
        beyond = len(each.updated.get(BEYOND, ()))
        outcome.beyond += beyond
        outcome.above_with_beyond += each.updated_nodes + beyond > bounds.upper
        outcome.above += each.updated_nodes > bounds.upper
        outcome.below += each.updated_nodes < bounds.lower
        if row is CostRow.GENERIC:
            outcome.above += any(
                len(each.updated.get(phase, ())) > upper for phase, upper in generic_phases(given) if phase != FILTERS
            )


RUNNERS: Mapping[str, MobilityRunner] = {name: partial(run_protocol, name) for name in PROTOCOLS}
