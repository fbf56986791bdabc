"""Seats are found by table and by search alike."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from weft.log.codec import SeatSet

_SEATS = st.lists(st.integers(0, 12) | st.sampled_from([0, 2**31, 2**32 - 1]), max_size=8)


@given(_SEATS, _SEATS)
@example([5, 7], [4, 5, 6, 7, 8])
@example([3, 2**32 - 1], [2, 2**32 - 1, 0])
@example([], [1])
def test_every_seat_is_found_where_it_is_and_nowhere_else(seats: list[int], column: list[int]) -> None:
    expected = [place for place, seat in enumerate(column) if seat in seats]
    for table in (0, 4, 1 << 22):
        known = SeatSet(np.array(seats, np.uint32), table)
        assert known.places(np.array(column, np.uint32)).tolist() == expected
