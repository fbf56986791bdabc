"""Recordings of mobility runs, for the console's player."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from weft.recording import RunRecorder, RunState
from weft.routing.table import About, Link
from weftlab.mobility.campaign import ProtocolRow
from weftlab.mobility.cores import CoreWorld
from weftlab.mobility.light import LightWorld
from weftlab.mobility.protocols import MobilityOutcome, run_world
from weftlab.mobility.script import Script
from weftlab.mobility.topology import BrokerTree, broker

_PHASES = {"move": "leave", "arrive": "arrive", "finish": "finish"}


def record_run(protocol: str, tree: BrokerTree, script: Script, path: Path) -> ProtocolRow:
    """Play a script with a protocol, and write what happens to a file."""
    graph = tree.topology
    meta = {
        "kind": "mobility",
        "protocol": protocol,
        "topology": graph.name,
        "places": [list(place) for place in graph.places],
        "graph": [list(edge) for edge in graph.edges],
        "links": [list(link) for link in tree.links()],
        "rendezvous": list(script.rendezvous),
        "clients": msgspec.to_builtins(script.clients),
    }
    with RunRecorder(path, meta) as recorder:

        def watch(now: int, what: str, facts: dict[str, Any]) -> None:
            recorder.step(now, _PHASES.get(what, ""), body_of(what, facts))

        recorder.step(0, "begin", {"streams": {each.name: each.at for each in script.clients}})
        outcome, world = run_world(protocol, tree, script, watch)
        recorder.step(
            world.engine.now,
            "end",
            {
                "assertions": {
                    "5.1": outcome.live,
                    "5.2": outcome.safe,
                    "bounds": not outcome.above and not outcome.below,
                },
                "figures": _figures(outcome),
            },
        )
    return ProtocolRow(protocol, [outcome])


def _figures(outcome: MobilityOutcome) -> dict[str, float]:
    """What the run cost, beside the theoretical upper bound (thesis 5.8)."""
    figures = {"lost events": outcome.lost, "signals for each move": outcome.mean("signals")}
    if outcome.upper:
        figures |= {"brokers updated": outcome.mean("updated"), "updated at most": outcome.mean("upper")}
    milliseconds = {"latency, ms": outcome.mean("latencies") / 1000, "pause, ms": outcome.mean("pauses") / 1000}
    return {name: round(value, 2) for name, value in (figures | milliseconds).items()}


def body_of(what: str, facts: dict[str, Any]) -> dict[str, Any]:
    """What happened, in the words of recordings: messages, changes of tables, clients."""
    if what == "send":
        return {"messages": [[facts["from"], facts["to"], facts["kind"]]]}
    if what == "learn":
        key = f"{facts['plane']}/{facts['broker']}/{facts['link']}/{facts['about']}"
        return {"tables": {key: {"drop": facts["drop"], "add": facts["add"]}}}
    if what in {"subscribe", "unsubscribe"}:
        change = {"drop": [facts["sub"]], "add": {}}
        if what == "subscribe":
            change = {"drop": [], "add": {facts["sub"]: facts["filter"]}}
        return {"tables": {f"local/{facts['at']}": change}}
    if what == "arrive":
        return {"streams": {facts["client"]: facts["at"]}}
    return {"note": [what, facts]}


def state_of(world: LightWorld | CoreWorld) -> RunState:
    """What a player shows at this moment, read from the tables themselves."""
    tables: dict[str, dict[int, str]] = {}
    streams = {client.name: client.at for client in world.clients.values()}
    if isinstance(world, CoreWorld):
        for at in range(world.tree.size):
            core = world.network[broker(at)].core
            for peer in (Link(each.peer) for each in core.links()):
                for about in About:
                    heard = {int(number): str(item) for number, item in core.table.heard(peer, about).items()}
                    if heard:
                        tables[f"0/{at}/{peer[1:]}/{about.value}"] = heard
        return RunState(tables, streams, {})
    for plane in world.planes:
        for at in range(plane.tree.size):
            table = plane.network.table(broker(at))
            for name in plane.network.links(broker(at)):
                for about in About:
                    heard = {int(number): str(item) for number, item in table.heard(Link(name), about).items()}
                    if heard:
                        tables[f"{plane.number}/{at}/{name[1:]}/{about.value}"] = heard
    tables |= {f"local/{at}": dict(held) for at, held in world.local.items() if held}
    return RunState(tables, streams, {})
