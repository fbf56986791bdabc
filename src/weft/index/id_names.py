"""Ids as users have them, and the numbers that stand for them in a tree. Laws: an id is checked when it is given;
a number is never used again, so that a match that began earlier cannot be read under another's id.

An id is a string or a 64-bit integer. A batch keeps the table of ids of its moment, which is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import DuplicateIdError, InvalidIdError
from weft.index.base import Ids
from weft.index.subscription_ids import check_id
from weft.model.door import is_unicode, shown

if TYPE_CHECKING:
    import pyarrow as pa

Id = str | int

_SPARE = 1024  # ids of a table that may be gone before it is made anew, however few there are


def check_name(given: Any, position: int | None = None) -> Id:
    """The id as a str or int of Python's. Raises InvalidIdError.

    >>> check_name("rule-1"), check_name(np.int64(7))
    ('rule-1', 7)
    """
    if isinstance(given, str):
        if not is_unicode(given):
            raise InvalidIdError(f"{_where(position)}the id {given!r} is not valid Unicode text", given, position)
        return given if type(given) is str else str.__str__(given)
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return check_id(given, position)
    what = f"an id must be a string or an integer, not {shown(given)}"
    raise InvalidIdError(_where(position) + what, given, position)


def check_names(given: Iterable[Any]) -> list[Id]:
    """Many ids, no two of them equal. Raises InvalidIdError or DuplicateIdError, with the position."""
    names = [check_name(each, at) for at, each in enumerate(given)]
    if len(set(names)) < len(names):
        seen: set[Id] = set()
        for at, name in enumerate(names):
            if name in seen:
                raise DuplicateIdError(f"duplicate id {name!r} at position {at}", name, at)
            seen.add(name)
    return names


def _where(position: int | None) -> str:
    return "" if position is None else f"position {position}: "


class IdTable:
    """The ids of a moment by their numbers, which ascend and are below `end`. It may have some that were removed since.

    >>> table = IdTable([0, 2, 5], ["a", "b", "c"], 6)
    >>> table.places(np.array([5, 0])).tolist()
    [2, 0]
    """

    def __init__(
        self, numbers: Sequence[int] | Ids, ids: list[Id], end: int, before: pa.Array[Any] | None = None
    ) -> None:
        self.numbers: Ids = np.array(numbers, np.int64)
        self.ids = ids
        self.end = end
        self._before = before  # the first of its ids as Arrow has them, if that is known

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, end: int, names: dict[int, Id]) -> IdTable:
        """The table of a later moment; `names` has the ids of then by number, ascending. Cost: O(ids)."""
        if end == self.end:
            return self
        later: list[int] = []
        for number in reversed(names):
            if number < self.end:
                break
            later.append(number)
        later.reverse()
        if len(self) + len(later) > 2 * len(names) + _SPARE:  # most of what is in the table was removed
            return IdTable(list(names), list(names.values()), end)
        numbers = np.concatenate([self.numbers, np.array(later, np.int64)])
        return IdTable(numbers, [*self.ids, *map(names.__getitem__, later)], end, self.__dict__.get("texts"))

    def places(self, numbers: Ids) -> NDArray[np.int64]:
        """Where numbers are in the table; -1 for one that is not. Cost: O(numbers)."""
        if self._is_dense:
            late = len(numbers) and numbers.max() >= len(self)
            return np.where(numbers < len(self), numbers, -1) if late else numbers
        if self._lookup is not None:
            first, span = int(self.numbers[0]), len(self._lookup)
            inside = (numbers >= first) & (numbers < first + span)
            return np.where(inside, self._lookup[np.where(inside, numbers - first, 0)], -1).astype(np.int64)
        at = np.minimum(self.numbers.searchsorted(numbers), len(self) - 1)
        return np.where(self.numbers[at] == numbers, at, -1)

    @cached_property
    def _is_dense(self) -> bool:
        return not len(self) or (int(self.numbers[0]) == 0 and int(self.numbers[-1]) + 1 == len(self))

    @cached_property
    def _lookup(self) -> NDArray[np.int32] | None:
        """The place of each number from the first to the last, if these are not much more than the ids."""
        span = int(self.numbers[-1]) + 1 - int(self.numbers[0])
        if span > 8 * len(self) + _SPARE:
            return None
        places = np.full(span, -1, np.int32)
        places[self.numbers - self.numbers[0]] = np.arange(len(self), dtype=np.int32)
        return places

    @cached_property
    def kinds(self) -> frozenset[type]:
        """The types of its ids: str, int or both."""
        return frozenset(map(type, self.ids))

    @cached_property
    def texts(self) -> pa.Array[Any]:
        """The ids as an Arrow array of strings."""
        import pyarrow as pa

        if self._before is None:
            return pa.array(self.ids, pa.string())
        return pa.concat_arrays([self._before, pa.array(self.ids[len(self._before) :], pa.string())])

    @cached_property
    def whole(self) -> Ids:
        """The ids as an array of integers."""
        return np.array(self.ids, np.int64)
