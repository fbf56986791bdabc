"""Answers of `covers` about the newest filter of a table. A pair of normal forms is compared once. True is given only
when proven.

The forest of a table and the merged sets of its links ask the same questions about a filter that was added. Forms are
known by identity. Answers are forgotten when the next filter is added, so that no form is kept for long.
"""

from __future__ import annotations

from weft.algebra.box import NormalForm
from weft.algebra.budget import Budget
from weft.algebra.relate import covers_within
from weft.model.schema import Schema

_MOST = 1_024  # pairs


class FormPairs:
    """Pairs of forms that were compared, and whether the first covers the second."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._known: dict[tuple[int, int], tuple[NormalForm, NormalForm, bool]] = {}  # holds them: ids stay theirs

    def __len__(self) -> int:
        return len(self._known)

    def covers(self, wide: NormalForm, narrow: NormalForm, budget: Budget) -> bool:
        """Whether a form surely covers another: as it was found before, or within the budget of a search."""
        key = id(wide), id(narrow)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = wide, narrow, covers_within(wide, narrow, self._schema, budget)
        return known[2]

    def clear(self) -> None:
        """Forget all answers."""
        self._known.clear()
