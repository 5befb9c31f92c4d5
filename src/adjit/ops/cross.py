"""Cross products."""

from __future__ import annotations

from typing import Any

from .. import errors
from ..graph.export import export
from ..graph.normalized import normalized_by, normalizes_in_order
from ..graph.operation import operation
from ..shapes import (
    broadcast_shapes,
    numpy_names,
    wrap_dim,
)
from ..tensor import Tensor
from . import slicing
from .joining import stack


@export(method=True, out=True)
@normalizes_in_order
@numpy_names
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross products of vectors of three elements along an axis.

    Args:
        input, other: of size 3 along the axis; they broadcast.
        dim: the axis; None for the first one of size 3, with a warning.

    Returns:
        The products. Differentiable in both.

    Raises:
        RuntimeError: if there is no axis of size 3, or the numbers of axes differ.

    Example:
        >>> adjit.cross(adjit.tensor([1., 0., 0.]), adjit.tensor([0., 1., 0.]), dim=0)
        tensor([0., 0., 1.])
    """
    if dim is None:
        errors.warn_once(
            "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim "
            "explicitly or simply use torch.linalg.cross.\nThe default value of dim will change to agree with "
            "that of linalg.cross in a future release."
        )
        shape = broadcast_shapes(input.shape, other.shape)
        if 3 not in shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = shape.index(3)
    return normalized_by(linalg_cross, input, other, dim=dim)


@export(namespace="linalg", name="cross", out=True)
@normalizes_in_order
@numpy_names
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis, by default the last.

    Raises:
        RuntimeError: if the size of the axis is not 3, or the numbers of axes or the dtypes differ.

    Example:
        >>> adjit.linalg.cross(adjit.tensor([1., 0., 0.]), adjit.tensor([0., 1., 0.]))
        tensor([0., 0., 1.])
    """
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    axis = wrap_dim(dim, input.ndim)
    if input.shape[axis] != 3 or other.shape[axis] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got "
            f"{input.shape[axis]} and {other.shape[axis]}"
        )
    if input.dtype is not other.dtype:
        raise RuntimeError(
            f"expected scalar type {input.dtype.legacy} but found {other.dtype.legacy}"
        )
    return cross_product.on(input, other, axis)


@operation("LinalgCrossBackward0")
def cross_product(x: Tensor, y: Tensor, dim: int) -> Tensor:
    """Cross products along `dim`."""
    a, b = ([slicing.select(t, dim, k) for k in range(3)] for t in (x, y))
    pairs = ((1, 2), (2, 0), (0, 1))
    return stack([a[i] * b[j] - a[j] * b[i] for i, j in pairs], dim)


cross_product.multilinear("x", "y")


@cross_product.vjp
def _(g: Tensor, x: Tensor, y: Tensor, dim: int) -> Any:
    return cross_product(y, g, dim), cross_product(g, x, dim)


cross_product.batched_over("dim")
