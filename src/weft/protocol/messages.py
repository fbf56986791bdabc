"""The messages between a client and a broker. The first field of a message is its tag; tags are never reused.

A session holds subscriptions by numbers of the client's choice, and queues by numbers of the client's choice. Several
subscriptions may share a queue: an event that matches some of them is delivered once, with all their numbers, and is
acknowledged once. The number of a delivery is the event's offset in the broker's log.

A publisher numbers its durable events 1, 2, 3 and so on within an epoch. A refused event ends the epoch: everything
that follows is refused too, until the publisher begins a new epoch and sends the rest under new numbers. Thus
`Published(upto)` means that each event up to there is stored, also after a reconnection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType

import msgspec
from msgspec import Meta

from weft.log.base import NEVER, Offset, SessionId

_Bits = Meta(ge=0, le=(1 << 63) - 1)  # what a log can hold; anything else is refused when it is read

QueueNumber = NewType("QueueNumber", int)  # of a queue in its session, chosen by the client; 0 is there by default
SubNumber = NewType("SubNumber", int)  # of a subscription in its session, chosen by the client; 32 bits
Natural = Annotated[int, _Bits]
AnyOffset = Annotated[Offset, _Bits]
AnyQueue = Annotated[QueueNumber, _Bits]
AnySub = Annotated[SubNumber, Meta(ge=0, le=(1 << 32) - 1)]
Range = tuple[AnyOffset, AnyOffset]  # from the first offset to before the second
DeadLetterOffsets = Annotated[tuple[AnyOffset, ...], Meta(max_length=1_000)]
Attempt = tuple[AnyOffset, Natural]  # a delivery: the offset of its event, and how often that was delivered by then

VERSION = 2  # of this protocol; 1 had no attempts in `Nack`
REPORTS = 3  # adds `AskStored`, `Revival`, ranges of any connection, `ReadHistory`, and lists
QUESTIONS = 4  # adds `Question`
MOVES = 4  # adds `Whence`, `Whereabouts` and `HomeBroker`
PROFILES = 5  # adds `SubscribeProfiles`, `PublishProfile` and `WithdrawProfile`
OFFSETS = 6  # adds `PublishedAt`
NEWEST = 6  # between clients and brokers
PLACES = 7  # adds `AskSpace`, `OfferedSpace` and `PublishPlaced`; only clients that map their events speak it
STRIDE = 1 << 16  # between the epochs of two connections from version 4 on; moves of the session use those between


def next_epoch(last: int) -> int:
    """The epoch of the next connection of a session, from version 4 on.

    >>> next_epoch(0), next_epoch(STRIDE + 3) == 2 * STRIDE
    (65536, True)
    """
    return (last // STRIDE + 1) * STRIDE


MAX_EVENT = (1 << 20) - (1 << 16)  # bytes of attributes and payload; the rest of a frame is for subscription numbers

_UNPACK = [struct.Struct(f"<{count}I").unpack_from for count in range(64)]  # made once: half the time of a call
_encode = msgspec.msgpack.Encoder().encode


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One message; on the wire an array of its tag and its fields."""


def pack(numbers: Sequence[int]) -> bytes:
    """The numbers of subscriptions as deliveries carry them: an event may be for very many.

    >>> pack([1, 256]), unpack(pack([1, 256]))
    (b'\\x01\\x00\\x00\\x00\\x00\\x01\\x00\\x00', [1, 256])
    """
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack(packed: bytes) -> list[SubNumber]:
    """The numbers of subscriptions; trailing bytes that are not a whole number are left out."""
    count = len(packed) >> 2
    if count < len(_UNPACK):
        return [*_UNPACK[count](packed)]
    return [*struct.unpack_from(f"<{count}I", packed)]


# -- from a client --------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag=1):
    """The first message of a connection. A session with a name outlives its connections; one without does not."""

    versions: tuple[Natural, Natural] = (VERSION, VERSION)  # the oldest and the newest that the client speaks
    session: str = ""
    epoch: Natural = 0  # of the connection: the highest one holds the session; 0 is one more than the last
    pub_epoch: Natural = 0  # of the publisher; 0 goes on with the last
    credentials: bytes = b""
    fingerprint: str = ""  # of the schema that the client expects; empty if it does not care
    expires: Natural = 0  # seconds that the session is kept without a connection; 0 is as long as the broker keeps any
    window_events: Natural = 1_000  # the window of each queue: so many deliveries may be unacknowledged
    window_bytes: Natural = 1 << 20  # and so many bytes

    def __repr__(self) -> str:
        """Without the credentials: what is printed may be kept."""
        credentials = f"<{len(self.credentials)} bytes>" if self.credentials else "none"
        return f"Hello(session={self.session!r}, versions={self.versions}, credentials={credentials})"


class NewEpoch(Message, frozen=True, tag=2):
    """The publisher begins an epoch; its next event has number 1."""

    pub_epoch: Natural


class Publish(Message, frozen=True, tag=3):
    """An event. `attributes` is a MessagePack map from names to values, which is passed on as it is; see `of`."""

    sequence: Natural  # 0 for an event that is not durable: it is neither stored nor confirmed
    attributes: msgspec.Raw
    payload: bytes = b""
    datacontenttype: str = ""
    ttl: Natural = 0  # microseconds after which the event is worthless; 0 is never

    @staticmethod
    def of(
        sequence: int, attributes: Mapping[str, Any], payload: bytes = b"", datacontenttype: str = "", ttl: int = 0
    ) -> Publish:
        """An event with these attributes.

        >>> Publish.of(1, {"magnitude": 5.2}).attributes == msgspec.Raw(_encode({"magnitude": 5.2}))
        True
        """
        return Publish(sequence, msgspec.Raw(_encode(dict(attributes))), payload, datacontenttype, ttl)


class PublishPlaced(Publish, frozen=True, kw_only=True, tag=31):
    """An event that its publisher has mapped: its place in a space that the broker has sent. From version 7 on.

    A broker that has another space by now maps the event itself, and so it does where the place is wrong. It examines
    only some of the places: a publisher that sends wrong ones harms its own events, and no others.
    """

    space: Natural  # its number
    place: bytes


class Subscribe(Message, frozen=True, tag=4):
    """Subscribe, into a queue. The options of a queue are those of the subscription that creates it.

    A durable queue belongs to a session with a name. Its events are kept until they are acknowledged; those of other
    queues are delivered at most once, and never acknowledged. `share` names a queue that several sessions of one
    principal consume together: each event goes to one of them, and all give the same filter.
    `since` and `since_time` begin with older events of this broker's log; they need a queue of their own.
    """

    number: AnySub
    filter: str
    queue: AnyQueue = QueueNumber(0)
    durable: bool | None = None  # None: if the session has a name
    ordered: bool = True  # a negative acknowledgement holds the queue; shared queues are never ordered
    share: str = ""
    since: AnyOffset | None = None
    since_time: Natural | None = None  # UTC microseconds
    lag: Natural = 0  # events of its own that a queue may be behind, or may hold; 0: the broker's limit
    disconnect: bool = False  # what happens past it: the connection is closed; otherwise the oldest events are dropped


class Replace(Message, frozen=True, tag=5):
    """Give a subscription another filter. `Accepted.offset` is the first event to which the new one applies."""

    number: AnySub
    filter: str


class Unsubscribe(Message, frozen=True, tag=6):
    """End a subscription. A queue without subscriptions is removed with all that waits in it."""

    number: AnySub


class Advertise(Message, frozen=True, tag=7):
    """Promise to publish only what this filter, or another advertisement of the session, matches.

    A client that comes back may say the same again; the broker answers as before.
    """

    number: Natural
    filter: str


class Unadvertise(Message, frozen=True, tag=8):
    """Take a promise back."""

    number: Natural


class Ack(Message, frozen=True, tag=9):
    """Everything that this connection was sent from a queue below `floor`, and in the ranges, is done with.

    From version 3 on, the ranges also count for what other connections were sent: a client repeats on each connection
    what it does not know to be stored (`AskStored`).
    """

    queue: AnyQueue
    floor: AnyOffset
    ranges: Annotated[tuple[Range, ...], Meta(max_length=1_000)] = ()


class Nack(Message, frozen=True, tag=10):
    """These deliveries failed; they return later, and after some failures become dead letters with this reason.

    An attempt that is not the latest of its event is ignored: the event was already delivered again.
    """

    queue: AnyQueue
    failed: Annotated[tuple[Attempt, ...], Meta(max_length=1_000)]
    reason: str = ""


class ListDead(Message, frozen=True, tag=11):
    """Requests dead letters of a queue, above an offset. `request` comes back with the answer.

    The queue is one of this session, or of another `session` of the same principal, or the one shared as `share`.
    """

    request: Natural
    queue: AnyQueue
    after: AnyOffset = Offset(0)
    limit: Natural = 100
    session: str = ""
    share: str = ""


class RetryDead(Message, frozen=True, tag=12):
    """Deliver dead letters once more, to whoever consumes the queue. One that is acknowledged then is removed, any
    other stays. If another session asked for it, or from version 3 on, the consumer acknowledges it by a range: a floor
    may be older.
    """

    request: Natural
    queue: AnyQueue
    offsets: DeadLetterOffsets
    session: str = ""
    share: str = ""


class DropDead(Message, frozen=True, tag=13):
    """Remove dead letters."""

    request: Natural
    queue: AnyQueue
    offsets: DeadLetterOffsets
    session: str = ""
    share: str = ""


class Ping(Message, frozen=True, tag=14):
    """Requests a `Pong`; also shows that the client is alive."""

    token: Natural = 0


class Goodbye(Message, frozen=True, tag=15):
    """The client ends the connection. With `forget` its session goes too, with all subscriptions."""

    forget: bool = False


class AskStatus(Message, frozen=True, tag=16):
    """Requests the broker's status, with this many of the queues that are furthest behind. Needs the right `status`."""

    request: Natural
    queues: Annotated[int, Meta(ge=0, le=200)] = 20  # with the longest names they fit one frame


class ReadHistory(Message, frozen=True, tag=17):
    """Requests events of this broker's log that match a filter. Needs the right `history`, and changes nothing."""

    request: Natural
    first: AnyOffset
    end: AnyOffset = Offset(NEVER)
    filter: str = "TRUE"


class Explain(Message, frozen=True, tag=20):
    """Requests where an event would go, and why, at this broker and at all others that it would reach.

    It needs the right `status`, and publishes nothing.
    """

    request: Natural
    attributes: msgspec.Raw  # as in `Publish`


class AskStored(Message, frozen=True, tag=21):
    """Requests `AcksStored` when every `Ack` for a queue that this connection has sent is stored. From version 3 on."""

    queue: AnyQueue


class AskSpace(Message, frozen=True, tag=25):
    """Requests an `OfferedSpace` now, and another one whenever it changes; once on a connection. From version 7 on."""


class Question(Message, frozen=True, tag=24):
    """A question to the broker, or to another one of its network by its name. From version 4 on.

    `page` is the token of the answer that this one continues; the rest of the question is then the same.
    """

    request: Natural
    body: msgspec.Raw  # a map, one of `weft.protocol.questions.AnyQuestion`; new versions may add to it
    broker: str = ""
    page: bytes = b""


class Whence(Message, frozen=True, tag=26):
    """Where the session of a client is, as far as it knows. It follows a `Hello` whose oldest version is `MOVES`.

    A broker that does not have the session asks these brokers for it, and the client is welcome when it has come.
    """

    session: Annotated[SessionId, _Bits]
    home: str  # the broker that has welcomed it last
    hints: Annotated[tuple[str, ...], Meta(max_length=16)] = ()  # brokers that it has greeted since, the newest first


class Whereabouts(Whence, frozen=True, tag=27):
    """The same, and what a broker needs to know that was away in the meantime, or that is to go on without the old one.

    A broker whose own session of this name is older than `home_epoch` has yet to learn that it has gone on elsewhere.
    """

    home_epoch: Natural = 0  # under which the home broker has welcomed it
    abandon: Natural | None = None  # milliseconds without a word from the old broker after which to go on without it


class SubscribeProfiles(Message, frozen=True, tag=30):
    """Subscribe to events, and also to profiles that the filter covers, or overlaps. From version 5 on.

    What becomes of these profiles comes as events of the same queue, which must be durable: that one has appeared, has
    changed or has ended is in the attributes whose names begin with `weft.profile`.
    """

    subscribe: Subscribe
    profiles: Literal["covering", "overlap"]


class PublishProfile(Message, frozen=True, tag=28):
    """Publish an event that is a region and lasts for a while, or replace the one of this id. From version 5 on."""

    number: Natural  # of the request
    id: str
    region: str
    duration: Natural  # microseconds
    payload: bytes = b""
    token: Natural = 0  # of the client's choice: the same request again, with the same token, changes nothing


class WithdrawProfile(Message, frozen=True, tag=29):
    """End a profile of this session before its time. From version 5 on."""

    number: Natural  # of the request
    id: str


PUBLISH = Publish, PublishPlaced  # the types of events; a tuple is searched faster than a set of types
DeadMessage = ListDead | RetryDead | DropDead
QuestionMessage = AskStatus | ReadHistory | Explain | Question
ProfileMessage = SubscribeProfiles | PublishProfile | WithdrawProfile
InterestMessage = Subscribe | Replace | Unsubscribe | Advertise | Unadvertise | ProfileMessage
ConsumerMessage = Ack | Nack | AskStored | DeadMessage
ClientMessage = (
    Hello
    | Whence
    | Whereabouts
    | NewEpoch
    | Publish
    | PublishPlaced
    | AskSpace
    | InterestMessage
    | ConsumerMessage
    | QuestionMessage
    | Ping
    | Goodbye
)

# -- from a broker --------------------------------------------------------------------------------


class Welcome(Message, frozen=True, tag=32):
    """The session belongs to this connection, and what the broker knows of it is stored."""

    version: int
    session: SessionId
    epoch: int
    pub_epoch: int
    pub_seq: int  # the last event of pub_epoch that is stored
    resumed: bool
    subscriptions: tuple[SubNumber, ...] = ()  # those that it has
    log_id: str = ""
    incarnation: int = 0
    fingerprint: str = ""
    max_frame: int = 0
    idle: int = 0  # microseconds of silence after which the broker closes the connection; 0 is never


class Published(Message, frozen=True, tag=33):
    """Each event of the epoch up to `upto` is stored. `absent` counts values that the schema refused, by name."""

    pub_epoch: int
    upto: int
    absent: dict[str, int] = {}


class PublishedAt(Published, frozen=True, tag=59):
    """The same, and under which offsets of the log: each pair is a sequence and its offset, and both go on by one up to
    the next pair. From version 6 on, unless the events were stored before this connection.
    """

    runs: tuple[tuple[int, int], ...] = ()


class Refused(Message, frozen=True, tag=34):
    """An event was not stored. With a sequence above 0 the epoch is over, and no later event of it is stored."""

    pub_epoch: int
    sequence: int
    code: str
    reason: str


class Accepted(Message, frozen=True, tag=35):
    """A request about a subscription or an advertisement is done and stored; it holds from `offset` on."""

    about: str  # subscribe, replace, unsubscribe, advertise, unadvertise
    number: int
    offset: Offset


class Complete(Message, frozen=True, tag=36):
    """A subscription is active on every path: no event published from now on is missed.

    An advertisement is complete when every broker knows it: nothing published within it from now on is missed.
    """

    number: SubNumber
    about: str = "subscribe"  # or replace, or advertise


class Incomplete(Message, frozen=True, tag=62):
    """A request that was accepted is not complete, and waits for these neighbours of the broker, which are not there.

    It comes again whenever they are others; an empty list says that all are there.
    """

    number: int
    about: str
    missing: tuple[str, ...]


class Failed(Message, frozen=True, tag=37):
    """A request changed nothing."""

    about: str
    number: int  # of the subscription or advertisement, or the request
    code: str
    reason: str


class Deliver(Message, frozen=True, tag=38):
    """An event for some subscriptions of a queue. Offset 0 is an event that is not durable."""

    queue: QueueNumber
    offset: Offset
    attempt: int  # above 1 if it may have been delivered before
    at: int  # when the broker stored it, UTC microseconds
    packed: bytes  # the numbers of the subscriptions, four bytes each, the lowest byte first; see `numbers`
    head: msgspec.Raw  # a `Head`
    payload: bytes

    @property
    def numbers(self) -> list[SubNumber]:
        """The subscriptions that the event is for."""
        return unpack(self.packed)


class Head(msgspec.Struct, frozen=True, array_like=True):
    """An event without its payload, as it is stored and delivered."""

    attributes: dict[str, Any]
    datacontenttype: str = ""
    expires: int = NEVER


read_head = msgspec.msgpack.Decoder(Head).decode


class Gap(Message, frozen=True, tag=39):
    """Events from `first` to before `end` are lost to a durable queue: it was too far behind, or they are gone.

    It is sent on each connection until something that follows is acknowledged.
    """

    queue: QueueNumber
    first: Offset
    end: Offset


class Dropped(Message, frozen=True, tag=40):
    """So many events of a queue were dropped since the last such message, because the connection was too slow."""

    queue: QueueNumber
    count: int


class DeadEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event that a subscriber could not handle."""

    offset: Offset
    failures: int
    reason: str
    at: int
    head: msgspec.Raw
    payload: bytes


class DeadLetters(Message, frozen=True, tag=41):
    """The answer to `ListDead`: in order of offsets; `more` if there may be others above the last."""

    request: int
    letters: tuple[DeadEvent, ...]
    more: bool


class DeadDone(Message, frozen=True, tag=42):
    """The answer to `RetryDead` and `DropDead`, with the offsets that were dead letters."""

    request: int
    offsets: tuple[Offset, ...]


class Pong(Message, frozen=True, tag=43):
    """The answer to `Ping`."""

    token: int


class Bye(Message, frozen=True, tag=44):
    """The broker ends the connection after this message."""

    code: str
    reason: str


class StatusReport(Message, frozen=True, tag=45):
    """The answer to `AskStatus`."""

    request: int
    body: msgspec.Raw  # a map, as `weft.protocol.status.BrokerStatus` has it; new versions may add to it


class PastEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event of a log."""

    offset: Offset
    at: int  # when the broker stored it, UTC microseconds
    head: msgspec.Raw  # a `Head`
    payload: bytes


class History(Message, frozen=True, tag=46):
    """The answer to `ReadHistory`: every event below `next` that is stored and was requested, in order.

    The client goes on from `next`, until that is the offset before which it wants to stop, or `end`. Events below
    `oldest` were removed from the log.
    """

    request: int
    log_id: str
    oldest: Offset  # of the events that are stored
    end: Offset  # of the log: the offset after its last event
    next: Offset
    events: tuple[PastEvent, ...]


class Explained(Message, frozen=True, tag=50):
    """The answer to `Explain`."""

    request: int
    body: msgspec.Raw  # a map, as `weft.protocol.explanation.Explanation` has it; new versions may add to it


class Answer(Message, frozen=True, tag=52):
    """The answer to `Question`. If there is more, `page` is the token with which to ask again."""

    request: int
    body: msgspec.Raw  # a map, one of `weft.protocol.questions.AnyAnswer`; new versions may add to it
    page: bytes = b""
    broker: str = ""  # whose answer it is


class Revoked(Message, frozen=True, tag=60):
    """The broker has ended a subscription, because the access rules no longer allow it."""

    number: SubNumber
    reason: str


class AcksStored(Message, frozen=True, tag=61):
    """The answer to `AskStored`: the first `count` messages `Ack` of this connection for a queue are stored."""

    queue: QueueNumber
    count: int


class Revival(Message, frozen=True, tag=63):
    """A dead letter that is retried follows: a range acknowledges it, a failure holds nothing. From version 3 on."""

    queue: QueueNumber
    offset: Offset


class OfferedSpace(Message, frozen=True, tag=58):
    """The space in which publishers may map events. From version 7 on, if the client asks for it.

    `packed` is read by `weft.routing.place_format`; it is empty if there is nothing to map: the broker's model has no
    places, it has no neighbours, or the space is too large or about to change.
    """

    number: int  # ascending while the broker runs
    packed: bytes = b""


class HomeBroker(Message, frozen=True, tag=56):
    """The name of the broker, just before its `Welcome`. From version 4 on, if it has a name."""

    broker: str


class ProfilePublished(Message, frozen=True, tag=57):
    """The answer to `PublishProfile`: the profile is stored. A higher version replaces a lower one."""

    number: int  # of the request
    version: int
    expires: int  # UTC microseconds


ReplyMessage = ProfilePublished | DeadLetters | DeadDone | StatusReport | Explained | History | Answer
AnswerMessage = Accepted | Complete | Incomplete | Failed | ReplyMessage
QueueMessage = Deliver | Gap | Dropped | AcksStored | Revival
BrokerMessage = (
    Welcome
    | Published
    | PublishedAt
    | Refused
    | AnswerMessage
    | QueueMessage
    | Pong
    | Bye
    | Revoked
    | HomeBroker
    | OfferedSpace
)
