"""What generated code calls: the tape, and a few functions.

A tape is one stack of bytes in chunks that never move, so that addresses on it stay good; a word of it
is the address of the next free byte. Freed tapes wait in a pool: fresh pages cost more than what is
written to them. With NUMBA_DISABLE_JIT=1 the same functions run as plain Python, on `ctypes`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import carray, config, get_num_threads, njit, set_num_threads, types
from numba.core import cgutils
from numba.core.typing import signature
from numba.extending import intrinsic
from numba.np import arrayobj

from .ahead import ROUNDS
from .linked_code import LinkedCompiler

SLOTS = 16
HEAD = 64  # bytes before the first of a chunk: what the tape was before
FIRST = 1 << 18
_pool = np.zeros(SLOTS, np.int64)
_POOL_SYMBOL = "adjit_tape_pool"
# A symbol, so that machine code loaded from disk finds the pool of its process.
binding.add_symbol(_POOL_SYMBOL, int(_pool.ctypes.data))


def _room(element: types.Type) -> Any:
    """An intrinsic that makes room on the stack for what is computed ahead."""

    @intrinsic  # type: ignore[untyped-decorator]
    def room(typing: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = context.get_data_type(element)
            memory = cgutils.alloca_once(builder, ir.ArrayType(kind, ROUNDS))
            return builder.bitcast(memory, kind.as_pointer())

        return types.CPointer(element)(), codegen

    return room


def _pointer(element: types.Type) -> Any:
    """An intrinsic that makes a typed pointer of an address."""

    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_data_type(element).as_pointer())

        return types.CPointer(element)(types.int64), codegen

    return pointer


def _array_at(element: types.Type, *, zeros: bool) -> Any:
    """An intrinsic that makes an array of an address and a shape: `carray`, and what is stored into it, by
    hand-made code that Numba needs no function of its own for."""

    @intrinsic  # type: ignore[untyped-decorator]
    def array(typing: Any, address: Any, shape: Any) -> Any:
        made = types.Array(element, len(shape), "C")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = types.CPointer(element)
            data = builder.inttoptr(args[0], context.get_value_type(pointer))
            whole = signature(made, pointer, sig.args[1])
            filled = arrayobj.np_cfarray(context, builder, whole, [data, args[1]])
            if zeros:
                array = arrayobj.make_array(made)(context, builder, filled)
                size = builder.mul(array.nitems, array.itemsize)
                cgutils.memset(builder, array.data, size, 0)
            return filled

        return made(types.int64, shape), codegen

    return array


@intrinsic  # type: ignore[untyped-decorator]
def _pool_address(typing: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        module = builder.module
        pool = module.globals.get(_POOL_SYMBOL)
        if pool is None:
            pool = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(64), SLOTS), _POOL_SYMBOL)
        return builder.ptrtoint(pool, ir.IntType(64))

    return types.int64(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _exchange(typing: Any, address: Any, value: Any) -> Any:
    """Put a word at an address and get the one that was there, atomically."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("xchg", place, args[1], "acq_rel")

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def nat(typing: Any, index: Any) -> Any:
    """An index that is not negative: the type says it, and Numba leaves out a test that keeps loops from
    being vectorised."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[0], index, types.int64)

    return types.uint64(index), codegen


@intrinsic  # type: ignore[untyped-decorator]
def zeros_as(typing: Any, array: Any) -> Any:
    """`np.zeros_like(array)`, of which Numba would compile three functions for each type."""
    made = array.copy(layout="F" if array.layout == "F" else "C", readonly=False)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        shaped = arrayobj.make_array(array)(context, builder, args[0])
        size = builder.mul(shaped.nitems, shaped.itemsize)
        align = context.get_preferred_array_alignment(made.dtype)
        memory = context.nrt.meminfo_alloc_aligned(builder, size, align)
        data = context.nrt.meminfo_data(builder, memory)
        cgutils.memset(builder, data, size, 0)
        zeros = arrayobj.make_array(made)(context, builder)
        sizes = list(enumerate(cgutils.unpack_tuple(builder, shaped.shape)))
        strides, step = [shaped.itemsize] * made.ndim, shaped.itemsize
        for d, n in sizes if made.layout == "F" else reversed(sizes):
            strides[d], step = step, builder.mul(step, n)
        arrayobj.populate_array(
            zeros,
            data=builder.bitcast(data, context.get_data_type(made.dtype).as_pointer()),
            shape=shaped.shape,
            strides=strides,
            itemsize=shaped.itemsize,
            meminfo=memory,
        )
        return arrayobj.impl_ret_new_ref(context, builder, made, zeros._getvalue())

    return made(array), codegen


@intrinsic  # type: ignore[untyped-decorator]
def larger(typing: Any, a: Any, b: Any) -> Any:
    """`max(a, b)` of whole numbers, of which Numba would compile a function."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (
            context.cast(builder, v, t, types.int64) for v, t in zip(args, sig.args, strict=True)
        )
        return builder.select(builder.icmp_signed(">", a, b), a, b)

    return types.int64(a, b), codegen


@intrinsic  # type: ignore[untyped-decorator]
def rounds(typing: Any, count: Any) -> Any:
    """`max(0, count)`, likewise."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        count = context.cast(builder, args[0], sig.args[0], types.int64)
        zero = context.get_constant(types.int64, 0)
        return builder.select(builder.icmp_signed(">", count, zero), count, zero)

    return types.int64(count), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pick(typing: Any, condition: Any, a: Any, b: Any) -> Any:
    """`a if condition else b` without a branch: processors guess wrong what a minimum was taken from."""
    result = typing.unify_types(types.unliteral(a), types.unliteral(b))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kinds = (types.boolean, result, result)
        return builder.select(
            *[context.cast(builder, v, t, k) for v, t, k in zip(args, sig.args, kinds, strict=True)]
        )

    return result(condition, a, b), codegen


@intrinsic  # type: ignore[untyped-decorator]
def rest(typing: Any, g: Any, part: Any) -> Any:
    """What `part`, which is `g` or zero, leaves of `g`: of a second `pick` by one test LLVM makes a branch."""
    result = typing.unify_types(types.unliteral(g), types.unliteral(part))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(result.bitwidth)
        a, b = (
            builder.bitcast(context.cast(builder, v, t, result), word)
            for v, t in zip(args, sig.args, strict=True)
        )
        return builder.bitcast(builder.xor(a, b), context.get_data_type(result))

    return result(g, part), codegen


at_f8: Any = _pointer(types.float64)
at_f4: Any = _pointer(types.float32)
at_i8: Any = _pointer(types.int64)
at_b1: Any = _pointer(types.uint8)
array_f8: Any = _array_at(types.float64, zeros=False)
array_f4: Any = _array_at(types.float32, zeros=False)
array_i8: Any = _array_at(types.int64, zeros=False)
array_b1: Any = _array_at(types.uint8, zeros=False)
zeros_f8: Any = _array_at(types.float64, zeros=True)
zeros_f4: Any = _array_at(types.float32, zeros=True)
zeros_i8: Any = _array_at(types.int64, zeros=True)
room_f8: Any = _room(types.float64)
room_f4: Any = _room(types.float32)
_malloc: Any = types.ExternalFunction("malloc", types.int64(types.int64))
_free: Any = types.ExternalFunction("free", types.void(types.int64))

if config.DISABLE_JIT:
    _c = ctypes.CDLL(None)
    _malloc, _free = _c.malloc, _c.free
    _malloc.restype, _malloc.argtypes = ctypes.c_int64, [ctypes.c_int64]
    _free.restype, _free.argtypes = None, [ctypes.c_int64]

    def _python_pointer(element: Any) -> Callable[[int], Any]:
        return lambda address: ctypes.cast(int(address), ctypes.POINTER(element))

    at_f8, at_f4 = _python_pointer(ctypes.c_double), _python_pointer(ctypes.c_float)
    at_i8, at_b1 = _python_pointer(ctypes.c_int64), _python_pointer(ctypes.c_bool)

    def _python_array(at: Any, *, zeros: bool) -> Callable[[int, tuple[int, ...]], Any]:
        def array(address: int, shape: tuple[int, ...]) -> Any:
            made = carray(at(address), shape)
            if zeros:
                made[...] = 0
            return made

        return array

    array_f8, zeros_f8 = (_python_array(at_f8, zeros=z) for z in (False, True))
    array_f4, zeros_f4 = (_python_array(at_f4, zeros=z) for z in (False, True))
    array_b1 = _python_array(at_b1, zeros=False)
    array_i8, zeros_i8 = (_python_array(at_i8, zeros=z) for z in (False, True))

    def nat(index: int) -> int:
        return index

    room_f8, room_f4 = ctypes.c_double * ROUNDS, ctypes.c_float * ROUNDS
    zeros_as = np.zeros_like

    larger = max

    def rounds(count: int) -> int:
        return max(0, count)

    def pick(condition: bool, a: Any, b: Any) -> Any:
        return a if condition else b

    def rest(g: float, part: float) -> float:
        return g if part == 0 else 0.0

    def _pool_address() -> int:
        return int(_pool.ctypes.data)

    def _exchange(address: int, value: int) -> int:
        word = at_i8(address)
        old = int(word[0])
        word[0] = value
        return old


# How many threads share a loop: by the names of the functions that Numba's loops call, since code with the
# pointers of `numba.set_num_threads` cannot be kept on disk.
threads_used: Any
use_threads: Any
if config.DISABLE_JIT:
    threads_used, use_threads = get_num_threads, set_num_threads
else:
    threads_used = types.ExternalFunction("get_num_threads", types.intp())
    use_threads = types.ExternalFunction("set_num_threads", types.void(types.intp))

_compiled: Any = njit(error_model="numpy", nogil=True, pipeline_class=LinkedCompiler)

# The words of a tape: the next free byte, the end and the start of its chunk, bytes in all chunks but the
# first, the most that was in use, bytes in use before this chunk.
NEXT, END, START, GREW, PEAK, BELOW = range(6)


@_compiled
def _grow(tape, count):  # type: ignore[no-untyped-def]
    w = at_i8(tape)
    size = larger(larger(2 * (w[END] - w[START]), count + 2 * HEAD), 1 << 20)
    chunk = _malloc(size)
    if chunk == 0:
        raise MemoryError("no memory for the tape of a kernel")
    before = at_i8(chunk)
    before[0], before[1], before[2], before[3] = w[NEXT], w[END], w[START], w[BELOW]
    w[BELOW] += w[NEXT] - w[START]
    w[NEXT], w[END], w[START] = chunk + HEAD, chunk + size, chunk + HEAD
    w[GREW] += size
    w[PEAK] = larger(w[PEAK], w[BELOW])


@_compiled
def _shrink(tape):  # type: ignore[no-untyped-def]
    w = at_i8(tape)
    chunk = w[START] - HEAD
    before = at_i8(chunk)
    w[NEXT], w[END], w[START], w[BELOW] = before[0], before[1], before[2], before[3]
    _free(chunk)


@_compiled
def reserve(tape, count):  # type: ignore[no-untyped-def]
    """The address of `count` more bytes on top of a tape."""
    w = at_i8(tape)
    count = (count + 7) & -8
    if w[NEXT] + count > w[END]:
        _grow(tape, count)
    address = w[NEXT]
    w[NEXT] = address + count
    w[PEAK] = larger(w[PEAK], w[BELOW] + w[NEXT] - w[START])
    return address


@_compiled
def release(tape, count):  # type: ignore[no-untyped-def]
    """The address of the last `count` bytes, which leave the tape. They stay until the next call."""
    w = at_i8(tape)
    count = (count + 7) & -8
    if w[NEXT] == w[START] and count > 0:
        _shrink(tape)
    w[NEXT] -= count
    return w[NEXT]


# A loop of unknown length keeps the top of the tape in a variable, and where its chunk ends or starts.


@_compiled
def tape_top(tape):  # type: ignore[no-untyped-def]
    w = at_i8(tape)
    return w[NEXT], w[END]


@_compiled
def tape_low(tape):  # type: ignore[no-untyped-def]
    w = at_i8(tape)
    return w[NEXT], w[START]


@_compiled
def tape_more(tape, top, count):  # type: ignore[no-untyped-def]
    """A new chunk, where the top of a tape has no `count` bytes left."""
    w = at_i8(tape)
    w[NEXT] = top
    _grow(tape, count)
    return w[NEXT], w[END]


@_compiled
def tape_less(tape):  # type: ignore[no-untyped-def]
    """The chunk before, where the top of a tape has come to the start of its own."""
    _shrink(tape)
    w = at_i8(tape)
    return w[NEXT], w[START]


@_compiled
def tape_set(tape, top):  # type: ignore[no-untyped-def]
    w = at_i8(tape)
    w[NEXT] = top
    w[PEAK] = larger(w[PEAK], w[BELOW] + top - w[START])


@_compiled
def _new_tape(size):  # type: ignore[no-untyped-def]
    tape = _malloc(size)
    if tape == 0:
        raise MemoryError("no memory for the tape of a kernel")
    w = at_i8(tape)
    w[NEXT], w[END], w[START] = tape + HEAD, tape + size, tape + HEAD
    w[GREW], w[PEAK], w[BELOW] = 0, 0, 0
    return tape


@_compiled
def open_tape():  # type: ignore[no-untyped-def]
    """An empty tape, from the pool if one waits there."""
    pool = _pool_address()
    for k in range(SLOTS):
        tape = _exchange(pool + 8 * k, 0)
        if tape != 0:
            at_i8(tape)[PEAK] = 0
            return tape
    return _new_tape(FIRST)


@_compiled
def close_tape(tape):  # type: ignore[no-untyped-def]
    """Give a tape back; the most bytes that were in use. If it grew, the next one is large enough at once."""
    w = at_i8(tape)
    while w[START] != tape + HEAD:
        _shrink(tape)
    w[NEXT] = w[START]
    peak = w[PEAK]
    if w[GREW] > 0:
        size = w[END] - tape + w[GREW]
        _free(tape)
        tape = _new_tape(size)
    pool = _pool_address()
    for k in range(SLOTS):
        tape = _exchange(pool + 8 * k, tape)
        if tape == 0:
            return peak
    _free(tape)
    return peak


@_compiled
def close_beside(tape, other):  # type: ignore[no-untyped-def]
    """Give back a tape that was used beside one, which counts its bytes too."""
    at_i8(tape)[PEAK] += close_tape(other)


@_compiled
def overlap(a, b):  # type: ignore[no-untyped-def]
    """Whether the memory of two arrays may overlap."""
    if a.size == 0 or b.size == 0:
        return False
    a_low = a_high = a.ctypes.data
    b_low = b_high = b.ctypes.data
    for k in range(a.ndim):
        span = (a.shape[k] - 1) * a.strides[k]
        a_low, a_high = a_low + min(span, 0), a_high + max(span, 0)
    for k in range(b.ndim):
        span = (b.shape[k] - 1) * b.strides[k]
        b_low, b_high = b_low + min(span, 0), b_high + max(span, 0)
    return a_low < b_high + b.itemsize and b_low < a_high + a.itemsize


@_compiled
def over(g, x):  # type: ignore[no-untyped-def]
    """`g / x`, but zero where `g` is, without a branch and without an error in plain Python."""
    return pick(g != 0, g / pick(g != 0, x, 1.0), 0.0)


@_compiled
def digamma(x):  # type: ignore[no-untyped-def]
    """The derivative of `math.lgamma`: recurrence up to 8, then the asymptotic series; reflection below 0."""
    result = 0.0
    if x <= 0.0:
        if x == math.floor(x):
            return np.nan
        result -= math.pi / math.tan(math.pi * x)
        x = 1.0 - x
    while x < 8.0:
        result -= 1.0 / x
        x += 1.0
    f = 1.0 / (x * x)
    series = f * (
        1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f * (1 / 132 - f * (691 / 32760)))))
    )
    return result + math.log(x) - 0.5 / x - series


@_compiled
def trigamma(x):  # type: ignore[no-untyped-def]
    """The derivative of `digamma`, likewise."""
    result = 0.0
    sign = 1.0
    if x <= 0.0:
        if x == math.floor(x):
            return np.nan
        s = math.pi / math.sin(math.pi * x)
        result += s * s
        sign = -1.0
        x = 1.0 - x
    while x < 8.0:
        result += sign / (x * x)
        x += 1.0
    f = 1.0 / (x * x)
    series = f * (1 / 6 - f * (1 / 30 - f * (1 / 42 - f * (1 / 30 - f * (5 / 66)))))
    return result + sign * (1.0 / x + 0.5 * f + series / x)
