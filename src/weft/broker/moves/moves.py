"""Moves: the messages about sessions that move, what is done with each, and who is asked for a session.

`states.REACTIONS` says what each message does. A broker that waits for an answer repeats what it has sent: after a
fifth of a second, then after twice as long each time, and at once when a link is there again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from weft.broker.advertisements import ClientAdvertisements
from weft.broker.after_commit import CopiesStored, MoveStep, MoveStored
from weft.broker.effects import Now
from weft.broker.ingest import Ingest
from weft.broker.limits import REFUSALS
from weft.broker.links.links import Links
from weft.broker.moves.arrivals import Arrival, Arrivals, WaitingClient
from weft.broker.moves.balance import Balance
from weft.broker.moves.departures import AskedMove, Departure, Departures, LeftQueue
from weft.broker.moves.states import REACTIONS, MoveSide, MoveState, Reaction
from weft.broker.parts import BrokerParts
from weft.broker.sessions import Connection, Session
from weft.broker.subscriptions import ClientSubscriptions
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.log.base import Offset, SeatId, SessionId, State
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import MOVES, Hello, HomeBroker, Whereabouts, next_epoch
from weft.protocol.move_messages import (
    AnyMove,
    BrokerLoadReport,
    DatedMoveRequest,
    MoveChunk,
    MoveClaim,
    MovedSession,
    MovedSessionWithProfiles,
    MoveElsewhere,
    MoveEnd,
    MoveFinish,
    MoveInvite,
    MoveMessage,
    MoveRefused,
    MoveRequest,
    MoveUnknown,
    ShownChunk,
    decode_move,
    encode_move,
)

if TYPE_CHECKING:
    from weft.broker.hello import ClientConnections

_FIRST, _LONGEST = 200_000, 5_000_000  # microseconds until something is sent again
_INVITED = 60_000_000  # that a session to which this broker was invited is asked for
_PLAIN: dict[type[MoveMessage], type[MoveMessage]] = {  # messages that say more, and the kind that they are of
    DatedMoveRequest: MoveRequest,
    MovedSessionWithProfiles: MovedSession,
    ShownChunk: MoveChunk,
}


@dataclass(slots=True, eq=False, repr=False)
class Asking:
    """A session that other brokers are asked for."""

    id: SessionId
    name: str
    owner: str
    epoch: int
    brokers: list[str]  # that may have it; the first is asked next
    client: WaitingClient | None
    until: int = 0  # monotonic; without a client, it is asked for until then
    is_anew: bool = False  # the client does not know the epoch of the session: any is newer
    unknown: set[str] = field(default_factory=set)  # brokers that know nothing of it
    parts: list[MovedSession] = field(default_factory=list)
    delay: int = 0
    serial: int = 0
    home_epoch: int = 0  # under which its client was welcome last
    heard: int = 0  # monotonic: the last word of a broker that is asked, or when it was asked first
    patience: int | None = None  # microseconds without a word after which it goes on without them


class Moves:
    """Sessions that come to a broker, and that leave it."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it hands on to
        self,
        parts: BrokerParts,
        ingest: Ingest,
        links: Links,
        subscriptions: ClientSubscriptions,
        adverts: ClientAdvertisements,
        clients: ClientConnections,
    ) -> None:
        self._journal, self._sessions, self._timers = parts.journal, parts.sessions, parts.timers
        self._counts, self._links, self._clients, self._out = parts.counts, links, clients, parts.out
        self.asking: dict[SessionId, Asking] = {}
        self.departures = Departures(parts, ingest, links, adverts, clients, self._post)
        self.arrivals = Arrivals(parts, ingest, links, subscriptions, adverts, clients, self.departures, self._post)
        self.balance = Balance(parts, links, self.arrivals.came, self.invite)
        self.unscheduled: list[Arrival] = []
        self.is_restored = False  # what was restored goes on with the first tick
        self._reactions: dict[Reaction, Callable[..., None]] = {
            Reaction.IGNORE: self._ignore,
            Reaction.WAIT: self._ignore,
            Reaction.ASK: self._ask,
            Reaction.POINT: self._point,
            Reaction.ANSWER: self._answer,
            Reaction.INSTALL: self._install,
            Reaction.DECLINE: self._decline,
            Reaction.DENY: self._deny,
            Reaction.RETURN: self._return,
            Reaction.CLAIM: self._claim_lost,
            Reaction.END_AGAIN: self._end_again,
            Reaction.CUT: self._cut,
            Reaction.FILL: self._fill,
            Reaction.STORE: self._store,
            Reaction.CLOSE: self._close,
            Reaction.RELEASE: self._release,
            Reaction.REMOVE: self._remove,
            Reaction.FOLLOW: self._follow,
            Reaction.KEEP: self._keep,
            Reaction.SEND: self._send,
            Reaction.FORGET: self._forget,
            Reaction.FINISHED: self._finished,
            Reaction.YIELD: self._yield,
            Reaction.YIELD_AGAIN: self._yield_again,
            Reaction.PULL: self._pull_late,
            Reaction.STORE_LATE: self._store_late,
            Reaction.DROP: self._drop_claim,
            Reaction.CLAIM_THERE: self._claim_there,
            Reaction.COMPARE: self._compare,
        }

    @property
    def name(self) -> str:
        """The name of this broker."""
        return self._links.reach.name

    # -- messages ---------------------------------------------------------------------------------------

    def receive(self, relay: LinkRelay, now: Now) -> None:
        """A message of another broker."""
        try:
            message = decode_move(relay.body)
        except RemoteProtocolError:
            self._counts["moves not read"] += 1
            return
        if isinstance(message, BrokerLoadReport):
            self.balance.received(message, relay.source, now)
            return
        state = self.state(message.session)
        if self.arrivals.claim(message.session, message.epoch) is not None:
            state = MoveState.CLAIMING
        reaction = REACTIONS[_PLAIN.get(type(message), type(message)), state]
        self._counts[f"move messages: {type(message).__name__}"] += 1
        self._reactions[reaction](message, relay.source, now)

    def state(self, session: SessionId) -> MoveState:
        """Where a session is in its move, at this broker."""
        known = self._sessions.by_id.get(session)
        if known is not None:
            return MoveState.HOME if known.arrival is None else known.arrival.state
        return MoveState.ASKING if session in self.asking else MoveState.NONE

    def _post(self, destination: str, message: AnyMove, now: Now) -> None:
        """Send a message; it is lost if there is no way now."""
        relay = LinkRelay(destination, self.name, encode_move(message), kind=RelayKind.MOVE)
        if destination == self.name:  # what has left comes back
            self._timers.add(now.monotonic, lambda later: self.receive(relay, later))
        else:
            self._links.relay(relay, now)

    def bounced(self, relay: LinkRelay, now: Now) -> None:
        """A message cannot go on, because the next broker does not know moves: tell whoever asks."""
        try:
            message = decode_move(relay.body)
        except RemoteProtocolError:
            return
        if isinstance(message, MoveRequest) and relay.source != relay.destination:
            reason = f"a broker on the way to {relay.destination} runs an older version of Weft; update it"
            refused = MoveRefused(message.session, message.epoch, "version", reason)
            if relay.source == self.name:
                self._reactions[REACTIONS[MoveRefused, self.state(message.session)]](refused, self.name, now)
            else:
                self._post(relay.source, refused, now)

    def _ignore(self, message: AnyMove, source: str, now: Now) -> None:
        """It came twice, too late, or is repeated."""

    # -- clients ----------------------------------------------------------------------------------------

    def greet(self, connection: Connection, hello: Hello, whence: Whereabouts | None, now: Now) -> bool:
        """A client with a name has said hello. False if its session is here, or is to be made; else it waits."""
        session = self._sessions.by_name.get(hello.session)
        if session is not None:
            return self._greet_here(connection, hello, whence, session, now)
        if not self.name or self._clients.home is not None:
            return False
        session_id = None if whence is None else whence.session
        if not session_id:
            session_id = self.departures.named(hello.session, connection.principal)
        left = None if session_id is None else self.departures.whereabouts(session_id)
        if session_id is None or (left is None and (whence is None or whence.home in ("", self.name))):
            return False
        if hello.versions[1] < MOVES:
            where = "another broker" if left is None else left.peer
            reason = f"session {hello.session!r} has moved to {where}; connect there, or update the client"
            self._clients.close(connection, "refused", reason, now)
            return True
        brokers = [] if whence is None else [whence.home, *whence.hints]
        if left is not None:
            is_newer = whence is None or left.epoch >= whence.home_epoch
            brokers = [left.peer, *brokers] if is_newer else [*brokers, left.peer]
        brokers = [each for each in dict.fromkeys(brokers) if each not in ("", self.name)]
        departure = self.departures.newest(session_id)
        if departure is not None:
            self.departures.remind(departure, now)
            if departure.body.lost:
                brokers = [self.name]
        patience = None if whence is None or whence.abandon is None else 1_000 * whence.abandon
        if patience is None and not any(each == self.name or self._links.reach.path(each) for each in brokers):
            where = " or ".join(brokers) or "another broker"
            reason = f"session {hello.session!r} is at {where}, which is not in the network of {self.name} now"
            self._clients.close(connection, "unreachable", f"{reason}; connect to a broker of its network", now)
            return True
        epoch = hello.epoch
        if left is not None:
            epoch = max(epoch, left.epoch + 1) if epoch else next_epoch(left.epoch)
        epoch = epoch or next_epoch(0)
        client = WaitingClient(connection, hello)
        known = self.asking.get(session_id)
        if known is not None and known.epoch > epoch and hello.epoch:
            self._clients.close(connection, "refused", "a newer connection asks for the session", now)
            return True
        if known is not None and known.client is not None and self._sessions.is_open(known.client.connection):
            self._clients.close(known.client.connection, "taken over", "a newer connection asks for the session", now)
        owner, is_anew = connection.principal, not hello.epoch
        asking = Asking(session_id, hello.session, owner, epoch, brokers, client, is_anew=is_anew)
        asking.home_epoch = 0 if whence is None else whence.home_epoch
        self.asking[session_id] = asking
        self._wait(connection)
        self._request(asking, now)
        self._repeat(asking, now)
        self._be_patient(asking, patience, now)
        return True

    def _greet_here(
        self, connection: Connection, hello: Hello, whence: Whereabouts | None, session: Session, now: Now
    ) -> bool:
        arrival = session.arrival
        at_home = whence is not None and whence.home == self.name and session.owner == connection.principal
        if whence is not None and whence.session and whence.session != session.id and not at_home:
            reason = f"another session named {session.name!r} is at {self.name}; choose another name"
            self._clients.close(connection, "refused", reason, now)
            return True
        if session.cutting is not None or (arrival is not None and arrival.removing):
            self._clients.close(connection, "moving", "the session moves to another broker; try again", now)
            return True
        elsewhere = 0 if whence is None or whence.home in ("", self.name) else whence.home_epoch
        if (
            arrival is None and whence is not None and session.epoch < elsewhere
        ):  # it has gone on there, and this broker was down
            self._post(whence.home, MoveInvite(session.id, session.epoch, session.name, session.owner), now)
            reason = f"the session has gone on at {whence.home}, and this broker has yet to learn it; try again"
            self._clients.close(connection, "moving", reason, now)
            return True
        if arrival is not None and arrival.epoch < elsewhere:
            self.arrivals.refused(arrival)  # it came, and has gone on: this broker's log is from a backup
            self._clients.close(connection, "moving", "the session has gone on elsewhere; try again", now)
            return True
        if arrival is not None and whence is not None and whence.abandon is not None:
            self._be_patient(arrival, 1_000 * whence.abandon, now)
        if arrival is None or arrival.state is not MoveState.ARRIVING:
            return False
        if session.owner != connection.principal or (hello.epoch and hello.epoch < session.epoch):
            reason = "the session belongs to another principal, or a newer connection uses it"
            self._clients.close(connection, "refused", reason, now)
            return True
        session.epoch = max(session.epoch, hello.epoch)
        old, arrival.client = arrival.client, WaitingClient(connection, hello)
        if old is not None and self._sessions.is_open(old.connection):
            self._clients.close(old.connection, "taken over", "a newer connection has taken the session over", now)
        self._wait(connection)
        return True

    def _be_patient(self, item: Asking | Arrival, patience: int | None, now: Now) -> None:
        """Go on without the old broker when it has not said a word for so many microseconds."""
        item.patience, item.heard = patience, now.monotonic
        if patience is not None:
            self._timers.add(now.monotonic + patience, lambda later: self._go_on_without(item, later))

    def _go_on_without(self, item: Asking | Arrival, now: Now) -> None:
        if item.patience is None or not self._is_current(item, now):
            return
        due = item.heard + item.patience
        if due > now.monotonic:
            self._timers.add(due, lambda later: self._go_on_without(item, later))
        elif isinstance(item, Asking):
            self._abandon(item, now)
        elif item.state in (MoveState.ARRIVING, MoveState.FILLING) and not self.arrivals.abandon(item, now):
            self._timers.add(now.monotonic + _FIRST, lambda later: self._go_on_without(item, later))

    def _abandon(self, asking: Asking, now: Now) -> None:
        """Nobody has described the session: it begins anew under its id, and what the old broker has is claimed."""
        assert asking.client is not None
        del self.asking[asking.id]
        connection, hello = asking.client
        session = Session(asking.id, asking.name, asking.owner, self._sessions.bucket_of(asking.owner))
        session.epoch, session.pub_epoch, session.is_anew = asking.epoch - 1, 0, True
        self._sessions.by_id[session.id] = self._sessions.by_name[session.name] = session
        self._counts["sessions abandoned"] += 1
        peer = next((each for each in asking.brokers if each not in asking.unknown), "")
        if peer:
            self._repeat(self.arrivals.claim_anew(session, peer, asking.epoch, self._journal.next), now)
        connection.waits = False
        self._clients.admit(connection, msgspec.structs.replace(hello, epoch=asking.epoch), session, now)

    def _wait(self, connection: Connection) -> None:
        """A client waits here; it learns where that is, so that others can be told."""
        connection.waits = True
        self._out.send(connection.id, HomeBroker(self.name))

    def invite(self, name: str, broker: str, address: str, now: Now) -> None:
        """Ask another broker to take a session over; its client is redirected. Raises LocalProtocolError."""
        if not self.name:
            raise LocalProtocolError("this broker has no name, so no session can leave it; give it one")
        session, departure = self._sessions.by_name.get(name), self.departures.lacking(name)
        if session is None and departure is None:
            raise LocalProtocolError(f"there is no session {name!r} here; `weft sessions` lists all")
        here = None if session is None else self._sessions.connection_of(session)
        if session is not None and session.is_moving:
            raise LocalProtocolError(f"session {name!r} is moving already; wait until it has")
        if broker == self.name:
            raise LocalProtocolError(f"session {name!r} is at {broker} already")
        if not self._links.reach.path(broker):
            where = broker or "a broker without a name"
            raise LocalProtocolError(f"{where} is not in the network of {self.name}; name a broker that is")
        if here is not None and here.version < MOVES:
            raise LocalProtocolError(f"the client of session {name!r} is too old to be moved; update it")
        if session is None:
            assert departure is not None
            if not departure.body.lost and self._links.reach.path(departure.peer):
                raise LocalProtocolError(f"session {name!r} is moving to {departure.peer}; wait until it has")
            self.departures.offer(departure, broker, now)
            return
        session.invited_to = address
        self._post(broker, MoveInvite(session.id, session.epoch + 1, session.name, session.owner), now)

    # -- asking -----------------------------------------------------------------------------------------

    def _request(self, asking: Asking, now: Now) -> None:
        if asking.brokers:
            asking.parts = []
            invited = asking.client is None
            asked = asking.id, asking.epoch, asking.name, asking.owner, invited
            message = DatedMoveRequest(*asked, asking.home_epoch) if asking.home_epoch else MoveRequest(*asked)
            self._post(asking.brokers[0], message, now)

    def _repeat(self, item: Asking | Arrival, now: Now) -> None:
        """Send again what an item waits for, if nothing has come until then."""
        item.delay = min(_LONGEST, 2 * item.delay) if item.delay else _FIRST
        item.serial += 1
        serial = item.serial
        self._timers.add(now.monotonic + item.delay, lambda later: self._again(item, serial, later))

    def _again(self, item: Asking | Arrival, serial: int, now: Now) -> None:
        if item.serial != serial or not self._is_current(item, now):
            return
        if isinstance(item, Asking):
            item.brokers.append(item.brokers.pop(0))
            self._request(item, now)
        else:
            self.arrivals.repeat(item, now)
        self._repeat(item, now)

    def _is_current(self, item: Asking | Arrival, now: Now) -> bool:
        """Whether an item still waits."""
        if isinstance(item, Arrival):
            key = item.session.id
            return self.arrivals.arriving.get(key) is item or self.arrivals.finishing.get((key, item.epoch)) is item
        if self.asking.get(item.id) is not item:
            return False
        if item.client is None:
            gone = item.until <= now.monotonic
        else:
            gone = not self._sessions.is_open(item.client.connection)
        if gone:
            del self.asking[item.id]
        return not gone

    def linked(self, now: Now) -> None:
        """A link is there again: send at once what waits."""
        waiting: list[Asking | Arrival] = [*self.asking.values()]
        waiting += [*self.arrivals.arriving.values(), *self.arrivals.finishing.values()]
        for item in waiting:
            item.delay = 0
            if self._is_current(item, now):
                if isinstance(item, Asking):
                    self._request(item, now)
                else:
                    self.arrivals.repeat(item, now)
                self._repeat(item, now)

    def begin(self, now: Now) -> None:
        """Go on with what was restored."""
        unscheduled, self.unscheduled, self.is_restored = self.unscheduled, [], False
        for arrival in unscheduled:
            self._repeat(arrival, now)
        self.departures.watch(now)

    def _ask(self, message: MoveInvite, source: str, now: Now) -> None:
        """This broker is invited to take a session over."""
        if message.name in self._sessions.by_name:
            return
        key = message.session, message.name, message.owner, message.epoch
        asking = Asking(*key, [source], None, until=now.monotonic + _INVITED)
        self.asking[message.session] = asking
        self._request(asking, now)
        self._repeat(asking, now)

    def _asking(self, message: AnyMove, now: Now) -> Asking | None:
        """What a message answers, if somebody still waits for it."""
        asking = self.asking.get(message.session)
        if asking is None or asking.epoch != message.epoch or not self._is_current(asking, now):
            return None
        asking.heard = now.monotonic
        return asking

    def _point(self, message: MoveRequest, source: str, now: Now) -> None:
        if self.departures.hand_on(message, source, now):
            return
        left, asking = self.departures.whereabouts(message.session), self.asking.get(message.session)
        departure = self.departures.newest(message.session)
        if departure is not None:
            self.departures.remind(departure, now)
        where = left.peer if left is not None else asking.brokers[0] if asking is not None and asking.brokers else ""
        if where == source and asking is not None:
            return  # both ask each other; it repeats
        self._post(source, MoveElsewhere(message.session, message.epoch, where), now)

    def _follow(self, message: MoveElsewhere, source: str, now: Now) -> None:
        before = self.asking.get(message.session)
        heard = 0 if before is None else before.heard
        asking = self._asking(message, now)
        if asking is None:
            return
        where, known = message.broker, asking.brokers
        if where in known:
            asking.heard = heard  # it points to one that is silent, again and again
        if where == self.name:
            left = self.departures.whereabouts(asking.id)
            where = "" if left is None or left.peer == source else left.peer
            if not where:
                return  # it came here and is gone; whoever has it answers
        if where:
            asking.unknown.discard(where)
            asking.brokers = [where, *(each for each in known if each != where)]
            self._request(asking, now)
            return
        departure = self.departures.newest(asking.id)
        if departure is not None and departure.body.lost:
            asking.brokers = [self.name]
            self._request(asking, now)
            return
        asking.unknown.add(source)
        asking.brokers = [*(each for each in known if each != source), source]
        if not {*asking.brokers} <= asking.unknown:
            self._request(asking, now)
            return
        del self.asking[asking.id]  # nobody has it: it is made anew
        if asking.client is not None:
            self._counts["sessions not found"] += 1
            asking.client.connection.waits = False
            self._clients.admit(asking.client.connection, asking.client.hello, None, now)

    def _close(self, message: MoveRefused, source: str, now: Now) -> None:  # noqa: ARG002
        asking = self._asking(message, now)
        if asking is None:
            return
        if message.code == "epoch" and (asking.is_anew or asking.client is None) and message.known >= asking.epoch:
            asking.epoch = next_epoch(message.known) if asking.is_anew else message.known + 1
            self._request(asking, now)
            return
        final = message.code in ("epoch", "owner")  # somebody else has the session; otherwise it is where it was
        self._give_up(asking, "refused" if final else "unreachable", message.reason, now)

    def _release(self, message: MoveRefused, source: str, now: Now) -> None:  # noqa: ARG002
        self.departures.release(self._sessions.by_id[message.session], message, source)

    def _not_taken(self, asking: Asking, source: str, code: str, reason: str, now: Now) -> None:
        """This broker does not take a session that was described to it: the old one goes on with it."""
        self._counts["moves refused here"] += 1
        self._post(source, MoveRefused(asking.id, asking.epoch, code, reason), now)
        self._give_up(asking, code, reason, now)

    def _give_up(self, asking: Asking, code: str, reason: str, now: Now) -> None:
        del self.asking[asking.id]
        if asking.client is not None:
            self._clients.close(asking.client.connection, code, reason, now)

    # -- the new broker ---------------------------------------------------------------------------------

    def _install(self, message: MovedSession, source: str, now: Now) -> None:
        asking = self._asking(message, now)
        if asking is None or source not in asking.brokers:
            return
        parts = asking.parts = [] if message.part == 0 else asking.parts
        if message.part != len(parts) or (parts and parts[0].parts != message.parts):
            return  # one is lost; all come again
        parts.append(message)
        if len(parts) < message.parts:
            return
        if asking.owner != message.owner or asking.name != message.name or asking.name in self._sessions.by_name:
            self._not_taken(asking, source, "refused", f"session {asking.name!r} belongs to somebody else", now)
            return
        try:
            self.arrivals.install(parts, source, asking.client, now)
        except REFUSALS as error:
            self._not_taken(asking, source, "unreachable", f"{self.name} does not take the session: {error}", now)
            return
        del self.asking[asking.id]
        arrival = self.arrivals.arriving[asking.id]
        self._repeat(arrival, now)
        self._be_patient(arrival, asking.patience, now)

    def _decline(self, message: MovedSession, source: str, now: Now) -> None:
        if message.part == 0:
            reason = f"nobody asks {self.name} for the session any more"
            self._post(source, MoveRefused(message.session, message.epoch, "gone", reason), now)

    def _arrival(self, message: AnyMove, source: str, now: Now) -> Arrival | None:
        arrival = self.arrivals.arriving.get(message.session)
        if arrival is None or (arrival.epoch, arrival.peer) != (message.epoch, source):
            return None
        arrival.delay, arrival.heard = 0, now.monotonic
        return arrival

    def _fill(self, message: AnyMove, source: str, now: Now) -> None:
        if (arrival := self._arrival(message, source, now)) is not None:
            self.arrivals.fill(arrival, message, now)  # type: ignore[arg-type]

    def _store(self, message: AnyMove, source: str, now: Now) -> None:
        if (arrival := self._arrival(message, source, now)) is not None:
            self.arrivals.store(arrival, message, now)  # type: ignore[arg-type]

    def _remove(self, message: MoveRefused, source: str, now: Now) -> None:
        if (arrival := self._arrival(message, source, now)) is not None:
            self.arrivals.refused(arrival)

    def _keep(self, message: MoveUnknown, source: str, now: Now) -> None:
        if (arrival := self._arrival(message, source, now)) is not None:
            self.arrivals.keep(arrival, now)
        else:
            self.departures.returned(message, source)

    def _deny(self, message: MoveEnd, source: str, now: Now) -> None:
        if (message.session, message.epoch) not in self.arrivals.finishing:
            self._post(source, MoveUnknown(message.session, message.epoch), now)

    def _claim_lost(self, message: MoveEnd, source: str, now: Now) -> None:
        """The session has come here again since this broker has lost its log; what the old one has comes late."""
        session = self._sessions.by_id[message.session]
        is_known = (message.session, message.epoch) in self.arrivals.finishing or message.epoch >= session.epoch
        if not is_known and not session.is_moving:
            self._repeat(self.arrivals.claim_anew(session, source, message.epoch, self._journal.first), now)

    def _return(self, message: MoveUnknown, source: str, now: Now) -> None:  # noqa: ARG002
        self.departures.returned(message, source)

    def _finished(self, message: AnyMove, source: str, now: Now) -> None:  # noqa: ARG002
        self.arrivals.done(message.session, message.epoch)

    # -- what was abandoned, and comes late -------------------------------------------------------------

    def _claim(self, message: AnyMove, source: str) -> Arrival | None:
        claim = self.arrivals.claim(message.session, message.epoch)
        if claim is None or claim.peer != source:
            return None
        claim.delay = 0
        return claim

    def _pull_late(self, message: MoveEnd, source: str, now: Now) -> None:
        if (claim := self._claim(message, source)) is not None:
            self.arrivals.claimed(claim, message, now)

    def _store_late(self, message: MoveChunk, source: str, now: Now) -> None:
        if (claim := self._claim(message, source)) is not None:
            self.arrivals.store(claim, message, now)

    def _drop_claim(self, message: AnyMove, source: str, now: Now) -> None:  # noqa: ARG002
        if (claim := self._claim(message, source)) is not None:
            self.arrivals.drop_claim(claim)
        elif isinstance(message, MoveUnknown):
            self.departures.returned(message, source)

    def _claim_there(self, message: MoveElsewhere, source: str, now: Now) -> None:
        claim = self._claim(message, source)
        if claim is None or message.broker == source:
            return
        if message.broker in ("", self.name):
            self.arrivals.drop_claim(claim)
        else:
            self.arrivals.claim_there(claim, message.broker, now)

    def _yield(self, message: MoveClaim, source: str, now: Now) -> None:
        session = self._sessions.by_id[message.session]
        if session.epoch <= message.epoch:
            self.departures.give_up(session, message, source, now)
        else:
            self.departures.claimed_again(message, source, now)

    def _yield_again(self, message: MoveClaim, source: str, now: Now) -> None:
        self.departures.claimed_again(message, source, now)

    def _compare(self, message: MoveInvite, source: str, now: Now) -> None:
        """Another broker has an older state of a session: it came from a backup, or the session is claimed there."""
        session = self._sessions.by_id[message.session]
        if message.epoch < session.epoch and session.asked is None:
            claims = [each for each in self.arrivals.claims(session.id) if each.peer == source]
            for claim in claims:
                self.arrivals.repeat(claim, now)
            if not claims:
                self._post(source, MoveFinish(session.id, session.epoch), now)

    # -- the old broker ---------------------------------------------------------------------------------

    def _answer(self, message: MoveRequest, source: str, now: Now) -> None:
        session = self._sessions.by_id[message.session]
        if isinstance(message, DatedMoveRequest) and session.epoch < message.home_epoch:
            self._post(source, MoveElsewhere(message.session, message.epoch, ""), now)  # it has gone on elsewhere
            return
        self.departures.answer(self._sessions.by_id[message.session], message, source, now)

    def _cut(self, message: AnyMove, source: str, now: Now) -> None:
        if (message.session, message.epoch) in self.departures.left:  # it has left, and is back
            self._end_again(message, source, now)
            return
        self.departures.flush(self._sessions.by_id[message.session], message, source, now)  # type: ignore[arg-type]

    def _end_again(self, message: AnyMove, source: str, now: Now) -> None:
        self.departures.flush_again(message, source, now)  # type: ignore[arg-type]

    def _send(self, message: AnyMove, source: str, now: Now) -> None:
        self.departures.pull(message, source, now)  # type: ignore[arg-type]

    def _forget(self, message: AnyMove, source: str, now: Now) -> None:
        session = self._sessions.by_id.get(message.session)
        is_outdated = session is not None and session.epoch < message.epoch and session.arrival is None
        if session is not None and is_outdated and session.cutting is None:
            self._counts["sessions outdated"] += 1
            self._clients.forget(session)  # this broker's log is older than the move: it is a backup
            return
        self.departures.finish(message, source, now)  # type: ignore[arg-type]

    # -- the log ----------------------------------------------------------------------------------------

    def stored(self, value: MoveStored, now: Now) -> None:
        """Something about a move is stored."""
        subject = value.subject
        match value.step, subject:
            case MoveStep.ANSWERED, (Session() as session, AskedMove() as asked, _):
                self.departures.describe(session, asked, now)
            case MoveStep.CUT_READY, Departure():
                self.departures.cut(subject)
            case MoveStep.CUT, Departure():
                self.departures.cut_stored(subject, now)
            case MoveStep.HANDED_ON, (Departure() as departure, int() as epoch, str() as peer):
                self.departures.handed_on(departure, epoch, peer, now)
            case MoveStep.FORGOTTEN, Departure():
                self.departures.forgotten(subject, now)
            case MoveStep.INSTALLED, Arrival():
                self.arrivals.installed(subject, now)
            case MoveStep.FILLING, Arrival():
                self.arrivals.filling(subject, now)
            case MoveStep.REMOVED, Arrival():
                self.arrivals.removed(subject, now)
            case MoveStep.PULLED, CopiesStored():
                self.arrivals.copied(subject, now)
            case MoveStep.CLAIMED, Arrival():
                self.arrivals.claim_stored(subject, now)
            case MoveStep.DONE, Arrival():
                del self.arrivals.finishing[subject.session.id, subject.epoch]
            case _:
                raise AssertionError(f"{value.step} of {subject}")

    def undo(self, value: MoveStored, reason: str, now: Now) -> None:
        """Something about a move could not be stored."""
        subject = value.subject
        match value.step, subject:
            case MoveStep.ANSWERED, (Session() as session, AskedMove() as asked, before):
                self.departures.undo_answer(session, asked, before)
            case ((MoveStep.CUT_READY | MoveStep.CUT), Departure()):
                self.departures.undo_cut(subject, reason)
            case MoveStep.HANDED_ON, (Departure() as departure, _, _):
                departure.held = False
            case MoveStep.FORGOTTEN, Departure():
                subject.finishing = False
            case MoveStep.INSTALLED, Arrival():
                self.arrivals.undo_install(subject, now)
            case MoveStep.FILLING, Arrival():
                self.arrivals.undo_fill(subject)
            case ((MoveStep.REMOVED | MoveStep.DONE), Arrival()):
                subject.removing = False
            case MoveStep.CLAIMED, Arrival():
                self.arrivals.undo_claim(subject)
            case MoveStep.PULLED, CopiesStored():
                self.arrivals.undo_copies(subject, now)
            case _:
                raise AssertionError(f"{value.step} of {subject}")

    @property
    def needed(self) -> Offset:
        """The first event of the log that a move may still need."""
        return min(self.departures.needed, self.arrivals.needed)

    @property
    def figures(self) -> dict[str, int]:
        """How many sessions are on their way, those that are."""
        found = {
            "sessions asked for": len(self.asking),
            "sessions arriving": len(self.arrivals.arriving),
            "sessions leaving": len(self.departures.left),
            "sessions claimed": sum(each.claims for each in self.arrivals.finishing.values()),
        }
        return {what: number for what, number in found.items() if number}

    def restore(self, kept: State) -> dict[SeatId, LeftQueue]:
        """Take back what the log has about moves. Returns the queues of sessions that have left."""
        for row in kept.moves.values():
            if row.side == MoveSide.ASKED and row.session in self._sessions.by_id:
                session = self.departures.described[row.session] = self._sessions.by_id[row.session]
                session.asked = AskedMove.of(row)
        self.arrivals.restore(kept)
        left = self.departures.restore(kept)
        self.unscheduled = [*self.arrivals.arriving.values(), *self.arrivals.finishing.values()]
        self.is_restored = True
        return left
