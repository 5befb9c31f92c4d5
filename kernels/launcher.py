"""Launching device kernels from the compiled runner: a step of a stream that calls the driver.

So a stream of words runs on a GPU as on the CPU: it holds launches in the place of kernels.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .abi import kernel, stack_words, words

# The words of a launch; the parameters follow.
LAUNCH, FUNCTION, GRID, THREADS, STREAM, REPORT, FLOATS, COUNT = range(8)
PARAMETERS = 8
MOST_PARAMETERS = 128


@intrinsic
def call_driver(typingctx: Any, launch: Any, head: Any, pointers: Any) -> Any:
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
            [at(FUNCTION), narrow(GRID), one, one, narrow(THREADS), one, one, number(0), at(STREAM),
             values[2], word(0)],
        )  # fmt: skip
        return builder.sext(code, word)

    return types.int64(types.int64, types.CPointer(types.int64), types.int64), codegen


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
    mine = stack_words(128)
    values, pointers = words(mine), stack_words(128)
    places = words(pointers)
    for k in range(count):
        word = head[PARAMETERS + k]
        if head[FLOATS] >> k & 1:
            word = narrowed(word)
        values[k] = word
        places[k] = mine + 8 * k
    code = call_driver(head[LAUNCH], head, pointers)
    report = words(head[REPORT])
    if code != 0 and report[0] == 0:
        report[0] = code
