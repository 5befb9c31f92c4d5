"""Launching device kernels from the compiled runner: a step of a stream that calls the driver.

So a stream of words runs on a GPU as on the CPU: it holds launches in the place of kernels.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..language.abi import kernel, stack_words, words

# The words of a launch; the parameters follow. STREAM and REPORT are addresses of words: a plan keeps
# its launches while the stream changes.
LAUNCH, FUNCTION, GRID, THREADS, SHARED, STREAM, REPORT, FLOATS, COUNT = range(9)
PARAMETERS = 9
MOST_PARAMETERS = 512  # 4 KiB, what every GPU takes


def float_bit(k: int, count: int) -> int:
    """The bit at FLOATS that says whether parameter k of `count` is a float32: it is for the last 64."""
    bit = k - max(count - 64, 0)
    if bit < 0:
        raise NotImplementedError(
            "a launch on a GPU takes Python numbers as the last 63 parameters"
        )
    return bit


@intrinsic
def call_driver(typingctx: Any, launch: Any, head: Any, stream: Any, pointers: Any) -> Any:
    """cuLaunchKernel with the words of a launch; its status code."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        word, number = ir.IntType(64), ir.IntType(32)
        kinds = [word, *[number] * 7, word, word, word]
        function = ir.FunctionType(number, kinds).as_pointer()

        def at(k: int) -> Any:
            return builder.load(builder.gep(values[1], [word(k)]))

        def narrow(k: int) -> Any:
            return builder.trunc(at(k), number)

        one = number(1)
        code = builder.call(
            builder.inttoptr(values[0], function),
            [at(FUNCTION), narrow(GRID), one, one, narrow(THREADS), one, one, narrow(SHARED),
             values[2], values[3], word(0)],
        )  # fmt: skip
        return builder.sext(code, word)

    address = types.int64
    return types.int64(address, types.CPointer(types.int64), address, address), codegen


@intrinsic
def narrowed(typingctx: Any, bits: Any) -> Any:
    """The bits of a float64 as the bits of a float32, in the lower half of a word."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        number = builder.fptrunc(builder.bitcast(values[0], ir.DoubleType()), ir.FloatType())
        return builder.zext(builder.bitcast(number, ir.IntType(32)), ir.IntType(64))

    return types.int64(types.int64), codegen


@kernel
def launch(args, start, stop):
    """Launch a kernel once; where that fails, the code goes to the word at REPORT if it is 0."""
    head = words(args)
    count = head[COUNT]
    mine = stack_words(MOST_PARAMETERS)
    values, pointers = words(mine), stack_words(MOST_PARAMETERS)
    places = words(pointers)
    first = max(count - 64, 0)
    for k in range(count):
        word = head[PARAMETERS + k]
        if k >= first and head[FLOATS] >> (k - first) & 1:
            word = narrowed(word)
        values[k] = word
        places[k] = mine + 8 * k
    code = call_driver(head[LAUNCH], head, words(head[STREAM])[0], pointers)
    report = words(head[REPORT])
    if code != 0 and report[0] == 0:
        report[0] = code


@kernel
def copy(args, start, stop):
    """Copy bytes on a GPU. Words: the driver's function, target, source, bytes, stream, report."""
    p = words(args)
    code = call(p[0], (p[1], p[2], p[3], words(p[4])[0]))
    report = words(p[5])
    if code != 0 and report[0] == 0:
        report[0] = code


@kernel
def put_on_stream(args, start, stop):
    """Put a graph or an event onto a stream. Words: the driver's function, its handle, stream, report."""
    p = words(args)
    code = call(p[0], (p[1], words(p[2])[0]))
    report = words(p[3])
    if code != 0 and report[0] == 0:
        report[0] = code


@intrinsic
def call(typingctx: Any, function: Any, arguments: Any) -> Any:
    """A function of a library over words; its status code."""
    if not isinstance(arguments, types.UniTuple):
        return None
    count = arguments.count

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word] * count).as_pointer()
        given = cgutils.unpack_tuple(builder, values[1], count)
        return builder.sext(builder.call(builder.inttoptr(values[0], kind), given), word)

    return types.int64(types.int64, types.UniTuple(types.int64, count)), codegen


# The words of a product by cuBLASLt. SET and MULTIPLY are its functions, then come its handle and
# descriptors; SUITED is the algorithm for operands at multiples of ALIGNMENT, ANY the one for others,
# SUMMAND one of those below, BETA and ALPHA are the bits of float64.
(
    MULTIPLY, SET, HANDLE, OPERATION, A_LAYOUT, B_LAYOUT, C_LAYOUT, D_LAYOUT, SUITED, ANY,
    WORKSPACE, WORKSPACE_BYTES, MULTIPLY_STREAM, MULTIPLY_REPORT, IS_SINGLE, SUMMAND,
    A, B, BIAS, OUT, BETA, ALPHA,
) = range(22)  # fmt: skip
NONE, VECTOR, MATRIX = range(3)
ALIGNMENT = 16  # bytes
BIAS_POINTER = 8  # the number of that attribute of an operation


@kernel
def multiply(args, start, stop):
    """out = alpha * (a @ b) + beta * bias by cuBLASLt; what it reports goes, negative, to the word
    that is told."""
    p = words(args)
    scalars = stack_words(3)
    given = words(scalars)
    given[0], given[1], given[2] = p[ALPHA], p[BETA], p[BIAS]
    if p[IS_SINGLE]:
        given[0], given[1] = narrowed(p[ALPHA]), narrowed(p[BETA])
    code = 0
    if p[SUMMAND] == VECTOR:
        given[1] = 0
        code = call(p[SET], (p[OPERATION], BIAS_POINTER, scalars + 16, 8))
    places = p[A] | p[B] | p[OUT]
    added = p[OUT]
    if p[SUMMAND] != NONE:
        places |= p[BIAS]
    if p[SUMMAND] == MATRIX:
        added = p[BIAS]
    algorithm = p[SUITED] if places % ALIGNMENT == 0 else p[ANY]
    if code == 0:
        code = call(
            p[MULTIPLY],
            (p[HANDLE], p[OPERATION], scalars, p[A], p[A_LAYOUT], p[B], p[B_LAYOUT], scalars + 8,
             added, p[C_LAYOUT], p[OUT], p[D_LAYOUT], algorithm, p[WORKSPACE], p[WORKSPACE_BYTES],
             words(p[MULTIPLY_STREAM])[0]),
        )  # fmt: skip
    report = words(p[MULTIPLY_REPORT])
    if code != 0 and report[0] == 0:
        report[0] = -code
