"""Recordings of overlay runs, for the console's player: every message that arrives, and the table that it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.model.progress import RunProgress
from weft.network.tables import BrokerId, Direction, TableNetwork
from weft.recording import RunRecorder, RunState
from weft.routing.table import About, Link
from weftlab.item_texts import ItemTexts
from weftlab.overlay.overlay import Expected, ModelOutcome, Scenario, simulate


def record_overlay(  # noqa: PLR0913 - a scenario, and how it is run
    given: Scenario,
    model: str,
    expected: Expected,
    path: Path,
    *,
    seed: int = 1,
    check: bool = False,
    progress: RunProgress | None = None,
) -> ModelOutcome:
    """Run a scenario with one model, and write what happens to a file. Raises what `simulate` raises."""
    with RunRecorder(path, meta_of(given, model, seed)) as recorder:
        watch = OverlayWatch(given, recorder)
        try:
            outcome = simulate(given, model, expected, seed=seed, check=check, progress=progress, watch=watch)
        except Exception as error:
            watch.end(str(error))
            raise
        figures = {"items told": outcome.told, "events sent": outcome.messages, "events needed": outcome.ideal}
        watch.end("", {**figures, "unwanted": outcome.false_positives})
    return outcome


def meta_of(given: Scenario, model: str, seed: int) -> dict[str, Any]:
    """What is known before the run."""
    return {
        "kind": "overlay",
        "protocol": model,
        "topology": f"{len(given.brokers)} brokers, {len(given.clients):,} subscriptions",
        "seed": seed,
        "brokers": list(given.brokers),
        "links": [list(link) for link in given.links],
        "clients": [],
    }


class OverlayWatch:
    """Writes a step for each change of a client, and for each message that arrives. There is no time but the steps."""

    def __init__(self, given: Scenario, recorder: RunRecorder) -> None:
        self._given, self._recorder, self._texts = given, recorder, ItemTexts()
        self._local: dict[BrokerId, dict[int, str]] = {name: {} for name in given.brokers}
        self._arrived = (0, 0, 0)
        self._time = self._delivered = 0

    def _write(self, phase: str, body: dict[str, Any], tables: dict[str, dict[int, str]]) -> None:
        self._time += 1
        self._recorder.observe(self._time, phase, body, tables=tables)

    def began(self, phase: str, done: int) -> None:
        """A client has subscribed or left, or an event was published."""
        given = self._given
        if phase == "subscriptions":
            client = given.clients[done]
            self._local[client.broker][done] = str(client.filter)
            self._write("subscribe", {}, {f"local/{client.broker}": self._local[client.broker]})
        elif phase == "unsubscriptions":
            broker = given.clients[given.leaving[done]].broker
            del self._local[broker][int(given.leaving[done])]
            self._write("unsubscribe", {}, {f"local/{broker}": self._local[broker]})
        elif phase == "events":
            at = given.publications[done].broker
            self._write("publish", {"note": [at, f"publishes event {done}"]}, {})

    def moved(self, network: TableNetwork, what: Direction | BrokerId) -> None:
        """A message has arrived, or a table has worked."""
        counters = network.counters
        counts = (counters.events, *(counters.updates[about] for about in About))
        before, self._arrived = self._arrived, counts  # type: ignore[assignment]
        if isinstance(what, tuple):
            names = ("event", *(about.value for about in About))
            kind = next((name for name, one, other in zip(names, counts, before, strict=True) if one > other), "note")
            sender, broker = what
            body: dict[str, Any] = {"messages": [[sender, broker, kind, ""]]}
            tables = heard_by(network, broker, sender, self._texts)
        else:
            body, tables = {"note": [what, "works"]}, {}
        delivered, self._delivered = self._delivered, len(network.deliveries)
        if self._delivered > delivered:
            body["delivered"] = [[str(each.broker), each.sub] for each in network.deliveries[delivered:]]
        self._write("", body, tables)

    def end(self, failure: str, figures: dict[str, int] | None = None) -> None:
        """The run is over."""
        self._time += 1
        body = {"assertions": {"every event reaches its subscribers, and nobody else": not failure}, "note": failure}
        self._recorder.step(self._time, "end", body | ({"figures": figures} if figures else {}))


def heard_by(network: TableNetwork, broker: BrokerId, peer: BrokerId, texts: ItemTexts) -> dict[str, dict[int, str]]:
    """What a broker has received from a neighbour, empty tables included."""
    table = network.table(broker)
    return {
        f"0/{broker}/{peer}/{about.value}": {
            int(number): texts.of(item, table.codec, about) for number, item in table.heard(Link(peer), about).items()
        }
        for about in About
    }


def state_of(network: TableNetwork, local: dict[str, dict[int, str]]) -> RunState:
    """What a player shows at this moment, read from the tables themselves; clients are known to the scenario alone."""
    texts, tables = ItemTexts(), {f"local/{name}": held for name, held in local.items() if held}
    for broker in network.brokers:
        for peer in network.links(broker):
            heard = heard_by(network, broker, peer, texts)
            tables |= {name: items for name, items in heard.items() if items}
    return RunState(tables, {}, {})
