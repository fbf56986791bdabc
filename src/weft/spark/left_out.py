"""Rows that matching leaves out, counted while it runs. Zero is reported only after every row was checked.

The rows themselves are found by another pass, which is needed only if there are any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Observation

ROWS = "rows"  # what an observation calls its count


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The counts of one match, known when its result has been made once; None where nothing can be left out."""

    events: Observation | None = None
    subscriptions: Observation | int | None = None

    def sides(self) -> list[str]:
        """The sides of which rows were left out, or may have been."""
        counts = {"event": self.events, "subscription": self.subscriptions}
        return [side for side, count in counts.items() if count is not None and not _is_zero(count)]


def _is_zero(count: Observation | int) -> bool:
    if isinstance(count, int):
        return count == 0
    found = count.get  # Spark forgets what it counted if it finds later that nothing depends on it
    return ROWS in found and not found[ROWS]
