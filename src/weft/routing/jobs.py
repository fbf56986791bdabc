"""Work that may take longer than one call. A call does a bounded number of pieces; the rest is pending.

A job is a generator that yields after each piece of work. Jobs do not wait for each other: whatever state a job leaves
between two pieces is valid for every other job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from weft.errors import LocalProtocolError

Job = Iterator[None]

PIECES = 16  # of work per call; a piece is about one search


class Jobs:
    """Pending jobs, the oldest first. A new job is worked on at once, for `pieces`.

    >>> jobs, seen = Jobs(2), []
    >>> jobs.run(seen.append(number) for number in range(5))
    >>> seen, bool(jobs)
    ([0, 1], True)
    >>> jobs.work(10)
    >>> seen, bool(jobs)
    ([0, 1, 2, 3, 4], False)
    """

    def __init__(self, pieces: int = PIECES) -> None:
        if pieces < 1:
            raise LocalProtocolError(f"work is {pieces} pieces per call; give at least one")
        self._pieces = pieces
        self._waiting: deque[Job] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def run(self, job: Job) -> None:
        """Work on a new job. What is left of it is pending."""
        if not _spend(job, self._pieces):
            self._waiting.append(job)

    def work(self, budget: int) -> None:
        """Continue pending work for this many pieces."""
        while self._waiting and budget > 0:
            budget = _spend(self._waiting[0], budget)
            if budget > 0:
                self._waiting.popleft()

    def finish(self) -> None:
        """Do all pending work."""
        while self._waiting:
            self.work(self._pieces)


def _spend(job: Job, budget: int) -> int:
    """Work on a job; returns the rest of the budget, 0 if the job is not finished."""
    for _ in job:
        budget -= 1
        if budget <= 0:
            return 0
    return budget
