"""A simulated broker process: a driver of a core over simulated wires and a log in memory. It can crash at any time.

What a driver leaves to its owner is drawn here: how long events wait for those of other connections, when a commit
begins, and how long writing, syncing and reporting to the core take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from types import SimpleNamespace

from weft.broker.broker import Core
from weft.broker.delivery_run import encode_all, one_by_one
from weft.broker.driver import CommitOutcome, Driver, IncomingRead, makes_requests, store
from weft.broker.effects import ConnectionId, Effect, Now, Outgoing, Persist
from weft.broker.links.neighbour import LinkStatus
from weft.errors import LogFailedError, RemoteProtocolError
from weft.log.base import State
from weft.log.memory import MemoryLog
from weft.protocol.codec import MessageReader, client_messages
from weft.protocol.link_messages import LinkDigest, LinkEvents, LinkHello, LinkMessage, LinkPing, LinkUpdate
from weft.protocol.messages import Accepted, Ack, Bye, ClientMessage, Failed, Nack, Refused, Unsubscribe
from weft.routing.table import Link, Role, RoutingTable
from weftlab.engine import Engine, Scheduled
from weftlab.faults.oracle import Oracle
from weftlab.faults.trace import Actor, InterestUpdate, RunTrace, link_text, update_text
from weftlab.faults.violation import require
from weftlab.faults.wire import Pipe

MakeCore = Callable[[MemoryLog, State], Core]

UTC = 1_700_000_000_000_000  # when a simulation begins
_WINDOW = 2_000  # microseconds that events may wait for those of other connections
_LAZY = 40_000  # microseconds that a group which is not urgent waits at most


@dataclass(slots=True)
class _End:
    """This side of a connection."""

    pipe: Pipe  # to the other end
    closing: Callable[[], None]  # to be called when this side closes it
    reader: MessageReader[ClientMessage | LinkMessage]
    peer: str  # the broker at the other end, as it calls itself; empty for clients
    is_resyncing: bool = False  # that one has not yet sent all its interest
    unread: list[bytes] | None = None  # what came while it is not read
    is_full: bool = False


class BrokerProcess(Actor):
    """One broker, its log, and its side of every connection."""

    full = 20_000  # bytes that wait on a pipe before the core learns it
    sync_within = 1_500  # microseconds that a sync takes, at most
    skew = 0  # of the UTC clock
    jumped = False  # whether its clock has ever jumped

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self, name: str, engine: Engine, rng: Random, trace: RunTrace, oracle: Oracle, log: MemoryLog, make: MakeCore
    ) -> None:
        super().__init__(name, engine, rng, trace)
        self.log, self.oracle, self._make = log, oracle, make
        self.rude: set[ConnectionId] = set()  # peers that may send what cannot be decoded
        self.core: Core | None = None
        self.neighbours: dict[str, Role] = {}  # as it is configured
        self.resynced: set[str] = set()  # neighbours that have sent all their interest since they were attached
        self.hellos: list[LinkHello] = []  # that this broker has ever sent
        self._ends: dict[ConnectionId, _End] = {}
        self._driver: Driver | None = None
        self._timer: Scheduled | None = None
        self._handling: Scheduled | None = None  # of events that wait
        self._commit: Scheduled | None = None  # its next step

    # -- life ------------------------------------------------------------------------------------------

    @property
    def now(self) -> Now:
        """The time as this process sees it."""
        utc = UTC + self.engine.now + self.skew
        self.oracle.saw(self.engine.now, utc)
        return Now(self.engine.now, utc)

    @property
    def latest(self) -> int:
        """The latest time that its clock or its log has ever shown."""
        return self.oracle.latest

    @property
    def table(self) -> RoutingTable:
        """The routing table of the running core."""
        assert self.core is not None
        return self.core.table

    def link(self, peer: str) -> LinkStatus | None:
        """The status of the link to a neighbour; None if there is none, or the process is down."""
        if self.core is None:
            return None
        return next((status for status in self.core.links() if status.peer == peer), None)

    def is_resyncing(self, connection: ConnectionId) -> bool:
        """Whether the broker at the other end of a connection has not yet sent all its interest."""
        return connection in self._ends and self._ends[connection].is_resyncing

    def is_synced(self, peer: str) -> bool:
        """Whether this broker knows the interest of a neighbour."""
        status = self.link(peer)
        return status is not None and status.warm

    def has_settled_with(self, peer: BrokerProcess) -> bool:
        """Whether both run, this one knows the interest of the other, and that one has stored what was sent to it."""
        status = self.link(peer.name)
        if self.core is None or peer.core is None or status is None:
            return False
        if not status.warm or not status.connected or status.resyncing:
            return False
        return self.core.is_acknowledged(peer.name) and not self.table.pending

    def behind(self, peer: str) -> str:
        """What a neighbour still has to receive, in a sentence; empty if it has everything."""
        status = self.link(peer)
        if status is None or not status.connected or not status.warm:
            return f"{self.name} is not connected to {peer}, or knows nothing of it"
        if status.resyncing or status.waiting_control or status.waiting_changes:
            waiting, changes = status.waiting_control, status.waiting_changes
            return f"{self.name} has {waiting} items to tell {peer}, {changes} changes wait"
        if status.lag or status.in_flight:
            return f"{self.name} has events for {peer}: {status.in_flight} on their way, {status.lag} offsets behind"
        return ""

    def start(self) -> None:
        """Recover from the log, unless it runs."""
        if self.core is not None:
            return
        state = self.log.restore()
        self.oracle.restored(self.log, state)
        self.core = self._make(self.log, state)
        self._driver = Driver(
            self.core,
            lambda: self.now,
            send=self._send,
            commit=self._persist,
            timer=self._set_timer,
            close=self._close,
            reading=self._set_reading,
            turn=self._note_turn,
        )
        self.say(f"starts, incarnation {state.incarnation}, next offset {state.next}")
        self.match_neighbours()

    def match_neighbours(self) -> None:
        """Let the core have the links that are configured; a full log may refuse that, and it is tried again."""
        if self.core is None:
            return
        known = [status.peer for status in self.core.links()]
        for peer in [peer for peer in known if peer not in self.neighbours and not self.core.is_leaving(peer)]:
            self.say(f"detaches {peer}")
            self.do(self.core.detach, peer)
        for name, role in self.neighbours.items():
            if name not in known:
                peer = Link(name)
                self.say(f"attaches {peer}, its {role.value}")
                self.do(self.core.attach, peer, role)

    def has_link(self, peer: str) -> bool | None:
        """Whether a neighbour is attached; None if the process is down, or the neighbour is leaving."""
        if self.core is None:
            return None
        self.match_neighbours()
        return None if self.core.is_leaving(peer) else self.link(peer) is not None

    def crash(self, *, why: str) -> None:
        """End at once; what was not synced may be lost, and every connection is."""
        if self.core is None:
            return
        self.say(f"CRASH: {why}")
        self.count_core()
        assert self._driver is not None
        self._driver.stop()
        self.core = self._driver = None
        for scheduled in (self._timer, self._handling, self._commit):
            if scheduled is not None:
                scheduled.cancel()
        self._timer = self._handling = self._commit = None
        draws = SimpleNamespace(integers=self.rng.randrange)  # all that the log uses of a generator
        self.log = self.log.crash(draws)  # type: ignore[arg-type]
        for connection in sorted(self._ends):
            self._drop(connection)
        self.oracle.sessions.clear()

    def rewind(self, log: MemoryLog) -> None:
        """End, and go on with another log: a copy of this one, from earlier."""
        self.crash(why="an older copy of its log is restored")
        log.incarnation = max(log.incarnation, self.log.incarnation)
        self.log = log
        self.oracle.rewound()
        self.start()

    def count_core(self) -> None:
        """Add what the core has counted to the trace; it begins anew with each start."""
        if self.core is not None:
            for what, times in self.core.counts.items():
                self.trace.count(f"core: {what}", times)

    def trim(self) -> None:
        """Store the positions of the queues, then remove what no queue needs."""
        if self.core is None or self.is_committing:
            return
        self.do(self.core.store_floors)
        for link in self.core.links():
            kept = self.core.needed <= self.core.end - link.lag
            require(kept, f"{self.name}: retention would remove events that {link.peer} has not got")
        if self.log.trim(self.core.needed):
            self.trace.count("op: trimmed")
            self.do(self.core.trimmed, self.log.restore().first)

    def do(self, call: Callable[..., list[Effect]], *args: object) -> None:
        """Call the core, and carry out the effects."""
        assert self._driver is not None
        self._driver.do(call, *args)

    # -- connections -----------------------------------------------------------------------------------

    def open(
        self, connection: ConnectionId, actor: Actor, receive: Callable[[bytes], None], closed: Callable[[], None]
    ) -> tuple[Pipe, Pipe]:
        """Connect somebody who is not a broker; returns the pipes to this process and back.

        `closed` is called when this side has closed the connection, and the other end has received all.
        """
        there = Pipe(actor, partial(self.receive, connection))

        def read(data: bytes) -> None:
            receive(data)
            self.drained(connection)

        def closing() -> None:
            there.cut()
            back.close(closed)

        back = Pipe(actor, read)
        self.accept(connection, back, closing)
        return there, back

    def accept(self, connection: ConnectionId, pipe: Pipe, closing: Callable[[], None], peer: str = "") -> None:
        """A connection came, or this side has dialled a peer. `closing` is called when this side closes it."""
        assert self._driver is not None
        self._ends[connection] = _End(pipe, closing, client_messages(), peer)
        if peer:
            self._driver.dialled(connection, peer)
        else:
            self._driver.connected(connection)

    def receive(self, connection: ConnectionId, data: bytes) -> None:
        """Bytes came from the other end."""
        driver, end = self._driver, self._ends.get(connection)
        if driver is None or end is None:
            return
        if end.unread is not None:
            end.unread.append(data)
            return
        try:
            messages = end.reader.feed(data)
        except RemoteProtocolError as error:
            require(connection in self.rude, f"{connection} sent garbage: {error}")
            self.trace.count("fault: garbage")
            driver.garbled(connection, str(error))
            return
        if not messages:
            return
        requests = makes_requests(messages)
        if not driver.receive(connection, messages, hold=not requests and self.rng.random() < 0.3):
            driver.handle_ready()
        elif requests:
            driver.handle_all()
        elif self._handling is None:
            self._handling = self.engine.after(self.rng.randrange(1, _WINDOW), self._handle)

    def _handle(self) -> None:
        self._handling = None
        if self._driver is not None:
            self._driver.handle_all()

    def _set_reading(self, connection: ConnectionId, on: bool) -> None:
        """Stop or resume reading a connection."""
        self.trace.count(f"reading {'resumed' if on else 'stopped'}")
        if on:
            self._read_on(connection)
        elif connection in self._ends:
            self._ends[connection].unread = []

    def _read_on(self, connection: ConnectionId) -> None:
        end = self._ends.get(connection)
        if end is not None:
            unread, end.unread = end.unread or [], None
            for data in unread:
                self.receive(connection, data)

    def _note_turn(self, reads: Sequence[IncomingRead]) -> None:
        """Let the trace and the oracle see what the core is about to receive."""
        self.trace.count("turns of several reads", len(reads) > 1)
        for connection, messages in reads:
            for message in messages:
                self._note(connection, message)

    def _note(self, connection: ConnectionId, message: ClientMessage | LinkMessage) -> None:
        self.trace.count(f"received: {type(message).__name__}")
        end = self._ends[connection]
        match message:
            case Ack():
                self.oracle.ack_received(connection, message)
            case Nack():
                self.oracle.nack_received(connection, message)
            case Unsubscribe():
                self.oracle.unsubscribe_received(connection, message)
            case LinkHello():
                end.peer, end.is_resyncing = message.name, True
            case LinkUpdate():
                self.trace.count("link: items added", len(message.ids))
                self.trace.count("link: items dropped", len(message.drop))
                if message.resynced:
                    end.is_resyncing = False
                    self.resynced.add(end.peer)
            case LinkEvents(events):
                self.trace.count("link: events", len(events))
        if end.peer and not isinstance(message, LinkPing | LinkDigest):
            self.say(f"<- {end.peer}: {link_text(message, self.table.codec)}")  # type: ignore[arg-type]
            if isinstance(message, LinkUpdate) and (update := update_text(message, self.table.codec)):
                self.trace.updates.append(InterestUpdate(self.engine.now, end.peer, self.name, update))

    def noticed_cut(self, connection: ConnectionId) -> None:
        """This side notices that a connection is gone."""
        if self._driver is not None and connection in self._ends:
            self._read_on(connection)
            self._driver.lost(connection)
            self._drop(connection)

    def drained(self, connection: ConnectionId) -> None:
        """The other end has read; there may be room again."""
        end = self._ends.get(connection)
        if self.core is not None and end is not None and end.is_full and end.pipe.backlog < self.full // 2:
            end.is_full = False
            self.trace.count("core call: resumed")
            self.do(self.core.resumed, connection)

    def _drop(self, connection: ConnectionId) -> None:
        end = self._ends.pop(connection, None)
        if end is not None:
            end.closing()

    # -- effects ---------------------------------------------------------------------------------------

    def _close(self, connection: ConnectionId) -> None:
        self.trace.count("effect: Close")
        self.say(f"closes {connection}")
        self._drop(connection)

    def _send(self, connection: ConnectionId, messages: list[Outgoing]) -> None:
        self.trace.count("effect: Send")
        for message in one_by_one(messages):
            self.trace.count(f"sent: {type(message).__name__}")
            match message:
                case Accepted(about):
                    self.trace.count(f"accepted: {about}")
                case Refused():
                    self.trace.count(f"refused: {message.code}")
                case Failed(about):
                    self.trace.count(f"refused: {about}, {message.code}")
                case Bye(code):
                    self.trace.count(f"closed: {code}")
                case LinkHello():
                    self.hellos.append(message)
            self.oracle.sent(connection, message)
        end = self._ends.get(connection)
        if end is None or self.core is None:
            return
        end.pipe.send(encode_all(messages))
        if end.pipe.backlog > self.full and not end.is_full:
            end.is_full = True
            self.trace.count("fault: slow reader noticed")
            self.core.paused(connection)

    def _set_timer(self, at: int) -> None:
        self.trace.count("effect: SetTimer")
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.engine.at(max(at, self.engine.now + 1), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._driver is not None:
            self._driver.tick()

    # -- the log: groups are written, then synced, then the core learns it, with time between the three ---

    @property
    def is_committing(self) -> bool:
        """Whether groups are written, and the core does not know yet whether they are stored."""
        return self._driver is not None and bool(self._driver.committing)

    def _persist(self, persist: Persist) -> None:
        self.trace.count("effect: Persist")
        self.oracle.proposed(persist.group)
        self._plan_commit()

    def _plan_commit(self) -> None:
        """Commit soon if a group is urgent, else later; a commit that is under way comes first."""
        assert self._driver is not None
        if self._driver.committing or not self._driver.waiting:
            return
        urgent = any(waiting.urgent for waiting in self._driver.waiting)
        due = self.engine.now + (1 + self.rng.randrange(800) if urgent else _LAZY)
        if self._commit is None or due < self._commit.time:
            if self._commit is not None:
                self._commit.cancel()
            self._commit = self.engine.at(due, self._write)

    def _write(self) -> None:
        assert self._driver is not None
        outcome = store(self.log.write, self._driver.begin_commit())
        if outcome.full:
            self.trace.count("fault: commit refused")
            self.trace.count("fault: commit refused in part", outcome.stored > 0)
            if self.log.quota is not None and "quota" in outcome.full:
                self.trace.count("fault: quota reached")
            self.say(f"log full: {outcome.full}")
        self._commit = self.soon(self.sync_within, lambda: self._sync(outcome))

    def _sync(self, outcome: CommitOutcome) -> None:
        if outcome.stored:
            try:
                self.log.sync()
            except LogFailedError:
                self.trace.count("fault: sync failed")
                self.crash(why="a sync failed")
                self.engine.after(3000, self.start)
                return
            self.oracle.committed([persist.group for persist in outcome.groups[: outcome.stored]])
        self._commit = self.soon(200, lambda: self._end_commit(outcome))

    def _end_commit(self, outcome: CommitOutcome) -> None:
        assert self._driver is not None
        self._commit = None
        self.trace.count("groups forgotten", bool(outcome.full and self._driver.waiting))
        self._driver.end_commit(outcome)
        self._plan_commit()
