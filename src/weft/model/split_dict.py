"""A dictionary that never grows as a whole, by any hashable key. It holds what a dict would hold, in no order.

A dict of 87,000 entries that grows moves all of them in one call and touches five megabytes of new memory, which took
up to 18 ms. Here, entries are in parts by the hash of their keys, and each part grows alone. Keys that are numbers and
ascend belong in a `PagedDict`, which keeps their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, MutableMapping
from itertools import chain
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_PARTS = 256  # of 400 entries each, if there are 100,000


class SplitDict(MutableMapping[K, V]):
    """Entries by keys of any kind. The order in which they are iterated may differ from run to run: sort them.

    >>> ids = SplitDict[str, int]()
    >>> ids["one"], ids["two"] = 1, 2
    >>> ids.pop("one"), len(ids), "one" in ids, sorted(ids.items())
    (1, 1, False, [('two', 2)])
    """

    __slots__ = ("_mask", "_parts")

    def __init__(self, parts: int = _PARTS) -> None:
        assert parts & (parts - 1) == 0, "a power of two"
        self._mask = parts - 1
        self._parts: defaultdict[int, dict[K, V]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def __bool__(self) -> bool:
        return any(self._parts.values())

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._parts.values())

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) & self._mask]

    def __getitem__(self, key: K) -> V:
        return self._parts[hash(key) & self._mask][key]

    def __setitem__(self, key: K, value: V) -> None:
        self._parts[hash(key) & self._mask][key] = value

    def __delitem__(self, key: K) -> None:
        del self._parts[hash(key) & self._mask][key]

    def __repr__(self) -> str:
        return f"SplitDict({dict(self.items())})"
