"""Connections and sessions come and go. Laws: the connection with the highest epoch holds the session, and any other is
closed; a client is welcome when its session is stored; nothing is delivered before that.

Who is asked for credentials and has not given valid ones learns nothing: whatever such a connection says, the answer is
the same; if there is no room or no time for it, the answer is one that does not depend on it either.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.broker.effects import ConnectionId, Now
from weft.broker.frames import MAX_FRAME
from weft.broker.identity import Authenticate, Identity
from weft.broker.limits import TokenBucket
from weft.broker.login_end import end_later
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import VERSION, Bye, Hello, Revoked, SubNumber, Welcome
from weft.broker.queue import Queue
from weft.broker.sessions import Connection, Session
from weft.broker.sharing import SharedQueues
from weft.broker.subscribing import Subscribing
from weft.errors import AccessError
from weft.log.base import NEVER, AdvertRow, Put, Remove, SessionRow, SubRow
from weft.routing.table import ClientId

Home = Callable[[ConnectionId, str], str]  # the address of the broker that has a session; empty if it is this one

_BURST = 100  # requests that may come at once where their rate is limited

REFUSED = Bye("refused", "the broker refused the connection; check your credentials, or ask the broker's operator")

BUSY = Bye("busy", "the broker is too busy for this connection; try again later")


class Greeting:
    """Welcomes clients, and lets them go."""

    def __init__(
        self,
        subscribing: Subscribing,
        sharing: SharedQueues,
        authenticate: Authenticate | None,
        fingerprint: str,
    ) -> None:
        self._state = subscribing.state
        self._subscribing = subscribing
        self._sharing = sharing
        self._authenticate = authenticate
        self._fingerprint = fingerprint
        self.home: Home | None = None
        self.link_closed: Callable[[Connection], None] = lambda _: None

    # -- connections ----------------------------------------------------------------------------------

    def connected(self, connection: Connection, now: Now) -> None:
        """A connection is there; it must say hello in time."""
        state, limits = self._state, self._state.limits
        if connection.authenticate is None:
            connection.authenticate = self._authenticate
        if len(state.connections) >= limits.all_connections:
            state.counts["connections refused"] += 1
            state.out.send(connection.id, BUSY)
            state.out.close(connection.id)
            return
        state.connections[connection.id] = state.strangers[connection.id] = connection
        if len(state.strangers) > limits.strangers:
            state.counts["strangers pushed out"] += 1
            self.close(
                next(iter(state.strangers.values())), "hello", "too many connections are not authenticated yet", now
            )
        state.timers.add(connection.heard + limits.hello, lambda later: self._silent(connection, later))

    def dialled(self, connection: Connection) -> None:
        """We have opened a connection; the other side must say hello in time."""
        state = self._state
        state.connections[connection.id] = connection
        state.timers.add(connection.heard + state.limits.hello, lambda later: self._silent(connection, later))

    def _silent(self, connection: Connection, now: Now) -> None:
        """Close a connection that has said nothing for too long."""
        state = self._state
        if state.connections.get(connection.id) is not connection:
            return
        if connection.link is not None:
            return  # links have heartbeats
        if connection.session is None:
            self.close(connection, "hello", "no hello arrived in time", now)
            return
        if not state.limits.idle:
            return
        due = connection.heard + state.limits.idle
        if due <= now.monotonic:
            state.counts["closed as silent"] += 1
            self.close(connection, "idle", "the connection was silent for too long", now)
        else:
            state.timers.add(due, lambda later: self._silent(connection, later))

    def close(self, connection: Connection, code: str, reason: str, now: Now) -> None:
        """End a connection, and say why, unless it has yet to say who it is."""
        stranger = connection.session is None and connection.authenticate is not None and not connection.principal
        unknown = BUSY if code == "hello" else REFUSED
        self._state.out.send(connection.id, unknown if stranger else Bye(code, reason))
        self._state.out.close(connection.id)
        self.closed(connection, now)

    def closed(self, connection: Connection, now: Now) -> None:
        """A connection is gone: what it had not acknowledged returns."""
        state = self._state
        del state.connections[connection.id]
        state.strangers.pop(connection.id, None)
        if connection.link is not None or connection.dialled is not None:
            self.link_closed(connection)
            return
        flights, connection.flights = connection.flights, {}
        for queue, flight in flights.values():
            queue.detach(flight, state.end)
            if queue.flights:
                state.fresh[queue] = None
        session = connection.session
        if session is not None:
            state.logins[connection.principal] -= 1
            if not state.logins[connection.principal]:
                del state.logins[connection.principal]
        if session is None or session.connection != connection.id:
            return
        session.connection = None
        for number, sub in list(session.subs.items()):
            if isinstance(sub.queue, LossyQueue):
                self._subscribing.take_out(session, sub)
            elif sub.queue.share:
                self._sharing.leave(session, session.subs[number])
        if not session.durable:
            self._drop(session)
        elif session.keep and not session.leaving:
            session.expires = min(now.utc + session.keep, NEVER)
            state.draft.changes.append(Put(session.row()))
            self._expire_later(session, now)

    # -- hello ----------------------------------------------------------------------------------------

    def hello(self, connection: Connection, message: Hello, now: Now) -> None:
        """The first message of a connection. A client that is not welcome is told why, and the connection closed."""
        state = self._state
        try:
            who = self._identity(connection, message)
            connection.principal = principal = who.principal
            connection.key = who.key
            session = state.names.get(message.session)
            self._check(message, principal, session)
            if session is not None:
                self._check_resume(session, message, principal)
        except AccessError as error:
            state.counts["hello refused"] += 1
            self.close(connection, "refused", str(error), now)
            return
        elsewhere = self.home(connection.id, message.session) if self.home is not None and message.session else ""
        if elsewhere:
            state.counts["redirected"] += 1
            self.close(connection, "moved", elsewhere, now)
            return
        limits = state.limits
        if limits.requests:
            connection.requests = TokenBucket(limits.requests, _BURST)
        end_later(state, self.close, connection, who.until, now)
        connection.window_events = max(1, min(message.window_events, limits.window_events))
        connection.window_bytes = max(1, min(message.window_bytes, limits.window_bytes))
        if limits.idle:
            state.timers.add(now.monotonic + limits.idle, lambda later: self._silent(connection, later))
        resumed = session is not None
        if session is None:
            session = self._new(message.session, principal)
        before = session.epoch
        if session.connection is not None:
            old = state.connections[session.connection]
            state.counts["taken over"] += 1
            self.close(old, "taken over", "a newer connection has taken the session over", now)
        connection.session, session.connection = session, connection.id
        state.strangers.pop(connection.id, None)
        state.logins[principal] += 1
        session.epoch = message.epoch or before + 1
        session.pub_over, session.expires = False, NEVER
        asked = message.expires * 1_000_000 or limits.expires
        session.keep = min(asked, limits.expires or asked)
        if message.pub_epoch > session.pub_epoch:
            session.pub_epoch, session.pub_received = message.pub_epoch, 0
        welcome = self._welcome(session, resumed)
        if not session.durable:
            connection.welcomed = True
            state.out.send(connection.id, welcome)
            return
        state.draft.changes.append(Put(session.row()))
        state.draft.urgent = True
        state.draft.committed.append(lambda _: self._welcomed(connection, welcome))
        state.draft.rejected.append(
            lambda reason, later: self._unwelcome(connection, session, None if not resumed else before, reason, later)
        )

    @staticmethod
    def _identity(connection: Connection, message: Hello) -> Identity:
        """Who it is. Raises AccessError: the reason is for the operator, who has it already."""
        if connection.authenticate is None:
            return Identity("")
        who = connection.authenticate(message.credentials)
        if not who.principal:
            raise AccessError("the name of a principal must not be empty")
        return who

    def _check(self, message: Hello, principal: str, session: Session | None) -> None:
        oldest, newest = message.versions
        if not oldest <= VERSION <= newest:
            raise AccessError(f"this broker speaks version {VERSION} of the protocol, the client {oldest} to {newest}")
        if len(message.session) > self._state.limits.name:
            raise AccessError(f"the name of a session has at most {self._state.limits.name} characters")
        if message.fingerprint not in ("", self._fingerprint):
            raise AccessError("the client expects a different schema, or other predicates, from this broker's")
        others = self._state.logins[principal] - (session is not None and session.connection is not None)
        if others >= self._state.limits.connections:
            raise AccessError(f"a principal has at most {self._state.limits.connections:,} connections")

    def _check_resume(self, session: Session, message: Hello, principal: str) -> None:
        if session.owner != principal:
            raise AccessError("the session belongs to another principal; choose another name")
        if session.leaving:
            raise AccessError("the session is being removed; try again")
        if message.epoch and message.epoch <= session.epoch:
            raise AccessError(f"connection epoch {message.epoch} is not above {session.epoch}, the last one")
        if message.pub_epoch and message.pub_epoch < session.pub_epoch:
            raise AccessError(f"publisher epoch {message.pub_epoch} is below {session.pub_epoch}, the last one")

    def _new(self, name: str, owner: str) -> Session:
        state = self._state
        session = Session(state.new_session_id(), name, owner, state.bucket_of(owner))
        state.sessions[session.id] = session
        if name:
            state.names[name] = session
        return session

    def _welcome(self, session: Session, resumed: bool) -> Welcome:
        state = self._state
        return Welcome(
            VERSION,
            session.id,
            session.epoch,
            session.pub_epoch,
            session.pub_received,
            resumed,
            tuple(sorted(session.subs)),
            state.log_id,
            state.incarnation,
            self._fingerprint,
            MAX_FRAME,
            state.limits.idle,
        )

    def _welcomed(self, connection: Connection, welcome: Welcome) -> None:
        """The session is stored: deliver."""
        state, session = self._state, connection.session
        assert session is not None
        if state.connections.get(connection.id) is not connection or session.connection != connection.id:
            return
        state.out.send(connection.id, welcome)
        self._tell_revoked(connection, session)
        connection.welcomed = True
        self._subscribing.announcing.welcomed(session)
        for number, queue in sorted(session.queues.items()):
            if isinstance(queue, Queue) and not queue.share and queue.stored:
                self._subscribing.attach(connection, queue, number, SubNumber(0))

    def _tell_revoked(self, connection: Connection, session: Session) -> None:
        """What ended while the client was away."""
        revoked, session.revoked = session.revoked, {}
        self._state.out.send_all(connection.id, [Revoked(number, why) for number, why in sorted(revoked.items())])

    def _unwelcome(self, connection: Connection, session: Session, epoch: int | None, reason: str, now: Now) -> None:
        """The session could not be stored."""
        if epoch is not None:
            session.epoch = epoch
        else:
            session.leaving = True  # it is not in the log, and nothing of it must get there
        if self._state.connections.get(connection.id) is connection:
            self.close(connection, "full", reason, now)
        if epoch is None:
            self._drop(session)

    # -- sessions end ---------------------------------------------------------------------------------

    def forget(self, session: Session) -> None:
        """Remove a session with everything that it has, once that is stored."""
        state = self._state
        if session.leaving:
            return
        session.leaving = True
        changes = state.draft.changes
        state.draft.urgent = True
        for _, sub in sorted(session.subs.items()):
            if sub.seat is not None:
                changes.append(Remove(SubRow, (sub.seat,)))
        for _, queue in sorted(session.queues.items()):
            if isinstance(queue, Queue) and not queue.share:
                self._subscribing.remove_rows(queue)
        changes += [Remove(AdvertRow, (stored,)) for stored, _ in session.adverts.values()]
        changes.append(Remove(SessionRow, (session.id,)))

        def committed(later: Now) -> None:
            here = state.connection_of(session)
            if here is not None:
                self.close(here, "forgotten", "the session was removed", later)
            for sub in list(session.subs.values()):
                self._subscribing.take_out(session, sub)
            self._drop(session)

        def rejected(reason: str, later: Now) -> None:  # noqa: ARG001
            session.leaving = False
            if session.expires != NEVER:
                self._expire_later(session, later)

        state.draft.committed.append(committed)
        state.draft.rejected.append(rejected)

    def _expire_later(self, session: Session, now: Now) -> None:
        due = session.expires
        wait = max(1_000_000, due - now.utc)
        self._state.timers.add(now.monotonic + wait, lambda later: self._expired(session, due, later))

    def _expired(self, session: Session, due: int, now: Now) -> None:
        """Time and again until the session has a connection, or is due. A client that was back meanwhile has left anew:
        that has a timer of its own, because the clock alone may jump.
        """
        if session.connection is not None or session.id not in self._state.sessions or session.expires != due:
            return
        if session.expires <= now.utc:
            self._state.counts["sessions expired"] += 1
            self.forget(session)
        else:
            self._expire_later(session, now)

    def expire_later(self, session: Session, now: Now) -> None:
        """A session was restored without a connection. If it had one, it is as if that was lost now."""
        if session.expires == NEVER and self._state.limits.expires:
            session.expires = min(now.utc + self._state.limits.expires, NEVER)
        if session.expires != NEVER:
            self._expire_later(session, now)

    def _drop(self, session: Session) -> None:
        state = self._state
        if session.adverts:
            drop = [stored for stored, _ in session.adverts.values()]
            state.tell(state.seats.table.advertise(ClientId(str(session.id)), {}, drop))  # type: ignore[arg-type]
        state.sessions.pop(session.id, None)
        self._subscribing.announcing.forget(session)
        if session.name and state.names.get(session.name) is session:
            del state.names[session.name]
        assert not any(isinstance(queue, LossyQueue) for queue in session.queues.values())
