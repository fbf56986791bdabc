"""Recordings of fault runs, for the console's player: brokers, links and clients, after every action."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.broker.links.neighbour import LinkStatus
from weft.recording import RunRecorder, RunState
from weft.routing.table import About, Link
from weftlab.faults.moving_world import MovingWorld
from weftlab.faults.plan import Plan
from weftlab.faults.world import RunOutcome, World
from weftlab.item_texts import ItemTexts

AnyWorld = World | MovingWorld
_DOWN = "down"


def record_faults(plan: Plan, path: Path, *, moves: bool = False) -> RunOutcome:
    """Run a plan, and write what happens to a file."""
    world: AnyWorld = MovingWorld(plan) if moves else World(plan)
    with RunRecorder(path, meta_of(world)) as recorder:
        watch = FaultsWatch(world, recorder)
        watch.look("begin")
        outcome = world.run()
        kept = {"every promise is kept": not outcome.failure}
        figures = {"figures": {"events": outcome.events, "deliveries": outcome.deliveries}}
        recorder.step(world.engine.now, "end", {"assertions": kept, "note": outcome.failure} | figures)
    return outcome


def meta_of(world: AnyWorld) -> dict[str, Any]:
    """What is known before the run."""
    shape = world.plan.shape
    return {
        "kind": "faults",
        "protocol": shape.model,
        "topology": str(shape),
        "seed": world.plan.seed,
        "brokers": list(shape.names),
        "links": [[shape.names[near], shape.names[far]] for near, far, _ in shape.links],
        "clients": [{"name": client.name} for client in world.clients],
    }


class FaultsWatch:
    """Writes a step after each action of a world that changes something, or says something."""

    def __init__(self, world: AnyWorld, recorder: RunRecorder) -> None:
        self._world, self._recorder = world, recorder
        self._texts = ItemTexts()
        self._messages: list[list[str]] = []
        self._said: list[list[str]] = []
        self._violated = False
        world.trace.listen = self._listen
        world.engine.after_action = self.look

    def _listen(self, who: str, what: str) -> None:
        mark, _, rest = what.partition(" ")
        peer, _, said = rest.partition(": ")
        if mark == "<-" and who in self._brokers:
            self._messages.append([peer, who, *_kind(said)])
        elif mark in {"->", "<-"}:
            broker = self._homes.get(who, "")
            ends = [who, broker] if mark == "->" else [broker, who]
            self._messages.append([*ends, *_kind(rest)])
        else:
            self._violated |= who == "VIOLATION"
            self._said.append([who, what])

    @property
    def _brokers(self) -> set[str]:
        return {broker.name for broker in self._world.brokers}

    @property
    def _homes(self) -> dict[str, str]:
        return {client.name: client.broker.name for client in self._world.clients}

    def look(self, phase: str = "") -> None:
        """Write what has changed, and what was said."""
        body: dict[str, Any] = {}
        if self._messages:
            body["messages"] = self._messages
        if self._said:
            body["note"] = self._said
        if self._violated:
            body["assertions"] = {"every promise is kept": False}
        self._messages, self._said, self._violated = [], [], False
        state = state_of(self._world, self._texts)
        self._recorder.observe(self._world.engine.now, phase, body, whole=True, **state._asdict())


def state_of(world: AnyWorld, texts: ItemTexts | None = None) -> RunState:
    """What a player shows at this moment, read from the brokers themselves."""
    shown, places = texts or ItemTexts(), {broker.name: at for at, broker in enumerate(world.brokers)}
    tables: dict[str, dict[int, str]] = {}
    states: dict[str, str] = {}
    links: dict[str, dict[str, LinkStatus]] = {}
    for broker in world.brokers:
        states[broker.name] = _DOWN if broker.core is None else "up"
        if broker.core is None:
            continue
        links[broker.name] = {status.peer: status for status in broker.core.links()}
        for peer in links[broker.name]:
            if not broker.core.is_attached(peer):
                continue
            for about in About:
                held = broker.table.heard(Link(peer), about)
                if held:
                    items = {int(number): shown.of(item, broker.table.codec, about) for number, item in held.items()}
                    tables[f"0/{broker.name}/{peer}/{about.value}"] = items
        for client in world.clients:
            if own := broker.core.subscriptions(client.name):
                items = {int(number): text for number, text in own.items()}
                tables[f"local/{broker.name}/{client.name}"] = items
    for trunk in world.trunks:
        ends = ((trunk.near.name, trunk.far.name), (trunk.far.name, trunk.near.name))
        statuses = [links.get(here, {}).get(there) for here, there in ends]
        synced = all(status is not None and status.warm for status in statuses)
        open_ = bool(trunk.connections) and not trunk.separated
        states[trunk.name] = "detached" if not trunk.attached else _DOWN if not open_ else "up" if synced else "syncing"
    streams = {client.name: places[client.broker.name] if _is_connected(client) else -1 for client in world.clients}
    return RunState(tables, streams, states)


def _is_connected(client: Any) -> bool:
    connection = client.process.connection
    return bool(connection.is_welcome) and not connection.is_cut


def _kind(said: str) -> list[str]:
    """The first word of a message, and the rest."""
    kind, _, about = said.partition(" ")
    return [kind.rstrip(":"), about]
