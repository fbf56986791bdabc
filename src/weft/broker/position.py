"""How far a queue is: its floor, acknowledged ranges above it, failures, and what it has lost.

Law: decode(encode(position)) is the position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from weft.broker.messages import Range
from weft.log.base import Offset

_encode = msgspec.msgpack.Encoder().encode
_gaps = msgspec.msgpack.Decoder(list[int])
_failures = msgspec.msgpack.Decoder(dict[int, int])


class Position(NamedTuple):
    """What a queue has done with: everything below the floor, and the ranges; and how often what is left has failed."""

    floor: Offset
    above: list[Range]
    failures: dict[int, int]
    gap: Range | None = None  # lost to the queue, and the client may not know it

    def encode(self) -> tuple[Offset, bytes, bytes]:
        """The floor, and the rest as bytes; nothing takes no bytes.

        >>> position = Position(Offset(5), [(Offset(7), Offset(9))], {6: 1}, (Offset(2), Offset(4)))
        >>> Position.decode(*position.encode()) == position
        True
        """
        steps: list[int] = []
        last = int(self.floor)
        for first, end in self.above:
            steps += (first - last, end - first)
            last = end
        failures = dict(sorted(self.failures.items()))
        if self.gap is not None:
            failures[-self.gap[0]] = self.gap[1]  # no event has a negative offset
        return self.floor, _encode(steps) if steps else b"", _encode(failures) if failures else b""

    @staticmethod
    def decode(floor: Offset, above: bytes, attempts: bytes) -> Position:
        """The position that was stored."""
        ranges: list[Range] = []
        steps = _gaps.decode(above) if above else []
        last = int(floor)
        for skip, length in zip(steps[::2], steps[1::2], strict=True):
            ranges.append((Offset(last + skip), Offset(last + skip + length)))
            last += skip + length
        failures = _failures.decode(attempts) if attempts else {}
        gaps = [offset for offset in failures if offset < 0]
        gap = (Offset(-gaps[0]), Offset(failures.pop(gaps[0]))) if gaps else None
        return Position(floor, ranges, failures, gap)


def complement(opened: Iterable[int], floor: int, end: int) -> list[Range]:
    """The ranges between the open offsets, from the floor to the end.

    >>> complement([5, 6, 9], 5, 12)
    [(7, 9), (10, 12)]
    """
    ranges: list[Range] = []
    last = floor
    for offset in opened:
        if offset > last:
            ranges.append((Offset(last), Offset(offset)))
        last = offset + 1
    if last < end:
        ranges.append((Offset(last), Offset(end)))
    return ranges
