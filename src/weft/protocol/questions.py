"""Questions to a broker, and their answers, as values: what `Question` and `Answer` carry.

A question is a map with its kind; so is an answer. Newer versions may add fields to both. Lists come in pages: an
answer with a page token is continued by the same question with that token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from weft.errors import RemoteProtocolError
from weft.language.trace import trace_html, trace_lines
from weft.log.base import NEVER, Offset
from weft.protocol.messages import AnyOffset, AnySub, Natural, PastEvent

MOST_ROWS = 200  # of an answer
MOST_QUESTION = 1 << 17  # bytes of a question: an event and its names fit
_MOST_VALUE = 200  # characters of a value in a trace
MOST_TOKEN = 64  # bytes of a page token

_Name = Annotated[str, Meta(max_length=1_024)]
_Text = Annotated[str, Meta(max_length=1 << 16)]
_encode = msgspec.msgpack.Encoder().encode

Relationship = Literal["equal", "covers", "covered", "overlaps"]  # of a subscription to a filter
ItemDirection = Literal["sent", "received"]


# -- questions ------------------------------------------------------------------------------------------------


class _Asked(msgspec.Struct, frozen=True, tag_field="ask"):
    """What all questions have in common; `right` is needed for what belongs to other principals."""

    right: ClassVar[str] = "status"


class AskSessions(_Asked, frozen=True, tag="sessions"):
    """The sessions of a broker whose names contain a text; without the right `status`, one's own."""

    text: _Name = ""
    connected: bool | None = None  # None: whether or not they are
    exact: bool | msgspec.UnsetType = msgspec.UNSET  # the one session of this name


class AskSubscriptions(_Asked, frozen=True, tag="subscriptions"):
    """The subscriptions of a session, or of all, whose filters contain a text; shared ones are of no session."""

    session: _Name = ""
    text: _Text = ""
    rated: bool | msgspec.UnsetType = msgspec.UNSET  # with their rates


class AskProfiles(_Asked, frozen=True, tag="profiles"):
    """The living profiles that a broker knows, of a session or of all; without the right `status`, one's own."""

    session: _Name = ""


class AskItems(_Asked, frozen=True, tag="items"):
    """What a link was sent, and why, or what was received from it: subscriptions, or advertisements."""

    link: _Name
    direction: ItemDirection = "sent"
    advertisements: bool = False


class AskOrder(_Asked, frozen=True, tag="order"):
    """The local subscriptions that lie directly below a node of their covering order; without a node, its roots."""

    node: Natural | None = None


class AskRelated(_Asked, frozen=True, tag="related"):
    """The local subscriptions that equal, cover, are covered by or overlap a filter, and what neighbours would be sent.

    Without the right `status`, one's own subscriptions.
    """

    filter: _Text


class SearchEvents(_Asked, frozen=True, tag="search"):
    """Stored events that match a filter, from an offset or a time on. Access rules must cover the filter."""

    right: ClassVar[str] = "history"
    filter: _Text = "TRUE"
    first: AnyOffset = Offset(0)
    end: AnyOffset = Offset(NEVER)
    since: Natural | None = None  # UTC microseconds
    until: Natural | None = None


class AskOverlay(_Asked, frozen=True, tag="overlay"):
    """The tree of brokers as the one that is asked knows it, with a short status of each."""


class AskSummary(_Asked, frozen=True, tag="summary"):
    """A broker in short."""


class AskReach(_Asked, frozen=True, tag="reach"):
    """To how many other brokers the one that is asked is linked. It needs no right."""


class AskTrace(_Asked, frozen=True, tag="trace"):
    """The truth of each part of a subscription's filter for an event; without a number, of the session's first."""

    session: _Name
    event: msgspec.Raw  # as in `Publish`
    number: AnySub | None = None


class AskWhy(_Asked, frozen=True, tag="why"):
    """Why a subscription gets nothing, or less than expected; without a number, of all subscriptions of a session.

    `session` is the name of a session, or one under which several consumers share a subscription.
    """

    session: _Name
    number: AnySub | None = None


class AskRules(_Asked, frozen=True, tag="rules"):
    """What a principal may do, and whether it may subscribe to a filter or publish an event; by default oneself."""

    principal: _Name = ""
    filter: _Text = ""
    event: bytes = b""  # its attributes, as in `Publish`; empty for none


class AskMatches(_Asked, frozen=True, tag="matches"):
    """How many recent events of a broker match each filter, what attributes they have, and whether it has a session.

    Brokers ask each other, when somebody asks why a subscription gets nothing.
    """

    filters: Annotated[tuple[_Text, ...], Meta(max_length=8)] = ()
    since: Natural = 0  # UTC microseconds
    session: _Name = ""


class Disconnect(_Asked, frozen=True, tag="disconnect"):
    """Close the connection of a session; the client may come back."""

    right: ClassVar[str] = "operate"
    session: _Name
    reason: _Name = ""


class DetachLink(_Asked, frozen=True, tag="detach"):
    """End a neighbour, with everything that it sent."""

    right: ClassVar[str] = "operate"
    link: _Name


class ChangeSubscription(_Asked, frozen=True, tag="change"):
    """Give a subscription of any session another filter, or end it."""

    right: ClassVar[str] = "operate"
    session: _Name
    number: AnySub
    filter: _Text | None = None  # None ends it


class Retune(_Asked, frozen=True, tag="retune"):
    """Give the network another label space, from the broker that begins re-tunings; without one, name the present."""

    right: ClassVar[str] = "operate"
    space: _Text = ""  # its parameters, as JSON


class MoveSession(_Asked, frozen=True, tag="move"):
    """Let another broker of the network take a session over; its client is redirected."""

    right: ClassVar[str] = "operate"
    session: _Name
    to: _Name  # the name of that broker
    address: _Name  # where clients reach it


class AskBalance(_Asked, frozen=True, tag="balance"):
    """The loads of all brokers, as this one knows them."""

    right: ClassVar[str] = "status"


class SetBalance(_Asked, frozen=True, tag="set balance"):
    """Let a broker share its load and move sessions to others, or not."""

    right: ClassVar[str] = "operate"
    enabled: bool


class PreloadQueries(_Asked, frozen=True, tag="preload"):
    """Compare filters that subscriptions to profiles are expected to have with the profiles, before they come."""

    right: ClassVar[str] = "operate"
    filters: Annotated[tuple[_Text, ...], Meta(max_length=64)]
    meeting: Literal["covering", "overlap"] = "overlap"


ListQuestion = AskSessions | AskSubscriptions | AskProfiles | AskItems | AskOrder | AskRelated
Operation = Disconnect | DetachLink | ChangeSubscription | MoveSession | Retune | SetBalance | PreloadQueries
NetworkQuestion = AskOverlay | AskSummary | AskReach | AskBalance
AnyQuestion = ListQuestion | NetworkQuestion | SearchEvents | AskTrace | AskWhy | AskRules | AskMatches | Operation


# -- answers --------------------------------------------------------------------------------------------------


class _Told(msgspec.Struct, frozen=True, tag_field="answer"):
    """What all answers have in common."""


class SessionFacts(msgspec.Struct, frozen=True):
    """A session."""

    name: str  # empty if it ends with its connection
    owner: str  # its principal
    connected: bool
    subscriptions: int
    queues: int
    advertisements: int
    behind: int  # events of its durable queues that are not acknowledged
    published: int  # events of its present epoch that were accepted


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """A subscription."""

    session: str  # its name; empty if it has none, or the subscription is shared
    number: int
    filter: str
    owner: str = ""
    share: str = ""  # the name under which several consumers share it
    durable: bool = True
    connected: bool = False
    behind: int = 0  # events of its queue that are not acknowledged, or held
    matched: int = 0  # events, since the broker started
    matched_at: int = 0  # when the last one was matched, UTC seconds; 0: never
    rate: float | msgspec.UnsetType = msgspec.UNSET  # moving average of the events per second that it matches
    # neighbours that have not confirmed it, if a session was named in the question and there are any
    waiting_for: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ProfileFacts(msgspec.Struct, frozen=True):
    """A profile: an event that is a region and lasts for a while."""

    source: str  # the session that has published it
    id: str
    version: int
    expires: int  # UTC microseconds
    region: str
    size: int  # bytes of its payload
    here: bool  # whether the session is at this broker
    shown: int  # to how many subscriptions of this broker


class ItemFacts(msgspec.Struct, frozen=True):
    """An item of a link: a filter, or a set of cells."""

    text: str
    hash: str  # of its canonical bytes, 16 hex digits, as both ends of the link know it
    reason: str = ""  # why it was sent


class OrderNode(msgspec.Struct, frozen=True):
    """A filter in the covering order of a broker's own subscriptions."""

    node: int
    filter: str
    holders: int  # how many local subscriptions are equal to it
    children: int  # filters directly below it
    size: int = 1  # of the subtree: itself, and all filters below it
    rate: float = 0.0  # the moving average of events that it matched per second when the order was made


class RelatedSubscription(msgspec.Struct, frozen=True):
    """A subscription that has something in common with a filter: it equals, covers, is covered by, or overlaps it."""

    relationship: Relationship
    subscription: SubscriptionFacts


class WouldSend(msgspec.Struct, frozen=True):
    """What a neighbour would be sent if somebody subscribed to a filter here."""

    link: str
    sent: bool
    reason: str


class LinkFacts(msgspec.Struct, frozen=True):
    """A link in short."""

    peer: str
    role: str
    connected: bool
    synced: bool
    lag: int  # offsets that it may still have to get
    reason: str = ""  # why the last connection ended, or was refused


class Finding(msgspec.Struct, frozen=True):
    """A reason why a subscription gets nothing, or less than expected."""

    cause: str
    fact: str
    evidence: str
    advice: str
    number: int = 0  # of the subscription
    session: str = ""


class SessionList(_Told, frozen=True, tag="sessions"):
    """Sessions; `seen` of `total` were looked at when this page was made."""

    rows: tuple[SessionFacts, ...]
    seen: int = 0
    total: int = 0


class SubscriptionList(_Told, frozen=True, tag="subscriptions"):
    """Subscriptions; `seen` of `total` sessions were looked at when this page was made."""

    rows: tuple[SubscriptionFacts, ...]
    seen: int = 0
    total: int = 0


class ProfileList(_Told, frozen=True, tag="profiles"):
    """Profiles; `seen` of `total` were looked at when this page was made."""

    rows: tuple[ProfileFacts, ...]
    seen: int = 0
    total: int = 0


class ItemList(_Told, frozen=True, tag="items"):
    """Items of a link."""

    rows: tuple[ItemFacts, ...]
    seen: int = 0
    total: int = 0


class OrderList(_Told, frozen=True, tag="order"):
    """Filters of one level of an order."""

    rows: tuple[OrderNode, ...]
    seen: int = 0
    total: int = 0


class RelatedList(_Told, frozen=True, tag="related"):
    """Subscriptions that are related to a filter; the last page says what each neighbour would be sent."""

    rows: tuple[RelatedSubscription, ...]
    seen: int = 0  # subscriptions that were compared
    total: int = 0
    sends: tuple[WouldSend, ...] = ()


class FoundEvents(_Told, frozen=True, tag="search"):
    """Events that match, in order: every stored one from `first` to before `next`. A search goes on from `next`."""

    log_id: str
    oldest: Offset  # of the events that are stored
    first: Offset
    next: Offset
    end: Offset  # before which the search stops
    events: tuple[PastEvent, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether everything was looked at."""
        return self.next >= self.end


class BrokerSummary(_Told, frozen=True, tag="summary"):
    """A broker in short. With a `problem`, nothing else is known of it."""

    name: str
    before: str = ""  # the broker before it, on the way from the one that was asked
    sessions: int = 0
    connections: int = 0
    subscriptions: int = 0
    first: int = 0  # the oldest event that is kept
    end: int = 0  # the offset after the last
    model: str = ""
    links: tuple[LinkFacts, ...] = ()
    problem: str = ""


class BrokerReach(_Told, frozen=True, tag="reach"):
    """A broker without neighbours has every event in its own log; others have what somebody there subscribed to."""

    neighbours: int


class OverlayList(_Told, frozen=True, tag="overlay"):
    """The brokers of a network, each after the one before it; the first is the one that was asked."""

    rows: tuple[BrokerSummary, ...]
    seen: int = 0
    total: int = 0


class TracePart(msgspec.Struct, frozen=True):
    """A part of a filter, its truth for an event, the values that a test looked at, and its own parts."""

    filter: str
    truth: bool | None
    values: dict[str, Any] = {}
    parts: tuple[TracePart, ...] = ()

    def __str__(self) -> str:
        return "\n".join(trace_lines(self))

    def _repr_html_(self) -> str:
        return trace_html(self)


class FilterTrace(_Told, frozen=True, tag="trace"):
    """The truth of each part of a subscription's filter. A part of a very long filter may have no parts of its own."""

    session: str
    number: int
    trace: TracePart

    @property
    def matches(self) -> bool:
        """Whether the subscription matches the event."""
        return self.trace.truth is True

    def __str__(self) -> str:
        return str(self.trace)

    def _repr_html_(self) -> str:
        return trace_html(self.trace)


class WhyReport(_Told, frozen=True, tag="why"):
    """What keeps events from subscriptions. There is nothing wrong with subscriptions without findings."""

    subscriptions: tuple[SubscriptionFacts, ...]
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


class RulesReport(_Told, frozen=True, tag="rules"):
    """The rules of a principal; None stands for anything. `subscribe_problem` and `publish_problem` say why not."""

    principal: str
    subscribe: tuple[str, ...] | None
    publish: tuple[str, ...] | None
    further: tuple[str, ...]
    own: bool  # whether the principal has rules of its own, and not those of everybody else
    principals: tuple[str, ...] = ()  # some that have rules of their own, for those who may see them
    subscribe_problem: str = ""
    publish_problem: str = ""
    nearest: str = ""  # the rule that is nearest to the filter
    read: bool | None = None  # whether the event may be delivered to the principal


class MatchCount(msgspec.Struct, frozen=True):
    """How many events match a filter, and when the newest of them was stored (UTC microseconds)."""

    matched: int = 0
    newest: int = 0


class RecentMatches(_Told, frozen=True, tag="matches"):
    """What the last `tested` events of a broker say about filters. `types` are those of the attributes they have."""

    tested: int
    counts: tuple[MatchCount, ...] = ()
    types: dict[str, tuple[str, ...]] = {}
    session: bool = False


class OperationDone(_Told, frozen=True, tag="done"):
    """An operation was carried out."""

    text: str


class BrokerLoad(msgspec.Struct, frozen=True):
    """The load of a broker."""

    broker: str
    load: float  # events per second that its sessions publish, and that their subscriptions match
    sessions: int  # with a name
    address: str  # where clients reach it


class BalanceReport(_Told, frozen=True, tag="balance"):
    """Whether a broker takes part in balancing, the loads that it knows, and how many sessions it has moved away."""

    enabled: bool
    brokers: tuple[BrokerLoad, ...]
    moved: int


ListAnswer = SessionList | SubscriptionList | ProfileList | ItemList | OrderList | RelatedList | OverlayList
AnyAnswer = (
    ListAnswer
    | FoundEvents
    | BrokerSummary
    | BrokerReach
    | FilterTrace
    | WhyReport
    | RulesReport
    | RecentMatches
    | BalanceReport
    | OperationDone
)

# -- as bytes -------------------------------------------------------------------------------------------------

_question: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyQuestion)
_answer: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyAnswer)


def encode_body(body: AnyQuestion | AnyAnswer) -> msgspec.Raw:
    """A question or an answer as `Question` or `Answer` carries it.

    >>> read_question(encode_body(AskSessions("alerts")))
    AskSessions(text='alerts', connected=None, exact=UNSET)
    """
    return msgspec.Raw(_encode(body))


def read_question(body: bytes | msgspec.Raw) -> AnyQuestion:
    """The question in some bytes. Raises RemoteProtocolError."""
    try:
        question: AnyQuestion = _question.decode(body)
        return question
    except (ValueError, RecursionError, OverflowError) as error:  # msgspec's errors are ValueErrors
        raise RemoteProtocolError(f"the question cannot be read: {error}; use the same version of Weft") from None


def read_answer(body: bytes | msgspec.Raw) -> AnyAnswer:
    """The answer in some bytes. Raises RemoteProtocolError."""
    try:
        answer: AnyAnswer = _answer.decode(body)
        return answer
    except (ValueError, RecursionError, OverflowError) as error:
        raise RemoteProtocolError(f"the answer cannot be read: {error}; use the same version of Weft") from None


def trace_part(told: Mapping[str, Any], room: list[int]) -> TracePart:
    """A trace as `Trace.to_dict` has it. `room[0]` parts are kept, the others left out; long texts end with ".."."""
    room[0] -= 1
    parts = tuple(trace_part(part, room) for part in told.get("parts", ()) if room[0] > 0)
    values = {_short(name): _short(value) for name, value in told.get("values", {}).items()}
    return TracePart(_short(told["filter"], 2 * _MOST_VALUE), told["truth"], values, parts)


def _short(value: Any, most: int = _MOST_VALUE) -> Any:
    return value[: most - 2] + ".." if isinstance(value, str) and len(value) > most else value
