"""A dictionary by number that never grows as a whole. It holds what a dict would hold; adding an entry takes at most
the time of one page.

A dict of 100,000 entries that grows moves all of them in one call, which takes milliseconds, and the dictionaries of a
broker grow together, because they have an entry for each subscription. Here, entries are in pages by their number. Keys
that were added in ascending order are iterated in that order.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from itertools import chain
from typing import Any, TypeVar, cast, overload

K = TypeVar("K", bound=int)
V = TypeVar("V")
D = TypeVar("D")

_BITS = 10  # of a number that are its place in a page
_MISSING: Any = object()
_SHRINK = frozenset({4, 16, 64, 256})  # entries left at which a page is stored anew: a dict never becomes smaller


class _Items(ItemsView[K, V]):
    _mapping: PagedDict[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(page.items() for page in self._mapping._pages.values())


class _Values(ValuesView[V]):
    _mapping: PagedDict[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(page.values() for page in self._mapping._pages.values())


class PagedDict(MutableMapping[K, V]):
    """Entries by numbers. Reading one takes some 0.1 us longer than from a dict, and changing one some 0.3 us.

    >>> names = PagedDict({1: "one", 5000: "many"})
    >>> names[2] = "two"
    >>> list(names.items()), names.pop(1), len(names), 1 in names
    ([(1, 'one'), (2, 'two'), (5000, 'many')], 'one', 2, False)
    """

    __slots__ = ("_bits", "_len", "_pages")

    def __init__(self, entries: Any = (), bits: int = _BITS) -> None:
        self._bits = bits
        self._len = 0
        self._pages: dict[int, dict[K, V]] = {}
        self.update(entries)

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._pages.values())

    def __contains__(self, key: object) -> bool:
        page = self._pages.get(cast("int", key) >> self._bits)
        return page is not None and key in page

    def __getitem__(self, key: K) -> V:
        page = self._pages.get(key >> self._bits)
        if page is None:
            raise KeyError(key)
        return page[key]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """As of a dict."""
        page = self._pages.get(key >> self._bits)
        return default if page is None else page.get(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        page = self._pages.get(key >> self._bits)
        if page is None:
            page = self._pages[key >> self._bits] = {}
        before = len(page)
        page[key] = value
        self._len += len(page) - before

    def __delitem__(self, key: K) -> None:
        page = self._pages.get(key >> self._bits)
        if page is None:
            raise KeyError(key)
        del page[key]
        self._len -= 1
        if not page:
            del self._pages[key >> self._bits]
        elif len(page) in _SHRINK:
            self._pages[key >> self._bits] = dict(page)

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V | D, /) -> V | D: ...
    def pop(self, key: K, default: Any = _MISSING, /) -> Any:
        """As of a dict."""
        value = self.get(key, default)
        if value is _MISSING:
            raise KeyError(key)
        if value is not default or key in self:
            del self[key]
        return value

    def clear(self) -> None:
        """Remove everything."""
        self._pages = {}
        self._len = 0

    def copy(self) -> PagedDict[K, V]:
        """A copy. Cost: that of copying memory."""
        new: PagedDict[K, V] = PagedDict(bits=self._bits)
        new._pages = {number: page.copy() for number, page in self._pages.items()}
        new._len = self._len
        return new

    def pages(self) -> Iterator[list[K]]:
        """The keys, page by page. The dictionary may change between two pages: new keys may be missing, and keys that
        are gone may be among them.
        """
        for number in [*self._pages]:
            page = self._pages.get(number)
            if page is not None:
                yield [*page]

    def items(self) -> ItemsView[K, V]:
        """Iterated as fast as those of a dict."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Iterated as fast as those of a dict."""
        return _Values(self)

    def __repr__(self) -> str:
        return f"PagedDict({dict(self.items())})"
