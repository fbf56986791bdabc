"""The compiled forms of `addresses`. Each gives the array of the plain function of its name."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc", no-check-untyped-defs

from __future__ import annotations

from weft.kernels.compiler import cgutils, intrinsic, populate_array, types


@intrinsic
def array_at(typing, address, size, kind):
    """The array of a number of items of a kind at an address."""
    item = kind.dtype
    signature = types.Array(item, 1, "C")(types.int64, types.int64, kind)

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.return_type)(context, builder)
        width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(item)))
        data = builder.inttoptr(arguments[0], array.data.type)
        populate_array(array, data=data, shape=[arguments[1]], strides=[width], itemsize=width, meminfo=None)
        return array._getvalue()

    return signature, generate


@intrinsic
def lent(typing, array):
    """The array itself, to which no references are counted while its owner holds it."""

    def generate(context, builder, signature, arguments):
        given = context.make_array(array)(context, builder, arguments[0])
        made = context.make_array(array)(context, builder)
        shape, strides = (cgutils.unpack_tuple(builder, part) for part in (given.shape, given.strides))
        populate_array(made, data=given.data, shape=shape, strides=strides, itemsize=given.itemsize, meminfo=None)
        return made._getvalue()

    return array(array), generate
