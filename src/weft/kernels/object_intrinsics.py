"""The compiled form of `objects`: a list is made of its parts when the kernel returns to Python."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc", no-check-untyped-defs

from __future__ import annotations

from weft.kernels.compiler import box, cgutils, intrinsic, ir, models, register_model, types


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
def as_list(typing, numbers, count, objects):
    """The objects of `count` numbers (int64) at an address, of an array of objects at another."""
    kind = ObjectListType()

    def generate(context, builder, signature, arguments):
        made = cgutils.create_struct_proxy(kind)(context, builder)
        made.numbers, made.count, made.objects = arguments
        return made._getvalue()

    return kind(types.int64, types.int64, types.int64), generate
