"""A simulated broker process: it drives the core as a node on a network does, and can crash at any instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from weft.broker.codec import MessageReader, client_messages, encode_all, one_by_one
from weft.broker.core import Core
from weft.broker.effects import Close, ConnectionId, Effect, Now, Persist, Send, SetTimer
from weft.broker.link import LinkStatus
from weft.broker.link_messages import LinkDigest, LinkEvents, LinkHello, LinkMessage, LinkPing, LinkUpdate
from weft.broker.messages import Accepted, Ack, Bye, ClientMessage, Failed, Hello, Nack, Publish, Refused
from weft.errors import RemoteProtocolError
from weft.log.base import State
from weft.log.memory import MemoryLog
from weft.routing.table import Link, Role, RoutingTable
from weft.sim.engine import Engine, Scheduled
from weft.sim.faults.group_commit import GroupCommit
from weft.sim.faults.link_text import link_text, told_text
from weft.sim.faults.oracle import Oracle
from weft.sim.faults.trace import RunTrace
from weft.sim.faults.violation import require
from weft.sim.faults.wire import Lane

MakeCore = Callable[[MemoryLog, State], Core]

UTC = 1_700_000_000_000_000  # when a simulation begins
_FULL = 20_000
_WINDOW = 2_000  # microseconds that events may wait for those of other connections


class BrokerProcess:
    """One broker, its log, and its side of every connection."""

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self,
        name: str,
        engine: Engine,
        rng: Random,
        trace: RunTrace,
        oracle: Oracle,
        log: MemoryLog,
        make_core: MakeCore,
    ) -> None:
        self.name = name
        self.log = log
        self.oracle = oracle
        self.skew = 0  # of the UTC clock
        self.jumped = False  # whether its clock has ever jumped
        self.full = _FULL  # bytes that wait on a lane before the core hears of it
        self.rude: set[ConnectionId] = set()  # who may send what cannot be read
        self.latest = 0  # that this clock has ever shown
        self.core: Core | None = None
        self.neighbours: dict[str, Role] = {}  # as it is configured
        self.commits = GroupCommit(self, engine, rng, trace)
        self._engine, self._rng, self._trace, self._make = engine, rng, trace, make_core
        self._lanes: dict[ConnectionId, Lane] = {}  # to the other end
        self._closing: dict[ConnectionId, Callable[[], None]] = {}
        self._peers: dict[ConnectionId, str] = {}  # of connections to other brokers, as they call themselves
        self.resyncing: set[ConnectionId] = set()  # whose other end has not yet told all
        self.resynced: set[str] = set()  # neighbours that have told all at some time since they were attached
        self.hellos: list[LinkHello] = []  # that this broker has ever said to others
        self._readers: dict[ConnectionId, MessageReader[ClientMessage | LinkMessage]] = {}
        self._full: set[ConnectionId] = set()
        self._timer: Scheduled | None = None
        self._gathered: list[tuple[ConnectionId, list[ClientMessage | LinkMessage]]] = []  # events that wait
        self._take: Scheduled | None = None

    # -- life ------------------------------------------------------------------------------------------

    @property
    def now(self) -> Now:
        """The time as this process sees it."""
        utc = UTC + self._engine.now + self.skew
        self.latest = max(self.latest, utc)
        self.oracle.saw(self._engine.now, utc)
        return Now(self._engine.now, utc)

    @property
    def table(self) -> RoutingTable:
        """The routing table of the running core."""
        assert self.core is not None
        return self.core._state.seats.table

    def link(self, peer: str) -> LinkStatus | None:
        """How the link to a neighbour is; None if there is none, or the process is down."""
        if self.core is None:
            return None
        return next((status for status in self.core.links() if status.peer == peer), None)

    def is_warm(self, peer: str) -> bool:
        """Whether this broker knows what a neighbour wants."""
        status = self.link(peer)
        return status is not None and status.warm

    def is_heard(self, peer: str) -> bool:
        """Whether a neighbour has stored all that it was told in this session."""
        if self.core is None:
            return False
        known = self.core._state.neighbours.get(Link(peer))
        return known is not None and not known.sender.marks.unanswered

    def behind(self, peer: str) -> str:
        """What a neighbour still has to get, in a sentence; empty if it has everything."""
        status = self.link(peer)
        if status is None or not status.connected or not status.warm:
            return f"{self.name} is not connected to {peer}, or knows nothing of it"
        if status.resyncing or status.waiting_control or status.waiting_changes:
            return (
                f"{self.name} has {status.waiting_control} items to tell {peer}, {status.waiting_changes} changes wait"
            )
        if status.lag or status.in_flight:
            return f"{self.name} has events for {peer}: {status.in_flight} on their way, {status.lag} offsets behind"
        return ""

    def start(self) -> None:
        """Recover from the log."""
        state = self.log.restore()
        self.oracle.restored(self.log, state)
        self.core = self._make(self.log, state)
        self._say(f"starts, incarnation {state.incarnation}, next offset {state.next}")
        self._match_neighbours()

    def attach(self, peer: str, role: Role) -> None:
        """Configure a neighbour; a process that is down does so when it starts."""
        self.neighbours[peer] = role
        self.resynced.discard(peer)
        self._match_neighbours()

    def detach(self, peer: str) -> None:
        """A neighbour is no longer one."""
        del self.neighbours[peer]
        self._match_neighbours()

    def _match_neighbours(self) -> None:
        """Let the core have the links that are configured; a full log may refuse that, and it is tried again."""
        if self.core is None:
            return
        known = self.core._state.neighbours
        for peer in [peer for peer in known if peer not in self.neighbours and not known[peer].leaving]:
            self._say(f"detaches {peer}")
            self.perform(self.core.detach(peer, self.now))
        for name, role in self.neighbours.items():
            if name not in known:
                peer = Link(name)
                self._say(f"attaches {peer}, its {role.value}")
                self.perform(self.core.attach(peer, role, self.now))

    def has_link(self, peer: str) -> bool | None:
        """Whether a neighbour is attached; None if the process is down, or the neighbour is leaving."""
        if self.core is None:
            return None
        self._match_neighbours()
        known = self.core._state.neighbours.get(Link(peer))
        return known is not None if known is None or not known.leaving else None

    def crash(self, *, why: str) -> None:
        """End at once; what was not synced may be lost, and every connection is."""
        if self.core is None:
            return
        self._say(f"CRASH: {why}")
        self.count_core()
        self.core = None
        self.commits.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._gathered.clear()
        self.log = self.log.crash(_Draws(self._rng))  # type: ignore[arg-type] # draws as a generator does
        for connection in sorted(self._lanes):
            self._drop(connection)
        self.oracle.crashed()

    def rewind(self, log: MemoryLog) -> None:
        """End, and go on with another log: a copy of this one, from earlier."""
        self.crash(why="an older copy of its log is restored")
        log.incarnation = max(log.incarnation, self.log.incarnation)
        self.log = log
        self.oracle.rewound()
        self.start()

    def failed(self) -> None:
        """A sync failed: the process ends, and starts again later."""
        self.crash(why="a sync failed")
        self._engine.after(3000, self.restart)

    def restart(self) -> None:
        """Start, unless it runs."""
        if self.core is None:
            self.start()

    def count_core(self) -> None:
        """Add what the core has counted to the trace; it begins anew with each start."""
        if self.core is not None:
            for what, times in self.core.counts.items():
                self._trace.count(f"core: {what}", times)

    def trim(self) -> None:
        """Retention: remove what nobody needs any more, then store how far the queues are for the next time."""
        if self.core is None or self.commits.busy:
            return
        self.perform(self.core.store_floors(self.now))
        for link in self.core.links():
            kept = self.core.needed <= self.core.end - link.lag
            require(kept, f"{self.name}: retention would remove events that {link.peer} has not got")
        if self.log.trim(self.core.needed):
            self._trace.count("op: trimmed")
            self.perform(self.core.trimmed(self.log.restore().first, self.now))

    # -- connections -----------------------------------------------------------------------------------

    def accept(self, connection: ConnectionId, lane: Lane, closing: Callable[[], None]) -> None:
        """A connection came; `lane` leads to the other end, `closing` is called when this side closes it."""
        assert self.core is not None
        self._opened(connection, lane, closing)
        self.perform(self.core.connected(connection, self.now))

    def dial(self, connection: ConnectionId, peer: str, lane: Lane, closing: Callable[[], None]) -> None:
        """This side opened a connection to a neighbour."""
        assert self.core is not None
        self._opened(connection, lane, closing)
        self._peers[connection] = peer
        self.perform(self.core.dialled(connection, peer, self.now))

    def _opened(self, connection: ConnectionId, lane: Lane, closing: Callable[[], None]) -> None:
        self._lanes[connection], self._closing[connection] = lane, closing
        self._readers[connection] = client_messages()

    def receive(self, connection: ConnectionId, data: bytes) -> None:
        """Bytes came from the other end."""
        if self.core is None or connection not in self._readers:
            return
        try:
            messages = self._readers[connection].feed(data)
        except RemoteProtocolError as error:
            require(connection in self.rude, f"{connection} sent garbage: {error}")
            self._trace.count("fault: garbage")
            self.take_reads()
            self.perform(self.core.dismiss(connection, "protocol", str(error), self.now))
            return
        if messages:
            self._hear(connection, messages)

    def _hear(self, connection: ConnectionId, messages: list[ClientMessage | LinkMessage]) -> None:
        """Hand on what was read: what asks for nothing now and then with what others said, a little later."""
        if type(messages[0]) in {Hello, LinkHello}:  # it may end another connection, which is heard out first
            self.take_reads()
        asks_nothing = {Publish, LinkEvents, Ack}.issuperset(map(type, messages))
        waits = asks_nothing and self._rng.random() < 0.3
        if waits or any(connection == other for other, _ in self._gathered):
            self._gathered.append((connection, messages))
            if self._take is None:
                self._take = self._engine.after(self._rng.randrange(1, _WINDOW), self.take_reads)
            if not asks_nothing:
                self.take_reads()
            return
        self._hand_on([(connection, messages)])

    def take_reads(self) -> None:
        """Hand on the events that wait."""
        if self._take is not None:
            self._take.cancel()
            self._take = None
        reads, self._gathered = self._gathered, []
        if self.core is not None and reads:
            self._trace.count("turns of several reads", len(reads) > 1)
            self._hand_on(reads)

    def _hand_on(self, reads: Sequence[tuple[ConnectionId, Sequence[ClientMessage | LinkMessage]]]) -> None:
        """The core hears reads, and the oracle with it; not those of connections that it has closed meanwhile."""
        assert self.core is not None
        heard = [read for read in reads if read[0] in self._lanes]
        for connection, messages in heard:
            for message in messages:
                self._note(connection, message)
        self.perform(self.core.receive_all(heard, self.now))

    def _note(self, connection: ConnectionId, message: ClientMessage | LinkMessage) -> None:
        """Let the trace and the oracle see what comes."""
        self._trace.count(f"received: {type(message).__name__}")
        match message:
            case Ack():
                self.oracle.ack_received(connection, message)
            case Nack():
                self.oracle.nack_received(connection, message)
            case LinkHello():
                self._peers[connection] = message.name
                self.resyncing.add(connection)
            case LinkUpdate():
                self._trace.count("link: items added", len(message.ids))
                self._trace.count("link: items dropped", len(message.drop))
                if message.resynced:
                    self.resyncing.discard(connection)
                    self.resynced.add(self._peers[connection])
            case LinkEvents(events):
                self._trace.count("link: events", len(events))
        if connection in self._peers and not isinstance(message, LinkPing | LinkDigest):
            peer = self._peers[connection]
            self._say(f"<- {peer}: {link_text(message, self.table.codec)}")  # type: ignore[arg-type]
            told = told_text(message, self.table.codec) if isinstance(message, LinkUpdate) else ""
            if told:
                self._trace.told(self._engine.now, peer, self.name, told)

    def noticed_cut(self, connection: ConnectionId) -> None:
        """This side notices that a connection is gone."""
        if self.core is not None and connection in self._lanes:
            self._drop(connection)
            self.take_reads()
            self.perform(self.core.closed(connection, self.now))

    def drained(self, connection: ConnectionId) -> None:
        """The other end has read; there may be room again."""
        if self.core is not None and connection in self._full and self._lanes[connection].backlog < self.full // 2:
            self._full.discard(connection)
            self._trace.count("core call: resumed")
            self.perform(self.core.resumed(connection, self.now))

    def _drop(self, connection: ConnectionId) -> None:
        self._lanes.pop(connection, None)
        self._readers.pop(connection, None)
        self._full.discard(connection)
        self._peers.pop(connection, None)
        self.resyncing.discard(connection)
        closing = self._closing.pop(connection, None)
        if closing is not None:
            closing()

    # -- effects ---------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Carry effects out, in order."""
        for effect in effects:
            self._trace.count(f"effect: {type(effect).__name__}")
            match effect:
                case Send(connection, messages):
                    self._send(connection, messages)
                case Persist():
                    self.oracle.proposed(effect.group)
                    self.commits.add(effect)
                case SetTimer(at):
                    self._set_timer(at)
                case Close(connection):
                    self._say(f"closes {connection}")
                    self._drop(connection)

    def _send(self, connection: ConnectionId, messages: list) -> None:  # type: ignore[type-arg]
        for message in one_by_one(messages):
            self._trace.count(f"sent: {type(message).__name__}")
            match message:
                case Accepted(about):
                    self._trace.count(f"accepted: {about}")
                case Refused():
                    self._trace.count(f"refused: {message.code}")
                case Failed(about):
                    self._trace.count(f"refused: {about}, {message.code}")
                case Bye(code):
                    self._trace.count(f"closed: {code}")
            if isinstance(message, LinkHello):
                self.hellos.append(message)
            self.oracle.sent(connection, message)
        lane = self._lanes.get(connection)
        if lane is None or self.core is None:
            return
        lane.send(encode_all(messages))
        if lane.backlog > self.full and connection not in self._full:
            self._full.add(connection)
            self._trace.count("fault: slow reader noticed")
            self.core.paused(connection)

    def _set_timer(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.at(max(at, self._engine.now + 1), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.core is not None:
            self.perform(self.core.tick(self.now))

    def _say(self, what: str) -> None:
        self._trace.say(self._engine.now, self.name, what)


class _Draws:
    """The one draw that `MemoryLog.crash` makes of a generator."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def integers(self, high: int) -> int:
        return self._rng.randrange(high)
