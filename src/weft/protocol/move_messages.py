"""The messages between two brokers about a session that moves from one to the other.

They are the bodies of relays of the kind `RelayKind.MOVE`. The broker to which the client has come asks, the old one
answers. `MovedSession`, `MoveFlush`, `MoveEnd` and `MoveClaim` are markers: nothing that was sent before one of them on
its way is learnt, stored or delivered after it. All others could come by any way. Every message may be lost, and come
twice.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from weft.errors import RemoteProtocolError
from weft.log.base import NEVER, Offset, SessionId
from weft.protocol.messages import AnyOffset, AnyQueue, AnySub, Natural

MOST_PARTS = 10_000  # of the description of a session

AnySession = Annotated[SessionId, Meta(ge=1, le=(1 << 63) - 1)]
PublisherPosition = tuple[Natural, Natural, Natural]  # the session of a publisher, an epoch, and a sequence there


class MoveMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One message about a move; as bytes an array of its tag and its fields."""

    session: AnySession
    epoch: Natural  # under which the session moves


class MoveInvite(MoveMessage, frozen=True, tag=1):
    """To the new broker: please ask for this session."""

    name: str
    owner: str


class MoveRequest(MoveMessage, frozen=True, tag=2):
    """To the old broker: the client is here, or the session was invited."""

    name: str
    owner: str
    invited: bool = False


class DatedMoveRequest(MoveRequest, frozen=True, tag=14):
    """The same, and under which epoch the client was welcome last: an older session is not the one that it means."""

    home_epoch: Natural = 0


class MovedQueue(msgspec.Struct, frozen=True, array_like=True):
    """A durable queue of a session that moves."""

    number: AnyQueue
    ordered: bool
    lag: Natural
    disconnect: bool
    gap: bool = False  # events were lost to it, and the client may not know it


class MovedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscription of a session that moves."""

    number: AnySub
    filter: str
    queue: AnyQueue


class MovedSession(MoveMessage, frozen=True, tag=3):
    """To the new broker: what the session is, in parts. The last part is a marker."""

    part: Natural
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)]
    name: str
    owner: str
    log_id: str  # of the old broker
    start: AnyOffset  # the stored end of its log
    version: Natural  # of subscriptions and advertisements
    keep: Natural  # microseconds that the session is kept without a connection; 0 is for ever
    queues: tuple[MovedQueue, ...] = ()
    subscriptions: tuple[MovedSubscription, ...] = ()
    adverts: tuple[tuple[Natural, str], ...] = ()  # by the client's number


class MovedProfile(msgspec.Struct, frozen=True, array_like=True):
    """A profile that a session has published."""

    name: str
    region: str
    version: Natural
    expires: Natural  # UTC microseconds
    token: int  # of the request that published it
    payload: bytes


class MovedSessionWithProfiles(MovedSession, frozen=True, tag=15):
    """The same, of a session that has published profiles, or is shown some."""

    meetings: tuple[tuple[AnySub, Annotated[str, Meta(pattern="^(covering|overlap)$")]], ...] = ()  # of subscriptions
    profiles: tuple[MovedProfile, ...] = ()
    profile_version: Natural = 0  # new versions are above it


class MoveFlush(MoveMessage, frozen=True, tag=4):
    """To the old broker, a marker: the copy of the session is stored, and collects events."""

    log_id: str
    start: AnyOffset
    version: Natural


class MoveEnd(MoveMessage, frozen=True, tag=5):
    """To the new broker, a marker: the session is yours; what it has here is to be pulled."""

    pub_epoch: Natural
    pub_seq: Natural  # the last event of the publisher that is stored; the next one is published at the new broker
    waiting: Natural  # how many events and dead letters there are to pull
    seen: tuple[PublisherPosition, ...] = ()  # what the old broker had: the last event of each publisher
    is_all_seen: bool = True  # False: there is more, to be pulled


class MovePull(MoveMessage, frozen=True, tag=6):
    """To the old broker: send what follows."""

    phase: Natural  # see `weft.broker.departures`
    after: Natural


class InheritedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event that the client has not acknowledged."""

    offset: AnyOffset  # in the old broker's log
    origin: PublisherPosition
    packed: bytes  # the numbers of the subscriptions that it is for
    head: bytes  # with the numbers under which the client may have had it, see `Head.was`
    payload: bytes
    failures: dict[Natural, Natural] = {}  # by queue, how often it has failed


class InheritedLetter(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter."""

    queue: AnyQueue
    failures: Natural
    reason: str
    at: Natural
    packed: bytes
    head: bytes
    payload: bytes
    stored_at: Natural


class MoveChunk(MoveMessage, frozen=True, tag=7):
    """To the new broker: what follows `after`; the next chunk follows `upto`."""

    phase: Natural
    after: Natural
    upto: Natural
    last: bool  # of the phase
    events: tuple[InheritedEvent, ...] = ()
    letters: tuple[InheritedLetter, ...] = ()
    seen: tuple[PublisherPosition, ...] = ()


class ShownProfile(msgspec.Struct, frozen=True, array_like=True):
    """A profile that a subscription was shown, as in `weft.log.base.ShownRow`."""

    number: AnySub
    source: str
    name: str
    version: Natural
    expires: Natural
    filter: Natural


class ShownChunk(MoveChunk, frozen=True, tag=16):
    """The same, with what subscriptions were shown of profiles."""

    shown: tuple[ShownProfile, ...] = ()


class MoveFinish(MoveMessage, frozen=True, tag=8):
    """To the old broker: everything is stored here, so you may forget it."""


class MoveDone(MoveMessage, frozen=True, tag=9):
    """To the new broker: the session is forgotten here."""


class MoveElsewhere(MoveMessage, frozen=True, tag=10):
    """To the broker that asks: the session is there; empty if this broker knows nothing of it."""

    broker: str


class MoveRefused(MoveMessage, frozen=True, tag=11):
    """To the new broker: not under this epoch. With the code "changed" it may ask again.

    To the old broker: the session that was asked for is not taken.
    """

    code: str  # epoch, owner, changed, replaying, version, unreachable
    reason: str
    known: Natural = 0  # the highest epoch that this broker knows


class MoveUnknown(MoveMessage, frozen=True, tag=12):
    """To the new broker: the log that had the session is lost. It keeps what it has; the rest is a gap."""


class MoveClaim(MoveMessage, frozen=True, tag=13):
    """To the old broker, a marker: the session has gone on without you; cut it off, and hand over what it has.

    It is answered with `MoveEnd`. What is pulled then comes late, behind newer events.
    """


class BrokerLoadReport(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """To every other broker: what the sessions of this one have to do."""

    load: float  # events per second
    sessions: Natural
    address: str  # where clients reach this broker


AnyMove = (
    MoveInvite
    | MoveRequest
    | DatedMoveRequest
    | MovedSession
    | MovedSessionWithProfiles
    | MoveFlush
    | MoveEnd
    | MovePull
    | MoveChunk
    | ShownChunk
    | MoveFinish
    | MoveDone
    | MoveElsewhere
    | MoveRefused
    | MoveUnknown
    | MoveClaim
)

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyMove | BrokerLoadReport)


def encode_move(message: AnyMove | BrokerLoadReport) -> bytes:
    """A message as the body of a relay.

    >>> decode_move(encode_move(MoveFinish(SessionId(7), 2)))
    MoveFinish(session=7, epoch=2)
    """
    return _encode(message)


def decode_move(body: bytes) -> AnyMove | BrokerLoadReport:
    """The converse. Raises RemoteProtocolError."""
    try:
        message: AnyMove | BrokerLoadReport = _decoder.decode(body)
    except (ValueError, RecursionError, OverflowError) as error:
        raise RemoteProtocolError(f"a message about a move cannot be read: {error}") from None
    return message


# -- events that were delivered elsewhere ----------------------------------------------------------------------

MOST_TOKENS = 16  # of one event: an event that waits while its session moves more often forgets the oldest

Token = tuple[str, int]  # the id of a log, and an offset there: a number under which a client may have had an event


class _RawHead(msgspec.Struct, frozen=True, array_like=True):
    """A `Head` whose attributes stay encoded."""

    attributes: msgspec.Raw
    datacontenttype: str = ""
    expires: int = NEVER
    was: tuple[Token, ...] = ()


_heads = msgspec.msgpack.Decoder(_RawHead).decode


def with_token(head: bytes, log_id: str, offset: Offset) -> bytes:
    """The head of an event that was, or may have been, delivered under an offset of a log.

    >>> head = msgspec.msgpack.encode([{"x": 1}])
    >>> tokens_of(with_token(with_token(head, "a", Offset(7)), "b", Offset(9)))
    (('a', 7), ('b', 9))
    """
    known = _heads(head)
    return _encode(msgspec.structs.replace(known, was=(*known.was, (log_id, int(offset)))[-MOST_TOKENS:]))


def tokens_of(head: bytes | msgspec.Raw) -> tuple[Token, ...]:
    """The numbers under which a client may have had an event before.

    >>> tokens_of(msgspec.msgpack.encode([{"x": 1}]))
    ()
    """
    return () if memoryview(head)[0] < 0x94 else _heads(head).was  # an array of four elements has them
