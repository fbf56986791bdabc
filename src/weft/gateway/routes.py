"""Every resource of the gateway, and what it does."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Any, TypeVar, cast

import msgspec

from weft.algebra.box import NormalForm
from weft.algebra.merge import merge
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, overlaps
from weft.algebra.subtract import subtract
from weft.algebra.to_filter import to_filter
from weft.client.options import filter_text
from weft.errors import PublishError
from weft.gateway.clients import UNORDERED, PrincipalClient
from weft.gateway.cloud_http import BATCH, MOST_BODY, read_event, read_events
from weft.gateway.durable import DurableOptions, DurableSubscription
from weft.gateway.feeds import LiveFeed, StreamReader, feed_stream
from weft.gateway.frames import StreamFormat, StreamId, event_item, format_of
from weft.gateway.openapi import description
from weft.gateway.problems import CONFLICT, INVALID, MEDIA, REQUEST, UNAVAILABLE, UNKNOWN, ProblemError
from weft.gateway.resources import (
    AckRequest,
    EventQuery,
    FilterAnswer,
    FilterQuery,
    FilterRequest,
    NackRequest,
    NewSubscription,
    PullRequest,
    RelateAnswer,
    RelateRequest,
    SearchQuery,
    SettledAnswer,
    SubscriptionAnswer,
    SubscriptionCondition,
    SubscriptionPatch,
    SubscriptionsAnswer,
    TraceQuery,
    filter_of,
    read_body,
    since_of,
)
from weft.language.any_filter import as_filter
from weft.language.ast import attributes
from weft.language.dialects import to_json
from weft.language.meaning import matches
from weft.language.trace import trace as trace_filter
from weft.model.schema import Schema, did_you_mean
from weft.protocol.questions import SubscriptionFacts

PATIENCE = 10.0  # seconds that a request waits for the broker
_LONG = 2_000  # characters of a filter beyond which the broker shows its beginning only
MOST_JSON = 1 << 20  # bytes of a request that is not an event
_JSON = "application/json"
_encode = msgspec.json.Encoder().encode
Waited = TypeVar("Waited")

_TEXT: dict[str, Any] = {"type": "string"}
_FLAG = {"type": "string", "enum": ["true", "false"]}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9}


class WholeAnswer(msgspec.Struct, frozen=True):
    """An answer that is whole."""

    status: int = 200
    body: bytes = b""
    kind: str = ""  # the media type
    headers: dict[str, str] = {}


class StreamAnswer(msgspec.Struct, frozen=True):
    """An answer that goes on: frames, until the stream ends or the client is gone."""

    frames: AsyncIterator[list[bytes]]
    format: StreamFormat
    done: Callable[[], None] = lambda: None  # called at the end, also of a stream that never began


@dataclass(slots=True)
class GatewayCall:
    """One request, as a route sees it."""

    method: str
    values: Mapping[str, str]  # of the path
    query: Mapping[str, str]
    headers: list[tuple[bytes, bytes]]
    receive: Callable[[int], Awaitable[bytes]]  # the body, of at most so many bytes
    gone: Callable[[], Coroutine[Any, Any, None]]  # returns when the client is gone, after the body is read
    client: PrincipalClient
    audit: Callable[..., None]
    counts: Counter[str]  # what has happened at the gateway
    host: str  # the address of the client
    format: StreamFormat | None = None  # of a WebSocket
    request: str = field(default_factory=lambda: secrets.token_hex(4))

    def header(self, name: bytes) -> str:
        """A header, empty if there is none. Raises ProblemError if it comes twice."""
        found = [value for each, value in self.headers if each == name]
        if len(found) > 1:
            raise ProblemError(REQUEST, f"the header {name.decode()} comes twice; keep one")
        return found[0].decode("latin-1") if found else ""

    async def body(self, kind: type[Any], *more: str) -> Any:
        """The body, read as JSON. Raises ProblemError."""
        given = self.header(b"content-type").partition(";")[0].strip().lower()
        if given not in (_JSON, *more):
            raise ProblemError(MEDIA, f"send the request with Content-Type: {_JSON}")
        return read_body(await self.receive(MOST_JSON), kind)

    @property
    def schema(self) -> Schema | None:
        """The schema of events, if the gateway has one."""
        return self.client.schema


RouteHandler = Callable[[GatewayCall], Awaitable[WholeAnswer | StreamAnswer]]


@dataclass(frozen=True)
class GatewayRoute:
    """One thing that can be done, and its description."""

    method: str
    path: str
    handler: RouteHandler
    summary: str
    body: type[Any] | None = None
    answer: type[Any] | None = None
    status: int = 200
    query: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    gives: str = ""  # stream, batch, or a media type
    takes_events: bool = False
    problems: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.handler.__name__

    @cached_property
    def names(self) -> list[str]:
        """The variable parts of its path."""
        return re.findall(r"{(\w+)}", self.path)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What matches its path."""
        return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path.replace(".", r"\.")))


async def _within(work: Awaitable[Any]) -> Any:
    """What the broker answers. Raises ProblemError if that takes too long."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await work
    except TimeoutError:
        raise ProblemError(UNAVAILABLE, f"the broker did not answer within {PATIENCE:g} s; try again") from None


async def _unless_gone(call: GatewayCall, work: Coroutine[Any, Any, Waited]) -> Waited:
    """The result of work that waits, which is cancelled if the client is gone."""
    gone, working = asyncio.create_task(call.gone()), asyncio.create_task(work)
    try:
        await asyncio.wait({gone, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ProblemError(REQUEST, "the client has closed the connection")
        return working.result()
    finally:
        gone.cancel()
        working.cancel()


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> WholeAnswer:
    return WholeAnswer(status, _encode(value), _JSON, headers or {})


# -- events --------------------------------------------------------------------------------------------------


async def publish(call: GatewayCall) -> WholeAnswer:
    """Publish CloudEvents; the answer comes when the broker has stored them."""
    durable = call.query.get("durable", "true")
    if durable not in ("true", "false"):
        raise ProblemError(REQUEST, f"durable is true or false, not {durable[:60]!r}")
    ttl = None
    if "ttl" in call.query:
        try:
            ttl = float(call.query["ttl"])
        except ValueError:
            raise ProblemError(REQUEST, f"ttl is a number of seconds, not {call.query['ttl'][:60]!r}") from None
    kind = call.header(b"content-type")
    events = read_events(kind, call.headers, await call.receive(MOST_BODY), call.schema, ttl)
    try:
        if len(events) == 1:
            await _within(call.client.client.publish(events[0], durable=durable == "true"))
        elif events:
            await _within(call.client.client.publish_many(events, durable=durable == "true"))
    except PublishError as error:
        if len(events) == 1:
            raise
        errors = [{"index": index, "detail": reason} for index, reason in sorted(error.refused.items())]
        stored = len(events) - len(errors)
        detail = f"the broker refused {len(errors)} of {len(events)} events, and has stored the others"
        raise ProblemError(INVALID, detail, errors=errors[:100], stored=stored) from None
    return WholeAnswer(202)


async def stream_events(call: GatewayCall) -> StreamAnswer:
    """Events that match a filter, as they come: `?where=magnitude>=5`."""
    text = filter_text(call.query.get("where", "TRUE"))
    form = call.format or format_of(call.header(b"accept"))
    after, since = _after(call), since_of(call.query.get("since"))
    client = call.client
    first, notice = None, None
    if after is not None:
        first, notice = await _within(client.log.begin(text, after))
    elif since is not None:
        first = since if isinstance(since, int) else await _within(client.log.find(since, text))
        await _within(client.log.page(first, text))  # raises what would end the stream
    reader = StreamReader(form)
    feed: LiveFeed = await _within(client.feed(text, reader))
    try:
        missed = None if after is None or first is None else await _within(feed.missed(after))
    except BaseException:
        feed.remove(reader)
        raise
    notices = [each for each in (notice, missed) if each is not None]
    return StreamAnswer(feed_stream(feed, client.log, reader, first, notices), form, lambda: feed.remove(reader))


def _after(call: GatewayCall) -> StreamId | None:
    """The event after which a stream goes on."""
    given = call.header(b"last-event-id") or call.query.get("after", "")
    return StreamId.parse(given) if given else None


# -- subscriptions -------------------------------------------------------------------------------------------


async def create_subscription(call: GatewayCall) -> WholeAnswer:
    """Create a subscription; its id is assigned."""
    given: NewSubscription = await call.body(NewSubscription)
    if given.id is not None:
        raise ProblemError(INVALID, "the id of a new subscription is assigned; choose one with PUT /subscriptions/ID")
    made = await _make(call, secrets.token_hex(6), given)
    return _json(await _shown(call, made), 201, {"location": f"/subscriptions/{made.id}"})


async def put_subscription(call: GatewayCall) -> WholeAnswer:
    """Create a subscription with an id of your choice, or change its filter."""
    given: NewSubscription = await call.body(NewSubscription)
    wanted = _id(call)
    if given.id not in (None, wanted):
        raise ProblemError(INVALID, f"the id is {wanted!r} in the address and {given.id!r} in the body")
    text = filter_text(filter_of(given))
    known: DurableSubscription | None = await _within(_known(call, wanted, text))
    if known is None:
        made = await _make(call, wanted, given)
        return _json(await _shown(call, made), 201, {"location": f"/subscriptions/{wanted}"})
    _check(given)
    if given.config.ordered != known.options.ordered or known.options.lag not in (None, given.config.lag):
        raise ProblemError(INVALID, "config cannot change; delete the subscription and create it again")
    await _replace(call, known, text)
    return _json(await _shown(call, known))


async def list_subscriptions(call: GatewayCall) -> WholeAnswer:
    """Your subscriptions."""
    client = call.client
    names = {client.session_name("", ordered) for ordered in (True, False)}

    async def every() -> list[SubscriptionAnswer]:
        found = []
        for prefix in sorted(names):
            async for session in client.client.sessions(prefix):
                name = session.name.removeprefix(prefix)
                if session.name.startswith(prefix) and "/" not in name:
                    facts = await _facts(call, session.name)
                    if facts is not None:
                        found.append(_answer(name, facts, client.durable.get(name)))
        return found

    return _json(SubscriptionsAnswer(await _within(every())))


async def read_subscription(call: GatewayCall) -> WholeAnswer:
    """One of your subscriptions."""
    return _json(await _shown(call, await _existing(call)))


async def patch_subscription(call: GatewayCall) -> WholeAnswer:
    """Change what a subscription selects, from the next event on; nothing is lost or sent twice."""
    given: SubscriptionPatch = await call.body(SubscriptionPatch, "application/merge-patch+json")
    if given.sink is not msgspec.UNSET:
        raise _no_sink()
    known = await _existing(call)
    new = NewSubscription(
        **{
            name: value
            for name in ("source", "types", "filters")
            if (value := getattr(given, name)) is not msgspec.UNSET
        }
    )
    if given.filters is msgspec.UNSET and (new.source or new.types):
        raise ProblemError(INVALID, "source and types are part of the filter; send filters, too")
    await _replace(call, known, filter_text(filter_of(new)))
    return _json(await _shown(call, known))


async def delete_subscription(call: GatewayCall) -> WholeAnswer:
    """End a subscription, with all events that wait for it."""
    known = await _existing(call)
    await _within(known.remove())
    call.client.durable.pop(known.id, None)
    call.audit("subscription removed", id=known.id, before=known.text, after="")
    return WholeAnswer(204)


async def stream_subscription(call: GatewayCall) -> StreamAnswer:
    """The events of a subscription, as they come. What is written is acknowledged."""
    form = call.format or format_of(call.header(b"accept"))
    known = await _existing(call)
    await _within(known.open())
    return StreamAnswer(known.stream(form, _after(call)), form)


async def pull(call: GatewayCall) -> WholeAnswer:
    """Some events of a subscription. They come again, unless they are acknowledged in time."""
    given: PullRequest = await call.body(PullRequest)
    known = await _existing(call)
    if known.is_reading:
        raise ProblemError(CONFLICT, "a stream reads this subscription; close it first")
    await _within(known.open())
    found = await _unless_gone(call, known.pull(given.max, given.wait, given.lease))
    headers = {
        "weft-offsets": ", ".join(str(each.item.offset) for each in found),
        "weft-attempts": ", ".join(str(each.attempt) for each in found),
    }
    body = b"[%b]" % b",".join(each.item.body for each in found)
    return WholeAnswer(200, body, BATCH, headers)


async def ack(call: GatewayCall) -> WholeAnswer:
    """Acknowledge events: they are not delivered again."""
    given: AckRequest = await call.body(AckRequest)
    known = await _existing(call)
    return _json(SettledAnswer(await _within(known.ack(given.upto, given.offsets))))


async def nack(call: GatewayCall) -> WholeAnswer:
    """Report events that could not be handled: they come again later, and after some failures are dead letters."""
    given: NackRequest = await call.body(NackRequest)
    known = await _existing(call)
    return _json(SettledAnswer(await _within(known.nack(given.offsets, given.reason))))


def _id(call: GatewayCall) -> str:
    found = call.values["id"]
    if not re.fullmatch(r"[A-Za-z0-9._~-]{1,64}", found):
        raise ProblemError(UNKNOWN, "there is no such subscription")
    return found


def _no_sink() -> ProblemError:
    detail = "the gateway does not deliver to a sink yet; leave sink out, and read the subscription with PULL"
    return ProblemError(INVALID, detail)


def _check(given: NewSubscription) -> None:
    if given.sink is not None or given.sinkcredential is not None:
        raise _no_sink()
    if given.protocol != "PULL" or given.protocolsettings:
        raise ProblemError(INVALID, f"the protocol is PULL, without settings, not {given.protocol[:60]!r}")


async def _make(call: GatewayCall, id: str, given: NewSubscription) -> DurableSubscription:
    _check(given)
    text = filter_text(filter_of(given))
    options = DurableOptions(since_of(given.config.since), given.config.ordered, given.config.lag)
    client = call.client
    made = DurableSubscription(client.log, id, client.session_name(id, options.ordered), text, options)
    client.durable[id] = made
    try:
        await _within(made.open())
    except BaseException:
        client.durable.pop(id, None)
        raise
    call.audit("subscription added", id=id, before="", after=text)
    return made


async def _replace(call: GatewayCall, known: DurableSubscription, text: str) -> None:
    before = known.text
    await _within(known.replace(text))
    call.audit("subscription changed", id=known.id, before=before, after=text)


async def _known(call: GatewayCall, id: str, text: str = "") -> DurableSubscription | None:
    """A subscription of the principal, as the broker has it; with `text`, if its filter is too long to be read."""
    client = call.client
    known = client.durable.get(id)
    if known is not None and not known.is_over:
        return known
    client.durable.pop(id, None)
    for ordered in (True, False):
        facts = await _facts(call, client.session_name(id, ordered))
        if facts is None:
            continue
        whole = facts.filter if len(facts.filter) < _LONG else text
        if not whole:
            detail = "its filter is too long to be read from the broker; send it again with PUT"
            raise ProblemError(CONFLICT, detail)
        known = DurableSubscription(client.log, id, facts.session, whole, DurableOptions(None, ordered, None))
        return client.durable.setdefault(id, known)
    return None


async def _facts(call: GatewayCall, session: str) -> SubscriptionFacts | None:
    """What the broker says of a subscription."""
    found = [each async for each in call.client.client.subscriptions(session)]
    return next((each for each in found if each.session == session), None)


async def _existing(call: GatewayCall) -> DurableSubscription:
    found = await _within(_known(call, _id(call)))
    if found is None:
        raise ProblemError(UNKNOWN, "there is no such subscription")
    return cast("DurableSubscription", found)


async def _shown(call: GatewayCall, known: DurableSubscription) -> SubscriptionAnswer:
    facts = await _within(_facts(call, known.session))
    if facts is None:
        call.client.durable.pop(known.id, None)
        raise ProblemError(UNKNOWN, "there is no such subscription")
    return _answer(known.id, facts, known)


def _answer(id: str, facts: SubscriptionFacts, known: DurableSubscription | None) -> SubscriptionAnswer:
    ordered = not facts.session.startswith(UNORDERED)
    complete = known is not None and known.is_complete
    condition = SubscriptionCondition(
        state="complete" if complete else "accepted",
        connected=facts.connected,
        behind=facts.behind,
        matched=facts.matched,
        gaps=0 if known is None else known.gaps,
    )
    settings: dict[str, Any] = {"ordered": ordered}
    if known is not None and known.options.lag is not None:
        settings["lag"] = known.options.lag
    return SubscriptionAnswer(id=id, filters=[{"sql": facts.filter}], config=settings, status=condition)


# -- questions -----------------------------------------------------------------------------------------------


async def explain(call: GatewayCall) -> WholeAnswer:
    """Where an event would go if it were published, and why."""
    given: EventQuery = await call.body(EventQuery)
    found = await _within(call.client.client.explain(read_event(given.event, call.schema)))
    more = {"brokers": found.brokers, "matched": found.matched, "whole": found.is_whole}
    return _json(msgspec.to_builtins(found) | more)


async def trace(call: GatewayCall) -> WholeAnswer:
    """The truth of each part of a filter, or of a subscription's filter, for an event."""
    given: TraceQuery = await call.body(TraceQuery)
    event = read_event(given.event, call.schema)
    if (given.filter is None) == (given.subscription is None):
        raise ProblemError(INVALID, "give either a filter or a subscription")
    if given.filter is not None:
        part = trace_filter(as_filter(given.filter), event)
        return _json({"matches": part.truth is True, "trace": part.to_dict()})
    call.values = {"id": given.subscription or ""}
    known = await _existing(call)
    found = await _within(call.client.client.trace(event, known.session))
    return _json({"matches": found.matches, "trace": msgspec.to_builtins(found.trace)})


async def why(call: GatewayCall) -> WholeAnswer:
    """Why a subscription gets nothing, or less than expected."""
    known = await _existing(call)
    found = await _within(call.client.client.why(known.session))
    return _json({"healthy": found.is_healthy, "findings": msgspec.to_builtins(found.findings)})


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
            as_filter(given.filter), since=since_of(given.since), until=since_of(given.until)
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
    progress = _encode({"scanned": scanned, "total": total, "next": next_, "done": next_ is None and bool(total)})
    return WholeAnswer(200, b'{"events":[%b],%b' % (b",".join(found), progress[1:]), _JSON)


async def related_subscriptions(call: GatewayCall) -> WholeAnswer:
    """Which subscriptions equal, cover, are covered by or overlap a filter."""
    given: FilterQuery = await call.body(FilterQuery)
    found = await _within(call.client.client.relate(as_filter(given.filter)))
    return _json(msgspec.to_builtins(found))


async def check_filter(call: GatewayCall) -> WholeAnswer:
    """Check a filter, and perhaps try it on an event."""
    given: FilterRequest = await call.body(FilterRequest)
    known = as_filter(given.filter)
    event = None if given.event is None else read_event(given.event, call.schema)
    found = FilterAnswer(
        str(known),
        to_json(known),
        not normalize(known, call.schema),
        sorted(attributes(known)),
        None if event is None else matches(known, event),
    )
    return _json(found)


async def relate_filters(call: GatewayCall) -> WholeAnswer:
    """How two filters relate: which covers the other, whether they overlap, and what merges them."""
    given: RelateRequest = await call.body(RelateRequest)
    schema = call.schema
    one, other = as_filter(given.a), as_filter(given.b)

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
    return _json(found)


# -- the gateway itself --------------------------------------------------------------------------------------


async def health(_: GatewayCall) -> WholeAnswer:
    """Whether the gateway runs."""
    return WholeAnswer(200, b'{"ready":true}', _JSON)


async def metrics(call: GatewayCall) -> WholeAnswer:
    """How often things have happened, for Prometheus; only for this machine."""
    if not is_loopback(call.host):
        raise ProblemError(UNKNOWN, "metrics are shown on the gateway's own machine only")
    lines = ["# TYPE weft_gateway_happened_total counter"]
    lines += [f'weft_gateway_happened_total{{what="{what}"}} {times}' for what, times in sorted(call.counts.items())]
    return WholeAnswer(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4")


async def openapi(_: GatewayCall) -> WholeAnswer:
    """This description."""
    return WholeAnswer(200, _described(), _JSON)


_STREAM = {"where": _TEXT, "since": _TEXT, "after": _TEXT}
_USUAL = frozenset({400, 401, 403, 429, 503})
_BODY = _USUAL | {413, 415, 422}
_ONE = _USUAL | {404}

ROUTES = [
    GatewayRoute(
        "POST",
        "/events",
        publish,
        "Publish events",
        status=202,
        query={"durable": _FLAG, "ttl": _SECONDS},
        takes_events=True,
        problems=_BODY | {507},
    ),
    GatewayRoute(
        "GET", "/events", stream_events, "Stream events", query=_STREAM, gives="stream", problems=_USUAL | {406}
    ),
    GatewayRoute(
        "POST",
        "/subscriptions",
        create_subscription,
        "Create a subscription",
        NewSubscription,
        SubscriptionAnswer,
        201,
        problems=_BODY | {507},
    ),
    GatewayRoute(
        "GET", "/subscriptions", list_subscriptions, "List subscriptions", None, SubscriptionsAnswer, problems=_USUAL
    ),
    GatewayRoute(
        "GET", "/subscriptions/{id}", read_subscription, "Read a subscription", None, SubscriptionAnswer, problems=_ONE
    ),
    GatewayRoute(
        "PUT",
        "/subscriptions/{id}",
        put_subscription,
        "Create or change a subscription",
        NewSubscription,
        SubscriptionAnswer,
        problems=_BODY | {404, 409, 507},
    ),
    GatewayRoute(
        "PATCH",
        "/subscriptions/{id}",
        patch_subscription,
        "Change a subscription",
        SubscriptionPatch,
        SubscriptionAnswer,
        problems=_BODY | {404, 507},
    ),
    GatewayRoute(
        "DELETE", "/subscriptions/{id}", delete_subscription, "End a subscription", status=204, problems=_ONE | {507}
    ),
    GatewayRoute(
        "GET",
        "/subscriptions/{id}/events",
        stream_subscription,
        "Stream the events of a subscription",
        query={"after": _TEXT},
        gives="stream",
        problems=_ONE | {406},
    ),
    GatewayRoute(
        "POST", "/subscriptions/{id}/pull", pull, "Pull events", PullRequest, gives="batch", problems=_BODY | {404, 409}
    ),
    GatewayRoute(
        "POST", "/subscriptions/{id}/ack", ack, "Acknowledge events", AckRequest, SettledAnswer, problems=_BODY | {404}
    ),
    GatewayRoute(
        "POST", "/subscriptions/{id}/nack", nack, "Refuse events", NackRequest, SettledAnswer, problems=_BODY | {404}
    ),
    GatewayRoute("POST", "/explain", explain, "Explain where an event goes", EventQuery, gives=_JSON, problems=_BODY),
    GatewayRoute("POST", "/filters/check", check_filter, "Check a filter", FilterRequest, FilterAnswer, problems=_BODY),
    GatewayRoute(
        "POST", "/filters/relate", relate_filters, "Relate two filters", RelateRequest, RelateAnswer, problems=_BODY
    ),
    GatewayRoute("POST", "/trace", trace, "Trace a filter", TraceQuery, gives=_JSON, problems=_BODY | {404}),
    GatewayRoute("GET", "/subscriptions/{id}/why", why, "Why nothing comes", gives=_JSON, problems=_ONE),
    GatewayRoute("POST", "/search", search, "Search stored events", SearchQuery, gives=_JSON, problems=_BODY),
    GatewayRoute(
        "POST",
        "/subscriptions/related",
        related_subscriptions,
        "Relate a filter to subscriptions",
        FilterQuery,
        gives=_JSON,
        problems=_BODY,
    ),
    GatewayRoute("GET", "/health", health, "Health", gives=_JSON),
    GatewayRoute("GET", "/metrics", metrics, "Metrics", gives="text/plain", problems=frozenset({404})),
    GatewayRoute("GET", "/openapi.json", openapi, "Description", gives=_JSON),
]
OPEN = {"/health", "/metrics", "/openapi.json"}  # nobody needs to be logged in

_text: list[bytes] = []


def _described() -> bytes:
    if not _text:
        _text.append(_encode(description(ROUTES)))
    return _text[0]


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return not host


def check_query(route: GatewayRoute, query: Mapping[str, str]) -> None:
    """Raise ProblemError for a parameter that a route does not have."""
    for name in query:
        if name not in route.query:
            raise ProblemError(REQUEST, f"{name[:60]!r} is not a parameter here{did_you_mean(name, route.query)}")
