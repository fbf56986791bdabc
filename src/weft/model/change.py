"""The change of a set. Drops come first, then adds, so what is in both is replaced."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

D_co = TypeVar("D_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)


class Change(NamedTuple, Generic[D_co, A_co]):
    """What goes and what comes, as one change; false if nothing does.

    >>> Change(drop=["old"], add={"new": 1})
    Change(drop=['old'], add={'new': 1})
    >>> bool(Change(drop=[], add={}))
    False
    """

    drop: D_co
    add: A_co

    def __bool__(self) -> bool:
        return bool(self.drop) or bool(self.add)
