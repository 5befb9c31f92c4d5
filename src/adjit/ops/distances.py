"""Distances between vectors, and rows cut down to a norm."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..graph import inplace
from ..graph.export import add_method, export
from ..graph.operation import operation
from ..graph.record import check_tensor
from ..shapes import numpy_names, wrap_dim
from ..tensor import Tensor
from .diagonals import triu_indices
from .reduce import vector_norm

# From so many vectors on, Euclidean distances are computed through a product of matrices.
MANY = 25
MODES = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}


@export(method=True)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of the difference of two tensors, over all elements. Differentiable in both.

    Args:
        input: any shape, floating.
        other: a shape that broadcasts with it.
        p: the order of the norm.

    Example:
        >>> adjit.dist(adjit.tensor([0., 3.]), adjit.tensor([4., 0.]))
        tensor(5.)
    """
    check_tensor("dist", "input", 1, input)
    check_tensor("dist", "other", 2, other)
    return vector_norm(input - other, p)


@export
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:  # fmt: skip
    """The distance of each row of a matrix from each row of another one, of batches of matrices too.

    Differentiable in both; the gradient of a distance that is zero is zero.

    Args:
        x1: (*, P, M), floating.
        x2: (*, R, M), the batch broadcast.
        p: the order of the norm, from 0 to infinity.
        compute_mode: whether Euclidean distances go through a product of matrices, which takes less time for
            many rows and is less exact for close ones: "use_mm_for_euclid_dist_if_necessary" (for more than 25
            rows), "use_mm_for_euclid_dist" or "donot_use_mm_for_euclid_dist".

    Returns:
        (*, P, R).

    Raises:
        RuntimeError: if the shapes or dtypes do not fit, or `p` is negative.
        ValueError: for another `compute_mode`.

    Example:
        >>> adjit.cdist(adjit.tensor([[0., 0.], [3., 4.]]), adjit.tensor([[0., 0.]]))
        tensor([[0.],
                [5.]])
    """
    if compute_mode not in MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for name, t in (("X1", x1), ("X2", x2)):
        if t.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {t.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    for name, t in (("X1", x1), ("X2", x2)):
        if not t.dtype.is_floating_point:
            raise RuntimeError(
                f"cdist only supports floating-point dtypes, {name} got: {t.dtype.legacy}"
            )
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    kind = dtypes.promote_types(x1.dtype, x2.dtype)
    x1, x2 = x1.to(kind), x2.to(kind)
    by_product = MODES[compute_mode]
    if by_product is None:
        by_product = max(x1.shape[-2], x2.shape[-2]) > MANY
    if p == 2 and by_product and x1.shape[-1]:
        return euclidean(x1, x2)
    return _norms(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _norms(differences: Tensor, p: float) -> Tensor:
    """The norms of the last axis; 0 where it has no elements."""
    return vector_norm(differences, p, -1) if differences.shape[-1] else differences.sum(-1)


@operation("CdistBackward0")
def euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """Euclidean distances through a product of matrices."""
    squares = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * (x1 @ x2.transpose(-1, -2))).clamp(min=0).sqrt()


@euclidean.vjp
def _(g: Any, x1: Tensor, x2: Tensor, out: Tensor) -> Any:
    # The differences themselves, not products: close rows have gradients of length 1 too.
    weight = (g / out).masked_fill(out == 0, 0).unsqueeze(-1)
    pulled = weight * (x1.unsqueeze(-2) - x2.unsqueeze(-3))
    g1 = pulled.sum(-2)
    g2 = -pulled.sum(-3)
    return g1, g2


euclidean.batched_as_body()


@export
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances between each two rows of a matrix, (0, 1), (0, 2), … . Differentiable.

    Args:
        input: (N, M), floating.
        p: the order of the norm, from 0 to infinity.

    Returns:
        (N (N - 1) / 2,).

    Raises:
        RuntimeError: for another shape, or a negative `p`.

    Example:
        >>> adjit.pdist(adjit.tensor([[0., 0.], [3., 4.], [0., 1.]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = triu_indices(len(input), len(input), 1, device=input.device)
    return _norms(input[first] - input[second], p)


@export(method=True, out=True)
@numpy_names
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Scale the slices along a dimension whose norm is above `maxnorm` down to that. Differentiable.

    Args:
        input: at least two dimensions, floating.
        p: the order of the norm.
        dim: the dimension that numbers the slices.
        maxnorm: the bound.

    Raises:
        RuntimeError: if the order or the bound is not positive, or there is one dimension only.

    Example:
        >>> adjit.renorm(adjit.tensor([[3., 4.], [0., 1.]]), 2, 0, 1)
        tensor([[0.6000, 0.8000],
                [0.0000, 1.0000]])
    """
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    axis = wrap_dim(dim, input.ndim)
    others = [d for d in range(input.ndim) if d != axis]
    is_longer = vector_norm(input.detach(), p, others, True) > maxnorm  # slices with NaN are not
    norms = vector_norm(input.where(is_longer, 0.0), p, others, True)
    return input * (maxnorm / (norms + 1e-7)).where(is_longer, 1.0)


@numpy_names
def renorm_(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """In-place form of `renorm`: writes the result into this tensor, returns it.

    Example:
        >>> adjit.tensor([[3., 4.], [0., 1.]]).renorm_(2, 0, 1)
        tensor([[0.6000, 0.8000],
                [0.0000, 1.0000]])
    """
    inplace.check(self)  # the norms are of a copy, which the derivative reads later
    return inplace.adopt(self, renorm(self.clone(), p, dim, maxnorm))


add_method("renorm_", renorm_)
