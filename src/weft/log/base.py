"""The durable log: its rows, its groups and its interface.

Law: after `commit` returns, every group given to it survives a crash, whole.

A group is a run of events together with every change of state that belongs to it: new subscriptions, floors that moved,
what a neighbour told. A group is stored completely or not at all. Groups are stored in the order in which they are
given, and the offsets of their events ascend; an offset is never given to two events, but offsets may be skipped.

A log has one writer. `commit`, `trim` and `close` are called by that writer only; `read`, `find`, `find_size` and
`dead` see what was committed, and may be called from other threads. After a LogFailedError a log refuses everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NewType, Protocol

import msgspec
import numpy as np
from msgspec.structs import astuple, fields
from numpy.typing import NDArray

from weft.errors import LogError

Offset = NewType("Offset", int)  # of an event in this log; ascending, from 1
SeatId = NewType("SeatId", int)  # a durable subscription, a shared name or a link; 32 bits, never reused
SessionId = NewType("SessionId", int)  # 63 random bits: the same session has the same id at every broker

NEVER = (1 << 63) - 1  # an expiry that never comes


class Events(msgspec.Struct, frozen=True):
    """The events of one group, as columns: event i has offset first + i, and the seats ids[starts[i]:starts[i + 1]]."""

    first: Offset
    origins: NDArray[np.int64]  # (n, 3): publisher session, publisher epoch, sequence
    heads: Sequence[bytes]  # attributes and what else is not payload, as the codec wrote them
    payloads: Sequence[bytes]
    starts: NDArray[np.uint32]  # (n + 1)
    seats: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.heads)


class SessionRow(msgspec.Struct, frozen=True):
    """A session that outlives its connection."""

    id: SessionId
    name: str
    owner: str  # the principal that created it; nobody else may take it over
    epoch: int  # of the connection: a newer one fences the older
    pub_epoch: int
    pub_seq: int  # the highest sequence of pub_epoch that is in the log
    expires: int = NEVER  # UTC microseconds


class SubRow(msgspec.Struct, frozen=True):
    """A durable subscription, or a shared name."""

    seat: SeatId
    session: SessionId
    number: int  # the client's own number for it
    filter: str
    options: bytes
    since: Offset  # events from here on belong to it
    floor: Offset  # everything below is acknowledged; NEVER: it has no floor of its own, but shares its queue's
    above: bytes = b""  # acknowledged ranges above the floor
    attempts: bytes = b""


class AdvertRow(msgspec.Struct, frozen=True):
    """An advertisement of a durable session."""

    id: int
    session: SessionId
    filter: str


class LinkRow(msgspec.Struct, frozen=True):
    """A link to a neighbouring broker."""

    seat: SeatId
    peer: str
    role: str
    peer_log: str
    got: int  # the highest of the peer's offsets that is in this log
    floor: Offset
    lane: int = 0  # of the events that it carries; a link has one lane for now


class HeardRow(msgspec.Struct, frozen=True):
    """One item that a neighbour told, in one of the tables of the link."""

    link: SeatId
    about: int
    item: int
    body: bytes
    table: int = 0


class DeadRow(msgspec.Struct, frozen=True):
    """An event that a subscriber could not handle, with its body."""

    seat: SeatId
    offset: Offset
    attempts: int
    reason: str
    at: int
    body: bytes


class MoveRow(msgspec.Struct, frozen=True):
    """One side of a session's move from one broker to another; `weft.broker.moves` gives it its meaning."""

    session: SessionId
    side: int
    epoch: int  # under which the session moves
    peer: str  # the broker at the other end
    start: int  # the end of the old broker's log when it described the session
    cut: int  # the session has what the old broker stored below
    got: int  # how much of that the new broker has stored
    body: bytes


class ProfileRow(msgspec.Struct, frozen=True):
    """A profile that a session has published here, and that has not ended."""

    id: int
    session: SessionId
    name: str  # the publisher's id of it
    region: str
    version: int  # a higher one replaces a lower one
    expires: int  # UTC microseconds
    token: int  # of the request that published it: the same request again changes nothing
    payload: bytes


class ShownRow(msgspec.Struct, frozen=True):
    """A profile that a subscription was shown, and whose end it was not."""

    seat: SeatId
    profile: int  # a hash of source and name
    source: str
    name: str
    version: int
    expires: int
    filter: int = 0  # a hash of the filter with which the subscription met the profile last; 0: not known


Row = SessionRow | SubRow | AdvertRow | LinkRow | HeardRow | DeadRow | MoveRow | ProfileRow | ShownRow


class Put(msgspec.Struct, frozen=True):
    """Store the row, in place of the one with the same key if there is one."""

    row: Row


class Remove(msgspec.Struct, frozen=True):
    """Remove the row of this type with this key, and nothing else; nothing happens if there is none."""

    table: type[Row]
    key: tuple[Any, ...]  # the fields of the primary key, in order


class MoveFloor(msgspec.Struct, frozen=True):
    """What a seat has acknowledged: its SubRow or LinkRow otherwise stays as it is. Without a row nothing happens."""

    seat: SeatId
    floor: Offset
    above: bytes = b""
    attempts: bytes = b""


class MovePublisher(msgspec.Struct, frozen=True):
    """How far a publisher is: its SessionRow otherwise stays as it is. Without a row nothing happens."""

    session: SessionId
    pub_epoch: int
    pub_seq: int


class MoveGot(msgspec.Struct, frozen=True):
    """How much of a peer's log is here: its LinkRow otherwise stays as it is. Without a row nothing happens."""

    link: SeatId
    got: int


class SetMeta(msgspec.Struct, frozen=True):
    """Store one entry of the log's description. Keys that begin with "weft." belong to the log itself."""

    key: str
    value: bytes


StateChange = Put | Remove | MoveFloor | MovePublisher | MoveGot | SetMeta


class Group(msgspec.Struct, frozen=True):
    """Events and changes of state that are stored together or not at all. `at` never decreases (UTC microseconds)."""

    at: int
    events: Events | None = None
    changes: tuple[StateChange, ...] = ()


class StoredGroup(msgspec.Struct, frozen=True):
    """Events as they are read back."""

    at: int
    events: Events


class SeatColumn(NamedTuple):
    """Who gets the events from an offset on: event i has the seats seats[starts[i]:starts[i + 1]]."""

    first: Offset
    starts: NDArray[np.uint32]
    seats: NDArray[np.uint32]

    @property
    def end(self) -> Offset:
        """The offset after the last event."""
        return Offset(self.first + len(self.starts) - 1)


class State(msgspec.Struct):
    """Everything a log holds but its events, as it was after the last group."""

    log_id: str
    incarnation: int
    meta: dict[str, bytes]
    sessions: dict[SessionId, SessionRow]
    subs: dict[SeatId, SubRow]
    adverts: dict[int, AdvertRow]
    links: dict[SeatId, LinkRow]
    heard: dict[tuple[SeatId, int, int, int], HeardRow]  # by link, kind, item and table
    dead: dict[SeatId, int]  # how many dead letters a seat has
    first: Offset  # of the oldest event that is kept, or next
    next: Offset  # the offset after the last one ever used
    next_seat: SeatId  # above every seat that was ever used
    at: int  # of the last group
    moves: dict[tuple[SessionId, int, int], MoveRow] = {}  # by session, side and epoch
    profiles: dict[int, ProfileRow] = {}
    shown: dict[tuple[SeatId, int], ShownRow] = {}  # by subscription and profile


# -- rules that a group must keep to be stored: both logs check the same ones ------------------------

KEYS: dict[type[Row], tuple[str, ...]] = {
    SessionRow: ("id",),
    SubRow: ("seat",),
    AdvertRow: ("id",),
    LinkRow: ("seat",),
    HeardRow: ("link", "about", "item", "table"),
    DeadRow: ("seat", "offset"),
    MoveRow: ("session", "side", "epoch"),
    ProfileRow: ("id",),
    ShownRow: ("seat", "profile"),
}
RESERVED = "weft."  # keys of meta that begin so belong to the log itself
MOST_SEATS = (1 << 32) - 1
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_CHANGES = (MoveFloor, MovePublisher, MoveGot, SetMeta)


_KINDS: dict[type, tuple[type, ...]] = {  # the plain types of fields
    each: tuple(getattr(field.type, "__supertype__", field.type) for field in fields(each))
    for each in (*KEYS, *_CHANGES)
}


class Tip(NamedTuple):
    """Where a log ends."""

    next: Offset  # the offset after the last one ever used
    at: int  # of the last group
    next_seat: SeatId  # above every seat that was ever used


EMPTY = Tip(Offset(1), 0, SeatId(1))


def check_groups(groups: Sequence[Group], tip: Tip) -> Tip:
    """The tip after these groups. Raises LogError if they do not follow it, or contain what no log can hold.

    Cost: a few microseconds a group with events, one for each change.
    """
    after, at, next_seat = tip
    for group in groups:
        if type(group.at) is not int or not 0 <= group.at <= _INT_MAX:
            raise LogError(f"the time of a group is a number of microseconds since 1970, not {group.at!r}")
        if group.at < at:
            raise LogError(f"a group has the time {group.at}, which lies before the last group's, {at}")
        at = group.at
        if group.events is not None:
            _check_events(group.events, after)
            after = Offset(group.events.first + len(group.events.heads))
            if len(group.events.seats):
                next_seat = max(next_seat, SeatId(int(group.events.seats.max()) + 1))
        for change in group.changes:
            next_seat = max(next_seat, _check_change(change))
    return Tip(after, at, next_seat)


def _check_events(events: Events, after: Offset) -> None:
    number = len(events.heads)
    if not number:
        raise LogError("a group has an empty list of events; for a group of changes only, pass events=None")
    if type(events.first) is not int or not after <= events.first <= _INT_MAX - number:
        raise LogError(f"events begin at offset {events.first}, but the next offset is {after}")
    if len(events.payloads) != number:
        raise LogError(f"{number} events have {len(events.payloads)} payloads")
    starts, seats = events.starts, events.seats
    if events.origins.shape != (number, 3) or events.origins.dtype != np.int64:
        raise LogError("origins must be an int64 array of shape (events, 3)")
    if starts.shape != (number + 1,) or starts.dtype != np.uint32 or seats.ndim != 1 or seats.dtype != np.uint32:
        raise LogError("starts and seats must be uint32 arrays, starts with one entry more than there are events")
    if starts[0] != 0 or starts[-1] != len(seats) or (starts[1:] < starts[:-1]).any():
        raise LogError("starts must increase from 0 to the number of seats")


def _check_change(change: StateChange) -> SeatId:
    """The seat after those that the change names."""
    if isinstance(change, Put):
        _check_fields(change.row)
        if isinstance(change.row, SubRow | LinkRow):
            if not 1 <= change.row.seat <= MOST_SEATS:
                raise LogError(f"a seat is a number from 1 to {MOST_SEATS}, not {change.row.seat}")
            return SeatId(change.row.seat + 1)
    elif isinstance(change, Remove):
        names = KEYS.get(change.table)
        if names is None or type(change.key) is not tuple or len(change.key) != len(names):
            raise LogError(f"{change!r} does not name a table and its key")
        if any(type(part) is not int or not _INT_MIN <= part <= _INT_MAX for part in change.key):
            raise LogError(f"a key consists of 64-bit integers, not {change.key!r}")
    else:
        _check_fields(change)
        if isinstance(change, SetMeta) and change.key.startswith(RESERVED):
            raise LogError(f"the key {change.key!r} belongs to the log itself; choose one that is not {RESERVED}*")
    return SeatId(0)


def _check_fields(row: Any) -> None:
    """Raise LogError if a field is not of its type, or beyond what can be stored."""
    kinds = _KINDS.get(type(row))
    if kinds is None:
        raise LogError(f"{row!r} is not a row or a change of state")
    values: tuple[Any, ...] = astuple(row)
    for kind, value in zip(kinds, values, strict=True):
        found: type = type(value)
        if found is not kind:
            raise LogError(f"{value!r} in a {type(row).__name__} is not of the type {kind.__name__}")
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                raise LogError(f"{value} in a {type(row).__name__} is beyond 64 bits")
        elif kind is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise LogError(f"a text in a {type(row).__name__} is not valid Unicode") from None


class Log(Protocol):
    """A durable log. `weft.log.sqlite.SqliteLog` is the one on disk, `weft.log.memory.MemoryLog` its twin for tests."""

    def restore(self) -> State:
        """The state after the last group that was committed. Cost: linear in the rows, not in the events."""

    def commit(self, groups: Sequence[Group]) -> None:
        """Store the groups, in order, in one transaction. On return they are durable.

        Raises LogError when a group breaks a rule (see `check_groups`): nothing is stored, and the log can go on.
        Raises LogFullError when the quota or the disk is full: nothing is stored, and the log can go on. At the quota
        only groups with events are refused, so that acknowledgements still free space.
        Raises LogFailedError when it is unknown what is stored: the process must end and recover.
        """

    def checkpoint(self) -> None:
        """Do work that a later commit would have to do as well. The committer calls it between commits.

        Raises LogFailedError as `commit` does. A log that is committed to without it only has slower commits.
        """

    def read(self, first: Offset, limit: int) -> Iterator[StoredGroup]:
        """The stored events from offset `first` on, at most `limit` of them, whole or cut groups, in order."""

    def find(self, at: int) -> Offset:
        """The offset of the first event whose group has this time or a later one, or the next offset."""

    def find_size(self, size: int) -> Offset:
        """The lowest offset from which on the events take at most `size` bytes, at the start of a group."""

    def seek(self, seats: NDArray[np.uint32], first: Offset, limit: int) -> Offset:
        """The first offset from `first` on of an event that any of these seats gets.

        At most `limit` events are looked at. If none of them is wanted it is the offset after them; if there are fewer,
        the next offset. It is much cheaper than `read`, so a reader that gets few of many events seeks first.
        """

    def seats(self, first: Offset, limit: int) -> Iterator[SeatColumn]:
        """The seats of the stored events from offset `first` on, at most `limit` of them, in order."""

    def dead(self, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
        """Dead letters of a seat above an offset, by offset."""

    def size(self) -> int:
        """The bytes that it takes."""

    def trim(self, below: Offset, most: int = 100) -> int:
        """Remove whole groups all of whose events lie below an offset, at most `most` groups, the oldest first.

        Returns how many events were removed: call it again until that is 0. Offsets are not used again.
        """

    def close(self) -> None:
        """Mark a clean stop and release the log."""
