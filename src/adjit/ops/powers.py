"""Matrices of the powers of numbers, and norms along all dimensions but one."""

from __future__ import annotations

from .. import dtypes
from ..graph.composed import composed
from ..graph.export import export
from ..shapes import an_int, numpy_names, wrap_dim
from ..tensor import Tensor
from . import slicing
from .joining import cat
from .reduce import vector_norm
from .scan import cumprod
from .turning import flip

Dims = int | tuple[int, ...] | list[int]


@export
@composed
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The matrix whose rows are the powers of a number each: a Vandermonde matrix.

    Differentiable in `x`.

    Args:
        x: (n,), of any dtype; bool counts as int64.
        N: how many powers there are, n by default.
        increasing: whether the powers go up from 0 instead of down to it.

    Returns:
        (n, N).

    Raises:
        RuntimeError: if `x` is no vector, or `N` is negative.

    Example:
        >>> adjit.vander(adjit.tensor([1., 2., 3.]))
        tensor([[1., 1., 1.],
                [4., 2., 1.],
                [9., 3., 1.]])
    """
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.shape[0] if N is None else an_int("vander", "N", 2, N)
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    if x.dtype is dtypes.bool:
        x = x.to(dtypes.int64)
    powers = _powers(x, count)
    return powers if increasing else flip(powers, (1,))


@export(namespace="linalg", name="vander")
def rows_of_powers(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each number, along a last dimension: Vandermonde matrices.

    Differentiable in `x`.

    Args:
        x: (..., n), or a number as a vector of one; of any dtype but bool.
        N: how many powers there are, n by default.

    Returns:
        (..., n, N).

    Raises:
        RuntimeError: for bool, and if there is not more than one power.

    Example:
        >>> adjit.linalg.vander(adjit.tensor([2., 3.]), N=3)
        tensor([[1., 2., 4.],
                [1., 3., 9.]])
    """
    if x.dtype is dtypes.bool:
        raise RuntimeError(
            "linalg.vander supports floating point, complex, and integer tensors, but got Bool"
        )
    x = x if x.ndim else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    return _powers(x, count)


def _powers(x: Tensor, count: int) -> Tensor:
    """The powers 0 to count - 1 along a new last dimension."""
    if count == 0:
        return x.new_empty((*x.shape, 0))
    ones = x.new_ones((*x.shape, 1))
    return cat([ones, cumprod(x.unsqueeze(-1).expand(*x.shape, count - 1), -1)], -1)


@export(namespace="linalg", name="diagonal")
@numpy_names
def diagonal_of_matrices(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, along a last dimension: a view.

    Args:
        A: (..., n, m).
        offset: how far above the main diagonal, negative below.
        dim1, dim2: the dimensions of the matrices.

    Raises:
        IndexError: for a tensor of fewer than two dimensions.

    Example:
        >>> adjit.linalg.diagonal(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([1., 4.])
    """
    return slicing.diagonal(A, offset, dim1, dim2)


@export
@composed
@numpy_names
def frobenius_norm(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along one or two dimensions; all of them for an empty `dim`.

    `linalg.vector_norm` does the same. Differentiable in `input`.

    Raises:
        RuntimeError: for more than two dimensions, and for integers.

    Example:
        >>> adjit.frobenius_norm(adjit.tensor([[3., 4.], [6., 8.]]), 1)
        tensor([ 5., 10.])
    """
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(
            f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead."
        )
    return vector_norm(input, 2.0, dims or None, keepdim)


@export
@numpy_names
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms along all dimensions but one, of a shape that broadcasts against `v`; for -1 along all.

    Differentiable in `v`.

    Args:
        v: any shape, floating.
        pow: the order of the norm.
        dim: the dimension that is left, or -1 for none.

    Raises:
        IndexError: if there is no such dimension.

    Example:
        >>> adjit.norm_except_dim(adjit.tensor([[3., 4.], [6., 8.]]))
        tensor([[ 5.],
                [10.]])
    """
    pow = an_int("norm_except_dim", "pow", 2, pow)
    if dim == -1:
        return vector_norm(v, float(pow))
    kept = wrap_dim(dim, v.ndim)
    if not v.dtype.is_floating_point:
        raise RuntimeError(
            f"norm(): input dtype should be either floating point or complex. Got {v.dtype.legacy} instead."
        )
    rest = [d for d in range(v.ndim) if d != kept]
    return vector_norm(v, float(pow), rest, True) if rest else v.abs()


@export(name="_weight_norm")
@numpy_names
def scaled_to(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Directions `v` with norms `g`: `v * (g / norm_except_dim(v, 2, dim))`.

    Differentiable in both. Salimans and Kingma, *Weight Normalization*, 2016.

    Example:
        >>> adjit._weight_norm(adjit.tensor([[3., 4.]]), adjit.tensor([[1.]]))
        tensor([[0.6000, 0.8000]])
    """
    return v * (g / norm_except_dim(v, 2, dim))
