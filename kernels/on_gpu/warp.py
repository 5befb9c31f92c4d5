"""The vectors of `lanes.py` on a GPU: each lane of a warp holds one element.

A kernel written for vectors of 32 elements is a program for a warp of 32 threads as it stands. What
it loads, combines and folds takes the same order, so a reduction gives the bits that it has on the
CPU. Scalars are computed by every lane alike.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from ..language.device import I1, I32, I64, ballot, lane, shuffle, shuffle_down, word
from ..language.lanes import combine

GLOBAL = 1  # the address space of what a launch is given


@word
def laid_out(typingctx, parameters):
    """laid_out((w0, w1)): a pointer to the words of a row, which a launch gives one by one; their
    number lies before them."""
    count = len(parameters)

    def codegen(context, builder, sig, args):
        words = cgutils.alloca_once(builder, I64, size=count + 1)
        given = [I64(count), *cgutils.unpack_tuple(builder, args[0], count)]
        for k, value in enumerate(given):
            builder.store(value, builder.gep(words, [I32(k)]))
        return builder.gep(words, [I32(1)])

    return types.CPointer(types.int64)(parameters), codegen


@word
def words(typingctx, row):
    """The words of a row, which is a pointer to them already."""
    return row(row), lambda context, builder, sig, args: args[0]


@word
def at(typingctx, address, dtype):
    """A pointer to elements of `dtype` at an address of the GPU's memory."""
    element = dtype.dtype

    def codegen(context, builder, sig, args):
        kind = context.get_data_type(element)
        pointer = builder.inttoptr(args[0], ir.PointerType(kind, GLOBAL))
        return builder.addrspacecast(pointer, kind.as_pointer())

    return types.CPointer(element)(types.int64, dtype), codegen


@word
def scalar(typingctx, word, dtype):
    """A Python number as a float of `dtype`: it travels as the bits of a float64. It is rounded by
    whole numbers, once for a warp where its threads have the word in common; a GPU without units for
    float64 would take each thread a while."""
    kind = dtype.dtype

    def codegen(context, builder, sig, args):
        if kind is types.float64:
            return builder.bitcast(args[0], ir.DoubleType())
        return builder.bitcast(rounded_to_float32(builder, args[0]), ir.FloatType())

    return kind(types.int64, dtype), codegen


def rounded_to_float32(builder, bits):
    """The bits of a float64 as those of the nearest float32, of two the even one."""

    def where(condition, a, b):
        return builder.select(condition, a, b)

    size = builder.and_(bits, I64((1 << 63) - 1))  # without the sign
    exponent = builder.lshr(size, I64(52))
    is_small = builder.icmp_unsigned("<", exponent, I64(897))  # subnormal in float32
    mantissa = builder.or_(builder.and_(size, I64((1 << 52) - 1)), I64(1 << 52))
    value = where(is_small, mantissa, builder.sub(size, I64(896 << 52)))
    below = builder.sub(I64(897 + 29), exponent)
    below = where(builder.icmp_unsigned("<", below, I64(54)), below, I64(54))
    count = where(is_small, below, I64(29))  # bits that are cut off
    odd = builder.and_(builder.lshr(value, count), I64(1))
    half = builder.sub(builder.shl(I64(1), builder.sub(count, I64(1))), I64(1))
    value = builder.lshr(builder.add(builder.add(value, half), odd), count)
    infinity = I64(0x7F800000)
    value = where(builder.icmp_unsigned("<", value, infinity), value, infinity)
    is_nan = builder.icmp_unsigned(">", size, I64(0x7FF << 52))
    payload = builder.and_(builder.lshr(size, I64(29)), I64(0x7FFFFF))
    value = where(is_nan, builder.or_(payload, I64(0x7FC00000)), value)
    sign = builder.and_(builder.lshr(bits, I64(32)), I64(1 << 31))
    return builder.trunc(builder.or_(value, sign), I32)


@word
def lowest_bit(typingctx, bits):
    """lowest_bit(bits): the number of the lowest bit that is set, 32 if none is."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], I1(0))

    return types.int32(types.int32), codegen


def load(x, i):
    """The 32 elements from x[i] on."""
    return x[i + lane()]


def load_some(x, i, count, fill):
    """The first `count` of the 32 elements from x[i] on; the other lanes have `fill`."""
    value = fill
    if lane() < count:
        value = x[i + lane()]
    return value


def load_over(rest, x, i, count):
    """The first `count` of the 32 elements from x[i] on; the other lanes have those of `rest`."""
    return load_some(x, i, count, rest)


def load_four(x, i, away, T):
    """The elements from x[i], x[i + away], x[i + 2 * away] and x[i + 3 * away] on, as T."""
    k = i + lane()
    return T(x[k]), T(x[k + away]), T(x[k + 2 * away]), T(x[k + 3 * away])


def store(x, i, value):
    """Write all lanes from x[i] on."""
    x[i + lane()] = value


def store_some(x, i, value, count):
    """Write the first `count` lanes from x[i] on."""
    if lane() < count:
        x[i + lane()] = value


def spread(value):
    """Lanes that all hold one value."""
    return value


def spread_over(value, count):
    """Lanes that all hold one value: the first so many count."""
    return value


def spread_as(lanes, value):
    """Lanes that all hold one value, as many as others."""
    return value


def cast(value, T):
    """Lanes as another dtype."""
    return T(value)


def combine_four(op, a, b):
    """`combine` on each of four lanes, which are a tuple."""
    return (
        combine(op, a[0], b[0]), combine(op, a[1], b[1]),
        combine(op, a[2], b[2]), combine(op, a[3], b[3]),
    )  # fmt: skip


def fold(op, value):
    """All lanes reduced by `op`, halves against halves; every lane gets the result."""
    value = combine(op, value, shuffle_down(value, 16))
    value = combine(op, value, shuffle_down(value, 8))
    value = combine(op, value, shuffle_down(value, 4))
    value = combine(op, value, shuffle_down(value, 2))
    value = combine(op, value, shuffle_down(value, 1))
    return shuffle(value, 0)


def where_moved(new, old, a, b):
    """`a` where a running extreme has moved from `old` to `new`, else `b`."""
    return a if (new != old) & (old == old) else b


def first_equal(value, wanted):
    """The number of the first lane that equals a value, NaN being equal to NaN; 32 if none."""
    nans = (value != value) & (wanted != wanted)
    return lowest_bit(ballot((value == wanted) | nans))
