"""Ids as users have them, and the numbers that stand for them in a tree. An id is checked when it is given. A number is
never used again, so that a match that began earlier cannot be read under another's id.

An id is a string or a 64-bit integer. A batch keeps the table of ids of its moment, which is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import DuplicateIdError, InvalidIdError
from weft.index.base import Ids
from weft.index.single_event import IdMemory
from weft.index.subscription_ids import check_id
from weft.kernels.objects import object_list
from weft.model.door import is_unicode, shown

if TYPE_CHECKING:
    import pyarrow as pa

Id = str | int

_SPARSE, _SPARE = 4, 4096  # numbers that an array may have: so many for each id that is there, and some more


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
    """The ids of a moment by their places; `numbers` has the number of each place, and without it they are the same.

    >>> table = IdTable(np.array(["a", "b", "c"], object), 6, frozenset({str}), True, np.array([0, 2, 5]))
    >>> table.places(np.array([5, 0, 1])).tolist()
    [2, 0, -1]
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a moment has
        self,
        ids: NDArray[Any],
        end: int,
        kinds: frozenset[type],
        clean: bool,
        numbers: Ids | None = None,
        before: Any = None,
    ) -> None:
        self.ids = ids  # objects
        self.end = end  # all numbers below it are there, unless they were removed
        self.kinds = kinds  # of the ids that there were: str, int or both
        self.clean = clean  # whether none of its ids was removed before
        self._numbers = numbers
        self._before = before  # the first of its ids as Arrow has them, if that is known

    def places(self, numbers: Ids) -> Ids:
        """Where numbers are in the table; -1 for one that is not. Cost: O(numbers)."""
        known = self._numbers
        if known is None:
            late = len(numbers) and numbers.max() >= len(self.ids)
            return np.where(numbers < len(self.ids), numbers, -1) if late else numbers
        if not len(known):
            return np.full(len(numbers), -1)
        at = np.minimum(known.searchsorted(numbers), len(known) - 1)
        return np.where(known[at] == numbers, at, -1)

    @property
    def sparse(self) -> bool:
        """Whether places are not numbers."""
        return self._numbers is not None

    def made(self, name: str) -> Any:
        """One of its cached properties, if it has been computed."""
        return self.__dict__.get(name)

    @cached_property
    def texts(self) -> pa.Array[Any]:
        """The ids as an Arrow array of strings; NULL for an integer, which was removed."""
        import pyarrow as pa

        start = 0 if self._before is None else len(self._before)
        later: pa.Array[Any] = pa.array([each if type(each) is str else None for each in self.ids[start:]], pa.string())
        return later if self._before is None else pa.concat_arrays([self._before, later])

    @cached_property
    def whole(self) -> Ids:
        """The ids as an array of integers; 0 for a string, which was removed."""
        return np.array([each if type(each) is int else 0 for each in self.ids], np.int64)


class _ByNumber(NamedTuple):
    """Ids by their numbers. Where there is none there is None, so that every place has an object."""

    ids: NDArray[Any]
    address: int
    size: int

    @staticmethod
    def of(size: int) -> _ByNumber:
        ids = np.full(size, None, object)
        return _ByNumber(ids, ids.ctypes.data, size)


class NumberedIds:
    """The ids of an index by their numbers, which are given in turn and never again.

    Changes are made by one thread at a time; reading needs no lock. Ids are in an array by their numbers, and stay
    there when they are removed. When most of them were, the array goes, and numbers are looked up in a dictionary.

    >>> ids = NumberedIds()
    >>> ids.extend(["a", "b"]), ids.listed(IdMemory.of(np.array([1])), 1)
    (range(0, 2), ['b'])
    """

    def __init__(self, names: dict[int, Id] | None = None, end: int | None = None) -> None:
        self.names: dict[int, Id] = names or {}  # those that are there; numbers ascend
        self.end = max(self.names, default=-1) + 1 if end is None else end
        self._strings = sum(type(name) is str for name in self.names.values())
        self._array: _ByNumber | None = None
        if min(self.names, default=0) >= 0 and self.end <= _SPARSE * len(self.names) + _SPARE:
            self._array = _ByNumber.of(self.end)
            self._array.ids[list(self.names)] = np.array([*self.names.values(), None], object)[:-1]
        self._table: IdTable | None = None

    def extend(self, ids: Sequence[Id]) -> range:
        """Give ids numbers. Cost: O(ids), amortised."""
        numbers = range(self.end, self.end + len(ids))
        self.names.update(zip(numbers, ids, strict=True))
        self._strings += sum(type(name) is str for name in ids)
        if self._array is not None:
            if numbers.stop > self._array.size:
                larger = _ByNumber.of(max(numbers.stop, 2 * self._array.size, 64))
                larger.ids[: self._array.size] = self._array.ids
                self._array = larger
            for number, name in zip(numbers, ids, strict=True):
                self._array.ids[number] = name
        self.end = numbers.stop
        return numbers

    def forget(self, numbers: Iterable[int]) -> list[Id]:
        """Remove numbers, and return their ids."""
        gone = [self.names.pop(number) for number in numbers if number in self.names]
        self._strings -= sum(type(name) is str for name in gone)
        if self.end > _SPARSE * len(self.names) + _SPARE:
            self._array = None
        return gone

    def listed(self, found: IdMemory, count: int) -> list[Id]:
        """The ids of the first numbers found; some of those that were removed meanwhile may be left out."""
        array = self._array
        if array is not None:
            return object_list(found.address, count, array.address, array.size) if count else []
        names = self.names
        return [name for number in found.ids[:count].tolist() if (name := names.get(number)) is not None]

    def table(self) -> IdTable:
        """The ids of now. Only one thread at a time may ask. Cost: O(1), or O(ids) where most were removed."""
        kinds = frozenset(kind for kind, count in self._counts() if count)
        old = self._table
        clean = self._array is None or len(self.names) == self.end
        now = self.end, kinds, clean, self._array is None
        if old is not None and (old.end, old.kinds, old.clean, old.sparse) == now:
            return old
        if self._array is not None:
            before = None if old is None or old.sparse else old.made("texts")
            self._table = IdTable(self._array.ids[: self.end], self.end, kinds, clean, None, before)
        else:
            ids = np.array([*self.names.values(), None], object)[:-1]
            self._table = IdTable(ids, self.end, kinds, clean, np.array(list(self.names), np.int64))
        return self._table

    def _counts(self) -> tuple[tuple[type, int], ...]:
        return (str, self._strings), (int, len(self.names) - self._strings)
