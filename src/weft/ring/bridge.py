"""A broker on a ring: to the broker, the ring is one neighbour that wants every event. An event of the broker is
acknowledged when it has visited all of its keys and every subscriber's node has it. A change of subscriptions is
complete when the ring has stored it. An event of the ring is answered when the broker has stored it, and is handed to
the broker once.

The bridge plays the neighbour's part of the link protocol (`weft.protocol.link_messages`), without sockets and clocks.
The broker dials it. It keeps no state of its own on disk: after a restart the broker sends again what it may not have
sent, under the same event ids, and the subscribers' nodes drop what they have had before.

An event for a node that does not answer is owed to it, and so is one that may not have met all subscriptions because a
member cannot be reached. Later events go on, but the broker's log keeps everything from the first owed event on. When
such a node answers again, the bridge ends the session: in the next one the broker sends again what its log has kept,
and the bridge publishes what is owed once more, under the same event ids.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import NamedTuple

import msgspec

from weft.broker.links.item_digest import item_hash
from weft.errors import RemoteProtocolError
from weft.language.ast import Filter
from weft.log.base import Offset
from weft.protocol.link_messages import (
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
from weft.protocol.messages import Bye, Head
from weft.ring.messages import NodeAddress
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    EventId,
    JoinedRing,
    Offered,
    Publication,
    PublicationDone,
    Returned,
    RingEffect,
    RingSend,
    Subscribed,
)
from weft.ring.topics import TopicAttribute

RING = "ring"  # the neighbour's name, as the broker knows it

_LOOK = 500_000  # microseconds between two looks at what is owed
_REMEMBERED = 100_000  # events that were stored

Origin = tuple[int, int, int]  # the publisher's session, its epoch and its sequence there

_encode = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(Head).decode


class ToBroker(msgspec.Struct, frozen=True):
    """Messages for the broker, in order."""

    messages: list[LinkMessage]


class BridgeClosed(msgspec.Struct, frozen=True):
    """The session with the broker is over; the broker dials again."""

    reason: str


BridgeEffect = ToBroker | BridgeClosed | RingSend


class ControlFrames:
    """The broker's changes of subscriptions on their way to the ring. A control frame is complete when the ring has
    stored every subscription that was added by it or before it, in earlier sessions, too, and is still wanted.

    >>> frames = ControlFrames()
    >>> frames.take(LinkUpdate(1, ids=(7,), items=(b"",)))
    >>> frames.take(LinkUpdate(2, resynced=True))
    >>> frames.completed
    (0, 0)
    >>> frames.placed(7)
    >>> frames.completed, frames.all_known
    ((2, 0), True)
    """

    def __init__(self) -> None:
        self.heard = 0  # the number of the last one
        self.completed = (0, 0)  # the last complete one: of subscriptions, and of advertisements
        self._storing: set[int] = set()  # subscriptions that the ring does not have yet
        self._waiting: deque[tuple[int, int, set[int]]] = deque()  # number, kind, and subscriptions not stored yet
        self._resynced = False  # the broker has told all subscriptions that it has

    def begin(self) -> None:
        """A session begins."""
        self.heard, self.completed = 0, (0, 0)

    def end(self) -> None:
        """A session is over; subscriptions that are being stored still are."""
        self._waiting.clear()

    def take(self, message: LinkUpdate) -> None:
        """A control frame. Raises RemoteProtocolError if it is not the next one, or a ring cannot serve it."""
        if message.number != self.heard + 1 or len(message.ids) != len(message.items):
            raise RemoteProtocolError("the broker sent a control frame out of order")
        if message.about and message.ids:
            raise RemoteProtocolError("a ring does not support advertisements; switch them off at the broker")
        self.heard = message.number
        self._storing.update(message.ids)
        self._resynced |= message.resynced
        self._waiting.append((message.number, message.about, set(self._storing)))  # those of earlier sessions, too
        self._advance()

    def placed(self, wire: int) -> None:
        """The ring has stored a subscription, or it is no longer wanted."""
        self._storing.discard(wire)
        for _, _, waiting in self._waiting:
            waiting.discard(wire)
        self._advance()

    @property
    def all_known(self) -> bool:
        """The broker has told all of its subscriptions, and the ring has them."""
        return self._resynced and not self._storing

    def _advance(self) -> None:
        while self._waiting and not self._waiting[0][2]:
            number, about, _ = self._waiting.popleft()
            subscriptions, advertisements = self.completed
            self.completed = (subscriptions, number) if about else (number, advertisements)


class _Body(NamedTuple):
    """What travels with an event besides its attributes."""

    session: int
    epoch: int
    sequence: int
    head: bytes
    payload: bytes


_body = msgspec.msgpack.Decoder(_Body).decode


def body_of(event: LinkEvent) -> bytes:
    """What is to travel with an event of the broker."""
    return _encode(_Body(event.session, event.epoch, event.sequence, bytes(event.head), event.payload))


class IncomingEvents:
    """Events of the ring on their way to the broker. An event is handed to the broker once, and answered when it is
    stored there. What was not stored in one session is handed over again in the next.

    Events are identified by their origin, which is in the broker's log, too: `had` are those that were stored before a
    restart.
    """

    def __init__(self, had: Iterable[Origin] = ()) -> None:
        self._offset = 0  # of the last event, as the broker knows it
        self._waiting: dict[Origin, tuple[EventId, LinkEvent]] = {}  # in ascending order of offsets
        self._done: dict[Origin, None] = dict.fromkeys(had)
        self.count = 0

    def arrived(self, event: Publication) -> LinkEvent | bool:
        """What the broker is to be told of an event; False if it has been told already, True if it has stored it.

        Raises RemoteProtocolError if the event cannot be read.
        """
        try:
            body = _body(event.body)
        except ValueError:
            raise RemoteProtocolError("an event of the ring cannot be read") from None
        origin = body.session, body.epoch, body.sequence
        if origin in self._waiting or origin in self._done:
            return origin in self._done
        self._offset += 1
        self.count += 1
        made = LinkEvent(Offset(self._offset), *origin, msgspec.Raw(body.head), body.payload)
        self._waiting[origin] = event.id, made
        return made

    def since(self, got: int) -> list[LinkEvent]:
        """What the broker is to be told again: it has stored everything up to an offset."""
        return [event for _, event in self._waiting.values() if event.offset > got]

    def stored(self, got: int) -> list[EventId]:
        """The broker has stored everything up to an offset: the events that are new among these."""
        stored = [*takewhile(lambda origin: self._waiting[origin][1].offset <= got, self._waiting)]
        self._done.update(dict.fromkeys(stored))
        found = [self._waiting.pop(origin)[0] for origin in stored]
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        return found


@dataclass(slots=True)
class _Debt:
    homes: set[NodeAddress]
    since: int


class OwedEvents:
    """Events that some subscribers' nodes have not received, because they do not answer: offsets in the broker's log,
    which keeps everything from `first` on, each with the nodes that it is owed to. An event is owed until all of its
    nodes have it or it is given up, which is counted: after `keep` microseconds, or when more than `most` are owed.

    >>> owed = OwedEvents(keep=60_000_000, most=2)
    >>> owed.owe(7, ["b", "c"], now=0)
    >>> owed.owe(7, ["c"], now=0)
    >>> owed.first, owed.homes(), owed.to(7)
    (7, ['c'], ['c'])
    >>> for offset in (9, 12):
    ...     owed.owe(offset, ["c"], now=0)
    >>> owed.offsets, owed.given_up
    ([9, 12], 1)
    >>> owed.owe(9, [], now=0)
    >>> owed.offsets
    [12]
    """

    def __init__(self, keep: int, most: int = 100_000) -> None:
        self._keep, self._most = keep, most
        self._debts: dict[int, _Debt] = {}
        self.offsets: list[int] = []  # ascending
        self.given_up = 0  # events that some node has never got

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def first(self) -> int | None:
        """The lowest offset."""
        return self.offsets[0] if self.offsets else None

    def homes(self) -> list[NodeAddress]:
        """All nodes that are owed something."""
        return sorted({home for debt in self._debts.values() for home in debt.homes})

    def to(self, offset: int) -> list[NodeAddress]:
        """The nodes that an event is owed to."""
        debt = self._debts.get(offset)
        return [] if debt is None else sorted(debt.homes)

    def owe(self, offset: int, homes: Collection[NodeAddress], now: int) -> None:
        """These nodes do not have an event, and all others do."""
        debt = self._debts.get(offset)
        if not homes:
            if debt is not None:
                self._remove(offset)
            return
        if debt is None:
            debt = self._debts[offset] = _Debt(set(), now)
            insort(self.offsets, offset)
        debt.homes = set(homes)
        while len(self.offsets) > self._most:
            self.give_up(self.offsets[0])

    def forget(self, home: NodeAddress) -> None:
        """A node will never come back: what is owed to it alone is given up."""
        for offset, debt in list(self._debts.items()):
            debt.homes.discard(home)
            if not debt.homes:
                self.give_up(offset)

    def give_up(self, offset: int) -> None:
        """An event can no longer be sent to any node."""
        if offset in self._debts:
            self._remove(offset)
            self.given_up += 1

    def expire(self, now: int) -> None:
        """Give up what has been owed for too long."""
        for offset in [offset for offset, debt in self._debts.items() if now - debt.since > self._keep]:
            self.give_up(offset)

    def _remove(self, offset: int) -> None:
        del self._debts[offset]
        del self.offsets[bisect_left(self.offsets, offset)]


class RingBridge:
    """Between one broker and one node of a ring. `everything` is the item that wants every event, as the broker's table
    encodes it, and `decode` reads an item. `topics` maps events and subscriptions to their topics. `had` are the
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
        self._numbers = count(1)  # of control frames
        self._flying: dict[int, bool] = {}  # the broker's events on their way, by offset: whether all keys are visited
        self._ahead = 0  # the events up to here are dealt with, in this session
        self._settled = 0  # in any session: all others are owed
        self._told = (0, 0, (0, 0))  # progress
        self._told_ahead = 0
        self.incoming = IncomingEvents(had)
        self.owed = OwedEvents(keep)
        self._round: deque[int] = deque()  # offsets that are owed and have not been sent again in this session
        self._back = False  # a node that is owed events answers
        self._leaving = False
        self._look_at = 0

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
        """Keeps the session alive; to be called every few seconds."""
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
        self._numbers = count(1)
        self._ahead = self._told_ahead = 0
        self._frames.begin()
        self._round = deque(self.owed.offsets)
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
            new = max((message.highest, *held)) + 1
            frames.append(LinkUpdate(next(self._numbers), ids=(new,), items=(self._everything,)))
        drop = sorted(wire for wire in held if wire != keep)
        drops = [tuple(drop[at : at + MOST_ITEMS]) for at in range(0, len(drop), MOST_ITEMS)]
        frames += [LinkUpdate(next(self._numbers), drop=each) for each in drops]
        frames.append(LinkUpdate(next(self._numbers), resynced=True))
        return [ToBroker(frames)]

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
        if event.offset <= self._settled and not self.owed.to(event.offset):
            self._flying[event.offset] = True  # it was sent again for the sake of an earlier one
            return []
        event_id = EventId(self._source, event.offset)
        attributes = _head(event.head).attributes
        self.published += event.offset > self._settled
        topics = self._topics.of_event(attributes)
        if self._leaving:
            return []  # the broker's log has it, and sends it again
        return self.ring(self.node.publish(topics, attributes, now, event_id, body_of(event))[1], now)

    def tick(self, now: int) -> list[BridgeEffect]:
        """Time passes: what has been owed for too long is given up. To be called several times a second."""
        if now >= self._look_at:
            self._look_at = now + _LOOK
            self.owed.expire(now)
            self.node.owe(self.owed.homes(), now)
        return self._news()

    def refuse(self) -> None:
        """Publish nothing more: the node is about to leave, and the broker's log has the events."""
        self._leaving = True

    def forget(self, home: NodeAddress, now: int) -> list[BridgeEffect]:
        """A node will never come back: nothing is owed to it, and nobody waits for it."""
        self.owed.forget(home)
        return self.ring(self.node.forget(home), now)

    # -- the ring --------------------------------------------------------------------------------------

    def ring(self, effects: Sequence[RingEffect], now: int) -> list[BridgeEffect]:
        """The effects of the node, and its notices."""
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
                    self.owed.owe(id.number, silent, now)
                    self._flying[id.number] = True
                case Returned():
                    self._back = True
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
