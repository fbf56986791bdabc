"""Arrays over memory that others own: whoever passes the address or lends the array keeps the memory alive. Each
intrinsic and its plain twin give the same array.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc", no-check-untyped-defs

from __future__ import annotations

import ctypes

import numpy as np

from weft.kernels.jit import intrinsic

_plain = intrinsic("weft.kernels.address_intrinsics")


@_plain
def array_at(address, size, kind):
    """The array of a number of items of a kind at an address."""
    if size == 0:
        return np.empty(0, kind)
    memory = (ctypes.c_char * int(size * np.dtype(kind).itemsize)).from_address(int(address))
    return np.frombuffer(memory, kind)


@_plain
def lent(array):
    """The array itself."""
    return array
