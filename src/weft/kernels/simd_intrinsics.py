"""The compiled forms of `simd`. Each gives the result of the plain function of its name."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc", no-check-untyped-defs

from __future__ import annotations

from functools import partial

from weft.kernels.compiler import cgutils, intrinsic, ir, types
from weft.kernels.simd import LANES

_PLACES = [  # of the bits of each byte, lowest first, one per byte of a word
    sum(place << 8 * rank for rank, place in enumerate(place for place in range(8) if byte >> place & 1))
    for byte in range(256)
]
_HALVES = [  # of four words, those of the words whose bits are set in front
    ([half for place in range(4) if bits >> place & 1 for half in (2 * place, 2 * place + 1)] + 8 * [0])[:8]
    for bits in range(16)
]


def _pointer(context, builder, kind, array, at):
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _lanes(context, builder, kind, array, at, offset, bits=16):
    vector = ir.VectorType(ir.IntType(bits), LANES)
    start = builder.add(at, ir.Constant(ir.IntType(64), offset))
    pointer = builder.bitcast(_pointer(context, builder, kind, array, start), vector.as_pointer())
    return builder.load(pointer, align=2)


def _spread(builder, value):
    vector = ir.VectorType(value.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def _inside(context, builder, signature, arguments, bits):
    """Lanes with code - low <= width, where a negative difference wraps around and becomes large."""
    array, at, code = arguments
    low = _lanes(context, builder, signature.args[0], array, at, 0, bits)
    width = _lanes(context, builder, signature.args[0], array, at, LANES * bits // 16, bits)
    inside = builder.icmp_unsigned("<=", builder.sub(_spread(builder, code), low), width)
    return builder.bitcast(inside, ir.IntType(32))


@intrinsic
def byte_mask(typing, data, at, code):
    """Lanes with low <= code <= low + width, of 8-bit codes at data[at:at+32]."""
    signature = types.uint32(data, types.int64, types.uint8)
    return signature, partial(_inside, bits=8)


@intrinsic
def narrow_mask(typing, data, at, code):
    """Lanes with low <= code <= low + width, of 16-bit codes at data[at:at+64]."""
    signature = types.uint32(data, types.int64, types.uint16)
    return signature, partial(_inside, bits=16)


@intrinsic
def wide_mask(typing, data, at, code):
    """Lanes with low <= code <= high, of 32-bit codes in halves at data[at:at+128]."""
    signature = types.uint32(data, types.int64, types.uint32)

    def generate(context, builder, signature, arguments):
        array, at, code = arguments
        half = ir.IntType(16)
        upper = _spread(builder, builder.trunc(builder.lshr(code, ir.Constant(ir.IntType(32), 16)), half))
        lower = _spread(builder, builder.trunc(code, half))
        parts = [_lanes(context, builder, signature.args[0], array, at, LANES * n) for n in range(4)]
        above = builder.or_(
            builder.icmp_unsigned("<", parts[0], upper),
            builder.and_(builder.icmp_unsigned("==", parts[0], upper), builder.icmp_unsigned("<=", parts[1], lower)),
        )
        below = builder.or_(
            builder.icmp_unsigned(">", parts[2], upper),
            builder.and_(builder.icmp_unsigned("==", parts[2], upper), builder.icmp_unsigned(">=", parts[3], lower)),
        )
        return builder.bitcast(builder.and_(above, below), ir.IntType(32))

    return signature, generate


@intrinsic
def lowest(typing, mask):
    """The position of the lowest set bit of a nonzero mask."""
    signature = types.int64(types.uint32)

    def generate(context, builder, signature, arguments):
        found = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))
        return builder.zext(found, ir.IntType(64))

    return signature, generate


@intrinsic
def ones(typing, mask):
    """How many bits of a mask are set."""
    signature = types.int64(types.uint32)

    def generate(context, builder, signature, arguments):
        return builder.zext(builder.ctpop(arguments[0]), ir.IntType(64))

    return signature, generate


def _compress_by_table(context, builder, signature, arguments):
    """`compress` without an instruction for it: eight ids at a time, moved to the places that a table says."""
    array, at, target, to, mask = arguments
    long, eight = ir.IntType(64), ir.VectorType(ir.IntType(32), 8)
    kind = ir.ArrayType(ir.IntType(64), 256)
    table = cgutils.global_constant(builder, "weft_places_of_bits", ir.Constant(kind, _PLACES))
    move = cgutils.get_or_insert_function(builder.module, ir.FunctionType(eight, [eight, eight]), "llvm.x86.avx2.permd")
    for half in range(2):
        bits = builder.zext(builder.trunc(builder.lshr(mask, mask.type(8 * half)), ir.IntType(8)), long)
        places = builder.load(builder.gep(table, [long(0), bits], inbounds=True))
        order = builder.zext(builder.bitcast(places, ir.VectorType(ir.IntType(8), 8)), eight)
        start = _pointer(context, builder, signature.args[0], array, builder.add(at, long(8 * half)))
        ids = builder.load(builder.bitcast(start, eight.as_pointer()), align=4)
        end = _pointer(context, builder, signature.args[2], target, to)
        builder.store(builder.call(move, [ids, order]), builder.bitcast(end, eight.as_pointer()), align=4)
        to = builder.add(to, builder.ctpop(bits))


@intrinsic
def compress(typing, ids, at, out, to, mask):
    """Store those of the 16 ids (int32) at ids[at:at+16] whose bit is set, side by side from out[to].

    All of out[to:to+16] is written; what follows the ids is meaningless.
    """
    signature = types.void(ids, types.int64, out, types.int64, types.uint16)

    def generate(context, builder, signature, arguments):
        array, at, target, to, mask = arguments
        features = context.codegen()._tm_features
        if "+avx2" in features and "+avx512f" not in features:
            _compress_by_table(context, builder, signature, arguments)
            return context.get_dummy_value()
        vector, bits = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.IntType(1), 16)
        source = builder.bitcast(_pointer(context, builder, signature.args[0], array, at), vector.as_pointer())
        pointer = builder.bitcast(_pointer(context, builder, signature.args[2], target, to), vector.as_pointer())
        # Compress in a register and store it whole: a compressing store is much more expensive on some processors.
        kind = ir.FunctionType(vector, [vector, bits, vector])
        squeeze = cgutils.get_or_insert_function(builder.module, kind, "llvm.experimental.vector.compress.v16i32")
        rest = ir.Constant(vector, ir.Undefined)
        packed = builder.call(squeeze, [builder.load(source, align=4), builder.bitcast(mask, bits), rest])
        builder.store(packed, pointer, align=4)
        return context.get_dummy_value()

    return signature, generate


def _compress_long_by_table(context, builder, signature, arguments):
    """`compress_long` without an instruction for it: four ids at a time, as eight halves."""
    array, target, to, mask = arguments
    long, eight = ir.IntType(64), ir.VectorType(ir.IntType(32), 8)
    kind = ir.ArrayType(eight, 16)
    orders = [ir.Constant(eight, order) for order in _HALVES]
    table = cgutils.global_constant(builder, "weft_halves_of_bits", ir.Constant(kind, orders))
    move = cgutils.get_or_insert_function(builder.module, ir.FunctionType(eight, [eight, eight]), "llvm.x86.avx2.permd")
    for part in range(LANES // 4):
        bits = builder.zext(builder.and_(builder.lshr(mask, mask.type(4 * part)), mask.type(15)), long)
        order = builder.load(builder.gep(table, [long(0), bits], inbounds=True), align=4)
        start = _pointer(context, builder, signature.args[0], array, long(4 * part))
        ids = builder.load(builder.bitcast(start, eight.as_pointer()), align=8)
        end = _pointer(context, builder, signature.args[1], target, to)
        builder.store(builder.call(move, [ids, order]), builder.bitcast(end, eight.as_pointer()), align=8)
        to = builder.add(to, builder.ctpop(bits))


@intrinsic
def compress_long(typing, ids, out, to, mask):
    """Store those of the first 32 ids (int64) whose bit is set, side by side from out[to].

    Up to eight more numbers are written; what follows the ids is meaningless.
    """
    signature = types.void(ids, out, types.int64, types.uint32)

    def generate(context, builder, signature, arguments):
        features = context.codegen()._tm_features
        if "+avx2" in features and "+avx512f" not in features:
            _compress_long_by_table(context, builder, signature, arguments)
            return context.get_dummy_value()
        array, target, to, mask = arguments
        long, vector, bits = ir.IntType(64), ir.VectorType(ir.IntType(64), 8), ir.VectorType(ir.IntType(1), 8)
        kind = ir.FunctionType(vector, [vector, bits, vector])
        squeeze = cgutils.get_or_insert_function(builder.module, kind, "llvm.experimental.vector.compress.v8i64")
        for part in range(LANES // 8):
            here = builder.trunc(builder.lshr(mask, mask.type(8 * part)), ir.IntType(8))
            start = _pointer(context, builder, signature.args[0], array, long(8 * part))
            some = builder.load(builder.bitcast(start, vector.as_pointer()), align=8)
            packed = builder.call(squeeze, [some, builder.bitcast(here, bits), ir.Constant(vector, ir.Undefined)])
            end = _pointer(context, builder, signature.args[1], target, to)
            builder.store(packed, builder.bitcast(end, vector.as_pointer()), align=8)
            to = builder.add(to, builder.zext(builder.ctpop(here), long))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def copy_eight(typing, source, at, target, to):
    """Copy source[at:at+8] (int64) to target[to:to+8]."""
    signature = types.void(source, types.int64, target, types.int64)

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(ir.IntType(64), 8).as_pointer()
        source, at, target, to = arguments
        start = builder.bitcast(_pointer(context, builder, signature.args[0], source, at), vector)
        end = builder.bitcast(_pointer(context, builder, signature.args[2], target, to), vector)
        builder.store(builder.load(start, align=8), end, align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def take_four(typing, values, places, at, out, to):
    """Write values[places[at:at+4]] (int64) to out[to:to+4]. No place may be negative."""
    signature = types.void(values, places, types.int64, out, types.int64)

    def generate(context, builder, signature, arguments):
        values, places, at, out, to = arguments
        long, vector = ir.IntType(64), ir.VectorType(ir.IntType(64), 4)
        first = _pointer(context, builder, signature.args[0], values, long(0))
        start = _pointer(context, builder, signature.args[1], places, at)
        taken = ir.Constant(vector, ir.Undefined)
        for lane in range(4):
            place = builder.zext(builder.load(builder.gep(start, [long(lane)])), long)
            taken = builder.insert_element(taken, builder.load(builder.gep(first, [place])), ir.IntType(32)(lane))
        end = _pointer(context, builder, signature.args[3], out, to)
        builder.store(taken, builder.bitcast(end, vector.as_pointer()), align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch(typing, array, at):
    """Prefetch array[at]. Any position is safe."""
    signature = types.void(array, types.int64)

    def generate(context, builder, signature, arguments):
        place = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(hint, [builder.bitcast(place, byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return signature, generate
