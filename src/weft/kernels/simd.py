"""Thirty-two comparisons at once. Each intrinsic has a plain twin that gives the same result.

A lane is a row of a block. Bounds lie in `data` (uint16): 32 lows and then 32 widths (high - low), in bytes or in 16
bits. For codes beyond 16 bits, they are the upper halves and the lower halves of 32 lows and then of 32 highs. A mask
has bit i set for lane i.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import intrinsic

LANES = 32
_plain = intrinsic("weft.kernels.simd_intrinsics")
_BITS = np.left_shift(np.uint64(1), np.arange(LANES, dtype=np.uint64))


@_plain
def byte_mask(data, at, code):
    """Lanes with low <= code <= low + width, of 8-bit codes at data[at:at+32]."""
    low, width = data[at : at + LANES].view(np.uint8).reshape(2, LANES)
    return np.uint32(_BITS[code - low <= width].sum())


@_plain
def narrow_mask(data, at, code):
    """Lanes with low <= code <= low + width, of 16-bit codes at data[at:at+64]."""
    low, width = data[at : at + LANES], data[at + LANES : at + 2 * LANES]
    return np.uint32(_BITS[code - low <= width].sum())


@_plain
def wide_mask(data, at, code):
    """Lanes with low <= code <= high, of 32-bit codes in halves at data[at:at+128]."""
    parts = data[at : at + 4 * LANES].astype(np.uint32).reshape(4, LANES)
    low, high = parts[0] << np.uint32(16) | parts[1], parts[2] << np.uint32(16) | parts[3]
    return np.uint32(_BITS[(low <= code) & (code <= high)].sum())


@_plain
def lowest(mask):
    """The position of the lowest set bit of a nonzero mask."""
    return (int(mask) & -int(mask)).bit_length() - 1


@_plain
def ones(mask):
    """How many bits of a mask are set."""
    return int(mask).bit_count()


@_plain
def compress(ids, at, out, to, mask):
    """Store those of the 16 ids (int32) at ids[at:at+16] whose bit is set, side by side from out[to]."""
    kept = ids[at : at + 16][[bool(int(mask) >> lane & 1) for lane in range(16)]]
    out[to : to + len(kept)] = kept


@_plain
def compress_long(ids, out, to, mask):
    """Store those of the first 32 ids (int64) whose bit is set, side by side from out[to]."""
    kept = ids[:LANES][[bool(int(mask) >> lane & 1) for lane in range(LANES)]]
    out[to : to + len(kept)] = kept


@_plain
def copy_eight(source, at, target, to):
    """Copy source[at:at+8] (int64) to target[to:to+8]."""
    target[to : to + 8] = source[at : at + 8]


@_plain
def take_four(values, places, at, out, to):
    """Write values[places[at:at+4]] (int64) to out[to:to+4]. No place may be negative."""
    out[to : to + 4] = values[places[at : at + 4]]


@_plain
def prefetch(array, at):
    """Prefetch array[at]. Any position is safe."""
