"""BLAS as SciPy ships it, called from kernels through an address that travels in a word.

The address of a BLAS routine differs from process to process, so it is a constant word of the
launch and not a symbol: the object code of a kernel stays free of anything to link and can be
cached on disk. Sizes and leading dimensions are C ints there; `fits` says whether they can be.

Only products of a matrix and a vector run on it; `matmul.py` says why.
"""

import contextlib
import ctypes
import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
LARGEST_INT = 2**31 - 1


@functools.cache
def cython_blas() -> Any:
    """SciPy's table of BLAS routines; importing it takes a while, so the first product does.

    OpenBLAS is kept from starting threads of its own: the runner cuts a matrix into panels of rows
    whose height does not depend on the number of threads, and runs each on one of its threads. This is
    SciPy's own copy of the library; NumPy's is not touched.
    """
    from scipy.linalg import cython_blas

    library = ctypes.CDLL(cython_blas.__file__)  # symbols are looked up in what it links to, too
    for prefix in ("scipy_", ""):
        for suffix in ("", "64_"):
            with contextlib.suppress(AttributeError):
                library[f"{prefix}openblas_set_num_threads{suffix}"](1)
    return cython_blas


@functools.cache
def address_of(routine: str, dtype: Any) -> int:
    """The address of a BLAS routine, such as `gemv`, for float32 or float64."""
    capsule = cython_blas().__pyx_capi__[LETTERS[np.dtype(dtype)] + routine]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer_of(capsule, name_of(capsule))
    return address


def fits(*sizes: int) -> bool:
    """Whether sizes and leading dimensions can be passed to BLAS."""
    return all(size <= LARGEST_INT for size in sizes)


def _call(builder: ir.IRBuilder, address: ir.Value, arguments: list[ir.Value]) -> None:
    signature = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(builder.inttoptr(address, signature.as_pointer()), arguments)


def _stored(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The address of a copy on the stack: BLAS takes every argument by reference."""
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return slot


def _int(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return _stored(builder, builder.trunc(value, ir.IntType(32)))


def _flag(builder: ir.IRBuilder, transposed: ir.Value) -> ir.Value:
    """`T` or `N` on the stack."""
    is_set = builder.icmp_signed("!=", transposed, ir.Constant(transposed.type, 0))
    letters = (ir.Constant(ir.IntType(8), ord(letter)) for letter in "TN")
    return _stored(builder, builder.select(is_set, *letters))


@intrinsic
def gemv(
    typingctx: Any,
    address: Any, transposed: Any, rows: Any, columns: Any,
    alpha: Any, matrix: Any, ld: Any, x: Any, x_step: Any, beta: Any, out: Any, out_step: Any,
) -> Any:  # fmt: skip
    """out = alpha * matrix @ x + beta * out for a matrix of `rows` by `columns`.

    The matrix lies by rows, `ld` apart, or by columns when `transposed`.
    """
    number = out.dtype
    whole = types.int64
    pointer = types.CPointer(number)
    signature = types.void(
        whole, whole, whole, whole,
        number, pointer, whole, pointer, whole, number, pointer, whole,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (address, transposed, rows, columns,
         alpha, matrix, ld, x, x_step, beta, out, out_step) = args  # fmt: skip
        zero = ir.Constant(transposed.type, 0)
        by_rows = builder.icmp_signed("==", transposed, zero)
        arguments = [
            _flag(builder, builder.zext(by_rows, transposed.type)),
            _int(builder, builder.select(by_rows, columns, rows)),
            _int(builder, builder.select(by_rows, rows, columns)),
            _stored(builder, alpha), matrix, _int(builder, ld), x, _int(builder, x_step),
            _stored(builder, beta), out, _int(builder, out_step),
        ]  # fmt: skip
        _call(builder, address, arguments)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def shifted(typingctx: Any, pointer: Any, count: Any) -> Any:
    """The pointer `count` elements further on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), codegen
