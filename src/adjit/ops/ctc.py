"""The loss of label sequences that are not aligned."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..graph.batching import each, folded, unfolded
from ..graph.launch import launch
from ..graph.operation import operation
from ..kernels.ops import ctc as kernels
from ..schedule.planning.recipe import GRAIN
from ..tensor import Tensor
from .creation import tensor
from .losses import check_reduction


def no_label(status: tuple[int, ...]) -> Exception:
    """The error about a target that is no class."""
    return IndexError(f"ctc_loss: target {status[1]} is out of bounds.")


def _grain(times: int, states: int) -> int:
    """Samples that are worth a thread; each state at each time takes an exponential or two and a logarithm."""
    return max(1, GRAIN // max(1, 8 * times * states))


@operation("CtcLossBackward0", differentiable=(0,))
def label_losses(
    log_probs: Tensor, targets: Tensor, lengths: Tensor, blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor]:
    """The loss of each sample, and the log-probabilities of its states."""
    times, batch, classes = log_probs.shape
    width = targets.shape[1]
    size = kernels.width_of_row(width)
    found: tuple[Tensor, Tensor] = launch(
        kernels.ctc, (log_probs.contiguous(), targets, lengths),
        [((batch,), log_probs.dtype), ((batch, kernels.ROWS + times, size), log_probs.dtype)],
        bind={"T": log_probs.dtype}, words=(times, batch, classes, width, blank, size), n=batch,
        grain=_grain(times, size), fallible=no_label,
    )  # fmt: skip
    return found


@label_losses.jvp
def _(t_log_probs: Tensor, log_probs: Tensor, targets: Tensor, lengths: Tensor, outs: Any, blank: int,
      zero_infinity: bool) -> Any:  # fmt: skip
    losses, states = outs
    ones = losses.new_ones(losses.shape)
    slopes = label_gradients(
        log_probs, targets, lengths, states, losses, ones, blank, zero_infinity
    )
    return (slopes * t_log_probs).sum((0, 2))


@label_losses.vjp
def _(g: Tensor, log_probs: Tensor, targets: Tensor, lengths: Tensor, outs: Any, blank: int,
      zero_infinity: bool) -> Any:  # fmt: skip
    gx = label_gradients(log_probs, targets, lengths, outs[1], outs[0], g, blank, zero_infinity)
    return gx, None, None


@label_losses.batched
def _(log_probs: Tensor, targets: Tensor, lengths: Tensor, blank: int, zero_infinity: bool) -> Any:
    size = log_probs.shape[0]
    found = label_losses(
        _side_by_side(log_probs), folded(targets), folded(lengths), blank, zero_infinity
    )
    return each(found, lambda t: unfolded(t, size))


def _side_by_side(t: Tensor) -> Tensor:
    """Examples (many, T, N, C) as one batch (T, many * N, C)."""
    return t.transpose(0, 1).flatten(1, 2)


@operation("CtcLossBackwardBackward0")
def label_gradients(
    log_probs: Tensor, targets: Tensor, lengths: Tensor, states: Tensor, losses: Tensor, g: Tensor,
    blank: int, zero_infinity: bool,
) -> Tensor:  # fmt: skip
    """The gradient of the log-probabilities."""
    times, batch, classes = log_probs.shape
    size = states.shape[2]
    found = launch(
        kernels.ctc_backward,
        (log_probs.contiguous(), targets, lengths, states, losses, g.contiguous()),
        [(log_probs.shape, log_probs.dtype), ((batch, 3, size), log_probs.dtype)],
        bind={"T": log_probs.dtype},
        words=(times, batch, classes, targets.shape[1], blank, size, zero_infinity), n=batch,
        grain=_grain(times, 2 * size + classes),
    )  # fmt: skip
    gradient: Tensor = found[0]
    return gradient


@label_gradients.vjp
def _(g: Tensor, log_probs: Tensor) -> Any:
    raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented")


@label_gradients.batched
def _(log_probs: Tensor, targets: Tensor, lengths: Tensor, states: Tensor, losses: Tensor, g: Tensor,
      blank: int, zero_infinity: bool) -> Any:  # fmt: skip
    times, samples = log_probs.shape[1:3]
    found = label_gradients(
        _side_by_side(log_probs), *map(folded, (targets, lengths, states, losses, g)), blank,
        zero_infinity,
    )  # fmt: skip
    return found.view(times, -1, samples, found.shape[2]).transpose(0, 1)


def _lengths(given: Any, name: str, batch: int) -> list[int]:
    """Lengths as numbers, one for each sample."""
    if isinstance(given, Tensor):
        if given.dtype.kind not in "iu":
            raise RuntimeError(f"{name} must be integral")
        given = given.reshape(-1).tolist()
    listed = [operator.index(length) for length in given]
    if len(listed) != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return listed


def _checking(expected: str, name: str, limit: int, found: int) -> RuntimeError:
    return RuntimeError(
        f"Expected {name} to have value at {expected} {limit}, but got value {found} (while checking "
        "arguments for ctc_loss_allocate_outputs)"
    )


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int], blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the log-probability of label sequences whose alignment in time is not known.

    Graves et al., *Connectionist Temporal Classification*, ICML 2006. Lengths are looked at.

    Args:
        log_probs: (T, N, C) or (T, C), floating: logarithms of probabilities, from `log_softmax`.
        targets: int32 or int64 classes, (N, S) or all of them one after the other; without blanks.
        input_lengths: how many of the T steps count, (N) or one; a tensor, or numbers.
        target_lengths: how long each target is, (N) or one.
        blank: the class of no label.
        reduction: `"mean"` (of losses over target lengths), `"sum"` or `"none"`.
        zero_infinity: whether the loss of a target that is too long is zero, and its gradient.

    Returns:
        A scalar, or (N). Differentiable once in `log_probs`, as if these came from `log_softmax`.

    Raises:
        RuntimeError: shapes or lengths that do not fit, a blank out of range.
        IndexError: a target that is no class.

    Example:
        >>> log_probs = adjit.full((3, 1, 2), 0.5).log()
        >>> F.ctc_loss(log_probs, adjit.tensor([[1]]), [3], [1], reduction="none").exp()
        tensor([1.3333])
    """
    check_reduction(reduction)
    is_single = log_probs.ndim == 2
    x = log_probs.unsqueeze(1) if is_single else log_probs
    times, batch, classes = x.shape
    inputs = _lengths(input_lengths, "input_lengths", batch)
    wanted = _lengths(target_lengths, "target_lengths", batch)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for length in wanted:
        if length < 0:
            raise _checking("least", "target_lengths", 0, length)
    for length in inputs:
        if length < 0:
            raise _checking("least", "input_lengths", 0, length)
        if length > times:
            raise _checking("most", "input_lengths", times, length)
    rows = _in_rows(targets, wanted, batch)
    lengths = [length for pair in zip(inputs, wanted, strict=True) for length in pair]
    pairs = tensor(lengths, dtype=dtypes.int64, device=x.device).view(batch, 2)
    losses, _ = label_losses(x, rows.to(x.device), pairs, blank, zero_infinity)
    if zero_infinity:
        losses = losses.masked_fill(losses == float("inf"), 0.0)
    if reduction == "mean":
        over = tensor([max(length, 1) for length in wanted], dtype=losses.dtype, device=x.device)
        return (losses / over).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if is_single else losses


def _in_rows(targets: Tensor, lengths: list[int], batch: int) -> Tensor:
    """Targets as (N, S) of int64, S being one at least."""
    longest = max(lengths, default=0)
    listed = targets.detach().long()
    if targets.ndim == 2:
        if targets.shape[0] != batch:
            raise RuntimeError(
                f"Expected tensor to have size {batch} at dimension 0, but got size "
                f"{targets.shape[0]} for argument #2 'targets' (while checking arguments for "
                "ctc_loss_allocate_outputs)"
            )
        if targets.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                f"{targets.shape[1]} for argument #2 'targets' (while checking arguments for "
                "ctc_loss_allocate_outputs)"
            )
        return listed.contiguous() if targets.shape[1] else listed.new_zeros((batch, 1))
    total = sum(lengths)
    if targets.ndim != 1 or targets.numel() != total:
        raise RuntimeError(
            f"Expected tensor to have size {total} at dimension 0, but got size "
            f"{targets.shape[0] if targets.ndim else 1} for argument #2 'targets' (while checking "
            "arguments for ctc_loss_allocate_outputs)"
        )
    if total == 0:
        return listed.new_zeros((batch, 1))
    starts = [sum(lengths[:k]) for k in range(batch)]
    places = [
        [start + min(k, max(length - 1, 0)) if length else 0 for k in range(longest)]
        for start, length in zip(starts, lengths, strict=True)
    ]
    return listed[tensor(places, dtype=dtypes.int64, device=targets.device)].contiguous()
