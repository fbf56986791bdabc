"""Messages between nodes about subscriptions, events and topic groups, as bytes, too; notices to a node's application.

A frame is a MessagePack array: the sender, and its messages. A node hands whole key ranges over in one message, so
frames may be much longer than between brokers and clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from weft.algebra.profile import Meeting
from weft.errors import RemoteProtocolError
from weft.protocol.codec import FrameReader, joined
from weft.ring.group_placement import GroupTree
from weft.ring.group_state import GroupState, KeyState
from weft.ring.identifiers import Key
from weft.ring.messages import ChordMessage, NodeAddress, NodeRef, TokenMessage

ANY_STAMP = (1 << 63) - 1  # later than every stamp
MAX_RING_FRAME = 64 << 20  # bytes


def first_stamp(life: int) -> int:
    """The stamps of a node's records are after this one, and before that of its next life."""
    return life << 32


class RingSub(NamedTuple):
    """A subscription: the node that made it, and its number there."""

    home: NodeAddress
    number: int


class EventId(NamedTuple):
    """An event: who published it (a node's address, or the id of its log), and its number there."""

    source: str
    number: int


class RecordSlot(NamedTuple):
    """Where a record is: the same subscription may be under a key for several topics."""

    key: Key
    sub: RingSub
    topic: str


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A subscription as it is stored under one of its keys.

    In a topic group it is stored under the identifier of a member; `cells` are then the keys that it is placed by.
    `stamp` rises when a number is used again, or its home is started again: the newest record is the one that counts.
    """

    key: Key
    sub: RingSub
    topic: str
    filter: str
    meeting: Meeting = Meeting.COVERING
    cells: tuple[Key, ...] = ()
    stamp: int = 0

    @property
    def slot(self) -> RecordSlot:
        """Where it is."""
        return RecordSlot(self.key, self.sub, self.topic)


class Publication(msgspec.Struct, frozen=True, array_like=True):
    """An event on its way: attributes, or a region if it has ranges; `body` is what the publisher adds to it."""

    id: EventId
    topic: str
    attributes: dict[str, Any] = {}  # names and values, as `weft.model.event.attributes_of` gives them
    region: str | None = None
    body: bytes = b""


# -- requests and their answers --------------------------------------------------------------------------


class OwnerRequest(TokenMessage, frozen=True):
    """A request that only the owner of a key carries out; all other nodes refuse."""

    key: Key


class Store(OwnerRequest, frozen=True, tag=21):
    """Store subscriptions under the key."""

    records: tuple[Record, ...]


class RemoveRecord(TokenMessage, frozen=True, tag=22):
    """Remove a record, unless it has a later stamp. Only the owner of its key does.

    In a topic group, `cells` are those that are placed here; a node that does not have them refuses.
    """

    slot: RecordSlot
    stamp: int = ANY_STAMP
    cells: tuple[Key, ...] = ()


class Visit(OwnerRequest, frozen=True, tag=23):
    """Deliver an event to the matching subscriptions under the key. `Visited` answers.

    In a topic group, `cells` are the event's keys that are placed here; a node that does not have them refuses.
    """

    event: Publication
    cells: tuple[Key, ...] = ()


class Visited(TokenMessage, frozen=True, tag=36):
    """The answer to `Visit` and `Examine`: all subscribers have the event, except perhaps at nodes that do not answer.

    `silent` are homes of subscriptions that match, and members that may have subscriptions nobody else knows of: the
    event is owed to them.
    """

    silent: tuple[NodeAddress, ...] = ()


class DeliverEvent(TokenMessage, frozen=True, tag=24):
    """An event for some subscriptions of the node: their numbers and stamps."""

    event: Publication
    subs: tuple[tuple[int, int], ...] = ()


class Gone(TokenMessage, frozen=True, tag=37):
    """An answer to `DeliverEvent`: the node has the event, and these subscriptions do not exist any more."""

    subs: tuple[tuple[int, int], ...]


class HandoverPart(TokenMessage, frozen=True, tag=38):
    """Some of the records that a `Handover` will end with, so that the sender can answer others in between."""

    records: tuple[Record, ...]


class Handover(TokenMessage, frozen=True, tag=25):
    """The last part of what is stored under the keys in (after, upto]: they are yours from now on.

    `edge` is the node whose keys end at `after`. A node that is leaving adds the copies that it has of others' keys,
    with their ranges, and names the nodes that have been `given` a complete copy of its keys. For `learning`
    microseconds, subscriptions under these keys may be missing, and for a while those that only the members in
    `missing` know: these did not answer so many microseconds ago.
    """

    after: Key
    upto: Key
    records: tuple[Record, ...]
    groups: tuple[KeyState, ...] = ()
    edge: NodeRef | None = None
    leaving: bool = False
    copies: tuple[tuple[Key, Key], ...] = ()
    learning: int = 0
    missing: tuple[tuple[NodeRef, int], ...] = ()
    given: tuple[NodeRef, ...] = ()


class CopyRecords(TokenMessage, frozen=True, tag=26):
    """Records and group states of the sender: keep them in case it dies.

    With a range `whole`, these and what was sent before are all that is stored under its keys. If it is `void`, the
    receiver will hear of no more changes, and may forget what it has in that range.
    """

    records: tuple[Record, ...]
    groups: tuple[KeyState, ...] = ()
    whole: tuple[Key, Key] | None = None
    edge: NodeRef | None = None
    void: bool = False


class Recall(TokenMessage, frozen=True, tag=27):
    """What do you have under the keys in (after, upto]? Their owner has died. `Recalled` answers."""

    after: Key
    upto: Key


class Recalled(TokenMessage, frozen=True, tag=28):
    """The answer to `Recall`: what is stored under the keys up to `reached`; None if the node serves them itself.

    Only if it is `complete` does a missing record mean that there is none.
    """

    records: tuple[Record, ...] | None
    groups: tuple[KeyState, ...] = ()
    complete: bool = False
    reached: Key = Key(0)


class AskRange(TokenMessage, frozen=True, tag=39):
    """Which keys do you answer for? `RangeIs` answers."""


class RangeIs(TokenMessage, frozen=True, tag=40):
    """The keys in hand begin after `after`; None if the node has none yet. `near` are its neighbours."""

    after: Key | None
    near: tuple[NodeRef, ...] = ()


class NeedKeys(TokenMessage, frozen=True, tag=55):
    """The sender is before you and has no keys in hand, whatever it had before it was started again."""


class PassStates(OwnerRequest, frozen=True, tag=56):
    """Group states under the key, from a node of a ring that was separate: merge them with yours."""

    states: tuple[KeyState, ...]


class Hold(TokenMessage, frozen=True, tag=29):
    """Examine these subscriptions for the sender from now on. A node with too many itself refuses.

    The sender counts how often its keys have changed: what is held for an earlier count is out of date. A node that was
    started again since the `first` of these messages has only what comes later, and refuses.
    """

    epoch: int
    records: tuple[Record, ...]
    first: bool = False


class Release(TokenMessage, frozen=True, tag=30):
    """Forget a record that was copied from the sender, or is held for it, unless it has a later stamp."""

    slot: RecordSlot
    stamp: int = ANY_STAMP


class ReleaseAll(TokenMessage, frozen=True, tag=33):
    """Forget all that is held for the sender since its keys changed for the `epoch`-th time."""

    epoch: int


class Examine(TokenMessage, frozen=True, tag=31):
    """Deliver an event to the matching subscriptions that are held for the sender under a key. `Visited` answers."""

    epoch: int
    key: Key
    event: Publication


class AskLoad(TokenMessage, frozen=True, tag=34):
    """How many subscriptions do you examine? `LoadIs` answers."""


class LoadIs(TokenMessage, frozen=True, tag=35):
    """The answer to `AskLoad`: who answers, and how much it examines."""

    node: NodeRef
    load: int


class Done(TokenMessage, frozen=True, tag=32):
    """The answer to a request; not `ok` means that the node does not do it, now."""

    ok: bool = True


# -- topic groups ----------------------------------------------------------------------------------------


class HostRequest(OwnerRequest, frozen=True):
    """A request to the root of a host; its key is the host's place on the circle."""

    host: str


class TopicRequest(HostRequest, frozen=True):
    """A request about one topic. The root of a host that does not have the topic answers `Elsewhere`."""

    topic: str


class Register(TopicRequest, frozen=True, tag=41):
    """A node subscribes to the topic, or still does. `Settings` answers."""

    member: Key


class Renew(HostRequest, frozen=True, tag=54):
    """A node still subscribes to these topics of a host. The root refuses if it knows better."""

    topics: tuple[str, ...]
    member: Key


class Deregister(TopicRequest, frozen=True, tag=42):
    """A node does not subscribe to the topic any more."""

    member: Key


class Reshape(TopicRequest, frozen=True, tag=43):
    """Give the group's tree another depth and rotation distance; None leaves one as it is."""

    depth: int | None = None
    rotation: int | None = None


class FetchSettings(TopicRequest, frozen=True, tag=44):
    """What is the group's tree? `Settings` answers."""


class Settings(TokenMessage, frozen=True, tag=45):
    """The group's tree; None if nobody has ever subscribed to the topic, except perhaps at nodes that are `silent`."""

    host: str
    tree: GroupTree | None
    silent: tuple[NodeAddress, ...] = ()


class RegionRequest(OwnerRequest, frozen=True):
    """A request to the server of a region; its key is the region's upper end."""

    host: str
    tree: GroupTree
    level: int


class Enter(RegionRequest, frozen=True, tag=57):
    """A member of the region. `Entered` answers."""

    member: Key


class Entered(TokenMessage, frozen=True, tag=58):
    """The answer to `Enter`: the members that may have cells of the new one, and all others of the region."""

    affected: tuple[Key, ...] = ()
    peers: tuple[Key, ...] = ()


class Exit(RegionRequest, frozen=True, tag=59):
    """A member has left the region, or is dead."""

    member: Key


class Locate(RegionRequest, frozen=True, tag=60):
    """Which member of the region stores a cell? `Located` answers."""

    cell: Key


class Located(TokenMessage, frozen=True, tag=61):
    """The member that stores the cells in (after, upto]; None if the region has no member."""

    member: Key | None
    after: Key = Key(0)
    upto: Key = Key(0)


class GrantCells(OwnerRequest, frozen=True, tag=62):
    """All cells of the topic are stored under this member, the first one. Of the root.

    If the root is `learning`, there may have been a group whose state was lost, with subscriptions that others have.
    """

    topic: str
    learning: bool = False


class GiveCells(OwnerRequest, frozen=True, tag=46):
    """The cells in (after, upto] of the topic are yours from now on, with these records. Of another member.

    It may be repeated: `giver` and `serial` say which gift it is. The members in `missing` did not answer so many
    microseconds ago, and may know more subscriptions. For `learning` microseconds, subscriptions may be missing.
    """

    topic: str
    after: Key
    upto: Key
    records: tuple[Record, ...]
    giver: Key
    serial: int
    missing: tuple[tuple[NodeRef, int], ...] = ()
    learning: int = 0


class Review(OwnerRequest, frozen=True, tag=47):
    """See whether the cells of a member belong elsewhere; with `enter`, register it at its region servers first."""

    host: str
    enter: bool = False
    former: GroupTree | None = None  # the tree that is not used any more


class Elsewhere(TokenMessage, frozen=True, tag=48):
    """The answer of a root that does not have the topic: whom to ask."""

    host: str


class Entrust(HostRequest, frozen=True, tag=49):
    """The topic is yours from now on; its state as the sender's reference has it. Of a root to another."""

    state: GroupState


class AskTopics(TokenMessage, frozen=True, tag=50):
    """Which topics' groups are you a member of? `TopicsAre` answers. Of the root to a member."""


class TopicsAre(TokenMessage, frozen=True, tag=51):
    """The answer to `AskTopics`."""

    topics: tuple[str, ...]


class Probe(TopicRequest, frozen=True, tag=52):
    """The members of the sender's topics: are they like those of the host of this topic? `Probed` answers."""

    parts: dict[str, tuple[int, ...]]


class Probed(TokenMessage, frozen=True, tag=53):
    """The answer to `Probe`: the super topic that the receiver has given its topics to; None if they are not alike."""

    into: str | None


KeyRequest = Handover | HandoverPart | CopyRecords | Recall | AskRange | NeedKeys | PassStates
RecordRequest = Store | RemoveRecord | Hold | Release | ReleaseAll | AskLoad
EventRequest = Visit | DeliverEvent | Examine
RootRequest = Register | Renew | Deregister | Reshape | FetchSettings | Probe | Entrust
MemberRequest = Enter | Exit | Locate | GrantCells | GiveCells | Review | AskTopics
RingRequest = KeyRequest | RecordRequest | EventRequest | RootRequest | MemberRequest
GroupAnswer = Settings | Entered | Located | Elsewhere | TopicsAre | Probed
RingAnswer = Visited | Gone | Recalled | RangeIs | LoadIs | GroupAnswer
RingMessage = ChordMessage | RingRequest | RingAnswer | Done
WorkAnswer = RingAnswer | bool  # what was asked for, or whether it was done


# -- frames ----------------------------------------------------------------------------------------------


class RingFrame(msgspec.Struct, frozen=True, array_like=True):
    """What one node sends to another at once."""

    sender: NodeRef
    messages: list[RingMessage]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RingFrame).decode


def encode_ring(sender: NodeRef, messages: Iterable[RingMessage]) -> bytes:
    """A frame of these messages. Raises LocalProtocolError if it is too long."""
    return joined([_encode(RingFrame(sender, list(messages)))], MAX_RING_FRAME)


class RingReader:
    """Reads what one node sends. Bytes that are not messages of the ring raise RemoteProtocolError and nothing else.

    >>> from weft.ring.messages import Ask, RequestToken
    >>> data = encode_ring(NodeRef(Key(5), NodeAddress("a")), [Ask(RequestToken(1))])
    >>> [frame.messages for frame in RingReader().feed(data)]
    [[Ask(token=1)]]
    """

    def __init__(self) -> None:
        self._frames = FrameReader(MAX_RING_FRAME)

    def feed(self, data: bytes) -> list[RingFrame]:
        """The frames that are complete with this data. Raises RemoteProtocolError; the connection is then useless."""
        try:
            return [_decode(frame) for frame in self._frames.feed(data)]
        except (ValueError, RecursionError, OverflowError) as error:  # msgspec's errors are ValueErrors
            raise RemoteProtocolError(f"a message of the ring cannot be read: {error}") from None


# -- effects ---------------------------------------------------------------------------------------------


class RingSend(msgspec.Struct, frozen=True):
    """Send a message to a node."""

    to: NodeAddress
    message: RingMessage


class Subscribed(msgspec.Struct, frozen=True):
    """A subscription is stored under all of its keys: every event published from now on is matched against it."""

    number: int


class Unsubscribed(msgspec.Struct, frozen=True):
    """A subscription is stored nowhere any more."""

    number: int


class PublicationDone(msgspec.Struct, frozen=True):
    """An event has visited all of its keys, and all subscribers have it, except perhaps at nodes that do not answer.

    It is owed to these: publish it again, with the same id, when one of them is `Returned`.
    """

    id: EventId
    silent: tuple[NodeAddress, ...] = ()


class Returned(msgspec.Struct, frozen=True):
    """A node that is owed events answers again."""

    address: NodeAddress


class Delivered(msgspec.Struct, frozen=True):
    """An event for one of this node's subscriptions; each event comes once."""

    number: int
    event: Publication


class Offered(msgspec.Struct, frozen=True):
    """An event that subscriptions of this node may want, for an application that confirms: it may come repeatedly."""

    event: Publication


class JoinedRing(msgspec.Struct, frozen=True):
    """The node is part of a ring and has the data of its keys."""


class JoiningFailed(msgspec.Struct, frozen=True):
    """The node could not join."""

    reason: str


class LeftRing(msgspec.Struct, frozen=True):
    """The node has handed its data over and left; it may stop."""


class Reshaped(msgspec.Struct, frozen=True):
    """The root of a topic's group has noted another depth or rotation distance; subscriptions move from now on."""

    topic: str


MembershipNotice = JoinedRing | JoiningFailed | LeftRing
EventNotice = PublicationDone | Returned | Delivered | Offered
RingEffect = RingSend | Subscribed | Unsubscribed | EventNotice | MembershipNotice | Reshaped
