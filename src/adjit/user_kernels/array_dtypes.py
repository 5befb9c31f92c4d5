"""The dtypes of whole-array statements, which are those that Numba gives them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from .emitter import Emitter
from .structure import Atom
from .values import ArrayExpression, ArrayLike, ArrayView, Value, is_array
from .vocabulary import CASTS, FLOAT_CASTS, OF_TRUTHS, OF_WHOLES, TESTS, promoted

_TO_FLOAT64 = "convert it before: x.astype(np.float64)"
_LOOP = "write the loop over the elements"


class ArrayDtypes(Emitter):
    """Says of which dtype an array is that arithmetic makes, and what is done to its operands before."""

    def apply(self, function: str, args: list[Value], node: ast.AST, base: str = "t") -> Value:
        """A function of numbers, element by element where an argument is an array."""
        raise NotImplementedError

    def dtype_of_result(
        self, function: str, operands: list[ArrayLike | Atom], node: ast.AST
    ) -> str:
        """The dtype that Numba gives an array, which is that of NumPy's ufunc for its operands' dtypes."""
        if function in TESTS or (function in OF_TRUTHS and all(self.is_truth(a) for a in operands)):
            return "b1"
        if function in FLOAT_CASTS or function == "int64":
            return np.dtype(function).str[1:]
        if function in CASTS:
            self.reject(node, "a whole array as whole numbers", _LOOP)
        if function == "select":
            return promoted(map(self.dtype_of, operands[1:]))
        if any(is_array(a) and self.dtype_of(a) == "f8" for a in operands):
            return "f8"
        dtypes = set(map(self.dtype_of, operands))
        if dtypes == {"b1"}:
            self.reject(node, "arithmetic on arrays of truth values", _TO_FLOAT64)
        for dtype in ("f8", "f4"):
            if dtype in dtypes:
                return dtype
        if dtypes - {"i8", "b1"}:
            self.reject(node, "arithmetic on arrays of whole numbers that are not int64", _LOOP)
        return "i8" if function in OF_WHOLES else "f8"

    def as_ufuncs_do(
        self, function: str, operands: list[ArrayLike | Atom], elements: list[Atom], dtype: str, node: ast.AST
    ) -> list[Atom]:  # fmt: skip
        """Elements as a ufunc takes them: in float32 whole numbers too, which beside numbers make float64."""
        if dtype != "f4" or function in ("select", "float32"):
            return elements
        return [
            e if self.dtype_of(a) == "f4" or (k == 1 and function == "**" and type(e) is int)
            else self.op("float32", [e], node)
            for k, (a, e) in enumerate(zip(operands, elements, strict=True))
        ]  # fmt: skip

    def dtype_of(self, a: ArrayLike | Atom) -> str:
        return a.dtype if isinstance(a, (ArrayView, ArrayExpression)) else self.dtype_of_number(a)

    def in_dtype_of(self, operand: ArrayLike | Atom, value: Value, node: ast.AST) -> Value:
        """A value in float32 beside an operand of float32."""
        return self.apply("float32", [value], node) if self.dtype_of(operand) == "f4" else value

    def is_truth(self, a: Value) -> bool:
        if isinstance(a, (ArrayView, ArrayExpression)):
            return a.dtype == "b1"
        return isinstance(a, (bool, str)) and self.is_test(a)

    def promoted_floats(self, arrays: Sequence[ArrayLike], node: ast.AST) -> list[ArrayLike]:
        """Arrays in the dtype of floats that NumPy promotes theirs to."""
        dtype = promoted(a.dtype for a in arrays)
        dtype = dtype if dtype[0] == "f" else "f8"
        found = [
            a if a.dtype == dtype else self.apply(np.dtype(dtype).name, [a], node) for a in arrays
        ]
        return [a for a in found if is_array(a)]

    def demand_floats(self, arrays: list[ArrayLike], node: ast.AST) -> None:
        """Refuse arrays that are not of one dtype of floats."""
        dtypes = {a.dtype for a in arrays}
        if len(dtypes) > 1:
            self.reject(node, "a function of arrays of different dtypes", _TO_FLOAT64)
        if dtypes - {"f8", "f4"}:
            self.reject(
                node, "this function of arrays that are not float64 or float32", _TO_FLOAT64
            )
