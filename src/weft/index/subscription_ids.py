"""Subscriptions of an index as 64-bit integers. An id is checked when it is given, and never changed or rounded.

A bool, a float, None, a string and an integer beyond 64 bits are refused with InvalidIdError, one by one and in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.errors import DuplicateIdError, InvalidIdError, SubscriptionError
from weft.index.base import Ids
from weft.model.door import shown
from weft.model.value import INT_MAX, INT_MIN


def check_id(sub: Any, position: int | None = None) -> int:
    """The id as an int of Python's. Raises InvalidIdError. Cost: a tenth of a microsecond.

    >>> check_id(np.int32(7))
    7
    """
    if type(sub) is not int:
        if not isinstance(sub, int | np.integer) or isinstance(sub, bool):
            raise InvalidIdError(_where(position) + _WANTED.format(shown(sub)), sub, position)
        sub = int(sub)
    if not INT_MIN <= sub <= INT_MAX:
        raise InvalidIdError(
            f"{_where(position)}a subscription id must fit in 64 bits, not {shown(sub)}", sub, position
        )
    return sub  # type: ignore[no-any-return]


def check_ids(subs: Iterable[Any]) -> Ids:
    """Many ids as an array. Raises InvalidIdError, which names the first wrong one and its position."""
    if isinstance(subs, np.ndarray) and subs.ndim == 1 and subs.dtype.kind in "iu":
        if subs.dtype.kind == "u" and len(subs) and int(subs.max()) > INT_MAX:
            at = int(np.argmax(subs > INT_MAX))
            check_id(subs[at], at)
        return subs.astype(np.int64)
    if hasattr(subs, "to_pylist"):  # Arrow's
        subs = subs.to_pylist()
    try:
        given = list(subs)
    except TypeError:
        raise InvalidIdError(f"the subscription ids must be a list or an array, not {shown(subs)}", subs) from None
    if set(map(type, given)) == {int} and min(given) >= INT_MIN and max(given) <= INT_MAX:
        return np.array(given, np.int64)
    return np.array([check_id(sub, at) for at, sub in enumerate(given)], np.int64)


def check_new_ids(subs: Iterable[Any], filters: int) -> Ids:
    """The ids of a number of filters, no two of them equal. Raises SubscriptionError."""
    ids = check_ids(subs)
    if len(ids) != filters:
        raise SubscriptionError(f"there are {len(ids)} ids for {filters} filters")
    ordered = np.sort(ids)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(again):
        sub = int(again[0])
        at = int(np.flatnonzero(ids == sub)[1])
        raise DuplicateIdError(f"duplicate id {sub} at position {at}", sub, at)
    return ids


def already_exists(sub: Any, position: int | None = None) -> DuplicateIdError:
    """The error of adding a subscription that the index has."""
    return DuplicateIdError(f"subscription {shown(sub)} already exists; use replace()", sub, position)


_WANTED = "a subscription id must be an integer, not {}; weft.Index takes strings too"


def _where(position: int | None) -> str:
    return "" if position is None else f"position {position}: "
