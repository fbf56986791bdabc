"""The budget of an operation of the algebra: a count of elementary steps. No operation takes more than its budget.
Steps depend on the input, not on the machine or its load.

Where patterns are compared, the order of sets decides which of two comes first, so that the number of steps may differ
slightly between processes.

A step is roughly the comparison of two small value sets: half a microsecond or so. When a budget is used up, the
operation gives the safe answer: `covers` is False, `overlaps` is True, there is no merger. Normalising a filter has no
safe answer, so that the filter is refused with FilterTooComplexError.
"""

from __future__ import annotations

from weft.errors import FilterTooComplexError
from weft.model.limits import LIMITS


class Budget:
    """A number of steps; `spend` raises FilterTooComplexError once they are used up.

    >>> budget = Budget(10)
    >>> budget.spend(7)
    >>> budget.used, budget.left
    (7, 3)
    """

    __slots__ = ("left", "steps")

    def __init__(self, steps: int | None = None) -> None:
        self.steps = self.left = LIMITS.steps if steps is None else steps

    @property
    def used(self) -> int:
        """The steps taken so far."""
        return self.steps - self.left

    def part(self, most: int) -> Budget:
        """A budget for a part of the work: this many steps, or what is left. The caller charges what the part used."""
        return Budget(max(0, min(most, self.left)))

    def charge(self, steps: int) -> None:
        """Count steps that were already used; if they are too many, the next `spend` raises."""
        self.left -= steps

    def spend(self, steps: int = 1) -> None:
        """Spend steps. Raises FilterTooComplexError if fewer are left, and from then on."""
        if steps > self.left:
            self.left = -1  # steps that are refused are not taken
            raise FilterTooComplexError(f"the filter takes more than {self.steps:,} steps; split it")
        self.left -= steps
