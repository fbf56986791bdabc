"""Events: those that are stored, by a filter, and then the live tail."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from weft.client.async_subscription import Subscription
from weft.client.options import filter_text
from weft.client.questions import SearchPage, SearchPages
from weft.console.page import ConsoleCall, ConsolePage, TopicWatch, post
from weft.gateway.resources import since_of
from weft.model.value import from_micros
from weft.server.clock import clock

MOST_SHOWN = 200  # bytes of a payload
FRAME = 0.5  # seconds between two frames of a tail
SAMPLE = 10  # events of a frame
_HELD = 10_000  # events that wait to be counted
_WORK = 0.4  # seconds that one answer looks for events


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which stored events: a filter, from an offset, a time or an age in seconds on, until one; at most so many."""

    filter: str = ""
    since: int | str | None = None
    age: float | None = None
    until: int | str | None = None
    max: int = 100
    count: bool = False  # whether events beyond `max` are counted
    broker: str = ""


async def search(call: ConsoleCall) -> dict[str, Any]:
    """Some stored events that match, and how far the search got; go on with `since` = `next` and `until` = `end`."""
    given: SearchRequest = await call.body(SearchRequest)
    since: int | datetime | None = since_of(given.since)
    if given.age is not None:
        since = from_micros(int(clock().utc - given.age * 1e6))
    most = max(0, min(given.max, 500))
    pages = SearchPages(filter_text(given.filter or "TRUE"), since, since_of(given.until))
    found: list[dict[str, Any]] = []
    page: SearchPage | None = None
    loop = asyncio.get_running_loop()
    until = loop.time() + _WORK
    next_, minutes = 0, Counter[int]()
    while page is None or (not pages.is_done and (given.count or len(found) < most) and loop.time() < until):
        page = pages.page((await call.client.client.ask(pages.question, broker=given.broker)).answer)
        next_ = page.next
        for event in page.events:
            if len(found) < most:
                found.append(event_row(event.offset, event.stored_at, event.attributes, event.payload))
            elif not given.count:
                next_ = event.offset
                break
            minutes[int(event.stored_at.timestamp() // 60)] += 1
    return {
        "events": found,
        "matched": minutes.total(),
        "minutes": sorted(minutes.items()),
        "scanned": page.scanned - (page.next - next_),
        "total": page.total,
        "next": next_,
        "end": page.next - page.scanned + page.total,
        "done": pages.is_done and next_ == page.next,
        "oldest": page.oldest,
        "log": page.log_id,
    }


def event_row(offset: int | None, at: datetime | None, attributes: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
    """An event for pages: its attributes, and its payload as text if it is one."""
    shown = payload[:MOST_SHOWN]
    try:
        text, kind = shown.decode(), "text"
    except UnicodeDecodeError:
        text, kind = base64.b64encode(shown).decode(), "base64"
    return {
        "offset": offset,
        "at": None if at is None else at.timestamp(),
        "attributes": {name: _value(value) for name, value in attributes.items()},
        "payload": {"kind": kind, "text": text, "size": len(payload)},
    }


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if "." in text else text) + "Z"  # every timestamp is in UTC
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 53:
        return str(value)  # JavaScript has no such numbers
    return value


async def tail_topic(watch: TopicWatch) -> AsyncIterator[dict[str, Any]]:
    """New events that match a filter: a sample of them, and how many there really are."""
    loop = asyncio.get_running_loop()
    rows: list[dict[str, Any]] = []
    total = 0

    async def read(events: Subscription) -> None:
        nonlocal total
        async for event in events:
            total += 1
            if len(rows) < SAMPLE:
                at = clock().utc / 1e6
                rows.append(event_row(event.offset, None, event.attributes, event.payload) | {"n": total, "at": at})

    async with watch.client.client.subscribe(watch.argument or "TRUE", lag=_HELD) as events:
        reading = asyncio.create_task(read(events), name="weft-tail")
        try:
            seen, began = 0, loop.time()
            yield {"events": [], "total": 0, "rate": 0.0, "dropped": 0}
            while not reading.done():
                await asyncio.wait({reading}, timeout=FRAME)
                now = loop.time()
                shown, rows = rows, []
                yield {
                    "events": shown,
                    "total": total,
                    "rate": (total - seen) / (now - began),
                    "dropped": events.dropped,
                }
                seen, began = total, now
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


PAGE = ConsolePage(
    "events",
    "Events",
    "Operate",
    "Stored events by filter, then the live tail",
    (post("/events/search", search),),
    {"tail": tail_topic},
)
