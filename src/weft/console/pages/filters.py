"""The workbench: what a filter means, what it covers, what it matches, and what an edit would change."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.algebra.example import counterexample, shown_example
from weft.algebra.merge import merge
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, intersect, overlaps
from weft.algebra.to_filter import to_filter, values_to_filter
from weft.client.questions import expected
from weft.console.page import ConsoleCall, ConsolePage, get, post
from weft.console.pages.listing import page_token
from weft.errors import AccessError, RequestError
from weft.gateway.resources import FilterQuery
from weft.language.ast import TRUE, Filter, attributes, conjunction
from weft.language.membership import attribute_of
from weft.lint import lint_filters
from weft.protocol.questions import AskRelated, RelatedList

_BOXES = 20  # that are shown
_SEEN = 200  # recent events that say which attributes there are


async def check(call: ConsoleCall) -> dict[str, Any]:
    """A filter as Weft reads it. Raises FilterSyntaxError with the place."""
    given: FilterQuery = await call.body(FilterQuery)
    known = call.filter(given.filter)
    return {"filter": str(known), "empty": not normalize(known, call.schema), "attributes": sorted(attributes(known))}


async def meaning(call: ConsoleCall) -> dict[str, Any]:
    """What a filter means: its boxes, attribute by attribute, and what is probably wrong with it."""
    given: FilterQuery = await call.body(FilterQuery)
    known, schema = call.filter(given.filter), call.schema
    form = normalize(known, schema)
    boxes = []
    for box in form.boxes[:_BOXES]:
        alone = [(attribute_of(name), values_to_filter(name, values, schema)) for name, values in box.sets.items()]
        together = [(", ".join(subject.names), subject.to_filter(some)) for subject, some in box.residuals.items()]
        boxes.append([{"attribute": name, "condition": str(test)} for name, test in [*alone, *together]])
    seen = await _recent(call)
    report = lint_filters([("filter", known)], schema, None if seen is None else seen)
    lint = [{"kind": each.kind, "text": each.message} for each in report.findings]
    return {
        "filter": str(known),
        "boxes": boxes,
        "more": max(0, len(form.boxes) - _BOXES),
        "everything": covers(form, TRUE, schema),
        "empty": not form,
        "lint": lint,
        "linted": 0 if seen is None else len(seen),
    }


async def _recent(call: ConsoleCall) -> list[dict[str, Any]] | None:
    """The newest events of the broker, if they may be read: they say which attributes there are."""
    client = call.client.client
    try:
        page = await client.read_history(0, 1)
        first = max(page.oldest, page.end - _SEEN)
        return [event.attributes async for event in client.history(first=first)]
    except (AccessError, RequestError):
        return None


class CompareRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Two filters."""

    a: str
    b: str


async def compare(call: ConsoleCall) -> dict[str, Any]:
    """How two filters relate: proof of covering, or an event that disproves it."""
    given: CompareRequest = await call.body(CompareRequest)
    one, other, schema = call.filter(given.a), call.filter(given.b), call.schema
    return {
        "a": str(one),
        "b": str(other),
        "a_covers_b": _covering(one, other, schema),
        "b_covers_a": _covering(other, one, schema),
        "overlap": overlaps(one, other, schema),
        "both": str(to_filter(both)) if (both := intersect(one, other, schema)) else None,
        "merged": str(to_filter(merge([one, other], schema).form)),
    }


def _covering(wide: Filter, narrow: Filter, schema: Any) -> dict[str, Any]:
    """Whether one filter covers another: a proof, a counter-example, or neither."""
    if not covers(wide, narrow, schema):
        event = counterexample(wide, narrow, schema)
        return {"covers": False, "example": None if event is None else shown_example(event)}
    steps = []
    outer = normalize(wide, schema)
    for box in normalize(narrow, schema).boxes[:_BOXES]:
        inside = [each for each in outer.boxes if covers(each, box, schema)]
        part = str(to_filter(box))
        steps.append({"part": part, "inside": str(to_filter(inside[0])) if inside else "several parts together"})
    return {"covers": True, "proof": steps}


async def difference(call: ConsoleCall) -> dict[str, Any]:
    """What an edit of a filter changes: filters of the events gained and lost, null where it is proven that none is."""
    given: CompareRequest = await call.body(CompareRequest)
    before, after, schema = call.filter(given.a), call.filter(given.b), call.schema
    return {
        "before": str(before),
        "after": str(after),
        "gained": None if covers(before, after, schema) else str(_without(call, after, before)),
        "lost": None if covers(after, before, schema) else str(_without(call, before, after)),
    }


def _without(call: ConsoleCall, wanted: Filter, unwanted: Filter) -> Filter:
    """What matches one filter and not the other, absent attributes included."""
    return conjunction(wanted, call.filter(f"({unwanted}) IS NOT TRUE"))


async def related(call: ConsoleCall) -> dict[str, Any]:
    """Subscriptions that equal, cover, are covered by or overlap a filter; one part of the work at a time."""
    query = call.query
    wanted = str(call.filter(query.get("filter", "")))
    found = await call.client.client.ask(
        AskRelated(wanted), broker=query.get("broker", ""), page=page_token(query.get("page", ""))
    )
    answer = expected(found.answer, RelatedList)
    return {
        "rows": msgspec.to_builtins(answer.rows),
        "sends": msgspec.to_builtins(answer.sends),
        "seen": answer.seen,
        "total": answer.total,
        "page": found.page.hex(),
    }


PAGE = ConsolePage(
    "filters",
    "Workbench",
    "Operate",
    "Try a filter: errors, meaning, covering, matches, and what an edit changes",
    (
        post("/filters/check", check),
        post("/filters/meaning", meaning),
        post("/filters/compare", compare),
        post("/filters/difference", difference),
        get("/filters/related", related, "filter", "broker", "page"),
    ),
)
