"""Sums, means and maxima of rows that are looked up."""

from __future__ import annotations

import warnings

from .. import dtypes
from ..tensor import Tensor
from .comparison import where
from .creation import arange
from .embedding import embedding, limit_norms

INDICES = (dtypes.int32, dtypes.int64)


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
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, "
            "input, ...)` is deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
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
    if input.ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
            f"fixed length sequences. However, found offsets of type {type(offsets)}"
        )
    if input.ndim == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if input.ndim == 1 and offsets is not None and offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if input.ndim not in (1, 2):
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
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
    size = input.numel()
    starts = offsets.tolist()
    if starts and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {starts[0]}"
        )
    if starts and starts[-1] > size:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {size} but got offsets[-1] of "
            f"{starts[-1]}"
        )
    ends = starts[1:] if has_last else [*starts[1:], size]
    begins = offsets[: len(ends)].long().unsqueeze(1)
    lengths = offsets.new_tensor(ends, dtype=dtypes.int64).unsqueeze(1) - begins
    longest = max((end - start for start, end in zip(starts, ends, strict=False)), default=0)
    steps = arange(max(longest, 0), device=input.device)
    inside = steps < lengths
    return where(inside, begins + steps, 0) if size else None, inside


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
