"""Groups for tests of logs, small and of every kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.log.base import Events, Group, Offset, StateChange, StoredGroup


def events(first: int, *seats: Sequence[int], session: int = 5, payload: bytes = b"p") -> Events:
    """One event for each sequence of seats."""
    starts = np.cumsum([0, *map(len, seats)], dtype=np.uint32)
    return Events(
        Offset(first),
        np.array([(session, 1, first + at) for at in range(len(seats))], np.int64).reshape(-1, 3),
        [f"head {first + at}".encode() for at in range(len(seats))],
        [payload * at for at in range(len(seats))],
        starts,
        np.array([seat for each in seats for seat in each], np.uint32),
    )


def group(at: int, first: int = 0, *seats: Sequence[int], changes: Sequence[StateChange] = ()) -> Group:
    """A group at a time; with events if it has a first offset."""
    return Group(at, events(first, *seats) if first else None, tuple(changes))


def plain(groups: Sequence[StoredGroup]) -> list[tuple[object, ...]]:
    """One tuple per event: comparable, and independent of how groups were cut."""
    found = []
    for each in groups:
        stored = each.events
        for at in range(len(stored)):
            seats = stored.seats[int(stored.starts[at]) : int(stored.starts[at + 1])].tolist()
            origin = tuple(stored.origins[at].tolist())
            found.append((each.at, stored.first + at, origin, stored.heads[at], stored.payloads[at], seats))
    return found
