"""Hello: the connections of clients, and the sessions that they take and leave.

The connection with the highest epoch holds the session, and any other is closed. A client is welcome when its session
is stored; nothing is delivered before that. A connection that must give credentials and has not given valid ones learns
nothing: whatever it says, the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.broker.advertisements import ClientAdvertisements
from weft.broker.after_commit import SessionForgotten, Welcomed
from weft.broker.effects import ConnectionId, Now
from weft.broker.identity import Authenticate, Identity
from weft.broker.limits import RefusalError, TokenBucket
from weft.broker.moves.states import MoveSide
from weft.broker.parts import BrokerParts
from weft.broker.profiles.home import HomeProfiles
from weft.broker.queue import Queue
from weft.broker.sessions import BUSY, Connection, Session, session_of
from weft.broker.subscriptions import ClientSubscriptions
from weft.broker.transient_queue import TransientQueue
from weft.errors import AccessError
from weft.log.base import NEVER, AdvertRow, MoveRow, Put, Remove, SessionRow, StateChange, SubRow
from weft.protocol.codec import MAX_FRAME
from weft.protocol.messages import (
    MOVES,
    NEWEST,
    PLACES,
    STRIDE,
    VERSION,
    Hello,
    HomeBroker,
    Revoked,
    SubNumber,
    Welcome,
    Whence,
    Whereabouts,
    next_epoch,
)

if TYPE_CHECKING:
    from weft.broker.moves.moves import Moves

Home = Callable[[ConnectionId, str], str]  # the address of the worker that a name lives at; empty if it is this one

_BURST = 100  # requests that may come at once where their rate is limited


class ClientConnections:
    """Welcomes clients, and closes their connections."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a connection concerns
        self,
        parts: BrokerParts,
        subscriptions: ClientSubscriptions,
        advertisements: ClientAdvertisements,
        homes: HomeProfiles,
        authenticate: Authenticate | None,
        fingerprint: str,
    ) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._completion, self._out, self._timers = parts.completion, parts.out, parts.timers
        self._limits, self._counts = parts.limits, parts.counts
        self._subscriptions, self._advertisements, self._homes = subscriptions, advertisements, homes
        self._authenticate, self._fingerprint = authenticate, fingerprint
        self.home: Home | None = None  # None: this broker is the only one of its name
        self.moves: Moves  # sessions that come from other brokers, and leave for them

    # -- connections ----------------------------------------------------------------------------------

    def connected(self, connection: Connection, now: Now) -> None:
        """A connection is there; it must say hello in time."""
        sessions, limits = self._sessions, self._limits
        if connection.authenticate is None:
            connection.authenticate = self._authenticate
        if len(sessions.connections) >= limits.all_connections:
            self._counts["connections refused"] += 1
            self._out.send(connection.id, BUSY)
            self._out.close(connection.id)
            return
        sessions.connections[connection.id] = sessions.unauthenticated[connection.id] = connection
        if len(sessions.unauthenticated) > limits.unauthenticated:
            self._counts["strangers pushed out"] += 1
            oldest = next(iter(sessions.unauthenticated.values()))
            self.close(oldest, "hello", "too many connections are not authenticated yet", now)
        self._timers.add(connection.last_read + limits.hello, lambda later: self._check_silence(connection, later))

    def _check_silence(self, connection: Connection, now: Now) -> None:
        """Close a connection that has said nothing for too long."""
        if not self._sessions.is_open(connection) or connection.link is not None:  # links have heartbeats
            return
        if connection.session is None and not connection.waits:
            self.close(connection, "hello", "no hello arrived in time", now)
            return
        if not self._limits.idle:
            return
        due = connection.last_read + self._limits.idle
        if due <= now.monotonic:
            self._counts["closed as silent"] += 1
            self.close(connection, "idle", "the connection was silent for too long", now)
        else:
            self._timers.add(due, lambda later: self._check_silence(connection, later))

    def close(self, connection: Connection, code: str, reason: str, now: Now) -> None:
        """Close a connection, and say why, unless it has yet to say who it is."""
        self._sessions.say_bye(connection, code, reason)
        self.closed(connection, now)

    def closed(self, connection: Connection, now: Now) -> None:
        """A connection is gone: what it had not acknowledged returns."""
        sessions, end = self._sessions, self._journal.end
        sessions.remove(connection)
        windows, connection.windows = connection.windows, {}
        for queue, window in windows.values():
            queue.detach(window, end)
            if queue.windows:
                self._queues.serve_now[queue] = None
        session = connection.session
        if session is not None:
            sessions.logins[connection.principal] -= 1
            if not sessions.logins[connection.principal]:
                del sessions.logins[connection.principal]
        if session is None or session.connection != connection.id:
            return
        session.connection = None
        for sub in list(session.subs.values()):
            if isinstance(sub.queue, TransientQueue) or sub.queue.share:
                self._subscriptions.take_out(session, sub)
        if not session.durable:
            self._drop(session)
        elif session.keep and not session.leaving:
            session.expires = min(self._journal.at + session.keep, NEVER)
            self._journal.write.changes.append(Put(session.row()))
            self._expire_later(session, now)

    # -- hello ----------------------------------------------------------------------------------------

    def hello(self, connection: Connection, message: Hello, now: Now) -> None:
        """The first message of a connection. A client that is refused gets the reason, and the connection is closed."""
        sessions = self._sessions
        try:
            who = self._identity(connection, message)
            connection.principal = principal = who.principal
            connection.key = who.key
            self._check(message, principal, sessions.by_name.get(message.session))
        except AccessError as error:
            self._refuse(connection, error, now)
            return
        sessions.close_at(connection, who.until, self.close, now)
        if message.versions[0] >= MOVES:
            connection.hello = message
            sessions.unauthenticated.pop(connection.id, None)
        else:
            self._greet(connection, message, None, now)

    def whence(self, connection: Connection, message: Whence, now: Now) -> None:
        """Where the session of a client is, after its hello."""
        hello, connection.hello = connection.hello, None
        if not isinstance(message, Whereabouts):
            message = Whereabouts(message.session, message.home, message.hints)
        if hello is None:
            self.close(connection, "protocol", "a connection begins with one hello", now)
        else:
            self._greet(connection, hello, message, now)

    def _refuse(self, connection: Connection, error: AccessError, now: Now) -> None:
        self._counts["hello refused"] += 1
        self.close(connection, "refused", str(error), now)

    def _greet(self, connection: Connection, message: Hello, whence: Whereabouts | None, now: Now) -> None:
        """Welcome a client that has shown who it is, ask other brokers for its session, or send it elsewhere."""
        if message.session and self.moves.greet(connection, message, whence, now):
            self._sessions.unauthenticated.pop(connection.id, None)
            return
        elsewhere = self.home_of(connection, message.session) if message.session else ""
        if elsewhere:
            self._redirect(connection, elsewhere, now)
            return
        self.admit(connection, message, self._sessions.by_name.get(message.session), now)

    def home_of(self, connection: Connection, name: str) -> str:
        """The address of the worker that has the session or the shared queue of this name; empty if it is this one."""
        return self.home(connection.id, name) if self.home is not None else ""

    def _redirect(self, connection: Connection, address: str, now: Now) -> None:
        self._counts["redirected"] += 1
        self.close(connection, "moved", address, now)

    def send_home(self, connection: Connection, share: str, now: Now) -> bool:
        """Redirect a consumer to the worker that has its shared queue; returns whether that is another one.

        Raises RefusalError if the session has more than this, which would be lost with its connection.
        """
        elsewhere = self.home_of(connection, share)
        if not elsewhere:
            return False
        session = session_of(connection)
        if session.durable or session.subs or session.adverts or session.pub_received:
            reason = f"the shared name {share!r} is at {elsewhere}; connect there, or use a new session without a name"
            raise RefusalError("share", reason)
        self._redirect(connection, elsewhere, now)
        return True

    def admit(self, connection: Connection, message: Hello, session: Session | None, now: Now) -> None:
        """Give a connection its session, or a new one. A client that is refused gets the reason."""
        sessions, limits, principal = self._sessions, self._limits, connection.principal
        try:
            if session is not None:
                self._check_resume(session, message, principal)
        except AccessError as error:
            self._refuse(connection, error, now)
            return
        connection.waits = False
        if limits.requests:
            connection.requests = TokenBucket(limits.requests, _BURST)
        connection.window_events = max(1, min(message.window_events, limits.window_events))
        connection.window_bytes = max(1, min(message.window_bytes, limits.window_bytes))
        if limits.idle:
            self._timers.add(now.monotonic + limits.idle, lambda later: self._check_silence(connection, later))
        resumed = session is not None and not session.is_anew
        if session is None:
            session = sessions.add(message.session, principal)
        session.is_anew = False
        before = session.epoch
        if session.connection is not None:
            self._counts["taken over"] += 1
            old = sessions.connections[session.connection]
            self.close(old, "taken over", "a newer connection has taken the session over", now)
        connection.session, session.connection = session, connection.id
        sessions.unauthenticated.pop(connection.id, None)
        sessions.logins[principal] += 1
        strides = message.versions[1] >= MOVES or before >= STRIDE
        follows = next_epoch(before) if strides else before + 1
        session.epoch = max(message.epoch, before if session.arrival is not None else 0) or follows
        changes: list[StateChange] = []
        if session.asked is not None:  # its client is here: no other broker gets it under an older epoch
            session.epoch = max(session.epoch, session.asked.epoch + 1)
            session.asked = None
            changes.append(Remove(MoveRow, (session.id, MoveSide.ASKED, 0)))
        session.pub_over, session.expires = False, NEVER
        asked = message.expires * 1_000_000 or limits.expires
        session.keep = min(asked, limits.expires or asked)
        if session.pub_epoch == 0:  # what its publisher has stored is lost with another broker
            session.pub_epoch, session.pub_received = message.pub_epoch + 1, 0
        elif message.pub_epoch > session.pub_epoch:
            session.pub_epoch, session.pub_received = message.pub_epoch, 0
        connection.version = _agreed_version(message.versions[1])
        welcome = self._welcome(connection.version, session, resumed)
        if not session.durable:
            connection.welcomed = True
            if welcome.version >= MOVES and self.moves.name:
                self._out.send(connection.id, HomeBroker(self.moves.name))
            self._out.send(connection.id, welcome)
            return
        waiting = Welcomed(connection, session, welcome, before if resumed else None)
        self._journal.write.require([Put(session.row()), *changes], waiting)

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
        if oldest > NEWEST or newest < VERSION:
            raise AccessError(f"this broker speaks version {VERSION} of the protocol, the client {oldest} to {newest}")
        if len(message.session) > self._limits.name:
            raise AccessError(f"the name of a session has at most {self._limits.name} characters")
        if message.fingerprint not in ("", self._fingerprint):
            raise AccessError("the client expects a different schema, or other predicates, from this broker's")
        others = self._sessions.logins[principal] - (session is not None and session.connection is not None)
        if others >= self._limits.connections:
            raise AccessError(f"a principal has at most {self._limits.connections:,} connections")

    def _check_resume(self, session: Session, message: Hello, principal: str) -> None:
        if session.owner != principal:
            raise AccessError("the session belongs to another principal; choose another name")
        if session.leaving:
            raise AccessError("the session is being removed; try again")
        comes = session.arrival is not None and session.connection is None  # it has the epoch of its client already
        if message.epoch and message.epoch <= session.epoch - comes:
            raise AccessError(f"connection epoch {message.epoch} is not above {session.epoch}, the last one")
        if message.pub_epoch and message.pub_epoch < session.pub_epoch and not comes:  # it went on at the old broker
            raise AccessError(f"publisher epoch {message.pub_epoch} is below {session.pub_epoch}, the last one")

    def _welcome(self, version: int, session: Session, resumed: bool) -> Welcome:
        return Welcome(
            version,
            session.id,
            session.epoch,
            session.pub_epoch,
            session.pub_received,
            resumed,
            tuple(sorted(session.subs)),
            self._journal.log_id,
            self._journal.incarnation,
            self._fingerprint,
            MAX_FRAME,
            self._limits.idle,
        )

    def welcomed(self, connection: Connection, welcome: Welcome) -> None:
        """The session is stored: deliver."""
        session = session_of(connection)
        if not self._sessions.holds_session(connection):
            return
        if welcome.version >= MOVES and self.moves.name:
            self._out.send(connection.id, HomeBroker(self.moves.name))
        self._out.send(connection.id, welcome)
        revoked, session.revoked = session.revoked, {}  # what ended while the client was away
        self._out.send_all(connection.id, [Revoked(number, why) for number, why in sorted(revoked.items())])
        connection.welcomed = True
        self._completion.welcomed(session)
        for number, queue in sorted(session.queues.items()):
            if isinstance(queue, Queue) and not queue.share and queue.stored:
                self._queues.attach(connection, queue, number, SubNumber(0))

    def undo_welcome(self, welcomed: Welcomed, reason: str, now: Now) -> None:
        """The session could not be stored."""
        connection, session = welcomed.connection, welcomed.session
        if welcomed.epoch_before is not None:
            session.epoch = welcomed.epoch_before
        else:
            session.leaving = True  # it is not in the log, and nothing of it must get there
        if self._sessions.is_open(connection):
            self.close(connection, "full", reason, now)
        if welcomed.epoch_before is None:
            self._drop(session)

    # -- sessions end ---------------------------------------------------------------------------------

    def forget(self, session: Session) -> None:
        """Remove a session with everything that it has, once that is stored."""
        if session.arrival is not None:
            session.forgetting = True  # as soon as it is here
            return
        if session.leaving or session.cutting is not None:
            return
        session.leaving = True
        subs = [sub.consumer_id for _, sub in sorted(session.subs.items()) if sub.consumer_id is not None]
        changes = [Remove(SubRow, (consumer,)) for consumer in subs]
        for _, queue in sorted(session.queues.items()):
            if isinstance(queue, Queue) and not queue.share:
                changes += self._queues.rows_of(queue)
        changes += [Remove(AdvertRow, (stored,)) for stored, _ in session.adverts.values()]
        changes += self._homes.rows_of(session)
        if session.asked is not None:
            changes.append(Remove(MoveRow, (session.id, MoveSide.ASKED, 0)))
        self._journal.write.require([*changes, Remove(SessionRow, (session.id,))], SessionForgotten(session))

    def forgotten(self, session: Session, now: Now) -> None:
        """The end of a session is stored."""
        here = self._sessions.connection_of(session)
        if here is not None:
            self.close(here, "forgotten", "the session was removed", now)
        for sub in list(session.subs.values()):
            self._subscriptions.take_out(session, sub)
        self._drop(session)

    def undo_forget(self, session: Session, reason: str, now: Now) -> None:
        """The end of a session could not be stored. A client that has asked for it is told so, and comes back."""
        session.leaving = False
        if session.expires != NEVER:
            self._expire_later(session, now)
        here = self._sessions.connection_of(session)
        if here is not None:
            self.close(here, "full", reason, now)

    def _expire_later(self, session: Session, now: Now) -> None:
        due = session.expires
        wait = max(1_000_000, due - self._journal.at)
        self._timers.add(now.monotonic + wait, lambda later: self._expired(session, due, later))

    def _expired(self, session: Session, due: int, now: Now) -> None:
        """Look again until the session has a connection, or is due.

        A client that was back meanwhile and has left again has a timer of its own, because the clock alone may jump.
        """
        if session.connection is not None or session.id not in self._sessions.by_id or session.expires != due:
            return
        if session.expires <= self._journal.at and not session.is_moving:
            self._counts["sessions expired"] += 1
            self.forget(session)
        else:
            self._expire_later(session, now)

    def expire_restored(self, session: Session, now: Now) -> None:
        """A session was restored without a connection. If it had one, it is as if that was lost now."""
        if session.expires == NEVER and self._limits.expires:
            session.expires = min(self._journal.at + self._limits.expires, NEVER)
        if session.expires != NEVER:
            self._expire_later(session, now)

    def settled(self, session: Session, now: Now) -> None:
        """A session has come from another broker, whole."""
        if session.forgetting:
            self.forget(session)
        elif session.connection is None and session.keep:
            session.expires = min(self._journal.at + session.keep, NEVER)
            self._journal.write.changes.append(Put(session.row()))
            self._expire_later(session, now)

    def _drop(self, session: Session) -> None:
        self._advertisements.drop_all(session)
        self._homes.drop_all(session)
        self._sessions.by_id.pop(session.id, None)
        self._completion.forget(session)
        if session.name and self._sessions.by_name.get(session.name) is session:
            del self._sessions.by_name[session.name]
        assert not any(isinstance(queue, TransientQueue) for queue in session.queues.values())


def _agreed_version(newest: int) -> int:
    """The version that is spoken with a client; only one that maps its events says that it speaks `PLACES`."""
    return PLACES if newest == PLACES else min(newest, NEWEST)
