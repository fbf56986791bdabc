"""How a set changes. Law: the drops come first, then the adds; so what is in both is replaced."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

D = TypeVar("D")
A = TypeVar("A")


class Change(NamedTuple, Generic[D, A]):
    """What goes and what comes, as one change; false if nothing does.

    >>> Change(drop=["old"], add={"new": 1})
    Change(drop=['old'], add={'new': 1})
    >>> bool(Change(drop=[], add={}))
    False
    """

    drop: D
    add: A

    def __bool__(self) -> bool:
        return bool(self.drop) or bool(self.add)
