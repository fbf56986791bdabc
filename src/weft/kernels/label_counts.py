"""Labels with counts, exactly: open addressing. Laws: a label is in the run of slots from its hash on, without a gap;
taking the last of a label out closes the gap, so there are no graves and a table never grows slower.

`keys` is int64[m], EMPTY where there is none, `counts` int32[m]; m is a power of two. `head` (int64[1]) is how many
labels there are. Labels are not negative.
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
    """The slot of a label, or the empty one where it would be put."""
    mask = keys.size - 1
    at = _home(int(label), mask)
    while keys[at] != label and keys[at] != EMPTY:
        at = (at + 1) & mask
    return at


@jit
def add(keys, counts, head, labels, begin, new, found):
    """Count labels in from number `begin` on, until half of the slots are taken.

    Appends to `new` (int64[n]), after `found`, those that were not there; returns how many are done, and its end.
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
    """Empty a slot, and move up what the gap would cut off."""
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
    """Count labels out, until one is not there; returns how many are done, and the end of `gone` (int64[n]), to which
    those are written that nobody holds any more.
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
    """Put all into larger or smaller slots, which are empty."""
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
