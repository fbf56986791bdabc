"""The events of a group as four byte strings and two checksums. Law: bytes that are not such a group raise LogError.

Numbers are little-endian. `heads` and `payloads` are n lengths (u32) and then the bytes of all, one after another;
`seats` is n + 1 starts (u32) and then the seats of all events (u32); `origins` is three i64 per event. There are two
checksums (CRC-32): one of the seats and the numbers that stand beside them, and one that continues it over the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from weft.errors import LogError
from weft.log.base import Events, Offset, StoredGroup

MOST_BYTES = 1 << 29  # of one group; SQLite refuses a blob of 1e9
_NUMBERS = Struct("<qqqq")


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

    @property
    def who(self) -> SeatsRow:
        """The part that says who gets its events."""
        return SeatsRow(self.first, self.n, self.at, self.total, self.crc, self.seats)


class SeatsRow(NamedTuple):
    """The part of a group that says who gets its events; it is checked and read without the rest."""

    first: int
    n: int
    at: int
    total: int
    crc: int
    seats: bytes


def encode_group(at: int, events: Events, total: int) -> GroupRow:
    """The row of a group, where `total` bytes were stored before it. Raises LogError.

    The events keep the rules of `row_rules`. Cost: about .3 microseconds an event.
    """
    number = len(events)
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
    parts = check_group(row)
    heads, payloads = _split(row.heads, parts.heads), _split(row.payloads, parts.payloads)
    origins = np.frombuffer(row.origins, "<i8").astype(np.int64, copy=False).reshape(row.n, 3)
    return StoredGroup(row.at, Events(Offset(row.first), origins, heads, payloads, parts.starts, parts.seats))


class GroupParts(NamedTuple):
    """The arrays of a group that is whole."""

    starts: NDArray[np.uint32]
    seats: NDArray[np.uint32]
    heads: NDArray[np.uint32]  # lengths
    payloads: NDArray[np.uint32]


def check_group(row: GroupRow) -> GroupParts:
    """Raise LogError if a row is not a whole group. Cost: that of a checksum, and some microseconds."""
    first, number, _, _, crc, body_crc, _, origins, heads, payloads = row
    starts, seats = check_seats(row.who)
    try:
        if _checksum(crc, origins, heads, payloads) != body_crc:
            raise _damaged(first, "its checksum is wrong")
        if len(origins) != 24 * number:
            raise _damaged(first, "its columns are not equally long")
        return GroupParts(starts, seats, _lengths(first, number, heads), _lengths(first, number, payloads))
    except (TypeError, ValueError, OverflowError, struct_error) as error:
        raise _damaged(first, str(error)) from None


def check_seats(row: SeatsRow) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The starts and the seats of a group. Raises LogError if they are not whole."""
    first, number, at, total, crc, column = row
    try:
        if _checksum(crc32(_NUMBERS.pack(first, number, at, total)), column) != crc:
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
