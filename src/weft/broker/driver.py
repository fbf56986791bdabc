"""The driver of a core: it carries out effects, and decides what the core receives together.

A core returns effects and never acts. Its owner (a node on a network, a simulated process, a test) decides when things
happen: when reads are handed on, when a commit begins, how long a disk takes. The driver holds what must be the same
wherever a core runs:

1. Effects are carried out in their order. Every call of the core goes through `do`.
2. A read that begins with a hello is a turn of its own, after everything that was read before it: a hello may end
   another connection, and what that one sent before counts. What is read of one connection is handled in order.
3. Reads that bring only events and acknowledgements may wait, and are then one turn. A read that makes a request is a
   turn of its own: a request is not refused because somebody's event does not fit into the log.
4. A connection with requests that the core has put off is not read until the core has handled them.
5. Groups are committed in order, one commit at a time, and the core learns the result in the same order. If the log is
   full, every later group is forgotten before the core learns it: the core returns those that it keeps again.
6. A timer that is due stays due until `tick`. A tick that comes early does no harm.
7. A message that cannot be encoded ends its own connection and no other.

There is no I/O, no thread and no clock here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, assert_never

from weft.broker.broker import Core
from weft.broker.effects import Close, ConnectionId, Effect, Now, Outgoing, Persist, Relayed, Send, SetTimer
from weft.broker.identity import Authenticate
from weft.errors import LocalProtocolError, LogFullError
from weft.log.base import Group, Log
from weft.protocol.link_messages import LINK_EVENTS, IncomingMessage, LinkHello
from weft.protocol.messages import PUBLISH, Ack, AskStored, Bye, Hello

_HELLOS = frozenset({Hello, LinkHello})
_NO_REQUESTS = frozenset({*PUBLISH, *LINK_EVENTS, Ack, AskStored})

IncomingRead = tuple[ConnectionId, Sequence[IncomingMessage]]


class CommitOutcome(NamedTuple):
    """The result of one commit: the first `stored` groups are durable; `full` says why the others are not."""

    groups: Sequence[Persist]
    stored: int
    full: str = ""


_GROUP = attrgetter("group")


def store(write: Callable[[list[Group]], None], groups: Sequence[Persist]) -> CommitOutcome:
    """Store groups with `write`. If they do not fit together, as many of the first as fit are stored one by one."""
    try:
        write([*map(_GROUP, groups)])
    except LogFullError as error:
        if len(groups) == 1:
            return CommitOutcome(groups, 0, str(error))
        for stored, each in enumerate(groups):
            try:
                write([each.group])
            except LogFullError as full:
                return CommitOutcome(groups, stored, str(full))
    return CommitOutcome(groups, len(groups))


def makes_requests(messages: Sequence[IncomingMessage]) -> bool:
    """Whether messages have more than events and acknowledgements."""
    return not _NO_REQUESTS.issuperset(map(type, messages))


class Driver:
    """Drives one core.

    - `send(connection, messages)` sends; it raises LocalProtocolError for a message that fits no frame.
    - `commit(persist)` notes that a group waits. The owner then calls `begin_commit` and `end_commit`, or `settle`.
    - `timer(at)` has `tick` called at a monotonic time, or soon after; it replaces the timer that was set before.
    - `close(connection)` closes a connection after sending what was sent on it.

    A connection that is already gone is ignored by `send` and `close`.
    The owner may give further functions: `reading(connection, on)` stops and resumes reading; `relayed(effect)` gets
    what another broker has sent to this one, which is counted in `relayed_unused` otherwise; `turn(reads)` sees what
    the core is about to receive; `unsendable(connection, error)` learns of a message that could not be encoded;
    `failed(error)` gets whatever the core raises, instead of the caller: nobody knows what the core then holds, and
    the driver does nothing any more.
    """

    def __init__(  # noqa: PLR0913 - the functions of an owner
        self,
        core: Core,
        clock: Callable[[], Now],
        *,
        send: Callable[[ConnectionId, list[Outgoing]], object],
        commit: Callable[[Persist], object],
        timer: Callable[[int], object],
        close: Callable[[ConnectionId], object],
        reading: Callable[[ConnectionId, bool], object] | None = None,
        relayed: Callable[[Relayed], object] | None = None,
        turn: Callable[[Sequence[IncomingRead]], object] | None = None,
        unsendable: Callable[[ConnectionId, LocalProtocolError], object] | None = None,
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        self.core = core
        self.connections: set[ConnectionId] = set()  # that the core knows
        self.behind: dict[ConnectionId, None] = {}  # that are not read, because the core has put off their requests
        self.waiting: list[Persist] = []  # groups that are to be committed
        self.committing: list[Persist] = []  # groups of the commit that is running
        self.added = self.settled = 0  # groups that were to be stored, and those that were stored or refused
        self.due: int | None = None  # the timer that is set
        self.relayed_unused = 0
        self.ended = False
        self._clock = clock
        self._send, self._commit, self._timer, self._close = send, commit, timer, close
        self._reading, self._relayed, self._on_turn = reading, relayed, turn
        self._unsendable, self._failed = unsendable, failed
        self._ready: list[IncomingRead] = []
        self.held: list[IncomingRead] = []  # that wait for others
        self._holding: set[ConnectionId] = set()  # whose reads these are

    # -- the core --------------------------------------------------------------------------------------

    def do(self, call: Callable[..., list[Effect]], *args: Any) -> None:
        """Call a method of the core with these arguments and the time, and carry out the effects."""
        if self.ended:
            return
        now = self._clock()
        try:
            self.carry_out(call(*args, now), now)
        except Exception as error:
            if self._failed is None:
                raise
            self.ended = True
            self._failed(error)

    def carry_out(self, effects: Sequence[Effect], now: Now) -> None:
        """Carry out effects, in their order."""
        unsendable: list[ConnectionId] = []
        for effect in effects:
            match effect:
                case Send():
                    try:
                        self._send(effect.connection, effect.messages)
                    except LocalProtocolError as error:
                        unsendable.append(effect.connection)
                        if self._unsendable is not None:
                            self._unsendable(effect.connection, error)
                case Persist():
                    self.waiting.append(effect)
                    self.added += 1
                    self._commit(effect)
                case SetTimer():
                    due = self.due
                    if due != effect.at and (due is None or due > now.monotonic):
                        self.due = effect.at
                        self._timer(effect.at)
                case Close():
                    self._forget(effect.connection)
                    self._close(effect.connection)
                case Relayed():
                    if self._relayed is None:
                        self.relayed_unused += 1
                    else:
                        self._relayed(effect)
                case _:
                    assert_never(effect)
        for connection in unsendable:  # now, because these calls have effects of their own
            self.dismiss(connection, Bye("internal", "the broker could not send a message; see its log"))

    def tick(self) -> None:
        """The timer; an early call does no harm. Connections whose requests are handled are read again."""
        self.due = None
        self.do(self.core.tick)
        if self.behind:
            for connection in [each for each in self.behind if not self.core.is_behind(each)]:
                del self.behind[connection]
                if self._reading is not None:
                    self._reading(connection, True)

    def stop(self) -> None:
        """Do nothing any more: what waits is forgotten."""
        self.ended = True
        self._ready, self.held, self.waiting = [], [], []

    # -- connections -----------------------------------------------------------------------------------

    def connected(self, connection: ConnectionId, authenticate: Authenticate | None = None) -> None:
        """A connection was accepted."""
        self.connections.add(connection)
        self.do(partial(self.core.connected, authenticate=authenticate), connection)

    def dialled(self, connection: ConnectionId, peer: str, authenticate: Authenticate | None = None) -> None:
        """A connection to a neighbour was opened by this side."""
        self.connections.add(connection)
        self.do(partial(self.core.dialled, authenticate=authenticate), connection, peer)

    def lost(self, connection: ConnectionId) -> None:
        """A connection is gone. What it had sent before counts."""
        self.handle_all()
        if connection in self.connections:
            self._forget(connection)
            self.do(self.core.closed, connection)

    def garbled(self, connection: ConnectionId, reason: str) -> None:
        """A peer has sent something that cannot be decoded: the core closes its connection."""
        self.handle_all()
        self.do(self.core.dismiss, connection, "protocol", reason)

    def dismiss(self, connection: ConnectionId, message: Bye) -> None:
        """Close a connection with a last message."""
        self.handle_all()
        if connection in self.connections:
            self._send(connection, [message])
            self._forget(connection)
            self._close(connection)
            self.do(self.core.closed, connection)

    def _forget(self, connection: ConnectionId) -> None:
        """The core no longer knows a connection."""
        self.behind.pop(connection, None)
        self.connections.discard(connection)

    # -- what is read ----------------------------------------------------------------------------------

    def receive(self, connection: ConnectionId, messages: Sequence[IncomingMessage], *, hold: bool = False) -> bool:
        """Add what one read brought, at least one message. A hello is handled at once, after whatever waits.

        Anything else waits for `handle_ready`, or with `hold` for `handle_all`, as does what is read of a connection
        behind something that is held. Returns whether it is held.
        """
        if type(messages[0]) in _HELLOS:
            self.handle_all()
            self._turn([(connection, messages)])
            return False
        if hold or connection in self._holding:
            self.held.append((connection, messages))
            self._holding.add(connection)
            return True
        self._ready.append((connection, messages))
        return False

    def handle_ready(self) -> None:
        """Hand on what was read and is not held."""
        if self._ready:
            reads, self._ready = self._ready, []
            if len(reads) == 1:
                self._turn(reads)
            else:
                self._handle(reads)

    def handle_all(self) -> None:
        """Hand on everything that was read."""
        if self.held:
            reads = [*self._ready, *self.held]
            self._ready, self.held, self._holding = [], [], set()
            self._handle(reads)
        else:
            self.handle_ready()

    def _handle(self, reads: list[IncomingRead]) -> None:
        """Reads without requests are one turn as far as they follow each other; each other read is one."""
        together: list[IncomingRead] = []
        for read in reads:
            if not makes_requests(read[1]):
                together.append(read)
                continue
            if together:
                self._turn(together)
                together = []
            self._turn([read])
        if together:
            self._turn(together)

    def _turn(self, reads: list[IncomingRead]) -> None:
        for connection, _ in reads:
            if connection not in self.connections:  # it was closed meanwhile
                reads = [read for read in reads if read[0] in self.connections]
                break
        if not reads:
            return
        if self._on_turn is not None:
            self._on_turn(reads)
        self.do(self.core.receive_all, reads)
        if self.core.behind:
            for connection, _ in reads:
                if self.core.is_behind(connection) and connection not in self.behind:
                    self.behind[connection] = None
                    if self._reading is not None:
                        self._reading(connection, False)

    # -- the log ---------------------------------------------------------------------------------------

    def begin_commit(self, most: int | None = None) -> list[Persist]:
        """The groups to commit now: all that wait, or the first `most`. Then `end_commit` must be called."""
        if self.committing:
            raise LocalProtocolError("a commit is running; wait for its end")
        self.committing, self.waiting = self.waiting[:most], [] if most is None else self.waiting[most:]
        return self.committing

    def end_commit(self, outcome: CommitOutcome) -> None:
        """A commit has ended. The core learns what is stored; on a full log, what is behind that is forgotten here."""
        self.committing = []
        self.settled += len(outcome.groups)
        for persist in outcome.groups[: outcome.stored]:
            self.do(self.core.committed, persist.ticket)
        if outcome.full:
            self.settled += len(self.waiting)
            self.waiting = []  # also what the core has just asked for: it takes that back
            self.do(self.core.rejected, outcome.groups[outcome.stored].ticket, outcome.full)

    def settle(self, log: Log) -> None:
        """Do everything that can be done now: hand on reads, commit, and tick while the timer is due."""
        while not self.ended:
            if self._ready or self.held:
                self.handle_all()
            elif self.waiting:
                self.end_commit(store(log.commit, self.begin_commit()))
            elif self.due is not None and self.due <= self._clock().monotonic:
                self.tick()
            else:
                return
