"""Products with weights, as layers have them."""

from __future__ import annotations

from typing import Any

from ..graph.batching import Batch, folded, unfolded
from ..graph.composed import composed
from ..graph.export import export
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..graph.view import as_own
from ..shapes import numel
from ..tensor import Tensor
from .matmul import batched_product, bmm, lines_of, matmul, mm
from .product_sums import addmm, baddbmm


@operation("AddmmBackward0")
def affine(bias: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """`addmm(bias, input, weight.t())` as one op: the weight's gradient comes out in its layout."""
    return addmm(bias, input, weight.t())


@operation("ViewBackward0")
def affine_of_lines(bias: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """`affine` of a vector, or of the lines of a tensor: of rows, which are viewed then."""
    made = addmm(bias, rows_of(input), weight.t())
    return as_own(made.view(*input.shape[:-1], weight.shape[0]))


@operation("MmBackward0")
def times(input: Tensor, weight: Tensor) -> Tensor:
    """`input @ weight.t()` of two matrices, as one op."""
    return mm(input, weight.t())


@operation("UnsafeViewBackward0")
def times_of_lines(input: Tensor, weight: Tensor) -> Tensor:
    """`times` of the lines of a tensor."""
    return as_own(mm(rows_of(input), weight.t()).view(*input.shape[:-1], weight.shape[0]))


for _op in (affine, affine_of_lines):
    _op.multilinear("input", "weight", plus="bias")

    @_op.vjp
    def _(g: Tensor, input: Tensor, weight: Tensor) -> Any:
        return rows_of(g), to_input(g, weight), to_weight(g, input)


for _op in (times, times_of_lines):
    _op.multilinear("input", "weight")

    @_op.vjp
    def _(g: Tensor, input: Tensor, weight: Tensor) -> Any:
        return to_input(g, weight), to_weight(g, input)


def rows_of(x: Tensor) -> Tensor:
    """The lines along the last axis as rows of a matrix; a vector is one."""
    if x.ndim == 2:
        return x
    return x.unsqueeze(0) if x.ndim < 2 else lines_of(x)


def to_input(g: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a layer's input."""
    return g.mm(weight) if g.ndim == 2 else g @ weight


def to_weight(g: Tensor, input: Tensor) -> Tensor:
    """The gradient of a layer's weight."""
    return g.unsqueeze(1) * input if g.ndim == 1 else rows_of(g).t().mm(rows_of(input))


@affine.batched
def _(batch: Batch, bias: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    if batch.has(weight):
        weights = batch.full(weight)
        if not batch.has(input):  # one product with all weights below each other
            flat = batch.full(bias).reshape(-1)
            made = affine(
                flat, input, weights.reshape(weights.shape[0] * weights.shape[1], weights.shape[2])
            )
            return batch.wrapped(made.unflatten(1, weights.shape[:2]).movedim(1, 0))
        rows, turned = batch.full(input), weights.transpose(1, 2)
        if weights._spec.strides[0]:
            return batch.wrapped(baddbmm(batch.full(bias).unsqueeze(1), rows, turned))
        if batch.has(bias) and multiplies(input, weight):
            return batch.wrapped(batched_product(rows, turned) + batch.full(bias).unsqueeze(1))
    if batch.has(bias) or batch.has(weight):
        return mm(input, weight.t()) + bias
    return batch.wrapped(unfolded(affine(bias, folded(batch.full(input)), weight), batch.size))


@affine_of_lines.batched
def _(batch: Batch, bias: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    if batch.has(bias) or batch.has(weight):
        if input.ndim == 1:
            return (mm(input.unsqueeze(0), weight.t()) + bias).squeeze(0)
        return matmul(input, weight.t()) + bias
    full = batch.full(input)
    return batch.wrapped((affine if full.ndim == 2 else affine_of_lines)(bias, full, weight))


@times.batched
@times_of_lines.batched
def _(batch: Batch, input: Tensor, weight: Tensor) -> Tensor:
    return matmul(input, weight.t())


def multiplies(input: Tensor, weight: Tensor) -> bool:
    """Whether `input @ weight.T` is plainly possible."""
    kind = input.dtype
    return kind is weight.dtype and kind.is_floating_point and input.shape[1] == weight.shape[1]


@export(namespace="nn.functional")
@normalizes
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features), or (in_features,).
        bias: (out_features,), or None.

    Returns:
        A tensor (..., out_features), without the last axis if `weight` is a vector.
        Differentiable in all arguments.

    Raises:
        RuntimeError: if sizes or dtypes do not fit.

    Example:
        >>> F.linear(adjit.ones(2, 3), adjit.ones(4, 3), adjit.ones(4))[0]
        tensor([4., 4., 4., 4.])
    """
    if not input.ndim:
        raise RuntimeError(
            f"both arguments to linear need to be at least 1D, but they are 0D and {weight.ndim}D"
        )
    if bias is None:
        if weight.ndim != 2 or input.ndim == 1:
            return matmul(input, weight.t())
        return (times if input.ndim == 2 else times_of_lines).on(input, weight)
    if weight.ndim == 2 and bias.ndim == 1:
        op = affine if input.ndim == 2 else affine_of_lines
        return op.on(input=input, weight=weight, bias=bias)
    made = addmm(bias, rows_of(input), weight.t())
    return made if input.ndim == 2 else as_own(made.view(*input.shape[:-1], weight.shape[0]))


@export
@export(namespace="nn.functional")
@composed
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input1 @ weight[o] @ input2` for every output feature `o`, plus `bias`.

    Args:
        input1: (..., in1_features).
        input2: (..., in2_features), with the same batch axes.
        weight: (out_features, in1_features, in2_features).
        bias: (out_features,), or None.

    Returns:
        A tensor (..., out_features). Differentiable in all arguments.

    Raises:
        RuntimeError: if the sizes or dtypes do not fit.

    Example:
        >>> F.bilinear(adjit.ones(2, 3), adjit.ones(2, 4), adjit.ones(5, 3, 4)).shape
        adjit.Size([2, 5])
    """
    if input1.ndim != input2.ndim:
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}"
        )
    for d, (a, b) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if a != b:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {d}: got {a} and {b}"
            )
    for number, (x, size) in enumerate(((input1, weight.shape[1]), (input2, weight.shape[2])), 1):
        if x.shape[-1] != size:
            raise RuntimeError(
                f"bilinear(): input{number} size does not match weight size: got "
                f"{x.shape[-1]} but expected {size}"
            )
    if bias is not None and bias.shape[0] != weight.shape[0]:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but "
            f"expected {weight.shape[0]}"
        )
    operands = (("input1", input1), ("input2", input2), ("weight", weight), ("bias", bias))
    given = [(name, t.dtype) for name, t in operands if t is not None]
    if len({kind for _, kind in given}) > 1:
        told = ", ".join(f"{name}: {kind.row.c}" for name, kind in given)
        raise RuntimeError(f"All tensors must have the same dtype, got {told}")
    features, first, second = weight.shape
    batch = input1.shape[:-1]
    rows = numel(batch)
    left = weight.transpose(0, 1).reshape(first, features * second)
    half = mm(input1.reshape(rows, first), left).view(rows, features, second)
    product = bmm(half, input2.reshape(rows, second, 1)).view(*batch, features)
    return product if bias is None else product + bias
