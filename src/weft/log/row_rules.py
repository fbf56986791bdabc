"""What a group must be before it is stored. Law: a group that breaks a rule raises LogError, and nothing is stored.

Both logs check the same rules, so that a program that runs on one runs on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import astuple, fields

from weft.errors import LogError
from weft.log.base import (
    AdvertRow,
    DeadRow,
    Events,
    Group,
    HeardRow,
    LinkRow,
    MoveFloor,
    MoveGot,
    MovePublisher,
    Offset,
    Put,
    Remove,
    Row,
    SeatId,
    SessionRow,
    SetMeta,
    StateChange,
    SubRow,
)

KEYS: dict[type[Row], tuple[str, ...]] = {
    SessionRow: ("id",),
    SubRow: ("seat",),
    AdvertRow: ("id",),
    LinkRow: ("seat",),
    HeardRow: ("link", "about", "item"),
    DeadRow: ("seat", "offset"),
}
RESERVED = "weft."  # keys of meta that begin so belong to the log itself
MOST_SEATS = (1 << 32) - 1
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_CHANGES = (MoveFloor, MovePublisher, MoveGot, SetMeta)


def _kind(annotation: Any) -> type:
    """The plain type of a field."""
    plain = getattr(annotation, "__supertype__", annotation)
    return {"int": int, "str": str, "bytes": bytes}[plain.__name__]


_KINDS: dict[type, tuple[type, ...]] = {
    each: tuple(_kind(field.type) for field in fields(each)) for each in (*KEYS, *_CHANGES)
}


class Tip(NamedTuple):
    """Where a log ends."""

    next: Offset  # the offset after the last one ever used
    at: int  # of the last group
    next_seat: SeatId  # above every seat that was ever used


EMPTY = Tip(Offset(1), 0, SeatId(1))


def check_groups(groups: Sequence[Group], tip: Tip) -> Tip:
    """The tip after these groups. Raises LogError if they cannot follow, or say what no log can hold.

    Cost: a few microseconds a group with events, one for each change.
    """
    after, at, next_seat = tip
    for group in groups:
        if type(group.at) is not int or not 0 <= group.at <= _INT_MAX:
            raise LogError(f"the time of a group is a number of microseconds since 1970, not {group.at!r}")
        if group.at < at:
            raise LogError(f"a group has the time {group.at}, which lies before the last group's, {at}")
        at = group.at
        if group.events is not None:
            _check_events(group.events, after)
            after = Offset(group.events.first + len(group.events))
            if len(group.events.seats):
                next_seat = max(next_seat, SeatId(int(group.events.seats.max()) + 1))
        for change in group.changes:
            next_seat = max(next_seat, _check_change(change))
    return Tip(after, at, next_seat)


def _check_events(events: Events, after: Offset) -> None:
    number = len(events.heads)
    if not number:
        raise LogError("a group has an empty list of events; for a group of changes only, pass events=None")
    if type(events.first) is not int or not after <= events.first <= _INT_MAX - number:
        raise LogError(f"events begin at offset {events.first}, but the next offset is {after}")
    if len(events.payloads) != number:
        raise LogError(f"{number} events have {len(events.payloads)} payloads")
    starts, seats = events.starts, events.seats
    if events.origins.shape != (number, 3) or events.origins.dtype != np.int64:
        raise LogError("origins are an array of int64 with one row of three per event")
    if starts.shape != (number + 1,) or starts.dtype != np.uint32 or seats.ndim != 1 or seats.dtype != np.uint32:
        raise LogError("starts and seats are arrays of uint32, starts with one entry more than there are events")
    if starts[0] != 0 or starts[-1] != len(seats) or (starts[1:] < starts[:-1]).any():
        raise LogError("starts do not ascend from 0 to the number of seats")


def _check_change(change: StateChange) -> SeatId:
    """The seat after those that the change names."""
    if isinstance(change, Put):
        _check_fields(change.row)
        if isinstance(change.row, SubRow | LinkRow):
            return _after_seat(change.row.seat)
    elif isinstance(change, Remove):
        names = KEYS.get(change.table)
        if names is None or type(change.key) is not tuple or len(change.key) != len(names):
            raise LogError(f"{change!r} does not name a table and its key")
        if any(type(part) is not int or not _INT_MIN <= part <= _INT_MAX for part in change.key):
            raise LogError(f"a key consists of 64-bit integers, not {change.key!r}")
    else:
        _check_fields(change)
        if isinstance(change, SetMeta) and change.key.startswith(RESERVED):
            raise LogError(f"the key {change.key!r} belongs to the log itself; choose one that is not {RESERVED}*")
    return SeatId(0)


def _after_seat(seat: SeatId) -> SeatId:
    if not 1 <= seat <= MOST_SEATS:
        raise LogError(f"a seat is a number from 1 to {MOST_SEATS}, not {seat}")
    return SeatId(seat + 1)


def _check_fields(row: Any) -> None:
    """Raise LogError if a field is not of its type, or beyond what can be stored."""
    kinds = _KINDS.get(type(row))
    if kinds is None:
        raise LogError(f"{row!r} is not a row or a change of state")
    values: tuple[Any, ...] = astuple(row)
    for kind, value in zip(kinds, values, strict=True):
        found: type = type(value)
        if found is not kind:
            raise LogError(f"{value!r} in a {type(row).__name__} is not of the type {kind.__name__}")
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                raise LogError(f"{value} in a {type(row).__name__} is beyond 64 bits")
        elif kind is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise LogError(f"a text in a {type(row).__name__} is not valid Unicode") from None
