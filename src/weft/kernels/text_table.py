"""Texts to codes, by a hash table over their bytes. A text that is found has the code it was given; one that is not
found may have one all the same, and is left to the caller.

Text t of a list is letters[starts[t] : starts[t + 1]] (uint8, int64). `table` (int32) has the number of a text at each
place, or -1; its size is a power of two. Texts that would need many probes are left out, so that no texts make this
slow.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

import numpy as np

from weft.kernels.addresses import lent
from weft.kernels.jit import elements, inlined, light

_MOST_PROBES = 16
_LOW, _ODD = 0xFFFFFFFF, 0x2C1B3C6D


@inlined
def _place(letters, start, end):
    """A hash of 32 bits, four letters at a time. Signed 64-bit integers never overflow here, compiled or not."""
    found, at = np.int64(end - start), start
    while at + 4 <= end:
        low = np.int64(letters[at]) | np.int64(letters[at + 1]) << 8
        high = np.int64(letters[at + 2]) | np.int64(letters[at + 3]) << 8
        found = ((found ^ (low | high << 16)) * _ODD) & _LOW
        at += 4
    while at < end:
        found = ((found ^ np.int64(letters[at])) * _ODD) & _LOW
        at += 1
    found = ((found ^ (found >> 15)) * _ODD) & _LOW
    return found ^ (found >> 15)


@inlined
def _same(letters, start, end, others, first, last):
    """Whether two texts are equal."""
    if end - start != last - first:
        return False
    for at in range(end - start):  # noqa: SIM110 - a kernel
        if letters[start + at] != others[first + at]:
            return False
    return True


@light(elements)
def fill_table(letters, starts, table):
    """Fill a table, which must be -1 everywhere, with different texts."""
    for text in range(starts.size - 1):
        place = _place(letters, starts[text], starts[text + 1]) & (table.size - 1)
        for _ in range(_MOST_PROBES):
            if table[place] < 0:
                table[place] = text
                break
            place = (place + 1) & (table.size - 1)


@light(elements)
def find_texts(letters, starts, table, codes, given, ends, out):
    """Write the code (int32) of each given text to `out`, or -1 if it is not found. Given text t is
    given[ends[t] : ends[t + 1]].
    """
    letters, starts, given = lent(letters), lent(starts), lent(given)
    longest = np.int64(0)
    for text in range(starts.size - 1):
        longest = max(longest, starts[text + 1] - starts[text])
    for row in range(out.size):
        start, end = ends[row], ends[row + 1]
        out[row] = -1
        if end - start > longest:
            continue
        place = _place(given, start, end) & (table.size - 1)
        for _ in range(_MOST_PROBES):
            text = table[place]
            if text < 0:
                break
            if _same(given, start, end, letters, starts[text], starts[text + 1]):
                out[row] = codes[text]
                break
            place = (place + 1) & (table.size - 1)
