"""A broker among its neighbours. Laws: an event that a neighbour must have is sent until it has stored it; a neighbour
is told what is wanted here; a broker tells nobody anything before it has all that it heard.

Events and answers go at once. What neighbours tell is learnt a few items a turn (`work`), so that nobody waits long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from weft.broker.announcing import Announcing
from weft.broker.completion import PendingChange
from weft.broker.effects import Now, Relayed
from weft.broker.link import Neighbour
from weft.broker.link_messages import MOST_HOPS, LinkReach, LinkRelay, LinkUpdate, RelayKind
from weft.broker.link_rows import read_role, removal
from weft.broker.link_sending import LinkSending
from weft.broker.reach import Reach
from weft.broker.row_lane import RowLane
from weft.broker.sessions import CloseConnection, Connection
from weft.broker.state import BrokerState
from weft.broker.table_settings import TableSettings
from weft.errors import LocalProtocolError
from weft.log.base import NEVER, Offset, SeatId, State
from weft.routing.adverts import Tunable
from weft.routing.table import Link, Role, Tell
from weft.space.label_space import LabelSpace

_ITEMS = 1_024  # items that are looked at for a neighbour in one turn


class Linking:
    """The links of one broker, whatever their connections."""

    def __init__(self, state: BrokerState, announcing: Announcing, reach: Reach, close: CloseConnection) -> None:
        self._state = state
        self._close = close
        self._table = state.seats.table
        self._announcing = announcing
        self.reach = reach
        self.sending = LinkSending(state)
        self._turn = 0  # whose frames are learnt next
        self._settings = TableSettings(self._table, self._row_lane())
        self.explain: Callable[[LinkRelay, Now], None] = lambda *_: None  # what questions and answers are handed to
        state.completion.connect(lambda: state.neighbours, self._mark)
        state.tells = self.tell

    def _row_lane(self) -> RowLane:
        state = self._state
        return RowLane(lambda: state.draft, state.timers)

    # -- neighbours -----------------------------------------------------------------------------------

    def attach(self, peer: Link, role: Role) -> None:
        """Make a neighbour, from the next event on. Raises LocalProtocolError."""
        state = self._state
        if not self.reach.name:
            raise LocalProtocolError("a broker with neighbours needs a name; give it one")
        if peer in state.neighbours:
            raise LocalProtocolError(f"{peer} is already a neighbour; detach it first")
        way = self.reach.path(peer)
        if way:
            raise LocalProtocolError(f"links must form a tree, but {peer} is already reachable: {' - '.join(way)}")
        tells = self._table.attach(peer, role)
        seat = state.new_seat()
        state.new_seat()  # the cold one
        neighbour = Neighbour(peer, role, seat, state.next, self._table, state.limits, self._row_lane())
        state.neighbours[peer] = neighbour
        self.tell(tells)
        state.draft.changes.append(neighbour.row())
        state.draft.urgent = True
        state.draft.rejected.append(lambda _, later: self._gone(neighbour, later))

    def restore(self, kept: State) -> None:
        """Take the neighbours back, and what they told, which the table has already. Only now is anything told."""
        state = self._state
        self._settings.restored()
        for seat, row in kept.links.items():
            peer = Link(row.peer)
            role, warm = read_role(row)
            neighbour = Neighbour(peer, role, seat, row.floor, self._table, state.limits, self._row_lane())
            neighbour.warm, neighbour.peer_log = warm, row.peer_log
            neighbour.got = neighbour.received = row.got
            state.neighbours[peer] = neighbour
            state.next_seat = SeatId(max(state.next_seat, seat + 2))
            if warm:
                self.reach.meet(peer)
        for item in kept.heard.values():
            link = kept.links.get(item.link)
            if link is not None:
                state.neighbours[Link(link.peer)].receiver.restore(item.about, item.item, item.body)
        for peer, neighbour in state.neighbours.items():
            self.tell(self._table.attach(peer, neighbour.role))

    def detach(self, peer: Link) -> None:
        """End a neighbour as soon as that is stored. Raises LocalProtocolError."""
        state = self._state
        neighbour = state.neighbours.get(peer)
        if neighbour is None or neighbour.leaving:
            raise LocalProtocolError(f"there is no neighbour {peer} to detach")
        neighbour.leaving = True
        state.draft.changes += removal(neighbour.seat, neighbour.receiver.hashes)
        state.draft.urgent = True

        def rejected(reason: str, now: Now) -> None:  # noqa: ARG001
            neighbour.leaving = False

        state.draft.committed.append(lambda later: self._gone(neighbour, later))
        state.draft.rejected.append(rejected)

    def _gone(self, neighbour: Neighbour, now: Now) -> None:
        """A neighbour is gone for good: nobody waits for it any more."""
        state = self._state
        if state.neighbours.get(neighbour.peer) is not neighbour:
            return
        neighbour.leaving = True
        for connection in (neighbour.connection, neighbour.dialling):
            if connection is not None:
                self._close(connection, "detached", f"{self.reach.name} has detached this link", now)
        del state.neighbours[neighbour.peer]
        neighbour.rows.end()
        state.dirty_lanes.pop(neighbour.lane, None)
        self.sending.behind.pop(neighbour.peer, None)
        for change in neighbour.sender.give_up():
            change.completed(neighbour.peer)
        self.reach.detach(neighbour.peer)
        self.tell(self._table.detach(neighbour.peer))
        self._gossip()
        self._announcing.links_changed()

    def begun(self, neighbour: Neighbour, connection: Connection, peer_log: str, got: int, known: bool) -> None:
        """A session begins. `got` is what the neighbour has of our log, if it knows this log (`known`)."""
        state = self._state
        connection.link = neighbour
        if neighbour.peer_log != peer_log:
            self._new_log(neighbour, peer_log)
        neighbour.begin(connection)
        if neighbour.peer not in self.reach.names():
            self.reach.meet(neighbour.peer)
            self._gossip(neighbour.peer)
        neighbour.lane.resume(got if known else 0)
        self.sending.behind[neighbour.peer] = None
        neighbour.sender.begin()
        for have in neighbour.receiver.begin():
            state.out.send(connection.id, have)
        state.out.send(connection.id, LinkReach(self.reach.brokers(neighbour.peer)))
        self._announcing.links_changed()

    def _new_log(self, neighbour: Neighbour, peer_log: str) -> None:
        """Offsets of another log begin anew. A late hello of a former log does no harm: what it had is remembered."""
        old, got = neighbour.peer_log, neighbour.got
        known = neighbour.former_logs.pop(peer_log, 0)
        if old:
            neighbour.former_logs[old] = got
        neighbour.peer_log, neighbour.got, neighbour.received = peer_log, known, known
        self._state.draft.changes.append(neighbour.row())

        def rejected(reason: str, now: Now) -> None:
            neighbour.former_logs.pop(old, None)
            if known:
                neighbour.former_logs[peer_log] = known
            neighbour.peer_log, neighbour.got, neighbour.received = old, got, got
            if neighbour.connection is not None:
                self._close(neighbour.connection, "full", reason, now)

        self._state.draft.rejected.append(rejected)

    def ended(self, neighbour: Neighbour, reason: str) -> None:
        """A session is over."""
        neighbour.end(reason)
        rows = neighbour.receiver.take_rows()
        if rows and not neighbour.leaving:
            neighbour.rows.put(rows)
        self.sending.behind.pop(neighbour.peer, None)
        self._announcing.links_changed()

    def _gossip(self, but: Link | None = None) -> None:
        """Tell neighbours which brokers there are."""
        for peer, neighbour in self._state.neighbours.items():
            if peer != but and neighbour.connection is not None:
                self._state.out.send(neighbour.connection.id, LinkReach(self.reach.brokers(peer)))

    def reached(self, neighbour: Neighbour, message: LinkReach) -> None:
        """A neighbour says which brokers are behind it. Raises RemoteProtocolError for a cycle."""
        if self.reach.learn(neighbour.peer, message.brokers):
            self._gossip(neighbour.peer)

    def relay(self, message: LinkRelay, now: Now) -> bool:
        """Hand something on to the next broker on its way, or to whom it is for here; whether that was possible."""
        if message.destination == self.reach.name:
            if message.kind is RelayKind.DRIVER:
                self._state.out.relayed(Relayed(message.source, message.body))
            else:
                self.explain(message, now)
            return True
        hop = self.reach.next_hop(message.destination)
        neighbour = None if hop is None else self._state.neighbours[hop]
        if neighbour is None or not neighbour.warm or neighbour.sender.resyncing or message.hops >= MOST_HOPS:
            self._state.counts["relays dropped"] += 1
            return False
        on = msgspec.structs.replace(message, hops=message.hops + 1)
        neighbour.sender.relay(self._state.upcoming, on)
        self.sending.behind[neighbour.peer] = None
        return True

    # -- what is told ---------------------------------------------------------------------------------

    def tell(self, tells: Sequence[Tell]) -> None:
        """The table wants neighbours to know something."""
        state = self._state
        for tell in tells:
            neighbour = state.neighbours.get(tell.link)
            if neighbour is not None:
                neighbour.sender.tell(tell.update, self._told_behind(neighbour))

    def _told_behind(self, neighbour: Neighbour) -> Offset:
        """Below: the events that a neighbour must have before it hears that an advertisement is gone.

        A cold one has not completed any advertisement, so that nobody was promised that its events arrive; and events
        for it wait until it has told everything, for which it may in turn wait for us.
        """
        return self._state.upcoming if neighbour.warm else Offset(0)

    def resync(self, neighbour: Neighbour) -> None:
        """Compare everything that a neighbour should know with what it holds."""
        self._state.counts["resyncs"] += 1
        neighbour.sender.resync(self._told_behind(neighbour))
        if self._table.codec.noted:
            self.tell(self._table.attach(neighbour.peer, neighbour.role))

    def _mark(self, link: Link, change: PendingChange) -> None:
        self._state.neighbours[link].sender.mark(change)

    # -- a turn of table work -------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether there is more to do at once."""
        if not self._state.neighbours:
            return False
        if self._table.pending or any(each.has_frames for each in self._state.neighbours.values()):
            return True
        there = (self._state.neighbours[peer].connection for peer in self.sending.behind)
        return any(each is not None and not each.paused for each in there)

    def work(self, steps: int) -> Neighbour | None:
        """Let the table learn a few items and continue what is pending. Returns a neighbour whose frame is learnt.

        Raises RemoteProtocolError, with the neighbour as its second argument.
        """
        neighbours = [each for each in self._state.neighbours.values() if each.has_frames]
        if self._table.pending:
            self.tell(self._table.step(steps))
            self._settings.keep()
        if not neighbours:
            return None
        self._turn += 1
        return neighbours[self._turn % len(neighbours)]

    def learn(self, neighbour: Neighbour) -> None:
        """Learn a few items of a neighbour. Raises RemoteProtocolError."""
        tells, frame = neighbour.receiver.work()
        self.tell(tells)
        if frame is not None:
            rows = neighbour.receiver.take_rows()
            source = neighbour.peer
            if frame.resynced and not neighbour.warm:
                neighbour.warm = True
                rows = [*rows, neighbour.row()]
                self.sending.behind[neighbour.peer] = None

            def completed(_: Now) -> None:
                frame.complete = True
                neighbour.receiver.advance()

            self._state.completion.begin(source, frame.about, completed)

            def stored() -> None:
                frame.stored = True
                neighbour.receiver.advance()

            neighbour.rows.put(rows, stored)
        self._settings.keep()

    def improve(self) -> None:
        """Let a table that has nothing to do tell the same in fewer items."""
        if not self._table.pending:
            self.tell(self._table.step(self._state.limits.slice))
            self._settings.keep()

    def retune(self, space: LabelSpace) -> None:
        """Change the label space of the network. Raises LocalProtocolError."""
        if not isinstance(self._table, Tunable):
            raise LocalProtocolError(f"a table of {self._table.model} has no label space; there is nothing to re-tune")
        self.tell(self._table.retune(space))
        self._settings.keep()

    # -- the end of a call ----------------------------------------------------------------------------

    def flush(self, now: Now) -> None:
        """Send what may be sent."""
        state = self._state
        while True:
            state.completion.settle()
            for neighbour in state.neighbours.values():
                if neighbour.sender.overflown:
                    state.counts["control queues overflown"] += 1
                    self.resync(neighbour)
            if state.completion.finished:
                finished, state.completion.finished = state.completion.finished, []
                for change in finished:
                    change.done(now)
            for neighbour in state.neighbours.values():
                self._send(neighbour)
            if not state.completion.finished:
                return

    def _send(self, neighbour: Neighbour) -> None:
        connection = neighbour.connection
        if connection is None:
            return
        out = self._state.out
        progress = neighbour.progress()
        if progress is not None:
            out.send(connection.id, progress)
        if connection.paused:
            return
        if neighbour.peer in self.sending.behind:
            del self.sending.behind[neighbour.peer]
            if neighbour.warm:
                self.sending.pump(neighbour, connection)
        if not self._settings.stored:
            return
        cursor = neighbour.lane.cursor
        reached = cursor if cursor < self._state.next else Offset(NEVER)  # also if what was to be stored was refused
        for frame in neighbour.sender.frames(not self._table.pending, reached, _ITEMS):
            out.send(connection.id, frame)
            if isinstance(frame, LinkUpdate):
                self._state.counts["link items told"] += len(frame.ids)
                self._state.counts["link items withdrawn"] += len(frame.drop)
        if neighbour.sender.more:
            self.sending.behind[neighbour.peer] = None
