"""What happened in a simulated run, line by line. Law: the same seed gives the same bytes."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import NamedTuple

_WIDTH = 160


class ToldUpdate(NamedTuple):
    """What one broker told another, when it was heard."""

    time: int
    teller: str
    hearer: str
    what: str


class RunTrace:
    """Lines of (time, who, what), and counts of what occurred.

    >>> trace = RunTrace()
    >>> trace.say(1500, "alice", "connects")
    >>> trace.count("fault: crash")
    >>> print(*trace.lines, sep="\\n")
         1.500 ms  alice     connects
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.tellings: list[ToldUpdate] = []

    def say(self, time: int, who: str, what: str) -> None:
        """Write a line; what is long is cut."""
        if len(what) > _WIDTH:
            what = what[: _WIDTH - 1] + "…"
        self.lines.append(f"{time / 1000:10.3f} ms  {who:<9} {what}")

    def count(self, what: str, number: int = 1) -> None:
        """Something occurred."""
        self.counts[what] += number

    def told(self, time: int, teller: str, hearer: str, what: str) -> None:
        """One broker has heard something from another."""
        self.tellings.append(ToldUpdate(time, teller, hearer, what))

    def digest(self) -> str:
        """A hash of all lines."""
        return blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()
