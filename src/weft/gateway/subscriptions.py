"""Subscriptions with a name over HTTP: the CloudEvents Subscriptions API, streams, pull, ack and nack."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from weft.client.options import filter_text
from weft.gateway.calls import (
    GatewayCall,
    StreamAnswer,
    WholeAnswer,
    after_id,
    json_answer,
    unless_gone,
    within,
)
from weft.gateway.cloud_http import BATCH
from weft.gateway.durable import DurableOptions, DurableSubscription, SessionName
from weft.gateway.frames import format_of
from weft.gateway.problems import CONFLICT, INVALID, UNKNOWN, ProblemError
from weft.gateway.resources import (
    AckRequest,
    NackRequest,
    NewSubscription,
    PullRequest,
    SettledAnswer,
    SubscriptionAnswer,
    SubscriptionCondition,
    SubscriptionPatch,
    SubscriptionsAnswer,
    filter_of,
    since_of,
)
from weft.protocol.questions import SubscriptionFacts

_LONG = 2_000  # characters of a filter beyond which the broker shows its beginning only


async def create_subscription(call: GatewayCall) -> WholeAnswer:
    """Create a subscription; its id is assigned."""
    given: NewSubscription = await call.body(NewSubscription)
    if given.id is not None:
        raise ProblemError(INVALID, "the id of a new subscription is assigned; choose one with PUT /subscriptions/ID")
    made = await _make(call, secrets.token_hex(6), given)
    return json_answer(await _shown(call, made), 201, {"location": f"/subscriptions/{made.id}"})


async def put_subscription(call: GatewayCall) -> WholeAnswer:
    """Create a subscription with an id of your choice, or change its filter."""
    given: NewSubscription = await call.body(NewSubscription)
    wanted = _id(call)
    if given.id not in (None, wanted):
        raise ProblemError(INVALID, f"the id is {wanted!r} in the address and {given.id!r} in the body")
    text = filter_text(filter_of(given, call.predicates))
    known: DurableSubscription | None = await within(_known(call, wanted, text))
    if known is None:
        made = await _make(call, wanted, given)
        return json_answer(await _shown(call, made), 201, {"location": f"/subscriptions/{wanted}"})
    _check(given)
    new, old = given.config, known.options
    if (new.ordered, new.expires) != (old.ordered, old.expires) or old.lag not in (None, new.lag):
        raise ProblemError(INVALID, "config cannot change; delete the subscription and create it again")
    await _replace(call, known, text)
    return json_answer(await _shown(call, known))


async def list_subscriptions(call: GatewayCall) -> WholeAnswer:
    """Your subscriptions."""
    client = call.client

    async def every() -> list[SubscriptionAnswer]:
        found = []
        async for session in client.client.sessions(f"/{client.principal}/"):
            named = SessionName.read(session.name, client.principal)
            facts = None if named is None else await _facts(call, session.name)
            if named is not None and facts is not None:
                found.append(_answer(named, facts, client.durable.get(named.id)))
        return sorted(found, key=lambda each: each.id)

    return json_answer(SubscriptionsAnswer(await within(every())))


async def read_subscription(call: GatewayCall) -> WholeAnswer:
    """One of your subscriptions."""
    return json_answer(await _shown(call, await existing(call)))


async def patch_subscription(call: GatewayCall) -> WholeAnswer:
    """Change what a subscription selects, from the next event on; nothing is lost or sent twice."""
    given: SubscriptionPatch = await call.body(SubscriptionPatch, "application/merge-patch+json")
    if given.sink is not msgspec.UNSET:
        raise _no_sink()
    known = await existing(call)
    new = NewSubscription(
        **{
            name: value
            for name in ("source", "types", "filters")
            if (value := getattr(given, name)) is not msgspec.UNSET
        }
    )
    if given.filters is msgspec.UNSET and (new.source or new.types):
        raise ProblemError(INVALID, "source and types are part of the filter; send filters, too")
    await _replace(call, known, filter_text(filter_of(new, call.predicates)))
    return json_answer(await _shown(call, known))


async def delete_subscription(call: GatewayCall) -> WholeAnswer:
    """End a subscription, with all events that wait for it."""
    known = await existing(call)
    await within(known.remove())
    call.client.durable.pop(known.id, None)
    call.audit("subscription removed", id=known.id, before=known.text, after="")
    return WholeAnswer(204)


async def stream_subscription(call: GatewayCall) -> StreamAnswer:
    """The events of a subscription, as they come. What is written is acknowledged."""
    form = call.format or format_of(call.header(b"accept"))
    known = await existing(call)
    await within(known.open())
    return StreamAnswer(known.stream(form, after_id(call)), form)


async def pull(call: GatewayCall) -> WholeAnswer:
    """Some events of a subscription. They come again, unless they are acknowledged in time."""
    given: PullRequest = await call.body(PullRequest)
    known = await existing(call)
    if known.is_reading:
        raise ProblemError(CONFLICT, "a stream reads this subscription; close it first")
    await within(known.open())
    found = await unless_gone(call, known.pull(given.max, given.wait, given.lease))
    headers = {
        "weft-offsets": ", ".join(str(each.item.offset) for each in found),
        "weft-attempts": ", ".join(str(each.attempt) for each in found),
    }
    body = b"[%b]" % b",".join(each.item.body for each in found)
    return WholeAnswer(200, body, BATCH, headers)


async def ack(call: GatewayCall) -> WholeAnswer:
    """Acknowledge events: they are not delivered again."""
    given: AckRequest = await call.body(AckRequest)
    known = await existing(call)
    return json_answer(SettledAnswer(await within(known.ack(given.upto, given.offsets))))


async def nack(call: GatewayCall) -> WholeAnswer:
    """Report events that could not be handled: they come again later, and after some failures are dead letters."""
    given: NackRequest = await call.body(NackRequest)
    known = await existing(call)
    return json_answer(SettledAnswer(await within(known.nack(given.offsets, given.reason))))


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
    text = filter_text(filter_of(given, call.predicates))
    config, client = given.config, call.client
    options = DurableOptions(since_of(config.since), config.ordered, config.lag, config.expires)
    name = str(SessionName(client.principal, id, config.ordered, config.expires))
    made = DurableSubscription(client.log, id, name, text, options)
    client.durable[id] = made
    try:
        await within(made.open())
    except BaseException:
        client.durable.pop(id, None)
        raise
    call.audit("subscription added", id=id, before="", after=text)
    return made


async def _replace(call: GatewayCall, known: DurableSubscription, text: str) -> None:
    before = known.text
    await within(known.replace(text))
    call.audit("subscription changed", id=known.id, before=before, after=text)


async def _known(call: GatewayCall, id: str, text: str = "") -> DurableSubscription | None:
    """A subscription of the principal, as the broker has it; with `text`, if its filter is too long to be read."""
    client = call.client
    known = client.durable.get(id)
    if known is not None and not known.is_over:
        return known
    client.durable.pop(id, None)
    async for named in _names(call, id):
        facts = await _facts(call, str(named))
        if facts is None:
            continue
        whole = facts.filter if len(facts.filter) < _LONG else text
        if not whole:
            detail = "its filter is too long to be read from the broker; send it again with PUT"
            raise ProblemError(CONFLICT, detail)
        options = DurableOptions(None, named.ordered, None, named.expires)
        return client.durable.setdefault(id, DurableSubscription(client.log, id, facts.session, whole, options))
    return None


async def _names(call: GatewayCall, id: str) -> AsyncIterator[SessionName]:
    """The sessions that a subscription may have: most often one of the first two; only one that expires is sought."""
    client = call.client
    for ordered in (True, False):
        yield SessionName(client.principal, id, ordered)
    async for session in client.client.sessions(f"/{client.principal}/{id}"):
        named = SessionName.read(session.name, client.principal)
        if named is not None and named.id == id and named.expires is not None:
            yield named


async def _facts(call: GatewayCall, session: str) -> SubscriptionFacts | None:
    """What the broker says of a subscription."""
    found = [each async for each in call.client.client.subscriptions(session)]
    return next((each for each in found if each.session == session), None)


async def existing(call: GatewayCall) -> DurableSubscription:
    """The subscription that a request is about. Raises ProblemError."""
    found = await within(_known(call, _id(call)))
    if found is None:
        raise ProblemError(UNKNOWN, "there is no such subscription")
    return cast("DurableSubscription", found)


async def _shown(call: GatewayCall, known: DurableSubscription) -> SubscriptionAnswer:
    facts = await within(_facts(call, known.session))
    if facts is None:
        call.client.durable.pop(known.id, None)
        raise ProblemError(UNKNOWN, "there is no such subscription")
    named = SessionName.read(known.session, call.client.principal)
    assert named is not None
    return _answer(named, facts, known)


def _answer(named: SessionName, facts: SubscriptionFacts, known: DurableSubscription | None) -> SubscriptionAnswer:
    condition = SubscriptionCondition(
        state="accepted" if facts.waiting_for else "complete",
        waiting_for=list(facts.waiting_for or ()),
        connected=facts.connected,
        behind=facts.behind,
        matched=facts.matched,
        gaps=0 if known is None else known.gaps,
    )
    settings: dict[str, Any] = {"ordered": named.ordered}
    if named.expires is not None:
        settings["expires"] = named.expires
    if known is not None and known.options.lag is not None:
        settings["lag"] = known.options.lag
    return SubscriptionAnswer(id=named.id, filters=[{"sql": facts.filter}], config=settings, status=condition)
