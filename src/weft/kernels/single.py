"""One event with one call: values to codes, codes to slots, slots to subscriptions. It finds what `search` and `groups`
find. What an address names lives as long as the handle is used.

A call of a kernel costs as much for each array that it is given as many a search. So a single event is searched with
two addresses: of a handle of the index (int64), which has the addresses of all arrays, and of one of the room that the
match has to itself.

The handle of a view is made by `view_handle`: dimensions, singles, whether there are holes, then address and size of
each of nine arrays, then address and size of numbers and table and the address of sides for each dimension. That of a
room, made by `room_handle`, has address and size of what a match writes to: input, codes, slots, ids, two stacks.

Where rows need pieces of strings, or are special, `match_text` is called with more of both: a handle made by
`text_handle`, of the pieces and needs, and a room with five more arrays.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.kernels.addresses import array_at
from weft.kernels.automaton import Automaton, find_in_one
from weft.kernels.encode import bucket_of, ends, place_of
from weft.kernels.jit import MOST_AT_ONCE, inlined, light
from weft.kernels.leaves import grown
from weft.kernels.needs import RECORD, meets
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
_TEXT_ROOM: tuple[Any, ...] = (np.uint8, np.int64, np.uint8, np.int32, np.int32, np.int32)
_TEXT_ARRAYS = _ARRAYS + len(_TEXT_ROOM)
_TEXT_HEAD, _AUTOMATON = 2 + 2 * 3, len(Automaton._fields)


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


def room_handle(arrays: Sequence[NDArray[Any]], kinds: Sequence[Any] = _ROOM) -> NDArray[np.int64]:
    """The handle of input (float64: a mask of bits, then a value for each dimension), codes (int32[dimensions]), slots
    (int32), ids (int64) and two stacks (int64).
    """
    assert all(_is(array, kind) for array, kind in zip(arrays, kinds, strict=True))
    return np.array([part for array in arrays for part in (array.ctypes.data, array.size)], np.int64)


def text_handle(
    automata: Sequence[Automaton],
    dim: int,
    anchors: NDArray[np.bool_],
    records: NDArray[np.int32],
    others: NDArray[np.int32],
) -> NDArray[np.int64]:
    """The handle of pieces and needs: how many automata, the dimension of anchors, then address and size of `anchors`
    (whether a piece is one), of the needs (see `needs`), and of the arrays of each automaton.
    """
    arrays = [anchors, records, others, *(array for automaton in automata for array in automaton)]
    return np.array([len(automata), dim, *(part for a in arrays for part in (a.ctypes.data, a.size))], np.int64)


def text_room_handle(room: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """The handle of a room with room for text (uint8), its parts (int64: how many, then the automaton and the end of
    each), marks (uint8, zero, one more than pieces), numbers of pieces (int32, two more than pieces), states (int32)
    and special rows (int32).
    """
    return np.concatenate([room_handle(room), room_handle(arrays, _TEXT_ROOM)])


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


@inlined
def _tree_at(handle):
    """The tree of a view."""
    return PartitionTree(
        array_at(handle[3], handle[4], np.int32),
        array_at(handle[5], handle[6], np.int32),
        array_at(handle[7], handle[8], np.int32),
        array_at(handle[9], handle[10], np.uint16),
        array_at(handle[11], handle[12], np.int32),
        array_at(handle[13], handle[14], np.uint32),
    )


@inlined
def _encode(handle_address, dimensions, room, codes):
    """Write the codes of an event's values."""
    mask = array_at(room[0], 1, np.int64)[0]
    values = array_at(room[0] + 8, dimensions, np.float64)
    lines = array_at(handle_address + 8 * _HEAD, _PER_DIMENSION * dimensions, np.int64)
    _fetch(lines, dimensions, mask, values, codes)
    for dim in range(dimensions):
        if mask >> dim & 1:
            codes[dim] = np.int32(values[dim])
        else:
            numbers, sides, table = _line(lines, dim)
            codes[dim] = place_of(numbers, sides, table, *ends(numbers, table), values[dim])


@inlined
def _write_ids(handle, slot, ids, needed):
    """Write the subscriptions of a slot to `ids` from `needed` on, as far as there is room; returns the new end."""
    subs, firsts = array_at(handle[15], handle[16], np.int64), array_at(handle[17], handle[18], np.uint32)
    alive, holes = array_at(handle[19], handle[20], np.bool_), handle[2]
    if slot < handle[1] and not holes:
        if needed < ids.size:
            ids[needed] = subs[slot]
        return needed + 1
    for place in range(np.int64(firsts[slot]), np.int64(firsts[slot + 1])):
        if not holes or alive[place]:
            if needed < ids.size:
                ids[needed] = subs[place]
            needed += 1
    return needed


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
    tree, dimensions = _tree_at(handle), handle[0]
    codes = array_at(room[2], dimensions, np.int32)
    out = array_at(room[4], room[5], np.int32)
    ids = array_at(room[6], room[7], np.int64)
    _encode(handle_address, dimensions, room, codes)
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
        needed = _write_ids(handle, np.int64(out[at]), ids, needed)
    return needed if needed <= ids.size else ~needed


@inlined
def _automaton_at(handle, number):
    """One of the automata of a handle of pieces."""
    at = _TEXT_HEAD + 2 * _AUTOMATON * number
    return Automaton(
        array_at(handle[at], handle[at + 1], np.int32),
        array_at(handle[at + 2], handle[at + 3], np.int32),
        array_at(handle[at + 4], handle[at + 5], np.int32),
        array_at(handle[at + 6], handle[at + 7], np.int64),
        array_at(handle[at + 8], handle[at + 9], np.int32),
        array_at(handle[at + 10], handle[at + 11], np.int32),
        array_at(handle[at + 12], handle[at + 13], np.int64),
        array_at(handle[at + 14], handle[at + 15], np.uint8),
    )


def _text_work(handle_address: int, text_address: int, room_address: int) -> int:
    """How many rows and subscriptions there are to be searched; more than is done plain, if there are pieces."""
    return MOST_AT_ONCE if array_at(text_address, 1, np.int64)[0] else _work(handle_address, room_address)


@light(_text_work)
def match_text(handle_address, text_address, room_address):
    """The same where rows need pieces, or are special. The texts of the event are in the room. Special rows whose needs
    are met are written to the room too, by their names, and their number to the first place of its `parts`; there may
    be more than there is room for.
    """
    handle, room = array_at(handle_address, _HEAD, np.int64), array_at(room_address, 2 * _TEXT_ARRAYS, np.int64)
    few = array_at(text_address, _TEXT_HEAD, np.int64)
    automata, dim = few[0], few[1]
    more = array_at(text_address, _TEXT_HEAD + 2 * _AUTOMATON * automata, np.int64)
    is_anchor = array_at(few[2], few[3], np.bool_)
    records, others = array_at(few[4], few[5], np.int32), array_at(few[6], few[7], np.int32)
    tree, dimensions = _tree_at(handle), handle[0]
    codes = array_at(room[2], dimensions, np.int32)
    out = array_at(room[4], room[5], np.int32)
    ids = array_at(room[6], room[7], np.int64)
    text, parts = array_at(room[12], room[13], np.uint8), array_at(room[14], room[15], np.int64)
    marks, numbers = array_at(room[16], room[17], np.uint8), array_at(room[18], room[19], np.int32)
    states, special = array_at(room[20], room[21], np.int32), array_at(room[22], room[23], np.int32)
    _encode(handle_address, dimensions, room, codes)
    size, begin = np.int64(0), np.int64(0)
    for part in range(parts[0]):
        automaton, end = _automaton_at(more, parts[2 * part + 1]), parts[2 * part + 2]
        size = find_in_one(automaton, text, begin, end, marks, numbers, size, states)
        begin = end
    only = codes.reshape(1, codes.size)
    stack, leaves = array_at(room[8], room[9], np.int64), array_at(room[10], room[11], np.int64)
    event, mode, found = np.int64(0), np.int64(FIND), np.int64(0)
    reached, anchor = np.int64(0), np.int64(-1)
    while anchor < size:  # once without an anchor, and once with each that the event has
        if anchor >= 0:
            if not is_anchor[numbers[anchor]]:
                anchor += 1
                continue
            codes[dim] = numbers[anchor] + 1
        while True:
            reached = walk(tree, only, event, stack, leaves, np.int64(0))
            if reached >= 0:
                break
            stack, leaves = grown(stack, 2 * stack.size), grown(leaves, 2 * leaves.size)
        for at in range(reached):
            needed = found + most_in(tree, leaves[at])
            if needed > out.size:
                out = grown(out, needed)
            found, _ = scan_leaf(tree, only, event, leaves[at], found, out, mode)
        anchor += 1
    needed, odd = np.int64(0), np.int64(0)
    for at in range(found):
        name, fine = np.int64(out[at]), True
        if name < 0 and records.size:
            fine = meets(name, records, others, marks)
            slot = np.int64(records[np.uint64(RECORD * ~name)])
            name = slot if slot >= 0 else name
        if not fine:
            continue
        if name >= 0:
            needed = _write_ids(handle, name, ids, needed)
        else:
            if odd < special.size:
                special[odd] = name
            odd += 1
    for at in range(size):
        marks[np.uint64(numbers[at])] = 0
    parts[0] = odd
    return needed if needed <= ids.size else ~needed
