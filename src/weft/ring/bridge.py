"""A broker on a ring: to the broker, the ring is one neighbour that wants every event. Laws: an event of the broker is
acknowledged when it has visited all of its keys and whoever wants it has it; a change of subscriptions is complete when
the ring has it; an event of the ring is answered when the broker has stored it, and handed to the broker once.

The bridge plays the neighbour's part of the link protocol (`weft.broker.link_messages`), without sockets and clocks.
The broker dials it. It keeps no state of its own on disk: after a restart the broker sends again what it may not have
sent, under the same event ids, and the subscribers' nodes drop what they have had before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from weft.broker.link_items import item_hash
from weft.broker.link_messages import (
    MOST_ITEMS,
    MOST_PAIRS,
    LinkEvent,
    LinkEvents,
    LinkHave,
    LinkHello,
    LinkMessage,
    LinkPing,
    LinkProgress,
    LinkReach,
    LinkUpdate,
)
from weft.broker.messages import Bye, Head
from weft.errors import RemoteProtocolError
from weft.language.ast import Filter
from weft.log.base import Offset
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    Delivered,
    EventId,
    JoinedRing,
    Publication,
    Published,
    RingEffect,
    RingSend,
    Subscribed,
)
from weft.ring.topic_attribute import TopicAttribute

RING = "ring"  # the neighbour's name, as the broker knows it
_REMEMBERED = 100_000  # events that were stored, so that none is stored twice

_head = msgspec.msgpack.Decoder(Head).decode
_encode = msgspec.msgpack.Encoder().encode


class _Body(NamedTuple):
    """What travels with an event besides its attributes."""

    session: int
    epoch: int
    sequence: int
    head: bytes
    payload: bytes


_body = msgspec.msgpack.Decoder(_Body).decode


class ToBroker(msgspec.Struct, frozen=True):
    """Messages for the broker, in order."""

    messages: list[LinkMessage]


class BridgeClosed(msgspec.Struct, frozen=True):
    """The session with the broker is over; the broker dials again."""

    reason: str


BridgeEffect = ToBroker | BridgeClosed | RingSend


class RingBridge:
    """Between one broker and one node of a ring. `everything` is the item that wants every event, as the broker's table
    encodes it, and `decode` reads an item. `topics` says which topics events and subscriptions belong to.
    """

    def __init__(
        self,
        node: RendezvousNode,
        log_id: str,
        everything: bytes,
        decode: Callable[[bytes], Filter],
        topics: TopicAttribute | None = None,
    ) -> None:
        self.node = node
        self._topics = topics or TopicAttribute()
        self._log_id = log_id  # the bridge's own, a new one for each process
        self._everything = everything
        self._decode = decode
        self.joined = False
        self.published = self.received = 0  # events of the broker, and for it
        self._epochs = 0
        self._hello: LinkHello | None = None  # of the broker, until the node has joined
        self._open = False
        self._source = ""  # the broker's log
        self._items: dict[int, int] = {}  # hashes of what the broker told, by wire id
        self._highest = 0
        self._frames: deque[tuple[int, int, set[int]]] = deque()  # number, kind, and subscriptions not stored yet
        self._held: dict[int, int] = {}  # what the broker holds of ours: hashes by wire id
        self._sent = 0  # control frames
        self._heard, self._completed = 0, (0, 0)  # control frames, and those that are complete, by kind
        self._flying: dict[int, bool] = {}  # the broker's events on their way, by offset: whether all keys are visited
        self._got = 0
        self._told = (0, 0, (0, 0))  # progress
        self._offset = 0  # of the last event for the broker
        self._incoming: deque[tuple[int, EventId, LinkEvent]] = deque()  # that the broker has not stored
        self._waiting: dict[EventId, None] = {}  # the same by id
        self._done: dict[EventId, None] = {}  # that the broker has stored

    # -- the broker ------------------------------------------------------------------------------------

    def receive(self, messages: Sequence[LinkMessage], now: int) -> list[BridgeEffect]:
        """Messages of the broker."""
        effects: list[BridgeEffect] = []
        for message in messages:
            match message:
                case LinkHello():
                    self._hello = message
                    effects += self._greet()
                case LinkHave():
                    effects += self._have(message)
                case LinkUpdate():
                    effects += self._update(message, now)
                case LinkEvents(events):
                    for event in events:
                        effects += self._publish(event, now)
                case LinkProgress(got):
                    effects += self._stored(got)
                case Bye(_, reason):
                    self.closed()
                    effects.append(BridgeClosed(reason))
                case _:
                    pass  # events that are not durable do not cross the ring; nobody else is behind it
        return [*effects, *self._news()]

    def closed(self) -> None:
        """The session is over: what was not acknowledged is sent again in the next."""
        self._open, self._hello = False, None
        self._frames.clear()
        self._flying.clear()

    def beat(self) -> list[BridgeEffect]:
        """The bridge is there; to be called every few seconds."""
        return [ToBroker([LinkPing()])] if self._open else []

    def _greet(self) -> list[BridgeEffect]:
        """Answer the broker's hello, once the node has joined the ring."""
        theirs = self._hello
        if theirs is None or not self.joined:
            return []
        self._hello = None
        self._epochs += 1
        self._open = True
        self._source = theirs.log_id
        self._highest = self._highest or theirs.incarnation << 32  # no id of an earlier life is used again
        self._sent = self._heard = self._got = 0
        self._completed = (0, 0)
        self._told = (0, 0, (0, 0))
        hello = LinkHello(
            name=RING,
            to=theirs.name,
            role=theirs.role,
            log_id=self._log_id,
            incarnation=1,
            epoch=self._epochs,
            fingerprint=theirs.fingerprint,
            settings=theirs.settings,
            predicates=theirs.predicates,
            peer_log=theirs.log_id,
        )
        got = theirs.got if theirs.peer_log == self._log_id else 0
        again = [event for offset, _, event in self._incoming if offset > got]
        messages: list[LinkMessage] = [hello, *self._haves(), LinkReach(((RING, ""),))]
        messages += [LinkEvents((event,)) for event in again]
        return [ToBroker(messages)]

    def _haves(self) -> list[LinkHave]:
        pairs = sorted(self._items.items())
        haves = []
        for at in range(0, max(1, len(pairs)), MOST_PAIRS):
            some = pairs[at : at + MOST_PAIRS]
            ids, hashes = (b"".join(pair[n].to_bytes(8, "little") for pair in some) for n in (0, 1))
            haves.append(LinkHave(0, ids, hashes, self._highest, last=at + MOST_PAIRS >= len(pairs)))
        return haves

    def _have(self, message: LinkHave) -> list[BridgeEffect]:
        """What the broker holds of ours: it is to hold one item that wants everything, and nothing else."""
        for at in range(0, len(message.ids), 8):
            wire, hashed = (int.from_bytes(data[at : at + 8], "little") for data in (message.ids, message.hashes))
            self._held[wire] = hashed
        if not message.last:
            return []
        held, self._held = self._held, {}
        wanted = item_hash(self._everything)
        keep = next((wire for wire, hashed in held.items() if hashed == wanted), None)
        frames: list[LinkMessage] = []
        if keep is None:
            new = max(message.highest, *held, 0) + 1 if held else message.highest + 1
            frames.append(self._numbered(ids=(new,), items=(self._everything,)))
        drop = sorted(wire for wire in held if wire != keep)
        frames += [self._numbered(drop=tuple(drop[at : at + MOST_ITEMS])) for at in range(0, len(drop), MOST_ITEMS)]
        frames.append(self._numbered(resynced=True))
        return [ToBroker(frames)]

    def _numbered(
        self,
        ids: tuple[int, ...] = (),
        items: tuple[bytes, ...] = (),
        drop: tuple[int, ...] = (),
        resynced: bool = False,
    ) -> LinkUpdate:
        self._sent += 1
        return LinkUpdate(self._sent, 0, drop, ids, items, resynced=resynced)

    # -- subscriptions ---------------------------------------------------------------------------------

    def _update(self, message: LinkUpdate, now: int) -> list[BridgeEffect]:
        if message.number != self._heard + 1 or len(message.ids) != len(message.items):
            raise RemoteProtocolError("the broker sent a control frame out of order")
        if message.about and message.ids:
            raise RemoteProtocolError("a ring does not support advertisements; switch them off at the broker")
        self._heard = message.number
        waiting: set[int] = set()
        self._frames.append((message.number, message.about, waiting))
        effects: list[BridgeEffect] = []
        for wire, body in zip(message.ids, message.items, strict=True):
            self._items[wire] = item_hash(body)
            self._highest = max(self._highest, wire)
            waiting.add(wire)
            wanted = self._decode(body)
            effects += self.ring(self.node.subscribe(wire, self._topics.of_filter(wanted), wanted, now))
        for wire in message.drop:
            del self._items[wire]
            effects += self.ring(self.node.unsubscribe(wire, now))
        return effects

    # -- events of the broker --------------------------------------------------------------------------

    def _publish(self, event: LinkEvent, now: int) -> list[BridgeEffect]:
        head = _head(event.head)
        body = _encode(_Body(event.session, event.epoch, event.sequence, bytes(event.head), event.payload))
        self._flying[event.offset] = False
        self.published += 1
        event_id = EventId(self._source, event.offset)
        topics = self._topics.of_event(head.attributes)
        return self.ring(self.node.publish(topics, head.attributes, now, event_id, body)[1])

    # -- the ring --------------------------------------------------------------------------------------

    def ring(self, effects: Sequence[RingEffect]) -> list[BridgeEffect]:
        """What the node wants done, and what it tells."""
        done: list[BridgeEffect] = []
        for effect in effects:
            match effect:
                case RingSend():
                    done.append(effect)
                case JoinedRing():
                    self.joined = True
                    done += self._greet()
                case Subscribed(number):
                    for _, _, waiting in self._frames:
                        waiting.discard(number)
                case Published(id) if id.source == self._source and id.number in self._flying:
                    self._flying[id.number] = True
                case Delivered(_, event):
                    done += self._arrived(event)
                case _:
                    pass
        return [*done, *self._news()]

    def _arrived(self, event: Publication) -> list[BridgeEffect]:
        """An event for subscriptions of the broker, which finds out itself for which. Its own it has already."""
        if event.id in self._waiting:
            return []
        if event.id.source == self._source or event.id in self._done:
            return [*self.node.confirm(event.id)]  # type: ignore[list-item]
        try:
            body = _body(event.body)
        except ValueError:
            raise RemoteProtocolError("an event of the ring cannot be read") from None
        self._offset += 1
        sent = LinkEvent(
            Offset(self._offset), body.session, body.epoch, body.sequence, msgspec.Raw(body.head), body.payload
        )
        self._incoming.append((self._offset, event.id, sent))
        self._waiting[event.id] = None
        self.received += 1
        return [ToBroker([LinkEvents((sent,))])] if self._open else []

    def _stored(self, got: int) -> list[BridgeEffect]:
        effects: list[BridgeEffect] = []
        while self._incoming and self._incoming[0][0] <= got:
            _, event_id, _ = self._incoming.popleft()
            del self._waiting[event_id]
            self._done[event_id] = None
            effects += self.node.confirm(event_id)  # type: ignore[arg-type]
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        return effects

    # -- progress --------------------------------------------------------------------------------------

    def _news(self) -> list[BridgeEffect]:
        """How far the ring is, if that is news."""
        while self._frames and not self._frames[0][2]:
            number, about, _ = self._frames.popleft()
            subscriptions, advertisements = self._completed
            self._completed = (subscriptions, number) if about else (number, advertisements)
        for offset in [*takewhile(self._flying.__getitem__, self._flying)]:
            del self._flying[offset]
            self._got = offset
        progress = self._got, self._heard, self._completed
        if not self._open or progress == self._told:
            return []
        self._told = progress
        return [ToBroker([LinkProgress(Offset(self._got), self._heard, self._completed)])]

    @property
    def subscriptions(self) -> int:
        """How many subscriptions of the broker the ring has, or is about to have."""
        return len(self._items)

    @property
    def waiting(self) -> int:
        """Events of the broker that have not visited all of their keys yet."""
        return len(self._flying)
