"""What nodes say to each other about subscriptions and events, and what a node tells its application."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from weft.algebra.profile import Meeting
from weft.ring.group_messages import GroupAnswer, GroupRequest
from weft.ring.group_state import GroupState
from weft.ring.identifiers import Key
from weft.ring.messages import Address, ChordMessage, NodeRef, RequestMessage, Token

ANY_VERSION = (1 << 63) - 1  # later than every version of a group


class RingSub(NamedTuple):
    """A subscription: the node that made it, and its number there."""

    home: Address
    number: int


class EventId(NamedTuple):
    """An event: who published it (a node's address, or the id of its log), and its number there."""

    source: str
    number: int


class Slot(NamedTuple):
    """Where a record is: the same subscription may be under a key for several topics."""

    key: Key
    sub: RingSub
    topic: str


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A subscription as it is stored under one of its keys.

    In a topic group it is stored under the identifier of a member; `cells` are then the keys that it is placed by, and
    `version` is that of the newest view of the group that it was stored here for.
    """

    key: Key
    sub: RingSub
    topic: str
    filter: str
    meeting: Meeting = Meeting.COVERING
    cells: tuple[Key, ...] = ()
    version: int = 0

    @property
    def slot(self) -> Slot:
        """Where it is."""
        return Slot(self.key, self.sub, self.topic)


class Publication(msgspec.Struct, frozen=True, array_like=True):
    """An event on its way: attributes, or a region if it has ranges; `body` is what the publisher adds to it."""

    id: EventId
    topic: str
    attributes: dict[str, Any] = {}  # names and values, as `weft.model.event.attributes_of` gives them
    region: str | None = None
    body: bytes = b""


class Store(RequestMessage, frozen=True, tag=21):
    """Store subscriptions under a key. Only the owner of the key does."""

    key: Key
    records: tuple[Record, ...]


class RemoveRecord(RequestMessage, frozen=True, tag=22):
    """Remove a record, unless it is of a later version. Only the owner of its key does."""

    slot: Slot
    version: int = ANY_VERSION


class Visit(RequestMessage, frozen=True, tag=23):
    """Deliver an event to whoever wants it of those stored under a key. Only the owner of the key does.

    `Visited` answers.
    """

    key: Key
    event: Publication


class Visited(msgspec.Struct, frozen=True, array_like=True, tag=36):
    """The answer to `Visit` and `Examine`: whoever wants the event has it, but for nodes that do not answer."""

    token: Token
    silent: tuple[Address, ...] = ()


class DeliverEvent(RequestMessage, frozen=True, tag=24):
    """An event for some subscriptions of the node; for none in particular if it was silent when it was delivered."""

    event: Publication
    subs: tuple[int, ...] = ()


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """An answer to `Deliver`: the node has the event, and these subscriptions do not exist any more."""

    token: Token
    subs: tuple[int, ...]


class Handover(RequestMessage, frozen=True, tag=25):
    """All that is stored under the keys in (after, upto]: they are yours from now on."""

    after: Key
    upto: Key
    records: tuple[Record, ...]
    groups: tuple[GroupState, ...] = ()


class CopyRecords(RequestMessage, frozen=True, tag=26):
    """Records of the sender, and groups that it is the root of: keep them in case it dies."""

    records: tuple[Record, ...]
    groups: tuple[GroupState, ...] = ()


class Recall(RequestMessage, frozen=True, tag=27):
    """What do you have under the keys in (after, upto]? Their owner has died. `Recalled` answers."""

    after: Key
    upto: Key


class Recalled(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """The answer to `Recall`; None if the node serves these keys itself."""

    token: Token
    records: tuple[Record, ...] | None
    groups: tuple[GroupState, ...] = ()


class Hold(RequestMessage, frozen=True, tag=29):
    """Examine these subscriptions for the sender from now on. A node with too many itself refuses.

    The sender counts how often its keys have changed: what is held for an earlier count is out of date.
    """

    epoch: int
    records: tuple[Record, ...]


class Release(RequestMessage, frozen=True, tag=30):
    """Forget a record that was copied from the sender, or is held for it, unless it is of a later version."""

    slot: Slot
    version: int = ANY_VERSION


class ReleaseAll(RequestMessage, frozen=True, tag=33):
    """Forget all that is held for the sender since its keys changed for the `epoch`-th time."""

    epoch: int


class Examine(RequestMessage, frozen=True, tag=31):
    """Deliver an event to whoever wants it of those held for the sender under a key. `Visited` answers."""

    epoch: int
    key: Key
    event: Publication


class AskLoad(RequestMessage, frozen=True, tag=34):
    """How many subscriptions do you examine? `LoadIs` answers."""


class LoadIs(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """The answer to `AskLoad`: who answers, and how much it examines."""

    token: Token
    node: NodeRef
    load: int


class Done(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """The answer to a request; not `ok` means that the node does not do it, now."""

    token: Token
    ok: bool = True


DataRequest = (
    Store
    | RemoveRecord
    | Visit
    | DeliverEvent
    | Handover
    | CopyRecords
    | Recall
    | Hold
    | Release
    | ReleaseAll
    | Examine
    | AskLoad
)
Request = DataRequest | GroupRequest
RingAnswer = Visited | Gone | Recalled | LoadIs | GroupAnswer
RingMessage = ChordMessage | Request | RingAnswer | Done


class RingSend(msgspec.Struct, frozen=True):
    """Send a message to a node."""

    to: Address
    message: RingMessage


class Subscribed(msgspec.Struct, frozen=True):
    """A subscription is stored under all of its keys: every event published from now on is matched against it."""

    number: int


class Unsubscribed(msgspec.Struct, frozen=True):
    """A subscription is stored nowhere any more."""

    number: int


class PublicationDone(msgspec.Struct, frozen=True):
    """An event has visited all of its keys, and whoever wants it has it, but for nodes that do not answer.

    Offer it to these again with `RendezvousNode.offer`.
    """

    id: EventId
    silent: tuple[Address, ...] = ()


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


RingEffect = (
    RingSend
    | Subscribed
    | Unsubscribed
    | PublicationDone
    | Delivered
    | Offered
    | JoinedRing
    | JoiningFailed
    | LeftRing
    | Reshaped
)
