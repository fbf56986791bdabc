"""Recordings of rings, for the console's player: what each node stores and knows, and the messages between nodes.

The table `0/NODE/records/subscriptions` has what a node stores, `0/NODE/fingers/ring` and `0/NODE/successors/ring` the
nodes that it knows, and `0/NODE/groups/ring` the topics whose groups it is a member of. A stream is the identifier of a
node on the circle.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from weft.recording import RunRecorder, RunState
from weft.ring.rendezvous_messages import RingMessage
from weftlab.ring.ring_design import RingDesign, RingOutcome
from weftlab.ring.ring_faults import RingPlan, RingRun, RingWorld, run_ring_world
from weftlab.ring.ring_model import RingModel
from weftlab.ring.ring_workload import RingWorkload

_SECOND = 1_000_000
# messages by which nodes look after each other: there are too many to show
_UPKEEP = frozenset({"Ask", "Neighbours", "Notify", "Find", "FetchSettings", "Settings", "AskRange", "RangeIs"})
_SHOWN = 50  # messages of a step


# -- designs side by side: `weft sim ring` ----------------------------------------------------------------


def record_ring(workload: RingWorkload, name: str, design: RingDesign, seed: int, path: Path) -> RingOutcome:
    """Run a design, and write what happens to a file."""
    model = RingModel(workload, design, seed)
    names = node_names(workload)
    meta = {
        "kind": "ring",
        "protocol": name,
        "topology": f"{workload.settings.nodes:,} nodes, {workload.settings.subscriptions:,} subscriptions",
        "seed": seed,
        "space": workload.settings.ring,
        "brokers": list(names),
        "links": [],
        "clients": [],
    }
    with RunRecorder(path, meta) as recorder:
        recorder.observe(0, "begin", {}, tables=_known(model), streams=dict(zip(names, workload.node_ids, strict=True)))
        model.watch = ModelWatch(workload, recorder)
        outcome = model.run()
        end: dict[str, Any] = {
            "assertions": {"every match is found": not outcome.missed},
            "note": f"{outcome.missed} missed",
        }
        figures = {"cost, s": outcome.cost, "latency, s": outcome.latency, "hops": outcome.hops, "gini": outcome.gini}
        end["figures"] = {name: round(float(value), 2) for name, value in figures.items()}
        recorder.step(model.watch.time, "end", end)
    return outcome


def node_names(workload: RingWorkload) -> tuple[str, ...]:
    """The names of the nodes, by their identifiers."""
    return tuple(f"n{each}" for each in workload.node_ids)


def _known(model: RingModel) -> dict[str, dict[int, str]]:
    """The fingers of all nodes, and their groups."""
    routes, names = model.places.routes, node_names(model.workload)
    tables = {}
    for node, name in enumerate(names):
        distances, others = routes.fingers(node)
        fingers = zip(distances, others, strict=True)
        tables[f"0/{name}/fingers/ring"] = {distance: names[other] for distance, other in fingers}
    for topic, view in model.places.views.items():
        for member in view.members:
            tables.setdefault(f"0/{names[routes.owner(member)]}/groups/ring", {})[topic] = f"t{topic}"
    return tables


def model_state(model: RingModel) -> RunState:
    """What a player shows at this moment, read from the model itself."""
    names = node_names(model.workload)
    tables = _known(model)
    for node, rows in model.stored().items():
        tables[f"0/{names[node]}/records/subscriptions"] = {row: _row_text(model.workload, row) for row in rows}
    return RunState(tables, dict(zip(names, model.workload.node_ids, strict=True)), {})


def _row_text(workload: RingWorkload, row: int) -> str:
    """A subscription of the workload as a filter."""
    topic = int(workload.topics[row])
    attributes = workload.topic_attributes[topic].tolist()
    bounds = zip(attributes, workload.low[row].tolist(), workload.high[row].tolist(), strict=True)
    tests = [f"a{attribute} BETWEEN {low} AND {high}" for attribute, low, high in bounds if low >= 0]
    return " AND ".join([f"topic = 't{topic}'", *tests])


class ModelWatch:
    """Writes a step for each subscription that is stored, and for each hop of an event."""

    def __init__(self, workload: RingWorkload, recorder: RunRecorder) -> None:
        self._workload, self._recorder, self._names = workload, recorder, node_names(workload)
        self.time = 0

    def stored(self, node: int, row: int) -> None:
        """A node has stored a subscription."""
        table = f"0/{self._names[node]}/records/subscriptions"
        change = {"drop": [], "add": {row: _row_text(self._workload, row)}}
        home = self._names[int(self._workload.homes[row])]
        message = [home, self._names[node], "store", f"subscription {row}"]
        self._recorder.step(0, "store", {"tables": {table: change}, "messages": [message]})

    def hopped(self, time: float, event: int, sender: int, node: int) -> None:
        """An event leaves a node for another one."""
        message = [self._names[sender], self._names[node], "event", f"event {event}"]
        self._step(time, "publish", {"messages": [message]})

    def examined(self, time: float, event: int, node: int, found: int) -> None:
        """A node has examined an event."""
        if found:
            self._step(time, "match", {"note": [self._names[node], f"event {event}: {found} matches"]})

    def _step(self, time: float, phase: str, body: dict[str, Any]) -> None:
        self.time = max(self.time, round(time * _SECOND))
        self._recorder.step(self.time, phase, body)


# -- under faults: `weft sim faults --ring` ---------------------------------------------------------------


def record_ring_faults(plan: RingPlan, path: Path) -> RingRun:
    """Run a plan of faults, and write what happens to a file."""
    world = RingWorld(plan)
    meta = {
        "kind": "ring",
        "protocol": plan.mode,
        "topology": str(plan),
        "seed": plan.seed,
        "space": world.settings.mapping.space.size,
        "brokers": [],
        "links": [],
        "clients": [],
    }
    with RunRecorder(path, meta) as recorder:
        RingFaultsWatch(world, recorder)
        run = run_ring_world(world)
        kept = {"assertions": {"every promise is kept": not run.failure}, "note": run.failure}
        recorder.step(world.now, "end", kept)
    return run


class RecordNumbers:
    """Numbers of records, in the order in which they are seen first."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._next = count(1)

    def of(self, text: str) -> int:
        """The number of a record, by its text."""
        if text not in self._known:
            self._known[text] = next(self._next)
        return self._known[text]


class RingFaultsWatch:
    """Writes a step after each action of a world that changes a node, or is noted."""

    def __init__(self, world: RingWorld, recorder: RunRecorder) -> None:
        self._world, self._recorder, self._numbers = world, recorder, RecordNumbers()
        self._messages: list[list[str]] = []
        self._said: list[list[str]] = []
        world.trace.listen = lambda who, what: self._said.append([who, what])
        world.watch_sent = self._sent
        world.engine.after_action = self.look

    def _sent(self, sender: str, to: str, message: RingMessage) -> None:
        kind = type(message).__name__
        if kind not in _UPKEEP:
            self._messages.append([sender, to, kind, ""])

    def look(self) -> None:
        """Write what has changed, and what was noted. Messages alone wait for the next change."""
        said, self._said = self._said, []
        body: dict[str, Any] = {"note": said} if said else {}
        state = world_state(self._world, self._numbers)
        wrote = self._recorder.observe(self._world.now, "", body, whole=True, **state._asdict())
        if wrote and self._messages:
            self._recorder.step(self._world.now, "", {"messages": self._messages[-_SHOWN:]})
            self._messages = []


def world_state(world: RingWorld, numbers: RecordNumbers) -> RunState:
    """What a player shows at this moment, read from the nodes themselves."""
    tables: dict[str, dict[int, str]] = {}
    states: dict[str, str] = {}
    streams = {address: each.id for address, each in world.applications.items()}
    for address, node in world.nodes.items():
        chord = node.chord
        states[address] = node.life.name.lower()
        records = [
            f"key {each.key}, topic {each.topic}, {each.sub.home}/{each.sub.number}: {each.filter}"
            for each in node.records
        ]
        tables[f"0/{address}/records/subscriptions"] = {numbers.of(text): text for text in sorted(records)}
        fingers = {str(each.address) for each in chord.fingers if each is not None and each != chord.me}
        tables[f"0/{address}/fingers/ring"] = dict(enumerate(sorted(fingers)))
        tables[f"0/{address}/successors/ring"] = {at: str(each.address) for at, each in enumerate(chord.successors)}
        tables[f"0/{address}/groups/ring"] = dict(enumerate(sorted(node.topics)))
    states |= {address: "down" for address in world.applications if address not in world.nodes}
    return RunState({name: items for name, items in tables.items() if items}, streams, states)
