"""Cholesky factors, triangular systems, and products of vectors.

Kernels of the former do matrices of up to `BLOCK` rows; larger ones are halved, so that most of the work is in
products.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..graph import record
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import operation
from ..kernels.ops import triangular as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import broadcast_shapes, numel, numpy_names
from ..tensor import Tensor
from .comparison import where
from .joining import cat
from .matmul import in_axes

BLOCK = kernels.MOST


class LinAlgError(RuntimeError):
    """Raised where a matrix has no factor or no inverse.

    Example:
        >>> issubclass(adjit.linalg.LinAlgError, RuntimeError)
        True
    """


LinAlgError.__module__ = "adjit.linalg"

NOT_POSITIVE = (
    "linalg.cholesky: {0}The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order {1} is not positive-definite)."
)
FAILURES = {
    kernels.NOT_POSITIVE: (LinAlgError, NOT_POSITIVE.format("", "{0}")),
    kernels.NOT_POSITIVE_IN_BATCH: (
        LinAlgError,
        NOT_POSITIVE.format("(Batch element {1}): ", "{0}"),
    ),
}


def check_square(name: str, a: Tensor) -> None:
    """Raise for what is no batch of square matrices."""
    if a.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {a.shape[-2]} by "
            f"{a.shape[-1]} matrices"
        )


# --------------------------------------------------------------------------- Cholesky


@export(name="cholesky", namespace="linalg", out=True)
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The Cholesky factor of symmetric positive-definite matrices: A = L L^T, with L lower triangular.

    Only the triangle of `A` that the factor has is read. Differentiable; the gradient is symmetric.

    Args:
        A: (..., n, n), of floating dtype.
        upper: whether to give U of A = U^T U instead.

    Returns:
        The factors, (..., n, n).

    Raises:
        LinAlgError: if a matrix is not positive-definite.
        RuntimeError: if the matrices are not square, or not of floating dtype.

    Example:
        >>> adjit.linalg.cholesky(adjit.tensor([[4., 2.], [2., 5.]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    check_square("linalg.cholesky", A)
    if not A.dtype.is_floating_point:
        raise RuntimeError(
            f"linalg.cholesky: Expected a floating point or complex tensor as input. Got {A.dtype.legacy}"
        )
    return cholesky_factor(A.mT).mT if upper else cholesky_factor(A)


@operation("LinalgCholeskyBackward0")
def cholesky_factor(a: Tensor) -> Tensor:
    """The lower factors of checked matrices."""
    return factorised(a, 0, strict=True)[0]


@cholesky_factor.jvp
def _(t_a: Tensor, out: Tensor) -> Any:
    left = solved(out, t_a, False, False)
    middle = solved(out, left.mT, False, False).mT
    return out @ (middle.tril() - 0.5 * middle.tril().triu())


@cholesky_factor.vjp
def _(g: Tensor, out: Tensor) -> Any:
    half = (out.mT @ g).tril()
    middle = half + half.tril(-1).mT
    left = solved(out.mT, middle, True, False)
    return 0.5 * solved(out.mT, left.mT, True, False)


cholesky_factor.batched_over()


def is_positive_definite(a: Tensor) -> Tensor:
    """Whether each matrix has a factor, of its lower triangle."""
    return factorised(a.detach(), 0, strict=False)[1] == 0


def factorised(a: Tensor, before: int, strict: bool) -> tuple[Tensor, Tensor]:
    """The factors, and the orders of the first minors that are not positive, or 0; `strict` raises there.

    `before` counts the rows of the whole matrices in front of these.
    """
    n = a.shape[-1]
    if n <= BLOCK:
        factor, info = launch(
            kernels.cholesky, (a.contiguous(),), [(a.shape, a.dtype), (a.shape[:-2], dtypes.int64)],
            bind={"T": a.dtype}, words=(n, before, a.ndim > 2, strict), n=numel(a.shape[:-2]),
            grain=max(1, GRAIN // max(n**3 // 8, 1)), fallible=True, messages=FAILURES,
        )  # fmt: skip
        return factor, info
    cut = n // 2 // BLOCK * BLOCK or BLOCK
    first, info = factorised(a[..., :cut, :cut], before, strict)
    below = solve_block(first, a[..., cut:, :cut].mT, False, False).mT
    rest, rest_info = factorised(a[..., cut:, cut:] - below @ below.mT, before + cut, strict)
    upper = below.new_zeros((*below.shape[:-2], cut, n - cut))
    factor = cat([cat([first, upper], -1), cat([below, rest], -1)], -2)
    return factor, where(info > 0, info, where(rest_info > 0, rest_info + cut, 0))


# --------------------------------------------------------------------------- triangular systems


@export(namespace="linalg", out=True)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution X of A X = B, for triangular A.

    Only that triangle of `A` is read; a diagonal with a zero gives infinities and NaN. Differentiable in both.

    Args:
        A: (..., n, n), of floating dtype.
        B: (..., n, k) of the same dtype; the dimensions in front broadcast.
        upper: whether `A` is an upper triangle instead of a lower one.
        left: False to solve X A = B, with B of (..., k, n).
        unitriangular: whether to read ones instead of the diagonal of `A`.

    Returns:
        X, of the shape of `B` with the common dimensions in front.

    Raises:
        RuntimeError: if the shapes do not fit, or the dtypes differ.
        NotImplementedError: for other dtypes.

    Example:
        >>> adjit.linalg.solve_triangular(
        ...     adjit.tensor([[2., 0.], [1., 4.]]), adjit.tensor([[2.], [9.]]), upper=False
        ... )
        tensor([[1.],
                [2.]])
    """
    check_square("linalg.solve_triangular", A)
    if B.ndim < 2:
        raise RuntimeError(
            "linalg.solve_triangular: The input tensor B must have at least 2 dimensions."
        )
    if A.shape[-1] != B.shape[-2 if left else -1]:
        sizes = "{}x{} and {}x{}".format(*A.shape[-2:], *B.shape[-2:])
        raise RuntimeError(
            "linalg.solve_triangular: Incompatible shapes of A and B for the equation "
            f"{'AX' if left else 'XA'} = B ({sizes})"
        )
    if not A.dtype.is_floating_point:
        raise NotImplementedError(
            f"\"triangular_solve_cpu\" not implemented for '{A.dtype.legacy}'"
        )
    _check_same_dtype("solve_triangular", A=A, B=B)
    if left:
        return solved(A, B, upper, unitriangular)
    return solved(A.mT, B.mT, not upper, unitriangular).mT


@operation("LinalgSolveTriangularBackward0")
def solved(a: Tensor, b: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    """X of a X = b, checked."""
    batch = broadcast_shapes(b.shape[:-2], a.shape[:-2])
    if a.ndim > 2:
        a = a.expand((*batch, *a.shape[-2:]))
    return solve_block(a, b.expand((*batch, *b.shape[-2:])), upper, unitriangular)


@solved.vjp
def _(g: Tensor, a: Tensor, out: Tensor, upper: bool, unitriangular: bool) -> Any:
    g_b = solved(a.mT, g, not upper, unitriangular)
    full = -(g_b @ out.mT)
    g_a = full.triu(int(unitriangular)) if upper else full.tril(-int(unitriangular))
    return g_a, g_b


@solved.batched
def _(batch: Batch, a: Tensor, b: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    axes = max(a.ndim, b.ndim)
    made = solved(in_axes(batch, a, axes), in_axes(batch, b, axes), upper, unitriangular)
    return batch.wrapped(made)


def solve_block(a: Tensor, b: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    """X of a X = b; `a` is one matrix or as many as `b` has."""
    n, columns = b.shape[-2:]
    if n <= BLOCK:
        strips = -(-columns // kernels.STRIP)
        return launch(
            kernels.solve, (a.contiguous(), b.contiguous()), [(b.shape, b.dtype)], bind={"T": b.dtype},
            words=(n, columns, strips, n * n if a.ndim > 2 else 0, upper, unitriangular),
            n=numel(b.shape[:-2]) * strips, grain=max(1, GRAIN // max(n * n * min(columns, kernels.STRIP), 1)),
        )  # fmt: skip
    cut = n // 2 // BLOCK * BLOCK or BLOCK
    top, low = slice(None, cut), slice(cut, None)
    known, other = (low, top) if upper else (top, low)
    first = solve_block(a[..., known, known], b[..., known, :], upper, unitriangular)
    rest = b[..., other, :] - a[..., other, known] @ first
    second = solve_block(a[..., other, other], rest, upper, unitriangular)
    return cat([second, first] if upper else [first, second], -2)


@export(namespace="linalg", out=True)
@composed
@numpy_names
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products over one axis, with broadcasting.

    Args:
        x, y: of floating dtypes.
        dim: the axis, counted in the shape that both are expanded to.

    Returns:
        A tensor without that axis. Differentiable in both.

    Raises:
        RuntimeError: for other dtypes, and shapes that do not fit.

    Example:
        >>> adjit.linalg.vecdot(adjit.tensor([[1., 2.], [3., 4.]]), adjit.tensor([1., -1.]))
        tensor([-1., -1.])
    """
    record.check_tensor("linalg_vecdot", "y", 2, y)
    if not x.dtype.is_floating_point:
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {x.dtype.legacy}"
        )
    _check_same_dtype("vecdot", x=x, y=y)
    return (x * y).sum(dim)


def _check_same_dtype(function: str, **tensors: Tensor) -> None:
    (a, x), (b, y) = tensors.items()
    if x.dtype is not y.dtype:
        raise RuntimeError(
            f"linalg.{function}: Expected {a} and {b} to have the same dtype, but found {a} of type "
            f"{x.dtype.legacy} and {b} of type {y.dtype.legacy} instead"
        )
