"""What was measured in the last minutes, in rings of a fixed size.

Brokers keep no history for the console: it is the gateway that remembers, while somebody looks. Each series has one
sample per second for ten minutes, and one per minute for a day.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping

SECONDS, MINUTES = 600, 1_440
MOST_SERIES = 40  # of a broker
MOST_BROKERS = 300
_JUST_NOW, _LONG_AGO = 0.4, 30.0  # seconds

SampleRow = list[tuple[float, float]]  # UTC seconds, and a value


class _Ring:
    def __init__(self) -> None:
        self.seconds: deque[tuple[float, float]] = deque(maxlen=SECONDS)
        self.minutes: deque[tuple[float, float]] = deque(maxlen=MINUTES)
        self._minute, self._sum, self._count = 0, 0.0, 0

    def add(self, at: float, value: float) -> None:
        self.seconds.append((at, value))
        minute = int(at // 60)
        if minute != self._minute:
            if self._count:
                self.minutes.append((self._minute * 60.0, self._sum / self._count))
            self._minute, self._sum, self._count = minute, 0.0, 0
        self._sum, self._count = self._sum + value, self._count + 1


class SampleStore:
    """The samples of all brokers that a principal looks at, or that another one does.

    >>> store = SampleStore()
    >>> for second in range(120, 190):
    ...     store.add("ann", "north", second, {"events/s": second})
    >>> store.recent("ann", "north", "events/s")[-1], store.minutes("ann", "north", "events/s")
    ((189, 189), [(120.0, 149.5)])
    >>> store.recent("bob", "north", "events/s")
    []
    """

    def __init__(self) -> None:
        self._rings: OrderedDict[tuple[str, str], dict[str, _Ring]] = OrderedDict()
        self._totals: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}

    def rates(self, principal: str, broker: str, at: float, totals: Mapping[str, float]) -> dict[str, float]:
        """How much counters have grown per second since the last call, which was not just now; empty otherwise.

        >>> store = SampleStore()
        >>> store.rates("ann", "north", 10, {"events/s": 100}), store.rates("ann", "north", 12, {"events/s": 300})
        ({}, {'events/s': 100.0})
        """
        then, known = self._totals.get((principal, broker), (0.0, {}))
        if at - then < _JUST_NOW:
            return {}
        if len(self._totals) >= MOST_BROKERS and (principal, broker) not in self._totals:
            self._totals.clear()
        self._totals[principal, broker] = at, dict(totals)
        if at - then > _LONG_AGO:
            return {}
        return {name: max(total - known[name], 0) / (at - then) for name, total in totals.items() if name in known}

    def add(self, principal: str, broker: str, at: float, values: Mapping[str, float]) -> None:
        """Add what was measured just now. The brokers that nobody has looked at for longest are forgotten."""
        known = self._rings.setdefault((principal, broker), {})
        self._rings.move_to_end((principal, broker))
        while len(self._rings) > MOST_BROKERS:
            self._rings.popitem(last=False)
        for name, value in values.items():
            ring = known.get(name)
            if ring is None:
                if len(known) >= MOST_SERIES:
                    continue
                ring = known[name] = _Ring()
            ring.add(at, value)

    def recent(self, principal: str, broker: str, series: str) -> SampleRow:
        """The last ten minutes of a series."""
        ring = self._rings.get((principal, broker), {}).get(series)
        return [] if ring is None else list(ring.seconds)

    def minutes(self, principal: str, broker: str, series: str) -> SampleRow:
        """The last day of a series: the mean of each minute."""
        ring = self._rings.get((principal, broker), {}).get(series)
        return [] if ring is None else list(ring.minutes)
