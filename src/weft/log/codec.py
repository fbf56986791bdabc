"""Groups of events as byte strings with checksums, and how they are read back.

Bytes that are not such a group raise LogError. Numbers are little-endian. `heads` and `payloads` are n lengths (u32)
and then the bytes of all, one after another; `seats` is n + 1 starts (u32) and then the seats of all events (u32);
`origins` is three i64 per event. There are two checksums (CRC-32): one of the seats and the numbers that stand beside
them, and one that continues it over the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from weft.errors import LogError
from weft.log.base import Events, Offset, SeatColumn, StoredGroup

MOST_BYTES = 1 << 29  # of one group; SQLite refuses a blob of 1e9
_NUMBERS = Struct("<qqqq")
_TABLE = 1 << 22  # from the lowest to the highest seat: up to here there is a table, beyond it a sorted list


class GroupRow(NamedTuple):
    """A group as it is stored; the columns of the table `grp`, in order."""

    first: int
    n: int
    at: int
    total: int  # bytes of all groups that were ever stored, this one included
    crc: int  # of the numbers above and the seats
    body_crc: int  # of all that and the columns after the seats
    seats: bytes
    origins: bytes
    heads: bytes
    payloads: bytes

    @property
    def size(self) -> int:
        """The bytes of its events."""
        return len(self.seats) + len(self.origins) + len(self.heads) + len(self.payloads)


COLUMNS = ", ".join(GroupRow._fields)
SEATS_ONLY = "first, n, at, total, crc, 0, seats, x'', x'', x''"  # enough for `check_seats`


def encode_group(at: int, events: Events, total: int) -> GroupRow:
    """The row of a group, where `total` bytes were stored before it. Raises LogError.

    The events keep the rules of `base.check_groups`. Cost: about .3 microseconds an event.
    """
    number = len(events.heads)
    try:
        heads, payloads = _joined(events.heads), _joined(events.payloads)
    except TypeError:
        raise LogError("the heads and payloads of events are bytes") from None
    seats = events.starts.astype("<u4", copy=False).tobytes() + events.seats.astype("<u4", copy=False).tobytes()
    origins = events.origins.astype("<i8", copy=False).tobytes()
    size = len(seats) + len(origins) + len(heads) + len(payloads)
    if size > MOST_BYTES:
        raise LogError(f"a group of {size:,} bytes is larger than {MOST_BYTES:,}; commit fewer events together")
    total += size
    crc = _checksum(crc32(_NUMBERS.pack(events.first, number, at, total)), seats)
    body_crc = _checksum(crc, origins, heads, payloads)
    return GroupRow(events.first, number, at, total, crc, body_crc, seats, origins, heads, payloads)


def decode_group(row: GroupRow) -> StoredGroup:
    """The group of a row. Raises LogError if it is not whole. Cost: about .3 microseconds an event."""
    starts, seats, head_sizes, payload_sizes = check_group(row)
    heads, payloads = _split(row.heads, head_sizes), _split(row.payloads, payload_sizes)
    origins = np.frombuffer(row.origins, "<i8").astype(np.int64, copy=False).reshape(row.n, 3)
    return StoredGroup(row.at, Events(Offset(row.first), origins, heads, payloads, starts, seats))


_Numbers = NDArray[np.uint32]


def check_group(row: GroupRow) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """The starts, the seats, and the lengths of heads and payloads. Raises LogError if a row is not a whole group.

    Cost: that of a checksum, and some microseconds.
    """
    first, number, _, _, crc, body_crc, _, origins, heads, payloads = row
    starts, seats = check_seats(row)
    try:
        if _checksum(crc, origins, heads, payloads) != body_crc:
            raise _damaged(first, "its checksum is wrong")
        if len(origins) != 24 * number:
            raise _damaged(first, "its columns are not equally long")
        return starts, seats, _lengths(first, number, heads), _lengths(first, number, payloads)
    except (TypeError, ValueError, OverflowError, struct_error) as error:
        raise _damaged(first, str(error)) from None


def check_seats(row: GroupRow) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The starts and the seats of a group. Raises LogError if they are not whole."""
    first, number, column = row.first, row.n, row.seats
    try:
        if _checksum(crc32(_NUMBERS.pack(first, number, row.at, row.total)), column) != row.crc:
            raise _damaged(first, "its checksum is wrong")
        if first < 1 or number < 1 or len(column) < 4 * (number + 1) or len(column) % 4:
            raise _damaged(first, "its columns are not equally long")
        csr = np.frombuffer(column, "<u4").astype(np.uint32, copy=False)
    except (TypeError, ValueError, OverflowError, struct_error) as error:
        raise _damaged(first, str(error)) from None
    starts, seats = csr[: number + 1], csr[number + 1 :]
    if starts[0] != 0 or starts[-1] != len(seats) or (starts[1:] < starts[:-1]).any():
        raise _damaged(first, "its seats are out of bounds")
    return starts, seats


def _checksum(crc: int, *columns: bytes) -> int:
    """A checksum continued."""
    for column in columns:
        crc = crc32(column, crc)
    return crc


def _joined(parts: Sequence[bytes]) -> bytes:
    lengths = np.fromiter(map(len, parts), "<u4", len(parts))
    return b"".join((lengths.tobytes(), *parts))


def _lengths(first: int, number: int, column: bytes) -> NDArray[np.uint32]:
    if len(column) < 4 * number:
        raise _damaged(first, "its events are cut off")
    lengths = np.frombuffer(column, "<u4", number)
    if 4 * number + int(lengths.sum(dtype=np.int64)) != len(column):
        raise _damaged(first, "the lengths of its events are wrong")
    return lengths.astype(np.uint32, copy=False)


def _split(column: bytes, lengths: NDArray[np.uint32]) -> list[bytes]:
    ends = accumulate(lengths.tolist(), initial=4 * len(lengths))
    return [column[begin:end] for begin, end in pairwise(ends)]


def _damaged(first: int, why: str) -> LogError:
    return LogError(f"the group at offset {first} is damaged: {why}")


def cut(group: StoredGroup, first: Offset, limit: int) -> StoredGroup:
    """The events of a group from an offset on, at most `limit`; the group itself where that is all of them.

    Each event keeps its offset, its origin and its seats. The offset lies below the group's end, and `limit` is
    positive. Cost: O(events kept).
    """
    events = group.events
    begin = max(0, first - events.first)
    end = min(len(events), begin + limit)
    if begin == 0 and end == len(events):
        return group
    low, high = int(events.starts[begin]), int(events.starts[end])
    part = Events(
        Offset(events.first + begin),
        events.origins[begin:end],
        events.heads[begin:end],
        events.payloads[begin:end],
        events.starts[begin : end + 1] - events.starts[begin],
        events.seats[low:high],
    )
    return StoredGroup(group.at, part)


class SeatSet:
    """Seats, in any order. Cost: O(seats), and O(highest - lowest) bytes where that is little."""

    __slots__ = ("_lowest", "_sorted", "_table")

    def __init__(self, seats: NDArray[np.uint32], table: int = _TABLE) -> None:
        self._lowest = seats.min(initial=2**32 - 1)
        span = int(seats.max(initial=0)) - int(self._lowest) + 1
        self._table: NDArray[np.bool_] | None = None
        if span <= table:
            self._table = np.zeros(max(0, span) + 1, bool)  # the last place is for all seats beyond
            self._table[seats - self._lowest] = True
        else:
            self._sorted = np.sort(seats)

    def places(self, column: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Where a column has one of the seats, in order. Cost: some nanoseconds for each row of the column."""
        if self._table is not None:
            beyond = np.uint32(len(self._table) - 1)
            return np.flatnonzero(self._table[np.minimum(column - self._lowest, beyond)])  # lower seats wrap around
        found = np.minimum(np.searchsorted(self._sorted, column), len(self._sorted) - 1)
        return np.flatnonzero(self._sorted[found] == column)


class SeatOwners:
    """The queue or link to which each seat belongs, by its own seat."""

    def __init__(self, owners: Mapping[int, int]) -> None:
        self._seats = np.fromiter(owners, np.int64, len(owners))
        self._owners = np.fromiter(owners.values(), np.int64, len(owners))
        order = np.argsort(self._seats)
        self._seats, self._owners = self._seats[order], self._owners[order]

    def own(self, column: SeatColumn) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The offsets that each owner gets, ascending and each once. Cost: some 50 nanoseconds a seat."""
        if not len(self._seats) or not len(column.seats):
            return
        at = np.minimum(np.searchsorted(self._seats, column.seats), len(self._seats) - 1)
        known = np.flatnonzero(self._seats[at] == column.seats)
        owners = self._owners[at[known]]
        events = np.searchsorted(column.starts, known, side="right") - 1
        order = np.lexsort((events, owners))
        owners, offsets = owners[order], events[order] + np.int64(column.first)
        once = np.ones(len(order), bool)
        once[1:] = (owners[1:] != owners[:-1]) | (offsets[1:] != offsets[:-1])
        owners, offsets = owners[once], offsets[once]
        ends = [*np.flatnonzero(owners[1:] != owners[:-1]) + 1, len(owners)] if len(owners) else []
        for begin, end in pairwise([0, *ends]):
            yield int(owners[begin]), offsets[begin:end]


def open_offsets(offsets: NDArray[np.int64], floor: int, above: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Those of some ascending offsets that lie at or above a floor, and in none of the ranges above it.

    >>> open_offsets(np.array([1, 4, 5, 6, 9]), 4, [(6, 8)]).tolist()
    [4, 5, 9]
    """
    opened = offsets[offsets.searchsorted(floor) :]
    for first, end in above:
        low, high = opened.searchsorted((first, end)).tolist()
        opened = np.concatenate((opened[:low], opened[high:])) if low < high else opened
    return opened


class GroupReader(ABC):
    """The reads of a log, wherever its groups are."""

    @abstractmethod
    def _fetch(self, first: Offset, limit: int) -> Sequence[GroupRow]:
        """Some groups, in order, from the one with the first event from an offset on: not many for few events."""

    @abstractmethod
    def _fetch_seats(self, first: Offset) -> tuple[Sequence[GroupRow], Offset]:
        """Some groups from there on, perhaps with nothing but their seats, and the next offset."""

    def read(self, first: Offset, limit: int) -> Iterator[StoredGroup]:
        """The stored events from offset `first` on, at most `limit` of them, whole or cut groups, in order."""
        while limit > 0 and (rows := self._fetch(first, limit)):
            for row in rows:
                if limit <= 0:
                    return
                group = cut(decode_group(row), first, limit)
                limit -= len(group.events)
                first = Offset(group.events.first + len(group.events))
                yield group

    def seek(self, seats: NDArray[np.uint32], first: Offset, limit: int) -> Offset:
        """The first offset from `first` on of an event that any of these seats gets, or where to go on.

        Only the seats are read. Cost: .1 to .3 microseconds for an event with 10 seats.
        """
        wanted, after = SeatSet(seats), first
        for column in self.seats(first, limit):
            found = wanted.places(column.seats)
            if len(found):
                return Offset(column.first + int(np.searchsorted(column.starts, int(found[0]), side="right")) - 1)
            after = column.end
            limit -= len(column.starts) - 1
        return after if limit <= 0 else self._fetch_seats(after)[1]

    def seats(self, first: Offset, limit: int) -> Iterator[SeatColumn]:
        """The seats of the stored events from offset `first` on, at most `limit` of them, in order."""
        while limit > 0 and (rows := self._fetch_seats(first)[0]):
            for row in rows:
                if limit <= 0:
                    return
                starts, column = check_seats(row)
                begin = max(0, first - row.first)
                end = min(row.n, begin + limit)
                limit -= end - begin
                first = Offset(row.first + end)
                part = column[int(starts[begin]) : int(starts[end])]
                yield SeatColumn(Offset(row.first + begin), starts[begin : end + 1] - starts[begin], part)
