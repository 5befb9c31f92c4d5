"""How kernels are called, and how a kernel written once is instantiated for a dtype.

A CPU kernel is a function `kernel(args, start, stop)` of three int64. `args` is the address of a
row of int64 words: the addresses of the inputs, then of the outputs, then of the scratch memory
and of the status words where the kernel asks for them, then sizes, strides and scalar bits. The
word before the row is the number of its words, the one two before that the units of all the work.
`[start, stop)` is the part of the work to do, in units that the kernel chooses; the runner may
split a step into such parts over threads, so different units never write to the same place, and
how a sum is cut into units must not depend on the number of threads.

A kernel writes `T`, `X`, `Y`, `I` for its dtypes. They are bound when the kernel is instantiated;
the values here only serve when the function is run as plain Python.

    @kernel
    def add_one(args, start, stop):
        p = words(args)
        x, out = at(p[0], X), at(p[1], T)
        for i in range(start, stop):
            out[i] = T(x[i]) + T(1)

bool is stored as one byte, 0 or 1, and is bound to uint8.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .target import helper as helper

T = X = Y = Z = A = np.float64
I = np.int64

# The lanes that short rows, or few columns, fit into which a kernel takes together, None where short rows need
# more; 0 if it takes each alone. It is compiled for one of these: for all of them it takes three times as long.
W: int | None = 0

SIGNATURE = "void(int64, int64, int64)"

UNITS = -3  # where the units of all the work stand, seen from the row

# Words that a fallible kernel may set: the first non-zero code stops the plan.
STATUS_OK = 0
STATUS_INDEX = 1  # detail: the index, the size
STATUS_VALUE = 2  # detail: the value

KernelFunction = Callable[[int, int, int], None]


def kernel(function: KernelFunction) -> KernelFunction:
    """Mark a function as a CPU kernel; it stays plain Python until it is instantiated."""
    function.is_kernel = True  # type: ignore[attr-defined]
    return function


class Row(NamedTuple):
    """What a kernel does to each row, for groups that go row by row to call.

    The function takes scalar functions, its inputs, its output, the number of elements, words,
    numbers and T. An input or output with an element for each of the row's ("e") is a pointer and
    an index, an input with one for each column ("c") a pointer; what there is one of for a row ("r")
    is returned, in a tuple.

    `short` does the same to short rows, eight at a time: it takes `W`, pointers of inputs and results, the
    first row, the one behind the last and the number of elements, and returns the first row that is left.
    """

    function: Callable[..., Any]
    scalars: tuple[str, ...]  # names in `math`
    inputs: str
    outputs: str
    short: Callable[..., int] | None = None


@intrinsic
def words(typingctx: Any, address: Any) -> Any:
    """The int64 words at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), codegen


@intrinsic
def at(typingctx: Any, address: Any, dtype: Any) -> Any:
    """A pointer to elements of `dtype` at an address."""
    element = dtype.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_data_type(element).as_pointer())

    return types.CPointer(element)(types.int64, dtype), codegen


@intrinsic
def shifted(typingctx: Any, pointer: Any, count: Any) -> Any:
    """The pointer `count` elements further on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), codegen


@intrinsic
def scalar(typingctx: Any, word: Any, dtype: Any) -> Any:
    """A Python number as a float of `dtype`: it travels as the bits of a float64."""
    kind = dtype.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        number = builder.bitcast(args[0], ir.DoubleType())
        return context.cast(builder, number, types.float64, kind)

    return kind(types.int64, dtype), codegen


@intrinsic
def bits_of_float(typingctx: Any, value: Any) -> Any:
    """The int64 with the bits of a float64."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


def _division(instruction: str) -> Any:
    """A division of whole numbers from 0 up, one instruction. Numba makes one that is signed out of `//`,
    which takes a GPU a hundred."""

    def define(typingctx: Any, a: Any, b: Any) -> Any:
        kind = a if a.bitwidth >= b.bitwidth else b

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args)

        return kind(kind, kind), codegen

    return intrinsic(define)


quotient, remainder = _division("udiv"), _division("urem")


@intrinsic(prefer_literal=True)
def stack_words(typingctx: Any, count: Any) -> Any:
    """The address of `count` int64 words that live until the function returns."""
    size = count.literal_value

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        word = ir.IntType(64)
        return builder.ptrtoint(cgutils.alloca_once(builder, word, size=size), word)

    return types.int64(count), codegen


@intrinsic
def call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call the function at an address with a tuple of int64; what it returns is ignored."""
    count = len(arguments)

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        word = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word] * count).as_pointer()
        builder.call(
            builder.inttoptr(values[0], function), cgutils.unpack_tuple(builder, values[1], count)
        )
        return context.get_dummy_value()

    words_type = types.UniTuple(types.int64, count) if count else types.Tuple(())
    return types.void(types.int64, words_type), codegen
