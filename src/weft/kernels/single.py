"""One event with one call: values to codes, codes to slots, slots to subscriptions. Laws: it finds what `search` and
`groups` find; what an address names lives as long as the handle is used.

A call of a kernel costs as much for each array that it is given as many a search. So a single event is searched with
two addresses: of a handle of the index (int64), which has the addresses of all arrays, and of one of the room that the
match has to itself.

The handle of a view is made by `view_handle`: dimensions, singles, whether there are holes, then address and size of
each of nine arrays, then address and size of numbers and table and the address of sides for each dimension. That of a
room, made by `room_handle`, has address and size of what a match writes to: input, codes, slots, ids, two stacks.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.kernels.addresses import array_at
from weft.kernels.encode import bucket_of, ends, place_of
from weft.kernels.jit import inlined, light
from weft.kernels.leaves import grown
from weft.kernels.partition import PartitionTree
from weft.kernels.search import FIND, most_in, scan_leaf, walk
from weft.kernels.simd import prefetch

_HEAD, _PER_DIMENSION = 3 + 2 * 9, 5
_KINDS: tuple[Any, ...] = (
    *(np.int32, np.int32, np.int32, np.uint16, np.int32, np.uint32),  # those of the tree
    *(np.int64, np.uint32, np.bool_),  # subs, firsts, alive
)
_ROOM: tuple[Any, ...] = (np.float64, np.int32, np.int32, np.int64, np.int64, np.int64)
_ARRAYS = len(_ROOM)


def view_handle(
    arrays: Sequence[NDArray[Any]],
    lines: Sequence[tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.int32]]],
    singles: int,
    holes: bool,
) -> NDArray[np.int64] | None:
    """The handle of a tree's arrays, `subs`, `firsts` and `alive`, and of the numbers, sides and table of each
    dimension; None if they are not of the types that the kernel reads.
    """
    if not all(_is(array, kind) for array, kind in zip(arrays, _KINDS, strict=True)):
        return None
    handle = [len(lines), singles, int(holes)]
    for array in arrays:
        handle += [array.ctypes.data, array.size]
    for numbers, sides, table in lines:
        if not (_is(numbers, np.float64) and _is(sides, np.uint8) and _is(table, np.int32)):
            return None
        handle += [numbers.ctypes.data, numbers.size, table.ctypes.data, table.size, sides.ctypes.data]
    return np.array(handle, np.int64)


def room_handle(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """The handle of input (float64: a mask of bits, then a value for each dimension), codes (int32[dimensions]), slots
    (int32), ids (int64) and two stacks (int64).
    """
    assert all(_is(array, kind) for array, kind in zip(arrays, _ROOM, strict=True))
    return np.array([part for array in arrays for part in (array.ctypes.data, array.size)], np.int64)


def _is(array: NDArray[Any], kind: Any) -> bool:
    return array.dtype == kind and array.flags.c_contiguous and array.flags.aligned


@inlined
def _line(lines, dim):
    """Numbers, sides and table of a dimension."""
    place = _PER_DIMENSION * dim
    numbers = array_at(lines[place], lines[place + 1], np.float64)
    sides = array_at(lines[place + 4], lines[place + 1], np.uint8)
    return numbers, sides, array_at(lines[place + 2], lines[place + 3], np.int32)


@inlined
def _fetch(lines, dimensions, mask, values, buckets):
    """Prefetch what encoding reads: first of all tables, then of all numbers, so that the waiting times overlap.
    Writes to `buckets` (int32[dimensions]).
    """
    for dim in range(dimensions):
        buckets[dim] = -1
        if not mask >> dim & 1:
            numbers, _, table = _line(lines, dim)
            first, last, scale = ends(numbers, table)
            if first <= values[dim] <= last:
                buckets[dim] = bucket_of(table, first, scale, values[dim])
                prefetch(table, np.int64(buckets[dim]))
    for dim in range(dimensions):
        if buckets[dim] >= 0:
            numbers, sides, table = _line(lines, dim)
            low = np.int64(table[buckets[dim]])
            prefetch(numbers, low)
            prefetch(sides, low)


def _work(handle_address: int, room_address: int) -> int:
    """How many rows and subscriptions there are to be searched."""
    handle = array_at(handle_address, _HEAD, np.int64)
    return int(handle[12] + handle[16])


@light(_work)
def match_one(handle_address, room_address):
    """Write the subscriptions of the event to the room's ids; returns how many there are, or ~n if there is room for
    fewer than n.

    Bit i of the mask says that the value of dimension i is a code already.
    """
    handle, room = array_at(handle_address, _HEAD, np.int64), array_at(room_address, 2 * _ARRAYS, np.int64)
    tree = PartitionTree(
        array_at(handle[3], handle[4], np.int32),
        array_at(handle[5], handle[6], np.int32),
        array_at(handle[7], handle[8], np.int32),
        array_at(handle[9], handle[10], np.uint16),
        array_at(handle[11], handle[12], np.int32),
        array_at(handle[13], handle[14], np.uint32),
    )
    dimensions, singles, holes = handle[0], handle[1], handle[2]
    subs = array_at(handle[15], handle[16], np.int64)
    firsts = array_at(handle[17], handle[18], np.uint32)
    alive = array_at(handle[19], handle[20], np.bool_)
    mask = array_at(room[0], 1, np.int64)[0]
    values = array_at(room[0] + 8, dimensions, np.float64)
    lines = array_at(handle_address + 8 * _HEAD, _PER_DIMENSION * dimensions, np.int64)
    codes = array_at(room[2], dimensions, np.int32)
    out = array_at(room[4], room[5], np.int32)
    ids = array_at(room[6], room[7], np.int64)
    _fetch(lines, dimensions, mask, values, codes)
    for dim in range(dimensions):
        if mask >> dim & 1:
            codes[dim] = np.int32(values[dim])
        else:
            numbers, sides, table = _line(lines, dim)
            codes[dim] = place_of(numbers, sides, table, *ends(numbers, table), values[dim])
    only = codes.reshape(1, codes.size)
    stack, leaves = array_at(room[8], room[9], np.int64), array_at(room[10], room[11], np.int64)
    event, mode, found = np.int64(0), np.int64(FIND), np.int64(0)  # not literals, for which kernels are compiled again
    while True:
        reached = walk(tree, only, event, stack, leaves, found)
        if reached >= 0:
            break
        stack, leaves = grown(stack, 2 * stack.size), grown(leaves, 2 * leaves.size)
    for at in range(reached):
        needed = found + most_in(tree, leaves[at])
        if needed > out.size:
            out = grown(out, needed)
        found, _ = scan_leaf(tree, only, event, leaves[at], found, out, mode)
    needed = np.int64(0)
    for at in range(found):
        slot = np.int64(out[at])
        if slot < singles and not holes:
            if needed < ids.size:
                ids[needed] = subs[slot]
            needed += 1
            continue
        for place in range(np.int64(firsts[slot]), np.int64(firsts[slot + 1])):
            if not holes or alive[place]:
                if needed < ids.size:
                    ids[needed] = subs[place]
                needed += 1
    return needed if needed <= ids.size else ~needed
