"""Norms of matrices, and `linalg.norm`, which chooses between vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtypes import dtype as DType
from ..graph.composed import composed
from ..graph.export import export
from ..graph.normalized import normalized_by
from ..shapes import numpy_names, wrap_dim
from ..tensor import Tensor
from . import reduce
from .reduce import vector_norm

Order = float | str | None


@export(namespace="linalg", out=True)
@composed
@numpy_names
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norms of the matrices in two dimensions.

    `ord` is "fro" (the root of the sum of squares), 1 or -1 (the largest or smallest sum of sizes of a
    column), `inf` or `-inf` (of a row). Differentiable in `A`; equal extremes share the gradient.

    Raises:
        RuntimeError: for integers, fewer than two dimensions, or an unknown order.
        NotImplementedError: for "nuc", 2 and -2, which need singular values.

    Example:
        >>> adjit.linalg.matrix_norm(adjit.tensor([[1., -2.], [3., 4.]]), ord=1)
        tensor(6.)
    """
    if A.ndim < 2:
        raise RuntimeError(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
        )
    reduce.check_norm_dtypes("linalg.matrix_norm", A, dtype)
    if len(dim) != 2:
        told = ", ".join(map(str, dim))
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {told}")
    row, column = (wrap_dim(d, A.ndim) for d in dim)
    if row == column:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({row}, {column})")
    if ord == "fro":
        return vector_norm(A, 2, (row, column), keepdim, dtype=dtype)
    if ord == "nuc" or (not isinstance(ord, str) and abs(ord) == 2):
        raise reduce.no_singular_values(ord)
    if isinstance(ord, str) or (abs(ord) != 1 and not math.isinf(ord)):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if abs(ord) == 1:
        row, column = column, row
    sums = vector_norm(A, 1, column, keepdim, dtype=dtype)  # along a row, or down a column
    if row > column and not keepdim:
        row -= 1
    # The largest of no sums is 0; of no smallest one is told by `amin`.
    extreme = reduce.amin if ord < 0 else reduce.amax if sums.shape[row] else reduce.sum
    return extreme(sums, row, keepdim)


@export(namespace="linalg", out=True)
@composed
@numpy_names
def norm(
    input: Tensor,
    ord: Order = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of vectors (`dim` is a number) or of matrices (`dim` is a pair).

    Without `ord` it is the root of the sum of squares of all that `dim` names, and of everything without
    `dim`; with `ord` alone the tensor must be a vector or a matrix. See `vector_norm` and
    `matrix_norm`.

    Raises:
        RuntimeError: if `ord` is given without `dim` for more than two dimensions, or `dim` has more.

    Example:
        >>> adjit.linalg.norm(adjit.tensor([[3., 4.], [6., 8.]]), dim=1)
        tensor([ 5., 10.])
    """
    if isinstance(dim, Sequence) and len(dim) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}"
        )
    if ord is None:
        return normalized_by(vector_norm, input, 2, dim, keepdim, dtype=dtype)
    if dim is None and input.ndim not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{input.ndim}D."
        )
    dims = (0, 1) if dim is None and input.ndim == 2 else dim
    if isinstance(ord, str) or (isinstance(dims, Sequence) and len(dims) == 2):
        pair = dims if isinstance(dims, Sequence) else (-1,) if dims is None else (dims,)
        return matrix_norm(input, ord, pair, keepdim, dtype=dtype)
    return normalized_by(vector_norm, input, ord, dim, keepdim, dtype=dtype)
