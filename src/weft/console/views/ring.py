"""A ring, recorded or live: nodes on a circle, what each stores, whom it knows, and the groups of topics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from weft.console.views.runs import opened
from weft.errors import OptionError
from weft.recording import RunState

if TYPE_CHECKING:
    from weft.server.ring_status import NodeReport

_ITEMS = 300


class RingPageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page shows of a recorded ring."""

    run: str
    step: Annotated[int, Meta(ge=0)] | None = None
    node: str = ""  # whose fingers and records are shown
    topic: str = ""  # whose group is marked


def ring_view(folder: str, request: RingPageRequest) -> dict[str, Any]:
    """The ring of a recording after a step. Raises OptionError if the recording is not of a ring."""
    recording = opened(folder, request.run).recording
    if recording.meta.get("kind") != "ring":
        raise OptionError(f"{request.run} is not the recording of a ring; record one with weft sim ring --record")
    number = recording.size if request.step is None else min(request.step, recording.size)
    state = recording.state(number)
    size = int(recording.meta["space"])
    nodes = [_node(state, name, place, size) for name, place in sorted(state.streams.items(), key=lambda e: e[1])]
    return {
        "run": request.run,
        "step": number,
        "steps": recording.size,
        "title": f"{recording.meta.get('topology', '')}, {recording.meta.get('protocol', '')}",
        **_circle(nodes, size, request.node),
    }


def live_ring(reports: Sequence[NodeReport], size: int, node: str) -> dict[str, Any]:
    """The ring as its nodes report it. What a node stores is counted, not listed."""
    silent = {address: since for report in reports for address, since in report.unreachable.items()}
    nodes = [
        {
            "name": report.address.removeprefix("weft://"),
            "id": report.id,
            "at": _at(report.id, size),
            "state": "serving" if report.joined else "joining",
            "load": report.load,
            "fingers": [each.removeprefix("weft://") for each in report.successors],
            "successors": [],
            "topics": sorted(report.topics),
            "records": [],
            "facts": {
                "Broker": report.broker,
                "Clients connect to": ", ".join(report.clients),
                "Records stored, copies included": report.records,
                "Subscriptions of its clients": report.subscriptions,
                "Events of its clients": report.published,
                "Events matched here": report.visited,
                "Events for its clients": report.received,
                "Owed to brokers that are down": report.owed,
            },
        }
        for report in sorted(reports, key=lambda each: each.id)
    ]
    return {
        "title": "; ".join(f"{address} does not answer since {since}" for address, since in sorted(silent.items())),
        **_circle(nodes, size, node),
    }


def _circle(nodes: list[dict[str, Any]], size: int, chosen: str) -> dict[str, Any]:
    _share(nodes, size)
    return {
        "space": size,
        "nodes": [{key: value for key, value in each.items() if key not in ("records", "facts")} for each in nodes],
        "topics": sorted({topic for each in nodes for topic in each["topics"]}),
        "chosen": next((each for each in nodes if each["name"] == chosen), None),
        **loads([each["load"] for each in nodes if each["state"] != "down"]),
    }


def _at(place: int, size: int) -> tuple[float, float]:
    turn = math.tau * place / size
    return round(500 + 440 * math.sin(turn), 1), round(500 - 440 * math.cos(turn), 1)


def _node(state: RunState, name: str, place: int, size: int) -> dict[str, Any]:
    def table(what: str) -> dict[int, str]:
        return state.tables.get(f"0/{name}/{what}", {})

    records = table("records/subscriptions")
    return {
        "name": name,
        "id": place,
        "at": _at(place, size),
        "state": state.states.get(name, "serving"),
        "load": len(records),
        "fingers": sorted(set(table("fingers/ring").values())),
        "successors": list(table("successors/ring").values()),
        "topics": sorted(table("groups/ring").values()),
        "records": [{"number": number, "record": text} for number, text in list(records.items())[:_ITEMS]],
    }


def _share(nodes: list[dict[str, Any]], size: int) -> None:
    """The part of the circle that each node answers for: from the one before it."""
    serving = [each for each in nodes if each["state"] != "down"]
    for before, each in zip([*serving[-1:], *serving], serving, strict=False):
        each["share"] = 1.0 if len(serving) == 1 else ((each["id"] - before["id"]) % size) / size
        each["after"] = before["id"]
    for each in nodes:
        each.setdefault("share", 0.0)


def loads(found: list[int]) -> dict[str, Any]:
    """How evenly subscriptions are spread: the largest load, the mean, and the Gini coefficient."""
    from weft.ring.load_sharing import gini  # the gateway of a broker that is not on a ring does without

    return {"largest": max(found, default=0), "mean": sum(found) / max(1, len(found)), "gini": gini(found)}
