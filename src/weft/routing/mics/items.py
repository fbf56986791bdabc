"""A range of one curve, as brokers send it."""

from __future__ import annotations

import msgspec


class CurveRange(msgspec.Struct, frozen=True, order=True):
    """The points from `start` to `end`, both included, of the curve of one group of attributes."""

    group: int
    start: int
    end: int

    @property
    def units(self) -> int:
        """One item of its space."""
        return 1

    @property
    def numbers(self) -> tuple[int, ...]:
        """The item as numbers, in the form in which it is sent."""
        return (self.group, self.start, self.end)
