"""Dead letters: events that a subscriber failed to handle too often; retry them, drop them, or publish them anew."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from weft.console.page import ConsoleCall, ConsolePage, get, post
from weft.console.pages.events import event_row
from weft.console.pages.listing import number_of
from weft.errors import RequestError

MOST_QUEUES = 200  # sessions that are looked through
MOST_SEEN = 5_000  # sessions of whomever that are passed over
_TOGETHER = 20
_LISTED = 100


async def queues(call: ConsoleCall) -> dict[str, Any]:
    """Which of one's own durable sessions have dead letters; the first sessions whose names contain a text."""
    client = call.client.client
    names: list[str] = []
    more, seen = False, 0
    async for each in client.sessions(call.query.get("text", "")):
        seen += 1
        if seen > MOST_SEEN:
            more = True
            break
        if not each.name or not each.queues or each.owner != call.client.principal:
            continue
        if len(names) == MOST_QUEUES:
            more = True
            break
        names.append(each.name)
    found = []
    for at in range(0, len(names), _TOGETHER):
        part = names[at : at + _TOGETHER]
        letters = await asyncio.gather(*(_letters(client, name) for name in part))
        for name, some in zip(part, letters, strict=True):
            if some:
                newest = max(some, key=lambda each: each.died_at)
                found.append(
                    {
                        "session": name,
                        "letters": len(some),
                        "whole": len(some) < _LISTED,
                        "reason": newest.reason,
                        "at": newest.died_at.timestamp(),
                    }
                )
    return {"queues": found, "looked": len(names), "more": more}


async def _letters(client: Any, name: str) -> list[Any]:
    try:
        found: list[Any] = await client.dead_letters.list(name, limit=_LISTED)
    except RequestError:  # it has no durable queue, or is gone
        return []
    return found


async def letters(call: ConsoleCall) -> dict[str, Any]:
    """The dead letters of a session, or of a shared subscription."""
    query = call.query
    name, shared = query.get("session", ""), query.get("shared", "") == "yes"
    after = number_of(query.get("after", ""), "after") or 0
    found = await call.client.client.dead_letters.list(name, shared=shared, limit=_LISTED, after=after)
    rows = [
        event_row(each.offset, None, each.attributes, each.payload)
        | {"failures": each.failures, "reason": each.reason, "at": each.died_at.timestamp()}
        for each in found
    ]
    return {"rows": rows, "more": len(rows) == _LISTED}


class LettersRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Some dead letters of a session."""

    session: str
    offsets: list[int]
    shared: bool = False


async def retry(call: ConsoleCall) -> dict[str, Any]:
    """Deliver dead letters once more, to the current consumer."""
    given: LettersRequest = await call.body(LettersRequest)
    letters = call.client.client.dead_letters
    done = await letters.redeliver(*given.offsets, name=given.session, shared=given.shared)
    call.audit("dead letters tried again", session=given.session, offsets=given.offsets, done=done)
    return {"done": done}


async def drop(call: ConsoleCall) -> dict[str, Any]:
    """Remove dead letters."""
    given: LettersRequest = await call.body(LettersRequest)
    letters = call.client.client.dead_letters
    done = await letters.discard(*given.offsets, name=given.session, shared=given.shared)
    call.audit("dead letters dropped", session=given.session, offsets=given.offsets, done=done)
    return {"done": done}


PAGE = ConsolePage(
    "dead",
    "Dead letters",
    "Operate",
    "Events that failed too often: try again, drop, edit and publish anew",
    (
        get("/dead/queues", queues, "text"),
        get("/dead", letters, "session", "shared", "after"),
        post("/dead/retry", retry),
        post("/dead/drop", drop),
    ),
)
