"""No publisher has more events accepted than its rate allows. Law: at any instant since the broker started, a session
has had at most a burst, and what the rate has added since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.sim.faults.violation import require

_ROUNDING = 1e-6


class RateLaw:
    """How many events each session may still publish.

    >>> law = RateLaw(2.0, burst=1)
    >>> law.accepted([7], monotonic=0)
    >>> law.accepted([7], monotonic=500_000)
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._left: dict[int, tuple[int, float]] = {}  # by session: when, and how many

    def restarted(self) -> None:
        """The broker has started: it remembers nothing."""
        self._left.clear()

    def accepted(self, sessions: Iterable[int], monotonic: int) -> None:
        """Events of these sessions were accepted."""
        for session, many in Counter(sessions).items():
            last, left = self._left.get(session, (monotonic, float(self._burst)))
            left = min(float(self._burst), left + (monotonic - last) * self._rate / 1e6) - many
            require(left >= -_ROUNDING, f"session {session} publishes more than {self._rate:g} events a second")
            self._left[session] = monotonic, left
