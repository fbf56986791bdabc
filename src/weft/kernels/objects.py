"""Lists of Python objects, made by a kernel. The caller keeps the objects alive. The list has references of its own,
which are counted while the interpreter's lock is held.

To refer to an object is to write to its header, and objects lie anywhere in memory: each is a cache miss. So all are
prefetched before the first is written to, and the misses overlap.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc", no-check-untyped-defs

from __future__ import annotations

import ctypes

import numpy as np

from weft.kernels.addresses import array_at
from weft.kernels.jit import intrinsic, light
from weft.kernels.simd import prefetch


@intrinsic("weft.kernels.object_intrinsics")
def as_list(numbers, count, objects):
    """The objects of `count` numbers (int64) at an address, of an array of objects at another."""
    if count < 0:
        raise SystemError("a number is outside the array")
    held = ctypes.cast(int(objects), ctypes.POINTER(ctypes.py_object))
    return [held[number] for number in array_at(numbers, count, np.int64).tolist()]


def _work(numbers: int, count: int, objects: int, size: int) -> int:
    """How many objects there are to be listed."""
    return count


@light(_work)
def object_list(numbers, count, objects, size):
    """A list of the objects of `count` numbers (int64) at an address, of the array of `size` objects at another.

    Addresses are quicker to pass than arrays. Raises SystemError if a number is outside the array.
    """
    headers, chosen = array_at(objects, size, np.int64), array_at(numbers, count, np.int64)
    for at in range(count):
        number = chosen[at]
        if not 0 <= number < size:
            return as_list(numbers, np.int64(-1), objects)
        prefetch(array_at(headers[number], np.int64(1), np.int64), np.int64(0))
    return as_list(numbers, count, objects)
