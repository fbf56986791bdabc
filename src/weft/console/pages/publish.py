"""Publish: where an event would go, and why; then publish it."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.console.drawings import place_tree
from weft.console.page import ConsoleCall, ConsolePage, post
from weft.gateway.cloud_http import read_event
from weft.language.trace import trace as trace_filter

_WIDTH = 200.0  # of a broker's box


class PublishRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An event: names and values. A payload is a text."""

    event: dict[str, Any]
    payload: str = ""
    durable: bool = True


class TraceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An event, and a filter or a subscription to try on it."""

    event: dict[str, Any]
    filter: str = ""
    session: str = ""
    number: int | None = None
    broker: str = ""


async def explain(call: ConsoleCall) -> dict[str, Any]:
    """Where an event would go, broker by broker, and the tree of those brokers."""
    given: PublishRequest = await call.body(PublishRequest)
    found = await call.client.client.explain(read_event(given.event, call.schema))
    hops = []
    for hop in found.hops:
        links = [msgspec.to_builtins(link) | {"reason": link.reason} for link in hop.links]
        hops.append(msgspec.to_builtins(hop) | {"links": links})
    drawing = place_tree([hop.broker for hop in found.hops], [hop.source for hop in found.hops], _WIDTH)
    return {
        "hops": hops,
        "matched": found.matched,
        "whole": found.is_whole,
        "unasked": found.unasked,
        "drawing": drawing,
    }


async def trace(call: ConsoleCall) -> dict[str, Any]:
    """The truth of each part of a filter for an event."""
    given: TraceRequest = await call.body(TraceRequest)
    event = read_event(given.event, call.schema)
    if given.filter:
        part = trace_filter(call.filter(given.filter), event)
        return {"matches": part.truth is True, "trace": part.to_dict()}
    found = await call.client.client.trace(event, given.session, given.number, broker=given.broker)
    return {"matches": found.matches, "trace": msgspec.to_builtins(found.trace)}


async def publish(call: ConsoleCall) -> dict[str, Any]:
    """Publish an event; the answer comes when the broker has stored it."""
    given: PublishRequest = await call.body(PublishRequest)
    event = read_event(given.event, call.schema)
    if given.payload:
        event = msgspec.structs.replace(event, payload=given.payload)
    await call.client.client.publish(event, durable=given.durable)
    call.audit("event published", attributes=", ".join(sorted(given.event))[:200])
    return {"done": True}


PAGE = ConsolePage(
    "publish",
    "Publish",
    "Operate",
    "Compose an event, see where it would go and why, then publish it",
    (post("/publish/explain", explain), post("/publish/trace", trace), post("/publish", publish)),
)
