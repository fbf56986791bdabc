"""What requests and answers look like: the types that are read, written, and described in `/openapi.json`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from weft.errors import OptionError
from weft.gateway.problems import INVALID, REQUEST, ProblemError
from weft.language.any_filter import as_filter
from weft.language.ast import Filter, conjunction
from weft.language.builder import F
from weft.language.dialects import from_json
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.value import from_micros, parse_timestamp

Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
SubscriptionName = Annotated[str, Meta(pattern="^[A-Za-z0-9._~-]{1,64}$")]
SettledOffsets = Annotated[list[Annotated[int, Meta(ge=1, le=(1 << 62))]], Meta(max_length=1_000)]
Body = TypeVar("Body")


class _Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A body of a request: an unknown field is an error."""


class SubscriptionSettings(_Request, omit_defaults=True, frozen=True):
    """Settings of a subscription: where it begins, whether it is ordered, how far it may be behind, and after how many
    seconds without a reader it is removed.
    """

    since: Annotated[int, Meta(ge=0, le=(1 << 62))] | str | None = None
    ordered: bool = True
    lag: Annotated[int, Meta(ge=0, le=(1 << 62))] = 0
    expires: Annotated[int, Meta(ge=1, le=10**9)] | None = None


class NewSubscription(_Request, frozen=True):
    """A subscription, as the CloudEvents Subscriptions API 0.1 has it."""

    id: SubscriptionName | None = None
    source: Text | None = None
    types: Annotated[list[Text], Meta(min_length=1, max_length=1_000)] | None = None
    filters: Annotated[list[dict[str, Any]], Meta(max_length=1_000)] | None = None
    sink: str | None = None
    sinkcredential: dict[str, Any] | None = None
    protocol: str = "PULL"
    protocolsettings: dict[str, Any] | None = None
    config: SubscriptionSettings = SubscriptionSettings()


class SubscriptionPatch(_Request, frozen=True):
    """A merge patch of a subscription. Only what selects events can change."""

    source: Text | UnsetType | None = UNSET
    types: Annotated[list[Text], Meta(min_length=1, max_length=1000)] | UnsetType | None = UNSET
    filters: Annotated[list[dict[str, Any]], Meta(max_length=1000)] | UnsetType | None = UNSET
    sink: Any | UnsetType = UNSET


class SubscriptionCondition(msgspec.Struct, kw_only=True):
    """How a subscription is."""

    state: str  # accepted, or complete: active at every broker
    waiting_for: list[str] = []  # neighbours of the broker that have not confirmed it yet
    connected: bool  # a reader of it has a connection to the broker
    behind: int  # events that are not acknowledged
    matched: int  # events that it matched since the broker started
    gaps: int = 0  # ranges of events that were dropped, because it was too far behind


class SubscriptionAnswer(msgspec.Struct, kw_only=True):
    """A subscription as it is."""

    id: str
    filters: list[dict[str, Any]]
    protocol: str = "PULL"
    config: dict[str, Any] = {}
    status: SubscriptionCondition


class SubscriptionsAnswer(msgspec.Struct):
    """All subscriptions of a principal."""

    subscriptions: list[SubscriptionAnswer]


class PullRequest(_Request, frozen=True):
    """How many events, how long to wait for the first, and how long they are leased; times are seconds."""

    max: Annotated[int, Meta(ge=1, le=500)] = 100
    wait: Annotated[float, Meta(ge=0, le=30)] = 0
    lease: Annotated[float, Meta(ge=1, le=3_600)] = 60


class AckRequest(_Request, frozen=True):
    """Events that are done with: all that were pulled up to an offset, and some more."""

    upto: Annotated[int, Meta(ge=0, le=(1 << 62))] | None = None
    offsets: SettledOffsets = []


class NackRequest(_Request, frozen=True):
    """Events that could not be handled; they come again later."""

    offsets: SettledOffsets
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class SettledAnswer(msgspec.Struct):
    """How many events a request has settled."""

    settled: int


class FilterRequest(_Request, frozen=True):
    """A filter, and perhaps an event to try it on: a CloudEvent, or any object of names and values."""

    filter: Text | dict[str, Any] | list[Any]
    event: dict[str, Any] | None = None


class FilterAnswer(msgspec.Struct):
    """A filter as Weft understands it."""

    filter: str
    json: dict[str, Any]
    empty: bool  # no event can match it
    attributes: list[str]
    matches: bool | None = None  # the event, if one was given


class RelateRequest(_Request, frozen=True):
    """Two filters."""

    a: Text | dict[str, Any] | list[Any]
    b: Text | dict[str, Any] | list[Any]


class RelateAnswer(msgspec.Struct):
    """How two filters relate. What is not proven is False for covering, and True for overlap."""

    a_covers_b: bool
    b_covers_a: bool
    overlap: bool
    merge: str  # the best filter that covers both
    in_b_not_a: str | None  # a filter of what only the second one matches; null if that is nothing
    in_a_not_b: str | None


class FilterQuery(_Request, frozen=True):
    """A filter."""

    filter: Text | dict[str, Any] | list[Any]


class TraceQuery(_Request, frozen=True):
    """An event, and a filter or one of your subscriptions to try on it."""

    event: dict[str, Any]
    filter: Text | dict[str, Any] | list[Any] | None = None
    subscription: SubscriptionName | None = None


class SearchQuery(_Request, frozen=True):
    """Which stored events: a filter, from and until an offset or a time; how many, and how long to look for them."""

    filter: Text | dict[str, Any] | list[Any] = "TRUE"
    since: Annotated[int, Meta(ge=0, le=(1 << 62))] | str | None = None
    until: Annotated[int, Meta(ge=0, le=(1 << 62))] | str | None = None
    max: Annotated[int, Meta(ge=1, le=1_000)] = 100
    wait: Annotated[float, Meta(ge=0.1, le=10)] = 5


class EventQuery(_Request, frozen=True):
    """An event to ask about: a CloudEvent, or any object of names and values."""

    event: dict[str, Any]


def read_body(body: bytes, kind: type[Body]) -> Body:
    """The body of a request. Raises ProblemError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ProblemError(INVALID, f"the request does not fit: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ProblemError(REQUEST, f"the request is not JSON: {error}") from None


def filter_of(given: NewSubscription | SubscriptionPatch, predicates: Predicates = NO_PREDICATES) -> Filter:
    """What a subscription selects: its source, its types and all its filters. Raises FilterError.

    >>> print(filter_of(NewSubscription(types=["quake", "tsunami"], filters=[{"sql": "magnitude >= 5"}])))
    type IN ('quake', 'tsunami') AND magnitude >= 5
    """
    parts: list[Filter] = []
    if given.source:
        parts.append(as_filter(F.source == given.source))
    if given.types:
        parts.append(as_filter(F.type.isin(*given.types)))
    if given.filters:
        parts += [from_json(each, predicates) for each in given.filters]
    return conjunction(*parts)


def since_of(given: int | str | None) -> int | datetime | None:
    """Where to begin: an offset or a time. Raises OptionError."""
    if given is None or isinstance(given, int):
        return given
    if given.isascii() and given.isdecimal() and len(given) < 19:
        return int(given)
    try:
        return from_micros(parse_timestamp(given))
    except ValueError:
        raise OptionError(f"since is an offset or a time such as 2026-11-16T12:00, not {given[:60]!r}") from None
