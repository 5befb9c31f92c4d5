"""Running a stream of steps from code that holds the interpreter's lock."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..language.abi import helper
from .cpython import check_signals, has_failed, release, take_back


@intrinsic
def _call(typingctx: Any, walk: Any, stream: Any, steps: Any, status: Any, team: Any) -> Any:
    """The runner's `walk`, by its address."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        word = ir.IntType(64)
        function = ir.FunctionType(word, [word] * 4).as_pointer()
        return builder.call(builder.inttoptr(values[0], function), values[1:])

    return types.int64(*[types.int64] * 5), codegen


@helper
def run_stream(walk, stream, steps, status, team):
    """Run the steps of a stream, others having the lock meanwhile; the one that failed, or -1."""
    thread = release()
    stopped = _call(walk, stream, steps, status, team)
    take_back(thread)
    return stopped


@helper
def notice_signals():
    """Have Ctrl-C raise here, after a stream.

    Had callers to free memory first, a finalizer might be what it interrupts, and what a finalizer raises is
    lost.
    """
    if has_failed() == 0:
        check_signals()
