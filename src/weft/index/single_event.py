"""A single event, matched by one call of a kernel. Law: it finds what a batch of one event finds.

Events come as mappings, and Python's part of a match costs more than the search: so values are written side by side,
and one kernel encodes the numbers, searches the tree and writes the subscriptions (see `kernels/single.py`). Segments
whose rows say all, with few axes, are searched this way; others as batches of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.index.axis import Axis
from weft.index.base import Ids
from weft.index.dimension import CodeDimension
from weft.index.segment import PartitionTree, Segment
from weft.kernels.single import match_one, room_handle, view_handle
from weft.model.value import Value

_MOST_AXES = 16
_EXACT = 2**53  # integers up to it are floats
_IDS = 4096  # that a room begins with
_MOST_IDS = 1 << 16  # that a room keeps memory for
_INT64 = np.dtype(np.int64)

Found = TypeVar("Found", bound=Sized)


class IdMemory(NamedTuple):
    """An array of ids and its address, which takes long to ask for."""

    ids: Ids
    address: int

    @staticmethod
    def of(ids: Ids) -> IdMemory:
        """The memory of an array."""
        return IdMemory(ids, ids.ctypes.data)


Take = Callable[[IdMemory, int], Found]  # makes a result of the first so many ids of memory that is used again


class SingleSearch(NamedTuple):
    """What a kernel needs to search a view for one event."""

    address: int  # of the handle
    plan: tuple[tuple[str, int, Axis, CodeDimension], ...]  # see `_plan`
    pack: Callable[..., None]
    handle: NDArray[np.int64]

    @staticmethod
    def of(segment: Segment, tree: PartitionTree, alive: NDArray[np.bool_], holes: bool) -> SingleSearch | None:
        """The search of a view; None if single events take the way of batches there. Cost: O(axes)."""
        rows = segment.rows
        if not rows.plan or len(segment.special) or len(rows.pieces) or len(rows.plan) > _MOST_AXES:
            return None
        nothing = np.zeros(0), np.zeros(0, np.uint8), np.zeros(1, np.int32)
        exact = [name is not None and not dimension.inexact for name, _, dimension in rows.plan]
        lines = [
            (dimension.numbers, dimension.sides, dimension.table) if plain else nothing
            for plain, (_, _, dimension) in zip(exact, rows.plan, strict=True)
        ]
        handle = view_handle((*tree, rows.subs, rows.firsts, alive), lines, segment.singles, holes)
        if handle is None:
            return None
        plan = _plan(segment, exact)
        return SingleSearch(handle.ctypes.data, plan, Struct(f"=q{len(plan)}d").pack_into, handle)


def _plan(segment: Segment, exact: list[bool]) -> tuple[tuple[str, int, Axis, CodeDimension], ...]:
    """For each axis: the attribute whose numbers the kernel encodes, or "", which no event has; its bit of the mask;
    and what gives codes.
    """
    return tuple(
        (name if name and plain else "", 1 << at, axis, dimension)
        for at, (plain, (name, axis, dimension)) in enumerate(zip(exact, segment.rows.plan, strict=True))
    )


class SearchRoom:
    """Memory that a match writes to. One match has it at a time."""

    def __init__(self) -> None:
        self._input = np.zeros(1 + _MOST_AXES)
        self.input = self._input.data  # quicker to write to
        self._codes, self._slots = np.zeros(_MOST_AXES, np.int32), np.empty(_IDS, np.int32)
        self._stacks = np.empty(64, np.int64), np.empty(64, np.int64)
        self.make_room(_IDS)

    def make_room(self, size: int) -> None:
        """Make room for so many ids."""
        self.found = IdMemory.of(np.empty(size, np.int64))
        self._handle = room_handle((self._input, self._codes, self._slots, self.found.ids, *self._stacks))
        self.address: int = self._handle.ctypes.data


class SingleEvents:
    """Matches single events for all threads: a match takes a room, or makes one, and puts it back."""

    def __init__(self) -> None:
        self._rooms: list[SearchRoom] = []  # adding to a list and taking from it are atomic

    def find(self, search: SingleSearch, event: Mapping[str, Value | None], take: Take[Found]) -> Found:
        """What `take` makes of the subscriptions of an event."""
        address, plan, pack, _ = search
        values: list[Any] = []
        mask, get = 0, event.get
        for name, bit, axis, dimension in plan:
            value = get(name)
            kind = type(value)
            if kind is float or (kind is int and -_EXACT <= value <= _EXACT):  # type: ignore[operator]
                values.append(value)
                continue
            if not name:
                values.append(axis.code(dimension, event))
            else:
                values.append(dimension.texts.get(value) or dimension.code(value))  # type: ignore[arg-type]
            mask |= bit
        try:
            room = self._rooms.pop()
        except IndexError:
            room = SearchRoom()
        pack(room.input, 0, mask, *values)
        found: int = match_one(address, room.address)
        if found < 0:
            room.make_room(~found)
            found = match_one(address, room.address)
        made = take(room.found, found)
        if len(room.found.ids) <= _MOST_IDS:
            self._rooms.append(room)
        return made


def copied(found: IdMemory, count: int) -> Ids:
    """The first ids, in an array of their own."""
    return found.ids[:count].copy() if count else np.empty(0, _INT64)
