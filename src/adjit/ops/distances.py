"""Distances between vectors, and rows cut down to a norm."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..graph import inplace
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import add_method, export
from ..graph.launch import launch
from ..graph.normalized import normalizes_in_order
from ..graph.operation import operation
from ..graph.record import check_tensor, is_differentiated, plain_number
from ..graph.state import state as modes
from ..kernels.ops import distances as kernels
from ..schedule.planning.recipe import GRAIN
from ..schedule.settle import float_word
from ..shapes import Shape, broadcast_shapes, numel, numpy_names, wrap_dim
from ..tensor import Tensor
from .diagonals import triu_indices
from .layouts import reporting_c_order
from .reduce import vector_norm
from .rows import select_rows

# From so many vectors on, Euclidean distances are computed through a product of matrices.
MANY = 25
# Elements of a vector from which on they are in fact: on a Zen 3 1000 x 1000 distances of 64 elements take
# 2.3 ms either way, 500 x 500 of 512 elements 6.2 and 4.2. Gradients gain from it sooner.
LONG = 100
EXACT = "donot_use_mm_for_euclid_dist"
MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", EXACT)


@export(method=True)
@composed
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
@normalizes_in_order
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Any:  # fmt: skip
    """The distance of each row of a matrix from each row of another one, of batches of matrices too.

    Differentiable in both; the gradient of a distance that is zero is zero.

    Args:
        x1: (*, P, M), floating.
        x2: (*, R, M), the batch broadcast.
        p: the order of the norm, from 0 to infinity.
        compute_mode: whether Euclidean distances and their gradients may go through products of matrices,
            which takes less time for many long rows and is less exact for close ones:
            "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist" or "donot_use_mm_for_euclid_dist".

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
    p = plain_number(p, "cdist", "p")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if x1.dtype is not x2.dtype:
        raise RuntimeError(f"expected scalar type {x1.dtype.legacy} but found {x2.dtype.legacy}")
    is_long = min(x1.shape[-2], x2.shape[-2]) > MANY and x1.shape[-1] > kernels.NARROW
    by_product = p == 2 and is_long and compute_mode != EXACT
    if by_product and x1.shape[-1] >= LONG:
        return euclidean.on(x1, x2)
    return distances.on(x1, x2, float(p), by_product)


def _in_one_batch(t: Tensor, batch: Shape, kind: dtypes.dtype) -> Tensor:
    """Matrices, dense, with one axis in front of theirs."""
    shape = t.shape[-2:]
    return t.to(kind).expand(*batch, *shape).reshape(numel(batch), *shape).contiguous()


def _order(p: float) -> int:
    """Which kernel an order has."""
    special = {0.0: kernels.ZERO, 1.0: kernels.ONE, 2.0: kernels.TWO, math.inf: kernels.LARGEST}
    return special.get(p, kernels.OTHER)


@operation("CdistBackward0")
def distances(x1: Tensor, x2: Tensor, p: float, by_product: bool) -> Tensor:
    """Distances of (*, P, M) and (*, R, M), from the differences themselves.

    Gradients of Euclidean ones come from products of matrices, if so asked.
    """
    kind = dtypes.promote_types(x1.dtype, x2.dtype)
    shape = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    rows, others = _in_one_batch(x1, shape, kind), _in_one_batch(x2, shape, kind)
    (batch, count, depth), many = rows.shape, others.shape[1]
    panels = batch * -(-many // kernels.LANES)
    room = (panels * depth + kernels.LANES) * kernels.LANES  # turning may write too much
    found: Tensor = launch(
        [
            (kernels.turn_others, panels, max(1, GRAIN // (depth * kernels.LANES + 1))),
            (kernels.distances, batch * count, max(1, GRAIN // (_cost(p) * depth * many + 1))),
        ],
        (rows, others), [((*shape, count, many), kind)], bind={"T": kind},
        words=(count, many, depth, _order(p), float_word(p), batch), scratch=room * kind.itemsize,
    )  # fmt: skip
    return found


def _cost(p: float) -> int:
    """Element operations that a term of a distance is worth."""
    return 16 if _order(p) == kernels.OTHER else 1


@distances.vjp
def _(g: Any, x1: Tensor, x2: Tensor, out: Tensor, p: float, by_product: bool) -> Any:
    weight = _weights(g, out, p)
    if by_product:
        g1, g2 = _by_products(weight, x1, x2)
    elif modes.grad:
        pulled = weight.unsqueeze(-1) * _slopes(x1.unsqueeze(-2) - x2.unsqueeze(-3), out, p)
        g1 = pulled.sum(-2)
        g2 = -pulled.sum(-3)
    elif p == 0:
        g1 = x1.new_zeros(x1.shape)
        g2 = x2.new_zeros(x2.shape)
    else:
        g1 = gradient_of_rows(x1, x2, weight, out, p)
        g2 = gradient_of_rows(x2, x1, weight.mT, out.mT, p)
    return g1, g2


@distances.batched
def _(batch: Batch, x1: Tensor, x2: Tensor, p: float, by_product: bool) -> Any:
    return batch.wrapped(distances(*_aligned(batch, x1, x2), p, by_product))


def _aligned(batch: Batch, *tensors: Tensor) -> list[Tensor]:
    """Tensors of all examples, whose axis comes before those that broadcast."""
    full = [batch.full(t) for t in tensors]
    most = max(t.ndim for t in full)
    return [t.reshape(batch.size, *[1] * (most - t.ndim), *t.shape[1:]) for t in full]


def _weights(g: Tensor, out: Tensor, p: float) -> Tensor:
    """What the slopes of differences are multiplied by; nothing where there is no distance."""
    if p in (0, 1):
        return g
    if p != math.inf:
        g = g / (out if p == 2 else out.pow(p - 1))
    return g.masked_fill(out == 0, 0)


def _by_products(weight: Tensor, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """What Euclidean distances pull back, through products of matrices.

    Rounding is of |x| / distance ulps. (A distance through a product is off by the square of that.)
    """
    g1 = x1 * weight.sum(-1, keepdim=True) - weight @ x2
    g2 = x2 * weight.sum(-2).unsqueeze(-1) - weight.mT @ x1
    return g1, g2


def _slopes(differences: Tensor, out: Tensor, p: float) -> Tensor:
    """The derivative of a distance by differences, but for what `_weights` has. Differentiable."""
    if p == 0:
        return differences * 0
    if p == 2:
        return differences
    if p == 1:
        return differences.sign()
    if p == math.inf:
        return differences.sign() * (differences.abs() == out.unsqueeze(-1))
    is_none = differences == 0
    sizes = differences.abs().masked_fill(is_none, 1)
    return (differences.sign() * sizes.pow(p - 1)).masked_fill(is_none, 0)


@operation("CdistBackwardBackward0")
def gradient_of_rows(
    rows: Tensor, others: Tensor, weight: Tensor, dist: Tensor, p: float
) -> Tensor:
    """The sums over others of weight * slope(row - other): what distances pull back to the rows."""
    (count, depth), many, order = rows.shape[-2:], others.shape[-2], _order(p)
    shape, kind, is_narrow = weight.shape[:-2], weight.dtype, depth <= kernels.NARROW
    x, y = _in_one_batch(rows, shape, kind), _in_one_batch(others, shape, kind)
    weight = (weight.mT if is_narrow else weight).contiguous()
    if order != kernels.LARGEST:
        dist = weight
    elif is_narrow:
        dist = dist.mT
    if is_narrow:
        kernel, units, rows_of_one = (
            kernels.gradients_of_narrow, -(-count // kernels.LANES), kernels.LANES
        )  # fmt: skip
    else:
        kernel, units, rows_of_one = kernels.gradients, count, 1
    found: Tensor = launch(
        kernel, (x, y, weight, dist.contiguous()), [((*shape, count, depth), kind)], bind={"T": kind},
        words=(count, many, depth, order, float_word(p - 1), len(x)), n=len(x) * units,
        grain=max(1, GRAIN // (_cost(p) * depth * many * rows_of_one + 1)),
    )  # fmt: skip
    return found


@gradient_of_rows.batched
def _(batch: Batch, rows: Tensor, others: Tensor, weight: Tensor, dist: Tensor, p: float) -> Any:
    return batch.wrapped(gradient_of_rows(*_aligned(batch, rows, others, weight, dist), p))


@operation("EuclideanDistBackward0")
def euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """Euclidean distances of (batch, P, M) and (batch, R, M) through a product of matrices."""
    squares = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * (x1 @ x2.transpose(-1, -2))).clamp(min=0).sqrt()


@euclidean.vjp
def _(g: Any, x1: Tensor, x2: Tensor, out: Tensor) -> Any:
    weight = _weights(g, out, 2)
    g1, g2 = _by_products(weight, x1, x2)
    return g1, g2


euclidean.batched_as_body()


@export
@composed
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
    if not input.shape[1]:
        return input.sum(-1)[first]
    found = distances(input, input, float(p), False)
    return select_rows(found.reshape(-1), 0, first * len(input) + second, found.numel())


@export(method=True, out=True)
@composed
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
    norms = vector_norm(input.detach(), p, others, True)
    is_longer = norms > maxnorm  # slices with NaN are not
    if is_differentiated(input):
        norms = vector_norm(input.where(is_longer, 0.0), p, others, True)
    return reporting_c_order(input * (maxnorm / (norms + 1e-7)).where(is_longer, 1.0))


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
