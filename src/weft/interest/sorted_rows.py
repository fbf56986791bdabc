"""Sorted items in rows of bounded length. Each row and the sequence of rows are sorted, and no item occurs twice.

A list moves half of its items when one is inserted; a row moves few. Insertion costs O(row + number of rows).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

ROW = 1024


class SortedRows:
    """Items in ascending order; there is always one, and nothing below the first is ever inserted.

    >>> rows = SortedRows([1, 9, 20], row=2)
    >>> rows.insert(15), list(rows), rows.around(10), rows.near(10, 1)
    (None, [1, 9, 15, 20], (9, 15), [9, 15, 20])
    """

    def __init__(self, items: Iterable[Any], row: int = ROW) -> None:
        self._rows = [sorted(items)]
        self._firsts = [self._rows[0][0]]
        self._row = row

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._rows)

    def insert(self, item: Any) -> None:
        """Insert an item that is not there. Cost: O(row + rows)."""
        number = bisect_right(self._firsts, item) - 1
        row = self._rows[number]
        insort(row, item)
        if len(row) > 2 * self._row:
            self._rows[number : number + 1] = [row[: self._row], row[self._row :]]
            self._firsts.insert(number + 1, row[self._row])

    def around(self, item: Any) -> tuple[Any, Any]:
        """The neighbours of an item that is not there, which lies between the first and the last."""
        number = bisect_right(self._firsts, item) - 1
        row = self._rows[number]
        at = bisect_left(row, item)
        return row[at - 1], row[at] if at < len(row) else self._firsts[number + 1]

    def near(self, item: Any, around: int) -> list[Any]:
        """The items on both sides of where an item would be: a number of them below, and one more from there on."""
        number = bisect_right(self._firsts, item) - 1
        at = bisect_left(self._rows[number], item)
        below, above = self._rows[number][:at], self._rows[number][at:]
        first = last = number
        while len(below) < around and first:
            first -= 1
            below = self._rows[first] + below
        while len(above) <= around and last + 1 < len(self._rows):
            last += 1
            above = above + self._rows[last]
        return below[max(0, len(below) - around) :] + above[: around + 1]

    def first_from(self, value: Any, key: Callable[[Any], Any]) -> Any:
        """The first item whose key is not below the value; keys ascend as items do."""
        number = max(0, bisect_right(self._firsts, value, key=key) - 1)
        row = self._rows[number]
        at = bisect_left(row, value, key=key)
        return row[at] if at < len(row) else self._firsts[number + 1]

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert all(a < b for a, b in pairwise(self)), "items ascend"
        assert [row[0] for row in self._rows] == self._firsts, "rows are found by their first items"
        assert all(len(row) <= 2 * self._row for row in self._rows), "rows are short"
