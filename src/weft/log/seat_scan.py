"""Who gets which events, without their bodies. Law: no event that a seat gets is passed over.

>>> from weft.log.base import Events
>>> from weft.log.group_codec import encode_group
>>> starts, seats = np.array([0, 1, 2, 2], np.uint32), np.array([7, 8], np.uint32)
>>> row = encode_group(0, Events(Offset(10), np.zeros((3, 3), np.int64), [b""] * 3, [b""] * 3, starts, seats), 0)
>>> scan = SeatScan(np.array([8], np.uint32), Offset(1), limit=100)
>>> scan.look(row.who)
>>> scan.ended, scan.next
(True, 11)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.log.base import Offset
from weft.log.group_codec import SeatsRow, check_seats
from weft.log.seat_set import SeatSet


class SeatScan:
    """A search for the first event that any of some seats gets, group by group.

    `next` is where it goes on, and, once it has ended, its answer.
    """

    def __init__(self, seats: NDArray[np.uint32], first: Offset, limit: int) -> None:
        self.next = first
        self.ended = limit <= 0
        self._seats = SeatSet(seats)
        self._left = limit

    def look(self, row: SeatsRow) -> None:
        """Look at a group, the first that ends after `next`; once ended, nothing happens. Raises LogError."""
        if self.ended:
            return
        starts, seats = check_seats(row)
        begin = max(0, self.next - row.first)
        end = min(row.n, begin + self._left)
        low, high = int(starts[begin]), int(starts[end])
        wanted = self._seats.places(seats[low:high])
        if len(wanted):
            event = int(np.searchsorted(starts, low + int(wanted[0]), side="right")) - 1
            self.next, self.ended = Offset(row.first + event), True
            return
        self._left -= end - begin
        self.next = Offset(row.first + end)
        self.ended = self._left <= 0
