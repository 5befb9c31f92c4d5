"""Vectors of `LANES` elements, for reductions whose result must not depend on the machine.

A loop that adds floats one by one may not be reordered, so LLVM leaves it scalar. Here the order
is written down instead: `LANES` running results side by side, folded at the end in a fixed tree.
LLVM cuts such a vector into the registers that the machine has, which changes no bit.

    total = spread(A(0))
    for i in range(0, whole, LANES):
        total = combine(add, total, cast(load(x, i), A))
    out[0] = fold(add, total)

The operators known to `combine` and `fold` are `operator.add`, `operator.sub`, `operator.mul`, for floats
`operator.truediv`, `max` and `min`; these two keep a NaN, whichever side it comes from.
"""

import math
from collections.abc import Callable, Sequence
from operator import add, mul, sub, truediv
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from .abi import helper
from .conversion import to_integer
from .intrinsics import Value
from .processor import FUSED, MASKS_STORES, VECTOR_BYTES

LANES = 32
CACHE_LINE = 64
ROLLED = True  # a name of kernels whose loops are not unrolled
BLOCK = 128  # elements that a kernel computes before it streams them to memory
# Bytes of operands and results that are left to the last cache, of 32 MB on the machine measured.
# On two threads neg of 4M float32 takes 610 us if all is streamed, as all cores together may write 28 GB
# a second, 350 to 600 if nothing is, and 410 to 550 if the last quarter is. One thread alone takes
# 620 if all is streamed and 690 to 850 if not. Where nothing would be left (add), streaming wins.
KEPT = 28 << 20


class Lanes(types.Type):
    """The Numba type of `LANES` elements of one dtype, or of fewer."""

    def __init__(self, dtype: types.Type, count: int = LANES) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """An LLVM vector, in memory as in registers."""

    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        element = dmm.lookup(fe_type.dtype).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.count))


def element_of(kind: types.Type) -> types.Type:
    """The dtype of a scalar or of lanes."""
    return kind.dtype if isinstance(kind, Lanes) else kind


def is_float(kind: types.Type) -> bool:
    return isinstance(element_of(kind), types.Float)


def is_signed(kind: types.Type) -> bool:
    return bool(getattr(element_of(kind), "signed", True))


def emit(
    builder: Any, kind: types.Type, op: Any, a: ir.Value, b: ir.Value, is_number: bool = False
) -> ir.Value:
    """The instructions for `op` on two scalars or two vectors; `is_number` says that `b` holds no NaN."""
    if op in (max, min) and is_float(kind):
        # One instruction finds the larger, or the first if there is none; it loses a NaN that comes second.
        better = builder.fcmp_ordered(">" if op is max else "<", b, a)
        extreme = builder.select(better, b, a)
        if is_number:
            return extreme
        return builder.select(builder.fcmp_unordered("uno", b, b), b, extreme)
    if op in (max, min):
        compare = builder.icmp_signed if is_signed(kind) else builder.icmp_unsigned
        return builder.select(compare(">=" if op is max else "<=", a, b), a, b)
    name = {add: "add", sub: "sub", mul: "mul", truediv: "div"}[op]
    return getattr(builder, f"f{name}" if is_float(kind) else name)(a, b)


@intrinsic
def combine(typingctx: Any, op: Any, a: Any, b: Any) -> Any:
    """`op(a, b)` on two scalars or two lanes of one dtype."""
    if a != b:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, a, op.typing_key, args[1], args[2])

    return a(op, a, b), codegen


@intrinsic
def are_numbers(typingctx: Any, op: Any, a: Any, b: Any) -> Any:
    """True if `combine_numbers` loses nothing of two lanes: no NaN is among them, for an extreme of floats.

    One comparison looks at both.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if op.typing_key not in (max, min) or not is_float(a):
            return ir.Constant(ir.IntType(1), 1)
        either = builder.fcmp_unordered("uno", args[1], args[2])
        bits = ir.IntType(either.type.count)
        return builder.icmp_unsigned("==", builder.bitcast(either, bits), bits(0))

    return types.boolean(op, a, b), codegen


@intrinsic
def combine_numbers(typingctx: Any, op: Any, a: Any, b: Any) -> Any:
    """`combine` where `b` holds no NaN: the bits are the same, an extreme of floats is one instruction."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, a, op.typing_key, args[1], args[2], is_number=True)

    return a(op, a, b), codegen


@intrinsic
def nans_over(typingctx: Any, a: Any, b: Any) -> Any:
    """`b` where it is NaN, else `a`: all that matters of an extreme from there on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if not is_float(a):
            return args[0]
        return builder.select(builder.fcmp_unordered("uno", args[1], args[1]), args[1], args[0])

    return a(a, b), codegen


@intrinsic
def where_moved(typingctx: Any, new: Any, old: Any, a: Any, b: Any) -> Any:
    """Lanes of `a` where a running extreme has moved from `old` to `new`, else of `b`.

    It has moved where it is another number, or NaN now and not before.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        now, before = args[:2]
        moved = builder.fcmp_unordered("!=", now, before)
        moved = builder.and_(moved, builder.fcmp_ordered("ord", before, before))
        return builder.select(moved, *args[2:])

    return a(new, old, a, b), codegen


@intrinsic
def combine_four(typingctx: Any, op: Any, a: Any, b: Any) -> Any:
    """`combine` on each of four lanes, which are a tuple."""
    if a != b:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs = zip(*(cgutils.unpack_tuple(builder, four, 4) for four in args[1:]), strict=True)
        each = [emit(builder, a.dtype, op.typing_key, one, other) for one, other in pairs]
        return context.make_tuple(builder, a, each)

    return a(op, a, b), codegen


def emit_fold(builder: Any, kind: Lanes, op: Any, value: ir.Value, is_number: bool) -> ir.Value:
    """All lanes reduced by an operator, halves against halves."""
    width = kind.count
    while width > 1:
        width //= 2
        low, high = (
            taken(builder, value, value, range(start, start + width)) for start in (0, width)
        )
        value = emit(builder, kind, op, low, high, is_number)
    return builder.extract_element(value, ir.IntType(32)(0))


@intrinsic
def fold(typingctx: Any, op: Any, lanes: Any) -> Any:
    """All lanes reduced by `op`, halves against halves."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_fold(builder, lanes, op.typing_key, args[1], is_number=False)

    return lanes.dtype(op, lanes), codegen


@intrinsic
def fold_numbers(typingctx: Any, op: Any, lanes: Any) -> Any:
    """`fold` of lanes that hold no NaN: an extreme of floats is one instruction a step."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_fold(builder, lanes, op.typing_key, args[1], is_number=True)

    return lanes.dtype(op, lanes), codegen


@intrinsic
def store_halved(typingctx: Any, op: Any, pointer: Any, index: Any, lanes: Any) -> Any:
    """Write the `ROWS` numbers that `fold` has after its first steps, from an index on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, width = args[3], LANES
        while width > ROWS:
            width //= 2
            low, high = (
                taken(builder, value, value, range(first, first + width)) for first in (0, width)
            )
            value = emit(builder, lanes, op.typing_key, low, high)
        target = builder.bitcast(builder.gep(args[1], [args[2]]), value.type.as_pointer())
        builder.store(value, target, align=pointer.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(op, pointer, types.int64, lanes), codegen


@intrinsic
def neutral_of(typingctx: Any, op: Any, element: Any) -> Any:
    """What changes nothing in a sum or a product; an element of the row where an extreme is looked for."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if op.typing_key in (max, min):
            return args[1]
        return ir.Constant(context.get_value_type(element), 1 if op.typing_key is mul else 0)

    return element(op, element), codegen


@intrinsic
def is_extreme(typingctx: Any, op: Any) -> Any:
    """Whether an operator is `max` or `min`; known when a kernel is compiled."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(1), int(op.typing_key in (max, min)))

    return types.boolean(op), codegen


@intrinsic
def size_of(typingctx: Any, dtype: Any) -> Any:
    """The bytes of one element."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), dtype.dtype.bitwidth // 8)

    return types.int64(dtype), codegen


@intrinsic
def least_of(typingctx: Any, dtype: Any) -> Any:
    """The number that no other of a dtype is below: of floats, minus infinity."""
    kind = dtype.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        least = kind.minval if isinstance(kind, types.Integer) else -math.inf
        return ir.Constant(context.get_value_type(kind), least)

    return kind(dtype), codegen


@intrinsic
def spread(typingctx: Any, value: Any) -> Any:
    """Lanes that all hold one value."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return broadcast(builder, args[0])

    return Lanes(value)(value), codegen


@intrinsic(prefer_literal=True)
def spread_over(typingctx: Any, value: Any, count: Any) -> Any:
    """So many lanes, a number that is written there, which all hold one value."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return broadcast(builder, args[0], count.literal_value)

    return Lanes(value, count.literal_value)(value, count), codegen


@intrinsic
def spread_as(typingctx: Any, lanes: Any, value: Any) -> Any:
    """As many lanes as others have, which all hold one value."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return broadcast(builder, args[1], lanes.count)

    return Lanes(value, lanes.count)(lanes, value), codegen


def broadcast(builder: Any, value: ir.Value, lanes: int = LANES) -> ir.Value:
    """A vector of so many copies."""
    vector = ir.VectorType(value.type, lanes)
    index = ir.IntType(32)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, index(0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(index, lanes), [0] * lanes)
    )


@intrinsic
def cast(typingctx: Any, lanes: Any, dtype: Any) -> Any:
    """Lanes converted to another dtype."""
    old, new = lanes.dtype, dtype.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return converted(context, builder, args[0], old, new)

    return Lanes(new, lanes.count)(lanes, dtype), codegen


def converted(context: Any, builder: Any, value: ir.Value, old: Any, new: Any) -> ir.Value:
    """The instructions that convert a vector of one dtype to another."""
    target = ir.VectorType(context.get_value_type(new), value.type.count)
    if old == new:
        return value
    if is_float(old) and is_float(new):
        return (builder.fpext if old.bitwidth < new.bitwidth else builder.fptrunc)(value, target)
    if is_float(new):
        return (builder.sitofp if old.signed else builder.uitofp)(value, target)
    if is_float(old):
        return to_integer(builder, value, new)
    if old.bitwidth == new.bitwidth:
        return value
    if old.bitwidth > new.bitwidth:
        return builder.trunc(value, target)
    return (builder.sext if old.signed else builder.zext)(value, target)


def address(context: Any, builder: Any, pointer: types.CPointer, args: Any) -> ir.Value:
    """A vector pointer at element `args[1]` of pointer `args[0]`."""
    vector = ir.VectorType(context.get_data_type(pointer.dtype), LANES)
    return builder.bitcast(builder.gep(args[0], [args[1]]), vector.as_pointer())


def first_lanes(builder: Any, count: ir.Value, bits: int, lanes: int = LANES) -> ir.Value:
    """A mask of the lanes before `count`, for elements of so many bits.

    Without AVX-512 a mask is as wide as what it masks: numbers of that size need no conversion.
    """
    index = ir.IntType(64 if bits == 64 else 32)
    most = count.type(lanes)
    clamped = builder.select(builder.icmp_signed("<", count, most), count, most)
    clamped = clamped if bits == 64 else builder.trunc(clamped, index)
    numbers = ir.Constant(ir.VectorType(index, lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, broadcast(builder, clamped, lanes))


def masked(builder: Any, name: str, result: ir.Type, vector: ir.Type, args: list[Any]) -> ir.Value:
    """A call of llvm.masked.load or llvm.masked.store."""
    suffix = f"v{vector.count}{vector.element.intrinsic_name}.p0"
    signature = ir.FunctionType(result, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.{name}.{suffix}"
    )
    return builder.call(function, args)


def taken(builder: Any, a: ir.Value, b: ir.Value, places: Sequence[int]) -> ir.Value:
    """The elements at some places of two vectors, one behind the other."""
    index = ir.IntType(32)
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(index, len(places)), [*places]))


def parts_of(builder: Any, value: ir.Value, bits: int) -> list[tuple[int, ir.Value]]:
    """Where the parts of lanes that are stored at a time begin, and the parts."""
    lanes = value.type.count
    some = lanes if MASKS_STORES or bits < 32 else 8 * VECTOR_BYTES // bits
    if some >= lanes:
        return [(0, value)]
    return [
        (first, taken(builder, value, value, range(first, first + some)))
        for first in range(0, lanes, some)
    ]


def store_first(builder: Any, value: ir.Value, at: ir.Value, count: ir.Value, bits: int) -> None:
    """Write the first `count` lanes of a vector.

    A masked store takes twelve times as long as a whole one without AVX-512, also where its mask is empty.
    """
    align, lanes = ir.Constant(ir.IntType(32), bits // 8), value.type.count

    def store_masked() -> None:
        mask = first_lanes(builder, count, bits, lanes)
        masked(builder, "store", ir.VoidType(), value.type, [value, at, align, mask])

    if lanes == LANES:
        store_masked()
        return
    with builder.if_else(builder.icmp_signed(">=", count, count.type(lanes))) as (whole, some):
        with whole:
            builder.store(value, at, align=bits // 8)
        with some, builder.if_then(builder.icmp_signed(">", count, count.type(0))):
            store_masked()


@intrinsic
def load(typingctx: Any, pointer: Any, index: Any) -> Any:
    """The `LANES` elements from an index on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = pointer.dtype.bitwidth // 8
        return builder.load(address(context, builder, pointer, args), align=size)

    return Lanes(pointer.dtype)(pointer, types.int64), codegen


@intrinsic
def prefetch(typingctx: Any, pointer: Any, index: Any) -> Any:
    """Ask for the line of memory with an element; it need not be anywhere."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        signature = ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        builder.call(function, [place, i32(0), i32(3), i32(1)])  # to read, into the first cache
        return context.get_dummy_value()

    return types.void(pointer, types.int64), codegen


@intrinsic
def load_four(typingctx: Any, pointer: Any, index: Any, away: Any, dtype: Any) -> Any:
    """The lanes from `index`, `index + away`, `+ 2 * away` and `+ 3 * away` on, as `dtype`."""
    old, new = pointer.dtype, dtype.dtype
    four = types.UniTuple(Lanes(new), 4)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start, position, step, _ = args
        each = []
        for _ in range(4):
            place = address(context, builder, pointer, [start, position])
            value = builder.load(place, align=old.bitwidth // 8)
            each.append(converted(context, builder, value, old, new))
            position = builder.add(position, step)
        return context.make_tuple(builder, four, each)

    return four(pointer, types.int64, types.int64, dtype), codegen


@intrinsic
def load_some(typingctx: Any, pointer: Any, index: Any, count: Any, fill: Any) -> Any:
    """The first `count` of the `LANES` elements from an index on; the other lanes are `fill`."""
    dtype = pointer.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = address(context, builder, pointer, args)
        align = ir.Constant(ir.IntType(32), dtype.bitwidth // 8)
        mask = first_lanes(builder, args[2], dtype.bitwidth)
        rest = broadcast(builder, args[3])
        return masked(builder, "load", rest.type, rest.type, [at, align, mask, rest])

    return Lanes(dtype)(pointer, types.int64, types.int64, dtype), codegen


@intrinsic
def load_over(typingctx: Any, rest: Any, pointer: Any, index: Any, count: Any) -> Any:
    """The first `count` elements from an index on, in as many lanes as `rest` has; the others are its own."""
    dtype = pointer.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = args[0].type
        at = builder.bitcast(builder.gep(args[1], [args[2]]), vector.as_pointer())
        align = ir.Constant(ir.IntType(32), dtype.bitwidth // 8)
        mask = first_lanes(builder, args[3], dtype.bitwidth, rest.count)
        return masked(builder, "load", vector, vector, [at, align, mask, args[0]])

    return rest(rest, pointer, types.int64, types.int64), codegen


def lanes_between(builder: Any, low: ir.Value, count: ir.Value, begin: int) -> ir.Value:
    """A mask of the lanes whose number and `begin` are one of the `count` from `low` on."""
    numbers = ir.Constant(ir.VectorType(low.type, LANES), list(range(begin, begin + LANES)))
    numbers = builder.sub(numbers, broadcast(builder, low))
    return builder.icmp_unsigned("<", numbers, broadcast(builder, count))


def loading_apart(is_masked: bool) -> Any:
    """An intrinsic that loads the `LANES` elements from an index on that are `step` apart, a literal number.

    If it `is_masked`, those outside of [0, size) are `fill`.
    """

    def define(typingctx: Any, pointer: Any, index: Any, step: Any, size: Any, fill: Any) -> Any:
        if not isinstance(step, types.IntegerLiteral):
            return None
        dtype, apart = pointer.dtype, step.literal_value
        places = range(0, LANES * apart, apart)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            start, first, _, most, rest = args
            align = ir.Constant(ir.IntType(32), dtype.bitwidth // 8)
            made = fills = broadcast(builder, rest)
            if is_masked:
                # In few bits, for an element may be far behind the end.
                ends = builder.neg(first), builder.sub(most, first)
                for end, bound in ((0, ">"), (LANES * apart, "<")):
                    ends = tuple(
                        builder.select(builder.icmp_signed(bound, n, n.type(end)), n, n.type(end))
                        for n in ends
                    )
                index = ir.IntType(64 if dtype.bitwidth == 64 else 32)
                low, high = (builder.trunc(n, index) if index.width < 64 else n for n in ends)
                count = builder.sub(high, low)
            for k in range(apart):
                # The last vector ends with the last element, behind which there may be no memory.
                begin = min(LANES * k, places[-1] + 1 - LANES)
                here = builder.add(first, first.type(begin))
                at = address(context, builder, pointer, [start, here])
                if is_masked:
                    inside = lanes_between(builder, low, count, begin)
                    some = [at, align, inside, fills]
                    part = masked(builder, "load", fills.type, fills.type, some)
                else:
                    part = builder.load(at, align=dtype.bitwidth // 8)
                made = taken(builder, made, part, [
                    LANES + min(place - begin, LANES - 1) if place >= LANES * k else lane
                    for lane, place in enumerate(places)
                ])  # fmt: skip
            return made

        return Lanes(dtype)(pointer, types.int64, step, types.int64, dtype), codegen

    return intrinsic(prefer_literal=True)(define)


load_apart = loading_apart(False)
load_apart_some = loading_apart(True)


@helper
def strided(x: Any, index: int, step: int, size: int, fill: Any, are_inside: bool) -> Any:
    """The `LANES` elements x[index], x[index + step], ... for a step from 1 to 4; `fill` outside of [0, size),
    unless all are inside.

    The vectors that they lie in are loaded whole.
    """
    if are_inside:
        if step == 1:
            return load(x, index)
        if step == 2:
            return load_apart(x, index, 2, size, fill)
        if step == 3:
            return load_apart(x, index, 3, size, fill)
        return load_apart(x, index, 4, size, fill)
    if step == 1:
        return load_apart_some(x, index, 1, size, fill)
    if step == 2:
        return load_apart_some(x, index, 2, size, fill)
    if step == 3:
        return load_apart_some(x, index, 3, size, fill)
    return load_apart_some(x, index, 4, size, fill)


@intrinsic
def keep_larger_lanes(
    typingctx: Any, best: Any, where: Any, value: Any, place: Any, first: Any, step: Any, size: Any
) -> Any:
    """The larger lanes and where they are, of what is best so far and of a value at `place + lane * step`.

    A NaN is the larger one, and so is a value where nothing is yet, which is -1. Of the values those count
    for which `first + lane * step` lies in [0, size).
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        old, old_where, new, place, first, step, size = args
        one = old_where.type.element
        numbers = ir.Constant(ir.VectorType(one, LANES), list(range(LANES)))
        if one.width < 64:
            place, first, step, size = (builder.trunc(n, one) for n in (place, first, step, size))
        away = builder.mul(numbers, broadcast(builder, step))
        places = builder.add(away, broadcast(builder, place))
        none = ir.Constant(old_where.type, [0] * LANES)
        better = builder.icmp_signed("<", old_where, none)
        if is_float(best):
            larger = builder.fcmp_ordered(">", new, old)
            better = builder.or_(better, builder.fcmp_unordered("uno", new, new))
        else:
            compare = builder.icmp_signed if is_signed(best) else builder.icmp_unsigned
            larger = compare(">", new, old)
        better = builder.or_(better, larger)
        away = builder.add(away, broadcast(builder, first))
        inside = builder.icmp_unsigned("<", away, broadcast(builder, size))
        better = builder.and_(better, inside)
        made = builder.select(better, new, old), builder.select(better, places, old_where)
        return context.make_tuple(builder, sig.return_type, made)

    found = types.Tuple((best, where))
    whole = types.int64
    return found(best, where, best, whole, whole, whole, whole), codegen


ROWS = 8  # that `fold_rows` reduces together
# How the halves of a row meet where two vectors hold them: a part of each row from one, then the other, and
# in what order eight rows are then. The shuffles stay within halves of a register, which is quick.
HALVES = (
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    ((0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15)),
)
IN_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


@intrinsic(prefer_literal=True)
def fold_rows(
    typingctx: Any, op: Any, x: Any, first: Any, length: Any, lanes: Any, out: Any, to: Any
) -> Any:
    """out[to + k] = `op` over the `length` elements from x[first + k * length] on, for `ROWS` rows.

    Rows have at most `lanes` elements: 8, 16 or 32. The bits are those of `fold`, where the other lanes hold
    what changes nothing: 0 in a sum, 1 in a product, the first element of a row where an extreme is looked for.
    """
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    count, given, kind, what = lanes.literal_value, x.dtype, out.dtype, op.typing_key

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = given.bitwidth // 8
        element = context.get_data_type(given)
        align = ir.Constant(ir.IntType(32), size)
        mask = first_lanes(builder, args[3], given.bitwidth, count)
        vector = ir.VectorType(element, count)

        def halves(a: ir.Value, b: ir.Value, low: Sequence[int], high: Sequence[int]) -> ir.Value:
            return emit(builder, kind, what, taken(builder, a, b, low), taken(builder, a, b, high))

        def row(k: int) -> ir.Value:
            """The eight numbers that are left of a row."""
            offset = builder.mul(args[3], args[3].type(k))
            start = builder.gep(args[1], [builder.add(args[2], offset)])
            rest = builder.load(start) if what in (max, min) else element(1 if what is mul else 0)
            rest = broadcast(builder, rest, count)
            begin = builder.bitcast(start, vector.as_pointer())
            value = masked(builder, "load", vector, vector, [begin, align, mask, rest])
            value = converted(context, builder, value, given, kind)
            width = count
            while width > ROWS:
                width //= 2
                value = halves(value, value, range(width), range(width, 2 * width))
            return value

        def rows(k: int, step: int) -> ir.Value:
            """What is left of 2**step rows, in one vector."""
            if step == 0:
                return row(k)
            a, b = rows(k, step - 1), rows(k + 2 ** (step - 1), step - 1)
            return halves(a, b, *HALVES[step - 1])

        found = rows(0, 3)
        found = taken(builder, found, found, IN_ORDER)
        if what is add:  # a sum begins with 0, which tells in one of -0
            zero = ir.Constant(found.type, [0] * ROWS)
            found = emit(builder, kind, add, zero, found)
        target = builder.gep(args[5], [args[6]])
        target = builder.bitcast(target, found.type.as_pointer())
        builder.store(found, target, align=kind.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(op, x, types.int64, types.int64, lanes, out, types.int64), codegen


@intrinsic
def store(typingctx: Any, pointer: Any, index: Any, lanes: Any) -> Any:
    """Write all lanes from an index on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target = builder.bitcast(builder.gep(args[0], [args[1]]), args[2].type.as_pointer())
        builder.store(args[2], target, align=pointer.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, lanes), codegen


@intrinsic
def stream(typingctx: Any, pointer: Any, index: Any, lanes: Any) -> Any:
    """`store` past the caches, to a line's start, or behind others in one that lanes do not fill."""
    align = min(CACHE_LINE, lanes.count * pointer.dtype.bitwidth // 8)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        instruction = builder.store(args[2], address(context, builder, pointer, args), align=align)
        one = ir.Constant(ir.IntType(32), 1)
        instruction.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, lanes), codegen


@intrinsic
def fence(typingctx: Any) -> Any:
    """Streamed stores become visible to other threads before whatever follows."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@helper
def past_cache(units: int, start: int, stop: int, read: int, written: int) -> int:
    """From where on a part of the work streams results: what is before it stays in the cache.

    A unit has `read` bytes of operands and `written` of results.
    """
    if stop - start == units:
        return start
    kept = min(max(KEPT - units * read, 0) // written, units)
    return start + (stop - start) * kept // units


@helper
def stream_block(out: Any, first: int, block: Any, aligned: bool) -> None:
    """Move `BLOCK` results to out[first:], past the caches if that is the start of a line."""
    if aligned:
        for i in range(0, BLOCK, LANES):
            stream(out, first + i, load(block, i))
    else:
        for i in range(0, BLOCK, LANES):
            store(out, first + i, load(block, i))


@helper
def repeat_row(row: Any, width: int, out: Any, count: int) -> None:
    """Fill out[:count] with row[:width], again and again."""
    for first in range(0, count, width):
        for j in range(min(width, count - first)):
            out[first + j] = row[j]


@helper
def repeat_each(column: Any, start: int, step: int, width: int, out: Any, count: int) -> None:
    """Fill out[:count] with column[start], `width` times, then with column[start + step], and so on.

    `width` is at most 2 * LANES; behind the last element as many may be written over.
    """
    if width <= 8:
        _repeat_each(spread_over(column[start], 8), column, start, step, width, out, count)
    elif width <= 16:
        _repeat_each(spread_over(column[start], 16), column, start, step, width, out, count)
    elif width <= LANES:
        _repeat_each(spread(column[start]), column, start, step, width, out, count)
    else:
        place = start
        for first in range(0, count, width):
            each = spread(column[place])
            store(out, first, each)
            store(out, first + width - LANES, each)
            place += step


@helper
def _repeat_each(
    lanes: Any, column: Any, start: int, step: int, width: int, out: Any, count: int
) -> None:
    """The same for rows of no more elements than there are lanes."""
    place = start
    for first in range(0, count, width):
        store(out, first, spread_as(lanes, column[place]))
        place += step


@intrinsic
def store_some(typingctx: Any, pointer: Any, index: Any, lanes: Any, count: Any) -> Any:
    """Write the first `count` lanes from an index on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits, place = pointer.dtype.bitwidth, builder.gep(args[0], [args[1]])
        for first, part in parts_of(builder, args[2], bits):
            at = builder.gep(place, [ir.Constant(args[1].type, first)])
            at = builder.bitcast(at, part.type.as_pointer())
            store_first(builder, part, at, builder.sub(args[3], args[3].type(first)), bits)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, lanes, types.int64), codegen


@helper
def load_block(x: Any, i: int, count: int, fill: Any) -> Any:
    """The first `count` of the elements from a place on; the lanes behind them are `fill`. Masks are slow."""
    return load(x, i) if count == LANES else load_some(x, i, count, fill)


@helper
def store_block(out: Any, i: int, lanes: Any, count: int) -> None:
    """Write the first `count` lanes."""
    if count == LANES:
        store(out, i, lanes)
    else:
        store_some(out, i, lanes, count)


@helper
def copy_run(out: Any, x: Any, count: int) -> None:
    """out[:count] = x[:count], without the preparations of a loop: for many short runs."""
    whole = count // LANES * LANES
    for i in range(0, whole, LANES):
        store(out, i, load(x, i))
    if whole < count:
        store_some(out, whole, load_some(x, whole, count - whole, x[0]), count - whole)


@helper
def copy_line(out: Any, x: Any, count: int) -> None:
    """`copy_run` of what does not lie over `out`: the last ones may be copied twice, which takes no mask."""
    if count < LANES:
        copy_run(out, x, count)
        return
    for i in range(0, count - LANES, LANES):
        store(out, i, load(x, i))
    store(out, count - LANES, load(x, count - LANES))


@helper
def add_run(out: Any, x: Any, count: int, factor: Any) -> None:
    """out[:count] += factor * x[:count], for many short runs."""
    every = spread(factor)
    whole = count // LANES * LANES
    for i in range(0, whole, LANES):
        more = combine(mul, every, load(x, i))
        store(out, i, combine(add, load(out, i), more))
    for i in range(whole, count):
        out[i] += factor * x[i]


@intrinsic
def within(typingctx: Any, value: Any, index: Any, count: Any) -> Any:
    """A number where an index is below a count, else 0.

    By the sign of a difference: LLVM compares numbers of 64 bits, twice as wide as most masks.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.IntType(value.bitwidth)
        i, n = (builder.trunc(a, kind) if kind.width < 64 else a for a in args[1:])
        is_below = builder.icmp_signed("<", builder.sub(i, n), kind(0))
        return builder.select(is_below, args[0], args[0].type(0))

    return value(value, types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def stack(typingctx: Any, dtype: Any, count: Any) -> Any:
    """A pointer to `count` uninitialised elements that live as long as the kernel's call."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    element, size = dtype.dtype, count.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = cgutils.alloca_once(builder, context.get_data_type(element), size=size)
        words.align = CACHE_LINE
        return words

    return types.CPointer(element)(dtype, count), codegen


def add_product(x: Value, y: Value, total: Value) -> Value:
    """`total + x * y`, rounded once where the machine has an instruction for it."""
    return x.call("llvm.fma", y, total) if FUSED else total + x * y


def on_lanes(body: Callable[..., Value]) -> Any:
    """What kernels call with a tuple: a body of arithmetic, traced on lanes of floats. Numbers in the tuple are
    spread; the first of it are lanes.
    """

    def define(typingctx: Any, arguments: Any) -> Any:
        lanes = arguments[0]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            parts = cgutils.unpack_tuple(builder, args[0], len(arguments))
            return body(*[
                Value(builder, part if isinstance(kind, Lanes) else broadcast(builder, part))
                for part, kind in zip(parts, arguments, strict=True)
            ]).ir  # fmt: skip

        return lanes(arguments), codegen

    define.__name__ = body.__name__
    return intrinsic(define)


@intrinsic
def first_equal(typingctx: Any, lanes: Any, value: Any) -> Any:
    """The number of the first lane that equals a value, NaN being equal to NaN; that of lanes if none does."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        every = broadcast(builder, args[1], lanes.count)
        if is_float(lanes):
            same = builder.fcmp_ordered("==", args[0], every)
            nans = (builder.fcmp_unordered("uno", one, one) for one in (args[0], every))
            same = builder.or_(same, builder.and_(*nans))
        else:
            same = builder.icmp_unsigned("==", args[0], every)
        bits = builder.bitcast(same, ir.IntType(lanes.count))
        position = builder.cttz(bits, ir.Constant(ir.IntType(1), 0))
        return builder.zext(position, ir.IntType(64))

    return types.int64(lanes, lanes.dtype), codegen
