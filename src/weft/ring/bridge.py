"""A broker on a ring: to the broker, the ring is one neighbour that wants every event. Laws: an event of the broker is
acknowledged when it has visited all of its keys and whoever wants it has it; a change of subscriptions is complete when
the ring has it; an event of the ring is answered when the broker has stored it, and handed to the broker once.

The bridge plays the neighbour's part of the link protocol (`weft.broker.link_messages`), without sockets and clocks.
The broker dials it. It keeps no state of its own on disk: after a restart the broker sends again what it may not have
sent, under the same event ids, and the subscribers' nodes drop what they have had before.

An event for a node that does not answer is owed to it (`weft.ring.owed_events`). Later events go on, but the broker's
log keeps everything from the first owed event on. When such a node answers again, the bridge ends the session: in the
next one the broker sends again what its log has kept, and the bridge offers the node what it is owed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

import msgspec

from weft.broker.link_items import item_hash
from weft.broker.link_messages import (
    MOST_ITEMS,
    MOST_PAIRS,
    LinkAhead,
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
from weft.language.ast import Filter
from weft.log.base import Offset
from weft.ring.control_frames import ControlFrames
from weft.ring.incoming_events import IncomingEvents, Origin, body_of
from weft.ring.messages import Address
from weft.ring.owed_events import OwedEvents
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    EventId,
    JoinedRing,
    Offered,
    Publication,
    PublicationDone,
    RingEffect,
    RingSend,
    Subscribed,
)
from weft.ring.topic_attribute import TopicAttribute

RING = "ring"  # the neighbour's name, as the broker knows it
_PROBE = 2_000_000  # microseconds between two looks whether a node that is owed events answers

_head = msgspec.msgpack.Decoder(Head).decode


class ToBroker(msgspec.Struct, frozen=True):
    """Messages for the broker, in order."""

    messages: list[LinkMessage]


class BridgeClosed(msgspec.Struct, frozen=True):
    """The session with the broker is over; the broker dials again."""

    reason: str


BridgeEffect = ToBroker | BridgeClosed | RingSend


class RingBridge:
    """Between one broker and one node of a ring. `everything` is the item that wants every event, as the broker's table
    encodes it, and `decode` reads an item. `topics` says which topics events and subscriptions belong to. `had` are the
    origins of events that the broker's log has, and `keep` says for how long events are owed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it stands between, and for how long
        self,
        node: RendezvousNode,
        log_id: str,
        everything: bytes,
        decode: Callable[[bytes], Filter],
        topics: TopicAttribute | None = None,
        had: Iterable[Origin] = (),
        keep: int = 60_000_000,
    ) -> None:
        self.node = node
        self._topics = topics or TopicAttribute()
        self._log_id = log_id  # the bridge's own, a new one for each process
        self._everything = everything
        self._decode = decode
        self.joined = False
        self.published = 0  # events of the broker
        self._epochs = 0
        self._hello: LinkHello | None = None  # of the broker, until the node has joined
        self._open = False
        self._source = ""  # the broker's log
        self._items: dict[int, int] = {}  # hashes of what the broker told, by wire id
        self._highest = 0
        self._frames = ControlFrames()  # what the broker told
        self._held: dict[int, int] = {}  # what the broker holds of ours: hashes by wire id
        self._sent = 0  # control frames
        self._flying: dict[int, bool] = {}  # the broker's events on their way, by offset: whether all keys are visited
        self._ahead = 0  # the events up to here are dealt with, in this session
        self._settled = 0  # in any session: all others are owed
        self._told = (0, 0, (0, 0))  # progress
        self._told_ahead = 0
        self.incoming = IncomingEvents(had)
        self.owed = OwedEvents(keep)
        self._round: deque[int] = deque()  # offsets that are owed and have not been sent again in this session
        self._silent: set[Address] = set()  # nodes that have not answered in this session
        self._probing: set[Address] = set()
        self._probed = 0
        self._back = False  # a node that is owed events answers

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
                    for event_id in self.incoming.stored(got):
                        effects += self.node.confirm(event_id)  # type: ignore[arg-type]
                case Bye(_, reason):
                    self.closed()
                    effects.append(BridgeClosed(reason))
                case _:
                    pass  # events that are not durable do not cross the ring; nobody else is behind it
        return [*effects, *self._news()]

    def closed(self) -> None:
        """The session is over: what was not acknowledged is sent again in the next."""
        self._open, self._hello, self._back = False, None, False
        self._frames.end()
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
        self._sent = self._ahead = self._told_ahead = 0
        self._frames.begin()
        self._round = deque(self.owed.offsets)
        self._silent.clear()
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
        messages: list[LinkMessage] = [hello, *self._haves(), LinkReach(((RING, ""),))]
        messages += [LinkEvents((event,)) for event in self.incoming.since(got)]
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
        self._frames.take(message)
        effects: list[BridgeEffect] = []
        for wire, body in zip(message.ids, message.items, strict=True):
            self._items[wire] = item_hash(body)
            self._highest = max(self._highest, wire)
            wanted = self._decode(body)
            effects += self.ring(self.node.subscribe(wire, self._topics.of_filter(wanted), wanted, now), now)
        for wire in message.drop:
            del self._items[wire]
            self._frames.placed(wire)
            effects += self.ring(self.node.unsubscribe(wire, now), now)
        return effects

    # -- events of the broker --------------------------------------------------------------------------

    def _publish(self, event: LinkEvent, now: int) -> list[BridgeEffect]:
        self._flying[event.offset] = False
        while self._round and self._round[0] < event.offset:
            self.owed.give_up(self._round.popleft())  # the log does not have it any more: it has expired
        if self._round and self._round[0] == event.offset:
            self._round.popleft()
        event_id = EventId(self._source, event.offset)
        attributes, body = _head(event.head).attributes, body_of(event)
        if event.offset <= self._settled:
            return self._offer(Publication(event_id, "", attributes, body=body), now)
        self.published += 1
        topics = self._topics.of_event(attributes)
        return self.ring(self.node.publish(topics, attributes, now, event_id, body)[1], now)

    def _offer(self, event: Publication, now: int) -> list[BridgeEffect]:
        """Offer an event to the nodes that it is owed to, unless they have been silent in this session."""
        offset = event.id.number
        asked = {home for home in self.owed.to(offset) if home not in self._silent}
        waiting = set(asked)
        self._flying[offset] = not waiting
        effects: list[BridgeEffect] = []
        for home in sorted(asked):

            def answered(has_it: bool, _: int, home: Address = home) -> None:
                waiting.discard(home)
                if has_it:
                    self.owed.paid(offset, home)
                else:
                    self._silent.add(home)
                if not waiting and offset in self._flying:
                    self._flying[offset] = True

            effects += self.ring(self.node.offer(home, event, now, answered), now)
        return effects

    def tick(self, now: int) -> list[BridgeEffect]:
        """Time passes: see whether nodes that are owed events answer. To be called several times a second."""
        effects: list[BridgeEffect] = []
        if not self.owed or not self._open or now - self._probed < _PROBE:
            return effects
        self._probed = now
        self.owed.expire(now)
        for home in self.owed.homes() if not self._round else ():
            if home in self._probing:
                continue
            self._probing.add(home)

            def probed(answers: bool, _: int, home: Address = home) -> None:
                self._probing.discard(home)
                self._back |= answers

            effects += self.ring(self.node.probe(home, now, probed), now)
        return effects

    # -- the ring --------------------------------------------------------------------------------------

    def ring(self, effects: Sequence[RingEffect], now: int) -> list[BridgeEffect]:
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
                    self._frames.placed(number)
                case PublicationDone(id, silent) if id.source == self._source and id.number in self._flying:
                    if silent:
                        self.owed.owe(id.number, silent, now)
                    self._flying[id.number] = True
                case Offered(event):
                    done += self._arrived(event)
                case _:
                    pass
        if self._back and self._open and not self._round:
            self.closed()
            done.append(BridgeClosed("a node is back; events that it is owed are sent again"))
        return [*done, *self._news()]

    def _arrived(self, event: Publication) -> list[BridgeEffect]:
        """An event for subscriptions of the broker, which finds out itself for which. Its own it has already."""
        told = True if event.id.source == self._source else self.incoming.arrived(event)
        if told is True:
            return [*self.node.confirm(event.id)]  # type: ignore[list-item]
        return [ToBroker([LinkEvents((told,))])] if told and self._open else []

    # -- progress --------------------------------------------------------------------------------------

    def _news(self) -> list[BridgeEffect]:
        """How far the ring is, if that is news."""
        self.node.own.all_known = self._frames.all_known
        for offset in [*takewhile(self._flying.__getitem__, self._flying)]:
            del self._flying[offset]
            self._ahead = offset
        self._settled = max(self._settled, self._ahead)
        owed = self.owed.first
        got = self._ahead if owed is None else min(self._ahead, owed - 1)
        if not self._open:
            return []
        messages: list[LinkMessage] = []
        if (progress := (got, self._frames.heard, self._frames.completed)) != self._told:
            self._told = progress
            messages.append(LinkProgress(Offset(got), self._frames.heard, self._frames.completed))
        if self._told_ahead < self._ahead != got:
            self._told_ahead = self._ahead
            messages.append(LinkAhead(Offset(self._ahead)))
        return [ToBroker(messages)] if messages else []

    @property
    def subscriptions(self) -> int:
        """How many subscriptions of the broker the ring has, or is about to have."""
        return len(self._items)

    @property
    def waiting(self) -> int:
        """Events of the broker that have not visited all of their keys yet."""
        return len(self._flying)
