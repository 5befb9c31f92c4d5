"""Looking up rows by class, and classes as rows."""

from __future__ import annotations

import operator
from typing import Any

from .. import dtypes
from ..graph.batching import Batch
from ..graph.export import export
from ..graph.launch import launch
from ..graph.levels import tracers
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..graph.state import record_gradients, resume_gradients
from ..kernels.ops import index as kernels
from ..schedule.planning.recipe import GRAIN
from ..tensor import Tensor
from .creation import arange
from .index import put, read
from .rows import add_rows, select_rows
from .tables import IN_SELF, read_rows, write_rows


@export(namespace="nn.functional")
@normalizes
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of a matrix that a tensor of indices names.

    Args:
        input: int32 or int64, any shape.
        weight: (rows, columns).
        padding_idx: a row that gets no gradient.
        max_norm: if given, rows that are looked up and have a larger norm are scaled down to it,
            in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: whether the gradient of a row is divided by how often it occurs.
        sparse: accepted and without effect, gradients are dense.

    Returns:
        A tensor (*input.shape, columns). Differentiable in `weight`; rows that occur more than
        once are added up in the order of `input`, on any number of threads.

    Raises:
        IndexError: if an index is out of bounds.
        RuntimeError: if `weight` is no matrix or `input` holds no indices.
        AssertionError: if there is no row `padding_idx`.

    Example:
        >>> F.embedding(adjit.tensor([[0, 2]]), adjit.eye(3)).shape
        adjit.Size([1, 2, 3])
    """
    if input.dtype not in (dtypes.int32, dtypes.int64):
        name = "CPUBoolType" if input.dtype is dtypes.bool else f"torch.{input.dtype.legacy}Tensor"
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {name} instead (while checking "
            "arguments for embedding)"
        )
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        limit_norms(weight, input, max_norm, norm_type)
        return look_up(weight, input, padding_idx, scale_grad_by_freq, rows)
    return look_up.on(
        indices=input,
        weight=weight,
        padding_idx=padding_idx,
        by_frequency=scale_grad_by_freq,
        rows=rows,
    )


@export(name="embedding")
def rows_of(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of a matrix that a tensor of indices names: `nn.functional.embedding`, the matrix first.

    Args:
        weight: (rows, columns).
        indices: int32 or int64, any shape.
        padding_idx: a row that gets no gradient; none if it is negative.
        scale_grad_by_freq, sparse: as there.

    Returns:
        A tensor (*indices.shape, columns). Differentiable in `weight`.

    Example:
        >>> adjit.embedding(adjit.tensor([[1., 2.], [3., 4.]]), adjit.tensor([1]))
        tensor([[3., 4.]])
    """
    padding = None if padding_idx < 0 else padding_idx
    return embedding(indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)


def limit_norms(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale down the rows that are looked up to a norm, in place, and leave their derivatives as they are."""
    weight = weight.detach()
    before = record_gradients(False)
    try:
        used = weight.new_zeros(weight.shape[0]).index_fill(0, indices.reshape(-1).long(), 1)
        norms = weight.abs().pow(norm_type).sum(1).pow(1 / norm_type)
        factors = (max_norm / (norms + 1e-7)).where((used > 0) & (norms > max_norm), 1.0)
        weight.mul_(factors.unsqueeze(1))
    finally:
        if before:
            resume_gradients()


@operation("EmbeddingBackward0")
def look_up(
    weight: Tensor, indices: Tensor, padding_idx: int | None, by_frequency: bool, rows: int
) -> Tensor:
    """The rows of `weight`, which has that many, at the given places."""
    return read_rows(weight, [0], [indices], IN_SELF, wrap=False)


look_up.linear("weight")


@look_up.vjp
def _(g: Tensor, indices: Tensor, padding_idx: int | None, by_frequency: bool, rows: int) -> Any:
    return gradient_of_table(g, indices, padding_idx, by_frequency, rows), None


def gradient_of_table(
    g: Tensor, indices: Tensor, padding_idx: int | None, by_frequency: bool, rows: int
) -> Tensor:
    """The gradient of a matrix of that many rows, of which those at `indices` were looked up."""
    if by_frequency:
        flat = indices.reshape(-1)
        counts = add_rows(g.new_zeros(rows), 0, flat, g.new_ones(flat.shape), 1)
        g = g / select_rows(counts, 0, flat, rows).view(*indices.shape, 1)
    return add_looked_up(g, indices, padding_idx, rows)


@look_up.batched
def _(
    batch: Batch, weight: Tensor, indices: Tensor, padding_idx: int | None, by_frequency: bool,
    rows: int,
) -> Tensor:  # fmt: skip
    if not batch.has(weight):
        found = look_up(weight, batch.full(indices), padding_idx, by_frequency, rows)
        return batch.wrapped(found)
    if by_frequency:
        raise RuntimeError(
            "Batching rule not implemented for aten::embedding with scale_grad_by_freq. We could not "
            "generate a fallback."
        )
    if padding_idx is not None:  # whose row gets no gradient
        is_padding = arange(rows, device=weight.device) == padding_idx
        weight = weight.detach().where(is_padding.unsqueeze(1), weight)
    return read(weight, [indices])


@operation("EmbeddingDenseBackward0")
def add_looked_up(g: Tensor, indices: Tensor, padding_idx: int | None, rows: int) -> Tensor:
    """A matrix of that many rows with the rows of `g` added up where they came from."""
    start = g.new_zeros(rows, g.shape[-1])
    return write_rows(start, [0], [indices], g, IN_SELF, add=True, wrap=False, skip=padding_idx)


add_looked_up.linear("g")


@add_looked_up.vjp
def _(g: Tensor, indices: Tensor, padding_idx: int | None, rows: int) -> Any:
    found = look_up(g, indices, padding_idx, False, rows)
    if padding_idx is not None:
        found = found.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
    return found, None


@add_looked_up.batched
def _(batch: Batch, g: Tensor, indices: Tensor, padding_idx: int | None, rows: int) -> Tensor:
    if batch.has(indices):
        if padding_idx is not None:
            g = g.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
        return put(g.new_zeros(rows, g.shape[-1]), [indices], g, True)
    size, width = batch.size, g.shape[-1]
    side = batch.full(g).movedim(0, -2).reshape(*indices.shape, size * width)
    made = add_looked_up(side, indices, padding_idx, rows)
    return batch.wrapped(made.reshape(rows, size, width).movedim(1, 0))


@export(namespace="nn.functional")
@normalizes
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """A row of zeros with a one at its class for each element.

    Args:
        input: int64, any shape, of numbers from 0.
        num_classes: the length of a row; -1 for one more than the largest class, which evaluates
            the input.

    Returns:
        An int64 tensor (*input.shape, num_classes). Not differentiable.

    Raises:
        RuntimeError: if a class is negative or too large, or the classes cannot be counted.

    Example:
        >>> F.one_hot(adjit.tensor([0, 2]))
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
    if input.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1:
        if input.__class__ in tracers:
            raise RuntimeError(
                "When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes "
                "argument."
            )
        if input.numel() == 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        if int(input.min().item()) < 0:
            raise RuntimeError("Class values must be non-negative.")
        return ones_at(input, int(input.max().item()) + 1)
    if num_classes < 1:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return ones_at.on(input, operator.index(num_classes))


@operation("OneHotBackward0", differentiable=())
def ones_at(tensor: Tensor, num_classes: int) -> Tensor:
    """Rows of `num_classes` with a one each."""
    return launch(
        kernels.one_hot, (tensor.contiguous(),), [((*tensor.shape, num_classes), dtypes.int64)],
        words=(num_classes,), n=tensor.numel(), grain=max(1, GRAIN // num_classes), fallible=bad_class,
    )  # fmt: skip


ones_at.batched_over()


def bad_class(status: tuple[int, ...]) -> Exception:
    """The error about a number that is no class."""
    if status[1] < 0:
        return RuntimeError("Class values must be non-negative.")
    return RuntimeError("Class values must be smaller than num_classes.")
