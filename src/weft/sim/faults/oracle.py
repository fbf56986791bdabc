"""What must hold in every run, checked from outside: the oracle sees what is committed, sent and received, no more.

Laws of one broker:

- What is confirmed is stored: an event before `Published`, an event before `Deliver`.
- The log holds each event once, in the order of its publisher, and `at` never decreases.
- A delivery names exactly the subscriptions whose filter matches at its offset. Where a client cannot know whether a
  filter was already in force (a reply that was lost), either answer is allowed.
- An acknowledged event never returns; another returns only with `attempt > 1`. (Consumers of a shared queue may receive
  the second attempt before the first: they are on different connections.)
- A connection is not sent an event again before it has answered the last attempt.
- A queue's first deliveries come in the order of the log, and in an ordered queue nothing overtakes what failed; floors
  never go back; no window is exceeded; nothing is delivered after it has expired, unless it is a
  dead letter that is tried again. Time never goes back, also when a clock does. (An event that has expired comes late
  if a broker crashes before it has stored anything at such a time, and starts with a clock that went back: nobody
  knows any more that it has expired.)
- A queue loses events only if they were gone before it began, or it is further behind than it may be. (Those come
  after all, late and as a second attempt, if a broker crashes before it has stored that they were lost.)
- Nothing is sent to a client that the access rules of that instant do not let it read.
- A dead letter that was removed, or acknowledged when it was tried again, is never seen again.
- At the end, when everything is mended: every event that a durable queue must have was delivered and acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from weft.broker.effects import ConnectionId
from weft.broker.link_messages import LinkEvents, LinkMessage
from weft.broker.messages import (
    Accepted,
    Ack,
    BrokerMessage,
    Complete,
    DeadLetters,
    Deliver,
    Gap,
    Head,
    Nack,
    Published,
    QueueNumber,
    SubNumber,
    Welcome,
)
from weft.log.base import DeadRow, Group, MoveFloor, Offset, Put, SeatId, State, StoredGroup, SubRow
from weft.log.memory import MemoryLog
from weft.sim.faults.client_laws import ClientLaws
from weft.sim.faults.rate_law import RateLaw
from weft.sim.faults.views import AdvertView, Logged, QueueView, SubView
from weft.sim.faults.violation import require

_FAR = 1 << 62
_head = msgspec.msgpack.Decoder(Head)


class Oracle(ClientLaws):
    """Sees everything of one broker and holds it to the laws."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0  # the latest time that the log or, since it started, the broker has shown
        self.latest = 0  # that its clock has ever shown
        self.rate: RateLaw | None = None  # None: publishers may be as fast as they like
        self._monotonic = 0
        self.window = 1_000  # deliveries of a queue that may be unanswered on a connection
        self.assigned = 0  # the highest offset that an event was ever given, stored or not
        self._at = 0
        self._uids: dict[str, int] = {}
        self._last: dict[int, tuple[int, int]] = {}  # publisher session -> epoch, sequence
        self._floors: dict[SeatId, int] = {}
        self.sessions: dict[ConnectionId, int] = {}  # by Welcome
        self._holders: dict[int, ConnectionId] = {}  # the newest connection of a session
        self._queues: dict[ConnectionId, Callable[[QueueNumber], QueueView | None]] = {}
        self._subs: dict[ConnectionId, Callable[[SubNumber], SubView | None]] = {}
        self._adverts: dict[ConnectionId, Callable[[int], AdvertView | None]] = {}
        self.stored: dict[tuple[int, int], int] = defaultdict(int)  # session, epoch -> highest sequence
        self._views: list[QueueView] = []
        self.repeats: set[str] = set()  # events that may come again, out of order: a broker went back to an older log
        self.may_read: Callable[[str, dict[str, object]], bool] = lambda *_: True
        self._principals: dict[ConnectionId, str] = {}
        self.on_stored: Callable[[Logged], None] = lambda _: None
        self.on_complete: Callable[[SubView], None] = lambda _: None

    # -- the log ---------------------------------------------------------------------------------------

    def restored(self, log: MemoryLog, state: State) -> None:
        """A broker recovers: what survived without having been confirmed counts too."""
        for group in log.read(Offset(self.next), _FAR):
            self._stored(group)
        require(state.next >= self.next, f"the next offset fell from {self.next} to {state.next}")
        for sub in state.subs.values():
            require(sub.floor >= self._floors.get(sub.seat, 0), f"the floor of seat {sub.seat} went back in a crash")
        if self.rate is not None:
            self.rate.restarted()
        self.clock = state.at
        self._revived |= {o for o, event in self.history.items() if state.at < event.expires <= self.latest}
        for seat in state.dead:
            self._dead |= {row.offset for row in log.dead(seat, Offset(0), _FAR)}
        for view in self._views:  # acknowledgements that were not yet stored may be lost
            view.received.clear()
            view.held.clear()

    def saw(self, monotonic: int, utc: int) -> None:
        """A broker has looked at its clocks."""
        self._monotonic = monotonic
        self.clock, self.latest = max(self.clock, utc), max(self.latest, utc)

    def crashed(self) -> None:
        """A broker has crashed; `restored` follows."""
        self.sessions.clear()

    def rewound(self) -> None:
        """A broker without clients goes back to an older log; `restored` follows."""
        self.history.clear()
        self._uids.clear()
        self._last.clear()
        self._floors.clear()
        self.next, self._at = 1, 0

    def proposed(self, group: Group) -> None:
        """A broker asks for a commit."""
        if group.events is not None:
            self.assigned = max(self.assigned, group.events.first + len(group.events) - 1)
            if self.rate is not None:
                self.rate.accepted(group.events.origins[:, 0].tolist(), self._monotonic)

    def committed(self, groups: Sequence[Group]) -> None:
        """Groups are durable."""
        for group in groups:
            if group.events is not None:
                self._stored(StoredGroup(group.at, group.events))
            for change in group.changes:
                if isinstance(change, MoveFloor):
                    self._floor(change.seat, change.floor)
                elif isinstance(change, Put) and isinstance(change.row, SubRow):
                    self._floor(change.row.seat, change.row.floor)
                elif isinstance(change, Put) and isinstance(change.row, DeadRow):
                    self._dead.add(change.row.offset)

    def _floor(self, seat: SeatId, floor: int) -> None:
        require(floor >= self._floors.get(seat, 0), f"the floor of seat {seat} went back to {floor}")
        self._floors[seat] = floor

    def _stored(self, group: StoredGroup) -> None:
        require(group.at >= self._at, "`at` went back")
        self._at = group.at
        events = group.events
        for i in range(len(events)):
            offset = events.first + i
            require(offset >= self.next, f"offset {offset} was used twice")
            self.next = offset + 1
            head = _head.decode(events.heads[i])
            uid = bytes(events.payloads[i]).decode()
            session, epoch, sequence = map(int, events.origins[i])
            self.history[offset] = event = Logged(
                uid, head.attributes, head.expires, (session, epoch, sequence), group.at
            )
            self.on_stored(event)
            if uid in self.repeats and (uid in self._uids or (epoch, sequence) <= self._last.get(session, (0, 0))):
                self._uids.setdefault(uid, offset)
                continue
            require(uid not in self._uids, f"event {uid} is in the log twice, at {self._uids.get(uid)} and {offset}")
            require((epoch, sequence) > self._last.get(session, (0, 0)), f"event {uid} is out of order in the log")
            self._uids[uid] = offset
            self._last[session] = (epoch, sequence)
            self.stored[session, epoch] = sequence

    # -- what goes over the wires ----------------------------------------------------------------------

    def sent(self, connection: ConnectionId, message: BrokerMessage | LinkMessage) -> None:
        """A broker sends a message."""
        match message:
            case Welcome():
                self.sessions[connection] = message.session
                self._holders[message.session] = connection
                for each in message.subscriptions:
                    self._member(connection, each, joins=True)
            case Published(pub_epoch, upto):
                stored = self.stored.get((self.sessions[connection], pub_epoch), 0)
                require(upto <= stored, f"{connection}: events up to {upto} are confirmed, {stored} are stored")
            case Deliver() if message.offset:
                stored = message.offset in self.history
                require(stored, f"{connection}: offset {message.offset} is delivered before it is stored")
                self._check_readable(connection, message)
                view = self._queues[connection](message.queue)
                if view is not None:
                    self._sent_to(connection, message, view)
            case Deliver():
                self._check_readable(connection, message)
            case DeadLetters():
                for letter in message.letters:
                    attributes = _head.decode(letter.head).attributes
                    allowed = self.may_read(self._principals[connection], attributes)
                    require(allowed, f"{connection}: the rules do not allow dead letter {letter.offset}")
            case Accepted("subscribe", number):
                self._member(connection, number, joins=True)
            case Accepted("unsubscribe", number):
                self._member(connection, number, joins=False)
            case Accepted("replace", number):
                sub = self._subs[connection](SubNumber(number))
                if sub is not None:
                    sub.answered = len(sub.versions) - 1
            case Complete(number, "advertise"):
                advert = self._adverts[connection](number)
                if advert is not None:
                    advert.since = min(advert.since, self.assigned)
            case Complete(number):
                sub = self._subs[connection](number)
                if sub is not None:
                    sub.completed = sub.answered
                    self.on_complete(sub)
            case LinkEvents(events):
                for event in events:
                    known = self.history.get(event.offset)
                    same = known is not None and known.uid == bytes(event.payload).decode()
                    require(same, f"{connection}: offset {event.offset} is sent to a neighbour before it is stored")
            case Gap(queue, first, end):
                view = self._queues[connection](queue)
                if view is not None:
                    view.drop(set(range(first, end)))
            case _:
                pass

    def _member(self, connection: ConnectionId, number: int, *, joins: bool) -> None:
        """A queue has got or lost a member. With the last one it ends; another may begin with its number."""
        sub = self._subs[connection](SubNumber(number))
        view = None if sub is None else self._queues[connection](sub.queue)
        if view is None or view.shared:
            return
        members = view.members.setdefault(connection, set())
        if joins:
            members.add(number)
        else:
            members.discard(number)
            if not members:
                view.held.clear()
                view.flights.pop(connection, None)

    def _check_readable(self, connection: ConnectionId, message: Deliver) -> None:
        attributes = _head.decode(message.head).attributes
        allowed = self.may_read(self._principals[connection], attributes)
        require(allowed, f"{connection}: the rules do not allow {attributes} at {message.offset}")

    def _sent_to(self, connection: ConnectionId, message: Deliver, view: QueueView) -> None:
        """A broker sends an event of a durable queue."""
        offset, event = message.offset, self.history[message.offset]
        what = f"{connection}: event {event.uid} at {offset}"
        require(offset not in view.received, f"{what} returns after it was acknowledged")
        require(offset not in view.dropped, f"{what} returns after its dead letter was removed")
        asked_for = offset in self._dead  # a client that wants a dead letter gets it
        require(event.expires > self.clock or asked_for, f"{what} is delivered after it expired")
        view.held.discard(offset)
        if view.ordered and offset not in self._dead:  # a dead letter that is tried again keeps no order
            ahead = [held for held in view.held - self._dead if held < offset and self._is_wanted(held, view)]
            require(not ahead, f"{what} is delivered before {ahead}, which failed")
        flight = view.flights.setdefault(connection, {})
        attempt = flight.setdefault(offset, message.attempt)
        require(attempt == message.attempt, f"{what} is sent again before attempt {attempt} was answered")
        require(len(flight) <= self.window, f"{what} is the {len(flight)}th in a window of {self.window}")

    def _is_wanted(self, offset: int, view: QueueView) -> bool:
        """Whether an event is still to be delivered to a queue."""
        event = self.history[offset]
        if self.withheld(view.principal, offset, event):
            return False
        return event.expires > self.clock and any(not sub.ended and sub.may_match(offset, event) for sub in view.subs)

    def nack_received(self, connection: ConnectionId, message: Nack) -> None:
        """A broker receives a negative acknowledgement."""
        session = self.sessions.get(connection)
        view = self._queues[connection](message.queue)
        if view is not None and session is not None and self._holders.get(session) == connection:
            flight = view.flights.get(connection, {})
            # one that is not in flight may be: a dead letter that failed again took nothing back, as is assumed here
            meant = {int(offset) for offset, attempt in message.failed if flight.get(offset, attempt) == attempt}
            view.held |= meant & flight.keys()
            if view.ordered and meant:
                meant |= {offset for offset in flight if offset >= min(meant)}
            for offset in meant & flight.keys():
                del flight[offset]

    def watch(
        self,
        connection: ConnectionId,
        queues: Callable[[QueueNumber], QueueView | None],
        subs: Callable[[SubNumber], SubView | None],
        adverts: Callable[[int], AdvertView | None],
        principal: str = "",
    ) -> None:
        """Whose queues, subscriptions and advertisements the messages of a connection are about."""
        self._queues[connection], self._subs[connection], self._adverts[connection] = queues, subs, adverts
        self._principals[connection] = principal

    def view(self) -> QueueView:
        """A new queue."""
        self._views.append(QueueView())
        return self._views[-1]

    def ack_received(self, connection: ConnectionId, message: Ack) -> None:
        """A broker receives an acknowledgement; one from a connection that was fenced does not count."""
        session = self.sessions.get(connection)
        if session is None or self._holders.get(session) != connection:
            return
        view = self._queues[connection](message.queue)
        if view is None:
            return
        flight = view.flights.get(connection, {})
        meant = {
            offset
            for offset in flight.keys() | view.held
            if offset < message.floor or any(a <= offset < b for a, b in message.ranges)
        }
        exact = {offset for offset in meant if any(a <= offset < b for a, b in message.ranges)}
        view.received |= (meant - view.lent | exact) & view.acked
        view.held -= meant
        for offset in meant & flight.keys():
            del flight[offset]

    def find(self, at: int) -> int | None:
        """The first event that was stored at a time or later."""
        return next((offset for offset, event in self.history.items() if event.at >= at), None)

    def offset_of(self, uid: str) -> int | None:
        """Where an event is in the log."""
        return self._uids.get(uid)
