"""Counting Bloom filters. A label that was added and not removed is found. A full counter is never decremented, so it
stays on the safe side (errata, DLS 6). Removing a label and adding it again restores the counters.

Counters are uint8[m] if `wide`, else uint8[m / 2] with two 4-bit counters per byte. m is a power of two and at least
`hashes`, so the counters of one label are all different. Labels are int64[n] and never negative.
"""

from __future__ import annotations

from weft.kernels.hashing import two
from weft.kernels.jit import jit


@jit
def _count(counters, wide, at):
    """The counter at a position."""
    if wide:
        return int(counters[at])
    return (int(counters[at >> 1]) >> ((at & 1) << 2)) & 15


@jit
def _put(counters, wide, at, count):
    """Set the counter at a position."""
    if wide:
        counters[at] = count
    else:
        shift = (at & 1) << 2
        counters[at >> 1] = (int(counters[at >> 1]) & (240 >> shift)) | (count << shift)


@jit
def _least(counters, wide, mask, hashes, first, second):
    """The smallest counter of a label."""
    least = 255
    for i in range(hashes):
        count = _count(counters, wide, (first + i * second) & mask)
        if count < least:
            least = count
            if least == 0:
                break
    return least


@jit
def add(counters, wide, hashes, seed, labels):
    """Increment the counters of each label. Full counters stay full."""
    mask = (counters.size if wide else 2 * counters.size) - 1
    full = 255 if wide else 15
    for label in labels:
        first, second = two(int(label), seed)
        for i in range(hashes):
            at = (first + i * second) & mask
            count = _count(counters, wide, at)
            if count < full:
                _put(counters, wide, at, count + 1)


@jit
def remove(counters, wide, hashes, seed, labels):
    """Decrement the counters of each label, up to the first one that is not present; returns how many were removed."""
    mask = (counters.size if wide else 2 * counters.size) - 1
    full = 255 if wide else 15
    for done in range(labels.size):
        first, second = two(int(labels[done]), seed)
        if _least(counters, wide, mask, hashes, first, second) == 0:
            return done
        for i in range(hashes):
            at = (first + i * second) & mask
            count = _count(counters, wide, at)
            if count < full:
                _put(counters, wide, at, count - 1)
    return labels.size


@jit
def counts(counters, wide, hashes, seed, labels, out):
    """Write the smallest counter of each label to `out` (uint8[n]). Unless it is full, the label was added at most that
    often.
    """
    mask = (counters.size if wide else 2 * counters.size) - 1
    for i in range(labels.size):
        first, second = two(int(labels[i]), seed)
        out[i] = _least(counters, wide, mask, hashes, first, second)


@jit
def merge(counters, wide, more):
    """Add the counters of another filter of the same shape. A sum past the maximum becomes a full counter."""
    full = 255 if wide else 15
    for at in range(counters.size if wide else 2 * counters.size):
        count = _count(counters, wide, at) + _count(more, wide, at)
        _put(counters, wide, at, min(count, full))


@jit
def census(counters, wide, out):
    """Write to `out` (int64[2]) how many counters are above 0 and how many are full."""
    full = 255 if wide else 15
    out[0] = out[1] = 0
    for at in range(counters.size if wide else 2 * counters.size):
        count = _count(counters, wide, at)
        if count > 0:
            out[0] += 1
        if count == full:
            out[1] += 1
