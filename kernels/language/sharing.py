"""Words that several threads read and write, one after the other for all of them."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .processor import CHOSEN


def pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def seen(typingctx: Any, address: Any) -> Any:
    """The word at an address as it is now."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def tell(typingctx: Any, address: Any, word: Any) -> Any:
    """Write a word for other threads to see."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def increase(typingctx: Any, address: Any, by: Any) -> Any:
    """Add to a word that others add to, too."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.atomic_rmw("add", pointer(builder, args[0]), args[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def replaced(typingctx: Any, address: Any, old: Any, new: Any) -> Any:
    """Whether the word was `old` and is `new` now."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = pointer(builder, args[0])
        pair = builder.cmpxchg(place, args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


PAUSES = {
    "x86_64": ("llvm.x86.sse2.pause",),
    "aarch64": ("llvm.aarch64.isb", 15),
}


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the processor that this thread only waits."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name, *numbers = PAUSES.get(CHOSEN.architecture, ("",))
        if name:
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)] * len(numbers))
            hint = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(hint, [ir.Constant(ir.IntType(32), number) for number in numbers])
        return context.get_dummy_value()

    return types.void(), codegen
