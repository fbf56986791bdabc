"""Retention of stored events. No event is removed that a seat may still need.

An event is removed when it is older than the limit, or when newer events fill the size that is kept, and only if it
lies below the floor of every subscription and every link. A seat that stays behind holds back everything after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from weft.log.base import Log, Offset, SeatId, State

_DAY = 24 * 60 * 60 * 1_000_000  # microseconds


class Retention(NamedTuple):
    """How long events are kept that no queue needs any more: for replay, and for subscriptions with `since`."""

    age: int | None = 7 * _DAY  # microseconds; None keeps events of any age
    size: int | None = 8 << 30  # bytes of events; None keeps any number


DEFAULT_RETENTION = Retention()


def floors(state: State) -> dict[SeatId, Offset]:
    """What every seat has acknowledged, as a log was found."""
    subs = {seat: sub.floor for seat, sub in state.subs.items()}
    return subs | {seat: link.floor for seat, link in state.links.items()}


def trim_point(log: Log, floors: Iterable[Offset], now: int, retention: Retention = DEFAULT_RETENTION) -> Offset:
    """The offset below which events may be removed: neither kept by the limits nor needed by a floor.

    Cost: O(floors), and a few lookups in the log.
    """
    limit = Offset(0)
    if retention.age is not None:
        limit = max(limit, log.find(max(0, now - retention.age)))
    if retention.size is not None:
        limit = max(limit, log.find_size(retention.size))
    return min((limit, *floors))


def beyond_lag(
    log: Log, floors: Mapping[SeatId, Offset], now: int, lag: Retention
) -> dict[SeatId, tuple[Offset, Offset]]:
    """The seats that are further behind than `lag` allows, each with the gap from its floor to where it may go on."""
    limit = trim_point(log, (), now, lag)
    return {seat: (floor, limit) for seat, floor in sorted(floors.items()) if floor < limit}
