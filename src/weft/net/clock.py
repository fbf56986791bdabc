"""The two clocks that a broker is told of. Law: nobody below `net` looks at a clock."""

from __future__ import annotations

from time import monotonic_ns, time_ns

from weft.broker.effects import Now


def clock() -> Now:
    """The time, in microseconds."""
    return Now(monotonic_ns() // 1_000, time_ns() // 1_000)
