"""Strings that events had, with their codes. All memos together stay within a number of bytes. A long string is not
remembered. Forgetting changes no answer.
"""

from __future__ import annotations

import sys
from weakref import WeakSet

from weft.model.limits import LIMITS

_ENTRY = 128  # bytes of a dictionary's entry and its number, with room to grow


class Memo(dict[str, int]):
    """The codes of strings on one dimension."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment] # by identity: memos are registered, never compared

    def __eq__(self, other: object) -> bool:
        return self is other


class Room:
    """What all memos may take together; when it is used up, all of them are forgotten.

    >>> room = Room()
    >>> memo = Memo()
    >>> room.keep(memo, "Alaska", 7)
    >>> room.keep(memo, "A" * 1_000_000, 8)
    >>> memo, room.used < 1000
    ({'Alaska': 7}, True)
    """

    def __init__(self) -> None:
        self.used = 0
        self._memos: WeakSet[Memo] = WeakSet()

    def keep(self, memo: Memo, text: str, code: int) -> None:
        """Remember the code of a string, unless it is long."""
        if len(text) > LIMITS.memo_longest:
            return
        if not memo:
            self._memos.add(memo)
        self.used += sys.getsizeof(text) + _ENTRY
        if self.used > LIMITS.memo_bytes:
            self._forget()
        memo[text] = code

    def _forget(self) -> None:
        try:
            for memo in list(self._memos):
                memo.clear()
        except RuntimeError:  # another thread registers a memo: the next string tries again
            return
        self.used = 0


ROOM = Room()
