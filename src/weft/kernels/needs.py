"""The search by pieces that events contain, and by the other needs of what is found. A row stays if and only if the
event has every piece that the row needs, and none that it must not have.

What a special row needs is one record (int32[4]), because reads from several arrays take longer than the tests: its
slot, or -1 if it keeps its name; two needs; and where its further needs are in `others` (int32), their number and then
the need is a piece that must be there, or the complement of one that must not. The record of name n is
record ~n.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

import numpy as np

from weft.kernels.addresses import lent
from weft.kernels.jit import inlined, jit

RECORD = 4


@inlined
def _is_met(need, marks):
    """Whether a piece is marked, or, for a complement, is not."""
    sign = np.int64(need) >> np.int64(63)
    return np.int64(marks[np.uint64(need ^ sign)]) + sign != 0


@inlined
def _are_met(others, at, marks):
    """Whether the needs are met that begin at others[at]."""
    fine = True
    for place in range(at + 1, at + 1 + np.int64(others[at])):
        fine &= _is_met(np.int64(others[place]), marks)
    return fine


@inlined
def meets(name, records, others, marks):
    """Whether an event with the marked pieces meets the needs of a special row."""
    record = np.uint64(RECORD * ~name)
    further = np.int64(records[record + np.uint64(3)])
    first, second = np.int64(records[record + np.uint64(1)]), np.int64(records[record + np.uint64(2)])
    fine = _is_met(first, marks) & _is_met(second, marks)
    if further >= 0 and fine:
        fine = _are_met(others, further, marks)
    return fine


@jit
def meet_needs(names, offsets, records, others, piece_offsets, pieces, marks, new_offsets):
    """Drop, in place, the found names of special rows whose needs an event does not meet, and replace the others by
    their slots; fills `new_offsets`. Returns how many names are left.

    The names of event e are names[offsets[e]:offsets[e + 1]], and its pieces those of `piece_offsets`. `marks` (uint8)
    has a place for each piece and one more, and is zero, before and afterwards.
    """
    names, records, others, marks, pieces = lent(names), lent(records), lent(others), lent(marks), lent(pieces)
    left = np.uint64(0)  # unsigned places need no test whether they count from the end
    new_offsets[0] = 0
    for event in range(offsets.size - 1):
        begin, end = np.uint64(piece_offsets[event]), np.uint64(piece_offsets[event + 1])
        for at in range(begin, end):
            marks[np.uint64(pieces[at])] = 1
        for at in range(np.uint64(offsets[event]), np.uint64(offsets[event + 1])):
            name, fine = np.int64(names[at]), True
            if name < 0:
                fine = meets(name, records, others, marks)
                slot = np.int64(records[np.uint64(RECORD * ~name)])
                name = slot if slot >= 0 else name
            names[left] = name
            left += np.uint64(fine)
        for at in range(begin, end):
            marks[np.uint64(pieces[at])] = 0
        new_offsets[event + 1] = left
    return np.int64(left)


@jit
def spread_codes(codes, piece_offsets, pieces, is_anchor, dim, out, firsts):
    """Write each event's codes to `out`, which has room for all, once with code 0 in a dimension, and once for each of
    its pieces that is an anchor, with the piece's number + 1. `firsts` (int64) says where those of each event begin.
    """
    pieces, is_anchor, out = lent(pieces), lent(is_anchor), lent(out)
    to = np.int64(0)
    for event in range(codes.shape[0]):
        firsts[event] = to
        for column in range(codes.shape[1]):
            out[to, column] = codes[event, column]
        out[to, dim] = 0
        to += 1
        for at in range(piece_offsets[event], piece_offsets[event + 1]):
            if is_anchor[pieces[at]]:
                for column in range(codes.shape[1]):
                    out[to, column] = codes[event, column]
                out[to, dim] = pieces[at] + 1
                to += 1
    firsts[codes.shape[0]] = to
