"""Ranges added to and removed from steps (see `steps`). Each is located by one descent. Removing is adding run
backwards. A range that cannot be removed changes nothing.

Ranges are `starts` and `ends` (int64[n], both inclusive). The parts found are rows of an int64[m, 2]: start and end.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import jit
from weft.kernels.steps import (
    FREE,
    LAST,
    SIZE,
    USED,
    bare,
    count_of,
    fetch,
    floor,
    following,
    last_of,
    locate,
    put,
    settle,
    take,
)

ROOM = 2  # free slots that one range may need
_AHEAD = 4  # ranges, or points, whose block is prefetched


@jit
def _add(t, at, place, a, b, change):
    """Add 1 or -1 to the counts of all points from a, which lies in the step at `place`, to b."""
    size = t.head[SIZE]
    slot = np.int64(t.order[at])
    count = count_of(t, at, place)
    end_at = at
    while end_at + 1 < t.head[USED] and t.firsts[end_at + 1] <= b:
        end_at += 1
    end_slot = np.int64(t.order[end_at])
    begin = place if end_at == at else end_slot * size
    end = floor(t.keys, begin, end_slot * size + t.sizes[end_slot] - begin, b)
    end_count = count_of(t, end_at, end)
    if end_at == at:
        for i in range(place + 1, end + 1):
            t.counts[i] += change
        if end > place:
            settle(t, slot)
    else:
        for i in range(place + 1, slot * size + t.sizes[slot]):
            t.counts[i] += change
        for i in range(at + 1, end_at):
            t.pending[t.order[i]] += change
            t.lowest[t.order[i]] += change
        for i in range(end_slot * size, end + 1):
            t.counts[i] += change
        settle(t, slot)
        settle(t, end_slot)
    moved = False
    if b < LAST:
        if last_of(t, end_at, end) > b:
            moved = put(t, end_at, end, b + 1, end_count)
        else:
            next_at, after = following(t, end_at, end)
            if count_of(t, next_at, after) == end_count + change:
                moved = take(t, next_at, after)
    if moved:
        at, place = locate(t, a)
    if t.keys[place] < a:
        put(t, at, place, a, count + change)
        return
    if a > 0:
        if place > np.int64(t.order[at]) * size:
            before = count_of(t, at, place - 1)
        else:
            ahead = np.int64(t.order[at - 1])
            before = count_of(t, at - 1, ahead * size + t.sizes[ahead] - 1)
        if before == count + change:
            take(t, at, place)
            return
    t.counts[place] += change
    settle(t, np.int64(t.order[at]))


@jit
def _longer(parts, size):
    """The parts, or a copy of at least twice the length with room for `size`."""
    if size <= parts.shape[0]:
        return parts
    more = np.empty((max(size, 2 * parts.shape[0]), 2), np.int64)
    more[: parts.shape[0]] = parts
    return more


@jit
def _difference(t, at, place, a, b, gap, parts, found, told, said):
    """Append what [a, b] adds to a table without it: to `parts`, the points that no other range needs; to `told`, what
    changes once gaps of up to `gap` points are closed. Returns both arrays, possibly reallocated, with their new ends.
    """
    at, place = bare(t, at, place, b)
    while place >= 0:
        low, high = t.keys[place], last_of(t, at, place)
        parts = _longer(parts, found + 1)
        parts[found, 0], parts[found, 1] = max(low, a), min(high, b)
        found += 1
        inside = low > 0 and high < LAST  # a run at either end of the curve is not a gap
        if gap > 0 and not (inside and high - low < gap):
            told = _longer(told, said + 1)
            told[said, 0], told[said, 1] = max(low, a), min(high, b)
            if 0 < low < a and a - low <= gap:
                told[said, 0] = low
            if b < high < LAST and high - b <= gap:
                told[said, 1] = high
            said += 1
        if high >= b:
            break
        at, place = following(t, at, place)
        at, place = bare(t, at, place, b)
    return parts, found, told, said


@jit
def count(t, starts, ends, begin, change, gap, parts, found, told, said, marks):
    """Add (change 1) or remove (change -1) ranges one after another, from number `begin` on, until slots run out.

    Returns how many are done; `parts` with all points that are newly needed, or no longer needed; and `told` (if gap >
    0) with all points newly announced, or no longer announced; each with its end. marks[r + 1] (int64[n + 1]) is the
    end of the parts of range r. The difference is computed without the range itself, before it is added or after it is
    removed, so both directions give the same result. A range with a point that has no count cannot be removed: the
    function then returns -1 - r and leaves r and all later ranges as they are.
    """
    for r in range(begin, starts.size):
        if t.head[FREE] < ROOM:
            return r, parts, found, told, said
        if r + _AHEAD < starts.size:
            fetch(t, starts[r + _AHEAD])
        a, b = starts[r], ends[r]
        at, place = locate(t, a)
        if change < 0:
            if bare(t, at, place, b)[1] >= 0:
                return -1 - r, parts, found, told, said
            _add(t, at, place, a, b, change)
            at, place = locate(t, a)
        parts, found, told, said = _difference(t, at, place, a, b, gap, parts, found, told, said)
        if change > 0:
            _add(t, at, place, a, b, change)
        marks[r + 1] = found
    return starts.size, parts, found, told, said


@jit
def uncovered(t, starts, ends, parts, marks):
    """The points of the ranges that nothing needs: `parts`, possibly reallocated, with its end; `marks` as in
    `count`.
    """
    found = 0
    for r in range(starts.size):
        if r + _AHEAD < starts.size:
            fetch(t, starts[r + _AHEAD])
        at, place = locate(t, starts[r])
        parts, found, _, _ = _difference(t, at, place, starts[r], ends[r], 0, parts, found, parts, 0)
        marks[r + 1] = found
    return parts, found


@jit
def covers(t, offsets, starts, ends, out):
    """Write to out[row] (bool[n]) whether all points of the ranges offsets[row]:offsets[row + 1] are needed."""
    for row in range(out.size):
        out[row] = True
        for r in range(offsets[row], offsets[row + 1]):
            if r + _AHEAD < starts.size:
                fetch(t, starts[r + _AHEAD])
            at, place = locate(t, starts[r])
            if bare(t, at, place, ends[r])[1] >= 0:
                out[row] = False
                break


@jit
def needs(t, points, out):
    """Write to `out` (int64[n]) how many ranges need each point. Cost: one look-up per point."""
    size = t.head[SIZE]
    slots = np.empty(_AHEAD, np.int64)
    for i in range(min(_AHEAD, points.size)):
        slots[i] = fetch(t, points[i])
    for i in range(points.size):
        slot = slots[i % _AHEAD]
        place = floor(t.keys, slot * size, np.int64(t.sizes[slot]), points[i])
        out[i] = t.counts[place] + t.pending[slot]
        if i + _AHEAD < points.size:
            slots[i % _AHEAD] = fetch(t, points[i + _AHEAD])
