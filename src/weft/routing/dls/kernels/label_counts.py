"""Exact counts of labels, by open addressing. A label lies in the run of used slots that begins at its hash. Removing
the last copy of a label closes the gap, so there are no tombstones and a table never slows down with age.

`keys` is int64[m], EMPTY where a slot is unused, `counts` is int32[m], and m is a power of two. `head` (int64[1]) is
the number of labels. Labels are never negative.
"""

from __future__ import annotations

from weft.kernels.hashing import mix
from weft.kernels.jit import jit

EMPTY = -1


@jit
def _home(label, mask):
    return mix(mix(label & 0xFFFFFFFF) ^ (label >> 32)) & mask


@jit
def find(keys, label):
    """The slot of a label, or the empty slot where it would go."""
    mask = keys.size - 1
    at = _home(int(label), mask)
    while keys[at] != label and keys[at] != EMPTY:
        at = (at + 1) & mask
    return at


@jit
def add(keys, counts, head, labels, begin, new, found):
    """Add labels from number `begin` on, until half of the slots are used.

    Labels that were not present are appended to `new` (int64[n]) after `found`. Returns how many labels were added and
    the new end of `new`.
    """
    for i in range(begin, labels.size):
        if 2 * head[0] >= keys.size:
            return i, found
        at = find(keys, labels[i])
        if keys[at] == EMPTY:
            keys[at] = labels[i]
            counts[at] = 1
            head[0] += 1
            new[found] = labels[i]
            found += 1
        else:
            counts[at] += 1
    return labels.size, found


@jit
def _close(keys, counts, at):
    """Empty a slot and move up the entries that the gap would cut off."""
    mask = keys.size - 1
    following = (at + 1) & mask
    while keys[following] != EMPTY:
        home = _home(int(keys[following]), mask)
        if ((following - home) & mask) >= ((following - at) & mask):
            keys[at] = keys[following]
            counts[at] = counts[following]
            at = following
        following = (following + 1) & mask
    keys[at] = EMPTY
    counts[at] = 0


@jit
def remove(keys, counts, head, labels, gone):
    """Remove labels, up to the first one that is not present. Labels whose count drops to 0 are written to `gone`
    (int64[n]). Returns how many labels were removed and the end of `gone`.
    """
    found = 0
    for i in range(labels.size):
        at = find(keys, labels[i])
        if keys[at] == EMPTY:
            return i, found
        counts[at] -= 1
        if counts[at] == 0:
            _close(keys, counts, at)
            head[0] -= 1
            gone[found] = labels[i]
            found += 1
    return labels.size, found


@jit
def moved(keys, counts, more_keys, more_counts):
    """Move all labels into larger or smaller slots, which must be empty."""
    for i in range(keys.size):
        if keys[i] != EMPTY:
            at = find(more_keys, keys[i])
            more_keys[at] = keys[i]
            more_counts[at] = counts[i]


@jit
def held(keys, counts, labels, out):
    """Write to `out` (int32[n]) the count of each label."""
    for i in range(labels.size):
        at = find(keys, labels[i])
        out[i] = counts[at] if keys[at] != EMPTY else 0
