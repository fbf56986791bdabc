"""Questions over HTTP: explain, trace, why, search, and how filters relate."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from weft.algebra.box import NormalForm
from weft.algebra.merge import merge
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, overlaps
from weft.algebra.subtract import subtract
from weft.algebra.to_filter import to_filter
from weft.gateway.calls import (
    JSON,
    GatewayCall,
    WholeAnswer,
    encode_json,
    json_answer,
    within,
)
from weft.gateway.cloud_http import read_event
from weft.gateway.frames import StreamId, event_item
from weft.gateway.problems import INVALID, ProblemError
from weft.gateway.resources import (
    EventQuery,
    FilterAnswer,
    FilterQuery,
    FilterRequest,
    RelateAnswer,
    RelateRequest,
    SearchQuery,
    TraceQuery,
    since_of,
)
from weft.gateway.subscriptions import existing
from weft.language.ast import attributes
from weft.language.dialects import to_json
from weft.language.meaning import matches
from weft.language.trace import trace as trace_filter


async def explain(call: GatewayCall) -> WholeAnswer:
    """Where an event would go if it were published, and why."""
    given: EventQuery = await call.body(EventQuery)
    found = await within(call.client.client.explain(read_event(given.event, call.schema)))
    more = {"brokers": found.brokers, "matched": found.matched, "whole": found.is_whole}
    return json_answer(msgspec.to_builtins(found) | more)


async def trace(call: GatewayCall) -> WholeAnswer:
    """The truth of each part of a filter, or of a subscription's filter, for an event."""
    given: TraceQuery = await call.body(TraceQuery)
    event = read_event(given.event, call.schema)
    if (given.filter is None) == (given.subscription is None):
        raise ProblemError(INVALID, "give either a filter or a subscription")
    if given.filter is not None:
        part = trace_filter(call.filter(given.filter), event)
        return json_answer({"matches": part.truth is True, "trace": part.to_dict()})
    call.values = {"id": given.subscription or ""}
    known = await existing(call)
    found = await within(call.client.client.trace(event, known.session))
    return json_answer({"matches": found.matches, "trace": msgspec.to_builtins(found.trace)})


async def why(call: GatewayCall) -> WholeAnswer:
    """Why a subscription gets nothing, or less than expected."""
    known = await existing(call)
    found = await within(call.client.client.why(known.session))
    return json_answer({"healthy": found.is_healthy, "findings": msgspec.to_builtins(found.findings)})


async def search(call: GatewayCall) -> WholeAnswer:
    """Stored events that match a filter, and how far the search got; go on with `since` = `next`."""
    given: SearchQuery = await call.body(SearchQuery)
    client = call.client
    found: list[bytes] = []
    scanned = total = 0
    next_: int | None = None

    async def look() -> None:
        nonlocal scanned, total, next_
        async for page in client.client.search(
            call.filter(given.filter), since=since_of(given.since), until=since_of(given.until)
        ):
            scanned, total, next_ = page.scanned, page.total, page.next
            for event in page.events:
                if len(found) >= given.max:
                    next_ = event.offset
                    return
                place = StreamId.of(page.log_id, event.offset)
                kind = event.datacontenttype
                item = event_item(event.attributes, event.payload, kind, place, client.schema)
                found.append(item.frame("application/x-ndjson")[:-1])
            if page.is_done:
                next_ = None

    with suppress(TimeoutError):
        async with asyncio.timeout(given.wait):
            await look()
    progress = encode_json({"scanned": scanned, "total": total, "next": next_, "done": next_ is None and bool(total)})
    return WholeAnswer(200, b'{"events":[%b],%b' % (b",".join(found), progress[1:]), JSON)


async def related_subscriptions(call: GatewayCall) -> WholeAnswer:
    """Which subscriptions equal, cover, are covered by or overlap a filter."""
    given: FilterQuery = await call.body(FilterQuery)
    found = await within(call.client.client.relate(call.filter(given.filter)))
    return json_answer(msgspec.to_builtins(found))


async def check_filter(call: GatewayCall) -> WholeAnswer:
    """Check a filter, and perhaps try it on an event."""
    given: FilterRequest = await call.body(FilterRequest)
    known = call.filter(given.filter)
    event = None if given.event is None else read_event(given.event, call.schema)
    found = FilterAnswer(
        str(known),
        to_json(known),
        not normalize(known, call.schema),
        sorted(attributes(known)),
        None if event is None else matches(known, event),
    )
    return json_answer(found)


async def relate_filters(call: GatewayCall) -> WholeAnswer:
    """How two filters relate: which covers the other, whether they overlap, and what merges them."""
    given: RelateRequest = await call.body(RelateRequest)
    schema = call.schema
    one, other = call.filter(given.a), call.filter(given.b)

    def rest(wide: Any, narrow: Any) -> str | None:
        left = subtract(narrow, [wide], schema)
        return str(to_filter(NormalForm(tuple(left), schema))) if left else None

    found = RelateAnswer(
        covers(one, other, schema),
        covers(other, one, schema),
        overlaps(one, other, schema),
        str(to_filter(merge([one, other], schema).form)),
        rest(one, other),
        rest(other, one),
    )
    return json_answer(found)
