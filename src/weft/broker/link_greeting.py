"""Neighbours meet. Laws: a session begins when each side has seen the other's hello and agrees with it; the newest
session of a neighbour ends the older one; a link that would close a cycle is refused, and the cycle named.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.broker.effects import Now
from weft.broker.link import Neighbour
from weft.broker.link_agreement import check_hello
from weft.broker.link_messages import LinkHello
from weft.broker.login_end import end_later
from weft.broker.reach import Reach
from weft.broker.sessions import CloseConnection, Connection
from weft.broker.state import BrokerState
from weft.errors import AccessError, LocalProtocolError, RemoteProtocolError
from weft.routing.table import Link

AuthenticateLink = Callable[[LinkHello], None]  # raises AccessError


class LinkGreeting:
    """The handshakes of one broker. `begin` is called with each neighbour that is there."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a handshake needs
        self,
        state: BrokerState,
        reach: Reach,
        credentials: Callable[[Link], bytes],
        authenticate: AuthenticateLink | None,
        predicates: tuple[str, ...],
        close: CloseConnection,
    ) -> None:
        self._state = state
        self._reach = reach
        self._credentials = credentials
        self._authenticate = authenticate
        self._predicates = predicates
        self._close = close
        self._epochs = 0

    def dialled(self, connection: Connection, peer: Link, now: Now) -> None:
        """We have opened a connection to a neighbour. Raises LocalProtocolError for one that is not attached."""
        neighbour = self._state.neighbours.get(peer)
        if neighbour is None or neighbour.leaving:
            raise LocalProtocolError(f"there is no neighbour {peer}; attach it first")
        old, neighbour.dialling = neighbour.dialling, connection
        connection.dialled = peer
        if old is not None:
            self._close(old, "dialled", "a newer connection was dialled", now)
        if neighbour.connection is not None:
            neighbour.dialling = None
            self._close(connection, "connected", f"{peer} is connected already", now)
            return
        self._state.out.send(connection.id, self._hello(neighbour))

    def _hello(self, neighbour: Neighbour) -> LinkHello:
        state, table = self._state, self._state.seats.table
        self._epochs += 1
        return LinkHello(
            name=self._reach.name,
            to=neighbour.peer,
            role=neighbour.role.value,
            log_id=state.log_id,
            incarnation=state.incarnation,
            epoch=self._epochs,
            fingerprint=table.fingerprint,
            settings=table.settings,
            predicates=self._predicates,
            peer_log=neighbour.peer_log,
            got=neighbour.got,
            credentials=self._credentials(neighbour.peer),
        )

    def hello(self, connection: Connection, theirs: LinkHello, now: Now) -> Neighbour | None:
        """A neighbour's first message: the neighbour if its session begins, or it is told why not."""
        try:
            self._authenticated(connection, theirs, now)
            neighbour = self._checked(connection, theirs)
        except (AccessError, RemoteProtocolError) as error:
            self._state.counts["links refused"] += 1
            known = self._state.neighbours.get(Link(theirs.name))
            stranger = connection.authenticate is not None and not connection.principal
            if known is not None and known.connection is None and not stranger:
                known.reason = str(error)
            self._close(connection, "refused", str(error), now)
            return None
        self._state.strangers.pop(connection.id, None)
        neighbour.seen = theirs.incarnation, theirs.epoch
        old, dialling = neighbour.connection, neighbour.dialling
        if connection.dialled is None:
            self._state.out.send(connection.id, self._hello(neighbour))
        neighbour.dialling = None
        for each in (old, dialling):
            if each is not None and each is not connection:
                self._state.counts["links taken over"] += 1
                self._close(each, "taken over", "a newer connection has taken the link over", now)
        return neighbour

    def _authenticated(self, connection: Connection, theirs: LinkHello, now: Now) -> None:
        """Raise AccessError unless a broker is who it says: a principal links as the broker of its own name."""
        if self._authenticate is not None:
            self._authenticate(theirs)
        if connection.authenticate is None:
            return
        who = connection.authenticate(theirs.credentials)
        if not who.principal:
            raise AccessError("the name of a principal must not be empty")
        connection.principal, connection.key = who.principal, who.key
        self._state.rules.of(who.principal).check("link")
        if who.principal != theirs.name:
            raise AccessError(f"{who.principal} cannot link as {theirs.name or 'a broker without a name'}")
        end_later(self._state, self._close, connection, who.until, now)

    def _checked(self, connection: Connection, theirs: LinkHello) -> Neighbour:
        """The neighbour of a hello. Raises AccessError or RemoteProtocolError."""
        state, mine = self._state, self._reach.name
        neighbour = state.neighbours.get(Link(theirs.name))
        if neighbour is None or neighbour.leaving:
            raise AccessError(
                f"{theirs.name or 'a broker without a name'} is not a neighbour of {mine}; attach it there"
            )
        if connection.dialled is not None and connection.dialled != theirs.name:
            raise AccessError(f"{connection.dialled} was dialled, but {theirs.name} has answered; check its address")
        check_hello(
            LinkHello(
                name=mine,
                role=neighbour.role.value,
                fingerprint=state.seats.table.fingerprint,
                settings=state.seats.table.settings,
                predicates=self._predicates,
            ),
            theirs,
        )
        self._reach.check(neighbour.peer, theirs.name)
        stale = theirs.log_id == neighbour.peer_log and (theirs.incarnation, theirs.epoch) <= neighbour.seen
        former = neighbour.connection is not None and theirs.log_id in neighbour.former_logs  # else it may be back
        if stale or former:
            raise AccessError(f"this connection of {theirs.name} is older than the current one")
        if theirs.log_id == state.log_id:
            raise AccessError(f"{theirs.name} has the log of {mine}; give each broker its own data directory")
        if theirs.peer_log == state.log_id and theirs.got >= state.end:
            raise AccessError(
                f"{theirs.name} has event {theirs.got} of {mine}, whose log ends before it: a backup was restored "
                "under its old id; restore it with `weft log restore`"
            )
        if connection.dialled is None and neighbour.dialling is not None and mine < theirs.name:
            raise AccessError(f"{mine} is dialling {theirs.name} at the same time, and has priority")
        return neighbour
