"""Parts of stored groups, as views. Law: an event keeps its offset, its origin and its seats.

>>> import numpy as np
>>> from weft.log.base import Events, StoredGroup
>>> starts, seats = np.array([0, 1, 3, 3], np.uint32), np.array([7, 7, 8], np.uint32)
>>> origins = np.zeros((3, 3), np.int64)
>>> group = StoredGroup(0, Events(Offset(10), origins, [b"a", b"b", b"c"], [b"", b"", b""], starts, seats))
>>> part = cut(group, Offset(11), 1).events
>>> part.first, part.heads, part.starts.tolist(), part.seats.tolist()
(11, [b'b'], [0, 2], [7, 8])
"""

from __future__ import annotations

from weft.log.base import Events, Offset, StoredGroup


def cut(group: StoredGroup, first: Offset, limit: int) -> StoredGroup:
    """The events of a group from an offset on, at most `limit`; the group itself where that is all of them.

    The offset lies below the group's end, and `limit` is positive. Cost: O(events kept).
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
