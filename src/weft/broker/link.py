"""One neighbouring broker. Law: a neighbour outlives its connections; what it told, what it has of our events and what
we have of its events are stored.
"""

from __future__ import annotations

import msgspec

from weft.broker.limits import ClientLimits
from weft.broker.link_control import ControlSender
from weft.broker.link_events import EventLane
from weft.broker.link_hearing import ControlReceiver
from weft.broker.link_messages import LinkProgress
from weft.broker.link_rows import link_row
from weft.broker.row_lane import RowLane
from weft.broker.sessions import Connection
from weft.log.base import Offset, Put, SeatId
from weft.routing.table import Link, Role, RoutingTable


class LinkStatus(msgspec.Struct, frozen=True):
    """How a link is."""

    peer: str
    role: str
    connected: bool
    warm: bool  # False: what the neighbour wants is not known yet, and events wait for it
    resyncing: bool  # the neighbour may not know everything that it should
    waiting_control: int  # items that it is still to be told
    waiting_changes: int  # changes that are complete only when it has completed what it was told
    lag: int  # offsets that it may still have to get
    in_flight: int  # events that were sent and not acknowledged
    heard: int  # items that it has told
    reason: str  # why the last connection ended, or was refused


class Neighbour:
    """A neighbour, with its four streams."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self,
        peer: Link,
        role: Role,
        seat: SeatId,
        floor: Offset,
        table: RoutingTable,
        limits: ClientLimits,
        rows: RowLane,
    ) -> None:
        self.peer = peer
        self.role = role
        self.seat = seat
        self.warm = False
        self.peer_log = ""
        self.former_logs: dict[str, int] = {}  # that it had before a backup was restored there, and `got` of each
        self.got = 0  # the highest of its offsets whose event is stored here
        self.received = 0  # and of those on their way into the log
        self.lane = EventLane(peer, seat, floor, limits.link_events, limits.link_bytes)
        self.sender = ControlSender(peer, table.codec, limits.link_control, limits.link_frames)
        self.receiver = ControlReceiver(peer, seat, table, limits.slice, 2 * limits.link_frames)
        self.rows = rows  # what it told, on its way into the log
        self.connection: Connection | None = None  # of its session
        self.dialling: Connection | None = None  # that we have opened, and that is not answered yet
        self.seen = (0, 0)  # incarnation and epoch of its last session
        self.leaving = False
        self.reason = ""
        self.beats = 0
        self._told = LinkProgress()

    def row(self) -> Put:
        """As it is stored, after the groups that are on their way."""
        floor = Offset(self.lane.stored_floor)
        return link_row(self.seat, self.peer, self.role, self.warm, self.peer_log, self.received, floor)

    @property
    def has_frames(self) -> bool:
        """Whether there is something to learn from it."""
        return self.receiver.busy(self.got) and not self.leaving

    def begin(self, connection: Connection) -> None:
        """A session begins."""
        self.connection, self.dialling = connection, None
        self.reason = ""
        self.beats = 0
        self._told = LinkProgress(Offset(self.got))

    def end(self, reason: str) -> None:
        """The session is over."""
        self.connection = None
        self.reason = reason
        self.lane.end()
        self.sender.end()
        self.receiver.end()

    def progress(self) -> LinkProgress | None:
        """How far we are, if the neighbour does not know it."""
        completed = self.receiver.completed
        now = LinkProgress(Offset(self.got), self.receiver.heard, (completed[0], completed[1]))
        if now == self._told:
            return None
        self._told = now
        return now

    def status(self, end: Offset) -> LinkStatus:
        """How it is."""
        return LinkStatus(
            self.peer,
            self.role.value,
            self.connection is not None,
            self.warm,
            self.sender.resyncing,
            self.sender.waiting,
            self.sender.waiting_changes,
            end - self.lane.floor,
            self.lane.in_flight,
            sum(map(len, self.receiver.hashes)),
            self.reason,
        )
