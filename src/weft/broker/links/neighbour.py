"""One neighbouring broker, which outlives its connections, the states that a link goes through, and its stored rows.

What a neighbour sent, what it has of our events and what we have of its events are stored. A link takes two consumer
ids: its own, for events that the neighbour must have, and the next one, for events that came in while its interest was
unknown. Its row says as what the neighbour is attached, and whether it is unsynced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from weft.broker.after_commit import RowsPending, RowsSubject
from weft.broker.effects import Now, Timers
from weft.broker.journal import Journal
from weft.broker.limits import ClientLimits
from weft.broker.links.events import EventWindow
from weft.broker.links.interest_in import InterestReceiver
from weft.broker.links.interest_out import InterestSender
from weft.broker.sessions import Connection
from weft.errors import LogError
from weft.log.base import LinkRow, Offset, Put, SeatId, State, StateChange
from weft.protocol.link_messages import (
    ABOUT,
    LISTS,
    PROFILE_TABLE,
    LinkFeatures,
    LinkProgress,
    LinkRelay,
    LinkUpdate,
)
from weft.routing.table import About, Heard, Item, ItemId, Link, Role, RoutingTable, UpdateCodec

TABLE_SETTINGS = "table.settings"  # the key under which the log keeps a table's settings
_UNSYNCED = "cold "  # before the role, as it is stored
_RETRY = 1_000_000  # microseconds after which rows are stored again when the log was full


class LinkStatus(msgspec.Struct, frozen=True):
    """The state of a link, as operators see it."""

    peer: str
    role: str
    connected: bool
    warm: bool  # False: what the neighbour wants is not known yet, and events wait for it
    resyncing: bool  # the neighbour may not know everything that it should
    waiting_control: int  # items that are still to be sent to it
    waiting_changes: int  # changes that are complete only when it has completed what it was sent
    lag: int  # offsets that it may still have to get
    in_flight: int  # events that were sent and not acknowledged
    heard: int  # items received from it
    reason: str  # why the last connection ended, or was refused


class LinkState(Enum):
    """What a broker knows of a neighbour's interest. `SYNCED` outlives sessions, and is stored."""

    UNSYNCED = "unsynced"  # nothing: events wait for the neighbour, without being routed
    SYNCING = "syncing"  # a session is there, and the neighbour is sending what it wants
    SYNCED = "synced"  # all of it: events are routed when they come in
    LEAVING = "leaving"  # the neighbour is detached as soon as that is stored
    LEAVING_SYNCED = "leaving, synced"  # the same; until then events are routed


class LinkInput(Enum):
    """What changes the state of a link."""

    SESSION_BEGINS = "a session begins"
    SESSION_ENDS = "a session ends"
    RESYNCED = "the neighbour has sent all that it wants"
    DETACHED = "the neighbour is detached"
    KEPT = "the detachment could not be stored"


_S = LinkState
_NEXT_STATES = {  # by the inputs, in their order; None cannot happen
    _S.UNSYNCED: (_S.SYNCING, _S.UNSYNCED, None, _S.LEAVING, None),
    _S.SYNCING: (_S.SYNCING, _S.UNSYNCED, _S.SYNCED, _S.LEAVING, None),
    _S.SYNCED: (_S.SYNCED, _S.SYNCED, _S.SYNCED, _S.LEAVING_SYNCED, None),
    _S.LEAVING: (None, _S.LEAVING, None, _S.LEAVING, _S.UNSYNCED),  # or SYNCING, if a session is there
    _S.LEAVING_SYNCED: (None, _S.LEAVING_SYNCED, None, _S.LEAVING_SYNCED, _S.SYNCED),
}
NEXT_STATE = {
    (state, what): after
    for state, row in _NEXT_STATES.items()
    for what, after in zip(LinkInput, row, strict=True)
    if after is not None
}


class TableExchange:
    """One table of a link: the control frames in both directions."""

    def __init__(  # noqa: PLR0913, PLR0917 - as for a neighbour
        self, number: int, table: RoutingTable, peer: Link, link_id: SeatId, limits: ClientLimits, restored: bool
    ) -> None:
        self.number, self.table = number, table
        staged = number == PROFILE_TABLE
        self.sender = InterestSender(peer, table.codec, limits.link_control, limits.link_frames, staged=staged)
        self.receiver = InterestReceiver(peer, link_id, table, limits.slice, 2 * limits.link_frames, number)
        # whether all that the neighbour has is known, of advertisements and of the rest. After a restart something may
        # be missing that others behind this broker know already, and would see disappear
        self.has_adverts = self.has_all = not restored
        self._progress = LinkProgress()  # that the neighbour was sent last
        self.control_progress = (0, (0, 0))  # the frames that it has stored and completed, as it said last

    def begin(self, got: Offset) -> None:
        """A session begins."""
        self.control_progress = (0, (0, 0))
        self._progress = LinkProgress(got)
        self.sender.begin()

    def end(self) -> None:
        """The session is over."""
        self.sender.end()
        self.receiver.end()

    def progress(self, got: Offset) -> LinkProgress | None:
        """How far we are with the neighbour's frames, and its events, if it does not know."""
        completed = self.receiver.completed
        now = LinkProgress(got, self.receiver.stored, (completed[0], completed[1]))
        if now == self._progress:
            return None
        self._progress = now
        return now

    def learnt(self, frame: LinkUpdate) -> None:
        """A frame was applied."""
        if frame.resynced:
            self.has_adverts = True
            self.has_all = self.has_all or ABOUT[frame.about] is About.SUBSCRIPTIONS


class Neighbour:
    """A neighbour: its state, and a stream of events and, for each table, one of control frames in each direction."""

    def __init__(
        self,
        row: LinkRow,
        tables: Sequence[RoutingTable],
        limits: ClientLimits,
        rows: PendingRows,
        restored: bool = False,
    ) -> None:
        self.peer = peer = Link(row.peer)
        self.role, self.synced = read_role(row)
        self.state = LinkState.SYNCED if self.synced else LinkState.UNSYNCED
        self.leaving = False  # as the state says, like `synced`
        self.peer_log = row.peer_log
        self.former_logs: dict[str, int] = {}  # that it had before a backup was restored there, and `got` of each
        self.got = row.got  # the highest of its offsets whose event is stored here
        self.received = row.got  # the highest of those on their way into the log
        self.window = EventWindow(peer, row.seat, row.floor, limits.link_events, limits.link_bytes)
        self.exchanges = tuple(
            TableExchange(number, table, peer, row.seat, limits, restored) for number, table in enumerate(tables)
        )
        self.sender, self.receiver = self.exchanges[0].sender, self.exchanges[0].receiver
        self.rows = rows  # of what it sent, on their way into the log
        self.connection: Connection | None = None  # of its session
        self.dialling: Connection | None = None  # that we have opened, and that is not answered yet
        self.last_session = (0, 0)  # incarnation and epoch
        self.knows_moves = False  # as far as it has said in this session
        self.held: list[LinkRelay] = []  # messages about moves, until it has
        # the same, until it has stored the frames up to a number in the table of profiles
        self.behind_profiles: deque[tuple[int, LinkRelay]] = deque()
        self.places_wanted = self.places_asked = b""  # the space in which it wants places, and the one that it was told
        self.reason = ""  # why the last connection ended, or was refused
        self.beats = 0
        self.needs_lists = self.knows_lists = False  # in this session: whether it was sent that, and has answered
        self.told_profiles = self.knows_profiles = False  # the same
        self.lacks_profiles: int | None = None  # its incarnation that has said so

    # -- states ---------------------------------------------------------------------------------------

    def step(self, what: LinkInput) -> None:
        """Go to the next state."""
        state = NEXT_STATE[self.state, what]
        if what is LinkInput.KEPT and state is LinkState.UNSYNCED and self.connection is not None:
            state = LinkState.SYNCING
        self.state = state
        self.synced = state in (LinkState.SYNCED, LinkState.LEAVING_SYNCED)
        self.leaving = state in (LinkState.LEAVING, LinkState.LEAVING_SYNCED)

    def begin(self, connection: Connection) -> None:
        """A session begins."""
        self.step(LinkInput.SESSION_BEGINS)
        self.connection, self.dialling = connection, None
        self.reason = ""
        self.beats = 0
        self.knows_moves, self.held = False, []
        self.behind_profiles.clear()
        self.places_wanted = self.places_asked = b""
        for exchange in self.exchanges:
            exchange.begin(Offset(0 if exchange.number else self.got))
        self.needs_lists = self.knows_lists = False
        self.told_profiles = self.knows_profiles = False

    def end(self, reason: str) -> None:
        """The session is over."""
        self.step(LinkInput.SESSION_ENDS)
        self.connection = None
        self.reason = reason
        self.window.end()
        for exchange in self.exchanges:
            exchange.end()

    # -- what is stored and sent ----------------------------------------------------------------------

    def row(self) -> Put:
        """Its row in the log, after the groups that are on their way."""
        window, role = self.window, stored_role(self.role, self.synced)
        return Put(LinkRow(window.link_id, self.peer, role, self.peer_log, self.received, window.stored_below))

    @property
    def has_frames(self) -> bool:
        """Whether control frames of it wait for a table."""
        return not self.leaving and any(each.receiver.has_work(self.got) for each in self.exchanges)

    @property
    def is_learnt(self) -> bool:
        """Whether no control frame of it waits to be applied."""
        return all(each.receiver.is_idle for each in self.exchanges)

    def announce_lists(self) -> LinkFeatures:
        """What is sent before the first frame of a session that has lists, or tests them."""
        self.needs_lists = True
        return LinkFeatures((LISTS,))

    def status(self, end: Offset) -> LinkStatus:
        """Its state, as operators see it."""
        return LinkStatus(
            self.peer,
            str(self.role),
            self.connection is not None,
            self.synced,
            self.sender.resyncing,
            self.sender.waiting,
            self.sender.waiting_changes,
            end - self.window.acked_below,
            self.window.in_flight,
            sum(map(len, self.receiver.hashes)),
            self.reason,
        )


@dataclass(slots=True, eq=False)
class PendingRows:
    """Rows of a neighbour, or of the table, on their way into the log in their order; a full log stores them later."""

    _journal: Journal
    _timers: Timers
    _serial: int = 0
    _refused: dict[int, RowsPending] = field(default_factory=dict)  # and what came behind them
    ended: bool = False  # rows that were refused are stored no more

    def put(self, changes: list[StateChange], subject: RowsSubject | None = None) -> None:
        """Store rows, soon if something waits for them (`subject`); behind those that the log has refused."""
        self._serial += 1
        pending = RowsPending(self, self._serial, changes, subject)
        if self._refused:
            self._refused[pending.serial] = pending
        else:
            self._write(pending)

    def _write(self, pending: RowsPending) -> None:
        write = self._journal.write
        write.changes += pending.changes
        write.urgent = write.urgent or pending.subject is not None
        write.waiting.append(pending)

    def refused(self, pending: RowsPending, now: Now) -> None:
        """The log is full: store these rows, and those behind them, later."""
        if not self._refused:
            self._timers.add(now.monotonic + _RETRY, lambda _: self._retry())
        self._refused[pending.serial] = pending

    def _retry(self) -> None:
        refused, self._refused = self._refused, {}
        if not self.ended:
            for _, pending in sorted(refused.items()):
                self._write(pending)


def stored_role(role: Role, synced: bool = False) -> str:
    """What the neighbour is to this broker, and whether it is synced, as its row says it."""
    return ("" if synced else _UNSYNCED) + role.value


def read_role(row: LinkRow) -> tuple[Role, bool]:
    """The converse. Raises LogError."""
    try:
        return Role(row.role.removeprefix(_UNSYNCED)), not row.role.startswith(_UNSYNCED)
    except ValueError:
        raise LogError(f"the link to {row.peer!r} in the log has the unknown role {row.role!r}") from None


def received_interest(kept: State, codec: UpdateCodec, table: int = 0) -> dict[Link, Heard]:
    """What each neighbour had sent for a table before a restart. Raises RemoteProtocolError for an item that cannot be
    read.
    """
    items: dict[SeatId, tuple[dict[ItemId, Item], ...]] = {link_id: ({}, {}) for link_id in kept.links}
    for heard in kept.heard.values():
        if heard.link in items and heard.table == table:
            items[heard.link][heard.about][ItemId(heard.item)] = codec.decode_item(ABOUT[heard.about], heard.body)
    roles = {link_id: Role.PEER if table else read_role(row)[0] for link_id, row in kept.links.items()}
    return {Link(row.peer): Heard(roles[link_id], *items[link_id]) for link_id, row in kept.links.items()}
