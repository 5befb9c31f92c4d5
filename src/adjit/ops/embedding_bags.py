"""Sums, means and maxima of rows that are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes, errors
from ..devices import CPU
from ..graph.launch import launch
from ..graph.levels import is_traced, tracers
from ..graph.operation import operation
from ..kernels.language.abi import STATUS_INDEX
from ..kernels.ops import index as kernels
from ..schedule.planning.recipe import GRAIN
from ..tensor import Tensor
from .comparison import where
from .creation import arange
from .embedding import embedding, gradient_of_table, limit_norms, look_up
from .grids import gather_grid, scatter_sum
from .joining import cat
from .rows import select_rows
from .sort import searchsorted

INDICES = (dtypes.int32, dtypes.int64)
NOTHING = -(1 << 62)  # no index
OUTSIDE = {
    STATUS_INDEX: (
        RuntimeError,
        "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {0}",
    )
}


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or largest of the rows of a matrix that each bag of indices names.

    Args:
        input: int32 or int64, (bags, n), or (n) with `offsets`.
        weight: (rows, columns).
        offsets: where each bag begins in an input of one dimension; they are looked at.
        max_norm: if given, rows that are looked up and have a larger norm are scaled down to it,
            in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: whether the gradient of a row is divided by how often it occurs.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: accepted and without effect, gradients are dense.
        per_sample_weights: factors of the rows, of the shape of `input`; for `"sum"`.
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: indices that do not count.

    Returns:
        A tensor (bags, columns), with zeros for bags of nothing. Differentiable in `weight` and
        `per_sample_weights`.

    Raises:
        ValueError: shapes that do not fit, another mode, a bag's mode that has not what is asked for.
        RuntimeError: other dtypes, offsets out of range.
        NotImplementedError: `per_sample_weights` with another mode than `"sum"`.
        IndexError: an index is out of bounds.

    Example:
        >>> F.embedding_bag(adjit.tensor([[0, 2], [1, 1]]), adjit.eye(3), mode="sum")
        tensor([[1., 0., 1.],
                [0., 2., 0.]])
    """
    if weight.dtype is dtypes.int64 and input.is_floating_point():
        errors.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, "
            "input, ...)` is deprecated, and should now be `embedding_bag(input, weight, ...)`.",
        )
        weight, input = input, weight
    _check(input, weight, offsets, per_sample_weights)
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for "
            f"mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )
    if input.dtype not in INDICES:
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got torch.{input.dtype.legacy}Tensor instead (while checking arguments "
            "for embedding_bag)"
        )
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise RuntimeError(
                f"padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but "
                f"got {padding_idx}"
            )
        padding_idx %= rows
    if max_norm is not None:
        limit_norms(weight, input, max_norm, norm_type)

    given = input, weight, offsets, per_sample_weights
    if weight.is_floating_point() and not (tracers and is_traced(given)):
        bags = _bags(input, offsets, include_last_offset)
        if bags is not None and mode == "max":
            return largest_of_bags(weight, *bags, include_last_offset, padding_idx, rows)[0]
        if bags is not None:
            how = include_last_offset, padding_idx, scale_grad_by_freq, rows
            if per_sample_weights is None:
                return sum_of_bags(weight, *bags, mode == "mean", *how)
            factors = per_sample_weights[: len(bags[0])]
            return sum_of_weighted_bags(weight, factors, *bags, *how)
    found = embedding(input, weight, scale_grad_by_freq=scale_grad_by_freq)
    if per_sample_weights is not None:
        found = found * per_sample_weights.unsqueeze(-1)
    kept = None if padding_idx is None else input != padding_idx
    if input.ndim == 1:
        assert offsets is not None
        places, inside = _in_rows(input, offsets, include_last_offset)
        if places is None:
            return found.sum(0).repeat(len(inside), 1)  # zeros
        found = found[places]
        kept = inside if kept is None else inside & kept[places]
    return _joined(found, kept, mode)


def _bags(input: Tensor, offsets: Tensor | None, has_last: bool) -> tuple[Tensor, Tensor] | None:
    """The indices of all bags, and where bags begin; None for bags that overlap.

    Where indices are a matrix, so that each row is a bag, they stand for the beginnings too.
    """
    if offsets is None:
        rows = input.long().contiguous()
        return rows, rows
    bounds = offsets.long().contiguous()
    if not bounds.numel():
        return None
    # NumPy took 27 us for 10 where tables had gone through the caches, and 2.8 for 1.1 where none had.
    read = bounds if bounds.device is CPU else bounds.cpu()
    end = int(end_of_bags(read, input.numel()).item())
    if end < 0:
        return None
    return (input[:end] if has_last else input).long().contiguous(), bounds


@operation("EndOfBagsBackward0", differentiable=())
def end_of_bags(bounds: Tensor, size: int) -> Tensor:
    """The last of some offsets; -1 unless bags lie one behind the other, from the first of `size` indices."""
    made: Tensor = launch(
        kernels.end_of_bags, (bounds,), [((), dtypes.int64)], words=(bounds.numel(), size), n=1
    )
    return made


@operation("EmbeddingBagBackward0")
def sum_of_bags(
    weight: Tensor, indices: Tensor, bounds: Tensor, is_mean: bool, has_last: bool,
    padding_idx: int | None, by_frequency: bool, rows: int,
) -> Tensor:  # fmt: skip
    """The sum, or the mean, of the rows of `weight` that each bag names."""
    return _summed(weight, None, indices, bounds, is_mean, has_last, padding_idx)


sum_of_bags.linear("weight")


@sum_of_bags.vjp
def _(g: Tensor, indices: Tensor, bounds: Tensor, is_mean: bool, has_last: bool,
      padding_idx: int | None, by_frequency: bool, rows: int) -> Any:  # fmt: skip
    if is_mean:
        g = g / _counts(indices, bounds, has_last, padding_idx)
    gx = gradient_of_table(_spread(g, indices, bounds), indices, padding_idx, by_frequency, rows)
    return gx, None, None


@operation("EmbeddingBagBackward0")
def sum_of_weighted_bags(
    weight: Tensor, factors: Tensor, indices: Tensor, bounds: Tensor, has_last: bool,
    padding_idx: int | None, by_frequency: bool, rows: int,
) -> Tensor:  # fmt: skip
    """The sum of the rows of `weight` that each bag names, each times a factor."""
    return _summed(weight, factors, indices, bounds, False, has_last, padding_idx)


sum_of_weighted_bags.multilinear("weight", "factors")


@sum_of_weighted_bags.vjp
def _(g: Tensor, weight: Tensor, factors: Tensor, indices: Tensor, bounds: Tensor,
      has_last: bool, padding_idx: int | None, by_frequency: bool, rows: int) -> Any:  # fmt: skip
    each = _spread(g, indices, bounds)
    scaled = each * factors.unsqueeze(-1)
    g_weight = gradient_of_table(scaled, indices, padding_idx, by_frequency, rows)
    products = (look_up(weight, indices, None, False, rows) * each).sum(-1)
    g_factors = _without(products, indices, padding_idx)
    return g_weight, g_factors, None, None


@operation("EmbeddingBagBackward0", differentiable=(0,))
def largest_of_bags(
    weight: Tensor, indices: Tensor, bounds: Tensor, has_last: bool, padding_idx: int | None, rows: int
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest elements of the rows that each bag names, and whose they are; 0 and -1 if there are none."""
    bags, words, grain = _sizes(weight, indices, bounds, has_last, padding_idx)
    shape = bags, weight.shape[1]
    values, places = launch(
        kernels.largest_in_bags, (weight.contiguous(), indices, bounds),
        [(shape, weight.dtype), (shape, dtypes.int64)], bind={"T": weight.dtype}, words=words,
        n=bags, grain=grain, fallible=True, messages=OUTSIDE,
    )  # fmt: skip
    return values, places


@largest_of_bags.jvp
def _(t_weight: Tensor, outs: tuple[Tensor, Tensor]) -> Any:
    found = gather_grid(t_weight, 0, outs[1].clamp(min=0), t_weight.shape)
    return found.masked_fill(outs[1] < 0, 0), None


@largest_of_bags.vjp
def _(g: Tensor, outs: tuple[Tensor, Tensor], rows: int) -> Any:
    start, places = g.new_zeros(rows, g.shape[1]), outs[1]
    gx = scatter_sum(start, 0, places.clamp(min=0), g.masked_fill(places < 0, 0))
    return gx, None, None


def _summed(
    weight: Tensor, factors: Tensor | None, indices: Tensor, bounds: Tensor, is_mean: bool,
    has_last: bool, padding_idx: int | None,
) -> Tensor:  # fmt: skip
    """The kernel, recorded."""
    bags, words, grain = _sizes(weight, indices, bounds, has_last, padding_idx)
    made: Tensor = launch(
        kernels.sum_bags,
        (
            weight.contiguous(), indices, bounds,
            weight if factors is None else factors.contiguous(),
        ),
        [((bags, weight.shape[1]), weight.dtype)], bind={"T": weight.dtype},
        words=(*words, factors is not None, is_mean), n=bags, grain=grain, fallible=True,
        messages=OUTSIDE,
    )  # fmt: skip
    return made


def _sizes(
    weight: Tensor, indices: Tensor, bounds: Tensor, has_last: bool, padding_idx: int | None
) -> tuple[int, tuple[int, ...], int]:
    """How many bags there are, the first words of their kernels, and the bags of a part of the work."""
    rows, columns = weight.shape
    size = indices.numel()
    bags, length = indices.shape if indices.ndim == 2 else (bounds.numel() - has_last, -1)
    padding = NOTHING if padding_idx is None else padding_idx
    words = columns, rows, size, length, bounds.numel(), padding
    return bags, words, max(1, GRAIN * bags // max(1, size * columns))


def _spread(g: Tensor, indices: Tensor, bounds: Tensor) -> Tensor:
    """For each index its bag's row of g."""
    if indices.ndim == 2:
        return g.unsqueeze(1).expand(*indices.shape, g.shape[1])
    bags = searchsorted(bounds, arange(len(indices), device=g.device), right=True) - 1
    return select_rows(g, 0, bags, len(g))


def _counts(indices: Tensor, bounds: Tensor, has_last: bool, padding_idx: int | None) -> Any:
    """How many indices of each bag count, one at least."""
    if padding_idx is None and indices.ndim == 2:
        return max(indices.shape[1], 1)
    ones = indices.new_ones(indices.shape)
    if padding_idx is not None:
        ones = ones.masked_fill(indices == padding_idx, 0)
    if indices.ndim == 2:
        return ones.sum(1, keepdim=True).clamp(min=1)
    ends = bounds if has_last else cat((bounds, bounds.new_tensor([len(indices)])))
    before = cat((ones.new_zeros(1), ones.cumsum(0)))[ends]
    return (before[1:] - before[:-1]).clamp(min=1).unsqueeze(1)


def _without(products: Tensor, indices: Tensor, padding_idx: int | None) -> Tensor:
    """Zeros where an index does not count."""
    return products if padding_idx is None else products.masked_fill(indices == padding_idx, 0)


def _check(
    input: Tensor, weight: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None
) -> None:
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it "
            f"must have the same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    ndim = input.ndim
    if ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
            f"fixed length sequences. However, found offsets of type {type(offsets)}"
        )
    if ndim == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if ndim == 1 and offsets is not None and offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {ndim}")
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
            f"'per_sample_weights'; but type torch.{weight.dtype.legacy}Tensor does not equal "
            f"torch.{per_sample_weights.dtype.legacy}Tensor (while checking arguments for embedding_bag)"
        )


def _in_rows(input: Tensor, offsets: Tensor, has_last: bool) -> tuple[Tensor | None, Tensor]:
    """Where the elements of bags of any lengths lie, as rows of one length, and which of them belong to the
    bag; nowhere, if there are none.
    """
    size, starts = input.numel(), _starts(input, offsets).tolist()
    ends = starts[1:] if has_last else [*starts[1:], size]
    begins = offsets[: len(ends)].long().unsqueeze(1)
    lengths = offsets.new_tensor(ends, dtype=dtypes.int64).unsqueeze(1) - begins
    longest = max((end - start for start, end in zip(starts, ends, strict=False)), default=0)
    steps = arange(max(longest, 0), device=input.device)
    inside = steps < lengths
    return where(inside, begins + steps, 0) if size else None, inside


def _starts(input: Tensor, offsets: Tensor) -> np.ndarray[Any, Any]:
    """Where bags begin, as numbers to be looked at at once."""
    size, starts = input.numel(), offsets._values()
    if len(starts) and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {starts[0]}"
        )
    if len(starts) and starts[-1] > size:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {size} but got offsets[-1] of "
            f"{starts[-1]}"
        )
    return starts


def _joined(found: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    """One row of each bag of rows (bags, n, columns), of those that are kept."""
    if mode == "max":
        if found.shape[1] == 0:
            return found.sum(1)
        if kept is None:
            return found.max(1).values
        largest = found.masked_fill(kept.unsqueeze(-1).logical_not(), -float("inf")).max(1).values
        return largest.masked_fill(kept.any(1, keepdim=True).logical_not(), 0.0)
    if kept is None:
        return found.sum(1) if mode == "sum" or found.shape[1] == 0 else found.mean(1)
    total = found.masked_fill(kept.unsqueeze(-1).logical_not(), 0.0).sum(1)
    return total if mode == "sum" else total / kept.sum(1, keepdim=True).clamp(min=1)
