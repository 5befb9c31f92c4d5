"""The losses at PyTorch's top, under `nn.functional`: they take the reduction as a number."""

from __future__ import annotations

from typing import Any

from .nn import functional as F
from .tensor import Tensor

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _name(name: str, reduction: Any) -> str:
    """The name of a reduction.

    Raises:
        TypeError: with PyTorch's text, if it is no number.
        ValueError: if there is no such one.
    """
    if isinstance(reduction, bool) or not isinstance(reduction, int):
        raise TypeError(
            f"{name}(): argument 'reduction' must be int, not {type(reduction).__name__}"
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"{name}(): reduction must be 0 (none), 1 (mean) or 2 (sum), not {reduction}"
        )
    return _REDUCTIONS[reduction]


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> adjit.binary_cross_entropy_with_logits(adjit.zeros(2), adjit.tensor([0., 1.]), reduction=0)
        tensor([0.6931, 0.6931])
    """
    kind = _name("binary_cross_entropy_with_logits", reduction)
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=kind, pos_weight=pos_weight
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> x = adjit.tensor([[1., 0.]])
        >>> adjit.cosine_embedding_loss(x, x, adjit.tensor([-1.]))
        tensor(1.)
    """
    kind = _name("cosine_embedding_loss", reduction)
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=kind)


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: int = 1, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.ctc_loss`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> logs = adjit.zeros(2, 1, 2).log_softmax(2)
        >>> adjit.ctc_loss(logs, adjit.tensor([[1]]), [2], [1])
        tensor(0.2877)
    """
    kind = _name("ctc_loss", reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> adjit.hinge_embedding_loss(adjit.tensor([0.25, 3.]), adjit.tensor([-1., 1.]), reduction=0)
        tensor([0.7500, 3.0000])
    """
    kind = _name("hinge_embedding_loss", reduction)
    return F.hinge_embedding_loss(input, target, margin, reduction=kind)


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False
) -> Tensor:
    """`nn.functional.kl_div`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> adjit.kl_div(adjit.tensor([0.5]).log(), adjit.tensor([1.]), reduction=2)
        tensor(0.6931)
    """
    return F.kl_div(input, target, reduction=_name("kl_div", reduction), log_target=log_target)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """`nn.functional.margin_ranking_loss`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> adjit.margin_ranking_loss(adjit.tensor([1.]), adjit.tensor([3.]), adjit.tensor([1.]))
        tensor(2.)
    """
    kind = _name("margin_ranking_loss", reduction)
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=kind)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """`nn.functional.poisson_nll_loss`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> adjit.poisson_nll_loss(adjit.zeros(2), adjit.ones(2), True, False, 1e-8, 1)
        tensor(1.)
    """
    kind = _name("poisson_nll_loss", reduction)
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=kind)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """`nn.functional.triplet_margin_loss`; the reduction is 0 (none), 1 (mean) or 2 (sum).

    Raises:
        TypeError, ValueError: if the reduction is none of these.

    Example:
        >>> a = adjit.tensor([[1., 0.]])
        >>> adjit.triplet_margin_loss(a, a, a + 0.5)
        tensor(0.2929)
    """
    kind = _name("triplet_margin_loss", reduction)
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=kind)
