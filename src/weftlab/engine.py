"""Simulated time. Actions run in the order of (time, priority, sequence), so that a seed always gives one trace.

Nothing here knows brokers. An action is a function without arguments; it may schedule others, also at the present
instant, where they run after everything scheduled before them with the same priority.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from weft.errors import LocalProtocolError

_Action = Callable[[], None]


class Scheduled:
    """An action that waits for its time, and can be cancelled until then."""

    __slots__ = ("action", "time")

    def __init__(self, time: int, action: _Action) -> None:
        self.time = time
        self.action: _Action | None = action

    def cancel(self) -> None:
        """Never run the action. Does nothing if it has run."""
        self.action = None


class Engine:
    """A heap of (time, priority, sequence); time is in microseconds.

    >>> engine, seen = Engine(), []
    >>> _ = engine.after(20, lambda: seen.append("late"))
    >>> _ = engine.after(10, lambda: seen.append("early"))
    >>> engine.run(), seen, engine.now
    (2, ['early', 'late'], 20)
    """

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, int, Scheduled]] = []
        self._sequence = 0
        self.after_action: _Action | None = None  # called after every action, by whoever records a run

    def __len__(self) -> int:
        return sum(entry.action is not None for *_, entry in self._heap)

    def at(self, time: int, action: _Action, priority: int = 0) -> Scheduled:
        """Run the action at a time. Cost: O(log n)."""
        if time < self.now:
            raise LocalProtocolError(f"the time is already {self.now}; {time} is in the past")
        entry = Scheduled(time, action)
        self._sequence += 1
        heapq.heappush(self._heap, (time, priority, self._sequence, entry))
        return entry

    def after(self, delay: int, action: _Action) -> Scheduled:
        """Run the action when a delay has passed."""
        return self.at(self.now + delay, action)

    def step(self) -> bool:
        """Run the next action. False when nothing is scheduled."""
        if self._due() is None:
            return False
        self.now, _, _, entry = heapq.heappop(self._heap)
        action, entry.action = entry.action, None
        assert action is not None
        action()
        if self.after_action is not None:
            self.after_action()
        return True

    def run(self, until: int | None = None) -> int:
        """Run everything, or what is due by a time, which then is the present. Returns how many actions ran."""
        count = 0
        while (due := self._due()) is not None and (until is None or due <= until):
            count += self.step()
        if until is not None:
            self.now = max(self.now, until)
        return count

    def _due(self) -> int | None:
        """The time of the next action; cancelled ones are dropped."""
        while self._heap and self._heap[0][3].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
