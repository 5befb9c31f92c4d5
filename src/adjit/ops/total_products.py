"""Products of elements, and their gradients: the product of all elements but one."""

from __future__ import annotations

from .. import dtypes
from ..dtypes import dtype as DType
from ..graph.export import export
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..kernels.ops import scan as kernels
from ..shapes import numpy_names, wrap_dim
from ..tensor import Tensor
from .joining import cat
from .reduce import PROD, all, fold, spread_back, sum_dtype
from .scan import exclusive_product, reversed_recurrence, scan, shifted


@operation("ProdBackward0")
def prod_all(x: Tensor, dtype: DType) -> Tensor:
    """The product of all elements."""
    return fold(PROD, x, tuple(range(x.ndim)), False, dtype)


prod_all.reduces()


@prod_all.vjp
def _(g, x):  # type: ignore[no-untyped-def]
    return g * product_of_others(x.reshape(-1), 0).reshape(x.shape)


@prod_all.batched
def _(x: Tensor, dtype: DType) -> Tensor:
    return prod_axis(x.reshape(x.shape[0], -1), 1, False, dtype)


@operation("ProdBackward1")
def prod_axis(x: Tensor, axis: int, keepdim: bool, dtype: DType) -> Tensor:
    """The products along an axis."""
    return fold(PROD, x, (axis,), keepdim, dtype)


prod_axis.reduces("axis", "keepdim")


@prod_axis.vjp
def _(g, x, axis, keepdim):  # type: ignore[no-untyped-def]
    if x.ndim == 0:
        return g
    return spread_back(g, (axis,), keepdim, x.shape) * product_of_others(x, axis)


prod_axis.batched_over("axis")


@export(method=True, out=True)
@normalizes
@numpy_names
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The product of all elements, or the products along one dimension.

    Takes any dtype; bool and integers are multiplied in int64. Differentiable in `input`, also
    where elements are zero. The product of nothing is 1.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements.
        keepdim: leave the reduced dimension in the shape, with size 1.
        dtype: convert to this before multiplying; int64 for integers unless given.

    Example:
        >>> adjit.tensor([[1., 2.], [3., 4.]]).prod(1)
        tensor([ 2., 12.])
    """
    result = sum_dtype(input, dtype)
    if result is dtypes.bool:
        return all(input, dim, keepdim)
    if dim is None:
        return prod_all.on(input, result)
    return prod_axis.on(input, wrap_dim(dim, input.ndim), keepdim, result)


def product_of_others(x: Tensor, axis: int) -> Tensor:
    """The product of all elements but each one; right where elements are zero."""
    if x.shape[axis] == 0:
        return x
    if x.device.type == "cpu":
        return others_along(x, axis)
    return exclusive_product(x, axis) * exclusive_product(x.flip(axis), axis).flip(axis)


@operation("ProductOfOthersBackward0")
def others_along(x: Tensor, axis: int) -> Tensor:
    """`product_of_others` by one kernel, which multiplies a row from both of its ends."""
    bind = {"A": dtypes.running_sum_of(x.dtype), "T": x.dtype}
    out: Tensor = scan(kernels.products_of_others, x, axis, [x.dtype], bind)
    return out


@others_along.vjp
def _(g, x, axis):  # type: ignore[no-untyped-def]
    before, after = exclusive_product(x, axis), exclusive_product(x.flip(axis), axis)
    from_before = exclusive_back(g * after.flip(axis), x, axis)
    from_after = exclusive_back((g * before).flip(axis), x.flip(axis), axis)
    return from_before + from_after.flip(axis)


others_along.batched_over("axis")


def exclusive_back(g: Tensor, x: Tensor, axis: int) -> Tensor:
    """The gradient of `exclusive_product` for `x`."""
    factors = shifted(x, axis)
    back = exclusive_product(factors, axis) * reversed_recurrence(factors, g, axis)
    last = back.narrow(axis, 0, 1)
    return cat([back.narrow(axis, 1, x.shape[axis] - 1), last.new_zeros(last.shape)], axis)
