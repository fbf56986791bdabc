"""The memory that an object holds. Law: every object that can be reached from it counts once, arrays with their data;
classes, modules and functions do not count, nor what the caller says is shared.

It is a walk, not a measurement of the process: the same object has the same footprint, whatever else there is. What an
allocator loses between objects is not in it, nor is what only C code knows of.
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
    """The bytes of all that can be reached from `root` and from nothing in `shared`.

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
    alive = []  # what is made on the way must live on, or its id would be another's
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
            continue  # its size has its buffers
        else:
            todo += gc.get_referents(each)
    return size
