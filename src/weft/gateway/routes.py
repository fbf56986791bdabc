"""Every resource of the gateway: the table of routes, events, and the gateway itself."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from weft.client.options import filter_text
from weft.errors import PublishError
from weft.gateway.calls import (
    JSON,
    GatewayCall,
    GatewayRoute,
    StreamAnswer,
    WholeAnswer,
    after_id,
    encode_json,
    within,
)
from weft.gateway.cloud_http import MOST_BODY, read_events
from weft.gateway.feeds import LiveFeed, StreamReader, feed_stream
from weft.gateway.frames import format_of
from weft.gateway.openapi import description
from weft.gateway.problems import INVALID, REQUEST, UNKNOWN, ProblemError
from weft.gateway.questions import check_filter, explain, relate_filters, related_subscriptions, search, trace, why
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
    SubscriptionPatch,
    SubscriptionsAnswer,
    TraceQuery,
    since_of,
)
from weft.gateway.subscriptions import (
    ack,
    create_subscription,
    delete_subscription,
    list_subscriptions,
    nack,
    patch_subscription,
    pull,
    put_subscription,
    read_subscription,
    stream_subscription,
)
from weft.model.schema import did_you_mean

_TEXT: dict[str, Any] = {"type": "string"}
_FLAG = {"type": "string", "enum": ["true", "false"]}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9}


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
        offset = 0
        if len(events) == 1:
            receipt = await within(call.client.client.publish(events[0], durable=durable == "true"))
            offset = receipt.offset
        elif events:
            await within(call.client.client.publish_many(events, durable=durable == "true"))
    except PublishError as error:
        if len(events) == 1:
            raise
        errors = [{"index": index, "detail": reason} for index, reason in sorted(error.refused.items())]
        stored = len(events) - len(errors)
        detail = f"the broker refused {len(errors)} of {len(events)} events, and has stored the others"
        raise ProblemError(INVALID, detail, errors=errors[:100], stored=stored) from None
    return WholeAnswer(202, headers={"weft-offset": str(offset)} if offset else {})


async def stream_events(call: GatewayCall) -> StreamAnswer:
    """Events that match a filter, as they come: `?where=magnitude>=5`."""
    text = filter_text(call.query.get("where", "TRUE"))
    form = call.format or format_of(call.header(b"accept"))
    after, since = after_id(call), since_of(call.query.get("since"))
    client = call.client
    first, notice = None, None
    if after is not None:
        first, notice = await within(client.log.begin(text, after))
    elif since is not None:
        first = since if isinstance(since, int) else await within(client.log.find(since, text))
        await within(client.log.page(first, text))  # raises what would end the stream
    reader = StreamReader(form)
    feed: LiveFeed = await within(client.feed(text, reader))
    try:
        missed = None if after is None or first is None else await within(feed.missed(after))
    except BaseException:
        feed.remove(reader)
        raise
    notices = [each for each in (notice, missed) if each is not None]
    return StreamAnswer(feed_stream(feed, client.log, reader, first, notices), form, lambda: feed.remove(reader))


# -- the gateway itself --------------------------------------------------------------------------------------


async def health(_: GatewayCall) -> WholeAnswer:
    """Whether the gateway runs."""
    return WholeAnswer(200, b'{"ready":true}', JSON)


async def metrics(call: GatewayCall) -> WholeAnswer:
    """How often things have happened, for Prometheus; only for this machine."""
    if not is_loopback(call.host):
        raise ProblemError(UNKNOWN, "metrics are shown on the gateway's own machine only")
    lines = ["# TYPE weft_gateway_happened_total counter"]
    lines += [f'weft_gateway_happened_total{{what="{what}"}} {times}' for what, times in sorted(call.counts.items())]
    return WholeAnswer(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4")


async def openapi(_: GatewayCall) -> WholeAnswer:
    """This description."""
    return WholeAnswer(200, _described(), JSON)


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
    GatewayRoute("POST", "/explain", explain, "Explain where an event goes", EventQuery, gives=JSON, problems=_BODY),
    GatewayRoute("POST", "/filters/check", check_filter, "Check a filter", FilterRequest, FilterAnswer, problems=_BODY),
    GatewayRoute(
        "POST", "/filters/relate", relate_filters, "Relate two filters", RelateRequest, RelateAnswer, problems=_BODY
    ),
    GatewayRoute("POST", "/trace", trace, "Trace a filter", TraceQuery, gives=JSON, problems=_BODY | {404}),
    GatewayRoute("GET", "/subscriptions/{id}/why", why, "Why nothing comes", gives=JSON, problems=_ONE),
    GatewayRoute("POST", "/search", search, "Search stored events", SearchQuery, gives=JSON, problems=_BODY),
    GatewayRoute(
        "POST",
        "/subscriptions/related",
        related_subscriptions,
        "Relate a filter to subscriptions",
        FilterQuery,
        gives=JSON,
        problems=_BODY,
    ),
    GatewayRoute("GET", "/health", health, "Health", gives=JSON),
    GatewayRoute("GET", "/metrics", metrics, "Metrics", gives="text/plain", problems=frozenset({404})),
    GatewayRoute("GET", "/openapi.json", openapi, "Description", gives=JSON),
]
OPEN = {"/health", "/metrics", "/openapi.json"}  # nobody needs to be logged in

_text: list[bytes] = []


def _described() -> bytes:
    if not _text:
        _text.append(encode_json(description(ROUTES)))
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
