"""Sums with products: a tensor, and a product of others added to it."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..graph.batching import Batch
from ..graph.export import export
from ..graph.operation import operation
from ..tensor import Tensor
from .matmul import (
    check_batches,
    check_dims,
    check_dtypes,
    check_expands,
    check_matrices,
    check_multiplies,
    check_vector_product,
    matmul,
    multiply_add,
    outer,
    product_like,
)


@export(method=True, out=True, inplace=True)
@operation("AddmmBackward0")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`.

    Args:
        input: broadcasts to (n, p); it is not read when `beta` is 0.
        mat1: (n, m).
        mat2: (m, p).
        beta, alpha: numbers; integers for integer tensors.

    Returns:
        A tensor (n, p). Differentiable in the three tensors.

    Raises:
        RuntimeError: if sizes or dtypes do not fit.

    Example:
        >>> adjit.addmm(adjit.ones(2, 2), adjit.ones(2, 3), adjit.ones(3, 2), beta=0.5)
        tensor([[3.5000, 3.5000],
                [3.5000, 3.5000]])
    """
    check_dims(mat1, 2, f"mat1 must be a matrix, got {mat1.ndim}-D tensor")
    check_dims(mat2, 2, f"mat2 must be a matrix, got {mat2.ndim}-D tensor")
    check_matrices(mat1, mat2)
    check_expands(input, (mat1.shape[0], mat2.shape[1]))
    check_same_dtypes(input, mat1, mat2)
    check_multiplies("addmm_impl_cpu_", input.dtype)
    return multiply_add(input, mat1, mat2, beta, alpha)


addmm.multilinear("mat1", "mat2", plus="input")


@addmm.vjp
def _(g: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any, layouts: Any) -> Any:
    return (
        scaled(g, beta),
        scaled(product_like(layouts[1], g, mat2.t()), alpha),
        scaled(product_like(layouts[2], mat1.t(), g), alpha),
    )


@addmm.batched
def _(batch: Batch, input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = scaled(mat1.mm(mat2), alpha)
    check_expands(input, product.shape)
    return product if beta == 0 else scaled(input, beta) + product


def check_same_dtypes(input: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    """Raise if the tensors of `addmm` differ in dtype."""
    for name, x in (("self", input), ("mat1", mat1)):
        if x.dtype is not mat2.dtype:
            raise RuntimeError(
                f"{name} and mat2 must have the same dtype, but got {x.dtype.legacy} "
                f"and {mat2.dtype.legacy}"
            )


def scaled(g: Tensor, factor: Any) -> Tensor:
    """`g * factor` that costs nothing where the factor is 1."""
    return g if factor == 1 else g * factor


@export(method=True, out=True, inplace=True)
@operation("AddmvBackward0")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`.

    Args:
        input: broadcasts to (n,).
        mat: (n, m).
        vec: (m,).

    Returns:
        A tensor (n,). Differentiable in the three tensors.

    Raises:
        RuntimeError: if sizes or dtypes do not fit.

    Example:
        >>> adjit.addmv(adjit.zeros(2), adjit.ones(2, 3), adjit.ones(3), alpha=2)
        tensor([6., 6.])
    """
    check_vector_product(mat, vec, input.shape, input.dtype)
    rows = mat.shape[0]
    column = input.expand(rows).unsqueeze(1)
    return multiply_add(column, mat, vec.unsqueeze(1), beta, alpha).view(rows)


addmv.multilinear("mat", "vec", plus="input")


@addmv.vjp
def _(g: Tensor, mat: Tensor, vec: Tensor, beta: Any, alpha: Any) -> Any:
    return scaled(g, beta), scaled(outer(g, vec), alpha), scaled(mat.t().mv(g), alpha)


@addmv.batched
def _(batch: Batch, input: Tensor, mat: Tensor, vec: Tensor, beta: Any, alpha: Any) -> Tensor:
    check_vector_product(mat, vec, input.shape, input.dtype)
    product = scaled(mat.mv(vec), alpha)
    return product if beta == 0 else scaled(input, beta) + product


@export(method=True, out=True, inplace=True)
@operation("AddrBackward0")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`.

    Args:
        input: broadcasts to (n, m).
        vec1: (n,).
        vec2: (m,).

    Returns:
        A tensor (n, m). Differentiable in the three tensors.

    Raises:
        RuntimeError: if `vec1` or `vec2` is no vector, or `input` does not broadcast.

    Example:
        >>> adjit.addr(adjit.zeros(2, 2), adjit.ones(2), adjit.ones(2))
        tensor([[1., 1.],
                [1., 1.]])
    """
    check_dims(vec1, 1, f"addr: Expected 1-D argument vec1, but got {vec1.ndim}-D")
    check_dims(vec2, 1, f"addr: Expected 1-D argument vec2, but got {vec2.ndim}-D")
    check_expands(input, (vec1.shape[0], vec2.shape[0]))
    if all(t.dtype is dtypes.bool for t in (input, vec1, vec2)):
        product = vec1.unsqueeze(1) & vec2 & bool(alpha)
        return product | (input & bool(beta))
    kind = dtypes.result_type(input, vec1)
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, float) and not kind.is_floating_point:
            raise RuntimeError(
                f"For integral input tensors, argument {name} must not be a floating point number."
            )
        dtypes.check_fits(factor, kind)
    product = scaled(vec1.unsqueeze(1) * vec2, alpha)
    return product if beta == 0 else scaled(input, beta) + product


addr.multilinear("vec1", "vec2", plus="input")


@addr.vjp
def _(g: Tensor, vec1: Tensor, vec2: Tensor, beta: Any, alpha: Any) -> Any:
    return scaled(g, beta), scaled(g.mv(vec2), alpha), scaled(g.t().mv(vec1), alpha)


addr.batched_as_body()


@export(method=True, out=True, inplace=True)
@operation("BaddbmmBackward0")
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`beta * input + alpha * bmm(batch1, batch2)`.

    Args:
        input: broadcasts to (b, n, p); it is not read when `beta` is 0.
        batch1: (b, n, m).
        batch2: (b, m, p).

    Returns:
        A tensor (b, n, p). Differentiable in the three tensors.

    Raises:
        RuntimeError: if sizes or dtypes do not fit.

    Example:
        >>> adjit.baddbmm(adjit.ones(1, 2, 2), adjit.ones(1, 2, 3), adjit.ones(1, 3, 2))
        tensor([[[4., 4.],
                 [4., 4.]]])
    """
    shape = (*batch1.shape[:2], batch2.shape[-1] if batch2.ndim else 1)
    check_expands(input, shape)
    check_batches(batch1, batch2)
    if input.dtype is not batch1.dtype:
        raise RuntimeError(
            f"Input dtypes must be the same, got: input {input.dtype.row.c}, "
            f"batch1: {batch1.dtype.row.c}, batch2: {batch2.dtype.row.c}"
        )
    check_multiplies("baddbmm", input.dtype)
    check_dtypes(batch1, batch2)
    return multiply_add(input, batch1, batch2, beta, alpha)


baddbmm.multilinear("batch1", "batch2", plus="input")


@baddbmm.vjp
def _(g: Tensor, batch1: Tensor, batch2: Tensor, beta: Any, alpha: Any) -> Any:
    return (
        scaled(g, beta),
        scaled(g.bmm(batch2.transpose(1, 2)), alpha),
        scaled(batch1.transpose(1, 2).bmm(g), alpha),
    )


@baddbmm.batched
def _(batch: Batch, input: Tensor, batch1: Tensor, batch2: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = scaled(batch1.bmm(batch2), alpha)
    check_expands(input, product.shape)
    return product if beta == 0 else scaled(input, beta) + product


@export(method=True, out=True, inplace=True)
@operation("AddbmmBackward0")
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`beta * input + alpha * bmm(batch1, batch2).sum(0)`.

    Args:
        input: broadcasts to (n, p).
        batch1: (b, n, m).
        batch2: (b, m, p).

    Returns:
        A tensor (n, p). Differentiable in the three tensors.

    Raises:
        RuntimeError: if sizes or dtypes do not fit.

    Example:
        >>> adjit.addbmm(adjit.ones(2, 2), adjit.ones(5, 2, 3), adjit.ones(5, 3, 2))
        tensor([[16., 16.],
                [16., 16.]])
    """
    if batch1.ndim > 1 and batch2.ndim > 2:
        check_expands(input, (batch1.shape[1], batch2.shape[2]))
    check_dims(batch1, 3, "batch1 must be a 3D tensor")
    check_dims(batch2, 3, "batch2 must be a 3D tensor")
    count, rows, depth = batch1.shape
    other_count, other_depth, columns = batch2.shape
    if count != other_count:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {count} and {other_count}"
        )
    if depth != other_depth:
        raise RuntimeError(
            f"Incompatible matrix sizes for bmm ({rows}x{depth} and {other_depth}x{columns})"
        )
    check_same_dtypes(input, batch1, batch2)
    check_multiplies("addbmm", input.dtype)
    left = batch1.transpose(0, 1).reshape(rows, count * depth)
    right = batch2.reshape(count * depth, columns)
    return multiply_add(input, left, right, beta, alpha)


addbmm.multilinear("batch1", "batch2", plus="input")


@addbmm.vjp
def _(g: Tensor, batch1: Tensor, batch2: Tensor, beta: Any, alpha: Any) -> Any:
    return (
        scaled(g, beta),
        scaled(matmul(g.unsqueeze(0), batch2.transpose(1, 2)), alpha),
        scaled(matmul(batch1.transpose(1, 2), g.unsqueeze(0)), alpha),
    )


@addbmm.batched
def _(batch: Batch, input: Tensor, batch1: Tensor, batch2: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = scaled(batch1.bmm(batch2).sum(0), alpha)
    check_expands(input, product.shape)
    return product if beta == 0 else scaled(input, beta) + product
