"""Lists of Python objects, made by a kernel. Laws: the caller keeps the objects alive; the list has references of its
own, which are counted while the interpreter's lock is held.

To refer to an object is to write to its header, and objects lie anywhere in memory: each is a cache miss. So all are
prefetched before the first is written to, and the misses overlap.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc", no-check-untyped-defs

from __future__ import annotations

import numpy as np

from weft.kernels.addresses import array_at
from weft.kernels.jit import COMPILED, box, cgutils, intrinsic, ir, jit, models, register_model, types
from weft.kernels.simd import prefetch

if COMPILED:

    class ObjectListType(types.Type):
        """Numbers, how many of them, and the array of objects that they number; in Python it is a list."""

        def __init__(self):
            super().__init__(name="ObjectList")

    @register_model(ObjectListType)
    class _ObjectListModel(models.StructModel):
        def __init__(self, manager, kind):
            super().__init__(manager, kind, [(name, types.int64) for name in ("numbers", "count", "objects")])

    @box(ObjectListType)
    def _list(kind, value, tools):
        """The list; NULL with an exception set if there is no memory for it, or if the count is negative."""
        builder, python = tools.builder, tools.pyapi
        given = cgutils.create_struct_proxy(kind)(tools.context, builder, value=value)
        numbers = builder.inttoptr(given.numbers, ir.IntType(64).as_pointer())
        objects = builder.inttoptr(given.objects, python.pyobj.as_pointer())
        made = python.list_new(given.count)
        with (
            cgutils.if_likely(builder, cgutils.is_not_null(builder, made)),
            cgutils.for_range(builder, given.count) as loop,
        ):
            number = builder.load(builder.gep(numbers, [loop.index]))
            each = builder.load(builder.gep(objects, [number]))
            python.incref(each)
            python.list_setitem(made, loop.index, each)  # takes the reference
        return made

    @intrinsic
    def _as_list(typing, numbers, count, objects):
        """The objects of `count` numbers (int64) at an address, of an array of objects at another."""
        kind = ObjectListType()

        def generate(context, builder, signature, arguments):
            made = cgutils.create_struct_proxy(kind)(context, builder)
            made.numbers, made.count, made.objects = arguments
            return made._getvalue()

        return kind(types.int64, types.int64, types.int64), generate

else:
    import ctypes

    def _as_list(numbers, count, objects):
        """The objects of `count` numbers (int64) at an address, of an array of objects at another."""
        if count < 0:
            raise SystemError("a number is outside the array")
        held = ctypes.cast(int(objects), ctypes.POINTER(ctypes.py_object))
        return [held[number] for number in array_at(numbers, count, np.int64).tolist()]


@jit
def object_list(numbers, count, objects, size):
    """A list of the objects of the first `count` numbers (int64) in the array of `size` objects at an address.

    Raises SystemError if a number is outside the array.
    """
    headers = array_at(objects, size, np.int64)
    for at in range(count):
        number = numbers[at]
        if not 0 <= number < size:
            return _as_list(numbers.ctypes.data, np.int64(-1), objects)
        prefetch(array_at(headers[number], np.int64(1), np.int64), np.int64(0))
    return _as_list(numbers.ctypes.data, count, objects)
