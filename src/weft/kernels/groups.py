"""Equal filters as one slot, and the subscriptions of the slots that were found. Two slots are in one group only if
they have the same rows. A found slot gives each of its living subscriptions once.

The subscriptions of slot s are subs[firsts[s] : firsts[s + 1]] (int64); a position in `subs` is a place. The first
`singles` slots have one subscription each, so that a slot is a place there. The rows of slot s are first_row[s] to
first_row[s + 1], with constraints as in `partition`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

import numpy as np

from weft.kernels.hashing import mix
from weft.kernels.jit import elements, inner, jit, light
from weft.kernels.simd import copy_eight, prefetch

_MOST_PROBES = 64  # for one slot; then it is a group of its own, so that no filters make this slow
_AHEAD = 4  # slots
_LOW = 0xFFFFFFFF


@inner
def _hash(first_row, starts, dims, lows, highs, source, slot):
    """A hash of 32 bits that does not depend on the order of a row's constraints."""
    if source[slot] >= 0:
        return mix((source[slot] + 1) & _LOW)
    total = np.int64(0)
    for row in range(first_row[slot], first_row[slot + 1]):
        own = np.int64(1)
        for place in range(starts[row], starts[row + 1]):
            own += mix(mix(mix(np.int64(dims[place])) ^ np.int64(lows[place])) ^ np.int64(highs[place]))
        total = mix((total + own) & _LOW)
    return total


@inner
def _equal(first_row, starts, dims, lows, highs, source, one, other):
    """Whether two slots have the same rows in the same order, the constraints of each row in any order."""
    if source[one] >= 0 or source[other] >= 0:
        return source[one] == source[other]
    if first_row[one + 1] - first_row[one] != first_row[other + 1] - first_row[other]:
        return False
    for at in range(first_row[one + 1] - first_row[one]):
        row, twin = first_row[one] + at, first_row[other] + at
        if starts[row + 1] - starts[row] != starts[twin + 1] - starts[twin]:
            return False
        for place in range(starts[row], starts[row + 1]):
            found = False
            for there in range(starts[twin], starts[twin + 1]):
                if dims[there] == dims[place]:
                    found = lows[there] == lows[place] and highs[there] == highs[place]
                    break
            if not found:
                return False
    return True


@light(elements)
def group_slots(first_row, starts, dims, lows, highs, source, group):
    """Write the group of each slot to `group` (int32), numbered in the order in which they are met; returns how many.

    `source` (int64) numbers what rows do not tell of a slot, -1 if they tell it all: slots with one source are equal.
    """
    size = 4
    while size < 2 * group.size:
        size *= 2
    table = np.full(size, -1, np.int32)  # the first slot of each group
    last, groups = size - 1, 0
    for slot in range(group.size):
        at = _hash(first_row, starts, dims, lows, highs, source, slot) & last
        group[slot] = -1
        for _ in range(_MOST_PROBES):
            known = table[at]
            if known < 0:
                table[at] = slot
                break
            if _equal(first_row, starts, dims, lows, highs, source, known, slot):
                group[slot] = group[known]
                break
            at = (at + 1) & last
        if group[slot] < 0:
            group[slot] = groups
            groups += 1
    return groups


@light(elements)
def gather(firsts, subs, to, new_firsts, new_subs):
    """Write the subscriptions of slot s to those of slot to[s] (int32), of which there may be fewer."""
    for slot in range(new_firsts.size):
        new_firsts[slot] = 0
    for slot in range(to.size):
        new_firsts[to[slot] + 1] += firsts[slot + 1] - firsts[slot]
    for slot in range(new_firsts.size - 1):
        new_firsts[slot + 1] += new_firsts[slot]
    free = new_firsts[:-1].copy()
    for slot in range(to.size):
        at = free[to[slot]]
        for place in range(firsts[slot], firsts[slot + 1]):
            new_subs[at] = subs[place]
            at += 1
        free[to[slot]] = at


@jit
def count_members(slots, offsets, firsts, singles, alive, holes, counts):
    """Add the number of living subscriptions of each event's slots, slots[offsets[e]:offsets[e + 1]], to `counts`.

    `alive` (bool, by place) is read only if there are `holes`: dead subscriptions in slots that live.
    """
    for event in range(counts.size):
        total = 0
        for at in range(offsets[event], offsets[event + 1]):
            slot = slots[at]
            if holes:
                for place in range(firsts[slot], firsts[slot + 1]):
                    total += alive[place]
            elif slot < singles:
                total += 1
            else:
                total += np.int64(firsts[slot + 1]) - np.int64(firsts[slot])
        counts[event] += total


@jit
def write_members(slots, offsets, firsts, singles, subs, alive, holes, free, out):
    """Write the living subscriptions of each event's slots to `out` from free[event] on, and move free[event]."""
    for event in range(free.size):
        to = free[event]
        for at in range(offsets[event], offsets[event + 1]):
            slot = slots[at]
            if slot < singles and not holes:
                out[to] = subs[slot]
                to += 1
                continue
            if at + 2 * _AHEAD < slots.size:  # they are scattered in memory
                prefetch(firsts, np.int64(slots[at + 2 * _AHEAD]))
                soon = np.int64(firsts[slots[at + _AHEAD]])
                prefetch(subs, soon)
                prefetch(subs, soon + 8)
            first, last = np.int64(firsts[slot]), np.int64(firsts[slot + 1])
            if holes:
                for place in range(first, last):
                    if alive[place]:
                        out[to] = subs[place]
                        to += 1
            else:
                for place in range(last - first):
                    out[to + place] = subs[first + place]
                to += last - first
        free[event] = to


@jit
def copy_members(slots, firsts, subs, out):
    """Write the subscriptions of all slots to `out`, which has room for just these; all of them live.

    Most lists are short: copied past their ends where something else follows, sixteen ids and then eight at a time,
    they take the time of one copy of as many bytes.
    """
    to = np.int64(0)
    for at in range(slots.size):
        if at + 2 * _AHEAD < slots.size:  # they are scattered in memory
            prefetch(firsts, np.int64(slots[at + 2 * _AHEAD]))
            soon = np.int64(firsts[slots[at + _AHEAD]])
            prefetch(subs, soon)
            prefetch(subs, soon + 8)
        place, last = np.int64(firsts[slots[at]]), np.int64(firsts[slots[at] + 1])
        end = to + last - place
        if end + 16 <= out.size and last + 16 <= subs.size:
            copy_eight(subs, place, out, to)
            copy_eight(subs, place + 8, out, to + 8)  # whether it is needed would be hard to predict
            to += 16
            place += 16
            while to < end:
                copy_eight(subs, place, out, to)
                to += 8
                place += 8
            to = end
        else:
            for there in range(place, last):
                out[to] = subs[there]
                to += 1


@jit
def distinct_labels(ids, offsets, labels, met, out, new_offsets):
    """Write the distinct labels[id] of each event's ids to `out`, and where they begin to `new_offsets`.

    `met` (int64, one per label) must be -1 everywhere. Returns how many there are.
    """
    found = 0
    new_offsets[0] = 0
    for event in range(offsets.size - 1):
        for at in range(offsets[event], offsets[event + 1]):
            label = labels[ids[at]]
            if met[label] != event:
                met[label] = event
                out[found] = label
                found += 1
        new_offsets[event + 1] = found
    return found
