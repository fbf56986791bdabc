"""The memory that an object holds. Every object that can be reached from it counts once, arrays with their data;
classes, modules and functions do not count, nor does what the caller declares shared.

This is a walk, not a measurement of the process: the same object has the same footprint, whatever else exists. It does
not include what an allocator loses between objects, nor memory that only C code knows about.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

_NOT_HELD = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)


def footprint(root: object, shared: Iterable[object] = ()) -> int:
    """The bytes of everything that can be reached from `root` and from nothing in `shared`.

    >>> block = np.zeros(1_000)
    >>> 8_000 < footprint({"one": block, "view": block[10:]}) < 9_000
    True
    >>> footprint([block], shared=[block]) < 100
    True
    """
    seen: set[int] = set()
    _walk(list(shared), seen)
    return _walk([root], seen)


def _walk(todo: list[Any], seen: set[int]) -> int:
    size = 0
    alive = []  # temporary objects must stay alive, or their ids would be reused
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _NOT_HELD):
            continue
        seen.add(id(each))
        alive.append(each)
        size += sys.getsizeof(each)
        if isinstance(each, np.ndarray):
            if each.base is not None:
                todo.append(each.base)
            if each.dtype.hasobject:
                todo += each.ravel().tolist()
        elif isinstance(each, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table):
            continue  # its size includes its buffers
        else:
            todo += gc.get_referents(each)
    return size
