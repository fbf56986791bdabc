"""The events of a group as four byte strings and one checksum. Law: bytes that are not such a group raise LogError.

Numbers are little-endian. `heads` and `payloads` are n lengths (u32) and then the bytes of all, one after another;
`seats` is n + 1 starts (u32) and then the seats of all events (u32); `origins` is three i64 per event. The checksum is
CRC-32 of the four and of the numbers that stand beside them.
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
    crc: int
    seats: bytes
    origins: bytes
    heads: bytes
    payloads: bytes

    @property
    def size(self) -> int:
        """The bytes of its events."""
        return len(self.seats) + len(self.origins) + len(self.heads) + len(self.payloads)


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
    crc = _checksum(_NUMBERS.pack(events.first, number, at, total), seats, origins, heads, payloads)
    return GroupRow(events.first, number, at, total, crc, seats, origins, heads, payloads)


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
    first, number, at, total, crc, seats, origins, heads, payloads = row
    try:
        found = _checksum(_NUMBERS.pack(first, number, at, total), seats, origins, heads, payloads)
        if found != crc:
            raise _damaged(first, "its checksum is wrong")
        if first < 1 or number < 1 or len(origins) != 24 * number or len(seats) < 4 * (number + 1) or len(seats) % 4:
            raise _damaged(first, "its columns are not equally long")
        csr = np.frombuffer(seats, "<u4").astype(np.uint32, copy=False)
        starts, ids = csr[: number + 1], csr[number + 1 :]
        if starts[0] != 0 or starts[-1] != len(ids) or (starts[1:] < starts[:-1]).any():
            raise _damaged(first, "its seats are out of bounds")
        return GroupParts(starts, ids, _lengths(first, number, heads), _lengths(first, number, payloads))
    except (TypeError, ValueError, OverflowError, struct_error) as error:
        raise _damaged(first, str(error)) from None


def _checksum(numbers: bytes, *columns: bytes) -> int:
    crc = crc32(numbers)
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
