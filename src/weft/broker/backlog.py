"""The backlogs of queues, counted in the log: after a restart, or when a queue has lost a member.

Events are counted as they are stored, so that a queue knows how many of its own it has not been sent. Where this is not
known, the consumer ids in the log are read once for all such queues, some events in each turn. Until a queue is
counted, it loses nothing, and its cursor stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from weft.broker.queue import Queue
from weft.log.base import Log, Offset
from weft.log.codec import SeatOwners, open_offsets

_STEP = 5_000  # stored events that are looked at in one turn


class BacklogCounter:
    """Counts the events that wait for queues, from `at` up to `upto`. Later ones are counted as they are stored."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.queues: dict[int, Queue] = {}  # that are being counted, by consumer id
        self._owners = SeatOwners({})
        self.at = self.upto = Offset(0)

    def begin(self, queues: Iterable[Queue], end: Offset) -> None:
        """Count for all queues that are not counted, from their cursors to the end, unless others are being counted."""
        if self.queues:
            return
        self.queues = {queue.consumer_id: queue for queue in queues if not queue.counted}
        if not self.queues:
            return
        members: dict[int, int] = {}
        for consumer, queue in self.queues.items():
            queue.unsent = queue.marked = 0
            members.update(dict.fromkeys(queue.members, consumer))
        self._owners = SeatOwners(members)
        self.at, self.upto = Offset(min(map(_start, self.queues.values()))), end

    def doubt(self, queue: Queue) -> None:
        """It is not known any more how much waits for a queue: count again, later."""
        queue.counted = False
        self.queues.pop(queue.consumer_id, None)

    def is_counted(self, queue: Queue, offset: int) -> bool:
        """Whether an event of a queue is part of its count."""
        if offset < queue.replay_until:
            return False
        return not self.at <= offset < self.upto or queue.consumer_id not in self.queues

    def step(self) -> None:
        """Look at some more events."""
        more = False
        for column in self._log.seats(self.at, _STEP):
            for owner, offsets in self._owners.own(column):
                queue = self.queues.get(owner)
                if queue is not None and not queue.counted:
                    self._count(queue, offsets)
            self.at, more = column.end, True
        if more and self.at < self.upto:
            return
        for queue in self.queues.values():
            queue.counted = True
        self.queues = {}

    def _count(self, queue: Queue, offsets: NDArray[np.int64]) -> None:
        """These events are those of a queue, some of which it has acknowledged."""
        mine = open_offsets(offsets[: offsets.searchsorted(self.upto)], _start(queue), queue.skip)
        if len(mine):
            if queue.unsent == queue.marked and queue.cursor >= queue.replay_until:
                queue.advance(Offset(int(mine[0])))  # it is the first one
            queue.unsent += len(mine)


def _start(queue: Queue) -> int:
    """Where the events begin that are counted."""
    return max(queue.cursor, queue.replay_until)
