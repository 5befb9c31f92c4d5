"""cuBLASLt, NVIDIA's library of matrix products, called through ctypes.

`schedule/gpu/products.py` says which products go to it. Handles and addresses are ints.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any, NamedTuple

from .errors import OutOfMemoryError

SUCCESS, NOT_INITIALIZED, ALLOC_FAILED, NOT_SUPPORTED = 0, 1, 3, 15

# Of cublasLt.h: what computes, types of elements and scalars, what is done to operands and results.
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_16BF, COMPUTE_32F_FAST_TF32 = 68, 70, 75, 77
R_32F, R_64F = 0, 1
AS_IT_IS, TRANSPOSED = 0, 1
EPILOGUE_DEFAULT, EPILOGUE_BIAS = 1, 4

# Attributes of an operation, of a layout and of a search, and how large their values are.
TRANSPOSES_A, TRANSPOSES_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
BATCHES, BATCH_STRIDE = 5, 6
MOST_WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)

_out = POINTER(c_void_p)
_attribute = (c_void_p, c_int, c_void_p, c_size_t)
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_out,),
    "cublasLtMatmulDescCreate": (_out, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": _attribute,
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (_out, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": _attribute,
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (_out,),
    "cublasLtMatmulPreferenceSetAttribute": _attribute,
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, c_void_p, POINTER(c_int)),
    "cublasLtMatmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}  # fmt: skip


class FoundAlgorithm(ctypes.Structure):
    """An algorithm that a search has found: cublasLtMatmulHeuristicResult_t, the algorithm first."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )

    @property
    def address(self) -> int:
        """Where the algorithm lies, as long as this lives."""
        return ctypes.addressof(self)


class Matrix(NamedTuple):
    """A batch of matrices as cuBLASLt sees it: by columns, `ld` elements from one to the next."""

    rows: int
    columns: int
    ld: int
    stride: int  # elements from one of the batch to the next
    batches: int


class Library:
    """The library's functions. Each raises what the library reports."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self.path = path
        self._functions: dict[str, Any] = {}
        for name, arguments in _PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
            self._functions[name] = function
        self._name_of = library.cublasLtGetStatusName
        self._text_of = library.cublasLtGetStatusString
        for tell in (self._name_of, self._text_of):
            tell.argtypes, tell.restype = (c_int,), c_char_p

    def address(self, name: str) -> int:
        """Where a function lies, for machine code that calls it."""
        return int(ctypes.cast(self._functions[name], c_void_p).value or 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            RuntimeError: with the library's own text, if it reports an error.
        """
        code = self._functions[name](*arguments)
        if code != SUCCESS:
            raise self.error(code, name)

    def error(self, code: int, name: str) -> RuntimeError:
        """What a status code of a function means."""
        symbol, text = ((tell(code) or b"").decode() for tell in (self._name_of, self._text_of))
        kind = OutOfMemoryError if code == ALLOC_FAILED else RuntimeError
        return kind(f"cuBLASLt error: {text} ({symbol}, from {name})")

    def handle(self) -> int:
        """A handle for the device in use, for good."""
        return self._made("cublasLtCreate")

    def operation(self, compute: int, scale: int, transposes: Sequence[int], epilogue: int) -> int:
        """A product: in what it is computed, which operands are transposed, what follows it."""
        made = self._made("cublasLtMatmulDescCreate", compute, scale)
        for attribute, value in zip(
            (TRANSPOSES_A, TRANSPOSES_B, EPILOGUE), (*transposes, epilogue), strict=True
        ):
            self._set("cublasLtMatmulDesc", made, attribute, c_int32(value))
        return made

    def expect_bias(self, operation: int, alignment: int) -> None:
        """Let what is searched for suit a bias at multiples of so many bytes: an address tells them."""
        self._set("cublasLtMatmulDesc", operation, BIAS_POINTER, c_uint64(alignment))

    def layout(self, kind: int, matrix: Matrix) -> int:
        """How an operand or a result lies."""
        made = self._made(
            "cublasLtMatrixLayoutCreate", kind, matrix.rows, matrix.columns, matrix.ld
        )
        self._set("cublasLtMatrixLayout", made, BATCHES, c_int32(matrix.batches))
        self._set("cublasLtMatrixLayout", made, BATCH_STRIDE, c_int64(matrix.stride))
        return made

    def search(
        self, handle: int, operation: int, layouts: Sequence[int], workspace: int, alignment: int
    ) -> FoundAlgorithm | None:
        """The algorithm that the library takes for the best with so many bytes of workspace and
        operands at multiples of `alignment`; None if there is none."""
        preference = self._made("cublasLtMatmulPreferenceCreate")
        name = "cublasLtMatmulAlgoGetHeuristic"
        try:
            owner = "cublasLtMatmulPreference"
            self._set(owner, preference, MOST_WORKSPACE, c_uint64(workspace))
            for attribute in ALIGNMENTS:
                self._set(owner, preference, attribute, c_int32(alignment))
            found, count = FoundAlgorithm(), c_int()
            code = self._functions[name](
                handle, operation, *layouts, preference, 1, byref(found), byref(count)
            )
        finally:
            self.destroy("cublasLtMatmulPreference", preference)
        if code == NOT_SUPPORTED:
            return None
        if code != SUCCESS:
            raise self.error(code, name)
        return found if count.value and found.state == SUCCESS else None

    def destroy(self, kind: str, handle: int) -> None:
        """Give a descriptor back."""
        self._functions[f"{kind}Destroy"](handle)

    def _made(self, name: str, *arguments: Any) -> int:
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return found.value or 0

    def _set(self, kind: str, handle: int, attribute: int, value: Any) -> None:
        self.call(f"{kind}SetAttribute", handle, attribute, byref(value), ctypes.sizeof(value))
