"""What must hold in every run, checked from outside: the oracle sees what is committed, sent and received, no more.

Laws of one broker:

- What is confirmed is stored: an event before `Published`, an event before `Deliver`.
- The log holds each event once, in the order of its publisher, and `at` never decreases.
- A delivery names exactly the subscriptions whose filter matches at its offset. Where a client cannot know whether a
  filter was already in force (a reply that was lost), either answer is allowed.
- An acknowledged event never returns; another returns only with `attempt > 1`. (Consumers of a shared queue may receive
  the second attempt before the first: they are on different connections.)
- Acknowledgements that a broker calls stored survive a crash.
- A connection is not sent an event again before it has answered the last attempt.
- A queue's first deliveries come in the order of the log, and in an ordered queue nothing overtakes what failed;
  what is acknowledged stays so; no window is exceeded; nothing is delivered after it has expired, unless it is a dead
  letter that is tried again. Time never goes back, also when a clock does. (An event that has expired comes late
  if a broker crashes before it has stored anything at such a time, and starts with a clock that went back: nobody
  knows any more that it has expired.)
- A queue loses events only if they were gone before it began, or as many later ones of its own are stored as it may
  be behind. (Those come after all, late and as a second attempt, if a broker crashes before it has stored that they
  were lost.)
- Nothing is sent to a client that the access rules of that instant do not let it read.
- A dead letter that was removed, or acknowledged when it was tried again, is never seen again.
- At the end, when everything is mended: every event that a durable queue must have was delivered and acknowledged.
- No publisher has more events accepted than its rate allows: at any instant since the broker started, a session has had
  at most a burst, and what the rate has added since.
- A client acknowledges only what its application has acknowledged.
- At the quota only events are refused: no request fails because of it, and no client is sent away.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from weft.broker.broker import LogClock
from weft.broker.effects import ConnectionId, Now
from weft.log.base import NEVER, DeadRow, Group, MoveFloor, Offset, Put, SeatId, State, StoredGroup, SubRow
from weft.log.memory import MemoryLog
from weft.protocol import messages as protocol
from weft.protocol.link_messages import LinkEvents, LinkMessage
from weft.protocol.messages import Accepted, Complete, Deliver, QueueNumber, SubNumber
from weftlab.faults.access_book import AccessBook
from weftlab.faults.views import ClientViews, Logged, LossyView, QueueView, SubView
from weftlab.faults.violation import require

_FAR = 1 << 62
_UNDONE = {("replace", "full"), ("unsubscribe", "full")}  # neighbours may have learnt of the change
_head = msgspec.msgpack.Decoder(protocol.Head)


class Oracle:
    """Sees everything of one broker and holds it to the laws."""

    def __init__(self, book: AccessBook) -> None:
        self._book = book
        self.history: dict[int, Logged] = {}
        self.next = 1
        self.dead: set[int] = set()  # offsets that were ever a dead letter of some queue
        self._revived: set[int] = set()  # events that had expired when the broker crashed, and are not known to have
        self._clock = LogClock(0)  # of the log, since the broker started
        self.latest = 0  # that its clock or its log has ever shown
        self.rate: RateLaw | None = None  # None: publishers may be as fast as they like
        self._monotonic = 0
        self.window = 1_000  # deliveries of a queue that may be unanswered on a connection
        self.assigned = 0  # the highest offset that an event was ever given, stored or not
        self._at = 0
        self.offsets: dict[str, int] = {}  # of events, by uid
        self._last: dict[int, tuple[int, int]] = {}  # publisher session -> epoch, sequence
        self._acked_below: dict[SeatId, int] = {}
        self.sessions: dict[ConnectionId, int] = {}  # by Welcome
        self._holders: dict[int, ConnectionId] = {}  # the newest connection of a session
        self.clients: dict[ConnectionId, ClientViews] = {}  # whose messages come over a connection
        self.stored: dict[tuple[int, int], int] = defaultdict(int)  # session, epoch -> highest sequence
        self._views: list[QueueView] = []
        self.repeats: set[str] = set()  # events that may come again: a broker or a session was lost
        self.on_stored: Callable[[Logged], None] = lambda _: None
        self.on_complete: Callable[[SubView], None] = lambda _: None
        self.on_undone: Callable[[SubView], None] = lambda _: None

    # -- the log ---------------------------------------------------------------------------------------

    def restored(self, log: MemoryLog, state: State) -> None:
        """A broker recovers: what survived without having been confirmed counts too."""
        for group in log.read(Offset(self.next), _FAR):
            self._stored(group)
        require(state.next >= self.next, f"the next offset fell from {self.next} to {state.next}")
        for sub in state.subs.values():
            kept = sub.floor >= self._acked_below.get(sub.seat, 0)
            require(kept, f"consumer {sub.seat} lost acknowledgements in a crash")
        if self.rate is not None:
            self.rate.left.clear()  # the broker remembers nothing
        self._clock = LogClock(state.at)
        self._revived |= {o for o, event in self.history.items() if state.at < event.expires <= self.latest}
        for consumer in state.dead:
            self.dead |= {row.offset for row in log.dead(consumer, Offset(0), _FAR)}
        for view in self._views:  # acknowledgements that were not yet stored may be lost
            view.received = set(view.stored)
            view.held.clear()

    def saw(self, monotonic: int, utc: int) -> None:
        """A broker has looked at its clocks."""
        self._monotonic = monotonic
        self._clock.follow(Now(monotonic, utc))
        self.latest = max(self.latest, utc, self._clock.at)

    def rewound(self) -> None:
        """A broker without clients goes back to an older log; `restored` follows."""
        self.history.clear()
        self.offsets.clear()
        self._last.clear()
        self._acked_below.clear()
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
                    self._check_acked(change.seat, change.floor)
                elif isinstance(change, Put) and isinstance(change.row, SubRow):
                    self._check_acked(change.row.seat, change.row.floor)
                elif isinstance(change, Put) and isinstance(change.row, DeadRow):
                    self.dead.add(change.row.offset)

    def _check_acked(self, consumer: SeatId, below: int) -> None:
        back = below < self._acked_below.get(consumer, 0)
        require(not back, f"consumer {consumer} went back to acknowledged below {below}")
        self._acked_below[consumer] = below

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
            self.history[offset] = event = Logged(uid, head.attributes, head.expires, group.at)
            if session < 0:  # a copy for a session that moves
                continue
            self.on_stored(event)
            last = self._last.get(session, (0, 0))
            if uid not in self.repeats:
                before = self.offsets.get(uid)
                require(before is None, f"event {uid} is in the log twice, at {before} and {offset}")
                require((epoch, sequence) > last, f"event {uid} is out of order in the log")
            self.offsets.setdefault(uid, offset)
            self._last[session] = max(last, (epoch, sequence))
            self.stored[session, epoch] = max(sequence, self.stored[session, epoch])

    # -- what goes over the wires ----------------------------------------------------------------------

    def sent(self, connection: ConnectionId, message: protocol.BrokerMessage | LinkMessage) -> None:  # noqa: PLR0915
        """A broker sends a message."""
        client = self.clients.get(connection, ClientViews())
        match message:
            case protocol.Welcome():
                self.sessions[connection] = message.session
                self._holders[message.session] = connection
                for each in message.subscriptions:
                    self._member(connection, each, joins=True)
            case protocol.Published(pub_epoch, upto):
                stored = self.stored.get((self.sessions[connection], pub_epoch), 0)
                require(upto <= stored, f"{connection}: events up to {upto} are confirmed, {stored} are stored")
            case Deliver():
                stored = not message.offset or message.offset in self.history
                require(stored, f"{connection}: offset {message.offset} is delivered before it is stored")
                attributes, view = _head.decode(message.head).attributes, client.queues.get(message.queue)
                allowed = self._book.may_read(client.principal, attributes)
                require(allowed, f"{connection}: the rules do not allow {attributes} at {message.offset}")
                if message.offset and view is not None:
                    self._sent_to(connection, message, view)
            case protocol.DeadLetters():
                for letter in message.letters:
                    attributes = _head.decode(letter.head).attributes
                    allowed = self._book.may_read(client.principal, attributes)
                    require(allowed, f"{connection}: the rules do not allow dead letter {letter.offset}")
            case protocol.AcksStored(queue, count):
                view = client.queues.get(queue)
                if view is not None:
                    view.stored.update(*view.acks.get(connection, [])[:count])
            case Accepted("subscribe" | "unsubscribe", number):
                self._member(connection, number, joins=message.about == "subscribe")
            case Accepted("replace", number):
                sub = client.subs.get(SubNumber(number))
                if sub is not None:
                    sub.answered = len(sub.versions) - 1
            case Complete(number, "advertise"):
                advert = client.adverts.get(number)
                if advert is not None:
                    advert.since = min(advert.since, self.assigned)
            case Complete(number):
                sub = client.subs.get(number)
                if sub is not None:
                    sub.completed = sub.answered
                    self.on_complete(sub)
            case protocol.Failed(reason=reason) | protocol.Bye(reason=reason) if connection in self.clients:
                require("its quota" not in reason, f"{connection}: {message}, and only events are refused at the quota")
                if isinstance(message, protocol.Failed) and (message.about, message.code) in _UNDONE:
                    sub = client.subs.get(SubNumber(message.number))
                    if sub is not None:
                        self.on_undone(sub)
            case LinkEvents(events):
                for event in events:
                    known = self.history.get(event.offset)
                    same = known is not None and known.uid == bytes(event.payload).decode()
                    require(same, f"{connection}: offset {event.offset} is sent to a neighbour before it is stored")
            case protocol.Gap(queue, first, end):
                view = client.queues.get(queue)
                if view is not None:
                    view.drop(set(range(first, end)))

    def _member(self, connection: ConnectionId, number: int, *, joins: bool) -> None:
        """A queue has got or lost a member. With the last one it ends; another may begin with its number."""
        sub = self.clients[connection].subs.get(SubNumber(number))
        view = None if sub is None else self.clients[connection].queues.get(sub.queue)
        if view is None or view.shared:
            if view is not None:
                view.acks.pop(connection, None)  # it consumes the queue anew
                if joins:
                    view.left.discard(connection)
            return
        members = view.members.setdefault(connection, set())
        if joins:
            members.add(number)
        else:
            members.discard(number)
            if not members:
                view.held.clear()
                view.unanswered.pop(connection, None)

    def _sent_to(self, connection: ConnectionId, message: Deliver, view: QueueView) -> None:
        """A broker sends an event of a durable queue."""
        offset, event = message.offset, self.history[message.offset]
        what = f"{connection}: event {event.uid} at {offset}"
        require(offset not in view.received, f"{what} returns after it was acknowledged")
        require(offset not in view.dropped, f"{what} returns after its dead letter was removed")
        asked_for = offset in self.dead  # a client that wants a dead letter gets it
        require(event.expires > self._clock.at or asked_for, f"{what} is delivered after it expired")
        view.held.discard(offset)
        if view.ordered and offset not in self.dead:  # a dead letter that is tried again keeps no order
            ahead = [held for held in view.held - self.dead if held < offset and self._is_wanted(held, view)]
            require(not ahead, f"{what} is delivered before {ahead}, which failed")
        unanswered = view.unanswered.setdefault(connection, {})
        attempt = unanswered.setdefault(offset, message.attempt)
        require(attempt == message.attempt, f"{what} is sent again before attempt {attempt} was answered")
        require(len(unanswered) <= self.window, f"{what} is the {len(unanswered)}th in a window of {self.window}")

    def _is_wanted(self, offset: int, view: QueueView) -> bool:
        """Whether an event is still to be delivered to a queue."""
        event = self.history[offset]
        if self._book.withheld(view.principal, offset, event):
            return False
        return event.expires > self._clock.at and any(
            not sub.ended and sub.may_match(offset, event) for sub in view.subs
        )

    def unsubscribe_received(self, connection: ConnectionId, message: protocol.Unsubscribe) -> None:
        """A broker receives the end of a subscription. The other consumers of a shared queue get what was in flight,
        and what this one answers from now on does not count.
        """
        client = self.clients[connection]
        sub = client.subs.get(message.number)
        view = None if sub is None else client.queues.get(sub.queue)
        if view is not None and view.shared:
            view.left.add(connection)

    def nack_received(self, connection: ConnectionId, message: protocol.Nack) -> None:
        """A broker receives a negative acknowledgement."""
        view = self._answering(connection, message.queue)
        if view is None:
            return
        unanswered = view.unanswered.get(connection, {})
        # one that is not in flight may be: a dead letter that failed again took nothing back, as is assumed here
        meant = {int(offset) for offset, attempt in message.failed if unanswered.get(offset, attempt) == attempt}
        view.held |= meant & unanswered.keys()
        if view.ordered and meant:
            meant |= {offset for offset in unanswered if offset >= min(meant)}
        for offset in meant & unanswered.keys():
            del unanswered[offset]

    def ack_received(self, connection: ConnectionId, message: protocol.Ack) -> None:
        """A broker receives an acknowledgement."""
        view = self._answering(connection, message.queue)
        if view is None:
            return
        unanswered = view.unanswered.get(connection, {})
        everywhere = view.held.union(view.acked, *view.unanswered.values())  # ranges are repeated on each connection
        exact = {offset for offset in everywhere if any(a <= offset < b for a, b in message.ranges)}
        meant = exact | {offset for offset in unanswered if offset < message.floor}
        wrong = sorted(meant - view.acked - view.lent - self.dead)
        require(not wrong, f"{connection} acknowledges {wrong} of queue {message.queue}, and its application did not")
        done = (meant - view.lent | exact) & view.acked
        view.received |= done
        view.acks.setdefault(connection, []).append(done)
        view.held -= {offset for offset in view.held if offset < message.floor}
        view.drop(exact)
        for offset in meant & unanswered.keys():
            del unanswered[offset]

    def _answering(self, connection: ConnectionId, queue: QueueNumber) -> QueueView | None:
        """The queue that an answer is about; None if the connection was fenced or has left it: it does not count."""
        session = self.sessions.get(connection)
        held = session is not None and self._holders.get(session) == connection
        view = self.clients[connection].queues.get(queue) if held else None
        return None if view is None or connection in view.left else view

    def view(self) -> QueueView:
        """A new queue."""
        self._views.append(QueueView())
        return self._views[-1]

    def find(self, at: int) -> int | None:
        """The first event that was stored at a time or later."""
        return next((offset for offset, event in self.history.items() if event.at >= at), None)

    # -- what clients receive ---------------------------------------------------------------------------

    def delivered(self, who: ConnectionId, message: Deliver, subs: Sequence[SubView], view: QueueView) -> None:
        """A client receives a durable delivery."""
        offset, event = message.offset, self.history[message.offset]
        named = set(message.numbers)
        what = f"event {event.uid} at {offset}"
        for sub in subs:
            if sub.number in named:
                matched = sub.may_match(offset, event)
                require(matched, f"{who}: subscription {sub.number} gets {what}, which it does not match")
            else:
                left_out = not sub.ended and sub.must_match(offset, event)
                require(not left_out, f"{who}: a delivery of {what} leaves out subscription {sub.number}")
        named -= {sub.number for sub in subs}
        require(not named, f"{who}: a delivery names unknown subscriptions {sorted(named)}")
        if message.attempt == 1:
            require(offset not in view.first, f"{who}: {what} returns with attempt 1")
            view.first.add(offset)
        if view.ordered and offset not in view.seen:
            late = offset in self._revived or (offset in view.lost and message.attempt > 1)
            require(offset > view.highest or late, f"{who}: {what} comes after {view.highest}")
        view.highest = max(view.highest, offset)
        view.seen.add(offset)

    def delivered_once(self, who: str, message: Deliver, subs: Sequence[SubView]) -> None:
        """A client receives an event that it does not acknowledge: not durable itself, or for such a queue."""
        head, uid = _head.decode(message.head), bytes(message.payload).decode()
        offset = message.offset or self.next
        known = self.history.get(message.offset, Logged(uid, head.attributes, head.expires))
        require(known.uid == uid, f"{who}: {uid} is delivered as offset {message.offset}, which is {known.uid}")
        for sub in subs:
            if sub.number in message.numbers:
                # an event without an offset was matched at any time since it was published
                right = sub.may_match(offset, known) if message.offset else sub.ever_matched(known)
                require(right, f"{who}: subscription {sub.number} gets event {uid}, which it does not match")
            elif message.offset:
                left_out = not sub.ended and sub.must_match(offset, known)
                require(not left_out, f"{who}: a delivery of event {uid} at {offset} leaves out {sub.number}")

    def lost_once(self, subs: Sequence[SubView], view: LossyView, principal: str) -> int:
        """How many events a queue that is not durable should have had on its connection, and neither had nor lost."""
        wanted = {
            offset
            for offset, event in self.history.items()
            if event.expires == NEVER
            and any(not sub.ended and sub.must_match(offset, event) for sub in subs)
            and not self._book.withheld(principal, offset, event)
        }
        return max(0, len(wanted - view.got) - view.dropped)

    def gap(self, who: str, view: QueueView, first: int, end: int) -> None:
        """A client learns that events are lost to a queue."""
        own = [o for o in range(end, self.next) if any(sub.may_match(o, self.history[o]) for sub in view.subs)]
        allowed = end <= view.begins or 0 < view.lag <= len(own)
        reason = f"the log began with {view.begins}, and {len(own)} later ones are its own"
        require(allowed, f"{who}: events {first} to {end} are lost to it; {reason}")
        view.excused |= set(range(first, end))
        view.lost |= set(range(first, end))

    def missing(self, subs: Sequence[SubView], view: QueueView, utc: int) -> list[int]:
        """The events that a queue must have had acknowledged, and has not. Expired ones are not required."""
        live = [sub for sub in subs if not sub.ended]
        return [
            offset
            for offset, event in self.history.items()
            if offset not in view.acked
            and offset not in view.excused
            and not (offset in view.refused and offset in self.dead)
            and event.expires > utc
            and any(sub.must_match(offset, event) for sub in live)
            and not self._book.withheld(view.principal, offset, event)
        ]


_ROUNDING = 1e-6


class RateLaw:
    """How many events each session may still publish.

    >>> law = RateLaw(2.0, burst=1)
    >>> law.accepted([7], monotonic=0)
    >>> law.accepted([7], monotonic=500_000)
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self.left: dict[int, tuple[int, float]] = {}  # by session: when, and how many

    def accepted(self, sessions: Iterable[int], monotonic: int) -> None:
        """Events of these sessions were accepted."""
        for session, many in Counter(sessions).items():
            last, left = self.left.get(session, (monotonic, float(self._burst)))
            left = min(float(self._burst), left + (monotonic - last) * self._rate / 1e6) - many
            require(left >= -_ROUNDING, f"session {session} publishes more than {self._rate:g} events a second")
            self.left[session] = monotonic, left
